//! The time to read, decode, check, plan and run a model grows as n log n at worst.
//!
//! What is compared is CPU time of one thread, for one size and for sixteen times as much; families
//! are measured side by side. What else computes makes a round slower, but not all of them: what
//! takes too long is measured again, and the least time counts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests fail by panicking

use plutino_tests::scale::{FAMILIES, Family, PHASES, measure};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const SMALL: usize = 2_000;
const TIMES: usize = 16;

/// How much longer sixteen times as many operators may take before more is asked. n log n makes
/// 16 x 15 / 11 = 22 of it, something quadratic 256. Memory that leaves the caches in between makes
/// a step of its own: giving back the buffers of 32,000 operators took 65 times as long as of 2,000
/// on a machine with little L3, so that this alone is no proof.
const SUSPECT: f64 = 48.0;

/// From there to four times as many operators, the exponent of n from which a phase counts as
/// quadratic. What is linear and leaves a cache has taken up to 4^1.55 times as long. Time
/// a n + b n^2 that is suspect has b n >= 0.154 a at the smallest size, hence takes at least
/// (64 + 4096 x 0.154) / (16 + 256 x 0.154) = 12.5 = 4^1.82 times as long.
const QUADRATIC: f64 = 1.7;

/// What takes less than this is not compared: it would be noise.
const NOISE: Duration = Duration::from_millis(2);

/// How often what takes too long is measured.
const ROUNDS: usize = 5;

/// Operators, and the time of each phase.
struct Times {
    operators: usize,
    phases: Vec<Duration>,
}

impl Times {
    fn of(family: &Family, n: usize) -> Self {
        let measured =
            measure(&family.text(n)).unwrap_or_else(|e| panic!("{} {n}: {e}", family.name));
        let phases = PHASES.iter().map(|phase| measured.time(phase)).collect();
        Self { operators: measured.operators, phases }
    }

    /// How many times as long a phase takes as in a smaller model.
    fn ratio(&self, smaller: &Self, phase: usize) -> f64 {
        self.phases[phase].as_secs_f64() / smaller.phases[phase].as_secs_f64().max(1e-6)
    }

    /// The exponent of the number of operators with which the time of a phase grows.
    fn exponent(&self, smaller: &Self, phase: usize) -> f64 {
        let operators = self.operators as f64 / smaller.operators as f64;
        self.ratio(smaller, phase).ln() / operators.ln()
    }

    /// Measures again: of each phase, the least time counts.
    fn again(&mut self, family: &Family, n: usize) {
        let again = Self::of(family, n).phases;
        self.phases.iter_mut().zip(again).for_each(|(least, time)| *least = time.min(*least));
    }
}

/// The phases that take so much longer for the larger model that they are looked into.
fn suspects(small: &Times, large: &Times) -> Vec<usize> {
    let is = |&phase: &usize| large.phases[phase] > NOISE && large.ratio(small, phase) > SUSPECT;
    (0..PHASES.len()).filter(is).collect()
}

/// What of the suspects goes on to grow as something quadratic does.
fn quadratic(small: &Times, large: &Times, largest: &Times) -> Vec<String> {
    let phases = suspects(small, large).into_iter();
    let phases = phases.filter(|&phase| largest.exponent(large, phase) > QUADRATIC);
    let word = |phase: usize| {
        let at = |times: &Times| format!("{:?} for {}", times.phases[phase], times.operators);
        format!("{}: {}, {}, {}", PHASES[phase], at(small), at(large), at(largest))
    };
    phases.map(word).collect()
}

/// What grows faster than it may in one family.
fn failures(family: &Family) -> Vec<String> {
    let small = Times::of(family, SMALL);
    let mut large = Times::of(family, SMALL * TIMES);
    for _ in 1..ROUNDS {
        if suspects(&small, &large).is_empty() {
            return Vec::new();
        }
        large.again(family, SMALL * TIMES);
    }
    let mut largest = Times::of(family, SMALL * TIMES * 4);
    let mut slow = quadratic(&small, &large, &largest);
    if !slow.is_empty() {
        largest.again(family, SMALL * TIMES * 4);
        slow = quadratic(&small, &large, &largest);
    }
    slow.into_iter().map(|what| format!("{}: {what}", family.name)).collect()
}

#[test]
fn time_grows_as_n_log_n() {
    let next = AtomicUsize::new(0);
    let worker = || {
        let taken = std::iter::from_fn(|| FAMILIES.get(next.fetch_add(1, Ordering::Relaxed)));
        taken.flat_map(failures).collect::<Vec<_>>()
    };
    let threads = thread::available_parallelism().map_or(1, |n| n.get()).min(FAMILIES.len());
    let failures: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn what_is_quadratic_is_found() {
    let times = |operators, ms: [u64; 6]| {
        let phases = ms.map(Duration::from_millis).to_vec();
        Times { operators, phases }
    };
    let small = times(2_000, [2, 1, 7, 60, 1, 1]);
    assert!(suspects(&small, &times(32_000, [45, 20, 113, 1100, 3, 36])).is_empty());
    // As planning was with 32,000 operators; and memory given back that no cache holds.
    let large = times(32_000, [45, 20, 113, 6500, 3, 67]);
    let largest = times(128_000, [200, 81, 477, 90_000, 13, 560]);
    let found = quadratic(&small, &large, &largest);
    assert!(found.len() == 1 && found[0].starts_with("plan: 60ms"), "{found:?}");
}

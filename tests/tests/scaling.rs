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

/// How much longer sixteen times as many operators may take. n log n makes 16 x 15 / 11 = 22 of it,
/// caches that hold the smaller model alone up to 40 where memory is given back, something
/// quadratic 256.
const MOST: f64 = 48.0;

/// What takes less than this is not compared: it would be noise.
const NOISE: Duration = Duration::from_millis(2);

/// How often what takes too long is measured.
const ROUNDS: usize = 5;

/// The time of each phase.
fn times(family: &Family, n: usize) -> Vec<Duration> {
    let measured = measure(&family.text(n)).unwrap_or_else(|e| panic!("{} {n}: {e}", family.name));
    PHASES.iter().map(|phase| measured.time(phase)).collect()
}

/// The phases that take too long for the larger model.
fn slow(small: &[Duration], large: &[Duration]) -> Vec<String> {
    let phases = PHASES.iter().zip(small).zip(large);
    let ratio =
        |small: &Duration, large: &Duration| large.as_secs_f64() / small.as_secs_f64().max(1e-6);
    phases
        .filter(|((_, small), large)| **large > NOISE && ratio(small, large) > MOST)
        .map(|((phase, small), large)| {
            let ratio = ratio(small, large);
            format!("{phase}: {small:?}, then {large:?}: x {ratio:.0} for x {TIMES} operators")
        })
        .collect()
}

/// What grows faster than it may in one family.
fn failures(family: &Family) -> Vec<String> {
    let small = times(family, SMALL);
    let mut large = times(family, SMALL * TIMES);
    for _ in 1..ROUNDS {
        if slow(&small, &large).is_empty() {
            break;
        }
        let again = times(family, SMALL * TIMES);
        large.iter_mut().zip(again).for_each(|(least, time)| *least = time.min(*least));
    }
    let slow = slow(&small, &large);
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
    let ms = |times: [u64; 6]| times.map(Duration::from_millis);
    let small = ms([2, 1, 7, 60, 1, 1]);
    assert!(slow(&small, &ms([45, 20, 113, 1100, 3, 36])).is_empty());
    let found = slow(&small, &ms([45, 20, 113, 6500, 3, 36])); // as it was with 32,000 operators
    assert!(found.len() == 1 && found[0].starts_with("plan: 60ms"), "{found:?}");
}

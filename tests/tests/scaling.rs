//! The time to read, decode, check, plan and run a model grows as n log n at worst.
//!
//! What is compared is CPU time of one thread, for one size and for sixteen times as much, the
//! least of some rounds: another process that computes makes a round slower, but not all of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests fail by panicking

use plutino_tests::scale::{FAMILIES, Family, PHASES, measure};
use std::time::Duration;

const SMALL: usize = 1_000;
const TIMES: usize = 16;

/// How much longer sixteen times as many operators may take. n log n makes 16 x 14 / 10 = 22 of it,
/// something quadratic 256. Between them there is room for caches, which hold the smaller model
/// but not the larger one, and for other processes that use them as well.
const MOST: f64 = 64.0;

/// What takes less than this is not compared: it would be noise.
const NOISE: Duration = Duration::from_millis(2);

const ROUNDS: usize = 3;

/// The least time of each phase.
fn times(family: &Family, n: usize) -> Vec<Duration> {
    let text = family.text(n);
    let mut least = vec![Duration::MAX; PHASES.len()];
    for _ in 0..ROUNDS {
        let measured = measure(&text).unwrap_or_else(|e| panic!("{} {n}: {e}", family.name));
        for (least, phase) in least.iter_mut().zip(PHASES) {
            *least = measured.time(phase).min(*least);
        }
    }
    least
}

#[test]
fn time_grows_as_n_log_n() {
    let mut failures = Vec::new();
    for family in FAMILIES {
        let (small, large) = (times(family, SMALL), times(family, SMALL * TIMES));
        for ((phase, small), large) in PHASES.iter().zip(small).zip(large) {
            let ratio = large.as_secs_f64() / small.as_secs_f64().max(1e-6);
            if large > NOISE && ratio > MOST {
                let what = format!("{} of {}: {small:?}, then {large:?}", phase, family.name);
                failures.push(format!("{what}: x {ratio:.0} for x {TIMES} operators"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

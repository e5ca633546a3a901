//! Estimates in cycles of one core, by which algorithms are compared: the same for any number of
//! threads, which must not decide what is computed.

use crate::problem::ConvProblem;
use plutino_cpu::Isa;

/// Multiply-adds of a core in a cycle.
pub(crate) fn full_speed(isa: Isa) -> f64 {
    (isa.multiply_adds() * isa.lanes()) as f64
}

/// Cycles in which weights arrive: none where they stay in the second-level cache, else at 8 bytes
/// a cycle, or at 4 where one layer's fill the third-level cache.
pub(crate) fn stream_cycles(bytes: f64) -> f64 {
    match bytes {
        ..=256e3 => 0.0,
        ..=20e6 => bytes / 8.0,
        _ => bytes / 4.0,
    }
}

/// Cycles of a convolution that reaches `share` of the peak and reads its weights for each image.
pub(crate) fn by_sums(problem: &ConvProblem, isa: Isa, share: f64) -> f64 {
    let images = problem.batch().max(1);
    let sums = (problem.flops() / 2 / images) as f64;
    let weights = 4.0 * problem.weight_len() as f64;
    images as f64 * (sums / (share * full_speed(isa)) + stream_cycles(weights))
}

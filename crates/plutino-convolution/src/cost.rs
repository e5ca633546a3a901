//! Estimates in cycles of one core, by which algorithms are compared: the same for any number of
//! threads, which must not decide what is computed.

use crate::problem::ConvProblem;
use plutino_cpu::Isa;
pub(crate) use plutino_products::gemm::cost::*;

/// Cycles of a convolution that reaches `share` of the peak and reads its weights for each image.
pub(crate) fn by_sums(problem: &ConvProblem, isa: Isa, share: f64) -> f64 {
    let images = problem.batch().max(1);
    let sums = (problem.flops() / 2 / images) as f64;
    let weights = 4.0 * problem.weight_len() as f64;
    images as f64 * (sums / (share * full_speed(isa)) + stream_cycles(weights))
}

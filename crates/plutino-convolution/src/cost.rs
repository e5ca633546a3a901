//! Estimates in cycles of one core, by which algorithms are compared: the same for any number of
//! threads, which must not decide what is computed.

use crate::problem::ConvProblem;
use plutino_cpu::Isa;
pub(crate) use plutino_products::gemm::cost::*;

/// Cycles of a convolution that reaches `share` of the peak and reads its weights for each image.
/// Those of one tap arrive beside the sums; of several, where Winograd's are the other choice, they
/// count as theirs do.
pub(crate) fn by_sums(problem: &ConvProblem, isa: Isa, share: f64) -> f64 {
    let images = problem.batch().max(1);
    let sums = (problem.flops() / 2 / images) as f64 / (share * full_speed(isa));
    let weights = stream_cycles(4.0 * problem.weight_len() as f64);
    let image = if problem.taps() == 1 { sums.max(weights) } else { sums + weights };
    images as f64 * image
}

//! Estimates in cycles of one core, by which algorithms are compared: the same for any number of
//! threads, which must not decide what is computed.

use crate::problem::ConvProblem;
use plutino_cpu::Isa;
use plutino_cpu::tiles::{BLOCK, DEPTH_BLOCK, STEP, Terms};

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

/// Cycles to make words of a number of a row, by vectors: loads, a conversion for each term, and of
/// each but the last what it leaves.
pub(crate) fn words(terms: Terms) -> f64 {
    0.1 + 0.13 * terms.count() as f64
}

/// Cycles of a product of `rows` x `depth` with `depth` x `columns` on tiles, for each group, where
/// rows become words on the way in `gather` cycles a number.
///
/// A tile instruction multiplies 16 x 16 x 32 numbers in 16 cycles; loads take two fifths of the
/// time. A block of C waits, is stored, read again and finished once for each depth block: six
/// cycles for 16 numbers. Fitted to a prototype's figures of one core with AMX, whose vectors do 32
/// multiply-adds in a cycle: docs/decisions/014. Emulations stand beside vectors as units do beside
/// those, so that the same is chosen.
pub(crate) fn on_tiles(
    isa: Isa,
    terms: Terms,
    [rows, depth, columns]: [usize; 3],
    groups: usize,
    gather: f64,
) -> f64 {
    const SHARE: f64 = 0.6;
    const DRAIN: f64 = 6.0 / 16.0;
    let whole = |n: usize, of: usize| n.next_multiple_of(of) as f64;
    let (rows, columns) = (whole(rows, BLOCK), whole(columns, BLOCK));
    let (steps, depth) = (depth.div_ceil(2 * STEP), whole(depth, 2 * STEP));
    let products = terms.products().len() as f64 * depth * columns / (512.0 * SHARE);
    let blocks = steps.div_ceil(DEPTH_BLOCK) as f64;
    let weights = (2 * terms.count()) as f64 * depth * columns;
    let of_group = rows * (products + gather * depth + DRAIN * blocks * columns);
    let of_unit = groups as f64 * of_group * 32.0 / full_speed(isa);
    of_unit + stream_cycles(groups as f64 * weights)
}

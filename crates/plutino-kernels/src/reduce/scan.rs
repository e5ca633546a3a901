//! Cumulative sums, products, extrema and log-sums along one dimension.
//!
//! `out[o, l, i] = in[o, 0, i] + ... + in[o, l, i]`
//!
//! Loops: for each `o`, 32 neighbours `i` at a time (parallel) - `l`; along the last dimension, for
//! each row (parallel) - `l`. Floats are added in f64, integers in i64 (wrapping).

use super::any::LogSum;
use crate::Par;
use crate::number::{Float, Number, Ordered, Wide};
use crate::par::{SharedMut, stop::Watch};

/// Elements below which a task is not worth a thread.
const GRAIN: usize = 1 << 13;
/// Neighbours that are scanned together.
const COLUMNS: usize = 32;
/// Elements of a row between two looks whether it is to end.
const PIECE: usize = 4096;

/// What is accumulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// The sum.
    Sum,
    /// The product.
    Product,
}

/// Scans `[outer, len, inner]` along `len`, in any pair of dtypes of one kind.
///
/// # Panics
/// Where a slice does not hold `outer * len * inner` elements.
pub fn scan<T: Number, U: Number<Wide = T::Wide>>(
    par: &Par,
    kind: Scan,
    sizes: [usize; 3],
    input: &[T],
    output: &mut [U],
) {
    let (zero, one) = (T::Wide::ZERO, T::Wide::ONE);
    match kind {
        Scan::Sum => {
            scan_any(par, sizes, input, output, zero, |a, _, x| a.plus(x.widen()), U::narrow)
        }
        Scan::Product => {
            scan_any(par, sizes, input, output, one, |a, _, x| a.times(x.widen()), U::narrow);
        }
    }
}

/// The greatest (or the least) element so far and its number: the last of equals, and a NaN where
/// there was one, the last one. Writes those of the two that are asked for.
///
/// # Panics
/// As [`scan`].
pub fn running_extremum<T: Ordered>(
    par: &Par,
    max: bool,
    sizes: [usize; 3],
    input: &[T],
    values: Option<&mut [T]>,
    indices: Option<&mut [i64]>,
) {
    let init = (if max { T::LOWEST } else { T::HIGHEST }, 0);
    let step = |(best, at): (T, usize), l: usize, x: T| {
        let beats = if max { x >= best } else { x <= best };
        let beats = x.is_nan() || (!best.is_nan() && beats);
        if l == 0 || beats { (x, l) } else { (best, at) }
    };
    if let Some(values) = values {
        scan_any(par, sizes, input, values, init, step, |(best, _)| best);
    }
    if let Some(indices) = indices {
        scan_any(par, sizes, input, indices, init, step, |(_, at)| at as i64);
    }
}

/// `ln sum e^x` so far.
///
/// # Panics
/// As [`scan`].
pub fn running_logsumexp<T: Float>(par: &Par, sizes: [usize; 3], input: &[T], output: &mut [T]) {
    let step = |sum: LogSum, _, x: T| sum.and(x.widen());
    scan_any(par, sizes, input, output, LogSum::NOTHING, step, |sum| T::narrow(sum.log()));
}

/// Scans from the left: each output is made of what the elements up to its place amount to. `step`
/// gets the number of the element in its line.
///
/// # Panics
/// As [`scan`].
pub fn scan_any<T: Copy + Sync, A: Copy + Send + Sync, U: Send>(
    par: &Par,
    [outer, len, inner]: [usize; 3],
    input: &[T],
    output: &mut [U],
    init: A,
    step: impl Fn(A, usize, T) -> A + Sync,
    finish: impl Fn(A) -> U + Sync,
) {
    let total = outer.saturating_mul(len).saturating_mul(inner);
    assert!(input.len() == total && output.len() == total, "input and output of a scan");
    if inner == 1 {
        return scan_rows(par, [outer, len], input, output, init, step, finish);
    }
    let chunks = inner.div_ceil(COLUMNS);
    let work = len.saturating_mul(COLUMNS.min(inner)).max(1);
    let output = SharedMut::new(output);
    par.split(outer * chunks, GRAIN / work, |range| {
        let mut watch = Watch::new();
        for item in range {
            let (o, first) = (item / chunks, item % chunks * COLUMNS);
            let n = COLUMNS.min(inner - first);
            let mut acc = [init; COLUMNS];
            for l in 0..len {
                if watch.stops(n) {
                    return;
                }
                let at = (o * len + l) * inner + first;
                // SAFETY: items have disjoint columns.
                let output = unsafe { output.slice(at..at + n) };
                for ((acc, &x), out) in acc.iter_mut().zip(&input[at..at + n]).zip(output) {
                    *acc = step(*acc, l, x);
                    *out = finish(*acc);
                }
            }
        }
    });
}

/// The same of neighbours: whole rows, one element after the other.
fn scan_rows<T: Copy + Sync, A: Copy + Send + Sync, U: Send>(
    par: &Par,
    [rows, len]: [usize; 2],
    input: &[T],
    output: &mut [U],
    init: A,
    step: impl Fn(A, usize, T) -> A + Sync,
    finish: impl Fn(A) -> U + Sync,
) {
    let output = SharedMut::new(output);
    par.split(rows, GRAIN / len.max(1), |range| {
        let mut watch = Watch::new();
        for row in range {
            let mut acc = init;
            for first in (0..len).step_by(PIECE) {
                let piece = row * len + first..row * len + len.min(first + PIECE);
                if watch.stops(piece.len()) {
                    return;
                }
                // SAFETY: tasks have disjoint rows.
                let output = unsafe { output.slice(piece.clone()) };
                for (i, (&x, out)) in input[piece].iter().zip(output).enumerate() {
                    acc = step(acc, first + i, x);
                    *out = finish(acc);
                }
            }
        }
    });
}

//! Cumulative sums and products along one dimension.
//!
//! `out[o, l, i] = in[o, 0, i] + ... + in[o, l, i]`
//!
//! Loops: for each `o`, 32 neighbours `i` at a time (parallel) - `l`. Floats are added in f64, integers in
//! i64 (wrapping).

use crate::Par;
use crate::number::{Number, Wide};
use crate::par::SharedMut;

/// Elements below which a task is not worth a thread.
const GRAIN: usize = 1 << 13;
/// Neighbours that are scanned together.
const COLUMNS: usize = 32;

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
    [outer, len, inner]: [usize; 3],
    input: &[T],
    output: &mut [U],
) {
    let total = outer.saturating_mul(len).saturating_mul(inner);
    assert!(input.len() == total && output.len() == total, "input and output of a scan");
    let chunks = inner.div_ceil(COLUMNS);
    let work = len.saturating_mul(COLUMNS.min(inner)).max(1);
    let output = SharedMut::new(output);
    par.split(outer * chunks, GRAIN / work, |range| {
        for item in range {
            let (o, first) = (item / chunks, item % chunks * COLUMNS);
            let n = COLUMNS.min(inner - first);
            let init = if kind == Scan::Sum { T::Wide::ZERO } else { T::Wide::ONE };
            let mut acc = [init; COLUMNS];
            for l in 0..len {
                let at = (o * len + l) * inner + first;
                // SAFETY: items have disjoint columns.
                let output = unsafe { output.slice(at..at + n) };
                for ((acc, &x), out) in acc.iter_mut().zip(&input[at..at + n]).zip(output) {
                    *acc = match kind {
                        Scan::Sum => acc.plus(x.widen()),
                        Scan::Product => acc.times(x.widen()),
                    };
                    *out = U::narrow(*acc);
                }
            }
        }
    });
}

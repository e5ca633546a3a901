//! Reductions of f32, vectorised.
//!
//! `out[k] = finish(join over r of lift(in[k, r]))`
//!
//! Loops: rows (reduced elements side by side): for each output (parallel) - its rows, 4 vectors at
//! a time, the 4 x LANES lanes joined at the end. Columns (kept elements side by side): for each
//! output, 8 vectors of neighbours at a time (parallel) - its reduced elements.
//!
//! Sums: 64 vectors are added plainly, the blocks are added with the rounding errors kept (TwoSum).
//! Of n elements the sum errs by at most `(64 + log2(4 LANES) + 2) 2^-24 sum|x|`, whatever n.

use super::algebra::{
    AbsMax, AbsSum, Algebra, BLOCK, Deviations, Euclidean, ExpSum, Max, Min, Recentered, RowState,
    State, Total,
};
use super::{Fold, offset};
use crate::par::SharedMut;
use crate::simd::{Simd, Vectorized};
use crate::{Isa, Par};

/// Elements below which a task is not worth a thread.
const GRAIN: usize = 1 << 14;
/// Columns of an item of work: a multiple of 8 vectors of every instruction set.
const COLUMNS: usize = 128;

/// What is made of the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// The sum; 0 of nothing.
    Sum,
    /// The sum over the count; NaN of nothing.
    Mean,
    /// The greatest; NaN where any is NaN; -inf of nothing.
    Max,
    /// The least; NaN where any is NaN; inf of nothing.
    Min,
    /// The sum of absolute values (the 1-norm).
    AbsSum,
    /// The greatest absolute value (the infinity-norm).
    AbsMax,
    /// The root of the sum of squares (the 2-norm).
    Euclidean,
}

/// Reduces a dense f32 tensor.
///
/// # Panics
/// Where a slice is not as long as `fold` says.
pub fn reduce_f32(
    isa: Isa,
    par: &Par,
    fold: &Fold,
    reduction: Reduction,
    input: &[f32],
    output: &mut [f32],
) {
    match reduction {
        Reduction::Sum => run(isa, par, fold, Total { divisor: 1.0 }, input, output),
        Reduction::Mean => {
            run(isa, par, fold, Total { divisor: fold.count() as f32 }, input, output)
        }
        Reduction::Max => run(isa, par, fold, Max, input, output),
        Reduction::Min => run(isa, par, fold, Min, input, output),
        Reduction::AbsSum => run(isa, par, fold, AbsSum, input, output),
        Reduction::AbsMax => run(isa, par, fold, AbsMax, input, output),
        Reduction::Euclidean => run(isa, par, fold, Euclidean, input, output),
    }
}

/// The variance `sum((x - mean)^2) / divisor`, or its root, in three passes, of which one takes the
/// roundings off the mean (Chan, Golub, LeVeque 1983); in f64, as PyTorch, where the sum of a mean
/// overflows.
///
/// # Panics
/// Where a slice is not as long as `fold` says.
pub fn variance_f32(
    isa: Isa,
    par: &Par,
    fold: &Fold,
    divisor: f32,
    root: bool,
    input: &[f32],
    output: &mut [f32],
) {
    reduce_f32(isa, par, fold, Reduction::Mean, input, output);
    if output.iter().any(|mean| mean.is_infinite()) {
        let correction = fold.count() as f64 - f64::from(divisor);
        return super::any::variance(par, fold, correction, root, input, output);
    }
    run(isa, par, fold, Recentered { divisor: fold.count() as f32 }, input, output);
    run(isa, par, fold, Deviations { divisor, root }, input, output);
}

/// `ln sum e^x`, in two passes.
///
/// # Panics
/// Where a slice is not as long as `fold` says.
pub fn logsumexp_f32(isa: Isa, par: &Par, fold: &Fold, input: &[f32], output: &mut [f32]) {
    reduce_f32(isa, par, fold, Reduction::Max, input, output);
    // Infinity minus infinity is no number: such rows are added up as they are.
    for center in output.iter_mut().filter(|c| c.is_infinite()) {
        *center = 0.0;
    }
    run(isa, par, fold, ExpSum, input, output);
}

fn run<A: Algebra>(
    isa: Isa,
    par: &Par,
    fold: &Fold,
    algebra: A,
    input: &[f32],
    output: &mut [f32],
) {
    fold.check(input.len(), output.len());
    let output = SharedMut::new(output);
    if fold.inner == 1 {
        par.split(fold.outputs(), GRAIN / fold.count().max(1), |range| {
            // SAFETY: tasks have disjoint ranges of outputs.
            let output = unsafe { output.slice(range.clone()) };
            isa.run(Rows { algebra, fold, input, output, first: range.start });
        });
    } else {
        let chunks = fold.inner.div_ceil(COLUMNS);
        let work = fold.count().saturating_mul(COLUMNS.min(fold.inner));
        let kept = fold.outputs() / fold.inner.max(1);
        par.split(kept * chunks, GRAIN / work.max(1), |range| {
            for item in range {
                let (k, first) = (item / chunks, item % chunks * COLUMNS);
                let end = fold.inner.min(first + COLUMNS);
                // SAFETY: items have disjoint columns.
                let output = unsafe { output.slice(k * fold.inner + first..k * fold.inner + end) };
                // Where nothing is reduced, there is no input to begin with.
                let input = input.get(offset(&fold.kept, k) + first..).unwrap_or_default();
                isa.run(Columns { algebra, fold, input, output });
            }
        });
    }
}

struct Rows<'a, A> {
    algebra: A,
    fold: &'a Fold,
    input: &'a [f32],
    /// Outputs `first..`.
    output: &'a mut [f32],
    first: usize,
}

impl<A: Algebra> Vectorized for Rows<'_, A> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { algebra, fold, input, output, first } = self;
        for (k, out) in output.iter_mut().enumerate() {
            let base = offset(&fold.kept, first + k);
            let center = if A::CENTERED { *out } else { 0.0 };
            let mut acc = RowState::new::<A>(s);
            for run in 0..fold.runs() {
                let start = base + offset(&fold.reduced, run);
                let row = input.get(start..start + fold.row).unwrap_or_default();
                acc.join(s, algebra, center, row);
            }
            let joined = s.splat(acc.value::<A>(s));
            s.store_partial(algebra.finish(s, joined, s.splat(center)), std::slice::from_mut(out));
        }
    }
}

struct Columns<'a, A> {
    algebra: A,
    fold: &'a Fold,
    /// From the first of these columns on.
    input: &'a [f32],
    output: &'a mut [f32],
}

impl<A: Algebra> Vectorized for Columns<'_, A> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { algebra, fold, input, output } = self;
        let mut at = 0;
        while output.len() - at >= 8 * S::LANES {
            let input = input.get(at..).unwrap_or_default();
            columns::<S, A, 8>(s, algebra, fold, input, &mut output[at..at + 8 * S::LANES]);
            at += 8 * S::LANES;
        }
        while at < output.len() {
            let end = output.len().min(at + S::LANES);
            let input = input.get(at..).unwrap_or_default();
            columns::<S, A, 1>(s, algebra, fold, input, &mut output[at..end]);
            at = end;
        }
    }
}

/// Reduces N vectors of neighbouring columns, or a part of one.
#[inline(always)]
fn columns<S: Simd, A: Algebra, const N: usize>(
    s: S,
    algebra: A,
    fold: &Fold,
    input: &[f32],
    output: &mut [f32],
) {
    let n = output.len().min(S::LANES);
    let mut centers = [s.zero(); N];
    if A::CENTERED {
        for (i, center) in centers.iter_mut().enumerate() {
            *center = load(s, output, i, n);
        }
    }
    let mut states = [State::new::<A>(s); N];
    for run in 0..fold.runs() {
        let x = &input[offset(&fold.reduced, run)..];
        for (i, state) in states.iter_mut().enumerate() {
            state.join::<A>(s, algebra.lift(s, load(s, x, i, n), centers[i]));
        }
        if run % BLOCK == BLOCK - 1 {
            for state in &mut states {
                state.end_block::<A>(s);
            }
        }
    }
    for ((out, state), center) in output.chunks_mut(S::LANES).zip(states).zip(centers) {
        s.store_partial(algebra.finish(s, state.value::<A>(s), center), out);
    }
}

/// Vector `i` of `x`, or, where `n` is less than a vector, the first `n` elements.
#[inline(always)]
fn load<S: Simd>(s: S, x: &[f32], i: usize, n: usize) -> S::F32 {
    if n < S::LANES { s.load_partial(&x[..n]) } else { s.load(&x[i * S::LANES..]) }
}

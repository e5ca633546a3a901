//! Reductions of every dtype, as left folds.
//!
//! `out[k] = finish(step(... step(step(init, 0, in[k, 0]), 1, in[k, 1]) ...))`
//!
//! Loops: for each output, 32 neighbours at a time where there are neighbours (parallel) - its
//! reduced elements in row-major order. Where the order is free, long rows are reduced in 8 lanes,
//! which do not wait for each other. Floats are added in f64, integers in i64 (wrapping).

use super::{Fold, offset};
use crate::Par;
use crate::number::{Float, Number, Ordered, Wide};
use crate::par::SharedMut;

/// Elements below which a task is not worth a thread.
const GRAIN: usize = 1 << 13;
/// Neighbouring outputs that are reduced together.
const COLUMNS: usize = 32;
/// Parts of a row that are reduced next to each other.
const LANES: usize = 8;

/// Folds from the left. `step` gets the number of the element among those of its output, row-major.
///
/// # Panics
/// Where a slice is not as long as `fold` says.
pub fn fold_any<T: Copy + Sync, A: Copy + Send + Sync, U: Send>(
    par: &Par,
    fold: &Fold,
    input: &[T],
    output: &mut [U],
    init: A,
    step: impl Fn(A, usize, T) -> A + Sync,
    finish: impl Fn(A) -> U + Sync,
) {
    let row = |acc, first: usize, row: &[T]| {
        row.iter().enumerate().fold(acc, |acc, (i, &x)| step(acc, first + i, x))
    };
    fold_rows(par, fold, input, output, init, row, &step, finish);
}

/// Folds in any order: `join` makes one of what two parts of the elements came to, and `init` is
/// what no element comes to.
fn reduce_any<T: Copy + Sync, A: Copy + Send + Sync, U: Send>(
    par: &Par,
    fold: &Fold,
    input: &[T],
    output: &mut [U],
    init: A,
    (step, join): (impl Fn(A, T) -> A + Sync, impl Fn(A, A) -> A + Sync),
    finish: impl Fn(A) -> U + Sync,
) {
    let row = |acc, _, row: &[T]| {
        let (chunks, rest) = row.as_chunks::<LANES>();
        let mut acc = rest.iter().fold(acc, |acc, &x| step(acc, x));
        if chunks.len() < 2 {
            return chunks.as_flattened().iter().fold(acc, |acc, &x| step(acc, x));
        }
        let mut lanes = [init; LANES];
        for chunk in chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane = step(*lane, x);
            }
        }
        for lane in lanes {
            acc = join(acc, lane);
        }
        acc
    };
    fold_rows(par, fold, input, output, init, row, |acc, _, x| step(acc, x), finish);
}

/// Folds rows where an output has no neighbours, else columns side by side.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
fn fold_rows<T: Copy + Sync, A: Copy + Send + Sync, U: Send>(
    par: &Par,
    fold: &Fold,
    input: &[T],
    output: &mut [U],
    init: A,
    row: impl Fn(A, usize, &[T]) -> A + Sync,
    step: impl Fn(A, usize, T) -> A + Sync,
    finish: impl Fn(A) -> U + Sync,
) {
    fold.check(input.len(), output.len());
    let chunks = fold.inner.div_ceil(COLUMNS);
    let work = fold.count().saturating_mul(COLUMNS.min(fold.inner));
    let kept = fold.outputs() / fold.inner.max(1);
    let output = SharedMut::new(output);
    par.split(kept * chunks, GRAIN / work.max(1), |range| {
        for item in range {
            let (k, first) = (item / chunks, item % chunks * COLUMNS);
            let n = COLUMNS.min(fold.inner - first);
            let start = k * fold.inner + first;
            // SAFETY: items have disjoint columns.
            let output = unsafe { output.slice(start..start + n) };
            let base = offset(&fold.kept, k) + first;
            let mut acc = [init; COLUMNS];
            for run in 0..fold.runs() {
                let at = base + offset(&fold.reduced, run);
                if fold.inner == 1 {
                    acc[0] = row(acc[0], run * fold.row, &input[at..at + fold.row]);
                } else {
                    for (acc, &x) in acc.iter_mut().zip(&input[at..at + n]) {
                        *acc = step(*acc, run, x);
                    }
                }
            }
            for (out, acc) in output.iter_mut().zip(acc) {
                *out = finish(acc);
            }
        }
    });
}

/// The sum over `divisor`, in any pair of dtypes of one kind (PyTorch sums integers and bool to
/// i64).
pub fn sum<T: Number, U: Number<Wide = T::Wide>>(
    par: &Par,
    fold: &Fold,
    divisor: i64,
    input: &[T],
    output: &mut [U],
) {
    let add = (|sum: T::Wide, x: T| sum.plus(x.widen()), T::Wide::plus);
    let over = |sum: T::Wide| if divisor == 1 { sum } else { T::overflow(sum).over(divisor) };
    reduce_any(par, fold, input, output, T::Wide::ZERO, add, |sum| U::narrow(over(sum)));
}

/// The product, in any pair of dtypes of one kind; 1 of nothing.
pub fn product<T: Number, U: Number<Wide = T::Wide>>(
    par: &Par,
    fold: &Fold,
    input: &[T],
    output: &mut [U],
) {
    let multiply = (|product: T::Wide, x: T| product.times(x.widen()), T::Wide::times);
    reduce_any(par, fold, input, output, T::Wide::ONE, multiply, U::narrow);
}

/// Whether `x` takes the place of `best`.
#[inline(always)]
fn beats<T: Ordered>(max: bool, x: T, best: T) -> bool {
    if max { x.beats_as_max(best) } else { x.beats_as_min(best) }
}

/// The greatest (or the least) element; NaN where any is NaN. Of zeros the first one gives the
/// sign.
pub fn extremum<T: Ordered>(par: &Par, fold: &Fold, max: bool, input: &[T], output: &mut [T]) {
    if max {
        let better = |best: T, x: T| if x.beats_as_max(best) { x } else { best };
        best(par, fold, input, output, T::LOWEST, better);
    } else {
        let better = |best: T, x: T| if x.beats_as_min(best) { x } else { best };
        best(par, fold, input, output, T::HIGHEST, better);
    }
}

#[inline(always)]
fn best<T: Ordered>(
    par: &Par,
    fold: &Fold,
    input: &[T],
    output: &mut [T],
    init: T,
    better: impl Fn(T, T) -> T + Sync + Copy,
) {
    reduce_any(par, fold, input, output, init, (better, better), |best| best);
    // Lanes do not know whose zero came first.
    if T::DTYPE.is_float() {
        first_zeros(par, fold, input, output);
    }
}

/// Where an extremum is 0: the first of the zeros that it is made of, whose sign is its own. For
/// [`extremum`], and for `torch.max` and `torch.min` of f32 along a dimension, which take the first
/// of equal elements.
pub fn first_zeros<T: Ordered>(par: &Par, fold: &Fold, input: &[T], output: &mut [T]) {
    let zero = T::default();
    fold.check(input.len(), output.len());
    let output = SharedMut::new(output);
    par.split(output.len(), GRAIN, |range| {
        // SAFETY: tasks have disjoint outputs.
        let part = unsafe { output.slice(range.clone()) };
        for (at, out) in range.zip(part).filter(|(_, out)| **out == zero) {
            let base = offset(&fold.kept, at / fold.inner) + at % fold.inner;
            let mut runs = (0..fold.runs()).map(|run| base + offset(&fold.reduced, run));
            let found =
                runs.find_map(|at| input[at..at + fold.row].iter().copied().find(|&x| x == zero));
            *out = found.unwrap_or(*out);
        }
    });
}

/// The greatest (or the least) element and its number among the reduced elements: the first of
/// equals, the first NaN where there is one. Writes those of the two that are asked for.
pub fn arg_extremum<T: Ordered>(
    par: &Par,
    fold: &Fold,
    max: bool,
    input: &[T],
    values: Option<&mut [T]>,
    indices: Option<&mut [i64]>,
) {
    let init = (if max { T::LOWEST } else { T::HIGHEST }, 0);
    let step = |(best, at): (T, usize), i: usize, x: T| {
        if i == 0 || beats(max, x, best) { (x, i) } else { (best, at) }
    };
    if let Some(values) = values {
        fold_any(par, fold, input, values, init, step, |(best, _)| best);
    }
    if let Some(indices) = indices {
        fold_any(par, fold, input, indices, init, step, |(_, at)| at as i64);
    }
}

/// The p-norm `(sum |x|^p)^(1/p)`; the number of elements other than 0 for p = 0, the greatest or
/// least absolute value for infinite p.
pub fn power_norm<T: Float>(par: &Par, fold: &Fold, p: f64, input: &[T], output: &mut [T]) {
    let abs = |x: T| x.widen().abs();
    if p.is_infinite() {
        let max = p > 0.0;
        let better = |best: f64, x: f64| if beats(max, x, best) { x } else { best };
        let step = |best: f64, x: T| better(best, abs(x));
        let init = if max { 0.0 } else { f64::INFINITY };
        reduce_any(par, fold, input, output, init, (step, better), T::narrow);
    } else if p == 0.0 {
        let step = |n: f64, x: T| if x.widen() == 0.0 { n } else { n + 1.0 };
        reduce_any(par, fold, input, output, 0.0, (step, f64::plus), T::narrow);
    } else {
        let step = |sum: f64, x: T| sum + power(abs(x), p);
        let finish = |sum| T::narrow(power(sum, 1.0 / p));
        reduce_any(par, fold, input, output, 0.0, (step, f64::plus), finish);
    }
}

/// The variance `sum((x - mean)^2) / max(0, n - correction)`, or its root, by Welford's recurrence.
pub fn variance<T: Float>(
    par: &Par,
    fold: &Fold,
    correction: f64,
    root: bool,
    input: &[T],
    output: &mut [T],
) {
    let divisor = (fold.count() as f64 - correction).max(0.0);
    let step = |(mean, squares): (f64, f64), i: usize, x: T| {
        let d = x.widen() - mean;
        let mean = mean + d / (i + 1) as f64;
        (mean, squares + d * (x.widen() - mean))
    };
    fold_any(par, fold, input, output, (0.0, 0.0), step, |(_, squares)| {
        let variance = squares / divisor;
        T::narrow(if root { variance.sqrt() } else { variance })
    });
}

/// `ln sum e^x`; -inf of nothing.
pub fn logsumexp<T: Float>(par: &Par, fold: &Fold, input: &[T], output: &mut [T]) {
    let step = |sum: LogSum, _, x: T| sum.and(x.widen());
    fold_any(par, fold, input, output, LogSum::NOTHING, step, |sum| T::narrow(sum.log()));
}

/// A sum of powers of e, relative to the greatest one so far.
#[derive(Clone, Copy)]
pub(super) struct LogSum {
    greatest: f64,
    sum: f64,
}

impl LogSum {
    pub(super) const NOTHING: Self = Self { greatest: f64::NEG_INFINITY, sum: 0.0 };

    /// With one more power, e^x.
    #[inline(always)]
    pub(super) fn and(self, x: f64) -> Self {
        let Self { greatest, sum } = self;
        if x > greatest {
            Self { greatest: x, sum: sum * (greatest - x).exp() + 1.0 }
        } else if x == greatest {
            Self { greatest, sum: sum + 1.0 }
        } else {
            Self { greatest, sum: sum + (x - greatest).exp() }
        }
    }

    /// The logarithm of the sum.
    #[inline(always)]
    pub(super) fn log(self) -> f64 {
        let nothing = self.greatest == f64::NEG_INFINITY && !self.sum.is_nan();
        if nothing { self.greatest } else { self.greatest + self.sum.ln() }
    }
}

#[inline(always)]
fn power(x: f64, p: f64) -> f64 {
    if p == 1.0 {
        x
    } else if p == 2.0 {
        x * x
    } else if p == 0.5 {
        x.sqrt()
    } else {
        x.powf(p)
    }
}

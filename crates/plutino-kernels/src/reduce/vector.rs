//! Reductions of f32, vectorised.
//!
//! `out[k] = finish(join over r of lift(in[k, r]))`
//!
//! Loops: rows (reduced elements side by side): for each output (parallel) - its rows, 4 vectors at a
//! time, the 4 x LANES lanes joined at the end. Columns (kept elements side by side): for each output, 8
//! vectors of neighbours at a time (parallel) - its reduced elements.
//!
//! Sums: 64 vectors are added plainly, the blocks are added with the rounding errors kept (TwoSum). Of n
//! elements the sum errs by at most `(64 + log2(4 LANES) + 2) 2^-24 sum|x|`, whatever n.

use super::{Fold, offset};
use crate::par::SharedMut;
use crate::simd::{Simd, Vectorized};
use crate::{Isa, Par};

/// Vectors added plainly before their sum joins the compensated one.
const BLOCK: usize = 64;
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

/// The variance `sum((x - mean)^2) / divisor`, or its root, in two passes.
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
    run(isa, par, fold, Deviations { divisor, root }, input, output);
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
                let input = &input[offset(&fold.kept, k) + first..];
                isa.run(Columns { algebra, fold, input, output });
            }
        });
    }
}

/// `finish(join over x of lift(x))`, where joining is adding or taking the greater.
trait Algebra: Copy + Send + Sync {
    /// Whether joining is adding, with compensation; else it is taking the greater.
    const SUM: bool = true;
    /// Whether `lift` wants the center of its output, which lies in `output` beforehand.
    const CENTERED: bool = false;
    /// An element whose lift joins without effect.
    #[inline(always)]
    fn neutral(self, _center: f32) -> f32 {
        0.0
    }
    #[inline(always)]
    fn lift<S: Simd>(self, _: S, x: S::F32, _center: S::F32) -> S::F32 {
        x
    }
    #[inline(always)]
    fn finish<S: Simd>(self, _: S, joined: S::F32) -> S::F32 {
        joined
    }
}

#[derive(Clone, Copy)]
struct Total {
    divisor: f32,
}
impl Algebra for Total {
    #[inline(always)]
    fn finish<S: Simd>(self, s: S, joined: S::F32) -> S::F32 {
        s.div(joined, s.splat(self.divisor))
    }
}

#[derive(Clone, Copy)]
struct AbsSum;
impl Algebra for AbsSum {
    #[inline(always)]
    fn lift<S: Simd>(self, s: S, x: S::F32, _: S::F32) -> S::F32 {
        s.abs(x)
    }
}

#[derive(Clone, Copy)]
struct Euclidean;
impl Algebra for Euclidean {
    #[inline(always)]
    fn lift<S: Simd>(self, s: S, x: S::F32, _: S::F32) -> S::F32 {
        s.mul(x, x)
    }
    #[inline(always)]
    fn finish<S: Simd>(self, s: S, joined: S::F32) -> S::F32 {
        s.sqrt(joined)
    }
}

#[derive(Clone, Copy)]
struct Deviations {
    divisor: f32,
    root: bool,
}
impl Algebra for Deviations {
    const CENTERED: bool = true;
    #[inline(always)]
    fn neutral(self, center: f32) -> f32 {
        center
    }
    #[inline(always)]
    fn lift<S: Simd>(self, s: S, x: S::F32, center: S::F32) -> S::F32 {
        let d = s.sub(x, center);
        s.mul(d, d)
    }
    #[inline(always)]
    fn finish<S: Simd>(self, s: S, joined: S::F32) -> S::F32 {
        let variance = s.div(joined, s.splat(self.divisor));
        if self.root { s.sqrt(variance) } else { variance }
    }
}

#[derive(Clone, Copy)]
struct Max;
impl Algebra for Max {
    const SUM: bool = false;
    #[inline(always)]
    fn neutral(self, _: f32) -> f32 {
        f32::NEG_INFINITY
    }
}

/// The least is the negated greatest of the negated.
#[derive(Clone, Copy)]
struct Min;
impl Algebra for Min {
    const SUM: bool = false;
    #[inline(always)]
    fn neutral(self, _: f32) -> f32 {
        f32::INFINITY
    }
    #[inline(always)]
    fn lift<S: Simd>(self, s: S, x: S::F32, _: S::F32) -> S::F32 {
        s.mul(x, s.splat(-1.0))
    }
    #[inline(always)]
    fn finish<S: Simd>(self, s: S, joined: S::F32) -> S::F32 {
        s.mul(joined, s.splat(-1.0))
    }
}

#[derive(Clone, Copy)]
struct AbsMax;
impl Algebra for AbsMax {
    const SUM: bool = false;
    #[inline(always)]
    fn lift<S: Simd>(self, s: S, x: S::F32, _: S::F32) -> S::F32 {
        s.abs(x)
    }
}

/// What has been joined so far: for sums, `high + low` is the sum of the finished blocks.
struct State<S: Simd> {
    block: S::F32,
    high: S::F32,
    low: S::F32,
}

impl<S: Simd> Clone for State<S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<S: Simd> Copy for State<S> {}

impl<S: Simd> State<S> {
    #[inline(always)]
    fn new<A: Algebra>(s: S) -> Self {
        let block = s.splat(if A::SUM { 0.0 } else { f32::NEG_INFINITY });
        Self { block, high: s.zero(), low: s.zero() }
    }

    #[inline(always)]
    fn join<A: Algebra>(&mut self, s: S, x: S::F32) {
        self.block = join::<S, A>(s, self.block, x);
    }

    /// Ends a block: `high + low += block`, exactly but for the rounding of `low` (Knuth's TwoSum).
    #[inline(always)]
    fn end_block<A: Algebra>(&mut self, s: S) {
        if A::SUM {
            let sum = s.add(self.high, self.block);
            let part = s.sub(sum, self.high);
            let error = s.add(s.sub(self.high, s.sub(sum, part)), s.sub(self.block, part));
            (self.high, self.low, self.block) = (sum, s.add(self.low, error), s.zero());
        }
    }

    #[inline(always)]
    fn value<A: Algebra>(mut self, s: S) -> S::F32 {
        if !A::SUM {
            return self.block;
        }
        self.end_block::<A>(s);
        // An infinite sum has a NaN for its rounding error.
        s.select(s.eq(self.low, self.low), s.add(self.high, self.low), self.high)
    }
}

#[inline(always)]
fn join<S: Simd, A: Algebra>(s: S, a: S::F32, x: S::F32) -> S::F32 {
    if A::SUM {
        s.add(a, x)
    } else {
        s.select(s.eq(x, x), s.max(x, a), x) // `max` keeps a NaN in `a`
    }
}

/// All lanes joined.
#[inline(always)]
fn join_lanes<S: Simd, A: Algebra>(s: S, x: S::F32) -> f32 {
    if A::SUM {
        return s.sum(x);
    }
    let numbers = s.sum(s.select(s.eq(x, x), s.splat(1.0), s.zero()));
    if numbers < S::LANES as f32 { f32::NAN } else { s.max_lane(x) }
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
            let mut states = [State::new::<A>(s); 4];
            for run in 0..fold.runs() {
                let start = base + offset(&fold.reduced, run);
                row(s, algebra, center, &input[start..start + fold.row], &mut states);
            }
            let [a, b, c, d] = states.map(|state| state.value::<A>(s));
            let joined = join::<S, A>(s, join::<S, A>(s, a, b), join::<S, A>(s, c, d));
            let joined = s.splat(join_lanes::<S, A>(s, joined));
            s.store_partial(algebra.finish(s, joined), std::slice::from_mut(out));
        }
    }
}

/// Joins a row to four states.
#[inline(always)]
fn row<S: Simd, A: Algebra>(
    s: S,
    algebra: A,
    center: f32,
    row: &[f32],
    states: &mut [State<S>; 4],
) {
    let c = s.splat(center);
    for block in row.chunks(4 * S::LANES * BLOCK) {
        let mut fours = block.chunks_exact(4 * S::LANES);
        for four in &mut fours {
            for (i, state) in states.iter_mut().enumerate() {
                state.join::<A>(s, algebra.lift(s, s.load(&four[i * S::LANES..]), c));
            }
        }
        for (x, state) in fours.remainder().chunks(S::LANES).zip(states.iter_mut()) {
            let x = if x.len() == S::LANES {
                s.load(x)
            } else {
                s.load_partial_or(x, algebra.neutral(center))
            };
            state.join::<A>(s, algebra.lift(s, x, c));
        }
        states.iter_mut().for_each(|state| state.end_block::<A>(s));
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
            columns::<S, A, 8>(s, algebra, fold, &input[at..], &mut output[at..at + 8 * S::LANES]);
            at += 8 * S::LANES;
        }
        while at < output.len() {
            let end = output.len().min(at + S::LANES);
            columns::<S, A, 1>(s, algebra, fold, &input[at..], &mut output[at..end]);
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
    let n = output.len();
    let load = |x: &[f32], i: usize| match n {
        n if n < S::LANES => s.load_partial(&x[..n]),
        _ => s.load(&x[i * S::LANES..]),
    };
    let mut centers = [s.zero(); N];
    if A::CENTERED {
        centers = std::array::from_fn(|i| load(output, i));
    }
    let mut states = [State::new::<A>(s); N];
    for run in 0..fold.runs() {
        let x = &input[offset(&fold.reduced, run)..];
        for (i, state) in states.iter_mut().enumerate() {
            state.join::<A>(s, algebra.lift(s, load(x, i), centers[i]));
        }
        if run % BLOCK == BLOCK - 1 {
            states.iter_mut().for_each(|state| state.end_block::<A>(s));
        }
    }
    for (out, state) in output.chunks_mut(S::LANES).zip(states) {
        s.store_partial(algebra.finish(s, state.value::<A>(s)), out);
    }
}

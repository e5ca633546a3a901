//! What reductions of f32 vectors are made of; norms and softmax use it too.
//!
//! Sums: [`BLOCK`] vectors are added plainly, the blocks are added with their rounding errors kept
//! (Knuth's TwoSum). A sum of any number of elements errs by at most
//! `(BLOCK + log2(4 LANES) + 2) 2^-24 sum|x|`, 72 x 2^-24 on AVX-512.

use crate::math;
use crate::simd::Simd;

/// Vectors added plainly before their sum joins the compensated one.
pub(crate) const BLOCK: usize = 64;

/// `finish(join over x of lift(x))`, where joining is adding or taking the greater.
pub(crate) trait Algebra: Copy + Send + Sync {
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
    fn finish<S: Simd>(self, _: S, joined: S::F32, _center: S::F32) -> S::F32 {
        joined
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Total {
    pub(crate) divisor: f32,
}
impl Algebra for Total {
    #[inline(always)]
    fn finish<S: Simd>(self, s: S, joined: S::F32, _: S::F32) -> S::F32 {
        s.div(joined, s.splat(self.divisor))
    }
}

#[derive(Clone, Copy)]
pub(crate) struct AbsSum;
impl Algebra for AbsSum {
    #[inline(always)]
    fn lift<S: Simd>(self, s: S, x: S::F32, _: S::F32) -> S::F32 {
        s.abs(x)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Euclidean;
impl Algebra for Euclidean {
    #[inline(always)]
    fn lift<S: Simd>(self, s: S, x: S::F32, _: S::F32) -> S::F32 {
        s.mul(x, x)
    }
    #[inline(always)]
    fn finish<S: Simd>(self, s: S, joined: S::F32, _: S::F32) -> S::F32 {
        s.sqrt(joined)
    }
}

/// The mean, from one that its roundings have moved: plus the mean of what deviates from that.
///
/// Of numbers that are all the same the first mean is off by some units in the last place, which a
/// division by their deviation makes large; this one is off by nothing.
#[derive(Clone, Copy)]
pub(crate) struct Recentered {
    pub(crate) divisor: f32,
}
impl Algebra for Recentered {
    const CENTERED: bool = true;
    #[inline(always)]
    fn neutral(self, center: f32) -> f32 {
        center
    }
    #[inline(always)]
    fn lift<S: Simd>(self, s: S, x: S::F32, center: S::F32) -> S::F32 {
        s.sub(x, center)
    }
    #[inline(always)]
    fn finish<S: Simd>(self, s: S, joined: S::F32, center: S::F32) -> S::F32 {
        s.add(center, s.div(joined, s.splat(self.divisor)))
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Deviations {
    pub(crate) divisor: f32,
    pub(crate) root: bool,
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
    fn finish<S: Simd>(self, s: S, joined: S::F32, _: S::F32) -> S::F32 {
        let variance = s.div(joined, s.splat(self.divisor));
        if self.root { s.sqrt(variance) } else { variance }
    }
}

/// The sum of e^(x - center), finished to its logarithm plus the center.
#[derive(Clone, Copy)]
pub(crate) struct ExpSum;
impl Algebra for ExpSum {
    const CENTERED: bool = true;
    #[inline(always)]
    fn neutral(self, _: f32) -> f32 {
        f32::NEG_INFINITY
    }
    #[inline(always)]
    fn lift<S: Simd>(self, s: S, x: S::F32, center: S::F32) -> S::F32 {
        math::exp(s, s.sub(x, center))
    }
    #[inline(always)]
    fn finish<S: Simd>(self, s: S, joined: S::F32, center: S::F32) -> S::F32 {
        s.add(math::log(s, joined), center)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Max;
impl Algebra for Max {
    const SUM: bool = false;
    #[inline(always)]
    fn neutral(self, _: f32) -> f32 {
        f32::NEG_INFINITY
    }
}

/// The least is the negated greatest of the negated.
#[derive(Clone, Copy)]
pub(crate) struct Min;
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
    fn finish<S: Simd>(self, s: S, joined: S::F32, _: S::F32) -> S::F32 {
        s.mul(joined, s.splat(-1.0))
    }
}

#[derive(Clone, Copy)]
pub(crate) struct AbsMax;
impl Algebra for AbsMax {
    const SUM: bool = false;
    #[inline(always)]
    fn lift<S: Simd>(self, s: S, x: S::F32, _: S::F32) -> S::F32 {
        s.abs(x)
    }
}

/// What has been joined so far: for sums, `high + low` is the sum of the finished blocks.
pub(crate) struct State<S: Simd> {
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
    pub(crate) fn new<A: Algebra>(s: S) -> Self {
        let block = s.splat(if A::SUM { 0.0 } else { f32::NEG_INFINITY });
        Self { block, high: s.zero(), low: s.zero() }
    }

    #[inline(always)]
    pub(crate) fn join<A: Algebra>(&mut self, s: S, x: S::F32) {
        self.block = join::<S, A>(s, self.block, x);
    }

    /// Ends a block: `high + low += block`, exactly but for the rounding of `low` (Knuth's TwoSum).
    #[inline(always)]
    pub(crate) fn end_block<A: Algebra>(&mut self, s: S) {
        if A::SUM {
            let sum = s.add(self.high, self.block);
            let part = s.sub(sum, self.high);
            let error = s.add(s.sub(self.high, s.sub(sum, part)), s.sub(self.block, part));
            (self.high, self.low, self.block) = (sum, s.add(self.low, error), s.zero());
        }
    }

    #[inline(always)]
    pub(crate) fn value<A: Algebra>(mut self, s: S) -> S::F32 {
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

/// Four states, which take the vectors of a row in turn.
pub(crate) struct RowState<S: Simd>([State<S>; 4]);

impl<S: Simd> RowState<S> {
    #[inline(always)]
    pub(crate) fn new<A: Algebra>(s: S) -> Self {
        Self([State::new::<A>(s); 4])
    }

    /// Joins the elements of a row.
    #[inline(always)]
    pub(crate) fn join<A: Algebra>(&mut self, s: S, algebra: A, center: f32, row: &[f32]) {
        for block in row.chunks(4 * S::LANES * BLOCK) {
            self.join_block(s, algebra, center, block);
            for state in &mut self.0 {
                state.end_block::<A>(s);
            }
        }
    }

    /// Joins at most [`BLOCK`] vectors for each state.
    #[inline(always)]
    fn join_block<A: Algebra>(&mut self, s: S, algebra: A, center: f32, block: &[f32]) {
        let c = s.splat(center);
        let mut fours = block.chunks_exact(4 * S::LANES);
        for four in &mut fours {
            for (i, state) in self.0.iter_mut().enumerate() {
                state.join::<A>(s, algebra.lift(s, s.load(&four[i * S::LANES..]), c));
            }
        }
        for (x, state) in fours.remainder().chunks(S::LANES).zip(self.0.iter_mut()) {
            let x = if x.len() == S::LANES {
                s.load(x)
            } else {
                s.load_partial_or(x, algebra.neutral(center))
            };
            state.join::<A>(s, algebra.lift(s, x, c));
        }
    }

    /// Everything joined so far, not finished.
    #[inline(always)]
    pub(crate) fn value<A: Algebra>(self, s: S) -> f32 {
        let [a, b, c, d] = self.0;
        let parts = [a.value::<A>(s), b.value::<A>(s), c.value::<A>(s), d.value::<A>(s)];
        join_parts::<S, A>(s, parts)
    }
}

#[inline(always)]
fn join_parts<S: Simd, A: Algebra>(s: S, [a, b, c, d]: [S::F32; 4]) -> f32 {
    let (low, high) = (join::<S, A>(s, a, b), join::<S, A>(s, c, d));
    join_lanes::<S, A>(s, join::<S, A>(s, low, high))
}

/// `join over x of lift(x)` of one row, not finished.
#[inline(always)]
pub(crate) fn fold_row<S: Simd, A: Algebra>(s: S, algebra: A, center: f32, row: &[f32]) -> f32 {
    let mut acc = RowState::new::<A>(s);
    if row.len() <= 4 * S::LANES * BLOCK {
        // A single block: there is nothing to compensate, and short rows are many.
        acc.join_block(s, algebra, center, row);
        let [a, b, c, d] = acc.0;
        return join_parts::<S, A>(s, [a.block, b.block, c.block, d.block]);
    }
    acc.join(s, algebra, center, row);
    acc.value::<A>(s)
}

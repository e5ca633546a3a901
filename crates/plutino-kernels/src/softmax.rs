//! Softmax, log-softmax and softmin along one dimension.
//!
//! `softmax(x)[l] = e^(x[l] - m) / sum e^(x[l] - m)`, `log_softmax(x)[l] = x[l] - m - ln sum
//! e^(x[l] - m)`, with m the greatest x; softmin is the softmax of -x. A row that is -inf
//! throughout gives NaN, as in PyTorch
//! (<https://pytorch.org/docs/stable/generated/torch.nn.functional.softmax.html>).
//!
//! Loops: rows (the dimension is innermost): for each row (parallel) - greatest, exponentials and
//! their sum, quotients: three passes over a row in cache. Columns: for 4 vectors of neighbours
//! (parallel) - the same three passes along the dimension.
//!
//! The relative error of a softmax is at most `2^-24 (|x - m| + 72 + 6)`: its argument is rounded,
//! the sum has the bound of [`crate::reduce`] (72, in practice about 2), the rest is 3 roundings of
//! at most 1 ULP.

use crate::number::Float;
use crate::par::SharedMut;
use crate::reduce::algebra::{BLOCK, ExpSum, Max, Min, State, Total, fold_row};
use crate::simd::{Simd, Vectorized};
use crate::{InOut, Isa, Par, math};
use plutino_cpu::row::{Map, map_row};
use std::ops::Range;

/// Elements below which a task is not worth a thread.
const GRAIN: usize = 1 << 12;
/// Columns of an item of work: a multiple of 4 vectors of every instruction set.
const COLUMNS: usize = 64;

/// Which function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Softmax {
    /// Softmax.
    Softmax,
    /// Softmax of the negated input.
    Softmin,
    /// Logarithm of the softmax.
    LogSoftmax,
}

impl Softmax {
    /// What the input is multiplied with.
    fn sign(self) -> f32 {
        if self == Self::Softmin { -1.0 } else { 1.0 }
    }
}

/// Softmax of a dense f32 tensor `[outer, len, inner]` along `len`.
///
/// # Panics
/// Where `data` does not hold `outer * len * inner` elements.
pub fn softmax_f32(
    isa: Isa,
    par: &Par,
    kind: Softmax,
    [outer, len, inner]: [usize; 3],
    data: InOut<'_, f32>,
) {
    let total = outer.saturating_mul(len).saturating_mul(inner);
    let (src, dst) = match data {
        InOut::Apart { src, dst } => (Some(src), dst),
        InOut::Same(dst) => (None, dst),
    };
    assert!(src.is_none_or(|s| s.len() == total) && dst.len() == total, "size of a softmax");
    if total == 0 {
        return;
    }
    let dst = SharedMut::new(dst);
    if inner == 1 {
        par.split(outer, GRAIN / len, |rows| {
            let part = rows.start * len..rows.end * len;
            let src = src.map(|src| &src[part.clone()]);
            // SAFETY: tasks have disjoint rows.
            isa.run(Rows { kind, len, src, dst: unsafe { dst.slice(part) } });
        });
    } else {
        let chunks = inner.div_ceil(COLUMNS);
        par.split(outer * chunks, GRAIN / len.saturating_mul(COLUMNS), |items| {
            for item in items {
                let first = item % chunks * COLUMNS;
                let columns = first..inner.min(first + COLUMNS);
                let start = item / chunks * len * inner;
                isa.run(Columns { kind, len, inner, start, columns, src, dst: &dst });
            }
        });
    }
}

/// Softmax of a dense tensor `[outer, len, inner]` of any float dtype along `len`, computed in f64.
///
/// # Panics
/// Where a slice does not hold `outer * len * inner` elements.
pub fn softmax_any<T: Float>(
    par: &Par,
    kind: Softmax,
    [outer, len, inner]: [usize; 3],
    input: &[T],
    output: &mut [T],
) {
    let total = outer.saturating_mul(len).saturating_mul(inner);
    assert!(input.len() == total && output.len() == total, "size of a softmax");
    let sign = f64::from(kind.sign());
    par.chunks_mut(output, (len * inner).max(1), |o, out| {
        let input = &input[o * len * inner..(o + 1) * len * inner];
        for i in 0..inner {
            let line = (i..input.len()).step_by(inner);
            let x = |at: usize| sign * input[at].widen();
            let nan_or_greater = |m: f64, x: f64| if x > m || x.is_nan() { x } else { m };
            let m = line.clone().map(x).fold(f64::NEG_INFINITY, nan_or_greater);
            let sum: f64 = line.clone().map(|at| (x(at) - m).exp()).sum();
            for at in line {
                out[at] = T::narrow(match kind {
                    Softmax::LogSoftmax => x(at) - m - sum.ln(),
                    _ => (x(at) - m).exp() / sum,
                });
            }
        }
    });
}

struct Rows<'a> {
    kind: Softmax,
    len: usize,
    /// None: in place.
    src: Option<&'a [f32]>,
    dst: &'a mut [f32],
}

impl Vectorized for Rows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (r, dst) in self.dst.chunks_exact_mut(self.len).enumerate() {
            let src = self.src.map(|src| &src[r * self.len..(r + 1) * self.len]);
            softmax_row(s, self.kind, src, dst);
        }
    }
}

/// One row, from `src` or in place.
#[inline(always)]
pub(crate) fn softmax_row<S: Simd>(s: S, kind: Softmax, src: Option<&[f32]>, dst: &mut [f32]) {
    let x = src.unwrap_or(dst);
    let greatest = match kind {
        // The greatest of the negated; unfinished, it is not the least.
        Softmax::Softmin => fold_row(s, Min, 0.0, x),
        _ => fold_row(s, Max, 0.0, x),
    };
    let m = s.splat(greatest);
    if kind == Softmax::LogSoftmax {
        let sum = fold_row(s, ExpSum, greatest, x);
        map_row(s, &mut Shift::<S> { m, log: s.splat(f64::from(sum).ln() as f32) }, src, dst);
    } else {
        let mut exp = Exp::<S> { sign: s.splat(kind.sign()), m, sum: State::new::<Total>(s) };
        map_row(s, &mut exp, src, dst);
        let sum = s.sum(exp.sum.value::<Total>(s));
        map_row(s, &mut Scale::<S>(s.splat(1.0 / sum)), None, dst);
    }
}

/// e^(sign x - m), added up.
struct Exp<S: Simd> {
    sign: S::F32,
    m: S::F32,
    sum: State<S>,
}

impl<V: Simd> Map<V> for Exp<V> {
    #[inline(always)]
    fn map(&mut self, s: V, x: V::F32, at: usize, n: usize) -> V::F32 {
        let e = math::exp(s, s.sub(s.mul(x, self.sign), self.m));
        self.sum.join::<Total>(s, if n == V::LANES { e } else { s.first(e, n, 0.0) });
        if at / V::LANES % BLOCK == BLOCK - 1 {
            self.sum.end_block::<Total>(s);
        }
        e
    }
}

/// x scaled.
struct Scale<S: Simd>(S::F32);

impl<V: Simd> Map<V> for Scale<V> {
    #[inline(always)]
    fn map(&mut self, s: V, x: V::F32, _: usize, _: usize) -> V::F32 {
        s.mul(x, self.0)
    }
}

/// x - m - log
struct Shift<S: Simd> {
    m: S::F32,
    log: S::F32,
}

impl<V: Simd> Map<V> for Shift<V> {
    #[inline(always)]
    fn map(&mut self, s: V, x: V::F32, _: usize, _: usize) -> V::F32 {
        s.sub(s.sub(x, self.m), self.log)
    }
}

/// Some columns of one `[len, inner]` part.
struct Columns<'a> {
    kind: Softmax,
    len: usize,
    inner: usize,
    /// First element of the part.
    start: usize,
    columns: Range<usize>,
    /// None: in place.
    src: Option<&'a [f32]>,
    dst: &'a SharedMut<'a, f32>,
}

impl Vectorized for Columns<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut at = self.columns.start;
        while self.columns.end - at >= 4 * S::LANES {
            self.vectors::<S, 4>(s, at, S::LANES);
            at += 4 * S::LANES;
        }
        while at < self.columns.end {
            let n = S::LANES.min(self.columns.end - at);
            self.vectors::<S, 1>(s, at, n);
            at += n;
        }
    }
}

impl Columns<'_> {
    /// N vectors of columns from `column` on; or a single one of n elements.
    #[inline(always)]
    fn vectors<S: Simd, const N: usize>(&self, s: S, column: usize, n: usize) {
        let width = (N - 1) * S::LANES + n;
        let sign = s.splat(self.kind.sign());
        let log = self.kind == Softmax::LogSoftmax;
        let mut greatest = [State::<S>::new::<Max>(s); N];
        for l in 0..self.len {
            let at = self.start + l * self.inner + column;
            // SAFETY: only this task touches these columns, and the part is dropped at once.
            let own = unsafe { self.dst.slice(at..at + width) };
            let x = self.src.map_or(&*own, |src| &src[at..at + width]);
            for (i, m) in greatest.iter_mut().enumerate() {
                m.join::<Max>(s, s.mul(s.load_up_to(&x[i * S::LANES..], n), sign));
            }
        }
        let mut m = [s.zero(); N];
        for (m, greatest) in m.iter_mut().zip(greatest) {
            *m = greatest.value::<Max>(s);
        }
        let mut sums = [State::<S>::new::<Total>(s); N];
        for l in 0..self.len {
            let at = self.start + l * self.inner + column;
            // SAFETY: as above.
            let own = unsafe { self.dst.slice(at..at + width) };
            for (i, sum) in sums.iter_mut().enumerate() {
                let x = match self.src {
                    Some(src) => s.load_up_to(&src[at + i * S::LANES..], n),
                    None => s.load_up_to(&own[i * S::LANES..], n),
                };
                let e = math::exp(s, s.sub(s.mul(x, sign), m[i]));
                sum.join::<Total>(s, e);
                if l % BLOCK == BLOCK - 1 {
                    sum.end_block::<Total>(s);
                }
                if !log {
                    s.store_up_to(e, &mut own[i * S::LANES..], n);
                }
            }
        }
        let mut last = [s.zero(); N];
        for (last, sum) in last.iter_mut().zip(sums) {
            let sum = sum.value::<Total>(s);
            *last = if log { math::log(s, sum) } else { s.div(s.splat(1.0), sum) };
        }
        for l in 0..self.len {
            let at = self.start + l * self.inner + column;
            // SAFETY: as above.
            let own = unsafe { self.dst.slice(at..at + width) };
            for i in 0..N {
                let y = match self.src {
                    Some(src) if log => s.load_up_to(&src[at + i * S::LANES..], n),
                    _ => s.load_up_to(&own[i * S::LANES..], n),
                };
                let y = if log { s.sub(s.sub(y, m[i]), last[i]) } else { s.mul(y, last[i]) };
                s.store_up_to(y, &mut own[i * S::LANES..], n);
            }
        }
    }
}

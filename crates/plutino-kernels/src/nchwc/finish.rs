//! The end of every convolution on channel blocks: the residual and the activation.
//!
//! ```text
//! y = act(sum + residual)    or, where the residual comes last,    y = act(sum) + residual
//! ```
//! Activations that are limits are applied while sums stand in registers, the others to a row of results
//! that is still in the first-level cache.

use crate::activation::Activation;
use crate::simd::Simd;

/// A tensor that is added to the result, element by element.
#[derive(Debug, Clone, Copy)]
pub struct Residual<'a> {
    /// Laid out as the output is.
    pub data: &'a [f32],
    /// Whether it is added after the activation.
    pub last: bool,
}

impl<'a> Residual<'a> {
    /// The elements of a part of the output.
    pub(super) fn part(self, range: std::ops::Range<usize>) -> Self {
        Self { data: &self.data[range], ..self }
    }
}

/// An activation, decided upon.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finish {
    lo: f32,
    hi: f32,
    /// What is no limit.
    activation: Option<Activation>,
}

impl Finish {
    pub(super) fn new(activation: Option<Activation>) -> Self {
        let (lo, hi) = (f32::NEG_INFINITY, f32::INFINITY);
        let limits = |lo, hi| Self { lo, hi, activation: None };
        match activation {
            Some(Activation::Relu) => limits(0.0, hi),
            Some(Activation::Relu6) => limits(0.0, 6.0),
            Some(Activation::Clamp { lo, hi }) => limits(lo, hi),
            activation => Self { lo, hi, activation },
        }
    }

    /// Stores the sums of consecutive pixels. `y` and `residual` hold as many vectors.
    #[inline(always)]
    pub(super) fn store<S: Simd, const M: usize>(
        &self,
        s: S,
        sums: [S::F32; M],
        residual: Option<Residual<'_>>,
        y: &mut [f32],
    ) {
        // Loops, not iterators with closures: what is not inlined lacks the instruction set.
        let b = S::LANES;
        let n = M.min(y.len() / b);
        let mut sums = sums;
        let before = residual.filter(|r| !r.last).map(|r| r.data);
        if let Some(r) = before {
            for j in 0..M {
                if j < n {
                    sums[j] = s.add(sums[j], s.load(&r[j * b..]));
                }
            }
        }
        // NaN comes through: the second operand of min and max wins over it.
        let (lo, hi) = (s.splat(self.lo), s.splat(self.hi));
        for sum in &mut sums {
            *sum = s.min(hi, s.max(lo, *sum));
        }
        // With another activation, the rest is for `rows`.
        let after = residual.filter(|r| r.last && self.activation.is_none()).map(|r| r.data);
        if let Some(r) = after {
            for j in 0..M {
                if j < n {
                    sums[j] = s.add(sums[j], s.load(&r[j * b..]));
                }
            }
        }
        for j in 0..M {
            if j < n {
                s.store(sums[j], &mut y[j * b..]);
            }
        }
    }

    /// Completes stored results: whole vectors.
    #[inline(always)]
    pub(super) fn rows<S: Simd>(&self, s: S, residual: Option<Residual<'_>>, y: &mut [f32]) {
        let Some(activation) = self.activation else { return };
        const N: usize = 4;
        let last = residual.filter(|r| r.last).map(|r| r.data);
        let mut at = 0;
        let mut quads = y.chunks_exact_mut(N * S::LANES);
        for quad in &mut quads {
            let mut v = [s.zero(); N];
            for (v, x) in v.iter_mut().zip(quad.chunks_exact(S::LANES)) {
                *v = s.load(x);
            }
            v = activation.apply_all(s, v);
            for (v, y) in v.into_iter().zip(quad.chunks_exact_mut(S::LANES)) {
                s.store(plus(s, v, last, at), y);
                at += S::LANES;
            }
        }
        for y in quads.into_remainder().chunks_exact_mut(S::LANES) {
            let v = activation.apply(s, s.load(y));
            s.store(plus(s, v, last, at), y);
            at += S::LANES;
        }
    }
}

#[inline(always)]
fn plus<S: Simd>(s: S, v: S::F32, residual: Option<&[f32]>, at: usize) -> S::F32 {
    match residual {
        Some(r) => s.add(v, s.load(&r[at..])),
        None => v,
    }
}

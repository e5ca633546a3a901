//! The logistic function and the hyperbolic tangent.

use super::{copysign, exp, expm1, neg};
use crate::simd::Simd;

/// 1 / (1 + e^-x).
///
/// Written with e = e^-|x|, which cannot overflow: 1 / (1 + e) above zero, e / (1 + e) below.
#[inline(always)]
pub fn sigmoid<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let e = exp(s, neg(s, s.abs(x)));
    let one = s.splat(1.0);
    let numerator = s.select(s.lt(x, s.zero()), e, one);
    s.div(numerator, s.add(one, e))
}

/// tanh x, as -t / (2 + t) with t = e^(-2|x|) - 1.
#[inline(always)]
pub fn tanh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let t = expm1(s, s.mul(s.abs(x), s.splat(-2.0)));
    copysign(s, s.div(t, s.add(s.splat(2.0), t)), x)
}

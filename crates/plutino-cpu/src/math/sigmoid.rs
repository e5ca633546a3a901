//! The logistic function and the hyperbolic tangent.

use super::exp::factors;
use super::{copysign, exp, expm1, neg};
use crate::simd::Simd;

/// 1 / (1 + e^-x).
///
/// Written with e = e^-|x|, which cannot overflow: 1 / (1 + e) above zero, e / (1 + e) below.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn sigmoid<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let e = exp(s, neg(s, s.abs(x)));
    let one = s.splat(1.0);
    let numerator = s.select(s.lt(x, s.zero()), e, one);
    s.div(numerator, s.add(one, e))
}

/// x / (1 + e^-x), in two thirds of the steps of x [`sigmoid`]`(x)`. Where the sigmoid is denormal,
/// below -88.376, it may count as 0, as it does in PyTorch.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn silu<S: Simd>(s: S, x: S::F32) -> S::F32 {
    // Beyond these limits the sum is 1, or infinity. Operands in this order let NaN through.
    let [p, power] = factors(s, s.min(s.splat(89.0), s.max(s.splat(-87.3), neg(s, x))));
    s.div(x, s.fma(p, power, s.splat(1.0)))
}

/// tanh x, as -t / (2 + t) with t = e^(-2|x|) - 1.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn tanh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let t = expm1(s, s.mul(s.abs(x), s.splat(-2.0)));
    copysign(s, s.div(t, s.add(s.splat(2.0), t)), x)
}

//! The error function and the distribution function of the normal distribution.
//!
//! Both rest on erfc(a) = e^(-a q(a)) for a >= 0, with one polynomial q. Then
//! erf(a) = -expm1(-a q(a)) keeps its relative accuracy near zero, and nothing cancels in the tail.

use super::{copysign, exp, expm1, neg, polynomial};
use crate::simd::Simd;
use std::f32::consts::FRAC_1_SQRT_2;

/// -ln(erfc a), for a >= 0, as accurate as erf needs: in full where erf is small, less and less
/// towards a = 4, from where on erf is 1 in f32. The polynomial rises to infinity.
#[inline(always)]
fn minus_log_erfc<S: Simd>(s: S, a: S::F32) -> S::F32 {
    let q = polynomial(
        s,
        a,
        [
            0.128_379_17,
            std::f32::consts::FRAC_2_PI, // the fit comes out at the Taylor coefficient
            0.102_771_275,
            -0.019_117_694,
            -0.000_253_061_15,
            0.001_799_354_1,
            -0.000_740_686_14,
            0.000_167_481_06,
            -2.135_461_7e-5,
            1.193_300_6e-6,
        ],
    );
    s.fma(a, q, a) // q is 1 less than in the formula: a smaller number has smaller errors
}

/// erf x = 2/sqrt(pi) * integral from 0 to x of e^(-t^2).
#[inline(always)]
pub fn erf<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let t = minus_log_erfc(s, s.abs(x));
    copysign(s, expm1(s, neg(s, t)), x)
}

/// The share of the standard normal distribution below x: (1 + erf(x / sqrt 2)) / 2. In the tail
/// below zero, where that formula loses all digits in f32, the error stays under 2^-30.
#[inline(always)]
pub fn normal_cdf<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let t = minus_log_erfc(s, s.mul(s.abs(x), s.splat(FRAC_1_SQRT_2)));
    let tail = s.mul(s.splat(0.5), exp(s, neg(s, t)));
    s.select(s.lt(x, s.zero()), tail, s.sub(s.splat(1.0), tail))
}

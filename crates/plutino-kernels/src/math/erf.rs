//! The error function and the distribution function of the normal distribution.
//!
//! Both rest on erfc(a) = e^(-a q(a)) for a >= 0, with a polynomial q. Then
//! erf(a) = -expm1(-a q(a)) keeps its relative accuracy near zero, and nothing cancels in the tail.

use super::exp::half_exp2_minus;
use super::{copysign, expm1, neg, polynomial};
use crate::simd::Simd;

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
///
/// The tail below -a is 2^-(1 + a q(a)): a polynomial of its own, so that a power of two is all that remains.
#[inline(always)]
pub fn normal_cdf<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let a = s.abs(x);
    let q = polynomial(
        s,
        a,
        [
            1.151_109_5,
            0.459_163_7,
            0.052_645_23,
            -0.007_289_71,
            0.000_313_858_82,
            0.000_112_616_62,
            -2.398_297_7e-5,
            1.564_463_7e-6,
        ],
    );
    let tail = half_exp2_minus(s, s.mul(a, q));
    s.select(s.lt(x, s.zero()), tail, s.sub(s.splat(1.0), tail))
}

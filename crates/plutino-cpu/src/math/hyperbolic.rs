//! Hyperbolic functions and their inverses. (The tangent stands with the logistic function.)

use super::exp::half_exp;
use super::{copysign, log1p, polynomial};
use crate::simd::Simd;
use std::f32::consts::LN_2;

/// sinh x.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn sinh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let a = s.abs(x);
    let half = half_exp(s, a);
    let large = s.sub(half, s.div(s.splat(0.25), half));
    let z = s.mul(a, a);
    let p = polynomial(s, z, [0.166_666_67, 0.008_333_35, 1.983_616e-4, 2.816_951_3e-6]);
    let small = s.fma(s.mul(a, z), p, a);
    copysign(s, s.select(s.lt(a, s.splat(1.0)), small, large), x)
}

/// cosh x.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn cosh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let half = half_exp(s, s.abs(x));
    s.add(half, s.div(s.splat(0.25), half))
}

/// From here on sqrt(x^2 + 1) and sqrt(x^2 - 1) are x, as far as their logarithms go.
const LARGE: f32 = 4096.0;

/// ln(1 + sum), where `sum` holds for numbers below [`LARGE`], and ln 2a for larger ones.
#[inline(always)]
fn log_of_sum<S: Simd>(s: S, a: S::F32, sum: S::F32) -> S::F32 {
    let (one, large) = (s.splat(1.0), s.lt(s.splat(LARGE), a));
    let log = log1p(s, s.select(large, s.sub(a, one), sum));
    s.add(log, s.select(large, s.splat(LN_2), s.zero()))
}

/// asinh x.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn asinh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let (a, one) = (s.abs(x), s.splat(1.0));
    // a + sqrt(1 + a^2) - 1, without a difference
    let square = s.mul(a, a);
    let rest = s.div(square, s.add(one, s.sqrt(s.add(one, square))));
    copysign(s, log_of_sum(s, a, s.add(a, rest)), x)
}

/// acosh x; NaN below 1.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn acosh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let one = s.splat(1.0);
    let t = s.sub(x, one);
    let sum = s.add(t, s.sqrt(s.mul(t, s.add(t, s.splat(2.0)))));
    s.select(s.lt(x, one), s.splat(f32::NAN), log_of_sum(s, x, sum))
}

/// atanh x; NaN beyond 1.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn atanh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let a = s.abs(x);
    let twice = log1p(s, s.div(s.add(a, a), s.sub(s.splat(1.0), a)));
    copysign(s, s.mul(twice, s.splat(0.5)), x)
}

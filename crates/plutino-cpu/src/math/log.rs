//! Natural logarithms of x and of 1 + x.
//!
//! x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), so ln x = k ln 2 + f - f^2/2 + f^3 p(f).

use super::polynomial;
use crate::simd::Simd;
use std::f32::consts::FRAC_1_SQRT_2;

/// ln 2 in two parts, the first one 355/512: `k * LN2_HI` is exact.
const LN2_HI: f32 = 0.693_359_4;
const LN2_LO: f32 = -2.121_944_4e-4;

/// k and f of x = 2^k (1 + f), for positive normal x.
#[inline(always)]
fn reduce<S: Simd>(s: S, x: S::F32) -> (S::I32, S::F32) {
    // Bits relative to those of sqrt(1/2): the exponent field is k, the rest the position above it.
    let bits = s.sub_i32(s.as_i32(x), s.as_i32(s.splat(FRAC_1_SQRT_2)));
    let k = s.shr_i32::<23>(bits);
    let m = s.as_f32(s.sub_i32(s.as_i32(x), s.shl_i32::<23>(k)));
    (k, s.sub(m, s.splat(1.0)))
}

/// k ln 2 + ln(1 + f) + c, where c is a small correction.
#[inline(always)]
fn assemble<S: Simd>(s: S, k: S::F32, f: S::F32, c: S::F32) -> S::F32 {
    let p = polynomial(
        s,
        f,
        [
            0.333_333_13,
            -0.250_000_1,
            0.200_021_19,
            -0.166_679_96,
            0.142_195_52,
            -0.124_055_87,
            0.118_881_66,
            -0.116_756_65,
            0.067_466_5,
        ],
    );
    let f2 = s.mul(f, f);
    let tail = s.fma(k, s.splat(LN2_LO), c);
    let tail = s.fma(s.mul(f2, f), p, tail);
    let tail = s.fma(f2, s.splat(-0.5), tail);
    s.fma(k, s.splat(LN2_HI), s.add(f, tail))
}

/// `y`, but NaN where `x` is below zero, -inf where it is zero, and `x` where it is +inf or NaN.
#[inline(always)]
fn edges<S: Simd>(s: S, x: S::F32, y: S::F32) -> S::F32 {
    let y = s.select(s.lt(x, s.splat(f32::INFINITY)), y, x); // NaN fails the comparison
    let y = s.select(s.eq(x, s.zero()), s.splat(f32::NEG_INFINITY), y);
    s.select(s.lt(x, s.zero()), s.splat(f32::NAN), y)
}

/// ln x.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn log<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let denormal = s.lt(x, s.splat(f32::MIN_POSITIVE));
    let scaled = s.select(denormal, s.mul(x, s.splat(8_388_608.0)), x); // 2^23
    let (k, f) = reduce(s, scaled);
    let k = s.sub(s.to_f32(k), s.select(denormal, s.splat(23.0), s.zero()));
    edges(s, x, assemble(s, k, f, s.zero()))
}

/// ln(1 + x), accurate also where x is near zero.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn log1p<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let one = s.splat(1.0);
    let u = s.add(one, x);
    let (k, f) = reduce(s, u);
    let k = s.to_f32(k);
    // What the sum 1 + x lost; ln(u + c) = ln u + c/u.
    let big = s.lt(one, x);
    let lost = s.select(big, s.sub(one, s.sub(u, x)), s.sub(x, s.sub(u, one)));
    let c = s.div(lost, u);
    // Where 1 + x needs no reduction, x itself is f, without any loss.
    let near = s.eq(k, s.zero());
    let y = assemble(s, k, s.select(near, x, f), s.select(near, s.zero(), c));
    let y = s.select(s.lt(s.abs(x), s.splat(1e-20)), x, y);
    // x, not 1 + x, decides the edges at infinity; below -1 and at -1, u does.
    edges(s, u, s.select(s.lt(x, s.splat(f32::INFINITY)), y, x))
}

//! Logarithms of x to three bases, and the natural one of 1 + x.
//!
//! x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), so ln x = k ln 2 + f - f^2/2 + f^3 p(f).

use super::polynomial;
use crate::simd::Simd;
use std::f32::consts::FRAC_1_SQRT_2;

/// What makes ln(2^k (1 + f)) a logarithm to some base.
#[derive(Clone, Copy)]
struct Base {
    /// The logarithm of 2 in two parts, the first of so few bits that k times it is exact.
    two: [f32; 2],
    /// The logarithm of e in two parts.
    e: [f32; 2],
}

/// ln 2 is 355/512 and a little.
const NATURAL: Base = Base { two: [0.693_359_4, -2.121_944_4e-4], e: [1.0, 0.0] };
const BINARY: Base = Base { two: [1.0, 0.0], e: [std::f32::consts::LOG2_E, 1.925_963e-8] };
const DECIMAL: Base =
    Base { two: [0.301_025_4, 4.605_039e-6], e: [std::f32::consts::LOG10_E, -1.010_305e-8] };

/// k and f of x = 2^k (1 + f), for positive normal x.
#[inline(always)]
fn reduce<S: Simd>(s: S, x: S::F32) -> (S::I32, S::F32) {
    // Bits relative to those of sqrt(1/2): the exponent field is k, the rest the position above it.
    let bits = s.sub_i32(s.as_i32(x), s.as_i32(s.splat(FRAC_1_SQRT_2)));
    let k = s.shr_i32::<23>(bits);
    let m = s.as_f32(s.sub_i32(s.as_i32(x), s.shl_i32::<23>(k)));
    (k, s.sub(m, s.splat(1.0)))
}

/// The logarithm of 2^k (1 + f), and c, which is a small correction of a natural one.
#[inline(always)]
fn assemble<S: Simd>(s: S, base: Base, k: S::F32, f: S::F32, c: S::F32) -> S::F32 {
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
    if base.e[0] == 1.0 {
        let tail = s.fma(k, s.splat(base.two[1]), c);
        let tail = s.fma(s.mul(f2, f), p, tail);
        let tail = s.fma(f2, s.splat(-0.5), tail);
        return s.fma(k, s.splat(base.two[0]), s.add(f, tail));
    }
    let tail = s.fma(f2, s.splat(-0.5), s.mul(s.mul(f2, f), p));
    let tail = s.fma(tail, s.splat(base.e[0]), s.mul(f, s.splat(base.e[1])));
    let tail = s.fma(k, s.splat(base.two[1]), tail);
    s.fma(k, s.splat(base.two[0]), s.fma(f, s.splat(base.e[0]), tail))
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
    log_to(s, NATURAL, x)
}

/// The logarithm of x to base 2.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn log2<S: Simd>(s: S, x: S::F32) -> S::F32 {
    log_to(s, BINARY, x)
}

/// The logarithm of x to base 10.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn log10<S: Simd>(s: S, x: S::F32) -> S::F32 {
    log_to(s, DECIMAL, x)
}

#[inline(always)]
fn log_to<S: Simd>(s: S, base: Base, x: S::F32) -> S::F32 {
    let denormal = s.lt(x, s.splat(f32::MIN_POSITIVE));
    let scaled = s.select(denormal, s.mul(x, s.splat(8_388_608.0)), x); // 2^23
    let (k, f) = reduce(s, scaled);
    let k = s.sub(s.to_f32(k), s.select(denormal, s.splat(23.0), s.zero()));
    edges(s, x, assemble(s, base, k, f, s.zero()))
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
    let y = assemble(s, NATURAL, k, s.select(near, x, f), s.select(near, s.zero(), c));
    let y = s.select(s.lt(s.abs(x), s.splat(1e-20)), x, y);
    // x, not 1 + x, decides the edges at infinity; below -1 and at -1, u does.
    edges(s, u, s.select(s.lt(x, s.splat(f32::INFINITY)), y, x))
}

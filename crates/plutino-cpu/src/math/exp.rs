//! e^x and e^x - 1.
//!
//! x = n ln 2 + r with |r| <= ln(2)/2, so e^x = 2^n e^r, and e^r = 1 + r + r^2 q(r).

use super::polynomial;
use crate::simd::Simd;
use std::f32::consts::LOG2_E;

/// Adding this rounds to an integer, ties to even, and leaves the integer in the low bits.
pub(super) const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23
/// ln 2 in two parts, the first one 355/512: `n * LN2_HI` is exact for |n| < 2^15.
const LN2_HI: f32 = 0.693_359_4;
const LN2_LO: f32 = -2.121_944_4e-4;

/// n and r of x = n ln 2 + r, for |x| < 10^6; n as it lies in the low bits of a float.
#[inline(always)]
fn reduce<S: Simd>(s: S, x: S::F32) -> (S::I32, S::F32) {
    let shifted = s.fma(x, s.splat(LOG2_E), s.splat(ROUND));
    let n = s.sub(shifted, s.splat(ROUND));
    let r = s.fma(n, s.splat(-LN2_HI), x);
    let r = s.fma(n, s.splat(-LN2_LO), r);
    (s.as_i32(shifted), r)
}

/// The n of [`reduce`] as an integer.
#[inline(always)]
fn integer<S: Simd>(s: S, n: S::I32) -> S::I32 {
    s.sub_i32(n, s.as_i32(s.splat(ROUND)))
}

/// 2^n, for -126 <= n <= 127.
#[inline(always)]
fn power_of_two<S: Simd>(s: S, n: S::I32) -> S::F32 {
    s.as_f32(s.shl_i32::<23>(s.add_i32(n, s.splat_i32(127))))
}

/// e^x.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn exp<S: Simd>(s: S, x: S::F32) -> S::F32 {
    // Beyond 89 the result is infinity. At -176 it is 0, by a factor that is: far below, where
    // masks and saturated units lie, nothing is ever denormal, which is slow. Operands in this
    // order let NaN through.
    let x = s.min(s.splat(89.0), s.max(s.splat(-176.0), x));
    let (n, r) = reduce(s, x);
    s.scale(power_of_e(s, r), s.sub(s.as_f32(n), s.splat(ROUND)))
}

/// e^x / 2 for x >= 0, infinite where that overflows: above 89.4, where e^x has been infinite for
/// long.
#[inline(always)]
pub(super) fn half_exp<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let (n, r) = reduce(s, s.min(s.splat(90.0), x));
    let one = s.splat(1.0);
    s.scale(power_of_e(s, r), s.sub(s.sub(s.as_f32(n), s.splat(ROUND)), one))
}

/// 2^x.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn exp2<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let x = s.min(s.splat(129.0), s.max(s.splat(-252.0), x)); // NaN comes through
    let n = s.round(x);
    s.scale(power_of_e(s, s.mul(s.sub(x, n), s.splat(std::f32::consts::LN_2))), n)
}

/// e^r, for |r| <= ln(2)/2.
#[inline(always)]
fn power_of_e<S: Simd>(s: S, r: S::F32) -> S::F32 {
    let q = polynomial(s, r, [0.5, 0.166_664_88, 0.041_665_554, 0.008_372_256, 0.001_403_548_6]);
    s.add(s.splat(1.0), s.fma(q, s.mul(r, r), r))
}

/// 2^(i/16)
const POWERS: [f32; 16] = {
    const STEP: f64 = 1.044_273_782_427_413_8;
    let (mut powers, mut power, mut i) = ([0.0; 16], 1.0, 0);
    while i < 16 {
        powers[i] = power as f32;
        power *= STEP;
        i += 1;
    }
    powers
};

/// Two factors of e^x, for -87.3 <= x <= 89, in fewer steps than [`exp`]. The product is infinity
/// from 88.8 on; from 88.4 on it may be.
#[cfg_attr(not(unoptimised), inline(always))]
pub(super) fn factors<S: Simd>(s: S, x: S::F32) -> [S::F32; 2] {
    if S::TABLES {
        // With n in steps of 1/16, r is so small that four terms do.
        const ROUND_16: f32 = ROUND / 16.0;
        let shifted = s.fma(x, s.splat(LOG2_E), s.splat(ROUND_16));
        let n = s.sub(shifted, s.splat(ROUND_16));
        let r = s.fma(n, s.splat(-LN2_LO), s.fma(n, s.splat(-LN2_HI), x));
        let p = polynomial(s, r, [1.0, 1.0, 0.500_019_55, 0.166_666_67]);
        return [p, s.scale(s.lookup(&POWERS, s.as_i32(shifted)), n)];
    }
    let (n, r) = reduce(s, x);
    let p = polynomial(
        s,
        r,
        [1.0, 1.0, 0.499_999_94, 0.166_665_21, 0.041_668_266, 0.008_368_677, 0.001_382_073_4],
    );
    // What else there is besides n leaves at the top.
    let power = s.add_i32(s.shl_i32::<23>(n), s.splat_i32(127 << 23));
    [p, s.as_f32(power)]
}

/// e^x as an intermediate result, for x <= 0 or NaN, in fewer steps: 0 below -87.3, where e^x is
/// denormal, or nearly so. No step makes a denormal, which is slow.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn exp_nonpositive<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let least = s.splat(-87.3);
    // Operands in this order let NaN through.
    let [p, power] = factors(s, s.max(least, x));
    s.select(s.lt(x, least), s.zero(), s.mul(p, power))
}

/// 2^-(1 + h) as an intermediate result, for h >= 0: 0 from h = 126 on, and NaN for NaN. The least
/// results, near 2^-127, are as inaccurate as denormals are.
#[cfg_attr(not(unoptimised), inline(always))]
pub(super) fn half_exp2_minus<S: Simd>(s: S, h: S::F32) -> S::F32 {
    let h = s.min(s.splat(126.0), h);
    // The low bits hold n + 1: the result is halved on the way.
    let shifted = s.add(h, s.splat(ROUND + 1.0));
    let r = s.sub(h, s.sub(shifted, s.splat(ROUND + 1.0)));
    let p = polynomial(
        s,
        r,
        [
            1.0,
            -std::f32::consts::LN_2, // the fit comes out at the Taylor coefficient
            0.240_226_48,
            -0.055_503_6,
            0.009_618_506,
            -0.001_339_080_6,
            0.000_153_264_63,
        ],
    );
    // p 2^-n by its exponent. At the upper end r = 0, p = 1 and nothing is left.
    s.as_f32(s.sub_i32(s.as_i32(p), s.shl_i32::<23>(s.as_i32(shifted))))
}

/// e^x - 1, accurate also where x is near zero.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn expm1<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let clamped = s.min(s.splat(89.0), s.max(s.splat(-18.0), x));
    let (n, r) = reduce(s, clamped);
    let q = polynomial(
        s,
        r,
        [0.5, 0.166_666_36, 0.041_666_51, 0.008_341_641, 0.001_393_040_6, 0.000_149_054_3],
    );
    let p = s.fma(q, s.mul(r, r), r); // e^r - 1
    // 2^n p + (2^n - 1), halved: 2^n itself overflows for the largest finite results.
    let half = power_of_two(s, s.sub_i32(integer(s, n), s.splat_i32(1)));
    let y = s.fma(half, p, s.sub(half, s.splat(0.5)));
    // Zero keeps its sign; where n = 0, halving must not lose the bits of a denormal.
    s.select(s.lt(s.abs(x), s.splat(1e-20)), x, s.add(y, y))
}

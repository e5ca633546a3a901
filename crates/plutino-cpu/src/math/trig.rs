//! Sine, cosine and tangent.
//!
//! x = n pi/2 + r with |r| <= pi/4; n mod 4 chooses the polynomial and the sign. Arguments too
//! large for that go one by one through f64, and no others: an element must not depend on its
//! neighbours in a vector.

use super::{neg, polynomial};
use crate::simd::Simd;
use std::f32::consts::FRAC_2_PI;

/// Largest |x| reduced here: n < 2^13, so that n times an 11-bit part of pi/2 is exact.
const REDUCIBLE: f32 = 8192.0;
/// pi/2 in parts of 11 bits, and a rest.
const PI_2: [f32; 5] = [1.570_312_5, 4.837_513e-4, 7.549_533_6e-8, 2.563_283e-12, 6.123_234e-17];
/// Adding this rounds to an integer and leaves the integer in the low bits.
const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23

/// sin x.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn sin<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let y = quadrants(s, x, 0);
    let y = s.select(s.eq(x, s.zero()), x, y); // -0 stays -0
    if any_large(s, x) { large_by_element(s, x, y, f64::sin) } else { y }
}

/// cos x.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn cos<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let y = quadrants(s, x, 1);
    if any_large(s, x) { large_by_element(s, x, y, f64::cos) } else { y }
}

/// tan x.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn tan<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let (quadrant, sine, cosine) = reduced(s, x);
    // tan(r + pi/2) = -1 / tan r
    let odd = odd(s, quadrant);
    let y = s.div(s.select(odd, neg(s, cosine), sine), s.select(odd, sine, cosine));
    let y = s.select(s.eq(x, s.zero()), x, y);
    if any_large(s, x) { large_by_element(s, x, y, f64::tan) } else { y }
}

/// sin(x + shift pi/2), for |x| at most [`REDUCIBLE`].
#[inline(always)]
fn quadrants<S: Simd>(s: S, x: S::F32, shift: i32) -> S::F32 {
    let (quadrant, sine, cosine) = reduced(s, x);
    let quadrant = s.add_i32(quadrant, s.splat_i32(shift));
    let y = s.select(odd(s, quadrant), cosine, sine);
    // Quadrants 2 and 3: bit 1 becomes the sign.
    let sign = s.shl_i32::<30>(s.and_i32(quadrant, s.splat_i32(2)));
    s.as_f32(s.xor_i32(s.as_i32(y), sign))
}

#[inline(always)]
fn odd<S: Simd>(s: S, quadrant: S::I32) -> S::Mask {
    s.lt(s.zero(), s.to_f32(s.and_i32(quadrant, s.splat_i32(1))))
}

/// n in the low bits, sin r and cos r, for |x| at most [`REDUCIBLE`].
#[inline(always)]
fn reduced<S: Simd>(s: S, x: S::F32) -> (S::I32, S::F32, S::F32) {
    let shifted = s.fma(x, s.splat(FRAC_2_PI), s.splat(ROUND));
    let n = s.sub(shifted, s.splat(ROUND));
    let mut r = x;
    for part in PI_2 {
        r = s.fma(n, s.splat(-part), r);
    }
    let z = s.mul(r, r);
    let sine = polynomial(s, z, [-0.166_666_67, 0.008_333_379, -1.985_306_4e-4, 2.832_51e-6]);
    let sine = s.fma(s.mul(z, r), sine, r);
    let cosine = polynomial(s, z, [0.041_666_646, -0.001_388_731, 2.443_232_7e-5]);
    let cosine = s.fma(s.mul(z, z), cosine, s.fma(z, s.splat(-0.5), s.splat(1.0)));
    (s.as_i32(shifted), sine, cosine)
}

#[inline(always)]
fn any_large<S: Simd>(s: S, x: S::F32) -> bool {
    let large = s.lt(s.splat(REDUCIBLE), s.abs(x));
    s.max_lane(s.select(large, s.splat(1.0), s.zero())) > 0.0
}

/// `y`, and `f` of the large elements of `x`, rounded once.
#[inline(always)]
fn large_by_element<S: Simd>(s: S, x: S::F32, y: S::F32, f: fn(f64) -> f64) -> S::F32 {
    let (mut from, mut lanes) = ([0.0f32; 16], [0.0f32; 16]);
    s.store(x, &mut from);
    s.store(y, &mut lanes);
    for (lane, x) in lanes.iter_mut().zip(from) {
        if x.abs() > REDUCIBLE {
            *lane = f(f64::from(x)) as f32;
        }
    }
    s.load(&lanes)
}

//! Inverse trigonometric functions.
//!
//! Each is a polynomial near zero, and elsewhere a quarter or half of a turn less one: atan x =
//! pi/2 - atan(1/x) above 1; acos x = 2 asin(sqrt((1 - x)/2)) above 1/2.

use super::{copysign, polynomial};
use crate::simd::Simd;

/// pi/2 in two parts.
const PI_2: [f32; 2] = [std::f32::consts::FRAC_PI_2, -4.371_139e-8];

/// pi/2 - y, times `times`.
#[inline(always)]
fn from_quarter<S: Simd>(s: S, y: S::F32, times: f32) -> S::F32 {
    let y = s.sub(y, s.splat(PI_2[1] * times));
    s.sub(s.splat(PI_2[0] * times), y)
}

/// atan q, for 0 <= q <= 1.
#[inline(always)]
fn atan_to_one<S: Simd>(s: S, q: S::F32) -> S::F32 {
    let z = s.mul(q, q);
    let p = polynomial(
        s,
        z,
        [
            -0.333_333,
            0.199_985_49,
            -0.142_642_42,
            0.109_521_87,
            -0.084_034_55,
            0.057_957_657,
            -0.031_177_903,
            0.010_914_633,
            -0.001_793_627_2,
        ],
    );
    s.fma(s.mul(q, z), p, q)
}

/// atan x.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn atan<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let (a, one) = (s.abs(x), s.splat(1.0));
    let steep = s.lt(one, a);
    let y = atan_to_one(s, s.select(steep, s.div(one, a), a));
    copysign(s, s.select(steep, from_quarter(s, y, 1.0), y), x)
}

/// The angle of the point (x, y): atan(y / x), in the quadrant of the point. Zeros and infinities
/// are as in C.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn atan2<S: Simd>(s: S, y: S::F32, x: S::F32) -> S::F32 {
    let (up, right) = (s.abs(y), s.abs(x));
    let steep = s.lt(right, up);
    let (least, most) = (s.select(steep, right, up), s.select(steep, up, right));
    // 0 / 0 counts as 0, and infinity over itself as 1.
    let q = s.div(least, s.select(s.eq(most, s.zero()), s.splat(1.0), most));
    let endless = s.eq(least, s.splat(f32::INFINITY));
    let angle = atan_to_one(s, s.select(endless, s.splat(1.0), q));
    let angle = s.select(steep, from_quarter(s, angle, 1.0), angle);
    let left = s.lt(copysign(s, s.splat(1.0), x), s.zero());
    let angle = copysign(s, s.select(left, from_quarter(s, angle, 2.0), angle), y);
    let angle = s.select(s.eq(y, y), angle, y);
    s.select(s.eq(x, x), angle, x)
}

/// asin a, for 0 <= a <= 1/2.
#[inline(always)]
fn asin_to_half<S: Simd>(s: S, a: S::F32) -> S::F32 {
    let z = s.mul(a, a);
    let p = polynomial(
        s,
        z,
        [0.166_666_6, 0.075_005_04, 0.044_516_955, 0.031_807_717, 0.014_438_592, 0.037_516_482],
    );
    s.fma(s.mul(a, z), p, a)
}

/// For a = |x|: whether it is above 1/2, and the arc sine of a, or there of sqrt((1 - a)/2).
#[inline(always)]
fn near_zero_or_one<S: Simd>(s: S, a: S::F32) -> (S::Mask, S::F32) {
    let above = s.lt(s.splat(0.5), a);
    // 1 - a is exact above 1/2, and NaN's root is NaN beyond 1.
    let root = s.sqrt(s.mul(s.sub(s.splat(1.0), a), s.splat(0.5)));
    (above, asin_to_half(s, s.select(above, root, a)))
}

/// asin x; NaN beyond 1.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn asin<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let (above, y) = near_zero_or_one(s, s.abs(x));
    copysign(s, s.select(above, from_quarter(s, s.add(y, y), 1.0), y), x)
}

/// acos x; NaN beyond 1.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn acos<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let (above, y) = near_zero_or_one(s, s.abs(x));
    let twice = s.add(y, y);
    let outer = s.select(s.lt(x, s.zero()), from_quarter(s, twice, 2.0), twice);
    s.select(above, outer, from_quarter(s, copysign(s, y, x), 1.0))
}

//! The error function, its complement and its inverse, and the distribution function of the normal
//! distribution.
//!
//! Error and distribution function rest on erfc(a) = e^(-a q(a)) for a >= 0, with a polynomial q.
//! Then erf(a) = -expm1(-a q(a)) keeps its relative accuracy near zero, and nothing cancels in the
//! tail.

use super::exp::{ROUND, half_exp2_minus};
use super::{copysign, exp, expm1, log, neg, polynomial};
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
#[cfg_attr(not(unoptimised), inline(always))]
pub fn erf<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let t = minus_log_erfc(s, s.abs(x));
    copysign(s, expm1(s, neg(s, t)), x)
}

/// 1 - erf x, without the digits that the difference loses.
///
/// Above zero it is e^(-x^2) g(x) / (1 + 2x), where g is a polynomial of (x - 2) / (x + 2).
#[cfg_attr(not(unoptimised), inline(always))]
pub fn erfc<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let (one, two) = (s.splat(1.0), s.splat(2.0));
    let a = s.min(s.splat(10.1), s.abs(x)); // NaN comes through
    let g = polynomial(
        s,
        s.div(s.sub(a, two), s.add(a, two)),
        [
            1.276_978_4,
            -0.092_763_98,
            -0.166_031_42,
            0.164_055_35,
            -0.054_204_3,
            -0.008_059_875,
            0.008_631_681,
            0.001_313_523_2,
            -0.001_229_927_6,
            -4.005_770_3e-4,
        ],
    );
    let g = s.div(g, s.fma(two, a, one));
    // a^2 = h^2 + (a - h) (a + h), where h has so few bits that its square is exact.
    let h = s.as_f32(s.and_i32(s.as_i32(a), s.splat_i32(!0xfff)));
    let rest = s.mul(s.sub(a, h), s.add(a, h));
    let small = polynomial(s, rest, [1.0, -1.0, 0.5, -0.166_666_67, 0.041_666_668]);
    let y = s.mul(exp(s, neg(s, s.mul(h, h))), s.mul(small, g));
    s.select(s.lt(x, s.zero()), s.sub(two, y), y)
}

/// The number whose [`erf`] is x; infinite at 1, NaN beyond.
///
/// It is x times a function of w = -ln(1 - x^2), which two polynomials give.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn erfinv<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let one = s.splat(1.0);
    let w = neg(s, log(s, s.mul(s.sub(one, x), s.add(one, x))));
    let center = polynomial(
        s,
        s.sub(w, s.splat(2.5)),
        [
            1.501_409_4,
            0.246_640_28,
            -0.004_177_387,
            -0.001_252_741_9,
            2.183_444_4e-4,
            -4.963_342_2e-6,
            -3.462_705_3e-6,
            4.661_695_2e-7,
            2.323_268_9e-8,
            -8.790_977e-9,
        ],
    );
    let tails = polynomial(
        s,
        s.sub(s.sqrt(w), s.splat(3.0)),
        [
            2.832_976_8,
            1.001_675,
            0.009_445_286,
            -0.007_637_289,
            0.005_686_972_8,
            -0.003_597_405_5,
            0.001_485_093_4,
            -5.677_682_6e-5,
            -3.095_734_6e-4,
            1.157_042e-4,
        ],
    );
    s.mul(x, s.select(s.lt(w, s.splat(5.0)), center, tails))
}

/// Distance of the points around which [`TAIL`] has its polynomials.
const STEP: f32 = 0.43;

/// The normal distribution's share below -a, for a around each of 16 points: the coefficients of 1,
/// of the distance from the point, of its square and so on. The last one is 0: from 6.2 on, less
/// than 2^-30 is left.
#[rustfmt::skip]
const TAIL: [[f32; 16]; 6] = [
    [0.5, 0.333_597_84, 0.194_894_52, 0.098_525_33, 0.042_716_216, 0.015_777_605, 0.004_940_015, 0.001_306_238_8, 2.908_576_6e-4, 5.441_800_7e-5, 8.540_029e-6, 1.122_632_4e-6, 1.234_817_4e-7, 1.135_457_4e-8, 8.722_244_6e-10, 0.0],
    [-0.398_942_26, -0.363_713_6, -0.275_618_26, -0.173_602_27, -0.090_886_98, -0.039_550_036, -0.014_305_104_5, -0.004_300_651, -0.001_074_673_6, -2.232_125_4e-4, -3.853_548_3e-5, -5.529_732_3e-6, -6.595_531e-7, -6.538_823e-8, -5.388_349_8e-9, 0.0],
    [-6.959_971_3e-7, 0.078_195_01, 0.118_512_64, 0.111_973_03, 0.078_164_31, 0.042_517_688, 0.018_454_04, 0.006_472_346, 0.001_848_212_8, 4.317_858_8e-4, 8.280_275e-5, 1.306_468_2e-5, 1.698_937_9e-6, 1.823_235_5e-7, 1.616_315e-8, 0.0],
    [0.066_503_19, 0.049_409_185, 0.011_963_269, -0.019_212_91, -0.029_664_924, -0.023_878_902, -0.013_486_513, -0.005_777_487_5, -0.001_940_391_5, -5.198_956e-4, -1.122_909_9e-4, -1.968_424_1e-5, -2.813_631_7e-6, -3.290_433_6e-7, -3.156_210_2e-8, 0.0],
    [-1.013_336_6e-4, -0.018_147_375, -0.022_139_225, -0.012_440_971, -3.580_579_4e-4, 0.005_668_075, 0.005_596_887_3, 0.003_276_568_8, 0.001_373_712_4, 4.385_423_4e-4, 1.097_060_6e-4, 2.185_479_4e-5, 3.502_207_2e-6, 4.545_408e-7, 4.801_135_5e-8, 0.0],
    [-0.009_661_008, -0.005_786_205_6, 0.001_993_008, 0.006_025_997, 0.004_521_731_3, 0.001_130_488_5, -8.562_206_6e-4, -0.001_093_629_2, -6.465_158e-4, -2.583_301_4e-4, -7.654_816e-5, -1.749_595_9e-5, -3.150_059_5e-6, -4.525_346e-7, -5.231_671e-8, 0.0],
];

/// The same for any a >= 0.
#[inline(always)]
fn tail_by_table<S: Simd>(s: S, a: S::F32) -> S::F32 {
    let a = s.min(s.splat(15.0 * STEP), a); // NaN comes through
    let shifted = s.fma(a, s.splat(1.0 / STEP), s.splat(ROUND));
    let r = s.fma(s.sub(shifted, s.splat(ROUND)), s.splat(-STEP), a);
    let point = s.as_i32(shifted);
    let mut y = s.lookup(&TAIL[5], point);
    for k in (0..5).rev() {
        y = s.fma(y, r, s.lookup(&TAIL[k], point));
    }
    y
}

/// The share of the standard normal distribution below x: (1 + erf(x / sqrt 2)) / 2. In the tail
/// below zero, where that formula loses all digits in f32, the error stays under 2^-30.
///
/// The tail below -a is 2^-(1 + a q(a)): a polynomial of its own, so that a power of two is all
/// that remains. Where tables cost nothing, there is one of shorter polynomials.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn normal_cdf<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let a = s.abs(x);
    let tail = if S::TABLES { tail_by_table(s, a) } else { tail_by_exponent(s, a) };
    s.select(s.lt(x, s.zero()), tail, s.sub(s.splat(1.0), tail))
}

#[inline(always)]
fn tail_by_exponent<S: Simd>(s: S, a: S::F32) -> S::F32 {
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
    half_exp2_minus(s, s.mul(a, q))
}

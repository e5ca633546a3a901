//! Special functions of f64 numbers: <https://pytorch.org/docs/stable/special.html>.
//!
//! | function | largest relative error | by |
//! |---|---|---|
//! | [`digamma`] | 1e-14, near its zeros that much absolutely | recurrence, then the asymptotic series |
//! | [`zeta`] | 1e-14 | Euler and Maclaurin's formula |
//! | [`gamma_p`], [`gamma_q`] | 1e-13; 1e-10 absolutely from a = 1e5 on | series, fraction, Temme |
//! | [`i0`], [`i0e`], [`i1`], [`i1e`] | 2e-15 | power series up to 30, then the asymptotic one |
//! | [`erfcx`] | 2e-15 | erfc, from 10 on the asymptotic series |
//! | [`log_ndtr`] | 2e-14 | erfcx, erfc |
//! | [`erfinv`], [`ndtri`] | 1e-15 | Newton's method |
//!
//! Formulas are those of Abramowitz and Stegun, *Handbook of Mathematical Functions*, 1964 (6.3,
//! 7.1, 9.6, 9.7, 23.2). NaN gives NaN.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI, SQRT_2, TAU};

/// The relative error of an f64.
const EPSILON: f64 = f64::EPSILON / 2.0;

/// The derivative of the logarithm of gamma(x): NaN at negative integers, infinite at zero, with
/// the sign that a limit from zero's side has.
pub fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        // The fraction alone is exact for the tangent.
        let fraction = x % 1.0;
        return if fraction == 0.0 {
            f64::NAN
        } else {
            digamma(1.0 - x) - PI / (PI * fraction).tan()
        };
    }
    let (mut x, mut before) = (x, 0.0);
    while x < 10.0 {
        before -= 1.0 / x;
        x += 1.0;
    }
    let z = 1.0 / (x * x);
    // Bernoulli's numbers B2, B4, ... over 2, 4, ...
    let series = [
        1.0 / 12.0,
        -1.0 / 120.0,
        1.0 / 252.0,
        -1.0 / 240.0,
        1.0 / 132.0,
        -691.0 / 32760.0,
        1.0 / 12.0,
    ];
    let rest = series.iter().rev().fold(0.0, |sum, c| (sum + c) * z);
    before + (x.ln() - 0.5 / x - rest)
}

/// The incomplete gamma functions over the whole one, lower and upper: their sum is 1.
///
/// For a, x >= 0; NaN where either is negative, and for a = x = 0 or infinity.
fn gammas(a: f64, x: f64) -> (f64, f64) {
    /// From here on the uniform expansion's first term is enough, and a series too long.
    const LARGE: f64 = 1e5;
    /// More than any series below [`LARGE`] takes.
    const MOST: usize = 10_000;
    if a.is_nan() || x.is_nan() || a < 0.0 || x < 0.0 || (a == x && (a == 0.0 || a.is_infinite())) {
        return (f64::NAN, f64::NAN);
    }
    if a == 0.0 || x.is_infinite() {
        return (1.0, 0.0);
    }
    if x == 0.0 || a.is_infinite() {
        return (0.0, 1.0);
    }
    // x^a e^-x / gamma(a + 1) is e^(-a phi) over Stirling's factor; phi is half of eta squared.
    let off = (x - a) / a;
    let phi = if off.abs() < 0.1 { minus_log1p(off) } else { off - (x / a).ln() };
    if a >= LARGE {
        let eta = (2.0 * phi).sqrt().copysign(off);
        let first = if off.abs() < 1e-3 { eta / 12.0 - 1.0 / 3.0 } else { 1.0 / off - 1.0 / eta };
        let rest = first * (-a * phi).exp() / (TAU * a).sqrt();
        let at = eta * (a / 2.0).sqrt();
        return (0.5 * libm::erfc(-at) - rest, 0.5 * libm::erfc(at) + rest);
    }
    let factor = if a < 10.0 {
        (a * x.ln() - x - libm::lgamma(a + 1.0)).exp()
    } else {
        let z = 1.0 / (a * a);
        let stirling = (1.0 / 12.0 - z * (1.0 / 360.0 - z * (1.0 / 1260.0 - z / 1680.0))) / a;
        (-a * phi - stirling).exp() / (TAU * a).sqrt()
    };
    if x <= a + 1.0 {
        let (mut sum, mut term, mut n) = (1.0, 1.0, a);
        for _ in 0..MOST {
            n += 1.0;
            term *= x / n;
            sum += term;
            if term < EPSILON * sum {
                break;
            }
        }
        let p = (factor * sum).min(1.0);
        return (p, 1.0 - p);
    }
    // 6.5.31, by Lentz's method.
    let (mut b, mut c, mut d) = (x + 1.0 - a, f64::INFINITY, 1.0 / (x + 1.0 - a));
    let mut fraction = d;
    for i in 1..MOST {
        let step = i as f64 * (a - i as f64);
        b += 2.0;
        d = 1.0 / (step * d + b);
        c = b + step / c;
        fraction *= c * d;
        if (c * d - 1.0).abs() < EPSILON {
            break;
        }
    }
    let q = (factor * a * fraction).min(1.0);
    (1.0 - q, q)
}

/// x - ln(1 + x) for small x, without the digits that the difference loses.
fn minus_log1p(x: f64) -> f64 {
    // With r = x / (2 + x): ln(1 + x) = 2 (r + r^3 / 3 + ...), and x - 2 r = x r.
    let r = x / (2.0 + x);
    let square = r * r;
    let series = (1..12).rev().fold(0.0, |sum, k| (sum + 1.0 / f64::from(2 * k + 1)) * square);
    r * (x - 2.0 * series)
}

/// The regularised lower incomplete gamma function: the integral of t^(a - 1) e^-t from 0 to x,
/// over gamma(a).
pub fn gamma_p(a: f64, x: f64) -> f64 {
    gammas(a, x).0
}

/// The regularised upper incomplete gamma function, 1 - [`gamma_p`].
pub fn gamma_q(a: f64, x: f64) -> f64 {
    gammas(a, x).1
}

/// x as a mantissa from 0.5 to 1 (or to -1) times a power of two, and its exponent; a number that
/// has no such mantissa is its own, with the exponent 0.
pub fn frexp(x: f64) -> (f64, i32) {
    if x == 0.0 || !x.is_finite() { (x, 0) } else { libm::frexp(x) }
}

/// Hurwitz's zeta function, the sum of (q + n)^-x over n = 0, 1, ...: infinite for x = 1 and where
/// q is an integer of at most 0; NaN for x below 1, and for negative q where x is no integer.
pub fn zeta(x: f64, q: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    if x < 1.0 {
        return f64::NAN;
    }
    if q <= 0.0 {
        if q == q.floor() {
            return f64::INFINITY;
        }
        if x != x.floor() {
            return f64::NAN;
        }
    }
    if q < -20.0 {
        // The sum over all integers n, without the terms below q.
        let (f, sign) = (q - q.floor(), if x % 2.0 == 0.0 { 1.0 } else { -1.0 });
        return zeta(x, f) + sign * (zeta(x, 1.0 - f) - zeta(x, 1.0 - q));
    }
    // (2k)! over Bernoulli's numbers.
    const SCALES: [f64; 12] = [
        12.0,
        -720.0,
        30240.0,
        -1209600.0,
        47900160.0,
        -1.892_437_580_318_379e9,
        7.47242496e10,
        -2.950_130_727_918_164e12,
        1.164_678_281_435_006_7e14,
        -4.597_978_722_407_473e15,
        1.815_210_540_194_354_7e17,
        -7.166_165_256_175_667e18,
    ];
    let (mut sum, mut at, mut term, mut n) = (q.powf(-x), q, 0.0, 0);
    while n < 9 || at <= 9.0 {
        n += 1;
        at += 1.0;
        term = at.powf(-x);
        sum += term;
        if term.abs() < EPSILON * sum.abs() {
            return sum;
        }
    }
    sum += term * at / (x - 1.0) - 0.5 * term;
    let (mut rising, mut k) = (1.0, 0.0);
    for scale in SCALES {
        rising *= x + k;
        term /= at;
        let correction = rising * term / scale;
        sum += correction;
        if correction.abs() < EPSILON * sum.abs() {
            return sum;
        }
        rising *= x + k + 1.0;
        term /= at;
        k += 2.0;
    }
    sum
}

/// e^-|x| times the modified Bessel function of the first kind, of order 0 or 1.
fn bessel_scaled(order: f64, x: f64) -> f64 {
    let a = x.abs();
    let y = if a <= 30.0 {
        let square = 0.25 * a * a;
        let (mut term, mut sum, mut k) = (if order == 0.0 { 1.0 } else { 0.5 * a }, 0.0, 0.0);
        while term > EPSILON * sum {
            sum += term;
            k += 1.0;
            term *= square / (k * (k + order));
        }
        // Not a number: no term has been added.
        if a.is_nan() { a } else { sum * (-a).exp() }
    } else {
        let (mut term, mut sum, mut k): (f64, f64, f64) = (1.0, 0.0, 0.0);
        while term.abs() > EPSILON * sum.abs() {
            sum += term;
            k += 1.0;
            let odd = 2.0 * k - 1.0;
            term *= (odd * odd - 4.0 * order) / (8.0 * a * k);
        }
        if a.is_nan() { a } else { sum / (TAU * a).sqrt() }
    };
    if order == 1.0 && x < 0.0 { -y } else { y }
}

/// The modified Bessel function of the first kind, of order 0.
pub fn i0(x: f64) -> f64 {
    unscaled(0.0, x)
}

/// e^-|x| [`i0`]\(x).
pub fn i0e(x: f64) -> f64 {
    bessel_scaled(0.0, x)
}

/// The modified Bessel function of the first kind, of order 1.
pub fn i1(x: f64) -> f64 {
    unscaled(1.0, x)
}

/// e^-|x| [`i1`]\(x).
pub fn i1e(x: f64) -> f64 {
    bessel_scaled(1.0, x)
}

fn unscaled(order: f64, x: f64) -> f64 {
    if x.is_infinite() {
        return if order == 1.0 { x } else { f64::INFINITY };
    }
    // In two halves: e^x is infinite before the result is.
    let half = (0.5 * x.abs()).exp();
    bessel_scaled(order, x) * half * half
}

/// e^(x^2) erfc(x).
pub fn erfcx(x: f64) -> f64 {
    if x > 10.0 {
        // 1/(x sqrt(pi)) (1 - 1/(2x^2) + 3/(2x^2)^2 - ...)
        let z = 0.5 / x / x;
        let (mut term, mut sum, mut k): (f64, f64, f64) = (1.0, 0.0, 0.0);
        while term.abs() > EPSILON * sum.abs() {
            sum += term;
            k += 1.0;
            term *= -z * (2.0 * k - 1.0);
        }
        return 0.5 * FRAC_2_SQRT_PI * sum / x;
    }
    // The square in two parts: its rounding would be multiplied by the square itself.
    let square = x * x;
    let rest = x.mul_add(x, -square);
    let e = square.exp();
    if e.is_infinite() {
        return e; // x is far below zero
    }
    e * (1.0 + rest) * libm::erfc(x)
}

/// The normal distribution function: the probability of a value below x.
pub fn ndtr(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// The logarithm of [`ndtr`].
pub fn log_ndtr(x: f64) -> f64 {
    let t = x * FRAC_1_SQRT_2;
    if x < -1.0 { (0.5 * erfcx(-t)).ln() - t * t } else { (-0.5 * libm::erfc(t)).ln_1p() }
}

/// The inverse of [`ndtr`]: NaN outside 0..=1.
pub fn ndtri(p: f64) -> f64 {
    match p {
        0.0 => f64::NEG_INFINITY,
        1.0 => f64::INFINITY,
        _ if !(0.0..=1.0).contains(&p) => f64::NAN,
        _ if (p - 0.5).abs() <= 0.25 => SQRT_2 * erfinv(2.0 * p - 1.0),
        _ if p > 0.5 => -tail(1.0 - p), // exact
        _ => tail(p),
    }
}

/// The x below zero at which [`ndtr`] is p, by Newton's method on its logarithm, which is concave:
/// the steps come from below.
fn tail(p: f64) -> f64 {
    let log = p.ln();
    let mut x = -(-2.0 * log).sqrt();
    for _ in 0..60 {
        let t = -x * FRAC_1_SQRT_2;
        // ndtr over its derivative.
        let ratio = 0.5 * TAU.sqrt() * erfcx(t);
        let next = x - (log_ndtr(x) - log) * ratio;
        if (next - x).abs() <= EPSILON * x.abs() {
            return next;
        }
        x = next;
    }
    x
}

/// The inverse of the error function: NaN outside -1..=1.
pub fn erfinv(y: f64) -> f64 {
    let a = y.abs();
    if a > 1.0 || a.is_nan() {
        return f64::NAN;
    }
    if a == 1.0 {
        return f64::INFINITY.copysign(y);
    }
    if a > 0.5 {
        return (-tail(0.5 * (1.0 - a)) * FRAC_1_SQRT_2).copysign(y);
    }
    let slope = 1.0 / FRAC_2_SQRT_PI;
    let mut x = slope * y * (1.0 + slope * slope * y * y / 3.0);
    for _ in 0..4 {
        x -= (libm::erf(x) - y) * slope * (x * x).exp();
    }
    x
}

/// The greatest common divisor; of i64's least number and 0 it wraps.
pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.cast_signed()
}

/// The least common multiple, wrapping; 0 where either is.
pub fn lcm(a: i64, b: i64) -> i64 {
    match gcd(a, b) {
        0 => 0,
        divisor => a.wrapping_div(divisor).wrapping_mul(b).wrapping_abs(),
    }
}

/// The number after `a` on the way to `b`.
pub fn next_after(a: f64, b: f64) -> f64 {
    match () {
        () if a.is_nan() || b.is_nan() => f64::NAN,
        () if a == b => b,
        () if a < b => a.next_up(),
        () => a.next_down(),
    }
}

/// As [`next_after`], among the numbers of f32.
pub fn next_after_f32(a: f32, b: f32) -> f32 {
    match () {
        () if a.is_nan() || b.is_nan() => f32::NAN,
        () if a == b => b,
        () if a < b => a.next_up(),
        () => a.next_down(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(found: f64, expected: f64, bound: f64) {
        let same = found == expected || (found.is_nan() && expected.is_nan());
        let error = (found - expected).abs() / expected.abs();
        assert!(same || error <= bound, "{found:e}, not {expected:e}: {error:e}");
    }

    #[test]
    fn incomplete_gamma_functions() {
        // Of mpmath, with 30 digits; from 2e5 on of PyTorch.
        let known = [
            (0.3, 0.1, 0.5459128495917965, 0.4540871504082035),
            (0.5, 2.0, 0.9544997361036416, 0.04550026389635842),
            (1.0, 1.0, 0.6321205588285577, 0.36787944117144233),
            (2.5, 9.0, 0.9970535954121197, 0.0029464045878802906),
            (9.9, 9.0, 0.4253615218816132, 0.5746384781183868),
            (10.0, 10.0, 0.5420702855281478, 0.4579297144718522),
            (15.0, 30.0, 0.9990793176038514, 0.0009206823961486663),
            (50.0, 20.0, 1.245892607971938e-08, 0.9999999875410739),
            (120.0, 125.0, 0.6845913221664548, 0.31540867783354526),
            (1000.0, 990.0, 0.3795213785379639, 0.620478621462036),
            (50000.0, 50100.0, 0.6730699893761954, 0.3269300106238046),
            (99999.0, 99500.0, 0.05710356788816986, 0.9428964321118302),
            (100000.0, 100000.0, 0.5004205221103651, 0.4995794778896348),
            (200000.0, 200700.0, 0.9411112123622528, 0.0588887876377472),
            (1e6, 998500.0, 0.06675317283101755, 0.9332468271689824),
            (1e8, 1.0001e8, 0.8413447464717021, 0.1586552535282979),
            (1e-5, 1e-3, 0.9999366865285947, 6.331347140529355e-5),
            (0.01, 30.0, 1.0, 3.144913227075796e-17),
            (200.0, 200.0, 0.5094034180072363, 0.4905965819927637),
            (1e4, 10500.0, 0.9999995724127545, 4.2758724550596475e-7),
        ];
        for (a, x, p, q) in known {
            // Where the smaller one is computed, it is as good as the larger one.
            let bound = if a >= 1e5 { 1e-10 / f64::min(p, q) } else { 1e-11 };
            near(gamma_p(a, x), p, bound);
            near(gamma_q(a, x), q, bound);
        }
        let inf = f64::INFINITY;
        for (a, x, p) in [(0.0, 1.0, 1.0), (1.0, inf, 1.0), (1.0, 0.0, 0.0), (inf, 1.0, 0.0)] {
            assert_eq!((gamma_p(a, x), gamma_q(a, x)), (p, 1.0 - p));
        }
        for (a, x) in [(0.0, 0.0), (inf, inf), (-1.0, 1.0), (1.0, -1.0), (f64::NAN, 1.0)] {
            assert!(gamma_p(a, x).is_nan() && gamma_q(a, x).is_nan());
        }
        for (a, x) in [(1e300, 1.0), (1e300, 1e301), (1e-300, 1e-300), (1e300, 1e300)] {
            let (p, q) = (gamma_p(a, x), gamma_q(a, x));
            assert!((0.0..=1.0).contains(&p) && (p + q - 1.0).abs() < 1e-15, "{a} {x}: {p} {q}");
        }
    }

    #[test]
    fn values_to_many_digits() {
        #[rustfmt::skip]
        type Row<'a> = (fn(f64) -> f64, &'a [(f64, f64)], f64);
        let table: [Row<'_>; 9] = [
            (
                digamma,
                &[
                    (0.1, -10.423_754_940_411_076),
                    (1.0, -0.577_215_664_901_532_9),
                    (1.5, 0.036_489_973_978_576_52),
                    (3.7, 1.167_153_539_361_511_3),
                    (9.99, 2.250_700_372_831_201),
                    (42.0, 3.725_717_617_937_282),
                    (10000000000.0, 23.025_850_929_890_456),
                    (-0.5, 0.036_489_973_978_576_52),
                    (-3.3, 3.620_353_460_592_126),
                    (-1234.75, 3.977_436_031_443_380_3),
                    (1e-300, -9.999_999_999_999_999e299),
                ],
                1e-14,
            ),
            (
                i0,
                &[
                    (0.1, 1.002_501_562_934_095_6),
                    (1.0, 1.266_065_877_752_008_4),
                    (-5.5, 42.694_645_151_847_79),
                    (29.5, 478144163888.0398),
                    (30.5, 1278062138712.5664),
                    (100.0, 1.073_751_707_131_073_8e42),
                    (700.0, 1.529_593_347_671_873_7e302),
                ],
                2e-15,
            ),
            (
                i0e,
                &[
                    (0.1, 0.907_100_925_782_301_1),
                    (-3.0, 0.243_000_354_161_825_4),
                    (29.5, 0.073_768_617_278_728_59),
                    (31.0, 0.071_946_496_696_983_83),
                    (100000.0, 0.001_261_567_837_976_776_8),
                ],
                2e-15,
            ),
            (
                i1,
                &[
                    (1e-10, 5e-11),
                    (0.1, 0.050_062_526_047_092_694),
                    (-1.0, -0.565_159_103_992_485),
                    (5.5, 38.588_164_616_327_39),
                    (29.5, 469968885416.2773),
                    (30.5, 1256932623308.4714),
                    (700.0, 1.528_500_390_233_900_6e302),
                ],
                2e-15,
            ),
            (
                i1e,
                &[
                    (0.1, 0.045_298_446_808_809_324),
                    (-3.0, -0.196_826_713_297_300_86),
                    (29.5, 0.072_507_326_157_183_72),
                    (31.0, 0.070_776_392_834_385_68),
                    (100000.0, 0.001_261_561_530_121_817_1),
                ],
                2e-15,
            ),
            (
                erfcx,
                &[
                    (-20.0, 1.044_293_937_952_828_9e174),
                    (-3.3, 107274.435_932_814_36),
                    (-0.1, 1.123_643_354_199_209_5),
                    (0.5, 0.615_690_344_192_925_9),
                    (2.0, 0.255_395_676_310_505_75),
                    (9.9, 0.056_702_456_938_832_27),
                    (10.1, 0.055_590_487_009_239_874),
                    (100.0, 0.005_641_613_782_989_433),
                    (1000000.0, 5.641_895_835_474_742e-7),
                ],
                2e-15,
            ),
            (
                log_ndtr,
                &[
                    (-1000.0, -500007.826_694_812_16),
                    (-20.0, -203.917_155_371_097_27),
                    (-1.5, -2.705_944_400_823_889_8),
                    (-0.5, -1.175_911_761_593_618_5),
                    (0.5, -0.368_946_415_288_656_4),
                    (3.0, -0.001_350_809_964_748_193_8),
                    (9.0, -1.128_588_405_953_840_5e-19),
                ],
                2e-14,
            ),
            (
                ndtri,
                &[
                    (1e-300, -37.047_096_299_361_2),
                    (1e-10, -6.361_340_902_404_057),
                    (0.001, -3.090_232_306_167_813_6),
                    (0.2, -0.841_621_233_572_914_2),
                    (0.3, -0.524_400_512_708_040_8),
                    (0.6, 0.253_347_103_135_799_7),
                    (0.9, 1.281_551_565_544_600_6),
                    (0.999999, 4.753_424_308_817_087),
                ],
                1e-15,
            ),
            (
                erfinv,
                &[
                    (1e-10, 8.862_269_254_527_581e-11),
                    (0.1, 0.088_855_990_494_257_69),
                    (0.45, 0.422_680_238_647_561_9),
                    (-0.55, -0.534_159_087_749_702_4),
                    (0.9, 1.163_087_153_676_674_3),
                    (-0.999, -2.326_753_765_513_524_6),
                    (0.999_999_999_9, 4.572_824_958_544_925),
                ],
                1e-15,
            ),
        ];
        for (f, cases, bound) in table {
            for &(x, y) in cases {
                near(f(x), y, bound);
            }
        }
        #[rustfmt::skip]
        let zetas = [(2.0, 1.0, 1.644_934_066_848_226_4), (3.0, 0.5, 8.414_398_322_117_16), (1.1, 20.0, 7.430_042_649_595_584), (40.0, 3.7, 1.870_515_814_933_525_4e-23), (5.0, 100000.0, 2.500_050_000_416_666_7e-21), (2.0, -0.5, 8.934_802_200_544_679), (3.0, -2.7, 34.466_469_511_631_9), (4.0, -1000.75, 259.757_576_090_341_1), (2.0, 0.001, 1000001.642_533_195_8), (7.0, -25.125, -2097149.884_493_929_6)];
        for (x, q, y) in zetas {
            near(zeta(x, q), y, 1e-14);
        }
    }

    #[test]
    fn ends_and_what_is_no_number() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        for (f, cases) in [
            (digamma as fn(f64) -> f64, &[(0.0, -inf), (-0.0, inf), (-3.0, nan), (inf, inf)][..]),
            (i0, &[(inf, inf), (-inf, inf), (0.0, 1.0)]),
            (i0e, &[(inf, 0.0), (0.0, 1.0)]),
            (i1, &[(inf, inf), (-inf, -inf), (0.0, 0.0)]),
            (i1e, &[(inf, 0.0), (0.0, 0.0)]),
            (erfcx, &[(inf, 0.0), (-inf, inf), (-30.0, inf), (0.0, 1.0)]),
            (log_ndtr, &[(inf, 0.0), (-inf, -inf)]),
            (ndtri, &[(0.0, -inf), (1.0, inf), (0.5, 0.0), (-0.1, nan), (1.1, nan)]),
            (erfinv, &[(1.0, inf), (-1.0, -inf), (0.0, 0.0), (1.5, nan), (-inf, nan)]),
        ] {
            for &(x, y) in cases {
                near(f(x), y, 0.0);
            }
            assert!(f(nan).is_nan());
        }
        for (x, q, y) in [(1.0, 2.0, inf), (0.5, 2.0, nan), (3.0, -2.0, inf), (2.5, -0.5, nan)] {
            near(zeta(x, q), y, 0.0);
        }
        assert!(zeta(nan, 1.0).is_nan() && zeta(2.0, nan).is_nan());
    }

    #[test]
    fn inverses_are_inverses() {
        for i in 1..2000 {
            let p = f64::from(i) / 2000.0;
            near(ndtr(ndtri(p)), p, 1e-14);
            near(libm::erf(erfinv(p)), p, 1e-14);
            near(erfinv(-p), -erfinv(p), 0.0);
        }
        for e in 1..300 {
            let p = 10f64.powi(-e);
            near(log_ndtr(ndtri(p)), p.ln(), 1e-14);
        }
    }

    #[test]
    fn divisors_and_neighbours() {
        assert_eq!([gcd(12, -18), gcd(0, -5), gcd(0, 0), gcd(i64::MIN, 6)], [6, 5, 0, 2]);
        assert_eq!([lcm(4, -6), lcm(0, 5), lcm(-3, -7)], [12, 0, 21]);
        assert_eq!(next_after_f32(1.0, 2.0), 1.0 + f32::EPSILON);
        assert_eq!(next_after_f32(0.0, -1.0), -f32::from_bits(1));
        assert_eq!(next_after(1.0, 0.0), 1.0 - f64::EPSILON / 2.0);
        assert_eq!(next_after(3.0, 3.0), 3.0);
        assert!(next_after(f64::NAN, 1.0).is_nan() && next_after_f32(1.0, f32::NAN).is_nan());
    }
}

//! Functions of two f32 that need more digits than f32 has on the way: computed in f64, and rounded
//! once. Plain loops over arrays, which the compiler vectorises.

use std::f64::consts::SQRT_2;

/// Pairs that are computed together: one loop that fills the widest vectors of f64 several times.
pub const PAIRS: usize = 64;

/// As many numbers.
pub type Numbers = [f32; PAIRS];

/// Beyond this, a quotient times a divisor is not exact in f64.
const EXACT: f64 = (1u64 << 29) as f64;

/// Computes `$y` for all pairs, and by `$exact` those of which `$usual` does not hold: one by one
/// after the others, so that these have no branch.
macro_rules! pairs {
    ($a:ident, $b:ident, $y:expr, if $usual:expr, else $exact:expr) => {{
        let (mut y, mut rare) = ([0.0f32; PAIRS], [false; PAIRS]);
        for i in 0..PAIRS {
            let ($a, $b) = (f64::from($a[i]), f64::from($b[i]));
            y[i] = $y as f32;
            rare[i] = !$usual;
        }
        if rare.iter().fold(false, |any, &rare| any | rare) {
            for i in 0..PAIRS {
                if rare[i] {
                    let ($a, $b) = (f64::from($a[i]), f64::from($b[i]));
                    y[i] = $exact as f32;
                }
            }
        }
        y
    }};
}

/// What is left of a / b, with the sign of a: C's fmod. `exact` is the function in f64.
#[inline(always)]
pub fn fmod(a: &Numbers, b: &Numbers, exact: fn(f64, f64) -> f64) -> Numbers {
    pairs!(a, b, remainder_to_zero(a, b), if exact_quotient(a, b), else exact(a, b))
}

/// What is left of a / b, with the sign of b: Python's %.
#[inline(always)]
pub fn remainder(a: &Numbers, b: &Numbers, exact: fn(f64, f64) -> f64) -> Numbers {
    pairs!(
        a,
        b,
        {
            let r = remainder_to_zero(a, b);
            if (r != 0.0) & ((r < 0.0) != (b < 0.0)) { r + b } else { r }
        },
        if exact_quotient(a, b),
        else exact(a, b)
    )
}

/// floor(a / b).
#[inline(always)]
pub fn floor_divide(a: &Numbers, b: &Numbers, exact: fn(f64, f64) -> f64) -> Numbers {
    // Of f32 the quotient is never rounded to an integer that it is not: it would have to be as
    // close as 2^-24 of b's unit, which f64 tells apart.
    pairs!(a, b, (a / b).floor(), if exact_quotient(a, b), else exact(a, b))
}

/// Whether [`remainder_to_zero`] is exact: not for large quotients, nor by 0, nor of infinities.
#[inline(always)]
fn exact_quotient(a: f64, b: f64) -> bool {
    (a.abs() < EXACT * b.abs()) & (b.abs() < f64::INFINITY)
}

#[inline(always)]
fn remainder_to_zero(a: f64, b: f64) -> f64 {
    // The product is exact, and so is the difference.
    (a - (a / b).trunc() * b).copysign(a)
}

/// sqrt(a^2 + b^2): infinite where either is.
#[inline(always)]
pub fn hypot(a: &Numbers, b: &Numbers, exact: fn(f64, f64) -> f64) -> Numbers {
    pairs!(a, b, (a * a + b * b).sqrt(), if !(a + b).is_nan(), else exact(a, b))
}

/// a^b.
#[inline(always)]
pub fn pow(a: &Numbers, b: &Numbers, exact: fn(f64, f64) -> f64) -> Numbers {
    pairs!(
        a,
        b,
        exp2((b * log2(a)).clamp(-200.0, 200.0)),
        if (a > 0.0) & (a < f64::INFINITY) & (b.abs() < f64::INFINITY),
        else exact(a, b)
    )
}

/// log2 x of a positive normal number, with a relative error of 2^-45 (absolute near 1).
#[inline(always)]
fn log2(x: f64) -> f64 {
    const ONE_HALF: u64 = (SQRT_2 / 2.0).to_bits();
    /// Adding it leaves an integer of at most 51 bits in the low bits.
    const ROUND: f64 = (3u64 << 51) as f64;
    // x = 2^k m, with sqrt(1/2) <= m < sqrt 2
    let bits = x.to_bits().wrapping_sub(ONE_HALF);
    // The exponent as an integer in the low bits of a float; it may be negative.
    let k = f64::from_bits(ROUND.to_bits().wrapping_add(((bits as i64) >> 52) as u64)) - ROUND;
    let m = f64::from_bits(x.to_bits().wrapping_sub(bits & (0xfff << 52)));
    // ln m = 2 artanh((m - 1) / (m + 1))
    let r = (m - 1.0) / (m + 1.0);
    let z = r * r;
    let p = horner(
        z,
        [
            2.88539008177785,
            0.9617966941133053,
            0.5770779423770301,
            0.41220925104196576,
            0.31990575525048204,
            0.2828992827037053,
        ],
    );
    k + r * p
}

/// 2^x with a relative error of 2^-34, for |x| < 1000.
#[inline(always)]
fn exp2(x: f64) -> f64 {
    const ROUND: f64 = (3u64 << 51) as f64;
    let shifted = x + ROUND;
    let r = x - (shifted - ROUND);
    let p = horner(
        r,
        [
            0.9999999999616793,
            0.6931471807284384,
            0.24022651198167252,
            0.05550410353456927,
            0.00961802725269062,
            0.001333392255491749,
            0.0001546929140753477,
            1.5201924248838622e-05,
        ],
    );
    f64::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 52))
}

#[inline(always)]
fn horner<const N: usize>(x: f64, c: [f64; N]) -> f64 {
    let mut y = c[N - 1];
    for k in 1..N {
        y = y * x + c[N - 1 - k];
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Isa, Simd, Vectorized};

    type Exact = fn(f64, f64) -> f64;
    type Function = fn(&Numbers, &Numbers, Exact) -> Numbers;

    /// Calls the loops as kernels do; the functions by themselves lack the instruction set.
    struct Call(Function, Numbers, Numbers, Exact);

    impl Vectorized for Call {
        type Output = Numbers;
        #[inline(always)]
        fn run<S: Simd>(self, _: S) -> Numbers {
            (self.0)(&self.1, &self.2, self.3)
        }
    }

    fn floored(a: f64, b: f64) -> f64 {
        let r = a % b;
        if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
    }

    /// floor(a / b) of the remainder, but by zero what the division gives; a zero has its sign.
    fn quotient(a: f64, b: f64) -> f64 {
        match ((a - floored(a, b)) / b).round() {
            _ if b == 0.0 => a / b,
            0.0 => 0.0f64.copysign(a / b),
            whole => whole,
        }
    }

    #[test]
    fn as_exact_as_f64() {
        let special = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            3.0,
            -3.0,
            1e-45,
            -1e-40,
            f32::MIN_POSITIVE,
            1e38,
            f32::MAX,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            0.1,
            -0.3,
            7.7,
            16_777_216.0,
            2.5,
            -2.5,
            80.3,
        ];
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 8
        };
        let mut pairs: Vec<(f32, f32)> = Vec::new();
        for a in special {
            pairs.extend(special.map(|b| (a, b)));
        }
        for _ in 0..200_000 {
            let [a, b] = [(); 2].map(|()| match next() % 4 {
                0 => (next() % 64) as f32 / 4.0 - 8.0,
                1 => f32::from_bits(next() << 8 | next() & 255),
                _ => (next() as f32 / 1e6 - 8.0) * ((next() % 7) as f32).exp2(),
            });
            pairs.push((a, b));
        }
        let functions: [(Function, Exact, f64); 5] = [
            (fmod, |a, b| a % b, 0.0),
            (remainder, floored, 0.0),
            (floor_divide, quotient, 0.0),
            (hypot, libm::hypot, 1.0),
            (pow, f64::powf, 1.0),
        ];
        for (which, (function, exact, ulp)) in functions.into_iter().enumerate() {
            for chunk in pairs.chunks(PAIRS) {
                let (mut a, mut b) = ([1.0; PAIRS], [1.0; PAIRS]);
                for (i, pair) in chunk.iter().enumerate() {
                    (a[i], b[i]) = *pair;
                }
                for isa in Isa::available() {
                    let y = isa.run(Call(function, a, b, exact));
                    for (i, &(a, b)) in chunk.iter().enumerate() {
                        let expected = exact(a.into(), b.into()) as f32;
                        let near = (y[i] - expected).abs()
                            <= ulp as f32 * (expected.abs() * f32::EPSILON).max(1e-45);
                        // Of zeros the sign as well, where the result is exact.
                        let signs = y[i].is_sign_negative() == expected.is_sign_negative();
                        let equal = y[i] == expected && (signs || ulp > 0.0);
                        let same = equal || (y[i].is_nan() && expected.is_nan());
                        assert!(
                            same || (near && ulp > 0.0),
                            "{isa} {which}({a:e}, {b:e}) = {} {expected}",
                            y[i]
                        );
                    }
                }
            }
        }
    }
}

//! Every function against f64, over a dense sample of all f32 bit patterns and on every ISA.

use super::*;
use crate::simd::{Isa, Vectorized};

/// Applies a function to a slice; a value, because kernels are.
struct Map<'a, F>(F, &'a mut [f32]);

macro_rules! functions {
    ($($name:ident: $exact:expr, $ulp:expr;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[allow(non_camel_case_types)]
        enum Function { $($name),* }

        /// Function, exact counterpart, and the bound that the table in `mod.rs` states.
        const FUNCTIONS: &[(Function, fn(f64) -> f64, f64)] =
            &[$((Function::$name, $exact, $ulp)),*];

        impl Vectorized for Map<'_, Function> {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, s: S) {
                for chunk in self.1.chunks_mut(S::LANES) {
                    let x = s.load_partial(chunk);
                    let y = match self.0 { $(Function::$name => super::$name(s, x)),* };
                    s.store_partial(y, chunk);
                }
            }
        }
    };
}
functions! {
    exp: f64::exp, 1.0;
    expm1: f64::exp_m1, 1.5;
    log: f64::ln, 1.0;
    log1p: f64::ln_1p, 1.5;
    sigmoid: |x| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }, 2.5;
    silu: |x| if x < -128.0 * std::f64::consts::LN_2 { -0.0 } else { x / (1.0 + (-x).exp()) }, 3.0;
    tanh: f64::tanh, 2.5;
    erf: libm::erf, 2.0;
    sin: f64::sin, 2.0;
    cos: f64::cos, 2.0;
    exp2: f64::exp2, 1.5;
    log2: f64::log2, 2.0;
    log10: f64::log10, 2.0;
    erfc: libm::erfc, 5.0;
    erfinv: special::erfinv, 3.5;
    tan: f64::tan, 3.5;
    asin: f64::asin, 2.5;
    acos: f64::acos, 2.5;
    atan: f64::atan, 2.5;
    sinh: f64::sinh, 2.5;
    cosh: f64::cosh, 2.5;
    asinh: libm::asinh, 3.5;
    acosh: |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) }, 3.5;
    atanh: libm::atanh, 3.5;
}

/// Distance in units of the last place of the exact result (of the least denormal, below that).
fn ulps(found: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    if found == rounded || (found.is_nan() && exact.is_nan()) {
        return 0.0;
    }
    if !found.is_finite() && rounded.is_finite() || found.is_nan() != exact.is_nan() {
        // One step beyond the largest finite number is one ULP, not infinitely many.
        let limit = f64::from(f32::MAX) * (1.0 + f64::from(f32::EPSILON));
        return if found.is_nan() || exact.abs() < limit * 0.999_999_9 {
            f64::INFINITY
        } else {
            1.0
        };
    }
    if rounded.is_infinite() {
        return if found == f32::MAX.copysign(rounded) { 1.0 } else { f64::INFINITY };
    }
    let exponent = exact.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor();
    (f64::from(found) - exact).abs() / (exponent - 23.0).exp2()
}

fn worst(isa: Isa, function: Function, exact: fn(f64) -> f64, stride: usize) -> (f64, f32) {
    let mut worst = (0.0, 0.0);
    let mut x = Vec::new();
    for bits in (0..=u64::from(u32::MAX)).step_by(stride) {
        x.push(f32::from_bits(bits as u32));
        if x.len() == 4096 || bits + stride as u64 > u64::from(u32::MAX) {
            let mut y = x.clone();
            isa.run(Map(function, &mut y));
            for (&x, &y) in x.iter().zip(&y) {
                let error = ulps(y, exact(f64::from(x)));
                // A denormal sigmoid may count as 0.
                let none = function == Function::silu && y == 0.0 && x < -88.376;
                if error > worst.0 && !none {
                    worst = (error, x);
                }
            }
            x.clear();
        }
    }
    worst
}

fn check(stride: usize) {
    let mut failures = Vec::new();
    for isa in Isa::available() {
        for &(function, exact, bound) in FUNCTIONS {
            let (error, at) = worst(isa, function, exact, stride);
            println!("{isa} {function:?}: {error:.3} ULP at {at:e}");
            if error > bound {
                failures.push(format!("{isa} {function:?}({at:e}): {error} ULP, bound {bound}"));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn errors_stay_below_the_stated_bounds() {
    check(4093); // a prime: every low bit pattern occurs
}

#[test]
#[ignore = "takes minutes: all 2^32 arguments"]
fn every_f32() {
    check(1);
}

#[test]
fn edges() {
    const INF: f32 = f32::INFINITY;
    const TINY: f32 = 1e-45;
    let nan = f32::NAN;
    #[rustfmt::skip]
    let table: &[(Function, &[(f32, f32)])] = &[
        (Function::exp, &[(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (nan, nan), (89.0, INF), (-104.0, 0.0), (-103.0, TINY), (TINY, 1.0), (1.0, 2.718_281_7)]),
        (Function::expm1, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (nan, nan), (TINY, TINY), (-TINY, -TINY), (89.0, INF)]),
        (Function::log, &[(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (-1.0, nan), (-TINY, nan), (INF, INF), (-INF, nan), (nan, nan), (TINY, -103.278_93)]),
        (Function::log1p, &[(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (-1.5, nan), (INF, INF), (-INF, nan), (nan, nan), (TINY, TINY), (-TINY, -TINY)]),
        (Function::sigmoid, &[(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (nan, nan), (-103.0, TINY)]),
        (Function::silu, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, nan), (nan, nan), (-89.0, -0.0), (-1e30, -0.0)]),
        (Function::tanh, &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (nan, nan), (TINY, TINY), (-TINY, -TINY)]),
        (Function::erf, &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (nan, nan), (TINY, TINY), (4.0, 1.0), (-1e30, -1.0)]),
        (Function::sin, &[(0.0, 0.0), (-0.0, -0.0), (INF, nan), (-INF, nan), (nan, nan), (TINY, TINY)]),
        (Function::cos, &[(0.0, 1.0), (-0.0, 1.0), (INF, nan), (-INF, nan), (nan, nan), (TINY, 1.0)]),
        (Function::exp2, &[(0.0, 1.0), (-0.0, 1.0), (3.0, 8.0), (-149.0, TINY), (-151.0, 0.0), (128.0, INF), (INF, INF), (-INF, 0.0), (nan, nan)]),
        (Function::log2, &[(1.0, 0.0), (8.0, 3.0), (0.0, -INF), (-0.0, -INF), (-1.0, nan), (INF, INF), (nan, nan), (TINY, -149.0)]),
        (Function::log10, &[(1.0, 0.0), (1000.0, 3.0), (0.0, -INF), (-1.0, nan), (INF, INF), (nan, nan)]),
        (Function::erfc, &[(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 2.0), (nan, nan), (TINY, 1.0), (11.0, 0.0), (-6.0, 2.0)]),
        (Function::erfinv, &[(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, nan), (-INF, nan), (nan, nan)]),
        (Function::tan, &[(0.0, 0.0), (-0.0, -0.0), (INF, nan), (-INF, nan), (nan, nan), (TINY, TINY)]),
        (Function::asin, &[(0.0, 0.0), (-0.0, -0.0), (1.0, std::f32::consts::FRAC_PI_2), (-1.0, -std::f32::consts::FRAC_PI_2), (1.5, nan), (-INF, nan), (nan, nan), (TINY, TINY)]),
        (Function::acos, &[(1.0, 0.0), (-1.0, std::f32::consts::PI), (0.0, std::f32::consts::FRAC_PI_2), (1.5, nan), (-1.5, nan), (INF, nan), (nan, nan)]),
        (Function::atan, &[(0.0, 0.0), (-0.0, -0.0), (INF, std::f32::consts::FRAC_PI_2), (-INF, -std::f32::consts::FRAC_PI_2), (nan, nan), (TINY, TINY)]),
        (Function::sinh, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (nan, nan), (TINY, TINY), (90.0, INF)]),
        (Function::cosh, &[(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (nan, nan), (-90.0, INF)]),
        (Function::asinh, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (nan, nan), (TINY, TINY)]),
        (Function::acosh, &[(1.0, 0.0), (0.5, nan), (-5.0, nan), (-INF, nan), (INF, INF), (nan, nan)]),
        (Function::atanh, &[(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, nan), (-INF, nan), (nan, nan), (TINY, TINY)]),
    ];
    for isa in Isa::available() {
        for &(function, cases) in table {
            for &(x, expected) in cases {
                // The other lanes hold what would disturb them if lanes were mixed.
                let mut y = vec![1e30, x, f32::NAN, -1e30, x];
                isa.run(Map(function, &mut y));
                for found in [y[1], y[4]] {
                    let same = found.to_bits() == expected.to_bits()
                        || (found.is_nan() && expected.is_nan());
                    assert!(same, "{isa} {function:?}({x:e}) = {found:e}, not {expected:e}");
                }
            }
        }
    }
}

#[test]
fn the_normal_distribution_keeps_its_tail() {
    struct Cdf<'a>(&'a mut [f32]);
    impl Vectorized for Cdf<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            for chunk in self.0.chunks_mut(S::LANES) {
                let y = normal_cdf(s, s.load_partial(chunk));
                s.store_partial(y, chunk);
            }
        }
    }
    let x: Vec<f32> = (-8000..=8000).map(|i| i as f32 / 1000.0).collect();
    for isa in Isa::available() {
        let mut y = x.clone();
        isa.run(Cdf(&mut y));
        for (&x, &y) in x.iter().zip(&y) {
            let exact = 0.5 * libm::erfc(-f64::from(x) / std::f64::consts::SQRT_2);
            // The tail is e^-t: an error of an ULP or two of t counts t-fold.
            let t = -(2.0 * exact.min(0.5)).ln();
            let bound = exact * (3.0 + 2.0 * t) * f64::from(f32::EPSILON) + 0.5f64.powi(30);
            assert!((f64::from(y) - exact).abs() <= bound, "{isa} {x}: {y} {exact}");
        }
    }
}

struct Nonpositive<'a>(&'a mut [f32]);

impl Vectorized for Nonpositive<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for chunk in self.0.chunks_mut(S::LANES) {
            s.store_partial(exp_nonpositive(s, s.load_partial(chunk)), chunk);
        }
    }
}

#[test]
fn exponentials_of_what_is_not_positive() {
    let x: Vec<_> = (0x8000_0000..=u32::MAX).step_by(997).map(f32::from_bits).collect();
    let x = [&x[..], &[0.0, -87.3, -87.300_01, -1e30, f32::MIN, f32::NEG_INFINITY]].concat();
    for isa in Isa::available() {
        let mut y = x.clone();
        isa.run(Nonpositive(&mut y));
        for (&x, &y) in x.iter().zip(&y) {
            let exact = if x < -87.3 { 0.0 } else { f64::from(x).exp() };
            assert!(ulps(y, exact) <= 2.0, "{isa}: e^{x} is {exact}, not {y}");
        }
    }
}

struct Angles<'a>(&'a [f32], &'a mut [f32]);

impl Vectorized for Angles<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (y, x) in self.0.chunks(S::LANES).zip(self.1.chunks_mut(S::LANES)) {
            s.store_partial(atan2(s, s.load_partial(y), s.load_partial(x)), x);
        }
    }
}

#[test]
fn angles_of_points() {
    let mut values = vec![0.0, -0.0, 1e-45, 1e-38, 1e-20, 1.0, 3.5, 1e20, f32::MAX, f32::INFINITY];
    values.extend((1..40).map(|i| (i as f32 * 0.37).exp() / 300.0));
    values.extend(values.clone().iter().map(|x| -x));
    values.push(f32::NAN);
    for isa in Isa::available() {
        for &y in &values {
            let mut found = values.clone();
            isa.run(Angles(&values.iter().map(|_| y).collect::<Vec<_>>(), &mut found));
            for (&x, &found) in values.iter().zip(&found) {
                let exact = f64::from(y).atan2(f64::from(x));
                let same = exact != 0.0 || found.is_sign_negative() == exact.is_sign_negative();
                assert!(
                    ulps(found, exact) <= 2.5 && same,
                    "{isa} atan2({y}, {x}): {found} {exact}"
                );
            }
        }
    }
}

//! Vectors of activation functions against single elements in f64.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use plutino_cpu::activation::Activation::*;
use plutino_cpu::activation::*;
use plutino_reference::elementwise as reference;
use plutino_reference::testkit::{on_every_machine, random};

/// The parameter as vectors have it.
const fn single(parameter: f32) -> f64 {
    parameter as f64
}

/// Every function, usual and unusual parameters; how many ULP of the result, and of the
/// argument, it may be off. The second is for functions that subtract, and for the tail of
/// GELU.
const ALL: &[(Activation, f64, f64)] = &[
    (Relu, 0.0, 0.0),
    (Relu6, 0.0, 0.0),
    (Clamp { lo: -0.5, hi: 1.5 }, 0.0, 0.0),
    (Clamp { lo: 1.0, hi: -1.0 }, 0.0, 0.0),
    (Clamp { lo: f64::NEG_INFINITY, hi: 2.0 }, 0.0, 0.0),
    (LeakyRelu { slope: single(0.01) }, 0.5, 0.0),
    (LeakyRelu { slope: single(-0.22) }, 0.5, 0.0),
    (Elu { alpha: single(1.3) }, 2.5, 0.0),
    (Elu { alpha: single(-0.6) }, 2.5, 0.0),
    (Elu { alpha: 0.0 }, 0.0, 0.0),
    (Celu { alpha: 2.0 }, 2.5, 0.0),
    (Celu { alpha: single(0.7) }, 4.0, 0.0), // 1/alpha and the quotient are rounded, too
    (Selu, 4.0, 0.0),
    (Sigmoid, 2.5, 0.0),
    (LogSigmoid, 4.0, 0.0),
    (Silu, 4.0, 0.0),
    (HardSigmoid, 2.0, 0.5),
    (HardSwish, 3.0, 1.0),
    (Tanh, 2.5, 0.0),
    (Gelu, 4.0, 0.5), // the exponent t of the tail is rounded, and t e^-t <= 0.37
    (GeluTanh, 4.0, 3.0), // the exponent, up to 40 where it counts, is rounded
    (Mish, 5.0, 0.0),
    (Softplus { beta: 1.0, threshold: 20.0 }, 4.0, 0.0),
    (Softplus { beta: single(-0.7), threshold: single(0.3) }, 6.0, 0.5), // beta x is rounded
    (Softplus { beta: single(0.7), threshold: 12.0 }, 6.0, 0.5),
    (Softsign, 1.5, 0.0),
    (Tanhshrink, 0.5, 2.5),
    (Softshrink { lambda: 0.5 }, 0.5, 0.0),
    (Softshrink { lambda: 0.0 }, 0.5, 0.0),
    (Hardshrink { lambda: single(0.22) }, 0.0, 0.0),
    (Threshold { threshold: single(0.1), value: 20.0 }, 0.0, 0.0),
];

fn ulp(x: f64) -> f64 {
    (x.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor() - 23.0).exp2()
}

#[test]
fn functions_match_their_formulas() {
    // Lengths that end inside a block of vectors and inside a vector.
    let mut x: Vec<f32> = random(4003, 1).iter().map(|v| v * 8.0).collect();
    x.extend(random(1000, 2).iter().map(|v| v * 100.0));
    x.extend([0.0, -0.0, 1e-40, -1e-40, 1e30, -1e30, 3.0, -3.0, 0.22, -0.22, 0.5, -0.5, 0.1]);
    for &(activation, of_result, of_argument) in ALL {
        on_every_machine(
            |isa, _| {
                let mut y = x.clone();
                activation.apply_in_place(isa, &mut y);
                y
            },
            |y| {
                for (&x, &y) in x.iter().zip(y) {
                    let exact = reference::activation(activation, x.into());
                    // A denormal sigmoid, times x; to SiLU it is 0, as it is to PyTorch.
                    let digits = if activation == Silu { 127 } else { 149 };
                    let least = f64::from(x.abs()) * 0.5f64.powi(digits);
                    let bound = of_result * ulp(exact) + of_argument * ulp(x.into()) + least;
                    let error = (f64::from(y) - exact).abs();
                    assert!(error <= bound, "{activation:?}({x:e}) = {y:e}, not {exact:e}");
                }
            },
        );
    }
}

#[test]
fn nan_and_infinities_go_as_in_pytorch() {
    for &(activation, ..) in ALL {
        on_every_machine(
            |isa, _| {
                let mut y = vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
                activation.apply_in_place(isa, &mut y);
                y
            },
            |y| {
                assert!(y[0].is_nan(), "{activation:?}(NaN) = {}", y[0]);
                for (&y, x) in y[1..].iter().zip([f64::INFINITY, f64::NEG_INFINITY]) {
                    let exact = reference::activation(activation, x) as f32;
                    let same = (y - exact).abs() <= 2e-7 * exact.abs();
                    assert!(
                        y == exact || same || (y.is_nan() && exact.is_nan()),
                        "{activation:?}({x}) = {y}, not {exact}"
                    );
                }
            },
        );
    }
}

/// Signs of zeros, and products that overflow, as PyTorch 2.15 has them.
#[test]
fn zeros_have_the_signs_of_pytorch() {
    for (activation, x, expected) in [
        (Relu, -0.0, -0.0f32),
        (Relu6, -0.0, -0.0),
        (Hardshrink { lambda: 0.5 }, -0.0, 0.0),
        (Tanhshrink, -0.0, 0.0),
        (LogSigmoid, f32::INFINITY, 0.0),
        (LogSigmoid, 3e38, 0.0),
        (Gelu, -100.0, -0.0),
        (Gelu, -3e38, -0.0),
        (GeluTanh, -3e38, -0.0),
        (Silu, -3e38, -0.0),
        (Mish, -3e38, -0.0),
        (HardSwish, -3.0, -0.0),
        (HardSwish, -3e38, -0.0),
        (HardSwish, 3e38, f32::INFINITY),
        (Elu { alpha: 1.0 }, -0.0, -0.0),
        (LeakyRelu { slope: 0.0 }, -3e38, -0.0),
    ] {
        on_every_machine(
            |isa, _| {
                let mut y = vec![x; 21];
                activation.apply_in_place(isa, &mut y);
                y
            },
            |y| {
                let same = |y: &f32| y.to_bits() == expected.to_bits();
                assert!(y.iter().all(same), "{activation:?}({x}) = {}", y[0]);
            },
        );
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> =
        ALL.iter().map(|(a, ..)| (a.name(), std::mem::discriminant(a))).collect();
    names.dedup();
    let count = names.len();
    names.sort_by_key(|n| n.0);
    names.dedup_by_key(|n| n.0);
    assert_eq!(names.len(), count);
}

//! Activation functions of single elements in f64, as PyTorch's documentation writes them: for the
//! dtypes that have no vectors, and for the tests of those that have.

use super::{Activation, GELU_TANH, SELU_ALPHA, SELU_SCALE};
use libm::erfc;

/// The activation function of one element.
pub fn exact(activation: Activation, x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let elu = |alpha: f64, x: f64| if x > 0.0 { x } else { alpha * x.exp_m1() };
    let sigmoid =
        |x: f64| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) };
    let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    let hard_sigmoid = |x: f64| (x + 3.0).clamp(0.0, 6.0) / 6.0;
    match activation {
        Activation::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Activation::Relu6 => x.clamp(0.0, 6.0),
        Activation::Clamp { lo, hi } => x.max(lo).min(hi),
        Activation::LeakyRelu { slope } => x * if x > 0.0 { 1.0 } else { slope },
        Activation::Elu { alpha } => elu(alpha, x),
        Activation::Celu { alpha } if x <= 0.0 => alpha * (x / alpha).exp_m1(),
        Activation::Celu { .. } => x,
        Activation::Selu => SELU_SCALE * elu(SELU_ALPHA, x),
        Activation::Sigmoid => sigmoid(x),
        Activation::LogSigmoid => x.min(0.0) - (-x.abs()).exp().ln_1p(),
        Activation::Silu => x * sigmoid(x),
        Activation::HardSigmoid => hard_sigmoid(x),
        Activation::HardSwish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Activation::Tanh => x.tanh(),
        Activation::Gelu => x * erfc(-x / std::f64::consts::SQRT_2) / 2.0,
        Activation::GeluTanh => {
            let [scale, cube] = GELU_TANH;
            x * sigmoid(scale * (x + cube * x.powi(3)))
        }
        Activation::Mish => x * softplus(x).tanh(),
        Activation::Softplus { beta, threshold } => {
            if beta * x > threshold {
                x
            } else {
                softplus(beta * x) / beta
            }
        }
        Activation::Softsign => x / (1.0 + x.abs()),
        Activation::Tanhshrink => x - x.tanh(),
        Activation::Softshrink { lambda } => {
            if x > lambda {
                x - lambda
            } else if x < -lambda {
                x + lambda
            } else {
                0.0
            }
        }
        Activation::Hardshrink { lambda } if x.abs() <= lambda => 0.0,
        Activation::Hardshrink { .. } => x,
        Activation::Threshold { threshold, value } if x <= threshold => value,
        Activation::Threshold { .. } => x,
    }
}

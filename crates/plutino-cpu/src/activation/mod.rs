//! Activation functions, as they are fused into the kernels that produce their input.
//!
//! Formulas and edge cases are PyTorch's (<https://pytorch.org/docs/stable/nn.functional.html>):
//! NaN stays NaN, `silu(-inf)` is NaN, and so on.

mod exact;

pub use exact::exact;

use crate::math::{exp, expm1, log1p, neg, normal_cdf, sigmoid, silu, tanh};
use crate::simd::{Interleaved, Isa, Outlined, Simd, Vectorized};
use std::marker::PhantomData;

/// A function of one f32, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// max(x, 0)
    Relu,
    /// min(max(x, 0), 6)
    Relu6,
    /// min(max(x, lo), hi); `hi` wherever `lo > hi`. Neither bound is NaN.
    Clamp {
        /// Least result; -inf for none.
        lo: f64,
        /// Greatest result; inf for none.
        hi: f64,
    },
    /// x above zero, else slope x
    LeakyRelu {
        /// Slope below zero; any number.
        slope: f64,
    },
    /// x above zero, else alpha (e^x - 1)
    Elu {
        /// Minus the limit at -inf.
        alpha: f64,
    },
    /// x above zero, else alpha (e^(x / alpha) - 1)
    Celu {
        /// Minus the limit at -inf; not zero.
        alpha: f64,
    },
    /// Self-normalising ELU: 1.0507 (x above zero, else 1.6733 (e^x - 1))
    Selu,
    /// 1 / (1 + e^-x)
    Sigmoid,
    /// ln(sigmoid x)
    LogSigmoid,
    /// x sigmoid(x), also known as swish
    Silu,
    /// min(max(x + 3, 0), 6) / 6
    HardSigmoid,
    /// x min(max(x + 3, 0), 6) / 6
    HardSwish,
    /// tanh x
    Tanh,
    /// x Phi(x), with the normal distribution's Phi
    Gelu,
    /// The approximation of GELU with tanh: x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2
    GeluTanh,
    /// x tanh(ln(1 + e^x))
    Mish,
    /// ln(1 + e^(beta x)) / beta, but x where beta x is above the threshold
    Softplus {
        /// Steepness; not zero.
        beta: f64,
        /// Where the function is taken to be linear.
        threshold: f64,
    },
    /// x / (1 + |x|)
    Softsign,
    /// x - tanh x
    Tanhshrink,
    /// x moved towards zero by lambda, zero in between
    Softshrink {
        /// Half the width of the zero part.
        lambda: f64,
    },
    /// x, but zero where |x| is at most lambda
    Hardshrink {
        /// Half the width of the zero part.
        lambda: f64,
    },
    /// x above the threshold, else the value
    Threshold {
        /// Where x starts to pass.
        threshold: f64,
        /// What stands for the rest.
        value: f64,
    },
}

/// The two constants of SELU (Klambauer et al. 2017, arXiv 1706.02515).
pub const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
/// What SELU multiplies all of its results with.
pub const SELU_SCALE: f64 = 1.050_700_987_355_480_5;
/// 2 sqrt(2/pi), and the factor of x^2, of [`Activation::GeluTanh`].
pub const GELU_TANH: [f64; 2] = [1.595_769_121_605_730_7, 0.044_715];

impl Activation {
    /// The function, lane by lane, with parameters rounded to f32.
    #[cfg_attr(not(unoptimised), inline(always))]
    pub fn apply<S: Simd>(self, s: S, x: S::F32) -> S::F32 {
        let zero = s.zero();
        let one = s.splat(1.0);
        let six = s.splat(6.0);
        let number = |parameter: f64| s.splat(parameter as f32);
        // Operands of min and max stand so that NaN comes through: the second one wins over NaN.
        match self {
            Self::Relu => s.max(zero, x),
            Self::Relu6 => s.min(six, s.max(zero, x)),
            Self::Clamp { lo, hi } => s.min(number(hi), s.max(number(lo), x)),
            Self::LeakyRelu { slope } => s.select(s.lt(zero, x), x, s.mul(x, number(slope))),
            Self::Elu { alpha } => elu(s, x, alpha as f32, 1.0),
            Self::Celu { alpha } => elu(s, x, alpha as f32, 1.0 / alpha as f32),
            Self::Selu => s.mul(s.splat(SELU_SCALE as f32), elu(s, x, SELU_ALPHA as f32, 1.0)),
            Self::Sigmoid => sigmoid(s, x),
            Self::LogSigmoid => s.sub(s.min(zero, x), log1p(s, exp(s, neg(s, s.abs(x))))),
            Self::Silu => silu(s, x),
            Self::HardSigmoid => hard_sigmoid(s, x),
            Self::HardSwish => hard_swish(s, x),
            Self::Tanh => tanh(s, x),
            Self::Gelu => s.mul(x, normal_cdf(s, x)),
            Self::GeluTanh => {
                let [scale, cube] = GELU_TANH.map(|c| c as f32);
                let inner = s.fma(s.mul(x, x), s.splat(cube * scale), s.splat(scale));
                s.mul(x, sigmoid(s, s.mul(x, inner))) // (1 + tanh y) / 2 = sigmoid 2y
            }
            Self::Mish => {
                // tanh(ln(1 + e)) = e (e + 2) / (e (e + 2) + 2); 1 in f32 from x = 20 on
                let e = exp(s, s.min(s.splat(20.0), x));
                let n = s.mul(e, s.add(e, s.splat(2.0)));
                s.mul(x, s.div(n, s.add(n, s.splat(2.0))))
            }
            Self::Softplus { beta, threshold } => {
                let z = s.mul(x, number(beta));
                let y = s.mul(softplus(s, z), s.splat(1.0 / beta as f32));
                s.select(s.lt(number(threshold), z), x, y)
            }
            Self::Softsign => s.div(x, s.add(one, s.abs(x))),
            Self::Tanhshrink => s.sub(x, tanh(s, x)),
            Self::Softshrink { lambda } => {
                let l = number(lambda);
                let below = s.select(s.lt(x, neg(s, l)), s.add(x, l), s.mul(x, zero));
                s.select(s.lt(l, x), s.sub(x, l), below)
            }
            Self::Hardshrink { lambda } => s.select(s.le(s.abs(x), number(lambda)), zero, x),
            Self::Threshold { threshold, value } => {
                s.select(s.le(x, number(threshold)), number(value), x)
            }
        }
    }

    /// The function of several vectors, step by step for all of them.
    #[cfg_attr(not(unoptimised), inline(always))]
    pub fn apply_all<S: Simd, const N: usize>(self, s: S, vectors: [S::F32; N]) -> [S::F32; N] {
        self.apply(Interleaved::<S, N>(s), vectors)
    }

    /// The function of every element, in place and on the calling thread: for kernels that finish a
    /// part of their result in cache.
    pub fn apply_in_place(self, isa: Isa, data: &mut [f32]) {
        isa.run(Outlined(InPlace::new(self, data)));
    }

    /// Whether the function costs a few instructions only, so that it may be inlined into the store
    /// of any kernel; the others are better applied to a finished part of the result.
    pub const fn is_cheap(self) -> bool {
        matches!(
            self,
            Self::Relu
                | Self::Relu6
                | Self::Clamp { .. }
                | Self::LeakyRelu { .. }
                | Self::HardSigmoid
                | Self::HardSwish
                | Self::Softsign
                | Self::Softshrink { .. }
                | Self::Hardshrink { .. }
                | Self::Threshold { .. }
        )
    }

    /// PyTorch's name of the function.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::Relu6 => "relu6",
            Self::Clamp { .. } => "clamp",
            Self::LeakyRelu { .. } => "leaky_relu",
            Self::Elu { .. } => "elu",
            Self::Celu { .. } => "celu",
            Self::Selu => "selu",
            Self::Sigmoid => "sigmoid",
            Self::LogSigmoid => "logsigmoid",
            Self::Silu => "silu",
            Self::HardSigmoid => "hardsigmoid",
            Self::HardSwish => "hardswish",
            Self::Tanh => "tanh",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_tanh",
            Self::Mish => "mish",
            Self::Softplus { .. } => "softplus",
            Self::Softsign => "softsign",
            Self::Tanhshrink => "tanhshrink",
            Self::Softshrink { .. } => "softshrink",
            Self::Hardshrink { .. } => "hardshrink",
            Self::Threshold { .. } => "threshold",
        }
    }
}

/// x above zero, else alpha (e^(scale x) - 1).
#[cfg_attr(not(unoptimised), inline(always))]
fn elu<S: Simd>(s: S, x: S::F32, alpha: f32, scale: f32) -> S::F32 {
    let negative = s.mul(s.splat(alpha), expm1(s, s.mul(x, s.splat(scale))));
    s.select(s.le(x, s.zero()), negative, x)
}

/// ln(1 + e^x), without overflow.
#[cfg_attr(not(unoptimised), inline(always))]
fn softplus<S: Simd>(s: S, x: S::F32) -> S::F32 {
    s.add(s.max(s.zero(), x), log1p(s, exp(s, neg(s, s.abs(x)))))
}

#[cfg_attr(not(unoptimised), inline(always))]
fn hard_sigmoid<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let line = s.fma(x, s.splat(1.0 / 6.0), s.splat(0.5));
    s.min(s.splat(1.0), s.max(s.zero(), line))
}

/// [`Activation::HardSwish`]. The product comes before the quotient, and overflows where PyTorch's
/// does.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn hard_swish<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let line = s.min(s.splat(6.0), s.max(s.zero(), s.add(x, s.splat(3.0))));
    s.mul(s.mul(x, line), s.splat(1.0 / 6.0))
}

/// The function of every element of some rows, in place. Kernels call it as a function of its own
/// ([`Simd::outlined`]): all activations in the loop of each of them would take minutes to compile.
pub struct InPlace<'a> {
    activation: Activation,
    data: *mut f32,
    rows: usize,
    cols: usize,
    stride: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

impl<'a> InPlace<'a> {
    /// All elements of `data`.
    pub fn new(activation: Activation, data: &'a mut [f32]) -> Self {
        let cols = data.len();
        // SAFETY: one row, which is the slice.
        unsafe { Self::of_rows(activation, data.as_mut_ptr(), (1, cols), cols) }
    }

    /// # Safety
    /// For as long as this lives, `data` is valid for reads and writes of `size.1` elements in each
    /// of `size.0` rows, which are `stride` elements apart.
    pub unsafe fn of_rows(
        activation: Activation,
        data: *mut f32,
        size: (usize, usize),
        stride: usize,
    ) -> Self {
        let (rows, cols) = size;
        Self { activation, data, rows, cols, stride, borrow: PhantomData }
    }
}

impl Vectorized for InPlace<'_> {
    type Output = ();
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // an iterator over vectors might not be inlined
    fn run<S: Simd>(self, s: S) {
        const N: usize = 4;
        if self.rows == 0 || self.cols == 0 {
            return;
        }
        let (mut row, mut at, mut left) = (self.data, self.data, self.cols);
        let mut rows = self.rows;
        let mut more = true;
        while more {
            // The next vectors; the last one stands for those that are missing.
            let mut places = [(at, S::LANES); N];
            if left > N * S::LANES {
                for k in 0..N {
                    places[k].0 = at.wrapping_add(k * S::LANES);
                }
                at = at.wrapping_add(N * S::LANES);
                left -= N * S::LANES;
            } else {
                for k in 0..N {
                    places[k] = (at, left.min(S::LANES));
                    if left > S::LANES {
                        at = at.wrapping_add(S::LANES);
                        left -= S::LANES;
                    } else if rows > 1 {
                        row = row.wrapping_add(self.stride);
                        (rows, at, left) = (rows - 1, row, self.cols);
                    } else {
                        more = false;
                    }
                }
            }
            let mut v = [s.zero(); N];
            for k in 0..N {
                let (p, n) = places[k];
                // SAFETY: these elements of this row exist (precondition).
                v[k] =
                    unsafe { if n == S::LANES { s.load_ptr(p) } else { s.load_partial_ptr(p, n) } };
            }
            v = self.activation.apply_all(s, v);
            for k in 0..N {
                let (p, n) = places[k];
                // SAFETY: as above. Masked stores are slow on some CPUs.
                unsafe {
                    if n == S::LANES {
                        s.store_ptr(v[k], p)
                    } else {
                        s.store_partial_ptr(v[k], p, n)
                    }
                }
            }
        }
    }
}

//! The functions of one and of two elements.

use super::lanes::Lane;
use crate::activation::Activation;
use num_complex::Complex;
use plutino_tensor::DType;

/// What is computed: how values are held between two steps of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Domain {
    /// f32, for f32, f16, bf16 and bool (0 or 1). Vectorised.
    F32,
    /// f64, for f64.
    F64,
    /// i32, for it and the shorter integers.
    I32,
    /// i64, for i64.
    I64,
    /// Two f64, for all complex numbers.
    C128,
}

impl Domain {
    /// All of them.
    pub(super) const ALL: &[Self] = &[Self::F32, Self::F64, Self::I32, Self::I64, Self::C128];

    /// Where values of this dtype are computed.
    pub(super) const fn of(dtype: DType) -> Self {
        match dtype {
            DType::F32 | DType::F16 | DType::Bf16 | DType::Bool => Self::F32,
            DType::F64 => Self::F64,
            DType::I32 | DType::I16 | DType::I8 | DType::U8 => Self::I32,
            DType::I64 => Self::I64,
            DType::C64 | DType::C128 | DType::C32 => Self::C128,
        }
    }

    /// Whether it is one of integers.
    pub(super) const fn is_integer(self) -> bool {
        matches!(self, Self::I32 | Self::I64)
    }

    /// The dtype that is held without conversion.
    pub(super) const fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F64 => DType::F64,
            Self::I32 => DType::I32,
            Self::I64 => DType::I64,
            Self::C128 => DType::C128,
        }
    }
}

/// Sets of domains in which a function is defined.
const REAL: &[Domain] = &[Domain::F32, Domain::F64, Domain::I32, Domain::I64];
const FLOAT: &[Domain] = &[Domain::F32, Domain::F64];
const INEXACT: &[Domain] = &[Domain::F32, Domain::F64, Domain::C128];
const INTEGER: &[Domain] = &[Domain::I32, Domain::I64];
const COMPLEX: &[Domain] = &[Domain::C128];
const ALL: &[Domain] = Domain::ALL;

macro_rules! functions {
    (
        $(#[$doc:meta])* $name:ident;
        $($variant:ident, $text:literal, $domains:ident, $cost:literal, $meaning:literal;)*
        $(+ $special:ident($inner:ty), $special_text:expr, $special_domains:ident, $special_cost:expr, $special_meaning:literal;)?
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub enum $name {
            $(#[doc = $meaning] $variant,)*
            $(#[doc = $special_meaning] $special($inner),)?
        }

        impl $name {
            /// PyTorch's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                    $(Self::$special(x) => $special_text(x),)?
                }
            }

            /// Where the function is defined.
            pub(super) const fn domains(self) -> &'static [Domain] {
                match self {
                    $(Self::$variant => $domains,)*
                    $(Self::$special(_) => $special_domains,)?
                }
            }

            /// Rough cost of one element: 1 for an addition.
            pub const fn cost(self) -> usize {
                match self {
                    $(Self::$variant => $cost,)*
                    $(Self::$special(x) => $special_cost(x),)?
                }
            }

            /// Whether the function is defined for arguments of this dtype. (For bool fewer are
            /// than this says: those that yield a bool.)
            pub fn is_defined(self, dtype: DType) -> bool {
                self.domains().contains(&Domain::of(dtype))
            }

            /// Whether integers have to become floats first.
            pub fn is_inexact(self) -> bool {
                !self.is_defined(DType::I64)
            }

            /// Every function without parameters.
            pub const ALL: &[Self] = &[$(Self::$variant),*];
        }
    };
}

const fn activation_cost(a: Activation) -> usize {
    if a.is_cheap() { 2 } else { 10 }
}

functions! {
    /// A function of one element.
    Unary;
    Positive, "positive", ALL, 1, "x";
    Neg, "neg", ALL, 1, "-x";
    Abs, "abs", ALL, 1, "|x|; of a complex number a real one";
    Sign, "sign", REAL, 2, "-1, 0 or 1; 0 for NaN";
    Floor, "floor", REAL, 1, "The greatest integer not above x";
    Ceil, "ceil", REAL, 1, "The least integer not below x";
    Round, "round", REAL, 1, "The nearest integer, ties to even";
    Trunc, "trunc", REAL, 1, "The integer part";
    Square, "square", ALL, 1, "x x";
    Sqrt, "sqrt", INEXACT, 2, "The square root";
    Rsqrt, "rsqrt", INEXACT, 4, "1 / sqrt(x)";
    Reciprocal, "reciprocal", INEXACT, 2, "1 / x";
    Exp, "exp", INEXACT, 6, "e^x";
    Expm1, "expm1", INEXACT, 7, "e^x - 1";
    Log, "log", INEXACT, 8, "The natural logarithm";
    Log2, "log2", INEXACT, 10, "The logarithm to base 2";
    Log10, "log10", INEXACT, 10, "The logarithm to base 10";
    Log1p, "log1p", INEXACT, 10, "ln(1 + x)";
    Sin, "sin", INEXACT, 10, "The sine";
    Cos, "cos", INEXACT, 10, "The cosine";
    Tan, "tan", INEXACT, 14, "The tangent";
    Asin, "asin", INEXACT, 12, "The inverse sine";
    Acos, "acos", INEXACT, 12, "The inverse cosine";
    Atan, "atan", INEXACT, 12, "The inverse tangent";
    Sinh, "sinh", INEXACT, 14, "The hyperbolic sine";
    Cosh, "cosh", INEXACT, 12, "The hyperbolic cosine";
    Asinh, "asinh", INEXACT, 20, "The inverse hyperbolic sine";
    Acosh, "acosh", INEXACT, 20, "The inverse hyperbolic cosine";
    Atanh, "atanh", INEXACT, 18, "The inverse hyperbolic tangent";
    Erf, "erf", FLOAT, 10, "The error function";
    Erfc, "erfc", FLOAT, 20, "1 - erf x";
    Lgamma, "lgamma", FLOAT, 80, "The logarithm of |gamma(x)|";
    Exp2, "exp2", INEXACT, 8, "2^x";
    Erfinv, "erfinv", FLOAT, 30, "The inverse of the error function";
    Erfcx, "erfcx", FLOAT, 100, "e^(x^2) (1 - erf x)";
    Digamma, "digamma", FLOAT, 80, "The derivative of lgamma";
    Ndtr, "ndtr", FLOAT, 60, "The normal distribution function";
    LogNdtr, "log_ndtr", FLOAT, 100, "The logarithm of ndtr";
    Ndtri, "ndtri", FLOAT, 400, "The inverse of ndtr";
    I0, "i0", FLOAT, 100, "The modified Bessel function of the first kind, of order 0";
    I0e, "i0e", FLOAT, 100, "e^-|x| i0(x)";
    I1, "i1", FLOAT, 100, "The modified Bessel function of the first kind, of order 1";
    I1e, "i1e", FLOAT, 100, "e^-|x| i1(x)";
    J0, "bessel_j0", FLOAT, 80, "The Bessel function of the first kind, of order 0";
    J1, "bessel_j1", FLOAT, 80, "The Bessel function of the first kind, of order 1";
    Y0, "bessel_y0", FLOAT, 80, "The Bessel function of the second kind, of order 0";
    Y1, "bessel_y1", FLOAT, 80, "The Bessel function of the second kind, of order 1";
    LogicalNot, "logical_not", ALL, 1, "Whether x is zero; a bool";
    NotZero, "bool", ALL, 1, "Whether x is not zero; a bool";
    BitwiseNot, "bitwise_not", INTEGER, 1, "All bits flipped; of a bool its opposite";
    Real, "real", ALL, 1, "The real part; a real number";
    Imag, "imag", COMPLEX, 1, "The imaginary part; a real number";
    + Activation(Activation), Activation::name, FLOAT, activation_cost, "An activation function";
}

functions! {
    /// A function of two elements.
    Binary;
    Add, "add", ALL, 1, "a + b";
    Sub, "sub", ALL, 1, "a - b";
    Mul, "mul", ALL, 1, "a b";
    Div, "div", INEXACT, 2, "a / b";
    FloorDivide, "floor_divide", REAL, 6, "floor(a / b), as Python divides";
    Remainder, "remainder", REAL, 8, "a - b floor(a / b): Python's %, with the sign of b";
    Fmod, "fmod", REAL, 6, "a - b trunc(a / b): C's fmod, with the sign of a";
    Pow, "pow", ALL, 20, "a^b";
    Maximum, "maximum", REAL, 1, "The greater; NaN where either is";
    Minimum, "minimum", REAL, 1, "The lesser; NaN where either is";
    Atan2, "atan2", FLOAT, 16, "The angle of the point (b, a)";
    LogAddExp, "logaddexp", FLOAT, 18, "ln(e^a + e^b)";
    LogAddExp2, "logaddexp2", FLOAT, 20, "log2(2^a + 2^b)";
    Hypot, "hypot", FLOAT, 4, "sqrt(a^2 + b^2)";
    CopySign, "copysign", FLOAT, 2, "|a| with the sign of b";
    NextAfter, "nextafter", FLOAT, 4, "The number of the dtype after a, on the way to b";
    GammaP, "gammainc", FLOAT, 300, "The lower incomplete gamma function of b over the whole, for a";
    GammaQ, "gammaincc", FLOAT, 300, "The upper incomplete gamma function of b over the whole, for a";
    Zeta, "zeta", FLOAT, 400, "The sum of (b + n)^-a over all n of at least 0";
    Gcd, "gcd", INTEGER, 60, "The greatest common divisor";
    Lcm, "lcm", INTEGER, 80, "The least common multiple";
    BitwiseAnd, "bitwise_and", INTEGER, 1, "a & b; of bools the logical one";
    BitwiseOr, "bitwise_or", INTEGER, 1, "a | b; of bools the logical one";
    BitwiseXor, "bitwise_xor", INTEGER, 1, "a ^ b; of bools the logical one";
    ShiftLeft, "bitwise_left_shift", INTEGER, 1, "a << b; 0 where b is no bit number of the dtype";
    ShiftRight, "bitwise_right_shift", INTEGER, 1, "a >> b with sign; 0 or -1 where b is no bit number";
    Eq, "eq", ALL, 1, "a == b; a bool";
    Ne, "ne", ALL, 1, "a != b; a bool";
    Lt, "lt", REAL, 1, "a < b; a bool";
    Le, "le", REAL, 1, "a <= b; a bool";
    Gt, "gt", REAL, 1, "a > b; a bool";
    Ge, "ge", REAL, 1, "a >= b; a bool";
    LogicalAnd, "logical_and", ALL, 1, "Whether neither is zero; a bool";
    LogicalOr, "logical_or", ALL, 1, "Whether not both are zero; a bool";
    LogicalXor, "logical_xor", ALL, 1, "Whether exactly one is zero; a bool";
    Prelu, "prelu", FLOAT, 1, "a above zero, else a b";
    Complex, "complex", FLOAT, 1, "a + b i; a complex number";
    Polar, "polar", FLOAT, 60, "a e^(b i); a complex number";
}

impl Unary {
    /// The function of one number, where it [is defined](Unary::is_defined) for f64.
    pub fn of_f64(self, x: f64) -> f64 {
        f64::unary(self, x)
    }

    /// The function of one complex number, where it is defined for them.
    pub fn of_complex(self, x: Complex<f64>) -> Complex<f64> {
        Lane::unary(self, x)
    }

    /// The dtype of the result, for an argument of this dtype.
    pub(super) const fn result(self, dtype: DType) -> DType {
        match self {
            Self::LogicalNot | Self::NotZero => DType::Bool,
            Self::Abs | Self::Real | Self::Imag => real_of(dtype),
            _ => dtype,
        }
    }
}

impl Binary {
    /// The function of two numbers, where it [is defined](Binary::is_defined) for f64.
    pub fn of_f64(self, a: f64, b: f64) -> f64 {
        f64::binary(self, a, b)
    }

    /// The function of two complex numbers, where it is defined for them.
    pub fn of_complex(self, a: Complex<f64>, b: Complex<f64>) -> Complex<f64> {
        Lane::binary(self, a, b)
    }

    /// The dtype of the result, for arguments of this dtype.
    pub(super) const fn result(self, dtype: DType) -> DType {
        match self {
            Self::Eq | Self::Ne | Self::Lt | Self::Le | Self::Gt | Self::Ge => DType::Bool,
            Self::LogicalAnd | Self::LogicalOr | Self::LogicalXor => DType::Bool,
            Self::Complex | Self::Polar => complex_of(dtype),
            _ => dtype,
        }
    }

    /// Whether f32 are computed by way of f64, many at once.
    pub(super) const fn is_by_pairs(self) -> bool {
        matches!(self, Self::FloorDivide | Self::Remainder | Self::Fmod | Self::Pow | Self::Hypot)
    }

    /// Whether a zero divisor among integers is an error, as in PyTorch.
    pub const fn divides(self) -> bool {
        matches!(self, Self::FloorDivide | Self::Remainder | Self::Fmod)
    }
}

/// The dtype of the parts of a complex number; any other as it is.
pub const fn real_of(dtype: DType) -> DType {
    match dtype {
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        DType::C32 => DType::F16,
        real => real,
    }
}

/// The complex dtype with parts of this dtype.
pub const fn complex_of(dtype: DType) -> DType {
    match dtype {
        DType::F64 | DType::C128 => DType::C128,
        DType::F16 | DType::C32 => DType::C32,
        _ => DType::C64,
    }
}

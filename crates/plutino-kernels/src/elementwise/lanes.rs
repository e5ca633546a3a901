//! The functions of single elements. (Most functions of f32 have vectors: see `vectors`.)
//!
//! Functions outside their domain are refused when a program is built; the last arm of each match
//! is never reached.

use super::op::{Binary, Unary};
use crate::activation::exact as activation;
use crate::math::{pairs, special};
use num_complex::Complex;

/// Elements that a loop takes at once, at most.
pub(super) const CHUNK: usize = 128;

/// The loop over a chunk, one of its own for each of the functions that are named: there is no
/// choice left inside.
macro_rules! each_of {
    ($Op:ident, $op:expr, |$one:ident| $loop:expr, [$($usual:ident)*]) => {
        match $op {
            $($Op::$usual => {
                let $one = $Op::$usual;
                $loop
            })*
            $one => $loop,
        }
    };
}

/// A type that programs compute in.
pub(super) trait Lane: Copy + 'static {
    fn unary(op: Unary, x: Self) -> Self;
    fn binary(op: Binary, a: Self, b: Self) -> Self;
    fn is_zero(self) -> bool;
    fn truth(truth: bool) -> Self;

    /// The function of every element of a chunk.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn unary_all(op: Unary, x: &[Self], y: &mut [Self]) {
        each_of!(
            Unary,
            op,
            |op| for (y, &x) in y.iter_mut().zip(x) {
                *y = Self::unary(op, x);
            },
            [Positive Neg Abs Sign Floor Ceil Round Trunc Square Sqrt Rsqrt Reciprocal LogicalNot
                NotZero BitwiseNot Real Imag]
        );
    }

    /// The same, of pairs.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn binary_all(op: Binary, a: &[Self], b: &[Self], y: &mut [Self]) {
        each_of!(
            Binary,
            op,
            |op| for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
                *y = Self::binary(op, a, b);
            },
            [Add Sub Mul Div Maximum Minimum CopySign Eq Ne Lt Le Gt Ge LogicalAnd LogicalOr
                LogicalXor BitwiseAnd BitwiseOr BitwiseXor ShiftLeft ShiftRight Prelu Complex]
        );
    }
}

/// Through f64, and rounded once: what vectors leave over.
impl Lane for f32 {
    #[inline(always)]
    fn is_zero(self) -> bool {
        self == 0.0
    }

    #[inline(always)]
    fn truth(truth: bool) -> Self {
        f32::from(u8::from(truth))
    }

    fn unary(op: Unary, x: f32) -> f32 {
        f64::unary(op, x.into()) as f32
    }

    fn binary(op: Binary, a: f32, b: f32) -> f32 {
        match op {
            Binary::NextAfter => special::next_after_f32(a, b),
            _ => f64::binary(op, a.into(), b.into()) as f32,
        }
    }

    #[cfg_attr(not(unoptimised), inline(always))]
    fn binary_all(op: Binary, a: &[f32], b: &[f32], y: &mut [f32]) {
        /// The function of those pairs that are not computed with the others.
        macro_rules! exact {
            ($name:ident) => {
                |a, b| f64::binary(Binary::$name, a, b)
            };
        }
        let parts = a.chunks(pairs::PAIRS).zip(b.chunks(pairs::PAIRS));
        for ((a, b), y) in parts.zip(y.chunks_mut(pairs::PAIRS)) {
            let (mut own, n) = ([[1.0; pairs::PAIRS]; 2], y.len());
            own[0][..n].copy_from_slice(&a[..n]);
            own[1][..n].copy_from_slice(&b[..n]);
            let [a, b] = &own;
            let all = match op {
                Binary::FloorDivide => pairs::floor_divide(a, b, exact!(FloorDivide)),
                Binary::Remainder => pairs::remainder(a, b, exact!(Remainder)),
                Binary::Fmod => pairs::fmod(a, b, exact!(Fmod)),
                Binary::Pow => pairs::pow(a, b, exact!(Pow)),
                Binary::Hypot => pairs::hypot(a, b, exact!(Hypot)),
                _ => std::array::from_fn(|i| Self::binary(op, a[i], b[i])),
            };
            y.copy_from_slice(&all[..n]);
        }
    }
}

impl Lane for f64 {
    #[inline(always)]
    fn is_zero(self) -> bool {
        self == 0.0
    }

    #[inline(always)]
    fn truth(truth: bool) -> Self {
        f64::from(u8::from(truth))
    }

    #[cfg_attr(not(unoptimised), inline(always))]
    fn unary(op: Unary, x: f64) -> f64 {
        match op {
            Unary::Positive | Unary::Real => x,
            Unary::Neg => -x,
            Unary::Abs => x.abs(),
            Unary::Sign => Self::truth(x > 0.0) - Self::truth(x < 0.0),
            Unary::Floor => x.floor(),
            Unary::Ceil => x.ceil(),
            Unary::Round => x.round_ties_even(),
            Unary::Trunc => x.trunc(),
            Unary::Square => x * x,
            Unary::Sqrt => x.sqrt(),
            Unary::Rsqrt => 1.0 / x.sqrt(),
            Unary::Reciprocal => 1.0 / x,
            Unary::Exp => x.exp(),
            Unary::Expm1 => x.exp_m1(),
            Unary::Log => x.ln(),
            Unary::Log2 => x.log2(),
            Unary::Log10 => x.log10(),
            Unary::Log1p => x.ln_1p(),
            Unary::Sin => x.sin(),
            Unary::Cos => x.cos(),
            Unary::Tan => x.tan(),
            Unary::Asin => x.asin(),
            Unary::Acos => x.acos(),
            Unary::Atan => x.atan(),
            Unary::Sinh => x.sinh(),
            Unary::Cosh => x.cosh(),
            // std's formulas lose the digits of small and large arguments; libm's do not.
            Unary::Asinh => libm::asinh(x),
            Unary::Acosh if x < 1.0 => f64::NAN, // which libm only says near 1
            Unary::Acosh => libm::acosh(x),
            Unary::Atanh => libm::atanh(x),
            Unary::Erf => libm::erf(x),
            Unary::Erfc => libm::erfc(x),
            Unary::Lgamma => libm::lgamma(x),
            Unary::Exp2 => x.exp2(),
            Unary::Erfinv => special::erfinv(x),
            Unary::Erfcx => special::erfcx(x),
            Unary::Digamma => special::digamma(x),
            Unary::Ndtr => special::ndtr(x),
            Unary::LogNdtr => special::log_ndtr(x),
            Unary::Ndtri => special::ndtri(x),
            Unary::I0 => special::i0(x),
            Unary::I0e => special::i0e(x),
            Unary::I1 => special::i1(x),
            Unary::I1e => special::i1e(x),
            Unary::J0 => libm::j0(x),
            Unary::J1 => libm::j1(x),
            Unary::Y0 => libm::y0(x),
            Unary::Y1 => libm::y1(x),
            Unary::LogicalNot => Self::truth(x == 0.0),
            Unary::NotZero => Self::truth(x != 0.0),
            Unary::Activation(a) => activation(a, x),
            Unary::BitwiseNot | Unary::Imag => f64::NAN,
        }
    }

    #[cfg_attr(not(unoptimised), inline(always))]
    fn binary(op: Binary, a: f64, b: f64) -> f64 {
        match op {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Mul => a * b,
            Binary::Div => a / b,
            Binary::FloorDivide => floor_divide(a, b),
            Binary::Remainder => {
                let r = a % b;
                if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
            }
            Binary::Fmod => a % b,
            Binary::Pow => a.powf(b),
            Binary::Maximum if a.is_nan() || a > b => a,
            Binary::Minimum if a.is_nan() || a < b => a,
            Binary::Maximum | Binary::Minimum => b,
            Binary::Atan2 => a.atan2(b),
            Binary::LogAddExp if a == b => a + std::f64::consts::LN_2, // also where both are infinite
            Binary::LogAddExp => a.max(b) + (-(a - b).abs()).exp().ln_1p(),
            Binary::LogAddExp2 if a == b => a + 1.0,
            Binary::LogAddExp2 => {
                a.max(b) + (-(a - b).abs()).exp2().ln_1p() * std::f64::consts::LOG2_E
            }
            Binary::Hypot => libm::hypot(a, b),
            Binary::CopySign => a.copysign(b),
            Binary::NextAfter => special::next_after(a, b),
            Binary::GammaP => special::gamma_p(a, b),
            Binary::GammaQ => special::gamma_q(a, b),
            Binary::Zeta => special::zeta(a, b),
            Binary::Eq => Self::truth(a == b),
            Binary::Ne => Self::truth(a != b),
            Binary::Lt => Self::truth(a < b),
            Binary::Le => Self::truth(a <= b),
            Binary::Gt => Self::truth(a > b),
            Binary::Ge => Self::truth(a >= b),
            Binary::LogicalAnd => Self::truth(a != 0.0 && b != 0.0),
            Binary::LogicalOr => Self::truth(a != 0.0 || b != 0.0),
            Binary::LogicalXor => Self::truth((a != 0.0) != (b != 0.0)),
            Binary::Prelu => a * if a > 0.0 { 1.0 } else { b },
            Binary::BitwiseAnd
            | Binary::BitwiseOr
            | Binary::BitwiseXor
            | Binary::ShiftLeft
            | Binary::ShiftRight
            | Binary::Gcd
            | Binary::Lcm
            | Binary::Complex
            | Binary::Polar => f64::NAN,
        }
    }
}

/// floor(a / b) from the exact remainder, as Python (and PyTorch) take it: the rounded quotient may
/// lie on the wrong side of an integer.
fn floor_divide(a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return a / b;
    }
    let r = a % b;
    let mut quotient = (a - r) / b;
    if r != 0.0 && (b < 0.0) != (r < 0.0) {
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return 0f64.copysign(a / b);
    }
    let floor = quotient.floor();
    if quotient - floor > 0.5 { floor + 1.0 } else { floor }
}

/// Integers wrap.
macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Lane for $t {
            #[inline(always)]
            fn is_zero(self) -> bool {
                self == 0
            }

            #[inline(always)]
            fn truth(truth: bool) -> Self {
                <$t>::from(truth)
            }

            #[cfg_attr(not(unoptimised), inline(always))]
            fn unary(op: Unary, x: $t) -> $t {
                match op {
                    Unary::Neg => x.wrapping_neg(),
                    Unary::Abs => x.wrapping_abs(),
                    Unary::Sign => x.signum(),
                    Unary::Square => x.wrapping_mul(x),
                    Unary::LogicalNot => Self::truth(x == 0),
                    Unary::NotZero => Self::truth(x != 0),
                    Unary::BitwiseNot => !x,
                    _ => x, // the roundings, and what no integer has
                }
            }

            #[cfg_attr(not(unoptimised), inline(always))]
            fn binary(op: Binary, a: $t, b: $t) -> $t {
                // A zero divisor has been reported by now; the value does not matter.
                match op {
                    Binary::Add => a.wrapping_add(b),
                    Binary::Sub => a.wrapping_sub(b),
                    Binary::Mul => a.wrapping_mul(b),
                    Binary::FloorDivide if b == 0 => 0,
                    Binary::FloorDivide => {
                        let inexact = a.wrapping_rem(b) != 0 && (a < 0) != (b < 0);
                        a.wrapping_div(b).wrapping_sub(<$t>::from(inexact))
                    }
                    Binary::Remainder | Binary::Fmod if b == 0 => 0,
                    Binary::Remainder => {
                        let r = a.wrapping_rem(b);
                        if r != 0 && (r < 0) != (b < 0) { r.wrapping_add(b) } else { r }
                    }
                    Binary::Fmod => a.wrapping_rem(b),
                    Binary::Pow => power(a.into(), b.into()) as $t,
                    Binary::Maximum => a.max(b),
                    Binary::Minimum => a.min(b),
                    Binary::BitwiseAnd => a & b,
                    Binary::BitwiseOr => a | b,
                    Binary::BitwiseXor => a ^ b,
                    Binary::Gcd => special::gcd(a.into(), b.into()) as $t,
                    Binary::Lcm => special::lcm(a.into(), b.into()) as $t,
                    Binary::ShiftLeft => u32::try_from(b).ok().and_then(|b| a.checked_shl(b)).unwrap_or(0),
                    Binary::ShiftRight => {
                        let last = <$t>::BITS - 1;
                        a >> u32::try_from(b).map_or(last, |b| b.min(last))
                    },
                    Binary::Eq => Self::truth(a == b),
                    Binary::Ne => Self::truth(a != b),
                    Binary::Lt => Self::truth(a < b),
                    Binary::Le => Self::truth(a <= b),
                    Binary::Gt => Self::truth(a > b),
                    Binary::Ge => Self::truth(a >= b),
                    Binary::LogicalAnd => Self::truth(a != 0 && b != 0),
                    Binary::LogicalOr => Self::truth(a != 0 || b != 0),
                    Binary::LogicalXor => Self::truth((a != 0) != (b != 0)),
                    Binary::Div
                    | Binary::Atan2
                    | Binary::LogAddExp
                    | Binary::LogAddExp2
                    | Binary::Hypot
                    | Binary::CopySign
                    | Binary::NextAfter
                    | Binary::GammaP
                    | Binary::GammaQ
                    | Binary::Zeta
                    | Binary::Prelu
                    | Binary::Complex
                    | Binary::Polar => 0,
                }
            }
        }
    )*};
}
integers! { i32 i64 }

/// a^b, wrapping; for negative b the integer part: 0, but for 1 and -1.
fn power(a: i64, b: i64) -> i64 {
    match (a, u64::try_from(b)) {
        (1, _) => 1,
        (-1, _) => 1 - 2 * (b & 1),
        (_, Err(_)) => 0,
        (_, Ok(mut exponent)) => {
            let (mut base, mut result) = (a, 1i64);
            while exponent > 0 {
                if exponent & 1 == 1 {
                    result = result.wrapping_mul(base);
                }
                base = base.wrapping_mul(base);
                exponent >>= 1;
            }
            result
        }
    }
}

impl Lane for Complex<f64> {
    #[inline(always)]
    fn is_zero(self) -> bool {
        self.re == 0.0 && self.im == 0.0
    }

    #[inline(always)]
    fn truth(truth: bool) -> Self {
        f64::truth(truth).into()
    }

    #[cfg_attr(not(unoptimised), inline(always))]
    fn unary(op: Unary, x: Self) -> Self {
        let one = Self::truth(true);
        match op {
            Unary::Positive => x,
            Unary::Neg => -x,
            Unary::Abs => {
                // The plain sum of squares where it neither overflows nor loses digits.
                let square = x.re * x.re + x.im * x.im;
                let plain = (1e-280..1e300).contains(&square);
                if plain { square.sqrt() } else { x.norm() }.into()
            }
            Unary::Real => x.re.into(),
            Unary::Imag => x.im.into(),
            Unary::Square => x * x,
            Unary::Sqrt => x.sqrt(),
            Unary::Rsqrt => one / x.sqrt(),
            Unary::Reciprocal => one / x,
            Unary::Exp => x.exp(),
            Unary::Exp2 => (x * std::f64::consts::LN_2).exp(),
            Unary::Expm1 => x.exp() - one,
            Unary::Log => x.ln(),
            Unary::Log2 => x.ln() / std::f64::consts::LN_2,
            Unary::Log10 => x.ln() / std::f64::consts::LN_10,
            Unary::Log1p => (one + x).ln(),
            Unary::Sin => x.sin(),
            Unary::Cos => x.cos(),
            Unary::Tan => x.tan(),
            Unary::Asin => x.asin(),
            Unary::Acos => x.acos(),
            Unary::Atan => x.atan(),
            Unary::Sinh => x.sinh(),
            Unary::Cosh => x.cosh(),
            Unary::Asinh => x.asinh(),
            Unary::Acosh => x.acosh(),
            Unary::Atanh => x.atanh(),
            Unary::LogicalNot => Self::truth(x.is_zero()),
            Unary::NotZero => Self::truth(!x.is_zero()),
            _ => x,
        }
    }

    #[cfg_attr(not(unoptimised), inline(always))]
    fn binary(op: Binary, a: Self, b: Self) -> Self {
        match op {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Mul => a * b,
            Binary::Div => a / b,
            Binary::Pow if b.is_zero() => Self::truth(true),
            Binary::Pow if a.is_zero() => Self::truth(false),
            Binary::Pow => a.powc(b),
            Binary::Eq => Self::truth(a == b),
            Binary::Ne => Self::truth(a != b),
            Binary::LogicalAnd => Self::truth(!a.is_zero() && !b.is_zero()),
            Binary::LogicalOr => Self::truth(!a.is_zero() || !b.is_zero()),
            Binary::LogicalXor => Self::truth(a.is_zero() != b.is_zero()),
            Binary::Complex => Self::new(a.re, b.re),
            Binary::Polar => Self::from_polar(a.re, b.re),
            _ => a,
        }
    }
}

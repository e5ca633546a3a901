//! Arithmetic of Python numbers, done while planning: `floor_divide(size(@0,2),6)`.

use crate::support::promotion::Category;
use crate::{FromParameter, ShapeError, ValueSpec};
use num_complex::Complex;
use plutino_ir::Parameter;
use plutino_kernels::elementwise::{Binary, Scalar, Unary};
use plutino_tensor::{DType, Tensor, TensorError, bf16, f16};

/// The dtype in which a known number is held.
pub(crate) fn dtype(x: Scalar) -> DType {
    match x {
        Scalar::Bool(_) => DType::Bool,
        Scalar::Int(_) => DType::I64,
        Scalar::Float(_) => DType::F64,
        Scalar::Complex(_) => DType::C128,
    }
}

/// The number in a tensor of one element of such a dtype.
pub(crate) fn of_tensor(t: &Tensor) -> Option<Scalar> {
    fn only<T: Copy>(elements: &[T]) -> Option<T> {
        if let [x] = elements { Some(*x) } else { None }
    }
    match t.dtype() {
        DType::Bool => only(t.as_slice::<bool>().ok()?).map(Scalar::Bool),
        DType::I64 => only(t.as_slice::<i64>().ok()?).map(Scalar::Int),
        DType::F64 => only(t.as_slice::<f64>().ok()?).map(Scalar::Float),
        DType::C128 => only(t.as_slice::<Complex<f64>>().ok()?).map(Scalar::Complex),
        _ => None,
    }
}

/// The number as a tensor of rank 0 and this dtype.
pub(crate) fn tensor(x: Scalar, dtype: DType) -> Result<Tensor, TensorError> {
    let own = match x {
        Scalar::Bool(x) => Tensor::scalar(x),
        Scalar::Int(x) => Tensor::scalar(x),
        Scalar::Float(x) => Tensor::scalar(x),
        Scalar::Complex(x) => Tensor::scalar(x),
    };
    own?.cast(dtype)
}

/// The number as a known value.
pub(crate) fn spec(x: Scalar) -> Result<ValueSpec, ShapeError> {
    match x {
        Scalar::Bool(x) => ValueSpec::python(x),
        Scalar::Int(x) => ValueSpec::python(x),
        Scalar::Float(x) => ValueSpec::python(x),
        Scalar::Complex(x) => ValueSpec::python(x),
    }
}

/// A function of one number.
///
/// # Errors
/// Where the result is no number of its kind: overflow, or a function that such numbers do not
/// have.
pub(crate) fn unary(op: Unary, x: Scalar) -> Result<Scalar, ShapeError> {
    if matches!(op, Unary::LogicalNot | Unary::NotZero) {
        return Ok(Scalar::Bool(is_zero(x) == (op == Unary::LogicalNot)));
    }
    let y = match x {
        Scalar::Bool(_) | Scalar::Int(_) => {
            let n = int(x);
            match op {
                Unary::Neg => n.checked_neg().map(Scalar::Int),
                Unary::Abs => n.checked_abs().map(Scalar::Int),
                Unary::Square => n.checked_mul(n).map(Scalar::Int),
                Unary::Sign => Some(Scalar::Int(n.signum())),
                Unary::BitwiseNot => Some(Scalar::Int(!n)),
                _ if op.is_inexact() => Some(Scalar::Float(op.of_f64(n as f64))),
                _ => Some(Scalar::Int(n)), // roundings
            }
        }
        // Python's math.floor and its kin yield an int.
        Scalar::Float(x)
            if matches!(op, Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc) =>
        {
            Some(op.of_f64(x)).filter(|y| y.abs() < 9.2e18).map(|y| Scalar::Int(y as i64))
        }
        Scalar::Float(x) => op.is_defined(DType::F64).then(|| Scalar::Float(op.of_f64(x))),
        Scalar::Complex(z) => match op {
            _ if !op.is_defined(DType::C128) => None,
            Unary::Abs | Unary::Real | Unary::Imag => Some(Scalar::Float(op.of_complex(z).re)),
            _ => Some(Scalar::Complex(op.of_complex(z))),
        },
    };
    y.ok_or_else(|| invalid(format!("{}({}) is no number", op.name(), text(x))))
}

/// A function of two numbers.
///
/// # Errors
/// Where Python raises an error (division by zero, a negative shift, bits of a float), and where an
/// int does not fit 64 bits.
pub(crate) fn binary(op: Binary, a: Scalar, b: Scalar) -> Result<Scalar, ShapeError> {
    let call = || format!("{}({}, {})", op.name(), text(a), text(b));
    if (op.divides() || op == Binary::Div) && is_zero(b) {
        return Err(invalid(format!("division by zero in {}", call())));
    }
    let y = match Category::of(dtype(a)).max(Category::of(dtype(b))) {
        Category::Bool
            if matches!(op, Binary::BitwiseAnd | Binary::BitwiseOr | Binary::BitwiseXor) =>
        {
            ints(op, int(a), int(b)).map(|y| Scalar::Bool(!is_zero(y)))
        }
        Category::Bool | Category::Integer => ints(op, int(a), int(b)),
        Category::Float => {
            let y = || Scalar::Float(op.of_f64(complex(a).re, complex(b).re));
            op.is_defined(DType::F64).then(y)
        }
        Category::Complex => {
            let y = || Scalar::Complex(op.of_complex(complex(a), complex(b)));
            op.is_defined(DType::C128).then(y)
        }
    };
    y.ok_or_else(|| invalid(format!("{} is no number that fits 64 bits", call())))
}

fn ints(op: Binary, a: i64, b: i64) -> Option<Scalar> {
    let shift = || u32::try_from(b).ok().filter(|&b| b < 64);
    let y = match op {
        Binary::Add => a.checked_add(b)?,
        Binary::Sub => a.checked_sub(b)?,
        Binary::Mul => a.checked_mul(b)?,
        Binary::FloorDivide => {
            let inexact = a.checked_rem(b)? != 0 && (a < 0) != (b < 0);
            a.checked_div(b)? - i64::from(inexact)
        }
        Binary::Remainder => match a.checked_rem(b)? {
            r if r != 0 && (r < 0) != (b < 0) => r + b,
            r => r,
        },
        Binary::Fmod => a.checked_rem(b)?,
        Binary::Pow if b >= 0 => a.checked_pow(u32::try_from(b).ok()?)?,
        Binary::Maximum => a.max(b),
        Binary::Minimum => a.min(b),
        Binary::BitwiseAnd => a & b,
        Binary::BitwiseOr => a | b,
        Binary::BitwiseXor => a ^ b,
        Binary::ShiftLeft => a.checked_mul(1i64.checked_shl(shift()?).filter(|&p| p > 0)?)?,
        Binary::ShiftRight => a >> shift()?,
        _ => {
            return op.is_defined(DType::F64).then(|| Scalar::Float(op.of_f64(a as f64, b as f64)));
        }
    };
    Some(Scalar::Int(y))
}

/// Conversion to a Python type, as by `int(x)`, `float(x)` and `bool(x)`: that of the same category
/// as the dtype.
///
/// # Errors
/// Where the number does not fit.
pub(crate) fn convert(x: Scalar, dtype: DType) -> Result<Scalar, ShapeError> {
    let z = complex(x);
    Ok(match Category::of(dtype) {
        Category::Bool => Scalar::Bool(!is_zero(x)),
        Category::Integer => match x {
            Scalar::Float(_) => unary(Unary::Trunc, x)?,
            Scalar::Complex(_) => return Err(invalid(format!("{} is no integer", text(x)))),
            _ => Scalar::Int(int(x)),
        },
        Category::Float => Scalar::Float(z.re),
        Category::Complex => Scalar::Complex(z),
    })
}

/// The number as PyTorch takes it beside tensors of this dtype: rounded, where that is one of
/// halves, and wrapped around, where it is an integer beyond the range of integers.
pub(super) fn rounded(x: Scalar, dtype: DType) -> Scalar {
    match (x, dtype) {
        (Scalar::Float(x), DType::F16) => Scalar::Float(f16::from_f64(x).to_f64()),
        (Scalar::Float(x), DType::Bf16) => Scalar::Float(bf16::from_f64(x).to_f64()),
        (Scalar::Int(i), DType::U8) => Scalar::Int((i as u8).into()),
        (Scalar::Int(i), DType::I8) => Scalar::Int((i as i8).into()),
        (Scalar::Int(i), DType::I16) => Scalar::Int((i as i16).into()),
        (Scalar::Int(i), DType::I32) => Scalar::Int((i as i32).into()),
        _ => x,
    }
}

/// A bool or an int as an int.
fn int(x: Scalar) -> i64 {
    match x {
        Scalar::Bool(b) => b.into(),
        Scalar::Int(i) => i,
        Scalar::Float(x) => x as i64,
        Scalar::Complex(z) => z.re as i64,
    }
}

fn complex(x: Scalar) -> Complex<f64> {
    match x {
        Scalar::Float(x) => x.into(),
        Scalar::Complex(z) => z,
        exact => (int(exact) as f64).into(),
    }
}

pub(crate) fn is_zero(x: Scalar) -> bool {
    complex(x) == Complex::new(0.0, 0.0)
}

fn text(x: Scalar) -> String {
    match x {
        Scalar::Bool(b) => if b { "True" } else { "False" }.into(),
        Scalar::Int(i) => i.to_string(),
        Scalar::Float(x) => format!("{x:?}"),
        Scalar::Complex(z) => format!("({:?}{:+?}j)", z.re, z.im),
    }
}

fn invalid(what: String) -> ShapeError {
    ShapeError::Invalid(what)
}

impl FromParameter for Scalar {
    const EXPECTED: &'static str = "a number";

    fn from_parameter(value: &Parameter) -> Option<Self> {
        match value {
            Parameter::Bool(b) => Some(Self::Bool(*b)),
            Parameter::Int(i) => Some(Self::Int(*i)),
            Parameter::Complex(re, im) => Some(Self::Complex(Complex::new(*re, *im))),
            other => other.as_float().map(Self::Float),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Scalar::{Bool, Float, Int};

    #[test]
    fn numbers_follow_python() {
        let table = [
            (Binary::Div, Int(7), Int(2), Float(3.5)),
            (Binary::Div, Int(4), Int(2), Float(2.0)),
            (Binary::FloorDivide, Int(-7), Int(2), Int(-4)),
            (Binary::FloorDivide, Float(7.5), Int(2), Float(3.0)),
            (Binary::Remainder, Int(-7), Int(3), Int(2)),
            (Binary::Remainder, Int(7), Int(-3), Int(-2)),
            (Binary::Fmod, Int(-7), Int(3), Int(-1)),
            (Binary::Pow, Int(2), Int(10), Int(1024)),
            (Binary::Pow, Int(2), Int(-1), Float(0.5)),
            (Binary::Add, Bool(true), Bool(true), Int(2)),
            (Binary::BitwiseAnd, Bool(true), Bool(false), Bool(false)),
            (Binary::ShiftLeft, Int(-1), Int(3), Int(-8)),
            (Binary::Mul, Int(3), Float(0.5), Float(1.5)),
            (Binary::Maximum, Int(3), Int(5), Int(5)),
        ];
        for (op, a, b, y) in table {
            assert_eq!(binary(op, a, b), Ok(y), "{op:?}");
        }
        let i = Complex::new(0.0, 1.0);
        assert_eq!(
            binary(Binary::Mul, Scalar::Complex(i), Scalar::Complex(i)),
            Ok(Scalar::Complex(-Complex::new(1.0, 0.0)))
        );
        assert_eq!(unary(Unary::Ceil, Float(2.5)), Ok(Int(3)));
        assert_eq!(unary(Unary::Round, Float(2.5)), Ok(Int(2)));
        assert_eq!(unary(Unary::Sqrt, Int(16)), Ok(Float(4.0)));
        assert_eq!(convert(Float(-2.7), DType::I64), Ok(Int(-2)));
        assert_eq!(convert(Float(0.5), DType::Bool), Ok(Bool(true)));
    }

    #[test]
    fn what_python_refuses_is_an_error() {
        assert!(binary(Binary::Div, Int(1), Int(0)).is_err());
        assert!(binary(Binary::Remainder, Float(1.0), Float(0.0)).is_err());
        assert!(binary(Binary::Add, Int(i64::MAX), Int(1)).is_err());
        assert!(binary(Binary::FloorDivide, Int(i64::MIN), Int(-1)).is_err());
        assert!(binary(Binary::ShiftLeft, Int(1), Int(63)).is_err());
        assert!(binary(Binary::ShiftLeft, Int(1), Int(-1)).is_err());
        assert!(binary(Binary::BitwiseAnd, Float(1.0), Int(1)).is_err());
        assert!(unary(Unary::Neg, Int(i64::MIN)).is_err());
        assert!(unary(Unary::Floor, Float(f64::INFINITY)).is_err());
        assert!(unary(Unary::Floor, Scalar::Complex(Complex::new(0.0, 1.0))).is_err());
    }
}

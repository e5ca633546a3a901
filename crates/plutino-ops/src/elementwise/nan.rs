//! What is no finite number: `isnan`, `isinf`, `isfinite`, `nan_to_num`.

use super::{Elementwise, Formula, Lowering, Term};
use crate::support::promotion::Category;
use crate::{BuildError, NodeReader, Operator, ShapeError, register_op};
use plutino_kernels::elementwise::{Binary, Scalar, Unary};
use plutino_tensor::DType;

register_op!(test =>
    "torch.isnan", "torch.isinf", "torch.isfinite");

/// <https://pytorch.org/docs/stable/generated/torch.isnan.html>,
/// <https://pytorch.org/docs/stable/generated/torch.isinf.html>,
/// <https://pytorch.org/docs/stable/generated/torch.isfinite.html>: a bool for each element.
fn test(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let what = match r.kind().trim_start_matches("torch.") {
        "isnan" => What::Nan,
        "isinf" => What::Infinite,
        _ => What::Finite,
    };
    Ok(Elementwise::boxed(Test { what, input: r.required_input("input")? }))
}

#[derive(Debug, Clone, Copy)]
enum What {
    Nan,
    Infinite,
    Finite,
}

#[derive(Debug)]
struct Test {
    what: What,
    input: usize,
}

impl Formula for Test {
    fn name(&self) -> &str {
        match self.what {
            What::Nan => "isnan",
            What::Infinite => "isinf",
            What::Finite => "isfinite",
        }
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let x = f.input(self.input)?;
        let float = x.dtype().is_float();
        let (op, y) = match self.what {
            // Only a NaN differs from itself; integers never do.
            What::Nan => (Binary::Ne, x.clone()),
            What::Infinite if !float => (Binary::Ne, x.clone()),
            What::Finite if !float => (Binary::Eq, x.clone()),
            What::Infinite => (Binary::Eq, Term::Number(Scalar::Float(f64::INFINITY))),
            What::Finite => (Binary::Lt, Term::Number(Scalar::Float(f64::INFINITY))),
        };
        let x = match self.what {
            What::Nan => x,
            _ if x.dtype().is_complex() => {
                let (input, expected) = (self.input, "a real number".into());
                return Err(ShapeError::DType { input, expected, found: x.dtype() });
            }
            _ if float => f.unary(Unary::Abs, x)?,
            _ => x,
        };
        f.binary(op, x, y)
    }
}

register_op!(nan_to_num => "torch.nan_to_num");

/// <https://pytorch.org/docs/stable/generated/torch.nan_to_num.html>
fn nan_to_num(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let nan = r.or("nan", 0.0)?;
    let infinities = [r.optional("posinf")?, r.optional("neginf")?];
    Ok(Elementwise::boxed(NanToNum { input: r.required_input("input")?, nan, infinities }))
}

#[derive(Debug)]
struct NanToNum {
    input: usize,
    nan: f64,
    /// What stands for the positive and the negative one; none: the number next to it.
    infinities: [Option<f64>; 2],
}

impl Formula for NanToNum {
    fn name(&self) -> &str {
        "nan_to_num"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let x = f.input(self.input)?;
        let dtype = x.dtype();
        let most = match dtype {
            DType::F32 => f64::from(f32::MAX),
            DType::F64 => f64::MAX,
            DType::F16 => 65504.0,
            DType::Bf16 => f64::from(f32::from_bits(0x7f7f_0000)),
            _ if Category::of(dtype) <= Category::Integer => return Ok(x),
            found => {
                let (input, expected) = (self.input, "a real number".into());
                return Err(ShapeError::DType { input, expected, found });
            }
        };
        let nan = f.binary(Binary::Ne, x.clone(), x.clone())?;
        let mut y = x.clone();
        let [high, low] = self.infinities;
        for (infinity, instead) in
            [(f64::INFINITY, high.unwrap_or(most)), (f64::NEG_INFINITY, low.unwrap_or(-most))]
        {
            let found = f.binary(Binary::Eq, x.clone(), Term::Number(Scalar::Float(infinity)))?;
            let instead = f.cast(Term::Number(Scalar::Float(instead)), dtype);
            y = f.select(found, instead, y)?;
        }
        let instead = f.cast(Term::Number(Scalar::Float(self.nan)), dtype);
        f.select(nan, instead, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, check_line, error, op, tensor, values};
    use num_complex::Complex;
    use plutino_kernels::number::{bf16, f16};
    use plutino_tensor::{Element, Tensor};

    const INF: f32 = f32::INFINITY;

    #[test]
    fn what_elements_are() {
        let x = tensor([5], &[1.0f32, f32::NAN, INF, -INF, 0.0]);
        for (kind, expected) in [
            ("isnan", [false, true, false, false, false]),
            ("isinf", [false, false, true, true, false]),
            ("isfinite", [true, false, false, false, true]),
        ] {
            for space in ["aten::", "torch."] {
                let y = check(&*op(&format!("{space}{kind} i 1 1 0 1")), std::slice::from_ref(&x));
                assert_eq!(values::<bool>(&y[0]), expected, "{kind}");
            }
            let whole = check(&*op(&format!("torch.{kind} i 1 1 0 1")), &[tensor([1], &[7i64])]);
            assert_eq!(values::<bool>(&whole[0]), [kind == "isfinite"]);
        }
        let z = [Complex::new(1.0f32, f32::NAN), Complex::new(1.0, 2.0)];
        let y = check(&*op("torch.isnan i 1 1 0 1"), &[tensor([2], &z)]);
        assert_eq!(values::<bool>(&y[0]), [true, false]);
        error(&*op("torch.isinf i 1 1 0 1"), &[tensor([2], &z)]);
    }

    #[test]
    fn numbers_instead() {
        let x = tensor([4], &[f32::NAN, INF, -INF, 1.5]);
        let run = |line: &str| values::<f32>(&check_line(line, std::slice::from_ref(&x))[0]);
        let most = f32::MAX;
        assert_eq!(run("torch.nan_to_num n 1 1 0 1"), [0.0, most, -most, 1.5]);
        assert_eq!(run("aten::nan_to_num n 4 1 0 =None =None =None 1"), [0.0, most, -most, 1.5]);
        assert_eq!(run("aten::nan_to_num n 4 1 0 =-1.0 =2 =None 1"), [-1.0, 2.0, -most, 1.5]);
        assert_eq!(run("torch.nan_to_num n 1 1 0 1 nan=7 neginf=-3.0"), [7.0, most, -3.0, 1.5]);
        fn widest<T: Element>(infinity: T, most: T) {
            let y = check(&*op("torch.nan_to_num n 1 1 0 1"), &[tensor([1], &[infinity])]);
            assert_eq!(y[0], tensor([1], &[most]));
        }
        widest(f16::INFINITY, f16::MAX);
        widest(bf16::INFINITY, bf16::MAX);
        widest(f64::INFINITY, f64::MAX);
        let whole: Tensor = tensor([2], &[1i32, -5]);
        assert_eq!(
            check(&*op("torch.nan_to_num n 1 1 0 1"), std::slice::from_ref(&whole))[0],
            whole
        );
        error(&*op("torch.nan_to_num n 1 1 0 1"), &[tensor([1], &[Complex::new(0.0f32, 0.0)])]);
    }
}

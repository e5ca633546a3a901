//! Functions of three tensors: `addcmul`, `addcdiv`, `lerp`.

use super::{Elementwise, Formula, Lowering, Term, number, operand};
use crate::support::promotion::Category;
use crate::{Arg, BuildError, NodeReader, Operator, ShapeError, register_op};
use plutino_kernels::elementwise::{Binary, Scalar, Unary};
use plutino_tensor::Convert as _;

register_op!(addc => "torch.addcmul", "torch.addcdiv");

/// <https://pytorch.org/docs/stable/generated/torch.addcmul.html>: input + value x tensor1 x
/// tensor2; <https://pytorch.org/docs/stable/generated/torch.addcdiv.html>: input + value x tensor1
/// / tensor2.
fn addc(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let op = if r.kind().ends_with("mul") { Binary::Mul } else { Binary::Div };
    let value = r.arg("value")?.unwrap_or(Arg::Value(Scalar::Int(1)));
    let tensors = ["input", "tensor1", "tensor2"].map(|key| r.required_input(key));
    let [input, first, second] = tensors;
    Ok(Elementwise::boxed(AddC { op, tensors: [input?, first?, second?], value }))
}

#[derive(Debug)]
struct AddC {
    /// What is done with the second and the third tensor.
    op: Binary,
    tensors: [usize; 3],
    value: Arg<Scalar>,
}

impl Formula for AddC {
    fn name(&self) -> &str {
        if self.op == Binary::Mul { "addcmul" } else { "addcdiv" }
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let [x, a, b] = self.tensors;
        let (x, a, b) = (f.input(x)?, f.input(a)?, f.input(b)?);
        let whole = |t: &Term| Category::of(t.dtype()) <= Category::Integer;
        if self.op == Binary::Div && whole(&a) && whole(&b) {
            return Err(ShapeError::Invalid(
                "addcdiv does not divide integers by integers: one of both must be a float".into(),
            ));
        }
        let mut value = f.arg(&self.value)?;
        if whole(&x) && whole(&a) && whole(&b) && !whole(&value) {
            value = match value {
                Term::Number(Scalar::Float(v)) => Term::Number(Scalar::Int(v.to_i64())), // as PyTorch
                _ => {
                    let what = "the value for integers must be a number";
                    return Err(ShapeError::Invalid(what.into()));
                }
            };
        }
        f.rounded_once([x, a, b], |f, [x, mut a, b]| {
            // The value comes first, as in PyTorch: the order decides how results round.
            if !matches!(value, Term::Number(Scalar::Int(1))) {
                a = f.binary(Binary::Mul, a, value)?;
            }
            let y = f.binary(self.op, a, b)?;
            f.binary(Binary::Add, x, y)
        })
    }
}

register_op!(lerp => "torch.lerp");

/// <https://pytorch.org/docs/stable/generated/torch.lerp.html>: input + weight x (end - input).
fn lerp(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let weight = r.arg("weight")?;
    let (input, end) = (r.required_input("input")?, r.required_input("end")?);
    let weight = match weight {
        Some(weight) => weight,
        None => operand(r, "weight")?,
    };
    Ok(Elementwise::boxed(Lerp { input, end, weight }))
}

#[derive(Debug)]
struct Lerp {
    input: usize,
    end: usize,
    weight: Arg<Scalar>,
}

impl Formula for Lerp {
    fn name(&self) -> &str {
        "lerp"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let (x, end, weight) = (f.input(self.input)?, f.input(self.end)?, f.arg(&self.weight)?);
        let dtype = x.dtype();
        let refuse = |input: usize, expected: &str, found| ShapeError::DType {
            input,
            expected: expected.into(),
            found,
        };
        if Category::of(dtype) <= Category::Integer {
            return Err(refuse(self.input, "a float or complex", dtype));
        }
        if end.dtype() != dtype {
            return Err(refuse(
                self.end,
                &format!("{dtype}, as input {}", self.input),
                end.dtype(),
            ));
        }
        let y = f.rounded_once([x, end, weight], Self::between)?;
        if y.dtype() != dtype {
            let what = format!("a weight that makes {} of {dtype} is no weight of it", y.dtype());
            return Err(ShapeError::Invalid(what));
        }
        Ok(y)
    }
}

impl Lerp {
    /// From the nearer end, so that the weights 0 and 1 give exactly the ends.
    fn between(f: &mut Lowering<'_>, [x, end, weight]: [Term; 3]) -> Result<Term, ShapeError> {
        let whole = f.binary(Binary::Sub, end.clone(), x.clone())?;
        let step = f.binary(Binary::Mul, weight.clone(), whole.clone())?;
        let from_start = f.binary(Binary::Add, x, step)?;
        let left = f.binary(Binary::Sub, Term::Number(Scalar::Int(1)), weight.clone())?;
        let step = f.binary(Binary::Mul, whole, left)?;
        let from_end = f.binary(Binary::Sub, end, step)?;
        let distance = f.unary(Unary::Abs, weight)?;
        match f.binary(Binary::Lt, distance, Term::Number(Scalar::Float(0.5)))? {
            Term::Number(near) if number::is_zero(near) => Ok(from_end),
            Term::Number(_) => Ok(from_start),
            near => f.select(near, from_start, from_end),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, check_line, line_error, op, tensor, values};
    use plutino_kernels::number::f16;

    #[test]
    fn sums_with_products_and_quotients() {
        let x = tensor([2, 2], &[1.0f32, 2.0, 3.0, 4.0]);
        let (a, b) = (tensor([2], &[2.0f32, 4.0]), tensor([2, 1], &[0.5f32, 8.0]));
        let all = [x, a, b];
        for (line, expected) in [
            (
                "torch.addcmul a 3 1 0 1 2 3 value=2 $input=0 $tensor1=1 $tensor2=2",
                [3., 6., 35., 68.],
            ),
            ("torch.addcmul a 3 1 0 1 2 3", [2., 4., 19., 36.]),
            ("aten::addcmul a 4 1 0 1 2 =0.5 3", [1.5, 3., 11., 20.]),
            ("torch.addcdiv a 3 1 0 1 2 3 value=-1", [-3., -6., 2.75, 3.5]),
            ("aten::addcdiv a 4 1 0 1 2 =1 3", [5., 10., 3.25, 4.5]),
        ] {
            assert_eq!(values::<f32>(&check_line(line, &all)[0]), expected, "{line}");
        }
        let whole = [tensor([1], &[1i32]), tensor([1], &[2i32]), tensor([1], &[3i32])];
        let y = check_line("aten::addcmul a 4 1 0 1 2 =4 3", &whole);
        assert_eq!(y[0], tensor([1], &[25i32]));
        // PyTorch makes an integer of the value.
        let y = check_line("aten::addcmul a 4 1 0 1 2 =1.5 3", &whole);
        assert_eq!(y[0], tensor([1], &[7i32]));
        line_error("aten::addcdiv a 4 1 0 1 2 =1 3", &whole);
        line_error(
            "aten::addcmul a 4 1 0 1 2 =1 3",
            &[whole[0].clone(), all[0].clone(), tensor([3], &[0.0f32; 3])],
        );
    }

    #[test]
    fn between_two_ends() {
        let (x, end) = (tensor([3], &[0.0f32, 1.0, 10.0]), tensor([3], &[4.0f32, 1.0, -10.0]));
        let ends = [x.clone(), end.clone()];
        for (weight, expected) in [
            ("0.25", [1.0, 1.0, 5.0]),
            ("0.75", [3.0, 1.0, -5.0]),
            ("1", [4.0, 1.0, -10.0]),
            ("-1.0", [-4.0, 1.0, 30.0]),
        ] {
            let y = check_line(&format!("aten::lerp l 3 1 0 1 ={weight} 2"), &ends);
            assert_eq!(values::<f32>(&y[0]), expected, "{weight}");
            let line = format!("torch.lerp l 2 1 0 1 2 weight={weight} $input=0 $end=1");
            assert_eq!(values::<f32>(&check(&*op(&line), &ends)[0]), expected, "{weight}");
        }
        let weights = tensor([2, 1], &[0.25f32, 0.75]);
        let y = check(&*op("aten::lerp l 3 1 0 1 2 3"), &[x.clone(), end.clone(), weights]);
        assert_eq!(values::<f32>(&y[0]), [1.0, 1.0, 5.0, 3.0, 1.0, -5.0]);
        let half = |v: f32| tensor([1], &[f16::from_f32(v)]);
        let y = check_line("aten::lerp l 3 1 0 1 =0.5 2", &[half(1.0), half(2.0)]);
        assert_eq!(y[0], half(1.5));
        let whole = tensor([1], &[1i64]);
        line_error("aten::lerp l 3 1 0 1 =0.5 2", &[whole.clone(), whole]);
        let wide = tensor([3], &[0.5f64; 3]);
        line_error("aten::lerp l 3 1 0 1 =0.5 2", &[x.clone(), wide.clone()]);
        line_error("aten::lerp l 3 1 0 1 2 3", &[x, end, wide]);
    }
}

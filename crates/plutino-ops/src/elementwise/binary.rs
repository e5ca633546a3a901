//! `torch.*` functions of two tensors, or of a tensor and a number.

use super::{Elementwise, Formula, Lowering, Term, common_dtype, operand};
use crate::{
    Arg, BuildError, BuildProblem, NodeReader, Operator, ShapeError, function, register_op,
};
use plutino_kernels::elementwise::{Binary, Scalar, Unary};

register_op!(binary =>
    "torch.atan2", "torch.bitwise_and", "torch.bitwise_left_shift", "torch.bitwise_or",
    "torch.bitwise_right_shift", "torch.bitwise_xor", "torch.eq", "torch.floor_divide", "torch.fmod",
    "torch.ge", "torch.gt", "torch.le", "torch.logaddexp", "torch.logical_and", "torch.logical_or",
    "torch.logical_xor", "torch.lt", "torch.maximum", "torch.minimum", "torch.mul", "torch.ne",
    "torch.remainder");

/// A function of PyTorch's name, of the arguments `input` and `other`:
/// <https://pytorch.org/docs/stable/torch.html#pointwise-ops>.
fn binary(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let name = r.kind().trim_start_matches("torch.");
    let Some(&op) = Binary::ALL.iter().find(|op| op.name() == name) else {
        return Err(r.error(BuildProblem::UnsupportedKind { nearest: None }));
    };
    let arguments = [operand(r, "input")?, operand(r, "other")?];
    Ok(Elementwise::boxed(Function { op, arguments }))
}

register_op!(polar => "torch.polar");

/// <https://pytorch.org/docs/stable/generated/torch.polar.html>
fn polar(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let arguments = [operand(r, "abs")?, operand(r, "angle")?];
    Ok(Elementwise::boxed(Function { op: Binary::Polar, arguments }))
}

register_op!(pow => "torch.pow");

/// <https://pytorch.org/docs/stable/generated/torch.pow.html>
fn pow(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let arguments = [operand(r, "input")?, operand(r, "exponent")?];
    Ok(Elementwise::boxed(Function { op: Binary::Pow, arguments }))
}

#[derive(Debug)]
struct Function {
    op: Binary,
    arguments: [Arg<Scalar>; 2],
}

impl Formula for Function {
    fn name(&self) -> &str {
        self.op.name()
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let [a, b] = &self.arguments;
        let (a, b) = (f.arg(a)?, f.arg(b)?);
        match self.op {
            Binary::Pow => f.pow(a, b),
            op => f.binary(op, a, b),
        }
    }
}

register_op!(sum => "torch.add", "torch.sub", "torch.subtract");

/// <https://pytorch.org/docs/stable/generated/torch.add.html>: input +- alpha x other.
fn sum(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let op = if function(r.kind()) == "add" { Binary::Add } else { Binary::Sub };
    let arguments = [operand(r, "input")?, operand(r, "other")?];
    let alpha = r.or("alpha", Scalar::Int(1))?;
    Ok(Elementwise::boxed(Sum { op, arguments, alpha }))
}

#[derive(Debug)]
struct Sum {
    op: Binary,
    arguments: [Arg<Scalar>; 2],
    alpha: Scalar,
}

impl Formula for Sum {
    fn name(&self) -> &str {
        self.op.name()
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let [a, b] = &self.arguments;
        let (a, b) = (f.arg(a)?, f.arg(b)?);
        f.sum(self.op, a, Term::Number(self.alpha), b)
    }
}

register_op!(div => "torch.div", "torch.divide", "torch.true_divide");

/// <https://pytorch.org/docs/stable/generated/torch.div.html>
fn div(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let arguments = [operand(r, "input")?, operand(r, "other")?];
    let modes = [("trunc", Rounding::Trunc), ("floor", Rounding::Floor)];
    let rounding = r.one_of("rounding_mode", &modes, Some(Rounding::None))?;
    let whole = r.recorded_dtype().is_some_and(|dtype| dtype.is_integer());
    Ok(Elementwise::boxed(Div { arguments, rounding, whole }))
}

#[derive(Debug)]
struct Div {
    arguments: [Arg<Scalar>; 2],
    rounding: Rounding,
    /// Whether the file records integers as the result: of integers, that is the floor.
    whole: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Rounding {
    None,
    Trunc,
    Floor,
}

impl Formula for Div {
    fn name(&self) -> &str {
        "div"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let [a, b] = &self.arguments;
        let (a, b) = (f.arg(a)?, f.arg(b)?);
        let integers = a.dtype().is_integer() && b.dtype().is_integer();
        match self.rounding {
            Rounding::None if self.whole && integers => f.binary(Binary::FloorDivide, a, b),
            Rounding::None => f.binary(Binary::Div, a, b),
            Rounding::Floor => f.binary(Binary::FloorDivide, a, b),
            Rounding::Trunc => {
                if common_dtype([&a, &b]).is_float() {
                    return f.rounded_once([a, b], |f, [a, b]| {
                        let quotient = f.binary(Binary::Div, a, b)?;
                        f.unary(Unary::Trunc, quotient)
                    });
                }
                // a - fmod(a, b) is a multiple of b: exact for integers.
                let rest = f.binary(Binary::Fmod, a.clone(), b.clone())?;
                let multiple = f.binary(Binary::Sub, a, rest)?;
                f.binary(Binary::FloorDivide, multiple, b)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, check_values, error, op, specs, tensor, values};
    use crate::{ValueSpec, eager::EagerError};
    use num_complex::Complex;
    use plutino_tensor::{DType, Tensor};

    fn two(line: &str, a: Tensor, b: Tensor) -> Tensor {
        check(&*op(&format!("{line} 2 1 0 1 2")), &[a, b]).remove(0)
    }

    #[test]
    fn comparisons_promote_and_yield_bool() {
        let x = tensor([3], &[1.0f32, f32::NAN, 3.0]);
        let y = two("torch.ge f", x.clone(), tensor([], &[1i64]));
        assert_eq!(values::<bool>(&y), [true, false, true]);
        let y = check(&*op("torch.ne f 1 1 0 1 $input=0 other=1"), std::slice::from_ref(&x));
        assert_eq!(values::<bool>(&y[0]), [false, true, true]);
        // The same operand under both names.
        let y = check(&*op("torch.eq f 2 1 0 0 1 $input=0 $other=0"), &[x.clone(), x]);
        assert_eq!(values::<bool>(&y[0]), [true, false, true]);
    }

    /// As PyTorch, which converts the number to the tensor's dtype.
    #[test]
    fn numbers_beyond_the_range_of_integers_wrap_around() {
        let x = tensor([2], &[0u8, 5]);
        let run = |line: &str| check(&*op(line), std::slice::from_ref(&x)).remove(0);
        let bools = |line: &str| values::<bool>(&run(line));
        assert_eq!(bools("torch.lt f 1 1 0 1 $input=0 other=-3"), [true, true]);
        assert_eq!(bools("torch.eq f 1 1 0 1 $input=0 other=-251"), [false, true]);
        let numbers = |line: &str| values::<u8>(&run(line));
        assert_eq!(numbers("torch.remainder f 1 1 0 1 $input=0 other=-3"), [0, 5]);
        assert_eq!(numbers("torch.floor_divide f 1 1 0 1 $input=0 other=-2"), [0, 0]);
        assert_eq!(numbers("pnnx.Expression e 1 1 0 1 expr=add(@0,-3)"), [253, 2]);
        // Bounds are no such numbers.
        assert_eq!(numbers("torch.clamp f 1 1 0 1 $input=0 min=-3 max=300"), [0, 5]);
    }

    #[test]
    fn shapes_broadcast() {
        let y = two(
            "torch.maximum f",
            tensor([2, 1], &[1.0f32, 5.0]),
            tensor([3], &[0.0f32, 3.0, 9.0]),
        );
        assert_eq!(y.shape().dims(), [2, 3]);
        assert_eq!(values::<f32>(&y), [1.0, 3.0, 9.0, 5.0, 5.0, 9.0]);
        error(
            &*op("torch.lt f 2 1 0 1 2"),
            &[tensor([2], &[0.0f32; 2]), tensor([3], &[0.0f32; 3])],
        );
    }

    #[test]
    fn logic_and_bits() {
        let (a, b) =
            (tensor([4], &[true, true, false, false]), tensor([4], &[true, false, true, false]));
        assert_eq!(
            values::<bool>(&two("torch.bitwise_xor f", a.clone(), b.clone())),
            [false, true, true, false]
        );
        assert_eq!(values::<bool>(&two("torch.logical_and f", a, b)), [true, false, false, false]);
        let (a, b) = (tensor([3], &[6i32, -8, 1]), tensor([3], &[1i32, 1, 40]));
        assert_eq!(
            values::<i32>(&two("torch.bitwise_left_shift f", a.clone(), b.clone())),
            [12, -16, 0]
        );
        assert_eq!(values::<i32>(&two("torch.bitwise_right_shift f", a, b)), [3, -4, 0]);
    }

    #[test]
    fn division_rounds_as_told() {
        let (a, b) = (tensor([2], &[7i64, -7]), tensor([1], &[2i64]));
        assert_eq!(values::<f32>(&two("torch.div f", a.clone(), b.clone())), [3.5, -3.5]);
        let floor =
            check(&*op("torch.div f 2 1 0 1 2 rounding_mode=floor"), &[a.clone(), b.clone()]);
        assert_eq!(values::<i64>(&floor[0]), [3, -4]);
        let trunc = check(&*op("torch.div f 2 1 0 1 2 rounding_mode=trunc"), &[a.clone(), b]);
        assert_eq!(values::<i64>(&trunc[0]), [3, -3]);
        // Where the rounding is lost, the recorded dtype tells of it.
        let lost = check(&*op("torch.div f 1 1 0 1 other=2 #1=(2)i64"), std::slice::from_ref(&a));
        assert_eq!(values::<i64>(&lost[0]), [3, -4]);
        let zero = error(&*op("torch.remainder f 2 1 0 1 2"), &[a, tensor([1], &[0i64])]);
        assert!(matches!(zero, EagerError::Run(_)), "{zero}");
        let x = tensor([3], &[7.5f32, -7.5, 1.0]);
        let trunc = check(&*op("torch.div f 1 1 0 1 other=2 rounding_mode=trunc"), &[x]);
        assert_eq!(values::<f32>(&trunc[0]), [3.0, -3.0, 0.0]);
        // The quotient as it is rounded, not the greatest multiple: 0.1 is more than a tenth.
        let x = tensor([6], &[0.5f32, 0.7, 1.0, -1.5, f32::INFINITY, -2.0]);
        let line = op("torch.div f 1 1 0 1 other=0.1 rounding_mode=trunc");
        let y = check(&*line, std::slice::from_ref(&x)).remove(0);
        assert_eq!(values::<f32>(&y), [5.0, 7.0, 10.0, -15.0, f32::INFINITY, -20.0]);
        let y = check(&*line, &[x.cast(DType::F16).unwrap()]).remove(0);
        assert_eq!(y.dtype(), DType::F16);
        let y = values::<f32>(&y.cast(DType::F32).unwrap());
        assert_eq!(y, [5.0, 7.0, 10.0, -15.0, f32::INFINITY, -20.0]);
        let (one, zero) = (tensor([2], &[1.0f32, -1.0]), tensor([], &[0.0f32]));
        let y = check(&*op("torch.div f 2 1 0 1 2 rounding_mode=trunc"), &[one, zero]).remove(0);
        assert_eq!(values::<f32>(&y), [f32::INFINITY, f32::NEG_INFINITY]);
    }

    #[test]
    fn powers() {
        let x = tensor([3], &[2.0f32, -3.0, 0.5]);
        for (exponent, expected) in [
            ("2", [4.0f32, 9.0, 0.25]),
            ("3", [8.0, -27.0, 0.125]),
            ("-1", [0.5, -1.0 / 3.0, 2.0]),
            ("-2.0", [0.25, 1.0 / 9.0, 4.0]),
            ("0", [1.0; 3]),
            ("1", [2.0, -3.0, 0.5]),
            ("4", [16.0, 81.0, 0.0625]),
        ] {
            let y = check(
                &*op(&format!("torch.pow f 1 1 0 1 exponent={exponent}")),
                std::slice::from_ref(&x),
            );
            assert_eq!(values::<f32>(&y[0]), expected, "{exponent}");
        }
        let y = check(&*op("torch.pow f 1 1 0 1 exponent=0.5"), &[tensor([2], &[4i64, 9])]);
        assert_eq!(values::<f32>(&y[0]), [2.0, 3.0]);
        let y = check(&*op("torch.pow f 1 1 0 1 exponent=3"), &[tensor([2], &[4i32, -3])]);
        assert_eq!(values::<i32>(&y[0]), [64, -27]);
        error(&*op("torch.pow f 1 1 0 1 exponent=-1"), &[tensor([2], &[4i32, -3])]);
        let y = check(&*op("torch.pow f 1 1 1 2 $exponent=1 input=2"), &[tensor([2], &[3i64, 4])]);
        assert_eq!(values::<i64>(&y[0]), [8, 16]);
    }

    #[test]
    fn sums_with_a_factor() {
        let (a, b) = (tensor([2], &[1i64, 2]), tensor([2], &[10i64, 20]));
        // The product has the dtype of the sum.
        let twice = op("torch.add f 2 1 0 1 2 alpha=2");
        let y = check(&*twice, &[tensor([2], &[5i32, 6]), tensor([2], &[true, false])]);
        assert_eq!(y[0], tensor([2], &[7i32, 6]));
        let y = check(&*twice, &[tensor([1], &[1i32]), tensor([1], &[200u8])]);
        assert_eq!(y[0], tensor([1], &[401i32]));
        let y = check(&*op("torch.add f 2 1 0 1 2 alpha=3"), &[a.clone(), b.clone()]);
        assert_eq!(values::<i64>(&y[0]), [31, 62]);
        let y = check(&*op("torch.sub f 2 1 0 1 2"), &[a, b]);
        assert_eq!(values::<i64>(&y[0]), [-9, -18]);
    }

    #[test]
    fn complex_from_length_and_angle() {
        let y = two("torch.polar f", tensor([2], &[1.0f32, 2.0]), tensor([1], &[0.0f32]));
        assert_eq!(values::<Complex<f32>>(&y), [Complex::new(1.0, 0.0), Complex::new(2.0, 0.0)]);
    }

    #[test]
    fn python_numbers_defer_to_tensors() {
        let x = tensor([2], &[1i32, 2]);
        let inputs =
            [specs(std::slice::from_ref(&x)).remove(0), ValueSpec::python(2.5f64).unwrap()];
        let y = check_values(&*op("torch.mul f 2 1 0 1 2"), &inputs, &[x, tensor([], &[2.5f64])]);
        assert_eq!(y[0].dtype(), DType::F32);
        assert_eq!(values::<f32>(&y[0]), [2.5, 5.0]);
    }

    #[test]
    fn numbers_beside_halves_are_not_rounded() {
        use plutino_tensor::{bf16, f16};
        let of = |x: &[f32]| {
            tensor([x.len()], &x.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>())
        };
        let f16s: Vec<f16> = [88.8f32, -0.3, 0.3].map(f16::from_f32).to_vec();
        let divided = op("torch.floor_divide f 1 1 0 1 $input=0 other=0.3");
        let y = check(&*divided, &[tensor([3], &f16s)]);
        assert_eq!(y[0], tensor([3], &[296.0f32, -2.0, 1.0].map(f16::from_f32)));
        // In a tensor without dimensions as well.
        let third = tensor([], &[0.3f32]);
        for (kind, expected) in
            [("torch.mul", [30.0f32, -1.6484375]), ("torch.div", [334.0, -18.375])]
        {
            let y =
                check(&*op(&format!("{kind} f 2 1 0 1 2")), &[of(&[100.0, -5.5]), third.clone()]);
            assert_eq!(y[0], of(&expected), "{kind}");
        }
    }
}

//! `torch.*` functions of one tensor.

use super::{Elementwise, Formula, Lowering, Term};
use crate::{BuildError, BuildProblem, NodeReader, Operator, ShapeError, register_op};
use plutino_kernels::elementwise::{Binary, Scalar, Unary};

register_op!(unary =>
    "torch.abs", "torch.acos", "torch.acosh", "torch.asin", "torch.asinh", "torch.atan", "torch.atanh",
    "torch.bitwise_not", "torch.ceil", "torch.cos", "torch.cosh", "torch.erf", "torch.erfc", "torch.exp",
    "torch.expm1", "torch.floor", "torch.lgamma", "torch.log", "torch.log10", "torch.log1p",
    "torch.log2", "torch.logical_not", "torch.neg", "torch.positive", "torch.reciprocal",
    "torch.rsqrt", "torch.sign", "torch.sin", "torch.sinh", "torch.sqrt", "torch.square", "torch.tan",
    "torch.trunc");

/// A function of PyTorch's name: <https://pytorch.org/docs/stable/torch.html#pointwise-ops>.
fn unary(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let name = r.kind().trim_start_matches("torch.");
    let Some(&op) = Unary::ALL.iter().find(|op| op.name() == name) else {
        return Err(r.error(BuildProblem::UnsupportedKind { nearest: None }));
    };
    let input = r.required_input("input")?;
    Ok(Elementwise::boxed(Function { op, input }))
}

#[derive(Debug)]
struct Function {
    op: Unary,
    input: usize,
}

impl Formula for Function {
    fn name(&self) -> &str {
        self.op.name()
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let x = f.input(self.input)?;
        match self.op {
            Unary::Positive => Ok(x), // no copy
            op => f.unary(op, x),
        }
    }
}

register_op!(round => "torch.round", "torch.special.round");

/// <https://pytorch.org/docs/stable/generated/torch.round.html>: to `decimals` places, halves to
/// even.
fn round(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (input, decimals) = (r.required_input("input")?, r.or("decimals", 0i64)?);
    Ok(Elementwise::boxed(Round { input, decimals }))
}

#[derive(Debug)]
struct Round {
    input: usize,
    decimals: i64,
}

impl Formula for Round {
    fn name(&self) -> &str {
        "round"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let x = f.input(self.input)?;
        if self.decimals == 0 {
            return f.unary(Unary::Round, x);
        }
        // Scaled by a power of ten that is exact, as PyTorch does.
        let power =
            Term::Number(Scalar::Float(10f64.powi(self.decimals.unsigned_abs().min(400) as i32)));
        let (there, back) = match self.decimals {
            1.. => (Binary::Mul, Binary::Div),
            _ => (Binary::Div, Binary::Mul),
        };
        let x = f.binary(there, x, power.clone())?;
        let x = f.unary(Unary::Round, x)?;
        f.binary(back, x, power)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, op, tensor, values};
    use num_complex::Complex;

    #[test]
    fn every_registered_function_computes() {
        let x = tensor([2, 3], &[0.1f32, 0.5, 0.9, 0.3, 0.7, 1.0]);
        for (kind, _) in
            crate::registry().unwrap().iter().filter(|(_, e)| e.file.ends_with("unary.rs"))
        {
            if kind == "torch.bitwise_not" {
                continue;
            }
            let y = check(&*op(&format!("{kind} f 1 1 0 1")), std::slice::from_ref(&x));
            assert_eq!(y[0].shape().dims(), [2, 3], "{kind}");
        }
    }

    #[test]
    fn integers_become_floats_where_results_are_none() {
        let x = tensor([3], &[1i64, 4, 9]);
        let y = check(&*op("torch.sqrt f 1 1 0 1 $input=0"), std::slice::from_ref(&x));
        assert_eq!(values::<f32>(&y[0]), [1.0, 2.0, 3.0]);
        let y = check(&*op("torch.floor f 1 1 0 1"), std::slice::from_ref(&x));
        assert_eq!(values::<i64>(&y[0]), [1, 4, 9]);
        let y = check(&*op("torch.bitwise_not f 1 1 0 1"), &[tensor([2], &[true, false])]);
        assert_eq!(values::<bool>(&y[0]), [false, true]);
        error(&*op("torch.bitwise_not f 1 1 0 1"), &[tensor([1], &[1.0f32])]);
        error(&*op("torch.neg f 1 1 0 1"), &[tensor([1], &[true])]);
    }

    #[test]
    fn the_absolute_value_of_complex_numbers_is_real() {
        let x = tensor([2], &[Complex::new(3.0f32, -4.0), Complex::new(0.0, 1.0)]);
        let y = check(&*op("torch.abs f 1 1 0 1"), &[x]);
        assert_eq!(values::<f32>(&y[0]), [5.0, 1.0]);
    }

    #[test]
    fn rounds_halves_to_even_at_any_decimal() {
        let x = tensor([4], &[0.5f32, 2.5, 2.71928, -1234.0]);
        let y = check(&*op("torch.round f 1 1 0 1"), std::slice::from_ref(&x));
        assert_eq!(values::<f32>(&y[0]), [0.0, 2.0, 3.0, -1234.0]);
        let y = check(&*op("torch.round f 1 1 0 1 decimals=2"), std::slice::from_ref(&x));
        assert_close(&y[0], &tensor([4], &[0.5f32, 2.5, 2.72, -1234.0]), 1e-6);
        let y = check(&*op("torch.round f 1 1 0 1 decimals=-2"), std::slice::from_ref(&x));
        assert_eq!(values::<f32>(&y[0]), [0.0, 0.0, 0.0, -1200.0]);
    }
}

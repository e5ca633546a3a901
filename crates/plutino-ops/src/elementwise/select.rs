//! Choices by a mask.

use super::{Elementwise, Formula, Lowering, Term, operand};
use crate::{Arg, BuildError, NodeReader, Operator, ShapeError, register_op};
use plutino_kernels::elementwise::Scalar;

register_op!(where_ => "torch.where");

/// <https://pytorch.org/docs/stable/generated/torch.where.html>; without choices, the positions at
/// which it holds.
fn where_(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    if r.input_count() == 1 && !r.has("input") && !r.has("other") {
        return crate::indexing::nonzero::where_holds(r);
    }
    let condition = r.required_input("condition")?;
    let (yes, no) = (operand(r, "input")?, operand(r, "other")?);
    Ok(Elementwise::boxed(Where { condition, yes, no }))
}

#[derive(Debug)]
struct Where {
    condition: usize,
    yes: Arg<Scalar>,
    no: Arg<Scalar>,
}

impl Formula for Where {
    fn name(&self) -> &str {
        "where"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let (condition, yes, no) = (f.input(self.condition)?, f.arg(&self.yes)?, f.arg(&self.no)?);
        f.select(condition, yes, no)
    }
}

register_op!(masked_fill => "Tensor.masked_fill");

/// <https://pytorch.org/docs/stable/generated/torch.Tensor.masked_fill.html>
fn masked_fill(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (input, mask) = (r.required_input("input")?, r.required_input("mask")?);
    let value = operand(r, "value")?;
    Ok(Elementwise::boxed(MaskedFill { input, mask, value }))
}

#[derive(Debug)]
struct MaskedFill {
    input: usize,
    mask: usize,
    value: Arg<Scalar>,
}

impl Formula for MaskedFill {
    fn name(&self) -> &str {
        "masked_fill"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let (x, mask, value) = (f.input(self.input)?, f.input(self.mask)?, f.arg(&self.value)?);
        let value = f.cast(value, x.dtype()); // the dtype is the input's, whatever the value's is
        f.select(mask, value, x)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, op, tensor, values};

    #[test]
    fn where_takes_tensors_and_numbers() {
        let mask = tensor([2, 2], &[true, false, false, true]);
        let (a, b) = (tensor([2], &[1.0f32, 2.0]), tensor([2, 1], &[-1i64, -2]));
        let y = check(
            &*op("torch.where w 3 1 0 1 2 3 $condition=0 $input=1 $other=2"),
            &[mask.clone(), a, b],
        );
        assert_eq!(values::<f32>(&y[0]), [1.0, -1.0, -2.0, 2.0]);
        // Named inputs in another order, a number that is a float for an integer tensor.
        let y = check(
            &*op("torch.where w 2 1 0 1 2 $input=0 $condition=1 other=-1.000000e9"),
            &[tensor([1], &[7i64]), mask],
        );
        assert_eq!(values::<f32>(&y[0]), [7.0, -1e9, -1e9, 7.0]);
    }

    #[test]
    fn masked_fill_keeps_the_dtype() {
        let (x, mask) = (tensor([2, 2], &[1.0f32, 2.0, 3.0, 4.0]), tensor([2], &[true, false]));
        let line = "Tensor.masked_fill m 2 1 0 1 2 $input=0 $mask=1 value=2";
        assert_eq!(
            values::<f32>(&check(&*op(line), &[x.clone(), mask.clone()])[0]),
            [2.0, 2.0, 2.0, 4.0]
        );
        let line = "Tensor.masked_fill m 3 1 0 1 2 3 $input=0 $mask=1 $value=2";
        let y = check(&*op(line), &[x, mask, tensor([], &[f64::NEG_INFINITY])]);
        assert_eq!(values::<f32>(&y[0]), [f32::NEG_INFINITY, 2.0, f32::NEG_INFINITY, 4.0]);
    }
}

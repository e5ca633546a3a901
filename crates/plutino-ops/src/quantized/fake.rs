//! Rounding to a grid and back, as networks do that are trained to be quantised:
//! `torch.fake_quantize_per_tensor_affine` and `torch.fake_quantize_per_channel_affine`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.fake_quantize_per_tensor_affine.html>: scale and
//! zero point are numbers, or tensors, of one element or with one for each channel.

use super::{Grid, Quantize};
use crate::elementwise::Elementwise;
use crate::support::composite::{Compose, StepText, composed, list};
use crate::support::in_dtype::to_dtype;
use crate::support::rearrange::invalid;
use crate::{BuildError, NodeReader, Operator, ShapeError, TensorValue, register_op};

fn fake(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (low, high): (i64, i64) = (r.required("quant_min")?, r.required("quant_max")?);
    if low > high {
        return Err(r.bad("quant_min", "at most quant_max"));
    }
    let input = r.required_input("input")?;
    let axis = match r.kind().contains("per_channel") {
        true => Some(r.required("axis")?),
        false => None,
    };
    if axis.is_none() && r.has("scale") {
        let (scale, zero): (f64, i64) = (r.required("scale")?, r.required("zero_point")?);
        let scale = scale as f32;
        if !(scale.is_normal() && scale > 0.0) {
            return Err(r.bad("scale", "a positive number"));
        }
        let steps = |q: i64| q.saturating_sub(zero) as f32;
        let grid = Grid { scale, low: steps(low), high: steps(high) };
        return Ok(Elementwise::boxed(Quantize { input, grid }));
    }
    let (scale, zero) = (r.required_input("scale")?, r.required_input("zero_point")?);
    composed(Fake { inputs: vec![input, scale, zero], axis, range: [low, high] })
}
register_op!(fake => "torch.fake_quantize_per_tensor_affine", "torch.fake_quantize_per_channel_affine");

/// With scale and zero point as tensors.
#[derive(Debug)]
struct Fake {
    /// The tensor, its scale and its zero point.
    inputs: Vec<usize>,
    /// The dimension of the channels.
    axis: Option<i64>,
    range: [i64; 2],
}

impl Compose for Fake {
    fn name(&self) -> &'static str {
        "fake_quantize"
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.clone()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[x, scale, zero] = inputs else { return Err(invalid("three tensors")) };
        let mut shape = vec![1; x.shape().rank()];
        let expected = match self.axis {
            None => 1,
            Some(axis) => {
                let at = x.shape().dim(axis)?;
                let size = x.shape().get(at).copied();
                let size = size.ok_or_else(|| invalid("a scalar has no channels"))?;
                shape[at] = size;
                size
            }
        };
        for found in [scale, zero] {
            if found.shape().checked_numel()? != expected {
                return Err(invalid(format!(
                    "{expected} scales and zero points are needed, found {}",
                    found.spec
                )));
            }
        }
        let shape = format!("shape={}", list(&shape));
        let [low, high] = self.range;
        // As PyTorch has it: times the inverse, to the nearest integer, with zero points that may
        // be none of them.
        let steps = match zero.dtype().is_float() {
            true => "round(add(mul(@0,reciprocal(@1)),@2))",
            false => "add(round(mul(@0,reciprocal(@1))),@2)",
        };
        let formula = format!("expr=mul(sub(minimum(maximum({steps},{low}),{high}),@2),@1)");
        Ok(vec![
            StepText::new("Tensor.reshape", &["x1"], "scale", &shape),
            StepText::new("Tensor.reshape", &["x2"], "zero", &shape),
            StepText::new("pnnx.Expression", &["x0", "scale", "zero"], "wide", &formula),
            StepText::new("Tensor.to", &["wide"], "y", &to_dtype(x.dtype())),
        ])
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, op, tensor, try_op};
    use plutino_tensor::DType;

    #[test]
    fn zero_points_that_are_no_integers_and_halves() {
        let line =
            "torch.fake_quantize_per_channel_affine f 3 1 0 1 2 3 axis=0 quant_min=0 quant_max=7";
        let x = tensor([1, 3], &[-0.75f32, 0.5, 9.0]);
        let parameters = [tensor([1], &[1.0f32]), tensor([1], &[2.25f32])];
        let given = [x.clone(), parameters[0].clone(), parameters[1].clone()];
        // To 1.5, 2.75 and 11.25 of the grid, halves to even.
        let expected = [2.0 - 2.25, 3.0 - 2.25, 7.0 - 2.25];
        assert_eq!(check(&*op(line), &given)[0], tensor([1, 3], &expected.map(|v: f32| v)));
        let half = x.cast(DType::F16).unwrap();
        let whole = [half, parameters[0].clone(), tensor([1], &[2i32])];
        assert_eq!(check(&*op(line), &whole)[0].dtype(), DType::F16);
    }

    #[test]
    fn numbers_of_the_grid() {
        let x = tensor([6], &[-9.0f32, -0.26, 0.24, 0.25, 0.75, 9.0]);
        let line = "torch.fake_quantize_per_tensor_affine f";
        let numbers = "scale=0.5 zero_point=2 quant_min=0 quant_max=7";
        let y = check(&*op(&format!("{line} 1 1 0 1 {numbers}")), std::slice::from_ref(&x));
        let expected = tensor([6], &[-1.0f32, -0.5, 0.0, 0.0, 1.0, 2.5]);
        assert_eq!(y[0], expected);
        let tensors = [x, tensor([1], &[0.5f32]), tensor([1], &[2i32])];
        let y = check(&*op(&format!("{line} 3 1 0 1 2 3 quant_min=0 quant_max=7")), &tensors);
        assert_eq!(y[0], expected);
        assert!(
            try_op(&format!("{line} 1 1 0 1 scale=-1 zero_point=0 quant_min=0 quant_max=7"), &[])
                .is_err()
        );
        assert!(
            try_op(&format!("{line} 1 1 0 1 scale=1 zero_point=0 quant_min=8 quant_max=7"), &[])
                .is_err()
        );
    }

    #[test]
    fn a_grid_for_each_channel() {
        let line =
            "torch.fake_quantize_per_channel_affine f 3 1 0 1 2 3 axis=1 quant_min=-2 quant_max=2";
        let x = tensor([2, 2], &[0.6f32, 0.6, -9.0, 9.0]);
        let tensors = [x, tensor([2], &[1.0f32, 0.25]), tensor([2], &[0i32, 1])];
        let y = check(&*op(line), &tensors);
        assert_eq!(y[0], tensor([2, 2], &[1.0f32, 0.25, -2.0, 0.25]));
        error(&*op(line), &[tensors[0].clone(), tensor([1], &[1.0f32]), tensors[2].clone()]);
    }
}

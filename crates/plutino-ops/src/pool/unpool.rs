//! The inverse of maximum pooling.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.MaxUnpool2d.html>: every input goes to its
//! index, the rest is zero. The output has `(input - 1) * stride - 2 * padding + kernel_size`
//! elements along each dimension, or `output_size`.

use super::build::rank;
use crate::support::assemble::leaf;
use crate::{
    Arg, BuildError, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::for_numbers;
use plutino_kernels::number::Number;
use plutino_kernels::pool::max_unpool;
use plutino_tensor::{DType, Shape};
use std::marker::PhantomData;

#[derive(Debug)]
struct MaxUnpool {
    input: usize,
    indices: usize,
    kernel: Vec<usize>,
    stride: Vec<usize>,
    padding: Vec<usize>,
    output_size: Option<Arg<Vec<i64>>>,
}

fn unpool(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let rank = rank(r);
    let kernel = r.sizes("kernel_size", rank, 1, None)?;
    let stride = if matches!(r.raw("stride"), None | Some(plutino_ir::Parameter::Null)) {
        kernel.clone()
    } else {
        r.sizes("stride", rank, 1, None)?
    };
    let padding = r.sizes("padding", rank, 0, Some(0))?;
    let output_size = r.arg("output_size")?;
    let (input, indices) = (r.required_input("input")?, r.required_input("indices")?);
    Ok(Box::new(MaxUnpool { input, indices, kernel, stride, padding, output_size }))
}
register_op!(unpool => "nn.MaxUnpool1d", "nn.MaxUnpool2d", "nn.MaxUnpool3d", "F.max_unpool1d", "F.max_unpool2d",
    "F.max_unpool3d");

/// The native functions, which are given the size of the output.
fn native(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let rank = rank(r);
    // They only say how the size came about.
    let _: [Option<Vec<i64>>; 2] = [r.optional("stride")?, r.optional("padding")?];
    let Some(output_size) = r.arg("output_size")? else {
        return Err(r.bad("output_size", "a size"));
    };
    let (input, indices) = (r.required_input("input")?, r.required_input("indices")?);
    Ok(Box::new(MaxUnpool {
        input,
        indices,
        kernel: vec![1; rank],
        stride: vec![1; rank],
        padding: vec![0; rank],
        output_size: Some(output_size),
    }))
}
register_op!(native => "aten::max_unpool2d", "aten::max_unpool3d");

impl MaxUnpool {
    fn shape(&self, inputs: &[ValueSpec]) -> Result<Shape, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let indices = TensorValue::at(inputs, self.indices)?;
        let rank = self.kernel.len();
        let leading = x.shape().rank().checked_sub(rank).filter(|n| (1..=2).contains(n));
        let leading = leading.ok_or_else(|| ShapeError::Rank {
            input: self.input,
            expected: format!("{} or {}", rank + 1, rank + 2),
            found: x.shape().clone(),
        })?;
        if indices.shape() != x.shape() || indices.dtype() != DType::I64 {
            return Err(ShapeError::Invalid(format!(
                "indices must be {}i64, found {}",
                x.shape(),
                indices.spec
            )));
        }
        let mut shape = x.shape().clone();
        if let Some(size) = &self.output_size {
            let size = size.ints(inputs)?;
            let spatial = size.len().checked_sub(rank).map(|n| &size[n..]);
            let sizes: Option<Vec<usize>> =
                spatial.and_then(|s| s.iter().map(|&n| usize::try_from(n).ok()).collect());
            let sizes = sizes.ok_or_else(|| {
                ShapeError::Invalid(format!("output_size {size:?} must be {rank} sizes"))
            })?;
            shape[leading..].copy_from_slice(&sizes);
        } else {
            for a in 0..rank {
                let size = shape[leading + a]
                    .checked_sub(1)
                    .and_then(|n| n.checked_mul(self.stride[a])?.checked_add(self.kernel[a]))
                    .and_then(|n| n.checked_sub(self.padding[a].checked_mul(2)?));
                shape[leading + a] = size.ok_or_else(|| {
                    ShapeError::Invalid(format!("an input {} cannot be unpooled", x.shape()))
                })?;
            }
        }
        shape.checked_numel()?;
        Ok(shape)
    }
}

impl Operator for MaxUnpool {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let dtype = TensorValue::at(inputs, self.input)?.dtype();
        Ok(vec![ValueSpec::tensor(dtype, self.shape(inputs)?)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, self.input)?;
        let planes = x.shape().product(0..x.shape().rank().saturating_sub(self.kernel.len()));
        let (input, indices) = (leaf(cx.inputs, self.input), leaf(cx.inputs, self.indices));
        Ok(for_numbers!(x.dtype(),
            T => Planned::new(Unpool::<T> { planes, input, indices, element: PhantomData })
        ))
    }
}

struct Unpool<T> {
    planes: usize,
    input: usize,
    indices: usize,
    element: PhantomData<T>,
}

impl<T: Number> Kernel for Unpool<T> {
    fn name(&self) -> &str {
        "pool.max_unpool"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (x, indices) = (cx.inputs.get::<T>(self.input)?, cx.inputs.get(self.indices)?);
        let y = cx.outputs.take::<T>(0)?;
        let size = y.len() / self.planes.max(1);
        max_unpool(cx.par, self.planes, x, indices, y).map_err(|bad| RunError::Value {
            input: self.indices,
            what: format!("index {bad} must lie in 0..{size}"),
        })
    }
}

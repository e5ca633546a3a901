//! Cumulative sums and products.
//!
//! <https://pytorch.org/docs/stable/generated/torch.cumsum.html>; those of integers and bool are i64.

use super::planned;
use crate::assemble::leaf;
use crate::softmax::lines;
use crate::{
    BuildError, Cost, NodeReader, Operator, PlanCx, PlanError, Planned, ShapeError, TensorValue,
    ValueSpec, register_op,
};
use plutino_kernels::for_numbers;
use plutino_kernels::reduce::{Scan, scan};
use plutino_tensor::DType;

#[derive(Debug)]
struct Cumulative {
    input: usize,
    kind: Scan,
    dim: i64,
    dtype: Option<DType>,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let kind = if r.kind() == "torch.cumsum" { Scan::Sum } else { Scan::Product };
    let (dim, dtype) = (r.required("dim")?, r.optional("dtype")?);
    Ok(Box::new(Cumulative { input: r.required_input("input")?, kind, dim, dtype }))
}
register_op!(build => "torch.cumsum", "torch.cumprod");

impl Operator for Cumulative {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        x.shape().dim(self.dim)?;
        let whole = x.dtype().is_integer() || x.dtype() == DType::Bool;
        let natural = if whole { DType::I64 } else { x.dtype() };
        if self.dtype.is_some_and(|d| d != natural) {
            let text = format!("a cumulative sum of {} is {natural}, nothing else", x.dtype());
            return Err(ShapeError::Invalid(text));
        }
        Ok(vec![ValueSpec::tensor(natural, x.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, self.input)?;
        let sizes = lines(x.shape(), self.dim)?;
        let (input, kind) = (leaf(cx.inputs, self.input), self.kind);
        macro_rules! kernel {
            ($T:ty => $U:ty) => {
                planned("scan", move |cx| {
                    let (x, y) = (cx.inputs.get::<$T>(input)?, cx.outputs.take::<$U>(0)?);
                    scan(cx.par, kind, sizes, x, y);
                    Ok(())
                })
            };
        }
        Ok(match x.dtype() {
            DType::I64 => kernel!(i64 => i64),
            DType::I32 => kernel!(i32 => i64),
            DType::I16 => kernel!(i16 => i64),
            DType::I8 => kernel!(i8 => i64),
            DType::U8 => kernel!(u8 => i64),
            DType::Bool => kernel!(bool => i64),
            dtype => for_numbers!(dtype, T => kernel!(T => T)),
        })
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::elementwise(inputs, outputs, 1)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, tensor, values};

    #[test]
    fn sums_and_products() {
        let sum = |dim: i64| op(&format!("torch.cumsum c 1 1 0 1 dim={dim} $input=0"));
        assert_eq!(values::<f32>(&check(&*sum(0), &[iota([2, 3])])[0]), [0., 1., 2., 3., 5., 7.]);
        assert_eq!(values::<f32>(&check(&*sum(-1), &[iota([2, 3])])[0]), [0., 1., 3., 3., 7., 12.]);
        assert_eq!(values::<f32>(&check(&*sum(0), &[tensor([], &[2.0f32])])[0]), [2.0]);
        assert_eq!(values::<i64>(&check(&*sum(0), &[tensor([2], &[true, true])])[0]), [1, 2]);
        let product = op("torch.cumprod c 1 1 0 1 dim=0 $input=0");
        assert_eq!(values::<i64>(&check(&*product, &[tensor([3], &[2i32, 3, 4])])[0]), [2, 6, 24]);
        error(&*sum(1), &[iota([3])]);
    }
}

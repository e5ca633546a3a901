//! Cumulative sums, products, extrema and log-sums.
//!
//! <https://pytorch.org/docs/stable/generated/torch.cumsum.html>; those of integers and bool are
//! i64.

use super::planned;
use crate::activations::softmax::lines;
use crate::support::assemble::leaf;
use crate::support::in_dtype::in_dtype;
use crate::{
    BuildError, BuildProblem, Cost, NodeReader, Operator, PlanCx, PlanError, Planned, ShapeError,
    StrideRule, TensorValue, ValueSpec, function, register_op,
};
use plutino_kernels::reduce::{Scan, running_extremum, running_logsumexp, scan};
use plutino_kernels::{for_floats, for_numbers, for_ordered};
use plutino_tensor::DType;

#[derive(Debug)]
struct Cumulative {
    input: usize,
    kind: Scan,
    dim: i64,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let kind = if r.kind() == "torch.cumsum" { Scan::Sum } else { Scan::Product };
    let (dim, dtype) = (r.required("dim")?, r.optional("dtype")?);
    let input = r.required_input("input")?;
    match dtype {
        None => Ok(Box::new(Cumulative { input, kind, dim })),
        Some(dtype) => in_dtype("scan", input, Some(dtype), move || {
            Box::new(Cumulative { input: 0, kind, dim })
        }),
    }
}
register_op!(build => "torch.cumsum", "torch.cumprod");

impl Operator for Cumulative {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        x.shape().dim(self.dim)?;
        let whole = x.dtype().is_integer() || x.dtype() == DType::Bool;
        let natural = if whole { DType::I64 } else { x.dtype() };
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

/// The greatest or the least elements so far, and their positions.
#[derive(Debug)]
struct Running {
    input: usize,
    max: bool,
    dim: i64,
}

/// <https://pytorch.org/docs/stable/generated/torch.cummax.html>: a NaN counts as the extremum; of
/// equal elements the last gives the position.
fn running(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    if r.output_count() != 2 {
        let (expected, found) = ("2".into(), r.output_count());
        return Err(r.error(BuildProblem::Outputs { expected, found }));
    }
    let (max, dim) = (function(r.kind()) == "cummax", r.required("dim")?);
    Ok(Box::new(Running { input: r.required_input("input")?, max, dim }))
}
register_op!(running => "torch.cummax", "torch.cummin");

impl Operator for Running {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let x = TensorValue::real_at(inputs, self.input)?;
        x.shape().dim(self.dim)?;
        let values = ValueSpec::tensor(x.dtype(), x.shape().clone());
        Ok(vec![values, ValueSpec::tensor(DType::I64, x.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, self.input)?;
        let sizes = lines(x.shape(), self.dim)?;
        let (input, max) = (leaf(cx.inputs, self.input), self.max);
        for_ordered!(x.dtype(),
            T => Ok(planned("scan.extremum", move |cx| {
                let x = cx.inputs.get::<T>(input)?;
                let (values, indices) = (cx.outputs.take(0)?, cx.outputs.take(1)?);
                running_extremum(cx.par, max, sizes, x, Some(values), Some(indices));
                Ok(())
            })),
            _ => Err(PlanError::Unsupported(format!("an extremum of {}", x.dtype()))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::elementwise(inputs, outputs, 1)
    }
}

/// The logarithm of the sum of powers of e so far.
#[derive(Debug)]
struct LogCumSumExp {
    input: usize,
    dim: i64,
}

/// <https://pytorch.org/docs/stable/generated/torch.logcumsumexp.html>
fn logcumsumexp(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.required("dim")?;
    Ok(Box::new(LogCumSumExp { input: r.required_input("input")?, dim }))
}
register_op!(logcumsumexp => "torch.logcumsumexp");

impl Operator for LogCumSumExp {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        if !x.dtype().is_float() {
            return Err(ShapeError::DType { input, expected: "a float".into(), found: x.dtype() });
        }
        x.shape().dim(self.dim)?;
        Ok(vec![ValueSpec::tensor(x.dtype(), x.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, self.input)?;
        let (input, sizes) = (leaf(cx.inputs, self.input), lines(x.shape(), self.dim)?);
        for_floats!(x.dtype(),
            T => Ok(planned("scan.logsumexp", move |cx| {
                let (x, y) = (cx.inputs.get::<T>(input)?, cx.outputs.take(0)?);
                running_logsumexp(cx.par, sizes, x, y);
                Ok(())
            })),
            _ => Err(PlanError::Unsupported(format!("a logcumsumexp of {}", x.dtype()))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::elementwise(inputs, outputs, 20)
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
        let line = "torch.cumsum c 1 1 0 1 dim=0 dtype=torch.float $input=0";
        assert_eq!(check(&*op(line), &[tensor([2], &[1i64, 2])])[0], tensor([2], &[1.0f32, 3.0]));
    }

    #[test]
    fn extrema_and_log_sums_so_far() {
        let x = tensor([2, 3], &[1.0f32, 3.0, 3.0, 2.0, f32::NAN, 5.0]);
        let y = check(&*op("torch.cummax c 1 2 0 1 2 dim=1 $input=0"), std::slice::from_ref(&x));
        assert_eq!(values::<f32>(&y[0])[..4], [1., 3., 3., 2.]);
        assert_eq!(values::<i64>(&y[1]), [0, 1, 2, 0, 1, 1]);
        let y = check(&*op("torch.cummin c 1 2 0 1 2 dim=-2 $input=0"), std::slice::from_ref(&x));
        assert_eq!(values::<i64>(&y[1]), [0, 0, 0, 0, 1, 0]);
        let y = check(&*op("torch.cummin c 1 2 0 1 2 dim=0"), &[tensor([], &[7u8])]);
        assert_eq!(y, [tensor([], &[7u8]), tensor([], &[0i64])]);
        let y = check(&*op("torch.cummax c 1 2 0 1 2 dim=0"), &[iota([0, 2])]);
        assert_eq!(y[1].shape().dims(), [0, 2]);
        let y = check(&*op("torch.logcumsumexp c 1 1 0 1 dim=0"), &[tensor([2], &[0.0f64, 0.0])]);
        assert_eq!(values::<f64>(&y[0]), [0.0, std::f64::consts::LN_2]);
        error(&*op("torch.logcumsumexp c 1 1 0 1 dim=0"), &[tensor([1], &[1i64])]);
        error(&*op("torch.cummax c 1 2 0 1 2 dim=2"), &[x]);
        assert!(crate::testkit::try_op("torch.cummax c 1 1 0 1 dim=0", &[]).is_err());
    }
}

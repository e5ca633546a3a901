//! All elements along a dimension, in order.
//!
//! <https://pytorch.org/docs/stable/generated/torch.sort.html>,
//! <https://pytorch.org/docs/stable/generated/torch.argsort.html>. A NaN is greater than every
//! number. Equal elements keep their order, whether `stable` asks for it or not.

use crate::activations::softmax::lines;
use crate::support::assemble::leaf;
use crate::{
    BuildError, BuildProblem, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned,
    RunCx, RunError, ShapeError, TensorValue, ValueSpec, function, register_op,
};
use plutino_kernels::for_ordered;
use plutino_kernels::topk::topk;
use plutino_tensor::{DType, Tensor};

#[derive(Debug)]
struct Sort {
    input: usize,
    dim: i64,
    descending: bool,
    outputs: Outputs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outputs {
    Both,
    Values,
    Positions,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let _: bool = r.or("stable", false)?;
    let (dim, descending) = (r.or("dim", -1)?, r.or("descending", false)?);
    let outputs = match function(r.kind()) {
        "argsort" => Outputs::Positions,
        "msort" => Outputs::Values,
        _ => Outputs::Both,
    };
    // <https://pytorch.org/docs/stable/generated/torch.msort.html> sorts along the first dimension.
    let dim = if outputs == Outputs::Values { 0 } else { dim };
    let expected = if outputs == Outputs::Both { 2 } else { 1 };
    if r.output_count() != expected {
        let (expected, found) = (expected.to_string(), r.output_count());
        return Err(r.error(BuildProblem::Outputs { expected, found }));
    }
    Ok(Box::new(Sort { input: r.required_input("input")?, dim, descending, outputs }))
}
register_op!(build => "torch.sort", "torch.argsort", "torch.msort");

impl Operator for Sort {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let x = TensorValue::real_at(inputs, self.input)?;
        x.shape().dim(self.dim)?;
        let values = ValueSpec::tensor(x.dtype(), x.shape().clone());
        let indices = ValueSpec::tensor(DType::I64, x.shape().clone());
        Ok(match self.outputs {
            Outputs::Both => vec![values, indices],
            Outputs::Values => vec![values],
            Outputs::Positions => vec![indices],
        })
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, self.input)?;
        let (sizes, dtype) = (lines(x.shape(), self.dim)?, x.dtype());
        let (input, descending) = (leaf(cx.inputs, self.input), self.descending);
        let outputs = self.outputs;
        Ok(Planned::new(SortKernel { dtype, input, sizes, descending, outputs }))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let x = TensorValue::at(inputs, self.input).map_or(0, |x| x.shape().numel() as u64);
        let comparisons = u64::from(x.checked_ilog2().unwrap_or(0)).saturating_mul(x);
        Cost { flops: comparisons, ..Cost::moved(inputs, outputs) }
    }
}

struct SortKernel {
    dtype: DType,
    input: usize,
    sizes: [usize; 3],
    descending: bool,
    outputs: Outputs,
}

impl Kernel for SortKernel {
    fn name(&self) -> &str {
        "topk.all"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        for_ordered!(self.dtype,
            T => {
                let x = cx.inputs.get::<T>(self.input)?;
                // Both are written, wherever they go.
                let mut unused = match self.outputs {
                    Outputs::Both => None,
                    Outputs::Values => Some(Tensor::zeros(DType::I64, [x.len()])?),
                    Outputs::Positions => Some(Tensor::zeros(self.dtype, [x.len()])?),
                };
                let (values, indices) = match (self.outputs, &mut unused) {
                    (Outputs::Values, Some(unused)) => (cx.outputs.take(0)?, unused.as_mut_slice()?),
                    (Outputs::Positions, Some(unused)) => {
                        (unused.as_mut_slice::<T>()?, cx.outputs.take(0)?)
                    }
                    _ => (cx.outputs.take::<T>(0)?, cx.outputs.take(1)?),
                };
                topk(cx.par, self.sizes, self.sizes[1], self.descending, x, values, indices)?;
                Ok(())
            },
            _ => Err(RunError::Internal("complex numbers have no order".into())),
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, check_line, error, op, tensor, try_op, values};
    use num_complex::Complex;
    use plutino_tensor::{DType, Tensor};

    #[test]
    fn values_and_positions() {
        let x = tensor([2, 3], &[3.0f32, 1.0, 2.0, 4.0, 6.0, 5.0]);
        let x = std::slice::from_ref(&x);
        let y = check_line("aten::sort s 3 2 0 =-1 =True 1 2", x);
        assert_eq!(values::<f32>(&y[0]), [3., 2., 1., 6., 5., 4.]);
        assert_eq!(values::<i64>(&y[1]), [0, 2, 1, 1, 2, 0]);
        let y = check(&*op("torch.sort s 1 2 0 1 2 dim=0 descending=False $input=0"), x);
        assert_eq!((values::<f32>(&y[0]), values::<i64>(&y[1])[0]), (values(&x[0]), 0));
        let y = check_line("aten::sort s 4 2 0 =True =1 =False 1 2", x);
        assert_eq!(values::<f32>(&y[0]), [1., 2., 3., 4., 5., 6.]);
        let y = check_line("aten::argsort s 3 1 0 =1 =False 1", x);
        assert_eq!(values::<i64>(&y[0]), [1, 2, 0, 0, 2, 1]);
        assert_eq!(check(&*op("torch.argsort s 1 1 0 1"), x), y);
        error(&*op("torch.argsort s 1 1 0 1 dim=2"), x);
        let y = check(&*op("torch.msort s 1 1 0 1"), &[tensor([2, 2], &[3i64, 1, 2, 4])]);
        assert_eq!(values::<i64>(&y[0]), [2, 1, 3, 4]);
    }

    #[test]
    fn equal_ones_keep_their_order_and_nan_is_greatest() {
        let nan = f32::NAN;
        let x = tensor([5], &[1.0f32, nan, 0.0, 1.0, nan]);
        let run = |line: &str| values::<i64>(&check_line(line, std::slice::from_ref(&x))[0]);
        assert_eq!(run("aten::argsort s 3 1 0 =0 =False 1"), [2, 0, 3, 1, 4]);
        assert_eq!(run("aten::argsort s 3 1 0 =0 =True 1"), [1, 4, 0, 3, 2]);
    }

    #[test]
    fn other_dtypes_scalars_and_nothing() {
        let sort = op("torch.sort s 1 2 0 1 2");
        let y = check(&*sort, &[tensor([3], &[true, false, true])]);
        assert_eq!(values::<bool>(&y[0]), [false, true, true]);
        let y = check(&*sort, &[tensor([], &[7u8])]);
        assert_eq!((&y[0], &y[1]), (&tensor([], &[7u8]), &tensor([], &[0i64])));
        let nothing = Tensor::zeros(DType::F64, [2, 0]).unwrap();
        assert_eq!(check(&*sort, &[nothing])[1].shape().dims(), [2, 0]);
        error(&*sort, &[tensor([1], &[Complex::new(1.0f32, 0.0)])]);
        assert!(try_op("torch.sort s 1 1 0 1", &[]).is_err());
    }
}

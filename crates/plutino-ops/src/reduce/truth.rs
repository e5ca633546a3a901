//! Whether any element, or each, is not zero.
//!
//! <https://pytorch.org/docs/stable/generated/torch.any.html>,
//! <https://pytorch.org/docs/stable/generated/torch.all.html>. The result is bool, of u8 it is u8.
//! A NaN is not zero; of nothing all elements are true, and none is.

use super::{Dims, planned};
use crate::support::assemble::leaf;
use crate::{
    BuildError, Cost, NodeReader, Operator, PlanCx, PlanError, Planned, ShapeError, StrideRule,
    TensorValue, ValueSpec, register_op,
};
use plutino_kernels::for_numbers;
use plutino_kernels::number::{Number, Wide};
use plutino_kernels::reduce::{Fold, fold_any};
use plutino_tensor::{DType, Shape};

#[derive(Debug)]
struct Truth {
    input: usize,
    all: bool,
    dims: Dims,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let all = r.kind().ends_with("all");
    let dims = Dims::read(r)?;
    Ok(Box::new(Truth { input: r.required_input("input")?, all, dims }))
}
register_op!(build => "torch.any", "torch.all");

impl Truth {
    /// Dtypes of input and result, which elements are reduced together, and the shape of the
    /// result.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<([DType; 2], Fold, Shape), ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let result = if x.dtype() == DType::U8 { DType::U8 } else { DType::Bool };
        let (fold, shape) = self.dims.bind(x.shape())?;
        Ok(([x.dtype(), result], fold, shape))
    }
}

impl Operator for Truth {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let ([_, dtype], _, shape) = self.bind(inputs)?;
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let ([dtype, result], fold, _) = self.bind(cx.inputs)?;
        let (input, all) = (leaf(cx.inputs, self.input), self.all);
        let name = if all { "reduce.all" } else { "reduce.any" };
        Ok(for_numbers!(dtype, T => planned(name, move |cx| {
            let x = cx.inputs.get::<T>(input)?;
            let zero = <T as Number>::Wide::ZERO;
            let step = |so_far: bool, _: usize, x: T| match all {
                true => so_far && x.widen() != zero,
                false => so_far || x.widen() != zero,
            };
            match result {
                DType::U8 => fold_any(cx.par, &fold, x, cx.outputs.take(0)?, all, step, u8::from),
                _ => fold_any(cx.par, &fold, x, cx.outputs.take(0)?, all, step, |y| y),
            }
            Ok(())
        })))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::moved(inputs, outputs)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, check_line, error, op, tensor, values};
    use num_complex::Complex;
    use plutino_tensor::{DType, Tensor};

    #[test]
    fn along_dimensions_and_over_everything() {
        let x = tensor([2, 3], &[true, false, true, true, true, true]);
        let run = |line: &str| check_line(line, std::slice::from_ref(&x)).remove(0);
        assert_eq!(run("aten::all a 3 1 0 =-1 =False 1"), tensor([2], &[false, true]));
        assert_eq!(run("aten::any a 3 1 0 =0 =True 1"), tensor([1, 3], &[true; 3]));
        assert_eq!(run("aten::all a 1 1 0 1"), tensor([], &[false]));
        assert_eq!(run("aten::any a 1 1 0 1"), tensor([], &[true]));
        let line = "torch.all a 1 1 0 1 dim=0 keepdim=False $input=0";
        assert_eq!(run(line), tensor([3], &[true, false, true]));
        assert_eq!(run("aten::all a 3 1 0 =[0,1] =False 1"), tensor([], &[false]));
        error(&*op("torch.any a 1 1 0 1 dim=2 $input=0"), &[x]);
    }

    #[test]
    fn every_dtype_is_asked_for_zeros() {
        let run = |line: &str, x: Tensor| check(&*op(line), &[x]).remove(0);
        let (any, all) = ("torch.any a 1 1 0 1", "torch.all a 1 1 0 1");
        assert!(values::<bool>(&run(any, tensor([2], &[0.0f32, f32::NAN])))[0]);
        assert!(!values::<bool>(&run(any, tensor([2], &[0.0f64, -0.0])))[0]);
        assert!(!values::<bool>(&run(all, tensor([2], &[i64::MIN, 0])))[0]);
        assert!(values::<bool>(&run(any, tensor([1], &[Complex::new(0.0f32, 1.0)])))[0]);
        assert_eq!(run(all, tensor([2], &[3u8, 255])), tensor([], &[1u8]));
        let nothing = Tensor::zeros(DType::F32, [0, 2]).unwrap();
        assert!(values::<bool>(&run(all, nothing.clone()))[0]);
        assert!(!values::<bool>(&run(any, nothing))[0]);
    }
}

//! Elements that the order of a line decides: medians, k-th elements, modes.
//!
//! <https://pytorch.org/docs/stable/generated/torch.median.html>, `nanmedian`,
//! <https://pytorch.org/docs/stable/generated/torch.kthvalue.html>,
//! <https://pytorch.org/docs/stable/generated/torch.mode.html>. Which of several equal elements
//! gives the position PyTorch leaves open: here it is the first (of a mode the last).

use super::planned;
use crate::activations::softmax::lines;
use crate::support::assemble::leaf;
use crate::support::halves;
use crate::support::rearrange::invalid;
use crate::{
    Arg, BuildError, BuildProblem, Cost, NodeReader, Operator, PlanCx, PlanError, Planned,
    ShapeError, TensorValue, ValueSpec, function, register_op,
};
use plutino_kernels::for_ordered;
use plutino_kernels::number::{Number as _, WideReal};
use plutino_kernels::order::{Pick, pick, scratch_len};
use plutino_kernels::sort::Ranked;
use plutino_tensor::{DType, Shape};

#[derive(Debug)]
struct Choice {
    input: usize,
    what: What,
    /// None: the tensor as one line, and no position.
    dim: Option<i64>,
    keepdim: bool,
    /// Whether the position is an output.
    position: bool,
}

#[derive(Debug)]
enum What {
    Median {
        ignore_nan: bool,
    },
    /// In ascending order, from 1.
    Kth(Arg<i64>),
    Mode,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (what, default) = match function(r.kind()) {
        "kthvalue" => {
            let k = match r.arg("k")? {
                Some(k) => k,
                None => Arg::Value(r.required("k")?),
            };
            (What::Kth(k), Some(-1))
        }
        "mode" => (What::Mode, Some(-1)),
        name => (What::Median { ignore_nan: name == "nanmedian" }, None),
    };
    let (dim, keepdim) = (r.optional("dim")?.or(default), r.or("keepdim", false)?);
    let position = match (dim, r.output_count()) {
        (_, 1) => false,
        (Some(_), 2) => true,
        (dim, found) => {
            let expected = if dim.is_some() { "1 or 2" } else { "1" }.into();
            return Err(r.error(BuildProblem::Outputs { expected, found }));
        }
    };
    Ok(Box::new(Choice { input: r.required_input("input")?, what, dim, keepdim, position }))
}
register_op!(build => "torch.median", "torch.nanmedian", "torch.kthvalue", "torch.mode");

impl Choice {
    /// Lines, what is chosen of each, and the shape of the results.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<([usize; 3], Pick, Shape), ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        let fits = match x.dtype() {
            DType::Bool => matches!(self.what, What::Mode),
            dtype => !dtype.is_complex(),
        };
        if !fits {
            let expected = "a float or an integer".into();
            return Err(ShapeError::DType { input, expected, found: x.dtype() });
        }
        let (sizes, shape) = self.lines(x.shape())?;
        let len = sizes[1];
        let median_of_nothing = self.dim.is_none() && x.dtype().is_float();
        if len == 0 && shape.numel() > 0 && !median_of_nothing {
            return Err(invalid(format!(
                "there is no element to choose: the input is {}",
                x.shape()
            )));
        }
        let pick = match &self.what {
            What::Mode => Pick::Mode,
            What::Median { ignore_nan } => Pick::Median { ignore_nan: *ignore_nan },
            What::Kth(k) => {
                let k = k.int(inputs)?;
                let place = usize::try_from(k).ok().and_then(|k| k.checked_sub(1));
                Pick::Kth(place.filter(|&place| place < len).ok_or_else(|| {
                    invalid(format!("k is {k}, but there are {len} elements in a line"))
                })?)
            }
        };
        Ok((sizes, pick, shape))
    }

    fn lines(&self, shape: &Shape) -> Result<([usize; 3], Shape), ShapeError> {
        let Some(dim) = self.dim else { return Ok(([1, shape.numel(), 1], Shape::scalar())) };
        let mut result = shape.clone();
        let at = shape.dim(dim)?;
        if let (true, Some(size)) = (self.keepdim, result.get_mut(at)) {
            *size = 1;
        } else if at < result.rank() {
            result.remove(at);
        }
        Ok((lines(shape, dim)?, result))
    }
}

impl Operator for Choice {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (_, _, shape) = self.bind(inputs)?;
        let dtype = TensorValue::at(inputs, self.input)?.dtype();
        let mut outputs = vec![ValueSpec::tensor(dtype, shape.clone())];
        if self.position {
            outputs.push(ValueSpec::tensor(DType::I64, shape));
        }
        Ok(outputs)
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (sizes, what, _) = self.bind(cx.inputs)?;
        let dtype = TensorValue::at(cx.inputs, self.input)?.dtype();
        if halves::is_half(dtype) {
            return halves::widened(cx, |cx| self.plan(cx));
        }
        let (input, position) = (leaf(cx.inputs, self.input), self.position);
        let scratch = scratch_len(sizes[1], cx.threads).saturating_mul(size_of::<Ranked>());
        for_ordered!(dtype,
            T => Ok(planned("order.pick", move |cx| {
                let (x, values) = (cx.inputs.get::<T>(input)?, cx.outputs.take::<T>(0)?);
                let indices = if position { Some(cx.outputs.take(1)?) } else { None };
                if sizes[1] == 0 {
                    // Nothing to fill, or the median of nothing.
                    values.fill(T::narrow(WideReal::from_f64(f64::NAN)));
                    return Ok(());
                }
                let scratch = cx.take_scratch()?;
                pick(cx.par, what, sizes, x, values, indices, scratch);
                Ok(())
            })
            .with_scratch(scratch)),
            _ => Err(PlanError::Unsupported(format!("a choice by order of {dtype}"))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let x = TensorValue::at(inputs, self.input).map_or(0, |x| x.shape().numel() as u64);
        Cost { flops: x.saturating_mul(8), ..Cost::moved(inputs, outputs) }
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, tensor, try_op, values};
    use num_complex::Complex;
    use plutino_tensor::{DType, Tensor};

    const NAN: f32 = f32::NAN;

    #[test]
    fn medians() {
        let x = tensor([2, 4], &[4.0f32, 1.0, 3.0, 2.0, 5.0, NAN, 7.0, 6.0]);
        let run = |line: &str| check(&*op(line), std::slice::from_ref(&x));
        let y = run("torch.median m 1 2 0 1 2 dim=1 keepdim=False $input=0");
        assert_eq!((values::<f32>(&y[0])[0], values::<i64>(&y[1])), (2.0, vec![3, 1]));
        assert!(values::<f32>(&y[0])[1].is_nan());
        let y = run("torch.nanmedian m 1 2 0 1 2 dim=-1 keepdim=True");
        assert_eq!(y, [tensor([2, 1], &[2.0f32, 6.0]), tensor([2, 1], &[3i64, 3])]);
        let y = run("torch.median m 1 1 0 1 dim=0");
        assert_eq!(values::<f32>(&y[0])[..1], [4.0]);
        assert!(values::<f32>(&run("torch.median m 1 1 0 1")[0])[0].is_nan());
        assert_eq!(run("torch.nanmedian m 1 1 0 1")[0], tensor([], &[4.0f32]));
        let whole = check(&*op("torch.median m 1 1 0 1"), &[tensor([4], &[7i32, 1, 9, 3])]);
        assert_eq!(whole[0], tensor([], &[3i32]));
        assert!(try_op("torch.median m 1 2 0 1 2", &[]).is_err());
        error(&*op("torch.median m 1 1 0 1"), &[tensor([1], &[true])]);
    }

    #[test]
    fn of_nothing_and_of_scalars() {
        let median = op("torch.median m 1 1 0 1");
        let nothing = |dtype| Tensor::zeros(dtype, [0, 2]).unwrap();
        assert!(values::<f32>(&check(&*median, &[nothing(DType::F32)])[0])[0].is_nan());
        error(&*median, &[nothing(DType::I64)]);
        let along = op("torch.median m 1 2 0 1 2 dim=0");
        error(&*along, &[nothing(DType::F32)]);
        let y = check(&*op("torch.median m 1 2 0 1 2 dim=1"), &[nothing(DType::F32)]);
        assert_eq!(y[1].shape().dims(), [0]);
        let y = check(&*along, &[tensor([], &[3.0f32])]);
        assert_eq!(y, [tensor([], &[3.0f32]), tensor([], &[0i64])]);
    }

    #[test]
    fn elements_in_order_and_modes() {
        let x = tensor([2, 3], &[3i64, 1, 1, 2, 5, 2]);
        let run = |line: &str| check(&*op(line), std::slice::from_ref(&x));
        let y = run("torch.kthvalue k 1 2 0 1 2 k=2 dim=1 keepdim=False $input=0");
        assert_eq!(y, [tensor([2], &[1i64, 2]), tensor([2], &[2i64, 2])]);
        assert_eq!(run("torch.kthvalue k 1 2 0 1 2 k=1 dim=0")[0], tensor([3], &[2i64, 1, 1]));
        let y = run("torch.mode k 1 2 0 1 2 keepdim=True");
        assert_eq!(y, [tensor([2, 1], &[1i64, 2]), tensor([2, 1], &[2i64, 2])]);
        for k in [0, 4] {
            error(&*op(&format!("torch.kthvalue k 1 2 0 1 2 k={k}")), &[iota([3])]);
        }
        let truth = check(&*op("torch.mode k 1 2 0 1 2"), &[tensor([3], &[true, false, true])]);
        assert_eq!(truth[0], tensor([], &[true]));
        error(&*op("torch.mode k 1 2 0 1 2"), &[tensor([1], &[Complex::new(0.0f32, 1.0)])]);
        assert!(try_op("torch.kthvalue k 1 2 0 1 2", &[]).is_err());
    }
}

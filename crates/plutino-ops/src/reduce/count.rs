//! Elements that are not zero, and sums and means of what is no NaN.
//!
//! <https://pytorch.org/docs/stable/generated/torch.count_nonzero.html>,
//! <https://pytorch.org/docs/stable/generated/torch.nansum.html>,
//! <https://pytorch.org/docs/stable/generated/torch.nanmean.html>: a sum of integers and bool is
//! i64; a mean of nothing but NaN is NaN.

use super::{Dims, planned};
use crate::support::assemble::leaf;
use crate::support::halves::{self, Parts};
use crate::support::in_dtype::in_dtype;
use crate::{
    BuildError, Cost, NodeReader, Operator, PlanCx, PlanError, Planned, ShapeError, TensorValue,
    ValueSpec, function, register_op,
};
use plutino_kernels::number::{Number, Wide};
use plutino_kernels::reduce::{Fold, fold_any, sum};
use plutino_kernels::{for_floats, for_numbers};
use plutino_tensor::{DType, Shape};

#[derive(Debug)]
struct Count {
    input: usize,
    what: What,
    dims: Dims,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    NonZero,
    NanSum,
    NanMean,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let what = match function(r.kind()) {
        "count_nonzero" => What::NonZero,
        "nansum" => What::NanSum,
        _ => What::NanMean,
    };
    let (dims, dtype) = (Dims::read(r)?, r.optional("dtype")?);
    let input = r.required_input("input")?;
    match dtype {
        None => Ok(Box::new(Count { input, what, dims })),
        Some(dtype) => in_dtype("nansum", input, Some(dtype), move || {
            Box::new(Count { input: 0, what, dims: dims.clone() })
        }),
    }
}
register_op!(build => "torch.count_nonzero", "torch.nansum", "torch.nanmean");

impl Count {
    /// Dtypes of input and result, which elements are reduced together, and the shape of the
    /// result.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<([DType; 2], Fold, Shape), ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let dtype = x.dtype();
        let whole = dtype.is_integer() || dtype == DType::Bool;
        let (fits, expected, result) = match self.what {
            What::NonZero => (true, "", DType::I64),
            What::NanSum if whole => (true, "", DType::I64),
            What::NanSum => (dtype.is_float(), "a real number", dtype),
            What::NanMean => (dtype.is_float(), "a float", dtype),
        };
        if !fits {
            let (input, expected) = (self.input, expected.into());
            return Err(ShapeError::DType { input, expected, found: dtype });
        }
        let (fold, shape) = self.dims.bind(x.shape())?;
        Ok(([dtype, result], fold, shape))
    }
}

impl Operator for Count {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let ([_, dtype], _, shape) = self.bind(inputs)?;
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let ([dtype, _], fold, _) = self.bind(cx.inputs)?;
        let (input, what) = (leaf(cx.inputs, self.input), self.what);
        if what == What::NonZero {
            return Ok(for_numbers!(dtype, T => planned("reduce.count_nonzero", move |cx| {
                let (x, y) = (cx.inputs.get::<T>(input)?, cx.outputs.take(0)?);
                let zero = <T as Number>::Wide::ZERO;
                let step = |n: i64, _: usize, x: T| n + i64::from(x.widen() != zero);
                fold_any(cx.par, &fold, x, y, 0, step, |n| n);
                Ok(())
            })));
        }
        if halves::is_half(dtype) {
            let dims = self.dims.kept(TensorValue::at(cx.inputs, self.input)?.shape());
            return halves::widened_by(cx, Parts { dims, of: &[self.input] }, |cx| self.plan(cx));
        }
        macro_rules! whole {
            ($($variant:ident $T:ty),*) => {
                for_floats!(dtype, T => planned("reduce.nansum", move |cx| {
                    let (x, y) = (cx.inputs.get::<T>(input)?, cx.outputs.take(0)?);
                    let step = |(sum, n): (f64, u64), _: usize, x: T| {
                        let x = x.widen();
                        if x.is_nan() { (sum, n) } else { (sum + x, n + 1) }
                    };
                    fold_any(cx.par, &fold, x, y, (0.0, 0), step, |(sum, n)| match what {
                        What::NanMean => T::narrow(sum / n as f64),
                        _ => T::narrow(sum),
                    });
                    Ok(())
                }), _ => match dtype {
                    $(DType::$variant => planned("reduce.sum.any", move |cx| {
                        let (x, y) = (cx.inputs.get::<$T>(input)?, cx.outputs.take::<i64>(0)?);
                        sum(cx.par, &fold, 1, x, y);
                        Ok(())
                    }),)*
                    _ => return Err(PlanError::Unsupported(format!("a nansum of {dtype}"))),
                })
            };
        }
        Ok(whole!(I64 i64, I32 i32, I16 i16, I8 i8, U8 u8, Bool bool))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::folded(inputs, outputs, self.input)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, op, tensor};
    use num_complex::Complex;
    use plutino_tensor::{DType, Tensor};

    #[test]
    fn elements_that_are_not_zero() {
        let x = tensor([2, 3], &[0.0f32, 1.0, f32::NAN, -0.0, 0.0, 2.0]);
        let run = |line: &str| check(&*op(line), std::slice::from_ref(&x)).remove(0);
        assert_eq!(run("torch.count_nonzero c 1 1 0 1"), tensor([], &[3i64]));
        let line = "torch.count_nonzero c 1 1 0 1 dim=-1 $input=0";
        assert_eq!(run(line), tensor([2], &[2i64, 1]));
        assert_eq!(run("torch.count_nonzero c 1 1 0 1 dim=(0,1)"), tensor([], &[3i64]));
        let z = tensor([2], &[Complex::new(0.0f32, 1.0), Complex::new(0.0, 0.0)]);
        assert_eq!(check(&*op("torch.count_nonzero c 1 1 0 1"), &[z])[0], tensor([], &[1i64]));
        let truth = check(&*op("torch.count_nonzero c 1 1 0 1"), &[tensor([2], &[true, true])]);
        assert_eq!(truth[0], tensor([], &[2i64]));
    }

    #[test]
    fn sums_and_means_without_nan() {
        let nan = f32::NAN;
        let x = tensor([2, 3], &[1.0f32, nan, 3.0, nan, nan, nan]);
        let run = |line: &str| check(&*op(line), std::slice::from_ref(&x)).remove(0);
        let line = "torch.nanmean n 1 1 0 1 dim=(1) keepdim=True $input=0";
        assert_close(&run(line), &tensor([2, 1], &[2.0, nan]), 0.0);
        assert_eq!(run("torch.nansum n 1 1 0 1 dim=1"), tensor([2], &[4.0f32, 0.0]));
        assert_eq!(run("torch.nansum n 1 1 0 1 dim=None"), tensor([], &[4.0f32]));
        let whole = tensor([2], &[200u8, 100]);
        let y = check(&*op("torch.nansum n 1 1 0 1"), std::slice::from_ref(&whole));
        assert_eq!(y[0], tensor([], &[300i64]));
        error(&*op("torch.nanmean n 1 1 0 1"), &[whole]);
        let nothing = Tensor::zeros(DType::F64, [2, 0]).unwrap();
        let y = check(&*op("torch.nansum n 1 1 0 1 dim=-1"), &[nothing]);
        assert_eq!(y[0], tensor([2], &[0.0f64; 2]));
    }
}

//! <https://pytorch.org/docs/stable/generated/torch.frexp.html>: x = mantissa 2^exponent, with a
//! mantissa from 0.5 to 1, and an exponent of i32. Zeros, infinities and NaN have the exponent 0.

use crate::reduce::planned;
use crate::support::assemble::leaf;
use crate::support::rearrange::invalid;
use crate::{
    BuildError, BuildProblem, NodeReader, Operator, PlanCx, PlanError, Planned, ShapeError,
    TensorValue, ValueSpec, register_op,
};
use plutino_kernels::for_floats;
use plutino_kernels::math::special::frexp;
use plutino_kernels::number::Number as _;
use plutino_tensor::{DType, Shape, stop};

#[derive(Debug)]
struct Frexp {
    input: usize,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    if r.output_count() != 2 {
        let (expected, found) = ("2".into(), r.output_count());
        return Err(r.error(BuildProblem::Outputs { expected, found }));
    }
    Ok(Box::new(Frexp { input: r.required_input("input")? }))
}
register_op!(build => "torch.frexp");

impl Frexp {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Shape), ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        if !x.dtype().is_float() {
            return Err(ShapeError::DType { input, expected: "a float".into(), found: x.dtype() });
        }
        Ok((x.dtype(), x.shape().clone()))
    }
}

impl Operator for Frexp {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, shape) = self.bind(inputs)?;
        Ok(vec![ValueSpec::tensor(dtype, shape.clone()), ValueSpec::tensor(DType::I32, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let ((dtype, _), input) = (self.bind(cx.inputs)?, leaf(cx.inputs, self.input));
        for_floats!(dtype,
            T => Ok(planned("elementwise.frexp", move |cx| {
                let x = cx.inputs.get::<T>(input)?;
                let (mantissas, exponents) = (cx.outputs.take::<T>(0)?, cx.outputs.take(1)?);
                let outputs = mantissas.iter_mut().zip(exponents);
                for (x, (mantissa, exponent)) in stop::paced(x.iter().zip(outputs), 1) {
                    // Exact in f64, whatever the dtype.
                    let parts = frexp(x.widen());
                    (*mantissa, *exponent) = (T::narrow(parts.0), parts.1);
                }
                Ok(())
            })),
            _ => Err(invalid("frexp of floats alone").into()),
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, op, tensor, try_op};
    use plutino_tensor::{DType, Tensor};

    #[test]
    fn of_numbers_of_all_sizes() {
        let x =
            tensor([7], &[0.0f32, -0.0, 1.0, -3.5, f32::INFINITY, f32::MIN_POSITIVE / 4.0, 0.4]);
        let y = check(&*op("torch.frexp f 1 2 0 1 2"), std::slice::from_ref(&x));
        let mantissas = [0.0f32, -0.0, 0.5, -0.875, f32::INFINITY, 0.5, 0.8];
        assert_eq!(y, [tensor([7], &mantissas), tensor([7], &[0i32, 0, 1, 2, 0, -127, -1])]);
        for dtype in [DType::F64, DType::F16, DType::Bf16] {
            let x = tensor([3], &[f32::NAN, 24.0, -0.75]).cast(dtype).unwrap();
            let y = check(&*op("torch.frexp f 1 2 0 1 2"), std::slice::from_ref(&x));
            let mantissas = y[0].cast(DType::F32).unwrap();
            assert_eq!(mantissas.as_slice::<f32>().unwrap()[1..], [0.75, -0.75]);
            assert_eq!((y[0].dtype(), &y[1]), (dtype, &tensor([3], &[0i32, 5, 0])));
        }
        error(&*op("torch.frexp f 1 2 0 1 2"), &[Tensor::zeros(DType::I64, [2]).unwrap()]);
        assert!(try_op("torch.frexp f 1 1 0 1", &[]).is_err());
    }
}

//! Local response normalisation across channels.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.LocalResponseNorm.html>

use crate::support::assemble::leaf;
use crate::support::halves::{self, Parts};
use crate::{
    BuildError, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::norm::{LocalResponse, local_response, local_response_any};
use plutino_kernels::number::Float;
use plutino_kernels::{Isa, for_floats};
use plutino_tensor::DType;
use std::marker::PhantomData;

#[derive(Debug)]
struct LocalResponseNorm {
    input: usize,
    norm: LocalResponse,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let size: usize = r.required("size")?;
    if size == 0 {
        return Err(r.bad("size", "an integer of at least 1"));
    }
    let (alpha, beta, k) = (r.or("alpha", 1e-4)?, r.or("beta", 0.75)?, r.or("k", 1.0)?);
    let norm = LocalResponse { size, alpha, beta, k };
    Ok(Box::new(LocalResponseNorm { input: r.required_input("input")?, norm }))
}
register_op!(build => "nn.LocalResponseNorm", "F.local_response_norm");

impl Operator for LocalResponseNorm {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        if x.shape().rank() < 3 {
            let (expected, found) = ("at least 3".into(), x.shape().clone());
            return Err(ShapeError::Rank { input, expected, found });
        }
        if !x.dtype().is_float() {
            return Err(ShapeError::DType { input, expected: "a float".into(), found: x.dtype() });
        }
        Ok(vec![ValueSpec::tensor(x.dtype(), x.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, self.input)?;
        let shape = x.shape();
        let sizes = [shape[0], shape[1], shape.product(2..shape.rank())];
        let (norm, input) = (self.norm, leaf(cx.inputs, self.input));
        if x.dtype() == DType::F32 {
            return Ok(Planned::new(F32 { isa: cx.isa, norm, sizes, input }));
        }
        if halves::is_half(x.dtype()) {
            return halves::widened_by(cx, Parts { dims: 1, of: &[self.input] }, |cx| {
                self.plan(cx)
            });
        }
        for_floats!(x.dtype(),
            T => Ok(Planned::new(Any::<T> { norm, sizes, input, element: PhantomData })),
            _ => Err(PlanError::Unsupported(format!("a normalisation of {}", x.dtype()))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::elementwise(inputs, outputs, (self.norm.size as u64).saturating_mul(2))
    }
}

struct F32 {
    isa: Isa,
    norm: LocalResponse,
    sizes: [usize; 3],
    input: usize,
}

impl Kernel for F32 {
    fn name(&self) -> &str {
        "local_response"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (x, y) = (cx.inputs.get(self.input)?, cx.outputs.take(0)?);
        local_response(self.isa, cx.par, &self.norm, self.sizes, x, y);
        Ok(())
    }
}

struct Any<T> {
    norm: LocalResponse,
    sizes: [usize; 3],
    input: usize,
    element: PhantomData<T>,
}

impl<T: Float> Kernel for Any<T> {
    fn name(&self) -> &str {
        "local_response.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (x, y) = (cx.inputs.get::<T>(self.input)?, cx.outputs.take::<T>(0)?);
        local_response_any(cx.par, &self.norm, self.sizes, x, y);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{assert_close, check, error, op, random, tensor, try_op, values};

    #[test]
    fn agrees_with_the_reference() {
        for shape in [vec![2, 7, 9], vec![1, 5, 4, 6], vec![1, 4, 2, 3, 4]] {
            let norm = op("nn.LocalResponseNorm l 1 1 0 1 alpha=0.5 beta=0.8 k=0.9 size=4");
            let x = random(shape.clone(), 1);
            let sizes = [shape[0], shape[1], shape[2..].iter().product()];
            let plain = LocalResponse { size: 4, alpha: 0.5, beta: 0.8, k: 0.9 };
            let reference = plutino_reference::norm::local_response;
            let y: Vec<f32> =
                reference(&plain, sizes, &values::<f32>(&x)).iter().map(|&v| v as f32).collect();
            assert_close(&check(&*norm, &[x])[0], &tensor(shape, &y), 2e-6);
        }
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        assert!(try_op("F.local_response_norm l 1 1 0 1 size=0 $input=0", &[]).is_err());
        let norm = op("F.local_response_norm l 1 1 0 1 size=2 $input=0");
        assert!(error(&*norm, &[random([3, 4], 1)]).to_string().contains("at least 3"));
    }
}

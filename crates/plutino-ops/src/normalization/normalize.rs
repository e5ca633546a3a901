//! Vectors over their norm: `F.normalize`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.normalize.html>

use crate::activations::softmax::lines;
use crate::support::assemble::leaf;
use crate::support::halves::{self, Parts};
use crate::{
    BuildError, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::norm::{unit_rows, unit_rows_any};
use plutino_kernels::number::Float;
use plutino_kernels::{Isa, for_floats};
use plutino_tensor::DType;
use std::marker::PhantomData;

#[derive(Debug, Clone)]
struct Normalize {
    input: usize,
    p: f64,
    dim: i64,
    eps: f64,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (p, dim, eps) = (r.or("p", 2.0)?, r.or("dim", 1)?, r.or("eps", 1e-12)?);
    Ok(Box::new(Normalize { input: r.required_input("input")?, p, dim, eps }))
}
register_op!(build => "F.normalize");

impl Operator for Normalize {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        x.shape().dim(self.dim)?;
        if !x.dtype().is_float() {
            return Err(ShapeError::DType { input, expected: "a float".into(), found: x.dtype() });
        }
        Ok(vec![ValueSpec::tensor(x.dtype(), x.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, self.input)?;
        if halves::is_half(x.dtype()) {
            return halves::widened_by(
                cx,
                Parts {
                    dims: x.shape().dim(self.dim).map_err(ShapeError::from)?,
                    of: &[self.input],
                },
                |cx| self.plan(cx),
            );
        }
        let sizes = lines(x.shape(), self.dim)?;
        let (operator, input) = (self.clone(), leaf(cx.inputs, self.input));
        if x.dtype() == DType::F32 {
            let norms = sizes[0].saturating_mul(sizes[2]).saturating_mul(size_of::<f32>());
            let kernel = F32 { isa: cx.isa, operator, sizes, input };
            return Ok(Planned::new(kernel).with_scratch(norms));
        }
        for_floats!(x.dtype(),
            T => Ok(Planned::new(Any::<T> { operator, sizes, input, element: PhantomData })),
            _ => Err(PlanError::Unsupported(format!("a normalisation of {}", x.dtype()))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::elementwise(inputs, outputs, 3)
    }
}

struct F32 {
    isa: Isa,
    operator: Normalize,
    sizes: [usize; 3],
    input: usize,
}

impl Kernel for F32 {
    fn name(&self) -> &str {
        "unit_rows"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let scratch = cx.take_scratch::<f32>()?;
        let (x, y) = (cx.inputs.get(self.input)?, cx.outputs.take(0)?);
        let norms = &mut scratch[..self.sizes[0] * self.sizes[2]];
        let Normalize { p, eps, .. } = self.operator;
        unit_rows(self.isa, cx.par, p, eps, self.sizes, x, y, norms);
        Ok(())
    }
}

struct Any<T> {
    operator: Normalize,
    sizes: [usize; 3],
    input: usize,
    element: PhantomData<T>,
}

impl<T: Float> Kernel for Any<T> {
    fn name(&self) -> &str {
        "unit_rows.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (x, y) = (cx.inputs.get::<T>(self.input)?, cx.outputs.take::<T>(0)?);
        unit_rows_any(cx.par, self.operator.p, self.operator.eps, self.sizes, x, y);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{assert_close, check, error, op, random, tensor, values};

    #[test]
    fn agrees_with_the_reference() {
        for (shape, dim) in [
            (vec![5], 0),
            (vec![3, 24], 1),
            (vec![2, 5, 7], 1),
            (vec![2, 5, 7], -1),
            (vec![4, 3], 0),
        ] {
            for p in [1.0, 2.0, 3.0] {
                let x = random(shape.clone(), 1);
                let line = format!("F.normalize n 1 1 0 1 dim={dim} eps=0.001 p={p:?} $input=0");
                let sizes = lines(x.shape(), dim).unwrap();
                let y = plutino_reference::norm::unit(p, 1e-3, sizes, &values::<f32>(&x));
                let y: Vec<f32> = y.iter().map(|&v| v as f32).collect();
                assert_close(&check(&*op(&line), &[x])[0], &tensor(shape.clone(), &y), 1e-6);
            }
        }
        let zeros = check(&*op("F.normalize n 1 1 0 1 $input=0"), &[tensor([1, 3], &[0.0f32; 3])]);
        assert_eq!(values::<f32>(&zeros[0]), [0.0; 3]);
        error(&*op("F.normalize n 1 1 0 1 dim=1 $input=0"), &[random([3], 1)]);
    }
}

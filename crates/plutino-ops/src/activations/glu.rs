//! The gated linear unit: `F.glu`, `nn.GLU`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.glu.html>: a dimension is cut
//! into halves a and b, the result is `a sigmoid(b)`.

use crate::shaping::slice::existing;
use crate::support::assemble::leaf;
use crate::support::halves::{self, Parts};
use crate::{
    BuildError, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::glu::{glu, glu_any};
use plutino_kernels::{Isa, for_floats};
use plutino_tensor::{DType, Shape};

#[derive(Debug)]
struct Glu {
    input: usize,
    dim: i64,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.or("dim", -1)?;
    Ok(Box::new(Glu { input: r.required_input("input")?, dim }))
}
register_op!(build => "F.glu", "nn.GLU");

impl Glu {
    /// The dtype, the shape of the result, and elements of a half: those of its dimension and all
    /// behind it.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Shape, usize), ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        if !x.dtype().is_float() {
            return Err(ShapeError::DType { input, expected: "a float".into(), found: x.dtype() });
        }
        let dim = existing(x.shape(), self.dim)?;
        let mut shape = x.shape().clone();
        if shape[dim] % 2 != 0 {
            let (expected, found) = ("even".into(), shape);
            return Err(ShapeError::Size { input, dim, expected, found });
        }
        shape[dim] /= 2;
        let half = shape.product(dim..shape.rank());
        Ok((x.dtype(), shape, half))
    }
}

impl Operator for Glu {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, shape, _) = self.bind(inputs)?;
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, _, half) = self.bind(cx.inputs)?;
        if halves::is_half(dtype) {
            let dims = existing(TensorValue::at(cx.inputs, self.input)?.shape(), self.dim)?;
            return halves::widened_by(cx, Parts { dims, of: &[self.input] }, |cx| self.plan(cx));
        }
        let input = leaf(cx.inputs, self.input);
        Ok(Planned::new(Gate { dtype, input, half, isa: cx.isa }))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::elementwise(inputs, outputs, 4)
    }
}

struct Gate {
    dtype: DType,
    input: usize,
    half: usize,
    isa: Isa,
}

impl Kernel for Gate {
    fn name(&self) -> &str {
        "glu"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        if self.dtype == DType::F32 {
            glu(self.isa, cx.par, self.half, cx.inputs.get(self.input)?, cx.outputs.take(0)?);
            return Ok(());
        }
        for_floats!(self.dtype,
            T => {
                glu_any::<T>(cx.par, self.half, cx.inputs.get(self.input)?, cx.outputs.take(0)?);
                Ok(())
            },
            _ => Err(RunError::Internal("a gated linear unit is made of floats".into())),
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, iota, op, tensor};
    use plutino_tensor::DType;

    #[test]
    fn halves_of_any_dimension() {
        let x = tensor([2, 2], &[3.0f32, 4.0, 0.0, 0.0]);
        let y = check(&*op("F.glu g 1 1 0 1 dim=0 $input=0"), std::slice::from_ref(&x));
        assert_close(&y[0], &tensor([1, 2], &[1.5f32, 2.0]), 0.0);
        let glu = op("nn.GLU g 1 1 0 1 dim=-1");
        let y = check(&*glu, std::slice::from_ref(&x));
        let sigmoid = 1.0 / (1.0 + (-4.0f32).exp());
        assert_close(&y[0], &tensor([2, 1], &[3.0 * sigmoid, 0.0]), 1e-6);
        let wide = check(&*glu, &[x.cast(DType::F64).unwrap()]);
        assert_close(&wide[0].cast(DType::F32).unwrap(), &y[0], 1e-6);
        assert_eq!(check(&*glu, &[iota([3, 0])])[0], iota([3, 0]));
        error(&*glu, &[iota([3])]);
        error(&*glu, &[iota([])]);
        error(&*glu, &[tensor([2], &[1i32, 2])]);
    }
}

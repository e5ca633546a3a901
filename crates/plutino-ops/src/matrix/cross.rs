//! The cross product of vectors of three elements.
//!
//! <https://pytorch.org/docs/stable/generated/torch.cross.html>. Without `dim` it is the first
//! dimension of the input that has three elements.

use crate::support::assemble::{leaf, same_dtype};
use crate::support::rearrange::invalid;
use crate::{
    BuildError, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::cross::{Vectors, cross};
use plutino_kernels::for_numbers;
use plutino_tensor::{DType, Shape};

#[derive(Debug)]
struct Cross {
    input: usize,
    other: usize,
    dim: Option<i64>,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.optional("dim")?;
    let (input, other) = (r.required_input("input")?, r.required_input("other")?);
    Ok(Box::new(Cross { input, other, dim }))
}
register_op!(build => "torch.cross", "torch.linalg.cross");

impl Cross {
    /// Dtype and shape of the result, and where the vectors lie.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Shape, Vectors), ShapeError> {
        let (a, b) = (TensorValue::at(inputs, self.input)?, TensorValue::at(inputs, self.other)?);
        let dtype = same_dtype((self.input, a.dtype()), [(self.other, b.dtype())])?;
        let (a, b) = (a.shape(), b.shape());
        let dim = match self.dim {
            Some(dim) => a.dim(dim)?,
            None => a.iter().position(|&size| size == 3).unwrap_or(0),
        };
        if a.rank() != b.rank() || a.get(dim) != Some(&3) || b.get(dim) != Some(&3) {
            return Err(invalid(format!(
                "a cross product along dimension {dim} needs two tensors of the same number of dimensions with \
                 three elements there, not {a} and {b}"
            )));
        }
        let shape = a.broadcast(b)?;
        let strides = [a, b, &shape].map(|s| (s, s.dense_strides()));
        let step = |d: usize| {
            strides.each_ref().map(|(s, strides)| if s[d] == shape[d] { strides[d] } else { 0 })
        };
        let around = (0..shape.rank()).filter(|&d| d != dim);
        let vectors = Vectors {
            lens: around.clone().map(|d| shape[d]).collect(),
            steps: around.map(step).collect(),
            inner: step(dim).map(isize::unsigned_abs),
        };
        Ok((dtype, shape, vectors))
    }
}

impl Operator for Cross {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, shape, _) = self.bind(inputs)?;
        if dtype == DType::Bool {
            let expected = "a number".into();
            return Err(ShapeError::DType { input: self.input, expected, found: dtype });
        }
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, _, vectors) = self.bind(cx.inputs)?;
        let at = [self.input, self.other].map(|i| leaf(cx.inputs, i));
        Ok(Planned::new(CrossKernel { dtype, at, vectors }))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::elementwise(inputs, outputs, 3)
    }
}

struct CrossKernel {
    dtype: DType,
    /// Leaves of the two operands.
    at: [usize; 2],
    vectors: Vectors,
}

impl Kernel for CrossKernel {
    fn name(&self) -> &str {
        "cross"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let [a, b] = self.at;
        for_numbers!(self.dtype, T => {
            let (a, b) = (cx.inputs.get::<T>(a)?, cx.inputs.get::<T>(b)?);
            cross(cx.par, &self.vectors, a, b, cx.outputs.take::<T>(0)?);
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, tensor, values};

    #[test]
    fn the_dimension_is_given_or_found() {
        let x = [
            tensor([2, 3], &[1.0f32, 0., 0., 0., 1., 0.]),
            tensor([2, 3], &[0.0f32, 1., 0., 0., 0., 1.]),
        ];
        for dim in ["None", "1", "-1"] {
            let y =
                check(&*op(&format!("torch.cross c 2 1 0 1 2 dim={dim} $input=0 $other=1")), &x);
            assert_eq!(values::<f32>(&y[0]), [0., 0., 1., 1., 0., 0.]);
        }
        // (3, 3): the first dimension, without a dim.
        let x = [iota([3, 3]), tensor([3, 3], &[1.0f32, 0., 0., 0., 1., 0., 0., 0., 1.])];
        let y = check(&*op("torch.cross c 2 1 0 1 2 dim=None $input=0 $other=1"), &x);
        assert_eq!(values::<f32>(&y[0]), [0., -7., 5., 6., 0., -2., -3., 1., 0.]);
    }

    #[test]
    fn operands_are_broadcast() {
        let cross = op("torch.cross c 2 1 0 1 2 dim=-1 $input=0 $other=1");
        let (a, b) =
            (tensor([2, 1, 3], &[1i64, 0, 0, 0, 1, 0]), tensor([1, 2, 3], &[0i64, 1, 0, 0, 0, 1]));
        let y = check(&*cross, &[a, b]);
        assert_eq!(y[0], tensor([2, 2, 3], &[0i64, 0, 1, 0, -1, 0, 0, 0, 0, 1, 0, 0]));
        error(&*cross, &[iota([3]), iota([2, 3])]);
        error(&*cross, &[iota([2, 3]), iota([2, 2])]);
        error(&*cross, &[iota([2, 3]), tensor([2, 3], &[0i32; 6])]);
        assert_eq!(check(&*cross, &[iota([0, 3]), iota([0, 3])])[0], iota([0, 3]));
        error(&*op("torch.cross c 2 1 0 1 2 dim=None"), &[iota([2, 2]), iota([2, 2])]);
    }
}

//! Distances of pairs of vectors.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.pairwise_distance.html>: the
//! p-norm of `x1 - x2 + eps` along the last dimension.

use crate::support::assemble::{leaf, same_dtype};
use crate::support::halves;
use crate::{
    BuildError, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::distance::{Pairs, distance};
use plutino_kernels::elementwise::real_of;
use plutino_kernels::{Isa, for_floats, for_numbers};
use plutino_tensor::{DType, Shape};

#[derive(Debug)]
struct PairwiseDistance {
    x1: usize,
    x2: usize,
    p: f64,
    eps: f64,
    keepdim: bool,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let key = if r.has("norm") { "norm" } else { "p" };
    let (p, eps, keepdim) = (r.or(key, 2.0)?, r.or("eps", 1e-6)?, r.or("keepdim", false)?);
    let (x1, x2) = (r.required_input("x1")?, r.required_input("x2")?);
    Ok(Box::new(PairwiseDistance { x1, x2, p, eps, keepdim }))
}
register_op!(build => "F.pairwise_distance", "nn.PairwiseDistance");

impl PairwiseDistance {
    /// Dtype of the inputs, shape of the result, and where the vectors lie.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Shape, Pairs), ShapeError> {
        let (a, b) = (TensorValue::at(inputs, self.x1)?, TensorValue::at(inputs, self.x2)?);
        let dtype = same_dtype((self.x1, a.dtype()), [(self.x2, b.dtype())])?;
        if dtype == DType::Bool {
            let expected = "a number".into();
            return Err(ShapeError::DType { input: self.x1, expected, found: dtype });
        }
        let mut shape = a.shape().broadcast(b.shape())?;
        let strides = [a.shape(), b.shape()].map(|s| (s, s.dense_strides()));
        let step = |d: usize| {
            strides.each_ref().map(|(s, strides)| match (d + s.rank()).checked_sub(shape.rank()) {
                Some(own) if s[own] == shape[d] => strides[own],
                _ => 0,
            })
        };
        let Some(last) = shape.rank().checked_sub(1) else {
            let (expected, found) = ("at least 1".into(), shape);
            return Err(ShapeError::Rank { input: self.x1, expected, found });
        };
        let pairs = Pairs {
            lens: shape[..last].to_vec(),
            steps: (0..last).map(step).collect(), // bounded: dimensions
            len: shape[last],
            inner: step(last).map(isize::unsigned_abs),
        };
        if pairs.len == 0 && (self.p < 0.0 || self.p == f64::INFINITY) {
            let what = format!("there is no norm of order {} of nothing: {shape}", self.p);
            return Err(ShapeError::Invalid(what));
        }
        if self.keepdim {
            shape[last] = 1;
        } else {
            shape.remove(last);
        }
        Ok((dtype, shape, pairs))
    }
}

/// The dtype of distances: real, and a float.
fn result_dtype(dtype: DType) -> DType {
    if dtype.is_integer() { DType::F32 } else { real_of(dtype) }
}

impl Operator for PairwiseDistance {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, shape, _) = self.bind(inputs)?;
        Ok(vec![ValueSpec::tensor(result_dtype(dtype), shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, _, pairs) = self.bind(cx.inputs)?;
        if halves::is_half(dtype) {
            return halves::widened(cx, |cx| self.plan(cx));
        }
        let at = [self.x1, self.x2].map(|i| leaf(cx.inputs, i));
        Ok(Planned::new(Distances { isa: cx.isa, dtype, at, pairs, p: self.p, eps: self.eps }))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let flops = self.bind(inputs).map_or(0, |(_, shape, pairs)| {
            4u64.saturating_mul(shape.numel().saturating_mul(pairs.len) as u64)
        });
        Cost { flops, ..Cost::moved(inputs, outputs) }
    }
}

struct Distances {
    isa: Isa,
    dtype: DType,
    /// Leaves of the two inputs.
    at: [usize; 2],
    pairs: Pairs,
    p: f64,
    eps: f64,
}

impl Kernel for Distances {
    fn name(&self) -> &str {
        "distance"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let [a, b] = self.at;
        for_numbers!(self.dtype, T => {
            let (a, b) = (cx.inputs.get::<T>(a)?, cx.inputs.get::<T>(b)?);
            for_floats!(result_dtype(self.dtype),
                U => {
                    let y = cx.outputs.take::<U>(0)?;
                    distance(self.isa, cx.par, &self.pairs, self.p, self.eps, a, b, y);
                    Ok(())
                },
                _ => Err(RunError::Internal("a distance is a float".into())),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, iota, op, tensor};
    use plutino_tensor::DType;

    #[test]
    fn distances_along_the_last_dimension() {
        let line = "F.pairwise_distance d 2 1 0 1 2 eps=0.0 keepdim=True p=2.0 $x1=0 $x2=1";
        let y = check(&*op(line), &[iota([2, 2]), tensor([2], &[3.0f32, 5.0])]);
        assert_close(&y[0], &tensor([2, 1], &[5.0, 5.0f32.sqrt()]), 0.0);
        let line = "F.pairwise_distance d 2 1 0 1 2 eps=0.5 keepdim=False p=1.0 $x1=0 $x2=1";
        let y = check(&*op(line), &[iota([2, 1, 2]), iota([3, 2])]);
        let expected = [1.0f32, 3., 7., 5., 1., 3.];
        assert_close(&y[0], &tensor([2, 3], &expected), 0.0);
        let vectors = check(&*op(line), &[iota([2]), iota([2])]);
        assert_eq!(vectors[0], tensor([], &[1.0f32]));
        assert_eq!(check(&*op(line), &[iota([2, 0]), iota([2, 0])])[0], tensor([2], &[0.0f32; 2]));
        let ints = check(&*op(line), &[tensor([2], &[1i64, 5]), tensor([2], &[0i64, 0])]);
        assert_eq!(ints[0], tensor([], &[7.0f32]));
        error(&*op(line), &[iota([2]), iota([3])]);
        error(&*op(line), &[iota([]), iota([])]);
        error(&*op(line), &[iota([2]), iota([2]).cast(DType::F64).unwrap()]);
    }
}

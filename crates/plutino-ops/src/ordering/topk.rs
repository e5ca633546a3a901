//! The k greatest or least elements along a dimension.
//!
//! <https://pytorch.org/docs/stable/generated/torch.topk.html>. They come in order, whether
//! `sorted` asks for it or not.

use crate::activations::softmax::lines;
use crate::support::assemble::leaf;
use crate::support::rearrange::invalid;
use crate::{
    Arg, BuildError, BuildProblem, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned,
    RunCx, RunError, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::for_ordered;
use plutino_kernels::topk::topk;
use plutino_tensor::{DType, Shape};

#[derive(Debug)]
struct TopK {
    input: usize,
    k: Arg<i64>,
    dim: i64,
    largest: bool,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (dim, largest) = (r.or("dim", -1)?, r.or("largest", true)?);
    let _: bool = r.or("sorted", true)?; // leaves the order open; ours is always the same
    let k = match r.arg("k")? {
        Some(k) => k,
        None => Arg::Value(r.required("k")?),
    };
    if r.output_count() != 2 {
        let (expected, found) = ("2".into(), r.output_count());
        return Err(r.error(BuildProblem::Outputs { expected, found }));
    }
    Ok(Box::new(TopK { input: r.required_input("input")?, k, dim, largest }))
}
register_op!(build => "torch.topk");

impl TopK {
    /// Lines, how many elements of each, and the shape of the outputs.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<([usize; 3], usize, Shape), ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        if x.dtype().is_complex() || x.dtype() == DType::Bool {
            let expected = "a float or an integer".into();
            return Err(ShapeError::DType { input, expected, found: x.dtype() });
        }
        let sizes = lines(x.shape(), self.dim)?;
        let k = self.k.int(inputs)?;
        let k = usize::try_from(k).ok().filter(|&k| k <= sizes[1]).ok_or_else(|| {
            invalid(format!(
                "k is {k}, but dimension {} of {} has {}",
                self.dim,
                x.shape(),
                sizes[1]
            ))
        })?;
        let mut shape = x.shape().clone();
        if let Some(size) = shape.get_mut(x.shape().dim(self.dim)?) {
            *size = k;
        }
        Ok((sizes, k, shape))
    }
}

impl Operator for TopK {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (_, _, shape) = self.bind(inputs)?;
        let dtype = TensorValue::at(inputs, self.input)?.dtype();
        Ok(vec![ValueSpec::tensor(dtype, shape.clone()), ValueSpec::tensor(DType::I64, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (sizes, k, _) = self.bind(cx.inputs)?;
        let (input, largest) = (leaf(cx.inputs, self.input), self.largest);
        let dtype = TensorValue::at(cx.inputs, self.input)?.dtype();
        Ok(Planned::new(TopKKernel { dtype, input, sizes, k, largest }))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::folded(inputs, outputs, self.input)
    }
}

struct TopKKernel {
    dtype: DType,
    input: usize,
    sizes: [usize; 3],
    k: usize,
    largest: bool,
}

impl Kernel for TopKKernel {
    fn name(&self) -> &str {
        "topk"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        for_ordered!(self.dtype,
            T => {
                let x = cx.inputs.get::<T>(self.input)?;
                let (values, indices) = (cx.outputs.take::<T>(0)?, cx.outputs.take(1)?);
                topk(cx.par, self.sizes, self.k, self.largest, x, values, indices)?;
                Ok(())
            },
            _ => Err(RunError::Internal("complex numbers have no order".into())),
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::ValueSpec;
    use crate::testkit::{check, check_values, error, iota, op, specs, tensor, try_op};

    #[test]
    fn values_and_indices() {
        let x = tensor([2, 3], &[3.0f32, 1.0, 2.0, 4.0, 6.0, 5.0]);
        let two = op("torch.topk t 1 2 0 1 2 dim=-1 k=2 largest=True sorted=True $input=0");
        let y = check(&*two, std::slice::from_ref(&x));
        assert_eq!(y[0], tensor([2, 2], &[3.0f32, 2.0, 6.0, 5.0]));
        assert_eq!(y[1], tensor([2, 2], &[0i64, 2, 1, 2]));
        let least = op("torch.topk t 1 2 0 1 2 dim=0 k=1 largest=False sorted=False $input=0");
        let y = check(&*least, std::slice::from_ref(&x));
        assert_eq!(
            (&y[0], &y[1]),
            (&tensor([1, 3], &[3.0f32, 1.0, 2.0]), &tensor([1, 3], &[0i64; 3]))
        );
        let y = check(&*least, &[tensor([], &[7i32])]);
        assert_eq!((&y[0], &y[1]), (&tensor([], &[7i32]), &tensor([], &[0i64])));
        error(&*two, &[iota([2, 1])]);
        error(&*two, &[tensor([2], &[true, false])]);
        assert!(try_op("torch.topk t 1 1 0 1 k=1 $input=0", &[]).is_err());
    }

    #[test]
    fn k_may_be_an_input() {
        let topk = op("torch.topk t 2 2 0 1 2 3 dim=0 $input=0 $k=1");
        let x = tensor([3], &[1i64, 3, 2]);
        let inputs = [specs(std::slice::from_ref(&x)).remove(0), ValueSpec::python(1i64).unwrap()];
        let y = check_values(&*topk, &inputs, &[x, tensor([], &[1i64])]);
        assert_eq!(y[0], tensor([1], &[3i64]));
    }
}

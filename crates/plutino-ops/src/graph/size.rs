//! The size of a tensor: `Tensor.size`, a Python int or a list of them.
//!
//! Most exports compute with sizes in `pnnx.Expression`; what is not arithmetic keeps this
//! operator.

use crate::{
    Arg, BuildError, NodeReader, Operator, PlanCx, PlanError, Planned, ShapeError, TensorValue,
    ValueSpec, register_op,
};
use plutino_tensor::TensorError;

register_op!(size => "Tensor.size");

/// <https://pytorch.org/docs/stable/generated/torch.Tensor.size.html>
fn size(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.arg("dim")?;
    let input = r.required_input("input")?;
    let dim = dim.or_else(|| r.input("dim").map(Arg::Input));
    Ok(Box::new(Size { input, dim }))
}

#[derive(Debug)]
struct Size {
    input: usize,
    /// None for the sizes of all dimensions.
    dim: Option<Arg<i64>>,
}

impl Operator for Size {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let shape = TensorValue::at(inputs, self.input)?.shape();
        let sizes = match &self.dim {
            Some(dim) => {
                let dim = dim.int(inputs)?;
                // A scalar has no dimension 0 to ask for, though it is a valid number elsewhere.
                let no_such = TensorError::Dim { dim, rank: shape.rank() };
                let size = *shape.get(shape.dim(dim)?).ok_or(no_such)?;
                ValueSpec::python(size as i64)
            }
            None => {
                ValueSpec::python_ints(&shape.iter().map(|&size| size as i64).collect::<Vec<_>>())
            }
        };
        Ok(vec![sizes?])
    }

    fn plan(&self, _: &PlanCx<'_>) -> Result<Planned, PlanError> {
        Ok(Planned::views(Vec::new())) // known: nothing to compute
    }
}

#[cfg(test)]
mod tests {
    use crate::ValueSpec;
    use crate::testkit::{check, check_values, error, iota, op, specs, tensor};

    #[test]
    fn sizes_are_known_before_the_run() {
        let x = iota([2, 3, 5]);
        let ints = |line: &str| {
            let operator = op(line);
            check(&*operator, std::slice::from_ref(&x));
            operator.infer(&specs(std::slice::from_ref(&x))).unwrap()[0].known_ints().unwrap()
        };
        assert_eq!(ints("Tensor.size s 1 1 0 1 dim=1 $input=0"), [3]);
        assert_eq!(ints("Tensor.size s 1 1 0 1 dim=-1"), [5]);
        assert_eq!(ints("Tensor.size s 1 1 0 1 $input=0"), [2, 3, 5]);
        error(&*op("Tensor.size s 1 1 0 1 dim=3"), std::slice::from_ref(&x));
        error(&*op("Tensor.size s 1 1 0 1 dim=0"), &[tensor([], &[1.0f32])]);
    }

    #[test]
    fn the_dimension_may_be_an_input() {
        let inputs = [iota([2, 3]).spec().into(), ValueSpec::python(1i64).unwrap()];
        let data = [iota([2, 3]), tensor([], &[1i64])];
        for line in ["Tensor.size s 2 1 0 1 2 $input=0 $dim=1", "Tensor.size s 2 1 0 1 2"] {
            let y = check_values(&*op(line), &inputs, &data);
            assert_eq!(y[0], tensor([], &[3i64]));
        }
    }
}

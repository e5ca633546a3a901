//! Class numbers as rows of zeros with a single one: `F.one_hot`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.one_hot.html>. Without a number
//! of classes there are as many as the greatest one asks for, which depends on data.

use crate::indexing::gather::value_error;
use crate::support::assemble::leaf;
use crate::support::rearrange::{invalid, subject};
use crate::{
    Arg, BuildError, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::Par;
use plutino_kernels::copy::index::{Along, Reduce, scatter};
use plutino_tensor::{DType, Shape, Tensor};

#[derive(Debug)]
struct OneHot {
    input: usize,
    /// -1: as many as the greatest one asks for.
    classes: Arg<i64>,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let classes = r.arg("num_classes")?.unwrap_or(Arg::Value(-1));
    Ok(Box::new(OneHot { input: subject(r)?, classes }))
}
register_op!(build => "F.one_hot");

impl OneHot {
    /// The classes, and the shape of the result, where the file says how many there are.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<Option<(usize, Shape)>, ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        if x.dtype() != DType::I64 {
            return Err(ShapeError::DType { input, expected: "i64".into(), found: x.dtype() });
        }
        let classes = match self.classes.int(inputs)? {
            -1 => return Ok(None),
            given => {
                usize::try_from(given).ok().filter(|&classes| classes > 0).ok_or_else(|| {
                    invalid(format!("num_classes is {given}: it must be at least 1, or -1"))
                })?
            }
        };
        let mut shape = x.shape().clone();
        shape.push(classes);
        shape.checked_numel()?;
        Ok(Some((classes, shape)))
    }
}

impl Operator for OneHot {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        Ok(vec![match self.bind(inputs)? {
            Some((_, shape)) => ValueSpec::tensor(DType::I64, shape),
            None => ValueSpec::Dynamic { dtype: DType::I64 },
        }])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let classes = self.bind(cx.inputs)?.map(|(classes, _)| classes);
        Ok(Planned::new(OneHotKernel { input: leaf(cx.inputs, self.input), classes }))
    }
}

struct OneHotKernel {
    input: usize,
    classes: Option<usize>,
}

impl OneHotKernel {
    fn fill(&self, par: &Par, x: &[i64], classes: usize, y: &mut [i64]) -> Result<(), RunError> {
        y.fill(0);
        let width = isize::try_from(classes).unwrap_or(isize::MAX);
        let along = Along { shape: &[x.len(), 1], strides: &[width, 1], dim: 1, size: classes };
        scatter(par, &[1], &[0, 0], y, x, along, Reduce::Replace)
            .map_err(|e| value_error(self.input, e))
    }
}

impl Kernel for OneHotKernel {
    fn name(&self) -> &str {
        "index.scatter"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let x = cx.inputs.get::<i64>(self.input)?;
        if let Some(classes) = self.classes {
            return self.fill(cx.par, x, classes, cx.outputs.take(0)?);
        }
        let most = x.iter().max().copied().ok_or_else(|| RunError::Value {
            input: self.input,
            what: "without num_classes there must be at least one element".into(),
        })?;
        let classes = usize::try_from(most).ok().and_then(|most| most.checked_add(1)).unwrap_or(0);
        let mut shape = cx.inputs.spec(self.input)?.shape.clone();
        shape.push(classes);
        let mut y = Tensor::zeros(DType::I64, shape)?;
        self.fill(cx.par, x, classes, y.as_mut_slice()?)?;
        cx.outputs.emit(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, check_line, error, iota, line_error, op, tensor, values};

    #[test]
    fn as_many_classes_as_asked_for() {
        let x = tensor([2, 2], &[0i64, 2, 1, 2]);
        let expected = [1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0];
        let y = check_line("aten::one_hot o 2 1 0 =4 1", std::slice::from_ref(&x));
        assert_eq!(
            (y[0].shape().dims(), &values::<i64>(&y[0])[..]),
            (&[2, 2, 4][..], &expected[..])
        );
        assert_eq!(
            check(&*op("F.one_hot o 1 1 0 1 num_classes=4 $tensor=0"), std::slice::from_ref(&x)),
            y
        );
        let scalar = check_line("aten::one_hot o 2 1 0 =2 1", &[tensor([], &[1i64])]);
        assert_eq!(scalar[0], tensor([2], &[0i64, 1]));
    }

    #[test]
    fn as_many_classes_as_the_greatest_asks_for() {
        let y = check_line("aten::one_hot o 2 1 0 =-1 1", &[tensor([2], &[1i64, 0])]);
        assert_eq!(y[0], tensor([2, 2], &[0i64, 1, 1, 0]));
        line_error("aten::one_hot o 2 1 0 =-1 1", &[tensor([0], &[0i64; 0])]);
        line_error("aten::one_hot o 2 1 0 =-1 1", &[tensor([2], &[-1i64, -7])]);
        line_error("aten::one_hot o 2 1 0 =-1 1", &[tensor([1], &[i64::MAX])]);
    }

    #[test]
    fn what_is_no_class_is_refused() {
        line_error("aten::one_hot o 2 1 0 =2 1", &[tensor([1], &[2i64])]);
        line_error("aten::one_hot o 2 1 0 =2 1", &[tensor([1], &[-1i64])]);
        line_error("aten::one_hot o 2 1 0 =0 1", &[tensor([1], &[0i64])]);
        error(&*op("F.one_hot o 1 1 0 1 num_classes=4"), &[iota([2])]);
    }
}

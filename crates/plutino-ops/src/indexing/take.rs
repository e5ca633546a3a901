//! Elements named by index tensors, in a tensor as one row or along a dimension: take,
//! take_along_dim, put, index_reduce; and values for the places of a mask: masked_scatter.

use crate::indexing::gather::{check_index, value_error, with_index};
use crate::matrix::products::reshape;
use crate::shaping::slice::existing;
use crate::support::assemble::leaf;
use crate::support::composite::{Compose, StepText, composed, list};
use crate::support::rearrange::invalid;
use crate::{
    BuildError, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::copy::index::resolve;
use plutino_kernels::for_numbers;
use plutino_kernels::number::{Number, Wide};
use plutino_tensor::stop;
use plutino_tensor::{DType, Shape};

/// <https://pytorch.org/docs/stable/generated/torch.take.html>: negative indices count from the
/// end.
#[derive(Debug)]
struct Take {
    input: usize,
    index: usize,
}

fn take(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let input = r.required_input("input")?;
    Ok(Box::new(Take { input, index: r.required_input("index")? }))
}
register_op!(take => "torch.take");

impl Operator for Take {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (x, index) =
            (TensorValue::at(inputs, self.input)?, TensorValue::at(inputs, self.index)?);
        check_index(self.index, index)?;
        if x.shape().numel() == 0 && index.shape().numel() > 0 {
            return Err(invalid("nothing can be taken from a tensor without elements"));
        }
        Ok(vec![ValueSpec::tensor(x.dtype(), index.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let [x, index] = [self.input, self.index].map(|i| leaf(cx.inputs, i));
        Ok(Planned::new(TakeKernel { x, index }))
    }

    fn refuses_data(&self) -> bool {
        true
    }
}

struct TakeKernel {
    x: usize,
    index: usize,
}

impl Kernel for TakeKernel {
    fn name(&self) -> &str {
        "index.take"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (spec, src) = (cx.inputs.spec(self.x)?, cx.inputs.bytes(self.x)?);
        let (unit, size) = (spec.dtype.size_of(), spec.shape.numel());
        let (_, dst) = cx.outputs.take_bytes(0)?;
        with_index!(cx.inputs, self.index, index => {
            for (to, &i) in stop::paced(dst.chunks_exact_mut(unit).zip(index), 4) {
                let at = resolve(i, size).map_err(|e| value_error(self.index, e))? * unit;
                if let Some(from) = src.get(at..at.saturating_add(unit)) {
                    to.copy_from_slice(from);
                }
            }
        });
        Ok(())
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.Tensor.put_.html>: elements of the tensor as
/// one row replaced, or added to.
#[derive(Debug)]
struct Put {
    input: usize,
    index: usize,
    source: usize,
    accumulate: bool,
}

fn put(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let accumulate = r.or("accumulate", false)?;
    let (input, index) = (r.required_input("input")?, r.required_input("index")?);
    Ok(Box::new(Put { input, index, source: r.required_input("source")?, accumulate }))
}
register_op!(put => "torch.put", "Tensor.put");

impl Operator for Put {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let [x, index, source] =
            [self.input, self.index, self.source].map(|i| TensorValue::at(inputs, i));
        let (x, index, source) = (x?, index?, source?);
        check_index(self.index, index)?;
        if source.dtype() != x.dtype() {
            let (input, expected) = (self.source, x.dtype().to_string());
            return Err(ShapeError::DType { input, expected, found: source.dtype() });
        }
        if index.shape().numel() != source.shape().numel() {
            return Err(invalid(format!(
                "{} values are given for {} places",
                source.shape().numel(),
                index.shape().numel()
            )));
        }
        Ok(vec![ValueSpec::tensor(x.dtype(), x.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let [x, index, source] = [self.input, self.index, self.source].map(|i| leaf(cx.inputs, i));
        let accumulate = self.accumulate;
        Ok(Planned::new(PutKernel { x, index, source, accumulate }).in_place(x))
    }

    fn refuses_data(&self) -> bool {
        true
    }
}

struct PutKernel {
    x: usize,
    index: usize,
    source: usize,
    accumulate: bool,
}

impl Kernel for PutKernel {
    fn name(&self) -> &str {
        "index.put"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        for_numbers!(cx.inputs.spec(self.x)?.dtype, T => {
            let y = cx.inout::<T>(self.x, 0)?.into_same();
            let size = y.len();
            let source = cx.inputs.get::<T>(self.source)?;
            with_index!(cx.inputs, self.index, index => {
                for (&new, &i) in stop::paced(source.iter().zip(index), 4) {
                    let at = resolve(i, size).map_err(|e| value_error(self.index, e))?;
                    if let Some(y) = y.get_mut(at) {
                        *y = match self.accumulate {
                            true => T::narrow(y.widen().plus(new.widen())),
                            false => new,
                        };
                    }
                }
            });
        });
        Ok(())
    }
}

/// `gather` of tensors that are broadcast outside `dim`, or of all elements as one row:
/// <https://pytorch.org/docs/stable/generated/torch.take_along_dim.html>
#[derive(Debug)]
struct TakeAlongDim {
    inputs: [usize; 2],
    dim: Option<i64>,
}

fn take_along_dim(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.optional("dim")?;
    let inputs = [r.required_input("input")?, r.required_input("indices")?];
    composed(TakeAlongDim { inputs, dim })
}
register_op!(take_along_dim => "torch.take_along_dim");

impl Compose for TakeAlongDim {
    fn name(&self) -> &'static str {
        "take_along_dim"
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.to_vec()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[x, index] = inputs else { return Err(invalid("two tensors")) };
        let Some(dim) = self.dim else {
            let row = |t: &TensorValue| Ok::<_, ShapeError>([t.shape().checked_numel()?].into());
            return Ok(vec![
                reshape("x0", "row", &row(x)?),
                reshape("x1", "index", &row(index)?),
                StepText::new("torch.gather", &["row", "index"], "y", "dim=0"),
            ]);
        };
        if x.shape().rank() != index.shape().rank() {
            let (expected, found) = (x.shape().rank().to_string(), index.shape().clone());
            return Err(ShapeError::Rank { input: self.inputs[1], expected, found });
        }
        let at = existing(x.shape(), dim)?;
        let mut steps = Vec::new();
        let mut wide = |from: &'static str, t: &TensorValue, other: &TensorValue, to| {
            let mut other = other.shape().clone();
            other[at] = t.shape()[at];
            let shape = t.shape().broadcast(&other)?;
            if shape == *t.shape() {
                return Ok::<_, ShapeError>(from);
            }
            let sizes = format!("sizes={}", list(&shape));
            steps.push(StepText::new("Tensor.expand", &[from], to, &sizes));
            Ok(to)
        };
        let [from, index] = [wide("x0", x, index, "wide")?, wide("x1", index, x, "index")?];
        // PyTorch takes indices modulo the size here, and nowhere else.
        let size = format!("other={}", x.shape()[at].max(1));
        steps.push(StepText::new("torch.remainder", &[index], "inside", &size));
        let dim = format!("dim={at}");
        steps.push(StepText::new("torch.gather", &[from, "inside"], "y", &dim));
        Ok(steps)
    }
}

/// Slices combined where an index sends them:
/// <https://pytorch.org/docs/stable/generated/torch.Tensor.index_reduce_.html>
#[derive(Debug)]
struct IndexReduce {
    inputs: [usize; 3],
    dim: i64,
    reduce: &'static str,
    include_self: bool,
}

fn index_reduce(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let table = ["prod", "mean", "amax", "amin"].map(|word| (word, word));
    let reduce = r.one_of("reduce", &table, None)?;
    let (dim, include_self) = (r.required("dim")?, r.or("include_self", true)?);
    let mut inputs = [0; 3];
    for (at, key) in inputs.iter_mut().zip(["input", "index", "source"]) {
        *at = r.required_input(key)?;
    }
    composed(IndexReduce { inputs, dim, reduce, include_self })
}
register_op!(index_reduce => "torch.index_reduce", "Tensor.index_reduce");

impl Compose for IndexReduce {
    fn name(&self) -> &'static str {
        "index_reduce"
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.to_vec()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[x, index, source] = inputs else { return Err(invalid("three tensors")) };
        let dim = existing(x.shape(), self.dim)?;
        let count = index.shape().checked_numel()?;
        let mut expected = x.shape().clone();
        expected[dim] = count;
        if index.shape().rank() > 1 || *source.shape() != expected {
            return Err(invalid(format!(
                "an index of shape {} and a source of shape {} do not suit {}",
                index.shape(),
                source.shape(),
                x.shape()
            )));
        }
        let mut line = Shape::from(vec![1; expected.rank()]);
        line[dim] = count;
        let include = if self.include_self { "True" } else { "False" };
        let how = format!("dim={dim} reduce={} include_self={include}", self.reduce);
        let sizes = format!("sizes={}", list(&expected));
        Ok(vec![
            reshape("x1", "line", &line),
            StepText::new("Tensor.expand", &["line"], "index", &sizes),
            StepText::new("torch.scatter_reduce", &["x0", "index", "x2"], "y", &how),
        ])
    }
}

/// Elements of `source`, one after the other, where the mask is set:
/// <https://pytorch.org/docs/stable/generated/torch.Tensor.masked_scatter_.html>
#[derive(Debug)]
struct MaskedScatter {
    input: usize,
    mask: usize,
    source: usize,
}

fn masked_scatter(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (input, mask) = (r.required_input("input")?, r.required_input("mask")?);
    Ok(Box::new(MaskedScatter { input, mask, source: r.required_input("source")? }))
}
register_op!(masked_scatter => "Tensor.masked_scatter", "torch.masked_scatter");

impl MaskedScatter {
    /// Dtype and shape of the result.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Shape), ShapeError> {
        let [x, mask, source] =
            [self.input, self.mask, self.source].map(|i| TensorValue::at(inputs, i));
        let (x, mask, source) = (x?, mask?, source?);
        if mask.dtype() != DType::Bool {
            let (input, expected, found) = (self.mask, "bool".into(), mask.dtype());
            return Err(ShapeError::DType { input, expected, found });
        }
        if source.dtype() != x.dtype() {
            let (input, expected) = (self.source, x.dtype().to_string());
            return Err(ShapeError::DType { input, expected, found: source.dtype() });
        }
        let shape = x.shape().broadcast(mask.shape())?;
        shape.checked_numel()?;
        Ok((x.dtype(), shape))
    }
}

impl Operator for MaskedScatter {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, shape) = self.bind(inputs)?;
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, shape) = self.bind(cx.inputs)?;
        let at = [self.input, self.mask, self.source].map(|i| leaf(cx.inputs, i));
        Ok(Planned::new(Scattered { dtype, shape, at, source: self.source }))
    }
}

struct Scattered {
    dtype: DType,
    shape: Shape,
    /// Leaves of tensor, mask and source.
    at: [usize; 3],
    /// The input that is the source.
    source: usize,
}

impl Kernel for Scattered {
    fn name(&self) -> &str {
        "masked_scatter"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let [x, mask, source] = self.at;
        let mask = cx.inputs.view(mask)?.broadcast_to(self.shape.clone())?;
        for_numbers!(self.dtype, T => {
            let x = cx.inputs.view(x)?.broadcast_to(self.shape.clone())?;
            let mut source = cx.inputs.get::<T>(source)?.iter();
            let y = cx.outputs.take::<T>(0)?;
            let places = y.iter_mut().zip(x.iter::<T>()?).zip(mask.iter::<bool>()?);
            for ((y, x), chosen) in stop::paced(places, 4) {
                *y = match chosen {
                    false => x,
                    true => *source.next().ok_or_else(|| RunError::Value {
                        input: self.source,
                        what: "there are fewer elements than places in the mask".into(),
                    })?,
                };
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, tensor, values};

    #[test]
    fn elements_of_a_row() {
        let take = op("torch.take t 2 1 0 1 2 $input=0 $index=1");
        let y = check(&*take, &[iota([2, 3]), tensor([2, 2], &[0i64, -1, 4, 2])]);
        assert_eq!(y[0], tensor([2, 2], &[0.0f32, 5., 4., 2.]));
        let y = check(&*take, &[tensor([2], &[true, false]), tensor([], &[-2i32])]);
        assert_eq!(y[0], tensor([], &[true]));
        assert_eq!(check(&*take, &[iota([0]), tensor([0], &[0i64; 0])])[0], iota([0]));
        error(&*take, &[iota([2]), tensor([1], &[2i64])]);
        error(&*take, &[iota([2]), tensor([1], &[-3i64])]);
        error(&*take, &[iota([0]), tensor([1], &[0i64])]);
        error(&*take, &[iota([2]), iota([1])]);
    }

    #[test]
    fn elements_are_replaced_or_added_to() {
        let inputs = [iota([2, 2]), tensor([3], &[-1i64, 0, 0]), tensor([3, 1], &[5.0f32, 6., 7.])];
        let y = check(&*op("torch.put p 3 1 0 1 2 3 accumulate=False"), &inputs);
        assert_eq!(values::<f32>(&y[0]), [7., 1., 2., 5.]);
        let add = op("Tensor.put p 3 1 0 1 2 3 accumulate=True");
        assert_eq!(values::<f32>(&check(&*add, &inputs)[0]), [13., 1., 2., 8.]);
        let [x, index, _] = inputs;
        error(&*add, &[x.clone(), index.clone(), iota([2])]);
        error(&*add, &[x.clone(), index, tensor([3], &[1i64; 3])]);
        error(&*add, &[x, tensor([1], &[4i64]), iota([1])]);
    }

    #[test]
    fn along_a_dimension_with_broadcasting() {
        let x = iota([2, 3]);
        let along = op("torch.take_along_dim t 2 1 0 1 2 dim=1 $input=0 $indices=1");
        let y = check(&*along, &[x.clone(), tensor([1, 2], &[2i64, 0])]);
        assert_eq!(y[0], tensor([2, 2], &[2.0f32, 0., 5., 3.]));
        let y = check(&*along, &[iota([1, 3]), tensor([2, 1], &[2i64, 1])]);
        assert_eq!(y[0], tensor([2, 1], &[2.0f32, 1.]));
        let flat = op("torch.take_along_dim t 2 1 0 1 2 dim=None");
        let y = check(&*flat, &[x.clone(), tensor([1, 2], &[5i64, 0])]);
        assert_eq!(y[0], tensor([2], &[5.0f32, 0.]));
        error(&*along, &[x.clone(), tensor([2], &[0i64, 1])]);
        error(&*along, &[x.clone(), tensor([3, 1], &[0i64; 3])]);
        let y = check(&*along, &[x, tensor([2, 2], &[3i64, -1, -4, 7])]);
        assert_eq!(y[0], tensor([2, 2], &[0.0f32, 2., 5., 4.]));
    }

    #[test]
    fn slices_are_combined() {
        let inputs = [
            iota([2, 2]),
            tensor([3], &[1i64, 1, 0]),
            tensor([3, 2], &[9.0f32, 1., 4., 8., -1., -2.]),
        ];
        let y = check(&*op("torch.index_reduce r 3 1 0 1 2 3 dim=0 reduce=amax"), &inputs);
        assert_eq!(values::<f32>(&y[0]), [0., 1., 9., 8.]);
        let mean = op("Tensor.index_reduce r 3 1 0 1 2 3 dim=0 reduce=mean include_self=False");
        assert_eq!(values::<f32>(&check(&*mean, &inputs)[0]), [-1., -2., 6.5, 4.5]);
        let [x, index, _] = inputs;
        error(&*mean, &[x, index, iota([2, 2])]);
    }

    #[test]
    fn values_for_a_mask() {
        let scatter = op("Tensor.masked_scatter m 3 1 0 1 2 3 $input=0 $mask=1 $source=2");
        let mask = tensor([3], &[true, false, true]);
        let y =
            check(&*scatter, &[iota([2, 3]), mask.clone(), tensor([5], &[9.0f32, 8., 7., 6., 5.])]);
        assert_eq!(y[0], tensor([2, 3], &[9.0f32, 1., 8., 7., 4., 6.]));
        let y = check(&*scatter, &[tensor([], &[1i64]), mask.clone(), tensor([2], &[2i64, 3])]);
        assert_eq!(y[0], tensor([3], &[2i64, 1, 3]));
        error(&*scatter, &[iota([2, 3]), mask.clone(), iota([3])]);
        error(&*scatter, &[iota([3]), mask.clone(), tensor([3], &[1i64; 3])]);
        error(&*scatter, &[iota([3]), tensor([3], &[1u8; 3]), iota([3])]);
    }
}

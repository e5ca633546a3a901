//! Elements chosen by an index tensor along one dimension: index_select, gather, and their
//! reverse: scatter, scatter_add.

use crate::creation::create::Source;
use crate::support::assemble::leaf;
use crate::support::rearrange::invalid;
use crate::{
    Arg, BuildError, Inputs, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx,
    RunError, ShapeError, StrideRule, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::copy::CopyError;
use plutino_kernels::copy::index::{self, Along, Reduce};
use plutino_kernels::elementwise::Scalar;
use plutino_kernels::{Par, for_numbers};
use plutino_tensor::{DType, Shape, Strides};

/// An index outside its dimension is the data's fault; anything else would be ours.
pub(crate) fn value_error(input: usize, error: CopyError) -> RunError {
    match error {
        CopyError::Index { .. } => RunError::Value { input, what: error.to_string() },
        other => RunError::Internal(other.to_string()),
    }
}

/// Whether a tensor can be an index.
pub(crate) fn check_index(input: usize, t: &TensorValue) -> Result<(), ShapeError> {
    match t.dtype() {
        DType::I64 | DType::I32 => Ok(()),
        found => Err(ShapeError::DType { input, expected: "i64 or i32".into(), found }),
    }
}

/// Evaluates an expression with the elements of index leaf `$at` bound as a slice of i64 or i32.
macro_rules! with_index {
    ($inputs:expr, $at:expr, $index:ident => $body:expr) => {
        match $inputs.spec($at)?.dtype {
            DType::I32 => {
                let $index = $inputs.get::<i32>($at)?;
                $body
            }
            _ => {
                let $index = $inputs.get::<i64>($at)?;
                $body
            }
        }
    };
}

pub(crate) use with_index;

/// [`index::take`] with the index of input leaf `at`; `sizes` are outer, dimension, bytes of a
/// block.
pub(crate) fn take_blocks(
    par: &Par,
    inputs: &Inputs<'_>,
    at: usize,
    src: &[u8],
    dst: &mut [u8],
    (outer, size, block): (usize, usize, usize),
) -> Result<(), RunError> {
    with_index!(inputs, at, i => index::take(par, src, dst, outer, size, block, i))
        .map_err(|e| value_error(at, e))
}

/// <https://pytorch.org/docs/stable/generated/torch.index_select.html>
#[derive(Debug)]
struct IndexSelect {
    input: usize,
    index: usize,
    dim: i64,
}

fn index_select(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.required("dim")?;
    let input = r.required_input("input")?;
    Ok(Box::new(IndexSelect { input, index: r.required_input("index")?, dim }))
}
register_op!(index_select => "torch.index_select");

impl Operator for IndexSelect {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (x, index) =
            (TensorValue::at(inputs, self.input)?, TensorValue::at(inputs, self.index)?);
        check_index(self.index, index)?;
        if index.shape().rank() > 1 {
            let (input, found) = (self.index, index.shape().clone());
            return Err(ShapeError::Rank { input, expected: "at most 1".into(), found });
        }
        let mut shape = x.shape().clone();
        let dim = shape.dim(self.dim)?;
        if let Some(size) = shape.get_mut(dim) {
            *size = index.shape().numel();
        } else if index.shape().numel() != 1 {
            return Err(invalid("a tensor without dimensions has one element to select"));
        }
        shape.checked_numel()?;
        Ok(vec![ValueSpec::tensor(x.dtype(), shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, self.input)?;
        let shape = x.shape();
        let dim = shape.dim(self.dim).map_err(ShapeError::from)?;
        let inner = shape.product(dim + 1..shape.rank());
        let sizes = (
            shape.product(0..dim),
            shape.get(dim).copied().unwrap_or(1),
            inner.saturating_mul(x.dtype().size_of()),
        );
        let at = [self.input, self.index].map(|i| leaf(cx.inputs, i));
        Ok(Planned::new(SelectRows { at, sizes }))
    }

    fn refuses_data(&self) -> bool {
        true
    }
}

struct SelectRows {
    /// Leaves of the tensor and the index.
    at: [usize; 2],
    sizes: (usize, usize, usize),
}

impl Kernel for SelectRows {
    fn name(&self) -> &str {
        "index.take"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let [x, index] = self.at;
        let (_, dst) = cx.outputs.take_bytes(0)?;
        take_blocks(cx.par, &cx.inputs, index, cx.inputs.bytes(x)?, dst, self.sizes)
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.gather.html>
#[derive(Debug)]
struct Gather {
    input: usize,
    index: usize,
    dim: i64,
}

fn gather(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.required("dim")?;
    let _: bool = r.or("sparse_grad", false)?; // matters for training only
    let input = r.required_input("input")?;
    Ok(Box::new(Gather { input, index: r.required_input("index")?, dim }))
}
register_op!(gather => "torch.gather");

/// How an index tensor and the tensor that it indexes fit together.
pub(crate) struct Fit {
    /// Shape of the index and of what it selects, at least one dimension.
    shape: Shape,
    /// Element strides of the tensor.
    strides: Strides,
    dim: usize,
    size: usize,
}

impl Fit {
    /// As kernels want it.
    pub(crate) fn along(&self) -> Along<'_> {
        Along { shape: &self.shape, strides: &self.strides, dim: self.dim, size: self.size }
    }
}

/// Checks an index against a tensor, both of at least one dimension (a scalar counts as one).
fn fit(
    (x_input, x): (usize, &Shape),
    (input, index): (usize, &Shape),
    dim: i64,
) -> Result<Fit, ShapeError> {
    let at_least_1 = |s: &Shape| if s.rank() == 0 { Shape::from([1]) } else { s.clone() };
    let dim = x.dim(dim)?;
    let (x, index) = (at_least_1(x), at_least_1(index));
    if x.rank() != index.rank() && index.numel() == 0 {
        // PyTorch compares nothing with an index without elements: there is nothing to select,
        // either.
        let strides = Strides::from_elem(0, index.rank());
        return Ok(Fit { strides, shape: index, dim: 0, size: x[dim] });
    }
    if x.rank() != index.rank() {
        let expected = format!("{} like input {x_input}", x.rank());
        return Err(ShapeError::Rank { input, expected, found: index });
    }
    let inside = |(d, (i, x)): (usize, (&usize, &usize))| d == dim || i <= x;
    if index.numel() > 0 && !index.iter().zip(x.iter()).enumerate().all(inside) {
        return Err(invalid(format!(
            "index of shape {index} is larger than the tensor of shape {x} outside dimension {dim}"
        )));
    }
    let size = x[dim];
    Ok(Fit { strides: x.dense_strides(), shape: index, dim, size })
}

impl Gather {
    fn fit(&self, inputs: &[ValueSpec]) -> Result<Fit, ShapeError> {
        let (x, index) =
            (TensorValue::at(inputs, self.input)?, TensorValue::at(inputs, self.index)?);
        check_index(self.index, index)?;
        fit((self.input, x.shape()), (self.index, index.shape()), self.dim)
    }
}

impl Operator for Gather {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        self.fit(inputs)?;
        let (x, index) =
            (TensorValue::at(inputs, self.input)?, TensorValue::at(inputs, self.index)?);
        Ok(vec![ValueSpec::tensor(x.dtype(), index.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let at = [self.input, self.index].map(|i| leaf(cx.inputs, i));
        Ok(Planned::new(GatherKernel { at, fit: self.fit(cx.inputs)? }))
    }
}

struct GatherKernel {
    at: [usize; 2],
    fit: Fit,
}

impl Kernel for GatherKernel {
    fn name(&self) -> &str {
        "index.gather"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        fn sized<const N: usize>(k: &GatherKernel, cx: &mut RunCx<'_>) -> Result<(), RunError> {
            let [x, index] = k.at;
            let along = k.fit.along();
            let src = cx.inputs.bytes(x)?.as_chunks::<N>().0;
            let dst = cx.outputs.take_bytes(0)?.1.as_chunks_mut::<N>().0;
            with_index!(cx.inputs, index, i => index::gather(cx.par, src, dst, i, along))
                .map_err(|e| value_error(index, e))
        }
        match cx.inputs.spec(self.at[0])?.dtype.size_of() {
            1 => sized::<1>(self, cx),
            2 => sized::<2>(self, cx),
            4 => sized::<4>(self, cx),
            8 => sized::<8>(self, cx),
            _ => sized::<16>(self, cx),
        }
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.scatter.html>,
/// <https://pytorch.org/docs/stable/generated/torch.scatter_add.html>
#[derive(Debug)]
pub(crate) struct Scatter {
    pub(crate) input: usize,
    pub(crate) index: usize,
    pub(crate) src: Arg<Scalar>,
    pub(crate) dim: i64,
    pub(crate) reduce: Reduce,
}

fn scatter(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.required("dim")?;
    let table = [("add", Reduce::Add), ("multiply", Reduce::Multiply)];
    let reduce = match r.kind() {
        "torch.scatter_add" => Reduce::Add,
        _ => r.one_of("reduce", &table, Some(Reduce::Replace))?,
    };
    let (input, index) = (r.required_input("input")?, r.required_input("index")?);
    let src = match r.arg("value")? {
        Some(value) => value,
        None => Arg::Input(r.required_input("src")?),
    };
    Ok(Box::new(Scatter { input, index, src, dim, reduce }))
}
register_op!(scatter => "torch.scatter", "torch.scatter_add");

impl Scatter {
    /// The fit, the new values and their strides.
    pub(crate) fn fit(&self, inputs: &[ValueSpec]) -> Result<(Fit, Source, Strides), ShapeError> {
        let (x, index) =
            (TensorValue::at(inputs, self.input)?, TensorValue::at(inputs, self.index)?);
        check_index(self.index, index)?;
        let fit = fit((self.input, x.shape()), (self.index, index.shape()), self.dim)?;
        let source = Source::of(&self.src, x.dtype(), inputs)?;
        let shape = match self.src {
            Arg::Value(_) => Shape::scalar(),
            Arg::Input(at) => TensorValue::at(inputs, at)?.shape().clone(),
        };
        let strides = match shape.rank() {
            0 => Strides::from_elem(0, fit.shape.rank()), // one value for all
            _ if fit.shape.numel() == 0 => Strides::from_elem(0, fit.shape.rank()),
            _ => shape.dense_strides(),
        };
        let inside = shape.rank() == fit.shape.rank()
            && fit.shape.iter().zip(shape.iter()).all(|(i, s)| i <= s);
        if shape.rank() > 0 && fit.shape.numel() > 0 && !inside {
            let index = &fit.shape;
            return Err(invalid(format!(
                "index of shape {index} is larger than src of shape {shape}"
            )));
        }
        Ok((fit, source, strides))
    }
}

impl Operator for Scatter {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        self.fit(inputs)?;
        let x = TensorValue::at(inputs, self.input)?;
        Ok(vec![ValueSpec::tensor(x.dtype(), x.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (fit, src, src_strides) = self.fit(cx.inputs)?;
        let [x, index] = [self.input, self.index].map(|i| leaf(cx.inputs, i));
        let reduce = self.reduce;
        Ok(Planned::new(ScatterKernel { x, index, src, src_strides, fit, reduce }).in_place(x))
    }

    fn refuses_data(&self) -> bool {
        true
    }
}

struct ScatterKernel {
    x: usize,
    index: usize,
    src: Source,
    src_strides: Strides,
    fit: Fit,
    reduce: Reduce,
}

impl Kernel for ScatterKernel {
    fn name(&self) -> &str {
        "index.scatter"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let along = self.fit.along();
        for_numbers!(cx.inputs.spec(self.x)?.dtype, T => {
            let dst = cx.inout::<T>(self.x, 0)?.into_same();
            let src = self.src.read::<T>(&cx.inputs)?;
            with_index!(cx.inputs, self.index, i => {
                index::scatter(cx.par, &src, &self.src_strides, dst, i, along, self.reduce)
            })
            .map_err(|e| value_error(self.index, e))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, check_line, error, iota, op, random, tensor, try_op, values};
    use crate::{RunError, eager::EagerError};

    #[test]
    fn index_select_takes_slices() {
        let x = iota([2, 3, 2]);
        let index = tensor([2], &[2i64, 0]);
        let y = check(
            &*op("torch.index_select i 2 1 0 1 2 dim=1 $input=0 $index=1"),
            &[x.clone(), index],
        );
        assert_eq!(values::<f32>(&y[0]), [4., 5., 0., 1., 10., 11., 6., 7.]);
        let last = op("torch.index_select i 2 1 0 1 2 dim=-1");
        let y = check(&*last, &[x.clone(), tensor([], &[1i32])]);
        assert_eq!((y[0].shape().dims(), values::<f32>(&y[0])[5]), (&[2, 3, 1][..], 11.0));
        let e = error(&*last, &[x.clone(), tensor([1], &[2i64])]);
        assert_eq!(
            e,
            EagerError::Run(RunError::Value { input: 1, what: "index 2 is outside 0..2".into() })
        );
        error(&*last, &[x.clone(), tensor([1, 1], &[0i64])]);
        error(&*last, &[x, iota([1])]);
    }

    #[test]
    fn gather_follows_the_formula() {
        let x = iota([2, 3]);
        let gather = op("torch.gather g 2 1 0 1 2 dim=1 $input=0 $index=1");
        let y = check(&*gather, &[x.clone(), tensor([2, 2], &[2i64, 0, 1, 1])]);
        assert_eq!(values::<f32>(&y[0]), [2., 0., 4., 4.]);
        let y =
            check(&*op("torch.gather g 2 1 0 1 2 dim=0"), &[x.clone(), tensor([1, 2], &[1i64, 0])]);
        assert_eq!(values::<f32>(&y[0]), [3., 1.]);
        let y = check(&*gather, &[tensor([2, 1], &[true, false]), tensor([2, 3], &[0i64; 6])]);
        assert_eq!(values::<bool>(&y[0]), [true, true, true, false, false, false]);
        error(&*gather, &[x.clone(), tensor([2, 1], &[3i64, 0])]);
        error(&*gather, &[x.clone(), tensor([2, 1], &[-1i64, 0])]);
        error(&*gather, &[x.clone(), tensor([3, 1], &[0i64; 3])]);
        error(&*gather, &[x, tensor([2], &[0i64; 2])]);
        let scalar = op("torch.gather g 2 1 0 1 2 dim=0");
        assert_eq!(check(&*scalar, &[iota([]), tensor([], &[0i64])])[0], iota([]));
        // Without elements, an index may have any shape.
        for (from, index) in [(&[2, 3, 2][..], &[0, 3][..]), (&[2, 3], &[2, 0, 4])] {
            let y = check(&*scalar, &[iota(from), tensor(index, &[0i64; 0])]);
            assert_eq!(y[0].shape().dims(), index);
        }
        let none = [iota([2, 3]), tensor([2, 0, 4], &[0i64; 0]), iota([5])];
        let y = check(&*op("torch.scatter s 3 1 0 1 2 3 dim=1"), &none);
        assert_eq!(y[0], none[0]);
    }

    /// An index without elements fits every tensor, whatever its rank and its other sizes.
    #[test]
    fn empty_indices() {
        let x = iota([2, 3]);
        for shape in [&[0][..], &[0, 9], &[9, 0], &[2, 0, 3], &[0, 3, 1]] {
            for dim in [0, 1, -1] {
                let index = tensor(shape, &[0i64; 0]);
                let gather = op(&format!("torch.gather g 2 1 0 1 2 dim={dim}"));
                let y = check(&*gather, &[x.clone(), index.clone()]);
                assert_eq!(y[0].shape().dims(), shape);
                for src in [iota(shape), iota([2, 3]), iota([])] {
                    for reduce in ["scatter", "scatter_add"] {
                        let scatter = op(&format!("torch.{reduce} s 3 1 0 1 2 3 dim={dim}"));
                        let y = check(&*scatter, &[x.clone(), index.clone(), src.clone()]);
                        assert_eq!(y[0], x);
                    }
                    let line = "torch.scatter_reduce s 3 1 0 1 2 3 dim=0 reduce=mean";
                    let y = check(&*op(line), &[x.clone(), index.clone(), src]);
                    assert_eq!(y[0], x);
                }
            }
        }
        let nothing = iota([0, 4]);
        let y = check(
            &*op("torch.gather g 2 1 0 1 2 dim=0"),
            &[nothing.clone(), tensor([0, 4], &[0i64; 0])],
        );
        assert_eq!(y[0].shape().dims(), [0, 4]);
        error(&*op("torch.gather g 2 1 0 1 2 dim=0"), &[nothing, tensor([1, 4], &[0i64; 4])]);
        error(&*op("torch.gather g 2 1 0 1 2 dim=2"), &[iota([2, 3]), tensor([0], &[0i64; 0])]);
        let select = op("torch.index_select i 2 1 0 1 2 dim=1");
        let y = check(&*select, &[iota([2, 3]), tensor([0], &[0i64; 0])]);
        assert_eq!(y[0].shape().dims(), [2, 0]);
    }

    #[test]
    fn scatter_is_the_reverse() {
        let x = iota([2, 3]);
        let (index, src) =
            (tensor([2, 2], &[2i64, 0, 1, 1]), tensor([2, 2], &[10.0f32, 20., 30., 40.]));
        let inputs = [x.clone(), index.clone(), src];
        let y = check(&*op("torch.scatter s 3 1 0 1 2 3 dim=1 $input=0 $index=1 $src=2"), &inputs);
        assert_eq!(values::<f32>(&y[0]), [20., 1., 10., 3., 40., 5.]);
        let y =
            check(&*op("torch.scatter_add s 3 1 0 1 2 3 dim=1 $input=0 $index=1 $src=2"), &inputs);
        assert_eq!(values::<f32>(&y[0]), [20., 1., 12., 3., 74., 5.]);
        let value = op("torch.scatter s 2 1 0 1 3 dim=1 value=7 reduce=multiply $input=0 $index=1");
        let y = check(&*value, &[x.clone(), index.clone()]);
        assert_eq!(values::<f32>(&y[0]), [0., 1., 14., 3., 196., 5.]);
        let y = check_line("aten::scatter s 4 1 0 =1 2 =7 3", &[x.clone(), index.clone()]);
        assert_eq!(values::<f32>(&y[0]), [7., 1., 7., 3., 7., 5.]);
        let y = check_line("aten::scatter s 5 1 0 =1 2 3 =add 4", &inputs);
        assert_eq!(values::<f32>(&y[0]), [20., 1., 12., 3., 74., 5.]);
        error(&*op("torch.scatter s 3 1 0 1 2 3 dim=1"), &[x.clone(), index.clone(), iota([1, 2])]);
        error(&*op("torch.scatter s 3 1 0 1 2 3 dim=1"), &[x, index, tensor([2, 2], &[1i64; 4])]);
        assert!(try_op("torch.scatter s 2 1 0 1 3 dim=1", &[]).is_err());
    }

    #[test]
    fn gathering_along_any_dimension_of_larger_tensors() {
        let (shape, index_shape) = ([7, 20, 30], [7, 11, 30]);
        let x = random(shape, 1);
        let index: Vec<i64> = (0..7 * 11 * 30).map(|i| i * 7919 % 20).collect();
        let y = check(
            &*op("torch.gather g 2 1 0 1 2 dim=1"),
            &[x.clone(), tensor(index_shape, &index)],
        );
        let (x, y) = (values::<f32>(&x), values::<f32>(&y[0]));
        for (i, &k) in index.iter().enumerate() {
            assert_eq!(y[i], x[(i / 330 * 20 + k as usize) * 30 + i % 30]);
        }
    }
}

//! Elements chosen by an index tensor along one dimension: index_select, gather, take_along_dim, take, and their
//! reverse: scatter, scatter_add.

use crate::assemble::{leaf, same_dtype};
use crate::rearrange::{Geometry, invalid};
use crate::{
    Alias, Arg, BuildError, Inputs, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::copy::CopyError;
use plutino_kernels::copy::index::{self, Along, Reduce};
use plutino_kernels::{Par, for_numbers};
use plutino_tensor::{DType, Element, Shape, Strides};

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

/// [`index::take`] with the index of input leaf `at`; `sizes` are outer, dimension, bytes of a block.
pub(crate) fn take_blocks(
    par: &Par,
    inputs: &Inputs<'_>,
    at: usize,
    src: &[u8],
    dst: &mut [u8],
    (outer, size, block): (usize, usize, usize),
) -> Result<(), CopyError> {
    let mut run = || -> Result<Result<(), CopyError>, RunError> {
        Ok(with_index!(inputs, at, i => index::take(par, src, dst, outer, size, block, i)))
    };
    // The plan has checked that the leaf is an index.
    run().unwrap_or(Err(CopyError::Outside { side: "source" }))
}

/// <https://pytorch.org/docs/stable/generated/torch.index_select.html>; `torch.take` is the same for the tensor
/// as one row, with indices that may count from the end.
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
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (x, index) = (TensorValue::at(inputs, self.input)?, TensorValue::at(inputs, self.index)?);
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
            .map_err(|e| value_error(index, e))
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.gather.html>
#[derive(Debug)]
struct Gather {
    input: usize,
    index: usize,
    dim: i64,
    /// `take_along_dim`: index and input are broadcast outside `dim`.
    broadcast: bool,
}

fn gather(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.required("dim")?;
    let _: bool = r.or("sparse_grad", false)?; // matters for training only
    let broadcast = r.kind() == "torch.take_along_dim";
    let input = r.required_input("input")?;
    let index = r.required_input(if broadcast { "indices" } else { "index" })?;
    Ok(Box::new(Gather { input, index, dim, broadcast }))
}
register_op!(gather => "torch.gather", "torch.take_along_dim");

/// How an index tensor and the tensor that it indexes fit together.
struct Fit {
    /// Shape of the index and of what it selects, at least one dimension.
    shape: Shape,
    /// Element strides of the tensor.
    strides: Strides,
    dim: usize,
    size: usize,
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
    if x.rank() != index.rank() && index.numel() > 0 {
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
    /// The fit, and the index's strides where it is broadcast.
    fn fit(&self, inputs: &[ValueSpec]) -> Result<Fit, ShapeError> {
        let (x, index) = (TensorValue::at(inputs, self.input)?, TensorValue::at(inputs, self.index)?);
        check_index(self.index, index)?;
        if !self.broadcast {
            return fit((self.input, x.shape()), (self.index, index.shape()), self.dim);
        }
        let dim = x.shape().dim(self.dim)?;
        if x.shape().rank() != index.shape().rank() || x.shape().rank() == 0 {
            let (input, found) = (self.index, index.shape().clone());
            return Err(ShapeError::Rank { input, expected: x.shape().rank().to_string(), found });
        }
        let mut outside = [x.shape().clone(), index.shape().clone()];
        outside.iter_mut().for_each(|s| s[dim] = 1);
        let mut shape = outside[0].broadcast(&outside[1])?;
        let size = x.shape()[dim];
        let mut wide = shape.clone();
        wide[dim] = size;
        let strides = Geometry::dense(x.shape()).broadcast(&wide)?.strides;
        shape[dim] = index.shape()[dim];
        shape.checked_numel()?;
        if shape != *index.shape() {
            return Err(invalid(format!(
                "indices of shape {} would have to be expanded to {shape}: not supported",
                index.shape()
            )));
        }
        Ok(Fit { shape, strides, dim, size })
    }
}

impl Operator for Gather {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        self.fit(inputs)?;
        let (x, index) = (TensorValue::at(inputs, self.input)?, TensorValue::at(inputs, self.index)?);
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
            let Fit { shape, strides, dim, size } = &k.fit;
            let along = Along { shape, strides, dim: *dim, size: *size };
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
struct Scatter {
    input: usize,
    index: usize,
    src: Arg<f64>,
    dim: i64,
    reduce: Reduce,
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
        None => match r.arg("src")? {
            Some(src) => src,
            None => Arg::Input(r.required_input("src")?),
        },
    };
    Ok(Box::new(Scatter { input, index, src, dim, reduce }))
}
register_op!(scatter => "torch.scatter", "torch.scatter_add");

impl Scatter {
    fn fit(&self, inputs: &[ValueSpec]) -> Result<Fit, ShapeError> {
        let (x, index) = (TensorValue::at(inputs, self.input)?, TensorValue::at(inputs, self.index)?);
        check_index(self.index, index)?;
        let fitted = fit((self.input, x.shape()), (self.index, index.shape()), self.dim)?;
        if let Arg::Input(at) = self.src {
            let src = TensorValue::at(inputs, at)?;
            let shared = src.python || src.shape().rank() == 0;
            if !shared {
                same_dtype((self.input, x.dtype()), [(at, src.dtype())])?;
                let inside = src.shape().rank() == fitted.shape.rank()
                    && fitted.shape.iter().zip(src.shape().iter()).all(|(i, s)| i <= s);
                if !inside && index.shape().numel() > 0 {
                    return Err(invalid(format!(
                        "index of shape {} is larger than src of shape {}",
                        index.shape(),
                        src.shape()
                    )));
                }
            }
        }
        Ok(fitted)
    }
}

impl Operator for Scatter {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        self.fit(inputs)?;
        let x = TensorValue::at(inputs, self.input)?;
        Ok(vec![ValueSpec::tensor(x.dtype(), x.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let fit = self.fit(cx.inputs)?;
        let x = leaf(cx.inputs, self.input);
        let (src, src_strides) = match self.src {
            Arg::Value(v) => (Source::Number(v), Strides::from_elem(0, fit.shape.rank())),
            Arg::Input(at) => {
                let t = TensorValue::at(cx.inputs, at)?;
                let scalar = t.shape().rank() == 0;
                let strides =
                    if scalar { Strides::from_elem(0, fit.shape.rank()) } else { t.shape().dense_strides() };
                (Source::Leaf(leaf(cx.inputs, at)), strides)
            }
        };
        let index = leaf(cx.inputs, self.index);
        Ok(Planned::new(ScatterKernel { x, index, src, src_strides, fit, reduce: self.reduce }).in_place(x))
    }
}

/// Where new values come from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    Leaf(usize),
    /// The same number everywhere.
    Number(f64),
}

impl Source {
    /// The elements; one, where all are the same.
    pub(crate) fn read<'a, T: plutino_kernels::number::Number>(
        self,
        inputs: &Inputs<'a>,
    ) -> Result<std::borrow::Cow<'a, [T]>, RunError> {
        let number = |v: f64| std::borrow::Cow::Owned(vec![T::from_f64(v)]);
        Ok(match self {
            Self::Number(v) => number(v),
            Self::Leaf(at) if inputs.spec(at)?.dtype == T::DTYPE => inputs.get::<T>(at)?.into(),
            // A scalar of another dtype: a Python number, or a 0-d tensor.
            Self::Leaf(at) => number(scalar(inputs, at)?),
        })
    }
}

/// The first element of a leaf of any real dtype.
fn scalar(inputs: &Inputs<'_>, at: usize) -> Result<f64, RunError> {
    fn first<T: Element>(inputs: &Inputs<'_>, at: usize) -> Result<T, RunError> {
        let values = inputs.get::<T>(at)?;
        values.first().copied().ok_or_else(|| RunError::Internal(format!("input {at} is empty")))
    }
    plutino_kernels::for_ordered!(inputs.spec(at)?.dtype,
        T => Ok(plutino_kernels::number::ToF64::to_f64(first::<T>(inputs, at)?)),
        _ => Err(RunError::Internal(format!("input {at} is no real number")))
    )
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
        let Fit { shape, strides, dim, size } = &self.fit;
        let along = Along { shape, strides, dim: *dim, size: *size };
        for_numbers!(cx.inputs.spec(self.x)?.dtype, T => {
            let src = self.src.read::<T>(&cx.inputs)?;
            let dst = cx.inout::<T>(self.x, 0)?.into_same();
            with_index!(cx.inputs, self.index, i => {
                index::scatter(cx.par, &src, &self.src_strides, dst, i, along, self.reduce)
            })
            .map_err(|e| value_error(self.index, e))
        })
    }
}

//! Pooling in 1 to 3 dimensions: maximum, average, power average; sliding and adaptive windows.
//!
//! Inputs are (C, spatial...) or (N, C, spatial...); each channel of each image is pooled alone.
//! Modules and functions (`nn.MaxPool2d`, `F.max_pool2d`) are the same operators; [`build`] decodes
//! them.

mod build;
mod fractional;
#[cfg(test)]
mod tests;
mod unpool;

use crate::support::assemble::leaf;
use crate::support::halves::{self, Parts};
use crate::{
    Bf16Support, Cost, Kernel, LayoutCx, LayoutSupport, Operator, PlanCx, PlanError, Planned,
    RunCx, RunError, ShapeError, StrideRule, TensorValue, ValueSpec,
};
use plutino_kernels::number::Ordered;
use plutino_kernels::pool::{
    Axis, Divisor, Geometry, Reduction, Sliding, max_of_pairs, max_with_indices, pool_any,
    pool_f32, scratch_len,
};
use plutino_kernels::reduce::{self, Fold, reduce_f32};
use plutino_kernels::{Isa, for_ordered};
use plutino_tensor::{DType, Layout, Shape};
use std::marker::PhantomData;

/// A pooling operator.
#[derive(Debug)]
struct Pool {
    input: usize,
    windows: Windows,
    kind: Kind,
}

/// How windows lie over the spatial dimensions.
#[derive(Debug)]
enum Windows {
    /// One entry for each spatial dimension.
    Sliding(Vec<Sliding>),
    /// Sizes of the output; none keeps the input's.
    Adaptive(Vec<Option<usize>>),
}

/// What is made of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Max(Indices),
    Average(Divisor),
    Power(f64),
}

/// Whether, and in which form, positions of the maxima are an output, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Indices {
    No,
    /// A second output.
    Second,
    /// The only output is the tuple (values, indices).
    Tuple,
}

impl Pool {
    fn rank(&self) -> usize {
        match &self.windows {
            Windows::Sliding(w) => w.len(),
            Windows::Adaptive(sizes) => sizes.len(),
        }
    }

    fn indices(&self) -> Indices {
        if let Kind::Max(indices) = self.kind { indices } else { Indices::No }
    }

    /// The windows along each spatial dimension, and the shape of the output.
    fn axes(&self, x: &TensorValue) -> Result<(Vec<Axis>, Shape), ShapeError> {
        let (shape, rank) = (x.shape(), self.rank());
        let leading = shape.rank().checked_sub(rank).filter(|n| (1..=2).contains(n));
        let leading = leading.ok_or_else(|| ShapeError::Rank {
            input: self.input,
            expected: format!("{} or {}", rank + 1, rank + 2),
            found: shape.clone(),
        })?;
        if !suits(self.kind, x.dtype()) {
            let expected = "a float (maxima also of integers, averages also of i64)".into();
            return Err(ShapeError::DType { input: self.input, expected, found: x.dtype() });
        }
        let (mut axes, mut output) = (Vec::with_capacity(rank), shape.clone());
        for a in 0..rank {
            let dim = leading + a;
            let axis = match &self.windows {
                Windows::Sliding(windows) => Axis::sliding(shape[dim], windows[a]),
                Windows::Adaptive(sizes) => {
                    Axis::adaptive(shape[dim], sizes[a].unwrap_or(shape[dim]))
                }
            };
            let axis = axis.map_err(|e| {
                ShapeError::Invalid(format!("dimension {dim} of an input {shape}: {e}"))
            })?;
            output[dim] = axis.output();
            axes.push(axis);
        }
        output.checked_numel()?;
        Ok((axes, output))
    }

    fn reduction(&self) -> Reduction {
        match self.kind {
            Kind::Max(_) => Reduction::Max,
            Kind::Average(divisor) => Reduction::Average(divisor),
            Kind::Power(p) => Reduction::Power { p, size: self.taps() },
        }
    }

    /// Taps of a whole sliding window.
    fn taps(&self) -> usize {
        match &self.windows {
            Windows::Sliding(w) => w.iter().fold(1, |n, w| n.saturating_mul(w.kernel)),
            Windows::Adaptive(_) => 1,
        }
    }
}

fn suits(kind: Kind, dtype: DType) -> bool {
    match kind {
        Kind::Max(_) => dtype.is_float() || dtype.is_integer(),
        Kind::Average(_) => dtype.is_float() || dtype == DType::I64,
        Kind::Power(_) => dtype.is_float(),
    }
}

impl Operator for Pool {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let (_, shape) = self.axes(x)?;
        let values = ValueSpec::tensor(x.dtype(), shape.clone());
        let indices = || ValueSpec::tensor(DType::I64, shape);
        Ok(match self.indices() {
            Indices::No => vec![values],
            Indices::Second => vec![values, indices()],
            Indices::Tuple => vec![ValueSpec::List(vec![values, indices()])],
        })
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, self.input)?;
        let (axes, _) = self.axes(x)?;
        let input = leaf(cx.inputs, self.input);
        let shape = x.shape();
        let planes = shape.product(0..shape.rank() - axes.len());
        if halves::is_half(x.dtype()) {
            return halves::widened_by(
                cx,
                Parts { dims: shape.rank() - axes.len(), of: &[self.input] },
                |cx| self.plan(cx),
            );
        }
        let mut geometry = Geometry::new(planes, &axes);
        let (reduction, isa) = (self.reduction(), cx.isa);
        let channels = || [shape[0], shape[1]]; // in blocks, which have a batch
        let pairs = matches!(x.spec.layout, Layout::BlockedBf16 { .. });
        match x.spec.layout {
            Layout::Plain => {}
            Layout::Blocked { block } => geometry = geometry.in_blocks(channels(), block),
            Layout::BlockedBf16 { block } if self.kind == Kind::Max(Indices::No) && block > 2 => {
                geometry = geometry.in_blocks(channels(), block);
                geometry.inner = block / 2; // words
            }
            of => return Err(PlanError::Unsupported(format!("this pooling of {of}"))),
        }
        if self.indices() != Indices::No {
            return for_ordered!(x.dtype(),
                T => Ok(Planned::new(MaxIndices::<T> { geometry, input, element: PhantomData })),
                _ => Err(PlanError::Unsupported(format!("maxima of {}", x.dtype()))),
            );
        }
        if x.dtype() != DType::F32 {
            return for_ordered!(x.dtype(),
                T => Ok(Planned::new(PoolAny::<T> { geometry, reduction, input, element: PhantomData })),
                _ => Err(PlanError::Unsupported(format!("pooling of {}", x.dtype()))),
            );
        }
        let mean = matches!(reduction, Reduction::Average(Divisor::Inputs | Divisor::Padded));
        if mean && geometry.inner == 1 && axes.iter().all(Axis::is_global) {
            let fold = Fold::new(&[planes, geometry.input_volume()], |d| d == 1);
            return Ok(Planned::new(GlobalAverage { fold, isa, input }));
        }
        let name = match self.kind {
            Kind::Max(_) => "max",
            Kind::Average(_) => "average",
            Kind::Power(_) => "power",
        };
        let scratch = scratch_len(&geometry, cx.threads).saturating_mul(size_of::<f32>());
        let layout = match x.spec.layout {
            Layout::Plain => String::new(),
            of => format!(".{of}"),
        };
        let name = format!("pool.{name}{layout}.{isa}");
        let kernel = PoolF32 { name, geometry, reduction, pairs, isa, input };
        Ok(Planned::new(kernel).with_scratch(scratch))
    }

    fn layouts(&self, cx: &LayoutCx<'_>) -> LayoutSupport {
        let batched =
            |x: &TensorValue| x.spec.may_lie_in_blocks() && x.shape().rank() == self.rank() + 2;
        let x = TensorValue::at(cx.inputs, self.input);
        let kind = matches!(self.kind, Kind::Max(Indices::No) | Kind::Average(_));
        LayoutSupport::common_if(kind && x.is_ok_and(batched))
    }

    /// The greatest of rounded numbers is the greatest, rounded.
    fn bf16(&self, _: &LayoutCx<'_>) -> Bf16Support {
        Bf16Support::moves_if(self.kind == Kind::Max(Indices::No))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let taps = match TensorValue::at(inputs, self.input).and_then(|x| self.axes(x)) {
            Ok((axes, _)) if axes.iter().all(|a| a.output() > 0) => axes
                .iter()
                .fold(1, |n: u64, a| n.saturating_mul(a.window(a.output() / 2).taps as u64)),
            _ => 1,
        };
        Cost::elementwise(inputs, outputs, taps)
    }
}

/// Any pooling of f32; of words of two bf16 their maxima.
struct PoolF32 {
    name: String,
    geometry: Geometry,
    reduction: Reduction,
    /// Whether it is words.
    pairs: bool,
    isa: Isa,
    input: usize,
}

/// What [`planned_fold_of_blocks`] makes of the pixels of a channel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OfBlocks {
    Sum,
    Mean,
    Max,
}

/// The mean, the sum or the greatest element of each channel of f32 images `(N, C, spatial...)` in
/// channel blocks: `(N, C)`, padded to whole blocks. `input` is the operator's input that they are.
///
/// # Errors
/// Where an image has no pixels.
pub(crate) fn planned_fold_of_blocks(
    cx: &PlanCx<'_>,
    input: usize,
    of: OfBlocks,
) -> Result<Planned, PlanError> {
    let kind = match of {
        OfBlocks::Sum => Kind::Average(Divisor::Fixed(1)),
        OfBlocks::Mean => Kind::Average(Divisor::Inputs),
        OfBlocks::Max => Kind::Max(Indices::No),
    };
    let rank = TensorValue::at(cx.inputs, input)?.shape().rank();
    let windows = Windows::Adaptive([Some(1); 3][..rank.saturating_sub(2).min(3)].to_vec());
    Pool { input, windows, kind }.plan(cx)
}

impl Kernel for PoolF32 {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let scratch = cx.take_scratch::<f32>()?;
        let (x, y) = (cx.inputs.get(self.input)?, cx.outputs.take(0)?);
        match self.pairs {
            true => max_of_pairs(self.isa, cx.par, &self.geometry, x, y, scratch),
            false => pool_f32(self.isa, cx.par, &self.geometry, self.reduction, x, y, scratch),
        }
        Ok(())
    }
}

/// The average of whole channels of f32.
struct GlobalAverage {
    fold: Fold,
    isa: Isa,
    input: usize,
}

impl Kernel for GlobalAverage {
    fn name(&self) -> &str {
        "pool.global_average"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (x, y) = (cx.inputs.get(self.input)?, cx.outputs.take(0)?);
        reduce_f32(self.isa, cx.par, &self.fold, reduce::Reduction::Mean, x, y);
        Ok(())
    }
}

/// Any pooling of any dtype.
struct PoolAny<T> {
    geometry: Geometry,
    reduction: Reduction,
    input: usize,
    element: PhantomData<T>,
}

impl<T: Ordered> Kernel for PoolAny<T> {
    fn name(&self) -> &str {
        "pool.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (x, y) = (cx.inputs.get::<T>(self.input)?, cx.outputs.take::<T>(0)?);
        pool_any(cx.par, &self.geometry, self.reduction, x, y);
        Ok(())
    }
}

/// Maxima and their positions.
struct MaxIndices<T> {
    geometry: Geometry,
    input: usize,
    element: PhantomData<T>,
}

impl<T: Ordered> Kernel for MaxIndices<T> {
    fn name(&self) -> &str {
        "pool.max_with_indices"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (values, indices) = (cx.outputs.take::<T>(0)?, cx.outputs.take::<i64>(1)?);
        let x = cx.inputs.get::<T>(self.input)?;
        max_with_indices(cx.par, &self.geometry, x, values, indices);
        Ok(())
    }
}

//! What view, permute, slice, split and expand have in common: every output element is some input
//! element.
//!
//! A family says where the elements of its outputs lie in its input ([`Part`]); infer, the choice
//! between a view and a copy, and the kernel are here.

use crate::fused::channel_map::MOST_CHANNELS;
use crate::support::assemble::{Copies, leaf};
use crate::{
    Arg, Bf16Support, BuildError, BuildProblem, LayoutCx, LayoutSupport, LoopNest, Neighbour,
    NodeReader, Operator, PlanCx, PlanError, Planned, Role, ShapeError, StorageView, StrideRule,
    TensorValue, ValueSpec,
};
use plutino_tensor::{DType, Layout, Shape, Strides, TensorError, TensorSpec};
use std::fmt::Debug;

/// Elements of a dense tensor, as a loop nest: shape, strides and first element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) shape: Shape,
    pub(crate) strides: Strides,
    pub(crate) offset: usize,
}

impl Geometry {
    /// All elements of a dense tensor, in order.
    pub(crate) fn dense(shape: &Shape) -> Self {
        Self { shape: shape.clone(), strides: shape.dense_strides(), offset: 0 }
    }

    /// Dimension `i` of the result is dimension `dims[i]`, each of which must exist.
    pub(crate) fn permute(&self, dims: &[usize]) -> Self {
        Self {
            shape: dims.iter().map(|&d| self.shape[d]).collect(),
            strides: dims.iter().map(|&d| self.strides[d]).collect(),
            offset: self.offset,
        }
    }

    /// `len` indices of dimension `dim` from `start` on, `step` apart; all of them must exist.
    pub(crate) fn slice(mut self, dim: usize, start: usize, len: usize, step: usize) -> Self {
        if len > 0 && self.shape.numel() > 0 {
            let shift = self.strides[dim].wrapping_mul(start as isize);
            self.offset = self.offset.wrapping_add_signed(shift);
        }
        self.shape[dim] = len;
        if len > 1 {
            self.strides[dim] = self.strides[dim].wrapping_mul(step as isize);
        }
        self
    }

    /// Drops dimension `dim` at this index, which must exist.
    pub(crate) fn select(self, dim: usize, index: usize) -> Self {
        let mut out = self.slice(dim, index, 1, 1);
        out.shape.remove(dim);
        out.strides.remove(dim);
        out
    }

    /// Reverses the order of dimension `dim`.
    pub(crate) fn flip(mut self, dim: usize) -> Self {
        if self.shape.numel() > 0 {
            let last = self.strides[dim].wrapping_mul(self.shape[dim] as isize - 1);
            self.offset = self.offset.wrapping_add_signed(last);
        }
        self.strides[dim] = self.strides[dim].wrapping_neg();
        self
    }

    /// Inserts a dimension of `len` indices that all mean the same elements.
    pub(crate) fn repeat(mut self, at: usize, len: usize) -> Self {
        self.shape.insert(at, len);
        self.strides.insert(at.min(self.strides.len()), 0);
        self
    }

    /// Repeats dimensions of size 1, and adds leading ones, until the shape is `shape`.
    pub(crate) fn broadcast(&self, shape: &Shape) -> Result<Self, ShapeError> {
        if self.shape.broadcast(shape)? != *shape {
            let (left, right) = (self.shape.clone(), shape.clone());
            return Err(TensorError::Broadcast { left, right }.into());
        }
        let lead = shape.rank() - self.shape.rank();
        let stride = |i: usize| match i.checked_sub(lead) {
            Some(d) if self.shape[d] == shape[i] => self.strides[d],
            _ => 0,
        };
        Ok(Self {
            strides: (0..shape.rank()).map(stride).collect(),
            shape: shape.clone(),
            offset: self.offset,
        })
    }

    /// Splits dimension `dim` into neighbours `outer` x `inner`, whose product it is.
    pub(crate) fn unmerge(mut self, dim: usize, outer: usize, inner: usize) -> Self {
        self.shape[dim] = inner;
        self.shape.insert(dim, outer);
        let step = self.strides[dim].wrapping_mul(inner as isize);
        self.strides.insert(dim, step);
        self
    }

    /// Whether the elements lie one after the other, so that no copy is needed.
    pub(crate) fn is_contiguous(&self) -> bool {
        let dense = self.shape.dense_strides();
        let mut dims = self.shape.iter().zip(self.strides.iter().zip(&dense));
        self.shape.numel() == 0 || dims.all(|(&d, (s, t))| d == 1 || s == t)
    }
}

/// One output: which elements of the input, in which order.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    /// The elements, in elements of the output's dtype.
    pub(crate) from: Geometry,
    /// The output's shape: the same number of elements in the same order.
    pub(crate) shape: Shape,
    /// The output's dtype.
    pub(crate) dtype: DType,
}

impl Part {
    /// An output of the geometry's own shape.
    pub(crate) fn new(dtype: DType, from: Geometry) -> Self {
        Self { shape: from.shape.clone(), from, dtype }
    }

    /// The whole input in another shape.
    pub(crate) fn reshaped(input: &TensorValue, shape: Shape) -> Self {
        Self { from: Geometry::dense(input.shape()), shape, dtype: input.dtype() }
    }
}

/// The outputs of a rearrangement.
#[derive(Debug)]
pub(crate) enum Parts {
    /// One tensor.
    One(Part),
    /// One output that is a list of tensors.
    List(Vec<Part>),
    /// Several outputs.
    Many(Vec<Part>),
}

impl From<Part> for Parts {
    fn from(part: Part) -> Self {
        Self::One(part)
    }
}

impl Parts {
    fn as_slice(&self) -> &[Part] {
        match self {
            Self::One(part) => std::slice::from_ref(part),
            Self::List(parts) | Self::Many(parts) => parts,
        }
    }
}

/// What PyTorch makes of a rearrangement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Views {
    /// Views of the input.
    Always,
    /// A view where strides allow: another shape.
    WherePossible,
    /// Copies.
    Never,
    /// That is not known, or the elements are of another size.
    Unknown,
    /// Views of the memory that the input lies in, whatever view of it the input is: only the
    /// shapes of [`Rearrange::parts`] are of use.
    Storage,
}

/// An operator whose output elements are elements of one input.
pub(crate) trait Rearrange: Debug + Send + Sync + 'static {
    /// The input (not leaf) that the elements come from.
    fn input(&self) -> usize;
    /// Where the elements of each output lie in `x`, the input.
    ///
    /// # Errors
    /// Where PyTorch would refuse the inputs.
    fn parts(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Result<Parts, ShapeError>;

    /// Whether PyTorch makes views of the input, or copies.
    fn views(&self) -> Views {
        Views::Always
    }

    /// The order of the dimensions of `x` in the output, where nothing else is done.
    fn order(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Option<Vec<usize>> {
        let _ = (x, inputs);
        None
    }

    /// The operator that reads the memory itself, of which the input is this view: where
    /// [`Views::Storage`] are made.
    fn on_storage(&self, view: &StorageView) -> Option<Box<dyn Operator>> {
        let _ = view;
        None
    }

    /// The channels of `x` that each output has, where `x` and they are images (N, C, H, W) and
    /// nothing else is done.
    fn channels(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Option<Vec<Vec<usize>>> {
        let _ = (x, inputs);
        None
    }

    /// Where the elements of each output lie in `x` if all of them lie in blocks of `block`
    /// channels, as tensors of shape `(N, C / block, H, W, block)`; none where channels of one
    /// block would part.
    fn block_parts(&self, x: &TensorValue, inputs: &[ValueSpec], block: usize) -> Option<Parts> {
        let _ = (x, inputs, block);
        None
    }
}

/// Makes an operator of a rearrangement. (Boxed: one `infer` and one `plan` serve all of them.)
#[derive(Debug)]
struct Rearranged(Box<dyn Rearrange>);

/// The boxed operator that a builder returns.
pub(crate) fn rearranged(r: impl Rearrange) -> Result<Box<dyn Operator>, BuildError> {
    Ok(operator(r))
}

/// The operator of a rearrangement.
pub(crate) fn operator(r: impl Rearrange) -> Box<dyn Operator> {
    Box::new(Rearranged(Box::new(r)))
}

impl Rearranged {
    /// Where the elements of each output lie if all of them lie in blocks of channels: also of
    /// images that get other spatial dimensions and keep their channels.
    fn block_parts(&self, x: &TensorValue, inputs: &[ValueSpec], block: usize) -> Option<Parts> {
        if !x.spec.may_lie_in_blocks() {
            return None;
        }
        if let Some(parts) = self.0.block_parts(x, inputs, block) {
            return Some(parts);
        }
        let Parts::One(part) = self.0.parts(x, inputs).ok()? else { return None };
        let output = TensorSpec::new(part.dtype, part.shape.clone());
        let keeps = self.0.views() != Views::Storage
            && part.from == Geometry::dense(x.shape())
            && output.may_lie_in_blocks()
            && x.shape()[..2] == part.shape[..2];
        let physical = x.spec.clone().with_layout(Layout::Blocked { block }).physical_shape();
        keeps.then(|| Part::new(part.dtype, Geometry::dense(&physical)).into())
    }
}

impl Operator for Rearranged {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let parts = self.0.parts(TensorValue::at(inputs, self.0.input())?, inputs)?;
        for part in parts.as_slice() {
            part.shape.checked_numel()?;
        }
        let value = |p: &Part| ValueSpec::tensor(p.dtype, p.shape.clone());
        Ok(match &parts {
            Parts::One(part) => vec![value(part)],
            Parts::List(parts) => vec![ValueSpec::List(parts.iter().map(value).collect())],
            Parts::Many(parts) => parts.iter().map(value).collect(),
        })
    }

    fn stride_rule(&self, inputs: &[ValueSpec]) -> StrideRule {
        let input = self.0.input();
        let parts = || {
            let parts = self.0.parts(TensorValue::at(inputs, input).ok()?, inputs).ok()?;
            let nest = |Geometry { shape, strides, offset }: &Geometry| LoopNest {
                shape: shape.clone(),
                strides: strides.clone(),
                offset: *offset,
            };
            Some(parts.as_slice().iter().map(|part| nest(&part.from)).collect())
        };
        match self.0.views() {
            Views::Always => parts().map_or(StrideRule::Unknown, |p| StrideRule::Parts(input, p)),
            Views::WherePossible => StrideRule::Reshape(input),
            Views::Never => StrideRule::LikeInputs,
            Views::Unknown => StrideRule::Unknown,
            Views::Storage => StrideRule::Storage(input),
        }
    }

    fn absorb(&self, neighbour: &Neighbour, _: &[ValueSpec]) -> Option<Box<dyn Operator>> {
        let Neighbour::View(view) = neighbour else { return None };
        self.0.on_storage(view)
    }

    fn role(&self, inputs: &[ValueSpec]) -> Option<Role> {
        let input = self.0.input();
        let x = TensorValue::at(inputs, input).ok()?;
        if let Some(order) = self.0.order(x, inputs) {
            return Some(Role::Permute(input, order));
        }
        if let Ok(parts) = self.0.parts(x, inputs)
            && let [part] = parts.as_slice()
            && part.from == Geometry::dense(x.shape())
            && part.dtype == x.dtype()
            && self.0.views() != Views::Storage
        {
            return Some(Role::Reshape(input));
        }
        if let Ok(parts) = self.0.parts(x, inputs)
            && let [part] = parts.as_slice()
            && let Some((dim, times)) = repeated(part, x)
        {
            return Some(Role::Repeat(input, dim, times));
        }
        let image = x.spec.may_lie_in_blocks() && x.shape()[1] <= MOST_CHANNELS;
        let outputs = image.then(|| self.0.channels(x, inputs))??;
        let taken = |channels: Vec<_>| channels.into_iter().map(|c| (input, c)).collect();
        Some(Role::Channels(outputs.into_iter().map(taken).collect()))
    }

    fn layouts(&self, cx: &LayoutCx<'_>) -> LayoutSupport {
        let blocks = |x: &TensorValue| self.block_parts(x, cx.inputs, cx.block()).is_some();
        LayoutSupport::common_if(TensorValue::at(cx.inputs, self.0.input()).is_ok_and(blocks))
    }

    fn bf16(&self, cx: &LayoutCx<'_>) -> Bf16Support {
        let moves = |x: &TensorValue| {
            let one = match self.0.parts(x, cx.inputs) {
                Ok(Parts::One(part)) => part.dtype == DType::F32,
                _ => false,
            };
            let of_f32 = x.dtype() == DType::F32 && x.spec.layout == Layout::Plain;
            one && of_f32 && self.0.views() != Views::Storage
        };
        let x = TensorValue::at(cx.inputs, self.0.input());
        Bf16Support::moves_if(x.is_ok_and(moves)).of_plain()
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        if self.0.views() == Views::Storage {
            let why = "it reads the memory that its input lies in, which is not known here";
            return Err(PlanError::Unsupported(why.into()));
        }
        let x = TensorValue::at(cx.inputs, self.0.input())?;
        let parts = match x.spec.layout {
            Layout::Blocked { block } => self
                .block_parts(x, cx.inputs, block)
                .ok_or_else(|| PlanError::Unsupported("parts of channel blocks".into()))?,
            _ => self.0.parts(x, cx.inputs)?,
        };
        let input = leaf(cx.inputs, self.0.input());
        let mut copies = Copies::default();
        let mut alias = Vec::new();
        for (output, part) in parts.as_slice().iter().enumerate() {
            let element = if x.spec.layout == Layout::PlainBf16 { DType::Bf16 } else { part.dtype };
            let (from, to) = ((input, x.dtype()), (output, part.dtype));
            alias.push(copies.view_or_copy(from, to, element, &part.from)?);
        }
        let mut planned = copies.into_planned();
        planned.alias = alias;
        Ok(planned)
    }
}

/// The dimension of which each index occurs so many times in a row, where nothing else is done.
fn repeated(part: &Part, x: &TensorValue) -> Option<(usize, usize)> {
    let dense = Geometry::dense(x.shape());
    let rank = dense.shape.rank();
    let from = &part.from;
    let found = (0..rank).find_map(|dim| {
        // Beside the dimension, or in its place where that has one index.
        let (mut beside, mut instead) = (dense.clone(), dense.clone());
        let times = *from.shape.get(dim + 1).unwrap_or(&1);
        beside = beside.repeat(dim + 1, times);
        let one = dense.shape[dim] == 1;
        instead.shape[dim] = *from.shape.get(dim)?;
        instead.strides[dim] = 0;
        match () {
            () if *from == beside => Some((dim, times)),
            () if one && *from == instead => Some((dim, instead.shape[dim])),
            () => None,
        }
    });
    let (dim, times) = found.filter(|&(_, times)| times > 1)?;
    let mut shape = x.shape().clone();
    shape[dim] = shape[dim].checked_mul(times)?;
    (part.shape == shape && part.dtype == x.dtype()).then_some((dim, times))
}

/// The input that the operator is applied to: `$input` or whatever the file calls it. Asked for
/// after all other inputs.
pub(crate) fn subject(r: &mut NodeReader<'_>) -> Result<usize, BuildError> {
    if let Some(at) = r.input("input") {
        return Ok(at);
    }
    match r.rest()[..] {
        [at] => Ok(at),
        _ => Err(r.error(BuildProblem::MissingInput { key: "input".into() })),
    }
}

/// The error of a parameter that cannot be right for any input.
pub(crate) fn invalid(what: impl Into<String>) -> ShapeError {
    ShapeError::Invalid(what.into())
}

/// A dimension list as PyTorch counts: each in `-rank..rank`, none twice.
pub(crate) fn distinct_dims(shape: &Shape, dims: &[i64]) -> Result<Vec<usize>, ShapeError> {
    let mut out = Vec::with_capacity(dims.len());
    for &d in dims {
        let at = shape.dim(d)?;
        if out.contains(&at) {
            return Err(invalid(format!("dimension {d} is named twice in {dims:?}")));
        }
        out.push(at);
    }
    Ok(out)
}

/// A list of integers that must be there, as a parameter or an input, under the first of these
/// names that the file knows. `()` and `None` are the empty list.
pub(crate) fn ints(r: &mut NodeReader<'_>, keys: &[&str]) -> Result<Arg<Vec<i64>>, BuildError> {
    for key in keys {
        if let Some(at) = r.named_input(key) {
            return Ok(Arg::Input(at));
        }
    }
    let key = keys.iter().find(|key| r.has(key)).or(keys.first());
    r.required(key.unwrap_or(&"")).map(Arg::Value)
}

//! What cat, stack, roll and slice_scatter have in common: the output is put together from pieces
//! of the inputs.
//!
//! A family says which elements of which input go where ([`Piece`]); infer, plan and the kernel are
//! here.

use crate::support::rearrange::Geometry;
use crate::{
    Alias, Bf16Support, BuildError, Kernel, LayoutCx, LayoutSupport, Operator, PlanCx, PlanError,
    Planned, Role, RunCx, RunError, ShapeError, StrideRule, ValueSpec,
};
use plutino_kernels::copy::{CopyError, Side, StridedCopy};
use plutino_tensor::{DType, Layout, Shape};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Some elements of an input and their place in the output.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The input leaf.
    pub(crate) leaf: usize,
    /// The elements.
    pub(crate) from: Geometry,
    /// Where they go; the same shape.
    pub(crate) to: Geometry,
}

/// An output and the pieces it is made of. Later pieces overwrite earlier ones.
#[derive(Debug)]
pub(crate) struct Assembly {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// The dtype whose elements the pieces count, where it is not the output's: real numbers of
    /// complex ones.
    pub(crate) unit: Option<DType>,
    pub(crate) pieces: Vec<Piece>,
    /// What pieces do not cover is zero. Otherwise they cover everything.
    pub(crate) zero: bool,
    /// The first piece is a whole input, which may become the output.
    pub(crate) in_place: bool,
    /// See [`Planned::placement`].
    pub(crate) placement: Option<Vec<usize>>,
}

impl Assembly {
    pub(crate) fn new(dtype: DType, shape: Shape, pieces: Vec<Piece>) -> Self {
        Self { dtype, shape, unit: None, pieces, zero: false, in_place: false, placement: None }
    }
}

/// An operator whose output is made of pieces of its inputs.
pub(crate) trait Assemble: Debug + Send + Sync + 'static {
    /// The output.
    ///
    /// # Errors
    /// Where PyTorch would refuse the inputs.
    fn assembly(&self, inputs: &[ValueSpec]) -> Result<Assembly, ShapeError>;

    /// The channels of the inputs that the output has, where all are f32 images (N, C, H, W) and
    /// nothing else is done: an input and a channel of it for each.
    fn channels(&self, inputs: &[ValueSpec]) -> Option<Vec<(usize, usize)>> {
        let _ = inputs;
        None
    }

    /// The output of tensors in channel blocks, seen as those of shape `(N, C / block, H, W,
    /// block)`; asked where [`Assemble::moves_blocks`] says that they can be assembled so.
    ///
    /// # Errors
    /// As [`Assemble::assembly`].
    fn of_blocks(&self, inputs: &[ValueSpec]) -> Result<Assembly, ShapeError> {
        self.assembly(inputs)
    }

    /// Whether tensors in blocks of `block` channels can be assembled as they lie in memory, as
    /// tensors of shape `(N, C / block, H, W, block)`.
    fn moves_blocks(&self, inputs: &[ValueSpec], block: usize) -> bool {
        let _ = (inputs, block);
        false
    }

    /// See [`Operator::appends`].
    fn appends(&self, rank: usize) -> Option<usize> {
        let _ = rank;
        None
    }
}

/// Values as those see them who move elements: tensors in channel blocks get the shape of their
/// memory.
pub(crate) fn physical(values: &[ValueSpec]) -> Vec<ValueSpec> {
    let one = |value: &ValueSpec| match value {
        ValueSpec::Tensor(t) => match t.spec.layout {
            Layout::Plain => value.clone(),
            Layout::PlainBf16 => ValueSpec::tensor(t.spec.dtype, t.spec.shape.clone()),
            Layout::Blocked { .. } | Layout::BlockedBf16 { .. } => {
                ValueSpec::tensor(t.spec.dtype, t.spec.physical_shape())
            }
        },
        ValueSpec::List(items) => ValueSpec::List(physical(items)),
        other => other.clone(),
    };
    values.iter().map(one).collect()
}

fn lies_in_blocks(value: &ValueSpec) -> bool {
    let blocks = |layout| matches!(layout, Layout::Blocked { .. } | Layout::BlockedBf16 { .. });
    value.as_tensor().is_some_and(|t| blocks(t.spec.layout))
}

/// Makes an operator of an assembly. (Boxed: one `infer` and one `plan` serve all of them.)
#[derive(Debug)]
struct Assembled(Box<dyn Assemble>);

/// The boxed operator that a builder returns.
pub(crate) fn assembled(a: impl Assemble) -> Result<Box<dyn Operator>, BuildError> {
    Ok(Box::new(Assembled(Box::new(a))))
}

impl Operator for Assembled {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let Assembly { dtype, shape, .. } = self.0.assembly(inputs)?;
        shape.checked_numel()?;
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn role(&self, inputs: &[ValueSpec]) -> Option<Role> {
        if let (Ok(a), [ValueSpec::Tensor(x), ..]) = (self.0.assembly(inputs), inputs)
            && let [piece] = &a.pieces[..]
            && (piece.leaf, &piece.from) == (0, &Geometry::dense(x.shape()))
            && piece.to == piece.from
            && (a.dtype, &a.shape, a.zero) == (x.dtype(), x.shape(), false)
        {
            return Some(Role::Same(0));
        }
        Some(Role::Channels(vec![self.0.channels(inputs)?]))
    }

    fn appends(&self, rank: usize) -> Option<usize> {
        self.0.appends(rank)
    }

    fn layouts(&self, cx: &LayoutCx<'_>) -> LayoutSupport {
        LayoutSupport::common_if(self.0.moves_blocks(cx.inputs, cx.block()))
    }

    fn bf16(&self, cx: &LayoutCx<'_>) -> Bf16Support {
        if cx.inputs.iter().any(lies_in_blocks) {
            return Bf16Support::moves_if(self.0.moves_blocks(cx.inputs, 2 * cx.block()));
        }
        // What is converted on the way is numbers of its own dtype; what takes no time is not to
        // become a copy.
        let of_f32 = |leaf: &ValueSpec| leaf.as_tensor().is_some_and(|t| t.dtype() == DType::F32);
        let all = cx.inputs.iter().flat_map(ValueSpec::leaves).all(of_f32);
        let moves = |a: Assembly| {
            let f32 = all && a.dtype == DType::F32 && a.unit.is_none();
            f32 && !a.in_place && a.placement.is_none()
        };
        Bf16Support::moves_if(self.0.assembly(cx.inputs).is_ok_and(moves)).of_plain()
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let inputs = physical(cx.inputs);
        let a = match cx.inputs.iter().any(lies_in_blocks) {
            true => self.0.of_blocks(&inputs)?,
            false => self.0.assembly(&inputs)?,
        };
        let dtype = a.unit.unwrap_or(a.dtype);
        let mut copies = Copies { zero: a.zero, ..Copies::default() };
        let element = match cx.outputs.first().and_then(ValueSpec::as_tensor) {
            Some(y) if y.spec.layout == Layout::PlainBf16 => DType::Bf16,
            _ => dtype,
        };
        let leaves: Vec<_> = cx.inputs.iter().flat_map(ValueSpec::leaves).collect();
        for piece in &a.pieces {
            let found = leaves.get(piece.leaf).and_then(|leaf| leaf.as_tensor());
            if found.is_some_and(|t| t.dtype() != dtype) {
                copies.converted.insert(piece.leaf, dtype);
            }
            copies.push(piece.leaf, 0, element, &piece.from, Some(&piece.to))?;
        }
        let converted = !copies.converted.is_empty();
        let mut planned = copies.into_planned();
        if converted {
            return Ok(planned); // nobody else can write, or leave, another dtype's elements in place
        }
        if let (true, Some(first)) = (a.in_place, a.pieces.first()) {
            planned.alias = vec![Alias::InPlace { input: first.leaf }];
        }
        planned.placement = a.placement;
        Ok(planned)
    }
}

/// Number of the first leaf of input `input`.
pub(crate) fn leaf(inputs: &[ValueSpec], input: usize) -> usize {
    inputs.iter().take(input).map(ValueSpec::leaf_count).sum()
}

/// The kernel of everything that moves elements to places known beforehand: strided copies, one
/// after the other, each by all threads.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    name: String,
    /// Input leaf, output leaf; all copies to one output are neighbours.
    copies: Vec<(usize, usize, StridedCopy)>,
    /// Bytes of the largest, which gives the name.
    most: usize,
    /// Input leaves that are converted before, in memory of their own.
    converted: BTreeMap<usize, DType>,
    zero: bool,
}

impl Copies {
    /// Adds a copy of the elements `from` of an input leaf to the elements `to` of an output leaf
    /// (all of them, in order, where it is none). A later copy overwrites an earlier one.
    pub(crate) fn push(
        &mut self,
        input: usize,
        output: usize,
        dtype: DType,
        from: &Geometry,
        to: Option<&Geometry>,
    ) -> Result<(), PlanError> {
        let src = Side { offset: from.offset, strides: &from.strides };
        let size = dtype.size_of();
        let copy = match to {
            None => StridedCopy::to_dense(size, &from.shape, src),
            Some(to) => {
                let dst = Side { offset: to.offset, strides: &to.strides };
                StridedCopy::new(size, &from.shape, src, dst)
            }
        }
        .map_err(|e| PlanError::Unsupported(e.to_string()))?;
        if copy.bytes() >= self.most {
            self.most = copy.bytes();
            self.name = format!("copy.{}", copy.name());
        }
        self.copies.push((input, output, copy));
        Ok(())
    }

    /// The output is this part, of this dtype, of an input leaf of another: a view where the part
    /// is contiguous and begins at an element of both, which are of the same size, else a copy.
    /// `element` is what `from` counts in memory: the output's dtype, or bf16 where f32 lies so.
    pub(crate) fn view_or_copy(
        &mut self,
        (input, of): (usize, DType),
        (output, dtype): (usize, DType),
        element: DType,
        from: &Geometry,
    ) -> Result<Alias, PlanError> {
        let (start, size) = (from.offset.saturating_mul(element.size_of()), dtype.size_of());
        let fits = from.offset == 0 || size == of.size_of() && start.is_multiple_of(size);
        if from.is_contiguous() && fits {
            return Ok(Alias::View { input, offset: start / size });
        }
        self.push(input, output, element, from, None)?;
        Ok(Alias::None)
    }

    /// The plan: a kernel for an output without elements, too, which somebody must make; none where
    /// all outputs are views.
    pub(crate) fn into_planned(self) -> Planned {
        if self.copies.is_empty() && !self.zero {
            return Planned::views(Vec::new());
        }
        Planned::new(self)
    }
}

impl Kernel for Copies {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let mut copies = self.copies.iter().peekable();
        if self.zero && copies.peek().is_none() {
            cx.outputs.take_bytes(0)?.1.fill(0);
        }
        while let Some(&(_, output, _)) = copies.peek() {
            let (_, dst) = cx.outputs.take_bytes(*output)?;
            if self.zero {
                dst.fill(0);
            }
            while let Some((input, _, copy)) = copies.next_if(|(_, o, _)| o == output) {
                // Computed in place: what is to be copied is there.
                if cx.inputs.0.get(*input).is_some_and(|i| i.bytes.is_none()) {
                    continue;
                }
                match self.converted.get(input) {
                    None => copy.run(cx.par, cx.inputs.bytes(*input)?, dst).map_err(internal)?,
                    Some(dtype) => {
                        let tensor = cx.inputs.view(*input)?.cast(*dtype)?;
                        copy.run(cx.par, tensor.as_bytes(), dst).map_err(internal)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A copy that fails although its plan was made for these shapes.
pub(crate) fn internal(error: CopyError) -> RunError {
    RunError::Internal(error.to_string())
}

/// The dtype of two or more tensors that must agree.
pub(crate) fn same_dtype(
    first: (usize, DType),
    others: impl IntoIterator<Item = (usize, DType)>,
) -> Result<DType, ShapeError> {
    for (input, found) in others {
        if found != first.1 {
            let expected = format!("{}, as input {}", first.1, first.0);
            return Err(ShapeError::DType { input, expected, found });
        }
    }
    Ok(first.1)
}

//! From a lowered formula to a kernel.

use super::lowering::{Computed, Lowered, Origin};
use super::number;
use crate::{
    Alias, Kernel, LayoutSupport, PlanCx, PlanError, Planned, RunCx, RunError, ShapeError,
    TensorValue, ValueSpec,
};
use plutino_kernels::elementwise::{ElementwiseError, LoopNest, Program, Source};
use plutino_kernels::{Isa, PackKey};
use plutino_tensor::{DType, Layout, Tensor, TensorSpec};
use smallvec::SmallVec;
use std::sync::Arc;

impl Lowered {
    /// What is known of the result before the run.
    ///
    /// # Errors
    /// Where no memory is left for a number.
    pub(crate) fn spec(&self, inputs: &[ValueSpec]) -> Result<ValueSpec, ShapeError> {
        match self {
            Self::Number(x) => number::spec(*x),
            &Self::Input(leaf) => {
                let leaves: Vec<_> = inputs.iter().flat_map(ValueSpec::leaves).collect();
                let mut value = (*leaves
                    .get(leaf)
                    .ok_or_else(|| ShapeError::Invalid(format!("there is no leaf {leaf}")))?)
                .clone();
                if let ValueSpec::Tensor(t) = &mut value {
                    t.spec.layout = Layout::Plain;
                }
                Ok(value)
            }
            Self::Computed(c) => {
                let spec = TensorSpec::new(c.program.dtype(), c.shape.clone());
                Ok(ValueSpec::Tensor(TensorValue { spec, known: None, python: c.python }))
            }
        }
    }

    /// Number of functions that are applied to each element.
    pub(crate) fn functions(&self) -> usize {
        match self {
            Self::Computed(c) => c.program.functions(),
            _ => 0,
        }
    }

    /// In which layouts the result can be computed.
    pub(crate) fn layouts(&self, inputs: &[ValueSpec], block: usize) -> LayoutSupport {
        let agrees = match self {
            Self::Number(_) => false,
            Self::Input(_) => true,
            Self::Computed(c) => c.agrees_in_blocks(inputs, block),
        };
        LayoutSupport::common_if(agrees)
    }
}

impl Computed {
    /// Whether storage broadcasts in blocks as the shapes do. What a function makes of the padding
    /// of a last block does not matter: nobody reads it.
    fn agrees_in_blocks(&self, inputs: &[ValueSpec], block: usize) -> bool {
        let result = TensorSpec::new(self.program.dtype(), self.shape.clone());
        if !result.may_lie_in_blocks() {
            return false;
        }
        let (rank, channels) = (result.shape.rank(), result.shape[1]);
        let leaves: Vec<_> = inputs.iter().flat_map(ValueSpec::leaves).collect();
        let whole = block > 0 && channels.is_multiple_of(block);
        block > 0
            && self.sources.iter().zip(self.program.inputs()).all(|((origin, shape), &dtype)| {
                // In its own shape, not in one it is only read as: that is how the layout pass sees
                // it.
                let as_it_is = match origin {
                    Origin::Leaf(l) => leaves
                        .get(*l)
                        .and_then(|v| v.as_tensor())
                        .is_some_and(|t| t.shape() == shape),
                    Origin::Weight(_) => false,
                };
                if as_it_is && shape.rank() == rank {
                    return shape[1] == channels && dtype == DType::F32;
                }
                shape.numel() == 1 || (whole && is_per_channel(shape, rank, channels))
            })
    }
}

/// Whether a shape without a batch holds one element for each channel of tensors of this rank: in
/// the order of blocks, too.
fn is_per_channel(shape: &[usize], rank: usize, channels: usize) -> bool {
    let own = match shape {
        [1, own @ ..] if shape.len() == rank => own,
        own => own,
    };
    own.len() + 1 == rank && own[0] == channels && own[1..].iter().all(|&n| n == 1)
}

/// Binds the formulas of the output leaves, in order.
///
/// # Errors
/// Where a layout does not fit, or a weight was not loaded.
pub(crate) fn plan(
    cx: &PlanCx<'_>,
    name: &str,
    outputs: Vec<Lowered>,
) -> Result<Planned, PlanError> {
    let specs: Vec<_> = cx.outputs.iter().flat_map(ValueSpec::leaves).collect();
    let mut parts: SmallVec<[Part; 1]> = SmallVec::new();
    let mut alias = vec![Alias::None; outputs.len()];
    for (output, lowered) in outputs.into_iter().enumerate() {
        match lowered {
            Lowered::Number(_) => {}
            Lowered::Input(leaf) => alias[output] = Alias::View { input: leaf, offset: 0 },
            Lowered::Computed(computed) => {
                let spec = specs.get(output).and_then(|s| s.as_tensor()).ok_or_else(|| {
                    PlanError::Unsupported("an elementwise result of unknown shape".into())
                })?;
                parts.push(Part::new(cx, output, &spec.spec, computed)?);
            }
        }
    }
    let planned = Planned::views(alias);
    let Some(first) = parts.first() else { return Ok(planned) };
    let mut planned = Planned { kernel: None, ..planned };
    if let ([part], Some(input)) = (&parts[..], first.may_overwrite()) {
        planned.alias[part.output] = Alias::InPlace { input };
    }
    let scratch = parts.iter().map(|p| p.program.scratch_bytes(cx.threads)).max();
    let name = format!("elementwise.{name}.{}", cx.isa);
    planned.kernel = Some(Arc::new(ElementwiseKernel { name, isa: cx.isa, parts }));
    Ok(planned.with_scratch(scratch.unwrap_or(0)))
}

/// Programs that each compute one output.
pub(crate) struct ElementwiseKernel {
    name: String,
    isa: Isa,
    parts: SmallVec<[Part; 1]>,
}

struct Part {
    output: usize,
    program: Program,
    nest: LoopNest,
    sources: Vec<Bound>,
}

/// Where the bytes of a program's input are.
enum Bound {
    Leaf(usize),
    Weight(Arc<Tensor>),
}

impl Part {
    fn new(
        cx: &PlanCx<'_>,
        output: usize,
        result: &TensorSpec,
        computed: Computed,
    ) -> Result<Self, PlanError> {
        let leaves: Vec<_> = cx.inputs.iter().flat_map(ValueSpec::leaves).collect();
        let to = storage_dims(result);
        let mut sources = Vec::new();
        let mut from: Vec<Dims> = Vec::new();
        for (origin, shape) in computed.sources {
            let mut layout = Layout::Plain;
            sources.push(match origin {
                Origin::Leaf(l) => {
                    if let Some(t) = leaves.get(l).and_then(|v| v.as_tensor()) {
                        layout = t.spec.layout;
                    }
                    Bound::Leaf(l)
                }
                Origin::Weight(w) => Bound::Weight(cx.packs.get(
                    &w.name,
                    PackKey::as_stored(w.spec.dtype),
                    || w.tensor(),
                )?),
            });
            from.push(match (result.layout, layout) {
                (Layout::Plain, Layout::Plain) => shape.dims().into(),
                (a, b) if a == b => {
                    storage_dims(&TensorSpec::new(result.dtype, shape).with_layout(layout))
                }
                // Of a single channel, too, whose block is padded.
                (_, Layout::Plain) if shape.numel() == 1 => Dims::new(),
                (Layout::Blocked { block }, Layout::Plain)
                    if is_per_channel(&shape, result.shape.rank(), channels(result)) =>
                {
                    let mut dims: Dims = SmallVec::from_elem(1, result.shape.rank() + 1);
                    dims[1] = channels(result) / block;
                    dims[result.shape.rank()] = block;
                    dims
                }
                (a, b) => {
                    let what = format!("an elementwise function of {b} tensors into {a} ones");
                    return Err(PlanError::Unsupported(what));
                }
            });
        }
        let from: SmallVec<[&[usize]; 4]> = from.iter().map(|d| &d[..]).collect();
        let nest = LoopNest::new(&to, &from).map_err(|e| ShapeError::Invalid(e.to_string()))?;
        Ok(Self { output, program: computed.program, nest, sources })
    }

    /// The first input leaf that the result may overwrite.
    fn may_overwrite(&self) -> Option<usize> {
        let width = self.program.dtype().size_of();
        let mut inputs = self.sources.iter().zip(self.program.inputs()).enumerate();
        inputs.find_map(|(i, (source, dtype))| match source {
            Bound::Leaf(l) if dtype.size_of() == width && self.nest.is_whole(i) => Some(*l),
            _ => None,
        })
    }

    fn run(&self, isa: Isa, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let mut sources: SmallVec<[Source<'_>; 12]> = SmallVec::new();
        for source in &self.sources {
            sources.push(match source {
                Bound::Weight(w) => Source::Bytes(w.as_bytes()),
                Bound::Leaf(l) => match cx.inputs.0.get(*l) {
                    Some(input) => input.bytes.map_or(Source::Result, Source::Bytes),
                    None => return Err(RunError::Internal(format!("there is no input {l}"))),
                },
            });
        }
        let (_, result) = cx.outputs.take_bytes(self.output)?;
        self.program.run(isa, cx.par, &self.nest, &sources, result, cx.scratch).map_err(|e| match e
        {
            ElementwiseError::ZeroDivision => {
                RunError::Value { input: cx.inputs.len().saturating_sub(1), what: e.to_string() }
            }
            other => RunError::Internal(other.to_string()),
        })
    }
}

impl Kernel for ElementwiseKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        self.parts.iter().try_for_each(|part| part.run(self.isa, cx))
    }
}

type Dims = SmallVec<[usize; 6]>;

/// The dimensions of a tensor as it lies in memory.
fn storage_dims(spec: &TensorSpec) -> Dims {
    match (spec.layout, &spec.shape[..]) {
        (Layout::Blocked { block }, [n, c, rest @ ..]) if block > 0 => {
            let blocks = c.div_ceil(block);
            [*n, blocks].iter().chain(rest).copied().chain([block]).collect()
        }
        (_, dims) => dims.into(),
    }
}

/// Channels: dimension 1.
fn channels(spec: &TensorSpec) -> usize {
    spec.shape.get(1).copied().unwrap_or(0)
}

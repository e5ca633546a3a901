//! A kernel with kernels inside: operators that are others, where they are not expanded into the
//! net.
//!
//! What lies between the steps lies in scratch memory, each value in a place of its own. The whole
//! may run in chunks: every input, output and value in between is cut into as many parts, and all
//! steps compute one part after the other.

use super::assemble::leaf;
use crate::core::expand::specs;
use crate::{
    Alias, Cost, Expansion, Input, Inputs, Kernel, Operator, Output, Outputs, PlanCx, PlanError,
    Planned, RunCx, RunError, ShapeError, StepValue, ValueSpec,
};
use plutino_tensor::{Tensor, TensorSpec};
use smallvec::SmallVec;
use std::fmt::Debug;
use std::sync::Arc;

/// Bytes between the places of two values, and what divides them.
const ALIGNMENT: usize = plutino_tensor::ALIGNMENT;

/// An operator that is computed by others.
pub(crate) trait Composed: Debug + Send + Sync + 'static {
    /// PyTorch's name, shown as the kernel's.
    fn name(&self) -> &str;

    /// What it consists of for these inputs.
    ///
    /// # Errors
    /// Where PyTorch would refuse the inputs.
    fn expansion(&self, inputs: &[ValueSpec]) -> Result<Expansion, ShapeError>;
}

/// The operator of its steps.
#[derive(Debug)]
pub(crate) struct Composite<C>(pub(crate) C);

impl<C: Composed> Operator for Composite<C> {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let expansion = self.0.expansion(inputs)?;
        expansion.results(inputs, &expansion.infer(inputs)?)
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        plan(self.0.name(), &self.0.expansion(cx.inputs)?, cx)
    }

    fn expand(&self, inputs: &[ValueSpec]) -> Option<Result<Expansion, ShapeError>> {
        Some(self.0.expansion(inputs))
    }

    /// Its steps are asked one by one.
    fn refuses_data(&self) -> bool {
        true
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let whole = || -> Result<Cost, ShapeError> {
            let expansion = self.0.expansion(inputs)?;
            cost(&expansion, inputs)
        };
        whole().unwrap_or_else(|_| Cost::moved(inputs, outputs))
    }
}

/// The sum of the steps.
pub(crate) fn cost(expansion: &Expansion, inputs: &[ValueSpec]) -> Result<Cost, ShapeError> {
    let made = expansion.infer(inputs)?;
    let mut all = Cost::default();
    for (step, outputs) in expansion.steps.iter().zip(&made) {
        all = all.plus(step.operator.cost(&specs(&step.inputs, inputs, &made)?, outputs));
    }
    Ok(all)
}

/// Where a leaf of a value lies.
#[derive(Debug, Clone)]
enum Place {
    /// In an input leaf of the whole, from this byte on.
    Leaf(usize, usize),
    /// In what a step made, from this byte on.
    Slot(usize, usize),
    /// It is known.
    Known(Tensor),
}

impl Place {
    /// The place so many bytes on.
    fn further(&self, bytes: usize) -> Self {
        match self {
            Self::Leaf(leaf, start) => Self::Leaf(*leaf, start.saturating_add(bytes)),
            Self::Slot(slot, start) => Self::Slot(*slot, start.saturating_add(bytes)),
            Self::Known(tensor) => Self::Known(tensor.clone()),
        }
    }
}

/// Memory that a step fills.
struct Slot {
    bytes: usize,
    /// The output leaf of the whole that it is; none: scratch memory.
    output: Option<usize>,
}

/// A step's kernel with its operands.
struct Inner {
    kernel: Arc<dyn Kernel>,
    inputs: Vec<(TensorSpec, Place)>,
    /// The slot that each fills; none for a view.
    outputs: Vec<Option<(TensorSpec, usize)>>,
}

/// Plans an operator of these steps.
///
/// # Errors
/// Those of the steps' plans.
pub(crate) fn plan(
    name: &str,
    expansion: &Expansion,
    cx: &PlanCx<'_>,
) -> Result<Planned, PlanError> {
    let made = expansion.infer(cx.inputs)?;
    let mut planner = Planner::new();
    let mut places: Vec<Vec<Vec<Place>>> = Vec::with_capacity(made.len());
    for (step, outputs) in expansion.steps.iter().zip(&made) {
        let inputs = specs(&step.inputs, cx.inputs, &made)?;
        let from = leaves(&step.inputs, cx.inputs, &places)?;
        let cx = PlanCx { inputs: &inputs, outputs, ..*cx };
        let planned = Planned::of(&*step.operator, &cx, &[])?;
        places.push(planner.step(planned, &inputs, from, outputs)?);
    }
    planner.finish(name, leaves(&expansion.outputs, cx.inputs, &places)?, cx.outputs, 1)
}

/// Places of all leaves of these values.
fn leaves(
    values: &[StepValue],
    inputs: &[ValueSpec],
    places: &[Vec<Vec<Place>>],
) -> Result<Vec<Place>, ShapeError> {
    let mut all = Vec::new();
    for value in values {
        match *value {
            StepValue::Input(i) => {
                let first = leaf(inputs, i);
                let count = inputs.get(i).map_or(0, ValueSpec::leaf_count);
                all.extend((first..first.saturating_add(count)).map(|leaf| Place::Leaf(leaf, 0)));
            }
            StepValue::Member(i, m) => all.push(Place::Leaf(leaf(inputs, i).saturating_add(m), 0)),
            StepValue::Step(step, output) => {
                let found = places.get(step).and_then(|outputs| outputs.get(output));
                let missing = || ShapeError::Invalid("internal: a step makes too little".into());
                all.extend(found.ok_or_else(missing)?.iter().cloned());
            }
        }
    }
    Ok(all)
}

/// Collects the kernels of steps.
pub(crate) struct Planner {
    inner: Vec<Inner>,
    slots: Vec<Slot>,
    /// Scratch memory of the most demanding step.
    scratch: usize,
}

impl Planner {
    /// Without steps so far.
    pub(crate) fn new() -> Self {
        Self { inner: Vec::new(), slots: Vec::new(), scratch: 0 }
    }

    /// Names of the kernels so far.
    pub(crate) fn kernels(&self) -> impl Iterator<Item = &str> {
        self.inner.iter().map(|inner| inner.kernel.name())
    }

    /// Takes in a planned step, whose input leaves lie at `from`; returns the places of the leaves
    /// of each output.
    ///
    /// # Errors
    /// Where the shape of an output depends on data.
    fn step(
        &mut self,
        planned: Planned,
        inputs: &[ValueSpec],
        from: Vec<Place>,
        outputs: &[ValueSpec],
    ) -> Result<Vec<Vec<Place>>, PlanError> {
        let (mut places, mut filled) = (Vec::with_capacity(outputs.len()), Vec::new());
        for output in outputs {
            let mut of_output = Vec::new();
            for value in output.leaves() {
                let value = value.as_tensor().ok_or_else(|| refuse("a shape that data decides"))?;
                let spec = &value.spec;
                let place = match (planned.alias.get(filled.len()), &planned.kernel) {
                    (Some(&Alias::View { input, offset }), _) => {
                        filled.push(None);
                        let whole = from.get(input).ok_or_else(|| refuse("a view of no input"))?;
                        whole.further(offset.saturating_mul(spec.dtype.size_of()))
                    }
                    (_, Some(_)) => {
                        self.slots.push(Slot { bytes: spec.storage_bytes()?, output: None });
                        filled.push(Some((spec.clone(), self.slots.len() - 1)));
                        Place::Slot(self.slots.len() - 1, 0)
                    }
                    (_, None) => {
                        filled.push(None);
                        match value.known.clone() {
                            Some(known) => Place::Known(known),
                            None if spec.shape.numel() == 0 => {
                                self.slots.push(Slot { bytes: 0, output: None });
                                Place::Slot(self.slots.len() - 1, 0)
                            }
                            None => return Err(refuse("a step that does nothing")),
                        }
                    }
                };
                of_output.push(place);
            }
            places.push(of_output);
        }
        if let Some(kernel) = planned.kernel {
            self.scratch = self.scratch.max(planned.scratch);
            let specs = inputs.iter().flat_map(ValueSpec::leaves);
            let specs: Option<Vec<_>> =
                specs.map(|leaf| leaf.as_tensor().map(|t| t.spec.clone())).collect();
            let specs = specs.ok_or_else(|| refuse("an input whose shape data decides"))?;
            let inputs = specs.into_iter().zip(from).collect();
            self.inner.push(Inner { kernel, inputs, outputs: filled });
        }
        Ok(places)
    }

    /// As [`Planner::step`], for a step of tensors that reads input leaves of the whole (`Ok`) and
    /// what an earlier step made (`Err`: its number); its number.
    ///
    /// # Errors
    /// As there; also where it has no kernel, or not one output.
    pub(crate) fn kernel(
        &mut self,
        planned: Planned,
        inputs: &[ValueSpec],
        from: &[Result<usize, usize>],
        output: &ValueSpec,
    ) -> Result<usize, PlanError> {
        let place = |from: &Result<usize, usize>| match *from {
            Ok(leaf) => Place::Leaf(leaf, 0),
            Err(slot) => Place::Slot(slot, 0),
        };
        let from = from.iter().map(place).collect();
        let places = self.step(planned, inputs, from, std::slice::from_ref(output))?;
        match places.first().and_then(|places| places.first()) {
            Some(&Place::Slot(slot, 0)) => Ok(slot),
            _ => Err(refuse("a step without a kernel")),
        }
    }

    /// The plan of the whole, whose only result is what this step made, in so many chunks.
    ///
    /// # Errors
    /// Where the result is another.
    pub(crate) fn chunks(
        self,
        name: &str,
        step: usize,
        output: &ValueSpec,
        chunks: usize,
    ) -> Result<Planned, PlanError> {
        let output = std::slice::from_ref(output);
        self.finish(name, vec![Place::Slot(step, 0)], output, chunks)
    }

    /// The plan of the whole, whose output leaves lie at `results`; `outputs` are those of a chunk.
    fn finish(
        mut self,
        name: &str,
        results: Vec<Place>,
        outputs: &[ValueSpec],
        chunks: usize,
    ) -> Result<Planned, PlanError> {
        let mut alias = vec![Alias::None; results.len()];
        let leaves = outputs.iter().flat_map(ValueSpec::leaves);
        for (output, (place, leaf)) in results.into_iter().zip(leaves).enumerate() {
            let value = leaf.as_tensor().ok_or_else(|| refuse("a shape that data decides"))?;
            let (spec, unit) = (&value.spec, value.spec.dtype.size_of());
            let bytes = spec.storage_bytes()?;
            match place {
                Place::Leaf(input, start) if start.is_multiple_of(unit) && chunks == 1 => {
                    alias[output] = Alias::View { input, offset: start / unit };
                }
                Place::Slot(at, 0) if self.slots.get(at).is_some_and(|s| s.is_free(bytes)) => {
                    self.slots[at].output = Some(output);
                }
                Place::Known(_) if value.known.is_some() => {}
                place => {
                    self.slots.push(Slot { bytes, output: Some(output) });
                    let outputs = vec![Some((spec.clone(), self.slots.len() - 1))];
                    let inputs = vec![(spec.clone(), place)];
                    self.inner.push(Inner { kernel: Arc::new(CopyBytes), inputs, outputs });
                }
            }
        }
        if self.inner.is_empty() {
            return Ok(Planned::views(alias));
        }
        let kept = self.slots.iter().filter(|slot| slot.output.is_none());
        let kept = kept.map(|slot| slot.bytes.next_multiple_of(ALIGNMENT));
        let scratch = kept.fold(self.scratch, usize::saturating_add);
        let Self { inner, slots, .. } = self;
        let kernel = Steps { name: name.to_owned(), inner, slots, chunks };
        Ok(Planned { alias, ..Planned::new(kernel).with_scratch(scratch) })
    }
}

impl Slot {
    /// Whether it may become an output of so many bytes.
    fn is_free(&self, bytes: usize) -> bool {
        self.output.is_none() && self.bytes == bytes
    }
}

fn refuse(what: &str) -> PlanError {
    PlanError::Unsupported(format!("{what}, within an operator that is several"))
}

/// A result that lies among the inputs, or inside what a step computed.
struct CopyBytes;

impl Kernel for CopyBytes {
    fn name(&self) -> &str {
        "copy"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let from = cx.inputs.bytes(0)?;
        let (_, to) = cx.outputs.take_bytes(0)?;
        match from.len() == to.len() {
            true => to.copy_from_slice(from),
            false => return Err(RunError::Internal("a view of another size".into())),
        }
        Ok(())
    }
}

struct Steps {
    name: String,
    inner: Vec<Inner>,
    slots: Vec<Slot>,
    /// Parts of equal size that everything is cut into.
    chunks: usize,
}

fn outside() -> RunError {
    RunError::Internal("a step lies outside its memory".into())
}

impl Kernel for Steps {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let mut scratch = std::mem::take(&mut cx.scratch);
        let mut results: Vec<&mut [u8]> = Vec::with_capacity(self.slots.len());
        let mut outputs = Vec::new();
        for (at, slot) in self.slots.iter().enumerate() {
            let Some(output) = slot.output else {
                let len = slot.bytes.next_multiple_of(ALIGNMENT);
                let (kept, rest) = scratch.split_at_mut_checked(len).ok_or_else(outside)?;
                results.push(kept);
                scratch = rest;
                continue;
            };
            results.push(&mut []);
            outputs.push((at, cx.outputs.take_bytes(output)?.1));
        }
        for chunk in 0..self.chunks {
            for (slot, rest) in &mut outputs {
                let bytes = self.slots.get(*slot).map_or(0, |slot| slot.bytes);
                let part = rest.split_off_mut(..bytes).ok_or_else(outside)?;
                *results.get_mut(*slot).ok_or_else(outside)? = part;
            }
            for inner in &self.inner {
                self.step(inner, chunk, cx, &mut results, scratch)?;
            }
        }
        Ok(())
    }
}

impl Steps {
    /// Runs one of the kernels on one chunk.
    fn step(
        &self,
        inner: &Inner,
        chunk: usize,
        cx: &RunCx<'_>,
        results: &mut [&mut [u8]],
        scratch: &mut [u8],
    ) -> Result<(), RunError> {
        let mut taken: SmallVec<[(usize, &mut [u8]); 2]> = SmallVec::new();
        for &(_, slot) in inner.outputs.iter().flatten() {
            taken.push((slot, std::mem::take(results.get_mut(slot).ok_or_else(outside)?)));
        }
        let mut inputs = Inputs(SmallVec::new());
        for (spec, place) in &inner.inputs {
            let (all, start) = match place {
                Place::Leaf(leaf, start) => {
                    let all = cx.inputs.bytes(*leaf)?;
                    (all, all.len() / self.chunks.max(1) * chunk + start)
                }
                Place::Slot(slot, start) => (&**results.get(*slot).ok_or_else(outside)?, *start),
                Place::Known(tensor) => (tensor.as_bytes(), 0),
            };
            let bytes = all.get(start..).and_then(|b| b.get(..spec.storage_bytes().ok()?));
            inputs.0.push(Input { spec, bytes: Some(bytes.ok_or_else(outside)?) });
        }
        let mut own = taken.iter_mut();
        let mut outputs = Outputs(SmallVec::new());
        for output in &inner.outputs {
            outputs.0.push(match output {
                None => None,
                Some((spec, _)) => {
                    let (_, bytes) = own.next().ok_or_else(outside)?;
                    let bytes = bytes.get_mut(..spec.storage_bytes()?).ok_or_else(outside)?;
                    Some(Output::Fixed { spec, bytes })
                }
            });
        }
        inner.kernel.run(&mut RunCx { inputs, outputs, scratch, par: cx.par })?;
        for (slot, bytes) in taken {
            *results.get_mut(slot).ok_or_else(outside)? = bytes;
        }
        Ok(())
    }
}

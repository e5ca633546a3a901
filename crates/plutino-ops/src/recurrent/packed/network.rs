//! A recurrent network over packed data: one of ordinary batches, since sequences of the same
//! length stand side by side at every step.

use super::Steps;
use crate::recurrent::native::Native;
use crate::recurrent::{Network, Part};
use crate::{
    Cost, Input, Inputs, Kernel, Operator, Output, Outputs, PlanCx, PlanError, Planned, RunCx,
    RunError, ShapeError, TensorValue, ValueSpec,
};
use plutino_tensor::{ALIGNMENT, DType, TensorSpec, alloc};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// A network over packed sequences.
#[derive(Debug)]
pub(in crate::recurrent) struct PackedNetwork {
    /// Its input is the data.
    pub(in crate::recurrent) native: Native,
    pub(in crate::recurrent) batch_sizes: usize,
}

/// A network that knows how its data is packed.
struct BoundNetwork {
    network: Network,
    /// What it counts as its inputs.
    flat: Vec<ValueSpec>,
    steps: Steps,
    results: Vec<TensorSpec>,
}

impl PackedNetwork {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<BoundNetwork, ShapeError> {
        let steps = Steps::of_input(inputs, self.batch_sizes)?;
        let (network, flat) = self.native.bind(inputs)?;
        let x = TensorValue::at(&flat, network.input)?.spec.clone();
        let &[rows, features] = x.shape.dims() else {
            let (input, expected, found) = (self.native.input, "2".into(), x.shape);
            return Err(ShapeError::Rank { input, expected, found });
        };
        if rows != steps.rows() {
            let (input, dim, expected) = (self.native.input, 0, steps.rows().to_string());
            return Err(ShapeError::Size { input, dim, expected, found: x.shape });
        }
        // One step of all sequences has the results of all, but for the sequence's rows.
        let mut step = flat.clone();
        replace(&mut step, network.input, x.dtype, [1, steps.batch(), features]);
        let mut results = network.results(&step)?.parts;
        if let Some(sequence) = results.first_mut() {
            let wide = sequence.shape.last().copied().unwrap_or(0);
            sequence.shape = [rows, wide].into();
            sequence.shape.checked_numel()?;
        }
        Ok(BoundNetwork { network, flat, steps, results })
    }
}

/// Puts a tensor of this shape in the place of a leaf.
fn replace(flat: &mut [ValueSpec], at: usize, dtype: DType, shape: [usize; 3]) {
    if let Some(slot) = flat.get_mut(at) {
        *slot = ValueSpec::tensor(dtype, shape);
    }
}

impl Operator for PackedNetwork {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        Ok(self.bind(inputs)?.results.into_iter().map(ValueSpec::from).collect())
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let BoundNetwork { network, flat, steps, results } = self.bind(cx.inputs)?;
        let features = TensorValue::at(&flat, network.input)?.shape().last().copied().unwrap_or(0);
        let layers = network.layers.len().saturating_mul(network.directions);
        let mut groups = Vec::new();
        let mut scratch = 0;
        for (rows, length) in steps.groups()? {
            let mut own = flat.clone();
            let dtype = TensorValue::at(&flat, network.input)?.dtype();
            replace(&mut own, network.input, dtype, [length, rows.len(), features]);
            // Of all groups together no more than there are rows.
            let of_data = |width: usize| -> Result<Cut, ShapeError> {
                Ok(Cut {
                    spec: TensorSpec::new(dtype, [length, rows.len(), width]),
                    starts: alloc::collect(steps.starts.iter().copied().take(length))?,
                    first: rows.start,
                })
            };
            let of_states = |width: usize| -> Result<Cut, ShapeError> {
                let start = |layer: usize| layer.saturating_mul(steps.batch());
                Ok(Cut {
                    spec: TensorSpec::new(dtype, [layers, rows.len(), width]),
                    starts: alloc::collect((0..layers).map(start))?,
                    first: rows.start,
                })
            };
            let widths = [network.state, network.hidden];
            let mut cuts = vec![(network.input, of_data(features)?)];
            for (&state, width) in network.initial.iter().zip(widths) {
                replace(&mut own, state, dtype, [layers, rows.len(), width]);
                cuts.push((state, of_states(width)?));
            }
            let parts = results.iter().zip([Part::Sequence, Part::Hidden, Part::Cell]);
            let made = parts.map(|(spec, part)| {
                let width = spec.shape.last().copied().unwrap_or(0);
                if part == Part::Sequence { of_data(width) } else { of_states(width) }
            });
            let made = made.collect::<Result<Vec<Cut>, _>>()?;
            let outputs: Vec<ValueSpec> = made.iter().map(|cut| cut.spec.clone().into()).collect();
            let planned = network.plan(&PlanCx { inputs: &own, outputs: &outputs, ..*cx })?;
            let kernel = planned.kernel.ok_or_else(|| {
                PlanError::Unsupported("a recurrent network that computes nothing".into())
            })?;
            let mut bytes = planned.scratch.next_multiple_of(ALIGNMENT);
            for cut in cuts.iter().map(|(_, cut)| cut).chain(&made) {
                let room = cut.room().map_err(ShapeError::from)?;
                bytes = bytes.saturating_add(room);
            }
            scratch = scratch.max(bytes);
            groups.push(Group { kernel, scratch: planned.scratch, cuts, made });
        }
        let name = format!("packed.{}", groups.first().map_or("none", |g| g.kernel.name()));
        Ok(Planned::new(PackedKernel { name, groups }).with_scratch(scratch))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let Ok(BoundNetwork { network, mut flat, steps, .. }) = self.bind(inputs) else {
            return Cost::moved(inputs, outputs);
        };
        // As many rows as one sequence has that is as long as all together.
        let Ok(x) = TensorValue::at(&flat, network.input).map(|x| x.spec.clone()) else {
            return Cost::moved(inputs, outputs);
        };
        let features = x.shape.last().copied().unwrap_or(0);
        replace(&mut flat, network.input, x.dtype, [steps.rows(), 1, features]);
        let without_states = Network { initial: Vec::new(), ..network };
        without_states.cost(&flat, outputs)
    }
}

/// Some rows of a tensor of packed rows, as a tensor of their own.
struct Cut {
    /// Blocks of rows that follow each other: `(blocks, rows, width)`.
    spec: TensorSpec,
    /// For each block the row where its batch begins in the whole, and the row of the batch where
    /// the block begins.
    starts: Vec<usize>,
    first: usize,
}

impl Cut {
    fn room(&self) -> Result<usize, plutino_tensor::TensorError> {
        Ok(self.spec.storage_bytes()?.next_multiple_of(ALIGNMENT))
    }

    /// For each block the bytes of the whole that it is, in order.
    fn blocks(&self) -> impl Iterator<Item = Range<usize>> {
        let (rows, width) = match *self.spec.shape.dims() {
            [_, rows, width] => (rows, width),
            _ => (0, 0),
        };
        let row = width.saturating_mul(self.spec.dtype.size_of());
        self.starts.iter().map(move |start| {
            let from = start.saturating_add(self.first).saturating_mul(row);
            from..from.saturating_add(rows.saturating_mul(row))
        })
    }

    /// Copies the blocks out of the whole.
    fn gather(&self, whole: &[u8], mut own: &mut [u8]) -> Result<(), RunError> {
        for block in self.blocks() {
            let from = whole.get(block).ok_or_else(outside)?;
            own.split_off_mut(..from.len()).ok_or_else(outside)?.copy_from_slice(from);
        }
        Ok(())
    }

    /// Copies the blocks to their places in the whole.
    fn scatter(&self, mut own: &[u8], whole: &mut [u8]) -> Result<(), RunError> {
        for block in self.blocks() {
            let to = whole.get_mut(block).ok_or_else(outside)?;
            to.copy_from_slice(own.split_off(..to.len()).ok_or_else(outside)?);
        }
        Ok(())
    }
}

fn outside() -> RunError {
    RunError::Internal("packed rows lie outside of their tensor".into())
}

/// Sequences of the same length.
struct Group {
    kernel: Arc<dyn Kernel>,
    /// Bytes of scratch memory of the kernel.
    scratch: usize,
    /// The leaves of which the kernel gets a part.
    cuts: Vec<(usize, Cut)>,
    /// The results.
    made: Vec<Cut>,
}

struct PackedKernel {
    name: String,
    groups: Vec<Group>,
}

impl Kernel for PackedKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let mut whole = Vec::new();
        for output in 0..cx.outputs.len() {
            whole.push(cx.outputs.take_bytes(output)?.1); // bounded: outputs
        }
        for group in &self.groups {
            group.run(cx, &mut whole)?;
        }
        Ok(())
    }
}

impl Group {
    fn run(&self, cx: &mut RunCx<'_>, whole: &mut [&mut [u8]]) -> Result<(), RunError> {
        let inner = self.scratch.next_multiple_of(ALIGNMENT);
        let (inner, mut rest) = cx.scratch.split_at_mut_checked(inner).ok_or_else(outside)?;
        let mut room = |cut: &Cut| -> Result<_, RunError> {
            let room = rest.split_off_mut(..cut.room()?).ok_or_else(outside)?;
            room.get_mut(..cut.spec.storage_bytes()?).ok_or_else(outside)
        };
        let mut made: SmallVec<[(&Cut, &mut [u8]); 3]> = SmallVec::new();
        for cut in &self.made {
            made.push((cut, room(cut)?)); // bounded: three results
        }
        let mut inputs = Inputs(SmallVec::new());
        for leaf in 0..cx.inputs.len() {
            let (spec, bytes) = match self.cuts.iter().find(|(at, _)| *at == leaf) {
                Some((_, cut)) => {
                    let own = room(cut)?;
                    cut.gather(cx.inputs.bytes(leaf)?, own)?;
                    (&cut.spec, &*own)
                }
                None => (cx.inputs.spec(leaf)?, cx.inputs.bytes(leaf)?),
            };
            inputs.0.push(Input { spec, bytes: Some(bytes) }); // bounded: inputs
        }
        let written = made.iter_mut().map(|(cut, bytes)| Output::Fixed { spec: &cut.spec, bytes });
        let outputs = Outputs(written.map(Some).collect());
        let scratch = inner.get_mut(..self.scratch).ok_or_else(outside)?;
        self.kernel.run(&mut RunCx { inputs, outputs, scratch, par: cx.par })?;
        for ((cut, own), whole) in made.iter().zip(whole) {
            cut.scatter(own, whole)?;
        }
        Ok(())
    }
}

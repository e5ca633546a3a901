//! Sequences of several lengths without padding, as `torch.nn.utils.rnn.pack_padded_sequence` makes
//! them.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pack_padded_sequence.html>: the
//! sequences of a batch are sorted by length, the longest first. `data` holds, step by step, the
//! rows of those that have not ended; `batch_sizes` says how many these are at each step. Its sizes
//! decide shapes: they are asked for while planning, which mostly is during the run.
//!
//! A recurrent network over packed data is one of ordinary batches: sequences of the same length
//! stand side by side at every step.

use super::native::Native;
use super::{Network, Part};
use crate::support::assemble::{internal, leaf};
use crate::support::rearrange::invalid;
use crate::{
    BuildError, Cost, Input, Inputs, Kernel, NodeReader, Operator, Output, Outputs, PlanCx,
    PlanError, Planned, RunCx, RunError, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::copy::index::take;
use plutino_tensor::{ALIGNMENT, Convert, DType, Shape, Tensor, TensorSpec, alloc, for_dtype};
use smallvec::SmallVec;
use std::ops::Range;

/// How many sequences reach each step.
#[derive(Debug, Clone)]
struct Steps {
    /// By step: never more than the step before, and at least 1.
    sizes: Vec<usize>,
    /// The first row of each step in the data, and the number of rows.
    starts: Vec<usize>,
}

impl Steps {
    /// Of `batch_sizes`.
    fn new(sizes: Vec<usize>) -> Result<Self, ShapeError> {
        let descending = sizes.windows(2).all(|pair| pair[1] <= pair[0]);
        if sizes.is_empty() || !descending || sizes.contains(&0) {
            return Err(invalid("the batch sizes of packed sequences must descend to 1 at least"));
        }
        let mut starts = alloc::list(sizes.len() + 1)?;
        let mut sum = 0usize;
        starts.push(sum);
        for &size in &sizes {
            sum = sum.checked_add(size).ok_or_else(|| invalid("too many packed rows"))?;
            starts.push(sum);
        }
        Ok(Self { sizes, starts })
    }

    /// Of sequences of these lengths.
    fn of_lengths(lengths: &[usize]) -> Result<Self, ShapeError> {
        let longest = lengths.first().copied().unwrap_or(0);
        let mut sizes = alloc::list(longest)?;
        for step in 0..longest {
            sizes.push(lengths.partition_point(|&length| length > step)); // bounded: reserved
        }
        Self::new(sizes)
    }

    /// Of the value of an input.
    fn of_input(inputs: &[ValueSpec], at: usize) -> Result<Self, ShapeError> {
        Self::new(known_sizes(inputs, at, "batch sizes")?)
    }

    fn batch(&self) -> usize {
        self.sizes.first().copied().unwrap_or(0)
    }

    fn rows(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The lengths of the sequences.
    fn lengths(&self) -> Result<Vec<usize>, ShapeError> {
        let length = |row| self.sizes.partition_point(|&size| size > row);
        Ok(alloc::collect((0..self.batch()).map(length))?)
    }

    /// Sequences that have the same length, as rows of the batch, and that length.
    fn groups(&self) -> Result<Vec<(Range<usize>, usize)>, ShapeError> {
        let mut first = 0;
        let groups = self.sizes.iter().enumerate().rev().filter_map(|(step, &size)| {
            let rows = std::mem::replace(&mut first, size)..size;
            (!rows.is_empty()).then_some((rows, step + 1))
        });
        Ok(alloc::grow(groups)?)
    }
}

/// The value of an input that holds sizes.
fn known_sizes(inputs: &[ValueSpec], at: usize, what: &str) -> Result<Vec<usize>, ShapeError> {
    let x = TensorValue::at(inputs, at)?;
    if x.dtype() != DType::I64 {
        let (expected, found) = ("i64".into(), x.dtype());
        return Err(ShapeError::DType { input: at, expected, found });
    }
    if x.shape().rank() != 1 {
        let (expected, found) = ("1".into(), x.shape().clone());
        return Err(ShapeError::Rank { input: at, expected, found });
    }
    let unknown = || ShapeError::NotKnown { input: at, what: what.into() };
    let sizes = inputs.get(at).and_then(ValueSpec::known_ints).ok_or_else(unknown)?;
    let size = |n: i64| usize::try_from(n).map_err(|_| invalid(format!("{what}: {n} is negative")));
    alloc::try_collect(sizes.into_iter().map(size))
}

/// Sizes as the tensor that PyTorch has for them.
fn vector(sizes: &[usize]) -> Result<Tensor, ShapeError> {
    let sizes: Vec<i64> = alloc::collect(sizes.iter().map(|&n| n as i64))?;
    Ok(Tensor::from_slice(&sizes, [sizes.len()])?)
}

fn write_vector(cx: &mut RunCx<'_>, output: usize, sizes: &[usize]) -> Result<(), RunError> {
    for (to, &size) in cx.outputs.take::<i64>(output)?.iter_mut().zip(sizes) {
        *to = size as i64;
    }
    Ok(())
}

/// Where the batch stands in padded data.
#[derive(Debug, Clone, Copy)]
enum Padded {
    /// (N, L, ...)
    BatchFirst,
    /// (L, N, ...)
    StepsFirst,
}

impl Padded {
    fn read(r: &mut NodeReader<'_>) -> Result<Self, BuildError> {
        Ok(if r.or("batch_first", false)? { Self::BatchFirst } else { Self::StepsFirst })
    }

    /// Steps and batch, whichever comes first; its own inverse.
    fn order(self, [steps, batch]: [usize; 2]) -> [usize; 2] {
        match self {
            Self::BatchFirst => [batch, steps],
            Self::StepsFirst => [steps, batch],
        }
    }

    /// The row of a step of a sequence.
    fn row(self, [steps, batch]: [usize; 2], step: usize, sequence: usize) -> usize {
        match self {
            Self::BatchFirst => sequence * steps + step,
            Self::StepsFirst => step * batch + sequence,
        }
    }
}

/// Padded sequences made packed ones.
#[derive(Debug)]
struct Pack {
    input: usize,
    lengths: usize,
    padded: Padded,
}

fn pack(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (input, lengths) = (r.required_input("input")?, r.required_input("lengths")?);
    Ok(Box::new(Pack { input, lengths, padded: Padded::read(r)? }))
}
register_op!(pack => "aten::_pack_padded_sequence");

impl Pack {
    /// The steps and the batch of the padded data, the shape of one row, and what is packed.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<([usize; 2], Shape, Steps), ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let &[first, second, ref row @ ..] = x.shape().dims() else {
            let (expected, found) = ("at least 2".into(), x.shape().clone());
            return Err(ShapeError::Rank { input: self.input, expected, found });
        };
        let [steps, batch] = self.padded.order([first, second]);
        let lengths = known_sizes(inputs, self.lengths, "lengths")?;
        if lengths.len() != batch {
            return Err(invalid(format!(
                "{} lengths are given for {batch} sequences",
                lengths.len()
            )));
        }
        if let Some(length) = lengths.iter().find(|&&length| length == 0 || length > steps) {
            return Err(invalid(format!("a sequence of {length} steps is none of 1 to {steps}")));
        }
        if lengths.windows(2).any(|pair| pair[1] > pair[0]) {
            return Err(invalid(
                "lengths must descend, the longest sequence first: pass enforce_sorted=False",
            ));
        }
        Ok(([steps, batch], Shape::from(row), Steps::of_lengths(&lengths)?))
    }
}

impl Operator for Pack {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let dtype = TensorValue::at(inputs, self.input)?.dtype();
        let (_, row, steps) = self.bind(inputs)?;
        let shape: Shape = std::iter::once(steps.rows()).chain(row.iter().copied()).collect();
        Ok(vec![ValueSpec::tensor(dtype, shape), vector(&steps.sizes)?.into()])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (padded, row, steps) = self.bind(cx.inputs)?;
        let mut rows = alloc::list(steps.rows())?;
        for (step, &size) in steps.sizes.iter().enumerate() {
            let row = |sequence| self.padded.row(padded, step, sequence) as i64;
            rows.extend((0..size).map(row)); // bounded: reserved
        }
        let unit = TensorValue::at(cx.inputs, self.input)?.dtype().size_of();
        Ok(Planned::new(PackRows {
            input: leaf(cx.inputs, self.input),
            from: padded[0].saturating_mul(padded[1]),
            block: row.numel().saturating_mul(unit),
            rows,
            sizes: steps.sizes,
        }))
    }
}

struct PackRows {
    input: usize,
    /// Rows of the padded data, bytes of a row, and the rows that are kept.
    from: usize,
    block: usize,
    rows: Vec<i64>,
    sizes: Vec<usize>,
}

impl Kernel for PackRows {
    fn name(&self) -> &str {
        "pack_sequence"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (_, dst) = cx.outputs.take_bytes(0)?;
        let src = cx.inputs.bytes(self.input)?;
        take(cx.par, src, dst, 1, self.from, self.block, &self.rows).map_err(internal)?;
        write_vector(cx, 1, &self.sizes)
    }
}

/// Packed sequences made padded ones.
#[derive(Debug)]
struct Pad {
    data: usize,
    batch_sizes: usize,
    padded: Padded,
    value: f64,
    /// Steps of the result; not positive: those of the longest sequence.
    total: i64,
}

fn pad(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (data, batch_sizes) = (r.required_input("data")?, r.required_input("batch_sizes")?);
    let padded = Padded::read(r)?;
    let (value, mut total) = (r.or("padding_value", 0.0)?, r.or("total_length", -1)?);
    // The length of the longest sequence is what PyTorch passes where no total is given: the trace
    // makes it a number, that of the made-up lengths with which pnnx infers shapes.
    let recorded = r.known_input(batch_sizes);
    if recorded.is_some_and(|sizes| sizes.iter().map(|&n| i64::try_from(n)).eq([Ok(total)])) {
        total = -1;
    }
    Ok(Box::new(Pad { data, batch_sizes, padded, value, total }))
}
register_op!(pad => "aten::_pad_packed_sequence");

impl Pad {
    /// The shape of one row, the steps and the batch of the result, and what is packed.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(Shape, [usize; 2], Steps), ShapeError> {
        let x = TensorValue::at(inputs, self.data)?;
        let steps = Steps::of_input(inputs, self.batch_sizes)?;
        let &[rows, ref row @ ..] = x.shape().dims() else {
            let (expected, found) = ("at least 1".into(), x.shape().clone());
            return Err(ShapeError::Rank { input: self.data, expected, found });
        };
        if rows != steps.rows() {
            let (dim, expected) = (0, steps.rows().to_string());
            let found = x.shape().clone();
            return Err(ShapeError::Size { input: self.data, dim, expected, found });
        }
        let longest = steps.sizes.len();
        let total = match usize::try_from(self.total) {
            Ok(total) if total > 0 => total,
            _ => longest,
        };
        if total < longest {
            return Err(invalid(format!(
                "total_length is {total}, but the longest sequence has {longest} steps"
            )));
        }
        Ok((Shape::from(row), [total, steps.batch()], steps))
    }
}

impl Operator for Pad {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let dtype = TensorValue::at(inputs, self.data)?.dtype();
        let (row, padded, steps) = self.bind(inputs)?;
        let shape: Shape =
            self.padded.order(padded).into_iter().chain(row.iter().copied()).collect();
        shape.checked_numel()?;
        Ok(vec![ValueSpec::tensor(dtype, shape), vector(&steps.lengths()?)?.into()])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (row, [total, batch], steps) = self.bind(cx.inputs)?;
        let dtype = TensorValue::at(cx.inputs, self.data)?.dtype();
        let value = for_dtype!(dtype, T => {
            bytemuck::bytes_of(&T::convert_from(self.value)).iter().copied().collect()
        });
        Ok(Planned::new(PadRows {
            data: leaf(cx.inputs, self.data),
            block: row.numel().saturating_mul(dtype.size_of()),
            lengths: steps.lengths()?,
            padded: self.padded,
            sizes: [total, batch],
            starts: steps.starts,
            value,
        }))
    }
}

struct PadRows {
    data: usize,
    /// Bytes of a row.
    block: usize,
    padded: Padded,
    /// Steps and batch of the result.
    sizes: [usize; 2],
    /// Of the sequences.
    lengths: Vec<usize>,
    /// The first row of each step.
    starts: Vec<usize>,
    /// The bytes of one element of what is added.
    value: SmallVec<[u8; 16]>,
}

impl Kernel for PadRows {
    fn name(&self) -> &str {
        "pad_sequence"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (src, (_, dst)) = (cx.inputs.bytes(self.data)?, cx.outputs.take_bytes(0)?);
        let [total, batch] = self.sizes;
        if self.block > 0 && !dst.is_empty() {
            cx.par.chunks_mut(dst, self.block, |row, to| {
                let (step, sequence) = match self.padded {
                    Padded::BatchFirst => (row % total, row / total),
                    Padded::StepsFirst => (row / batch, row % batch),
                };
                if self.lengths.get(sequence).is_some_and(|&length| step < length) {
                    let from = (self.starts[step] + sequence) * self.block;
                    to.copy_from_slice(&src[from..from + self.block]);
                } else {
                    to.chunks_exact_mut(self.value.len())
                        .for_each(|x| x.copy_from_slice(&self.value));
                }
            });
        }
        write_vector(cx, 1, &self.lengths)
    }
}

/// A network over packed sequences.
#[derive(Debug)]
pub(super) struct PackedNetwork {
    /// Its input is the data.
    pub(super) native: Native,
    pub(super) batch_sizes: usize,
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
    kernel: Box<dyn Kernel>,
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

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, check_values, infer, iota, op, op_with, random};
    use crate::testkit::{specs, tensor, values};
    use crate::{ShapeError, ValueSpec};
    use plutino_tensor::{DType, Tensor};

    // A few steps of sums of at most a dozen terms below 1 in size.
    const BOUND: f32 = 20.0 * f32::EPSILON;

    fn python(value: i64) -> (ValueSpec, Tensor) {
        (ValueSpec::python(value).unwrap(), tensor([], &[value]))
    }

    fn flag(value: i64) -> &'static str {
        if value == 0 { "False" } else { "True" }
    }

    fn pack_line(first: i64) -> String {
        format!("aten::_pack_padded_sequence p 3 2 0 1 ={} 7 8", flag(first))
    }

    fn pad_line([first, value, total]: [i64; 3]) -> String {
        let first = flag(first);
        format!("aten::_pad_packed_sequence p 5 2 0 1 ={first} ={value}.0 ={total} 7 8")
    }

    fn packed(x: &Tensor, lengths: &[i64], first: i64) -> Result<Vec<Tensor>, ShapeError> {
        let lengths = tensor([lengths.len()], lengths);
        let inputs = [x.spec().into(), lengths.clone().into(), python(first).0];
        infer(&*op(&pack_line(first)), &inputs)?;
        Ok(check_values(&*op(&pack_line(first)), &inputs, &[x.clone(), lengths, python(first).1]))
    }

    #[test]
    fn rows_of_each_step_side_by_side() {
        let batch_first = tensor([3, 2, 1], &[1i32, 4, 2, 5, 3, 0]);
        let steps_first = tensor([2, 3, 1], &[1i32, 2, 3, 4, 5, 0]);
        for (x, first) in [(batch_first, 1), (steps_first, 0)] {
            let y = packed(&x, &[2, 2, 1], first).unwrap();
            assert_eq!(y[0], tensor([5, 1], &[1i32, 2, 3, 4, 5]));
            assert_eq!(y[1], tensor([2], &[3i64, 2]));
            let line = |total: i64, value: i64| pad_line([first, value, total]);
            let back = |total: i64, value: i64| {
                let mut data = y.clone();
                data.extend([first, value, total].map(|v| python(v).1));
                let mut inputs = vec![y[0].spec().into(), y[1].clone().into()];
                inputs.extend([first, value, total].map(|v| python(v).0));
                (infer(&*op(&line(total, value)), &inputs), inputs, data)
            };
            let (_, inputs, data) = back(-1, 0);
            let z = check_values(&*op(&line(-1, 0)), &inputs, &data);
            assert_eq!(z, [x.clone(), tensor([3], &[2i64, 2, 1])]);
            let (_, inputs, data) = back(3, -7);
            let z = check_values(&*op(&line(3, -7)), &inputs, &data);
            let expected: &[i32] = match first {
                1 => &[1, 4, -7, 2, 5, -7, 3, -7, -7],
                _ => &[1, 2, 3, 4, 5, -7, -7, -7, -7],
            };
            assert_eq!(values::<i32>(&z[0]), expected);
            assert!(back(1, 0).0.unwrap_err().to_string().contains("2 steps"));
        }
    }

    #[test]
    fn lengths_that_are_none() {
        let x = iota([3, 2, 1]);
        let refused: [(&[i64], &str); 5] = [
            (&[2, 1], "2 lengths"),
            (&[3, 1, 1], "3 steps"),
            (&[2, 1, 0], "0 steps"),
            (&[1, 2, 1], "enforce_sorted"),
            (&[2, 1, -1], "negative"),
        ];
        for (lengths, what) in refused {
            let e = packed(&x, lengths, 1).unwrap_err().to_string();
            assert!(e.contains(what), "{lengths:?}: {e}");
        }
        // Lengths that are computed are waited for.
        let mut inputs = specs(&[x, tensor([3], &[2i64, 1, 1])]);
        inputs.push(python(1).0);
        assert!(matches!(
            infer(&*op(&pack_line(1)), &inputs),
            Err(ShapeError::NotKnown { input: 1, .. })
        ));
        let line = pad_line([1, 0, -1]);
        for sizes in [&[1i64, 2][..], &[2, 0], &[], &[3], &[i64::MAX, i64::MAX]] {
            let mut inputs = specs(&[iota([2, 1])]);
            inputs.push(tensor([sizes.len()], sizes).into());
            inputs.extend([1, 0, -1].map(|v| python(v).0));
            assert!(infer(&*op(&line), &inputs).is_err(), "{sizes:?}");
        }
    }

    /// Each sequence has the results that it has alone.
    #[test]
    fn sequences_keep_to_themselves() {
        let lengths = [4usize, 3, 3, 1];
        for (kind, gates) in [("lstm", 4), ("gru", 3), ("rnn_tanh", 1)] {
            let parts = if kind == "lstm" { 3 } else { 2 };
            let mut weights = Vec::new();
            for layer in 0..2 {
                for suffix in ["", "_reverse"] {
                    let columns = if layer == 0 { 3 } else { 10 };
                    let shapes = [vec![gates * 5, columns], vec![gates * 5, 5], vec![gates * 5]];
                    for (name, shape) in ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
                        .iter()
                        .zip([0, 1, 2, 2].map(|i| &shapes[i]))
                    {
                        let w = random(&shape[..], weights.len() as u64);
                        let w: Vec<f32> = values::<f32>(&w).iter().map(|x| x * 0.5).collect();
                        let w = Tensor::from_slice(&w, &shape[..]).unwrap();
                        weights.push((format!("{name}_l{layer}{suffix}"), w));
                    }
                }
            }
            let (x, h, c) = (random([4, 4, 3], 50), random([4, 4, 5], 51), random([4, 4, 5], 52));
            let lengths64 = lengths.map(|n| n as i64);
            let data = packed(&x, &lengths64, 1).unwrap();

            let outs = &"7 8 9"[..2 * parts - 1];
            let native =
                op(&format!("aten::{kind} m 9 {parts} 0 1 2 3 =True =2 =0.0 =False =True {outs}"));
            let list: Vec<Tensor> = weights.iter().map(|(_, t)| t.clone()).collect();
            let states = if parts == 3 { vec![h.clone(), c.clone()] } else { vec![h.clone()] };
            let given = specs(&states);
            let rest = [1, 2, 0, 0, 1].map(python);
            let mut inputs = vec![
                data[0].spec().into(),
                data[1].clone().into(),
                if parts == 3 { ValueSpec::List(given) } else { given[0].clone() },
                ValueSpec::List(list.iter().cloned().map(ValueSpec::from).collect()),
            ];
            inputs.extend(rest.iter().map(|(spec, _)| spec.clone()));
            let mut all = data.clone();
            all.extend(states.iter().chain(&list).cloned());
            all.extend(rest.iter().map(|(_, t)| t.clone()));
            let found = check_values(&*native, &inputs, &all);
            assert_eq!(found.len(), parts);

            let named: Vec<(&str, Tensor)> =
                weights.iter().map(|(name, t)| (&name[..], t.clone())).collect();
            let line = match parts {
                3 => "nn.LSTM m 3 3 0 1 2 7 8 9",
                _ if gates == 3 => "nn.GRU m 2 2 0 1 7 8",
                _ => "nn.RNN m 2 2 0 1 7 8",
            };
            let line = format!(
                "{line} input_size=3 hidden_size=5 num_layers=2 bidirectional=True batch_first=True"
            );
            let module = op_with(&line, &named);
            let rows = |t: &Tensor, width: usize, which: Vec<usize>| -> Vec<f32> {
                let all = values::<f32>(t);
                which.iter().flat_map(|r| all[r * width..][..width].to_vec()).collect()
            };
            let starts = [0, 4, 7, 10]; // 4, 3, 3 and 1 sequences reach the steps
            for (b, &length) in lengths.iter().enumerate() {
                let own = rows(&x, 3, (0..length).map(|t| b * 4 + t).collect());
                let mut alone = vec![Tensor::from_slice(&own, [1, length, 3]).unwrap()];
                for s in &states {
                    let own = rows(s, 5, (0..4).map(|l| l * 4 + b).collect());
                    alone.push(Tensor::from_slice(&own, [4, 1, 5]).unwrap());
                }
                let expected = check(&*module, &alone);
                let steps = rows(&found[0], 10, (0..length).map(|t| starts[t] + b).collect());
                let steps = Tensor::from_slice(&steps, [1, length, 10]).unwrap();
                assert_close(&steps, &expected[0], BOUND);
                for (found, expected) in found[1..].iter().zip(&expected[1..]) {
                    let own = rows(found, 5, (0..4).map(|l| l * 4 + b).collect());
                    assert_close(&Tensor::from_slice(&own, [4, 1, 5]).unwrap(), expected, BOUND);
                }
            }
        }
    }

    #[test]
    fn data_and_sizes_must_agree() {
        let gru = op("aten::gru m 9 2 0 1 2 3 =True =1 =0.0 =False =False 7 8");
        let given = |rows: usize, batch: usize, dtype: DType| {
            let list = [random([12, 3], 1), random([12, 4], 2), random([12], 3), random([12], 4)];
            let mut inputs = vec![
                ValueSpec::tensor(dtype, [rows, 3]),
                tensor([2], &[2i64, 1]).into(),
                random([1, batch, 4], 5).spec().into(),
                ValueSpec::List(specs(&list)),
            ];
            inputs.extend([1, 1, 0, 0, 0].map(|v| python(v).0));
            gru.infer(&inputs)
        };
        let outputs = given(3, 2, DType::F32).unwrap();
        assert_eq!(outputs[0].as_tensor().unwrap().shape().dims(), [3, 4]);
        assert_eq!(outputs[1].as_tensor().unwrap().shape().dims(), [1, 2, 4]);
        for (rows, batch, dtype) in [(4, 2, DType::F32), (3, 3, DType::F32), (3, 2, DType::F64)] {
            assert!(given(rows, batch, dtype).is_err(), "{rows} {batch} {dtype}");
        }
    }
}

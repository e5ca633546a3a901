//! Recurrent layers: LSTM, GRU and the plain (Elman) network, one layer at a time, f32.
//!
//! Formulas, names and the order of gates are PyTorch's
//! (<https://pytorch.org/docs/stable/generated/torch.nn.LSTM.html>, `GRU`, `RNN`). A layer is two
//! steps:
//!
//! ```text
//! X[row, d, gate, unit] = x[row] Wih + b        one product for all time steps and both directions
//! for each time step:
//!   X[row at t, d, ..] += h Whh                 a few rows against a large matrix         product.rs
//!   h, c = cell(X[row at t, d, ..], h, c)       vectorised over units                     cell.rs
//!   h = h Whr                                   where an LSTM has projections
//! ```
//! The first product is that of a linear layer, on the same units where there are such. The second
//! step is bound by reading Whh once for each time step. Each direction, and each part
//! of a large batch, is a task of its own (`Sequence`) that runs through all steps without waiting
//! for anybody; a single task shares the product of each step among the threads instead. Steps
//! visit the panels of Whh from front to back and from back to front in turn, so that the part that
//! is still in cache is read first: 14.3 us instead of 17.8 for 256 units of an LSTM on one core of
//! a Zen 3 server, 73 GB/s, which is the limit.
//!
//! A row's state depends on that row alone, and each sum is one chain in the order of its terms:
//! results depend neither on threads nor on how a batch is cut, to the bit.

mod any;
mod cell;
mod product;
pub use any::recurrent_any;
pub use product::Panels;

use crate::gemm::{
    Bias, Gemm, MatrixUnit, Narrow, Operand, Pack, PackedMatrix, PostOps, Product, Side, Size,
};
use crate::gemm::{Strided, Target};
use plutino_cpu::activation::Activation;
use plutino_cpu::extent::elements;
use plutino_cpu::par::{Par, SharedMut, stop};
use plutino_cpu::simd::Simd;
use plutino_cpu::{Isa, PackKey};
use plutino_tensor::{Floats, TensorError, alloc};
use product::Plus;
use std::ops::Range;

/// What computes the next state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell {
    /// Long short-term memory: gates i, f, g, o.
    Lstm,
    /// Gated recurrent unit: gates r, z, n.
    Gru,
    /// h' = f(x Wih + h Whh + b); PyTorch knows tanh and relu.
    Rnn(Activation),
}

impl Cell {
    /// Number of gates: blocks of `hidden` rows in the weights.
    pub const fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
            Self::Rnn(_) => 1,
        }
    }
}

/// Sizes of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// What computes the next state.
    pub cell: Cell,
    /// Time steps.
    pub steps: usize,
    /// Sequences in the batch.
    pub batch: usize,
    /// Whether sequences lie one after the other (`batch_first`), and not time steps.
    pub batch_first: bool,
    /// Elements of one time step of the input.
    pub features: usize,
    /// Units: elements of c, and of h unless it is projected.
    pub hidden: usize,
    /// Elements of h: `hidden`, or the size of the projection.
    pub state: usize,
    /// 1, or 2 where a second network reads the sequence from its end.
    pub directions: usize,
}

impl Shape {
    /// Rows of input and output.
    pub fn rows(&self) -> usize {
        self.steps.saturating_mul(self.batch)
    }

    /// Columns of the gates of one direction.
    pub fn gates(&self) -> usize {
        self.cell.gates().saturating_mul(self.hidden)
    }

    /// The row of time step `t` of sequence `n`.
    pub(crate) fn row(&self, t: usize, n: usize) -> usize {
        if self.batch_first { n * self.steps + t } else { t * self.batch + n }
    }
}

/// What of a layer is not f32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reduced {
    /// What multiplies bf16: the inputs, of all time steps at once.
    pub inputs: Option<MatrixUnit>,
    /// What Whh and Whr are kept as: a time step reads half the bytes. Its states, which come back
    /// in each of the next, and its sums are f32.
    pub steps: Option<Narrow>,
}

impl Reduced {
    /// What there is for layers of this shape: steps of large batches are f32.
    #[must_use]
    pub fn of(self, shape: &Shape) -> Self {
        Self { steps: self.steps.filter(|_| shape.batch <= Panels::MOST_ROWS), ..self }
    }
}

/// The weights of one layer in one direction as PyTorch stores them, row by row.
#[derive(Debug, Clone, Copy)]
pub struct Weights<W> {
    /// `weight_ih`, gates x features.
    pub input: W,
    /// `weight_hh`, gates x state.
    pub recurrent: W,
    /// `bias_ih` and `bias_hh`, one for each gate column.
    pub bias: Option<(W, W)>,
    /// `weight_hr`, state x hidden.
    pub projection: Option<W>,
}

/// The weights of a layer, packed once.
#[derive(Debug)]
pub struct PackedLayer {
    /// Wih of all directions side by side.
    input: PackedMatrix,
    /// What is added to X: both biases, but for n of a GRU `bias_ih` alone.
    bias: Option<Vec<f32>>,
    directions: Vec<PackedDirection>,
}

/// The weights of one direction of a layer, packed: all but `weight_ih`.
#[derive(Debug)]
pub struct PackedDirection {
    /// Its part of what is added to X, until the layer has it.
    bias: Option<Vec<f32>>,
    /// Whh of the gates that are added to X.
    recurrent: Panels,
    /// Whh of a GRU's n, which the reset gate scales before it is added, and its bias.
    candidate: Option<(Panels, Option<Vec<f32>>)>,
    projection: Option<Panels>,
}

impl PackedLayer {
    /// What decides the form.
    pub fn key(isa: Isa, reduced: Reduced) -> PackKey {
        let steps = match reduced.steps {
            None => 0,
            Some(Narrow::Bf16) => 1,
            Some(Narrow::F16) => 2,
        };
        match reduced.inputs.map(|unit| unit.key(isa)) {
            // Whh is in panels of these vectors.
            Some(PackKey { sizes: [terms, ..], precision, .. }) => {
                let key = PackKey::f32("recurrent.unit", [terms, steps, 0], isa);
                PackKey { precision, ..key }
            }
            None => PackKey::f32("recurrent", [0, steps, 0], isa),
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let biases = [&self.bias].into_iter().chain(
            self.directions.iter().filter_map(|d| d.candidate.as_ref().map(|(_, bias)| bias)),
        );
        let biases = biases.flatten().map(|bias| size_of_val(&bias[..]));
        let panels = self.directions.iter().flat_map(|d| {
            let candidate = d.candidate.as_ref().map(|(panels, _)| panels);
            [Some(&d.recurrent), candidate, d.projection.as_ref()].into_iter().flatten()
        });
        self.input.bytes() + biases.sum::<usize>() + panels.map(Panels::bytes).sum::<usize>()
    }

    /// Packs the weights of every direction.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`] where the system refuses.
    ///
    /// # Panics
    /// Where a weight is shorter than the shape says.
    pub fn new(
        target: Target,
        shape: &Shape,
        weights: &[Weights<Floats<'_>>],
        reduced: Reduced,
    ) -> Result<Self, TensorError> {
        let inputs: Vec<_> = weights.iter().map(|w| w.input).collect();
        let input = PackedInputs::new(target, shape, &inputs, reduced)?;
        let direction = |w: &Weights<Floats<'_>>| PackedDirection::new(target, shape, w, reduced);
        Ok(Self::of(input, weights.iter().map(direction).collect::<Result<_, _>>()?))
    }

    /// The weights of a layer, of which those of the inputs and of each direction were packed one
    /// after the other.
    pub fn of(inputs: PackedInputs, mut directions: Vec<PackedDirection>) -> Self {
        let biases: Option<Vec<_>> = directions.iter_mut().map(|d| d.bias.take()).collect();
        Self { input: inputs.0, bias: biases.map(|biases| biases.concat()), directions }
    }
}

/// Wih of all directions of a layer, packed.
#[derive(Debug)]
pub struct PackedInputs(PackedMatrix);

impl PackedInputs {
    /// Packs `weight_ih` of every direction, gates x features each.
    ///
    /// # Errors
    /// As [`PackedLayer::new`].
    ///
    /// # Panics
    /// As there.
    pub fn new(
        target: Target,
        shape: &Shape,
        weights: &[Floats<'_>],
        reduced: Reduced,
    ) -> Result<Self, TensorError> {
        let (rows, depth) = (shape.gates(), shape.features);
        let (stack, columns) = (Stack { parts: weights, rows, depth }, rows * weights.len());
        Ok(Self(match reduced.inputs {
            Some(unit) => PackedMatrix::of_unit(target, &stack, (columns, depth), unit)?,
            None => PackedMatrix::new(target, Side::Right, &stack, columns, depth, &Par::serial())?,
        }))
    }
}

impl PackedDirection {
    /// Packs what one direction has but `weight_ih`, which is not looked at.
    ///
    /// # Errors
    /// As [`PackedLayer::new`].
    ///
    /// # Panics
    /// As there.
    pub fn new(
        target: Target,
        shape: &Shape,
        weights: &Weights<Floats<'_>>,
        reduced: Reduced,
    ) -> Result<Self, TensorError> {
        let (gates, hidden, state) = (shape.gates(), shape.hidden, shape.state);
        let steps = reduced.steps;
        // Columns of the gates that are simply added to X.
        let added = if shape.cell == Cell::Gru { 2 * hidden } else { gates };
        let bias = |(ih, hh): (Floats<'_>, Floats<'_>)| {
            alloc::collect((0..gates).map(move |i| match i < added {
                true => ih.get(i) + hh.get(i),
                false => ih.get(i),
            }))
        };
        let (first, second) = weights.recurrent.split_at(added * state);
        let candidate = match shape.cell {
            Cell::Gru => Some((
                Panels::new(target.isa, second, hidden, state, steps)?,
                (weights.bias)
                    .map(|(_, hh)| alloc::collect((added..gates).map(|i| hh.get(i))))
                    .transpose()?,
            )),
            _ => None,
        };
        Ok(Self {
            bias: weights.bias.map(bias).transpose()?,
            recurrent: Panels::new(target.isa, first, added, state, steps)?,
            candidate,
            projection: (weights.projection)
                .map(|p| Panels::new(target.isa, p, state, hidden, steps))
                .transpose()?,
        })
    }
}

/// Matrices of the same size, one below the other, each `rows x depth`.
struct Stack<'a> {
    parts: &'a [Floats<'a>],
    rows: usize,
    depth: usize,
}

impl Pack for Stack<'_> {
    #[inline(always)]
    fn pack<S: Simd>(&self, s: S, lane: usize, depth: Range<usize>, width: usize, out: &mut [f32]) {
        let (part, row) = (lane / self.rows, lane % self.rows);
        if let Some(&part) = self.parts.get(part).filter(|_| row + width <= self.rows) {
            let part = Strided::left(part, (self.rows, self.depth), (self.depth, 1));
            return part.pack(s, row, depth, width, out);
        }
        for i in 0..width {
            let lane = lane + i;
            let source = self.parts.get(lane / self.rows).map(|part| {
                let start = lane % self.rows * self.depth;
                part.part(start + depth.start..start + depth.end)
            });
            for kk in 0..depth.len() {
                out[kk * width + i] = source.map_or(0.0, |s| s.get(kk));
            }
        }
    }
}

/// States, `directions x batch` rows of `state` (h) and `hidden` (c) elements each. The final ones
/// are written over the initial ones.
#[derive(Debug)]
pub struct States<'a> {
    /// Hidden states.
    pub h: &'a mut [f32],
    /// Cell states of an LSTM; empty otherwise.
    pub c: &'a mut [f32],
}

/// A layer with all decisions taken.
#[derive(Debug, Clone)]
pub struct Recurrent {
    shape: Shape,
    gemm: Gemm,
    /// Rows of a batch in one [`Sequence`].
    part: usize,
}

/// Bytes of Whh below which the product of one step is not shared among threads: they take longer
/// to meet.
const SHARED_BYTES: usize = 128 << 10;

impl Recurrent {
    /// Plans a layer for this number of threads.
    pub fn new(target: Target, threads: usize, shape: Shape, reduced: Reduced) -> Self {
        let size = Size {
            batch: 1,
            m: shape.rows(),
            n: shape.gates().saturating_mul(shape.directions),
            k: shape.features,
        };
        let parts = threads.div_ceil(shape.directions.max(1));
        let mr = target.mr();
        Self {
            shape,
            gemm: match reduced.inputs {
                Some(unit) => Gemm::on_unit(target, threads, size, unit),
                None => Gemm::new(target, threads, size, (false, true)),
            },
            part: shape.batch.div_ceil(parts.max(1)).next_multiple_of(mr).min(shape.batch).max(1),
        }
    }

    /// f32 elements of scratch memory for [`Recurrent::run`] on `threads` threads.
    pub fn scratch(&self, threads: usize) -> usize {
        let tasks = self.shape.batch.div_ceil(self.part).saturating_mul(self.shape.directions);
        let spare = spare(&self.shape, self.part).saturating_mul(tasks);
        self.gates().saturating_add(spare.max(self.gemm.scratch(threads)))
    }

    /// Elements of X.
    fn gates(&self) -> usize {
        let Size { m, n, .. } = self.gemm.size();
        line(m.saturating_mul(n))
    }

    /// Computes the layer: `y[row, direction * state + i]`. Where `x` is none, the input is what
    /// `y` holds.
    ///
    /// # Panics
    /// Where memory is too short, or the weights are another layer's.
    pub fn run(
        &self,
        par: &Par,
        weights: &PackedLayer,
        x: Option<&[f32]>,
        y: &mut [f32],
        states: States<'_>,
        scratch: &mut [f32],
    ) {
        let Shape { batch, features, hidden, state, directions, .. } = self.shape;
        let Size { m, n, .. } = self.gemm.size();
        if m == 0 {
            return;
        }
        let lstm = self.shape.cell == Cell::Lstm;
        assert!(weights.directions.len() == directions, "weights of another layer");
        let holds = |x: &[f32], sizes| elements(sizes).is_some_and(|n| x.len() >= n);
        assert!(holds(y, [m, directions, state]), "output too short");
        assert!(holds(states.h, [directions, batch, state]), "states too short");
        assert!(!lstm || holds(states.c, [directions, batch, hidden]), "states too short");
        let (gates, rest) = scratch.split_at_mut(self.gates());

        let product = Product {
            a: Operand::Source(Strided::left(x.unwrap_or(y), (m, features), (features, 1))),
            b: Operand::Packed(&weights.input),
            post_ops: PostOps {
                bias: weights.bias.as_deref().map_or(Bias::None, Bias::Cols),
                ..PostOps::default()
            },
        };
        self.gemm.run(par, &product, gates, n, rest);

        let parts = batch.div_ceil(self.part);
        let own = spare(&self.shape, self.part);
        let (gates, y, spare) = (SharedMut::new(gates), SharedMut::new(y), SharedMut::new(rest));
        let (h, c) = (SharedMut::new(states.h), SharedMut::new(states.c));
        let sequence = |task: usize, par: &Par| {
            let (direction, part) = (task / parts, task % parts);
            let batch = part * self.part..((part + 1) * self.part).min(self.shape.batch);
            let at = direction * self.shape.batch;
            let rows = |width: usize| (at + batch.start) * width..(at + batch.end) * width;
            // SAFETY: each task has memory of its own.
            let spare = unsafe { spare.slice(task * own..(task + 1) * own) };
            // SAFETY: the rows of a direction and a part of the batch belong to one task.
            let (h, c) =
                unsafe { (h.slice(rows(state)), c.slice(if lstm { rows(hidden) } else { 0..0 })) };
            let sequence = Sequence {
                layer: self,
                weights: &weights.directions[direction],
                direction,
                batch,
                gates: &gates,
                y: &y,
            };
            sequence.run(par, h, c, spare);
        };
        match directions * parts {
            1 => sequence(0, par),
            tasks => par.run(tasks, |task| sequence(task, &Par::serial())),
        }
    }
}

/// f32 elements of memory of one [`Sequence`]: the candidate of a GRU, or h before its projection.
fn spare(shape: &Shape, rows: usize) -> usize {
    let needed = shape.state != shape.hidden || shape.cell == Cell::Gru;
    if needed { line(rows.saturating_mul(shape.hidden)) } else { 0 }
}

/// A part of the batch in one direction, from the first step to the last.
struct Sequence<'a> {
    layer: &'a Recurrent,
    weights: &'a PackedDirection,
    direction: usize,
    batch: Range<usize>,
    gates: &'a SharedMut<'a, f32>,
    y: &'a SharedMut<'a, f32>,
}

impl Sequence<'_> {
    /// `h` and `c` hold the initial states of these rows, and the final ones afterwards.
    fn run(&self, par: &Par, h: &mut [f32], c: &mut [f32], spare: &mut [f32]) {
        let shape = &self.layer.shape;
        let isa = self.layer.gemm.target().isa;
        let Shape { steps, hidden, state, directions, .. } = *shape;
        let (rows, width) = (self.batch.len(), shape.gates());
        let stride = width * directions;
        // From one sequence of the batch to the next.
        let next = if shape.batch_first { steps } else { 1 };
        for step in 0..steps {
            if stop::stopped() {
                return;
            }
            let t = if self.direction == 0 { step } else { steps - 1 - step };
            let back = step % 2 == 1;
            let at = shape.row(t, self.batch.start);
            let x = at * stride + self.direction * width;
            // SAFETY: the columns of a direction in the rows of a part of the batch belong to this
            // task.
            unsafe {
                let c = (self.gates, x, next * stride);
                self.weights.recurrent.multiply(isa, par, rows, h, c, Plus::Output, back);
            }
            if let Some((weights, bias)) = &self.weights.candidate {
                let plus = Plus::Bias(bias.as_deref());
                let c = SharedMut::new(&mut *spare);
                // SAFETY: memory of this task.
                unsafe { weights.multiply(isa, par, rows, h, (&c, 0, hidden), plus, back) };
            }
            for n in 0..rows {
                let x = x + n * next * stride;
                let hidden_row = n * hidden..(n + 1) * hidden;
                let state_row = n * state..(n + 1) * state;
                // SAFETY: as for the product, which is done.
                let gates = unsafe { self.gates.slice(x..x + width) };
                isa.run(match shape.cell {
                    Cell::Lstm => cell::Step::Lstm {
                        gates,
                        c: &mut c[hidden_row.clone()],
                        h: match self.weights.projection {
                            Some(_) => &mut spare[hidden_row],
                            None => &mut h[state_row],
                        },
                    },
                    Cell::Gru => cell::Step::Gru {
                        gates,
                        candidate: &spare[hidden_row],
                        h: &mut h[state_row],
                    },
                    Cell::Rnn(f) => cell::Step::Rnn { f, gates, h: &mut h[state_row] },
                });
            }
            if let Some(weights) = &self.weights.projection {
                let c = SharedMut::new(&mut *h);
                let (c, plus) = ((&c, 0, state), Plus::Bias(None));
                // SAFETY: memory of this task.
                unsafe { weights.multiply(isa, par, rows, spare, c, plus, back) };
            }
            for (n, h) in h.chunks_exact(state).enumerate() {
                let y = ((at + n * next) * directions + self.direction) * state;
                // SAFETY: as for the gates.
                unsafe { self.y.slice(y..y + state) }.copy_from_slice(h);
            }
        }
    }
}

/// Elements rounded up to a cache line.
fn line(elements: usize) -> usize {
    elements.div_ceil(16).saturating_mul(16)
}

//! Transposed convolution on channel blocks: a direct convolution for each phase of the output.
//!
//! ```text
//! y[n, o, j] = act(bias[o] + sum over channels c, taps t, pixels i with i * stride + t - padding = j of x[n, c, i] w[c, o, t])
//! ```
//! <https://pytorch.org/docs/stable/generated/torch.nn.ConvTranspose2d.html>
//!
//! Which taps an output pixel sees depends on its *phase* alone, the remainder of `j + padding` by
//! the stride: tap t belongs to phase `t mod stride`, and within a phase neighbouring pixels see
//! neighbouring inputs. So each phase is an ordinary convolution with stride 1 and some of the
//! taps, last first, that writes every stride-th pixel. Register tile and loops are the direct
//! convolution's; the tasks of all phases are interleaved, so that neighbouring pixels of the
//! output share lines of cache. Of pairs of bf16 (`nchwc/pairs.rs`), an image becomes words once
//! for all phases, if it is none already.
//!
//! For: two dimensions without groups and dilation, at most [`MOST_PHASES`] phases, each of which
//! writes and reads something. Figures: docs/decisions/002-direct-convolution.md.

use super::pairs::PairImage;
use super::tile::NB;
use super::tiled::{
    ConvInput, DirectWeights, Operands as TileOperands, Run, Spread, Tiled, Workers, pad_bias,
};
use super::window::Window;
use crate::algorithm::{Bound, Operands, take};
use crate::choose::Request;
use crate::cost;
use crate::post_ops::Bf16Tensors;
use crate::problem::{Axis, ConvError, ConvProblem, PadMode};
use plutino_cpu::par::SharedMut;
use plutino_cpu::simd::Pairs;
use plutino_cpu::{Isa, PackKey, Par};
use plutino_products::gemm::MatrixUnit;
use plutino_tensor::{DType, FloatSource, Floats};
use std::borrow::Cow;

/// Share of the peak: results are stored twice.
const SHARE: f64 = 0.7;

/// Phases up to which this pays: each is a pass over the input.
const MOST_PHASES: usize = 16;

/// Bound to a problem.
#[derive(Debug)]
pub(crate) struct Phases {
    problem: ConvProblem,
    isa: Isa,
    threads: usize,
    phases: Vec<(Phase, Tiled)>,
    /// Whether pairs of bf16 are multiplied.
    of_pairs: bool,
    /// How an image of f32 becomes such.
    words: Option<Words>,
    /// Which tensors could be bf16.
    bf16: Bf16Tensors,
    cycles: f64,
}

/// An image as words of pairs of bf16, for all phases.
#[derive(Debug, Clone, Copy)]
struct Words {
    pairs: Pairs,
    image: PairImage,
    /// Pixels of a plane, and f32 of all words.
    pixels: usize,
    len: usize,
}

/// An ordinary convolution that computes some pixels of the output.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) window: Window,
    pub(super) spread: Spread,
    /// Its taps, as numbers of those of the whole window.
    taps: Vec<usize>,
}

/// Weights of each phase.
#[derive(Debug)]
pub(crate) struct PhaseWeights(Vec<DirectWeights>);

/// A phase along one dimension.
struct AxisPhase {
    /// The first pixel of the output, and how many there are.
    first: usize,
    count: usize,
    taps: Vec<usize>,
    pad: usize,
}

impl AxisPhase {
    /// The phases of one dimension; none where one of them writes nothing, sees no taps, or not the
    /// first inputs.
    fn of(axis: &Axis) -> Option<Vec<Self>> {
        let (window, output) = (axis.window(), axis.output());
        let (kernel, stride, pad) = (window.kernel, window.stride, window.padding.0);
        let mut phases = Vec::with_capacity(stride); // bounded: MOST_PHASES
        for phase in 0..stride {
            let taps: Vec<usize> = (phase..kernel).step_by(stride).rev().collect();
            // The input under tap `phase` of the first pixel.
            let input = pad.saturating_sub(phase).div_ceil(stride);
            let first = (input * stride + phase).checked_sub(pad)?;
            let pad = taps.len().checked_sub(1)?.checked_sub(input)?;
            let count = output.checked_sub(first).filter(|&n| n > 0)?.div_ceil(stride);
            phases.push(Self { first, count, taps, pad });
        }
        Some(phases)
    }
}

impl Phase {
    /// The phases of a transposed convolution; none where it is not one for them.
    pub(super) fn all(request: &Request<'_>) -> Option<Vec<Self>> {
        let &Request { problem, post_ops, isa, .. } = request;
        let [_, h, w] = problem.axes();
        let both = |f: fn(&Axis) -> usize| [f(h), f(w)];
        let stride = both(|a| a.window().stride);
        let few = stride[0].checked_mul(stride[1]).is_some_and(|n| n <= MOST_PHASES);
        let zeros = [h, w].iter().all(|a| a.window().mode == PadMode::Zeros);
        let dense = [h, w].iter().all(|a| a.window().dilation == 1);
        let fits = problem.is_transposed() && problem.dims() == 2 && problem.groups() == 1;
        let alone = post_ops.residual.is_none() && !post_ops.factors;
        if !(fits && few && zeros && dense && alone && problem.out_channels() >= isa.lanes()) {
            return None;
        }
        let (input, output) = (both(Axis::input), both(Axis::output));
        let kernel = both(|a| a.window().kernel);
        // Numbers fit the arithmetic of phases, and the output that of the kernels.
        Window::new(input, output, kernel, stride, [1, 1], both(|a| a.window().padding.0))?;
        let (rows, columns) = (AxisPhase::of(h)?, AxisPhase::of(w)?);
        let mut phases = Vec::with_capacity(rows.len() * columns.len());
        for y in &rows {
            for x in &columns {
                let taps_of = [y.taps.len(), x.taps.len()];
                let (count, pad) = ([y.count, x.count], [y.pad, x.pad]);
                let window = Window::new(input, count, taps_of, [1, 1], [1, 1], pad)?;
                let spread = Spread { plane: output, first: [y.first, x.first], step: stride };
                let taps =
                    y.taps.iter().flat_map(|ky| x.taps.iter().map(move |kx| ky * kernel[1] + kx));
                phases.push(Self { window, spread, taps: taps.collect() });
            }
        }
        Some(phases)
    }

    /// Its part of the weights of a problem: for each output channel each input channel's taps.
    pub(super) fn weights(&self, problem: &ConvProblem, weight: Floats<'_>) -> Vec<f32> {
        let (inp, out, all) = (problem.in_channels(), problem.out_channels(), problem.taps());
        let mut part = Vec::with_capacity(inp * out * self.taps.len()); // bounded: weights
        for o in 0..out {
            for c in 0..inp {
                let first = (c * out + o) * all;
                part.extend(self.taps.iter().map(|tap| weight.get(first + tap)));
            }
        }
        part
    }
}

/// Of f32.
pub(crate) fn bind(request: &Request<'_>) -> Option<Phases> {
    let cycles = cost::by_sums(&request.problem, request.isa, SHARE);
    Phases::new(request, None, cycles)
}

/// Of pairs of bf16.
pub(crate) fn bind_pairs(request: &Request<'_>) -> Option<Phases> {
    let &Request { problem, isa, unit, .. } = request;
    let Some(MatrixUnit::Pairs(pairs)) = unit else { return None };
    let cycles = super::pairs::cycles(request, pairs, SHARE);
    Phases::new(request, Some((pairs, PairImage::of(&problem, pairs))), cycles)
        .filter(|_| pairs.isa() == isa)
}

impl Phases {
    fn new(request: &Request<'_>, words: Option<(Pairs, PairImage)>, cycles: f64) -> Option<Self> {
        let &Request { problem, post_ops, isa, threads, .. } = request;
        let phases = Phase::all(request)?;
        let pixels = phases.first()?.window.input_pixels();
        let of_pairs = words.map(|(pairs, _)| pairs);
        let words = words.filter(|_| !request.bf16.input).map(|(pairs, image)| {
            let len = image.len(pixels, 1);
            Words { pairs, image, pixels, len }
        });
        let (inp, out, batch) = (problem.in_channels(), problem.out_channels(), problem.batch());
        let (threads, activation) = (threads.max(1), post_ops.activation);
        let tiled = |phase: &Phase| {
            let window = phase.window.clone();
            let tiled = match of_pairs {
                None => Tiled::in_place(isa, window, [inp, out], batch, activation, threads),
                Some(pairs) => super::pairs::whole(request, pairs, window),
            };
            tiled.spread(phase.spread)
        };
        let phases = phases.into_iter().map(|phase| {
            let tiled = tiled(&phase);
            (phase, tiled)
        });
        let (phases, of_pairs) = (phases.collect(), of_pairs.is_some());
        let bf16 = match of_pairs {
            true => Bf16Tensors { residual: false, ..super::pairs::bf16_tensors(request) },
            false => Bf16Tensors::NONE,
        };
        Some(Self { problem, isa, threads, phases, of_pairs, words, bf16, cycles })
    }

    fn worker_len(&self) -> usize {
        self.phases.iter().map(|(_, tiled)| tiled.worker_len()).max().unwrap_or(0)
    }

    fn scratch(&self) -> usize {
        self.threads * self.worker_len()
    }
}

impl Bound for Phases {
    type Weights = PhaseWeights;

    fn cycles(&self) -> f64 {
        self.cycles
    }

    fn bf16_tensors(&self) -> Bf16Tensors {
        self.bf16
    }

    fn pack_key(&self) -> PackKey {
        let [_, h, w] = self.problem.axes().map(|a| a.window().stride);
        let form = if self.of_pairs { "conv.phases.pairs" } else { "conv.phases" };
        let key = PackKey::f32(form, [NB * self.isa.lanes(), h, w], self.isa);
        match self.of_pairs {
            true => PackKey { precision: DType::Bf16, ..key },
            false => key,
        }
    }

    fn pack(&self, weight: &mut dyn FloatSource, _: &Par) -> Result<PhaseWeights, ConvError> {
        let channels = [self.problem.out_channels(), self.problem.in_channels()];
        let weight = weight.all()?;
        let pack = |(phase, _): &(Phase, Tiled)| {
            let part = phase.weights(&self.problem, weight);
            let (part, taps) = (&mut Floats::from(&part), phase.taps.len());
            let block = self.isa.lanes();
            match self.of_pairs {
                true => DirectWeights::pack_pairs(part, 1, channels, taps, block, ConvInput::Pairs),
                false => DirectWeights::pack(part, 1, channels, taps, block, ConvInput::Blocked),
            }
        };
        Ok(PhaseWeights(self.phases.iter().map(pack).collect::<Result<_, _>>()?))
    }

    fn bytes(weights: &PhaseWeights) -> usize {
        weights.0.iter().map(DirectWeights::bytes).sum()
    }

    fn bias<'b>(&self, bias: Option<&'b [f32]>) -> Cow<'b, [f32]> {
        Cow::Owned(pad_bias(bias, 1, self.problem.out_channels(), self.isa.lanes()))
    }

    fn workspace(&self) -> usize {
        let words = self.words.map_or(0, |words| words.len).saturating_mul(size_of::<f32>());
        self.scratch().saturating_mul(size_of::<isize>()).saturating_add(words)
    }

    fn run(
        &self,
        weights: &PhaseWeights,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        let Operands { x, bias, y, .. } = operands;
        let (scratch, rest) = take::<isize>(workspace, self.scratch())?;
        let len = self.worker_len();
        let (y, scratch) = (SharedMut::new(y), SharedMut::new(scratch));
        let begin = |phase: usize| {
            let weights = weights.0[phase].view();
            let operands = TileOperands { x, factors: None, y: &y, weights, bias, residual: None };
            self.phases[phase].1.begin(operands, Workers { scratch: &scratch, len })
        };
        let runs: Vec<Run<'_>> = (0..self.phases.len()).map(begin).collect();
        // Phases differ in their pixels by a row or a column, and so may be cut into other tasks.
        let grids = runs.iter().map(|run| run.grid);
        let most = grids.reduce(|a, b| [a[0].max(b[0]), a[1].max(b[1]), a[2].max(b[2])]);
        let [images, layers, places] = most.unwrap_or_default();
        let places = places * runs.len();
        // Phase by phase for each part of the input.
        let task = |worker: usize, read: Option<&[f32]>, [n, layer, place]: [usize; 3]| {
            let (place, run) = (place / runs.len(), &runs[place % runs.len()]);
            if layer < run.grid[1] && place < run.grid[2] {
                run.task(worker, read.unwrap_or(run.image(n)), [n, layer, place]);
            }
        };
        let Some(Words { pairs, image, pixels, len }) = self.words else {
            par.run_grid([images, layers, places], |worker, cell| task(worker, None, cell));
            return Ok(());
        };
        let (words, _) = take::<f32>(rest, len)?;
        for n in 0..images {
            image.copy_whole(pairs, pixels, runs[0].image(n), 1, words, par);
            let words = &*words;
            par.run_grid([1, layers, places], |worker, [_, layer, place]| {
                task(worker, Some(words), [n, layer, place]);
            });
        }
        Ok(())
    }
}

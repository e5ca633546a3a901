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
//! output share lines of cache.
//!
//! For: two dimensions without groups and dilation, at most [`MOST_PHASES`] phases, each of which
//! writes and reads something. Figures: docs/decisions/002-direct-convolution.md.

use super::tile::NB;
use super::tiled::{
    ConvInput, DirectWeights, Operands as TileOperands, Spread, Tiled, Workers, pad_bias,
};
use super::window::Window;
use crate::algorithm::{Bound, Operands, take};
use crate::choose::Request;
use crate::cost;
use crate::problem::{Axis, ConvError, ConvProblem, PadMode};
use plutino_cpu::par::SharedMut;
use plutino_cpu::{Isa, PackKey, Par};
use plutino_tensor::Floats;
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
    phases: Vec<Phase>,
}

#[derive(Debug)]
struct Phase {
    tiled: Tiled,
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

pub(crate) fn bind(request: &Request<'_>) -> Option<Phases> {
    let &Request { problem, post_ops, isa, threads, .. } = request;
    let [_, h, w] = problem.axes();
    let both = |f: fn(&Axis) -> usize| [f(h), f(w)];
    let stride = both(|a| a.window().stride);
    let few = stride[0].checked_mul(stride[1]).is_some_and(|n| n <= MOST_PHASES);
    let zeros = [h, w].iter().all(|a| a.window().mode == PadMode::Zeros);
    let dense = [h, w].iter().all(|a| a.window().dilation == 1);
    let fits = problem.is_transposed() && problem.dims() == 2 && problem.groups() == 1;
    let out = problem.out_channels();
    let alone = post_ops.residual.is_none() && !post_ops.factors;
    if !(fits && few && zeros && dense && alone && out >= isa.lanes()) {
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
            let part =
                Window::new(input, [y.count, x.count], taps_of, [1, 1], [1, 1], [y.pad, x.pad])?;
            let channels = [problem.in_channels(), out];
            let activation = post_ops.activation;
            let tiled = Tiled::in_place(isa, part, channels, problem.batch(), activation, threads);
            let spread = Spread { plane: output, first: [y.first, x.first], step: stride };
            let taps =
                y.taps.iter().flat_map(|ky| x.taps.iter().map(move |kx| ky * kernel[1] + kx));
            phases.push(Phase { tiled: tiled.spread(spread), taps: taps.collect() });
        }
    }
    Some(Phases { problem, isa, threads: threads.max(1), phases })
}

impl Phases {
    fn worker_len(&self) -> usize {
        self.phases.iter().map(|p| p.tiled.worker_len()).max().unwrap_or(0)
    }

    fn scratch(&self) -> usize {
        self.threads * self.worker_len()
    }
}

impl Bound for Phases {
    type Weights = PhaseWeights;

    fn cycles(&self) -> f64 {
        cost::by_sums(&self.problem, self.isa, SHARE)
    }

    fn pack_key(&self) -> PackKey {
        let [_, h, w] = self.problem.axes().map(|a| a.window().stride);
        PackKey::f32("conv.phases", [NB * self.isa.lanes(), h, w], self.isa)
    }

    fn pack(&self, weight: Floats<'_>, _: &Par) -> Result<PhaseWeights, ConvError> {
        let (inp, out) = (self.problem.in_channels(), self.problem.out_channels());
        let all = self.problem.taps();
        let pack = |phase: &Phase| {
            let mut part = Vec::with_capacity(inp * out * phase.taps.len()); // bounded: weights
            for o in 0..out {
                for c in 0..inp {
                    let first = (c * out + o) * all;
                    part.extend(phase.taps.iter().map(|tap| weight.get(first + tap)));
                }
            }
            let (taps, block) = (phase.taps.len(), self.isa.lanes());
            DirectWeights::pack(&part[..], 1, [out, inp], taps, block, ConvInput::Blocked)
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
        self.scratch().saturating_mul(size_of::<isize>())
    }

    fn run(
        &self,
        weights: &PhaseWeights,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        let Operands { x, bias, y, .. } = operands;
        let (scratch, _) = take::<isize>(workspace, self.scratch())?;
        let phases = self.phases.len();
        let len = self.worker_len();
        let (y, scratch) = (SharedMut::new(y), SharedMut::new(scratch));
        let begin = |phase: usize| {
            let weights = weights.0[phase].view();
            let operands = TileOperands { x, y: &y, weights, bias, residual: None };
            self.phases[phase].tiled.begin(operands, Workers { scratch: &scratch, len })
        };
        let grids = (0..phases).map(|phase| begin(phase).grid);
        let most = grids.reduce(|a, b| [a[0], a[1], a[2].max(b[2])]);
        let [images, layers, places] = most.unwrap_or_default();
        // Phase by phase for each part of the input.
        par.run_grid([images, layers, places * phases], |worker, [n, layer, place]| {
            let (place, run) = (place / phases, begin(place % phases));
            if place < run.grid[2] {
                run.task(worker, run.image(n), [n, layer, place]);
            }
        });
        Ok(())
    }
}

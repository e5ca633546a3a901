//! Transposed convolution on channel blocks: a convolution for each phase of the output.
//!
//! ```text
//! y[n, o, j] = act(bias[o] + sum over channels c, taps t, pixels i with i * stride + t - padding = j of x[n, c, i] w[c, o, t])
//! ```
//! <https://pytorch.org/docs/stable/generated/torch.nn.ConvTranspose2d.html>
//!
//! Which taps an output pixel sees depends on its *phase* alone, the remainder of `j + padding` by
//! the stride: tap t belongs to phase `t mod stride`, and within a phase neighbouring pixels see
//! neighbouring inputs. So each phase is an ordinary convolution with stride 1 and some of the
//! taps, last first, that writes every stride-th pixel.

use super::direct::{ConvInput, DirectConv, DirectWeights, Operands, Spread, Workers};
use super::window::Window;
use plutino_cpu::Par;
use plutino_cpu::activation::Activation;
use plutino_cpu::par::SharedMut;
use plutino_cpu::simd::Isa;
use plutino_tensor::{Floats, TensorError};

/// Phases up to which this pays: each is a pass over the input.
const MOST_PHASES: usize = 16;

/// Height and width of what a transposed convolution without dilation reads, writes and is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransposedWindow {
    /// Of the input.
    pub input: [usize; 2],
    /// Of the output.
    pub output: [usize; 2],
    /// Of the window, in taps.
    pub kernel: [usize; 2],
    /// From one window to the next, in pixels of the output.
    pub stride: [usize; 2],
    /// What is cut off above and left.
    pub pad: [usize; 2],
}

/// A transposed convolution bound to its geometry.
#[derive(Debug)]
pub struct TransposedConv {
    phases: Vec<Phase>,
    /// Taps of the whole window.
    taps: usize,
    isa: Isa,
}

#[derive(Debug)]
struct Phase {
    conv: DirectConv,
    /// Its taps, as numbers of those of the whole window.
    taps: Vec<usize>,
}

/// Weights of each phase.
#[derive(Debug)]
pub struct TransposedWeights(Vec<DirectWeights>);

/// A phase along one dimension.
struct AxisPhase {
    /// The first pixel of the output, and how many there are.
    first: usize,
    count: usize,
    taps: Vec<usize>,
    pad: usize,
}

impl TransposedWindow {
    /// Whether [`TransposedConv`] computes this, with so many channels in the output and in a
    /// block, and it pays.
    pub fn suits(&self, out: usize, block: usize) -> bool {
        let phases = self.stride[0].checked_mul(self.stride[1]);
        phases.is_some_and(|n| n <= MOST_PHASES)
            && out >= block
            // Its numbers fit the arithmetic below, and the output that of the kernels.
            && Window::new(self.input, self.output, self.kernel, self.stride, [1, 1], self.pad).is_some()
            && (0..2).all(|axis| self.phases(axis).is_some())
    }

    /// The phases of one dimension; none where one of them writes nothing, sees no taps, or not the
    /// first inputs.
    fn phases(&self, axis: usize) -> Option<Vec<AxisPhase>> {
        let [output, kernel, stride, pad] =
            [self.output, self.kernel, self.stride, self.pad].map(|v| v[axis]);
        let mut phases = Vec::with_capacity(stride); // bounded: MOST_PHASES
        for phase in 0..stride {
            let taps: Vec<usize> = (phase..kernel).step_by(stride).rev().collect();
            // The input under tap `phase` of the first pixel.
            let input = pad.saturating_sub(phase).div_ceil(stride);
            let first = (input * stride + phase).checked_sub(pad)?;
            let pad = taps.len().checked_sub(1)?.checked_sub(input)?;
            let count = output.checked_sub(first).filter(|&n| n > 0)?.div_ceil(stride);
            phases.push(AxisPhase { first, count, taps, pad });
        }
        Some(phases)
    }
}

impl TransposedConv {
    /// Binds the geometry; none where it does not [suit](TransposedWindow::suits). Channels are
    /// those of the input and of the output, `threads` shapes the tasks (not the result).
    pub fn new(
        isa: Isa,
        window: &TransposedWindow,
        [inp, out]: [usize; 2],
        batch: usize,
        activation: Option<Activation>,
        threads: usize,
    ) -> Option<Self> {
        if !window.suits(out, isa.lanes()) {
            return None;
        }
        let (rows, columns) = (window.phases(0)?, window.phases(1)?);
        let mut phases = Vec::with_capacity(rows.len() * columns.len());
        for y in &rows {
            for x in &columns {
                let kernel = [y.taps.len(), x.taps.len()];
                let (output, pad) = ([y.count, x.count], [y.pad, x.pad]);
                let part = Window::new(window.input, output, kernel, [1, 1], [1, 1], pad)?;
                let input = ConvInput::Blocked;
                let conv = DirectConv::new(isa, part, input, inp, out, batch, activation, threads);
                let spread =
                    Spread { plane: window.output, first: [y.first, x.first], step: window.stride };
                let taps = y
                    .taps
                    .iter()
                    .flat_map(|ky| x.taps.iter().map(move |kx| ky * window.kernel[1] + kx));
                phases.push(Phase { conv: conv.spread(spread), taps: taps.collect() });
            }
        }
        Some(Self { phases, taps: window.kernel[0] * window.kernel[1], isa })
    }

    /// Packs `weight`, `(in, out, taps)` row-major, for any convolution with this window and
    /// stride.
    ///
    /// # Errors
    /// Where the sizes do not fit each other, or no memory is left.
    pub fn pack<'w>(
        &self,
        weight: impl Into<Floats<'w>>,
        [inp, out]: [usize; 2],
    ) -> Result<TransposedWeights, TensorError> {
        let weight = weight.into();
        let len = inp.checked_mul(out).and_then(|n| n.checked_mul(self.taps));
        if len != Some(weight.len()) {
            return Err(TensorError::invalid(
                "weights of a transposed convolution do not fit its channels",
            ));
        }
        let pack = |phase: &Phase| {
            let mut part = Vec::with_capacity(inp * out * phase.taps.len());
            for o in 0..out {
                for c in 0..inp {
                    let first = (c * out + o) * self.taps;
                    part.extend(phase.taps.iter().map(|tap| weight.get(first + tap)));
                }
            }
            let (taps, block) = (phase.taps.len(), self.isa.lanes());
            DirectWeights::pack(&part[..], 1, [out, inp], taps, block, ConvInput::Blocked)
        };
        Ok(TransposedWeights(self.phases.iter().map(pack).collect::<Result<_, _>>()?))
    }

    /// Numbers of scratch memory that a run on `threads` threads needs.
    pub fn scratch(&self, threads: usize) -> usize {
        threads * self.worker_len()
    }

    fn worker_len(&self) -> usize {
        self.phases.iter().map(|p| p.conv.worker_len()).max().unwrap_or(0)
    }

    /// Computes all images; `x` and `y` are blocked, `bias` is padded as for [`DirectConv::run`].
    ///
    /// Panics where a slice is too short: plans check lengths before.
    pub fn run(
        &self,
        x: &[f32],
        weights: &TransposedWeights,
        bias: &[f32],
        y: &mut [f32],
        scratch: &mut [isize],
        par: &Par,
    ) {
        let phases = self.phases.len();
        assert_eq!(weights.0.len(), phases, "weights are packed for another window");
        let len = self.worker_len();
        let (y, scratch) = (SharedMut::new(y), SharedMut::new(scratch));
        let begin = |phase: usize| {
            let operands =
                Operands { x, y: &y, weights: weights.0[phase].view(), bias, residual: None };
            self.phases[phase].conv.begin(operands, Workers { scratch: &scratch, len })
        };
        let grids = (0..phases).map(|phase| begin(phase).grid);
        let most = grids.reduce(|a, b| [a[0], a[1], a[2].max(b[2])]);
        let [images, layers, places] = most.unwrap_or_default();
        // Phase by phase for each part of the input: neighbouring pixels of the output share lines
        // of cache.
        par.run_grid([images, layers, places * phases], |worker, [n, layer, place]| {
            let (place, run) = (place / phases, begin(place % phases));
            if place < run.grid[2] {
                run.task(worker, run.image(n), [n, layer, place]);
            }
        });
    }
}

//! Depthwise convolution on channel blocks.
//!
//! ```text
//! y[n, c, p] = act(bias[c] + residual[n, c, p] + sum over taps t of x[n, c, at(p, t)] w[c, t])
//! ```
//! A channel is a lane: a tap is one vector of weights, times one vector of input for each of M pixels.
//!
//! Loops: image, channel block and some rows (a task) / row / tile of M pixels / tap (see `channelwise.rs`).

use super::channelwise::{ChannelwiseRow, Tap};
use super::finish::{Finish, Residual};
use super::tile::{TileBody, ZEROS, for_each_tile};
use super::window::Window;
use crate::Par;
use crate::activation::Activation;
use crate::par::SharedMut;
use crate::simd::{Isa, Simd, Vectorized};
use plutino_tensor::{AlignedBuf, Floats, TensorError};

/// Pixels of a tile: enough sums to hide the latency of a multiply-add.
const MR: usize = 8;

/// Output pixels of a task, about: its rows stay in the first-level cache between their taps.
const TASK_PIXELS: usize = 1024;

/// Weights and bias as vectors: `[channel block][tap, then bias][b]`.
#[derive(Debug)]
pub struct DepthwiseWeights {
    data: AlignedBuf,
    blocks: usize,
    taps: usize,
    block: usize,
}

impl DepthwiseWeights {
    /// Packs `weight`, `(channels, taps)` row-major, for vectors of `block` f32.
    ///
    /// # Errors
    /// Where the sizes do not fit each other, or no memory is left.
    pub fn pack<'w>(
        weight: impl Into<Floats<'w>>,
        bias: Option<&[f32]>,
        taps: usize,
        block: usize,
    ) -> Result<Self, TensorError> {
        let weight = weight.into();
        let channels = weight.len() / taps.max(1);
        if taps == 0
            || block == 0
            || weight.len() != channels * taps
            || bias.is_some_and(|b| b.len() != channels)
        {
            return Err(TensorError::invalid(
                "weights of a depthwise convolution do not fit its channels",
            ));
        }
        let blocks = channels.div_ceil(block);
        let mut data = AlignedBuf::resident(blocks * (taps + 1) * block * 4)?;
        let packed: &mut [f32] = bytemuck::cast_slice_mut(data.as_mut_bytes());
        for c in 0..channels {
            let panel = &mut packed[c / block * (taps + 1) * block..];
            for t in 0..taps {
                panel[t * block + c % block] = weight.get(c * taps + t);
            }
            panel[taps * block + c % block] = bias.map_or(0.0, |b| b[c]);
        }
        Ok(Self { data, blocks, taps, block })
    }
}

/// A depthwise convolution bound to its geometry.
#[derive(Debug)]
pub struct DepthwiseConv {
    isa: Isa,
    window: Window,
    finish: Finish,
}

impl DepthwiseConv {
    /// Binds the geometry.
    pub fn new(isa: Isa, window: Window, activation: Option<Activation>) -> Self {
        Self { isa, window, finish: Finish::new(activation) }
    }

    /// Computes all images; `x`, `y` and `residual` are blocked.
    ///
    /// Panics where a slice is too short: plans check lengths before.
    pub fn run(
        &self,
        x: &[f32],
        weights: &DepthwiseWeights,
        residual: Option<Residual<'_>>,
        y: &mut [f32],
        par: &Par,
    ) {
        let b = self.isa.lanes();
        let (out_plane, in_plane) = (self.window.pixels() * b, self.window.input_pixels() * b);
        assert_eq!(weights.block, b, "weights are packed for another instruction set");
        assert_eq!(weights.taps, self.window.taps(), "weights are packed for another window");
        let planes = y.len() / out_plane;
        assert!(
            y.len() == planes * out_plane && x.len() == planes * in_plane,
            "lengths of a convolution"
        );
        assert!(planes.is_multiple_of(weights.blocks), "channels of a depthwise convolution");
        assert!(residual.is_none_or(|r| r.data.len() == y.len()), "length of a residual");
        let packed: &[f32] = bytemuck::cast_slice(weights.data.as_bytes());
        let panel = (weights.taps + 1) * b;
        let [rows, width] = self.window.output;
        let cuts = self.window.pixels().div_ceil(TASK_PIXELS).min(rows);
        let y = SharedMut::new(y);
        par.run(planes * cuts, |task| {
            let (plane, cut) = (task / cuts, task % cuts);
            let rows = cut * rows / cuts..(cut + 1) * rows / cuts;
            let part = plane * out_plane + rows.start * width * b
                ..plane * out_plane + rows.end * width * b;
            self.isa.run(Rows {
                window: &self.window,
                finish: self.finish,
                x: &x[plane * in_plane..(plane + 1) * in_plane],
                residual: residual.map(|r| r.part(part.clone())),
                // SAFETY: tasks write different rows of different planes.
                y: unsafe { y.slice(part) },
                weights: &packed[plane % weights.blocks * panel..][..panel],
                rows,
            });
        });
    }
}

/// Some rows of one plane.
struct Rows<'a> {
    window: &'a Window,
    finish: Finish,
    x: &'a [f32],
    y: &'a mut [f32],
    residual: Option<Residual<'a>>,
    weights: &'a [f32],
    rows: std::ops::Range<usize>,
}

impl Vectorized for Rows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.window.output[1];
        let line = width * S::LANES;
        let (taps, bias) = self.weights.split_at(self.window.taps() * S::LANES);
        for (i, y) in self.y.chunks_exact_mut(line).enumerate() {
            let residual = self.residual.map(|r| r.part(i * line..(i + 1) * line));
            let input = ChannelwiseRow::new::<S>(self.window, self.x, self.rows.start + i);
            let weights = Weights { taps, bias };
            for_each_tile(s, width, &mut Row { input, finish: self.finish, residual, weights, y });
        }
    }
}

/// One row of the output.
struct Row<'a> {
    input: ChannelwiseRow<'a>,
    finish: Finish,
    residual: Option<Residual<'a>>,
    weights: Weights<'a>,
    y: &'a mut [f32],
}

impl<S: Simd> TileBody<S> for Row<'_> {
    const PIXELS: usize = MR;

    #[inline(always)]
    fn tile<const M: usize>(&mut self, s: S, first: usize) {
        let bias = s.load(self.weights.bias);
        let sums: [_; M] = self.input.fold(s, self.weights, bias, first);
        let range = first * S::LANES..(first + M) * S::LANES;
        let residual = self.residual.map(|r| r.part(range.clone()));
        self.finish.store::<S, M, false>(s, sums, residual, &mut self.y[range]);
    }
}

/// Weights of one block of channels: a vector for each tap of the window.
#[derive(Clone, Copy)]
struct Weights<'a> {
    taps: &'a [f32],
    bias: &'a [f32],
}

impl<S: Simd> Tap<S> for Weights<'_> {
    type Weight = S::F32;
    const PADDING: &'static [f32; 16] = &ZEROS;

    #[inline(always)]
    unsafe fn weight(self, s: S, tap: usize) -> S::F32 {
        // SAFETY: there is a vector for each tap of the window (`DepthwiseConv::run` asks), and it is one of them.
        unsafe { s.load_ptr(self.taps.as_ptr().add(tap * S::LANES)) }
    }

    #[inline(always)]
    fn fold(s: S, acc: S::F32, x: S::F32, weight: S::F32) -> S::F32 {
        s.fma(x, weight, acc)
    }
}

//! Depthwise convolution on channel blocks.
//!
//! ```text
//! y[n, c, p] = act(bias[c] + residual[n, c, p] + sum over taps t of x[n, c, at(p, t)] w[c, t])
//! ```
//! A channel is a lane: a tap is one vector of weights, times one vector of input for each of M pixels.
//!
//! Loops: image, channel block and some rows (a task) / row / tile of M pixels / tap. For windows of
//! 3, 5 and 7 columns taps are unrolled, and only the outermost columns are asked whether they are padding.

use super::finish::{Finish, Residual};
use super::tile::{TileBody, ZEROS, for_each_tile};
use super::window::Window;
use crate::Par;
use crate::activation::Activation;
use crate::par::SharedMut;
use crate::simd::unroll::{array, unroll};
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
        for (i, y) in self.y.chunks_exact_mut(line).enumerate() {
            let residual = self.residual.map(|r| r.part(i * line..(i + 1) * line));
            let mut row = Row {
                window: self.window,
                finish: self.finish,
                x: self.x,
                residual,
                weights: self.weights,
                y,
                number: self.rows.start + i,
            };
            for_each_tile(s, width, &mut row);
        }
    }
}

/// One row of the output.
struct Row<'a> {
    window: &'a Window,
    finish: Finish,
    x: &'a [f32],
    residual: Option<Residual<'a>>,
    weights: &'a [f32],
    y: &'a mut [f32],
    number: usize,
}

impl<S: Simd> TileBody<S> for Row<'_> {
    const PIXELS: usize = MR;

    #[inline(always)]
    fn tile<const M: usize>(&mut self, s: S, first: usize) {
        let win = self.window;
        let sums = match (win.kernel[1], win.stride[1]) {
            (3, 1) if self.suits::<M>(first) => self.sums_of::<S, M, 3, 1>(s, first),
            (3, 2) if self.suits::<M>(first) => self.sums_of::<S, M, 3, 2>(s, first),
            (5, 1) if self.suits::<M>(first) => self.sums_of::<S, M, 5, 1>(s, first),
            (5, 2) if self.suits::<M>(first) => self.sums_of::<S, M, 5, 2>(s, first),
            (7, 1) if self.suits::<M>(first) => self.sums_of::<S, M, 7, 1>(s, first),
            _ => self.sums(s, first),
        };
        let range = first * S::LANES..(first + M) * S::LANES;
        let residual = self.residual.map(|r| r.part(range.clone()));
        self.finish.store::<S, M, false>(s, sums, residual, &mut self.y[range]);
    }
}

impl Row<'_> {
    /// Whether [`Row::sums_of`] computes the M pixels from `first` on: no dilation, and no padding but under
    /// the first and the last half of the columns of a window.
    #[inline(always)]
    fn suits<const M: usize>(&self, first: usize) -> bool {
        let win = self.window;
        let [_, kernel] = win.kernel;
        let start = first * win.stride[1] + kernel / 2;
        let end = (first + M - 1) * win.stride[1] + kernel.div_ceil(2);
        win.dilation[1] == 1 && start >= win.pad[1] && end <= win.input[1] + win.pad[1]
    }

    /// The sums of M pixels, for a window of `K` columns. Only where [`Row::suits`].
    #[inline(always)]
    fn sums_of<S: Simd, const M: usize, const K: usize, const STRIDE: usize>(
        &self,
        s: S,
        first: usize,
    ) -> [S::F32; M] {
        let b = S::LANES;
        let win = self.window;
        let width = win.input[1];
        // The input column under the first tap of the first pixel; below zero, it wraps and is no column.
        let start = (first * STRIDE).wrapping_sub(win.pad[1]);
        let last = (M - 1) * STRIDE + K - 1;
        let bias = s.load(&self.weights[win.taps() * b..]);
        let mut sums = array!(M, |J| bias);
        for ky in 0..win.kernel[0] {
            let Some(row) = win.position(0, self.number, ky) else { continue };
            let row = self.x[row * width * b..][..width * b].as_ptr();
            let weights = &self.weights[ky * K * b..][..K * b];
            // Only these columns may be padding.
            let (mut left, mut right) = ([ZEROS.as_ptr(); K], [ZEROS.as_ptr(); K]);
            for i in 0..K / 2 {
                for (number, edge) in [(i, &mut left[i]), (last - i, &mut right[i])] {
                    let column = start.wrapping_add(number);
                    if column < width {
                        *edge = row.wrapping_add(column * b);
                    }
                }
            }
            let row = row.wrapping_add(start.wrapping_mul(b));
            unroll!(K, |KX| {
                let w = s.load(&weights[KX * b..]);
                unroll!(M, |J| {
                    let column = J * STRIDE + KX;
                    let at = if column < K / 2 {
                        left[column]
                    } else if last - column < K / 2 {
                        right[last - column]
                    } else {
                        row.wrapping_add(column * b)
                    };
                    // SAFETY: a column of the row (asked above, or by `suits`), or ZEROS.
                    sums[J] = s.fma(unsafe { s.load_ptr(at) }, w, sums[J]);
                });
            });
        }
        sums
    }

    /// The sums of M pixels, for any window.
    #[inline(always)]
    fn sums<S: Simd, const M: usize>(&self, s: S, first: usize) -> [S::F32; M] {
        let b = S::LANES;
        let win = self.window;
        let [_, width] = win.input;
        let [_, stride] = win.stride;
        let line = win.kernel[1] * b;
        let mut sums = [s.load(&self.weights[win.taps() * b..]); M];
        for ky in 0..win.kernel[0] {
            let Some(row) = win.position(0, self.number, ky) else { continue };
            let row = &self.x[row * width * b..][..width * b];
            let weights = &self.weights[ky * line..][..line];
            for (kx, w) in weights.chunks_exact(b).enumerate() {
                let w = s.load(w);
                let start = (first * stride + kx * win.dilation[1]).wrapping_sub(win.pad[1]);
                for (j, sum) in sums.iter_mut().enumerate() {
                    let column = start.wrapping_add(j * stride);
                    if column < width {
                        *sum = s.fma(s.load(&row[column * b..]), w, *sum);
                    }
                }
            }
        }
        sums
    }
}

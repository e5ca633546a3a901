//! Depthwise convolution on channel blocks.
//!
//! ```text
//! y[n, c, p] = act(bias[c] + residual[n, c, p] + sum over taps t of x[n, c, at(p, t)] w[c, t])
//! ```
//! A channel is a lane: a tap is one vector of weights, times one vector of input for each of MR pixels. As
//! in the direct convolution, a table says where each pixel's taps lie.
//!
//! Loops: image and channel block (a task) / tile of MR pixels / tap.

use super::window::{OUTSIDE, Window};
use crate::Par;
use crate::activation::Activation;
use crate::par::SharedMut;
use crate::simd::{Isa, Simd, Vectorized};
use plutino_tensor::{AlignedBuf, Floats, TensorError};

/// Pixels of a tile.
const MR: usize = 8;

/// Output pixels for which a task makes a table at a time.
const RUN: usize = 64 * MR;

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
        let mut data = AlignedBuf::zeroed(blocks * (taps + 1) * block * 4)?;
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
    activation: Option<Activation>,
}

impl DepthwiseConv {
    /// Binds the geometry.
    pub fn new(isa: Isa, window: Window, activation: Option<Activation>) -> Self {
        Self { isa, window, activation }
    }

    /// Numbers of scratch memory that a run on `threads` threads needs: one table of offsets for each.
    pub fn scratch(&self, threads: usize) -> usize {
        threads * self.table_len()
    }

    fn table_len(&self) -> usize {
        RUN.min(self.window.pixels()) * self.window.taps()
    }

    /// Computes all images; `x`, `y` and `residual` are blocked.
    ///
    /// Panics where a slice is too short: plans check lengths before.
    pub fn run(
        &self,
        x: &[f32],
        weights: &DepthwiseWeights,
        residual: Option<&[f32]>,
        y: &mut [f32],
        scratch: &mut [isize],
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
        assert!(residual.is_none_or(|r| r.len() == y.len()), "length of a residual");
        let table_len = self.table_len();
        assert!(scratch.len() >= self.scratch(par.threads()), "scratch memory of a convolution");
        let tables = SharedMut::new(scratch);
        let packed: &[f32] = bytemuck::cast_slice(weights.data.as_bytes());
        let panel = (weights.taps + 1) * b;
        let y = SharedMut::new(y);
        // Few channels: cut the planes, too.
        let pixels = self.window.pixels();
        let runs = pixels.div_ceil(RUN);
        par.run_as(planes * runs, |worker, task| {
            let (plane, run) = (task / runs, task % runs);
            let (start, end) = (run * RUN, ((run + 1) * RUN).min(pixels));
            // SAFETY: no two tasks run under the same worker number at the same time.
            let table = unsafe { tables.slice(worker * table_len..(worker + 1) * table_len) };
            let at = plane * out_plane;
            self.isa.run(Task {
                window: &self.window,
                activation: self.activation,
                x: &x[plane * in_plane..(plane + 1) * in_plane],
                // SAFETY: tasks write different pixels of different planes.
                y: unsafe { y.slice(at + start * b..at + end * b) },
                residual: residual.map(|r| &r[at + start * b..at + end * b]),
                weights: &packed[plane % weights.blocks * panel..][..panel],
                pixels: start..end,
                table,
            });
        });
    }
}

/// Some pixels of one plane.
struct Task<'a> {
    window: &'a Window,
    activation: Option<Activation>,
    x: &'a [f32],
    y: &'a mut [f32],
    residual: Option<&'a [f32]>,
    weights: &'a [f32],
    pixels: std::ops::Range<usize>,
    table: &'a mut [isize],
}

impl Vectorized for Task<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let n = self.pixels.len();
        self.window.offsets(self.pixels.clone(), S::LANES, self.table);
        let mut p = 0;
        while p < n {
            match n - p {
                MR.. => p += tile::<S, MR>(s, &mut self, p, n),
                4.. => p += tile::<S, 4>(s, &mut self, p, n),
                _ => p += tile::<S, 1>(s, &mut self, p, n),
            }
        }
        if let Some(activation) = self.activation {
            for v in self.y.chunks_exact_mut(S::LANES) {
                s.store(activation.apply(s, s.load(v)), v);
            }
        }
    }
}

/// Computes M pixels from the task's pixel `p` on; returns M.
#[inline(always)]
fn tile<S: Simd, const M: usize>(s: S, task: &mut Task<'_>, p: usize, n: usize) -> usize {
    let b = S::LANES;
    let taps = task.window.taps();
    let mut acc = [s.load(&task.weights[taps * b..]); M];
    for t in 0..taps {
        let w = s.load(&task.weights[t * b..]);
        let row = &task.table[t * n + p..][..M];
        for j in 0..M {
            if row[j] != OUTSIDE {
                // SAFETY: the table holds positions of vectors inside the plane (Window).
                let x = unsafe { s.load_ptr(task.x.as_ptr().offset(row[j])) };
                acc[j] = s.fma(x, w, acc[j]);
            }
        }
    }
    for (j, acc) in acc.into_iter().enumerate() {
        let at = (p + j) * b;
        let v = match task.residual {
            Some(r) => s.add(acc, s.load(&r[at..])),
            None => acc,
        };
        s.store(v, &mut task.y[at..]);
    }
    M
}

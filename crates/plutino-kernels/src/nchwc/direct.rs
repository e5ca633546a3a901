//! Direct convolution on channel blocks.
//!
//! ```text
//! y[n, o, p] = act(bias[o] + residual[n, o, p] + sum over taps t, channels c of x[n, c, at(p, t)] w[o, c, t])
//! ```
//! The register tile is MR output pixels by NB blocks of output channels. For each tap and input channel it
//! loads NB vectors of weights and broadcasts MR numbers of the input, one for each pixel:
//!
//! ```text
//!              w[o0..o0+b]  w[o0+b..o0+2b]      AVX2: 6 x 2 tile = 12 accumulators of 16 registers
//!  x[p0] ->      acc00          acc01           AVX-512: 12 x 2 tile = 24 of 32
//!  x[p1] ->      acc10          acc11
//!   ...
//! ```
//! Where each pixel's taps lie is looked up in a table of offsets (XNNPACK calls it indirection), made once
//! for each block of pixels: stride, dilation, padding and borders cost nothing in the loop, and a tile may
//! run across the end of an image row.
//!
//! Loops, outermost first: image and block of pixels (a task; its input stays in the second-level cache) /
//! pair of output channel blocks (its weights stay in the first level) / tile / input channel block / tap /
//! channel. The sum over taps and channels runs in one fixed order: the result does not depend on tasks.

use super::window::{OUTSIDE, Window};
use crate::Par;
use crate::activation::Activation;
use crate::par::SharedMut;
use crate::simd::{Isa, Simd, Vectorized};
use plutino_tensor::{AlignedBuf, TensorError};

/// Bytes of input that a task works through: half of a 512 KiB second-level cache.
const TASK_INPUT: usize = 256 << 10;

/// How the input of a convolution lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConvInput {
    /// In channel blocks.
    Blocked,
    /// Plain NCHW, for the first layer with its few channels.
    Plain,
}

/// Output channel blocks that are computed together.
const NB: usize = 2;

/// Weights in the order in which the kernel reads them:
/// `[group][pair of output blocks][input block][tap][input channel of the block][2 b output channels]`.
#[derive(Debug)]
pub struct DirectWeights {
    data: AlignedBuf,
    /// Output channels and input channels of a group.
    channels: [usize; 2],
    groups: usize,
    taps: usize,
    block: usize,
    input: ConvInput,
}

impl DirectWeights {
    /// Packs `weight`, `(groups * out, in, taps)` row-major, for vectors of `block` f32. A convolution with
    /// groups needs `in` and `out` (channels of one group) to be multiples of `block`.
    ///
    /// # Errors
    /// Where the sizes do not fit each other, or no memory is left.
    pub fn pack(
        weight: &[f32],
        groups: usize,
        [out, inp]: [usize; 2],
        taps: usize,
        block: usize,
        input: ConvInput,
    ) -> Result<Self, TensorError> {
        let whole = groups == 1 || (out.is_multiple_of(block) && inp.is_multiple_of(block));
        let expected = [groups, out, inp, taps].iter().try_fold(1usize, |a, &b| a.checked_mul(b));
        if !whole || expected != Some(weight.len()) || weight.is_empty() || block == 0 {
            return Err(TensorError::invalid(
                "weights of a blocked convolution do not fit its channels",
            ));
        }
        let width = NB * block;
        let pairs = out.div_ceil(width);
        let len = (groups * pairs).checked_mul(inp * taps * width * 4);
        let len = len.ok_or_else(|| TensorError::invalid("weights exceed memory"))?;
        let mut data = AlignedBuf::zeroed(len)?;
        let packed: &mut [f32] = bytemuck::cast_slice_mut(data.as_mut_bytes());
        // Plain input has one "block" of all its channels.
        let in_block = if input == ConvInput::Plain { inp } else { block };
        for (gp, panel) in packed.chunks_exact_mut(inp * taps * width).enumerate() {
            let (g, first) = (gp / pairs, gp % pairs * width);
            let mut lines = panel.chunks_exact_mut(width);
            for c0 in (0..inp).step_by(in_block) {
                for tap in 0..taps {
                    for c in c0..(c0 + in_block).min(inp) {
                        let Some(line) = lines.next() else { continue };
                        for (o, slot) in (first..out).zip(line) {
                            *slot = weight[((g * out + o) * inp + c) * taps + tap];
                        }
                    }
                }
            }
        }
        Ok(Self { data, channels: [out, inp], groups, taps, block, input })
    }

    fn as_slice(&self) -> &[f32] {
        bytemuck::cast_slice(self.data.as_bytes())
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }
}

/// A convolution bound to its geometry: everything is decided.
#[derive(Debug)]
pub struct DirectConv {
    isa: Isa,
    window: Window,
    activation: Option<Activation>,
    /// Output pixels of a task.
    task_pixels: usize,
    /// Pairs of output blocks of a task.
    task_pairs: usize,
}

/// The tensors of one run.
struct Operands<'a> {
    y: SharedMut<'a, f32>,
    weights: &'a DirectWeights,
    /// One number for each output channel, padded to whole pairs of blocks.
    bias: &'a [f32],
    residual: Option<&'a [f32]>,
}

impl DirectConv {
    /// Binds the geometry; `channels` are all input channels, `threads` shapes the tasks (not the result).
    pub fn new(
        isa: Isa,
        window: Window,
        channels: usize,
        out_channels: usize,
        batch: usize,
        activation: Option<Activation>,
        threads: usize,
    ) -> Self {
        let pixels = window.pixels();
        let per_pixel = channels * 4 * window.stride[0] * window.stride[1];
        // At least 8 tiles a task, so that weights are reused; a multiple of the tile.
        let mr = tile_pixels(isa);
        let fitting = (TASK_INPUT / per_pixel.max(1)).clamp(8 * mr, 1024) / mr * mr;
        let blocks = pixels.div_ceil(fitting).max(1);
        let task_pixels = pixels.div_ceil(blocks).next_multiple_of(mr);
        let pairs = out_channels.div_ceil(NB * isa.lanes());
        // Few blocks of pixels: cut the output channels, too.
        let tasks = batch.max(1) * pixels.div_ceil(task_pixels);
        let wanted = if threads == 1 { 1 } else { (4 * threads).div_ceil(tasks) };
        let task_pairs = pairs.div_ceil(wanted).max(1);
        Self { isa, window, activation, task_pixels, task_pairs }
    }

    /// Numbers of scratch memory that a run on `threads` threads needs: one table of offsets for each.
    pub fn scratch(&self, threads: usize) -> usize {
        threads * self.table_len()
    }

    fn table_len(&self) -> usize {
        self.task_pixels * self.window.taps()
    }

    /// Computes all images. `x` is blocked or plain as the weights were packed for, `y` and `residual` are
    /// blocked; `bias` is padded with zeros to whole pairs of output blocks (see [`DirectConv::pad_bias`]).
    ///
    /// Panics where a slice is too short: plans check lengths before.
    pub fn run(
        &self,
        x: &[f32],
        weights: &DirectWeights,
        bias: &[f32],
        residual: Option<&[f32]>,
        y: &mut [f32],
        scratch: &mut [isize],
        par: &Par,
    ) {
        let block = self.isa.lanes();
        let [out, inp] = weights.channels;
        let (pixels, groups) = (self.window.pixels(), weights.groups);
        let image = (groups * out).div_ceil(block) * block * pixels;
        let in_image = match weights.input {
            ConvInput::Blocked => {
                (groups * inp).div_ceil(block) * block * self.window.input_pixels()
            }
            ConvInput::Plain => inp * self.window.input_pixels(),
        };
        let batch = y.len() / image;
        let pairs = out.div_ceil(NB * block);
        assert_eq!(weights.block, block, "weights are packed for another instruction set");
        assert_eq!(weights.taps, self.window.taps(), "weights are packed for another window");
        assert!(
            y.len() == batch * image && x.len() == batch * in_image,
            "lengths of a convolution"
        );
        assert!(bias.len() >= groups * pairs * NB * block, "bias is not padded");
        assert!(residual.is_none_or(|r| r.len() == y.len()), "length of a residual");
        let table_len = self.table_len();
        assert!(scratch.len() >= self.scratch(par.threads()), "scratch memory of a convolution");
        let tables = SharedMut::new(scratch);

        let pixel_tasks = pixels.div_ceil(self.task_pixels);
        let pair_tasks = pairs.div_ceil(self.task_pairs);
        let operands = Operands { y: SharedMut::new(y), weights, bias, residual };
        par.run_as(batch * groups * pair_tasks * pixel_tasks, |worker, task| {
            let (rest, pixel_task) = (task / pixel_tasks, task % pixel_tasks);
            let (rest, pair_task) = (rest / pair_tasks, rest % pair_tasks);
            let (n, group) = (rest / groups, rest % groups);
            let start = pixel_task * self.task_pixels;
            let first = pair_task * self.task_pairs;
            // SAFETY: no two tasks run under the same worker number at the same time.
            let table = unsafe { tables.slice(worker * table_len..(worker + 1) * table_len) };
            self.isa.run(Task {
                conv: self,
                operands: &operands,
                x: &x[n * in_image..(n + 1) * in_image],
                y_start: n * image,
                group,
                pixels: start..(start + self.task_pixels).min(pixels),
                pairs: first..(first + self.task_pairs).min(pairs),
                table,
            });
        });
    }

    /// A bias for [`DirectConv::run`]: zeros where there is none, padded to whole pairs of output blocks.
    pub fn pad_bias(bias: Option<&[f32]>, groups: usize, out: usize, block: usize) -> Vec<f32> {
        // With several groups, `out` is a multiple of the block but maybe not of the pair: pad each group.
        let padded = out.next_multiple_of(NB * block);
        let mut all = vec![0.0; groups * padded];
        if let Some(bias) = bias {
            for (to, from) in all.chunks_exact_mut(padded).zip(bias.chunks(out)) {
                to[..from.len()].copy_from_slice(from);
            }
        }
        all
    }
}

/// Output pixels of the register tile.
fn tile_pixels(isa: Isa) -> usize {
    struct Registers;
    impl Vectorized for Registers {
        type Output = usize;
        #[inline(always)]
        fn run<S: Simd>(self, _: S) -> usize {
            mr::<S>()
        }
    }
    isa.run(Registers)
}

const fn mr<S: Simd>() -> usize {
    if S::REGISTERS >= 32 { 12 } else { 6 }
}

/// One block of pixels of one image, for some pairs of output blocks.
struct Task<'a> {
    conv: &'a DirectConv,
    operands: &'a Operands<'a>,
    x: &'a [f32],
    y_start: usize,
    group: usize,
    pixels: std::ops::Range<usize>,
    pairs: std::ops::Range<usize>,
    table: &'a mut [isize],
}

/// What the tile loops over, the same for all tiles of a task.
struct Tap<'a> {
    x: *const f32,
    /// Offsets of the task's pixels under each tap.
    table: &'a [isize],
    task_pixels: usize,
    taps: usize,
    /// Input channels.
    channels: usize,
    /// From one block of input channels (plain: from one channel) to the next.
    step: usize,
}

impl Vectorized for Task<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (conv, ops, weights) = (self.conv, self.operands, self.operands.weights);
        let b = S::LANES;
        let [out, inp] = weights.channels;
        let n = self.pixels.len();
        let plain = weights.input == ConvInput::Plain;
        let table = &mut self.table[..n * weights.taps];
        conv.window.offsets(self.pixels.clone(), if plain { 1 } else { b }, table);
        let plane = conv.window.input_pixels();
        let first = if plain { 0 } else { self.group * (inp / b) * plane * b };
        let tap = Tap {
            x: self.x[first..].as_ptr(),
            table,
            task_pixels: n,
            taps: weights.taps,
            channels: inp,
            step: if plain { plane } else { plane * b },
        };
        let pixels = conv.window.pixels();
        let pairs = out.div_ceil(NB * b);
        let panel = inp * weights.taps * NB * b;
        for pair in self.pairs.clone() {
            let index = self.group * pairs + pair;
            let w = &weights.as_slice()[index * panel..(index + 1) * panel];
            let bias = &ops.bias[index * NB * b..(index + 1) * NB * b];
            let blocks = NB.min((out - pair * NB * b).div_ceil(b));
            let first_block = self.group * (out / b) + pair * NB;
            // Where this pair's pixels lie in y, one start for each block.
            let starts: [usize; NB] = std::array::from_fn(|k| {
                let k = k.min(blocks - 1);
                self.y_start + ((first_block + k) * pixels + self.pixels.start) * b
            });
            let tiles = n.div_ceil(mr::<S>());
            for t in 0..tiles {
                // Balanced: no tile is much smaller than the others.
                let (p0, p1) = (t * n / tiles, (t + 1) * n / tiles);
                let at = TileAt { p0, starts, blocks };
                macro_rules! tiles {
                    ($($m:literal)*) => {
                        match p1 - p0 {
                            $($m if $m <= mr::<S>() => {
                                if plain {
                                    tile::<S, $m, true>(s, &tap, w, bias, ops, &at);
                                } else {
                                    tile::<S, $m, false>(s, &tap, w, bias, ops, &at);
                                }
                            })*
                            _ => {}
                        }
                    };
                }
                tiles!(1 2 3 4 5 6 7 8 9 10 11 12);
            }
            if let Some(activation) = conv.activation {
                for &start in &starts[..blocks] {
                    // SAFETY: this task alone writes these pixels of these blocks.
                    let part = unsafe { ops.y.slice(start..start + n * b) };
                    for v in part.chunks_exact_mut(b) {
                        s.store(activation.apply(s, s.load(v)), v);
                    }
                }
            }
        }
    }
}

/// Where a tile writes.
struct TileAt {
    /// Its first pixel in the task.
    p0: usize,
    /// Where the task's first pixel lies in y, for each block.
    starts: [usize; NB],
    /// Blocks to store: 1 for an odd last one.
    blocks: usize,
}

/// A broadcast of this stands for taps in the padding.
static ZEROS: [f32; 16] = [0.0; 16];

#[inline(always)]
fn tile<S: Simd, const MR: usize, const PLAIN: bool>(
    s: S,
    tap: &Tap<'_>,
    weights: &[f32],
    bias: &[f32],
    ops: &Operands<'_>,
    at: &TileAt,
) {
    let b = S::LANES;
    let bias: [S::F32; NB] = std::array::from_fn(|k| s.load(&bias[k * b..]));
    let mut acc = [bias; MR];
    let mut w = weights.as_ptr();
    // Broadcasts the input and multiplies into every accumulator, for one channel.
    macro_rules! channel {
        (|$j:ident| $x:expr) => {{
            // SAFETY: the weights hold NB vectors for every channel and tap: `pack` made them so.
            let wk: [S::F32; NB] = [unsafe { s.load_ptr(w) }, unsafe { s.load_ptr(w.add(b)) }];
            for $j in 0..MR {
                // SAFETY: a pixel inside the plane, or ZEROS: see the loops below.
                let x = s.splat(unsafe { *$x });
                for k in 0..NB {
                    acc[$j][k] = s.fma(x, wk[k], acc[$j][k]);
                }
            }
            // SAFETY: at most one past the end of the weights.
            w = unsafe { w.add(NB * b) };
        }};
    }
    let in_block = if PLAIN { tap.channels } else { b };
    let mut c0 = 0;
    let mut plane = tap.x;
    while c0 < tap.channels {
        let width = in_block.min(tap.channels - c0);
        for t in 0..tap.taps {
            let row = &tap.table[t * tap.task_pixels + at.p0..][..MR];
            let mut ptrs = [ZEROS.as_ptr(); MR];
            let mut steps = [0usize; MR];
            for j in 0..MR {
                if row[j] != OUTSIDE {
                    // SAFETY: the table holds positions inside the plane (Window), in elements.
                    ptrs[j] = unsafe { plane.offset(row[j]) };
                    steps[j] = tap.step;
                }
            }
            if PLAIN {
                for _ in 0..width {
                    channel!(|j| ptrs[j]);
                    for j in 0..MR {
                        ptrs[j] = ptrs[j].wrapping_add(steps[j]);
                    }
                }
            } else if width == b {
                for c in 0..S::LANES {
                    // c is below the block: the pixel's vector (or ZEROS) has that many lanes.
                    channel!(|j| ptrs[j].add(c));
                }
            } else {
                for c in 0..width {
                    channel!(|j| ptrs[j].add(c));
                }
            }
        }
        c0 += in_block;
        plane = plane.wrapping_add(tap.step);
    }
    for (k, &start) in at.starts.iter().enumerate().take(at.blocks) {
        let start = start + at.p0 * b;
        // SAFETY: this task alone writes these pixels of these blocks.
        let y = unsafe { ops.y.slice(start..start + MR * b) };
        for (j, acc) in acc.iter().enumerate() {
            let mut v = acc[k];
            if let Some(residual) = ops.residual {
                v = s.add(v, s.load(&residual[start + j * b..]));
            }
            s.store(v, &mut y[j * b..]);
        }
    }
}

const _: () = assert!(NB == 2); // `channel!` loads two vectors

//! Direct convolution on channel blocks.
//!
//! ```text
//! y[n, o, p] = act(bias[o] + residual[n, o, p] + sum over taps t, channels c of x[n, c, at(p, t)] w[o, c, t])
//! ```
//! Each register tile (see `tile.rs`) looks up where the taps of its pixels lie in a table of offsets, made
//! once for each block of pixels.
//!
//! Loops, outermost first: image and block of pixels (a task; its input stays in the second-level cache) /
//! pair of output channel blocks (its weights stay in the first level) / tile / input channel block / tap /
//! channel. The sum over taps and channels runs in one fixed order: the result does not depend on tasks.

use super::finish::{Finish, Residual};
use super::image::PaddedImage;
use super::tile::{
    LINE, MAX_PIXELS_OF_ONE, NB, Position, Taps, Tile, TileBody, for_each_tile, lines_ahead, tile,
    tile_pixels,
};
use super::window::Window;
use crate::Par;
use crate::activation::Activation;
use crate::par::SharedMut;
use crate::simd::{Isa, Simd, Vectorized};
use plutino_tensor::{AlignedBuf, Floats, TensorError};
use std::ops::Range;

/// Bytes of input that a task works through: half of a 512 KiB second-level cache.
const TASK_INPUT: usize = 256 << 10;

/// Bytes above which a task copies less of an image than whole rows.
const LONGEST_COPY: usize = 2 << 20;

/// How the input of a convolution lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConvInput {
    /// In channel blocks.
    Blocked,
    /// Plain NCHW, for the first layer with its few channels: at most [`FEW`]. Interleaved before use.
    Plain,
}

/// Copies lie in the same scratch memory as tables.
const F32_OF_ISIZE: usize = size_of::<isize>() / size_of::<f32>();

/// Lines of weights that are packed together: sixteen values of a row are a line of cache.
const LINES: usize = 16;

/// Channels up to which plain input is read: they become blocks of this many.
pub const FEW: usize = 4;

impl ConvInput {
    /// Channels of a block of the input as the kernel sees it.
    fn block(self, block: usize) -> usize {
        if self == Self::Plain { FEW } else { block }
    }
}

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
    pub fn pack<'w>(
        weight: impl Into<Floats<'w>>,
        groups: usize,
        [out, inp]: [usize; 2],
        taps: usize,
        block: usize,
        input: ConvInput,
    ) -> Result<Self, TensorError> {
        let weight = weight.into();
        let whole = groups == 1 || (out.is_multiple_of(block) && inp.is_multiple_of(block));
        let readable = input == ConvInput::Blocked || (groups == 1 && inp <= FEW);
        let expected = [groups, out, inp, taps].iter().try_fold(1usize, |a, &b| a.checked_mul(b));
        if !whole || !readable || expected != Some(weight.len()) || weight.is_empty() || block == 0
        {
            return Err(TensorError::invalid(
                "weights of a blocked convolution do not fit its channels",
            ));
        }
        let width = NB * block;
        let pairs = out.div_ceil(width);
        let len = (groups * pairs).checked_mul(inp * taps * width * 4);
        let len = len.ok_or_else(|| TensorError::invalid("weights exceed memory"))?;
        let mut data = AlignedBuf::resident(len)?;
        let packed: &mut [f32] = bytemuck::cast_slice_mut(data.as_mut_bytes());
        let in_block = input.block(block);
        let depth = inp * taps;
        for (gp, panel) in packed.chunks_exact_mut(depth * width).enumerate() {
            let (g, first) = (gp / pairs, gp % pairs * width);
            let rows = weight.part((g * out + first) * depth..(g * out + out) * depth);
            // Some lines at a time, so that they stay in the first-level cache while a row after the other fills them.
            for k0 in (0..depth).step_by(LINES) {
                let lines: [usize; LINES] = std::array::from_fn(|k| {
                    let (c, tap) = ((k0 + k).min(depth - 1) / taps, (k0 + k) % taps);
                    let (c0, of_block) = (c - c % in_block, in_block.min(inp - (c - c % in_block)));
                    (c0 * taps + tap * of_block + c - c0) * width
                });
                let lines = &lines[..LINES.min(depth - k0)];
                for (o, row) in rows.chunks_exact(depth).take(width).enumerate() {
                    let row = row.part(k0..k0 + lines.len());
                    for (k, line) in lines.iter().enumerate() {
                        panel[line + o] = row.get(k);
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
    finish: Finish,
    /// Output pixels of a task.
    task_pixels: usize,
    /// Pairs of output blocks of a task.
    task_pairs: usize,
    reads: Reads,
}

/// What tasks read.
#[derive(Debug)]
enum Reads {
    /// The input, in blocks.
    Input,
    /// A copy of an image, which all threads make together: images one after the other.
    Whole(PaddedImage),
    /// A copy of its own, of the part of an image that it needs.
    Part(PaddedImage),
}

impl Reads {
    /// The window on what is read.
    fn window<'a>(&'a self, input: &'a Window) -> &'a Window {
        match self {
            Self::Input => input,
            Self::Whole(image) | Self::Part(image) => &image.window,
        }
    }
}

/// The tensors of one run.
struct Operands<'a> {
    y: SharedMut<'a, f32>,
    weights: &'a DirectWeights,
    /// One number for each output channel, padded to whole pairs of blocks.
    bias: &'a [f32],
    residual: Option<Residual<'a>>,
}

impl DirectConv {
    /// Binds the geometry; `channels` are all input channels, `threads` shapes the tasks (not the result).
    pub fn new(
        isa: Isa,
        window: Window,
        input: ConvInput,
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
        let wanted = if threads == 1 { 1 } else { 4 * threads };
        let pairs = out_channels.div_ceil(NB * isa.lanes());
        let blocks = pixels.div_ceil(fitting).max(1);
        let mut task_pixels = pixels.div_ceil(blocks).next_multiple_of(mr);
        let mut tasks = batch.max(1) * pixels.div_ceil(task_pixels);
        let mut reads = Reads::Input;
        if input == ConvInput::Plain {
            let part = PaddedImage::new(&window, fitting, LONGEST_COPY);
            // A part is not to be copied for each of several tasks.
            if part.parts() > 1 && batch * part.parts() >= wanted {
                (task_pixels, tasks) = (part.window.pixels(), batch * part.parts());
                reads = Reads::Part(part);
            } else {
                tasks = pixels.div_ceil(task_pixels);
                reads = Reads::Whole(PaddedImage::whole(&window));
            }
        }
        // Few blocks of pixels: cut the output channels, too.
        let task_pairs = pairs.div_ceil(wanted.div_ceil(tasks)).max(1);
        let finish = Finish::new(activation);
        Self { isa, window, finish, task_pixels, task_pairs, reads }
    }

    /// Numbers of scratch memory that a run on `threads` threads needs: for each a table of offsets, and copies of
    /// plain input.
    pub fn scratch(&self, threads: usize) -> usize {
        let copy = match &self.reads {
            Reads::Whole(image) => image.len().div_ceil(F32_OF_ISIZE),
            Reads::Input | Reads::Part(_) => 0,
        };
        threads * self.worker_len() + copy
    }

    /// Scratch memory of a thread, in whole lines of cache.
    fn worker_len(&self) -> usize {
        let copy = match &self.reads {
            Reads::Part(image) => image.len().div_ceil(F32_OF_ISIZE),
            Reads::Input | Reads::Whole(_) => 0,
        };
        (self.table_len() + copy).next_multiple_of(LINE / size_of::<isize>())
    }

    fn table_len(&self) -> usize {
        let taps = self.window.taps();
        match self.reads {
            Reads::Whole(_) | Reads::Part(_) => self.task_pixels + taps,
            Reads::Input if self.window.is_pointwise() => 0,
            Reads::Input => self.task_pixels * taps,
        }
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
        residual: Option<Residual<'_>>,
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
        let plain = weights.input == ConvInput::Plain;
        let reads_plain = !matches!(self.reads, Reads::Input);
        assert_eq!(reads_plain, plain, "weights are packed for another layout");
        assert!(
            y.len() == batch * image && x.len() == batch * in_image,
            "lengths of a convolution"
        );
        assert!(bias.len() >= groups * pairs * NB * block, "bias is not padded");
        assert!(residual.is_none_or(|r| r.data.len() == y.len()), "length of a residual");
        assert!(scratch.len() >= self.scratch(par.threads()), "scratch memory of a convolution");
        let worker_len = self.worker_len();
        let (workers, rest) = scratch.split_at_mut(par.threads() * worker_len);
        let workers = SharedMut::new(workers);
        let pixel_tasks = match &self.reads {
            Reads::Part(image) => image.parts(),
            Reads::Input | Reads::Whole(_) => pixels.div_ceil(self.task_pixels),
        };
        let pair_tasks = pairs.div_ceil(self.task_pairs);
        let operands = Operands { y: SharedMut::new(y), weights, bias, residual };
        let image_tasks = groups * pair_tasks * pixel_tasks;
        // A task; `x` is the image or the copy of all of it.
        let run = |worker: usize, x: &[f32], task: usize| {
            let (rest, pixel_task) = (task / pixel_tasks, task % pixel_tasks);
            let (rest, pair_task) = (rest / pair_tasks, rest % pair_tasks);
            let (n, group) = (rest / groups, rest % groups);
            let first = pair_task * self.task_pairs;
            // SAFETY: no two tasks run under the same worker number at the same time.
            let own = unsafe { workers.slice(worker * worker_len..(worker + 1) * worker_len) };
            let (table, rest) = own.split_at_mut(self.table_len());
            let (x, range, first_read) = match &self.reads {
                Reads::Part(image) => {
                    let copy = bytemuck::cast_slice_mut(rest);
                    let range = image.copy_part(x, inp, pixel_task, copy);
                    (&*copy, range, 0)
                }
                Reads::Input | Reads::Whole(_) => {
                    let start = pixel_task * self.task_pixels;
                    (x, start..(start + self.task_pixels).min(pixels), start)
                }
            };
            self.isa.run(Task {
                conv: self,
                operands: &operands,
                x,
                y_start: n * image,
                group,
                pixels: range,
                first_read,
                pairs: first..(first + self.task_pairs).min(pairs),
                table,
            });
        };
        let image_of = |n: usize| &x[n * in_image..(n + 1) * in_image];
        if let Reads::Whole(image) = &self.reads {
            let copy: &mut [f32] = bytemuck::cast_slice_mut(rest);
            for n in 0..batch {
                image.copy_whole(image_of(n), inp, copy, par);
                let copy = &copy[..image.len()];
                par.run_as(image_tasks, |worker, t| run(worker, copy, n * image_tasks + t));
            }
        } else {
            par.run_as(batch * image_tasks, |worker, t| run(worker, image_of(t / image_tasks), t));
        }
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

/// One block of pixels of one image, for some pairs of output blocks.
struct Task<'a> {
    conv: &'a DirectConv,
    operands: &'a Operands<'a>,
    /// The image, or a copy as [`Reads`] says.
    x: &'a [f32],
    y_start: usize,
    group: usize,
    pixels: Range<usize>,
    /// The first of them on `x`: another one where that is a copy of a part.
    first_read: usize,
    pairs: Range<usize>,
    table: &'a mut [isize],
}

impl Vectorized for Task<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (conv, ops, weights) = (self.conv, self.operands, self.operands.weights);
        let b = S::LANES;
        let [out, inp] = weights.channels;
        let n = self.pixels.len();
        let in_block = weights.input.block(b);
        let window = conv.reads.window(&conv.window);
        let (position, len) = match conv.reads {
            Reads::Whole(_) | Reads::Part(_) => (Position::SUM, n + weights.taps),
            Reads::Input if window.is_pointwise() => (Position::DENSE, 0),
            Reads::Input => (Position::TABLE, n * weights.taps),
        };
        let table = &mut self.table[..len];
        let read = self.first_read..self.first_read + n;
        match position {
            Position::SUM => window.sums(read, in_block, table),
            Position::TABLE => window.offsets(read, in_block, table),
            _ => {}
        }
        let plane = window.input_pixels();
        let mut first = self.group * (inp / in_block) * plane * in_block;
        if position == Position::DENSE {
            first += self.pixels.start * b;
        }
        let panel = inp * weights.taps * NB * b;
        let taps = Taps {
            ahead: lines_ahead::<S>(weights.as_slice().len(), panel, n),
            x: self.x[first..].as_ptr(),
            table,
            pixels: n,
            taps: weights.taps,
            channels: inp,
            block: in_block,
            step: plane * in_block,
        };
        let pixels = conv.window.pixels();
        let pairs = out.div_ceil(NB * b);
        for pair in self.pairs.clone() {
            let index = self.group * pairs + pair;
            let blocks = NB.min((out - pair * NB * b).div_ceil(b));
            let first_block = self.group * (out / b) + pair * NB;
            let starts = std::array::from_fn(|k| {
                let block = first_block + k.min(blocks - 1);
                self.y_start + (block * pixels + self.pixels.start) * b
            });
            let mut body = Pair {
                ops,
                taps: &taps,
                weights: &weights.as_slice()[index * panel..(index + 1) * panel],
                bias: &ops.bias[index * NB * b..(index + 1) * NB * b],
                starts,
                blocks,
                finish: conv.finish,
                position,
            };
            // A single block has more pixels in a tile: so far for 1x1 layers only, where odd ones are common.
            if blocks == 1 && position == Position::DENSE {
                for_each_tile(s, n, &mut Single(body));
            } else {
                for_each_tile(s, n, &mut body);
            }
        }
    }
}

/// One pair of output blocks of a task.
struct Pair<'a> {
    ops: &'a Operands<'a>,
    taps: &'a Taps<'a>,
    weights: &'a [f32],
    bias: &'a [f32],
    /// Where the task's first pixel lies in y, for each block.
    starts: [usize; NB],
    /// Blocks to store: 1 for an odd last one.
    blocks: usize,
    finish: Finish,
    /// One of [`Position`].
    position: usize,
}

impl<S: Simd> TileBody<S> for Pair<'_> {
    #[inline(always)]
    fn tile<const MR: usize>(&mut self, s: S, first: usize) {
        // SAFETY: the table holds positions inside the input plane (Window), x all planes (`DirectConv::run`);
        // dense pixels are some of the plane's own.
        let [mut sums, second] = unsafe {
            match self.position {
                Position::SUM => self.sums::<S, MR, { Position::SUM }, NB>(s, first),
                Position::DENSE => self.sums::<S, MR, { Position::DENSE }, NB>(s, first),
                _ => self.sums::<S, MR, { Position::TABLE }, NB>(s, first),
            }
        };
        for k in 0..NB {
            if k >= self.blocks {
                break;
            }
            self.store(s, k, first, sums);
            sums = second; // not `acc[k]`: registers have no index
        }
    }

    #[inline(always)]
    fn run_length(&self) -> usize {
        self.finish.run_length()
    }

    #[inline(always)]
    fn complete(&mut self, s: S, pixels: Range<usize>) {
        for k in 0..self.blocks {
            let (residual, y) = self.results::<S>(k, pixels.clone());
            self.finish.complete(s, residual, y);
        }
    }
}

/// The single block of an odd last pair, where pixels are dense.
struct Single<'a>(Pair<'a>);

impl<S: Simd> TileBody<S> for Single<'_> {
    const PIXELS: usize = MAX_PIXELS_OF_ONE;

    #[inline(always)]
    fn tile<const MR: usize>(&mut self, s: S, first: usize) {
        // SAFETY: dense pixels are some of the input plane's own, x all planes (`DirectConv::run`).
        let [sums, _] = unsafe { self.0.sums::<S, MR, { Position::DENSE }, 1>(s, first) };
        self.0.store(s, 0, first, sums);
    }

    #[inline(always)]
    fn run_length(&self) -> usize {
        <Pair<'_> as TileBody<S>>::run_length(&self.0)
    }

    #[inline(always)]
    fn complete(&mut self, s: S, pixels: Range<usize>) {
        self.0.complete(s, pixels);
    }
}

impl Pair<'_> {
    /// # Safety
    /// As for [`tile`].
    #[inline(always)]
    unsafe fn sums<S: Simd, const MR: usize, const POSITION: usize, const BLOCKS: usize>(
        &self,
        s: S,
        first: usize,
    ) -> Tile<S, MR> {
        // SAFETY: the same.
        unsafe { tile::<S, MR, POSITION, BLOCKS>(s, self.taps, self.weights, self.bias, first) }
    }

    /// Finishes the sums of a tile of block `k`.
    #[inline(always)]
    fn store<S: Simd, const MR: usize>(&self, s: S, k: usize, first: usize, sums: [S::F32; MR]) {
        let (residual, y) = self.results::<S>(k, first..first + MR);
        self.finish.store::<S, MR, true>(s, sums, residual, y);
    }

    /// The residual and the result of pixels of block `k`.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // see below
    fn results<S: Simd>(
        &self,
        k: usize,
        pixels: Range<usize>,
    ) -> (Option<Residual<'_>>, &mut [f32]) {
        let start = self.starts[k];
        let range = start + pixels.start * S::LANES..start + pixels.end * S::LANES;
        let residual = self.ops.residual.map(|r| r.part(range.clone()));
        // SAFETY: this task alone writes these pixels of these blocks, and one slice of them lives at a time.
        (residual, unsafe { self.ops.y.slice(range) })
    }
}

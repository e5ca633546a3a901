//! Convolution on tiles: any window, stride and dilation, with groups of whole blocks, as products
//! of words of bf16 ([`plutino_cpu::tiles`]).
//!
//! ```text
//!   y[pixel, o] = act(bias[o] + residual + sum over k of  patch[pixel, k] w[k, o])
//!   k: taps, of each the channels, in blocks            cell = the channels of a block at a tap
//!
//!   image in blocks          rows of words, of one depth block     weights, packed once
//!   +--+--+--+--+            pixel 0: [step 0: term 0|1|2][step 1: ..]   panel of 32 channels:
//!   |  |xx|xx|  |  gather    pixel 1: [ ..                               [step][term][16 x 32]
//!   |  |xx|xx|  | -------->    ...             32 x 32 pixels and channels: a block, four tiles
//!   +--+--+--+--+            a task's pixels: 512 KiB at most
//! ```
//! A step is 32 numbers: two cells of 16 channels, four of 8. No matrix of patches is ever whole: a
//! task gathers its pixels for one depth block (16 steps), where words stay in the second-level
//! cache while all panels of weights pass by. Loops, outermost first: image, group, part of the
//! pixels (a task) / depth block / panel of 32 output channels / 32 pixels. What the blocks of
//! depth make is added up in y; bias, residual and activation come with the last of them. So no
//! chain of products is longer than 96, and the error is below that of f32's chains of
//! multiply-adds (docs/decisions/012-rounding.md).
//!
//! For: everything in two dimensions where a CPU has tiles, and the estimate is below those of
//! vectors, Winograd's among them. Plain images of few channels are gathered number by number.
//! Figures: docs/decisions/014-reduced-precision.md.

use super::direct::has_whole_groups;
use super::finish::Finish;
use super::first_layer;
use super::tiled::pad_bias;
use super::window::{OUTSIDE, Window};
use crate::algorithm::{Bound, Operands, take};
use crate::choose::Request;
use crate::cost;
use crate::post_ops::Residual;
use crate::problem::{ConvError, ConvProblem};
use plutino_cpu::par::{SharedMut, stop};
use plutino_cpu::simd::{LINE, Simd, Vectorized};
use plutino_cpu::tiles::{self, BLOCK, Block, DEPTH_BLOCK, STEP, Terms, TileUnit};
use plutino_cpu::{Isa, PackKey, Par};
use plutino_products::gemm::MatrixUnit;
use plutino_tensor::{AlignedBuf, DType, Floats, TensorError};
use std::borrow::Cow;
use std::ops::Range;

/// Bytes of words of a task, for one depth block: a quarter of the second-level cache of CPUs with
/// tiles. The weights of a depth block pass by once for each task.
const TASK_WORDS: usize = 512 << 10;

/// Pixels of a task at most: tables of offsets grow with them.
const MOST_PIXELS: usize = 512;

/// Numbers of a step.
const NUMBERS: usize = 2 * STEP;

/// Cycles to gather a number as words where it is one by one.
const GATHER_PLAIN: f64 = 2.5;

/// Bound to a problem.
#[derive(Debug)]
pub(crate) struct OnTiles {
    problem: ConvProblem,
    window: Window,
    isa: Isa,
    unit: TileUnit,
    terms: Terms,
    finish: Finish,
    depth: Depth,
    /// Whether channels are planes.
    plain: bool,
    threads: usize,
    /// Pixels of a task; tasks of an image; panels of a task, and parts of the panels of a group.
    pixels: usize,
    parts: usize,
    panels: usize,
    panel_parts: usize,
    cycles: f64,
}

/// The order of the sum: taps, then channels, in cells.
#[derive(Debug, Clone, Copy)]
struct Depth {
    /// Channels of a cell: of a block, or one.
    block: usize,
    /// Channels of a group, and cells of a tap.
    channels: usize,
    blocks: usize,
    taps: usize,
}

impl Depth {
    fn steps(self) -> usize {
        (self.taps * self.blocks * self.block).div_ceil(NUMBERS)
    }

    /// The tap and the block of channels of the cells of a step.
    #[inline(always)]
    fn cells(self, step: usize) -> impl Iterator<Item = (usize, usize)> {
        let first = step * (NUMBERS / self.block);
        let end = (first + NUMBERS / self.block).min(self.taps * self.blocks);
        (first..end).map(move |cell| (cell / self.blocks, cell % self.blocks))
    }

    /// Channels in a block.
    #[inline(always)]
    fn valid(self, block: usize) -> usize {
        self.block.min(self.channels - block * self.block)
    }
}

/// Images in channel blocks.
pub(crate) fn bind(request: &Request<'_>) -> Option<OnTiles> {
    let window = Window::of(&request.problem)?;
    let fits = has_whole_groups(&request.problem, request.isa) && !request.post_ops.factors;
    OnTiles::new(request, window, false).filter(|_| fits)
}

/// Plain images of few channels.
pub(crate) fn bind_plain(request: &Request<'_>) -> Option<OnTiles> {
    OnTiles::new(request, first_layer::window(request)?, true)
}

impl OnTiles {
    fn new(request: &Request<'_>, window: Window, plain: bool) -> Option<Self> {
        let &Request { problem, post_ops, isa, threads, unit, save_memory, .. } = request;
        let Some(MatrixUnit::Tiles(unit, terms)) = unit else { return None };
        // Three terms take more than a weight of the file.
        if save_memory && terms == Terms::Three {
            return None;
        }
        let block = if plain { 1 } else { isa.lanes() };
        let channels = problem.group_in();
        let depth =
            Depth { block, channels, blocks: channels.div_ceil(block), taps: window.taps() };
        // Words of weights, and of a row.
        let rows = problem.groups().checked_mul(problem.group_out().div_ceil(BLOCK) * BLOCK)?;
        let words = depth.steps().checked_mul(terms.step())?.checked_mul(rows)?;
        words.checked_mul(size_of::<u32>()).filter(|&bytes| bytes <= isize::MAX as usize)?;

        let (threads, batch, groups) = (threads.max(1), problem.batch(), problem.groups());
        let row = depth.steps().min(DEPTH_BLOCK) * terms.step() * size_of::<u32>();
        let most = (TASK_WORDS / row.max(1)).clamp(BLOCK, MOST_PIXELS) / BLOCK;
        // Blocks of pixels: a few tasks for each thread, each of two at least.
        let blocks = window.pixels().div_ceil(BLOCK);
        let alone = batch.saturating_mul(groups).max(1);
        let wanted = if threads == 1 { 1 } else { (4 * threads).div_ceil(alone) };
        let parts = blocks.div_ceil(most).max(wanted.min(blocks.div_ceil(2)));
        let pixels = blocks.div_ceil(parts) * BLOCK;
        let parts = window.pixels().div_ceil(pixels);
        // Where pixels are few, each thread has channels of its own.
        let all = problem.group_out().div_ceil(BLOCK);
        let panels = all.div_ceil(threads.div_ceil(alone.saturating_mul(parts)));

        let sizes = [window.pixels(), depth.steps() * NUMBERS, problem.group_out()];
        let gather = if plain { GATHER_PLAIN } else { cost::words(terms) };
        Some(Self {
            problem,
            window,
            isa,
            unit,
            terms,
            finish: Finish::new(post_ops.activation),
            depth,
            plain,
            threads,
            pixels,
            parts,
            panels,
            panel_parts: all.div_ceil(panels),
            cycles: batch as f64 * cost::on_tiles(isa, terms, sizes, groups, gather),
        })
    }

    /// Words from one row to the next: an odd number of lines, so that the rows of a block do not
    /// crowd one set of a cache.
    fn stride(&self) -> usize {
        const WORDS: usize = LINE / size_of::<u32>();
        let words = self.depth.steps().min(DEPTH_BLOCK) * self.terms.step();
        (words.div_ceil(WORDS) | 1) * WORDS
    }

    /// f32 of the rows of a worker, in whole lines; and numbers of its table of offsets.
    fn rows_len(&self) -> usize {
        self.pixels * self.stride()
    }

    fn table_len(&self) -> usize {
        (self.pixels * self.window.taps()).next_multiple_of(LINE / size_of::<isize>())
    }

    /// f32 of a panel of weights.
    fn panel_len(&self) -> usize {
        self.depth.steps() * self.terms.step() * BLOCK
    }

    /// Panels of a group.
    fn all_panels(&self) -> usize {
        self.problem.group_out().div_ceil(BLOCK)
    }
}

/// Packed weights: `[group][panel of 32 output channels][step][term][16 words][32]`.
#[derive(Debug)]
pub(crate) struct TileWeights(AlignedBuf);

impl TileWeights {
    #[inline]
    fn words(&self) -> &[u32] {
        bytemuck::cast_slice(self.0.as_bytes())
    }
}

impl Bound for OnTiles {
    type Weights = TileWeights;

    fn cycles(&self) -> f64 {
        self.cycles
    }

    fn unit(&self) -> Option<MatrixUnit> {
        Some(MatrixUnit::Tiles(self.unit, self.terms))
    }

    fn pack_key(&self) -> PackKey {
        let form = if self.plain { "conv.tiles.plain" } else { "conv.tiles" };
        let key = PackKey::f32(form, [self.terms.count(), 0, 0], self.isa);
        PackKey { precision: DType::Bf16, ..key }
    }

    fn pack(&self, weight: Floats<'_>, par: &Par) -> Result<TileWeights, ConvError> {
        let (len, all) = (self.panel_len(), self.all_panels());
        let bytes = [self.problem.groups(), all, len, size_of::<f32>()];
        let bytes = bytes.iter().try_fold(1usize, |a, &b| a.checked_mul(b));
        let bytes = bytes.ok_or_else(|| TensorError::invalid("weights exceed memory"))?;
        let mut data = AlignedBuf::resident(bytes)?;
        let packed: &mut [f32] = bytemuck::cast_slice_mut(data.as_mut_bytes());
        let out = self.problem.group_out();
        let row = self.depth.channels * self.depth.taps;
        par.chunks_mut(packed, len.max(1), |i, panel| {
            let (group, first) = (i / all, i % all * BLOCK);
            let rows = group * out + first..group * out + out.min(first + BLOCK);
            let weight = weight.part(rows.start * row..rows.end * row);
            self.isa.run(PackPanel { depth: self.depth, terms: self.terms, weight, panel });
        });
        Ok(TileWeights(data))
    }

    fn bytes(weights: &TileWeights) -> usize {
        weights.0.len()
    }

    /// Whole panels.
    fn bias<'b>(&self, bias: Option<&'b [f32]>) -> Cow<'b, [f32]> {
        let (groups, out) = (self.problem.groups(), self.problem.group_out());
        Cow::Owned(pad_bias(bias, groups, out, BLOCK / super::tile::NB))
    }

    fn workspace(&self) -> usize {
        let rows = self.rows_len().saturating_mul(size_of::<f32>());
        let table = self.table_len().saturating_mul(size_of::<isize>());
        rows.saturating_add(table).saturating_mul(self.threads)
    }

    fn run(
        &self,
        weights: &TileWeights,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        let Operands { x, bias, residual, y, .. } = operands;
        let (rows, rest) = take::<f32>(workspace, self.threads * self.rows_len())?;
        let (tables, _) = take::<isize>(rest, self.threads * self.table_len())?;
        let (p, weights) = (&self.problem, weights.words());
        let (batch, groups) = (p.batch(), p.groups());
        let [image, out_image] = [x.len(), y.len()].map(|len| len / batch.max(1));
        let (y, rows, tables) = (SharedMut::new(y), SharedMut::new(rows), SharedMut::new(tables));
        let grid = [batch, groups * self.panel_parts, self.parts];
        par.run_grid(grid, |worker, [n, layer, part]| {
            let (group, first) = (layer / self.panel_parts, layer % self.panel_parts * self.panels);
            let own = |len: usize| worker * len..(worker + 1) * len;
            // SAFETY: no two tasks run under the same worker's number at the same time.
            let rows = unsafe { rows.slice(own(self.rows_len())) };
            // SAFETY: as above.
            let table = unsafe { tables.slice(own(self.table_len())) };
            let start = part * self.pixels;
            let task = Task {
                conv: self,
                x: &x[n * image..(n + 1) * image],
                weights,
                bias,
                residual,
                y: &y,
                start: n * out_image,
                group,
                pixels: start..self.window.pixels().min(start + self.pixels),
                panels: first..self.all_panels().min(first + self.panels),
            };
            task.run(rows, table);
        });
        Ok(())
    }
}

/// Some pixels of an image, for some panels of output channels of a group.
struct Task<'a> {
    conv: &'a OnTiles,
    /// The image.
    x: &'a [f32],
    weights: &'a [u32],
    bias: &'a [f32],
    residual: Option<Residual<'a>>,
    y: &'a SharedMut<'a, f32>,
    /// Where the image begins in y.
    start: usize,
    group: usize,
    pixels: Range<usize>,
    panels: Range<usize>,
}

impl Task<'_> {
    fn run(&self, rows: &mut [f32], table: &mut [isize]) {
        let conv = self.conv;
        let (steps, terms, stride) = (conv.depth.steps(), conv.terms, conv.stride());
        let n = self.pixels.len();
        let table = &mut table[..n * conv.depth.taps];
        conv.window.offsets(self.pixels.clone(), conv.depth.block, table);
        let blocks = steps.div_ceil(DEPTH_BLOCK);
        let mut block = Block([0.0; BLOCK * BLOCK]);
        for depth in 0..blocks {
            let range = depth * DEPTH_BLOCK..steps.min((depth + 1) * DEPTH_BLOCK);
            let first = range.start * terms.step() * BLOCK;
            let (table, steps) = (&*table, range.clone());
            conv.isa.run(Gather { task: self, table, steps, rows: &mut *rows, stride });
            let words: &[u32] = bytemuck::cast_slice(&*rows);
            conv.unit.set_up(|unit| {
                for panel in self.panels.clone() {
                    if stop::stopped() {
                        return;
                    }
                    let index = self.group * conv.all_panels() + panel;
                    let b = &self.weights[index * conv.panel_len()..][..conv.panel_len()][first..];
                    for pixel in (0..n).step_by(BLOCK) {
                        let (a, steps) = (&words[pixel * stride..], range.len());
                        unit.multiply(tiles::Operands { a, stride, b, steps, terms }, &mut block);
                        let pixels = pixel..n.min(pixel + BLOCK);
                        let ends = [depth == 0, depth + 1 == blocks];
                        conv.isa.run(Store { task: self, block: &block, panel, pixels, ends });
                    }
                }
            });
        }
    }
}

/// Gathers the words of a task's pixels for some steps.
struct Gather<'a> {
    task: &'a Task<'a>,
    table: &'a [isize],
    steps: Range<usize>,
    rows: &'a mut [f32],
    stride: usize,
}

impl Vectorized for Gather<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.task.conv.plain {
            true => self.all::<S, 1>(s),
            false => self.all::<S, 0>(s),
        }
    }
}

impl Gather<'_> {
    /// Cells of `SINGLE` channels, or of a vector's where that is 0.
    #[inline(always)]
    fn all<S: Simd, const SINGLE: usize>(self, s: S) {
        let Self { task, table, steps, rows, stride } = self;
        let Task { conv, x, .. } = task;
        let (depth, terms, n) = (conv.depth, conv.terms, task.pixels.len());
        let block = if SINGLE == 1 { 1 } else { S::LANES };
        let plane = conv.window.input_pixels() * block;
        let before = task.group * depth.blocks;
        for (at, step) in steps.enumerate() {
            // Where each pixel of a cell's tap lies, the plane of its channels, and how many.
            let mut cells = [(&[][..], &[][..], 0); NUMBERS];
            let mut count = 0;
            for (cell, (tap, blk)) in cells.iter_mut().zip(depth.cells(step)) {
                let x = &x[(before + blk) * plane..][..plane];
                *cell = (&table[tap * n..][..n], x, depth.valid(blk));
                count += 1;
            }
            let to = rows.chunks_exact_mut(stride).enumerate().take(n);
            for (pixel, row) in to {
                let mut numbers = [0.0; NUMBERS];
                for (to, (table, x, valid)) in numbers.chunks_exact_mut(block).zip(&cells[..count])
                {
                    let from = table[pixel];
                    if from == OUTSIDE {
                        continue;
                    }
                    let x = &x[from as usize..];
                    if SINGLE == 1 {
                        to[0] = x[0];
                    } else if *valid == S::LANES {
                        s.store(s.load(x), to);
                    } else {
                        // In surplus lanes anything may stand.
                        s.store(s.first(s.load(x), *valid, 0.0), to);
                    }
                }
                terms.write_step(s, &numbers, &mut row[at * terms.step()..]);
            }
        }
    }
}

/// Adds a block of sums to what y holds, and finishes the last ones.
struct Store<'a> {
    task: &'a Task<'a>,
    block: &'a Block,
    panel: usize,
    /// Of the task.
    pixels: Range<usize>,
    /// Whether these are the first sums, and the last.
    ends: [bool; 2],
}

impl Vectorized for Store<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        /// Vectors that are finished together.
        const M: usize = 8;
        let Self { task, block, panel, pixels, ends: [first, last] } = self;
        let conv = task.conv;
        let (out, plane) = (conv.problem.group_out(), conv.window.pixels() * S::LANES);
        let channels = BLOCK.min(out - panel * BLOCK);
        let bias = &task.bias[(task.group * conv.all_panels() + panel) * BLOCK..][..BLOCK];
        for (i, bias) in bias.chunks_exact(S::LANES).take(channels.div_ceil(S::LANES)).enumerate() {
            let number = task.group * (out / S::LANES) + panel * (BLOCK / S::LANES) + i;
            let start = task.start + number * plane;
            let bias = s.load(bias);
            for pixel in pixels.clone().step_by(M) {
                let count = M.min(pixels.end - pixel);
                let at = start + (task.pixels.start + pixel) * S::LANES;
                let range = at..at + count * S::LANES;
                // SAFETY: pixels and channels of an image that belong to this task alone.
                let y = unsafe { task.y.slice(range.clone()) };
                let row = (pixel - pixels.start) * BLOCK + i * S::LANES;
                let mut sums = [s.zero(); M];
                for (j, sum) in sums.iter_mut().enumerate().take(count) {
                    *sum = s.load(&block.0[row + j * BLOCK..]);
                    if !first {
                        *sum = s.add(s.load(&y[j * S::LANES..]), *sum);
                    }
                    if last {
                        *sum = s.add(*sum, bias);
                    }
                }
                if last {
                    let residual = task.residual.map(|r| r.part(range));
                    conv.finish.store::<S, M, false>(s, sums, residual, y);
                } else {
                    for (sum, y) in sums.iter().zip(y.chunks_exact_mut(S::LANES)) {
                        s.store(*sum, y);
                    }
                }
            }
        }
    }
}

/// Packs the weights of up to 32 output channels.
struct PackPanel<'a> {
    depth: Depth,
    terms: Terms,
    /// Output channels, each `(channels, taps)`.
    weight: Floats<'a>,
    panel: &'a mut [f32],
}

impl Vectorized for PackPanel<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { depth, terms, weight, panel } = self;
        let row = (depth.channels * depth.taps).max(1);
        panel.fill(0.0);
        for (step, panel) in panel.chunks_exact_mut(terms.step() * BLOCK).enumerate() {
            for (column, weight) in weight.chunks_exact(row).enumerate() {
                let mut numbers = [0.0; NUMBERS];
                for (to, (tap, blk)) in numbers.chunks_exact_mut(depth.block).zip(depth.cells(step))
                {
                    for (lane, to) in to.iter_mut().enumerate().take(depth.valid(blk)) {
                        *to = weight.get((blk * depth.block + lane) * depth.taps + tap);
                    }
                }
                let mut words = [0.0; 3 * STEP];
                terms.write_step(s, &numbers, &mut words);
                for (word, to) in words.iter().zip(panel.chunks_exact_mut(BLOCK)) {
                    to[column] = *word;
                }
            }
        }
    }
}

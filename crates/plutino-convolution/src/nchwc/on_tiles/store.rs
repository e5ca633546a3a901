//! What becomes of a block of sums: it is added to what y holds, and the last ones are finished.

use super::super::format::Format;
use super::super::tiled::Spread;
use super::Task;
use super::words::TileCut;
use crate::post_ops::Residual;
use plutino_cpu::simd::unroll::{array, unroll};
use plutino_cpu::simd::{Simd, Vectorized};
use plutino_cpu::tiles::{BLOCK, Block, TILE};
use std::ops::Range;

/// A block of sums, and what they are of.
pub(super) struct Stored<'a> {
    pub(super) task: &'a Task<'a>,
    pub(super) block: &'a Block,
    pub(super) panel: usize,
    pub(super) cut: TileCut,
    /// The tiles of pixels of the block.
    pub(super) tiles: Range<usize>,
    /// Whether these are the first sums, and the last.
    pub(super) ends: [bool; 2],
}

/// Adds a block of sums to what y holds, and finishes the last ones; with `BF16` the output or the
/// residual is of such. (What they will meet is not asked for early: fetching y and the residual
/// while the unit computes took 3 to 10 % of a network's time, Emerald Rapids, 2026-11-26.)
pub(super) struct Store<'a, const BF16: bool>(pub(super) Stored<'a>);

impl<const BF16: bool> Vectorized for Store<'_, BF16> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let stored = &self.0;
        let (conv, output) = (stored.task.conv, stored.task.rows.len());
        for (half, tile) in stored.tiles.clone().enumerate() {
            for (row, pixel, count) in conv.canvas.runs_of(stored.cut, output, tile) {
                stored.pixels::<S, BF16>(s, half * TILE + row, pixel, count);
            }
        }
    }
}

impl Stored<'_> {
    /// Rows of the block from one on, which are pixels of the task from one on.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn pixels<S: Simd, const BF16: bool>(&self, s: S, row: usize, pixel: usize, count: usize) {
        let task = self.task;
        let conv = task.conv;
        let (phase, panel) = (self.panel / conv.all_panels(), self.panel % conv.all_panels());
        let spread = conv.spreads.get(phase);
        let [height, width] = spread.map_or(conv.canvas.output, |spread| spread.plane);
        let (out, plane) = (conv.problem.group_out(), height * width * S::LANES);
        let blocks = conv.problem.out_channels().div_ceil(S::LANES);
        // Where a block of the image begins.
        let place =
            |format: Format, block: usize| format.plane_of(task.image, blocks, block) * plane;
        let output = Format::of(BF16 && conv.bf16.output);
        let residual = Format::of(BF16 && conv.bf16.residual);
        let channels = BLOCK.min(out - panel * BLOCK);
        let bias = &task.bias[(task.group * conv.all_panels() + panel) * BLOCK..][..BLOCK];
        for (i, bias) in bias.chunks_exact(S::LANES).take(channels.div_ceil(S::LANES)).enumerate() {
            let number = task.group * (out / S::LANES) + panel * (BLOCK / S::LANES) + i;
            let at = Pixels {
                start: [place(output, number), place(residual, number)],
                formats: [output, residual].map(|format| format.of_block(number)),
                row: row * BLOCK + i * S::LANES,
                pixel,
            };
            let bias = s.load(bias);
            if let Some(spread) = spread {
                self.spread::<S, BF16>(s, *spread, at, count, bias);
                continue;
            }
            let skipped = task.rows.start * width * S::LANES;
            let at = Pixels { start: at.start.map(|start| start + skipped), ..at };
            let mut done = 0;
            while count - done >= 8 {
                self.vectors::<S, 8, BF16>(s, at.from(done), bias);
                done += 8;
            }
            if count - done >= 4 {
                self.vectors::<S, 4, BF16>(s, at.from(done), bias);
                done += 4;
            }
            if count - done >= 2 {
                self.vectors::<S, 2, BF16>(s, at.from(done), bias);
                done += 2;
            }
            if count > done {
                self.vectors::<S, 1, BF16>(s, at.from(done), bias);
            }
        }
    }

    /// Pixels that follow each other in the task's output, one by one to where they belong.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn spread<S: Simd, const BF16: bool>(
        &self,
        s: S,
        spread: Spread,
        at: Pixels,
        count: usize,
        bias: S::F32,
    ) {
        let width = self.task.conv.canvas.output[1];
        let (mut y, mut x) = (self.task.rows.start + at.pixel / width, at.pixel % width);
        for i in 0..count {
            if x == width {
                (y, x) = (y + 1, 0);
            }
            let row = at.row + i * BLOCK;
            self.vectors::<S, 1, BF16>(s, Pixels { row, pixel: spread.pixel([y, x]), ..at }, bias);
            x += 1;
        }
    }

    /// The vectors of M pixels, which are finished together.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn vectors<S: Simd, const M: usize, const BF16: bool>(&self, s: S, at: Pixels, bias: S::F32) {
        let Self { task, block, ends: [first, last], .. } = *self;
        let [range, of_residual] = at.start.map(|start| {
            let start = start + at.pixel * S::LANES;
            start..start + M * S::LANES
        });
        let [output, residual] = at.formats;
        // SAFETY: pixels and channels of an image that belong to this task alone: panels are of
        // whole words.
        let y = unsafe { task.y.slice(range) };
        let block = &block.0[at.row..at.row + (M - 1) * BLOCK + S::LANES];
        let mut sums = array!(M, |J| s.load(&block[J * BLOCK..]));
        if !first {
            unroll!(M, |J| sums[J] = s.add(s.load(&y[J * S::LANES..]), sums[J]));
        }
        if last {
            unroll!(M, |J| sums[J] = s.add(sums[J], bias));
            let residual =
                task.residual.map(|r| Residual { format: residual, ..r.part(of_residual) });
            task.conv.finish.store::<S, M, false, BF16>(s, sums, residual, (y, output));
        } else {
            unroll!(M, |J| s.store(sums[J], &mut y[J * S::LANES..]));
        }
    }
}

/// Pixels of a block of channels.
#[derive(Clone, Copy)]
struct Pixels {
    /// Where those of the task begin in y and in the residual, or those of the plane.
    start: [usize; 2],
    /// How the block lies in both.
    formats: [Format; 2],
    /// Where the first one's sums lie in the block.
    row: usize,
    /// The first one, from there on.
    pixel: usize,
}

impl Pixels {
    /// Without the first ones.
    #[inline(always)]
    fn from(self, done: usize) -> Self {
        Self { row: self.row + done * BLOCK, pixel: self.pixel + done, ..self }
    }
}

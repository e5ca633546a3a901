//! What becomes of a block of sums: it is added to what y holds, and the last ones are finished.

use super::super::format::Format;
use super::super::tiled::Spread;
use super::Task;
use super::words::TileCut;
use plutino_cpu::simd::unroll::{array, unroll};
use plutino_cpu::simd::{Simd, Vectorized};
use plutino_cpu::tiles::{BLOCK, Block, TILE};
use std::ops::Range;

/// Adds a block of sums to what y holds, and finishes the last ones. (What they will meet is not
/// asked for early: fetching y and the residual while the unit computes took 3 to 10 % of a
/// network's time, Emerald Rapids, 2026-11-26.)
pub(super) struct Store<'a> {
    pub(super) task: &'a Task<'a>,
    pub(super) block: &'a Block,
    pub(super) panel: usize,
    pub(super) cut: TileCut,
    /// The tiles of pixels of the block.
    pub(super) tiles: Range<usize>,
    /// Whether these are the first sums, and the last.
    pub(super) ends: [bool; 2],
}

impl Vectorized for Store<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (conv, output) = (self.task.conv, self.task.rows.len());
        for (half, tile) in self.tiles.clone().enumerate() {
            for (row, pixel, count) in conv.canvas.runs_of(self.cut, output, tile) {
                self.pixels(s, half * TILE + row, pixel, count);
            }
        }
    }
}

impl Store<'_> {
    /// Rows of the block from one on, which are pixels of the task from one on.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn pixels<S: Simd>(&self, s: S, row: usize, pixel: usize, count: usize) {
        let task = self.task;
        let conv = task.conv;
        let (phase, panel) = (self.panel / conv.all_panels(), self.panel % conv.all_panels());
        let spread = conv.spreads.get(phase);
        let [height, width] = spread.map_or(conv.canvas.output, |spread| spread.plane);
        let (out, plane) = (conv.problem.group_out(), height * width * S::LANES);
        let channels = BLOCK.min(out - panel * BLOCK);
        let bias = &task.bias[(task.group * conv.all_panels() + panel) * BLOCK..][..BLOCK];
        for (i, bias) in bias.chunks_exact(S::LANES).take(channels.div_ceil(S::LANES)).enumerate() {
            let number = task.group * (out / S::LANES) + panel * (BLOCK / S::LANES) + i;
            let (start, row) = (task.start + number * plane, row * BLOCK + i * S::LANES);
            let bias = s.load(bias);
            if let Some(spread) = spread {
                self.spread(s, *spread, Pixels { start, row, pixel }, count, bias);
                continue;
            }
            let start = start + task.rows.start * width * S::LANES;
            let at = Pixels { start, row, pixel };
            let mut done = 0;
            while count - done >= 8 {
                self.vectors::<S, 8>(s, at.from(done), bias);
                done += 8;
            }
            if count - done >= 4 {
                self.vectors::<S, 4>(s, at.from(done), bias);
                done += 4;
            }
            if count - done >= 2 {
                self.vectors::<S, 2>(s, at.from(done), bias);
                done += 2;
            }
            if count > done {
                self.vectors::<S, 1>(s, at.from(done), bias);
            }
        }
    }

    /// Pixels that follow each other in the task's output, one by one to where they belong.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn spread<S: Simd>(&self, s: S, spread: Spread, at: Pixels, count: usize, bias: S::F32) {
        let width = self.task.conv.canvas.output[1];
        let (mut y, mut x) = (self.task.rows.start + at.pixel / width, at.pixel % width);
        for i in 0..count {
            if x == width {
                (y, x) = (y + 1, 0);
            }
            let row = at.row + i * BLOCK;
            self.vectors::<S, 1>(s, Pixels { row, pixel: spread.pixel([y, x]), ..at }, bias);
            x += 1;
        }
    }

    /// The vectors of M pixels, which are finished together.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn vectors<S: Simd, const M: usize>(&self, s: S, at: Pixels, bias: S::F32) {
        let Self { task, block, ends: [first, last], .. } = *self;
        let start = at.start + at.pixel * S::LANES;
        let range = start..start + M * S::LANES;
        // SAFETY: pixels and channels of an image that belong to this task alone.
        let y = unsafe { task.y.slice(range.clone()) };
        let block = &block.0[at.row..at.row + (M - 1) * BLOCK + S::LANES];
        let mut sums = array!(M, |J| s.load(&block[J * BLOCK..]));
        if !first {
            unroll!(M, |J| sums[J] = s.add(s.load(&y[J * S::LANES..]), sums[J]));
        }
        if last {
            unroll!(M, |J| sums[J] = s.add(sums[J], bias));
            let residual = task.residual.map(|r| r.part(range));
            task.conv.finish.store::<S, M, false, false>(s, sums, residual, (y, Format::F32));
        } else {
            unroll!(M, |J| s.store(sums[J], &mut y[J * S::LANES..]));
        }
    }
}

/// Pixels of a block of channels.
#[derive(Clone, Copy)]
struct Pixels {
    /// Where those of the task begin in y, or those of the plane.
    start: usize,
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

//! The work of one task: a block of pixels, for some pairs of output channel blocks.

use super::super::finish::{Finish, RUN};
use super::super::format::Format;
use super::super::prefetch::Ahead;
use super::super::tile::{
    CHAIN, CHAIN_OF_FIRST, FullTile, MAX_PIXELS_OF_ONE, NB, Panel, Position, Taps, Tile, TileBody,
    chain, chain_of_taps, for_each_tile, lines_ahead, max_pixels, tile,
};
use super::super::window::Window;
use super::{Operands, Reads, Spread, Tiled};
use crate::post_ops::Residual;
use plutino_cpu::par::SharedMut;
use plutino_cpu::simd::unroll::{array, unroll};
use plutino_cpu::simd::{Simd, Vectorized};
use std::ops::Range;

/// Where a task's results go.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Place {
    /// The element of `y` where the first block's first pixel is; where pixels are spread, where
    /// the block's plane starts.
    pub(in super::super) first: usize,
    /// The same of tensors of bf16: of the words of the first pair of blocks.
    pub(in super::super) words: usize,
    /// Pixels from one block to the next.
    pub(in super::super) plane: usize,
}

impl Place {
    /// Of a tensor of f32.
    pub(in super::super) fn of_f32(first: usize, plane: usize) -> Self {
        Self { first, words: 0, plane }
    }
}

/// One block of pixels of one image, for some pairs of output blocks.
pub(super) struct Task<'a> {
    pub(super) conv: &'a Tiled,
    pub(super) operands: &'a Operands<'a>,
    /// That of the convolution; on a part of the image where `x` is one.
    pub(super) window: &'a Window,
    /// The image, or a copy as [`Reads`] says.
    pub(super) x: &'a [f32],
    /// What the image's channels are multiplied by, for [`Reads::Words`].
    pub(super) factors: Option<&'a [f32]>,
    pub(super) to: Place,
    pub(super) group: usize,
    pub(super) pixels: Range<usize>,
    /// The first of them on `x`: another one where that is a copy of a part.
    pub(super) first_read: usize,
    pub(super) pairs: Range<usize>,
    /// Whether the first of them asks for input before its turn.
    pub(super) first_reader: bool,
    pub(super) table: &'a mut [isize],
    /// Memory for a copy of the pixels that are read, for [`Reads::Pixels`].
    pub(super) copy: &'a mut [f32],
    /// Results of a run of pixels, where they are [finished apart](Tiled::finishes_apart): a block
    /// after the other.
    pub(super) run: &'a SharedMut<'a, f32>,
}

/// A task on numbers, or on pairs of bf16.
pub(super) struct OfPairs<'a, const PAIRS: bool>(pub(super) Task<'a>);

impl<const PAIRS: bool> Vectorized for OfPairs<'_, PAIRS> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.0.run::<S, PAIRS>(s);
    }
}

impl Task<'_> {
    /// The same for some of its pairs of output blocks.
    pub(super) fn of_pairs(&mut self, pairs: Range<usize>) -> Task<'_> {
        let plane = self.to.plane * self.conv.isa.lanes();
        let skipped = (pairs.start - self.pairs.start) * plane;
        let [first, words] = [self.to.first + NB * skipped, self.to.words + skipped];
        Task {
            to: Place { first, words, ..self.to },
            first_reader: self.first_reader && pairs.start == self.pairs.start,
            pairs,
            pixels: self.pixels.clone(),
            table: &mut *self.table,
            copy: &mut *self.copy,
            ..*self
        }
    }

    #[inline(always)]
    fn run<S: Simd, const PAIRS: bool>(self, s: S) {
        let (conv, ops, weights) = (self.conv, self.operands, self.operands.weights);
        let b = S::LANES;
        let [out, inp] = weights.channels;
        let n = self.pixels.len();
        let in_block = weights.input.block(b);
        let window = conv.reads.window(self.window);
        let position = position::<S>(&conv.reads, window);
        let mut first_read = self.first_read;
        let read = first_read..first_read + n;
        let (mut table, mut adds) = (self.table, &mut [][..]);
        if position >= Position::SUM {
            (adds, table) = table.split_at_mut(weights.taps);
            window.adds(adds);
        }
        match position {
            Position::SUM => window.starts(read, &mut table[..n]),
            Position::TABLE => window.offsets(read, in_block, &mut table[..n * weights.taps]),
            _ => {}
        }
        let blocks = inp / in_block;
        let (mut x, mut plane, mut group) = (self.x, window.input_pixels(), self.group);
        if let Reads::Pixels(_) = conv.reads {
            let planes = group * blocks..group * blocks + inp.div_ceil(in_block);
            window.sample(s, x, planes, self.pixels.clone(), self.copy);
            (x, plane, group, first_read) = (self.copy, n, 0, 0);
        } else if let Reads::Words(image, _) = &conv.reads {
            let of = (x, self.factors);
            image.copy_pixels(s, window, of, group, self.pixels.clone(), self.copy);
            (x, plane, group, first_read) = (self.copy, n, 0, 0);
        }
        let mut first = group * blocks * plane * in_block;
        if position == Position::DENSE {
            first += first_read * b;
        }
        let panel = inp * weights.taps * NB * b;
        let taps = Taps {
            ahead: lines_ahead::<S>(weights.as_slice().len(), panel, n, in_block),
            x: x[first..].as_ptr(),
            table,
            adds,
            pixels: n,
            taps: weights.taps,
            channels: inp,
            block: in_block,
            step: plane * in_block,
            pixel: window.stride[1] * in_block,
            chain: match position {
                Position::TABLE => chain_of_taps(CHAIN, in_block, weights.taps),
                _ if in_block == 1 => chain(CHAIN_OF_FIRST, in_block, weights.taps),
                _ => chain(CHAIN, in_block, weights.taps),
            },
        };
        // Pixels whose tiles are cut together: those of a row, or all.
        let row = if position == Position::ROW { window.output[1] } else { usize::MAX };
        let column = first_read % row;
        let piece = |start: usize| start..n.min(start.saturating_add(row - (column + start) % row));
        let pairs = out.div_ceil(NB * b);
        let width = self.window.output[1];
        for pair in self.pairs.clone() {
            let index = self.group * pairs + pair;
            let channels = (NB * b).min(out - pair * NB * b);
            let blocks = channels.div_ceil(b);
            let first_block = (pair - self.pairs.start) * NB;
            let starts = std::array::from_fn(|k| {
                let block = first_block + k.min(blocks - 1);
                self.to.first + block * self.to.plane * b
            });
            let mut body = Pair::<PAIRS> {
                ops,
                panel: Panel::new::<S>(
                    &taps,
                    &weights.as_slice()[index * panel..(index + 1) * panel],
                ),
                bias: &ops.bias[index * NB * b..(index + 1) * NB * b],
                starts,
                words: self.to.words + (pair - self.pairs.start) * self.to.plane * b,
                blocks,
                finish: conv.finish,
                output: conv.output,
                bf16: conv.output.is_bf16_or(ops.residual),
                apart: conv.finishes_apart(),
                piece: 0,
                position,
                spread: conv.spread.map(|s| (s, self.pixels.start, width)),
                run: self.run,
            };
            // The first pair is the first to read these pixels.
            if self.first_reader && pair == self.pairs.start {
                let (terms, tile) = (inp * weights.taps, max_pixels::<S>());
                body.panel.fetch = Ahead::new(window, terms, tile, in_block);
            }
            // A block that is left by itself, as all are in groups of one block, has more pixels in
            // a tile; a last one of few channels is computed by halves of vectors: so far for 1x1
            // and first layers only, where these are common.
            let alone = position != Position::SUM;
            let apart = matches!(position, Position::DENSE | Position::ROW);
            let last = channels - (blocks - 1) * b;
            // Where vectors of both lengths take the same time, a block beside another one shares
            // its broadcasts.
            let half = !PAIRS && S::Half::LANES < b && last <= S::Half::LANES;
            let half = half && apart && (blocks == 1 || s.isa().multiply_adds() == 1);
            let mut start = 0;
            while start < n {
                let pixels = piece(start);
                if position == Position::ROW {
                    let first = (start * taps.pixel) as isize;
                    body.panel.row = window.start(first_read + start) as isize - first;
                }
                (body.piece, start) = (start, pixels.end);
                match blocks - usize::from(half) {
                    1 if alone => {
                        for_each_tile(s, pixels.clone(), &mut Single::<false, PAIRS>(&mut body))
                    }
                    0 => {}
                    _ => for_each_tile(s, pixels.clone(), &mut body),
                }
                if const { !PAIRS && S::Half::LANES < S::LANES } && half {
                    body.panel.block = blocks - 1;
                    for_each_tile(s, pixels, &mut Single::<true, PAIRS>(&mut body));
                    body.panel.block = 0;
                }
            }
        }
    }
}

/// How the taps of pixels are found: one of [`Position`].
#[inline]
fn position<S: Simd>(reads: &Reads, window: &Window) -> usize {
    match reads {
        // Rows must be worth tiles of their own.
        _ if reads.is_plain() && window.output[1] >= 2 * max_pixels::<S>() => Position::ROW,
        _ if reads.is_plain() => Position::SUM,
        Reads::Input | Reads::WholeWords(..) if !window.is_pointwise() => Position::TABLE,
        _ => Position::DENSE,
    }
}

/// One pair of output blocks of a task.
struct Pair<'a, const PAIRS: bool> {
    ops: &'a Operands<'a>,
    panel: Panel<'a>,
    /// NB vectors.
    bias: &'a [f32],
    /// Where the task's first pixel lies in y, for each block; where pixels are spread, where the
    /// plane does.
    starts: [usize; NB],
    /// The same in tensors of bf16, whose words the blocks share.
    words: usize,
    /// Blocks to store: 1 for an odd last one.
    blocks: usize,
    finish: Finish,
    /// How y lies.
    output: Format,
    /// Whether y or the residual is of bf16.
    bf16: bool,
    /// See [`Tiled::finishes_apart`].
    apart: bool,
    /// The first of the pixels whose tiles are cut together.
    piece: usize,
    /// One of [`Position`].
    position: usize,
    /// Where results are to be spread; the number of the task's first pixel, and pixels in a row.
    spread: Option<(Spread, usize, usize)>,
    run: &'a SharedMut<'a, f32>,
}

impl<const PAIRS: bool> TileBody for Pair<'_, PAIRS> {
    #[cfg_attr(not(unoptimised), inline(always))]
    fn tile<S: Simd, const MR: usize>(&mut self, s: S, first: usize) {
        self.fetch::<S, MR>(s, 0..self.blocks, first);
        // SAFETY: the table, or the row's start, holds positions inside the input plane, and so are
        // their sums with `adds` (Window); x holds all planes (`Tiled::begin`). Dense pixels
        // are some of the plane's own, under the one tap of a pointwise window.
        let [sums, second] = unsafe {
            match self.position {
                Position::SUM => self.sums::<S, S, MR, { Position::SUM }, NB>(s, first),
                Position::ROW => self.sums::<S, S, MR, { Position::ROW }, NB>(s, first),
                Position::DENSE => self.sums::<S, S, MR, { Position::DENSE }, NB>(s, first),
                _ => self.sums::<S, S, MR, { Position::TABLE }, NB>(s, first),
            }
        };
        self.store(s, 0, first, sums);
        if self.blocks == NB {
            self.store(s, 1, first, second);
        }
    }

    #[inline(always)]
    fn run_length(&self) -> usize {
        if self.apart { RUN } else { self.finish.run_length() }
    }

    #[inline(always)]
    fn complete<S: Simd>(&mut self, s: S, pixels: Range<usize>) {
        for k in 0..self.blocks {
            self.complete_block(s, k, pixels.clone());
        }
    }
}

/// One block of a pair, where pixels are dense or lie in a row or in a table; with `HALF` one that
/// has no more channels than half a vector.
struct Single<'a, 'p, const HALF: bool, const PAIRS: bool>(&'a mut Pair<'p, PAIRS>);

impl<const HALF: bool, const PAIRS: bool> TileBody for Single<'_, '_, HALF, PAIRS> {
    const FULL: FullTile =
        if HALF { FullTile::Registers } else { FullTile::Pixels(MAX_PIXELS_OF_ONE) };

    #[cfg_attr(not(unoptimised), inline(always))]
    fn tile<S: Simd, const MR: usize>(&mut self, s: S, first: usize) {
        let block = self.0.panel.block;
        self.0.fetch::<S, MR>(s, block..block + 1, first);
        let mut sums = array!(MR, |J| s.zero());
        if const { HALF } {
            let [halves, _] = self.0.sums_of_one::<S, S::Half, MR>(s.half(), first);
            unroll!(MR, |J| sums[J] = s.widen(halves[J]));
        } else {
            [sums, _] = self.0.sums_of_one::<S, S, MR>(s, first);
        }
        self.0.store(s, block, first, sums);
    }

    #[inline(always)]
    fn run_length(&self) -> usize {
        TileBody::run_length(self.0)
    }

    #[inline(always)]
    fn complete<S: Simd>(&mut self, s: S, pixels: Range<usize>) {
        self.0.complete_block(s, self.0.panel.block, pixels);
    }
}

impl<const PAIRS: bool> Pair<'_, PAIRS> {
    /// # Safety
    /// As for [`tile`].
    #[inline(always)]
    unsafe fn sums<
        S: Simd,
        V: Simd,
        const MR: usize,
        const POSITION: usize,
        const BLOCKS: usize,
    >(
        &self,
        v: V,
        first: usize,
    ) -> Tile<V, MR> {
        // SAFETY: the same.
        unsafe { tile::<S, V, MR, POSITION, BLOCKS, PAIRS>(v, &self.panel, first) }
    }

    /// The sums of the block that the panel stands at alone, of pixels that are dense, lie in a row
    /// or in a table.
    #[inline(always)]
    fn sums_of_one<S: Simd, V: Simd, const MR: usize>(&self, v: V, first: usize) -> Tile<V, MR> {
        // SAFETY: as for such pixels of a pair.
        unsafe {
            match self.position {
                Position::ROW => self.sums::<S, V, MR, { Position::ROW }, 1>(v, first),
                Position::TABLE if const { V::LANES == S::LANES } => {
                    self.sums::<S, V, MR, { Position::TABLE }, 1>(v, first)
                }
                _ => self.sums::<S, V, MR, { Position::DENSE }, 1>(v, first),
            }
        }
    }

    /// Asks the cache for the lines that a tile of a first layer writes: its sums are so few that
    /// the lines should be there when they are done. (Where there are more, this changes nothing.)
    #[inline(always)]
    fn fetch<S: Simd, const MR: usize>(&self, s: S, blocks: Range<usize>, first: usize) {
        if !matches!(self.position, Position::SUM | Position::ROW) {
            return;
        }
        let y = self.ops.y.as_mut_ptr().wrapping_add(first * S::LANES);
        if const { PAIRS } && self.output != Format::F32 {
            let y = y.wrapping_add(self.words);
            unroll!(MR, |J| s.prefetch(y.wrapping_add(J * S::LANES)));
            return;
        }
        for &start in &self.starts[blocks] {
            let y = y.wrapping_add(start);
            unroll!(MR, |J| s.prefetch(y.wrapping_add(J * S::LANES)));
        }
    }

    /// Completes the results of pixels of block `k` that are stored.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn complete_block<S: Simd>(&self, s: S, k: usize, pixels: Range<usize>) {
        let (residual, (y, _)) = self.results::<S, PAIRS>(k, pixels.start, pixels.len());
        self.finish.complete(s, residual, y);
        if let Some((spread, start, width)) = self.spread {
            let pixels = start + pixels.start..start + pixels.end;
            let (plane, format) = self.place::<S, PAIRS>(self.output, k, 0, 0);
            self.scatter(s, spread, width, pixels, y, (plane.start, format));
        } else if self.apart {
            let (start, count) = (pixels.start, pixels.len());
            let (range, format) = self.place::<S, PAIRS>(self.output, k, start, count);
            // SAFETY: as for results.
            let to = unsafe { self.ops.y.slice(range) };
            for (y, to) in y.chunks_exact(S::LANES).zip(to.chunks_exact_mut(S::LANES)) {
                format.store(s, s.load(y), to);
            }
        }
    }

    /// Finishes the sums of a tile of block `k`.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn store<S: Simd, const MR: usize>(&self, s: S, k: usize, first: usize, sums: [S::F32; MR]) {
        // Asked once, not for each vector: sums of few channels take no longer than this.
        if const { PAIRS } && self.bf16 {
            self.store_as::<S, MR, true>(s, k, first, sums);
        } else {
            self.store_as::<S, MR, false>(s, k, first, sums);
        }
    }

    /// With `BF16` y or the residual is of such.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn store_as<S: Simd, const MR: usize, const BF16: bool>(
        &self,
        s: S,
        k: usize,
        first: usize,
        sums: [S::F32; MR],
    ) {
        let (residual, y) = self.results::<S, BF16>(k, first, MR);
        let bias = s.load(&self.bias[k * S::LANES..]);
        let mut sums = sums;
        unroll!(MR, |J| sums[J] = s.add(sums[J], bias));
        self.finish.store::<S, MR, true, BF16>(s, sums, residual, y);
    }

    /// Where `count` pixels of block `k` lie in a tensor, and how that block does; without `BF16`
    /// the tensor is of f32.
    #[inline(always)]
    fn place<S: Simd, const BF16: bool>(
        &self,
        format: Format,
        k: usize,
        first: usize,
        count: usize,
    ) -> (Range<usize>, Format) {
        let format = if const { BF16 } { format.of_block(k) } else { Format::F32 };
        let start = if format == Format::F32 { self.starts[k] } else { self.words };
        let start = start + first * S::LANES;
        (start..start + count * S::LANES, format)
    }

    /// The residual and the result of `count` pixels of block `k`, and how that lies. Where the
    /// count is a constant, so are their lengths: no store of a tile asks for them.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // see below
    fn results<S: Simd, const BF16: bool>(
        &self,
        k: usize,
        first: usize,
        count: usize,
    ) -> (Option<Residual<'_>>, (&mut [f32], Format)) {
        if self.apart {
            return self.results_apart::<S>(k, first, count);
        }
        let (range, format) = self.place::<S, BF16>(self.output, k, first, count);
        let residual = self.ops.residual.map(|r| {
            let (range, format) = self.place::<S, BF16>(r.format, k, first, count);
            Residual { format, ..r.part(range) }
        });
        // SAFETY: this task alone writes these pixels of these blocks, and one slice of them lives
        // at a time.
        (residual, (unsafe { self.ops.y.slice(range) }, format))
    }

    /// The same of results that are [finished apart](Tiled::finishes_apart).
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // see below
    fn results_apart<S: Simd>(
        &self,
        k: usize,
        first: usize,
        count: usize,
    ) -> (Option<Residual<'_>>, (&mut [f32], Format)) {
        let residual = self.ops.residual.map(|r| {
            let (range, format) = self.place::<S, PAIRS>(r.format, k, first, count);
            Residual { format, ..r.part(range) }
        });
        let start = (k * RUN + (first - self.piece) % RUN) * S::LANES;
        // SAFETY: the worker's own, and one slice of it lives at a time.
        let run = unsafe { self.run.slice(start..start + count * S::LANES) };
        (residual, (run, Format::F32))
    }

    /// Writes the results of pixels, numbered row by row, `width` in each, to where they belong in
    /// the plane that starts at `to` and holds a block in this format.
    #[inline(always)]
    fn scatter<S: Simd>(
        &self,
        s: S,
        spread: Spread,
        width: usize,
        pixels: Range<usize>,
        results: &[f32],
        (to, format): (usize, Format),
    ) {
        let mut pixel = pixels.start;
        let mut results = results.chunks_exact(S::LANES);
        while pixel < pixels.end {
            let (row, column) = (pixel / width, pixel % width);
            let end = pixels.end.min(pixel + width - column);
            let first = spread.pixel([row, column]);
            for (i, result) in (&mut results).take(end - pixel).enumerate() {
                let at = to + (first + i * spread.step[1]) * S::LANES;
                // SAFETY: this task alone writes these pixels, one after the other.
                format.store(s, s.load(result), unsafe { self.ops.y.slice(at..at + S::LANES) });
            }
            pixel = end;
        }
    }
}

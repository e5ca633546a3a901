//! An image as words of bf16, so that tiles are read where its pixels lie.
//!
//! ```text
//!   plane: one term of 32 channels (or of 16, of 4), zeros around the image
//!     +---+---+---+---+---+---+
//!     | 0 | 0 | 0 | 0 | 0 | 0 |      a cell: the words of a pixel, 64 bytes of 32 channels
//!     +---+---+---+---+---+---+
//!     | 0 |p00|p01|p02|p03| 0 |      a row of A: 16 words from a cell on
//!     +---+---+---+---+---+---+      a tile of A under a tap: cells of pixels that follow each
//!     | 0 |p10|p11|p12|p13| 0 |      other, so many of them as the tile has rows
//! ```
//! With cells of 32 channels a tap is a step of the sum. Smaller ones are neighbours of the next
//! taps' along the row of a window: a step takes a *run* of them, eight of 4 channels or two of 16.
//! What a run reads past the window meets weights of zero.
//!
//! A tile's pixels are those of one row of the output, or (*flat*, where windows have no stride) go
//! on through the padding between rows: columns that are computed for nothing, where rows are short
//! and would leave more rows of the tiles empty. A window of one tap has no padding between rows,
//! and its plane holds nothing but the pixels that it reads, whatever its stride.
//!
//! Where the image is words of bf16 and a window is one pixel, its blocks are such planes: tiles
//! are loaded from the image itself ([`Canvas::is_image`]).

use crate::nchwc::window::Window;
use plutino_cpu::simd::{Simd, Vectorized};
use plutino_cpu::tiles::{BLOCK, STEP, TILE, Terms, rows_of_tile};
use std::ops::Range;

/// Channels of a cell of a plain image, and of one that has no more than these.
const FEW: usize = 4;
const HALF: usize = 16;

/// Numbers of a step.
pub(super) const NUMBERS: usize = 2 * STEP;

/// How the image of a group becomes planes of words.
#[derive(Debug, Clone)]
pub(super) struct Canvas {
    /// Lanes of a channel block, or none where channels are planes.
    lanes: Option<usize>,
    pub(super) channels: usize,
    terms: Terms,
    /// Numbers of a cell, and planes of cells.
    pub(super) cell: usize,
    pub(super) planes: usize,
    /// Taps of a run, and runs of a row of the window.
    taps: usize,
    pub(super) runs: usize,
    pub(super) kernel: [usize; 2],
    /// Pixels of the image from one of the plane to the next.
    take: [usize; 2],
    /// Steps of windows, in pixels of the plane.
    stride: [usize; 2],
    dilation: [usize; 2],
    pad: [usize; 2],
    input: [usize; 2],
    pub(super) output: [usize; 2],
    /// Pixels from one row of a plane to the next.
    pitch: usize,
    flat: bool,
}

impl Canvas {
    /// For the channels of a group, in blocks of so many lanes or plain. None where a plain image
    /// has more than four, or a window of one tap.
    pub(super) fn of(
        window: &Window,
        channels: usize,
        lanes: Option<usize>,
        terms: Terms,
    ) -> Option<Self> {
        let single = window.kernel == [1, 1];
        if !window.is_padded_little() || lanes.is_none() && (channels > FEW || single) {
            return None;
        }
        let cell = match lanes {
            None => FEW,
            Some(HALF) if channels <= HALF => HALF,
            Some(_) => NUMBERS,
        };
        let taps = if window.dilation[1] == 1 { NUMBERS / cell } else { 1 };
        let [extent, w] = [window.extent(1), window.input[1]];
        let pad = window.pad[1];
        // The zeros behind a row are those before the next one, too.
        let pitch = match single {
            true => window.output[1],
            false => (extent - pad.min(extent)).max(pad + w.min(extent - pad.min(extent))),
        };
        let one = [1, 1];
        let mut canvas = Self {
            lanes,
            channels,
            terms,
            cell,
            planes: channels.div_ceil(cell),
            taps,
            runs: window.kernel[1].div_ceil(taps),
            kernel: window.kernel,
            take: if single { window.stride } else { one },
            stride: if single { one } else { window.stride },
            dilation: window.dilation,
            pad: window.pad,
            input: window.input,
            output: window.output,
            pitch,
            flat: false,
        };
        let in_rows = canvas.tiles(canvas.output[0]).cycles();
        // Padding wider than the window makes rows that are longer than those of the plane.
        let fits = canvas.stride == one && canvas.output[1] <= canvas.pitch;
        let flat = Self { flat: fits, ..canvas.clone() };
        canvas.flat = flat.flat && flat.tiles(canvas.output[0]).cycles() <= in_rows;
        Some(canvas)
    }

    /// What decides how the weights of a window are packed, beside the window: numbers of a cell,
    /// and taps of a run.
    pub(super) fn form(&self) -> [usize; 2] {
        [self.cell, self.taps]
    }

    /// Words of a cell.
    fn cell_words(&self) -> usize {
        self.cell / 2
    }

    /// Rows of the windows of all planes.
    pub(super) fn window_rows(&self) -> usize {
        self.planes * self.kernel[0]
    }

    /// Steps of the sum.
    pub(super) fn steps(&self) -> usize {
        self.window_rows() * self.runs
    }

    /// Rows of a plane for so many of the output.
    fn rows(&self, output: usize) -> usize {
        (output - 1) * self.stride[0] + (self.kernel[0] - 1) * self.dilation[0] + 1
    }

    /// Words of one term of a plane, for so many rows of the output: an odd number of lines, so
    /// that terms do not crowd one set of a cache. Tiles, runs and the padding behind the last row
    /// are read past its last pixel.
    pub(super) fn term_len(&self, output: usize) -> usize {
        let row =
            (self.output[1] - 1) * self.stride[1] + (self.kernel[1] - 1) * self.dilation[1] + 1;
        let padding = row.saturating_sub(self.pitch);
        let past = BLOCK * self.stride[1] + self.runs * self.taps + NUMBERS + padding;
        let words = (self.rows(output) * self.pitch + past) * self.cell_words();
        (words.div_ceil(STEP) | 1) * STEP
    }

    /// Words of a plane.
    pub(super) fn plane_len(&self, output: usize) -> usize {
        self.term_len(output) * self.terms.count()
    }

    /// The step `run` of row `row` of the windows, in planes from `plane` on, of so many words.
    pub(super) fn step(&self, plane_len: usize, plane: usize, row: usize, run: usize) -> usize {
        let (at, ky) = (row / self.kernel[0] - plane, row % self.kernel[0]);
        let pixel = ky * self.dilation[0] * self.pitch + run * self.taps * self.dilation[1];
        at * plane_len + pixel * self.cell_words()
    }

    /// The channel of a group and the column of the window that number `number` of a step belongs
    /// to; none where it is there for nothing.
    pub(super) fn number(&self, row: usize, run: usize, number: usize) -> Option<(usize, usize)> {
        let (tap, lane) = (number / self.cell, number % self.cell);
        let channel = row / self.kernel[0] * self.cell + lane;
        let kx = run * self.taps + tap;
        let there = tap < self.taps && kx < self.kernel[1] && channel < self.channels;
        there.then_some((channel, kx))
    }

    /// Whether an image in blocks of bf16 is what the planes would hold: cells one after the other.
    pub(super) fn is_image(&self) -> bool {
        let one = [1, 1];
        let pixel_by_pixel = (self.kernel, self.take, self.pad) == (one, one, [0, 0]);
        let whole = self.lanes == Some(STEP) && self.cell == NUMBERS && self.output == self.input;
        pixel_by_pixel && whole && self.flat
    }

    /// The words of an image in blocks of bf16 from one plane to the next, and from row to row.
    pub(super) fn of_image(&self) -> [usize; 2] {
        let row = self.input[1] * self.cell_words();
        [self.input[0] * row, row]
    }

    /// Words from a pixel of a tile to the next.
    pub(super) fn pixel_stride(&self) -> usize {
        self.stride[1] * self.cell_words()
    }

    /// How some rows of the output are cut into tiles.
    pub(super) fn tiles(&self, output: usize) -> TileCut {
        let width = self.output[1];
        if self.flat {
            let end = (output - 1) * self.pitch + width;
            let rows = rows_of_tile(end);
            let last = if self.pitch == width { end.saturating_sub(rows) } else { usize::MAX };
            return TileCut { rows, in_row: 0, count: end.div_ceil(rows), last };
        }
        let in_row = width.div_ceil(TILE);
        let rows = width.div_ceil(in_row);
        TileCut { rows, in_row, count: in_row * output, last: usize::MAX }
    }

    /// Where the words of a tile begin in a term of a plane.
    pub(super) fn first(&self, cut: TileCut, tile: usize) -> usize {
        let pixel = match cut.in_row {
            0 => cut.last.min(tile * cut.rows),
            n => tile / n * self.stride[0] * self.pitch + tile % n * cut.rows * self.stride[1],
        };
        pixel * self.cell_words()
    }

    /// The pixels of a tile that there are: the row of the tile, the pixel of the output (from the
    /// first of the rows that are cut), and how many.
    pub(super) fn runs_of(
        &self,
        cut: TileCut,
        output: usize,
        tile: usize,
    ) -> impl Iterator<Item = (usize, usize, usize)> {
        let (width, pitch) = (self.output[1], self.pitch);
        let (start, end, pitch) = match cut.in_row {
            0 if pitch == width => {
                let start = tile * cut.rows;
                (start, (start + cut.rows).min(output * width), usize::MAX)
            }
            0 => {
                let start = tile * cut.rows;
                (start, (start + cut.rows).min((output - 1) * pitch + width), pitch)
            }
            n => {
                let column = tile % n * cut.rows;
                let start = tile / n * width + column;
                (start, start + cut.rows.min(width - column), usize::MAX)
            }
        };
        let row = if cut.in_row == 0 { start.saturating_sub(cut.last) } else { 0 };
        let mut at = start;
        std::iter::from_fn(move || {
            if pitch == usize::MAX {
                let found = (at < end).then_some((row, start, end - start));
                at = end;
                return found;
            }
            if at % pitch >= width {
                at = (at / pitch + 1) * pitch;
            }
            if at >= end {
                return None;
            }
            let count = (width - at % pitch).min(end - at);
            let found = (at - start, at / pitch * width + at % pitch, count);
            at += count;
            Some(found)
        })
    }

    /// Numbers that become words, for an image.
    pub(super) fn converted(&self) -> usize {
        self.planes * self.rows(self.output[0]) * self.pitch * self.cell
    }
}

/// Tiles of some rows of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TileCut {
    /// Rows of a tile.
    pub(super) rows: usize,
    /// Tiles of a row of the output; 0 where they go on through all rows.
    in_row: usize,
    pub(super) count: usize,
    /// Where tiles go on through all rows and there is nothing between these: the last pixel that a
    /// tile may begin with, so that none is read past the last pixel.
    last: usize,
}

impl TileCut {
    /// Cycles of the products of a step and 16 columns: those of rows, and some for each tile.
    pub(super) fn cycles(self) -> usize {
        self.count.next_multiple_of(2) * (self.rows + 2)
    }
}

/// Makes the words of some planes, for some rows of the output.
pub(super) struct Fill<'a> {
    pub(super) canvas: &'a Canvas,
    /// The image of the group.
    pub(super) x: &'a [f32],
    /// Whether that is words of bf16 already, of whole cells of one term.
    pub(super) bf16: bool,
    /// What its channels are multiplied by.
    pub(super) factors: Option<&'a [f32]>,
    pub(super) planes: Range<usize>,
    pub(super) output: Range<usize>,
    pub(super) words: &'a mut [f32],
}

/// A row of a plane.
struct Row<'a> {
    /// Pixels of the image, from the first of the row on.
    from: usize,
    /// Columns of the plane that the image has.
    columns: Range<usize>,
    /// The words of all terms, `term` from one to the next.
    to: &'a mut [f32],
    term: usize,
}

impl Vectorized for Fill<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Known where words are written.
        match self.canvas.terms {
            Terms::One => self.all(s, Terms::One),
            Terms::Two => self.all(s, Terms::Two),
            Terms::Three => self.all(s, Terms::Three),
        }
    }
}

impl Fill<'_> {
    #[cfg_attr(not(unoptimised), inline(always))]
    fn all<S: Simd>(self, s: S, terms: Terms) {
        let Self { canvas: c, x, bf16, factors, planes, output, words } = self;
        let (rows, term, line) = (c.rows(output.len()), c.term_len(output.len()), c.cell_words());
        let width = c.pitch * line;
        let columns = |at: usize| at.div_ceil(c.take[1]).min(c.pitch);
        let columns = columns(c.pad[1])..columns(c.pad[1] + c.input[1]);
        for (plane, words) in planes.zip(words.chunks_exact_mut(c.plane_len(output.len()))) {
            for y in 0..rows {
                let at = (output.start * c.stride[0] + y) * c.take[0];
                let inside = at.checked_sub(c.pad[0]).filter(|&at| at < c.input[0]);
                let image = if inside.is_some() { columns.clone() } else { c.pitch..c.pitch };
                for words in words.chunks_exact_mut(term) {
                    let row = &mut words[y * width..][..width];
                    row[..image.start.min(c.pitch) * line].fill(0.0);
                    row[image.end * line..].fill(0.0);
                }
                let Some(at) = inside.filter(|_| !columns.is_empty()) else { continue };
                let first = (columns.start * c.take[1]).saturating_sub(c.pad[1]);
                let to = &mut words[y * width + columns.start * line..];
                let from = at * c.input[1] + first;
                let row = Row { from, columns: columns.clone(), to, term };
                match (c.lanes, c.cell) {
                    _ if bf16 => c.words(s, x, plane, row),
                    (None, _) => c.plain(s, terms, x, row),
                    (_, HALF) => c.halves(s, terms, x, factors, row),
                    _ => c.blocks(s, terms, x, factors, plane, row),
                }
            }
            for words in words.chunks_exact_mut(term) {
                words[rows * width..].fill(0.0);
            }
        }
    }
}

impl Canvas {
    /// The pixels of a block of channels, from one on; and what they are multiplied by, zeros where
    /// there is no channel.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn block<'a, S: Simd>(
        &self,
        s: S,
        x: &'a [f32],
        factors: Option<&[f32]>,
        block: usize,
        from: usize,
    ) -> (&'a [f32], S::F32, usize) {
        let plane = self.input[0] * self.input[1] * S::LANES;
        let valid = self.channels.saturating_sub(block * S::LANES).min(S::LANES);
        if valid == 0 {
            return (&[], s.zero(), 0);
        }
        let factor = match factors {
            Some(factors) => s.load(&factors[block * S::LANES..]),
            None => s.splat(1.0),
        };
        (&x[block * plane + from * S::LANES..(block + 1) * plane], factor, valid)
    }

    /// A row of cells of 32 channels.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn blocks<S: Simd>(
        &self,
        s: S,
        terms: Terms,
        x: &[f32],
        factors: Option<&[f32]>,
        plane: usize,
        row: Row<'_>,
    ) {
        let Row { from, columns, to, term } = row;
        let first = plane * (NUMBERS / S::LANES);
        for i in (0..STEP).step_by(S::LANES) {
            let block = first + 2 * i / S::LANES;
            let (lower, by_lower, m) = self.block(s, x, factors, block, from);
            let (upper, by_upper, n) = self.block(s, x, factors, block + 1, from);
            let step = self.take[1] * S::LANES;
            if m == S::LANES && n == S::LANES && factors.is_none() {
                // As many slices as there are pixels: nothing is asked inside.
                let end = (columns.len() - 1) * step + S::LANES;
                let (lower, upper) = (lower[..end].chunks(step), upper[..end].chunks(step));
                let width = (terms.count() - 1) * term + STEP;
                for (column, (lower, upper)) in lower.zip(upper).enumerate() {
                    let at = column * STEP + i;
                    let to = &mut to[at..at + width - i];
                    terms.write(s, [s.load(lower), s.load(upper)], to, term);
                }
                continue;
            }
            for column in 0..columns.len() {
                let a = number(s, lower, by_lower, m, column * step);
                let b = number(s, upper, by_upper, n, column * step);
                terms.write(s, [a, b], &mut to[column * STEP + i..], term);
            }
        }
    }

    /// A row of cells of 32 channels, whose words the image has.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn words<S: Simd>(&self, _: S, x: &[f32], plane: usize, row: Row<'_>) {
        let Row { from, columns, to, .. } = row;
        let (pixels, step) = (self.input[0] * self.input[1], self.take[1] * S::LANES);
        // Blocks of words of a cell.
        for i in (0..STEP).step_by(S::LANES) {
            let block = (plane * STEP + i) / S::LANES;
            let x = &x[(block * pixels + from) * S::LANES..(block + 1) * pixels * S::LANES];
            if step == STEP {
                let len = columns.len() * STEP;
                to[..len].copy_from_slice(&x[..len]);
                continue;
            }
            for column in 0..columns.len() {
                let to = &mut to[column * STEP + i..][..S::LANES];
                to.copy_from_slice(&x[column * step..][..S::LANES]);
            }
        }
    }

    /// A row of cells of one block of 16 channels: those of two pixels at a time.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn halves<S: Simd>(
        &self,
        s: S,
        terms: Terms,
        x: &[f32],
        factors: Option<&[f32]>,
        row: Row<'_>,
    ) {
        let Row { from, columns, to, term } = row;
        let (x, by, n) = self.block(s, x, factors, 0, from);
        let (len, step) = (columns.len(), self.take[1] * S::LANES);
        for column in (0..len).step_by(2) {
            let a = number(s, x, by, n, column * step);
            let b = match column + 1 < len {
                true => number(s, x, by, n, (column + 1) * step),
                false => s.zero(),
            };
            terms.write(s, [a, b], &mut to[column * (HALF / 2)..], term);
        }
    }

    /// A row of cells of up to four planes' channels: those of a vector of pixels at a time.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn plain<S: Simd>(&self, s: S, terms: Terms, x: &[f32], row: Row<'_>) {
        let Row { from, columns, to, term } = row;
        let (len, plane) = (columns.len(), self.input[0] * self.input[1]);
        let channel = |c: usize| x.get(c * plane + from..c * plane + from + len).unwrap_or(&[]);
        let x = [channel(0), channel(1), channel(2), channel(3)];
        for column in (0..len).step_by(S::LANES) {
            let n = (len - column).min(S::LANES);
            let mut pixels = [s.zero(); FEW];
            for c in 0..FEW {
                if c < self.channels {
                    pixels[c] = s.load_partial(&x[c][column..column + n]);
                }
            }
            // 0 2 and 1 3 in turn, then 0 1 2 3.
            let [even, even_rest] = s.zip(pixels[0], pixels[2]);
            let [odd, odd_rest] = s.zip(pixels[1], pixels[3]);
            let at = column * (FEW / 2);
            terms.write(s, s.zip(even, odd), &mut to[at..], term);
            terms.write(s, s.zip(even_rest, odd_rest), &mut to[at + S::LANES..], term);
        }
    }
}

/// A pixel's block times its factors; zeros where there is no channel.
#[cfg_attr(not(unoptimised), inline(always))]
fn number<S: Simd>(s: S, x: &[f32], factor: S::F32, valid: usize, at: usize) -> S::F32 {
    match valid {
        0 => s.zero(),
        n if n == S::LANES => s.mul(s.load(&x[at..]), factor),
        n => s.first(s.mul(s.load(&x[at..]), factor), n, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canvas(size: [usize; 2], kernel: usize, stride: usize, pad: usize) -> Canvas {
        let out = size.map(|n| (n + 2 * pad - kernel) / stride + 1);
        let [kernel, stride, one] = [kernel, stride, 1].map(|n| [n, n]);
        let window = Window::new(size, out, kernel, stride, one, [pad, pad]).unwrap();
        Canvas::of(&window, 64, Some(16), Terms::Three).unwrap()
    }

    /// Each pixel of the output is in one tile, in order, and where the tile's rows say.
    #[test]
    fn tiles_hold_each_pixel_once() {
        for size in [[7, 7], [14, 14], [9, 23], [1, 40], [56, 56], [5, 3]] {
            for (kernel, stride, pad) in [(3, 1, 1), (3, 2, 1), (1, 1, 0), (1, 2, 0), (2, 2, 0)] {
                if size.iter().any(|&n| n + 2 * pad < kernel) {
                    continue;
                }
                let canvas = canvas(size, kernel, stride, pad);
                for output in [1, canvas.output[0].min(3), canvas.output[0]] {
                    let cut = canvas.tiles(output);
                    let mut next = 0;
                    for tile in 0..cut.count {
                        let first = canvas.first(cut, tile) / STEP;
                        for (row, pixel, count) in canvas.runs_of(cut, output, tile) {
                            assert_eq!(pixel, next, "{canvas:?}");
                            assert!(row + count <= cut.rows);
                            let past = first + cut.rows > output * canvas.pitch;
                            assert!(kernel > 1 || !canvas.flat || !past, "{canvas:?}");
                            next += count;
                            for i in 0..count {
                                let (y, x) = (
                                    (pixel + i) / canvas.output[1] * canvas.stride[0],
                                    (pixel + i) % canvas.output[1] * canvas.stride[1],
                                );
                                let at = first + (row + i) * canvas.stride[1];
                                assert_eq!(at, y * canvas.pitch + x);
                            }
                        }
                    }
                    assert_eq!(next, output * canvas.output[1], "{canvas:?}");
                }
            }
        }
    }

    #[test]
    fn short_rows_go_on_through_the_padding() {
        assert_eq!(canvas([7, 7], 3, 1, 1).tiles(7).rows, 14);
        assert!(canvas([7, 7], 3, 1, 1).flat && !canvas([14, 14], 3, 1, 1).flat);
        let cut = canvas([56, 56], 3, 1, 1).tiles(56);
        assert_eq!((cut.rows, cut.count), (14, 4 * 56));
        // Pixels that are read and no others, with no padding between.
        assert_eq!(
            canvas([14, 14], 1, 2, 0).tiles(7),
            TileCut { rows: 13, in_row: 0, count: 4, last: 36 }
        );
    }
}

//! The three steps of a chunk, each for a part of it.

use super::Winograd;
use super::order::Places;
use super::transform::{MOST, MOST_OUT, Transform, zeros};
use crate::nchwc::format::Format;
use crate::nchwc::prefetch;
use crate::nchwc::tile::{
    NB, Panel, Position, Taps, TileBody, chain, for_each_tile, lines_ahead, tile,
};
use crate::post_ops::Residual;
use plutino_cpu::par::SharedMut;
use plutino_cpu::simd::unroll::unroll;
use plutino_cpu::simd::{Simd, Vectorized};
use std::marker::PhantomData;
use std::ops::Range;

/// What is transformed, and where it goes: one row of tiles of one input block.
pub(super) struct RowOfInput<'a> {
    /// How the block lies in its plane.
    pub(super) format: Format,
    /// Rows of that.
    pub(super) x: &'a [f32],
    /// The first row of the tiles among them; where it lies above, below zero by wrapping.
    pub(super) top: usize,
    pub(super) v: &'a SharedMut<'a, f32>,
    pub(super) v_point: usize,
    /// Where the block's tiles begin in the data of a point.
    pub(super) at: usize,
    /// Which of them are the row's.
    pub(super) places: Places,
}

/// Transforms a row, [`RowOfInput`] or [`RowOfOutput`]; with `BF16` a tensor that it is of, or the
/// residual, is of such.
pub(super) struct Transformed<'a, T, R, const BF16: bool> {
    conv: &'a Winograd,
    transform: PhantomData<T>,
    row: R,
}

impl<'a, T, R, const BF16: bool> Transformed<'a, T, R, BF16> {
    pub(super) fn new(conv: &'a Winograd, row: R) -> Self {
        Self { conv, transform: PhantomData, row }
    }
}

impl<T: Transform, const BF16: bool> Vectorized for Transformed<'_, T, RowOfInput<'_>, BF16> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let RowOfInput { format, x, top, v, v_point, at, places } = self.row;
        let format = if const { BF16 } { format } else { Format::F32 };
        // What the block before shares with this one it has asked for.
        let fetches = self.conv.fetches && format != Format::Bf16 { upper: true };
        let window = &self.conv.window;
        let b = S::LANES;
        let width = window.input[1];
        let height = x.len() / (width * b);
        let end = points::<T>(at, v_point, places.end() * b);
        assert!(end <= v.len(), "room for points");
        // Where either wraps, below zero, it ends outside.
        let inside =
            |first: usize, size| first.checked_add(T::POINTS).is_some_and(|end| end <= size);
        let mut columns = [zeros(s); MOST];
        for t in 0..self.conv.tiles[1] {
            let left = (t * T::OUT * T::STRIDE).wrapping_sub(window.pad[1]);
            let whole = inside(top, height) && inside(left, width);
            let (place, short) = places.of(t);
            let place = at + place * b;
            // What no tile before has read: its rows below theirs.
            if const { T::STRIDE == 1 } && fetches {
                let column = left.wrapping_add(prefetch::TILES * T::OUT);
                for i in T::POINTS - T::OUT..T::POINTS {
                    let pixel = top.wrapping_add(i).wrapping_mul(width).wrapping_add(column);
                    let first = x.as_ptr().wrapping_add(pixel.wrapping_mul(b));
                    prefetch::lines(s, first, T::OUT * b);
                }
            }
            for j in 0..T::POINTS {
                let ix = left.wrapping_add(j);
                let mut d = zeros(s);
                if whole {
                    let column = x.as_ptr().wrapping_add((top * width + ix) * b);
                    // SAFETY: all rows and columns of the tile are among those of x (asked).
                    unroll!(T::POINTS, |I| d[I] =
                        unsafe { format.load_ptr(s, column.wrapping_add(I * width * b)) });
                } else if ix < width {
                    unroll!(T::POINTS, |I| {
                        let iy = top.wrapping_add(I);
                        if iy < height {
                            d[I] = format.load(s, &x[(iy * width + ix) * b..]);
                        }
                    });
                }
                columns[j] = T::input_of(s, d, places.short_row);
            }
            for i in 0..T::POINTS {
                let mut line = zeros(s);
                unroll!(T::POINTS, |J| line[J] = columns[J][i]);
                let line = T::input_of(s, line, short);
                let line_of = i * T::POINTS * v_point + place;
                let v = v.as_mut_ptr().wrapping_add(line_of);
                // SAFETY: there is room (asserted), and tasks transform different tiles or blocks.
                // (At points that a short tile does not have, what is written is not read.)
                unroll!(T::POINTS, |J| unsafe {
                    s.store_ptr(line[J], v.wrapping_add(J * v_point));
                });
            }
        }
    }
}

/// Where `len` elements end that begin at `at` in the data of the last point, `distance` elements
/// for each point.
fn points<T: Transform>(at: usize, distance: usize, len: usize) -> usize {
    (T::POINTS * T::POINTS - 1) * distance + at + len
}

/// Multiplies at one point: some tiles of the chunk with some pairs of output blocks.
pub(super) struct Product<'a> {
    pub(super) v: &'a [f32],
    pub(super) m: &'a SharedMut<'a, f32>,
    pub(super) at: usize,
    pub(super) weights: &'a [f32],
    pub(super) pairs: Range<usize>,
    pub(super) part: Range<usize>,
    /// Tiles of the chunk.
    pub(super) tiles: usize,
    pub(super) channels: usize,
    /// Terms that are added one after the other.
    pub(super) chain: usize,
    /// f32 of the weights of all points.
    pub(super) total: usize,
}

impl Vectorized for Product<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let b = S::LANES;
        assert!(self.part.end <= self.tiles, "tiles of a chunk");
        let panel = self.channels * NB * b;
        let first = self.part.start * b;
        for pair in self.pairs {
            let weights = &self.weights[pair * panel..(pair + 1) * panel];
            let taps = Taps {
                ahead: lines_ahead::<S>(self.total, panel, self.part.len(), b),
                x: self.v[first..].as_ptr(),
                table: &[],
                adds: &[],
                pixels: self.part.len(),
                taps: 1,
                channels: self.channels,
                block: b,
                step: self.tiles * b,
                pixel: b,
                chain: chain(self.chain, b, 1),
            };
            let mut body = ProductTile {
                panel: Panel::new::<S>(&taps, weights),
                m: self.m,
                at: self.at + pair * NB * self.tiles * b + first,
                plane: self.tiles * b,
            };
            for_each_tile(s, 0..self.part.len(), &mut body);
        }
    }
}

struct ProductTile<'a> {
    panel: Panel<'a>,
    m: &'a SharedMut<'a, f32>,
    /// Where the first pixel lies in m.
    at: usize,
    /// From one output block to the next.
    plane: usize,
}

impl TileBody for ProductTile<'_> {
    #[cfg_attr(not(unoptimised), inline(always))]
    fn tile<S: Simd, const MR: usize>(&mut self, s: S, first: usize) {
        let b = S::LANES;
        // SAFETY: the tiles of the part, in every block of input channels, lie inside v: `Product`
        // is given `in_blocks * tiles * b` elements, and begins with the part; there is one tap.
        let [mut sums, second] =
            unsafe { tile::<S, S, MR, { Position::DENSE }, NB, false>(s, &self.panel, first) };
        for k in 0..NB {
            let at = self.at + k * self.plane + first * b;
            // SAFETY: tasks write different points, pairs or parts of the tiles.
            let m = unsafe { self.m.slice(at..at + MR * b) };
            unroll!(MR, |J| s.store(sums[J], &mut m[J * b..]));
            sums = second; // registers have no index
        }
    }
}

/// What is transformed back, and where it goes: one row of tiles of one output block.
pub(super) struct RowOfOutput<'a> {
    pub(super) m: &'a [f32],
    pub(super) m_point: usize,
    /// As for the input.
    pub(super) at: usize,
    pub(super) places: Places,
    pub(super) bias: &'a [f32],
    /// Of the output plane.
    pub(super) residual: Option<Residual<'a>>,
    pub(super) y: &'a SharedMut<'a, f32>,
    /// Where the output plane starts in y.
    pub(super) plane: usize,
    /// How the block lies there.
    pub(super) format: Format,
    pub(super) row: usize,
}

impl<T: Transform, const BF16: bool> Vectorized for Transformed<'_, T, RowOfOutput<'_>, BF16> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let RowOfOutput { m, m_point, at, places, bias, residual, y, plane, format, row } =
            self.row;
        let b = S::LANES;
        let [height, width] = self.conv.window.output;
        let bias = s.load(bias);
        let finish = self.conv.finish;
        let rows = T::OUT.min(height - row * T::OUT);
        let end = points::<T>(at, m_point, places.end() * b);
        assert!(end <= m.len(), "all points");
        let mut columns = [[s.zero(); MOST_OUT]; MOST];
        for t in 0..self.conv.tiles[1] {
            let (place, short) = places.of(t);
            let place = at + place * b;
            for j in 0..T::POINTS {
                let mut points = zeros(s);
                let column = m.as_ptr().wrapping_add(j * m_point + place);
                // SAFETY: the points are all there (asserted).
                unroll!(T::POINTS, |I| points[I] =
                    unsafe { s.load_ptr(column.wrapping_add(I * T::POINTS * m_point)) });
                columns[j] = T::output_of(s, points, places.short_row);
            }
            let cols = T::OUT.min(width - t * T::OUT);
            for i in 0..rows {
                let mut line = zeros(s);
                unroll!(T::POINTS, |J| line[J] = columns[J][i]);
                let mut sums = T::output_of(s, line, short);
                for sum in &mut sums {
                    *sum = s.add(*sum, bias);
                }
                let at = ((row * T::OUT + i) * width + t * T::OUT) * b;
                // SAFETY: tasks write different rows or words.
                let y = unsafe { y.slice(plane + at..plane + at + cols * b) };
                let y = (y, format);
                let residual = residual.map(|r| r.part(at..at + cols * b));
                let [a, b, c, d, _] = sums;
                match T::OUT {
                    2 => finish.store::<S, 2, false, BF16>(s, [a, b], residual, y),
                    4 => finish.store::<S, 4, false, BF16>(s, [a, b, c, d], residual, y),
                    _ => finish.store::<S, MOST_OUT, false, BF16>(s, sums, residual, y),
                }
            }
        }
    }
}

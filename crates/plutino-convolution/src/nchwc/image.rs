//! Images as the first convolution reads them where windows reach outside: planes with padded
//! borders.
//!
//! A plain image has few channels, too few for blocks of a vector. In its copy, of all of it or of
//! what a part of the output needs, no tap lies in padding, and where a tap lies is the sum of a
//! number of the pixel and one of the tap. A task that makes a copy of its own reads it from the
//! cache; what neighbours share is copied twice. The copy may be one of words: two planes become
//! one of pairs of bf16.

use super::window::{Line, Window};
use plutino_cpu::Par;
use plutino_cpu::halves::nearest_pair;
use plutino_cpu::par::{SharedMut, part_of};
use plutino_cpu::simd::{Isa, Simd, Vectorized};
use std::ops::Range;

/// How an output plane is cut into parts, and the copy of the image that each needs.
#[derive(Debug, Clone)]
pub(super) struct PaddedImage {
    /// The window on the image.
    whole: Window,
    /// The window on the copy: its output is a part, of several rows or of some of the columns of
    /// one row.
    pub(super) window: Window,
    /// Parts of a plane: vertically, and horizontally.
    parts: [usize; 2],
    channels: usize,
    /// What makes words, where the copy consists of them.
    words: Option<Isa>,
}

impl PaddedImage {
    /// Cuts the output of `window` into parts of `pixels` pixels, or a little more; of many more
    /// where neighbours would share more than a quarter of what they copy. Where that takes more
    /// than `longest` bytes, rows are cut.
    pub(super) fn new(window: &Window, channels: usize, pixels: usize, longest: usize) -> Self {
        let [rows, cols] = window.output;
        let least = |axis: usize| {
            let taps = (window.kernel[axis] - 1) * window.dilation[axis] + 1;
            let shared = taps.saturating_sub(window.stride[axis]); // with the next pixel
            (4 * shared).div_ceil(window.stride[axis]).max(1)
        };
        let part = |output: [usize; 2]| {
            let part = Window { output, pad: [0, 0], ..window.clone() };
            Window { input: [part.extent(0), part.extent(1)], ..part }
        };
        let even = |all: usize, least: usize| all.div_ceil((all / least).max(1));
        let mut window_of_part = part([even(rows, least(0).max(pixels / cols)), cols]);
        if window_of_part.input_pixels() * channels * size_of::<f32>() > longest {
            window_of_part = part([1, even(cols, least(1).max(pixels))]);
        }
        let [high, wide] = window_of_part.output;
        let parts = [rows.div_ceil(high), cols.div_ceil(wide)];
        Self { whole: window.clone(), window: window_of_part, parts, channels, words: None }
    }

    /// With words of two channels in the copy, in which an odd last one stands beside zeros.
    pub(super) fn of_words(self, isa: Isa) -> Self {
        Self { words: Some(isa), ..self }
    }

    /// The output as a single part.
    pub(super) fn whole(window: &Window, channels: usize) -> Self {
        let (whole, window) = (window.clone(), window.on_padded());
        Self { whole, window, parts: [1, 1], channels, words: None }
    }

    /// Parts of a plane.
    pub(super) fn parts(&self) -> usize {
        self.parts[0] * self.parts[1]
    }

    /// Channels of the image.
    #[inline]
    pub(super) fn channels(&self) -> usize {
        self.channels
    }

    /// Planes of the copy.
    #[inline]
    pub(super) fn planes(&self) -> usize {
        if self.words.is_some() { self.channels.div_ceil(2) } else { self.channels }
    }

    /// f32 of the copy for one part.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.window.input_pixels() * self.planes()
    }

    /// Copies `x`, an image `(channels, H, W)`, to `y` of [`PaddedImage::len`], where there is but
    /// one part.
    pub(super) fn copy_whole(&self, x: &[f32], y: &mut [f32], par: &Par) {
        let [rows, line] = self.window.input;
        let y = SharedMut::new(&mut y[..self.len()]);
        par.split_planes([1, self.planes(), rows], (1 << 14) / line, |_, lines| {
            for at in lines {
                // SAFETY: tasks write different rows of the copy.
                let y = unsafe { y.slice(at * line..(at + 1) * line) };
                self.copy_row(x, at / rows, [at % rows, 0], y);
            }
        });
    }

    /// Copies what `part` needs of `x`, an image `(channels, H, W)`, to `y` of
    /// [`PaddedImage::len`]. Output pixels of the part: they follow each other, and the copy is as
    /// if the first of them were that of the window on it.
    pub(super) fn copy_part(&self, x: &[f32], part: usize, y: &mut [f32]) -> Range<usize> {
        let [height, width] = self.whole.output;
        let rows = part_of(part / self.parts[1], self.parts[0], height);
        let cols = part_of(part % self.parts[1], self.parts[1], width);
        let (oy, ox, rows, cols) = (rows.start, cols.start, rows.len(), cols.len());
        let lines = Window { output: [rows, cols], ..self.window.clone() }.extent(0);
        let (top, left) = (oy * self.whole.stride[0], ox * self.whole.stride[1]);
        for (c, y) in y[..self.len()].chunks_exact_mut(self.window.input_pixels()).enumerate() {
            for (row, y) in y.chunks_exact_mut(self.window.input[1]).take(lines).enumerate() {
                self.copy_row(x, c, [top + row, left], y);
            }
        }
        let pixel = oy * width + ox;
        pixel..pixel + rows * cols // either all columns, or one row
    }

    /// Copies a row of a channel of `x`, or of the two of a plane of words, from a column on, both
    /// counted with the padding.
    #[inline]
    fn copy_row(&self, x: &[f32], plane: usize, [row, left]: [usize; 2], y: &mut [f32]) {
        let [height, width] = self.whole.input;
        let ([deep, high], [_, rows]) = (self.whole.rows(), self.window.rows());
        // A part of a plane counts its rows from that plane's first one.
        let of_slice = if deep == Line::ONE { row } else { row % rows.input };
        let slice = if deep == Line::ONE { 0 } else { row / rows.input };
        let Some((slice, row)) = deep.source(slice).zip(high.source(of_slice)) else {
            return y.fill(0.0);
        };
        let source = slice * high.input + row;
        // Columns of the copy that lie in the image, and the first of them in the image.
        let start = self.whole.pad[1].saturating_sub(left).min(y.len());
        let first = left.saturating_sub(self.whole.pad[1]).min(width);
        let reached = (width - first).min(y.len() - start);
        let (before, rest) = y.split_at_mut(start);
        let (inside, after) = rest.split_at_mut(reached);
        before.fill(0.0);
        let of = |channel: usize| &x[(channel * height + source) * width + first..][..reached];
        match self.words {
            None => inside.copy_from_slice(of(plane)),
            Some(isa) => {
                let upper = 2 * plane + 1;
                let upper = if upper < self.channels { of(upper) } else { &[] };
                isa.run(MakeWords { lower: of(2 * plane), upper, to: inside });
            }
        }
        after.fill(0.0);
    }
}

/// Makes words of the nearest bf16 of two rows, or of one that is given alone and zeros: plain
/// loops, which the compiler turns into vectors.
struct MakeWords<'a> {
    lower: &'a [f32],
    upper: &'a [f32],
    to: &'a mut [f32],
}

impl Vectorized for MakeWords<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { lower, upper, to } = self;
        if upper.is_empty() {
            for (to, &lower) in to.iter_mut().zip(lower) {
                *to = nearest_pair(lower, 0.0);
            }
        }
        for ((to, &lower), &upper) in to.iter_mut().zip(lower).zip(upper) {
            *to = nearest_pair(lower, upper);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nchwc::first_layer::FEW;
    use plutino_cpu::Pool;

    const MUCH: usize = 1 << 20;

    /// Every part against the image, window by window.
    fn check(window: &Window, channels: usize, image: &PaddedImage) {
        let plane = window.input_pixels();
        let x: Vec<f32> = (0..channels * plane).map(|i| i as f32 + 1.0).collect();
        let mut next = 0;
        let plane_of_copy = image.window.input_pixels();
        for part in 0..image.parts() {
            let mut copy = vec![f32::NAN; image.len()];
            let range = image.copy_part(&x, part, &mut copy);
            assert_eq!(range.start, next);
            next = range.end;
            let (mut starts, mut adds) = (vec![0; range.len()], vec![0; window.taps()]);
            image.window.starts(0..range.len(), &mut starts);
            image.window.adds(&mut adds);
            for (pixel, start) in range.zip(starts) {
                let (oy, ox) = (pixel / window.output[1], pixel % window.output[1]);
                for (tap, &add) in adds.iter().enumerate() {
                    let iy = window.position(0, oy, tap / window.kernel[1]);
                    let ix = window.position(1, ox, tap % window.kernel[1]);
                    let at = iy.zip(ix).map(|(y, x)| y * window.input[1] + x);
                    for c in 0..channels {
                        let wanted = at.map_or(0.0, |at| x[c * plane + at]);
                        let found = copy[c * plane_of_copy + (start + add) as usize];
                        assert_eq!(found, wanted, "{window:?} {part} {c}");
                    }
                }
            }
        }
        assert_eq!(next, window.pixels());
        if image.parts() == 1 {
            let [mut part, mut whole] = [0, 1].map(|_| vec![f32::NAN; image.len()]);
            image.copy_part(&x, 0, &mut part);
            Pool::new(2).enter(|par| image.copy_whole(&x, &mut whole, par));
            assert_eq!(part, whole);
        }
    }

    #[test]
    fn parts_hold_what_their_windows_reach() {
        for (input, kernel, stride, dilation, pad) in [
            ([31, 17], [3, 3], [1, 1], [1, 1], [1, 1]),
            ([31, 17], [7, 6], [2, 3], [1, 1], [3, 2]),
            ([9, 40], [2, 3], [4, 5], [1, 1], [0, 0]),
            ([12, 12], [3, 2], [1, 2], [3, 4], [6, 7]),
            ([3, 3], [3, 3], [1, 1], [1, 1], [9, 9]),
        ] {
            let output = [0, 1].map(|a: usize| {
                (input[a] + 2 * pad[a] - (kernel[a] - 1) * dilation[a] - 1) / stride[a] + 1
            });
            let window = Window::new(input, output, kernel, stride, dilation, pad).unwrap();
            for channels in 1..=FEW {
                for (pixels, longest) in [(1, MUCH), (50, MUCH), (1, 0), (10, 0), (MUCH, 0)] {
                    check(&window, channels, &PaddedImage::new(&window, channels, pixels, longest));
                }
                let whole = PaddedImage::whole(&window, channels);
                assert_eq!(whole.parts(), 1);
                check(&window, channels, &whole);
            }
        }
    }

    #[test]
    fn long_rows_are_cut() {
        let window = Window::new([2, 900], [2, 900], [1, 5], [1, 1], [1, 1], [0, 2]).unwrap();
        let image = PaddedImage::new(&window, 1, 100, 1000);
        assert_eq!((image.parts, image.window.input), ([2, 9], [1, 104]));
        check(&window, 1, &image);
    }

    #[test]
    fn neighbours_share_a_quarter_at_most() {
        let window = Window::new([99, 50], [99, 50], [9, 9], [1, 1], [1, 1], [4, 4]).unwrap();
        let image = PaddedImage::new(&window, 3, 100, MUCH);
        assert_eq!((image.window.output[0], image.window.input[0]), (33, 33 + 8));
    }
}

//! Sliding windows over a plane, or a volume: which input pixel lies under which tap of which
//! output pixel.
//!
//! A volume is a plane whose rows are those of all its slices, one slice after the other, and so
//! are the rows of its window:
//!
//! ```text
//! (D, H, W) as (D H, W)      row of the plane = slice * H + row of the slice
//! ```
//! What reads where taps lie from a table needs no more than that (nchwc/direct.rs). Winograd's
//! algorithms take slices as images ([`Slices`]).

use crate::problem::{Axis, ConvProblem, PadMode};
use plutino_cpu::simd::Simd;
use std::ops::Range;

/// The two axes of a convolution on planes, as the kernels step through them: every position it
/// yields lies inside the input plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Window {
    /// Height and width of the input.
    pub(crate) input: [usize; 2],
    /// Height and width of the output.
    pub(crate) output: [usize; 2],
    /// Height and width of the window, in taps.
    pub(crate) kernel: [usize; 2],
    /// Pixels from one window to the next.
    pub(crate) stride: [usize; 2],
    /// Pixels from one tap to the next.
    pub(crate) dilation: [usize; 2],
    /// Padding above and left of the input; below and right it follows from the output's size.
    pub(crate) pad: [usize; 2],
    /// Of a volume, its depth and its height, which together make the rows. What else is said of
    /// rows is then of no use but their number.
    pub(super) volume: Option<[Line; 2]>,
}

/// One dimension of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) kernel: usize,
    stride: usize,
    dilation: usize,
    pad: usize,
}

impl Line {
    /// A single slice.
    pub(super) const ONE: Self =
        Self { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, pad: 0 };

    fn of(axis: &Axis) -> Self {
        let crate::problem::Window { kernel, stride, dilation, padding, .. } = axis.window();
        let (input, output) = (axis.input(), axis.output());
        Self { input, output, kernel, stride, dilation, pad: padding.0 }
    }

    /// Whether each output is made of the input of the same number.
    fn is_pointwise(self) -> bool {
        let Self { kernel, stride, pad, input, output, .. } = self;
        (kernel, stride, pad) == (1, 1, 0) && input == output
    }

    /// What windows reach, the padding included.
    #[inline]
    fn extent(self) -> usize {
        (self.output - 1) * self.stride + (self.kernel - 1) * self.dilation + 1
    }

    /// On the input with its padding.
    fn padded(self) -> Self {
        Self { input: self.extent(), pad: 0, ..self }
    }

    /// Where a place of the input with its padding lies in the input.
    #[inline]
    pub(super) fn source(self, padded: usize) -> Option<usize> {
        padded.checked_sub(self.pad).filter(|&i| i < self.input)
    }

    /// Two dimensions in which nothing lies beside another.
    fn merged(self, with: Self) -> Option<Self> {
        let (input, output) =
            (self.input.checked_mul(with.input)?, self.output.checked_mul(with.output)?);
        let both = self.is_pointwise() && with.is_pointwise();
        both.then_some(Self { input, output, ..Self::ONE })
    }

    /// The input under tap `k` of output `o`.
    #[inline]
    pub(super) fn position(self, o: usize, k: usize) -> Option<usize> {
        self.source(o * self.stride + k * self.dilation)
    }
}

/// A volume as slices: those of the output are windows on the same planes of several slices of the
/// input, whose channels are as many more.
#[derive(Debug, Clone)]
pub(super) struct Slices {
    pub(super) depth: Line,
    /// On a slice.
    pub(super) window: Window,
}

/// Stands in an offset table for a tap that lies in the padding.
pub(super) const OUTSIDE: isize = -1;

impl Slices {
    /// Those of a problem with zeros around its image, which is not transposed; a plane is a single
    /// slice. None where a number is too large for the kernels' arithmetic.
    pub(super) fn of(problem: &ConvProblem) -> Option<Self> {
        if let Some(window) = Window::of(problem) {
            return Some(Self { depth: Line::ONE, window });
        }
        let [depth, height, width] = Window::lines(problem)?;
        Window::on_plane(depth, Line::ONE)?;
        Some(Self { depth, window: Window::on_plane(height, width)? })
    }
}

impl Window {
    /// That of a problem of planes with zeros around its image, which is not transposed: of one or
    /// two dimensions, or of three where two are as good as one. None where a number is too large
    /// for the kernels' arithmetic.
    pub(crate) fn of(problem: &ConvProblem) -> Option<Self> {
        let [d, h, w] = Self::lines(problem)?;
        let [rows, columns] = if d == Line::ONE {
            [h, w]
        } else if h == Line::ONE {
            [d, w]
        } else if let Some(slice) = h.merged(w) {
            [d, slice]
        } else {
            [d.merged(h)?, w]
        };
        Self::on_plane(rows, columns)
    }

    /// The same, or on a volume.
    pub(super) fn of_volume(problem: &ConvProblem) -> Option<Self> {
        if let Some(window) = Self::of(problem) {
            return Some(window);
        }
        let [d, h, w] = Self::lines(problem)?;
        let rows = Line {
            input: d.input.checked_mul(h.input)?,
            output: d.output.checked_mul(h.output)?,
            kernel: d.kernel.checked_mul(h.kernel)?,
            stride: d.stride.checked_mul(h.stride)?,
            dilation: 1,
            pad: 0,
        };
        // Each of them fits, too.
        Self::on_plane(d, h)?;
        Some(Self { volume: Some([d, h]), ..Self::on_plane(rows, w)? })
    }

    /// The dimensions of a problem with zeros around its image, which is not transposed.
    fn lines(problem: &ConvProblem) -> Option<[Line; 3]> {
        let zeros = problem.axes().iter().all(|a| a.window().mode == PadMode::Zeros);
        (zeros && !problem.is_transposed()).then(|| problem.axes().each_ref().map(Line::of))
    }

    fn on_plane(rows: Line, columns: Line) -> Option<Self> {
        let both = |f: fn(Line) -> usize| [f(rows), f(columns)];
        Self::new(
            both(|l| l.input),
            both(|l| l.output),
            both(|l| l.kernel),
            both(|l| l.stride),
            both(|l| l.dilation),
            both(|l| l.pad),
        )
    }

    /// A window whose every number fits the arithmetic of the kernels; none where one is zero (but
    /// padding), or the planes exceed 2^31 pixels.
    pub(crate) fn new(
        input: [usize; 2],
        output: [usize; 2],
        kernel: [usize; 2],
        stride: [usize; 2],
        dilation: [usize; 2],
        pad: [usize; 2],
    ) -> Option<Self> {
        const LIMIT: usize = 1 << 31;
        let positive =
            [input, output, kernel, stride, dilation].iter().flatten().all(|&v| v > 0 && v < LIMIT);
        let small = |[h, w]: [usize; 2]| h.checked_mul(w).is_some_and(|n| n < LIMIT);
        let planes =
            small(input) && small(output) && small(kernel) && pad.iter().all(|&p| p < LIMIT);
        (positive && planes).then_some(Self {
            input,
            output,
            kernel,
            stride,
            dilation,
            pad,
            volume: None,
        })
    }

    /// Some rows of the output by themselves: their window, and the rows of the input that it is
    /// on.
    pub(super) fn of_rows(&self, rows: Range<usize>) -> (Self, Range<usize>) {
        let (pad, height) = (self.pad[0], self.input[0]);
        let first = rows.start * self.stride[0];
        let part = Self { output: [rows.len(), self.output[1]], ..self.clone() };
        let end = first + part.extent(0);
        let start = first.saturating_sub(pad).min(height);
        let read = start..end.saturating_sub(pad).clamp(start, height);
        let (input, pad) = ([read.len(), self.input[1]], [pad.saturating_sub(first), self.pad[1]]);
        (Self { input, pad, ..part }, read)
    }

    /// Output pixels of a plane.
    #[inline]
    pub(crate) fn pixels(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Input pixels of a plane.
    #[inline]
    pub(crate) fn input_pixels(&self) -> usize {
        self.input[0] * self.input[1]
    }

    /// Taps of the window.
    #[inline]
    pub(crate) fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Whether each output pixel reads the input pixel of the same number and no other: a 1x1
    /// convolution with stride 1.
    #[inline]
    pub(crate) fn is_pointwise(&self) -> bool {
        self.is_sample() && self.stride == [1, 1] && self.input == self.output
    }

    /// Whether each output pixel reads one input pixel, and none of the padding: a 1x1 convolution
    /// with any stride.
    #[inline]
    pub(super) fn is_sample(&self) -> bool {
        self.kernel == [1, 1] && self.is_inside()
    }

    /// Whether no tap lies in the padding.
    #[inline]
    pub(crate) fn is_inside(&self) -> bool {
        let inside = |line: Line| line.pad == 0 && line.extent() <= line.input;
        self.rows().into_iter().all(inside) && inside(self.line(1))
    }

    /// The rows (or the columns, by `axis`), which are not those of a volume.
    #[inline]
    fn line(&self, axis: usize) -> Line {
        Line {
            input: self.input[axis],
            output: self.output[axis],
            kernel: self.kernel[axis],
            stride: self.stride[axis],
            dilation: self.dilation[axis],
            pad: self.pad[axis],
        }
    }

    /// The dimensions of the rows: slices, and rows of a slice.
    #[inline]
    pub(super) fn rows(&self) -> [Line; 2] {
        self.volume.unwrap_or([Line::ONE, self.line(0)])
    }

    /// Whether it is on a plane.
    #[inline]
    pub(super) fn is_on_plane(&self) -> bool {
        self.volume.is_none()
    }

    /// Rows (or columns, by `axis`) that windows reach, those of the padding included; not of a
    /// volume.
    #[inline]
    pub(super) fn extent(&self, axis: usize) -> usize {
        debug_assert!(axis == 1 || self.volume.is_none());
        self.line(axis).extent()
    }

    /// The window on the input with its padding, of which it reaches everything.
    pub(super) fn on_padded(&self) -> Self {
        let [depth, height] = self.rows().map(Line::padded);
        Self {
            input: [depth.input * height.input, self.extent(1)],
            pad: [0, 0],
            volume: self.volume.map(|_| [depth, height]),
            ..self.clone()
        }
    }

    /// Whether the input with its padding is not much larger than the input alone, so that a padded
    /// copy is no waste: at most twice as high and as wide, and 64 more.
    pub(crate) fn is_padded_little(&self) -> bool {
        let little = |line: Line| line.extent() <= 2 * line.input + 64;
        self.rows().into_iter().all(little) && little(self.line(1))
    }

    /// The input row (or column, by `axis`) under tap `k` of output row (column) `o`.
    #[inline]
    pub(super) fn position(&self, axis: usize, o: usize, k: usize) -> Option<usize> {
        if let (0, Some([depth, height])) = (axis, self.volume) {
            let slice = depth.position(o / height.output, k / height.kernel)?;
            let row = height.position(o % height.output, k % height.kernel)?;
            return Some(slice * height.input + row);
        }
        self.line(axis).position(o, k)
    }

    /// The rows (or columns, by `axis`) of the window that lie in no padding, at output row
    /// (column) `o`.
    #[inline]
    pub(super) fn taps_inside(&self, axis: usize, o: usize) -> Range<usize> {
        let start = o * self.stride[axis];
        // Rows from the window's first one to `limit`, one of the input with its padding above.
        let taps = |limit: usize| {
            limit.saturating_sub(start).div_ceil(self.dilation[axis]).min(self.kernel[axis])
        };
        taps(self.pad[axis])..taps(self.pad[axis] + self.input[axis])
    }

    /// Fills `table[tap * pixels.len() + p]` with the number of the input pixel under `tap` of
    /// output pixel `pixels.start + p`, times `scale`; [`OUTSIDE`] for a tap in the padding.
    pub(super) fn offsets(&self, pixels: Range<usize>, scale: usize, table: &mut [isize]) {
        let n = pixels.len();
        debug_assert!(table.len() >= n * self.taps());
        let width = self.output[1];
        for ky in 0..self.kernel[0] {
            for kx in 0..self.kernel[1] {
                let inside = self.inside(kx);
                let tap = ky * self.kernel[1] + kx;
                let mut line = &mut table[tap * n..(tap + 1) * n];
                let mut pixel = pixels.start;
                // Piece by piece of the output's rows.
                while !line.is_empty() {
                    let (oy, start) = (pixel / width, pixel % width);
                    let (piece, rest) = line.split_at_mut((width - start).min(line.len()));
                    let end = start + piece.len();
                    pixel += piece.len();
                    line = rest;
                    let Some(iy) = self.position(0, oy, ky) else {
                        piece.fill(OUTSIDE);
                        continue;
                    };
                    let from = inside.start.clamp(start, end);
                    let to = inside.end.clamp(from, end);
                    piece[..from - start].fill(OUTSIDE);
                    piece[to - start..].fill(OUTSIDE);
                    // Of column `from`; where there is none, it is not used.
                    let ix =
                        (from * self.stride[1] + kx * self.dilation[1]).saturating_sub(self.pad[1]);
                    let first = ((iy * self.input[1] + ix) * scale) as isize;
                    let step = (self.stride[1] * scale) as isize;
                    for (i, at) in piece[from - start..to - start].iter_mut().enumerate() {
                        *at = first + i as isize * step;
                    }
                }
            }
        }
    }

    /// The number of the input pixel under the first tap of an output pixel, of a window that is
    /// [inside](Self::is_inside).
    #[inline]
    pub(super) fn start(&self, pixel: usize) -> usize {
        let (oy, ox) = (pixel / self.output[1], pixel % self.output[1]);
        let row = match self.volume {
            None => oy * self.stride[0],
            Some([depth, height]) => {
                let (slice, row) = (oy / height.output, oy % height.output);
                slice * depth.stride * height.input + row * height.stride
            }
        };
        row * self.input[1] + ox * self.stride[1]
    }

    /// [`Window::start`] of each of `pixels`.
    #[inline]
    pub(super) fn starts(&self, pixels: Range<usize>, table: &mut [isize]) {
        let (mut pixel, mut rest) = (pixels.start, table);
        while !rest.is_empty() {
            let row = self.output[1] - pixel % self.output[1];
            let (piece, after) = rest.split_at_mut(row.min(rest.len()));
            for (i, start) in (self.start(pixel)..).step_by(self.stride[1]).zip(piece.iter_mut()) {
                *start = i as isize;
            }
            pixel += piece.len();
            rest = after;
        }
    }

    /// What each tap adds to where the first one lies, in pixels of the input.
    #[inline]
    pub(super) fn adds(&self, table: &mut [isize]) {
        for (tap, add) in table.iter_mut().enumerate() {
            let (ky, kx) = (tap / self.kernel[1], tap % self.kernel[1]);
            let [depth, height] = self.rows();
            let (slice, row) = (ky / height.kernel, ky % height.kernel);
            let row = slice * depth.dilation * height.input + row * height.dilation;
            *add = (row * self.input[1] + kx * self.dilation[1]) as isize;
        }
    }

    /// Copies the pixels under a window that [samples](Self::is_sample), one after the other and
    /// plane by plane, from planes of channel blocks. Panics where a slice is too short.
    #[inline(always)]
    pub(super) fn sample<S: Simd>(
        &self,
        s: S,
        x: &[f32],
        planes: Range<usize>,
        pixels: Range<usize>,
        copy: &mut [f32],
    ) {
        let plane = self.input_pixels() * S::LANES;
        let mut copy = copy[..planes.len() * pixels.len() * S::LANES].chunks_exact_mut(S::LANES);
        for x in x[planes.start * plane..planes.end * plane].chunks_exact(plane) {
            let mut pixel = pixels.start;
            while pixel < pixels.end {
                let (row, column) = (pixel / self.output[1], pixel % self.output[1]);
                let run = (self.output[1] - column).min(pixels.end - pixel);
                let first = row * self.stride[0] * self.input[1] + column * self.stride[1];
                let from = x[first * S::LANES..].chunks(self.stride[1] * S::LANES);
                for (from, to) in from.zip((&mut copy).take(run)) {
                    s.store(s.load(from), to);
                }
                pixel += run;
            }
        }
    }

    /// The output columns whose tap `kx` lies in no padding.
    #[inline]
    fn inside(&self, kx: usize) -> Range<usize> {
        let (tap, pad) = (kx * self.dilation[1], self.pad[1]);
        let columns = |limit: usize| limit.saturating_sub(tap).div_ceil(self.stride[1]);
        columns(pad)..columns(pad + self.input[1])
    }
}

#[cfg(test)]
mod tests {
    use super::super::image::PaddedImage;
    use super::*;

    #[test]
    fn offsets_of_a_padded_3x3() {
        let w = Window::new([3, 4], [3, 4], [3, 3], [1, 1], [1, 1], [1, 1]).unwrap();
        let mut table = vec![0; 9 * 2];
        w.offsets(0..2, 8, &mut table);
        let taps_of_first: Vec<_> = table.iter().step_by(2).copied().collect();
        let o = OUTSIDE;
        assert_eq!(taps_of_first, [o, o, o, o, 0, 8, o, 32, 40]);
    }

    #[test]
    fn offsets_are_positions() {
        for (kernel, stride, dilation, pad) in [
            ([3, 3], [1, 1], [1, 1], [1, 1]),
            ([5, 2], [2, 3], [1, 4], [2, 3]),
            ([7, 7], [2, 2], [1, 1], [3, 3]),
            ([1, 9], [1, 1], [1, 2], [0, 20]), // whole columns of padding
        ] {
            let w = Window::new([6, 11], [4, 5], kernel, stride, dilation, pad).unwrap();
            for pixels in [0..20, 3..17, 7..8] {
                let n = pixels.len();
                let mut table = vec![77; n * w.taps()];
                w.offsets(pixels.clone(), 8, &mut table);
                for (p, pixel) in pixels.clone().enumerate() {
                    for axis in [0, 1] {
                        let o = [pixel / 5, pixel % 5][axis];
                        let inside = w.taps_inside(axis, o);
                        for k in 0..kernel[axis] {
                            assert_eq!(inside.contains(&k), w.position(axis, o, k).is_some());
                        }
                    }
                    for tap in 0..w.taps() {
                        let y = w.position(0, pixel / 5, tap / kernel[1]);
                        let x = w.position(1, pixel % 5, tap % kernel[1]);
                        let at = y.zip(x).map_or(OUTSIDE, |(y, x)| (y * 11 + x) as isize * 8);
                        assert_eq!(table[tap * n + p], at, "{w:?} {pixel} {tap}");
                    }
                }
                let padded = PaddedImage::whole(&w, 1).window;
                assert!(padded.is_inside() && !w.is_inside());
                padded.offsets(pixels.clone(), 1, &mut table);
                let (mut starts, mut adds) = (vec![0; n], vec![0; w.taps()]);
                padded.starts(pixels.clone(), &mut starts);
                padded.adds(&mut adds);
                for (i, &at) in table.iter().enumerate() {
                    assert_eq!(starts[i % n] + adds[i / n], at);
                }
            }
        }
    }

    #[test]
    fn some_rows_read_what_they_read_among_all() {
        for (kernel, stride, dilation, pad) in
            [(3, 1, 1, 1), (5, 2, 1, 2), (3, 2, 3, 4), (1, 3, 1, 0)]
        {
            let rows = (11 + 2 * pad - (kernel - 1) * dilation - 1) / stride + 1;
            let both = |n: usize| [n, 1];
            let (kernels, strides) = (both(kernel), both(stride));
            let sizes = ([11, 6], [rows, 6]);
            let w =
                Window::new(sizes.0, sizes.1, kernels, strides, both(dilation), [pad, 0]).unwrap();
            for start in 0..rows {
                for end in start + 1..=rows {
                    let (part, read) = w.of_rows(start..end);
                    assert_eq!((part.input, part.output), ([read.len(), 6], [end - start, 6]));
                    for row in start..end {
                        for k in 0..kernel {
                            let of_part = part.position(0, row - start, k);
                            assert_eq!(of_part.map(|i| i + read.start), w.position(0, row, k));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Window::new([1 << 20, 1 << 20], [1, 1], [1, 1], [1, 1], [1, 1], [0, 0]).is_none());
        assert!(Window::new([1, 1], [1, 1], [1, 1], [0, 1], [1, 1], [0, 0]).is_none());
    }
}

//! First layers with stride 2 as convolutions with stride 1.
//!
//! The image, of few channels, gets a channel for each of the four pixels of a square, as in
//! PyTorch's
//! [`pixel_unshuffle`](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pixel_unshuffle.html).
//! A window of 7x7 is one of 4x4 on squares, of four times as many channels; the taps that it has
//! too many are zeros. What multiplications that adds, and more, Winograd's algorithms for stride 1
//! save.

use crate::nchwc::first_layer::FEW;
use crate::nchwc::window::Window;
use plutino_tensor::Floats;
use std::ops::Range;

/// Pixels of a square: its channels lie side by side for each channel of the image, row by row.
const SQUARE: usize = 4;

/// An image whose squares are the pixels that a convolution sees.
#[derive(Debug)]
pub(super) struct Unshuffled {
    /// The window on the image.
    image: Window,
    /// The window on squares, without padding: that is part of them.
    window: Window,
    /// Channels of the image.
    channels: usize,
}

impl Unshuffled {
    /// None where the window has another stride or dilation, the image too many channels, or
    /// `block` is no vector's length.
    pub(super) fn new(image: &Window, channels: usize, block: usize) -> Option<Self> {
        let suits = image.stride == [2, 2]
            && image.dilation == [1, 1]
            && (1..=FEW).contains(&channels)
            && [4, 8, 16].contains(&block);
        let kernel = image.kernel.map(|taps| taps.div_ceil(2));
        let output = image.output;
        let input = [output[0] + kernel[0] - 1, output[1] + kernel[1] - 1];
        let window = Window::new(input, output, kernel, [1, 1], [1, 1], [0, 0])?;
        suits.then(|| Self { image: image.clone(), window, channels })
    }

    /// The window on squares.
    pub(super) fn window(&self) -> &Window {
        &self.window
    }

    /// Channels of the squares.
    pub(super) fn channels(&self) -> usize {
        SQUARE * self.channels
    }

    /// Padding of the image above and left: squares begin there.
    pub(super) fn pad(&self) -> [usize; 2] {
        self.image.pad
    }

    /// Elements of an image.
    pub(super) fn image_len(&self) -> usize {
        self.channels * self.image.input_pixels()
    }

    /// Weights of the window on squares, `(out, 4 in, taps)`, from those of the window on the
    /// image, `(out, in, taps)`.
    pub(super) fn weights(&self, weight: Floats<'_>) -> Vec<f32> {
        let [height, width] = self.image.kernel;
        let [high, wide] = self.window.kernel;
        let filters = weight.len() / (height * width);
        let mut weights = vec![0.0; filters * SQUARE * high * wide]; // bounded: weights
        for (filter, planes) in weights.chunks_exact_mut(SQUARE * high * wide).enumerate() {
            for (ky, kx) in (0..height).flat_map(|ky| (0..width).map(move |kx| (ky, kx))) {
                let plane = ky % 2 * 2 + kx % 2;
                planes[(plane * high + ky / 2) * wide + kx / 2] =
                    weight.get((filter * height + ky) * width + kx);
            }
        }
        weights
    }

    /// Writes `rows` of squares of a block of channels, `block` elements for each square; surplus
    /// lanes keep what they hold. `x` is an image.
    ///
    /// # Panics
    /// Where a slice is too short.
    pub(super) fn rows(
        &self,
        x: &[f32],
        channel_block: usize,
        rows: Range<usize>,
        block: usize,
        y: &mut [f32],
    ) {
        let [height, width] = self.image.input;
        let [above, left] = self.image.pad;
        let squares = self.window.input[1];
        // Those whose columns all lie in the image.
        let start = left.div_ceil(2).min(squares);
        let end = ((width + left) / 2).clamp(start, squares);
        let first = channel_block * block / SQUARE;
        let channels = first..self.channels.min(first + block / SQUARE);
        for (row, y) in rows.zip(y.chunks_exact_mut(squares * block)) {
            for (lane, (c, below)) in channels.clone().flat_map(|c| [(c, 0), (c, 1)]).enumerate() {
                let lane = 2 * lane;
                let source = (2 * row + below).checked_sub(above).filter(|&r| r < height);
                let source = source.map_or(&[][..], |r| &x[(c * height + r) * width..][..width]);
                let inside = if source.is_empty() { start..start } else { start..end };
                for square in (0..inside.start).chain(inside.end..squares) {
                    for (right, y) in y[square * block + lane..][..2].iter_mut().enumerate() {
                        let column = (2 * square + right).checked_sub(left);
                        *y = column.and_then(|c| source.get(c)).copied().unwrap_or(0.0);
                    }
                }
                if inside.is_empty() {
                    continue;
                }
                let pairs = source[2 * start - left..].as_chunks().0;
                let y = &mut y[inside.start * block..inside.end * block];
                match block {
                    16 => write_pairs::<16>(pairs, lane, y),
                    8 => write_pairs::<8>(pairs, lane, y),
                    _ => write_pairs::<4>(pairs, lane, y),
                }
            }
        }
    }
}

/// Writes pairs to two lanes of squares, of `B` lanes.
fn write_pairs<const B: usize>(pairs: &[[f32; 2]], lane: usize, squares: &mut [f32]) {
    assert!(lane + 2 <= B, "lanes of a square");
    for (square, pair) in squares.as_chunks_mut::<B>().0.iter_mut().zip(pairs) {
        square[lane..lane + 2].copy_from_slice(pair);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A direct sum over squares is that over the image.
    #[test]
    fn squares_hold_what_windows_reach() {
        for (input, kernel, pad) in [
            ([9, 12], [7, 7], [3, 3]),
            ([8, 7], [6, 5], [2, 2]),
            ([6, 5], [6, 6], [0, 1]),
            ([1, 2], [8, 7], [5, 9]),
        ] {
            for channels in 1..=FEW {
                check(input, kernel, pad, channels);
            }
        }
    }

    fn check(input: [usize; 2], kernel: [usize; 2], pad: [usize; 2], channels: usize) {
        let output = [0, 1].map(|a| (input[a] + 2 * pad[a] - kernel[a]) / 2 + 1);
        let image = Window::new(input, output, kernel, [2, 2], [1, 1], pad).unwrap();
        let x: Vec<f32> = (0..channels * image.input_pixels()).map(|i| (i % 97) as f32).collect();
        let w: Vec<f32> = (0..channels * image.taps()).map(|i| (i % 13) as f32).collect();
        for block in [8, 16] {
            let unshuffled = Unshuffled::new(&image, channels, block).unwrap();
            let window = unshuffled.window();
            let weights = unshuffled.weights(Floats::from(&w));
            let plane = window.input_pixels() * block;
            let mut squares = vec![f32::NAN; unshuffled.channels().div_ceil(block) * plane];
            for (i, plane) in squares.chunks_exact_mut(plane).enumerate() {
                unshuffled.rows(&x, i, 0..window.input[0], block, plane);
            }
            for (oy, ox) in (0..output[0]).flat_map(|y| (0..output[1]).map(move |x| (y, x))) {
                let mut expected = 0.0;
                let mut found = 0.0;
                for (ky, kx) in (0..kernel[0]).flat_map(|y| (0..kernel[1]).map(move |x| (y, x))) {
                    let Some(iy) = image.position(0, oy, ky) else { continue };
                    let Some(ix) = image.position(1, ox, kx) else { continue };
                    for c in 0..channels {
                        expected += x[(c * input[0] + iy) * input[1] + ix]
                            * w[(c * kernel[0] + ky) * kernel[1] + kx];
                    }
                }
                let [high, wide] = window.kernel;
                for (ty, tx) in (0..high).flat_map(|y| (0..wide).map(move |x| (y, x))) {
                    for c in 0..unshuffled.channels() {
                        let pixel = (oy + ty) * window.input[1] + ox + tx;
                        found += squares[c / block * plane + pixel * block + c % block]
                            * weights[(c * high + ty) * wide + tx];
                    }
                }
                // Small integers: exact.
                assert_eq!(found, expected, "{image:?} {channels} {block} {oy} {ox}");
            }
        }
    }

    #[test]
    fn other_windows_are_refused() {
        let window = |stride, dilation| {
            Window::new([9, 9], [2, 2], [3, 3], [stride; 2], [dilation; 2], [0, 0]).unwrap()
        };
        assert!(Unshuffled::new(&window(2, 1), 3, 16).is_some());
        assert!(Unshuffled::new(&window(1, 1), 3, 16).is_none());
        assert!(Unshuffled::new(&window(2, 2), 3, 16).is_none());
        assert!(Unshuffled::new(&window(2, 1), FEW + 1, 16).is_none());
    }
}

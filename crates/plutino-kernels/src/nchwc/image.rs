//! Images as the first convolution reads them: channels interleaved, borders padded.
//!
//! A plain image has few channels (at most [`FEW`]), too few for blocks of a vector. Its copy holds the
//! [`FEW`] numbers of a pixel side by side, missing channels as zeros, and a border of zeros where windows reach
//! outside: no tap lies in padding, and where a tap lies is the sum of a number of the pixel and one of the tap.

use super::direct::FEW;
use super::window::Window;
use crate::Par;
use crate::par::SharedMut;

/// The copy's geometry.
#[derive(Debug, Clone)]
pub(super) struct PaddedImage {
    /// Height and width of the image.
    image: [usize; 2],
    /// Rows above and columns to the left of it.
    pad: [usize; 2],
    /// The window on the copy.
    pub(super) window: Window,
}

impl PaddedImage {
    /// The copy that `window` can slide over without padding.
    pub(super) fn new(window: &Window) -> Self {
        let input = [window.extent(0), window.extent(1)];
        let padded = Window { input, pad: [0, 0], ..window.clone() };
        Self { image: window.input, pad: window.pad, window: padded }
    }

    /// f32 of the copy of one image.
    pub(super) fn len(&self) -> usize {
        self.window.input_pixels() * FEW
    }

    /// Copies all images: `x` is `(N, channels, H, W)`, `y` holds [`PaddedImage::len`] for each.
    pub(super) fn copy(&self, x: &[f32], channels: usize, y: &mut [f32], par: &Par) {
        let ([height, width], [rows, cols]) = (self.image, self.window.input);
        let line = cols * FEW;
        let batch = y.len() / self.len();
        assert!(x.len() == batch * channels * height * width, "lengths of an image");
        // Columns of the image that windows reach, and where the first of them goes.
        let left = self.pad[1].min(cols);
        let reached = width.min(cols - left);
        let y = SharedMut::new(y);
        par.split(batch * rows, (1 << 14) / line, |part| {
            // SAFETY: parts are different rows.
            let part_of_y = unsafe { y.slice(part.start * line..part.end * line) };
            for (row, out) in part.zip(part_of_y.chunks_exact_mut(line)) {
                let (n, row) = (row / rows, row % rows);
                let Some(source) = row.checked_sub(self.pad[0]).filter(|&r| r < height) else {
                    out.fill(0.0);
                    continue;
                };
                let of = |c: usize| &x[((n * channels + c) * height + source) * width..][..reached];
                let (before, rest) = out.split_at_mut(left * FEW);
                let (inside, after) = rest.split_at_mut(reached * FEW);
                before.fill(0.0);
                after.fill(0.0);
                if channels == 3 {
                    let pixels = of(0).iter().zip(of(1)).zip(of(2));
                    for (out, ((&r, &g), &b)) in inside.chunks_exact_mut(FEW).zip(pixels) {
                        out.copy_from_slice(&[r, g, b, 0.0]);
                    }
                } else {
                    inside.fill(0.0);
                    for c in 0..channels {
                        for (out, &v) in inside[c..].iter_mut().step_by(FEW).zip(of(c)) {
                            *out = v;
                        }
                    }
                }
            }
        });
    }
}

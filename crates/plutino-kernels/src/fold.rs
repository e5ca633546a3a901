//! Images cut into windows, and windows added up to images.
//!
//! - [`unfold`]: `window[tap, place] = image[tap * dilation + place * stride - padding]`, 0 outside
//!   of the image (<https://pytorch.org/docs/stable/generated/torch.nn.Unfold.html>);
//! - [`fold`]: `image[tap * dilation + place * stride - padding] += window[tap, place]`
//!   (<https://pytorch.org/docs/stable/generated/torch.nn.Fold.html>).
//!
//! Loops: for each channel and, unfolding, tap (parallel) - row of places. Every element of a
//! folded image is a sum in the order of the taps, rounded to its dtype after each, as PyTorch
//! does.

use crate::Par;
use crate::extent::elements;
use crate::number::{Number, Wide};

/// Height and width of windows and images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldGeometry {
    /// Size of the image.
    pub image: [usize; 2],
    /// Places of the window.
    pub places: [usize; 2],
    /// Taps of the window.
    pub kernel: [usize; 2],
    /// Distance of neighbouring places.
    pub stride: [usize; 2],
    /// Rows and columns of windows that lie before the image.
    pub padding: [usize; 2],
    /// Distance of neighbouring taps.
    pub dilation: [usize; 2],
}

impl FoldGeometry {
    /// The first place, and the number of places, at which a tap lies inside the image, along
    /// dimension `d`.
    pub fn inside(&self, d: usize, tap: usize) -> std::ops::Range<usize> {
        let (stride, shift) = (self.stride[d].max(1), tap.saturating_mul(self.dilation[d]));
        let first = self.padding[d].saturating_sub(shift).div_ceil(stride);
        let beyond = self.image[d].saturating_add(self.padding[d]).saturating_sub(shift);
        let end = beyond.div_ceil(stride).min(self.places[d]);
        first.min(end)..end
    }

    /// The position in the image of a tap at a place where it is inside.
    pub fn position(&self, d: usize, tap: usize, place: usize) -> usize {
        place * self.stride[d] + tap * self.dilation[d] - self.padding[d]
    }

    /// Elements of the windows of a channel: `[taps, places]`.
    pub fn windows_len(&self) -> usize {
        [self.kernel, self.places].iter().flatten().product()
    }
}

/// Cuts each channel into windows: `[channels, height, width]` to `[channels, taps, places]`.
///
/// # Panics
/// Where the slices do not hold the same number of channels.
pub fn unfold<T: Number>(par: &Par, g: &FoldGeometry, images: &[T], windows: &mut [T]) {
    let (plane, taps) = (g.image[0] * g.image[1], g.kernel[0] * g.kernel[1]);
    let places = g.places[0] * g.places[1];
    let channels = windows.len() / (taps * places).max(1);
    assert_eq!(elements([channels, taps, places]), Some(windows.len()), "windows of an unfold");
    let images_fit = elements([channels, plane]) == Some(images.len());
    assert!(windows.is_empty() || images_fit, "images of an unfold");
    par.chunks_mut(windows, places, |item, window| {
        let (channel, ty, tx) = (item / taps, item % taps / g.kernel[1], item % taps % g.kernel[1]);
        let image = &images[channel * plane..][..plane];
        window.fill(T::default());
        let columns = g.inside(1, tx);
        for y in g.inside(0, ty) {
            let row = &image[g.position(0, ty, y) * g.image[1]..][..g.image[1]];
            for x in columns.clone() {
                window[y * g.places[1] + x] = row[g.position(1, tx, x)];
            }
        }
    });
}

/// Adds up the windows of each channel.
///
/// # Panics
/// Where the slices do not hold the same number of channels.
pub fn fold<T: Number>(par: &Par, g: &FoldGeometry, windows: &[T], images: &mut [T]) {
    let (plane, windows_len) = (g.image[0] * g.image[1], g.windows_len());
    let channels = images.len() / plane.max(1);
    assert_eq!(Some(images.len()), elements([channels, plane]), "images of a fold");
    assert_eq!(Some(windows.len()), elements([channels, windows_len]), "windows of a fold");
    par.chunks_mut(images, plane, |channel, image| {
        image.fill(T::default());
        let windows = &windows[channel * windows_len..][..windows_len];
        let rows = windows.chunks_exact(g.places[1].max(1));
        for (row, places) in rows.enumerate() {
            let (tap, y) = (row / g.places[0], row % g.places[0]);
            let (ty, tx) = (tap / g.kernel[1], tap % g.kernel[1]);
            if !g.inside(0, ty).contains(&y) {
                continue;
            }
            let image = &mut image[g.position(0, ty, y) * g.image[1]..][..g.image[1]];
            for x in g.inside(1, tx) {
                let pixel = &mut image[g.position(1, tx, x)];
                *pixel = T::narrow(pixel.widen().plus(places[x].widen()));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;
    use plutino_reference::testkit::random;

    #[test]
    fn every_window_lands_where_it_was_taken() {
        let base = FoldGeometry {
            image: [7, 9],
            places: [4, 3],
            kernel: [2, 3],
            stride: [2, 3],
            padding: [1, 2],
            dilation: [1, 2],
        };
        let far = FoldGeometry { padding: [5, 9], places: [8, 7], ..base };
        for g in [base, far] {
            let windows: Vec<f64> =
                random(3 * g.windows_len(), 1).into_iter().map(f64::from).collect();
            let mut expected = vec![0.0; 3 * 63];
            for (i, x) in windows.iter().enumerate() {
                let (x_place, i) = (i % g.places[1], i / g.places[1]);
                let (y_place, i) = (i % g.places[0], i / g.places[0]);
                let (x_tap, i) = (i % g.kernel[1], i / g.kernel[1]);
                let (y_tap, channel) = (i % g.kernel[0], i / g.kernel[0]);
                let at = |d: usize, place: usize, tap: usize| {
                    (place * g.stride[d] + tap * g.dilation[d]).checked_sub(g.padding[d])
                };
                if let (Some(y @ 0..7), Some(x_at @ 0..9)) =
                    (at(0, y_place, y_tap), at(1, x_place, x_tap))
                {
                    expected[channel * 63 + y * 9 + x_at] += x;
                }
            }
            for threads in [1, 2] {
                let mut images = vec![f64::NAN; 3 * 63];
                Pool::new(threads).enter(|par| fold(par, &g, &windows, &mut images));
                assert_eq!(images, expected); // the same additions in the same order
                // Unfolding is the transpose: <unfold(y), x> = <y, fold(x)>.
                let y: Vec<f64> = random(3 * 63, 2).into_iter().map(f64::from).collect();
                let mut unfolded = vec![f64::NAN; windows.len()];
                Pool::new(threads).enter(|par| unfold(par, &g, &y, &mut unfolded));
                let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
                let (left, right) = (dot(&unfolded, &windows), dot(&y, &images));
                // Two sums of some thousand products below 1.
                assert!((left - right).abs() < 5000.0 * f64::EPSILON, "{left} {right}");
            }
        }
    }
}

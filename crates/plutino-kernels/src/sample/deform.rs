//! The columns of a deformable convolution (Zhu et al. 2018, arXiv 1811.11168).
//!
//! `column[channel, tap][place] = mask[tap, place] * image[channel](place * stride -
//! padding + tap * dilation + offset[tap, place])`, interpolated between four pixels, 0
//! outside of the image
//! (<https://pytorch.org/vision/stable/generated/torchvision.ops.deform_conv2d.html>).
//!
//! Loops: for each group of channels with offsets of their own and each tap (parallel) - 64
//! places - their pixels and weights, once - each channel of the group.

use crate::Par;
use crate::extent::elements;
use crate::number::{Float, Real};
use crate::par::SharedMut;

/// Places whose pixels and weights are kept at a time.
const PLACES: usize = 64;

/// Height and width of everything in a deformable convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeformGeometry {
    /// Channels of the image.
    pub channels: usize,
    /// Groups of channels that share their offsets; they divide the channels.
    pub offset_groups: usize,
    /// Size of the image.
    pub input: [usize; 2],
    /// Places of the window.
    pub output: [usize; 2],
    /// Taps of the window.
    pub kernel: [usize; 2],
    /// Distance of neighbouring places.
    pub stride: [usize; 2],
    /// Zeros before the image.
    pub padding: [usize; 2],
    /// Distance of neighbouring taps.
    pub dilation: [usize; 2],
}

impl DeformGeometry {
    /// Number of places.
    pub fn places(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Number of taps.
    pub fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Elements of the columns: `[channels, taps, places]`.
    pub fn columns_len(&self) -> usize {
        self.channels * self.taps() * self.places()
    }
}

/// Four pixels and their weights.
type Corners<R> = [(usize, R); 4];

/// Writes the columns of one image: `offset` is `[offset group, tap, (y, x), place]`, `mask`
/// `[offset group, tap, place]`.
///
/// # Panics
/// Where a slice is not as long as the sizes say.
pub fn deform_columns<T: Float>(
    par: &Par,
    g: &DeformGeometry,
    image: &[T],
    offset: &[T],
    mask: Option<&[T]>,
    columns: &mut [T],
) {
    let (taps, places, plane) = (g.taps(), g.places(), g.input[0] * g.input[1]);
    let fields = elements([g.offset_groups, taps, places]).unwrap_or(usize::MAX);
    let pixels = elements([g.channels, g.input[0], g.input[1]]);
    assert_eq!(Some(image.len()), pixels, "image of a deformable convolution");
    assert_eq!(Some(offset.len()), elements([2, fields]), "offsets of a deformable convolution");
    assert_eq!(mask.map_or(fields, <[T]>::len), fields, "mask of a deformable convolution");
    assert_eq!(columns.len(), g.columns_len(), "columns of a deformable convolution");
    let shared = g.channels / g.offset_groups.max(1);
    let columns = SharedMut::new(columns);
    par.run(g.offset_groups * taps, |task| {
        let (group, tap) = (task / taps, task % taps);
        let zero = T::Real::nearest(0.0);
        let mut corners: [Corners<T::Real>; PLACES] = [[(0, zero); 4]; PLACES];
        for first in (0..places).step_by(PLACES) {
            let count = PLACES.min(places - first);
            for (i, corners) in corners[..count].iter_mut().enumerate() {
                let place = first + i;
                let moved = [0, 1].map(|d| {
                    let at = [place / g.output[1], place % g.output[1]][d] * g.stride[d]
                        + [tap / g.kernel[1], tap % g.kernel[1]][d] * g.dilation[d];
                    let offset = offset[(task * 2 + d) * places + place].to_real();
                    T::Real::nearest(at as f64 - g.padding[d] as f64) + offset
                });
                let factor =
                    mask.map_or(T::Real::nearest(1.0), |m| m[task * places + place].to_real());
                *corners = around(moved, g.input, factor);
            }
            for channel in group * shared..(group + 1) * shared {
                let image = &image[channel * plane..][..plane];
                let at = (channel * taps + tap) * places + first;
                // SAFETY: each channel and tap is a row of its own, written by one task.
                let row = unsafe { columns.slice(at..at + count) };
                for (out, corners) in row.iter_mut().zip(&corners) {
                    let mut sum = zero;
                    for &(at, weight) in corners {
                        // A pixel outside has no value, not even one times 0.
                        if weight != zero {
                            sum = sum + weight * image[at].to_real();
                        }
                    }
                    *out = T::from_real(sum);
                }
            }
        }
    });
}

/// The pixels around a position and their weights, times a factor; weight 0 for those outside.
fn around<R: Real>(position: [R; 2], size: [usize; 2], factor: R) -> Corners<R> {
    let (zero, one) = (R::nearest(0.0), R::nearest(1.0));
    let beside = [0, 1].map(|d| {
        let (low, n) = (position[d].floor(), size[d] as f64);
        let t = position[d] - low;
        [(low, one - t), (low + one, t)].map(|(at, weight)| {
            let at = at.wide();
            if at >= 0.0 && at < n { (at as usize, weight) } else { (0, zero) }
        })
    });
    let [rows, columns] = beside;
    [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(y, x)| {
        let ((row, wy), (column, wx)) = (rows[y], columns[x]);
        (row * size[1] + column, wy * wx * factor)
    })
}

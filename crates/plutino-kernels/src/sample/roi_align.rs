//! Averages over the cells of boxes: RoIAlign (He et al. 2017, arXiv 1703.06870).
//!
//! <https://pytorch.org/vision/stable/generated/torchvision.ops.roi_align.html>. A box is cut into
//! `ph x pw` cells; a cell's value is the mean of samples on an even grid in it, each interpolated
//! between four pixels.
//!
//! Loops: for each box (parallel) - each cell - its samples' pixels and weights, once - each
//! channel.

use crate::Par;
use crate::extent::elements;
use crate::number::{Float, Real};
use num_traits::Float as _;
use plutino_tensor::{TensorError, alloc};

/// Samples of a cell, along one dimension, beyond which a box makes no sense.
const MOST_SAMPLES: f64 = 65536.0;

/// Samples of a cell, at most: each is four pixels, and a task keeps those of one cell.
const MOST_IN_CELL: usize = 1 << 18;

/// A pooling of boxes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoiAlign {
    /// Images.
    pub batch: usize,
    /// Channels of an image.
    pub channels: usize,
    /// Height and width of an image.
    pub size: [usize; 2],
    /// Rows and columns of cells.
    pub cells: [usize; 2],
    /// Pixels of the image for one unit of a box.
    pub scale: f64,
    /// Samples of a cell along each dimension; 0 for as many as pixels.
    pub samples: usize,
    /// Whether boxes count from the edges of pixels, not from their centres.
    pub aligned: bool,
}

/// A box that cannot be pooled.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RoiError {
    /// The box names an image that does not exist.
    #[error("box {index} is of image {image}, there are {batch}")]
    Image {
        /// Number of the box.
        index: usize,
        /// The image it names.
        image: f64,
        /// Number of images.
        batch: usize,
    },
    /// A coordinate is no number, or the box is too large.
    #[error("box {index} is not finite, or too large for its cells")]
    Size {
        /// Number of the box.
        index: usize,
    },
    /// More samples than are computed.
    #[error(
        "a cell of box {index} has {rows}x{columns} samples, at most {MOST_IN_CELL} are computed"
    )]
    Samples {
        /// Number of the box.
        index: usize,
        /// Rows of samples.
        rows: usize,
        /// Columns of samples.
        columns: usize,
    },
    /// No memory is left.
    #[error(transparent)]
    Memory(#[from] TensorError),
}

impl RoiAlign {
    /// Pools `[batch, channels, height, width]` in boxes of `(image, x1, y1, x2, y2)`; the output
    /// is `[boxes, channels, cells...]`.
    ///
    /// # Errors
    /// The first box that cannot be pooled.
    ///
    /// # Panics
    /// Where a slice is not as long as the sizes say.
    pub fn run<T: Float>(
        &self,
        par: &Par,
        input: &[T],
        boxes: &[T],
        output: &mut [T],
    ) -> Result<(), RoiError> {
        let Self { batch, channels, size: [height, width], cells: [rows, columns], .. } = *self;
        let (pixels, results) =
            ([batch, channels, height, width], [boxes.len() / 5, channels, rows, columns]);
        assert_eq!(Some(input.len()), elements(pixels), "input of RoIAlign");
        assert_eq!(Some(output.len()), elements(results), "output of RoIAlign");
        let (plane, cells) = (height.saturating_mul(width), rows.saturating_mul(columns));
        let regions = boxes.chunks_exact(5).enumerate().map(|(i, b)| self.region(i, b));
        let regions = alloc::try_collect(regions)?;
        par.chunks_mut(output, channels * cells, |i, output| {
            let Some(region) = regions.get(i) else { return };
            let mut taps: Vec<(usize, T::Real)> = Vec::new();
            let count = T::Real::nearest((region.samples[0] * region.samples[1]).max(1) as f64);
            for cell in 0..cells {
                taps.clear();
                let y = region.positions(0, cell / columns);
                for y in y {
                    for x in region.positions(1, cell % columns) {
                        self.interpolate(y, x, &mut taps);
                    }
                }
                for c in 0..channels {
                    let image = &input[(region.image * channels + c) * plane..][..plane];
                    let mut sum = T::Real::nearest(0.0);
                    for &(at, weight) in &taps {
                        sum = sum + weight * image[at].to_real();
                    }
                    output[c * cells + cell] = T::from_real(sum / count);
                }
            }
        });
        Ok(())
    }

    #[inline]
    fn region<T: Float>(&self, index: usize, b: &[T]) -> Result<Region<T::Real>, RoiError> {
        let real = T::Real::nearest;
        let (scale, half) = (real(self.scale), real(if self.aligned { 0.5 } else { 0.0 }));
        let first = b[0].widen();
        // Fractions are cut off, as PyTorch does.
        let image = first as usize;
        if !(first > -1.0 && image < self.batch) {
            return Err(RoiError::Image { index, image: first, batch: self.batch });
        }
        let [x1, y1, x2, y2] = [1, 2, 3, 4].map(|i| b[i].to_real() * scale - half);
        let mut lengths = [y2 - y1, x2 - x1];
        if !self.aligned {
            lengths = lengths.map(|l| l.max(real(1.0)));
        }
        let mut region =
            Region { image, start: [y1, x1], cell: lengths, samples: [self.samples; 2] };
        for (d, length) in lengths.into_iter().enumerate() {
            region.cell[d] = length / real(self.cells[d] as f64);
            let wanted = region.cell[d].ceil().wide();
            if !(region.start[d].is_finite() && wanted.abs() < MOST_SAMPLES) {
                return Err(RoiError::Size { index });
            }
            if self.samples == 0 {
                region.samples[d] = wanted as usize; // 0 for a negative one
            }
        }
        let [rows, columns] = region.samples;
        match rows.checked_mul(columns) {
            Some(0..=MOST_IN_CELL) => Ok(region),
            _ => Err(RoiError::Samples { index, rows, columns }),
        }
    }

    /// Appends the four pixels around a position, and their weights; none outside of the image.
    fn interpolate<R: Real>(&self, y: R, x: R, taps: &mut Vec<(usize, R)>) {
        let [height, width] = self.size;
        let (Some(y), Some(x)) = (neighbours(y, height), neighbours(x, width)) else { return };
        for (row, wy) in y {
            for (column, wx) in x {
                taps.push((row * width + column, wy * wx));
            }
        }
    }
}

/// A box in pixels.
struct Region<R> {
    image: usize,
    /// y and x of its first corner.
    start: [R; 2],
    /// Height and width of a cell.
    cell: [R; 2],
    /// Rows and columns of samples in a cell.
    samples: [usize; 2],
}

impl<R: Real> Region<R> {
    /// Positions of the samples in cell `cell` along dimension `d`.
    fn positions(&self, d: usize, cell: usize) -> impl Iterator<Item = R> {
        let (start, size, n) = (self.start[d], self.cell[d], self.samples[d]);
        let first = start + R::nearest(cell as f64) * size;
        let count = R::nearest(n as f64);
        (0..n).map(move |i| first + R::nearest(i as f64 + 0.5) * size / count)
    }
}

/// The two pixels beside a position along a dimension, and their weights; none beyond one pixel
/// outside.
fn neighbours<R: Real>(x: R, size: usize) -> Option<[(usize, R); 2]> {
    let (one, last) = (R::nearest(1.0), size.checked_sub(1)?);
    if !(x >= -one && x <= R::nearest(size as f64)) {
        return None;
    }
    let x = x.max(R::nearest(0.0));
    let low = (x.wide() as usize).min(last);
    if low == last {
        return Some([(last, one), (last, R::nearest(0.0))]);
    }
    let t = x - R::nearest(low as f64);
    Some([(low, one - t), (low + 1, t)])
}

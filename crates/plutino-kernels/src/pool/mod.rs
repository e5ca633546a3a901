//! Pooling over 1 to 3 spatial dimensions: maximum, average and power average.
//!
//! [`Axis`] says which inputs each output sees along one dimension; a [`Geometry`] has three of
//! them (fewer dimensions are padded with [`Axis::ONE`] on the left). Sliding, adaptive and global
//! pooling differ only there, so they share every kernel:
//!
//! - `rows`: f32, all reductions; separable and vectorised;
//! - `any`: every other dtype, and maximum with indices; one window after the other;
//! - [`max_unpool`]: the inverse of maximum with indices.

mod any;
mod axis;
mod rows;
pub use any::{max_unpool, max_with_indices, pool_any};
pub use axis::{Axis, Sliding, Window, WindowError};
pub use rows::{max_of_pairs, pool_f32, scratch_len};

/// What is made of the inputs of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reduction {
    /// The greatest; NaN where any is NaN; -inf (or the least integer) for a window without inputs.
    Max,
    /// The sum over a divisor; 0 for a window without inputs.
    Average(Divisor),
    /// `(sum(x^p) / n * size)^(1/p)`, where `n` counts the inputs of the window and `size` its
    /// kernel: PyTorch's `lp_pool`, see
    /// <https://pytorch.org/docs/stable/generated/torch.nn.LPPool2d.html>. As there, x is not made
    /// positive first. With an infinite exponent it is the greatest magnitude, or the least.
    Power {
        /// The exponent.
        p: f64,
        /// The number of taps of a whole window.
        size: usize,
    },
}

/// By what an average divides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Divisor {
    /// The number of inputs in the window.
    Inputs,
    /// The same, positions in the padding counted (`count_include_pad`).
    Padded,
    /// This number (`divisor_override`).
    Fixed(i64),
}

impl Divisor {
    /// The divisor of a window that is the product of three.
    #[inline(always)]
    fn of(self, windows: [Window; 3]) -> i64 {
        match self {
            Self::Inputs => windows.iter().fold(1, |n: i64, w| n.saturating_mul(w.taps as i64)),
            Self::Padded => windows.iter().fold(1, |n: i64, w| n.saturating_mul(w.padded as i64)),
            Self::Fixed(n) => n,
        }
    }
}

/// The shape of a pooling: `planes` volumes of depth x height x width, each pooled alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Volumes: batch x channels.
    pub planes: usize,
    /// Images that the volumes belong to where threads shall begin with the same rows of all
    /// volumes of an image, as those of blocks should; else as many as there are volumes. It
    /// changes no result.
    pub images: usize,
    /// Depth, height, width.
    pub axes: [Axis; 3],
    /// Elements of a pixel that lie side by side and are pooled alone: 1 for plain tensors, the
    /// block for blocked ones (then `planes` counts blocks).
    pub inner: usize,
}

impl Geometry {
    /// `planes` plain volumes; 1 to 3 axes, the last is the width.
    pub fn new(planes: usize, axes: &[Axis]) -> Self {
        let mut all = [Axis::ONE; 3];
        for (to, from) in all.iter_mut().rev().zip(axes.iter().rev()) {
            *to = *from;
        }
        Self { planes, images: planes, axes: all, inner: 1 }
    }

    /// The same for images of channel blocks: `(N, C)` with blocks of `block` channels, the last
    /// one padded.
    pub fn in_blocks(self, [images, channels]: [usize; 2], block: usize) -> Self {
        let planes = images.saturating_mul(channels.div_ceil(block.max(1)));
        Self { planes, images, inner: block, ..self }
    }

    /// Elements of one input volume.
    pub fn input_volume(&self) -> usize {
        self.axes.iter().map(Axis::input).fold(self.inner, usize::saturating_mul)
    }

    /// Elements of one output volume.
    pub fn output_volume(&self) -> usize {
        self.axes.iter().map(Axis::output).fold(self.inner, usize::saturating_mul)
    }

    /// Output rows of all volumes.
    fn rows(&self) -> usize {
        self.planes * self.axes[0].output() * self.axes[1].output()
    }

    /// Output rows as [`Par::split_planes`](crate::Par::split_planes) cuts them: images, volumes of
    /// an image, rows of a volume.
    fn split(&self) -> [usize; 3] {
        let rows = self.axes[0].output() * self.axes[1].output();
        match self.planes.checked_div(self.images) {
            Some(planes) if planes * self.images == self.planes => [self.images, planes, rows],
            _ => [self.planes, 1, rows],
        }
    }

    /// Plane, depth window and height window of an output row.
    #[inline(always)]
    fn row(&self, row: usize) -> (usize, Window, Window) {
        let [depth, height, _] = &self.axes;
        let (rest, y) = (row / height.output(), row % height.output());
        (rest / depth.output(), depth.window(rest % depth.output()), height.window(y))
    }

    /// # Panics
    /// Where the slices do not hold exactly `planes` volumes.
    fn check(&self, input: usize, output: usize) {
        assert_eq!(input, self.planes.saturating_mul(self.input_volume()), "input of a pooling");
        assert_eq!(output, self.planes.saturating_mul(self.output_volume()), "output of a pooling");
    }
}

//! Windows over single channels: what depthwise convolution and pooling have in common.
//!
//! A channel is a lane, so that a tap is one vector of input for each of M output pixels. What becomes of it, a
//! [`Tap`] says. For windows of 2, 3, 5 and 7 columns taps are unrolled, and only the outermost columns are asked
//! whether they are padding; rows in the padding are left out.

use super::window::Window;
use crate::simd::Simd;
use crate::simd::unroll::{array, unroll};
use std::ops::Range;

/// What a window makes of the vectors of input that it sees.
pub(super) trait Tap<S: Simd>: Copy {
    /// What it needs for a tap, the same for all pixels.
    type Weight: Copy;

    /// What taps in the padding see.
    const PADDING: &'static [f32; 16];

    /// # Safety
    /// The number of the tap is one of the window's.
    unsafe fn weight(self, s: S, tap: usize) -> Self::Weight;

    /// The result so far, and what a tap sees.
    fn fold(s: S, acc: S::F32, x: S::F32, weight: Self::Weight) -> S::F32;
}

/// One row of the output of a window operator, on a plane of one block of channels.
#[derive(Clone, Copy)]
pub(super) struct ChannelwiseRow<'a> {
    window: &'a Window,
    plane: &'a [f32],
    /// The rows of the window that lie in no padding: the first, and how many.
    taps: [usize; 2],
    /// The input row under the first of them.
    top: usize,
}

impl<'a> ChannelwiseRow<'a> {
    /// Output row `number`. Panics where the plane is not of the window's input.
    #[inline(always)]
    pub(super) fn new<S: Simd>(window: &'a Window, plane: &'a [f32], number: usize) -> Self {
        assert!(plane.len() == window.input_pixels() * S::LANES && number < window.output[0]);
        let Range { start, end } = window.taps_inside(0, number);
        let top =
            (number * window.stride[0] + start * window.dilation[0]).saturating_sub(window.pad[0]);
        Self { window, plane, taps: [start, end - start], top }
    }

    /// Folds what the windows of M pixels from `first` on see, each from `init` on, tap by tap.
    #[inline(always)]
    pub(super) fn fold<S: Simd, T: Tap<S>, const M: usize>(
        &self,
        s: S,
        tap: T,
        init: S::F32,
        first: usize,
    ) -> [S::F32; M] {
        let win = self.window;
        assert!(first + M <= win.output[1]);
        match (win.kernel[1], win.stride[1]) {
            (2, 2) if self.suits::<M>(first) => self.unrolled::<S, T, M, 2, 2>(s, tap, init, first),
            (3, 1) if self.suits::<M>(first) => self.unrolled::<S, T, M, 3, 1>(s, tap, init, first),
            (3, 2) if self.suits::<M>(first) => self.unrolled::<S, T, M, 3, 2>(s, tap, init, first),
            (5, 1) if self.suits::<M>(first) => self.unrolled::<S, T, M, 5, 1>(s, tap, init, first),
            (5, 2) if self.suits::<M>(first) => self.unrolled::<S, T, M, 5, 2>(s, tap, init, first),
            (7, 1) if self.suits::<M>(first) => self.unrolled::<S, T, M, 7, 1>(s, tap, init, first),
            _ => self.any(s, tap, init, first),
        }
    }

    /// Whether [`Self::unrolled`] can take the M pixels from `first` on: no dilation, and no padding but under
    /// the first and the last half of the columns of a window.
    #[inline(always)]
    fn suits<const M: usize>(&self, first: usize) -> bool {
        let win = self.window;
        let [_, kernel] = win.kernel;
        let start = first * win.stride[1] + kernel / 2;
        let end = (first + M - 1) * win.stride[1] + kernel.div_ceil(2);
        win.dilation[1] == 1 && start >= win.pad[1] && end <= win.input[1] + win.pad[1]
    }

    /// For a window of `K` columns, where [`Self::suits`] says so.
    #[inline(always)]
    fn unrolled<S: Simd, T: Tap<S>, const M: usize, const K: usize, const STRIDE: usize>(
        &self,
        s: S,
        tap: T,
        init: S::F32,
        first: usize,
    ) -> [S::F32; M] {
        let b = S::LANES;
        let win = self.window;
        let width = win.input[1];
        let line = win.dilation[0] * width * b;
        // The input column under the first tap of the first pixel; below zero, it wraps and is no column.
        let start = (first * STRIDE).wrapping_sub(win.pad[1]);
        let last = (M - 1) * STRIDE + K - 1;
        let mut row = self
            .plane
            .as_ptr()
            .wrapping_add((self.top * width).wrapping_add(start).wrapping_mul(b));
        // Only the outermost columns may be padding, which is the same in all rows: where they lie, and how far it is
        // to the next row.
        macro_rules! edge {
            ($number:expr) => {{
                let inside = start.wrapping_add($number) < width;
                if inside {
                    (row.wrapping_add($number * b), line)
                } else {
                    (T::PADDING.as_ptr(), 0)
                }
            }};
        }
        let mut left = array!(K, |I| edge!(I));
        let mut right = array!(K, |I| edge!(last - I));
        let mut acc = array!(M, |J| init);
        let [skipped, rows] = self.taps;
        for ky in skipped..skipped + rows {
            unroll!(K, |KX| {
                // SAFETY: `taps` are rows of the window, and it has K columns.
                let w = unsafe { tap.weight(s, ky * K + KX) };
                unroll!(M, |J| {
                    let column = J * STRIDE + KX;
                    let at = if column < K / 2 {
                        left[column].0
                    } else if last - column < K / 2 {
                        right[last - column].0
                    } else {
                        row.wrapping_add(column * b)
                    };
                    // SAFETY: a column of a row of the plane (asked above, or by `suits`; `new` has its length), or
                    // PADDING.
                    acc[J] = T::fold(s, acc[J], unsafe { s.load_ptr(at) }, w);
                });
            });
            row = row.wrapping_add(line);
            unroll!(K, |I| if const { I < K / 2 } {
                left[I].0 = left[I].0.wrapping_add(left[I].1);
                right[I].0 = right[I].0.wrapping_add(right[I].1);
            });
        }
        acc
    }

    /// For any window.
    #[inline(always)]
    fn any<S: Simd, T: Tap<S>, const M: usize>(
        &self,
        s: S,
        tap: T,
        init: S::F32,
        first: usize,
    ) -> [S::F32; M] {
        let b = S::LANES;
        let win = self.window;
        let ([_, width], [_, stride], [_, kernel]) = (win.input, win.stride, win.kernel);
        let [skipped, rows] = self.taps;
        let mut acc = [init; M];
        for i in 0..rows {
            let row = &self.plane[(self.top + i * win.dilation[0]) * width * b..][..width * b];
            for kx in 0..kernel {
                // SAFETY: `taps` are rows of the window, kx is a column.
                let w = unsafe { tap.weight(s, (skipped + i) * kernel + kx) };
                let start = (first * stride + kx * win.dilation[1]).wrapping_sub(win.pad[1]);
                for (j, acc) in acc.iter_mut().enumerate() {
                    let column = start.wrapping_add(j * stride);
                    if column < width {
                        *acc = T::fold(s, *acc, s.load(&row[column * b..]), w);
                    }
                }
            }
        }
        acc
    }
}

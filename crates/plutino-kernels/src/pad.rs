//! Padding of any number of dimensions, with elements of any size.
//!
//! `out[.., j, ..] = in[.., map(j), ..]` in each dimension, or the fill value where that lies
//! outside (<https://pytorch.org/docs/stable/generated/torch.nn.functional.pad.html>). Negative
//! padding crops.
//!
//! Loops: for each output row (parallel) - find its input row, copy the inside as a whole, then the
//! two edges element by element. Dimensions that are not padded, at the inner end, are copied as
//! part of the element run. The speed is the memory's.

use crate::Par;
use crate::par::SharedMut;
use std::ops::Range;

/// Elements below which a task is not worth a thread.
const GRAIN: usize = 1 << 14;

/// Where elements of the padding come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PadMode {
    /// A fill value.
    Constant,
    /// The input mirrored at its first and last element, which are not repeated.
    Reflect,
    /// The first or last element of the input.
    Replicate,
    /// The other end of the (cropped) input.
    Circular,
}

/// A padding that makes no sense for its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PadError {
    /// More is cropped than there is, or the result is too large to be counted.
    #[error("padding ({before}, {after}) does not suit {input} elements")]
    Size {
        /// Elements of the input.
        input: usize,
        /// Padding before the first element.
        before: i64,
        /// Padding after the last element.
        after: i64,
    },
    /// Reflection needs more elements than the padding has, circular padding as many.
    #[error("padding ({before}, {after}) is too large for {input} elements in this mode")]
    TooLarge {
        /// Elements of the input.
        input: usize,
        /// Padding before the first element.
        before: i64,
        /// Padding after the last element.
        after: i64,
    },
}

/// Padding along one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    input: usize,
    output: usize,
    before: i64,
    after: i64,
}

impl Axis {
    /// Outputs that are plain copies.
    fn inside(&self) -> Range<usize> {
        let start = self.before.max(0) as usize;
        let end = self.output.saturating_sub(self.after.max(0) as usize);
        start.min(end)..end
    }

    /// The input of output `j`; none for the fill value.
    #[inline(always)]
    fn source(&self, mode: PadMode, j: usize) -> Option<usize> {
        let (i, n) = (j as i64 - self.before, self.input as i64);
        let source = match mode {
            _ if (0..n).contains(&i) && self.inside().contains(&j) => i,
            PadMode::Constant => return None,
            PadMode::Replicate => i.clamp(0, n - 1),
            PadMode::Reflect if i < 0 => -i,
            PadMode::Reflect if i >= n => 2 * (n - 1) - i,
            PadMode::Reflect => i,
            PadMode::Circular => {
                let (first, end) = ((-self.before).max(0), n - (-self.after).max(0));
                first + (i - first).rem_euclid((end - first).max(1))
            }
        };
        usize::try_from(source).ok()
    }
}

/// A padding bound to a shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pad {
    mode: PadMode,
    /// Padded dimensions and those between them, outermost first; the last one is the row.
    axes: Vec<Axis>,
    /// Elements that move together: the dimensions behind the last padded one.
    inner: usize,
}

impl Pad {
    /// `padding` holds elements before and after, for each dimension of `shape` (outermost first).
    ///
    /// # Errors
    /// Where more is cropped than there is, a dimension becomes empty (not for constants), or more
    /// is reflected or wrapped around than there is.
    pub fn new(shape: &[usize], padding: &[(i64, i64)], mode: PadMode) -> Result<Self, PadError> {
        let mut axes: Vec<Axis> = Vec::with_capacity(shape.len());
        for (d, &input) in shape.iter().enumerate() {
            let (before, after) = padding.get(d).copied().unwrap_or((0, 0));
            let cropped = before.min(0).unsigned_abs().checked_add(after.min(0).unsigned_abs());
            let left = cropped.and_then(|c| input.checked_sub(usize::try_from(c).ok()?));
            let added = before.max(0).unsigned_abs().checked_add(after.max(0).unsigned_abs());
            let output = left.and_then(|n| n.checked_add(usize::try_from(added?).ok()?));
            let output = output.filter(|&n| i64::try_from(n).is_ok());
            let (Some(left), Some(output)) = (left, output) else {
                return Err(PadError::Size { input, before, after });
            };
            let largest = usize::try_from(before.max(after)).unwrap_or(0);
            let fits = match mode {
                PadMode::Constant => true,
                PadMode::Reflect => largest < input || largest == 0,
                PadMode::Replicate => input > 0 || output == 0,
                PadMode::Circular => largest <= left,
            };
            if !fits || (output == 0 && mode != PadMode::Constant && input > 0) {
                return Err(PadError::TooLarge { input, before, after });
            }
            axes.push(Axis { input, output, before, after });
        }
        let plain = axes.iter().rev().take_while(|a| a.before == 0 && a.after == 0).count();
        let inner = axes.iter().rev().take(plain).fold(1, |n: usize, a| n.saturating_mul(a.input));
        axes.truncate(axes.len() - plain);
        Ok(Self { mode, axes, inner })
    }

    /// Elements of the input.
    pub fn input_len(&self) -> usize {
        self.axes.iter().fold(self.inner, |n, a| n.saturating_mul(a.input))
    }

    /// Elements of the output.
    pub fn output_len(&self) -> usize {
        self.axes.iter().fold(self.inner, |n, a| n.saturating_mul(a.output))
    }

    /// Pads.
    ///
    /// # Panics
    /// Where a slice is not as long as the shape says.
    pub fn run<T: Copy + Send + Sync>(&self, par: &Par, fill: T, input: &[T], output: &mut [T]) {
        assert_eq!(input.len(), self.input_len(), "input of a padding");
        assert_eq!(output.len(), self.output_len(), "output of a padding");
        let Some((last, outer)) = self.axes.split_last() else {
            return output.copy_from_slice(input);
        };
        if output.is_empty() {
            return;
        }
        let (row, inner) = (last.output * self.inner, self.inner);
        let inside = last.inside();
        let rows = output.len() / row;
        let output = SharedMut::new(output);
        par.split(rows, GRAIN / row, |rows| {
            for r in rows {
                // SAFETY: rows are disjoint.
                let out = unsafe { output.slice(r * row..(r + 1) * row) };
                let Some(from) = self.row(outer, r) else {
                    out.fill(fill);
                    continue;
                };
                let from = &input[from * last.input * inner..(from + 1) * last.input * inner];
                if !inside.is_empty() {
                    let start = (inside.start as i64 - last.before) as usize * inner;
                    let n = inside.len() * inner;
                    out[inside.start * inner..][..n].copy_from_slice(&from[start..start + n]);
                }
                for j in (0..inside.start).chain(inside.end..last.output) {
                    let out = &mut out[j * inner..(j + 1) * inner];
                    match last.source(self.mode, j) {
                        Some(i) => out.copy_from_slice(&from[i * inner..(i + 1) * inner]),
                        None => out.fill(fill),
                    }
                }
            }
        });
    }

    /// The input row of output row `r`; none for a row of fill values.
    #[inline(always)]
    fn row(&self, outer: &[Axis], mut r: usize) -> Option<usize> {
        let (mut row, mut step) = (0, 1);
        for axis in outer.iter().rev() {
            row += axis.source(self.mode, r % axis.output)? * step;
            r /= axis.output;
            step *= axis.input;
        }
        Some(row)
    }
}

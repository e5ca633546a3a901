//! Weighted resizing: linear and cubic, in one to three dimensions.
//!
//! `out[z, y, x] = sum over z', y' of w(z, z') w(y, y') (sum over x' of w(x, x') in[z', y', x'])`
//!
//! Loops: for each output row (parallel) - the input rows of its window, each resized along x once
//! and kept while the window moves on - their weighted sum, a vector at a time. Along x, outputs
//! are made one by one (their inputs lie at any distance); in blocked layouts a pixel is a vector.
//!
//! With u = 2^-24 and taps in all dimensions together, the result errs by at most (taps + 3) u
//! sum|w x|.

use super::Taps;
use super::windows::{self, Kept, Split};
use crate::number::Float;
use crate::simd::{Simd, Vectorized};
use crate::{Isa, Par};
use std::ops::Range;

/// A weighted resize bound to its sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Resize {
    /// Taps of depth, height and width.
    pub axes: [Taps; 3],
    /// Elements of a pixel that lie side by side: 1 for plain tensors, the block for blocked ones.
    pub inner: usize,
}

impl Resize {
    /// Elements of an input volume.
    pub fn input_volume(&self) -> usize {
        self.axes.iter().map(Taps::input).fold(self.inner, usize::saturating_mul)
    }

    /// Elements of an output volume.
    pub fn output_volume(&self) -> usize {
        self.axes.iter().map(Taps::output).fold(self.inner, usize::saturating_mul)
    }

    /// Rows kept by each thread.
    fn slots(&self) -> usize {
        self.axes[0].width().saturating_mul(self.axes[1].width())
    }

    /// Scratch memory of [`resize_f32`], in f32.
    pub fn scratch_len(&self, threads: usize) -> usize {
        let row = self.axes[2].output().saturating_mul(self.inner);
        row.saturating_mul(self.slots()).saturating_mul(threads)
    }
}

/// Resizes f32 volumes. `scratch` holds [`Resize::scratch_len`] elements for the threads of `par`.
///
/// # Panics
/// Where a slice is not as long as the sizes say.
pub fn resize_f32(
    isa: Isa,
    par: &Par,
    resize: &Resize,
    planes: usize,
    input: &[f32],
    output: &mut [f32],
    scratch: &mut [f32],
) {
    assert_eq!(input.len(), planes.saturating_mul(resize.input_volume()), "input of a resize");
    assert_eq!(output.len(), planes.saturating_mul(resize.output_volume()), "output of a resize");
    if output.is_empty() {
        return;
    }
    let [_, height, width] = &resize.axes;
    let row = width.output() * resize.inner;
    let work = row * (width.width() + resize.slots());
    let split = Split { row, kept: resize.scratch_len(1), work };
    windows::split(par, split, height, output, scratch, |rows, output, kept| {
        isa.run(Rows { resize, input, output, kept, rows });
    });
}

struct Rows<'a> {
    resize: &'a Resize,
    input: &'a [f32],
    /// The output rows of this task.
    output: &'a mut [f32],
    /// Input rows resized along x: row y of the window's z-th plane lies in slot z * width + y %
    /// width.
    kept: &'a mut [f32],
    rows: Range<usize>,
}

impl Vectorized for Rows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { resize, input, output, kept, rows } = self;
        let [depth, height, width] = &resize.axes;
        let (from, to) = (width.input() * resize.inner, width.output() * resize.inner);
        let heights = height.width();
        let mut window = Kept::default();
        for (r, out) in rows.zip(output.chunks_exact_mut(to)) {
            let (plane_z, y) = (r / height.output(), r % height.output());
            let (plane, z) = (plane_z / depth.output(), plane_z % depth.output());
            let (zs, ys) = (depth.inputs(z), height.inputs(y));
            let have = window.move_to(plane_z, ys.clone());
            for (k, z) in zs.clone().enumerate() {
                for y in ys.clone().filter(|y| !have.contains(y)) {
                    let start = ((plane * depth.input() + z) * height.input() + y) * from;
                    let slot = k * heights + y % heights;
                    let kept = &mut kept[slot * to..(slot + 1) * to];
                    resize_row(s, width, resize.inner, &input[start..start + from], kept);
                }
            }
            let mut fresh = true;
            for (k, wz) in depth.weights_f32(z).iter().enumerate() {
                for (y, wy) in ys.clone().zip(height.weights_f32(y)) {
                    let slot = k * heights + y % heights;
                    add_row(s, fresh, wz * wy, &kept[slot * to..(slot + 1) * to], out);
                    fresh = false;
                }
            }
        }
    }
}

/// out += w x, or out = w x where it is fresh.
#[inline(always)]
fn add_row<S: Simd>(s: S, fresh: bool, w: f32, x: &[f32], out: &mut [f32]) {
    let (w, n) = (s.splat(w), out.len().min(x.len()));
    for at in (0..n).step_by(S::LANES) {
        let len = S::LANES.min(n - at);
        let v = s.load_up_to(&x[at..n], len);
        let y = if fresh { s.mul(v, w) } else { s.fma(v, w, s.load_up_to(&out[at..n], len)) };
        s.store_up_to(y, &mut out[at..n], len);
    }
}

/// One row, resized along x.
#[inline(always)]
fn resize_row<S: Simd>(s: S, width: &Taps, inner: usize, row: &[f32], out: &mut [f32]) {
    if inner > 1 {
        for (x, out) in out.chunks_exact_mut(inner).enumerate() {
            pixel(s, width.weights_f32(x), &row[width.inputs(x).start * inner..], out);
        }
        return;
    }
    let (whole, starts, weights) = width.whole();
    match width.width() {
        1 => fixed::<1>(starts, weights, row, &mut out[whole.clone()]),
        2 => fixed::<2>(starts, weights, row, &mut out[whole.clone()]),
        4 => fixed::<4>(starts, weights, row, &mut out[whole.clone()]),
        _ => return sums(width, row, out, 0..width.output()),
    }
    sums(width, row, out, 0..whole.start);
    sums(width, row, out, whole.end..width.output());
}

/// Outputs with N inputs each.
#[inline(always)]
fn fixed<const N: usize>(starts: &[u32], weights: &[f32], row: &[f32], out: &mut [f32]) {
    for ((out, &start), w) in out.iter_mut().zip(starts).zip(weights.chunks_exact(N)) {
        let x = &row[start as usize..start as usize + N];
        *out = (1..N).fold(w[0] * x[0], |sum, k| sum + w[k] * x[k]);
    }
}

/// Outputs with any number of inputs.
#[inline(always)]
fn sums(width: &Taps, row: &[f32], out: &mut [f32], range: Range<usize>) {
    for o in range {
        let x = row[width.inputs(o)].iter().zip(width.weights_f32(o));
        out[o] = x.fold(0.0, |sum, (x, w)| sum + w * x);
    }
}

/// The elements of one pixel of a blocked row; `x` starts at its first input.
#[inline(always)]
fn pixel<S: Simd>(s: S, weights: &[f32], x: &[f32], out: &mut [f32]) {
    let inner = out.len();
    for at in (0..inner).step_by(S::LANES) {
        let n = S::LANES.min(inner - at);
        let mut sum = s.zero();
        for (k, &w) in weights.iter().enumerate() {
            sum = s.fma(s.load_up_to(&x[k * inner + at..], n), s.splat(w), sum);
        }
        s.store_up_to(sum, &mut out[at..], n);
    }
}

/// Resizes plain volumes (`inner` = 1) of any float dtype, in f64.
///
/// # Panics
/// Where a slice is not as long as the sizes say.
pub fn resize_any<T: Float>(
    par: &Par,
    resize: &Resize,
    planes: usize,
    input: &[T],
    output: &mut [T],
) {
    assert_eq!(input.len(), planes.saturating_mul(resize.input_volume()), "input of a resize");
    assert_eq!(output.len(), planes.saturating_mul(resize.output_volume()), "output of a resize");
    let [depth, height, width] = &resize.axes;
    par.chunks_mut(output, width.output().max(1), |r, out| {
        let (plane_z, y) = (r / height.output(), r % height.output());
        let (plane, z) = (plane_z / depth.output(), plane_z % depth.output());
        for (x, out) in out.iter_mut().enumerate() {
            let mut sum = 0.0;
            for (zi, wz) in depth.inputs(z).zip(depth.weights(z)) {
                for (yi, wy) in height.inputs(y).zip(height.weights(y)) {
                    let row = ((plane * depth.input() + zi) * height.input() + yi) * width.input();
                    for (xi, wx) in width.inputs(x).zip(width.weights(x)) {
                        sum += wz * wy * wx * input[row + xi].widen();
                    }
                }
            }
            *out = T::narrow(sum);
        }
    });
}

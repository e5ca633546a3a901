//! f32 pooling, separable.
//!
//! `out[z, y, x] = reduce over the window of x of (reduce over the windows of z and y of in)`
//!
//! Loops: for each output row (parallel) - join the input rows of its window, a vector of the row
//! at a time, into a row buffer that stays in L1 - then for each output of the row join its taps in
//! the buffer: vectors of neighbouring outputs where the stride is 1, a vector of pixels in blocked
//! layouts, else one output after the other. Averages are divided at the end.
//!
//! Sums are taken in f32, rows first: a window of k taps errs by at most (k - 1) 2^-24 sum|x|.

use super::{Axis, Divisor, Geometry, Reduction, Window};
use crate::par::SharedMut;
use crate::simd::unroll::unroll;
use crate::simd::{Simd, Vectorized};
use crate::{Isa, Par};
use std::ops::Range;

/// Steps of work (element x tap) below which a task is not worth a thread.
const GRAIN: usize = 1 << 14;

/// Scratch of [`pool_f32`], in f32.
pub fn scratch_len(geometry: &Geometry, threads: usize) -> usize {
    geometry.axes[2].input().saturating_mul(geometry.inner).saturating_mul(threads)
}

/// Pools f32 volumes. `scratch` holds [`scratch_len`] elements for the threads of `par`.
///
/// # Panics
/// Where a slice is not as long as the geometry says.
pub fn pool_f32(
    isa: Isa,
    par: &Par,
    geometry: &Geometry,
    reduction: Reduction,
    input: &[f32],
    output: &mut [f32],
    scratch: &mut [f32],
) {
    geometry.check(input.len(), output.len());
    match reduction {
        Reduction::Max => run(isa, par, geometry, Max, input, output, scratch),
        Reduction::Average(divisor) => {
            run(isa, par, geometry, Sum(divisor), input, output, scratch)
        }
        Reduction::Power { p: f64::INFINITY, .. } => {
            run(isa, par, geometry, Magnitude { least: false }, input, output, scratch);
        }
        Reduction::Power { p: f64::NEG_INFINITY, .. } => {
            run(isa, par, geometry, Magnitude { least: true }, input, output, scratch);
        }
        Reduction::Power { p, size } => {
            run(isa, par, geometry, PowerSum { p, size }, input, output, scratch);
        }
    }
}

/// [`Reduction::Max`] of words of two bf16, each half by itself. `scratch` as for [`pool_f32`];
/// pixels have more than one word.
///
/// # Panics
/// Where a slice is not as long as the geometry says.
pub fn max_of_pairs(
    isa: Isa,
    par: &Par,
    geometry: &Geometry,
    input: &[f32],
    output: &mut [f32],
    scratch: &mut [f32],
) {
    geometry.check(input.len(), output.len());
    assert!(geometry.inner > 1, "words of single pixels");
    run(isa, par, geometry, MaxOfPairs, input, output, scratch);
}

fn run<R: Reduce>(
    isa: Isa,
    par: &Par,
    geometry: &Geometry,
    reduce: R,
    input: &[f32],
    output: &mut [f32],
    scratch: &mut [f32],
) {
    let width = geometry.axes[2];
    let (buffer, row) = (width.input() * geometry.inner, width.output() * geometry.inner);
    assert!(scratch.len() >= buffer * par.threads(), "scratch of a pooling");
    let (output, scratch) = (SharedMut::new(output), SharedMut::new(scratch));
    let taps = |axis: &Axis| axis.window(axis.output() / 2).taps.max(1);
    let work = buffer * taps(&geometry.axes[0]) * taps(&geometry.axes[1]) + row * taps(&width);
    par.split_planes(geometry.split(), GRAIN / work.max(1), |worker, rows| {
        // SAFETY: tasks have disjoint rows; no two tasks run at the same time under the same
        // worker.
        let (output, buffer) = unsafe {
            (
                output.slice(rows.start * row..rows.end * row),
                scratch.slice(worker * buffer..(worker + 1) * buffer),
            )
        };
        isa.run(Rows { geometry, reduce, input, output, buffer, rows });
    });
}

/// The algebra of a pooling: `finish(join(lift(x0), lift(x1), ...))`.
trait Reduce: Copy + Send + Sync {
    /// The identity of `join`.
    const INIT: f32;
    #[inline(always)]
    fn lift<S: Simd>(self, _: S, x: S::F32) -> S::F32 {
        x
    }
    fn join<S: Simd>(self, s: S, acc: S::F32, x: S::F32) -> S::F32;
    /// `join` of single elements.
    fn join_one(self, acc: f32, x: f32) -> f32;
    /// The last step, for outputs whose windows have the same extent.
    #[inline(always)]
    fn finish(self, _windows: [Window; 3], _out: &mut [f32]) {}
}

#[derive(Clone, Copy)]
struct Max;

impl Reduce for Max {
    const INIT: f32 = f32::NEG_INFINITY;
    #[inline(always)]
    fn join<S: Simd>(self, s: S, acc: S::F32, x: S::F32) -> S::F32 {
        // `max` keeps its second operand where either is NaN: acc stays NaN, and a NaN x is let in.
        s.select(s.eq(x, x), s.max(x, acc), x)
    }
    #[inline(always)]
    fn join_one(self, acc: f32, x: f32) -> f32 {
        if x > acc || x.is_nan() { x } else { acc }
    }
}

/// Of each half of a word by itself: which of two bf16 is greater f32 says.
#[derive(Clone, Copy)]
struct MaxOfPairs;

impl Reduce for MaxOfPairs {
    const INIT: f32 = f32::from_bits(0xff80_ff80); // twice -inf
    #[inline(always)]
    fn join<S: Simd>(self, s: S, acc: S::F32, x: S::F32) -> S::F32 {
        let lower = Max.join(s, s.lower_bf16(acc), s.lower_bf16(x));
        let upper = Max.join(s, s.upper_bf16(acc), s.upper_bf16(x));
        let lower = s.and_i32(s.shr_i32::<16>(s.as_i32(lower)), s.splat_i32(0xffff));
        s.as_f32(s.or_i32(lower, s.as_i32(upper)))
    }
    fn join_one(self, _: f32, _: f32) -> f32 {
        unreachable!("pixels of one word")
    }
}

#[derive(Clone, Copy)]
struct Sum(Divisor);

impl Reduce for Sum {
    const INIT: f32 = 0.0;
    #[inline(always)]
    fn join<S: Simd>(self, s: S, acc: S::F32, x: S::F32) -> S::F32 {
        s.add(acc, x)
    }
    #[inline(always)]
    fn join_one(self, acc: f32, x: f32) -> f32 {
        acc + x
    }
    #[inline(always)]
    fn finish(self, windows: [Window; 3], out: &mut [f32]) {
        if windows.iter().any(|w| w.taps == 0) {
            return out.fill(0.0);
        }
        let divisor = self.0.of(windows) as f32;
        out.iter_mut().for_each(|x| *x /= divisor);
    }
}

/// The greatest magnitude, or the least: the greatest of the negative ones.
#[derive(Clone, Copy)]
struct Magnitude {
    least: bool,
}

impl Reduce for Magnitude {
    const INIT: f32 = Max::INIT;
    #[inline(always)]
    fn lift<S: Simd>(self, s: S, x: S::F32) -> S::F32 {
        let size = s.abs(x);
        if self.least { s.mul(size, s.splat(-1.0)) } else { size }
    }
    #[inline(always)]
    fn join<S: Simd>(self, s: S, acc: S::F32, x: S::F32) -> S::F32 {
        Max.join(s, acc, x)
    }
    #[inline(always)]
    fn join_one(self, acc: f32, x: f32) -> f32 {
        Max.join_one(acc, x)
    }
    #[inline(always)]
    fn finish(self, _: [Window; 3], out: &mut [f32]) {
        if self.least {
            out.iter_mut().for_each(|x| *x = -*x);
        }
    }
}

#[derive(Clone, Copy)]
struct PowerSum {
    p: f64,
    size: usize,
}

impl Reduce for PowerSum {
    const INIT: f32 = 0.0;
    #[inline(always)]
    fn lift<S: Simd>(self, s: S, x: S::F32) -> S::F32 {
        if self.p == 2.0 {
            s.mul(x, x)
        } else if self.p == 1.0 {
            x
        } else {
            // Rare exponents: lane by lane through the library's pow.
            let mut lanes = [0.0; 16];
            let lanes = &mut lanes[..S::LANES];
            s.store(x, lanes);
            lanes.iter_mut().for_each(|x| *x = f64::from(*x).powf(self.p) as f32);
            s.load(lanes)
        }
    }
    #[inline(always)]
    fn join<S: Simd>(self, s: S, acc: S::F32, x: S::F32) -> S::F32 {
        s.add(acc, x)
    }
    #[inline(always)]
    fn join_one(self, acc: f32, x: f32) -> f32 {
        acc + x
    }
    #[inline(always)]
    fn finish(self, windows: [Window; 3], out: &mut [f32]) {
        let scale = self.size as f32 / Divisor::Inputs.of(windows) as f32;
        for x in out {
            let sum = *x * scale;
            *x = if self.p == 2.0 {
                sum.sqrt()
            } else if self.p == 1.0 {
                sum
            } else {
                f64::from(sum).powf(1.0 / self.p) as f32
            };
        }
    }
}

struct Rows<'a, R> {
    geometry: &'a Geometry,
    reduce: R,
    input: &'a [f32],
    /// The output rows of this task.
    output: &'a mut [f32],
    /// One input row.
    buffer: &'a mut [f32],
    rows: Range<usize>,
}

impl<R: Reduce> Vectorized for Rows<'_, R> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { geometry, reduce, input, output, buffer, rows } = self;
        let [_, height, width] = &geometry.axes;
        let inner = geometry.inner;
        let volume = geometry.input_volume();
        for (row, out) in rows.zip(output.chunks_exact_mut((width.output() * inner).max(1))) {
            let (plane, z, y) = geometry.row(row);
            let input = &input[plane * volume..(plane + 1) * volume];
            join_rows(s, reduce, input, height.input(), z, y, buffer);
            let (interior, stride) = width.interior();
            let (left, right) = (0..interior.start, interior.end..width.output());
            for x in left.chain(right) {
                let w = width.window(x);
                let out = &mut out[x * inner..(x + 1) * inner];
                pixel(s, reduce, buffer, w, out);
                reduce.finish([z, y, w], out);
            }
            if !interior.is_empty() {
                let w = width.window(interior.start);
                let out = &mut out[interior.start * inner..interior.end * inner];
                if inner == S::LANES {
                    vectors(s, reduce, buffer, w, stride, out);
                } else if inner > 1 {
                    for (i, out) in out.chunks_exact_mut(inner).enumerate() {
                        pixel(s, reduce, buffer, Window { start: w.start + i * stride, ..w }, out);
                    }
                } else if stride == 1 {
                    neighbours(s, reduce, buffer, w, out);
                } else {
                    strided(reduce, buffer, w, stride, out);
                }
                reduce.finish([z, y, w], out);
            }
        }
    }
}

/// `out[x] = join of lift(input[z, y, x])` over all z and y of the windows, up to four rows at a
/// time.
#[inline(always)]
fn join_rows<S: Simd, R: Reduce>(
    s: S,
    reduce: R,
    input: &[f32],
    height: usize,
    z: Window,
    y: Window,
    out: &mut [f32],
) {
    let width = out.len();
    let row = |i: usize| {
        let (z, y) = (z.start + i / y.taps * z.step, y.start + i % y.taps * y.step);
        &input[(z * height + y) * width..][..width]
    };
    let rows = z.taps * y.taps;
    if rows == 0 {
        out.fill(R::INIT);
    }
    for i in (0..rows).step_by(4) {
        let fresh = i == 0;
        match rows - i {
            1 => join_some(s, reduce, fresh, [row(i)], out),
            2 => join_some(s, reduce, fresh, [row(i), row(i + 1)], out),
            3 => join_some(s, reduce, fresh, [row(i), row(i + 1), row(i + 2)], out),
            _ => join_some(s, reduce, fresh, [row(i), row(i + 1), row(i + 2), row(i + 3)], out),
        }
    }
}

/// Joins rows to `out`, or puts their join there where it is `fresh`.
#[inline(always)]
fn join_some<S: Simd, R: Reduce, const N: usize>(
    s: S,
    reduce: R,
    fresh: bool,
    rows: [&[f32]; N],
    out: &mut [f32],
) {
    let width = out.len();
    assert!(rows.iter().all(|r| r.len() == width));
    let whole = width - width % S::LANES;
    for x in (0..whole).step_by(S::LANES) {
        // SAFETY: out and every row (asserted) have LANES elements from x on.
        unsafe {
            let out = out.as_mut_ptr().add(x);
            let mut acc = if fresh { s.splat(R::INIT) } else { s.load_ptr(out) };
            unroll!(N, |I| {
                acc = reduce.join(s, acc, reduce.lift(s, s.load_ptr(rows[I].as_ptr().add(x))));
            });
            s.store_ptr(acc, out);
        }
    }
    let out = &mut out[whole..];
    if !out.is_empty() {
        let mut acc = if fresh { s.splat(R::INIT) } else { s.load_partial(out) };
        for row in rows {
            acc = reduce.join(s, acc, reduce.lift(s, s.load_partial(&row[whole..])));
        }
        s.store_partial(acc, out);
    }
}

/// One output, all elements of the pixel: `out[i] = join of buffer[x, i]` over x of the window.
#[inline(always)]
fn pixel<S: Simd, R: Reduce>(s: S, reduce: R, buffer: &[f32], w: Window, out: &mut [f32]) {
    if let [out] = out {
        *out = w.positions().fold(R::INIT, |acc, x| reduce.join_one(acc, buffer[x]));
        return;
    }
    let inner = out.len();
    if inner == S::LANES && w.taps > 0 {
        return vectors(s, reduce, buffer, w, 1, out);
    }
    for (i, out) in out.chunks_mut(S::LANES).enumerate() {
        let mut acc = s.splat(R::INIT);
        for x in w.positions() {
            let at = x * inner + i * S::LANES;
            acc = reduce.join(s, acc, s.load_partial(&buffer[at..at + out.len()]));
        }
        s.store_partial(acc, out);
    }
}

/// Whole windows of pixels that are a vector each: `out[i] = join of buffer[start + i *
/// stride + t * step]` over the taps t.
#[inline(always)]
fn vectors<S: Simd, R: Reduce>(
    s: S,
    reduce: R,
    buffer: &[f32],
    w: Window,
    stride: usize,
    out: &mut [f32],
) {
    let pixels = out.len() / S::LANES;
    let reach = (pixels - 1) * stride + (w.taps - 1) * w.step + 1;
    let buffer = &buffer[w.start * S::LANES..][..reach * S::LANES];
    for (i, out) in out.chunks_exact_mut(S::LANES).enumerate() {
        let mut at = buffer[i * stride * S::LANES..].as_ptr();
        let mut acc = s.splat(R::INIT);
        for _ in 0..w.taps {
            // SAFETY: the buffer reaches to the last tap of the last pixel.
            acc = reduce.join(s, acc, unsafe { s.load_ptr(at) });
            at = at.wrapping_add(w.step * S::LANES);
        }
        s.store(acc, out);
    }
}

/// Whole windows at stride 1: `out[i] = join of buffer[start + i + t * step]` over the taps t.
#[inline(always)]
fn neighbours<S: Simd, R: Reduce>(s: S, reduce: R, buffer: &[f32], w: Window, out: &mut [f32]) {
    let buffer = &buffer[w.start..w.start + (w.taps - 1) * w.step + out.len()];
    let whole = out.len() - out.len() % S::LANES;
    for i in (0..whole).step_by(S::LANES) {
        let mut acc = s.load(&buffer[i..]);
        for t in 1..w.taps {
            acc = reduce.join(s, acc, s.load(&buffer[i + t * w.step..]));
        }
        s.store(acc, &mut out[i..]);
    }
    for (i, out) in out.iter_mut().enumerate().skip(whole) {
        *out = (0..w.taps).fold(R::INIT, |acc, t| reduce.join_one(acc, buffer[i + t * w.step]));
    }
}

/// Whole windows at any stride, one output after the other.
#[inline(always)]
fn strided<R: Reduce>(reduce: R, buffer: &[f32], w: Window, stride: usize, out: &mut [f32]) {
    // Sizes known when compiling let the compiler turn the common cases into vector code.
    match (w.taps, w.step, stride) {
        (2, 1, 2) => fixed::<2, 2, R>(reduce, &buffer[w.start..], out),
        (3, 1, 2) => fixed::<3, 2, R>(reduce, &buffer[w.start..], out),
        (3, 1, 3) => fixed::<3, 3, R>(reduce, &buffer[w.start..], out),
        _ => {
            for (i, out) in out.iter_mut().enumerate() {
                let w = Window { start: w.start + i * stride, ..w };
                *out = w.positions().fold(R::INIT, |acc, x| reduce.join_one(acc, buffer[x]));
            }
        }
    }
}

#[inline(always)]
fn fixed<const TAPS: usize, const STRIDE: usize, R: Reduce>(
    reduce: R,
    buffer: &[f32],
    out: &mut [f32],
) {
    let buffer = &buffer[..(out.len() - 1) * STRIDE + TAPS];
    for (i, out) in out.iter_mut().enumerate() {
        *out = (0..TAPS).fold(R::INIT, |acc, t| reduce.join_one(acc, buffer[i * STRIDE + t]));
    }
}

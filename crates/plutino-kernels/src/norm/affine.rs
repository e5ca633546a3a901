//! A scale and a shift for each channel: batch norm with fixed statistics.
//!
//! `y[n, c, i] = f(x[n, c, i] scale[c] + shift[c])`, with an activation f that was fused.
//!
//! Loops: for each channel of each image (parallel) - its elements. Where a channel has one
//! element, the channels of an image are the row. One pass: the speed is the memory's.

use crate::activation::Activation;
use crate::number::Float;
use crate::par::SharedMut;
use crate::simd::{Simd, Vectorized};
use crate::{InOut, Isa, Par};
use plutino_cpu::row::{Map, map_row};

/// Elements below which a task is not worth a thread.
const GRAIN: usize = 1 << 14;

/// Scales and shifts the channels of a dense f32 tensor `[outer, channels, inner]`.
///
/// # Panics
/// Where the slices are not as long as the sizes say.
pub fn channel_affine(
    isa: Isa,
    par: &Par,
    [outer, channels, inner]: [usize; 3],
    scale: &[f32],
    shift: &[f32],
    activation: Option<Activation>,
    data: InOut<'_, f32>,
) {
    // Rows either have one scale each, or a scale for each element.
    let (rows, len) = if inner == 1 { (outer, channels) } else { (outer * channels, inner) };
    let per_element = inner == 1;
    assert!(scale.len() == channels && shift.len() == channels, "parameters of an affine map");
    split(par, rows, len, data, |first, src, dst| {
        isa.run(Rows { len, per_element, scale, shift, activation, first, src, dst });
    });
}

/// As [`channel_affine`], for blocks of channels: `[outer, blocks, pixels, block]` with a multiple
/// of [`Isa::lanes`] as block. `scale` and `shift` hold `blocks * block` elements, 0 for padding
/// channels.
///
/// # Panics
/// Where the slices are not as long as the sizes say, or the block does not suit the instruction
/// set.
pub fn channel_affine_blocked(
    isa: Isa,
    par: &Par,
    [outer, blocks, pixels, block]: [usize; 4],
    scale: &[f32],
    shift: &[f32],
    activation: Option<Activation>,
    data: InOut<'_, f32>,
) {
    assert!(block.is_multiple_of(isa.lanes()), "block of channels");
    let channels = blocks * block;
    assert!(scale.len() == channels && shift.len() == channels, "parameters of an affine map");
    let len = pixels * block;
    split(par, outer * blocks, len, data, |first, src, dst| {
        for (r, dst) in dst.chunks_exact_mut(len.max(1)).enumerate() {
            let src = src.map(|src| &src[r * len..(r + 1) * len]);
            let part = (first + r) % blocks * block..;
            let (scale, shift) = (&scale[part.clone()][..block], &shift[part][..block]);
            isa.run(Pixels { scale, shift, activation, src, dst });
        }
    });
}

/// Cuts rows into tasks and calls `f(first row, source, destination)` for each.
fn split(
    par: &Par,
    rows: usize,
    len: usize,
    data: InOut<'_, f32>,
    f: impl Fn(usize, Option<&[f32]>, &mut [f32]) + Sync,
) {
    let (src, dst) = match data {
        InOut::Apart { src, dst } => (Some(src), dst),
        InOut::Same(dst) => (None, dst),
    };
    let total = rows.saturating_mul(len);
    assert!(src.is_none_or(|s| s.len() == total) && dst.len() == total, "size of an affine map");
    let dst = SharedMut::new(dst);
    par.split(rows, GRAIN / len.max(1), |rows| {
        let part = rows.start * len..rows.end * len;
        // SAFETY: tasks have disjoint rows.
        f(rows.start, src.map(|src| &src[part.clone()]), unsafe { dst.slice(part) });
    });
}

struct Rows<'a> {
    len: usize,
    per_element: bool,
    scale: &'a [f32],
    shift: &'a [f32],
    activation: Option<Activation>,
    /// Number of the first row.
    first: usize,
    /// None: in place.
    src: Option<&'a [f32]>,
    dst: &'a mut [f32],
}

impl Vectorized for Rows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { len, per_element, scale, shift, activation, first, src, dst } = self;
        for (r, dst) in dst.chunks_exact_mut(len.max(1)).enumerate() {
            let src = src.map(|src| &src[r * len..(r + 1) * len]);
            if per_element {
                map_row(s, &mut PerElement { scale, shift, activation }, src, dst);
            } else {
                let c = (first + r) % scale.len();
                let (scale, shift) = (s.splat(scale[c]), s.splat(shift[c]));
                map_row(s, &mut Uniform::<S> { scale, shift, activation }, src, dst);
            }
        }
    }
}

struct Uniform<S: Simd> {
    scale: S::F32,
    shift: S::F32,
    activation: Option<Activation>,
}

impl<S: Simd> Map<S> for Uniform<S> {
    #[inline(always)]
    fn map(&mut self, s: S, x: S::F32, _: usize, _: usize) -> S::F32 {
        activate(s, self.activation, s.fma(x, self.scale, self.shift))
    }
}

struct PerElement<'a> {
    scale: &'a [f32],
    shift: &'a [f32],
    activation: Option<Activation>,
}

impl<S: Simd> Map<S> for PerElement<'_> {
    #[inline(always)]
    fn map(&mut self, s: S, x: S::F32, at: usize, n: usize) -> S::F32 {
        let (scale, shift) = if n == S::LANES {
            (s.load(&self.scale[at..]), s.load(&self.shift[at..]))
        } else {
            (s.load_partial(&self.scale[at..at + n]), s.load_partial(&self.shift[at..at + n]))
        };
        activate(s, self.activation, s.fma(x, scale, shift))
    }
}

/// The pixels of one block of channels.
struct Pixels<'a> {
    scale: &'a [f32],
    shift: &'a [f32],
    activation: Option<Activation>,
    /// None: in place.
    src: Option<&'a [f32]>,
    dst: &'a mut [f32],
}

impl Vectorized for Pixels<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { scale, shift, activation, src, dst } = self;
        let block = scale.len();
        for lane in (0..block).step_by(S::LANES) {
            let (scale, shift) = (s.load(&scale[lane..]), s.load(&shift[lane..]));
            for at in (lane..dst.len()).step_by(block) {
                let x = match src {
                    Some(src) => s.load(&src[at..]),
                    None => s.load(&dst[at..]),
                };
                s.store(activate(s, activation, s.fma(x, scale, shift)), &mut dst[at..]);
            }
        }
    }
}

#[cfg_attr(not(unoptimised), inline(always))]
fn activate<S: Simd>(s: S, activation: Option<Activation>, y: S::F32) -> S::F32 {
    match activation {
        None => y,
        Some(activation) => activation.apply(s, y),
    }
}

/// Scales and shifts the channels of a dense tensor of any float dtype, in f64.
///
/// # Panics
/// Where the slices are not as long as the sizes say.
pub fn channel_affine_any<T: Float>(
    par: &Par,
    [outer, channels, inner]: [usize; 3],
    scale: &[f64],
    shift: &[f64],
    input: &[T],
    output: &mut [T],
) {
    let total = outer.saturating_mul(channels).saturating_mul(inner);
    assert!(input.len() == total && output.len() == total, "size of an affine map");
    assert!(scale.len() == channels && shift.len() == channels, "parameters of an affine map");
    par.chunks_mut(output, inner.max(1), |r, out| {
        let c = r % channels;
        for (out, x) in out.iter_mut().zip(&input[r * inner..(r + 1) * inner]) {
            *out = T::narrow(x.widen() * scale[c] + shift[c]);
        }
    });
}

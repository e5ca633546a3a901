//! Local response normalisation across channels.
//!
//! `y[n, c, i] = x[n, c, i] / (k + alpha / size * sum over c' of x[n, c', i]^2)^beta`, where c'
//! runs over `size` channels, `size / 2` of them before c
//! (<https://pytorch.org/docs/stable/generated/torch.nn.LocalResponseNorm.html>).
//!
//! Loops: for each channel of each image (parallel) - its elements, a vector at a time - the
//! channels of the window. The power costs a square root or two for the usual exponents, else
//! e^(beta ln d) with a relative error of `2^-24 (2 beta |ln d| + 2)`.

use crate::number::Float;
use crate::par::SharedMut;
use crate::simd::{Simd, Vectorized};
use crate::{Isa, Par, math};
use std::ops::Range;

/// Steps (element x window) below which a task is not worth a thread.
const GRAIN: usize = 1 << 13;

/// The parameters, as PyTorch names them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocalResponse {
    /// Channels of the window.
    pub size: usize,
    /// Factor of the mean square.
    pub alpha: f64,
    /// Exponent.
    pub beta: f64,
    /// What is added to the mean square.
    pub k: f64,
}

impl LocalResponse {
    fn window(&self, c: usize, channels: usize) -> Range<usize> {
        let before = self.size / 2;
        let end = (c + self.size).saturating_sub(before).min(channels);
        c.saturating_sub(before)..end
    }
}

/// Normalises a dense f32 tensor `[outer, channels, inner]`.
///
/// # Panics
/// Where a slice is not as long as the sizes say.
pub fn local_response(
    isa: Isa,
    par: &Par,
    norm: &LocalResponse,
    [outer, channels, inner]: [usize; 3],
    input: &[f32],
    output: &mut [f32],
) {
    let total = outer.saturating_mul(channels).saturating_mul(inner);
    assert!(input.len() == total && output.len() == total, "size of a local response norm");
    let output = SharedMut::new(output);
    let work = inner.saturating_mul(norm.size.min(channels)).max(1);
    par.split(outer * channels, GRAIN / work, |rows| {
        for row in rows {
            let (start, c) = (row / channels * channels, row % channels);
            let window = norm.window(c, channels);
            let window = (start + window.start) * inner..(start + window.end) * inner;
            let part = row * inner..(row + 1) * inner;
            isa.run(Row {
                norm,
                window: &input[window],
                input: &input[part.clone()],
                // SAFETY: rows are disjoint.
                output: unsafe { output.slice(part) },
            });
        }
    });
}

struct Row<'a> {
    norm: &'a LocalResponse,
    /// The channels of the window, one after the other.
    window: &'a [f32],
    input: &'a [f32],
    output: &'a mut [f32],
}

impl Vectorized for Row<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { norm, window, input, output } = self;
        let inner = output.len();
        let (alpha, k) = (s.splat((norm.alpha / norm.size as f64) as f32), s.splat(norm.k as f32));
        for at in (0..inner).step_by(S::LANES) {
            let n = S::LANES.min(inner - at);
            let mut sum = s.zero();
            for channel in window.chunks_exact(inner) {
                let x = s.load_up_to(&channel[at..], n);
                sum = s.fma(x, x, sum);
            }
            let d = power(s, s.fma(sum, alpha, k), norm.beta);
            let y = s.div(s.load_up_to(&input[at..], n), d);
            s.store_up_to(y, &mut output[at..], n);
        }
    }
}

/// x^beta.
#[inline(always)]
fn power<S: Simd>(s: S, x: S::F32, beta: f64) -> S::F32 {
    if beta == 0.75 {
        let root = s.sqrt(x);
        s.mul(root, s.sqrt(root))
    } else if beta == 0.5 {
        s.sqrt(x)
    } else if beta == 1.0 {
        x
    } else {
        math::exp(s, s.mul(math::log(s, x), s.splat(beta as f32)))
    }
}

/// Normalises a dense tensor of any float dtype, in f64.
///
/// # Panics
/// Where a slice is not as long as the sizes say.
pub fn local_response_any<T: Float>(
    par: &Par,
    norm: &LocalResponse,
    [outer, channels, inner]: [usize; 3],
    input: &[T],
    output: &mut [T],
) {
    let total = outer.saturating_mul(channels).saturating_mul(inner);
    assert!(input.len() == total && output.len() == total, "size of a local response norm");
    par.chunks_mut(output, inner.max(1), |row, out| {
        let (start, c) = (row / channels * channels, row % channels);
        for (i, out) in out.iter_mut().enumerate() {
            let x = |c: usize| input[(start + c) * inner + i].widen();
            let sum: f64 = norm.window(c, channels).map(|c| x(c) * x(c)).sum();
            let d = (norm.k + norm.alpha / norm.size as f64 * sum).powf(norm.beta);
            *out = T::narrow(x(c) / d);
        }
    });
}

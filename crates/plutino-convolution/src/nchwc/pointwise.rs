//! 1x1 convolution on channel blocks, with any stride: a matrix product whose operands lie as the
//! register tile reads them.
//!
//! ```text
//! y[n, o, p] = act(bias[o] + residual[n, o, p]
//!                  + sum over channels c of x[n, c, p] f[n, c] w[o, c])
//! ```
//! The register tile is the direct convolution's: pixels times two blocks of output channels. With
//! stride 1 pixels lie side by side and need no table of where; with strides a task copies the
//! pixels that it reads, since what lies between them would take as much cache as they do. A last
//! block of few channels is computed by halves of vectors.
//!
//! Factors `f` (squeeze and excite) are multiplied into the weights, for one image after the other,
//! not into the pixels.
//!
//! For: every layer of ResNet's bottlenecks, MobileNet's expansions. Figures:
//! docs/decisions/002-direct-convolution.md.

use super::direct::{Shared, has_whole_groups};
use super::tile::NB;
use super::tiled::{self, ConvInput, Cut, DirectWeights, Reads, Tiled};
use super::window::Window;
use crate::algorithm::{Bound, Operands, take};
use crate::choose::Request;
use crate::problem::ConvError;
use plutino_cpu::simd::{Isa, Simd, Vectorized};
use plutino_cpu::{PackKey, Par};
use plutino_tensor::FloatSource;
use std::borrow::Cow;

/// Bound to a problem.
#[derive(Debug)]
pub(crate) struct Pointwise {
    shared: Shared,
    factors: bool,
    cycles: f64,
}

/// Estimated cycles: no table, or a copy without what is not read, are ahead of the direct
/// convolution.
pub(super) fn cycles(request: &Request<'_>) -> f64 {
    0.98 * tiled::cycles(request)
}

/// With factors, exists where it is faster to multiply the weights than the image.
pub(crate) fn bind(request: &Request<'_>) -> Option<Pointwise> {
    let &Request { problem, post_ops, isa, threads, .. } = request;
    let window = Window::of(&problem).filter(Window::is_sample)?;
    // Multiplying the weights takes `out` multiplications for each channel, multiplying the image
    // one for each pixel: these take two to three times as long, since every vector of the image
    // has another address of its factors.
    let scales = problem.groups() == 1
        && window.is_pointwise()
        && problem.out_channels() <= 2 * window.pixels();
    if !has_whole_groups(&problem, isa) || (post_ops.factors && !scales) {
        return None;
    }
    let [inp, out] = [problem.in_channels(), problem.out_channels()];
    let batch = if post_ops.factors { 1 } else { problem.batch() }; // at a time
    let tiled = if window.stride == [1, 1] {
        Tiled::in_place(isa, window, [inp, out], batch, post_ops.activation, threads)
    } else {
        let cut = Cut::new(isa, &window, inp * 4, batch, threads.max(1));
        let reads = Reads::Pixels(cut.pixels * inp.next_multiple_of(isa.lanes()));
        Tiled::new(isa, window, (cut, reads), out, batch, post_ops.activation)
    };
    let shared = Shared::new(request, ConvInput::Blocked, tiled);
    Some(Pointwise { shared, factors: post_ops.factors, cycles: cycles(request) })
}

impl Pointwise {
    /// f32 of weights times factors, in whole cache lines.
    fn scaled_len(&self) -> usize {
        let p = &self.shared.problem;
        let out = p.out_channels().next_multiple_of(NB * self.shared.isa.lanes());
        if self.factors { out.saturating_mul(p.in_channels()).next_multiple_of(16) } else { 0 }
    }
}

impl Bound for Pointwise {
    type Weights = DirectWeights;

    fn cycles(&self) -> f64 {
        self.cycles
    }

    fn pack_key(&self) -> PackKey {
        self.shared.pack_key()
    }

    fn pack(&self, weight: &mut dyn FloatSource, par: &Par) -> Result<DirectWeights, ConvError> {
        self.shared.pack(weight, par)
    }

    fn bytes(weights: &DirectWeights) -> usize {
        weights.bytes()
    }

    fn bias<'b>(&self, bias: Option<&'b [f32]>) -> Cow<'b, [f32]> {
        self.shared.bias(bias)
    }

    fn pointwise(&self) -> Option<&Shared> {
        Bound::pointwise(&self.shared).filter(|_| !self.factors)
    }

    fn workspace(&self) -> usize {
        let scaled = self.scaled_len().saturating_mul(size_of::<f32>());
        self.shared.workspace().saturating_add(scaled)
    }

    fn run(
        &self,
        weights: &DirectWeights,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        let Some(factors) = operands.factors else {
            return Bound::run(&self.shared, weights, operands, workspace, par);
        };
        let (memory, rest) = take::<f32>(workspace, self.scaled_len())?;
        let Operands { x, bias, residual, y, .. } = operands;
        let batch = self.shared.problem.batch().max(1);
        let (image, out_image, inp) = (x.len() / batch, y.len() / batch, factors.len() / batch);
        let images = x.chunks_exact(image).zip(factors.chunks_exact(inp));
        for (n, (y, (x, factors))) in y.chunks_exact_mut(out_image).zip(images).enumerate() {
            let scaled = scale(self.shared.isa, weights, factors, memory, par);
            let residual = residual.map(|r| r.part(n * out_image..(n + 1) * out_image));
            let operands = Operands { x, bias, factors: None, residual, y };
            self.shared.run(scaled, operands, rest, par)?;
        }
        Ok(())
    }
}

/// Weights in `memory`, each times the factor of its input channel.
fn scale<'a>(
    isa: Isa,
    weights: &DirectWeights,
    factors: &[f32],
    memory: &'a mut [f32],
    par: &Par,
) -> DirectWeights<&'a [f32]> {
    let panel = weights.channels[1] * NB * weights.block;
    let (from, to) = (weights.as_slice(), &mut memory[..weights.as_slice().len()]);
    par.chunks_mut(to, panel, |i, to| {
        isa.run(Scale { from: &from[i * panel..][..to.len()], factors, to });
    });
    weights.with(to)
}

/// A panel of 1x1 weights, times one factor for each row of `NB` vectors.
struct Scale<'a> {
    from: &'a [f32],
    factors: &'a [f32],
    to: &'a mut [f32],
}

impl Vectorized for Scale<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = NB * S::LANES;
        let rows = self.from.chunks_exact(width).zip(self.to.chunks_exact_mut(width));
        for ((from, to), &factor) in rows.zip(self.factors) {
            let factor = s.splat(factor);
            for at in (0..width).step_by(S::LANES) {
                s.store(s.mul(s.load(&from[at..]), factor), &mut to[at..]);
            }
        }
    }
}

//! Every transposed convolution: a matrix product, then its columns are added up where they belong
//! (col2im).
//!
//! A transposed convolution is the gradient of a convolution with respect to its image: every
//! element of the input is multiplied by the whole window of weights, and the windows are added up
//! at their places. <https://pytorch.org/docs/stable/generated/torch.nn.ConvTranspose2d.html>
//!
//! ```text
//! cols[(channel, tap), place] = sum over input channels of weight[input channel, (channel, tap)]
//!                                                        * input[input channel, place]
//! output[channel, i] = bias[channel] + sum over (tap, place) with place * stride + tap * dilation
//!                                                                  - padding = i of cols[(channel, tap), place]
//! ```
//! The product takes images and groups one by one, cut into bands of channels so that `cols` stays
//! small; each channel is then summed by one task, its taps in order: no bit depends on the
//! threads.
//!
//! In the code below, sizes are those of the convolution it is the gradient of
//! ([`ConvProblem::adjoint`]): what it writes has that one's input sizes and channels, what it
//! reads its output sizes.

use super::products::{self, MatrixWeights};
use crate::algorithm::{Bound, Operands, take};
use crate::choose::Request;
use crate::problem::{Axis, ConvError, ConvProblem};
use plutino_cpu::activation::Activation;
use plutino_cpu::par::SharedMut;
use plutino_cpu::{PackKey, Par};
use plutino_products::gemm::{Gemm, Operand, PostOps, Product, Size, Strided, Target};
use plutino_tensor::FloatSource;
use std::ops::Range;

/// Bound to a problem.
#[derive(Debug)]
pub(crate) struct Transposed {
    /// The convolution whose gradient is computed.
    adjoint: ConvProblem,
    activation: Option<Activation>,
    target: Target,
    threads: usize,
}

/// None for other convolutions, residuals and factors.
pub(crate) fn bind(request: &Request<'_>) -> Option<Transposed> {
    let &Request { problem, post_ops, isa, threads, .. } = request;
    let fits = problem.is_transposed() && post_ops.residual.is_none() && !post_ops.factors;
    let (adjoint, activation) = (problem.adjoint(), post_ops.activation);
    fits.then(|| Transposed {
        adjoint,
        activation,
        target: Target::this(isa),
        threads: threads.max(1),
    })
}

impl Transposed {
    /// Rows of the product of one group, (channel, tap), and its depth.
    fn sizes(&self) -> (usize, usize) {
        (self.adjoint.group_in() * self.adjoint.taps(), self.adjoint.group_out())
    }

    fn gemm(&self) -> Gemm {
        let (m, k) = self.sizes();
        let size = Size { batch: 1, m, n: self.adjoint.out_plane(), k };
        Gemm::new(self.target, self.threads, size, (true, false))
    }

    /// Elements of the columns of one group.
    fn cols(&self) -> usize {
        self.sizes().0 * self.adjoint.out_plane()
    }
}

impl Bound for Transposed {
    type Weights = MatrixWeights;

    fn cycles(&self) -> f64 {
        products::cycles(&self.adjoint.adjoint(), self.target.isa)
    }

    fn pack_key(&self) -> PackKey {
        products::pack_key("conv.matrix.transposed", self.target.isa)
    }

    fn pack(&self, weight: &mut dyn FloatSource, par: &Par) -> Result<MatrixWeights, ConvError> {
        let (m, k) = self.sizes();
        MatrixWeights::pack(self.target, weight, (m, k), true, par)
    }

    fn bytes(weights: &MatrixWeights) -> usize {
        weights.bytes()
    }

    fn workspace(&self) -> usize {
        let scratch = self.gemm().scratch(self.threads);
        self.cols().next_multiple_of(16).saturating_add(scratch).saturating_mul(size_of::<f32>())
    }

    fn run(
        &self,
        weights: &MatrixWeights,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        let g = &self.adjoint;
        let Operands { x, bias, y, .. } = operands;
        let gemm = self.gemm();
        let (cols, rest) = take::<f32>(workspace, self.cols().next_multiple_of(16))?;
        let (scratch, _) = take::<f32>(rest, gemm.scratch(self.threads))?;
        let cols = &mut cols[..self.cols()];
        let (m, n) = (g.group_in() * g.in_plane(), g.group_out() * g.out_plane());
        let all = y.chunks_exact_mut(m.max(1)).zip(x.chunks_exact(n.max(1)));
        for (i, (output, input)) in all.enumerate() {
            let group = i % g.groups();
            let right = Strided::right(input, (g.group_out(), g.out_plane()), (g.out_plane(), 1));
            let product = Product {
                a: Operand::Packed(&weights.groups[group]),
                b: Operand::Source(right),
                post_ops: PostOps::default(),
            };
            gemm.run(par, &product, cols, g.out_plane(), scratch);
            let channel = g.taps() * g.out_plane();
            let shared = SharedMut::new(output);
            par.split(g.group_in(), 1, |channels| {
                for c in channels {
                    // SAFETY: channels are disjoint, and each is written by one task.
                    let output = unsafe { shared.slice(c * g.in_plane()..(c + 1) * g.in_plane()) };
                    output.fill(0.0);
                    add_windows(g, &cols[c * channel..(c + 1) * channel], output);
                    if let Some(bias) = bias.get(group * g.group_in() + c) {
                        output.iter_mut().for_each(|y| *y += bias);
                    }
                    if let Some(activation) = self.activation {
                        activation.apply_in_place(self.target.isa, output);
                    }
                }
            });
        }
        Ok(())
    }
}

/// Adds the columns of one channel, tap by tap, to the places they belong to.
fn add_windows(g: &ConvProblem, cols: &[f32], output: &mut [f32]) {
    let [ad, ah, aw] = g.axes();
    let kernels = g.axes().map(|a| a.window().kernel);
    for (tap, cols) in cols.chunks_exact(g.out_plane().max(1)).enumerate() {
        let tz = tap / (kernels[1] * kernels[2]);
        let (ty, tx) = (tap / kernels[2] % kernels[1], tap % kernels[2]);
        let (xs, first) = landing(aw, tx);
        for (row, cols) in cols.chunks_exact(aw.output().max(1)).enumerate() {
            let z = ad.tap(row / ah.output(), tz);
            let y = ah.tap(row % ah.output(), ty);
            let (Some(z), Some(y)) = (z, y) else { continue };
            let start = (z * ah.input() + y) * aw.input();
            let to = &mut output[start..start + aw.input()];
            let from = &cols[xs.clone()];
            if from.is_empty() {
                continue;
            }
            match aw.window().stride {
                1 => to[first..].iter_mut().zip(from).for_each(|(y, x)| *y += x),
                stride => {
                    to[first..].iter_mut().step_by(stride).zip(from).for_each(|(y, x)| *y += x);
                }
            }
        }
    }
}

/// The places of a row whose tap lies inside the image, and where the first of them lies.
fn landing(axis: &Axis, tap: usize) -> (Range<usize>, usize) {
    let w = axis.window();
    let shift = tap * w.dilation;
    let first = w.padding.0.saturating_sub(shift).div_ceil(w.stride).min(axis.output());
    let end = (axis.input() + w.padding.0).saturating_sub(shift).div_ceil(w.stride);
    let end = end.clamp(first, axis.output());
    (first..end, (first * w.stride + shift).saturating_sub(w.padding.0))
}

//! Transposed convolution: a matrix product, then its columns are added up where they belong.
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
//! Sizes are those of the convolution it is the gradient of
//! ([`Axis::transposed`](super::Axis::transposed)): what it writes has the geometry's input sizes
//! and channels, what it reads its output sizes.

use super::check_len;
use super::geometry::{Axis, ConvError, ConvGeometry};
use plutino_cpu::Par;
use plutino_cpu::activation::Activation;
use plutino_cpu::par::SharedMut;
use plutino_products::gemm::{
    Epilogue, Gemm, Operand, PackedMatrix, Product, Side, Size, Strided, Target,
};
use plutino_tensor::Floats;
use std::ops::Range;

/// A transposed convolution with its products planned.
#[derive(Debug, Clone)]
pub struct ConvTranspose {
    geometry: ConvGeometry,
    target: Target,
    threads: usize,
}

/// Weights prepared for one [`ConvTranspose`], or any other that differs in batch and image size
/// only.
#[derive(Debug)]
pub struct ConvTransposeWeights {
    /// One left operand a group: (channels x taps) x input channels.
    groups: Vec<PackedMatrix>,
}

impl ConvTranspose {
    /// Plans the products.
    pub fn new(target: Target, threads: usize, geometry: ConvGeometry) -> Self {
        Self { geometry, target, threads }
    }

    /// The sizes, as those of the convolution it is the gradient of.
    pub fn geometry(&self) -> &ConvGeometry {
        &self.geometry
    }

    /// Rows of the product of one group: (channel, tap).
    fn rows(&self) -> usize {
        self.geometry.group_in() * self.geometry.taps()
    }

    fn gemm(&self) -> Gemm {
        let size = Size {
            batch: 1,
            m: self.rows(),
            n: self.geometry.out_plane(),
            k: self.geometry.group_out(),
        };
        Gemm::new(self.target, self.threads, size, (true, false))
    }

    /// Prepares the weights: input channels x channels of a group x taps, dense.
    ///
    /// # Errors
    /// [`ConvError::Length`] for another number of weights; [`ConvError::Memory`].
    pub fn pack<'w>(
        &self,
        weights: impl Into<Floats<'w>>,
        par: &Par,
    ) -> Result<ConvTransposeWeights, ConvError> {
        let (geometry, weights) = (&self.geometry, weights.into());
        check_len("weight", weights.len(), geometry.weight_len())?;
        let (m, k) = (self.rows(), geometry.group_out());
        let groups = weights
            .chunks_exact((m * k).max(1))
            .map(|w| {
                let left = Strided::left(w, (m, k), (1, m));
                PackedMatrix::of(self.target, Side::Left, &left, par)
            })
            .collect::<Result<_, _>>()?;
        Ok(ConvTransposeWeights { groups })
    }

    /// Elements of the product of one group.
    fn cols(&self) -> usize {
        self.rows() * self.geometry.out_plane()
    }

    /// f32 elements of scratch memory that [`ConvTranspose::run`] needs.
    pub fn scratch(&self) -> usize {
        self.cols().next_multiple_of(16) + self.gemm().scratch(self.threads)
    }

    /// Computes `output = activation(transposed convolution + bias)`. The bias is one number for
    /// each output channel.
    ///
    /// # Errors
    /// [`ConvError::Length`] where memory has another size than the geometry says, scratch memory
    /// is too short, or the weights are another convolution's.
    pub fn run(
        &self,
        par: &Par,
        weights: &ConvTransposeWeights,
        input: &[f32],
        (bias, activation): (Option<&[f32]>, Option<Activation>),
        output: &mut [f32],
        scratch: &mut [f32],
    ) -> Result<(), ConvError> {
        let g = &self.geometry;
        check_len("input", input.len(), g.output_len())?;
        check_len("output", output.len(), g.input_len())?;
        check_len("packed weight", weights.groups.len(), g.groups())?;
        check_len("scratch", scratch.len().min(self.scratch()), self.scratch())?;
        check_len("bias", bias.map_or(g.in_channels(), <[f32]>::len), g.in_channels())?;
        let gemm = self.gemm();
        let (cols, scratch) = scratch.split_at_mut(self.cols().next_multiple_of(16));
        let cols = &mut cols[..self.cols()];
        let (m, n) = (g.group_in() * g.in_plane(), g.group_out() * g.out_plane());
        let all = output.chunks_exact_mut(m.max(1)).zip(input.chunks_exact(n.max(1)));
        for (i, (output, input)) in all.enumerate() {
            let group = i % g.groups();
            let right = Strided::right(input, (g.group_out(), g.out_plane()), (g.out_plane(), 1));
            let product = Product {
                a: Operand::Packed(&weights.groups[group]),
                b: Operand::Source(right),
                epilogue: Epilogue::default(),
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
                    if let Some(bias) = bias.map(|b| b[group * g.group_in() + c]) {
                        output.iter_mut().for_each(|y| *y += bias);
                    }
                    if let Some(activation) = activation {
                        activation.apply_in_place(self.target.isa, output);
                    }
                }
            });
        }
        Ok(())
    }
}

/// Adds the columns of one channel, tap by tap, to the places they belong to.
fn add_windows(g: &ConvGeometry, cols: &[f32], output: &mut [f32]) {
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

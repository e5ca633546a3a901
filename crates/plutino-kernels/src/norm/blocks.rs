//! Group and instance norm of images in channel blocks: statistics over some lanes of blocks.
//!
//! `y = (x - mean) / sqrt(variance + eps) * weight + bias`, with the mean and the biased variance
//! of a group of channels of an image
//! (<https://pytorch.org/docs/stable/generated/torch.nn.GroupNorm.html>).
//!
//! ```text
//! blocks of 16 channels, groups of 10:   0123456789012345 6789012345678901
//!                                        aaaaaaaaaabbbbbb bbbbccccccccccdd
//! ```
//! A lane is a channel, whatever groups are: sums are taken by lane and then added by group.
//!
//! Loops: three passes (sums, squared deviations, results), each over parts of the pixels of a
//! block (parallel), cut by their number alone, so that the result does not depend on threads.
//! Numbers are added in f32 in chains of [`CHAIN`], and these in f64: with u = 2^-24 the mean errs
//! by 18 u mean|x|. Where that is much beside the deviations, two more passes correct the mean.

use crate::par::SharedMut;
use crate::simd::{Simd, Vectorized};
use crate::{InOut, Isa, Par};
use std::ops::Range;

/// Pixels of a part.
const PART: usize = 1 << 10;

/// Pixels whose numbers are added before f64 takes them, a quarter of them one after the other.
const CHAIN: usize = 64;

/// Lanes of a vector, at most.
const MOST: usize = 16;

/// A group norm of images in blocks of [`Isa::lanes`] channels.
#[derive(Debug, Clone)]
pub struct BlockedGroupNorm {
    isa: Isa,
    images: usize,
    channels: usize,
    pixels: usize,
    /// Channels of a group.
    each: usize,
    eps: f64,
}

impl BlockedGroupNorm {
    /// Of so many images, channels of an image and pixels of a channel. None where groups do not
    /// have the same number of channels.
    pub fn new(
        isa: Isa,
        [images, channels, pixels]: [usize; 3],
        groups: usize,
        eps: f64,
    ) -> Option<Self> {
        let each = channels.checked_div(groups).filter(|each| each * groups == channels)?;
        let fits = each > 0 && isa.lanes() <= MOST;
        fits.then_some(Self { isa, images, channels, pixels, each, eps })
    }

    fn blocks(&self) -> usize {
        self.channels.div_ceil(self.isa.lanes())
    }

    /// Parts of a block.
    fn parts(&self) -> usize {
        self.pixels.div_ceil(PART).max(1)
    }

    /// Lanes of all images: channels, and surplus lanes.
    fn lanes(&self) -> usize {
        self.images * self.blocks() * self.isa.lanes()
    }

    /// f64 of scratch memory that a run needs: for each lane a mean, a scale, and the sums of its
    /// parts.
    pub fn scratch_len(&self) -> usize {
        self.lanes().saturating_mul(2 + self.parts())
    }

    /// Normalises. There is a weight and a bias for each channel, or none.
    ///
    /// # Panics
    /// Where a slice has another length than the sizes say, or the scratch memory is too short.
    pub fn run(
        &self,
        par: &Par,
        weight: Option<&[f32]>,
        bias: Option<&[f32]>,
        data: InOut<'_, f32>,
        scratch: &mut [f64],
    ) {
        let (src, dst) = match data {
            InOut::Apart { src, dst } => (Some(src), dst),
            InOut::Same(dst) => (None, dst),
        };
        let lanes = self.lanes();
        let len = lanes * self.pixels;
        assert!(dst.len() == len && src.is_none_or(|s| s.len() == len), "images of a norm");
        for parameters in [weight, bias].into_iter().flatten() {
            assert!(parameters.len() == self.channels, "parameters of a norm");
        }
        let (moments, sums) = scratch[..self.scratch_len()].split_at_mut(2 * lanes);
        let (means, scales) = moments.split_at_mut(lanes);
        means.fill(0.0);
        self.sums::<false>(par, src.unwrap_or(dst), means, sums);
        self.each_group(sums, |lanes, mean| means[lanes].fill(f64::from(mean as f32)));
        self.sums::<true>(par, src.unwrap_or(dst), means, sums);
        // Variances, until they become scales.
        scales.fill(0.0);
        self.each_group(sums, |lanes, variance| scales[lanes].fill(variance));
        if means.iter().zip(&*scales).any(|(&mean, &variance)| super::is_narrow(mean, variance)) {
            // For these groups alone: a group's result is its own.
            self.sums::<false>(par, src.unwrap_or(dst), means, sums);
            self.each_group(sums, |lanes, off| {
                let first = lanes.start;
                if super::is_narrow(means[first], scales[first]) {
                    let mean = means[first] + off;
                    means[lanes].fill(mean);
                }
            });
            self.sums::<true>(par, src.unwrap_or(dst), means, sums);
        }
        self.each_group(sums, |lanes, variance| {
            for lane in lanes {
                let mean = means[lane] as f32;
                // Where the square of the mean or the variance overflows, PyTorch's are NaN.
                scales[lane] = match (mean * mean + variance as f32).is_finite() {
                    true => 1.0 / (variance + self.eps).sqrt(),
                    false => f64::NAN,
                };
            }
        });
        let dst = SharedMut::new(dst);
        self.each_part(par, |block, _, range| {
            let of_block = |of: &[f64]| self.of_block(of, block);
            let parameters = |of: Option<&[f32]>, default| {
                let mut all = [default; MOST];
                let first = block % self.blocks() * self.isa.lanes();
                let of = of.map_or(&[][..], |of| &of[first..]);
                all[..self.isa.lanes()].iter_mut().zip(of).for_each(|(to, from)| *to = *from);
                all
            };
            self.isa.run(Apply {
                mean: of_block(means),
                scale: of_block(scales),
                weight: parameters(weight, 1.0),
                bias: parameters(bias, 0.0),
                src: src.map(|src| &src[range.clone()]),
                // SAFETY: tasks have different pixels of different blocks.
                dst: unsafe { dst.slice(range) },
            });
        });
    }

    /// The numbers of a block's lanes.
    fn of_block(&self, of: &[f64], block: usize) -> [f32; MOST] {
        let b = self.isa.lanes();
        let mut all = [0.0; MOST];
        let of = &of[block * b..(block + 1) * b];
        all.iter_mut().zip(of).for_each(|(to, from)| *to = *from as f32);
        all
    }

    /// Calls `f` with each part: its block, counted through all images, its own number, counted
    /// through all blocks, and where its pixels lie.
    fn each_part(&self, par: &Par, f: impl Fn(usize, usize, Range<usize>) + Sync) {
        let parts = self.parts();
        par.run(self.images * self.blocks() * parts, |number| {
            let (block, part) = (number / parts, number % parts);
            let pixels = part * PART..((part + 1) * PART).min(self.pixels);
            let [start, end] =
                [pixels.start, pixels.end].map(|p| (block * self.pixels + p) * self.isa.lanes());
            f(block, number, start..end);
        });
    }

    /// Sums of what each lane of each part deviates from its mean, or of its squares.
    fn sums<const SQUARES: bool>(&self, par: &Par, x: &[f32], means: &[f64], sums: &mut [f64]) {
        let b = self.isa.lanes();
        let sums = SharedMut::new(sums);
        self.each_part(par, |block, number, range| {
            self.isa.run(Sums::<SQUARES> {
                x: &x[range],
                mean: self.of_block(means, block),
                // SAFETY: each part has sums of its own.
                sums: unsafe { sums.slice(number * b..(number + 1) * b) },
            });
        });
    }

    /// Calls `f` with the lanes of each group, and the mean of their sums.
    fn each_group(&self, sums: &[f64], mut f: impl FnMut(Range<usize>, f64)) {
        let (b, parts) = (self.isa.lanes(), self.parts());
        let count = (self.each * self.pixels) as f64;
        for image in 0..self.images {
            let first = image * self.blocks() * b;
            for group in (0..self.channels).step_by(self.each) {
                let lanes = first + group..first + group + self.each;
                let of_lane = |lane: usize| {
                    let (block, lane) = (lane / b, lane % b);
                    (0..parts).map(move |part| sums[(block * parts + part) * b + lane])
                };
                let sum: f64 = lanes.clone().flat_map(of_lane).sum();
                f(lanes, sum / count);
            }
        }
    }
}

/// Sums by lane of what some pixels of a block deviate from a mean; with `SQUARES` of its squares.
struct Sums<'a, const SQUARES: bool> {
    x: &'a [f32],
    mean: [f32; MOST],
    sums: &'a mut [f64],
}

impl<const SQUARES: bool> Vectorized for Sums<'_, SQUARES> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, mean, sums } = self;
        sums.fill(0.0);
        sum_by_lane::<S, SQUARES>(s, x, s.load(&mean), sums);
    }
}

/// Adds what each pixel deviates from the mean to the sums of its lanes; with `SQUARES` its square.
#[cfg_attr(not(unoptimised), inline(always))]
fn sum_by_lane<S: Simd, const SQUARES: bool>(s: S, x: &[f32], mean: S::F32, sums: &mut [f64]) {
    let mut lanes = [0.0; MOST];
    for chain in x.chunks(CHAIN * S::LANES) {
        let mut sum = [s.zero(); 4];
        for four in chain.chunks(4 * S::LANES) {
            for (sum, x) in sum.iter_mut().zip(four.chunks_exact(S::LANES)) {
                let deviation = s.sub(s.load(x), mean);
                *sum = match const { SQUARES } {
                    true => s.fma(deviation, deviation, *sum),
                    false => s.add(*sum, deviation),
                };
            }
        }
        let [a, b, c, d] = sum;
        s.store(s.add(s.add(a, b), s.add(c, d)), &mut lanes);
        sums.iter_mut().zip(&lanes).for_each(|(sum, &lane)| *sum += f64::from(lane));
    }
}

/// Some pixels of a block, normalised.
struct Apply<'a> {
    mean: [f32; MOST],
    scale: [f32; MOST],
    weight: [f32; MOST],
    bias: [f32; MOST],
    /// None: in place.
    src: Option<&'a [f32]>,
    dst: &'a mut [f32],
}

impl Vectorized for Apply<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { mean, scale, weight, bias, src, dst } = self;
        let [mean, scale, weight, bias] =
            [&mean, &scale, &weight, &bias].map(|lanes| s.load(&lanes[..]));
        let scale = s.mul(scale, weight);
        for (pixel, dst) in dst.chunks_exact_mut(S::LANES).enumerate() {
            let x = s.load(src.map_or(&*dst, |src| &src[pixel * S::LANES..]));
            s.store(s.fma(s.sub(x, mean), scale, bias), dst);
        }
    }
}

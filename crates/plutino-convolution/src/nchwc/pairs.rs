//! Direct and 1x1 convolution of pairs of bf16 ([`Pairs`]): those of f32 with half the channels.
//!
//! ```text
//!   f32, blocks of 16 channels            words, blocks of 32 channels
//!   pixel p of block 0: | c0 ... c15 |      | c0 c1 | c2 c3 | ... | c30 c31 |
//!   pixel p of block 1: | c16 .. c31 |        one vector, one instruction
//! ```
//! A pair of channels is a word of 32 bits, and a block of words lies as one of f32 does: tables of
//! offsets, register tiles and packed weights are those of the direct convolution with `C / 2`
//! channels, whose multiply-add is [`Simd::dot_pairs`] (`tile.rs`). What is new is a copy of the
//! image as words: of the pixels of a task where windows are of one pixel, else of an image, made
//! by all threads. Where the image comes as bf16 (`format.rs`), words are what it consists of, and
//! tiles read them where they lie; so may the residual, and the output become. The bias is f32.
//!
//! Numbers are rounded to bf16 (8 bits), products and sums are those of f32.
//!
//! For: 1x1 layers, windows with strides, first layers (`first_layer.rs`), phases of transposed
//! convolutions (`phases.rs`), where the CPU computes pairs faster than f32. Without strides
//! Winograd's algorithms, in f32, have less to compute. Figures:
//! docs/decisions/014-reduced-precision.md.

use super::direct::{Shared, has_whole_groups};
use super::format::Format;
use super::tiled::{self, ConvInput, Cut, Reads, Tiled};
use super::window::Window;
use crate::algorithm::Bound;
use crate::choose::Request;
use crate::cost;
use crate::post_ops::Bf16Tensors;
use crate::problem::ConvProblem;
use plutino_cpu::Par;
use plutino_cpu::par::SharedMut;
use plutino_cpu::simd::{Pairs, Simd, Vectorized};
use plutino_products::gemm::MatrixUnit;
use std::ops::Range;

/// Numbers of an image that become words in a cycle.
const COPIED: f64 = 8.0;

/// Estimated cycles: the sums in less time, at this share of the peak, and the copy.
pub(super) fn cycles(request: &Request<'_>, pairs: Pairs, share: f64) -> f64 {
    let p = &request.problem;
    let copied = (p.batch() * p.in_channels()) as f64 * p.in_plane() as f64;
    cost::by_sums(p, request.isa, share * pairs.rate()) + copied / COPIED
}

/// What computes pairs, where the problem is one for it.
pub(super) fn of(request: &Request<'_>) -> Option<Pairs> {
    let &Request { problem, isa, unit, .. } = request;
    let Some(MatrixUnit::Pairs(pairs)) = unit else { return None };
    // Blocks of words hold channels of one group.
    let whole = problem.groups() == 1 || problem.group_in().is_multiple_of(2 * isa.lanes());
    let fits = pairs.isa() == isa && whole && has_whole_groups(&problem, isa);
    fits.then_some(pairs)
}

/// Which tensors may be bf16: words hold channels of one group, and whole blocks, so that tiles
/// meet no surplus lanes.
pub(super) fn bf16_tensors(request: &Request<'_>) -> Bf16Tensors {
    let &Request { problem, post_ops, isa, .. } = request;
    let one = problem.groups() == 1;
    let whole = problem.in_channels().is_multiple_of(isa.lanes());
    Bf16Tensors { input: one && whole && !post_ops.factors, residual: one, output: one }
}

/// 1x1 convolutions, with any stride, and with factors of channels (squeeze and excite): what a
/// task copies is multiplied by them.
pub(crate) fn bind_pointwise(request: &Request<'_>) -> Option<impl Bound + use<>> {
    let (pairs, &Request { problem, post_ops, threads, .. }) = (of(request)?, request);
    let window = Window::of(&problem).filter(Window::is_sample)?;
    let (image, batch) = (PairImage::of(&problem, pairs), problem.batch());
    let Request { isa, bf16, .. } = *request;
    let bytes = problem.in_channels() * if bf16.input { 2 } else { 4 };
    let cut = Cut::new(isa, &window, bytes, batch, threads.max(1));
    let reads = match bf16.input {
        false => Reads::Words(image, image.len(cut.pixels, 1)),
        true if window.is_pointwise() => Reads::Input,
        true => Reads::Pixels(image.len(cut.pixels, 1)),
    };
    let out = problem.out_channels();
    let tiled = Tiled::new(isa, window, (cut, reads), out, batch, post_ops.activation);
    let tiled = tiled.of(pairs).writing(Format::of(bf16.output));
    Some(shared(request, pairs, tiled))
}

/// What both have in common.
fn shared(request: &Request<'_>, pairs: Pairs, tiled: Tiled) -> Shared {
    let cycles = cycles(request, pairs, tiled::SHARE);
    let shared = Shared::new(request, ConvInput::Pairs, tiled);
    shared.costing(cycles).taking(bf16_tensors(request))
}

/// A window on whole images of words.
pub(super) fn whole(request: &Request<'_>, pairs: Pairs, window: Window) -> Tiled {
    let &Request { problem, post_ops, isa, threads, .. } = request;
    let (image, batch) = (PairImage::of(&problem, pairs), problem.batch());
    let bytes = problem.in_channels() * 2 * window.stride[0] * window.stride[1];
    let cut = Cut::new(isa, &window, bytes, batch, threads.max(1));
    let len = image.len(window.input_pixels(), problem.groups());
    let reads = if request.bf16.input { Reads::Input } else { Reads::WholeWords(image, len) };
    let out = problem.out_channels();
    let tiled = Tiled::new(isa, window, (cut, reads), out, batch, post_ops.activation);
    tiled.of(pairs).writing(Format::of(request.bf16.output))
}

/// Any window.
pub(crate) fn bind(request: &Request<'_>) -> Option<impl Bound + use<>> {
    let (pairs, &Request { problem, post_ops, .. }) = (of(request)?, request);
    let window = Window::of_volume(&problem).filter(|_| !post_ops.factors)?;
    Some(shared(request, pairs, whole(request, pairs, window)))
}

/// The channels of a group, as numbers and as words.
#[derive(Debug, Clone, Copy)]
pub(super) struct PairImage {
    pub(super) channels: usize,
    /// Of a block of f32.
    block: usize,
}

impl PairImage {
    pub(super) fn of(problem: &ConvProblem, pairs: Pairs) -> Self {
        Self { channels: problem.group_in(), block: pairs.isa().lanes() }
    }

    /// Blocks of f32 of a group.
    pub(super) fn planes(self) -> usize {
        self.channels.div_ceil(self.block)
    }

    /// Blocks of words of a group.
    fn word_planes(self) -> usize {
        self.planes().div_ceil(2)
    }

    /// f32 of memory for the words of so many pixels.
    pub(super) fn len(self, pixels: usize, groups: usize) -> usize {
        let planes = self.word_planes().saturating_mul(groups);
        planes.saturating_mul(pixels).saturating_mul(self.block)
    }

    /// Makes the words of all pixels of a plane, of an image of `groups` groups.
    pub(super) fn copy_whole(
        self,
        pairs: Pairs,
        pixels: usize,
        x: &[f32],
        groups: usize,
        to: &mut [f32],
        par: &Par,
    ) {
        let planes = self.word_planes();
        let to = SharedMut::new(to);
        let (len, rows) = (pixels * self.block, pixels.div_ceil(PIXELS));
        par.split(groups * planes * rows, 1, |parts| {
            for part in parts {
                let (plane, row) = (part / rows, part % rows);
                let run = row * PIXELS..pixels.min((row + 1) * PIXELS);
                let start = plane * len + run.start * self.block;
                // SAFETY: each part writes pixels of its own.
                let to = unsafe { to.slice(start..start + run.len() * self.block) };
                let group = plane / planes;
                let first = group * self.planes() + 2 * (plane % planes);
                let planes = first..(group + 1) * self.planes();
                pairs.run(Words { image: self, x, pixels, planes, run, to });
            }
        });
    }

    /// Makes the words of the pixels under a window that samples, of one group; of channels times
    /// factors, where there are some: one for each channel of the image.
    #[inline(always)]
    pub(super) fn copy_pixels<S: Simd>(
        self,
        s: S,
        window: &Window,
        (x, factors): (&[f32], Option<&[f32]>),
        group: usize,
        pixels: Range<usize>,
        to: &mut [f32],
    ) {
        let plane = window.input_pixels();
        let first = group * self.planes();
        let len = pixels.len() * S::LANES;
        for (i, to) in to.chunks_exact_mut(len).take(self.word_planes()).enumerate() {
            let lower = 2 * i;
            let planes = [lower, lower + usize::from(lower + 1 < self.planes())];
            let x = planes.map(|at| &x[(first + at) * plane * S::LANES..][..plane * S::LANES]);
            match factors {
                None => self.sample::<S, false>(s, window, x, [&[]; 2], planes, pixels.clone(), to),
                Some(f) => {
                    let f = planes.map(|at| &f[(first + at) * S::LANES..][..S::LANES]);
                    self.sample::<S, true>(s, window, x, f, planes, pixels.clone(), to);
                }
            }
        }
    }

    /// The words of two planes, or of one that is given twice.
    #[allow(clippy::too_many_arguments)]
    #[cfg_attr(not(unoptimised), inline(always))]
    fn sample<S: Simd, const SCALED: bool>(
        self,
        s: S,
        window: &Window,
        [lower, upper]: [&[f32]; 2],
        factors: [&[f32]; 2],
        planes: [usize; 2],
        pixels: Range<usize>,
        to: &mut [f32],
    ) {
        let (width, both) = (window.output[1], planes[0] != planes[1]);
        let mut scale = [s.zero(); 2];
        if SCALED {
            scale = [s.load(factors[0]), s.load(factors[1])];
        }
        let mut pixel = pixels.start;
        let mut to = to.chunks_exact_mut(S::LANES);
        while pixel < pixels.end {
            let (row, column) = (pixel / width, pixel % width);
            let run = (width - column).min(pixels.end - pixel);
            let mut at =
                (row * window.stride[0] * window.input[1] + column * window.stride[1]) * S::LANES;
            for to in (&mut to).take(run) {
                let (mut low, mut high) = (s.load(&lower[at..]), s.load(&upper[at..]));
                if SCALED {
                    (low, high) = (s.mul(low, scale[0]), s.mul(high, scale[1]));
                }
                let low = self.block_of(s, planes[0], low);
                let high = if both { self.block_of(s, planes[1], high) } else { s.zero() };
                s.store(s.to_pairs(low, high), to);
                at += window.stride[1] * S::LANES;
            }
            pixel += run;
        }
    }

    /// A pixel's block, with zeros in the place of channels that there are not: they stand beside
    /// the last one where channels are odd.
    #[inline(always)]
    fn block_of<S: Simd>(self, s: S, plane: usize, x: S::F32) -> S::F32 {
        let channels = self.channels - plane * S::LANES;
        if channels < S::LANES { s.first(x, channels, 0.0) } else { x }
    }
}

/// Pixels of a plane that become words together.
const PIXELS: usize = 512;

/// Makes the words of a run of pixels of the first two `planes`, or of one that is left.
struct Words<'a> {
    image: PairImage,
    x: &'a [f32],
    /// Pixels of a plane.
    pixels: usize,
    planes: Range<usize>,
    run: Range<usize>,
    to: &'a mut [f32],
}

impl Vectorized for Words<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { image, x, pixels, planes, run, to } = self;
        let in_group = planes.start % image.planes();
        let part = |plane: usize| {
            let first = (plane * pixels + run.start) * S::LANES;
            x[first..first + run.len() * S::LANES].chunks_exact(S::LANES)
        };
        let lower = part(planes.start);
        let to = to.chunks_exact_mut(S::LANES);
        if planes.len() >= 2 {
            for ((lower, upper), to) in lower.zip(part(planes.start + 1)).zip(to) {
                let upper = image.block_of(s, in_group + 1, s.load(upper));
                s.store(s.to_pairs(s.load(lower), upper), to);
            }
        } else {
            for (lower, to) in lower.zip(to) {
                s.store(s.to_pairs(image.block_of(s, in_group, s.load(lower)), s.zero()), to);
            }
        }
    }
}

//! Convolution as a matrix product whose right operand is never built: its panels are packed
//! straight from the image.
//!
//! ```text
//! C[out channel, place] = sum over (channel, tap) of weight[out channel, (channel, tap)]
//!                                                   * image[channel, place * stride + tap * dilation]
//! ```
//! The image is first copied once, padded and cut into phases: of every `stride`-th position only
//! those that some tap reads, the positions of one phase side by side. There the element of a tap
//! and a place is at `offset(channel, tap) + offset(place)`, and neighbouring places of a row are
//! neighbours in memory, whatever the stride. So a panel of B is a few runs of consecutive floats
//! for each (channel, tap):
//!
//! ```text
//! one dimension, stride 2, 3 taps:   0 0 1 2 3 4 5 6 0      padded image
//!                                    phase 0: 0 1 3 5 0     read by taps 0 and 2
//!                                    phase 1: 0 2 4 6       read by tap 1
//! ```

use crate::problem::{Axis, ConvProblem, MAX_DIMS, PadMode};
use plutino_cpu::par::{Par, SharedMut};
use plutino_cpu::simd::Simd;
use plutino_products::gemm::Pack;
use std::ops::Range;

/// One dimension cut into phases.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AxisPhases {
    /// Positions in the padded image, modulo the stride, that taps read; ascending.
    residues: Vec<usize>,
    /// Positions kept of each phase.
    len: usize,
    /// Where each tap finds the value for place 0.
    taps: Vec<usize>,
}

impl AxisPhases {
    fn new(axis: &Axis) -> Self {
        let window = axis.window();
        let at = |tap: usize| {
            (tap * window.dilation % window.stride, tap * window.dilation / window.stride)
        };
        let mut residues: Vec<usize> = (0..window.kernel).map(|t| at(t).0).collect(); // bounded: taps
        residues.sort_unstable();
        residues.dedup();
        let len = axis.output() + at(window.kernel - 1).1;
        let phase = |residue: usize| residues.partition_point(|&r| r < residue);
        let taps = (0..window.kernel).map(|t| phase(at(t).0) * len + at(t).1).collect(); // bounded: taps
        Self { taps, len, residues }
    }

    /// Positions of all phases.
    fn size(&self) -> usize {
        self.residues.len() * self.len
    }

    /// The position in the image of position `i` of [`AxisPhases::size`], where it is not padding.
    fn source(&self, axis: &Axis, i: usize) -> Option<usize> {
        axis.source(i % self.len * axis.window().stride + self.residues[i / self.len])
    }
}

/// How images are laid out for reading windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Phases {
    problem: ConvProblem,
    axes: [AxisPhases; MAX_DIMS],
    /// Offset of (channel of a group, tap), in the order of the weights.
    offsets: Vec<usize>,
    /// Images are laid out like this already.
    as_is: bool,
}

/// Elements behind laid out images that vector loads may touch.
const SLACK: usize = 32;

impl Phases {
    pub(super) fn new(problem: &ConvProblem) -> Self {
        let axes = problem.axes().each_ref().map(AxisPhases::new);
        let [d, h, w] = &axes;
        let plane = d.size() * h.size() * w.size();
        let mut offsets = Vec::with_capacity(problem.group_in() * problem.taps());
        for c in 0..problem.group_in() {
            for td in &d.taps {
                for th in &h.taps {
                    let row = c * plane + (td * h.size() + th) * w.size();
                    offsets.extend(w.taps.iter().map(|tw| row + tw));
                }
            }
        }
        let plain = |a: &Axis| a.window().stride == 1 && a.window().padding == (0, 0);
        let as_is = problem.axes().iter().all(plain);
        Self { problem: *problem, axes, offsets, as_is }
    }

    /// Elements of one channel as laid out.
    fn plane(&self) -> usize {
        self.axes.iter().map(AxisPhases::size).product()
    }

    /// Elements of `images` images as laid out; 0 where no copy is needed.
    pub(super) fn len(&self, images: usize) -> usize {
        if self.as_is { 0 } else { images * self.problem.in_channels() * self.plane() + SLACK }
    }

    /// Lays out whole images.
    pub(super) fn lay_out<'a>(
        &self,
        par: &Par,
        images: &'a [f32],
        out: &'a mut [f32],
    ) -> &'a [f32] {
        if self.as_is {
            return images;
        }
        let in_plane = self.problem.in_plane().max(1);
        let (plane, planes) = (self.plane(), images.len() / in_plane);
        let shared = SharedMut::new(out);
        par.split(planes, GRAIN.div_ceil(plane.max(1)), |range| {
            for i in range {
                let image = &images[i * in_plane..(i + 1) * in_plane];
                // SAFETY: planes are disjoint, and each is written by one task.
                self.lay_out_plane(image, unsafe { shared.slice(i * plane..(i + 1) * plane) });
            }
        });
        out
    }

    /// Lays out one channel.
    fn lay_out_plane(&self, image: &[f32], out: &mut [f32]) {
        let [ad, ah, aw] = self.problem.axes();
        let [d, h, w] = &self.axes;
        for (row, out) in out.chunks_exact_mut(w.size().max(1)).enumerate() {
            let (z, y) = (d.source(ad, row / h.size()), h.source(ah, row % h.size()));
            let Some((z, y)) = z.zip(y) else {
                out.fill(0.0);
                continue;
            };
            let start = (z * ah.input() + y) * aw.input();
            let row = &image[start..start + aw.input()];
            for (&residue, out) in w.residues.iter().zip(out.chunks_exact_mut(w.len.max(1))) {
                lay_out_phase(row, out, residue, aw);
            }
        }
    }

    /// Offset of a place (in the order of the result) from place 0.
    fn place(&self, n: usize) -> usize {
        let [_, ah, aw] = self.problem.axes();
        let (row, x) = (n / aw.output(), n % aw.output());
        let (z, y) = (row / ah.output(), row % ah.output());
        (z * self.axes[1].size() + y) * self.axes[2].size() + x
    }
}

/// One phase of one row: `out[i]` is position `i * stride + residue` of the padded row.
fn lay_out_phase(row: &[f32], out: &mut [f32], residue: usize, axis: &Axis) {
    let (stride, before) = (axis.window().stride, axis.window().padding.0);
    let first = before.saturating_sub(residue).div_ceil(stride).min(out.len());
    let end = (row.len() + before).saturating_sub(residue).div_ceil(stride);
    let end = end.clamp(first, out.len());
    if axis.window().mode == PadMode::Zeros {
        out[..first].fill(0.0);
        out[end..].fill(0.0);
    } else {
        for i in (0..first).chain(end..out.len()) {
            out[i] = axis.source(i * stride + residue).map_or(0.0, |x| row[x]);
        }
    }
    if first == end {
        return;
    }
    let out = &mut out[first..end];
    let row = &row[first * stride + residue - before..];
    match stride {
        1 => out.copy_from_slice(&row[..out.len()]),
        2 => out.iter_mut().zip(row.chunks(2)).for_each(|(y, x)| *y = x[0]),
        _ => out.iter_mut().zip(row.iter().step_by(stride)).for_each(|(y, x)| *y = *x),
    }
}

/// Elements that one task of [`Phases::lay_out`] copies at least.
const GRAIN: usize = 4096;

/// All windows of one group of one image: a right operand of (channels x taps) x places.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows<'a> {
    phases: &'a Phases,
    /// Laid out images.
    data: &'a [f32],
    /// Offset of the group's first channel.
    base: usize,
}

impl<'a> Windows<'a> {
    pub(super) fn new(phases: &'a Phases, data: &'a [f32], image: usize, group: usize) -> Self {
        let problem = &phases.problem;
        let channel = image * problem.in_channels() + group * problem.group_in();
        Self { phases, data, base: channel * phases.plane() }
    }

    /// The runs of places that make up the panel of `width` lanes from `lane` on.
    #[inline(always)]
    fn runs<'r>(&self, lane: usize, width: usize, runs: &'r mut [Run; MAX_WIDTH]) -> &'r [Run] {
        let problem = &self.phases.problem;
        let row = problem.axes()[2].output();
        let end = problem.out_plane().min(lane + width);
        let (mut n, mut count) = (lane, 0);
        for run in &mut *runs {
            if n >= end {
                break;
            }
            let len = (row - n % row).min(end - n);
            *run = Run { lane: n - lane, from: self.base + self.phases.place(n), len };
            count += 1;
            n += len;
        }
        &runs[..count]
    }
}

/// Consecutive places of one row of the result.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    /// First lane of the panel.
    lane: usize,
    /// Offset in the laid out images, from the tap's.
    from: usize,
    len: usize,
}

/// Widest panel of any target.
const MAX_WIDTH: usize = 32;

impl Pack for Windows<'_> {
    #[inline(always)]
    fn pack<S: Simd>(&self, s: S, lane: usize, depth: Range<usize>, width: usize, out: &mut [f32]) {
        assert!(width <= MAX_WIDTH && out.len() >= depth.len() * width);
        let mut runs = [Run::default(); MAX_WIDTH];
        let runs = self.runs(lane, width, &mut runs);
        let offsets = &self.phases.offsets[depth];
        if let [run] = runs
            && run.len == width
            && width == 2 * S::LANES
        {
            for (&offset, row) in offsets.iter().zip(out.chunks_exact_mut(2 * S::LANES)) {
                let from = &self.data[run.from + offset..][..2 * S::LANES];
                s.store(s.load(from), row);
                s.store(s.load(&from[S::LANES..]), &mut row[S::LANES..]);
            }
            return;
        }
        for (k, &offset) in offsets.iter().enumerate() {
            let row = &mut out[k * width..];
            for run in runs {
                let (from, to) = (&self.data[run.from + offset..], &mut row[run.lane..]);
                let mut i = 0;
                while i < run.len {
                    // Whole vectors, also past the end of the run: what lies there in the panel is
                    // written later, or belongs to lanes that do not exist.
                    match (from.get(i..i + S::LANES), to.get_mut(i..i + S::LANES)) {
                        (Some(from), Some(to)) => s.store(s.load(from), to),
                        _ => to[i..run.len].copy_from_slice(&from[i..run.len]),
                    }
                    i += S::LANES;
                }
            }
        }
    }
}

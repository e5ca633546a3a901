//! Weights of four bits: one of the sixteen numbers of NF4, and a scale for each column of each
//! group of at most 32 terms of a depth block.
//!
//! ```text
//! w[k, j] = level[code[k, j]] scale[j]
//!
//! a byte, one for each lane of a vector:  | code in vector 1 | code in vector 0 |  of a term
//! ```
//! The levels are quantiles of the normal distribution, as weights mostly are, with an exact zero
//! and both ends (NormalFloat: Dettmers et al. 2023, QLoRA, appendix E). More of them are above
//! zero than below, and the largest weight of a group is not always best met: of four scales, both
//! signs of the largest weight and of 0.88 of it, a group has the one of the least squared error.
//! The error is 8.1 % of the size of normal numbers and 8.7 % of those of a Laplace distribution;
//! sixteen even steps with one scale have 8.6 and 10.7 % (2026-11-29).
//!
//! A tile of few rows looks a level up in a register, one instruction where a vector has sixteen
//! lanes, and multiplies it with its scale; or a block of weights is widened that way for many rows
//! (`narrow.rs`): the sums are those of f32 with the same rounded weights, to the bit.

use super::tile::{Right, TERMS, VECTORS};
use super::tiles::{PanelElement, Panels};
use bytemuck::{Pod, Zeroable};
use plutino_cpu::Isa;
use plutino_cpu::simd::{Simd, Vectorized};
use std::ops::Range;

/// Terms that have a scale for each column, at most: five bits a weight in all.
pub(super) const GROUP: usize = 32;

/// The numbers, from the least to the greatest.
const LEVELS: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// What a group's scale may be, in largest weights.
const SCALES: [f32; 4] = [1.0, -1.0, 0.88, -0.88];

/// Two codes of four bits.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct Codes(u8);

impl PanelElement for Codes {
    const NUMBERS: usize = VECTORS;
    type Panel = Panel;
    #[inline(always)]
    fn panel(panels: &Panels<'_, Self>, lane: usize, width: usize) -> Panel {
        let codes = panels.at(lane, width);
        let scales = panels.scales.of(lane..lane + width).unwrap_or_default();
        assert!(scales.len() >= panels.depth.div_ceil(GROUP) * width);
        Panel { codes, scales: scales.as_ptr(), groups: panels.scales.groups, term: 0 }
    }
    /// Weights have been multiplied.
    #[inline(always)]
    fn scale_of_sums<'a>(_: &Panels<'a, Self>, _: Range<usize>) -> Option<&'a [f32]> {
        None
    }
}

/// A panel, or several side by side, from a term on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panel {
    /// Those of this term.
    codes: *const Codes,
    /// Those of the first group.
    scales: *const f32,
    /// Groups of a panel.
    groups: usize,
    term: usize,
}

impl Right for Panel {
    const NARROW: bool = true;
    #[inline(always)]
    unsafe fn load<S: Simd, const P: usize, const J: usize>(
        self,
        s: S,
        panel: usize,
        at: usize,
    ) -> S::F32 {
        // The terms that are written out are of one group.
        const { assert!(VECTORS == 2 && GROUP.is_multiple_of(TERMS)) };
        let codes = self.codes.wrapping_add(P * panel / VECTORS + at / VECTORS);
        let scale = (P * self.groups + self.term / GROUP) * VECTORS * S::LANES + J * S::LANES;
        // SAFETY: the caller's promise: a byte for each lane, and the scales of each group.
        unsafe {
            let scale = s.load_ptr(self.scales.wrapping_add(scale));
            s.mul(level::<S, J>(s, codes), scale)
        }
    }
    #[inline(always)]
    fn from<S: Simd>(self, terms: usize) -> Self {
        let codes = self.codes.wrapping_add(terms * S::LANES);
        Self { codes, term: self.term + terms, ..self }
    }
    #[inline(always)]
    fn address(self) -> *const f32 {
        self.codes.cast()
    }
}

/// The levels of vector `J` of a term.
///
/// # Safety
/// `codes` is valid for reads of one for each lane.
#[inline(always)]
unsafe fn level<S: Simd, const J: usize>(s: S, codes: *const Codes) -> S::F32 {
    // SAFETY: the caller's promise.
    let codes = unsafe { s.load_u8_ptr(codes.cast()) };
    s.lookup(&LEVELS, if J == 0 { codes } else { s.shr_i32::<4>(codes) })
}

/// Writes the codes and the scales of a panel of two vectors of columns.
///
/// # Panics
/// Where there are not as many elements, or scales of each group.
pub(super) fn write(isa: Isa, from: &[f32], to: &mut [Codes], scales: &mut [f32]) {
    isa.run(Write { from, to, scales });
}

/// Looks up the numbers of whole panels of `depth` terms, and multiplies them with their scales.
///
/// # Panics
/// As [`write`].
pub(super) fn read(isa: Isa, from: &[Codes], (depth, scales): (usize, &[f32]), to: &mut [f32]) {
    isa.run(Read { from, depth, scales, to });
}

/// The level that is nearest to a number, and its code.
#[inline(always)]
fn nearest<S: Simd>(s: S, x: S::F32) -> [S::F32; 2] {
    let mut found = [s.splat(LEVELS[0]), s.zero()];
    for code in 1..LEVELS.len() {
        let below = s.lt(s.splat(LEVELS[code - 1].midpoint(LEVELS[code])), x);
        found[0] = s.select(below, s.splat(LEVELS[code]), found[0]);
        found[1] = s.select(below, s.splat(code as f32), found[1]);
    }
    found
}

/// Weights in scales. Where all are as good as zero the scale is zero, and so are they.
#[inline(always)]
fn in_scales<S: Simd>(s: S, x: S::F32, scale: S::F32) -> S::F32 {
    s.select(s.eq(scale, s.zero()), s.zero(), s.div(x, scale))
}

/// The codes of a vector of weights.
#[inline(always)]
fn code<S: Simd>(s: S, weights: &[f32], scale: S::F32) -> S::F32 {
    nearest(s, in_scales(s, s.load(weights), scale))[1]
}

struct Write<'a> {
    from: &'a [f32],
    to: &'a mut [Codes],
    scales: &'a mut [f32],
}

impl Vectorized for Write<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = VECTORS * S::LANES;
        assert!(self.from.len() == self.to.len() * VECTORS);
        assert!(self.scales.len() >= self.from.len().div_ceil(GROUP * width) * width);
        let groups = self.from.chunks(GROUP * width).zip(self.to.chunks_mut(GROUP * S::LANES));
        for ((from, to), scales) in groups.zip(self.scales.chunks_exact_mut(width)) {
            let best = [best_scale(s, from), best_scale(s, &from[S::LANES..])];
            s.store(best[0], scales);
            s.store(best[1], &mut scales[S::LANES..]);
            for (from, to) in from.chunks_exact(width).zip(to.chunks_exact_mut(S::LANES)) {
                let lower = code(s, from, best[0]);
                let upper = code(s, &from[S::LANES..], best[1]);
                let mut both = [0.0; 16];
                s.store(s.fma(upper, s.splat(16.0), lower), &mut both);
                for (to, both) in to.iter_mut().zip(both) {
                    *to = Codes(both as u8);
                }
            }
        }
    }
}

/// The scales of a group of a vector of columns: the first of each term's two vectors.
#[inline(always)]
fn best_scale<S: Simd>(s: S, group: &[f32]) -> S::F32 {
    let terms = || group.chunks(VECTORS * S::LANES);
    let mut largest = s.zero();
    for x in terms() {
        let x = s.load(x);
        largest = s.select(s.lt(s.abs(largest), s.abs(x)), x, largest);
    }
    let (mut best, mut least) = (largest, s.splat(f32::INFINITY));
    for part in SCALES {
        let part = s.splat(part);
        let scale = s.mul(largest, part);
        // In largest weights, whose squares neither overflow nor vanish.
        let mut error = s.zero();
        for x in terms() {
            let x = in_scales(s, s.load(x), scale);
            let off = s.mul(s.sub(x, nearest(s, x)[0]), part);
            error = s.fma(off, off, error);
        }
        let better = s.lt(error, least);
        best = s.select(better, scale, best);
        least = s.select(better, error, least);
    }
    best
}

struct Read<'a> {
    from: &'a [Codes],
    depth: usize,
    scales: &'a [f32],
    to: &'a mut [f32],
}

impl Vectorized for Read<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { from, depth, scales, to } = self;
        if depth == 0 {
            return;
        }
        let width = VECTORS * S::LANES;
        // The last depth block may have fewer groups than the others.
        let panels = to.len() / (depth * width);
        let of_panel = scales.len() / panels.max(1);
        assert!(from.len() * VECTORS == to.len() && to.len() == panels * depth * width);
        assert!(of_panel >= depth.div_ceil(GROUP) * width);
        let panels = from.chunks_exact(depth * S::LANES).zip(to.chunks_exact_mut(depth * width));
        for ((from, to), scales) in panels.zip(scales.chunks_exact(of_panel)) {
            let groups = from.chunks(GROUP * S::LANES).zip(to.chunks_mut(GROUP * width));
            for ((from, to), scales) in groups.zip(scales.chunks_exact(width)) {
                let scales = [s.load(scales), s.load(&scales[S::LANES..])];
                for (from, to) in from.chunks_exact(S::LANES).zip(to.chunks_exact_mut(width)) {
                    // SAFETY: one for each lane.
                    unsafe {
                        s.store(s.mul(level::<S, 0>(s, from.as_ptr()), scales[0]), to);
                        let upper = level::<S, 1>(s, from.as_ptr());
                        s.store(s.mul(upper, scales[1]), &mut to[S::LANES..]);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panels that are written and read again.
    fn round_trip(isa: Isa, from: &[f32]) -> Vec<f32> {
        let width = VECTORS * isa.lanes();
        let depth = from.len() / width;
        let mut codes = vec![Codes(0); from.len() / VECTORS];
        let mut scales = vec![9.0f32; depth.div_ceil(GROUP) * width];
        let mut back = vec![f32::NAN; from.len()];
        write(isa, from, &mut codes, &mut scales);
        read(isa, &codes, (depth, &scales), &mut back);
        back
    }

    #[test]
    fn levels_of_any_scale_are_met() {
        for isa in Isa::available() {
            let width = VECTORS * isa.lanes();
            // Columns of levels, of nothing, of what is next to nothing, of the largest numbers; a
            // second group is the first in other units.
            let from: Vec<f32> = (0..(GROUP + 16) * width)
                .map(|at| {
                    let (k, unit) = (at / width % 16, if at / width < GROUP { 3.0 } else { -0.01 });
                    match at % width % 5 {
                        0 => unit * LEVELS[k],
                        1 => -unit * LEVELS[k],
                        2 => 0.0,
                        3 if k == 3 => 1e-45,
                        3 => 0.0,
                        _ => f32::MAX * LEVELS[15 - k],
                    }
                })
                .collect();
            for (&x, y) in from.iter().zip(round_trip(isa, &from)) {
                assert!((x - y).abs() <= 1e-6 * x.abs(), "{y} for {x}, {isa}");
            }
        }
    }

    #[test]
    fn errors_of_normal_numbers() {
        // Sums of twelve even numbers are nearly normal.
        let mut state = 1u32;
        let mut even = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state) / f64::from(u32::MAX) - 0.5
        };
        for isa in Isa::available() {
            let normal = |_| (0..12).map(|_| even()).sum::<f64>() as f32;
            let from: Vec<f32> = (0..2000 * VECTORS * isa.lanes()).map(normal).collect();
            let back = round_trip(isa, &from);
            let square = |x: f32| f64::from(x).powi(2);
            let error: f64 = from.iter().zip(back).map(|(&x, y)| square(x - y)).sum();
            let relative = (error / from.iter().map(|&x| square(x)).sum::<f64>()).sqrt();
            assert!((0.078..0.083).contains(&relative), "{relative}, {isa}");
        }
    }
}

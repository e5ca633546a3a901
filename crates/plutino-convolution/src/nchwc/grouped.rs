//! Convolutions whose groups have a few channels, several groups in a block: ResNeXt's, RegNet's.
//!
//! ```text
//! y[n, o, p] = act(bias[o] + residual[n, o, p]
//!                  + sum over taps t, channels j of a group
//!                    of x[n, first(o) + j, at(p, t)] w[o, j, t])
//!
//!   lanes of y     0 1 2 3 | 4 5 6 7 | ...        groups of four
//!   times w[0] of  0 0 0 0 | 4 4 4 4 | ...        the first channel of each group
//!   times w[1] of  1 1 1 1 | 5 5 5 5 | ...        the second
//! ```
//! A block of the output needs the block of the input of the same number alone. The lanes of each
//! vector of it are exchanged for each channel of a group. That takes an instruction for each
//! multiply-add, or, where three columns of taps lie side by side, one for three.
//!
//! Loops: image, block and some rows (a task) / row / tile of pixels / row and column of taps /
//! channel of a group.
//!
//! For: 2 to 8 channels of a group, as many out as in, that divide a block. Figures:
//! docs/decisions/002-direct-convolution.md.

use super::depthwise::meets;
use super::finish::Finish;
use super::format::Format;
use super::tile::{FullTile, TileBody, ZEROS, for_each_tile};
use super::tiled::pad_bias;
use super::window::Window;
use crate::algorithm::{Bound, Operands};
use crate::choose::Request;
use crate::cost;
use crate::post_ops::Residual;
use crate::problem::{ConvError, ConvProblem};
use plutino_cpu::par::{SharedMut, part_of};
use plutino_cpu::simd::unroll::{array, unroll};
use plutino_cpu::simd::{Isa, Simd, Vectorized};
use plutino_cpu::{PackKey, Par};
use plutino_tensor::{AlignedBuf, FloatSource, Floats, TensorError};
use std::borrow::Cow;

/// Pixels of a tile: sums, weights of three taps and lanes fill the registers of AVX2.
const MR: usize = 10;

/// Pixels of a task, at least.
const TASK_PIXELS: usize = 512;

/// Share of the peak that is reached.
const SHARE: f64 = 0.5;

/// Lanes of a block, at most.
const MOST: usize = 16;

/// `[block][tap][channel of a group][output channel of the block]`.
#[derive(Debug)]
pub(crate) struct GroupedWeights {
    data: AlignedBuf,
}

/// Bound to a problem.
#[derive(Debug)]
pub(crate) struct Grouped {
    problem: ConvProblem,
    isa: Isa,
    window: Window,
    finish: Finish,
}

/// None where groups are no equal parts of a block.
pub(crate) fn bind(request: &Request<'_>) -> Option<Grouped> {
    let &Request { problem, post_ops, isa, .. } = request;
    let window = Window::of(&problem)?;
    let each = problem.group_in();
    let fits = problem.groups() > 1
        && (2..isa.lanes()).contains(&each)
        && each == problem.group_out()
        && isa.lanes().is_multiple_of(each)
        && isa.lanes() <= MOST
        && !post_ops.factors;
    let finish = Finish::new(post_ops.activation);
    fits.then_some(Grouped { problem, isa, window, finish })
}

impl Grouped {
    fn blocks(&self) -> usize {
        self.problem.out_channels().div_ceil(self.isa.lanes())
    }

    /// f32 of the weights of a block.
    fn panel(&self) -> usize {
        self.window.taps() * self.problem.group_in() * self.isa.lanes()
    }

    fn packed(&self, weight: Floats<'_>) -> Result<AlignedBuf, TensorError> {
        let (b, taps, each) = (self.isa.lanes(), self.window.taps(), self.problem.group_in());
        let bytes = self.blocks().saturating_mul(self.panel()).saturating_mul(size_of::<f32>());
        let mut data = AlignedBuf::zeroed(bytes)?;
        let packed: &mut [f32] = bytemuck::cast_slice_mut(data.as_mut_bytes());
        for i in 0..weight.len() {
            let (tap, j, o) = (i % taps, i / taps % each, i / (taps * each));
            packed[((o / b * taps + tap) * each + j) * b + o % b] = weight.get(i);
        }
        Ok(data)
    }
}

impl Bound for Grouped {
    type Weights = GroupedWeights;

    fn cycles(&self) -> f64 {
        cost::by_sums(&self.problem, self.isa, SHARE)
    }

    fn pack_key(&self) -> PackKey {
        PackKey::f32("conv.grouped", [self.isa.lanes(), 0, 0], self.isa)
    }

    fn pack(&self, weight: &mut dyn FloatSource, _: &Par) -> Result<GroupedWeights, ConvError> {
        Ok(GroupedWeights { data: self.packed(weight.all()?)? })
    }

    fn bytes(weights: &GroupedWeights) -> usize {
        weights.data.len()
    }

    fn bias<'b>(&self, bias: Option<&'b [f32]>) -> Cow<'b, [f32]> {
        Cow::Owned(pad_bias(bias, 1, self.problem.out_channels(), self.isa.lanes()))
    }

    fn workspace(&self) -> usize {
        0
    }

    fn run(
        &self,
        weights: &GroupedWeights,
        operands: Operands<'_>,
        _: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        let Operands { x, bias, residual, y, .. } = operands;
        let (b, blocks, panel) = (self.isa.lanes(), self.blocks(), self.panel());
        let (out_plane, in_plane) = (self.window.pixels() * b, self.window.input_pixels() * b);
        let [rows, width] = self.window.output;
        let cuts = self.window.pixels().div_ceil(TASK_PIXELS);
        let cuts = cuts.next_multiple_of(par.threads()).min(rows);
        let packed: &[f32] = bytemuck::cast_slice(weights.data.as_bytes());
        let y = SharedMut::new(y);
        par.run_grid([self.problem.batch(), blocks, cuts], |_, [n, block, cut]| {
            let plane = n * blocks + block;
            for row in part_of(cut, cuts, rows) {
                let first = plane * out_plane + row * width * b;
                let part = first..first + width * b;
                self.isa.run(Row {
                    conv: self,
                    x: &x[plane * in_plane..(plane + 1) * in_plane],
                    weights: &packed[block * panel..(block + 1) * panel],
                    bias: &bias[block * b..(block + 1) * b],
                    row,
                    residual: residual.map(|r| r.part(part.clone())),
                    // SAFETY: tasks write different rows of different planes.
                    y: unsafe { y.slice(part) },
                });
            }
        });
        Ok(())
    }
}

/// A row of a block of the output.
struct Row<'a> {
    conv: &'a Grouped,
    /// The block's plane of the input.
    x: &'a [f32],
    weights: &'a [f32],
    /// A vector.
    bias: &'a [f32],
    row: usize,
    residual: Option<Residual<'a>>,
    y: &'a mut [f32],
}

impl Vectorized for Row<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { conv, x, weights, bias, .. } = self;
        let (window, each) = (&conv.window, conv.problem.group_in());
        assert!(x.len() == window.input_pixels() * S::LANES && S::LANES <= MOST);
        assert!(weights.len() == window.taps() * each * S::LANES && bias.len() == S::LANES);
        let mut lanes = [0; MOST * MOST];
        for (i, lane) in lanes[..each * S::LANES].iter_mut().enumerate() {
            let (j, o) = (i / S::LANES, i % S::LANES);
            *lane = (o / each * each + j) as u32;
        }
        let lanes = bytemuck::cast_slice(&lanes);
        for_each_tile(s, 0..window.output[1], &mut Tiles { of: self, lanes });
    }
}

/// The tiles of a row.
struct Tiles<'a> {
    of: Row<'a>,
    /// For each channel of a group, the numbers of the lanes that it is in, as bits.
    lanes: &'a [f32],
}

impl TileBody for Tiles<'_> {
    const FULL: FullTile = FullTile::Pixels(MR);

    #[cfg_attr(not(unoptimised), inline(always))]
    fn tile<S: Simd, const M: usize>(&mut self, s: S, first: usize) {
        let b = S::LANES;
        let mut sums = match self.suits::<M>(first) {
            #[cfg(not(unoptimised))]
            true => self.three::<S, M>(s, first),
            _ => self.any::<S, M>(s, first),
        };
        let bias = s.load(self.of.bias);
        unroll!(M, |J| sums[J] = s.add(sums[J], bias));
        let range = first * b..(first + M) * b;
        let residual = self.of.residual.map(|r| r.part(range.clone()));
        let y = (&mut self.of.y[range], Format::F32);
        self.of.conv.finish.store::<S, M, false, false>(s, sums, residual, y);
    }
}

/// Columns of the input under M pixels and three columns of taps. (Tiles of more than [`MR`] pixels
/// are compiled, but never run.)
const fn columns(pixels: usize) -> usize {
    if pixels + 2 < 12 { pixels + 2 } else { 12 }
}

impl Tiles<'_> {
    /// Whether [`Self::three`] can take the M pixels from `first` on: three columns of taps, no
    /// strides, and no padding but under the first and the last column.
    #[inline(always)]
    fn suits<const M: usize>(&self, first: usize) -> bool {
        let window = &self.of.conv.window;
        let ([_, pad], [_, width]) = (window.pad, window.input);
        (window.kernel[1], window.stride[1], window.dilation[1]) == (3, 1, 1)
            && M <= MR
            && first + 1 >= pad
            && first + M < width + pad
    }

    /// Each vector of the input is exchanged once for the three pixels that it lies under.
    #[cfg_attr(not(unoptimised), inline(always))]
    #[cfg_attr(unoptimised, allow(dead_code))] // its frame would be too large
    fn three<S: Simd, const M: usize>(&self, s: S, first: usize) -> [S::F32; M] {
        let Row { conv, x, weights, row, .. } = &self.of;
        let window = &conv.window;
        let (b, each) = (S::LANES, conv.problem.group_in());
        let [_, width] = window.input;
        // Where the first column lies before the row, it wraps, and is none.
        let start = first.wrapping_sub(window.pad[1]);
        let last = start.wrapping_add(M + 1);
        let mut sums = array!(M, |J| s.zero());
        for ky in 0..window.kernel[0] {
            let Some(iy) = window.position(0, *row, ky) else { continue };
            let line = (iy * width).wrapping_add(start).wrapping_mul(b);
            let line = x.as_ptr().wrapping_add(line);
            let left = if start < width { line } else { ZEROS.as_ptr() };
            let right = line.wrapping_add((M + 1) * b);
            let right = if last < width { right } else { ZEROS.as_ptr() };
            for j in 0..each {
                let tap = weights.as_ptr().wrapping_add((ky * 3 * each + j) * b);
                // SAFETY: there is a vector for each tap and channel (`Row`).
                let (w0, w1, w2) = unsafe {
                    let (first, second) = (s.load_ptr(tap), s.load_ptr(tap.wrapping_add(each * b)));
                    (first, second, s.load_ptr(tap.wrapping_add(2 * each * b)))
                };
                // SAFETY: there are lanes for each channel of a group (`Row`).
                let lanes = s.as_i32(unsafe { s.load_ptr(self.lanes.as_ptr().add(j * b)) });
                unroll!(columns(M), |C| {
                    let at = if C == 0 {
                        left
                    } else if C == M + 1 {
                        right
                    } else {
                        line.wrapping_add(C * b)
                    };
                    // SAFETY: a column of a row of the plane (asked above, or by `suits`; `Row` has
                    // its length), or ZEROS.
                    let x = s.permute(lanes, unsafe { s.load_ptr(at) });
                    // The pixels that it lies under, by column of taps.
                    let (i, j, k) = (C, C.wrapping_sub(1), C.wrapping_sub(2));
                    if const { meets(C, 0, M) } {
                        sums[i] = s.fma(x, w0, sums[i]);
                    }
                    if const { meets(C, 1, M) } {
                        sums[j] = s.fma(x, w1, sums[j]);
                    }
                    if const { meets(C, 2, M) } {
                        sums[k] = s.fma(x, w2, sums[k]);
                    }
                });
            }
        }
        sums
    }

    /// For any window.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn any<S: Simd, const M: usize>(&self, s: S, first: usize) -> [S::F32; M] {
        let Row { conv, x, weights, row, .. } = &self.of;
        let window = &conv.window;
        let (b, each) = (S::LANES, conv.problem.group_in());
        let [_, width] = window.input;
        let mut sums = array!(M, |J| s.zero());
        for ky in 0..window.kernel[0] {
            let Some(iy) = window.position(0, *row, ky) else { continue };
            let line = x.as_ptr().wrapping_add(iy * width * b);
            for kx in 0..window.kernel[1] {
                // Where a column lies before the first one, it wraps, and is none.
                let start = (first * window.stride[1] + kx * window.dilation[1])
                    .wrapping_sub(window.pad[1]);
                let tap = (ky * window.kernel[1] + kx) * each;
                let mut at = array!(M, |J| ZEROS.as_ptr());
                unroll!(M, |J| {
                    let column = start.wrapping_add(J * window.stride[1]);
                    if column < width {
                        at[J] = line.wrapping_add(column * b);
                    }
                });
                for j in 0..each {
                    // SAFETY: there is a vector for each tap and channel, and lanes for each
                    // channel (`Row`).
                    let (w, lanes) = unsafe {
                        let w = s.load_ptr(weights.as_ptr().add((tap + j) * b));
                        (w, s.load_ptr(self.lanes.as_ptr().add(j * b)))
                    };
                    let lanes = s.as_i32(lanes);
                    unroll!(M, |J| {
                        // SAFETY: a pixel of the plane (`Row` has its length), or ZEROS.
                        let x = s.permute(lanes, unsafe { s.load_ptr(at[J]) });
                        sums[J] = s.fma(x, w, sums[J]);
                    });
                }
            }
        }
        sums
    }
}

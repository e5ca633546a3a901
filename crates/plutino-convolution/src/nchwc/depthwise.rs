//! Depthwise convolution on channel blocks.
//!
//! ```text
//! y[n, c, p] = act(bias[c] + residual[n, c, p] + sum over taps t of x[n, c, at(p, t)] w[c, t])
//! ```
//! A channel is a lane: a tap is one vector of weights, times one vector of input for each of M
//! pixels.
//!
//! For: as many groups as channels, the layers between MobileNet's expansions. Figures:
//! docs/decisions/004-depthwise.md.
//!
//! Loops: image, channel block and some rows (a task) / row / tile of M pixels / tap. For windows
//! of 3, 5 and 7 columns taps are unrolled, and only the outermost columns are asked whether they
//! are padding; rows in the padding are left out. With AVX-512, rows of windows of 3x3 and 5x5 with
//! stride 1 are computed in pairs. A row of a volume takes its terms from one slice of the input
//! after the other.

use super::finish::Finish;
use super::format::Format;
use super::prefetch;
use super::tile::{FullTile, TileBody, ZEROS, for_each_tile};
use super::window::{Line, Slices, Window};
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
use std::ops::Range;

/// Pixels of a tile: enough sums to hide the latency of a multiply-add.
const MR: usize = 8;

/// Output pixels of a task, about: its rows stay in the first-level cache between their taps.
const TASK_PIXELS: usize = 1024;

/// Share of the peak: a tap is a load for each multiply-add.
const SHARE: f64 = 0.4;

/// Weights as vectors: `[channel block][tap][b]`.
#[derive(Debug)]
pub(crate) struct DepthwiseWeights {
    data: AlignedBuf,
}

impl DepthwiseWeights {
    /// Packs `weight`, `(channels, taps)` row-major, for vectors of `block` f32.
    fn pack(weight: Floats<'_>, taps: usize, block: usize) -> Result<Self, TensorError> {
        let channels = weight.len() / taps;
        let blocks = channels.div_ceil(block);
        let mut data = AlignedBuf::resident(blocks * taps * block * 4)?;
        let packed: &mut [f32] = bytemuck::cast_slice_mut(data.as_mut_bytes());
        for c in 0..channels {
            let panel = &mut packed[c / block * taps * block..];
            for t in 0..taps {
                panel[t * block + c % block] = weight.get(c * taps + t);
            }
        }
        Ok(Self { data })
    }
}

/// Bound to a problem.
#[derive(Debug)]
pub(crate) struct Depthwise {
    pub(super) problem: ConvProblem,
    pub(super) isa: Isa,
    /// On a plane, or on a slice of a volume.
    pub(super) window: Window,
    /// The slices of a volume, else a single one.
    depth: Line,
    finish: Finish,
}

/// For as many groups as there are channels in and out, two at least.
pub(crate) fn bind(request: &Request<'_>) -> Option<Depthwise> {
    let &Request { problem, post_ops, isa, .. } = request;
    let Slices { depth, window } = Slices::of(&problem)?;
    let fits = problem.groups() > 1
        && (problem.group_in(), problem.group_out()) == (1, 1)
        && !post_ops.factors;
    let finish = Finish::new(post_ops.activation);
    fits.then_some(Depthwise { problem, isa, window, depth, finish })
}

impl Bound for Depthwise {
    type Weights = DepthwiseWeights;

    fn cycles(&self) -> f64 {
        cost::by_sums(&self.problem, self.isa, SHARE)
    }

    fn pack_key(&self) -> PackKey {
        PackKey::f32("conv.depthwise", [self.isa.lanes(), 0, 0], self.isa)
    }

    fn pack(&self, weight: &mut dyn FloatSource, _: &Par) -> Result<DepthwiseWeights, ConvError> {
        let taps = self.depth.kernel * self.window.taps();
        Ok(DepthwiseWeights::pack(weight.all()?, taps, self.isa.lanes())?)
    }

    fn bytes(weights: &DepthwiseWeights) -> usize {
        weights.data.len()
    }

    fn bias<'b>(&self, bias: Option<&'b [f32]>) -> Cow<'b, [f32]> {
        let channels = self.problem.out_channels();
        let mut padded = vec![0.0; channels.next_multiple_of(self.isa.lanes())]; // bounded: weights
        padded.iter_mut().zip(bias.unwrap_or_default()).for_each(|(to, from)| *to = *from);
        Cow::Owned(padded)
    }

    fn workspace(&self) -> usize {
        0
    }

    fn run(
        &self,
        weights: &DepthwiseWeights,
        operands: Operands<'_>,
        _: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        let Operands { x, bias, residual, y, .. } = operands;
        let b = self.isa.lanes();
        let [height, width] = self.window.output;
        let rows = self.depth.output * height;
        let (out_plane, in_plane) =
            (rows * width * b, self.depth.input * self.window.input_pixels() * b);
        let blocks = self.problem.out_channels().div_ceil(b);
        let cuts = (rows * width).div_ceil(TASK_PIXELS);
        let cuts = cuts.next_multiple_of(par.threads()).min(rows);
        let fetches = prefetch::pays(x.len());
        let y = SharedMut::new(y);
        par.run_grid([self.problem.batch(), blocks, cuts], |_, [n, block, cut]| {
            let plane = n * blocks + block;
            let rows = part_of(cut, cuts, rows);
            let part = plane * out_plane + rows.start * width * b
                ..plane * out_plane + rows.end * width * b;
            let x = &x[plane * in_plane..(plane + 1) * in_plane];
            let residual = residual.map(|r| r.part(part.clone()));
            // SAFETY: tasks write different rows of different planes.
            let y = unsafe { y.slice(part) };
            let filters = Filters { weights, bias, block };
            if self.depth == Line::ONE {
                self.rows((&self.window, rows), (x, fetches), residual, y, filters);
            } else {
                self.isa.run(DeepRows { bound: self, rows, x, residual, y, filters });
            }
        });
        Ok(())
    }

    fn depthwise(&self) -> Option<&Depthwise> {
        (self.depth == Line::ONE).then_some(self)
    }
}

/// The weights and the bias of a block of channels.
pub(super) struct Filters<'a> {
    pub(super) weights: &'a DepthwiseWeights,
    /// Of all blocks.
    pub(super) bias: &'a [f32],
    pub(super) block: usize,
}

impl Depthwise {
    /// Computes some rows of a plane of one block of channels, under a window on that plane.
    /// `residual` and `y` hold these rows. `fetches`: whether the plane is asked for before its
    /// turn ([`prefetch`]).
    pub(super) fn rows(
        &self,
        (window, rows): (&Window, Range<usize>),
        (x, fetches): (&[f32], bool),
        residual: Option<Residual<'_>>,
        y: &mut [f32],
        filters: Filters<'_>,
    ) {
        let Filters { weights, bias, block } = filters;
        let b = self.isa.lanes();
        let packed: &[f32] = bytemuck::cast_slice(weights.data.as_bytes());
        let panel = self.window.taps() * b;
        let rows = Rows::<true> {
            window,
            finish: self.finish,
            x,
            fetches,
            residual,
            y,
            weights: &packed[block * panel..][..panel],
            bias: &bias[block * b..][..b],
            rows,
        };
        // Functions of their own: in one, windows with strides are 5 % slower.
        if Pair::suits(window) { self.isa.run(rows) } else { self.isa.run(rows.alone()) }
    }
}

/// Some rows of one plane; with `PAIRS`, two at a time where there are registers for their sums.
struct Rows<'a, const PAIRS: bool> {
    window: &'a Window,
    finish: Finish,
    x: &'a [f32],
    fetches: bool,
    y: &'a mut [f32],
    residual: Option<Residual<'a>>,
    weights: &'a [f32],
    /// A vector.
    bias: &'a [f32],
    rows: Range<usize>,
}

impl<'a> Rows<'a, true> {
    /// The same rows, one at a time.
    fn alone(self) -> Rows<'a, false> {
        let Self { window, finish, x, fetches, y, residual, weights, bias, rows } = self;
        Rows { window, finish, x, fetches, y, residual, weights, bias, rows }
    }
}

impl<const PAIRS: bool> Vectorized for Rows<'_, PAIRS> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { window, finish, x, fetches, weights, bias, rows, .. } = self;
        let width = window.output[1];
        let line = width * S::LANES;
        let mut y = self.y;
        let mut number = rows.start;
        while number < rows.end {
            let windows = |number| Windows::new::<S>(window, x, (weights, bias), number);
            let two = const { PAIRS && S::REGISTERS >= 32 } && number + 2 <= rows.end;
            let count = if two { 2 } else { 1 };
            if fetches {
                // The rows of the input that the next ones are the first to read.
                let (_, read) = window.of_rows(number..number + count);
                let row = window.input[1] * S::LANES;
                let first = x.as_ptr().wrapping_add(read.end * row);
                prefetch::lines(s, first, count * window.stride[0] * row);
            }
            let done = (number - rows.start) * line;
            let (part, rest) = y.split_at_mut(count * line);
            let residual = self.residual.map(|r| r.part(done..done + part.len()));
            if two {
                let windows = [windows(number), windows(number + 1)];
                let mut pair = Pair { windows, finish, residual, y: part };
                for_each_tile(s, 0..width, &mut pair);
            } else {
                let windows = windows(number);
                let mut row = Row { windows, finish, residual, y: part };
                for_each_tile(s, 0..width, &mut row);
            }
            (y, number) = (rest, number + count);
        }
    }
}

/// One row of the output.
struct Row<'a> {
    windows: Windows<'a>,
    finish: Finish,
    residual: Option<Residual<'a>>,
    y: &'a mut [f32],
}

impl TileBody for Row<'_> {
    const FULL: FullTile = FullTile::Pixels(MR);

    #[cfg_attr(not(unoptimised), inline(always))]
    fn tile<S: Simd, const M: usize>(&mut self, s: S, first: usize) {
        let sums: [_; M] = self.windows.sums(s, first);
        let range = first * S::LANES..(first + M) * S::LANES;
        let residual = self.residual.map(|r| r.part(range.clone()));
        self.finish.store::<S, M, false, false>(
            s,
            sums,
            residual,
            (&mut self.y[range], Format::F32),
        );
    }
}

/// Some rows of a volume, those of all its slices one after the other.
struct DeepRows<'a> {
    bound: &'a Depthwise,
    rows: Range<usize>,
    x: &'a [f32],
    residual: Option<Residual<'a>>,
    y: &'a mut [f32],
    filters: Filters<'a>,
}

impl Vectorized for DeepRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { bound, rows, x, residual, y, filters: Filters { weights, bias, block } } = self;
        let Depthwise { window, depth, finish, .. } = bound;
        let panel = depth.kernel * window.taps() * S::LANES;
        let packed: &[f32] = bytemuck::cast_slice(weights.data.as_bytes());
        let weights = &packed[block * panel..][..panel];
        let bias = &bias[block * S::LANES..][..S::LANES];
        let [height, width] = window.output;
        let line = width * S::LANES;
        for (k, (number, y)) in rows.zip(y.chunks_exact_mut(line)).enumerate() {
            let residual = residual.map(|r| r.part(k * line..(k + 1) * line));
            let place = [number / height, number % height];
            let (depth, finish) = (*depth, *finish);
            let mut row = DeepRow { window, depth, finish, x, weights, bias, place, residual, y };
            for_each_tile(s, 0..width, &mut row);
        }
    }
}

/// One row of a volume.
struct DeepRow<'a> {
    window: &'a Window,
    depth: Line,
    finish: Finish,
    x: &'a [f32],
    weights: &'a [f32],
    bias: &'a [f32],
    /// Slice and row of the output.
    place: [usize; 2],
    residual: Option<Residual<'a>>,
    y: &'a mut [f32],
}

impl TileBody for DeepRow<'_> {
    const FULL: FullTile = FullTile::Pixels(MR);

    #[cfg_attr(not(unoptimised), inline(always))]
    fn tile<S: Simd, const M: usize>(&mut self, s: S, first: usize) {
        let Self { window, depth, bias, place: [slice, number], .. } = *self;
        let (plane, panel) = (window.input_pixels() * S::LANES, window.taps() * S::LANES);
        let mut sums = [s.zero(); M];
        for kz in 0..depth.kernel {
            let Some(from) = depth.position(slice, kz) else { continue };
            let weights = &self.weights[kz * panel..][..panel];
            let x = &self.x[from * plane..][..plane];
            sums = Windows::new::<S>(window, x, (weights, bias), number).terms(s, first, sums);
        }
        let bias = s.load(bias);
        for sum in &mut sums {
            *sum = s.add(*sum, bias);
        }
        let range = first * S::LANES..(first + M) * S::LANES;
        let residual = self.residual.map(|r| r.part(range.clone()));
        self.finish.store::<S, M, false, false>(
            s,
            sums,
            residual,
            (&mut self.y[range], Format::F32),
        );
    }
}

/// Columns of the input under M pixels with stride 1. (Tiles of more than [`MR`] pixels are
/// compiled, but never run.)
const fn columns(pixels: usize, kernel: usize) -> usize {
    let columns = pixels + kernel - 1;
    if columns < 12 { columns } else { 12 }
}

/// Rows of the input under two rows of the output.
#[cfg_attr(unoptimised, allow(dead_code))]
const fn both_rows(kernel: usize) -> usize {
    kernel + 1
}

/// Whether an input column lies under this tap of one of M pixels.
#[cfg_attr(unoptimised, allow(dead_code))]
pub(super) const fn meets(column: usize, tap: usize, pixels: usize) -> bool {
    column >= tap && column < tap + pixels
}

/// Two rows of the output, whose windows share most of their input: each vector of it is loaded
/// once for both.
struct Pair<'a> {
    windows: [Windows<'a>; 2],
    finish: Finish,
    residual: Option<Residual<'a>>,
    /// Both rows.
    y: &'a mut [f32],
}

impl Pair<'_> {
    /// Whether [`Windows::both`] knows the window.
    fn suits(window: &Window) -> bool {
        matches!(window.kernel, [3, 3] | [5, 5])
            && window.stride == [1, 1]
            && window.dilation == [1, 1]
    }

    #[inline(always)]
    fn store<S: Simd, const M: usize>(&mut self, s: S, sums: [S::F32; M], at: Range<usize>) {
        let residual = self.residual.map(|r| r.part(at.clone()));
        self.finish.store::<S, M, false, false>(s, sums, residual, (&mut self.y[at], Format::F32));
    }
}

impl TileBody for Pair<'_> {
    const FULL: FullTile = FullTile::Pixels(MR);

    #[cfg_attr(not(unoptimised), inline(always))]
    fn tile<S: Simd, const M: usize>(&mut self, s: S, first: usize) {
        let [upper, lower] = &self.windows;
        let [upper, lower]: [[_; M]; 2] = match upper.window.kernel[1] {
            #[cfg(not(unoptimised))]
            3 if upper.suits::<M>(first) => upper.both::<S, M, 3>(s, first),
            #[cfg(not(unoptimised))]
            5 if upper.suits::<M>(first) => upper.both::<S, M, 5>(s, first),
            _ => [upper.at_edges(s, first), lower.at_edges(s, first)],
        };
        let (first, n) = (first * S::LANES, M * S::LANES);
        let line = self.y.len() / 2;
        // Not a loop: sums stay in registers.
        self.store(s, upper, first..first + n);
        self.store(s, lower, line + first..line + first + n);
    }
}

/// The windows of one row of the output, on a plane of one block of channels.
struct Windows<'a> {
    window: &'a Window,
    plane: &'a [f32],
    /// A vector for each tap.
    weights: &'a [f32],
    /// A vector.
    bias: &'a [f32],
    /// The row of the output.
    number: usize,
    /// The rows of the window that lie in no padding: the first, and how many.
    taps: [usize; 2],
    /// The input row under the first of them.
    top: usize,
}

impl<'a> Windows<'a> {
    /// Output row `number`. Panics where plane or weights are not of the window's sizes.
    #[inline(always)]
    fn new<S: Simd>(
        window: &'a Window,
        plane: &'a [f32],
        (weights, bias): (&'a [f32], &'a [f32]),
        number: usize,
    ) -> Self {
        assert!(plane.len() == window.input_pixels() * S::LANES && number < window.output[0]);
        assert!(weights.len() == window.taps() * S::LANES && bias.len() == S::LANES);
        let Range { start, end } = window.taps_inside(0, number);
        let top =
            (number * window.stride[0] + start * window.dilation[0]).saturating_sub(window.pad[0]);
        Self { window, plane, weights, bias, number, taps: [start, end - start], top }
    }

    /// The sums of the M pixels from `first` on, with the bias.
    #[inline(always)]
    fn sums<S: Simd, const M: usize>(&self, s: S, first: usize) -> [S::F32; M] {
        self.with_bias(s, self.terms(s, first, array!(M, |J| s.zero())))
    }

    /// As [`Self::sums`], for any window.
    #[inline(always)]
    fn at_edges<S: Simd, const M: usize>(&self, s: S, first: usize) -> [S::F32; M] {
        self.with_bias(s, self.any(s, first, array!(M, |J| s.zero())))
    }

    /// The bias is added at the end: it may be large beside the terms.
    #[inline(always)]
    fn with_bias<S: Simd, const M: usize>(&self, s: S, mut sums: [S::F32; M]) -> [S::F32; M] {
        let bias = self.bias(s);
        unroll!(M, |J| sums[J] = s.add(sums[J], bias));
        sums
    }

    /// The sums of the M pixels from `first` on, without the bias, added to others.
    #[inline(always)]
    fn terms<S: Simd, const M: usize>(&self, s: S, first: usize, sums: [S::F32; M]) -> [S::F32; M] {
        let win = self.window;
        assert!(first + M <= win.output[1]);
        match (win.kernel[1], win.stride[1]) {
            (3, 1) if self.suits::<M>(first) => self.unrolled::<S, M, 3, 1>(s, first, sums),
            (3, 2) if self.suits::<M>(first) => self.unrolled::<S, M, 3, 2>(s, first, sums),
            (5, 1) if self.suits::<M>(first) => self.unrolled::<S, M, 5, 1>(s, first, sums),
            (5, 2) if self.suits::<M>(first) => self.unrolled::<S, M, 5, 2>(s, first, sums),
            (7, 1) if self.suits::<M>(first) => self.unrolled::<S, M, 7, 1>(s, first, sums),
            _ => self.any(s, first, sums),
        }
    }

    /// Whether [`Self::unrolled`] can take the M pixels from `first` on: no dilation, and no
    /// padding but under the first and the last half of the columns of a window.
    #[inline(always)]
    fn suits<const M: usize>(&self, first: usize) -> bool {
        let win = self.window;
        let [_, kernel] = win.kernel;
        let start = first * win.stride[1] + kernel / 2;
        let end = (first + M - 1) * win.stride[1] + kernel.div_ceil(2);
        win.dilation[1] == 1 && start >= win.pad[1] && end <= win.input[1] + win.pad[1]
    }

    /// For a window of `K` columns, where [`Self::suits`] says so.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn unrolled<S: Simd, const M: usize, const K: usize, const STRIDE: usize>(
        &self,
        s: S,
        first: usize,
        mut sums: [S::F32; M],
    ) -> [S::F32; M] {
        let b = S::LANES;
        let win = self.window;
        let width = win.input[1];
        let line = win.dilation[0] * width * b;
        // The input column under the first tap of the first pixel; below zero, it wraps and is no
        // column.
        let start = (first * STRIDE).wrapping_sub(win.pad[1]);
        let last = (M - 1) * STRIDE + K - 1;
        let mut row = self
            .plane
            .as_ptr()
            .wrapping_add((self.top * width).wrapping_add(start).wrapping_mul(b));
        // Only the outermost columns may be padding, which is the same in all rows: where they lie,
        // and how far it is to the next row.
        macro_rules! edge {
            ($number:expr) => {{
                let inside = start.wrapping_add($number) < width;
                if inside { (row.wrapping_add($number * b), line) } else { (ZEROS.as_ptr(), 0) }
            }};
        }
        let mut left = array!(K, |I| edge!(I));
        let mut right = array!(K, |I| edge!(last - I));
        let [skipped, rows] = self.taps;
        for ky in skipped..skipped + rows {
            unroll!(at most 7: K, |KX| {
                // SAFETY: `taps` are rows of the window, it has K columns, and there is a vector
                // for each tap (`new`).
                let w = unsafe { s.load_ptr(self.weights.as_ptr().add((ky * K + KX) * b)) };
                unroll!(M, |J| {
                    let column = J * STRIDE + KX;
                    let at = if column < K / 2 {
                        left[column].0
                    } else if last - column < K / 2 {
                        right[last - column].0
                    } else {
                        row.wrapping_add(column * b)
                    };
                    // SAFETY: a column of a row of the plane (asked above, or by `suits`; `new` has
                    // its length), or ZEROS.
                    sums[J] = s.fma(unsafe { s.load_ptr(at) }, w, sums[J]);
                });
            });
            row = row.wrapping_add(line);
            unroll!(K, |I| if const { I < K / 2 } {
                left[I].0 = left[I].0.wrapping_add(left[I].1);
                right[I].0 = right[I].0.wrapping_add(right[I].1);
            });
        }
        sums
    }

    /// One number for each channel.
    #[inline(always)]
    fn bias<S: Simd>(&self, s: S) -> S::F32 {
        s.load(self.bias)
    }

    /// As [`Self::unrolled`] with stride 1, for this row and the next: K rows of taps, and K
    /// columns, of which each sum takes its terms in the same order.
    #[cfg_attr(not(unoptimised), inline(always))]
    #[cfg_attr(unoptimised, allow(dead_code))] // its frame would be too large
    fn both<S: Simd, const M: usize, const K: usize>(
        &self,
        s: S,
        first: usize,
    ) -> [[S::F32; M]; 2] {
        let b = S::LANES;
        let win = self.window;
        let [height, width] = win.input;
        // The input row and column under the first tap; below zero, they wrap and are none.
        let top = self.number.wrapping_sub(win.pad[0]);
        let start = first.wrapping_sub(win.pad[1]);
        let (mut upper, mut lower) = (array!(M, |J| s.zero()), array!(M, |J| s.zero()));
        unroll!(at most 6: both_rows(K), |I| {
            let iy = top.wrapping_add(I);
            if iy < height {
                let row = (iy * width).wrapping_add(start).wrapping_mul(b);
                let row = self.plane.as_ptr().wrapping_add(row);
                unroll!(columns(M, K), |C| {
                    // Only the outermost columns may be padding.
                    let outermost = const { C < K / 2 || M + K - 2 < C + K / 2 };
                    let inside = !outermost || start.wrapping_add(C) < width;
                    let at = if inside { row.wrapping_add(C * b) } else { ZEROS.as_ptr() };
                    // SAFETY: a column of a row of the plane (asked above, or by `suits`; `new` has
                    // its length), or ZEROS.
                    let x = unsafe { s.load_ptr(at) };
                    unroll!(at most 6: K, |KX| if const { meets(C, KX, M) } {
                        let j = C.wrapping_sub(KX);
                        let tap = self.weights.as_ptr().wrapping_add((I * K + KX) * b);
                        if const { I < K } {
                            // SAFETY: there is a vector for each of the K K taps (`new`).
                            let w = unsafe { s.load_ptr(tap) };
                            upper[j] = s.fma(x, w, upper[j]);
                        }
                        if const { I != 0 } {
                            // SAFETY: as above, for the row of taps before this one.
                            let w = unsafe { s.load_ptr(tap.wrapping_sub(K * b)) };
                            lower[j] = s.fma(x, w, lower[j]);
                        }
                    });
                });
            }
        });
        let bias = self.bias(s);
        unroll!(M, |J| {
            upper[J] = s.add(upper[J], bias);
            lower[J] = s.add(lower[J], bias);
        });
        [upper, lower]
    }

    /// For any window.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn any<S: Simd, const M: usize>(
        &self,
        s: S,
        first: usize,
        mut sums: [S::F32; M],
    ) -> [S::F32; M] {
        let b = S::LANES;
        let win = self.window;
        let ([_, width], [_, stride], [_, kernel]) = (win.input, win.stride, win.kernel);
        let [skipped, rows] = self.taps;
        for i in 0..rows {
            let row = &self.plane[(self.top + i * win.dilation[0]) * width * b..][..width * b];
            for kx in 0..kernel {
                let w = s.load(&self.weights[((skipped + i) * kernel + kx) * b..]);
                let start = (first * stride + kx * win.dilation[1]).wrapping_sub(win.pad[1]);
                for (j, sum) in sums.iter_mut().enumerate() {
                    let column = start.wrapping_add(j * stride);
                    if column < width {
                        *sum = s.fma(s.load(&row[column * b..]), w, *sum);
                    }
                }
            }
        }
        sums
    }
}

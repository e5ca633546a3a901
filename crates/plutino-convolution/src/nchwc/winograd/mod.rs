//! Winograd convolution on channel blocks (Lavin and Gray, arXiv 1509.09308): 3x3 with stride 1 or
//! 2, and large windows of first layers.
//!
//! With a tile's inputs d, the filter g and the transforms of [`transform`],
//!
//! ```text
//! Y = A^T [ sum over input channels of (G g G^T) * (B^T d B) ] A        * elementwise
//! ```
//! Channels are lanes, so both data transforms are plain vector arithmetic. The sums are a matrix
//! product for each point, computed with the register tile of the direct convolution: pixels are
//! tiles there, taps are 1.
//!
//! | algorithm | tile | points | multiplications | weights | error, 128 channels |
//! |---|---|---|---|---|---|
//! | F(2x2, 3x3) | 2x2 | 4x4 | 2.25 times fewer | 1.8 times more | less than the direct sum's |
//! | F(4x4, 3x3) | 4x4 | 6x6 | 4 times fewer | 4 times more | twice that |
//! | F(5x5, 3x3) | 5x5 | 7x7 | 4.6 times fewer | 5.4 times more | five times that |
//! | F(4x4, 4x4) | 4x4 | 7x7 | 5.2 times fewer | 3.1 times more | four times that |
//! | F(4x4, 3x3), stride 2 | 4x4 | 9x9 | 1.8 times fewer | 4 times more | twice that |
//!
//! F(4x4, 4x4) is, beside 4x4 layers, for images of few channels under windows of 7x7 or 8x8 with
//! stride 2, whose squares of four pixels are the pixels that it sees (see [`unshuffle`]); under
//! 5x5 and 6x6, stride 1 and three taps are left.
//!
//! Where as few outputs are left for the last tile of a line as a smaller algorithm has, it leaves
//! out points, and the filters stay what they are: 14 = 4 + 4 + 4 + 2 takes 6 + 6 + 6 + 4 points
//! (see [`order`]).
//!
//! With stride 2, outer taps meet the even inputs only, and the middle tap the odd ones: two stride
//! 1 convolutions, with two taps and with one, whose sum is transformed back at once.
//!
//! Of a volume, each slice of the output is an image, whose channels are those of all the slices of
//! the input that lie under its window's: three slices of 64 channels are 192. What lies before the
//! first slice or behind the last is zeros, which are transformed and multiplied as well.
//!
//! Loops: chunk of rows of tiles, of one image or several (its transformed data stays in cache;
//! each chunk reads all weights) / three phases: transform inputs (channel block x row of tiles),
//! multiply (one of the points x some pairs of output blocks), transform outputs (output block x
//! row of tiles). Where there are chunks for all threads, and weights are small, each thread works
//! on its own; else they share the phases of one chunk, and its data moves between their caches.
//!
//! Error: tests hold it below 1e-5 of the largest output against f64.

mod order;
mod steps;
mod transform;
mod unshuffle;
mod weights;

use self::order::Order;
use self::steps::{Product, RowOfInput, RowOfOutput, Transformed};
use self::transform::{Five, Four, FourFour, FourStrided, Transform, Two};
use self::unshuffle::Unshuffled;
use self::weights::WinogradWeights;
use super::finish::Finish;
use super::first_layer;
use super::format::{self, Format};
use super::prefetch;
use super::tile::NB;
use super::tiled::{LOOK, pad_bias};
use super::window::{Line, Slices, Window};
use crate::algorithm::{Bound, Operands, take};
use crate::choose::Request;
use crate::cost::{full_speed, stream_cycles};
use crate::post_ops::{Bf16Tensors, Residual};
use crate::problem::ConvError;
use plutino_cpu::par::{SharedMut, owner, part_of, stop};
use plutino_cpu::simd::{Isa, Pairs};
use plutino_cpu::{PackKey, Par};
use plutino_tensor::{FloatSource, Floats, alloc};
use std::borrow::Cow;

/// An algorithm of the family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// F(2x2, 3x3)
    Two,
    /// F(4x4, 3x3)
    Four,
    /// F(5x5, 3x3)
    Five,
    /// F(4x4, 4x4)
    FourFour,
    /// F(4x4, 3x3) with stride 2
    FourStrided,
}

impl Variant {
    /// The form of its weights.
    const fn form(self) -> &'static str {
        match self {
            Self::Two => "conv.winograd2x2_3x3",
            Self::Four => "conv.winograd4x4_3x3",
            Self::Five => "conv.winograd5x5_3x3",
            Self::FourFour => "conv.winograd4x4_4x4",
            Self::FourStrided => "conv.winograd4x4_3x3s2",
        }
    }

    const fn sizes(self) -> Sizes {
        match self {
            Self::Two => Sizes::of::<Two>(),
            Self::Four => Sizes::of::<Four>(),
            Self::Five => Sizes::of::<Five>(),
            Self::FourFour => Sizes::of::<FourFour>(),
            Self::FourStrided => Sizes::of::<FourStrided>(),
        }
    }
}

/// Sizes of an algorithm in one direction: see [`Transform`].
#[derive(Debug, Clone, Copy)]
struct Sizes {
    stride: usize,
    out: usize,
    taps: usize,
    points: usize,
    filters: usize,
    most_channels: usize,
    short_out: usize,
    short_points: usize,
    cost: f64,
}

impl Sizes {
    const fn of<T: Transform>() -> Self {
        Self {
            stride: T::STRIDE,
            out: T::OUT,
            taps: T::TAPS,
            points: T::POINTS,
            filters: T::FILTERS,
            most_channels: T::MOST_CHANNELS,
            short_out: T::SHORT_OUT,
            short_points: T::SHORT.len(),
            cost: T::COST,
        }
    }
}

/// f32 between two points' data beyond the data itself, so that the points of a tile do not compete
/// for the same lines of the first-level cache.
const SKEW: usize = 16;
/// Bytes of transformed data (inputs and outputs) of a chunk, at least.
const CHUNK: usize = 3 << 19;
/// The same where weights of no more than half of that leave room for them in the second-level
/// cache.
const SMALL_CHUNK: usize = 1 << 19;

/// A short tile has to save at least one in so many of a line's points.
const SHORT_PAYS: usize = 25;

/// f32 of the squares that a row of tiles reads, at most: each thread has room for them.
const MOST_SQUARES: usize = 1 << 18;

/// Tiles of a thread, where each multiplies tiles of its own, at least: with fewer, weights would
/// arrive too slowly at cores that read all of them.
const LEAST_TILES: usize = 20;

/// Winograd has to save a tenth of what the direct convolution takes: it takes memory.
const PAYS: f64 = 0.9;

/// Bound to a problem.
#[derive(Debug)]
pub(crate) struct Winograd {
    isa: Isa,
    variant: Variant,
    /// Where the input is a plain image; then the window and the channels are those of its squares.
    image: Option<Unshuffled>,
    window: Window,
    finish: Finish,
    /// Out and in: the latter of all slices under a window.
    channels: [usize; 2],
    /// The slices of a volume.
    depth: Line,
    /// Images, or slices of them.
    batch: usize,
    /// Rows of tiles of an image, and tiles of a row.
    tiles: [usize; 2],
    /// Whether the last row, and the last tile of each row, are short.
    short: [bool; 2],
    /// Chunks that the rows of tiles of all images make, by their size alone.
    least_chunks: usize,
    /// Chunks that they are cut into, for the threads' sake.
    chunks: usize,
    /// How many chunks are in work at a time.
    workers: usize,
    threads: usize,
    /// Parts of a chunk's rows, one for each thread, that have scratch memory of their own: threads
    /// that share lines, if only through what their cores prefetch, write slowly (decision 010). Or
    /// one.
    parts: usize,
    /// Whether input is asked for before its turn: see [`prefetch`].
    fetches: bool,
    /// What reads and makes bf16, where tensors may be such.
    pairs: Option<Pairs>,
    /// How the input lies, where it is no plain image, and the output.
    input: Format,
    output: Format,
}

/// Of an input in channel blocks. None unless the window has the algorithm's taps and stride, and
/// dilation 1, and where channels are too many for its precision; or memory is to be saved.
pub(crate) fn bind(request: &Request<'_>, variant: Variant) -> Option<Winograd> {
    let fits = request.problem.groups() == 1 && !request.post_ops.factors;
    let slices = Slices::of(&request.problem).filter(|_| fits && may_run(request))?;
    Winograd::new(request, variant, slices, None)
}

/// Of a plain image, whose squares of pixels are the pixels: first layers with stride 2.
pub(crate) fn bind_plain(request: &Request<'_>, variant: Variant) -> Option<Winograd> {
    let window = first_layer::window(request).filter(|_| may_run(request))?;
    let image = Unshuffled::new(&window, request.problem.in_channels(), request.isa.lanes())?;
    let slices = Slices { depth: Line::ONE, window: image.window().clone() };
    Winograd::new(request, variant, slices, Some(image))
}

/// Whether the caller wants its speed for its memory and its rounding errors.
fn may_run(request: &Request<'_>) -> bool {
    request.winograd && !request.save_memory
}

impl Winograd {
    fn new(
        request: &Request<'_>,
        variant: Variant,
        Slices { depth, window }: Slices,
        image: Option<Unshuffled>,
    ) -> Option<Self> {
        let &Request { problem, post_ops, isa, threads, bf16, .. } = request;
        let out = problem.out_channels();
        let batch = problem.batch().checked_mul(depth.output)?;
        let of_slice = image.as_ref().map_or(problem.in_channels(), Unshuffled::channels);
        let sizes = variant.sizes();
        let b = isa.lanes();
        // No surplus lanes between the channels of two slices.
        let whole = depth.kernel == 1 || of_slice.is_multiple_of(b);
        let inp = of_slice.checked_mul(depth.kernel).filter(|_| whole)?;
        if image.is_some() && sizes.points * b > MOST_SQUARES / window.input[1] {
            return None;
        }
        if window.kernel != [sizes.taps; 2]
            || window.stride != [sizes.stride; 2]
            || window.dilation != [1, 1]
            || inp > sizes.most_channels
            || out == 0
            || inp == 0
        {
            return None;
        }
        let tiles = window.output.map(|n| n.div_ceil(sizes.out));
        let short = [0, 1].map(|axis| {
            let most = (sizes.points - sizes.short_points) * SHORT_PAYS;
            (1..=sizes.short_out).contains(&(window.output[axis] % sizes.out))
                && tiles[axis] * sizes.points <= most
        });
        let channels = inp.next_multiple_of(b) + out.next_multiple_of(NB * b);
        let row = tiles[1] * sizes.points * sizes.points * channels * 4;
        // Each chunk reads all weights: its own data should not be much smaller than they are.
        let weights = sizes.filters * sizes.filters * inp * out * 4;
        let rows = (batch * tiles[0]).max(1);
        let least = if weights <= SMALL_CHUNK / 2 { SMALL_CHUNK } else { CHUNK.max(weights / 2) };
        let least_chunks = rows.div_ceil((least / row).max(1));
        let threads = threads.max(1);
        // Each for itself would read large weights at the same time, from memory.
        let small = weights <= 2 * CHUNK;
        // With one chunk each, the larger one would decide.
        let even = least_chunks > threads || rows.is_multiple_of(threads);
        let alone = small && even && least_chunks >= threads;
        let workers = if alone { threads } else { 1 };
        let apart = small && !alone && rows * tiles[1] >= LEAST_TILES * threads;
        let parts = if apart { threads.min(rows) } else { 1 };
        // As many for each worker.
        let chunks = match parts {
            1 => least_chunks.next_multiple_of(workers).min(rows),
            _ => 1,
        };
        // Squares are a copy in cache.
        let numbers = batch * inp * window.input_pixels();
        let words = if bf16.input { numbers / 2 } else { numbers };
        let fetches = image.is_none() && prefetch::pays(words);
        Some(Self {
            isa,
            variant,
            image,
            window,
            finish: Finish::new(post_ops.activation),
            channels: [out, inp],
            depth,
            batch,
            tiles,
            short,
            least_chunks,
            chunks,
            workers,
            threads,
            parts,
            fetches,
            pairs: format::maker(request),
            input: Format::of(bf16.input),
            output: Format::of(bf16.output),
        })
    }

    /// An estimate: multiply-adds at full speed, the time of some for what is transformed, written
    /// and read again (`Transform::COST`), and weights that leave the second-level cache at 8
    /// bytes, or at 4 where one layer's fill the third-level cache. (512 channels at 7x7: directly
    /// 2.9 ms; by F(2x2, 3x3) 1.6; by F(4x4, 3x3) 2.7, for four times the memory.) The same for any
    /// number of threads, which must not decide what is computed.
    fn estimate(&self) -> f64 {
        let sizes = self.variant.sizes();
        let [out, inp] = self.channels.map(|c| c as f64);
        let line = |axis: usize| match self.short[axis] {
            true => (self.tiles[axis] - 1) * sizes.points + sizes.short_points,
            false => self.tiles[axis] * sizes.points,
        };
        let points = (self.batch * line(0) * line(1)) as f64;
        let weights = inp * out * (sizes.filters * sizes.filters * 4) as f64;
        (inp * out + sizes.cost * (inp + out)) * points / full_speed(self.isa)
            + self.least_chunks as f64 * stream_cycles(weights)
    }

    /// The weights of a volume, `(out, in, depth, taps)`, with the channels of a slice one after
    /// the other: `(out, depth, in, taps)`.
    fn by_slices(&self, weight: Floats<'_>) -> Result<Vec<f32>, ConvError> {
        let taps = self.variant.sizes().taps;
        let (taps, deep) = (taps * taps, self.depth.kernel);
        let channels = self.channels[1] / deep;
        let from = |i: usize| {
            let (tap, c) = (i % taps, i / taps % channels);
            let (slice, o) = (i / (taps * channels) % deep, i / (taps * channels * deep));
            weight.get(((o * channels + c) * deep + slice) * taps + tap)
        };
        Ok(alloc::collect((0..weight.len()).map(from))?)
    }

    /// f32 of scratch memory that a run needs.
    fn scratch(&self) -> usize {
        self.workers * self.chunk_len()
    }

    /// The part of a chunk in work: its data, and squares for each of the threads that share it.
    fn chunk_len(&self) -> usize {
        let [inputs, outputs] = self.part_sizes();
        self.parts * (inputs + outputs) + self.threads / self.workers * self.squares_len()
    }

    /// f32 of the squares that a row of tiles reads.
    fn squares_len(&self) -> usize {
        let row = self.window.input[1] * self.isa.lanes();
        if self.image.is_some() { self.variant.sizes().points * row } else { 0 }
    }

    /// f32 of the transformed inputs and products of a part of a chunk.
    fn part_sizes(&self) -> [usize; 2] {
        let points = self.variant.sizes().points;
        self.point_sizes().map(|size| points * points * size)
    }

    /// The same for one point.
    fn point_sizes(&self) -> [usize; 2] {
        let b = self.isa.lanes();
        let [out, inp] = self.channels;
        let rows = (self.batch * self.tiles[0]).div_ceil(self.chunks).div_ceil(self.parts);
        let tiles = rows * self.tiles[1];
        [inp.div_ceil(b) * tiles * b + SKEW, out.next_multiple_of(NB * b) * tiles + SKEW]
    }

    /// Computes one chunk of rows of tiles.
    fn run_chunk<T: Transform>(
        &self,
        tensors: &Tensors<'_>,
        chunk: usize,
        scratch: &mut [f32],
        par: &Par,
    ) {
        let Tensors { x, y, weights, bias, residual } = *tensors;
        let b = self.isa.lanes();
        let [out, inp] = self.channels;
        let (in_plane, out_plane) = (self.window.input_pixels() * b, self.window.pixels() * b);
        let (in_blocks, out_blocks) = (inp.div_ceil(b), out.div_ceil(b));
        let pairs = out.div_ceil(NB * b);
        let [v_point, m_point] = self.point_sizes();
        let points = T::POINTS * T::POINTS;
        let [v_part, m_part] = self.part_sizes();
        let (v, rest) = scratch.split_at_mut(self.parts * v_part);
        let (m, squares) = rest.split_at_mut(self.parts * m_part);
        let (squares, squares_len) = (SharedMut::new(squares), self.squares_len());
        let packed = weights.as_slice();
        let panels = pairs * inp * NB * b;
        let all_rows = self.batch * self.tiles[0];
        let rows = part_of(chunk, self.chunks, all_rows);
        let (first, rows) = (rows.start, rows.len());
        let part = |index: usize| {
            let own = part_of(index, self.parts, rows);
            let tiles = own.len() * self.tiles[1];
            let own = first + own.start..first + own.end;
            Part { index, tiles, order: Order::new(own, self.tiles, self.short) }
        };
        // The part that a row of the chunk is in.
        let part_with = |row: usize| part(owner(row, self.parts, rows));
        // The image of a row of tiles, and which of its rows that is.
        let row_of = |row: usize| (row / self.tiles[0], row % self.tiles[0]);
        let shared = SharedMut::new(v);
        // A task has all blocks that share words.
        let blocks_of = |format: Format, plane: usize, blocks: usize| {
            let each = if format == Format::F32 { 1 } else { 2 };
            plane * each..blocks.min((plane + 1) * each)
        };
        let planes = self.input.planes(in_blocks);
        let Line { input: in_slices, output: slices, kernel: deep, .. } = self.depth;
        let slice_blocks = in_blocks / deep;
        let transform = |worker: usize, block: usize, row: usize| {
            let part = part_with(row);
            let (n, row_of_image) = row_of(first + row);
            let top = row_of_image * T::OUT * T::STRIDE;
            let (x, top) = if let Some(image) = &self.image {
                let lines = top..self.window.input[0].min(top + T::POINTS);
                let own = worker * squares_len..(worker + 1) * squares_len;
                // SAFETY: no two tasks run under the same worker's number at the same time.
                let own = unsafe { squares.slice(own) };
                let own = &mut own[..lines.len() * self.window.input[1] * b];
                image.rows(&x[n * image.image_len()..], block, lines, b, own);
                (&*own, 0)
            } else {
                let (volume, slice) = (n / slices, n % slices);
                let (tap, block) = (block / slice_blocks, block % slice_blocks);
                let plane = self.input.plane_of(volume, slice_blocks, block) * in_slices;
                let x = match self.depth.position(slice, tap) {
                    Some(slice) => &x[(plane + slice) * in_plane..(plane + slice + 1) * in_plane],
                    None => &[],
                };
                (x, top.wrapping_sub(self.window.pad[0]))
            };
            self.transform_input::<T>(RowOfInput {
                format: self.input.of_block(block % slice_blocks),
                x,
                top,
                v: &shared,
                v_point,
                at: part.index * v_part + block * part.tiles * b,
                places: part.order.row(first + row),
            });
        };
        par.run_grid([1, planes, rows], |worker, [_, plane, row]| {
            for block in blocks_of(self.input, plane, in_blocks) {
                transform(worker, block, row);
            }
        });
        let (v, shared) = (&*v, SharedMut::new(m));
        // A task is a point or one of its parts, or less where there are few tasks for the threads.
        let cuts = if par.threads() > 4 { pairs.min(4) } else { 1 };
        par.run_grid([1, points * cuts, self.parts], |_, [_, layer, index]| {
            let Part { tiles, order, .. } = part(index);
            let (point, cut) = (layer / cuts, layer % cuts);
            let points = [point / T::POINTS, point % T::POINTS];
            let places = order.of_point(points.map(|point| T::SHORT.contains(&point)));
            let [i, j] = points.map(T::filter_of);
            let filter = i * T::FILTERS + j;
            let pair = places.len() * inp * NB * b;
            for pairs in stop::parts(part_of(cut, cuts, pairs), LOOK / pair.max(1)) {
                self.isa.run(Product {
                    v: &v[index * v_part + point * v_point..][..in_blocks * tiles * b],
                    m: &shared,
                    at: index * m_part + point * m_point,
                    weights: &packed[filter * panels..(filter + 1) * panels],
                    pairs,
                    part: places.clone(),
                    tiles,
                    channels: inp,
                    chain: T::CHAIN,
                    total: packed.len(),
                });
            }
        });
        let m = &*m;
        let planes = self.output.planes(out_blocks);
        par.run_grid([1, planes, rows], |_, [_, plane, row]| {
            for block in blocks_of(self.output, plane, out_blocks) {
                let part = part_with(row);
                let (n, row_of_image) = row_of(first + row);
                let (volume, slice) = (n / slices, n % slices);
                // Where the block lies in a tensor.
                let place = |format: Format| {
                    (format.plane_of(volume, out_blocks, block) * slices + slice) * out_plane
                };
                let output = RowOfOutput {
                    m,
                    m_point,
                    at: part.index * m_part + block * part.tiles * b,
                    places: part.order.row(first + row),
                    bias: &bias[block * b..],
                    residual: residual.map(|r| {
                        let (start, format) = (place(r.format), r.format.of_block(block));
                        Residual { format, ..r.part(start..start + out_plane) }
                    }),
                    y,
                    plane: place(self.output),
                    format: self.output.of_block(block),
                    row: row_of_image,
                };
                self.transform_back::<T>(output);
            }
        });
    }

    /// Transforms one row of tiles of one input block.
    fn transform_input<T: Transform>(&self, row: RowOfInput<'_>) {
        match self.pairs.filter(|_| row.format != Format::F32) {
            None => self.isa.run(Transformed::<T, _, false>::new(self, row)),
            Some(pairs) => pairs.run(Transformed::<T, _, true>::new(self, row)),
        }
    }

    /// Transforms one row of tiles of one output block back.
    fn transform_back<T: Transform>(&self, row: RowOfOutput<'_>) {
        match self.pairs.filter(|_| row.format.is_bf16_or(row.residual)) {
            None => self.isa.run(Transformed::<T, _, false>::new(self, row)),
            Some(pairs) => pairs.run(Transformed::<T, _, true>::new(self, row)),
        }
    }
}

/// Rows of a chunk that have scratch memory of their own.
struct Part {
    index: usize,
    tiles: usize,
    order: Order,
}

/// The tensors of one run.
#[derive(Clone, Copy)]
struct Tensors<'a> {
    x: &'a [f32],
    y: &'a SharedMut<'a, f32>,
    weights: &'a WinogradWeights,
    bias: &'a [f32],
    residual: Option<Residual<'a>>,
}

impl Bound for Winograd {
    type Weights = WinogradWeights;

    fn cycles(&self) -> f64 {
        self.estimate() / PAYS
    }

    fn bf16_tensors(&self) -> Bf16Tensors {
        let may = self.pairs.is_some();
        // Of the output, what is finished in registers.
        let output = may && self.finish.at_once();
        Bf16Tensors { input: may && self.image.is_none(), residual: may, output }
    }

    fn pack_key(&self) -> PackKey {
        let pad = self.image.as_ref().map_or([0; 2], |image| image.pad().map(|p| p + 1));
        PackKey::f32(self.variant.form(), [NB * self.isa.lanes(), pad[0], pad[1]], self.isa)
    }

    fn pack(&self, weight: &mut dyn FloatSource, _: &Par) -> Result<WinogradWeights, ConvError> {
        let (variant, channels, block) = (self.variant, self.channels, self.isa.lanes());
        let other = match &self.image {
            Some(image) => image.weights(weight.all()?),
            None if self.depth.kernel > 1 => self.by_slices(weight.all()?)?,
            None => return Ok(WinogradWeights::pack(weight, variant, channels, block)?),
        };
        Ok(WinogradWeights::pack(&mut Floats::from(&other), variant, channels, block)?)
    }

    fn bytes(weights: &WinogradWeights) -> usize {
        weights.bytes()
    }

    fn bias<'b>(&self, bias: Option<&'b [f32]>) -> Cow<'b, [f32]> {
        Cow::Owned(pad_bias(bias, 1, self.channels[0], self.isa.lanes()))
    }

    fn workspace(&self) -> usize {
        self.scratch().saturating_mul(size_of::<f32>())
    }

    fn run(
        &self,
        weights: &WinogradWeights,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        let Operands { x, bias, residual, y, .. } = operands;
        let (scratch, _) = take::<f32>(workspace, self.scratch())?;
        let tensors = Tensors { x, y: &SharedMut::new(y), weights, bias, residual };
        let run = match self.variant {
            Variant::Two => Self::run_chunk::<Two>,
            Variant::Four => Self::run_chunk::<Four>,
            Variant::Five => Self::run_chunk::<Five>,
            Variant::FourFour => Self::run_chunk::<FourFour>,
            Variant::FourStrided => Self::run_chunk::<FourStrided>,
        };
        let len = self.chunk_len();
        if self.workers == 1 {
            for chunk in 0..self.chunks {
                run(self, &tensors, chunk, &mut scratch[..len], par);
            }
            return Ok(());
        }
        let scratch = SharedMut::new(scratch);
        par.run_as(self.chunks, |worker, chunk| {
            // SAFETY: no two tasks run under the same worker number at the same time.
            let own = unsafe { scratch.slice(worker * len..(worker + 1) * len) };
            run(self, &tensors, chunk, own, &Par::serial());
        });
        Ok(())
    }
}

//! Winograd convolution on channel blocks: 3x3 with stride 1 or 2 (Lavin and Gray, arXiv 1509.09308).
//!
//! With a tile's inputs d, the filter g and the transforms of [`transform`],
//!
//! ```text
//! Y = A^T [ sum over input channels of (G g G^T) * (B^T d B) ] A        * elementwise
//! ```
//! Channels are lanes, so both data transforms are plain vector arithmetic. The sums are a matrix product for each
//! point, computed with the register tile of the direct convolution: pixels are tiles there, taps are 1.
//!
//! | algorithm | tile | points | multiplications | weights | error, 128 channels |
//! |---|---|---|---|---|---|
//! | F(2x2, 3x3) | 2x2 | 4x4 | 2.25 times fewer | 1.8 times more | less than the direct sum's |
//! | F(4x4, 3x3) | 4x4 | 6x6 | 4 times fewer | 4 times more | twice that |
//! | F(4x4, 3x3), stride 2 | 4x4 | 9x9 | 1.8 times fewer | 4 times more | twice that |
//!
//! With stride 2, outer taps meet the even inputs only, and the middle tap the odd ones: two stride 1 convolutions,
//! with two taps and with one, whose sum is transformed back at once.
//!
//! Loops: chunk of rows of tiles, of one image or several (its transformed data stays in cache; each chunk reads all
//! weights) / three phases: transform inputs (channel block x row of tiles), multiply (one of the points x some pairs of
//! output blocks), transform outputs (output block x row of tiles). Where there are chunks for all threads,
//! and weights are small, each thread works on its own; else they share the phases of one chunk, and its data moves
//! between their caches.
//!
//! Error: tests hold it below 1e-5 of the largest output against f64.

mod transform;

use self::transform::{Four, FourStrided, MOST, MOST_FILTERS, MOST_OUT, Transform, Two, zeros};
use super::finish::{Finish, Residual};
use super::tile::{NB, Panel, Position, Taps, TileBody, for_each_tile, lines_ahead, tile};
use super::window::Window;
use crate::Par;
use crate::activation::Activation;
use crate::par::{SharedMut, part_of};
use crate::simd::unroll::unroll;
use crate::simd::{Isa, Simd, Vectorized};
use plutino_tensor::{AlignedBuf, Floats, TensorError};
use std::marker::PhantomData;
use std::ops::Range;

/// An algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WinogradAlgorithm {
    /// F(2x2, 3x3)
    Two,
    /// F(4x4, 3x3)
    Four,
    /// F(4x4, 3x3) with stride 2
    FourStrided,
}

impl WinogradAlgorithm {
    /// Every algorithm.
    pub const ALL: [Self; 3] = [Self::Two, Self::Four, Self::FourStrided];

    /// A name for profiles and packed weights.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Two => "winograd2x2_3x3",
            Self::Four => "winograd4x4_3x3",
            Self::FourStrided => "winograd4x4_3x3s2",
        }
    }

    const fn sizes(self) -> Sizes {
        match self {
            Self::Two => Sizes::of::<Two>(),
            Self::Four => Sizes::of::<Four>(),
            Self::FourStrided => Sizes::of::<FourStrided>(),
        }
    }
}

/// Sizes of an algorithm in one direction: see [`Transform`].
#[derive(Debug, Clone, Copy)]
struct Sizes {
    stride: usize,
    out: usize,
    points: usize,
    filters: usize,
}

impl Sizes {
    const fn of<T: Transform>() -> Self {
        Self { stride: T::STRIDE, out: T::OUT, points: T::POINTS, filters: T::FILTERS }
    }
}

/// f32 between two points' data beyond the data itself, so that the points of a tile do not compete for the
/// same lines of the first-level cache.
const SKEW: usize = 16;
/// Bytes of transformed data (inputs and outputs) of a chunk, at least.
const CHUNK: usize = 3 << 19;

/// Tiles of a thread, where each multiplies tiles of its own, at least: with fewer, weights would arrive too slowly at
/// cores that read all of them.
const LEAST_TILES: usize = 20;

/// Transformed filters: `[filter][pair of output blocks][input channel][2 b output channels]`.
#[derive(Debug)]
pub struct WinogradWeights {
    data: AlignedBuf,
    algorithm: WinogradAlgorithm,
    channels: [usize; 2],
    block: usize,
}

impl WinogradWeights {
    /// Transforms `weight`, `(out, in, 3, 3)` row-major, in f64, for vectors of `block` f32.
    ///
    /// # Errors
    /// Where the sizes do not fit each other, or no memory is left.
    pub fn pack<'w>(
        weight: impl Into<Floats<'w>>,
        algorithm: WinogradAlgorithm,
        channels: [usize; 2],
        block: usize,
    ) -> Result<Self, TensorError> {
        let weight = weight.into();
        match algorithm {
            WinogradAlgorithm::Two => Self::pack_for::<Two>(weight, algorithm, channels, block),
            WinogradAlgorithm::Four => Self::pack_for::<Four>(weight, algorithm, channels, block),
            WinogradAlgorithm::FourStrided => {
                Self::pack_for::<FourStrided>(weight, algorithm, channels, block)
            }
        }
    }

    fn pack_for<T: Transform>(
        weight: Floats<'_>,
        algorithm: WinogradAlgorithm,
        [out, inp]: [usize; 2],
        block: usize,
    ) -> Result<Self, TensorError> {
        if block == 0
            || !(NB * block).is_multiple_of(SIDE)
            || weight.is_empty()
            || Some(weight.len()) != out.checked_mul(inp).and_then(|n| n.checked_mul(9))
        {
            return Err(TensorError::invalid(
                "weights of a Winograd convolution must be (out, in, 3, 3)",
            ));
        }
        let width = NB * block;
        let panels = out.div_ceil(width) * inp * width;
        let bytes = panels
            .checked_mul(T::FILTERS * T::FILTERS * 4)
            .ok_or_else(|| TensorError::invalid("weights exceed memory"))?;
        let mut data = AlignedBuf::resident(bytes)?;
        let packed = bytemuck::cast_slice_mut(data.as_mut_bytes());
        let channels = [out, inp];
        Isa::best().run(FilterTransform::<T> {
            weight,
            channels,
            width,
            packed,
            transform: PhantomData,
        });
        Ok(Self { data, algorithm, channels, block })
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }
}

/// Filters that are transformed side by side. Divides every pair of blocks.
const SIDE: usize = 8;

/// Transforms all filters of a layer into [`WinogradWeights`].
struct FilterTransform<'a, T> {
    weight: Floats<'a>,
    channels: [usize; 2],
    /// Output channels of a pair of blocks.
    width: usize,
    /// As much for each of the `FILTERS^2` points.
    packed: &'a mut [f32],
    transform: PhantomData<T>,
}

impl<T: Transform> Vectorized for FilterTransform<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let ([out, inp], width) = (self.channels, self.width);
        let panels = self.packed.len() / (T::FILTERS * T::FILTERS);
        let mut u = [[0.0; SIDE]; MOST_FILTERS * MOST_FILTERS];
        for pair in (0..out).step_by(width) {
            for c in 0..inp {
                // Some filters of neighbouring output channels at a time: they lie side by side, in one line of cache
                // or two for each point, which are written one right after the other.
                for o in (pair..out.min(pair + width)).step_by(SIDE) {
                    let filters = (out - o).min(SIDE);
                    let mut g = [[0.0; SIDE]; 9];
                    for i in 0..filters {
                        let filter = ((o + i) * inp + c) * 9;
                        let filter = self.weight.part(filter..filter + 9);
                        for (t, g) in g.iter_mut().enumerate() {
                            g[i] = filter.get(t).into();
                        }
                    }
                    transform_filters::<T>(&g, &mut u);
                    let at = (pair * inp + c * width) + o - pair;
                    for (u, panels) in u.iter().zip(self.packed.chunks_exact_mut(panels)) {
                        if let Some(panel) = panels.get_mut(at..at + SIDE) {
                            for i in 0..SIDE {
                                panel[i] = u[i] as f32;
                            }
                        }
                    }
                }
            }
        }
    }
}

/// G g G^T of each filter, in f64: the first `FILTERS^2` of `u`.
#[inline(always)]
fn transform_filters<T: Transform>(
    g: &[[f64; SIDE]; 9],
    u: &mut [[f64; SIDE]; MOST_FILTERS * MOST_FILTERS],
) {
    let mut columns = [[0.0; SIDE]; 3 * MOST_FILTERS]; // G g
    for x in 0..3 {
        for i in 0..SIDE {
            let column = T::filter([g[x][i], g[3 + x][i], g[6 + x][i]]);
            for y in 0..T::FILTERS {
                columns[3 * y + x][i] = column[y];
            }
        }
    }
    for y in 0..T::FILTERS {
        for i in 0..SIDE {
            let row = T::filter([columns[3 * y][i], columns[3 * y + 1][i], columns[3 * y + 2][i]]);
            for x in 0..T::FILTERS {
                u[T::FILTERS * y + x][i] = row[x];
            }
        }
    }
}

/// A Winograd convolution bound to its geometry.
#[derive(Debug)]
pub struct WinogradConv {
    isa: Isa,
    algorithm: WinogradAlgorithm,
    window: Window,
    finish: Finish,
    channels: [usize; 2],
    batch: usize,
    /// Rows of tiles of an image, and tiles of a row.
    tiles: [usize; 2],
    /// Chunks that the rows of tiles of all images make, by their size alone.
    least_chunks: usize,
    /// Chunks that they are cut into, for the threads' sake.
    chunks: usize,
    /// How many chunks are in work at a time.
    workers: usize,
    /// Parts of the rows of a chunk that are multiplied apart, one for each thread; or one.
    parts: usize,
}

impl WinogradConv {
    /// Binds the geometry; none unless the window is 3x3 with the algorithm's stride and dilation 1. `[out, in]`
    /// channels; `threads` shapes the tasks (not the result).
    pub fn new(
        isa: Isa,
        algorithm: WinogradAlgorithm,
        window: Window,
        [out, inp]: [usize; 2],
        batch: usize,
        activation: Option<Activation>,
        threads: usize,
    ) -> Option<Self> {
        let sizes = algorithm.sizes();
        if window.kernel != [3, 3]
            || window.stride != [sizes.stride; 2]
            || window.dilation != [1, 1]
            || out == 0
            || inp == 0
        {
            return None;
        }
        let tiles = window.output.map(|n| n.div_ceil(sizes.out));
        let b = isa.lanes();
        let channels = inp.next_multiple_of(b) + out.next_multiple_of(NB * b);
        let row = tiles[1] * sizes.points * sizes.points * channels * 4;
        // Each chunk reads all weights: its own data should not be much smaller than they are.
        let weights = sizes.filters * sizes.filters * inp * out * 4;
        let rows = (batch * tiles[0]).max(1);
        let least_chunks = rows.div_ceil((CHUNK.max(weights / 2) / row).max(1));
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
        Some(Self {
            isa,
            algorithm,
            window,
            finish: Finish::new(activation),
            channels: [out, inp],
            batch,
            tiles,
            least_chunks,
            chunks,
            workers,
            parts,
        })
    }

    /// The algorithm that beats the direct convolution by most, if one saves a tenth: it takes memory.
    pub fn fastest(
        isa: Isa,
        window: &Window,
        channels: [usize; 2],
        batch: usize,
        activation: Option<Activation>,
        threads: usize,
    ) -> Option<Self> {
        WinogradAlgorithm::ALL
            .into_iter()
            .filter_map(|a| Self::new(isa, a, window.clone(), channels, batch, activation, threads))
            .map(|conv| (conv.cycles(), conv))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .filter(|(cycles, conv)| *cycles < 0.9 * conv.direct_cycles())
            .map(|(_, conv)| conv)
    }

    /// The algorithm.
    pub fn algorithm(&self) -> WinogradAlgorithm {
        self.algorithm
    }

    /// An estimate: multiply-adds at full speed, the time of twenty-four for what is transformed, written and read again,
    /// and weights that leave the second-level cache at 8 bytes, or at 4 where one layer's fill the
    /// third-level cache. (512 channels at 7x7: directly 2.9 ms; by F(2x2, 3x3) 1.6; by F(4x4, 3x3) 2.7, for four
    /// times the memory.) The same for any number of threads, which must not decide what is computed.
    fn cycles(&self) -> f64 {
        let sizes = self.algorithm.sizes();
        let [out, inp] = self.channels.map(|c| c as f64);
        let rows = self.batch * self.tiles[0];
        let points = (sizes.points * sizes.points * rows * self.tiles[1]) as f64;
        let weights = inp * out * (sizes.filters * sizes.filters * 4) as f64;
        (inp * out + 24.0 * (inp + out)) * points / full_speed(self.isa)
            + self.least_chunks as f64 * stream_cycles(weights)
    }

    /// The same estimate of the direct convolution, which reaches four fifths of the peak and reads weights for each
    /// image.
    fn direct_cycles(&self) -> f64 {
        let [out, inp] = self.channels.map(|c| c as f64);
        let sums = inp * out * 9.0 * self.window.pixels() as f64;
        let image = sums / (0.8 * full_speed(self.isa)) + stream_cycles(inp * out * 36.0);
        self.batch as f64 * image
    }

    /// f32 of scratch memory that a run needs.
    pub fn scratch(&self) -> usize {
        self.workers * self.chunk_len()
    }

    /// The part of a chunk in work.
    fn chunk_len(&self) -> usize {
        let [inputs, outputs] = self.point_sizes();
        let points = self.algorithm.sizes().points;
        points * points * (inputs + outputs)
    }

    /// f32 of a chunk's transformed inputs and products, for one point.
    fn point_sizes(&self) -> [usize; 2] {
        let b = self.isa.lanes();
        let [out, inp] = self.channels;
        let tiles = (self.batch * self.tiles[0]).div_ceil(self.chunks) * self.tiles[1];
        [inp.div_ceil(b) * tiles * b + SKEW, out.next_multiple_of(NB * b) * tiles + SKEW]
    }

    /// Computes all images; `x`, `y` and `residual` are blocked, `bias` is padded to whole pairs of blocks as
    /// for the direct convolution.
    ///
    /// Panics where a slice is too short: plans check lengths before.
    pub fn run(
        &self,
        x: &[f32],
        weights: &WinogradWeights,
        bias: &[f32],
        residual: Option<Residual<'_>>,
        y: &mut [f32],
        scratch: &mut [f32],
        par: &Par,
    ) {
        let b = self.isa.lanes();
        let [out, inp] = self.channels;
        let planes = [self.window.input_pixels() * b, self.window.pixels() * b];
        let images = [inp.div_ceil(b) * planes[0], out.div_ceil(b) * planes[1]];
        assert!(
            weights.channels == self.channels
                && weights.block == b
                && weights.algorithm == self.algorithm,
            "weights of another convolution"
        );
        assert!(y.len() == self.batch * images[1], "length of a convolution's output");
        assert!(x.len() == self.batch * images[0], "length of a convolution's input");
        assert!(bias.len() >= out.next_multiple_of(NB * b), "bias is not padded");
        assert!(residual.is_none_or(|r| r.data.len() == y.len()), "length of a residual");
        assert!(scratch.len() >= self.scratch(), "scratch memory of a convolution");
        let operands = Operands { x, y: &SharedMut::new(y), weights, bias, residual };
        let run = match self.algorithm {
            WinogradAlgorithm::Two => Self::run_chunk::<Two>,
            WinogradAlgorithm::Four => Self::run_chunk::<Four>,
            WinogradAlgorithm::FourStrided => Self::run_chunk::<FourStrided>,
        };
        let len = self.chunk_len();
        if self.workers == 1 {
            for chunk in 0..self.chunks {
                run(self, &operands, chunk, &mut scratch[..len], par);
            }
            return;
        }
        assert!(par.threads() <= self.workers, "more threads than were planned for");
        let scratch = SharedMut::new(scratch);
        par.run_as(self.chunks, |worker, chunk| {
            // SAFETY: no two tasks run under the same worker number at the same time.
            let own = unsafe { scratch.slice(worker * len..(worker + 1) * len) };
            run(self, &operands, chunk, own, &Par::serial());
        });
    }

    /// Computes one chunk of rows of tiles.
    fn run_chunk<T: Transform>(
        &self,
        operands: &Operands<'_>,
        chunk: usize,
        scratch: &mut [f32],
        par: &Par,
    ) {
        let Operands { x, y, weights, bias, residual } = *operands;
        let b = self.isa.lanes();
        let [out, inp] = self.channels;
        let (in_plane, out_plane) = (self.window.input_pixels() * b, self.window.pixels() * b);
        let (in_blocks, out_blocks) = (inp.div_ceil(b), out.div_ceil(b));
        let pairs = out.div_ceil(NB * b);
        let [v_point, m_point] = self.point_sizes();
        let points = T::POINTS * T::POINTS;
        let (v, m) = scratch.split_at_mut(points * v_point);
        let m = &mut m[..points * m_point];
        let packed: &[f32] = bytemuck::cast_slice(weights.data.as_bytes());
        let panels = pairs * inp * NB * b;
        let all_rows = self.batch * self.tiles[0];
        let rows = part_of(chunk, self.chunks, all_rows);
        let (first, rows) = (rows.start, rows.len());
        let tiles = rows * self.tiles[1];
        // The image of a row of tiles, and which of its rows that is.
        let row_of = |row: usize| (row / self.tiles[0], row % self.tiles[0]);
        let shared = SharedMut::new(v);
        par.run_grid([1, in_blocks, rows], |_, [_, block, row]| {
            let (n, row_of_image) = row_of(first + row);
            let plane = (n * in_blocks + block) * in_plane;
            self.isa.run(InputRow::<T> {
                conv: self,
                transform: PhantomData,
                x: &x[plane..plane + in_plane],
                v: &shared,
                v_point,
                at: (block * tiles + row * self.tiles[1]) * b,
                row: row_of_image,
            });
        });
        let (v, shared) = (&*v, SharedMut::new(m));
        // A task is a point or one of its parts, or less where there are few tasks for the threads.
        let cuts = if par.threads() > 4 { pairs.min(4) } else { 1 };
        par.run_grid([1, points * cuts, self.parts], |_, [_, layer, part]| {
            let (point, cut) = (layer / cuts, layer % cuts);
            let rows = part_of(part, self.parts, rows);
            let [i, j] = [point / T::POINTS, point % T::POINTS].map(T::filter_of);
            let filter = i * T::FILTERS + j;
            self.isa.run(Product {
                v: &v[point * v_point..][..in_blocks * tiles * b],
                m: &shared,
                at: point * m_point,
                weights: &packed[filter * panels..(filter + 1) * panels],
                pairs: part_of(cut, cuts, pairs),
                part: rows.start * self.tiles[1]..rows.end * self.tiles[1],
                tiles,
                channels: inp,
                total: packed.len(),
            });
        });
        let m = &*m;
        par.run_grid([1, out_blocks, rows], |_, [_, block, row]| {
            let (n, row_of_image) = row_of(first + row);
            let plane = (n * out_blocks + block) * out_plane;
            self.isa.run(OutputRow::<T> {
                conv: self,
                transform: PhantomData,
                m,
                m_point,
                at: (block * tiles + row * self.tiles[1]) * b,
                bias: &bias[block * b..],
                residual: residual.map(|r| r.part(plane..plane + out_plane)),
                y,
                plane,
                row: row_of_image,
            });
        });
    }
}

/// The tensors of one run.
#[derive(Clone, Copy)]
struct Operands<'a> {
    x: &'a [f32],
    y: &'a SharedMut<'a, f32>,
    weights: &'a WinogradWeights,
    bias: &'a [f32],
    residual: Option<Residual<'a>>,
}

/// Multiply-adds of a core in a cycle.
fn full_speed(isa: Isa) -> f64 {
    (isa.multiply_adds() * isa.lanes()) as f64
}

/// Cycles in which weights arrive.
fn stream_cycles(bytes: f64) -> f64 {
    match bytes {
        ..=256e3 => 0.0,
        ..=20e6 => bytes / 8.0,
        _ => bytes / 4.0,
    }
}

/// Transforms one row of tiles of one input block.
struct InputRow<'a, T> {
    conv: &'a WinogradConv,
    transform: PhantomData<T>,
    x: &'a [f32],
    v: &'a SharedMut<'a, f32>,
    v_point: usize,
    /// Where the row's first tile lies in the data of a point.
    at: usize,
    row: usize,
}

impl<T: Transform> Vectorized for InputRow<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let window = &self.conv.window;
        let b = S::LANES;
        let [height, width] = window.input;
        let tiles = self.conv.tiles[1];
        assert!(self.x.len() == height * width * b, "length of a plane");
        assert!(points::<T>(self.at, self.v_point, tiles * b) <= self.v.len(), "room for points");
        // Where either wraps, below zero, it ends outside.
        let inside =
            |first: usize, size| first.checked_add(T::POINTS).is_some_and(|end| end <= size);
        let top = (self.row * T::OUT * T::STRIDE).wrapping_sub(window.pad[0]);
        let mut columns = [zeros(s); MOST];
        for t in 0..tiles {
            let left = (t * T::OUT * T::STRIDE).wrapping_sub(window.pad[1]);
            let whole = inside(top, height) && inside(left, width);
            for j in 0..T::POINTS {
                let ix = left.wrapping_add(j);
                let mut d = zeros(s);
                if whole {
                    let column = self.x.as_ptr().wrapping_add((top * width + ix) * b);
                    // SAFETY: all rows and columns of the tile lie in the plane (asked), which has this length (asserted).
                    unroll!(T::POINTS, |I| d[I] =
                        unsafe { s.load_ptr(column.wrapping_add(I * width * b)) });
                } else if ix < width {
                    unroll!(T::POINTS, |I| {
                        let iy = top.wrapping_add(I);
                        if iy < height {
                            d[I] = s.load(&self.x[(iy * width + ix) * b..]);
                        }
                    });
                }
                columns[j] = T::input(s, d);
            }
            for i in 0..T::POINTS {
                let mut line = zeros(s);
                unroll!(T::POINTS, |J| line[J] = columns[J][i]);
                let line = T::input(s, line);
                let at = i * T::POINTS * self.v_point + self.at + t * b;
                let v = self.v.as_mut_ptr().wrapping_add(at);
                // SAFETY: there is room (asserted), and tasks transform different tiles or blocks.
                unroll!(T::POINTS, |J| unsafe {
                    s.store_ptr(line[J], v.wrapping_add(J * self.v_point));
                });
            }
        }
    }
}

/// Where `len` elements end that begin at `at` in the data of the last point, `distance` elements for each point.
fn points<T: Transform>(at: usize, distance: usize, len: usize) -> usize {
    (T::POINTS * T::POINTS - 1) * distance + at + len
}

/// Multiplies at one point: some tiles of the chunk with some pairs of output blocks.
struct Product<'a> {
    v: &'a [f32],
    m: &'a SharedMut<'a, f32>,
    at: usize,
    weights: &'a [f32],
    pairs: Range<usize>,
    part: Range<usize>,
    /// Tiles of the chunk.
    tiles: usize,
    channels: usize,
    /// f32 of the weights of all points.
    total: usize,
}

impl Vectorized for Product<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let b = S::LANES;
        let bias = [0.0; NB * 16];
        let panel = self.channels * NB * b;
        let first = self.part.start * b;
        for pair in self.pairs {
            let weights = &self.weights[pair * panel..(pair + 1) * panel];
            let taps = Taps {
                ahead: lines_ahead::<S>(self.total, panel, self.part.len()),
                x: self.v[first..].as_ptr(),
                table: &[],
                pixels: self.part.len(),
                taps: 1,
                channels: self.channels,
                block: b,
                step: self.tiles * b,
                pixel: b,
            };
            let mut body = ProductTile {
                panel: Panel::new::<S>(&taps, weights, &bias),
                m: self.m,
                at: self.at + pair * NB * self.tiles * b + first,
                plane: self.tiles * b,
            };
            for_each_tile(s, 0..self.part.len(), &mut body);
        }
    }
}

struct ProductTile<'a> {
    panel: Panel<'a>,
    m: &'a SharedMut<'a, f32>,
    /// Where the first pixel lies in m.
    at: usize,
    /// From one output block to the next.
    plane: usize,
}

impl<S: Simd> TileBody<S> for ProductTile<'_> {
    #[inline(always)]
    fn tile<const MR: usize>(&mut self, s: S, first: usize) {
        let b = S::LANES;
        // SAFETY: the tiles of the part, in every block of input channels, lie inside v: `Product` is given
        // `in_blocks * tiles * b` elements, and begins with the part; there is one tap.
        let [mut sums, second] =
            unsafe { tile::<S, MR, { Position::DENSE }, NB>(s, &self.panel, first) };
        for k in 0..NB {
            let at = self.at + k * self.plane + first * b;
            // SAFETY: tasks write different points, pairs or parts of the tiles.
            let m = unsafe { self.m.slice(at..at + MR * b) };
            unroll!(MR, |J| s.store(sums[J], &mut m[J * b..]));
            sums = second; // registers have no index
        }
    }
}

/// Transforms one row of tiles of one output block back.
struct OutputRow<'a, T> {
    conv: &'a WinogradConv,
    transform: PhantomData<T>,
    m: &'a [f32],
    m_point: usize,
    at: usize,
    bias: &'a [f32],
    residual: Option<Residual<'a>>,
    y: &'a SharedMut<'a, f32>,
    /// Where the output plane starts in y.
    plane: usize,
    row: usize,
}

impl<T: Transform> Vectorized for OutputRow<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let b = S::LANES;
        let [height, width] = self.conv.window.output;
        let bias = s.load(self.bias);
        let finish = self.conv.finish;
        let rows = T::OUT.min(height - self.row * T::OUT);
        let tiles = self.conv.tiles[1];
        assert!(points::<T>(self.at, self.m_point, tiles * b) <= self.m.len(), "all points");
        let mut columns = [[s.zero(); MOST_OUT]; MOST];
        for t in 0..tiles {
            for j in 0..T::POINTS {
                let mut m = zeros(s);
                let column = self.m.as_ptr().wrapping_add(j * self.m_point + self.at + t * b);
                // SAFETY: the points are all there (asserted).
                unroll!(T::POINTS, |I| m[I] =
                    unsafe { s.load_ptr(column.wrapping_add(I * T::POINTS * self.m_point)) });
                columns[j] = T::output(s, m);
            }
            let cols = T::OUT.min(width - t * T::OUT);
            for i in 0..rows {
                let mut line = zeros(s);
                unroll!(T::POINTS, |J| line[J] = columns[J][i]);
                let mut sums = T::output(s, line);
                for sum in &mut sums {
                    *sum = s.add(*sum, bias);
                }
                let at = ((self.row * T::OUT + i) * width + t * T::OUT) * b;
                // SAFETY: tasks write different rows or blocks.
                let y = unsafe { self.y.slice(self.plane + at..self.plane + at + cols * b) };
                let residual = self.residual.map(|r| r.part(at..at + cols * b));
                finish.store::<S, MOST_OUT, false>(s, sums, residual, y);
            }
        }
    }
}

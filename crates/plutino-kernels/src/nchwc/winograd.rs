//! Winograd convolution F(4x4, 3x3) on channel blocks: 3x3, stride 1.
//!
//! A tile of 4x4 outputs takes 36 multiplications for each pair of channels instead of 144
//! (Lavin and Gray, arXiv 1509.09308). With the tile's 6x6 inputs d, the filter g and the transposed
//! transforms below,
//!
//! ```text
//! Y = A^T [ sum over input channels of (G g G^T) * (B^T d B) ] A        * elementwise
//!
//!        4  0 -5  0  1  0          1/4    0     0           1  1  1  1  1  0
//!        0 -4 -4  1  1  0         -1/6  -1/6  -1/6          0  1 -1  2 -2  0
//! B^T =  0  4 -4 -1  1  0    G =  -1/6   1/6  -1/6   A^T =  0  1  1  4  4  0
//!        0 -2 -1  2  1  0         1/24  1/12   1/6          0  1 -1  8 -8  1
//!        0  2 -1 -2  1  0         1/24 -1/12   1/6
//!        0  4  0 -5  0  1           0     0     1
//! ```
//! Channels are lanes, so both data transforms are plain vector arithmetic. The sums are 36 matrix products,
//! computed with the register tile of the direct convolution: pixels are tiles there, taps are 1.
//!
//! Loops: chunk of tiles of one image (its transformed data stays in cache) / three phases, each in parallel:
//! transform inputs (channel block x row of tiles), multiply (one of 36 x some pairs of output blocks),
//! transform outputs (output block x row of tiles).
//!
//! Error: about 10 times that of the direct sum; tests hold it below 1e-5 of the largest output against f64.

use super::finish::{Finish, Residual};
use super::tile::{NB, Position, Taps, TileBody, for_each_tile, lines_ahead, tile};
use super::window::Window;
use crate::Par;
use crate::activation::Activation;
use crate::par::SharedMut;
use crate::simd::unroll::unroll;
use crate::simd::{Isa, Simd, Vectorized};
use plutino_tensor::{AlignedBuf, Floats, TensorError};

/// Outputs of a tile in one direction.
const OUT: usize = 4;
/// Inputs of a tile in one direction.
const IN: usize = OUT + 2;
/// Products of a tile.
const POINTS: usize = IN * IN;
/// f32 between two points' data beyond the data itself, so that the points of a tile do not compete for the
/// same lines of the first-level cache.
const SKEW: usize = 16;
/// Bytes of transformed data (inputs and outputs) of a chunk, at least.
const CHUNK: usize = 3 << 20;

/// Transformed filters: `[point][pair of output blocks][input channel][2 b output channels]`.
#[derive(Debug)]
pub struct WinogradWeights {
    data: AlignedBuf,
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
        [out, inp]: [usize; 2],
        block: usize,
    ) -> Result<Self, TensorError> {
        let weight = weight.into();
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
        let point = out.div_ceil(width) * inp * width;
        let bytes = point
            .checked_mul(POINTS * 4)
            .ok_or_else(|| TensorError::invalid("weights exceed memory"))?;
        let mut data = AlignedBuf::zeroed(bytes)?;
        let packed: &mut [f32] = bytemuck::cast_slice_mut(data.as_mut_bytes());
        let mut u = [[0.0; SIDE]; POINTS];
        // Some filters of neighbouring output channels at a time: they lie side by side in every point.
        for (o, c) in (0..out).step_by(SIDE).flat_map(|o| (0..inp).map(move |c| (o, c))) {
            let filters = (out - o).min(SIDE);
            let mut g = [[0.0; SIDE]; 9];
            for i in 0..filters {
                for (t, g) in g.iter_mut().enumerate() {
                    g[i] = weight.get(((o + i) * inp + c) * 9 + t).into();
                }
            }
            let at = (o / width * inp + c) * width + o % width;
            transform_filters(&g, &mut u);
            for (u, point) in u.iter().zip(packed.chunks_exact_mut(point)) {
                for i in 0..filters {
                    point[at + i] = u[i] as f32;
                }
            }
        }
        Ok(Self { data, channels: [out, inp], block })
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }
}

/// Filters that are transformed side by side. Divides every pair of blocks.
const SIDE: usize = 4;

/// G g G^T of each filter, in f64.
fn transform_filters(g: &[[f64; SIDE]; 9], u: &mut [[f64; SIDE]; POINTS]) {
    let mut columns = [[0.0; SIDE]; 3 * IN]; // G g
    for x in 0..3 {
        for i in 0..SIDE {
            let column = transform_column(g[x][i], g[3 + x][i], g[6 + x][i]);
            for y in 0..IN {
                columns[3 * y + x][i] = column[y];
            }
        }
    }
    for y in 0..IN {
        for i in 0..SIDE {
            let [a, b, c] = [columns[3 * y][i], columns[3 * y + 1][i], columns[3 * y + 2][i]];
            let row = transform_column(a, b, c);
            for x in 0..IN {
                u[IN * y + x][i] = row[x];
            }
        }
    }
}

/// G times a column of three.
#[inline(always)]
fn transform_column(a: f64, b: f64, c: f64) -> [f64; IN] {
    let (even, odd) = ((a + c) * (1.0 / 6.0), b * (1.0 / 6.0));
    let (quad, twice) = (a * (1.0 / 24.0) + c * (1.0 / 6.0), b * (1.0 / 12.0));
    [a * 0.25, -even - odd, -even + odd, quad + twice, quad - twice, c]
}

/// B^T d, for one column.
#[inline(always)]
fn transform_input<S: Simd>(s: S, d: [S::F32; IN]) -> [S::F32; IN] {
    let (two, four, five) = (s.splat(2.0), s.splat(4.0), s.splat(5.0));
    let minus = |a, b| s.sub(a, b);
    // 4 d0 - 5 d2 + d4 and 4 d1 - 5 d3 + d5
    let first = s.fma(four, d[0], minus(d[4], s.mul(five, d[2])));
    let last = s.fma(four, d[1], minus(d[5], s.mul(five, d[3])));
    // (d4 - 4 d2) +- (d3 - 4 d1), (d4 - d2) +- 2 (d3 - d1)
    let (a, b) = (minus(d[4], s.mul(four, d[2])), minus(d[3], s.mul(four, d[1])));
    let (c, e) = (minus(d[4], d[2]), s.mul(two, minus(d[3], d[1])));
    [first, s.add(a, b), minus(a, b), s.add(c, e), minus(c, e), last]
}

/// A^T m, for one column.
#[inline(always)]
fn transform_output<S: Simd>(s: S, m: [S::F32; IN]) -> [S::F32; OUT] {
    let (two, four, eight) = (s.splat(2.0), s.splat(4.0), s.splat(8.0));
    let (sum1, dif1) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
    let (sum2, dif2) = (s.add(m[3], m[4]), s.sub(m[3], m[4]));
    [
        s.add(m[0], s.add(sum1, sum2)),
        s.fma(two, dif2, dif1),
        s.fma(four, sum2, sum1),
        s.add(m[5], s.fma(eight, dif2, dif1)),
    ]
}

/// A Winograd convolution bound to its geometry.
#[derive(Debug)]
pub struct WinogradConv {
    isa: Isa,
    window: Window,
    finish: Finish,
    channels: [usize; 2],
    /// Rows of tiles of an image, and tiles of a row.
    tiles: [usize; 2],
    /// Rows of tiles of a chunk.
    chunk: usize,
}

impl WinogradConv {
    /// Binds the geometry; none unless the window is 3x3 with stride and dilation 1. `[out, in]` channels.
    pub fn new(
        isa: Isa,
        window: Window,
        [out, inp]: [usize; 2],
        activation: Option<Activation>,
    ) -> Option<Self> {
        if window.kernel != [3, 3]
            || window.stride != [1, 1]
            || window.dilation != [1, 1]
            || out == 0
            || inp == 0
        {
            return None;
        }
        let tiles = window.output.map(|n| n.div_ceil(OUT));
        let b = isa.lanes();
        let row = tiles[1] * POINTS * (inp.next_multiple_of(b) + out.next_multiple_of(NB * b)) * 4;
        // Each chunk reads all weights: its own data should not be much smaller than they are.
        let weights = POINTS * inp * out * 4;
        let chunk = (CHUNK.max(weights / 2) / row).clamp(1, tiles[0]);
        Some(Self {
            isa,
            window,
            finish: Finish::new(activation),
            channels: [out, inp],
            tiles,
            chunk,
        })
    }

    /// Whether this beats the direct convolution, by an estimate in cycles: multiply-adds at two vectors a
    /// cycle, about 100 cycles for a transform, and weights that leave the second-level cache at 8 bytes, or
    /// at 4 where one layer's fill the third-level cache. (512 channels at 7x7: 2.7 ms instead of 2.9 at best, for
    /// four times the memory and load time.)
    pub fn pays(&self) -> bool {
        let b = self.isa.lanes() as f64;
        let [out, inp] = self.channels.map(|c| c as f64);
        let tiles = (self.tiles[0] * self.tiles[1]) as f64;
        let stream = |bytes: f64| match bytes {
            ..=256e3 => 0.0,
            ..=16e6 => bytes / 8.0,
            _ => bytes / 4.0,
        };
        let direct =
            inp * out * 9.0 * self.window.pixels() as f64 / (2.0 * b) + stream(inp * out * 36.0);
        let chunks = self.tiles[0].div_ceil(self.chunk) as f64;
        let winograd = inp * out * POINTS as f64 * tiles / (2.0 * b)
            + tiles * (inp + out) / b * 100.0
            + chunks * stream(inp * out * POINTS as f64 * 4.0);
        winograd < 0.9 * direct
    }

    /// f32 of scratch memory that a run needs.
    pub fn scratch(&self) -> usize {
        let [inputs, outputs] = self.point_sizes();
        POINTS * (inputs + outputs)
    }

    /// f32 of a chunk's transformed inputs and products, for one point.
    fn point_sizes(&self) -> [usize; 2] {
        let b = self.isa.lanes();
        let [out, inp] = self.channels;
        let tiles = self.chunk * self.tiles[1];
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
        let (in_plane, out_plane) = (self.window.input_pixels() * b, self.window.pixels() * b);
        let (in_blocks, out_blocks) = (inp.div_ceil(b), out.div_ceil(b));
        let pairs = out.div_ceil(NB * b);
        let batch = y.len() / (out_blocks * out_plane);
        assert!(
            weights.channels == self.channels && weights.block == b,
            "weights of another convolution"
        );
        assert!(y.len() == batch * out_blocks * out_plane, "length of a convolution's output");
        assert!(x.len() == batch * in_blocks * in_plane, "length of a convolution's input");
        assert!(bias.len() >= pairs * NB * b, "bias is not padded");
        assert!(residual.is_none_or(|r| r.data.len() == y.len()), "length of a residual");
        let [v_point, m_point] = self.point_sizes();
        assert!(scratch.len() >= self.scratch(), "scratch memory of a convolution");
        let (v, m) = scratch.split_at_mut(POINTS * v_point);
        let m = &mut m[..POINTS * m_point];
        let packed: &[f32] = bytemuck::cast_slice(weights.data.as_bytes());
        let panel = inp * NB * b;
        let y = SharedMut::new(y);
        for n in 0..batch {
            for first in (0..self.tiles[0]).step_by(self.chunk) {
                let rows = self.chunk.min(self.tiles[0] - first);
                let tiles = rows * self.tiles[1];
                let shared = SharedMut::new(v);
                par.run(in_blocks * rows, |task| {
                    let (block, row) = (task / rows, task % rows);
                    let plane = (n * in_blocks + block) * in_plane;
                    self.isa.run(InputRow {
                        conv: self,
                        x: &x[plane..plane + in_plane],
                        v: &shared,
                        v_point,
                        at: (block * tiles + row * self.tiles[1]) * b,
                        row: first + row,
                    });
                });
                let (v, shared) = (&*v, SharedMut::new(m));
                // A task is a point, or less where there are few tasks for the threads.
                let cuts = if par.threads() > 4 { pairs.min(4) } else { 1 };
                par.run(POINTS * cuts, |task| {
                    let (point, cut) = (task / cuts, task % cuts);
                    self.isa.run(Product {
                        v: &v[point * v_point..][..in_blocks * tiles * b],
                        m: &shared,
                        at: point * m_point,
                        weights: &packed[point * pairs * panel..(point + 1) * pairs * panel],
                        pairs: cut * pairs / cuts..(cut + 1) * pairs / cuts,
                        tiles,
                        channels: inp,
                        total: packed.len(),
                    });
                });
                let m = &*m;
                par.run(out_blocks * rows, |task| {
                    let (block, row) = (task / rows, task % rows);
                    let plane = (n * out_blocks + block) * out_plane;
                    self.isa.run(OutputRow {
                        conv: self,
                        m,
                        m_point,
                        at: (block * tiles + row * self.tiles[1]) * b,
                        bias: &bias[block * b..],
                        residual: residual.map(|r| r.part(plane..plane + out_plane)),
                        y: &y,
                        plane,
                        row: first + row,
                    });
                });
            }
        }
    }
}

/// Transforms one row of tiles of one input block.
struct InputRow<'a> {
    conv: &'a WinogradConv,
    x: &'a [f32],
    v: &'a SharedMut<'a, f32>,
    v_point: usize,
    /// Where the row's first tile lies in the data of a point.
    at: usize,
    row: usize,
}

impl Vectorized for InputRow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let window = &self.conv.window;
        let b = S::LANES;
        let [height, width] = window.input;
        for t in 0..self.conv.tiles[1] {
            let mut columns = [[s.zero(); IN]; IN];
            for (j, column) in columns.iter_mut().enumerate() {
                let ix = (t * OUT + j).wrapping_sub(window.pad[1]);
                let mut d = [s.zero(); IN];
                if ix < width {
                    for (i, d) in d.iter_mut().enumerate() {
                        let iy = (self.row * OUT + i).wrapping_sub(window.pad[0]);
                        if iy < height {
                            *d = s.load(&self.x[(iy * width + ix) * b..]);
                        }
                    }
                }
                *column = transform_input(s, d);
            }
            for i in 0..IN {
                let line = transform_input(s, columns.map(|column| column[i]));
                for (j, v) in line.into_iter().enumerate() {
                    let at = (i * IN + j) * self.v_point + self.at + t * b;
                    // SAFETY: tasks transform different tiles or blocks.
                    s.store(v, unsafe { self.v.slice(at..at + b) });
                }
            }
        }
    }
}

/// Multiplies at one point: all tiles of the chunk with some pairs of output blocks.
struct Product<'a> {
    v: &'a [f32],
    m: &'a SharedMut<'a, f32>,
    at: usize,
    weights: &'a [f32],
    pairs: std::ops::Range<usize>,
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
        for pair in self.pairs {
            let weights = &self.weights[pair * panel..(pair + 1) * panel];
            let taps = Taps {
                ahead: lines_ahead::<S>(self.total, panel, self.tiles),
                x: self.v.as_ptr(),
                table: &[],
                pixels: self.tiles,
                taps: 1,
                channels: self.channels,
                block: b,
                step: self.tiles * b,
            };
            let mut body = ProductTile {
                taps,
                weights,
                bias: &bias,
                m: self.m,
                at: self.at + pair * NB * self.tiles * b,
                plane: self.tiles * b,
            };
            for_each_tile(s, self.tiles, &mut body);
        }
    }
}

struct ProductTile<'a> {
    taps: Taps<'a>,
    weights: &'a [f32],
    bias: &'a [f32],
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
        // SAFETY: the tiles, in every block of input channels, lie inside v: `Product` is given
        // `in_blocks * tiles * b` elements.
        let [mut sums, second] = unsafe {
            tile::<S, MR, { Position::DENSE }>(s, &self.taps, self.weights, self.bias, first)
        };
        for k in 0..NB {
            let at = self.at + k * self.plane + first * b;
            // SAFETY: tasks write different points or pairs.
            let m = unsafe { self.m.slice(at..at + MR * b) };
            unroll!(MR, |J| s.store(sums[J], &mut m[J * b..]));
            sums = second; // registers have no index
        }
    }
}

/// Transforms one row of tiles of one output block back.
struct OutputRow<'a> {
    conv: &'a WinogradConv,
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

impl Vectorized for OutputRow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let b = S::LANES;
        let [height, width] = self.conv.window.output;
        let bias = s.load(self.bias);
        let finish = self.conv.finish;
        let rows = OUT.min(height - self.row * OUT);
        for t in 0..self.conv.tiles[1] {
            let mut columns = [[s.zero(); OUT]; IN];
            for (j, column) in columns.iter_mut().enumerate() {
                let mut m = [s.zero(); IN];
                for (i, m) in m.iter_mut().enumerate() {
                    *m = s.load(&self.m[(i * IN + j) * self.m_point + self.at + t * b..]);
                }
                *column = transform_output(s, m);
            }
            let cols = OUT.min(width - t * OUT);
            for i in 0..rows {
                let line = transform_output(s, columns.map(|column| column[i]));
                let at = ((self.row * OUT + i) * width + t * OUT) * b;
                // SAFETY: tasks write different rows or blocks.
                let y = unsafe { self.y.slice(self.plane + at..self.plane + at + cols * b) };
                let residual = self.residual.map(|r| r.part(at..at + cols * b));
                let mut sums = line;
                for sum in &mut sums {
                    *sum = s.add(*sum, bias);
                }
                finish.store::<S, OUT, true>(s, sums, residual, y);
            }
        }
    }
}

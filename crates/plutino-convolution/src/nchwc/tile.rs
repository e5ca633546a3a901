//! The register tile that the direct and the Winograd convolution share.
//!
//! MR pixels by NB blocks of output channels. For each tap and input channel it loads NB vectors of
//! weights and broadcasts MR numbers of the input, one for each pixel:
//!
//! ```text
//!              w[o0..o0+b]  w[o0+b..o0+2b]      AVX2: 6 x 2 tile = 12 accumulators of 16 registers
//!  x[p0] ->      acc00          acc01           AVX-512: 12 x 2 tile = 24 of 32
//!  x[p1] ->      acc10          acc11
//!   ...
//! ```
//! Where taps lie under each pixel is looked up in a table of offsets (XNNPACK calls it
//! indirection), unless it is a sum or pixels are dense ([`Position`]): stride, dilation, padding
//! and borders cost nothing in the loop, and a tile may run across the end of a row.

use super::prefetch::Ahead;
use super::window::OUTSIDE;
use plutino_cpu::simd::unroll::{array, unroll};
use plutino_cpu::simd::{Isa, LINE, Simd, Vectorized};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Output channel blocks that are computed together, and that weights are packed for.
pub(super) const NB: usize = 2;

const _: () = assert!(NB == 2); // `channel!` is written for two vectors

/// The accumulators of a tile, one output channel block after the other.
pub(super) type Tile<S, const MR: usize> = [[<S as Simd>::F32; MR]; NB];

/// Pixels of a full tile.
#[inline(always)]
pub(super) const fn max_pixels<S: Simd>() -> usize {
    if S::REGISTERS >= 32 { 12 } else { 6 }
}

/// Pixels of a full tile of a single block of output channels, one that is left over or stands
/// before half a block: more than hide the latency of multiply-adds, and what registers hold with
/// ease.
pub(super) const MAX_PIXELS_OF_ONE: usize = 10;

/// Pixels of a full tile for this instruction set.
#[inline]
pub(super) fn tile_pixels(isa: Isa) -> usize {
    struct Pixels;
    impl Vectorized for Pixels {
        type Output = usize;
        #[inline(always)]
        fn run<S: Simd>(self, _: S) -> usize {
            max_pixels::<S>()
        }
    }
    isa.run(Pixels)
}

/// What the tile loops over, the same for all tiles of a task.
pub(super) struct Taps<'a> {
    /// First input element that offsets count from.
    pub(super) x: *const f32,
    /// Where pixels lie, or the taps of each, in elements, as [`Position`] says.
    pub(super) table: &'a [isize],
    /// What each tap adds to where a pixel lies, for [`Position::SUM`] and [`Position::ROW`].
    pub(super) adds: &'a [isize],
    /// Pixels of the task.
    pub(super) pixels: usize,
    /// Taps of the window.
    pub(super) taps: usize,
    /// Input channels.
    pub(super) channels: usize,
    /// Channels of a block of the input; one where pixels lie in planes, for [`Position::SUM`] and
    /// [`Position::ROW`].
    pub(super) block: usize,
    /// Elements from one block of input channels to the next.
    pub(super) step: usize,
    /// Elements from one pixel to the next, for [`Position::ROW`].
    pub(super) pixel: usize,
    /// Lines of the next panel of weights to ask for: see [`lines_ahead`].
    pub(super) ahead: usize,
    /// Blocks of input channels whose terms are added one after the other, as [`chain`] says; of
    /// [`Position::TABLE`] taps of blocks, as [`chain_of_taps`] does.
    pub(super) chain: usize,
}

/// Blocks of input channels for chains of `terms` terms or a few more. The rounding errors of a
/// long chain grow with each of its terms; chains are added up apart.
#[inline]
pub(super) fn chain(terms: usize, block: usize, taps: usize) -> usize {
    terms.div_ceil((block * taps).max(1)).max(1)
}

/// The same in taps of blocks, where taps are many: as many as make about so many terms.
#[inline]
pub(super) fn chain_of_taps(terms: usize, block: usize, taps: usize) -> usize {
    let of_block = block * taps;
    if of_block < terms {
        return chain(terms, block, taps) * taps;
    }
    taps.div_ceil(((of_block + terms / 2) / terms).max(1))
}

/// Terms of a chain of the direct convolution. (What holds the sum of chains meanwhile is in the
/// first-level cache, and read and written while multiply-adds go on; with 128 terms that is hardly
/// measurable.)
pub(super) const CHAIN: usize = 128;

/// The same of first layers: docs/decisions/012-rounding.md.
pub(super) const CHAIN_OF_FIRST: usize = 64;

/// Weights are read once a run, from memory, panel after panel: while one is in use, the next is
/// fetched, a few lines with each block of channels of each tile, at most one a channel. How many,
/// for panels of `panel` f32 of `weights` in all and blocks of `block` channels; none where weights
/// stay in cache, and no more than memory delivers in that time. For planes (blocks of one
/// channel), how many with each tile, one with each of its first channels and taps.
#[inline]
pub(super) fn lines_ahead<S: Simd>(
    weights: usize,
    panel: usize,
    pixels: usize,
    block: usize,
) -> usize {
    const CACHED: usize = 256 << 10;
    // A line while a vector of 48 f32 is multiplied and added; four for a full tile of AVX2,
    // sixteen of AVX-512.
    let most = block * max_pixels::<S>() / 12;
    if weights * size_of::<f32>() <= CACHED {
        return 0;
    }
    let tiles = pixels.div_ceil(max_pixels::<S>()).max(1);
    if block == 1 {
        return (panel * size_of::<f32>() / LINE).div_ceil(tiles);
    }
    // A channel under a tap takes NB vectors of weights.
    let steps = panel / (block * NB * S::LANES) * tiles;
    (panel * size_of::<f32>() / LINE).div_ceil(steps.max(1)).min(most)
}

/// Stands for taps in the padding.
pub(super) static ZEROS: [f32; 16] = [0.0; 16];

/// How to find a tap of a pixel. (Constants, not an enum, so that they can be parameters of
/// [`tile`].)
pub(super) struct Position;

impl Position {
    /// `table[tap][pixel]` is the offset, [`OUTSIDE`] for padding.
    pub(super) const TABLE: usize = 0;
    /// One tap, and under it the pixels one after the other: a 1x1 convolution. No table.
    pub(super) const DENSE: usize = 1;
    /// Planes without padding: the offset is the sum of `table[pixel]` and `adds[tap]`.
    pub(super) const SUM: usize = 2;
    /// The same, and the pixels of a tile lie in one row: no table, they are `pixel` apart.
    pub(super) const ROW: usize = 3;
}

/// What is multiplied with the input under the taps, for NB output blocks: checked once, for all
/// tiles; and which of them the next tiles compute, and where.
pub(super) struct Panel<'a> {
    taps: &'a Taps<'a>,
    /// NB vectors for each channel block, tap and channel, in this order.
    weights: &'a [f32],
    /// The first output block to compute.
    pub(super) block: usize,
    /// Where the task's first pixel would lie if it were in the row of the tile, for
    /// [`Position::ROW`].
    pub(super) row: isize,
    /// What is asked for meanwhile, where pixels are dense or in a table.
    pub(super) fetch: Ahead,
}

impl<'a> Panel<'a> {
    /// Panics where weights are too short.
    #[inline(always)]
    pub(super) fn new<S: Simd>(taps: &'a Taps<'a>, weights: &'a [f32]) -> Self {
        let vectors = taps.channels * taps.taps * NB;
        assert!(weights.len() >= vectors * S::LANES);
        Self { taps, weights, block: 0, row: 0, fetch: Ahead::NOTHING }
    }
}

/// The sums of MR pixels from `first` on. `POSITION` is one of [`Position`]. `BLOCKS` output blocks
/// are computed, with vectors of `V`: those of `S`, or the lower half of them, for what the other
/// lanes would be zeros. With `PAIRS` input and weights are pairs of bf16, and channels count
/// pairs.
///
/// # Safety
/// The panel was made for `S`, and has `BLOCKS` blocks from its own `block` on. `taps.x` plus each
/// offset, plus `step` for each further block of channels, addresses a block of channels. Offsets
/// are those of `taps.table`; where pixels are dense, `block` for each pixel, and blocks are of
/// `S::LANES` channels, under a single tap; else the sums of one of `taps.adds` and of one of the
/// table, or of the panel's `row` and `taps.pixel` for each pixel.
#[cfg_attr(not(unoptimised), inline(always))]
pub(super) unsafe fn tile<
    S: Simd,
    V: Simd,
    const MR: usize,
    const POSITION: usize,
    const BLOCKS: usize,
    const PAIRS: bool,
>(
    v: V,
    &Panel { taps, weights, block, row, fetch }: &Panel<'_>,
    first: usize,
) -> Tile<V, MR> {
    let b = S::LANES;
    debug_assert!(POSITION != Position::DENSE || (taps.taps == 1 && taps.block == b));
    debug_assert!(POSITION < Position::SUM || taps.block == 1);
    debug_assert!(block + BLOCKS <= NB && V::LANES <= b);
    // Loads a vector for each block that is computed.
    macro_rules! load {
        ($at:expr) => {{
            let first: *const f32 = $at;
            let second = first.wrapping_add(if BLOCKS == 2 { b } else { 0 });
            // SAFETY: the panel holds NB vectors of weights for every channel and tap
            // (`Panel::new`).
            unsafe { [v.load_ptr(first), v.load_ptr(second)] }
        }};
    }
    let mut acc = [array!(MR, |J| v.zero()), array!(MR, |J| v.zero())];
    // The sum of the chains that are done; anything while there is none.
    let mut total = MaybeUninit::<Tile<V, MR>>::uninit();
    let mut chains = 0;
    let mut left = taps.chain;
    let mut w = weights.as_ptr().wrapping_add(block * b);
    // Broadcasts the input and multiplies into every accumulator, for one channel.
    macro_rules! channel {
        (|$J:ident| $x:expr) => {{
            let wk = load!(w);
            unroll!(MR, |$J| {
                // SAFETY: inside the input (precondition), or ZEROS.
                let x = v.splat(unsafe { *$x });
                acc[0][$J] = multiply_add::<V, PAIRS>(v, x, wk[0], acc[0][$J]);
                if const { BLOCKS == 2 } {
                    acc[1][$J] = multiply_add::<V, PAIRS>(v, x, wk[1], acc[1][$J]);
                }
            });
            w = w.wrapping_add(NB * b);
        }};
    }
    // Ends a chain: adds it to those before.
    macro_rules! end_chain {
        () => {{
            if chains > 0 {
                // SAFETY: written by the chain before.
                let before = unsafe { total.assume_init_ref() };
                acc = sum::<V, MR, BLOCKS>(v, &acc, before);
            }
            total.write(acc);
            acc = [array!(MR, |J| v.zero()), array!(MR, |J| v.zero())];
            (chains, left) = (chains + 1, taps.chain);
        }};
    }
    // Where pixels lie, and what the taps add.
    let mut starts = [0; MR];
    let mut adds: &[isize] = &[];
    if POSITION == Position::SUM {
        starts.copy_from_slice(&taps.table[first..][..MR]);
    } else if POSITION == Position::ROW {
        starts[0] = row.wrapping_add((first * taps.pixel) as isize);
    }
    if const { POSITION == Position::SUM || POSITION == Position::ROW } {
        adds = &taps.adds[..taps.taps];
    }
    // This tile's share of the next panel, which follows this one in memory; past the last one, an
    // address that is not mapped does no harm.
    let mut next = weights.as_ptr();
    if taps.ahead > 0 {
        let lines = size_of_val(weights) / LINE * first / taps.pixels.max(1);
        next = next.wrapping_add(weights.len() + lines * (LINE / size_of::<f32>()));
    }
    let mut c0 = 0;
    let mut plane = taps.x;
    while c0 < taps.channels {
        let width = taps.block.min(taps.channels - c0);
        for t in 0..if POSITION == Position::DENSE { 1 } else { taps.taps } {
            let mut at = array!(MR, |J| ZEROS.as_ptr());
            if POSITION == Position::DENSE {
                unroll!(MR, |J| at[J] = plane.wrapping_add((first + J) * S::LANES));
            } else if POSITION == Position::SUM {
                let tap = plane.wrapping_offset(adds[t]);
                unroll!(MR, |J| at[J] = tap.wrapping_offset(starts[J]));
            } else if POSITION == Position::ROW {
                // Every third pixel has an address, the next two are once and twice a step away:
                // such sums are part of an instruction, and twelve addresses do not fit the
                // registers.
                let tap = plane.wrapping_offset(starts[0]).wrapping_offset(adds[t]);
                unroll!(MR, |J| {
                    let third = tap.wrapping_add(J / 3 * 3 * taps.pixel);
                    at[J] = third.wrapping_add(J % 3 * taps.pixel);
                });
            } else {
                let row = &taps.table[t * taps.pixels + first..][..MR];
                let mut inside = false;
                unroll!(MR, |J| if row[J] != OUTSIDE {
                    at[J] = plane.wrapping_offset(row[J]);
                    inside = true;
                });
                if left == 0 {
                    end_chain!();
                }
                left -= 1;
                // Far taps of dilated windows, and slices beside a volume, are zeros for whole
                // tiles.
                if !inside {
                    w = w.wrapping_add(width * NB * b);
                    continue;
                }
            }
            if const { POSITION < Position::SUM } && t < 64 && fetch.taps >> t & 1 == 1 {
                // Pixels that follow each other share lines where a block is shorter than one.
                unroll!(
                    MR,
                    |J| if const { (J * S::LANES * size_of::<f32>()).is_multiple_of(LINE) } {
                        v.prefetch(at[J].wrapping_add(fetch.elements));
                    }
                );
            }
            // Each pixel's block (or ZEROS) has `width` channels at least. Whole blocks are
            // unrolled.
            if const { POSITION >= Position::SUM } {
                if c0 * taps.taps + t < taps.ahead {
                    v.prefetch_next(next, taps.pixels);
                    next = next.wrapping_add(LINE / size_of::<f32>());
                }
                channel!(|J| at[J]);
            } else if width == S::LANES {
                for c in 0..S::LANES {
                    if c < taps.ahead {
                        v.prefetch_next(next, taps.pixels);
                        next = next.wrapping_add(LINE / size_of::<f32>());
                    }
                    channel!(|J| at[J].add(c));
                }
            } else {
                for c in 0..width {
                    channel!(|J| at[J].add(c));
                }
            }
        }
        c0 += taps.block;
        plane = plane.wrapping_add(taps.step);
        if const { POSITION != Position::TABLE } {
            left -= 1;
            if left == 0 && c0 < taps.channels {
                end_chain!();
            }
        }
    }
    if chains > 0 {
        // SAFETY: written by a chain.
        acc = sum::<V, MR, BLOCKS>(v, &acc, unsafe { total.assume_init_ref() });
    }
    acc
}

/// `x w + sum` of numbers, or of pairs of bf16.
#[inline(always)]
fn multiply_add<V: Simd, const PAIRS: bool>(v: V, x: V::F32, w: V::F32, sum: V::F32) -> V::F32 {
    if const { PAIRS } { v.dot_pairs(x, w, sum) } else { v.fma(x, w, sum) }
}

/// The sums of two tiles, of which `BLOCKS` blocks count.
#[inline(always)]
fn sum<V: Simd, const MR: usize, const BLOCKS: usize>(
    v: V,
    a: &Tile<V, MR>,
    b: &Tile<V, MR>,
) -> Tile<V, MR> {
    let mut sum = *a;
    unroll!(MR, |J| {
        sum[0][J] = v.add(a[0][J], b[0][J]);
        if const { BLOCKS == 2 } {
            sum[1][J] = v.add(a[1][J], b[1][J]);
        }
    });
    sum
}

/// Pixels of a full tile, at most 12.
#[derive(Clone, Copy)]
pub(super) enum FullTile {
    /// As many as registers hold the sums of, for NB blocks.
    Registers,
    /// This many.
    Pixels(usize),
}

impl FullTile {
    #[inline(always)]
    const fn pixels<S: Simd>(self) -> usize {
        match self {
            Self::Registers => max_pixels::<S>(),
            Self::Pixels(pixels) => pixels,
        }
    }
}

/// What to do for each tile of a run of pixels.
pub(super) trait TileBody {
    /// Pixels of a full tile.
    const FULL: FullTile = FullTile::Registers;

    /// Computes the tile of MR pixels from `first` on.
    fn tile<S: Simd, const MR: usize>(&mut self, s: S, first: usize);

    /// Pixels after which [`TileBody::complete`] is called.
    #[inline(always)]
    fn run_length(&self) -> usize {
        usize::MAX
    }

    /// Called for pixels whose tiles are computed.
    #[inline(always)]
    fn complete<S: Simd>(&mut self, s: S, pixels: Range<usize>) {
        let _ = (s, pixels);
    }
}

/// Cuts pixels into runs, and these into tiles of equal size (but for one pixel), and computes
/// each.
#[inline(always)]
pub(super) fn for_each_tile<S: Simd, B: TileBody>(s: S, pixels: Range<usize>, body: &mut B) {
    let mut start = pixels.start;
    while start < pixels.end {
        let run = start..pixels.end.min(start.saturating_add(body.run_length().max(1)));
        each_tile_of_run(s, run.clone(), body);
        start = run.end;
        body.complete(s, run);
    }
}

#[inline(always)]
fn each_tile_of_run<S: Simd, B: TileBody>(s: S, run: Range<usize>, body: &mut B) {
    let tiles = run.len().div_ceil(B::FULL.pixels::<S>());
    // The first tiles have one pixel more than the others.
    let (least, more) = (run.len() / tiles.max(1), run.len() % tiles.max(1));
    let mut first = run.start;
    for (size, count) in [(least + 1, more), (least, tiles - more)] {
        if count == 0 {
            continue;
        }
        // Larger tiles than the body's are not compiled.
        macro_rules! sizes {
            ($($size:literal)*) => {
                match size {
                    $($size if const { B::FULL.pixels::<S>() >= $size } => {
                        s.outlined(Tiles::<_, $size> { body: &mut *body, first, count });
                    })*
                    _ => {}
                }
            };
        }
        sizes!(1 2 3 4 5 6 7 8 9 10 11 12);
        first += size * count;
    }
}

/// Tiles of one size, one after the other.
///
/// A function of its own for each size: the time that the compiler takes for a function grows
/// faster than its length. All sizes in one took 44 % of the whole crate's (2026-11, Xeon).
struct Tiles<'b, B, const MR: usize> {
    body: &'b mut B,
    first: usize,
    count: usize,
}

impl<B: TileBody, const MR: usize> Vectorized for Tiles<'_, B, MR> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for i in 0..self.count {
            self.body.tile::<S, MR>(s, self.first + i * MR);
        }
    }
}

//! The register tile: R rows x V vectors of C stay in registers while k runs.
//!
//! `C[i, j] = clamp(sum over k of A[i, k] * B[k, j] + end[i, j])`
//!
//! ```text
//!                  B panel, one k:  | b0 b0 b0 b0 | b1 b1 b1 b1 |     V loads
//!     A panel, one k: | a0 |        | c00         | c01         |
//!                     | a1 |        | c10         | c11         |     R broadcasts,
//!                     | .. |        | ...         | ...         |     R x V fused multiply-adds
//! ```
//! Six rows of two vectors on AVX2 (12 of 16 registers hold C), twelve of two on AVX-512 (24 of
//! 32): enough independent chains to cover the latency of the multiply-add, and more arithmetic
//! than loads.
//!
//! A may also lie in rows, as a matrix in memory has them ([`Rows`]): each broadcast then reads
//! another row.
//!
//! Every element is a chain of multiply-adds in the order of k, which starts from zero: what is
//! large beside the terms (a bias, a residual, the sum so far) would take the last digits of each
//! of them, and is added at the end. Cutting the work by rows or columns changes no bit of it;
//! chains are at most [`CHAIN`] terms long, wherever they are.

use super::post_ops::UNLIMITED;
use plutino_cpu::simd::unroll::{array, unroll};
use plutino_cpu::simd::{LINE, Simd, Vectorized};
use plutino_tensor::f16;
use std::ops::Range;

/// Rows of a full tile: three eighths of the registers, 6 or 12.
#[inline(always)] // called in the inner loop: a real call would spill the tile
pub(crate) const fn rows<S: Simd>() -> usize {
    S::REGISTERS * 3 / 8
}

/// Vectors in a row of a full tile, and in a panel of B.
pub(crate) const VECTORS: usize = 2;

/// Terms of a chain at most: the rounding errors of longer ones grow with each term, and are those
/// of a sum that is cut into several with each cut less.
pub(crate) const CHAIN: usize = 256;

/// The first element of a matrix to add, and its row stride. May be C itself.
pub(crate) type Addend = (*const f32, usize);

/// What is added to the chains of a tile.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct End<'a> {
    /// What they are multiplied with before, one for each column of the tile.
    pub(crate) scale: Option<&'a [f32]>,
    /// The terms before, and a residual, in this order.
    pub(crate) add: [Option<Addend>; 2],
    /// One for each row of the tile.
    pub(crate) row_bias: Option<&'a [f32]>,
    /// One for each column of the tile.
    pub(crate) col_bias: Option<&'a [f32]>,
}

/// The left operand of a tile: where its elements lie.
pub(crate) trait Left: Copy {
    /// Where A\[i, k\] lies.
    fn at<S: Simd>(self, i: usize, k: usize) -> *const f32;
    /// The same from term `k` on.
    fn from<S: Simd>(self, k: usize) -> Self;
    /// The same from row `rows` on, which is the first of a panel, if there are panels of `depth`
    /// terms.
    fn down(self, rows: usize, depth: usize) -> Self;
}

/// The right operand of a tile: panels of elements that are read front to back.
pub(crate) trait Right: Copy {
    /// Whether tiles of few rows alone read it ([`FEW`]): others are not compiled.
    const NARROW: bool;
    /// Loads vector `J` of a term in panel `P` of some that are `panel` numbers apart; `at` of its
    /// numbers come before.
    ///
    /// # Safety
    /// All of them are there; those of bf16 lie where an aligned vector may.
    unsafe fn load<S: Simd, const P: usize, const J: usize>(
        self,
        s: S,
        panel: usize,
        at: usize,
    ) -> S::F32;
    /// The same from so many terms on: as many as are written out, or, behind these, one.
    fn from<S: Simd>(self, terms: usize) -> Self;
    /// Where it lies.
    fn address(self) -> *const f32;
    /// `a b + c`, lane by lane, as elements of this type are multiplied.
    #[inline(always)]
    fn multiply_add<S: Simd>(s: S, a: S::F32, b: S::F32, c: S::F32) -> S::F32 {
        s.fma(a, b, c)
    }
}

/// An element of a right operand.
pub(crate) trait RightElement: Sized {
    /// As that of [`Right`].
    const NARROW: bool;
    /// Loads vector `J` of a term.
    ///
    /// # Safety
    /// As that of [`Right`].
    unsafe fn load<S: Simd, const J: usize>(term: *const Self, s: S) -> S::F32;
    /// As that of [`Right`].
    #[inline(always)]
    fn multiply_add<S: Simd>(s: S, a: S::F32, b: S::F32, c: S::F32) -> S::F32 {
        s.fma(a, b, c)
    }
}

impl<E: RightElement> Right for *const E {
    const NARROW: bool = E::NARROW;
    #[inline(always)]
    unsafe fn load<S: Simd, const P: usize, const J: usize>(
        self,
        s: S,
        panel: usize,
        at: usize,
    ) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { E::load::<S, J>(self.wrapping_add(P * panel + at), s) }
    }
    #[inline(always)]
    fn from<S: Simd>(self, terms: usize) -> Self {
        self.wrapping_add(terms * VECTORS * S::LANES)
    }
    #[inline(always)]
    fn address(self) -> *const f32 {
        self.cast()
    }
    #[inline(always)]
    fn multiply_add<S: Simd>(s: S, a: S::F32, b: S::F32, c: S::F32) -> S::F32 {
        E::multiply_add(s, a, b, c)
    }
}

impl RightElement for f32 {
    const NARROW: bool = false;
    #[inline(always)]
    unsafe fn load<S: Simd, const J: usize>(term: *const f32, s: S) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { s.load_ptr(term.add(J * S::LANES)) }
    }
}

/// Pairs of bf16, on both sides.
impl RightElement for u32 {
    const NARROW: bool = false;
    #[inline(always)]
    unsafe fn load<S: Simd, const J: usize>(term: *const u32, s: S) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { s.load_ptr(term.add(J * S::LANES).cast()) }
    }
    #[inline(always)]
    fn multiply_add<S: Simd>(s: S, a: S::F32, b: S::F32, c: S::F32) -> S::F32 {
        s.dot_pairs(a, b, c)
    }
}

impl RightElement for f16 {
    const NARROW: bool = true;
    #[inline(always)]
    unsafe fn load<S: Simd, const J: usize>(term: *const f16, s: S) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { s.load_f16_ptr(term.add(J * S::LANES)) }
    }
}

impl RightElement for i8 {
    const NARROW: bool = true;
    #[inline(always)]
    unsafe fn load<S: Simd, const J: usize>(term: *const i8, s: S) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { s.load_i8_ptr(term.add(J * S::LANES)) }
    }
}

/// bf16, each vector of a term within the other one ([`Narrow`](super::Narrow)): a load and an
/// operation make numbers of them.
///
/// Where a vector is a line of cache, the second one is a load of its own, though the first one's
/// has all of it: a line that is asked for twice is sooner followed by the next one. From memory a
/// product of one row takes 10 to 17 % longer without, from caches as long; with AVX2 it is the
/// other way round (Zen 4, 2026-11-27).
impl RightElement for u16 {
    const NARROW: bool = true;
    #[inline(always)]
    unsafe fn load<S: Simd, const J: usize>(term: *const u16, s: S) -> S::F32 {
        const { assert!(VECTORS == 2) };
        let both = term.cast::<S::F32>();
        debug_assert!(both.is_aligned());
        // SAFETY: the caller's promise: both vectors of the term, of half the width, and aligned.
        unsafe {
            match J {
                0 => s.lower_bf16(s.load_ptr(both.cast())),
                _ if S::LANES * size_of::<f32>() < LINE => s.upper_bf16(s.load_ptr(both.cast())),
                _ => s.upper_bf16(both.read_volatile()),
            }
        }
    }
}

/// Rows of a product whose tiles read narrow panels as they are: one row is as fast as its bytes.
/// With more rows each element is widened once for all of them instead (`narrow.rs`).
pub(crate) const FEW: usize = 3;

/// A packed panel: [`rows`] elements for each k.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panel(pub(crate) *const f32);

impl Left for Panel {
    #[inline(always)]
    fn at<S: Simd>(self, i: usize, k: usize) -> *const f32 {
        self.0.wrapping_add(k * rows::<S>() + i)
    }

    #[inline(always)]
    fn from<S: Simd>(self, k: usize) -> Self {
        Self(self.at::<S>(0, k))
    }

    #[inline(always)]
    fn down(self, rows: usize, depth: usize) -> Self {
        Self(self.0.wrapping_add(rows * depth))
    }
}

/// Rows where a matrix in memory has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    /// The first element.
    pub(crate) first: *const f32,
    /// Elements from one row to the next.
    pub(crate) stride: usize,
}

impl Left for Rows {
    #[inline(always)]
    fn at<S: Simd>(self, i: usize, k: usize) -> *const f32 {
        self.first.wrapping_add(i * self.stride + k)
    }

    #[inline(always)]
    fn from<S: Simd>(self, k: usize) -> Self {
        Self { first: self.at::<S>(0, k), ..self }
    }

    #[inline(always)]
    fn down(self, rows: usize, _: usize) -> Self {
        Self { first: self.first.wrapping_add(rows * self.stride), ..self }
    }
}

/// The end of a packed panel and the beginning of the next: rows from [`cut`] on (see
/// [`row_tiles`]).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seam {
    /// The first panel.
    pub(crate) first: *const f32,
    /// Elements from it to the next.
    pub(crate) next: usize,
}

impl Left for Seam {
    #[inline(always)]
    fn at<S: Simd>(self, i: usize, k: usize) -> *const f32 {
        let (mr, lane) = (rows::<S>(), cut(rows::<S>()) + i);
        let lane = if lane < mr { lane } else { self.next + lane - mr };
        self.first.wrapping_add(k * mr + lane)
    }

    #[inline(always)]
    fn from<S: Simd>(self, k: usize) -> Self {
        Self { first: self.first.wrapping_add(k * rows::<S>()), ..self }
    }

    /// A seam is that of one tile.
    #[inline(always)]
    fn down(self, _: usize, _: usize) -> Self {
        self
    }
}

/// What to fetch while a tile is computed: the weights that come next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ahead {
    /// The first line. Null: nothing new.
    pub(crate) first: *const f32,
    /// Bytes to go on from it for each k.
    pub(crate) step: usize,
    /// Rows of the block, which say how fast lines follow each other.
    pub(crate) rows: usize,
}

impl Ahead {
    /// Nothing is fetched.
    pub(crate) const NOTHING: Self = Self { first: std::ptr::null(), step: 0, rows: usize::MAX };
}

/// One tile's operands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tile<'a, A, B> {
    /// Terms of the sum.
    pub(crate) depth: usize,
    /// The rows of A.
    pub(crate) a: A,
    /// Panel of B, `VECTORS * LANES` elements for each k.
    pub(crate) b: B,
    /// Numbers from one panel of B to the next.
    pub(crate) b_panel: usize,
    /// What to fetch meanwhile.
    pub(crate) ahead: Ahead,
    /// First element of the tile in C.
    pub(crate) c: *mut f32,
    /// Elements from one row of C to the next.
    pub(crate) c_stride: usize,
    /// Columns of the tile that exist in C.
    pub(crate) cols: usize,
    /// Rows of C from the tile's first on, which the cache is asked for before their tile comes.
    pub(crate) below: usize,
    /// What is added.
    pub(crate) end: End<'a>,
    /// Limits of the result.
    pub(crate) clamp: (f32, f32),
}

impl<'a, B> Tile<'a, (), B> {
    /// The tile with its left operand.
    #[inline(always)]
    pub(crate) fn with<A>(self, a: A) -> Tile<'a, A, B> {
        let Self { depth, a: (), b, b_panel, ahead, c, c_stride, cols, below, end, clamp } = self;
        Tile { depth, a, b, b_panel, ahead, c, c_stride, cols, below, end, clamp }
    }
}

impl<A: Left, B> Tile<'_, A, B> {
    /// Goes on to the tile below one of so many rows.
    #[inline(always)]
    fn go_down(&mut self, rows: usize) {
        self.a = self.a.down(rows, self.depth);
        self.c = self.c.wrapping_add(rows * self.c_stride);
        self.below = self.below.saturating_sub(rows);
        for (add, stride) in self.end.add.iter_mut().flatten() {
            *add = add.wrapping_add(rows * *stride);
        }
        self.end.row_bias = self.end.row_bias.and_then(|bias| bias.get(rows..));
        if !self.ahead.first.is_null() {
            let bytes = self.ahead.step * self.depth;
            self.ahead.first = self.ahead.first.wrapping_byte_add(bytes);
        }
    }

    /// Asks the cache for the rows of C of the tile below one of so many rows.
    #[inline(always)]
    fn fetch_below<S: Simd>(&self, s: S, rows: usize) {
        for row in rows..self.below.min(rows + self::rows::<S>()) {
            let p = self.c.wrapping_add(row * self.c_stride);
            s.prefetch(p);
            s.prefetch(p.wrapping_add(self.cols.saturating_sub(1)));
        }
    }
}

/// Computes `count` tiles of `rows` rows and `panels` panels of B side by side (see
/// [`wide_panels`]), one below the other: `t` is the first. Those of packed rows are full, or one.
///
/// # Safety
/// For each of the rows of all tiles: `a` has `depth` elements, which are f32 with any alignment;
/// `b` is valid for `depth` panel rows in each panel, and at a line where these are of bf16; `c`
/// and what `end.add` says for `cols` elements in each row. `rows` is at least 1.
#[inline(always)]
pub(crate) unsafe fn run<S: Simd, A: Left, B: Right>(
    s: S,
    (rows_here, panels, count): (usize, usize, usize),
    t: &Tile<'_, A, B>,
) {
    // Sizes beyond the register file are not compiled.
    macro_rules! sizes {
        ($($rows:literal, $panels:pat => $vectors:literal if $compiled:expr;)*) => {
            match (rows_here, panels) {
                $(($rows, $panels) if const { $compiled } => {
                    // SAFETY: the caller's promise, passed on.
                    s.outlined(unsafe { OfSize::<A, B, $rows, $vectors>::new(t, count) });
                })*
                _ => debug_assert!(false, "a tile of {rows_here} rows and {panels} panels"),
            }
        };
    }
    sizes! {
        1, 4 => 8 if true;
        2, 2 => 4 if true;
        3, 2 => 4 if true;
        1, _ => 2 if true;
        2, _ => 2 if true;
        3, _ => 2 if true;
        4, _ => 2 if !B::NARROW;
        5, _ => 2 if !B::NARROW;
        6, _ => 2 if !B::NARROW;
        7, _ => 2 if !B::NARROW && rows::<S>() > 6;
        8, _ => 2 if !B::NARROW && rows::<S>() > 6;
        9, _ => 2 if !B::NARROW && rows::<S>() > 6;
        10, _ => 2 if !B::NARROW && rows::<S>() > 6;
        11, _ => 2 if !B::NARROW && rows::<S>() > 6;
        12, _ => 2 if !B::NARROW && rows::<S>() > 6;
    }
}

/// One tile, as [`run`] computes it, for products of one row whose sums are short: that tile is
/// compiled where it is called, since a call would take 3 % of it.
///
/// # Safety
/// As [`run`].
#[inline(always)]
pub(crate) unsafe fn run_short<S: Simd, A: Left, B: Right>(
    s: S,
    size: (usize, usize, usize),
    t: &Tile<'_, A, B>,
) {
    // SAFETY: the caller's promise, passed on.
    unsafe {
        match size {
            (1, 4, 1) => tile::<S, A, B, 1, 8>(s, t),
            _ => run(s, size, t),
        }
    }
}

/// Tiles of R rows and V vectors, one below the other. They are a function of their own
/// ([`Simd::outlined`]): the time that compiling takes grows faster than the length of a function.
struct OfSize<'a, A, B, const R: usize, const V: usize> {
    first: &'a Tile<'a, A, B>,
    count: usize,
}

impl<'a, A, B, const R: usize, const V: usize> OfSize<'a, A, B, R, V> {
    /// # Safety
    /// As [`run`], with R rows and V / 2 panels.
    #[inline(always)]
    unsafe fn new(first: &'a Tile<'a, A, B>, count: usize) -> Self {
        Self { first, count }
    }
}

impl<A: Left, B: Right, const R: usize, const V: usize> Vectorized for OfSize<'_, A, B, R, V> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // A copy of its own, which no store to C can change.
        let mut t = *self.first;
        for _ in 0..self.count {
            t.fetch_below(s, R);
            // SAFETY: promised when it was made.
            unsafe { tile::<S, A, B, R, V>(s, &t) };
            t.go_down(R);
        }
    }
}

/// Rows of the tile before a seam, of `mr` rows of a full one.
#[inline(always)]
pub(crate) const fn cut(mr: usize) -> usize {
    mr * 2 / 3
}

/// Rows that are cut into tiles of one size.
#[derive(Debug, Clone)]
pub(crate) struct RowTiles {
    pub(crate) rows: Range<usize>,
    /// Rows of each tile.
    pub(crate) each: usize,
    /// Whether the only tile starts inside the panel of the tile before.
    pub(crate) seam: bool,
}

impl RowTiles {
    /// How many there are.
    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        self.rows.len() / self.each.max(1)
    }
}

/// How the rows of a product are cut into tiles: `mr` rows each, and what is left. A last tile of
/// one to three rows would have too few chains; it takes some of the rows of the tile before, and
/// starts inside their panel: at a seam.
#[inline(always)]
pub(crate) fn row_tiles(rows: usize, mr: usize) -> impl Iterator<Item = RowTiles> {
    let few = rows % mr;
    let seam = rows > mr && wide_panels(few) > 1;
    let full = rows - few - if seam { mr } else { 0 };
    let then = if seam { full + cut(mr) } else { rows };
    let of = |rows: Range<usize>, each| RowTiles { each, rows, seam: false };
    let last = RowTiles { each: rows - then, rows: then..rows, seam };
    [of(0..full, mr), of(full..then, then - full), last].into_iter().filter(|t| !t.rows.is_empty())
}

/// Panels of B that a product of this few rows takes at once, to have chains enough.
#[inline(always)]
pub(crate) fn wide_panels(rows: usize) -> usize {
    match rows {
        1 => 4,
        2 | 3 => 2,
        _ => 1,
    }
}

/// Terms of the sum that are written out: fewer instructions that count and branch.
pub(super) const TERMS: usize = 4;

/// # Safety
/// As [`run`], with R rows and V / 2 panels.
#[cfg_attr(not(unoptimised), inline(always))]
unsafe fn tile<S: Simd, A: Left, B: Right, const R: usize, const V: usize>(
    s: S,
    t: &Tile<'_, A, B>,
) {
    let zero = s.zero();
    let mut acc = array!(R, |I| array!(V, |J| zero));
    let (mut a, mut b) = (t.a, t.b);
    // The products of term K from here on.
    macro_rules! term {
        ($K:expr) => {{
            // SAFETY: one row of each panel (precondition).
            let bs = array!(V, |J| unsafe {
                let at = $K * VECTORS * S::LANES;
                b.load::<S, { J / VECTORS }, { J % VECTORS }>(s, t.b_panel, at)
            });
            unroll!(R, |I| {
                // SAFETY: A has this element (precondition).
                let ai = s.splat(unsafe { a.at::<S>(I, $K).read_unaligned() });
                unroll!(at most 8: V, |J| acc[I][J] = B::multiply_add(s, ai, bs[J], acc[I][J]));
            });
        }};
    }
    // Past the end only after the last term, by less than a panel: never read.
    macro_rules! advance {
        ($terms:expr) => {{
            a = a.from::<S>($terms);
            b = b.from::<S>($terms);
        }};
    }
    let Ahead { first, step, rows } = t.ahead;
    // An address that is mapped: one that is not costs a walk through the page tables each time.
    let mut ahead = if first.is_null() { t.b.address() } else { first };
    let fetches = (TERMS * step).div_ceil(LINE).max(1);
    let step = TERMS * step / fetches;
    for _ in 0..t.depth / TERMS {
        for _ in 0..fetches {
            s.prefetch_next(ahead, rows);
            ahead = ahead.wrapping_byte_add(step);
        }
        unroll!(TERMS, |K| term!(K));
        advance!(TERMS);
    }
    for _ in 0..t.depth % TERMS {
        term!(0);
        advance!(1);
    }

    let (low, high) = (s.splat(t.clamp.0), s.splat(t.clamp.1));
    let limited = t.clamp != UNLIMITED;
    unroll!(at most 8: V, |J| {
        let at = J * S::LANES;
        let lanes = t.cols.saturating_sub(at).min(S::LANES);
        if let Some(scale) = t.end.scale.and_then(|scale| scale.get(at..at + lanes)) {
            let scale = s.load_partial(scale);
            unroll!(R, |I| acc[I][J] = s.mul(acc[I][J], scale));
        }
        for add in &t.end.add {
            if let Some((add, stride)) = *add {
                unroll!(R, |I| {
                    let p = add.wrapping_add(I * stride + at);
                    // SAFETY: `lanes` elements of row I, from column `at` on, exist (precondition).
                    acc[I][J] = s.add(acc[I][J], unsafe {
                        if lanes == S::LANES { s.load_ptr(p) } else { s.load_partial_ptr(p, lanes) }
                    });
                });
            }
        }
        if let Some(bias) = t.end.col_bias.and_then(|b| b.get(at..at + lanes)) {
            let bias = s.load_partial(bias);
            unroll!(R, |I| acc[I][J] = s.add(acc[I][J], bias));
        }
        if let Some(bias) = t.end.row_bias.and_then(|b| b.first_chunk::<R>()) {
            unroll!(R, |I| acc[I][J] = s.add(acc[I][J], s.splat(bias[I])));
        }
        if limited {
            // NaN stays NaN: min and max hand back their second operand.
            unroll!(R, |I| acc[I][J] = s.min(high, s.max(low, acc[I][J])));
        }
        unroll!(R, |I| {
            // SAFETY: `lanes` elements of row I, from column `at` on, exist (precondition).
            unsafe {
                let p = t.c.wrapping_add(I * t.c_stride + at);
                match lanes == S::LANES {
                    true => s.store_ptr(acc[I][J], p),
                    false => s.store_partial_ptr(acc[I][J], p, lanes),
                }
            }
        });
    });
}

//! Matrix units: tiles of bf16 that are multiplied as a whole, and added up as f32.
//!
//! ```text
//!   A: 16 rows of 16 words        B: 16 rows of 16 words        C: 16 x 16 f32
//!      (32 numbers of the sum)       (32 numbers x 16 columns)
//!   one instruction:  C[i][j] += sum over 16 words w of  A[i][w] . B[w][j]
//! ```
//! A word is a pair of bf16, as in [`simd::Pairs`](crate::simd::Pairs). Eight tiles are registers
//! of a thread: four hold a block of 32 x 32 of C, two hold 32 rows of A, two 32 columns of B. Each
//! tile of A and B that is loaded is multiplied twice.
//!
//! # Accuracy of f32 from bf16
//!
//! A number is the sum of *terms*: `x = x0 + x1 + x2`, each the nearest bf16 of what the ones
//! before leave. With [`Terms::Three`] the six products `x0 y0, x0 y1, x1 y0, x1 y1, x0 y2, x2 y0`
//! are added, the small ones first: what is left out is below 2^-24 of the product. With
//! [`Terms::Two`] three of them, some 16 bits; with [`Terms::One`] the first, 8 bits. (`x1` and
//! `x2` of numbers below 2^-110 in magnitude are denormals, which the units take for 0: their
//! relative error grows to 2^-9, the absolute one stays below 2^-126.)
//!
//! # What the instruction computes
//!
//! For each element of C two chains of fused multiply-adds that start from zero: one over the lower
//! numbers of the 16 words, one over the upper ones; then `c = (lower + upper) + c`. Every denormal
//! that goes in or comes out is zero. Intel's `tdpbf16ps` does that, to the bit; so does the
//! emulation, on any machine.

#[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "avx512"))]
mod amx;
mod columns;
mod terms;

pub use columns::{Columns, WordPanels};
pub use terms::Terms;

use crate::simd::{Isa, Simd, Vectorized, flushed};
use std::ops::Range;
use std::sync::OnceLock;

/// Rows and columns of a tile of C, and words in a row of A.
pub const TILE: usize = 16;

/// Rows and columns of a block of C: two tiles each way.
pub const BLOCK: usize = 2 * TILE;

/// Words of one term in a step of the sum.
pub const STEP: usize = TILE;

/// Steps of a depth block: as long as the rows and the columns of a block stay in the second-level
/// cache, and as no sum has a chain of more than 96 products before it meets the sums of other
/// depth blocks.
pub const DEPTH_BLOCK: usize = 16;

/// A matrix unit, or its emulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TileUnit(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Emulated,
    #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "avx512"))]
    Amx,
}

/// The operands of a block of C: rows of A and columns of B as words, for so many steps.
///
/// Each half of a block has rows that follow each other in A. Row `i` of half `h` has its words of
/// a step and a term from `first[h] + i * stride + steps[step] + t * term` on, 16 of them. B holds,
/// for each step and term, 16 rows of 32 words: `b[((step * terms + t) * 16 + w) * 32 + j]`.
#[derive(Debug, Clone, Copy)]
pub struct Operands<'a> {
    /// What rows of A lie in.
    pub a: &'a [u32],
    /// The first row of the upper half of the block, and of the lower half.
    pub first: [usize; 2],
    /// Rows of the block that count, those of the upper half first.
    pub rows: usize,
    /// Words from one row to the next.
    pub stride: usize,
    /// Words from one term to the next.
    pub term: usize,
    /// Where each step lies in a row.
    pub steps: &'a [usize],
    /// 32 columns of B.
    pub b: &'a [u32],
    /// The columns that come after some blocks: half of their lines are fetched into the
    /// second-level cache meanwhile, eight of each sixteen from here on. Empty: nothing is.
    pub ahead: &'a [u32],
    /// Terms of each number.
    pub terms: Terms,
}

impl Operands<'_> {
    /// # Panics
    /// Where an operand is too short for tiles of so many rows.
    #[inline]
    fn check(&self, rows: usize) {
        let Self { a, first, stride, term, steps, b, terms, .. } = *self;
        // Without steps nothing is read.
        if let Some(&step) = steps.iter().max() {
            let rows = stride.checked_mul(rows - 1);
            let last = [rows, term.checked_mul(terms.count() - 1), Some(STEP), Some(step)];
            let end = last.into_iter().try_fold(first[0].max(first[1]), |a, b| a.checked_add(b?));
            assert!(end.is_some_and(|end| end <= a.len()), "rows of a block are missing");
        }
        let depth = terms.step() * BLOCK;
        let end = steps.len().checked_mul(depth);
        assert!(end.is_some_and(|end| end <= b.len()), "columns of a block are missing");
        let bytes = |words: usize| words.checked_mul(size_of::<u32>()).is_some();
        assert!(bytes(stride) && bytes(term), "words are too far apart");
    }
}

/// Rows of a tile, for so many rows in as few blocks as hold them: the unit takes a cycle for each.
#[inline]
pub fn rows_of_tile(rows: usize) -> usize {
    rows.div_ceil(2 * rows.div_ceil(BLOCK).max(1)).max(1)
}

/// What comes next of the columns of B, for the first two blocks of rows that are multiplied with
/// `b`: see [`Operands::ahead`].
#[inline]
fn ahead(next: &[u32], block: usize) -> &[u32] {
    let half = block * STEP * TILE / 2;
    if block < 2 { next.get(half..).unwrap_or_default() } else { &[] }
}

/// A block of C, row by row: those of the upper half from row 0 on, of the lower from row 16 on.
#[repr(align(64))]
#[derive(Debug, Clone, Copy)]
pub struct Block(pub [f32; BLOCK * BLOCK]);

/// A unit whose tiles are set up on this thread.
#[derive(Debug)]
pub struct Tiles<'a> {
    kind: Kind,
    rows: usize,
    /// Tiles are this thread's.
    _thread: std::marker::PhantomData<(&'a (), *const ())>,
}

impl TileUnit {
    /// What the units compute, in plain Rust.
    pub const EMULATED: Self = Self(Kind::Emulated);

    /// The unit of this CPU: where the CPU has it, the system permits it, and what it computes has
    /// the bits of the emulation, which is tried once.
    pub fn of_cpu() -> Option<Self> {
        static UNIT: OnceLock<Option<TileUnit>> = OnceLock::new();
        *UNIT.get_or_init(Self::find)
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "avx512"))]
    fn find() -> Option<Self> {
        let unit = Self(Kind::Amx);
        (amx::is_permitted() && Self::EMULATED.agrees(unit)).then_some(unit)
    }

    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", feature = "avx512")))]
    fn find() -> Option<Self> {
        None
    }

    /// `amx` or `amx-emulated`.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Kind::Emulated => "amx-emulated",
            #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "avx512"))]
            Kind::Amx => "amx",
        }
    }

    /// Runs `f` with tiles that are set up on this thread, and released after: those of A and C of
    /// `rows` rows, which an instruction takes as many cycles for. Not to be nested.
    ///
    /// # Panics
    /// Where rows are none, or more than 16.
    pub fn set_up<R>(self, rows: usize, f: impl FnOnce(&Tiles<'_>) -> R) -> R {
        assert!((1..=TILE).contains(&rows), "tiles of {rows} rows");
        let tiles = Tiles { kind: self.0, rows, _thread: std::marker::PhantomData };
        #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "avx512"))]
        // SAFETY: a unit of this kind only exists where the CPU has it and the system permits it.
        let _configured = (self.0 == Kind::Amx).then(|| unsafe { amx::Configured::new(rows) });
        f(&tiles)
    }

    /// Whether another unit computes the same bits, for numbers of many magnitudes.
    #[cfg_attr(not(feature = "avx512"), allow(dead_code))]
    fn agrees(self, other: Self) -> bool {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut word = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Exponents within 2^16 of one: finite sums.
            let half = |bits: u64| (bits & 0x87ff | 0x3800) as u32;
            half(state >> 16) | half(state >> 32) << 16
        };
        [16, 13, 1].into_iter().zip(Terms::ALL).all(|(rows, terms)| {
            const MOST: usize = BLOCK * 3 * 3 * STEP;
            let [a, b] = [(); 2].map(|()| [(); MOST].map(|()| word()));
            let operands = Operands {
                a: &a,
                first: [0, TILE * 3 * terms.step()],
                rows: BLOCK,
                stride: 3 * terms.step(),
                term: STEP,
                steps: &[0, 1, 2].map(|step| step * terms.step()),
                b: &b,
                ahead: &[],
                terms,
            };
            let [found, expected] = [other, self].map(|unit| {
                let mut c = Block([f32::NAN; BLOCK * BLOCK]);
                unit.set_up(rows, |tiles| tiles.multiply(operands, &mut c));
                c.0.map(f32::to_bits)
            });
            found == expected
        })
    }
}

impl std::fmt::Display for TileUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl Tiles<'_> {
    /// `c = A B`, over all steps and products. Rows that tiles do not have are left as they are.
    ///
    /// Elements of rows that count which several products make infinite or NaN are computed again,
    /// by multiply-adds of the numbers: an infinity means what it does in f32, whatever signs the
    /// other terms have.
    ///
    /// # Panics
    /// Where an operand is too short.
    #[inline]
    pub fn multiply(&self, operands: Operands<'_>, c: &mut Block) {
        operands.check(self.rows);
        self.products(operands, c);
        self.mend(operands, c);
    }

    /// As [`Tiles::multiply`], a step at a time: first this, with operands that are whole; then
    /// [`Tiles::add`] for each step, in turn; then [`Tiles::end`]. What stands between runs beside
    /// the unit.
    #[inline(always)]
    fn begin(&self, operands: &Operands<'_>) {
        operands.check(self.rows);
        #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "avx512"))]
        if self.kind == Kind::Amx {
            // SAFETY: tiles are set up (`TileUnit::set_up` makes the only ones).
            unsafe { amx::clear() };
        }
    }

    /// # Safety
    /// [`Tiles::begin`] was called with these operands, and the step exists.
    #[inline(always)]
    #[cfg_attr(not(feature = "avx512"), allow(unused_variables))]
    unsafe fn add(&self, operands: &Operands<'_>, step: usize) {
        #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "avx512"))]
        if self.kind == Kind::Amx {
            // SAFETY: tiles are set up, operands as long as they say, and the step exists.
            unsafe { amx::add(*operands, step, 1) };
        }
    }

    /// The emulation computes all steps here.
    #[inline(always)]
    fn end(&self, operands: &Operands<'_>, c: &mut Block) {
        match self.kind {
            Kind::Emulated => emulate(*operands, self.rows, c),
            #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "avx512"))]
            // SAFETY: tiles are set up.
            Kind::Amx => unsafe { amx::store(c) },
        }
        self.mend(*operands, c);
    }

    /// Computes elements again that are not finite.
    #[inline]
    fn mend(&self, operands: Operands<'_>, c: &mut Block) {
        if operands.terms == Terms::One {
            return;
        }
        let upper = operands.rows.min(self.rows);
        for (half, count) in [upper, (operands.rows - upper).min(self.rows)].into_iter().enumerate()
        {
            let rows = half * TILE..half * TILE + count;
            let part = &c.0[rows.start * BLOCK..rows.end * BLOCK];
            if !Isa::best().run(IsFinite(part)) {
                one_by_one(operands, half, rows, c);
            }
        }
    }

    fn products(&self, operands: Operands<'_>, c: &mut Block) {
        match self.kind {
            Kind::Emulated => emulate(operands, self.rows, c),
            #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "avx512"))]
            // SAFETY: tiles are set up (`TileUnit::set_up` makes the only ones), and operands as
            // long as they say.
            Kind::Amx => unsafe {
                amx::clear();
                if !operands.steps.is_empty() {
                    amx::add(operands, 0, operands.steps.len());
                }
                amx::store(c);
            },
        }
    }
}

/// Whether all numbers of some rows are.
struct IsFinite<'a>(&'a [f32]);

impl Vectorized for IsFinite<'_> {
    type Output = bool;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> bool {
        let mut sums = [s.zero(); 2];
        for c in self.0.chunks_exact(2 * S::LANES) {
            for (c, sum) in c.chunks_exact(S::LANES).zip(&mut sums) {
                // Zero, or NaN.
                *sum = s.fma(s.load(c), s.zero(), *sum);
            }
        }
        s.sum(s.add(sums[0], sums[1])) == 0.0
    }
}

/// Elements of `c` that are not finite, by multiply-adds of numbers whose terms are added up.
#[cold]
#[inline(never)]
fn one_by_one(operands: Operands<'_>, half: usize, rows: Range<usize>, c: &mut Block) {
    let Operands { a, first, stride, term, steps, b, terms, .. } = operands;
    let sum = |terms: [f32; 3]| match terms[0].is_finite() {
        true => terms.iter().sum(),
        false => terms[0],
    };
    let count = terms.count();
    for (i, row) in rows.enumerate() {
        let first = first[half] + i * stride;
        for (column, c) in c.0[row * BLOCK..][..BLOCK].iter_mut().enumerate() {
            if c.is_finite() {
                continue;
            }
            *c = 0.0;
            for (step, at) in steps.iter().enumerate() {
                for w in 0..STEP {
                    for shift in [16, 0] {
                        let (mut x, mut y) = ([0.0; 3], [0.0; 3]);
                        for t in 0..count {
                            x[t] = number(a[first + at + t * term + w] << shift);
                            y[t] = number(
                                b[((step * count + t) * STEP + w) * BLOCK + column] << shift,
                            );
                        }
                        *c = f32::mul_add(sum(x), sum(y), *c);
                    }
                }
            }
        }
    }
}

/// What the instructions compute, to the bit: by vectors where they have fused multiply-adds.
fn emulate(operands: Operands<'_>, rows: usize, c: &mut Block) {
    match Isa::best() {
        Isa::PORTABLE => emulate_one_by_one(operands, rows, c),
        isa => isa.run(Emulate { operands, rows, c }),
    }
}

/// The rows of tiles of `rows` rows, by where their words begin and where they are in C.
fn each_row(first: [usize; 2], stride: usize, rows: usize) -> impl Iterator<Item = (usize, usize)> {
    let half = move |h: usize| (0..rows).map(move |i| (first[h] + i * stride, h * TILE + i));
    half(0).chain(half(1))
}

/// The definition.
fn emulate_one_by_one(operands: Operands<'_>, rows: usize, c: &mut Block) {
    let Operands { a, first, stride, term, steps, b, terms, .. } = operands;
    for (_, row) in each_row(first, stride, rows) {
        c.0[row * BLOCK..][..BLOCK].fill(0.0);
    }
    for (step, at) in steps.iter().enumerate() {
        for &(i, j) in terms.products() {
            let b = &b[(step * terms.count() + j) * STEP * BLOCK..][..STEP * BLOCK];
            for (first, row) in each_row(first, stride, rows) {
                let a = &a[first + at + i * term..][..STEP];
                for (column, c) in c.0[row * BLOCK..][..BLOCK].iter_mut().enumerate() {
                    let (mut lower, mut upper) = (0.0f32, 0.0f32);
                    for (w, &x) in a.iter().enumerate() {
                        let y = b[w * BLOCK + column];
                        lower = flushed(number(x << 16).mul_add(number(y << 16), lower));
                        upper = flushed(number(x).mul_add(number(y), upper));
                    }
                    *c = flushed(flushed(lower + upper) + flushed(*c));
                }
            }
        }
    }
}

/// The same, as many columns at once as a vector has lanes.
struct Emulate<'a> {
    operands: Operands<'a>,
    rows: usize,
    c: &'a mut Block,
}

impl Vectorized for Emulate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { operands, rows, c } = self;
        let Operands { a, first, stride, term, steps, b, terms, .. } = operands;
        for (_, row) in each_row(first, stride, rows) {
            c.0[row * BLOCK..][..BLOCK].fill(0.0);
        }
        // Numbers of a tile of B: the lower ones, and the upper ones.
        let mut numbers = [[0.0f32; STEP * BLOCK]; 2];
        for (step, at) in steps.iter().enumerate() {
            for &(i, j) in terms.products() {
                let b = &b[(step * terms.count() + j) * STEP * BLOCK..][..STEP * BLOCK];
                let [lower, upper] = &mut numbers;
                for ((y, lower), upper) in b.iter().zip(lower).zip(upper) {
                    (*lower, *upper) = (number(y << 16), number(*y));
                }
                for (first, row) in each_row(first, stride, rows) {
                    let a = &a[first + at + i * term..][..STEP];
                    let c = &mut c.0[row * BLOCK..][..BLOCK];
                    for (at, c) in c.chunks_exact_mut(S::LANES).enumerate() {
                        let (mut lower, mut upper) = (s.zero(), s.zero());
                        for (w, &x) in a.iter().enumerate() {
                            let y0 = s.load(&numbers[0][w * BLOCK + at * S::LANES..]);
                            let y1 = s.load(&numbers[1][w * BLOCK + at * S::LANES..]);
                            lower = flush(s, s.fma(s.splat(number(x << 16)), y0, lower));
                            upper = flush(s, s.fma(s.splat(number(x)), y1, upper));
                        }
                        let sum = flush(s, s.add(lower, upper));
                        s.store(flush(s, s.add(sum, flush(s, s.load(c)))), c);
                    }
                }
            }
        }
    }
}

/// Zeros, with their signs, in the place of denormals.
#[cfg_attr(not(unoptimised), inline(always))]
fn flush<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let zero = s.as_f32(s.and_i32(s.as_i32(x), s.splat_i32(i32::MIN)));
    s.select(s.lt(s.abs(x), s.splat(f32::MIN_POSITIVE)), zero, x)
}

/// The bf16 in the upper half of a word.
#[inline(always)]
fn number(word: u32) -> f32 {
    flushed(f32::from_bits(word & 0xffff_0000))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows that lie one after the other, whose steps do too.
    fn operands<'a>(
        a: &'a [u32],
        stride: usize,
        b: &'a [u32],
        steps: &'a [usize],
        terms: Terms,
    ) -> Operands<'a> {
        Operands {
            a,
            first: [0, TILE * stride],
            rows: BLOCK,
            stride,
            term: STEP,
            steps,
            b,
            ahead: &[],
            terms,
        }
    }

    /// Products of numbers of f32, as terms, against f64.
    #[test]
    fn six_products_have_the_accuracy_of_f32() {
        let k = 96;
        let mut state = 7u32;
        let mut random = || {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (state >> 8) as f32 / 8388608.0 - 1.0
        };
        let x: Vec<f32> = (0..BLOCK * k).map(|_| random()).collect();
        let y: Vec<f32> = (0..k * BLOCK).map(|_| random()).collect();
        for (terms, bits) in [(Terms::One, 8), (Terms::Two, 15), (Terms::Three, 22)] {
            let (stride, n) = (terms.words(k), terms.count());
            let mut a = vec![0u32; BLOCK * stride];
            let mut b = vec![0u32; stride * BLOCK];
            for i in 0..BLOCK {
                for l in 0..k {
                    let (step, w, half) = (l / 32, l % 32 / 2, l % 2 * 16);
                    for t in 0..n {
                        let word = &mut a[i * stride + step * terms.step() + t * STEP + w];
                        *word |= u32::from(terms.of(x[i * k + l])[t]) << half;
                        let word = &mut b[((step * n + t) * STEP + w) * BLOCK + i];
                        *word |= u32::from(terms.of(y[l * BLOCK + i])[t]) << half;
                    }
                }
            }
            let steps = [0, 1, 2].map(|step| step * terms.step());
            let operands = operands(&a, stride, &b, &steps, terms);
            let mut units = vec![TileUnit::EMULATED];
            units.extend(TileUnit::of_cpu());
            for unit in units {
                let mut c = Block([f32::NAN; BLOCK * BLOCK]);
                unit.set_up(TILE, |tiles| tiles.multiply(operands, &mut c));
                for (i, &found) in c.0.iter().enumerate() {
                    let products = || {
                        (0..k).map(|l| {
                            f64::from(x[i / BLOCK * k + l]) * f64::from(y[l * BLOCK + i % BLOCK])
                        })
                    };
                    let scale: f64 = products().map(f64::abs).sum();
                    let off = (f64::from(found) - products().sum::<f64>()).abs();
                    assert!(off <= scale * 0.5f64.powi(bits), "{unit} {terms:?}: {off:e}");
                }
            }
        }
    }

    /// Of any words: numbers of all magnitudes, denormals, infinities and NaN among them.
    #[test]
    fn vectors_emulate_the_definition() {
        assert!(TileUnit::EMULATED.agrees(TileUnit::EMULATED));
        let mut state = 11u64;
        let mut word = |mask: u32| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) as u32 & mask
        };
        // Of all, and of such whose exponents are small: products that are denormal.
        for mask in [u32::MAX, 0xbfff_bfff, 0x9fff_9fff] {
            for (terms, rows) in Terms::ALL.into_iter().zip([16, 9, 3]) {
                let stride = 2 * terms.step() + 3;
                let a: Vec<u32> = (0..BLOCK * stride).map(|_| word(mask)).collect();
                let b: Vec<u32> = (0..BLOCK * stride).map(|_| word(mask)).collect();
                let steps = [terms.step(), 0];
                // Halves that have rows in common, and terms that lie elsewhere.
                let operands =
                    Operands { first: [2, 7], ..operands(&a, stride, &b, &steps, terms) };
                let [mut expected, mut found] = [Block([5.0; BLOCK * BLOCK]); 2];
                emulate_one_by_one(operands, rows, &mut expected);
                for isa in Isa::available().into_iter().filter(|&isa| isa != Isa::PORTABLE) {
                    isa.run(Emulate { operands, rows, c: &mut found });
                    for (x, y) in found.0.iter().zip(&expected.0) {
                        assert!(x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()), "{isa}");
                    }
                }
            }
        }
    }

    #[test]
    fn infinities_and_nan_reach_their_rows_and_columns_only() {
        for terms in Terms::ALL {
            let stride = terms.step();
            let one = u32::from(terms.of(1.0)[0]);
            let mut a = vec![0u32; BLOCK * stride];
            let mut b = vec![0u32; stride * BLOCK];
            for i in 0..BLOCK {
                a[i * stride] = one;
                b[i] = one;
            }
            a[3 * stride] = u32::from(terms.of(f32::INFINITY)[0]);
            b[5] = u32::from(terms.of(f32::NAN)[0]);
            let mut c = Block([0.0; BLOCK * BLOCK]);
            let operands = operands(&a, stride, &b, &[0], terms);
            TileUnit::EMULATED.set_up(TILE, |tiles| tiles.multiply(operands, &mut c));
            for (i, &c) in c.0.iter().enumerate() {
                match (i / BLOCK, i % BLOCK) {
                    (_, 5) => assert!(c.is_nan()),
                    (3, _) => assert_eq!(c, f32::INFINITY),
                    _ => assert_eq!(c, 1.0),
                }
            }
        }
    }
}

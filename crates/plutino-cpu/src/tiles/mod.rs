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
//! relative error grows to 2^-9, the absolute one stays below 2^-126. An infinity times the lower
//! terms of a finite number, of either sign or zero, makes NaN: with several terms an infinite
//! operand gives NaN where f32 may give infinity.)
//!
//! # What the instruction computes
//!
//! For each element of C two chains of fused multiply-adds that start from zero: one over the lower
//! numbers of the 16 words, one over the upper ones; then `c = (lower + upper) + c`. Every denormal
//! that goes in or comes out is zero. Intel's `tdpbf16ps` does that, to the bit; so does the
//! emulation, on any machine.

#[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "avx512"))]
mod amx;

use crate::halves::Half;
use crate::simd::{Isa, Simd, Vectorized, flushed};
use plutino_tensor::bf16;
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

/// How many bf16 stand for a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Terms {
    /// One product: 8 bits.
    One,
    /// Three products: some 16 bits.
    Two,
    /// Six products: those of f32.
    Three,
}

impl Terms {
    /// How many.
    pub const fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
        }
    }

    /// The products of a step, by term of A and of B, the small ones first; from one to the next
    /// only one operand changes.
    pub const fn products(self) -> &'static [(usize, usize)] {
        match self {
            Self::One => &[(0, 0)],
            Self::Two => &[(0, 1), (1, 0), (0, 0)],
            Self::Three => &[(0, 2), (0, 1), (1, 1), (1, 0), (2, 0), (0, 0)],
        }
    }

    /// Words of a row of A, or of a column of B, in a step of the sum.
    pub const fn step(self) -> usize {
        self.count() * STEP
    }

    /// Words for a sum over `k` numbers: whole steps of 32 numbers.
    pub const fn words(self, k: usize) -> usize {
        k.div_ceil(2 * STEP).saturating_mul(self.step())
    }

    /// The terms of a number, the first ones of three. Those of an infinity or a NaN are it and
    /// zeros; a number that is nearer to infinity than to any bf16 has the largest as first term.
    #[inline(always)]
    pub fn of(x: f32) -> [u16; 3] {
        let rounded = |x: f32| {
            let nearest = bf16::from_single(x);
            match nearest.to_f32().is_infinite() && x.is_finite() {
                true => x.to_bits() & 0xffff_0000,
                false => nearest.to_f32().to_bits(),
            }
        };
        let first = rounded(x);
        let left = if f32::from_bits(first).is_finite() { x - f32::from_bits(first) } else { 0.0 };
        let second = rounded(left);
        let third = rounded(left - f32::from_bits(second));
        [first, second, third].map(|bits| (bits >> 16) as u16)
    }

    /// [`Terms::of`] the numbers of a step of the sum, as the words that a row of A has for it: 16
    /// of each term, one term after the other. (Terms that are denormals may be zeros: units take
    /// them for that.)
    ///
    /// # Panics
    /// Where there is no room for [`Terms::step`] words.
    #[inline(always)]
    pub fn write_step<S: Simd>(self, s: S, numbers: &[f32; 2 * STEP], words: &mut [f32]) {
        let words = &mut words[..self.step()];
        for i in (0..STEP).step_by(S::LANES) {
            let [lower, upper] = [2 * i, 2 * i + S::LANES].map(|at| split(s, &numbers[at..]));
            for term in 0..self.count() {
                s.store(s.to_pairs(lower[term], upper[term]), &mut words[term * STEP + i..]);
            }
        }
    }
}

/// The terms of a vector of numbers, as f32.
#[inline(always)]
fn split<S: Simd>(s: S, x: &[f32]) -> [S::F32; 3] {
    let x = s.load(x);
    // To nearest even, as `to_pairs` rounds; NaN may become anything, and infinity more.
    let rounded = |x: S::F32| {
        let bits = s.as_i32(x);
        let odd = s.and_i32(s.shr_i32::<16>(bits), s.splat_i32(1));
        let nearest = s.add_i32(bits, s.add_i32(odd, s.splat_i32(0x7fff)));
        s.as_f32(s.and_i32(nearest, s.splat_i32(!0xffff)))
    };
    let most = s.splat(f32::from_bits(0x7f7f_0000)); // the largest bf16
    let finite = s.lt(s.abs(x), s.splat(f32::INFINITY));
    let first = rounded(x);
    let first = s.max(s.sub(s.zero(), most), s.min(most, first));
    let first = s.select(finite, first, x);
    let left = s.select(finite, s.sub(x, first), s.zero());
    let second = rounded(left);
    [first, second, rounded(s.sub(left, second))]
}

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
/// Row `i` of A holds, for each step, 16 words of each term: `a[i * stride + step * terms.step() +
/// term * 16 + w]`. B holds, for each step and term, 16 rows of 32 words: `b[((step * terms + term)
/// * 16 + w) * 32 + j]`.
#[derive(Debug, Clone, Copy)]
pub struct Operands<'a> {
    /// 32 rows of A.
    pub a: &'a [u32],
    /// Words from one row of A to the next.
    pub stride: usize,
    /// 32 columns of B.
    pub b: &'a [u32],
    /// Steps of the sum.
    pub steps: usize,
    /// Terms of each number.
    pub terms: Terms,
}

impl Operands<'_> {
    /// # Panics
    /// Where an operand is too short.
    #[inline]
    fn check(&self) {
        let depth = self.steps * self.terms.step();
        assert!(self.stride >= depth, "rows of a block overlap");
        assert!(self.a.len() >= (BLOCK - 1) * self.stride + depth, "rows of a block are missing");
        assert!(self.b.len() >= depth * BLOCK, "columns of a block are missing");
    }
}

/// A block of C, row by row.
#[repr(align(64))]
#[derive(Debug, Clone, Copy)]
pub struct Block(pub [f32; BLOCK * BLOCK]);

/// A unit whose tiles are set up on this thread.
#[derive(Debug)]
pub struct Tiles<'a> {
    kind: Kind,
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

    /// Runs `f` with tiles that are set up on this thread, and released after. Not to be nested.
    pub fn set_up<R>(self, f: impl FnOnce(&Tiles<'_>) -> R) -> R {
        let tiles = Tiles { kind: self.0, _thread: std::marker::PhantomData };
        #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "avx512"))]
        // SAFETY: a unit of this kind only exists where the CPU has it and the system permits it.
        let _configured = (self.0 == Kind::Amx).then(|| unsafe { amx::Configured::new() });
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
        [Terms::One, Terms::Two, Terms::Three].into_iter().all(|terms| {
            let (steps, stride) = (3, 3 * terms.step());
            const MOST: usize = BLOCK * 3 * 3 * STEP;
            let [a, b] = [(); 2].map(|()| [(); MOST].map(|()| word()));
            let operands = Operands { a: &a, stride, b: &b, steps, terms };
            let [found, expected] = [other, self].map(|unit| {
                let mut c = Block([f32::NAN; BLOCK * BLOCK]);
                unit.set_up(|tiles| tiles.multiply(operands, &mut c));
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
    /// `c = A B`, over all steps and products.
    ///
    /// # Panics
    /// Where an operand is too short.
    #[inline]
    pub fn multiply(&self, operands: Operands<'_>, c: &mut Block) {
        operands.check();
        match self.kind {
            Kind::Emulated => emulate(operands, c),
            #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "avx512"))]
            // SAFETY: tiles are set up (`TileUnit::set_up` makes the only ones), and operands as
            // long as they say.
            Kind::Amx => unsafe { amx::multiply(operands, c) },
        }
    }
}

/// What the instructions compute, to the bit: by vectors where they have fused multiply-adds.
fn emulate(operands: Operands<'_>, c: &mut Block) {
    match Isa::best() {
        Isa::PORTABLE => emulate_one_by_one(operands, c),
        isa => isa.run(Emulate { operands, c }),
    }
}

/// The definition.
fn emulate_one_by_one(Operands { a, stride, b, steps, terms }: Operands<'_>, c: &mut Block) {
    c.0.fill(0.0);
    for step in 0..steps {
        for &(i, j) in terms.products() {
            let b = &b[(step * terms.count() + j) * STEP * BLOCK..][..STEP * BLOCK];
            for (row, c) in c.0.chunks_exact_mut(BLOCK).enumerate() {
                let a = &a[row * stride + step * terms.step() + i * STEP..][..STEP];
                for (column, c) in c.iter_mut().enumerate() {
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
    c: &'a mut Block,
}

impl Vectorized for Emulate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { operands: Operands { a, stride, b, steps, terms }, c } = self;
        let flushed = |x: S::F32| {
            let zero = s.as_f32(s.and_i32(s.as_i32(x), s.splat_i32(i32::MIN)));
            s.select(s.lt(s.abs(x), s.splat(f32::MIN_POSITIVE)), zero, x)
        };
        c.0.fill(0.0);
        // Numbers of a tile of B: the lower ones, and the upper ones.
        let mut numbers = [[0.0f32; STEP * BLOCK]; 2];
        for step in 0..steps {
            for &(i, j) in terms.products() {
                let b = &b[(step * terms.count() + j) * STEP * BLOCK..][..STEP * BLOCK];
                let [lower, upper] = &mut numbers;
                for ((y, lower), upper) in b.iter().zip(lower).zip(upper) {
                    (*lower, *upper) = (number(y << 16), number(*y));
                }
                for (row, c) in c.0.chunks_exact_mut(BLOCK).enumerate() {
                    let a = &a[row * stride + step * terms.step() + i * STEP..][..STEP];
                    for (at, c) in c.chunks_exact_mut(S::LANES).enumerate() {
                        let (mut lower, mut upper) = (s.zero(), s.zero());
                        for (w, &x) in a.iter().enumerate() {
                            let [y0, y1] =
                                numbers.each_ref().map(|y| s.load(&y[w * BLOCK + at * S::LANES..]));
                            lower = flushed(s.fma(s.splat(number(x << 16)), y0, lower));
                            upper = flushed(s.fma(s.splat(number(x)), y1, upper));
                        }
                        let sum = flushed(s.add(lower, upper));
                        s.store(flushed(s.add(sum, flushed(s.load(c)))), c);
                    }
                }
            }
        }
    }
}

/// The bf16 in the upper half of a word.
#[inline(always)]
fn number(word: u32) -> f32 {
    flushed(f32::from_bits(word & 0xffff_0000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(term: u16) -> f32 {
        f32::from_bits(u32::from(term) << 16)
    }

    #[test]
    fn terms_add_up_to_the_number() {
        let mut x = 1.0e-30f32;
        while x < 1.9e38 {
            x *= 1.7;
            for x in [x, -x] {
                let [a, b, c] = Terms::of(x).map(|t| f64::from(value(t)));
                assert_eq!(a + b + c, f64::from(x), "{x:e}");
                assert!((f64::from(x) - a).abs() <= f64::from(x.abs()) / 256.0);
                assert!((f64::from(x) - a - b).abs() <= f64::from(x.abs()) / 65536.0);
            }
        }
        for x in [0.0, -0.0, 1.0, f32::MIN_POSITIVE] {
            assert_eq!(Terms::of(x).map(value)[0].to_bits(), x.to_bits());
        }
        assert_eq!(Terms::of(f32::MAX).map(value)[0], 3.3895314e38);
        for x in [f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(Terms::of(x).map(value), [x, 0.0, 0.0]);
        }
        let nan = f32::from_bits(0x7f80_0001);
        let [first, rest @ ..] = Terms::of(nan).map(value);
        assert!(first.is_nan() && rest == [0.0, 0.0]);
    }

    /// Vectors of numbers and single ones have the same terms.
    #[test]
    fn words_of_a_step_are_terms() {
        struct Step<'a>(Terms, &'a [f32; 2 * STEP], &'a mut [f32]);
        impl Vectorized for Step<'_> {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, s: S) {
                self.0.write_step(s, self.1, self.2);
            }
        }
        let mut state = 5u32;
        let mut numbers = [0.0; 2 * STEP];
        for round in 0..400 {
            for x in &mut numbers {
                state = state.wrapping_mul(1664525).wrapping_add(1013904223);
                // All exponents but the last ones, whose lower terms are denormals.
                *x = f32::from_bits(state ^ state << 7 ^ state >> 9);
                if x.abs() < 1e-30 || x.is_nan() {
                    *x = 1.0;
                }
            }
            if round == 0 {
                let special = [0.0, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, 1.0];
                numbers[..6].copy_from_slice(&special);
                numbers[20] = f32::NAN;
            }
            for (isa, terms) in Isa::available()
                .into_iter()
                .flat_map(|isa| [Terms::One, Terms::Two, Terms::Three].map(|t| (isa, t)))
            {
                let mut words = [f32::NAN; 3 * STEP];
                isa.run(Step(terms, &numbers, &mut words));
                for (i, &x) in numbers.iter().enumerate() {
                    let expected = Terms::of(x).map(value);
                    for (term, expected) in expected.into_iter().take(terms.count()).enumerate() {
                        let word = words[term * STEP + i / 2].to_bits();
                        let found = value((word >> (i % 2 * 16)) as u16);
                        let same = found == expected || (found.is_nan() && expected.is_nan());
                        assert!(same, "{isa} {x:e} {term}: {found:e} {expected:e}");
                    }
                }
            }
        }
    }

    #[test]
    fn each_product_changes_one_operand() {
        for terms in [Terms::One, Terms::Two, Terms::Three] {
            let all = terms.products();
            let n = terms.count();
            // All pairs of terms whose numbers add up to less than the number of terms.
            let mut expected: Vec<_> =
                (0..n).flat_map(|i| (0..n - i).map(move |j| (i, j))).collect();
            let mut sorted = all.to_vec();
            expected.sort_unstable();
            sorted.sort_unstable();
            assert_eq!(sorted, expected);
            assert_eq!(all.last(), Some(&(0, 0)), "the largest comes last");
        }
        let changes = |w: &[(usize, usize)]| w[0].0 == w[1].0 || w[0].1 == w[1].1;
        assert!(Terms::Three.products().windows(2).all(changes));
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
                        *word |= u32::from(Terms::of(x[i * k + l])[t]) << half;
                        let word = &mut b[((step * n + t) * STEP + w) * BLOCK + i];
                        *word |= u32::from(Terms::of(y[l * BLOCK + i])[t]) << half;
                    }
                }
            }
            let operands = Operands { a: &a, stride, b: &b, steps: k / 32, terms };
            let mut units = vec![TileUnit::EMULATED];
            units.extend(TileUnit::of_cpu());
            for unit in units {
                let mut c = Block([f32::NAN; BLOCK * BLOCK]);
                unit.set_up(|tiles| tiles.multiply(operands, &mut c));
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
            for terms in [Terms::One, Terms::Two, Terms::Three] {
                let (steps, stride) = (2, 2 * terms.step() + 3);
                let a: Vec<u32> = (0..BLOCK * stride).map(|_| word(mask)).collect();
                let b: Vec<u32> = (0..BLOCK * stride).map(|_| word(mask)).collect();
                let operands = Operands { a: &a, stride, b: &b, steps, terms };
                let [mut expected, mut found] = [Block([f32::NAN; BLOCK * BLOCK]); 2];
                emulate_one_by_one(operands, &mut expected);
                for isa in Isa::available().into_iter().filter(|&isa| isa != Isa::PORTABLE) {
                    isa.run(Emulate { operands, c: &mut found });
                    for (x, y) in found.0.iter().zip(&expected.0) {
                        assert!(x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()), "{isa}");
                    }
                }
            }
        }
    }

    #[test]
    fn infinities_and_nan_reach_their_rows_and_columns_only() {
        let terms = Terms::Three;
        let stride = terms.step();
        let one = u32::from(Terms::of(1.0)[0]);
        let mut a = vec![0u32; BLOCK * stride];
        let mut b = vec![0u32; stride * BLOCK];
        for i in 0..BLOCK {
            a[i * stride] = one;
            b[i] = one;
        }
        a[3 * stride] = u32::from(Terms::of(f32::INFINITY)[0]);
        b[5] = u32::from(Terms::of(f32::NAN)[0]);
        let mut c = Block([0.0; BLOCK * BLOCK]);
        let operands = Operands { a: &a, stride, b: &b, steps: 1, terms };
        TileUnit::EMULATED.set_up(|tiles| tiles.multiply(operands, &mut c));
        for (i, &c) in c.0.iter().enumerate() {
            match (i / BLOCK, i % BLOCK) {
                (_, 5) => assert!(c.is_nan()),
                // Infinite times the zeros of lower terms of B.
                (3, _) => assert!(c.is_nan()),
                _ => assert_eq!(c, 1.0),
            }
        }
    }
}

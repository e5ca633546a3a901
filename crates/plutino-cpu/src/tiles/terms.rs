//! Numbers as sums of bf16.

use super::STEP;
use crate::simd::Simd;
use plutino_tensor::bf16;

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

/// The least magnitude that is nearer to infinity than to any bf16.
const LIMIT: f32 = f32::from_bits(0x7f7f_8000);

/// Half of the last place of a bf16, and the bits that it does not have.
const HALF: u32 = 0x8000;
pub(super) const LOWER: u32 = 0xffff;

impl Terms {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::One, Self::Two, Self::Three];

    /// How many.
    #[inline]
    pub const fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
        }
    }

    /// The products of a step, by term of A and of B, the small ones first; from one to the next
    /// only one operand changes.
    #[inline]
    pub const fn products(self) -> &'static [(usize, usize)] {
        match self {
            Self::One => &[(0, 0)],
            Self::Two => &[(0, 1), (1, 0), (0, 0)],
            Self::Three => &[(0, 2), (0, 1), (1, 1), (1, 0), (2, 0), (0, 0)],
        }
    }

    /// Words of a row of A, or of a column of B, in a step of the sum.
    #[inline]
    pub const fn step(self) -> usize {
        self.count() * STEP
    }

    /// Whether weights are kept as numbers, which take less memory than their terms.
    #[inline]
    pub const fn keeps_numbers(self) -> bool {
        self.count() > 2
    }

    /// Words that a column of B takes in a step where it is kept ([`super::Columns`]).
    #[inline]
    pub const fn kept(self) -> usize {
        if self.keeps_numbers() { 2 * STEP } else { self.step() }
    }

    /// Words for a sum over `k` numbers: whole steps of 32 numbers.
    #[inline]
    pub const fn words(self, k: usize) -> usize {
        k.div_ceil(2 * STEP).saturating_mul(self.step())
    }

    /// The terms of a number, zeros after the last. Each is the bf16 nearest to what the ones
    /// before leave; a tie is rounded away from zero, in the last term to even. What has no finite
    /// bf16 near it (infinities, NaN, numbers above 3.39e38) is one term, and infinite or NaN.
    #[inline(always)]
    pub fn of(self, x: f32) -> [u16; 3] {
        let last = |x: f32| bf16::from_f32(x).to_bits();
        let cut = |x: f32| match x.abs() < LIMIT {
            true => {
                let first = f32::from_bits(x.to_bits().wrapping_add(HALF) & !LOWER);
                (last(first), x - first)
            }
            false => (last(x), 0.0),
        };
        match self {
            Self::One => [last(x), 0, 0],
            Self::Two => {
                let (first, left) = cut(x);
                [first, last(left), 0]
            }
            Self::Three => {
                let (first, left) = cut(x);
                let (second, left) = cut(left);
                [first, second, last(left)]
            }
        }
    }

    /// [`Terms::of`] two vectors of numbers that follow each other, as words: those of one term
    /// after the other, `apart` words from the first to the first. (Terms that are denormals may be
    /// zeros: units take them for that. Where the first of several terms is infinite, or the number
    /// was NaN, another one is NaN or the other infinity: their sums are NaN, and are computed
    /// again.)
    ///
    /// # Panics
    /// Where there is no room for a vector of each term.
    #[cfg_attr(not(unoptimised), inline(always))]
    pub fn write<S: Simd>(self, s: S, numbers: [S::F32; 2], words: &mut [f32], apart: usize) {
        let [lower, upper] = numbers;
        if self == Self::One {
            return s.store(s.to_pairs(lower, upper), words);
        }
        let (lower, lower_left) = cut(s, lower);
        let (upper, upper_left) = cut(s, upper);
        s.store(s.to_pairs(lower, upper), words);
        if self == Self::Two {
            return s.store(s.to_pairs(lower_left, upper_left), &mut words[apart..]);
        }
        let (lower, lower_left) = cut(s, lower_left);
        let (upper, upper_left) = cut(s, upper_left);
        s.store(s.to_pairs(lower, upper), &mut words[apart..]);
        s.store(s.to_pairs(lower_left, upper_left), &mut words[2 * apart..]);
    }
}

/// The first term of a vector of numbers, and what it leaves; where the term is not finite, that
/// is not either.
#[cfg_attr(not(unoptimised), inline(always))]
pub(super) fn cut<S: Simd>(s: S, x: S::F32) -> (S::F32, S::F32) {
    // The nearest, ties away from zero. (A NaN may become a zero, and what is left is NaN.)
    let up = s.add_i32(s.as_i32(x), s.splat_i32(HALF as i32));
    let first = s.as_f32(s.and_i32(up, s.splat_i32(!(LOWER as i32))));
    (first, s.sub(x, first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Isa, Pairs, Vectorized};

    fn value(term: u16) -> f32 {
        f32::from_bits(u32::from(term) << 16)
    }

    #[test]
    fn terms_add_up_to_the_number() {
        let mut x = 1.0e-30f32;
        while x < 1.9e38 {
            x *= 1.7;
            for x in [x, -x] {
                let [a, b, c] = Terms::Three.of(x).map(|t| f64::from(value(t)));
                assert_eq!(a + b + c, f64::from(x), "{x:e}");
                assert!((f64::from(x) - a).abs() <= f64::from(x.abs()) / 256.0);
                assert!((f64::from(x) - a - b).abs() <= f64::from(x.abs()) / 65536.0);
            }
        }
        for x in [0.0, -0.0, 1.0, f32::MIN_POSITIVE] {
            assert_eq!(Terms::Three.of(x).map(value)[0].to_bits(), x.to_bits());
        }
        for terms in Terms::ALL {
            for x in [f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN] {
                assert_eq!(terms.of(x).map(value), [x * 2.0, 0.0, 0.0]);
            }
            let nan = f32::from_bits(0x7f80_0001);
            let [first, rest @ ..] = terms.of(nan).map(value);
            assert!(first.is_nan() && rest == [0.0, 0.0]);
        }
    }

    /// Vectors of numbers and single ones have the same terms.
    #[test]
    fn words_are_terms() {
        struct Step<'a>(Terms, &'a [f32; 2 * STEP], &'a mut [f32]);
        impl Vectorized for Step<'_> {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, s: S) {
                for i in (0..STEP).step_by(S::LANES) {
                    let both = [s.load(&self.1[2 * i..]), s.load(&self.1[2 * i + S::LANES..])];
                    self.0.write(s, both, &mut self.2[i..], STEP);
                }
            }
        }
        let mut state = 5u32;
        let mut numbers = [0.0; 2 * STEP];
        let native = Pairs::of(Isa::best());
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
                let special = [0.0, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, LIMIT];
                numbers[..6].copy_from_slice(&special);
                numbers[20] = f32::NAN;
                // Ties, of the first term and of the second.
                numbers[21] = f32::from_bits(0x3f80_8000);
                numbers[22] = f32::from_bits(0xbf80_0080);
            }
            for terms in Terms::ALL {
                let check = |by: &str, run: &dyn Fn(Step<'_>)| {
                    let mut words = [f32::NAN; 3 * STEP];
                    run(Step(terms, &numbers, &mut words));
                    for (i, &x) in numbers.iter().enumerate() {
                        let expected = terms.of(x).map(value);
                        let lost = x.is_nan() || expected[0].is_infinite();
                        if terms != Terms::One && lost {
                            let word = words[(terms.count() - 1) * STEP + i / 2].to_bits();
                            let found = value((word >> (i % 2 * 16)) as u16);
                            assert!((found + expected[0]).is_nan(), "{by} {x:e}");
                            continue;
                        }
                        for (term, expected) in expected.into_iter().take(terms.count()).enumerate()
                        {
                            let word = words[term * STEP + i / 2].to_bits();
                            let found = value((word >> (i % 2 * 16)) as u16);
                            let same = found == expected || (found.is_nan() && expected.is_nan());
                            assert!(same, "{by} {x:e} {term}: {found:e} {expected:e}");
                        }
                    }
                };
                for isa in Isa::available() {
                    check(isa.name(), &|step| isa.run(step));
                }
                if let Some(pairs) = native {
                    check(pairs.name(), &|step| pairs.run(step));
                }
            }
        }
    }

    #[test]
    fn each_product_changes_one_operand() {
        for terms in Terms::ALL {
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
}

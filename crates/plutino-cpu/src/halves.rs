//! f16 and bf16 as f32, and back: plain bit operations without branches, which the compiler turns
//! into vectors of whatever instruction set it compiles for.

use crate::simd::{Isa, Simd, Vectorized, pair};
use plutino_tensor::{bf16, f16};

/// A float of half the width of f32.
pub trait Half: Copy + Send + Sync + 'static {
    /// The same value.
    fn to_single(self) -> f32;
    /// The nearest value, of two the even one; infinite where there is none.
    fn from_single(x: f32) -> Self;
    /// Writes the values of `from` to `to`, as many as both have.
    fn widen_all(isa: Isa, from: &[Self], to: &mut [f32]);
    /// Writes the nearest of the values of `from` to `to`, as many as both have.
    fn narrow_all(isa: Isa, from: &[f32], to: &mut [Self]);
}

/// The loops of one type: compiled here, as kernels are, not where they are called.
macro_rules! loops {
    () => {
        fn widen_all(isa: Isa, from: &[Self], to: &mut [f32]) {
            isa.run(Widen(from, to));
        }

        fn narrow_all(isa: Isa, from: &[f32], to: &mut [Self]) {
            isa.run(Narrow(from, to));
        }
    };
}

/// The nearest bf16 of two numbers as a word, the first in its lower half.
#[inline(always)]
pub fn nearest_pair(lower: f32, upper: f32) -> f32 {
    pair(bf16::from_single(lower).to_bits(), bf16::from_single(upper).to_bits())
}

/// Bits of the fraction that f32 has and f16 has not.
const SHIFT: u32 = 13;
/// Difference of the exponents' biases of f32 and f16, in place.
const BIAS: u32 = (127 - 15) << 23;
const SIGN: u32 = 1 << 31;

impl Half for f16 {
    loops!();

    #[inline(always)]
    fn to_single(self) -> f32 {
        const ALL_ONES: u32 = 0x7c00 << SHIFT;
        // The least normal number, 2^-14.
        const NORMAL: u32 = BIAS + (1 << 23);
        let bits = u32::from(self.to_bits());
        let magnitude = (bits & 0x7fff) << SHIFT;
        let exponent = magnitude & ALL_ONES;
        // Infinite and NaN: the exponent of all ones is further away.
        let special = if exponent == ALL_ONES { BIAS } else { 0 };
        let normal = magnitude + BIAS + special;
        // Below the normal numbers the fraction counts 2^-24, as it does behind 2^-14.
        let small = f32::from_bits(magnitude + NORMAL) - f32::from_bits(NORMAL);
        let magnitude = if exponent == 0 { small.to_bits() } else { normal };
        f32::from_bits(magnitude | (bits & 0x8000) << 16)
    }

    #[inline(always)]
    fn from_single(x: f32) -> Self {
        const INFINITE: u32 = (127 + 16) << 23;
        const NORMAL: u32 = BIAS + (1 << 23);
        // The last place of a sum with this number is that of the least f16.
        const LAST_PLACE: u32 = (127 - 15 + 23 - 10 + 1) << 23;
        let bits = x.to_bits();
        let magnitude = bits & !SIGN;
        let special = if magnitude > f32::INFINITY.to_bits() { 0x7e00 } else { 0x7c00 };
        let small = (f32::from_bits(magnitude) + f32::from_bits(LAST_PLACE)).to_bits();
        let small = small.wrapping_sub(LAST_PLACE);
        let odd = magnitude >> SHIFT & 1;
        let half = (1 << (SHIFT - 1)) - 1;
        let normal = magnitude.wrapping_sub(BIAS).wrapping_add(half + odd) >> SHIFT;
        let finite = if magnitude < NORMAL { small } else { normal };
        let y = if magnitude >= INFINITE { special } else { finite };
        Self::from_bits((y | (bits & SIGN) >> 16) as u16)
    }
}

impl Half for bf16 {
    loops!();

    #[inline(always)]
    fn to_single(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn from_single(x: f32) -> Self {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let quiet = bits >> 16 | 0x40;
        let y = if bits & !SIGN > f32::INFINITY.to_bits() { quiet } else { rounded };
        Self::from_bits(y as u16)
    }
}

struct Widen<'a, T>(&'a [T], &'a mut [f32]);

impl<T: Half> Vectorized for Widen<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (x, y) in self.0.iter().zip(self.1) {
            *y = x.to_single();
        }
    }
}

struct Narrow<'a, T>(&'a [f32], &'a mut [T]);

impl<T: Half> Vectorized for Narrow<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (x, y) in self.0.iter().zip(self.1) {
            *y = T::from_single(*x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers between, at and halfway between all numbers of either type, and others.
    fn singles() -> Vec<f32> {
        let near = (0..=u16::MAX).flat_map(|bits| {
            let (a, b) = (f16::from_bits(bits).to_f32(), bf16::from_bits(bits).to_f32());
            let next = f16::from_bits(bits.wrapping_add(1)).to_f32();
            let halfway = (a + next) / 2.0;
            let bits = |x: f32, by: u32| f32::from_bits(x.to_bits().wrapping_add(by));
            let around = |x| [bits(x, u32::MAX), x, bits(x, 1)];
            [around(a), around(halfway), around(b), around(bits(b, 0x8000))].concat()
        });
        let spread = (0..1 << 16).map(|i: u32| f32::from_bits(i.wrapping_mul(0x9e37_79b9)));
        near.chain(spread).collect()
    }

    fn check<T: Half>(bits: fn(T) -> u16, of: fn(u16) -> T, to: fn(T) -> f32, from: fn(f32) -> T) {
        let all: Vec<T> = (0..=u16::MAX).map(of).collect();
        let singles = singles();
        let is_nan = |x: T| to(x).is_nan();
        for isa in Isa::available() {
            let mut wide = vec![0.0; all.len()];
            T::widen_all(isa, &all, &mut wide);
            for (&x, wide) in all.iter().zip(wide) {
                let exact = to(x);
                let same = exact.to_bits() == wide.to_bits() || (exact.is_nan() && wide.is_nan());
                assert!(same, "{isa} {:x}: {wide} instead of {exact}", bits(x));
            }
            let mut half = vec![of(0); singles.len()];
            T::narrow_all(isa, &singles, &mut half);
            for (&x, half) in singles.iter().zip(half) {
                let nearest = from(x);
                let same = bits(nearest) == bits(half) || (is_nan(nearest) && is_nan(half));
                assert!(same, "{isa} {x:e}: {:x} instead of {:x}", bits(half), bits(nearest));
            }
        }
    }

    #[test]
    fn all_numbers_are_those_of_the_crate_half() {
        check(f16::to_bits, f16::from_bits, f16::to_f32, f16::from_f32);
        check(bf16::to_bits, bf16::from_bits, bf16::to_f32, bf16::from_f32);
    }
}

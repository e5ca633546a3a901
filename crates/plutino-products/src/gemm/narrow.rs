//! Weights of half the width: packed as bf16 or f16, multiplied and added up as f32.
//!
//! A product of few rows reads each weight once, so that it takes the time of its bytes: half of
//! them take half the time. Its tiles widen a vector in a register as they load it (`tile.rs`), one
//! more instruction each. For that the two vectors of a term, bf16, lie in each other's gaps:
//!
//! ```text
//! words of 32 bits:  | b16 b0 | b17 b1 | ... | b31 b15 |     (16 lanes)
//! first vector:      shifted up by 16 bits;  second: the lower 16 bits cleared
//! ```
//! Where there are more rows a block of panels is widened into the memory of
//! the task that multiplies with it, as others are packed (`blocks.rs`): once for all rows.
//!
//! Either way the sums are those of the f32 product with the rounded weights, to the bit. Weights
//! that were f16 or bf16 before lose nothing; f32 lose 16 (bf16) or 13 (f16) of 24 bits: a relative
//! error of at most 2^-9 or 2^-12 (f16: between 6e-5 and 65504 in magnitude; beyond it is infinite,
//! below it loses more).

use super::int8;
use super::nf4::{self, Codes};
use super::tiles::PanelElement;
use plutino_cpu::Isa;
use plutino_cpu::halves::{Half, nearest_pair};
use plutino_cpu::simd::{LINE, Simd, Vectorized};
use plutino_tensor::{DType, f16};
use std::ops::Range;

/// A float of half the width of f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Narrow {
    /// The exponents of f32, 8 bits of precision.
    Bf16,
    /// 11 bits of precision, magnitudes up to 65504.
    F16,
}

impl Narrow {
    /// The dtype.
    pub const fn dtype(self) -> DType {
        match self {
            Self::Bf16 => DType::Bf16,
            Self::F16 => DType::F16,
        }
    }

    /// That of a dtype, if it is one.
    pub fn of(dtype: DType) -> Option<Self> {
        [Self::Bf16, Self::F16].into_iter().find(|narrow| narrow.dtype() == dtype)
    }

    /// Whether a number is finite in this type, or is not in f32.
    fn reaches(self, x: f32) -> bool {
        // Half a step beyond the greatest number, from where on the nearest is infinite.
        const BEYOND: f32 = 65520.0;
        match self {
            // Of f32 the last 2^-9 of the greatest binade: no weight of anything that works.
            Self::Bf16 => true,
            Self::F16 => x.abs() < BEYOND || !x.is_finite(),
        }
    }

    /// Writes the nearest of each number of a panel.
    ///
    /// # Panics
    /// Where there are not as many elements, or terms are not whole.
    pub(crate) fn write(self, isa: Isa, from: &[f32], to: &mut [u8]) {
        match self {
            Self::Bf16 => isa.run(Join { from, to: bytemuck::cast_slice_mut(to) }),
            Self::F16 => f16::narrow_all(isa, from, bytemuck::cast_slice_mut(to)),
        }
    }

    /// Widens a range of elements of panels.
    ///
    /// # Panics
    /// Where they are not all there, on either side, or terms are not whole.
    fn read(self, isa: Isa, from: &[u8], elements: Range<usize>, to: &mut [f32]) {
        let to = &mut to[..elements.len()];
        match self {
            Self::Bf16 => {
                let from = &from[2 * elements.start..2 * elements.end];
                isa.run(Separate { from: bytemuck::cast_slice(from), to });
            }
            Self::F16 => f16::widen_all(isa, &bytemuck::cast_slice(from)[elements], to),
        }
    }
}

/// What the weights of a product are packed as, where that is not f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compact {
    /// Floats of half the width.
    Float(Narrow),
    /// Integers with a scale for each column of each depth block (`int8.rs`): a quarter of the
    /// memory.
    Int8,
    /// One of sixteen numbers, and a scale for each column of each group of terms (`nf4.rs`): less
    /// than a sixth of the memory.
    Nf4,
}

impl From<Narrow> for Compact {
    fn from(narrow: Narrow) -> Self {
        Self::Float(narrow)
    }
}

impl Compact {
    /// The dtype of an element; of [`Compact::Nf4`] an element has two numbers.
    pub const fn dtype(self) -> DType {
        match self {
            Self::Float(narrow) => narrow.dtype(),
            Self::Int8 => DType::I8,
            Self::Nf4 => DType::U8,
        }
    }

    /// What users call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Float(narrow) => narrow.dtype().name(),
            Self::Int8 => "int8",
            Self::Nf4 => "nf4",
        }
    }

    /// Bytes of so many numbers, which are those of whole terms of a panel.
    pub(super) fn bytes(self, numbers: usize) -> usize {
        match self {
            Self::Nf4 => numbers / Codes::NUMBERS,
            _ => numbers.saturating_mul(self.dtype().size_of()),
        }
    }

    /// Scales of a column of a depth block, whose length is at most this.
    pub(super) fn groups(self, kc: usize) -> usize {
        match self {
            Self::Float(_) => 0,
            Self::Int8 => 1,
            Self::Nf4 => kc.div_ceil(nf4::GROUP),
        }
    }

    /// Whether sums of depth blocks are multiplied by scales; else widened numbers have been.
    pub(super) fn scales_sums(self) -> bool {
        matches!(self, Self::Int8)
    }

    /// Whether a number may be stored so.
    pub(super) fn reaches(self, x: f32) -> bool {
        match self {
            Self::Float(narrow) => narrow.reaches(x),
            Self::Int8 | Self::Nf4 => x.is_finite(),
        }
    }

    /// Writes a panel, and the scales of each of its columns where there are such.
    ///
    /// # Panics
    /// As [`Narrow::write`].
    pub(super) fn write(self, isa: Isa, from: &[f32], to: &mut [u8], scales: &mut [f32]) {
        match self {
            Self::Float(narrow) => narrow.write(isa, from, to),
            Self::Int8 => int8::write(isa, from, bytemuck::cast_slice_mut(to), scales),
            Self::Nf4 => nf4::write(isa, from, bytemuck::cast_slice_mut(to), scales),
        }
    }

    /// Widens a range of elements: those of whole panels of `depth` terms, with their scales.
    ///
    /// # Panics
    /// As [`Narrow::read`].
    pub(super) fn read(
        self,
        isa: Isa,
        from: &[u8],
        elements: Range<usize>,
        (depth, scales): (usize, &[f32]),
        to: &mut [f32],
    ) {
        match self {
            Self::Float(narrow) => narrow.read(isa, from, elements, to),
            Self::Int8 => {
                let to = &mut to[..elements.len()];
                int8::read(isa, &bytemuck::cast_slice(from)[elements], to);
            }
            Self::Nf4 => {
                let to = &mut to[..elements.len()];
                let codes = self.bytes(elements.start)..self.bytes(elements.end);
                nf4::read(isa, bytemuck::cast_slice(&from[codes]), (depth, scales), to);
            }
        }
    }
}

/// Panels of bf16 as tiles read them: from a line of cache on.
///
/// # Panics
/// Where they do not begin at one.
pub(crate) fn panels_of_bf16(panels: &[u16]) -> &[u16] {
    assert!(panels.is_empty() || panels.as_ptr().addr().is_multiple_of(LINE));
    panels
}

/// Puts the two vectors of each term into one of words.
struct Join<'a> {
    from: &'a [f32],
    to: &'a mut [f32],
}

impl Vectorized for Join<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let terms = self.from.chunks_exact(2 * S::LANES);
        assert!(terms.remainder().is_empty() && self.to.len() * 2 == self.from.len());
        for (from, to) in terms.zip(self.to.chunks_exact_mut(S::LANES)) {
            let (lower, upper) = from.split_at(S::LANES);
            for ((to, &lower), &upper) in to.iter_mut().zip(lower).zip(upper) {
                *to = nearest_pair(lower, upper);
            }
        }
    }
}

/// Makes the two vectors of each term of one of words.
struct Separate<'a> {
    from: &'a [f32],
    to: &'a mut [f32],
}

impl Vectorized for Separate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let terms = self.to.chunks_exact_mut(2 * S::LANES);
        assert!(self.from.len() * 2 == terms.len() * 2 * S::LANES);
        for (to, from) in terms.zip(self.from.chunks_exact(S::LANES)) {
            let (first, second) = to.split_at_mut(S::LANES);
            let both = s.load(from);
            s.store(s.lower_bf16(both), first);
            s.store(s.upper_bf16(both), second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_a_term_are_joined_and_separated() {
        for isa in Isa::available() {
            for narrow in [Narrow::Bf16, Narrow::F16] {
                let term = 2 * isa.lanes();
                let numbers: Vec<f32> = (0..3 * term).map(|i| i as f32 - 40.0).collect();
                let mut bytes = plutino_tensor::AlignedBuf::zeroed(2 * numbers.len()).unwrap();
                narrow.write(isa, &numbers, bytes.as_mut_bytes());
                let mut found = vec![0.0; 2 * term];
                narrow.read(isa, bytes.as_bytes(), term..3 * term, &mut found);
                assert_eq!(found, numbers[term..]);
            }
        }
        // The first vector in the lower halves of words.
        let (isa, mut word) = (Isa::PORTABLE, vec![0.0f32; Isa::PORTABLE.lanes()]);
        let numbers: Vec<f32> = (0..2 * isa.lanes()).map(|i| i as f32).collect();
        Narrow::Bf16.write(isa, &numbers, bytemuck::cast_slice_mut(&mut word));
        let second = f32::from_bits(word[1].to_bits() & 0xffff_0000);
        let first = f32::from_bits(word[1].to_bits() << 16);
        assert_eq!([first, second], [1.0, 1.0 + isa.lanes() as f32]);
    }
}

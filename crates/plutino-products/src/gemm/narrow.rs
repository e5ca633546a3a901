//! Weights of half the width: packed as bf16 or f16, multiplied and added up as f32.
//!
//! A product of few rows reads each weight once, so that it takes the time of its bytes: half of
//! them take half the time. Its tiles widen a vector in a register as they load it (`tile.rs`), one
//! more instruction each. Where there are more rows a block of panels is widened into the memory of
//! the task that multiplies with it, as others are packed (`blocks.rs`): once for all rows.
//!
//! Either way the sums are those of the f32 product with the rounded weights, to the bit. Weights
//! that were f16 or bf16 before lose nothing; f32 lose 16 (bf16) or 13 (f16) of 24 bits: a relative
//! error of at most 2^-9 or 2^-12 (f16: between 6e-5 and 65504 in magnitude; beyond it is infinite,
//! below it loses more).

use plutino_cpu::Isa;
use plutino_cpu::halves::Half;
use plutino_tensor::{DType, bf16, f16};
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
    pub(super) fn reaches(self, x: f32) -> bool {
        // Half a step beyond the greatest number, from where on the nearest is infinite.
        const BEYOND: f32 = 65520.0;
        match self {
            // Of f32 the last 2^-9 of the greatest binade: no weight of anything that works.
            Self::Bf16 => true,
            Self::F16 => x.abs() < BEYOND || !x.is_finite(),
        }
    }

    /// Writes the nearest of each number.
    pub(crate) fn write(self, isa: Isa, from: &[f32], to: &mut [u8]) {
        match self {
            Self::Bf16 => bf16::narrow_all(isa, from, bytemuck::cast_slice_mut(to)),
            Self::F16 => f16::narrow_all(isa, from, bytemuck::cast_slice_mut(to)),
        }
    }

    /// Widens a range of elements.
    ///
    /// # Panics
    /// Where they are not all there, on either side.
    pub(super) fn read(self, isa: Isa, from: &[u8], elements: Range<usize>, to: &mut [f32]) {
        let to = &mut to[..elements.len()];
        match self {
            Self::Bf16 => bf16::widen_all(isa, &bytemuck::cast_slice(from)[elements], to),
            Self::F16 => f16::widen_all(isa, &bytemuck::cast_slice(from)[elements], to),
        }
    }
}

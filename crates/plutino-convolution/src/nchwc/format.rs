//! Channel blocks of f32, and of bf16.
//!
//! ```text
//!   f32, blocks of 16 channels            bf16, blocks of 32 channels
//!   pixel p of block 0: | c0 ... c15 |      | c0 c1 | c2 c3 | ... | c30 c31 |   words of two
//!   pixel p of block 1: | c16 .. c31 |        lower half      upper half
//! ```
//! A block of bf16 takes the bytes of one of f32 and holds two of them: whoever computes one block
//! of f32 writes one half of each pixel's words. Blocks count f32's channels everywhere but here.

use crate::choose::Request;
use crate::post_ops::Residual;
use plutino_cpu::simd::{Pairs, Simd};
use plutino_cpu::tiles::Terms;
use plutino_products::gemm::MatrixUnit;

/// What reads and makes bf16 for a request, where numbers are allowed to be such: those of which
/// products have one term.
pub(super) fn maker(request: &Request<'_>) -> Option<Pairs> {
    let pairs = match request.unit {
        Some(MatrixUnit::Pairs(pairs)) => Some(pairs),
        Some(MatrixUnit::Tiles(_, Terms::One)) => Pairs::of(request.isa).or(Some(Pairs::EMULATED)),
        _ => None,
    };
    pairs.filter(|pairs| pairs.isa() == request.isa)
}

/// How a tensor in channel blocks lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// In blocks of f32.
    F32,
    /// In blocks of bf16.
    Bf16 {
        /// Of a single block, which half of the words it is; of a tensor, that of its first block.
        upper: bool,
    },
}

impl Format {
    /// That of a tensor.
    pub(crate) const fn of(bf16: bool) -> Self {
        if bf16 { Self::Bf16 { upper: false } } else { Self::F32 }
    }

    /// That of one of a tensor's blocks.
    #[inline(always)]
    pub(crate) const fn of_block(self, block: usize) -> Self {
        match self {
            Self::F32 => self,
            Self::Bf16 { .. } => Self::Bf16 { upper: block % 2 == 1 },
        }
    }

    /// The plane that holds a block.
    #[inline(always)]
    const fn plane(self, block: usize) -> usize {
        match self {
            Self::F32 => block,
            Self::Bf16 { .. } => block / 2,
        }
    }

    /// Planes that hold so many blocks.
    #[inline(always)]
    pub(crate) const fn planes(self, blocks: usize) -> usize {
        match self {
            Self::F32 => blocks,
            Self::Bf16 { .. } => blocks.div_ceil(2),
        }
    }

    /// The number of the plane that holds a block of an image, among those of all images of so many
    /// blocks.
    #[inline(always)]
    pub(crate) const fn plane_of(self, image: usize, blocks: usize, block: usize) -> usize {
        image * self.planes(blocks) + self.plane(block)
    }

    /// Whether an output of this format, or the residual, is of bf16.
    #[inline]
    pub(super) fn is_bf16_or(self, residual: Option<Residual<'_>>) -> bool {
        self != Self::F32 || residual.is_some_and(|r| r.format != Self::F32)
    }

    /// Where the words of a block begin among those of a pixel.
    #[inline(always)]
    const fn start<S: Simd>(self) -> usize {
        match self {
            Self::Bf16 { upper: true } => S::LANES / 2,
            _ => 0,
        }
    }

    /// A block's numbers of a pixel, of which `x` begins with the words.
    #[cfg_attr(not(unoptimised), inline(always))]
    pub(super) fn load<S: Simd>(self, s: S, x: &[f32]) -> S::F32 {
        match self {
            Self::F32 => s.load(x),
            Self::Bf16 { .. } => s.load_bf16(&x[self.start::<S>()..]),
        }
    }

    /// The same.
    ///
    /// # Safety
    /// `x` is valid for reads of a vector.
    #[cfg_attr(not(unoptimised), inline(always))]
    pub(super) unsafe fn load_ptr<S: Simd>(self, s: S, x: *const f32) -> S::F32 {
        // SAFETY: a vector, or half of one (precondition).
        unsafe {
            match self {
                Self::F32 => s.load_ptr(x),
                Self::Bf16 { .. } => s.load_bf16_ptr(x.wrapping_add(self.start::<S>())),
            }
        }
    }

    /// Writes a block's numbers of a pixel, of which `y` begins with the words.
    #[cfg_attr(not(unoptimised), inline(always))]
    pub(super) fn store<S: Simd>(self, s: S, v: S::F32, y: &mut [f32]) {
        match self {
            Self::F32 => s.store(v, y),
            Self::Bf16 { .. } => s.store_bf16(v, &mut y[self.start::<S>()..]),
        }
    }
}

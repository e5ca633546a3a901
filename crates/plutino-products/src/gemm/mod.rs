//! Matrix products: C\[M, N\] = activation(A\[M, K\] B\[K, N\] + bias + residual).
//!
//! The classic five loops around a register tile (Goto, van de Geijn 2008; BLIS):
//!
//! ```text
//! block of C (one task: rows m, columns n)                      blocks.rs
//!   for each KC of k:  panels of B, KC x NC, stay in L2          pack.rs
//!     for each MC of m:  panels of A, MC x KC, stay in L2
//!       for each panel of B (KC x NR, in L1)                     tiles.rs
//!         for each panel of A (MR x KC)
//!           register tile MR x NR: loop over k                   tile.rs
//! ```
//! Weights are packed once ([`PackedMatrix`]); the other operand is packed block by block, from
//! memory with any strides ([`Strided`]) or from whatever else implements [`Pack`] (the windows of
//! a convolution). Rows of A are not packed where they are short, or meet few panels of B: the tile
//! reads them where they lie. [`Gemm`] holds every decision: block sizes, how the work is cut, who
//! packs what.
//!
//! Weights may be narrow ([`Compact`]): packed as bf16, f16, int8 or nf4, computed with in f32. Or
//! both operands are bf16 (`unit.rs`, `words.rs`), where the CPU multiplies them.
//!
//! [`LinearProduct`] is for anybody's slices, with errors instead of panics; [`Product`] is a
//! single product, [`Batch`] many; [`gemm_any`] computes dtypes other than f32.
//!
//! Each element of C is the sum of chains of multiply-adds in the order of k, one for each KC,
//! which the depth alone decides; bias and residual come last. Neither other blocks nor threads
//! change a bit of the result.

mod any;
mod batch;
mod blocks;
pub mod cost;
mod int8;
mod linear;
mod machine;
pub(crate) mod narrow;
mod nf4;
mod on_tiles;
mod pack;
mod post_ops;
mod problem;
pub(crate) mod tile;
pub(crate) mod tiles;
pub(crate) mod unit;
mod words;

#[cfg(test)]
mod tests;

#[doc(hidden)] // for what it compiles
pub use any::gemm_any_compiled;
pub use any::{AnyMatrix, Store, gemm_any};
pub use batch::Batch;
pub use blocks::Gemm;
pub use linear::{GemmError, LinearArgs, LinearProduct, Matrix};
pub use machine::Machine;
pub use narrow::{Compact, Narrow};
pub(crate) use pack::PackPanels;
pub use pack::{Pack, PackedMatrix, Side, Strided};
pub use post_ops::{Bias, PostOps, Residual};
pub use problem::{Operand, Problem, Product, Size};
pub use unit::MatrixUnit;
pub use words::Bf16Matrices;

use plutino_cpu::Isa;
use tile::VECTORS;

/// What a product is tuned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The instruction set.
    pub isa: Isa,
    /// The caches.
    pub machine: Machine,
}

impl Target {
    /// This machine with one of its instruction sets.
    pub fn this(isa: Isa) -> Self {
        Self { isa, machine: Machine::this() }
    }

    /// Rows of the register tile.
    #[inline]
    pub(crate) fn mr(self) -> usize {
        if self.isa.lanes() >= 16 { 12 } else { 6 }
    }

    /// Columns of the register tile.
    #[inline]
    pub(crate) fn nr(self) -> usize {
        self.isa.lanes() * VECTORS
    }

    /// Whether the rows of a tile, of `rows` in all, push each other out of L1 where they lie
    /// `stride` elements apart: a tile reads a line of each at a time, and lines that are 4 KiB
    /// apart share a set, on every x86-64 CPU.
    #[inline]
    pub(crate) fn crowds(self, rows: usize, stride: usize) -> bool {
        const WAY: usize = 4096;
        let row = stride.saturating_mul(size_of::<f32>());
        row.is_multiple_of(WAY) && self.mr().min(rows) >= self.machine.l1 / WAY
    }

    /// Length of a depth block: that of the chains whose sums it adds up, which caches do not
    /// decide, for the result is not to depend on them. A panel of B takes half of 32 KiB of L1; or
    /// all of it for the twelve rows of AVX-512, which leave L2 time enough to deliver it. Even
    /// blocks.
    #[inline]
    pub(crate) fn kc(depth: usize) -> usize {
        let blocks = depth.div_ceil(tile::CHAIN).max(1);
        depth.div_ceil(blocks)
    }
}

impl Default for Target {
    fn default() -> Self {
        Self::this(Isa::best())
    }
}

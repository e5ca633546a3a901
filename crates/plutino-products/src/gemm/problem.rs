//! What is multiplied: operands, sizes, batches of products.

use super::pack::{Pack, PackedMatrix, Strided};
use super::post_ops::PostOps;

/// One operand of a product.
#[derive(Debug, Clone, Copy)]
pub enum Operand<'a, P> {
    /// Packed beforehand.
    Packed(&'a PackedMatrix),
    /// Packed while the product is computed.
    Source(P),
}

/// A batch of products of one size: where each finds its operands and its place in the output.
pub trait Problem: Sync {
    /// Source of the left operand where it is not packed.
    type A: Pack;
    /// Source of the right operand where it is not packed.
    type B: Pack;
    /// Left operand of product `i`.
    fn a(&self, i: usize) -> Operand<'_, Self::A>;
    /// Right operand of product `i`.
    fn b(&self, i: usize) -> Operand<'_, Self::B>;
    /// Where C of product `i` begins in the output (and in the residual).
    fn c(&self, i: usize) -> usize;
    /// What is done with product `i` before it is stored for good.
    fn post_ops(&self, i: usize) -> PostOps<'_>;
}

/// A single product, its output at the start of the memory given.
#[derive(Debug, Clone, Copy)]
pub struct Product<'a> {
    /// Left operand.
    pub a: Operand<'a, Strided<'a>>,
    /// Right operand.
    pub b: Operand<'a, Strided<'a>>,
    /// What is done with it before it is stored.
    pub post_ops: PostOps<'a>,
}

impl<'a> Problem for Product<'a> {
    type A = Strided<'a>;
    type B = Strided<'a>;
    fn a(&self, _: usize) -> Operand<'_, Strided<'a>> {
        self.a
    }
    fn b(&self, _: usize) -> Operand<'_, Strided<'a>> {
        self.b
    }
    fn c(&self, _: usize) -> usize {
        0
    }
    fn post_ops(&self, _: usize) -> PostOps<'_> {
        self.post_ops
    }
}

/// Sizes of a batch of products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Number of products.
    pub batch: usize,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
}

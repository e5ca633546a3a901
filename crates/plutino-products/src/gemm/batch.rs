//! Many products of matrices in memory: what attention and `torch.matmul` need.

use super::{Operand, PostOps, Problem, Size, Strided};

/// Products of matrices that lie at given offsets of two buffers; outputs are dense, one after the
/// other.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Sizes.
    pub size: Size,
    /// Buffer of the left matrices, and the distances of their rows and columns.
    pub a: (&'a [f32], (usize, usize)),
    /// Buffer of the right matrices, and the distances of their rows and columns.
    pub b: (&'a [f32], (usize, usize)),
    /// Offsets of the left and the right matrix of each product.
    pub offsets: &'a [(usize, usize)],
    /// Factor of all products.
    pub scale: f32,
    /// What is done with each product before it is stored.
    pub post_ops: PostOps<'a>,
}

impl<'a> Problem for Batch<'a> {
    type A = Strided<'a>;
    type B = Strided<'a>;
    fn a(&self, i: usize) -> Operand<'_, Strided<'a>> {
        let (data, strides) = self.a;
        // Sums of nothing have offsets, too, but no data.
        let data = data.get(self.offsets[i].0..).unwrap_or_default();
        let left = Strided::left(data, (self.size.m, self.size.k), strides);
        Operand::Source(left.scaled(self.scale))
    }
    fn b(&self, i: usize) -> Operand<'_, Strided<'a>> {
        let (data, strides) = self.b;
        let data = data.get(self.offsets[i].1..).unwrap_or_default();
        Operand::Source(Strided::right(data, (self.size.k, self.size.n), strides))
    }
    fn c(&self, i: usize) -> usize {
        i * self.size.m * self.size.n
    }
    fn post_ops(&self, _: usize) -> PostOps<'_> {
        self.post_ops
    }
}

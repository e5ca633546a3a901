//! Convolutions of plain tensors, as matrix products of the weights with pixels or windows.

pub(crate) mod any;
pub(crate) mod gemm;
pub(crate) mod im2col;
mod products;
pub(crate) mod transposed;
mod windows;

//! Kernels on channel blocks: NCHWc, also known as nChw8c (AVX2) and nChw16c (AVX-512).
//!
//! A tensor `(N, C, H, W)` lies as `(N, ceil(C/b), H, W, b)` with `b` f32 in a vector: a pixel of a
//! block is one vector, so that convolutions, pooling and elementwise operators load and store
//! whole vectors whatever H and W are, and a convolution needs neither im2col nor packing of its
//! input.
//!
//! Where C is no multiple of b, the last block's surplus lanes hold anything: nothing reads them
//! but kernels that treat lanes apart.

// Loops over registers count: what an iterator calls is not always inlined, and then lacks the
// instruction set.
#![allow(clippy::needless_range_loop)]

mod channels;
mod depthwise;
mod direct;
mod finish;
mod image;
mod reorder;
mod tile;
mod transposed;
mod window;
mod winograd;

pub use channels::ChannelGather;
pub use depthwise::{DepthwiseConv, DepthwiseWeights};
pub use direct::{ConvInput, DirectConv, DirectWeights, FEW};
pub use finish::Residual;
pub use reorder::{from_blocked, to_blocked};
pub use transposed::{TransposedConv, TransposedWeights, TransposedWindow};
pub use window::Window;
pub use winograd::{WinogradAlgorithm, WinogradConv, WinogradWeights};

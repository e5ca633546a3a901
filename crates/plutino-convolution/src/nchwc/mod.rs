//! Kernels on channel blocks: NCHWc, also known as nChw8c (AVX2) and nChw16c (AVX-512).
//!
//! A tensor `(N, C, H, W)` lies as `(N, ceil(C/b), H, W, b)` with `b` f32 in a vector: a pixel of a
//! block is one vector, so that convolutions, pooling and elementwise operators load and store
//! whole vectors whatever H and W are, and a convolution needs neither im2col nor packing of its
//! input.
//!
//! Where C is no multiple of b, the last block's surplus lanes hold anything: nothing reads them
//! but kernels that treat lanes apart.
//!
//! Between convolutions of bf16 numbers may lie as such, in blocks of twice as many channels
//! (`format.rs`).

// Loops over registers count: what an iterator calls is not always inlined, and then lacks the
// instruction set.
#![allow(clippy::needless_range_loop)]

mod channels;
pub(crate) mod depthwise;
pub(crate) mod direct;
mod finish;
pub(crate) mod first_layer;
pub(crate) mod format;
pub(crate) mod fused_depthwise;
pub(crate) mod grouped;
mod image;
pub(crate) mod on_tiles;
pub(crate) mod pairs;
pub(crate) mod phases;
pub(crate) mod pointwise;
mod prefetch;
mod reorder;
pub(crate) mod single_pixel;
mod tile;
mod tiled;
mod window;
pub(crate) mod winograd;

pub use channels::ChannelGather;
pub use reorder::{from_blocked, to_blocked};

//! Convolutions.
//!
//! - [`nchwc`]: two-dimensional ones on channel blocks: direct, depthwise, Winograd, transposed.
//! - [`conv`]: all others, of 1 to 3 dimensions, as matrix products of packed windows.

pub mod conv;
pub mod nchwc;

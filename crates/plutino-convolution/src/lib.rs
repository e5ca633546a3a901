//! Convolutions of 1 to 3 dimensions, transposed or not, with groups, strides, dilation and all of
//! PyTorch's padding modes.
//!
//! [`ConvProblem`] checks the sizes once; [`choose()`] finds the algorithm, the only place that
//! does; [`Convolution`] packs weights and computes, on anybody's slices.
//!
//! | algorithm | for | tensors | file |
//! |---|---|---|---|
//! | single pixel | 1x1 on one pixel: a matrix product | blocks | nchwc/single_pixel.rs |
//! | pointwise | 1x1, with any stride | blocks | nchwc/pointwise.rs |
//! | depthwise | a channel for each group | blocks | nchwc/depthwise.rs |
//! | grouped | groups of a few channels, several in a block | blocks | nchwc/grouped.rs |
//! | Winograd | 3x3, 4x4, slices of volumes; first layers | blocks, plain image | nchwc/winograd/ |
//! | direct | everything else, in one to three dimensions | blocks | nchwc/direct.rs |
//! | tiles | planes, on matrix units | blocks, plain image | nchwc/on_tiles.rs |
//! | first layer | images of few channels | plain image, blocks | nchwc/first_layer.rs |
//! | phases | transposed with few phases | blocks | nchwc/phases.rs |
//! | gemm | kernel 1, stride 1: a matrix product | plain | plain/gemm.rs |
//! | im2col | everything that is not transposed | plain | plain/im2col.rs |
//! | transposed | everything that is: a matrix product, then col2im | plain | plain/transposed.rs |
//! | any | dtypes other than f32: the definition | plain | plain/any.rs |
//!
//! [`FusedDepthwise`] computes a depthwise convolution together with the pointwise ones beside it.
//!
//! To add one: its file, and its row in [`ALGORITHMS`]; the tests run every row on every problem
//! that it takes.

mod algorithm;
mod choose;
mod convolution;
mod cost;
pub mod nchwc;
mod plain;
mod post_ops;
mod problem;

pub use algorithm::{ALGORITHMS, Algorithm, ConvLayout, ConvWeights};
pub use choose::{Request, choose};
pub use convolution::{ConvArgs, Convolution};
pub use nchwc::fused_depthwise::{FusedArgs, FusedDepthwise, Layer};
pub use plain::any::conv_any;
#[doc(hidden)]
pub use plain::any::conv_any_compiled;
pub use post_ops::{Bf16Tensors, PostOps, ResidualOrder};
pub use problem::{Axis, ConvError, ConvProblem, MAX_DIMS, PadMode, Window};

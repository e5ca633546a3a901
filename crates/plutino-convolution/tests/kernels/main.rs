//! Kernels against their naive counterparts, over instruction sets, threads and tails.
//!
//! Not beside the code: a crate's own tests are compiled with it a second time, and the kernels
//! take most of the time that plutino takes to build.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod algorithms;
mod bf16;
mod choice;
mod fused_depthwise;
mod harness;
mod pairs;
mod tiles;

//! PyTorch's operators, as PNNX names them.
//!
//! An [`Operator`] is meaning: decoded from a PNNX node by a builder, independent of shapes. Its
//! [`plan`](Operator::plan) binds it to concrete shapes, an instruction set and a thread count,
//! packs its weights, picks an algorithm and yields a [`Kernel`] with nothing left to decide.
//!
//! Each operator family is one file: parameters, shape rule, choice of kernel, registration, tests.
//! Builders register themselves with [`register_op!`]; [`registry`] lists them.
#![forbid(unsafe_code)]
// Chapters that are left out leave helpers without a reader.
#![cfg_attr(not(all(feature = "families", feature = "fft")), allow(dead_code, unused_imports))]

mod core;
pub mod eager;
mod native;
mod support;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;

pub use crate::core::*;
pub(crate) use support::names::function;

pub use convolution::branches::Branch;
pub use convolution::conv::Conv;
pub use elementwise::Elementary;
pub use fused::channel_map::{ChannelMap, shuffled_channels};
pub use fused::depthwise::FusedDepthwise;
pub use fused::reorder::Reorder;
pub use fused::rows::ByRows;
pub use graph::expression::sum_of;
pub use normalization::layer_norm::NormPattern;
pub use transformer::attention::AttentionPattern;

#[doc(hidden)] // for register_op!
pub use inventory;

// The operators, a folder for each chapter of PyTorch's manual, a file for each family. They
// register themselves: nothing in here is named from outside.

mod activations;
mod convolution;
mod creation;
#[cfg(feature = "distance")]
mod distance;
mod elementwise;
mod fused;
mod graph;
mod indexing;
#[cfg(feature = "losses")]
mod losses;
mod matrix;
mod normalization;
mod ordering;
mod pool;
#[cfg(feature = "quantized")]
mod quantized;
#[cfg(feature = "recurrent")]
mod recurrent;
mod reduce;
#[cfg(feature = "samples")]
mod samples;
mod shaping;
#[cfg(feature = "fft")]
mod spectral;
mod transformer;
#[cfg(feature = "vision")]
mod vision;

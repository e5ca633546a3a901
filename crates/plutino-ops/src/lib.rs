//! PyTorch's operators, as PNNX names them.
//!
//! An [`Operator`] is meaning: decoded from a PNNX node by a builder, independent of shapes. Its
//! [`plan`](Operator::plan) binds it to concrete shapes, an instruction set and a thread count, packs its
//! weights, picks an algorithm and yields a [`Kernel`] with nothing left to decide.
//!
//! Each operator family is one file: parameters, shape rule, choice of kernel, registration, tests. Builders
//! register themselves with [`register_op!`]; [`registry`] lists them.
#![forbid(unsafe_code)]

mod channel_map;
mod composite;
mod core;
pub mod eager;
mod reorder;
#[cfg(test)]
#[allow(dead_code)] // each family uses what it needs
mod testkit;

pub use crate::core::*;
pub use attention::AttentionPattern;
pub use channel_map::ChannelMap;
pub use reorder::Reorder;
pub use rows::ByRows;

#[doc(hidden)] // for register_op!
pub use inventory;

// The operators, one family a file. Nothing here is named from outside: they register themselves.

mod activation;
mod affine;
mod assemble;
mod attention;
mod batch_norm;
mod cat;
mod conv;
mod conv_blocked;
mod conv_transpose;
mod cosine_similarity;
mod create;
mod cross;
mod deform_conv;
mod detect;
mod diagonal;
mod einsum;
mod elementwise;
mod embedding;
mod encoder_layer;
mod expand;
mod expression;
mod fft;
mod gather;
mod glu;
mod grid_sample;
mod group_norm;
mod index;
mod index_add;
mod layer_norm;
mod linear;
mod local_response_norm;
mod masked_select;
mod matmul;
mod meshgrid;
mod multihead_attention;
mod normalize;
mod one_hot;
mod pad;
mod pairwise_distance;
mod permute;
mod pool;
mod promotion;
mod quantized;
mod rearrange;
mod recurrent;
mod reduce;
mod repeat_interleave;
mod roi_align;
mod rows;
mod scatter_reduce;
mod size;
mod slice;
mod slice_scatter;
mod sliding;
mod softmax;
mod sort;
mod split;
mod stft;
mod then;
mod topk;
mod triangle;
mod unfold;
mod upsample;
mod view;
mod weights;

//! PyTorch's operators, as PNNX names them.
//!
//! An [`Operator`] is meaning: decoded from a PNNX node by a builder, independent of shapes. Its
//! [`plan`](Operator::plan) binds it to concrete shapes, an instruction set and a thread count,
//! packs its weights, picks an algorithm and yields a [`Kernel`] with nothing left to decide.
//!
//! Each operator family is one file: parameters, shape rule, choice of kernel, registration, tests.
//! Builders register themselves with [`register_op!`]; [`registry`] lists them.
#![forbid(unsafe_code)]

mod channel_map;
mod composite;
mod core;
pub mod eager;
mod native;
mod reorder;
#[cfg(test)]
#[allow(dead_code)] // each family uses what it needs
mod testkit;

pub use crate::core::*;
pub(crate) use names::function;

pub use attention::AttentionPattern;
pub use channel_map::ChannelMap;
pub use reorder::Reorder;
pub use rows::ByRows;

#[doc(hidden)] // for register_op!
pub use inventory;

// The operators, one family a file. Nothing here is named from outside: they register themselves.

mod activation;
mod add_products;
mod affine;
mod assemble;
mod attention;
mod batch_norm;
mod beside;
mod broadcast;
mod cat;
mod cdist;
mod combinations;
mod conv;
mod conv_blocked;
mod conv_transpose;
mod cosine_similarity;
mod create;
mod cross;
mod deform_conv;
mod detect;
mod diagonal;
mod diagonals;
mod einsum;
mod elementwise;
mod embedding;
mod embedding_bag;
mod encoder_layer;
mod expand;
mod expression;
mod facts;
mod fft;
mod fft_shift;
mod gather;
mod glu;
mod gradient;
mod grid_sample;
mod group_norm;
mod grouped_mm;
mod histogram;
mod in_dtype;
mod index;
mod index_add;
mod layer_norm;
#[cfg(feature = "linalg")]
mod linalg;
mod linear;
mod local_response_norm;
mod losses;
mod masked_select;
mod matmul;
mod meshgrid;
mod multihead_attention;
mod names;
mod native_norm;
mod nms;
mod nonzero;
mod normalize;
mod one_hot;
mod pad;
mod pairwise_distance;
mod permute;
mod pool;
mod products;
mod promotion;
mod quantized;
mod random;
mod rearrange;
mod recurrent;
mod reduce;
mod refused;
mod repeat_interleave;
mod roi_align;
mod roi_pool;
mod rows;
mod scatter_reduce;
mod search;
mod sequence;
mod several;
mod size;
mod slice;
mod slice_scatter;
mod sliding;
mod softmax;
mod sort;
mod split;
mod stacks;
mod statistics;
mod stft;
mod take;
mod then;
mod topk;
mod transposes;
mod triangle;
mod unfold;
mod unique;
mod upsample;
mod view;
mod weights;

//! CPU kernels of the plutino inference engine.
//!
//! Kernels work on plain slices and sizes: they know neither graphs nor operator names. Each has a
//! naive counterpart in the crate `plutino-reference`, which its tests compare it with.
//!
//! Here are those that move, sum and map elements; the others stand in crates that compile side by
//! side, under their names here:
//!
//! - `plutino-cpu`: [`simd`], instruction sets found at run time; [`par`], threads; [`number`], the
//!   element types; [`halves`], f16 and bf16; [`math`] and [`activation`] functions.
//! - `plutino-products`: [`gemm`], matrix products; [`attention`]; [`recurrent`] layers.
//! - `plutino-convolution`: [`conv`], convolutions; [`nchwc`], channel blocks.
//! - `plutino-fourier`: `fft` and `stft`, with the feature `fft`.
//! - `plutino-linalg`: `linalg`, factorisations of matrices, with the feature `linalg`.
//!
//! | module | what |
//! |---|---|
//! | [`copy`] | permute, slice, concatenate, gather, scatter elements of any dtype |
//! | [`elementwise`] | programs of elementwise expressions, with broadcasting |
//! | [`reduce`], [`order`], [`mod@topk`] | sums, extrema, scans; medians and quantiles; the largest |
//! | [`pool`], [`resize`], [`pad`], [`mod@fold`], [`sample`] | images and their windows |
//! | [`norm`], [`mod@softmax`], [`mod@glu`] | rows |
//! | [`mod@cross`], [`distance`], [`singular`] | vectors and small matrices |

pub mod copy;
pub mod cross;
pub mod distance;
pub mod elementwise;
pub mod fold;
pub mod glu;
pub mod norm;
pub mod order;
pub mod pad;
pub mod pool;
pub mod reduce;
pub mod resize;
pub mod sample;
pub mod singular;
pub mod softmax;
pub mod topk;

pub use plutino_convolution as conv;
pub use plutino_convolution::nchwc;
pub use plutino_cpu::{
    Activation, InOut, Isa, PackKey, Par, Pool, activation, extent, for_floats, for_numbers,
    for_ordered, for_types, halves, math, number, par, simd, sort, tiles,
};
#[cfg(feature = "fft")]
pub use plutino_fourier::{fft, stft};
#[cfg(feature = "linalg")]
pub use plutino_linalg as linalg;
pub use plutino_products::{attention, gemm, recurrent};

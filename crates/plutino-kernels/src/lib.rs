//! CPU kernels of the plutino inference engine.
//!
//! Kernels work on plain slices and sizes: they know neither graphs nor operator names. Every
//! kernel has a naive counterpart in [`mod@reference`] that its tests compare against.
//!
//! - [`simd`]: instruction sets found at run time, and the vector operations kernels are written
//!   in.
//! - [`attention`]: scaled dot-product attention.
//! - [`copy`]: moving elements of any dtype: permute, slice, concatenate, gather, scatter.
//! - [`number`]: the element types, for bodies that serve every dtype.
//! - [`gemm`]: matrix products; [`conv`]: convolutions.
//! - [`pool`], [`resize`], [`norm`], [`mod@softmax`], [`reduce`], [`pad`], [`mod@cross`],
//!   [`distance`], [`mod@glu`], [`mod@topk`]: what their names say.
//! - [`order`]: medians, modes and quantiles; [`singular`]: singular values.
//! - [`sample`]: images between their pixels: grids, boxes, deformed windows; [`mod@fold`]: images
//!   cut into windows and back.
//! - [`fft`]: discrete Fourier transforms; [`stft`]: those of the frames of a signal.
//! - [`recurrent`]: LSTM, GRU and plain recurrent layers.
//! - [`par`]: threads. A [`par::Pool`] per session; inside it a [`par::Par`] handle is passed down.

pub mod activation;
pub mod attention;
pub mod conv;
pub mod copy;
pub mod cross;
pub mod distance;
pub mod elementwise;
pub mod fft;
pub mod fold;
pub mod gemm;
pub mod glu;
mod inout;
pub mod math;
pub mod nchwc;
pub mod norm;
pub mod number;
pub mod order;
pub mod pad;
pub mod par;
pub mod pool;
pub mod recurrent;
pub mod reduce;
pub mod reference;
pub mod resize;
mod row;
pub mod sample;
pub mod simd;
pub mod singular;
pub mod softmax;
pub mod stft;
#[cfg(test)]
mod testkit;
pub mod topk;

pub use activation::Activation;
pub use inout::InOut;
pub use par::{Par, Pool};
pub use simd::Isa;

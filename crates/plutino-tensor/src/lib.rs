//! Tensors of the plutino inference engine: dtypes, shapes, aligned buffers and views.
//!
//! The crate stands alone: it knows neither graphs nor kernels.
//!
//! - [`DType`] names the thirteen element types of PNNX; [`Element`] ties each to a Rust type.
//! - [`Shape`] is a list of dimensions of any rank; [`TensorSpec`] adds dtype and physical
//!   [`Layout`].
//! - [`Tensor`] owns (or shares) a dense, row-major buffer aligned to 64 bytes.
//! - [`TensorView`] and [`TensorViewMut`] borrow memory with strides: permute, slice, reshape,
//!   broadcast without copying; map, zip, pad, cast, compare.
//! - [`npy`] reads and writes NumPy's files (feature `npy`, on by default).
//!
//! ```
//! use plutino_tensor::Tensor;
//! let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])?;
//! let t = x.view().permute(&[1, 0])?.to_tensor()?;
//! assert_eq!(t.as_slice::<f32>()?, &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
//! # Ok::<(), plutino_tensor::TensorError>(())
//! ```
#![deny(unsafe_code)]

pub mod alloc;
mod buffer;
mod combine;
mod compare;
mod convert;
mod create;
mod display;
mod dtype;
mod error;
mod floats;
mod geometry;
#[cfg(feature = "npy")]
pub mod npy;
mod reserve;
mod scope;
mod shape;
mod spec;
pub mod stop;
mod strided;
mod tensor;
mod view;

pub use buffer::{ALIGNMENT, AlignedBuf};
pub use combine::{concat, stack};
pub use compare::{Comparison, Tolerance, Worst};
pub use convert::Convert;
pub use dtype::{DType, Element};
pub use error::TensorError;
pub use floats::{FloatSource, Floats, SourcePart};
pub use half::{bf16, f16};
pub use num_complex::Complex;
pub use reserve::Reserve;
pub use scope::{Entered, Scope};
pub use shape::{MAX_RANK, Shape, Strides};
pub use spec::{Layout, TensorSpec};
pub use tensor::Tensor;
pub use view::{Iter, TensorView, TensorViewMut};

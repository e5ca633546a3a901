//! Resizing of 1 to 3 spatial dimensions: nearest, linear, cubic, with and without antialiasing.
//!
//! Every mode is separable: along each dimension an output is a weighted sum of neighbouring
//! inputs. The [`Taps`] of each dimension are computed when planning, with PyTorch's arithmetic
//! (<https://pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html>); the kernels
//! only apply them:
//!
//! - [`resize_f32`]: weighted sums of f32, vectorised along rows;
//! - [`resize_any`]: the same for any float dtype, in f64;
//! - [`resize_bytes`]: the same for images of bytes, in integers;
//! - [`resize_nearest`]: copies of elements of any size.

mod bytes;
mod nearest;
mod taps;
mod weighted;
mod windows;

pub use bytes::{ResizeBytes, resize_bytes};
pub use nearest::{Nearest, resize_nearest};
pub use taps::{Sampling, Scale, Taps, TapsError};
pub use weighted::{Resize, resize_any, resize_f32};

//! What the kernels of the plutino inference engine are written in.
//!
//! - [`simd`]: instruction sets found at run time, and the vector operations of each.
//! - [`par`]: threads. A [`Pool`] per session; inside it a [`Par`] handle is passed down.
//! - [`number`]: the element types, for bodies that serve every dtype.
//! - [`halves`]: f16 and bf16 as f32, and back.
//! - [`PackKey`]: what tells packed weights apart.
//! - [`sort`]: long lists in order, until somebody asks for an end.
//! - [`extent`]: how many elements sizes ask for, and whether strides give each a place of its own.
//! - [`tiles`]: matrix units, which multiply tiles of bf16, and their emulation.
//! - [`math`], [`activation`]: functions of vectors; [`row`]: one pass over a row.

pub mod activation;
pub mod extent;
pub mod halves;
mod inout;
pub mod math;
pub mod number;
mod pack;
pub mod par;
pub mod row;
pub mod simd;
pub mod sort;
pub mod tiles;

pub use activation::Activation;
pub use inout::InOut;
pub use pack::PackKey;
pub use par::{Par, Pool};
pub use simd::Isa;

//! Moving elements without looking at them: any dtype, by the size of its elements.
//!
//! - [`StridedCopy`]: permute, slice, flip, expand, concatenate, split: whatever is a loop nest
//!   with a stride for the source and one for the destination in each dimension.
//! - [`index`]: what goes where is in a tensor: gather, scatter, embedding, masks.

pub mod index;
mod strided;
mod walk;

pub use strided::{Side, StridedCopy};
pub(crate) use walk::Walk;

/// Why a copy cannot be planned or run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// A stride list has another length than the shape.
    #[error("{found} strides were given for {rank} dimensions")]
    Strides {
        /// Number of dimensions.
        rank: usize,
        /// Number of strides.
        found: usize,
    },
    /// An element size that no dtype has.
    #[error("elements of {size} bytes do not exist: 1, 2, 4, 8 or 16")]
    ElementSize {
        /// Bytes of an element.
        size: usize,
    },
    /// Some index addresses an element before the first one, or sizes exceed the address space.
    #[error("the {side} reaches outside the address space")]
    Outside {
        /// `source` or `destination`.
        side: &'static str,
    },
    /// Two indices write the same element.
    #[error("two elements would be written to the same place")]
    Overlap,
    /// A buffer is shorter than the copy needs.
    #[error("the {side} has {found} bytes, the copy needs {needed}")]
    Short {
        /// `source` or `destination`.
        side: &'static str,
        /// Bytes that the copy reaches.
        needed: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// An index in the data is outside its dimension.
    #[error("index {index} is outside {}..{size}", if *from_end { format!("-{size}") } else { "0".into() })]
    Index {
        /// The index.
        index: i64,
        /// Size of the dimension that it addresses.
        size: usize,
        /// Whether negative indices count from the end.
        from_end: bool,
    },
}

/// Bytes below which a copy stays on one thread: handing out a task costs about as much as this.
const GRAIN: usize = 32 << 10;

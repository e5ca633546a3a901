//! Errors of this crate.

use crate::{DType, Shape};

/// What can be wrong with a tensor operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The tensor holds another element type than the one asked for.
    #[error("the tensor holds {found}, not {expected}")]
    DType {
        /// The dtype that was asked for.
        expected: DType,
        /// The dtype that the tensor has.
        found: DType,
    },
    /// The number of elements does not fit the shape.
    #[error("shape {shape} holds {expected} elements, but {found} were given")]
    Length {
        /// The shape that was asked for.
        shape: Shape,
        /// The number of elements of that shape.
        expected: usize,
        /// The number of elements given.
        found: usize,
    },
    /// The number of elements, or of bytes, exceeds the address space.
    #[error("shape {shape} has more elements than memory can hold")]
    Overflow {
        /// The shape.
        shape: Shape,
    },
    /// Two shapes that cannot be broadcast to each other.
    #[error("shapes {left} and {right} cannot be broadcast")]
    Broadcast {
        /// One shape.
        left: Shape,
        /// The other shape.
        right: Shape,
    },
    /// The shape is not the one that is needed.
    #[error("the tensor has shape {found}, not {expected}")]
    Shape {
        /// The shape that was needed.
        expected: Shape,
        /// The shape that the tensor has.
        found: Shape,
    },
    /// An index outside the shape.
    #[error("index {index:?} does not exist in a tensor of shape {shape}")]
    Index {
        /// The index asked for.
        index: Vec<usize>,
        /// The shape of the tensor.
        shape: Shape,
    },
    /// A dimension number outside `-rank..rank`.
    #[error("dimension {dim} does not exist in a tensor of rank {rank}")]
    Dim {
        /// The dimension asked for.
        dim: i64,
        /// The rank of the tensor.
        rank: usize,
    },
    /// An argument that does not make sense for this tensor.
    #[error("{what}")]
    Invalid {
        /// What was wrong and what would have been right.
        what: String,
    },
    /// More memory is needed than the caller allows; see [`crate::alloc`].
    #[error("{needed} bytes are needed, the memory budget is {budget}")]
    Budget {
        /// Bytes taken so far, and those asked for.
        needed: usize,
        /// Bytes allowed.
        budget: usize,
    },
    /// Memory could not be allocated.
    #[error("{bytes} bytes of memory are not available")]
    OutOfMemory {
        /// The number of bytes asked for.
        bytes: usize,
    },
    /// Values of a [`FloatSource`](crate::FloatSource) cannot be read; whoever reads them knows
    /// why.
    #[error("values {range:?} cannot be read")]
    Unread {
        /// Those that were asked for.
        range: std::ops::Range<usize>,
    },
    /// The caller's limits ended the work: nothing here is a result; see [`crate::stop`].
    #[error("the work was ended by its caller's limits")]
    Stopped,
}

impl TensorError {
    /// An [`TensorError::Invalid`] with this text.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into() }
    }
}

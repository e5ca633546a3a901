//! What is known of a tensor without its data.

use crate::{DType, Shape, TensorError};

/// How the elements of a logically row-major (N, C, spatial...) tensor lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Layout {
    /// Dense and row-major, as PyTorch's contiguous format.
    #[default]
    Plain,
    /// Channels (dimension 1) in blocks: `(N, C, H, W)` lies as `(N, ceil(C/b), H, W, b)`, known as
    /// NCHWc or nChw8c/nChw16c; `(N, C, L)` and `(N, C, D, H, W)` accordingly. Padding channels
    /// hold zeros.
    Blocked {
        /// Channels in a block: 8 for AVX2, 16 for AVX-512.
        block: usize,
    },
    /// The same with each number as the nearest bf16, where all readers take it so: as `(N,
    /// ceil(C/b), H, W, b)` of bf16, known as nChw32c. To those who move elements of the tensor's
    /// dtype, f32, it is `(N, ceil(C/b), H, W, b/2)`: words of two.
    BlockedBf16 {
        /// Channels in a block, twice as many as with f32: 32 for AVX-512.
        block: usize,
    },
    /// Dense and row-major with each number as the nearest bf16, where all readers take it so; the
    /// last dimension is even. To those who move elements of the tensor's dtype, f32, the last
    /// dimension is half as long: words of two.
    PlainBf16,
}

impl Layout {
    /// Channels of a block, and the elements of the dtype's size that they take.
    fn block(self) -> Option<[usize; 2]> {
        match self {
            Self::Plain | Self::PlainBf16 => None,
            Self::Blocked { block } => Some([block, block]),
            Self::BlockedBf16 { block } => Some([block, block / 2]),
        }
    }
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plain => f.pad("plain"),
            Self::PlainBf16 => f.pad("bf16"),
            Self::Blocked { block } => f.pad(&format!("c{block}")),
            Self::BlockedBf16 { block } => f.pad(&format!("c{block}bf16")),
        }
    }
}

/// Dtype, logical shape and physical layout of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorSpec {
    /// Element type.
    pub dtype: DType,
    /// Logical shape, as PyTorch sees it.
    pub shape: Shape,
    /// Physical layout.
    pub layout: Layout,
}

impl TensorSpec {
    /// A plain (dense, row-major) tensor.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> Self {
        Self { dtype, shape: shape.into(), layout: Layout::Plain }
    }

    /// The same tensor in another layout.
    #[must_use]
    pub fn with_layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Whether it may lie in channel blocks: f32, with a batch, channels and one to three spatial
    /// dimensions.
    pub fn may_lie_in_blocks(&self) -> bool {
        self.dtype == DType::F32 && (3..=5).contains(&self.shape.rank())
    }

    /// The dimensions as they lie in memory: those of the shape, or `(N, ceil(C/b), H, W, b)`.
    /// Numbers of bf16 are counted in words of two.
    /// Elementwise kernels broadcast over these as over any shape, if all their inputs are laid out
    /// alike.
    pub fn physical_shape(&self) -> Shape {
        let mut dims = self.shape.clone();
        if let (Some([block, elements]), Some(channels)) = (self.layout.block(), dims.get_mut(1)) {
            *channels = channels.div_ceil(block.max(1));
            dims.push(elements);
        }
        if let (Layout::PlainBf16, Some(last)) = (self.layout, dims.last_mut()) {
            *last = last.div_ceil(2);
        }
        dims
    }

    /// Elements in memory, padding of blocked layouts included, bf16 in words of two; an error
    /// where they exceed memory.
    pub fn storage_len(&self) -> Result<usize, TensorError> {
        let numel = self.shape.checked_numel()?;
        if self.layout == Layout::PlainBf16 {
            return self.physical_shape().checked_numel();
        }
        match (self.layout.block(), self.shape.get(1)) {
            (Some([block, elements]), Some(&c)) if block > 0 && c > 0 => c
                .div_ceil(block)
                .checked_mul(elements)
                .and_then(|padded| (numel / c).checked_mul(padded))
                .ok_or_else(|| TensorError::Overflow { shape: self.shape.clone() }),
            _ => Ok(numel),
        }
    }

    /// Bytes in memory; an error where they exceed memory.
    pub fn storage_bytes(&self) -> Result<usize, TensorError> {
        self.storage_len()?
            .checked_mul(self.dtype.size_of())
            .filter(|&n| isize::try_from(n).is_ok())
            .ok_or_else(|| TensorError::Overflow { shape: self.shape.clone() })
    }
}

impl std::fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.shape, self.dtype)?;
        match self.layout {
            Layout::Plain => Ok(()),
            blocked => write!(f, ":{blocked}"),
        }
    }
}

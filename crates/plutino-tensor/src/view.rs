//! Borrowed, strided tensors.

use crate::{DType, Element, Shape, Strides, Tensor, TensorError, TensorSpec};

/// Reads bytes as elements, where dtype, length and alignment allow it.
pub(crate) fn cast<T: Element>(bytes: &[u8], dtype: DType) -> Result<&[T], TensorError> {
    if T::DTYPE != dtype {
        return Err(TensorError::DType { expected: T::DTYPE, found: dtype });
    }
    bytemuck::checked::try_cast_slice(bytes)
        .map_err(|e| TensorError::invalid(format!("bytes are not {dtype} elements: {e}")))
}

/// Reads bytes as mutable elements, where dtype, length and alignment allow it.
pub(crate) fn cast_mut<T: Element>(
    bytes: &mut [u8],
    dtype: DType,
) -> Result<&mut [T], TensorError> {
    if T::DTYPE != dtype {
        return Err(TensorError::DType { expected: T::DTYPE, found: dtype });
    }
    bytemuck::checked::try_cast_slice_mut(bytes)
        .map_err(|e| TensorError::invalid(format!("bytes are not {dtype} elements: {e}")))
}

/// A borrowed tensor: bytes, dtype, shape and strides. Cheap to permute, slice, reshape, broadcast.
///
/// Invariant: every index inside `shape` addresses an element inside `data`.
#[derive(Clone)]
pub struct TensorView<'a> {
    dtype: DType,
    shape: Shape,
    strides: Strides,
    /// Position of element (0, 0, ...), in elements.
    offset: usize,
    data: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// A dense view. `data` holds exactly the elements of `shape` (callers inside this crate check).
    pub(crate) fn dense(dtype: DType, shape: Shape, data: &'a [u8]) -> Self {
        let strides = shape.dense_strides();
        Self { dtype, shape, strides, offset: 0, data }
    }

    /// A dense view of raw bytes.
    ///
    /// # Errors
    /// Where the number of bytes does not fit shape and dtype.
    pub fn from_bytes(
        dtype: DType,
        shape: impl Into<Shape>,
        data: &'a [u8],
    ) -> Result<Self, TensorError> {
        let shape = shape.into();
        if crate::buffer::byte_len(&shape, dtype.size_of())? != data.len() {
            let expected = shape.checked_numel()?;
            let found = data.len() / dtype.size_of();
            return Err(TensorError::Length { shape, expected, found });
        }
        Ok(Self::dense(dtype, shape, data))
    }

    /// A dense view of a slice.
    ///
    /// # Errors
    /// Where `shape` does not hold exactly `values.len()` elements.
    pub fn from_slice<T: Element>(
        values: &'a [T],
        shape: impl Into<Shape>,
    ) -> Result<Self, TensorError> {
        Self::from_bytes(T::DTYPE, shape, bytemuck::cast_slice(values))
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Strides in elements.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.shape.numel()
    }

    /// Dtype and shape.
    pub fn spec(&self) -> TensorSpec {
        TensorSpec::new(self.dtype, self.shape.clone())
    }

    /// Whether the elements lie one after the other in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let dense = self.shape.dense_strides();
        self.numel() == 0
            || self
                .shape
                .iter()
                .zip(self.strides.iter().zip(&dense))
                .all(|(&d, (s, t))| d == 1 || s == t)
    }

    /// The elements as one slice, where they are contiguous.
    ///
    /// # Errors
    /// Where the dtype is another, or the view is not contiguous.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T], TensorError> {
        if !self.is_contiguous() {
            return Err(TensorError::invalid("the view is not contiguous: call to_tensor() first"));
        }
        let size = self.dtype.size_of();
        let bytes = self
            .data
            .get(self.offset * size..(self.offset + self.numel()) * size)
            .ok_or_else(|| TensorError::invalid("the view lies outside its data"))?;
        cast(bytes, self.dtype)
    }

    /// The same elements with dimensions in another order: result dimension `i` is dimension
    /// `dims[i]` of this view.
    ///
    /// # Errors
    /// Where `dims` is not a permutation of `0..rank`.
    pub fn permute(&self, dims: &[usize]) -> Result<Self, TensorError> {
        let rank = self.shape.rank();
        let mut seen = vec![false; rank];
        let fits = dims.len() == rank
            && dims.iter().all(|&d| d < rank && !std::mem::replace(&mut seen[d], true));
        if !fits {
            return Err(TensorError::invalid(format!(
                "{dims:?} is not a permutation of the {rank} dimensions"
            )));
        }
        Ok(Self {
            dtype: self.dtype,
            shape: dims.iter().map(|&d| self.shape[d]).collect(),
            strides: dims.iter().map(|&d| self.strides[d]).collect(),
            offset: self.offset,
            data: self.data,
        })
    }

    /// A dense copy, row-major.
    pub fn to_tensor(&self) -> Tensor {
        todo!("strided copy")
    }
}

/// A borrowed tensor for writing: dense, row-major.
pub struct TensorViewMut<'a> {
    dtype: DType,
    shape: Shape,
    data: &'a mut [u8],
}

impl<'a> TensorViewMut<'a> {
    pub(crate) fn dense(dtype: DType, shape: Shape, data: &'a mut [u8]) -> Self {
        Self { dtype, shape, data }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The elements.
    ///
    /// # Errors
    /// Where the dtype is another.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], TensorError> {
        cast_mut(self.data, self.dtype)
    }
}

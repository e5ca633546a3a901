//! Owned tensors.

use crate::buffer::byte_len;
use crate::{
    AlignedBuf, DType, Element, Shape, TensorError, TensorSpec, TensorView, TensorViewMut,
};
use std::sync::Arc;

/// A dense, row-major tensor. Cloning shares the buffer; writing to a shared one copies it first.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Shape,
    data: Arc<AlignedBuf>,
}

impl Tensor {
    /// A tensor of zeros (false for bool).
    ///
    /// # Errors
    /// Where shape x element size exceeds memory.
    pub fn zeros(dtype: DType, shape: impl Into<Shape>) -> Result<Self, TensorError> {
        let shape = shape.into();
        let data = AlignedBuf::zeroed(byte_len(&shape, dtype.size_of())?)?;
        Ok(Self { dtype, shape, data: Arc::new(data) })
    }

    /// A tensor with a copy of `values`, row-major.
    ///
    /// # Errors
    /// Where `shape` does not hold exactly `values.len()` elements.
    pub fn from_slice<T: Element>(
        values: &[T],
        shape: impl Into<Shape>,
    ) -> Result<Self, TensorError> {
        let shape = shape.into();
        let expected = shape.checked_numel()?;
        if expected != values.len() {
            return Err(TensorError::Length { shape, expected, found: values.len() });
        }
        let data = AlignedBuf::copy_of(bytemuck::cast_slice(values))?;
        Ok(Self { dtype: T::DTYPE, shape, data: Arc::new(data) })
    }

    /// A tensor in a buffer of its size.
    pub(crate) fn of_buffer(spec: TensorSpec, buf: AlignedBuf) -> Self {
        debug_assert_eq!(byte_len(&spec.shape, spec.dtype.size_of()).ok(), Some(buf.len()));
        Self { dtype: spec.dtype, shape: spec.shape, data: Arc::new(buf) }
    }

    /// A rank-0 tensor.
    ///
    /// # Errors
    /// Where no memory is left.
    pub fn scalar<T: Element>(value: T) -> Result<Self, TensorError> {
        Self::from_slice(&[value], Shape::scalar())
    }

    /// A tensor with a copy of raw little-endian bytes. Bytes of a bool tensor must be 0 or 1.
    ///
    /// # Errors
    /// Where the number of bytes does not fit, or a bool is neither 0 nor 1.
    pub fn from_bytes(
        dtype: DType,
        shape: impl Into<Shape>,
        bytes: &[u8],
    ) -> Result<Self, TensorError> {
        let shape = shape.into();
        if byte_len(&shape, dtype.size_of())? != bytes.len() {
            let expected = shape.checked_numel()?;
            let found = bytes.len() / dtype.size_of();
            return Err(TensorError::Length { shape, expected, found });
        }
        if dtype == DType::Bool && bytes.iter().any(|&b| b > 1) {
            return Err(TensorError::invalid("a byte of a bool tensor is neither 0 nor 1"));
        }
        Ok(Self { dtype, shape, data: Arc::new(AlignedBuf::copy_of(bytes)?) })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.shape.numel()
    }

    /// Dtype and shape.
    pub fn spec(&self) -> TensorSpec {
        TensorSpec::new(self.dtype, self.shape.clone())
    }

    /// The elements, row-major.
    ///
    /// # Errors
    /// Where the tensor holds another dtype.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], TensorError> {
        crate::view::cast(self.data.as_bytes(), self.dtype)
    }

    /// The elements for writing; copies them first where they are shared.
    ///
    /// # Errors
    /// Where the tensor holds another dtype, or no memory is left for the copy.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], TensorError> {
        let dtype = self.dtype;
        crate::view::cast_mut(self.as_mut_bytes()?, dtype)
    }

    /// The raw bytes, row-major, little-endian.
    pub fn as_bytes(&self) -> &[u8] {
        self.data.as_bytes()
    }

    /// The raw bytes for writing; copies them first where they are shared. A byte of a bool tensor
    /// that is written as neither 0 nor 1 makes later typed reads fail, never misbehave.
    ///
    /// # Errors
    /// Where no memory is left for the copy.
    pub fn as_mut_bytes(&mut self) -> Result<&mut [u8], TensorError> {
        if Arc::get_mut(&mut self.data).is_none() {
            self.data = Arc::new(AlignedBuf::copy_of(self.data.as_bytes())?);
        }
        match Arc::get_mut(&mut self.data) {
            Some(buf) => Ok(buf.as_mut_bytes()),
            None => Err(TensorError::invalid("the buffer is shared")), // unreachable: just made unique
        }
    }

    /// A borrowed view of the whole tensor.
    pub fn view(&self) -> TensorView<'_> {
        TensorView::dense(self.dtype, self.shape.clone(), self.data.as_bytes())
    }

    /// A borrowed view for writing; copies the buffer first where it is shared.
    ///
    /// # Errors
    /// Where no memory is left for the copy.
    pub fn view_mut(&mut self) -> Result<TensorViewMut<'_>, TensorError> {
        let (dtype, shape) = (self.dtype, self.shape.clone());
        Ok(TensorViewMut::dense(dtype, shape, self.as_mut_bytes()?))
    }

    /// The same elements in another shape; shares the buffer.
    ///
    /// # Errors
    /// Where the numbers of elements differ.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self, TensorError> {
        let shape = shape.into();
        let expected = shape.checked_numel()?;
        if expected != self.numel() {
            return Err(TensorError::Length { shape, expected, found: self.numel() });
        }
        Ok(Self { dtype: self.dtype, shape, data: Arc::clone(&self.data) })
    }

    /// The element at `index`.
    ///
    /// # Errors
    /// Where the tensor holds another dtype, or the index lies outside the shape.
    pub fn get<T: Element>(&self, index: &[usize]) -> Result<T, TensorError> {
        self.view().get(index)
    }

    /// The elements in another dtype, as [`crate::Convert`] says; shares the buffer where it is the
    /// same.
    ///
    /// # Errors
    /// Where no memory is left.
    pub fn cast(&self, dtype: DType) -> Result<Self, TensorError> {
        if dtype == self.dtype { Ok(self.clone()) } else { self.view().cast(dtype) }
    }
}

impl PartialEq for Tensor {
    /// Same dtype, same shape, same bits.
    fn eq(&self, other: &Self) -> bool {
        self.dtype == other.dtype
            && self.shape == other.shape
            && self.as_bytes() == other.as_bytes()
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor{}", self.spec())
    }
}

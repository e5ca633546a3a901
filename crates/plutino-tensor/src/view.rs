//! Borrowed, strided tensors.

use crate::buffer::byte_len;
use crate::geometry::{Geometry, Positions};
use crate::{DType, Element, Shape, Tensor, TensorError, TensorSpec, strided};
use std::marker::PhantomData;
use std::ops::Range;

/// Reads bytes as elements, where dtype, length and alignment allow it.
pub(crate) fn cast<T: Element>(bytes: &[u8], dtype: DType) -> Result<&[T], TensorError> {
    expect_dtype::<T>(dtype)?;
    if bytes.is_empty() {
        return Ok(&[]); // an empty slice may lie anywhere, also unaligned
    }
    T::of_bytes(bytes)
        .map_err(|e| TensorError::invalid(format!("bytes are not {dtype} elements: {e}")))
}

/// Reads bytes as mutable elements, where dtype, length and alignment allow it.
pub(crate) fn cast_mut<T: Element>(
    bytes: &mut [u8],
    dtype: DType,
) -> Result<&mut [T], TensorError> {
    expect_dtype::<T>(dtype)?;
    if bytes.is_empty() {
        return Ok(&mut []);
    }
    T::of_bytes_mut(bytes)
        .map_err(|e| TensorError::invalid(format!("bytes are not {dtype} elements: {e}")))
}

pub(crate) fn expect_dtype<T: Element>(found: DType) -> Result<(), TensorError> {
    if T::DTYPE == found { Ok(()) } else { Err(TensorError::DType { expected: T::DTYPE, found }) }
}

fn not_contiguous(shape: &Shape) -> TensorError {
    TensorError::invalid(format!(
        "the view of shape {shape} is not contiguous: call to_tensor() first"
    ))
}

/// A borrowed tensor: bytes, dtype, shape and strides. Cheap to permute, slice, reshape, broadcast:
/// none of these moves an element.
///
/// Dimensions are counted from 0; [`Shape::dim`] resolves PyTorch's negative ones.
///
/// Invariant: every index inside the shape addresses an element inside the data.
///
/// ```
/// use plutino_tensor::{Tensor, TensorView};
/// let x = [0i32, 1, 2, 3, 4, 5, 6, 7];
/// let x = TensorView::from_slice(&x, [2, 4])?;
/// let odd = x.slice(1, 1..4, 2)?.transpose(0, 1)?;
/// assert_eq!(odd.to_tensor()?, Tensor::from_slice(&[1, 5, 3, 7], [2, 2])?);
/// # Ok::<(), plutino_tensor::TensorError>(())
/// ```
#[derive(Clone)]
pub struct TensorView<'a> {
    dtype: DType,
    geometry: Geometry,
    data: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// A dense view. `data` holds exactly the elements of `shape` (callers inside this crate
    /// check).
    pub(crate) fn dense(dtype: DType, shape: Shape, data: &'a [u8]) -> Self {
        Self { dtype, geometry: Geometry::dense(shape), data }
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
        if byte_len(&shape, dtype.size_of())? != data.len() {
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

    /// A view of `data` whose element (i, j, ...) lies at element `offset + i * strides[0] + j *
    /// strides[1] + ...`.
    ///
    /// # Errors
    /// Where an index inside `shape` would address an element outside `data`.
    pub fn from_strided(
        dtype: DType,
        shape: impl Into<Shape>,
        strides: &[isize],
        offset: usize,
        data: &'a [u8],
    ) -> Result<Self, TensorError> {
        let len = data.len() / dtype.size_of();
        Ok(Self { dtype, geometry: Geometry::checked(shape.into(), strides, offset, len)?, data })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape.
    pub fn shape(&self) -> &Shape {
        &self.geometry.shape
    }

    /// Strides in elements.
    pub fn strides(&self) -> &[isize] {
        &self.geometry.strides
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.geometry.shape.numel()
    }

    /// Dtype and shape.
    pub fn spec(&self) -> TensorSpec {
        TensorSpec::new(self.dtype, self.shape().clone())
    }

    /// Whether the elements lie one after the other in row-major order.
    pub fn is_contiguous(&self) -> bool {
        self.geometry.is_contiguous()
    }

    /// The raw bytes of the elements, where they are contiguous.
    ///
    /// # Errors
    /// Where the view is not contiguous.
    pub fn as_bytes(&self) -> Result<&'a [u8], TensorError> {
        if !self.is_contiguous() {
            return Err(not_contiguous(self.shape()));
        }
        let (start, size) = (self.geometry.offset, self.dtype.size_of());
        match self.numel() {
            0 => Ok(&[]),
            n => Ok(&self.data[start * size..(start + n) * size]),
        }
    }

    /// The elements as one slice, where they are contiguous.
    ///
    /// # Errors
    /// Where the dtype is another, or the view is not contiguous.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T], TensorError> {
        expect_dtype::<T>(self.dtype)?;
        cast(self.as_bytes()?, self.dtype)
    }

    /// The element at `index`.
    ///
    /// # Errors
    /// Where the dtype is another, or the index lies outside the shape.
    pub fn get<T: Element>(&self, index: &[usize]) -> Result<T, TensorError> {
        expect_dtype::<T>(self.dtype)?;
        read(self.data, self.geometry.position(index)?)
    }

    /// All elements in row-major order, whatever the strides.
    ///
    /// # Errors
    /// Where the dtype is another, or a byte of a bool tensor is neither 0 nor 1.
    pub fn iter<T: Element>(&self) -> Result<Iter<'a, T>, TensorError> {
        expect_dtype::<T>(self.dtype)?;
        if self.dtype == DType::Bool && self.data.iter().any(|&b| b > 1) {
            return Err(TensorError::invalid("a byte of a bool tensor is neither 0 nor 1"));
        }
        Ok(Iter { positions: self.geometry.positions(), data: self.data, element: PhantomData })
    }

    fn with(&self, geometry: Geometry) -> Self {
        Self { dtype: self.dtype, geometry, data: self.data }
    }

    /// The same elements with dimensions in another order: result dimension `i` is dimension
    /// `dims[i]` of this view.
    ///
    /// # Errors
    /// Where `dims` is not a permutation of `0..rank`.
    pub fn permute(&self, dims: &[usize]) -> Result<Self, TensorError> {
        Ok(self.with(self.geometry.permute(dims)?))
    }

    /// Swaps two dimensions.
    ///
    /// # Errors
    /// Where one of them does not exist.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Self, TensorError> {
        Ok(self.with(self.geometry.transpose(a, b)?))
    }

    /// Every `step`-th element of `range` along one dimension.
    ///
    /// # Errors
    /// Where the range does not lie inside the dimension, or `step` is zero.
    pub fn slice(&self, dim: usize, range: Range<usize>, step: usize) -> Result<Self, TensorError> {
        Ok(self.with(self.geometry.slice(dim, range, step)?))
    }

    /// `len` elements from `start` on along one dimension.
    ///
    /// # Errors
    /// Where they do not lie inside the dimension.
    pub fn narrow(&self, dim: usize, start: usize, len: usize) -> Result<Self, TensorError> {
        self.slice(dim, start..start.saturating_add(len), 1)
    }

    /// One index of a dimension; the dimension goes away.
    ///
    /// # Errors
    /// Where dimension or index do not exist.
    pub fn select(&self, dim: usize, index: usize) -> Result<Self, TensorError> {
        Ok(self.with(self.geometry.select(dim, index)?))
    }

    /// One dimension back to front.
    ///
    /// # Errors
    /// Where the dimension does not exist.
    pub fn flip(&self, dim: usize) -> Result<Self, TensorError> {
        Ok(self.with(self.geometry.flip(dim)?))
    }

    /// Inserts a dimension of size 1 before dimension `dim` (at most the rank).
    ///
    /// # Errors
    /// Where `dim` exceeds the rank.
    pub fn unsqueeze(&self, dim: usize) -> Result<Self, TensorError> {
        Ok(self.with(self.geometry.unsqueeze(dim)?))
    }

    /// Removes dimension `dim` if its size is 1, as PyTorch does.
    ///
    /// # Errors
    /// Where the dimension does not exist.
    pub fn squeeze(&self, dim: usize) -> Result<Self, TensorError> {
        Ok(self.with(self.geometry.squeeze(dim)?))
    }

    /// Repeats dimensions of size 1, and new leading ones, without copying (PyTorch's `expand`).
    ///
    /// # Errors
    /// Where the shape does not broadcast to `shape`.
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Result<Self, TensorError> {
        Ok(self.with(self.geometry.broadcast_to(&shape.into())?))
    }

    /// The same elements in another shape.
    ///
    /// # Errors
    /// Where the numbers of elements differ, or strides cannot express the shape (then
    /// [`TensorView::to_tensor`] and [`Tensor::reshape`] do it).
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self, TensorError> {
        Ok(self.with(self.geometry.reshape(&shape.into())?))
    }

    /// A dense copy, row-major.
    ///
    /// # Errors
    /// Where no memory is left, as a broadcast view can be of any size.
    pub fn to_tensor(&self) -> Result<Tensor, TensorError> {
        let mut out = Tensor::zeros(self.dtype, self.shape().clone())?;
        out.view_mut()?.copy_from(self)?;
        Ok(out)
    }
}

impl std::fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TensorView{} strides {:?}", self.spec(), self.strides())
    }
}

/// Reads element number `at`.
fn read<T: Element>(data: &[u8], at: usize) -> Result<T, TensorError> {
    let size = size_of::<T>();
    bytemuck::checked::try_pod_read_unaligned(&data[at * size..][..size])
        .map_err(|e| TensorError::invalid(format!("element {at} is not a {}: {e}", T::DTYPE)))
}

/// The elements of a view, row-major. Made by [`TensorView::iter`].
#[derive(Debug, Clone)]
pub struct Iter<'a, T> {
    positions: Positions,
    data: &'a [u8],
    element: PhantomData<T>,
}

impl<T: Element> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        // The one bit pattern that can be invalid, a bool's, was checked in `TensorView::iter`.
        self.positions.next().map(|at| read(self.data, at).unwrap_or_default())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.positions.size_hint()
    }
}

impl<T: Element> ExactSizeIterator for Iter<'_, T> {}

/// A borrowed, strided tensor for writing. Two indices never address the same element.
///
/// ```
/// use plutino_tensor::{DType, Tensor, TensorView};
/// let mut x = Tensor::zeros(DType::F32, [2, 3])?;
/// let column = TensorView::from_slice(&[1.0f32, 2.0], [2])?;
/// x.view_mut()?.select(1, 2)?.copy_from(&column)?;
/// assert_eq!(x.as_slice::<f32>()?, &[0.0, 0.0, 1.0, 0.0, 0.0, 2.0]);
/// # Ok::<(), plutino_tensor::TensorError>(())
/// ```
pub struct TensorViewMut<'a> {
    dtype: DType,
    geometry: Geometry,
    data: &'a mut [u8],
}

impl<'a> TensorViewMut<'a> {
    pub(crate) fn dense(dtype: DType, shape: Shape, data: &'a mut [u8]) -> Self {
        Self { dtype, geometry: Geometry::dense(shape), data }
    }

    /// A dense view of raw bytes.
    ///
    /// # Errors
    /// Where the number of bytes does not fit shape and dtype.
    pub fn from_bytes(
        dtype: DType,
        shape: impl Into<Shape>,
        data: &'a mut [u8],
    ) -> Result<Self, TensorError> {
        let shape = TensorView::from_bytes(dtype, shape, data)?.geometry.shape;
        Ok(Self::dense(dtype, shape, data))
    }

    /// A dense view of a slice.
    ///
    /// # Errors
    /// Where `shape` does not hold exactly `values.len()` elements.
    pub fn from_slice<T: Element + bytemuck::AnyBitPattern>(
        values: &'a mut [T],
        shape: impl Into<Shape>,
    ) -> Result<Self, TensorError> {
        Self::from_bytes(T::DTYPE, shape, bytemuck::cast_slice_mut(values))
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape.
    pub fn shape(&self) -> &Shape {
        &self.geometry.shape
    }

    /// Strides in elements.
    pub fn strides(&self) -> &[isize] {
        &self.geometry.strides
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.geometry.shape.numel()
    }

    /// Whether the elements lie one after the other in row-major order.
    pub fn is_contiguous(&self) -> bool {
        self.geometry.is_contiguous()
    }

    /// The same elements, for reading.
    pub fn as_view(&self) -> TensorView<'_> {
        TensorView { dtype: self.dtype, geometry: self.geometry.clone(), data: self.data }
    }

    /// The same elements, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> TensorViewMut<'_> {
        TensorViewMut { dtype: self.dtype, geometry: self.geometry.clone(), data: self.data }
    }

    /// The raw bytes, where they are contiguous. A byte of a bool tensor that is written as neither
    /// 0 nor 1 makes later typed reads fail, never misbehave.
    ///
    /// # Errors
    /// Where the view is not contiguous.
    pub fn as_mut_bytes(&mut self) -> Result<&mut [u8], TensorError> {
        if !self.is_contiguous() {
            return Err(not_contiguous(self.shape()));
        }
        let (start, size) = (self.geometry.offset, self.dtype.size_of());
        match self.numel() {
            0 => Ok(&mut []),
            n => Ok(&mut self.data[start * size..(start + n) * size]),
        }
    }

    /// The elements, where they are contiguous.
    ///
    /// # Errors
    /// Where the dtype is another, or the view is not contiguous.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], TensorError> {
        let dtype = self.dtype;
        expect_dtype::<T>(dtype)?;
        cast_mut(self.as_mut_bytes()?, dtype)
    }

    /// Writes one element.
    ///
    /// # Errors
    /// Where the dtype is another, or the index lies outside the shape.
    pub fn set<T: Element>(&mut self, index: &[usize], value: T) -> Result<(), TensorError> {
        expect_dtype::<T>(self.dtype)?;
        let at = self.geometry.position(index)? * size_of::<T>();
        self.data[at..at + size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
        Ok(())
    }

    /// Writes one value to every element.
    ///
    /// # Errors
    /// Where the dtype is another.
    pub fn fill<T: Element>(&mut self, value: T) -> Result<(), TensorError> {
        expect_dtype::<T>(self.dtype)?;
        let one = [value];
        let one = TensorView::from_slice(&one, Shape::scalar())?;
        self.copy_from(&one.broadcast_to(self.shape().clone())?)
    }

    /// Copies every element of `src`.
    ///
    /// # Errors
    /// Where dtype or shape differ ([`TensorView::broadcast_to`] makes shapes equal).
    pub fn copy_from(&mut self, src: &TensorView<'_>) -> Result<(), TensorError> {
        if src.dtype != self.dtype {
            return Err(TensorError::DType { expected: self.dtype, found: src.dtype });
        }
        if src.shape() != self.shape() {
            let (expected, found) = (self.shape().clone(), src.shape().clone());
            return Err(TensorError::Shape { expected, found });
        }
        let size = self.dtype.size_of();
        strided::copy(&src.geometry, src.data, &self.geometry, self.data, size);
        Ok(())
    }

    fn with(self, geometry: Geometry) -> Self {
        Self { geometry, ..self }
    }

    /// As [`TensorView::permute`].
    ///
    /// # Errors
    /// Where `dims` is not a permutation of `0..rank`.
    pub fn permute(self, dims: &[usize]) -> Result<Self, TensorError> {
        let geometry = self.geometry.permute(dims)?;
        Ok(self.with(geometry))
    }

    /// As [`TensorView::transpose`].
    ///
    /// # Errors
    /// Where one of the dimensions does not exist.
    pub fn transpose(self, a: usize, b: usize) -> Result<Self, TensorError> {
        let geometry = self.geometry.transpose(a, b)?;
        Ok(self.with(geometry))
    }

    /// As [`TensorView::slice`].
    ///
    /// # Errors
    /// Where the range does not lie inside the dimension, or `step` is zero.
    pub fn slice(self, dim: usize, range: Range<usize>, step: usize) -> Result<Self, TensorError> {
        let geometry = self.geometry.slice(dim, range, step)?;
        Ok(self.with(geometry))
    }

    /// As [`TensorView::narrow`].
    ///
    /// # Errors
    /// Where the elements do not lie inside the dimension.
    pub fn narrow(self, dim: usize, start: usize, len: usize) -> Result<Self, TensorError> {
        self.slice(dim, start..start.saturating_add(len), 1)
    }

    /// As [`TensorView::select`].
    ///
    /// # Errors
    /// Where dimension or index do not exist.
    pub fn select(self, dim: usize, index: usize) -> Result<Self, TensorError> {
        let geometry = self.geometry.select(dim, index)?;
        Ok(self.with(geometry))
    }

    /// As [`TensorView::reshape`].
    ///
    /// # Errors
    /// Where the numbers of elements differ, or strides cannot express the shape.
    pub fn reshape(self, shape: impl Into<Shape>) -> Result<Self, TensorError> {
        let geometry = self.geometry.reshape(&shape.into())?;
        Ok(self.with(geometry))
    }
}

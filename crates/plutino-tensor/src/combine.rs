//! New tensors from the elements of others: map, zip, pad, concat, stack.

use crate::{Element, Shape, Tensor, TensorError, TensorView};

impl TensorView<'_> {
    /// Applies `f` to every element.
    ///
    /// # Errors
    /// Where `T` is not the dtype, or no memory is left.
    pub fn map<T: Element, U: Element>(
        &self,
        mut f: impl FnMut(T) -> U,
    ) -> Result<Tensor, TensorError> {
        let mut out = Tensor::zeros(U::DTYPE, self.shape().clone())?;
        let to = out.as_mut_slice::<U>()?.iter_mut();
        match self.as_slice::<T>() {
            Ok(from) => to.zip(from).for_each(|(to, &x)| *to = f(x)),
            Err(_) => to.zip(self.iter::<T>()?).for_each(|(to, x)| *to = f(x)),
        }
        Ok(out)
    }

    /// Applies `f` to every pair of elements; shapes broadcast.
    ///
    /// # Errors
    /// Where `A` or `B` are not the dtypes, shapes do not broadcast, or no memory is left.
    pub fn zip<A: Element, B: Element, U: Element>(
        &self,
        other: &TensorView<'_>,
        mut f: impl FnMut(A, B) -> U,
    ) -> Result<Tensor, TensorError> {
        let shape = self.shape().broadcast(other.shape())?;
        let a = self.broadcast_to(shape.clone())?;
        let b = other.broadcast_to(shape.clone())?;
        let pairs = a.iter::<A>()?.zip(b.iter::<B>()?);
        let mut out = Tensor::zeros(U::DTYPE, shape)?;
        out.as_mut_slice::<U>()?.iter_mut().zip(pairs).for_each(|(to, (a, b))| *to = f(a, b));
        Ok(out)
    }

    /// Puts `before` and `after` elements of `value` around each dimension.
    ///
    /// # Errors
    /// Where `T` is not the dtype, `pads` has not one pair for each dimension, or the result
    /// exceeds memory.
    pub fn pad<T: Element>(
        &self,
        pads: &[(usize, usize)],
        value: T,
    ) -> Result<Tensor, TensorError> {
        crate::view::expect_dtype::<T>(self.dtype())?;
        if pads.len() != self.shape().rank() {
            return Err(TensorError::invalid(format!(
                "{} pairs of padding were given for the {} dimensions of {}",
                pads.len(),
                self.shape().rank(),
                self.shape()
            )));
        }
        let dims = self.shape().iter().zip(pads);
        let padded = dims.map(|(&d, &(before, after))| d.checked_add(before)?.checked_add(after));
        let padded: Option<Vec<usize>> = padded.collect();
        let overflow = || TensorError::Overflow { shape: self.shape().clone() };
        let mut out = Tensor::full(padded.ok_or_else(overflow)?, value)?;
        let mut inner = out.view_mut()?;
        for (dim, (&d, &(before, _))) in self.shape().iter().zip(pads).enumerate() {
            inner = inner.narrow(dim, before, d)?;
        }
        inner.copy_from(self)?;
        Ok(out)
    }
}

/// Joins tensors along dimension `dim`; all other dimensions, and the dtypes, are equal.
///
/// ```
/// use plutino_tensor::{Tensor, concat};
/// let a = Tensor::from_slice(&[1, 2, 3, 4], [2, 2])?;
/// let b = Tensor::from_slice(&[5, 6], [2, 1])?;
/// let joined = concat(&[a.view(), b.view()], 1)?;
/// assert_eq!(joined, Tensor::from_slice(&[1, 2, 5, 3, 4, 6], [2, 3])?);
/// # Ok::<(), plutino_tensor::TensorError>(())
/// ```
///
/// # Errors
/// Where there is no tensor, dtypes or shapes do not fit, or the result exceeds memory.
pub fn concat(parts: &[TensorView<'_>], dim: usize) -> Result<Tensor, TensorError> {
    let first = parts.first().ok_or_else(|| TensorError::invalid("concat of no tensor"))?;
    let mut shape = first.shape().clone();
    let rank = shape.rank();
    if dim >= rank {
        return Err(TensorError::Dim { dim: dim as i64, rank });
    }
    let sizes = parts.iter().map(|p| p.shape().get(dim).copied().unwrap_or(0));
    let total = sizes.into_iter().try_fold(0usize, usize::checked_add);
    shape[dim] = total.ok_or_else(|| TensorError::Overflow { shape: first.shape().clone() })?;
    let mut out = Tensor::zeros(first.dtype(), shape)?;
    let mut to = out.view_mut()?;
    let mut start = 0;
    for part in parts {
        let len = part.shape().get(dim).copied().unwrap_or(0);
        to.reborrow().narrow(dim, start, len)?.copy_from(part)?;
        start += len;
    }
    Ok(out)
}

/// Joins tensors of one shape along a new dimension `dim`.
///
/// # Errors
/// Where there is no tensor, dtypes or shapes differ, `dim` exceeds the rank, or the result exceeds
/// memory.
pub fn stack(parts: &[TensorView<'_>], dim: usize) -> Result<Tensor, TensorError> {
    let parts: Result<Vec<_>, _> = parts.iter().map(|p| p.unsqueeze(dim)).collect();
    concat(&parts?, dim)
}

impl Tensor {
    /// Joins the dimensions `start..=end` to one; shares the buffer.
    ///
    /// # Errors
    /// Where the dimensions do not exist, or `start` comes after `end`.
    pub fn flatten(&self, start: usize, end: usize) -> Result<Self, TensorError> {
        let rank = self.shape().rank();
        if rank == 0 && (start, end) == (0, 0) {
            return self.reshape([1]);
        }
        if start > end || end >= rank {
            return Err(TensorError::invalid(format!(
                "dimensions {start} to {end} do not exist in {}",
                self.shape()
            )));
        }
        let mut dims: Vec<usize> = self.shape().to_vec();
        dims.splice(start..=end, [self.shape().product(start..end + 1)]);
        self.reshape(Shape::from(dims))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn iota(dims: &[usize]) -> Tensor {
        Tensor::from_fn(dims, |i| i as i32).unwrap()
    }

    #[test]
    fn map_and_zip() {
        let x = iota(&[2, 3]);
        let t = x.view().transpose(0, 1).unwrap();
        let doubled = t.map(|v: i32| f64::from(v) * 2.0).unwrap();
        assert_eq!(doubled.as_slice::<f64>().unwrap(), [0.0, 6.0, 2.0, 8.0, 4.0, 10.0]);
        let row = Tensor::from_slice(&[true, false, true], [3]).unwrap();
        let masked = x.view().zip(&row.view(), |v: i32, m: bool| if m { v } else { -1 }).unwrap();
        assert_eq!(masked.as_slice::<i32>().unwrap(), [0, -1, 2, 3, -1, 5]);
        assert!(x.view().map(|v: f32| v).is_err());
        assert!(x.view().zip(&iota(&[2]).view(), |a: i32, b: i32| a + b).is_err());
    }

    #[test]
    fn padding() {
        let x = iota(&[1, 2]);
        let p = x.view().pad(&[(1, 0), (0, 2)], 9).unwrap();
        assert_eq!(p, Tensor::from_slice(&[9, 9, 9, 9, 0, 1, 9, 9], [2, 4]).unwrap());
        assert!(x.view().pad(&[(1, 0)], 9).is_err());
        assert!(x.view().pad(&[(usize::MAX, 0), (0, 0)], 9).is_err());
        assert!(x.view().pad(&[(1, 0), (0, 0)], 9i64).is_err());
    }

    #[test]
    fn joining() {
        let (a, b) = (iota(&[2, 2]), iota(&[2, 2]));
        let s = stack(&[a.view(), b.view()], 2).unwrap();
        assert_eq!(s, Tensor::from_slice(&[0, 0, 1, 1, 2, 2, 3, 3], [2, 2, 2]).unwrap());
        assert!(concat(&[], 0).is_err());
        assert!(concat(&[a.view()], 2).is_err());
        assert!(concat(&[a.view(), iota(&[3, 3]).view()], 0).is_err());
        assert!(concat(&[a.view(), iota(&[2]).view()], 0).is_err());
        let other = Tensor::zeros(DType::F32, [2, 2]).unwrap();
        assert!(concat(&[a.view(), other.view()], 0).is_err());
        assert!(stack(&[a.view()], 3).is_err());
    }

    #[test]
    fn flattening() {
        let x = iota(&[2, 3, 4]);
        assert_eq!(x.flatten(1, 2).unwrap().shape().dims(), [2, 12]);
        assert_eq!(x.flatten(0, 2).unwrap().shape().dims(), [24]);
        assert_eq!(Tensor::scalar(1.0f32).unwrap().flatten(0, 0).unwrap().shape().dims(), [1]);
        assert!(x.flatten(2, 1).is_err());
        assert!(x.flatten(0, 3).is_err());
    }
}

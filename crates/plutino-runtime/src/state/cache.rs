//! A value that grows, in memory with room for more.

use plutino_tensor::{AlignedBuf, Shape, Tensor, TensorError, TensorSpec};
use std::sync::Arc;

/// A tensor that is the first part of a longer one, in one dimension. Cloning shares the memory;
/// whoever is to write to it copies it first.
#[derive(Clone)]
pub(super) struct Cache {
    /// What is there.
    spec: TensorSpec,
    /// The dimension in which it is the first part, and the size in memory.
    dim: usize,
    capacity: usize,
    data: Arc<AlignedBuf>,
}

impl Cache {
    /// A copy of a tensor with room for more; `old` is memory that is not needed any more.
    ///
    /// # Errors
    /// Where memory is refused, or the tensor exceeds the capacity.
    pub(super) fn new(
        tensor: &Tensor,
        (dim, capacity): (usize, usize),
        old: Option<Self>,
    ) -> Result<Self, TensorError> {
        Self::filled(&tensor.spec(), tensor.as_bytes(), None, (dim, capacity), old)
    }

    /// The same with another capacity.
    ///
    /// # Errors
    /// As [`Cache::new`].
    pub(super) fn in_capacity(&self, capacity: usize) -> Result<Self, TensorError> {
        let from = Some(self.capacity);
        Self::filled(&self.spec, self.data.as_bytes(), from, (self.dim, capacity), None)
    }

    fn filled(
        spec: &TensorSpec,
        bytes: &[u8],
        stride: Option<usize>,
        (dim, capacity): (usize, usize),
        old: Option<Self>,
    ) -> Result<Self, TensorError> {
        let size = spec.shape.get(dim).copied().unwrap_or(usize::MAX);
        if size > capacity {
            let what = format!("{spec} does not fit into {capacity} in dimension {dim}");
            return Err(TensorError::invalid(what));
        }
        let mut whole: Shape = spec.shape.clone();
        whole[dim] = capacity;
        let len = TensorSpec::new(spec.dtype, whole).storage_bytes()?;
        let old = old.and_then(|old| Arc::try_unwrap(old.data).ok());
        let mut data = match old.filter(|old| old.len() == len) {
            Some(old) => old,
            None => AlignedBuf::zeroed(len)?,
        };
        let row = row(spec, dim);
        let from = row.saturating_mul(stride.unwrap_or(size));
        copy(bytes, from, data.as_mut_bytes(), row * capacity, row * size);
        Ok(Self { spec: spec.clone(), dim, capacity, data: Arc::new(data) })
    }

    /// A copy of what is there.
    ///
    /// # Errors
    /// Where memory is refused.
    pub(super) fn to_tensor(&self) -> Result<Tensor, TensorError> {
        let mut tensor = Tensor::zeros(self.spec.dtype, self.spec.shape.clone())?;
        let row = row(&self.spec, self.dim);
        let len = row * self.spec.shape[self.dim];
        copy(self.data.as_bytes(), row * self.capacity, tensor.as_mut_bytes()?, len, len);
        Ok(tensor)
    }

    /// What is there.
    pub(super) fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// Says that there is more.
    pub(super) fn set_spec(&mut self, spec: &TensorSpec) {
        self.spec = spec.clone();
    }

    /// Whether it lies so.
    pub(super) fn lies(&self, dim: usize, capacity: usize) -> bool {
        (self.dim, self.capacity) == (dim, capacity)
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.data.len()
    }

    /// All of the memory, for whoever appends; copied first where it is shared.
    ///
    /// # Errors
    /// Where memory is refused.
    pub(super) fn as_mut_bytes(&mut self) -> Result<&mut [u8], TensorError> {
        if Arc::get_mut(&mut self.data).is_none() {
            self.data = Arc::new(AlignedBuf::copy_of(self.data.as_bytes())?);
        }
        let data = Arc::get_mut(&mut self.data);
        let data = data.ok_or_else(|| TensorError::invalid("the cache is shared"))?;
        Ok(data.as_mut_bytes())
    }

    /// Where it lies.
    #[cfg(test)]
    pub(super) fn address(&self) -> usize {
        self.data.as_bytes().as_ptr().addr()
    }
}

/// Bytes of one index of the dimension.
fn row(spec: &TensorSpec, dim: usize) -> usize {
    spec.shape.product(dim + 1..spec.shape.rank()).saturating_mul(spec.dtype.size_of())
}

/// Copies `len` bytes of each outer index; these are so many bytes apart.
fn copy(from: &[u8], from_stride: usize, to: &mut [u8], to_stride: usize, len: usize) {
    if len == 0 || from_stride == 0 || to_stride == 0 {
        return;
    }
    for (from, to) in from.chunks_exact(from_stride).zip(to.chunks_exact_mut(to_stride)) {
        to[..len].copy_from_slice(&from[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_stays_in_any_capacity() {
        let numbers: Vec<f32> = (0..24).map(|i| i as f32).collect();
        let tensor = Tensor::from_slice(&numbers, [2, 3, 4]).unwrap();
        for dim in 0..3 {
            let size = tensor.shape()[dim];
            let cache = Cache::new(&tensor, (dim, size), None).unwrap();
            assert_eq!(cache.to_tensor().unwrap(), tensor);
            let mut more = cache.in_capacity(size + 5).unwrap();
            assert_eq!(
                (more.to_tensor().unwrap(), more.bytes()),
                (tensor.clone(), {
                    let mut shape = tensor.shape().clone();
                    shape[dim] += 5;
                    shape.numel() * 4
                })
            );
            // A clone is not written to.
            let other = more.clone();
            more.as_mut_bytes().unwrap().fill(0);
            assert_eq!(other.to_tensor().unwrap(), tensor);
            assert!(more.in_capacity(size - 1).is_err());
        }
        let none = Tensor::from_slice::<f32>(&[], [2, 0, 4]).unwrap();
        let empty = Cache::new(&none, (1, 8), None).unwrap();
        assert_eq!((empty.to_tensor().unwrap(), empty.bytes()), (none, 2 * 8 * 4 * 4));
    }
}

//! Buffers that come back.

use crate::buffer::byte_len;
use crate::{AlignedBuf, Tensor, TensorError, TensorSpec};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory of tensors that were made of it and are gone, for those that come next.
///
/// Fresh pages from the system take longer to come than it takes to write them, and who computes
/// one tensor after the other mostly drops each before the next one is made.
///
/// ```
/// use plutino_tensor::{DType, Reserve, TensorSpec};
/// use std::sync::Arc;
///
/// let reserve = Arc::new(Reserve::default());
/// let spec = TensorSpec::new(DType::F32, [1 << 16]);
/// let first = reserve.tensors([&spec], usize::MAX)?.remove(0);
/// let place = first.as_bytes().as_ptr();
/// drop(first);
/// assert_eq!(reserve.idle_bytes(), 1 << 18);
/// let second = reserve.tensors([&spec], usize::MAX)?.remove(0);
/// assert_eq!(second.as_bytes().as_ptr(), place);
/// # Ok::<(), plutino_tensor::TensorError>(())
/// ```
#[derive(Debug, Default)]
pub struct Reserve {
    /// The latest ones last.
    idle: Mutex<Vec<AlignedBuf>>,
    most: AtomicUsize,
}

impl Reserve {
    /// Tensors, which hold anything, in what came back as far as there is some of the same size;
    /// other idle memory goes back to the system first. What comes back from now on is kept as far
    /// as it is not more than these tensors are, nor than `most` bytes.
    ///
    /// # Errors
    /// Where a size exceeds memory.
    pub fn tensors<'s>(
        self: &Arc<Self>,
        specs: impl IntoIterator<Item = &'s TensorSpec>,
        most: usize,
    ) -> Result<Vec<Tensor>, TensorError> {
        let mut idle = std::mem::take(&mut *self.lock());
        let mut found = Vec::new();
        let mut total = 0usize;
        for spec in specs {
            let len = byte_len(&spec.shape, spec.dtype.size_of())?;
            total = total.saturating_add(len);
            let at = idle.iter().position(|buf| buf.len() == len);
            found.push((spec, len, at.map(|at| idle.swap_remove(at))));
        }
        drop(idle);
        self.most.store(total.min(most), Ordering::Relaxed);
        let tensor = |(spec, len, buf): (&TensorSpec, usize, Option<AlignedBuf>)| {
            let buf = buf.map_or_else(|| AlignedBuf::zeroed(len), Ok)?;
            Ok(Tensor::of_buffer(spec.clone(), buf.coming_back_to(self)))
        };
        found.into_iter().map(tensor).collect()
    }

    /// Bytes that are kept for tensors to come.
    pub fn idle_bytes(&self) -> usize {
        sum(&self.lock())
    }

    /// Gives them back to the system, as well as what comes back before tensors are made again.
    pub fn release(&self) {
        self.most.store(0, Ordering::Relaxed);
        let idle = std::mem::take(&mut *self.lock());
        drop(idle); // outside of the lock: the system takes its time
    }

    /// Takes a buffer back, in the place of older ones where there is no room for it.
    pub(crate) fn put(&self, buf: AlignedBuf) {
        let most = self.most.load(Ordering::Relaxed);
        if buf.len() > most {
            return; // `buf` is dropped
        }
        let mut gone = Vec::new();
        let mut idle = self.lock();
        idle.push(buf);
        while sum(&idle) > most {
            gone.push(idle.remove(0));
        }
        drop(idle);
        drop(gone);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<AlignedBuf>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sum(buffers: &[AlignedBuf]) -> usize {
    buffers.iter().map(AlignedBuf::len).fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn make(reserve: &Arc<Reserve>, sizes: &[usize]) -> Vec<Tensor> {
        let specs: Vec<_> = sizes.iter().map(|&n| TensorSpec::new(DType::U8, [n])).collect();
        reserve.tensors(&specs, 1000).unwrap()
    }

    fn addresses(tensors: &[Tensor]) -> Vec<*const u8> {
        tensors.iter().map(|t| t.as_bytes().as_ptr()).collect()
    }

    #[test]
    fn what_is_dropped_is_used_again() {
        let reserve = Arc::new(Reserve::default());
        let first = make(&reserve, &[100, 200, 100]);
        let places = addresses(&first);
        let second = make(&reserve, &[100, 200, 100]);
        assert!(addresses(&second).iter().all(|place| !places.contains(place)), "all are held");
        let view = first[1].reshape([10, 20]).unwrap();
        drop(first);
        assert_eq!(reserve.idle_bytes(), 200, "a view is held");
        drop(view);
        assert_eq!(reserve.idle_bytes(), 400);
        let mut third = make(&reserve, &[200, 100, 100]);
        assert!(addresses(&third).iter().all(|place| places.contains(place)));
        assert_eq!(third[0].as_mut_bytes().unwrap().as_ptr(), places[1], "not shared");
        drop(second);
        drop(make(&reserve, &[300]));
        assert_eq!(reserve.idle_bytes(), 300, "others made room");
        drop(third);
        assert_eq!(reserve.idle_bytes(), 200, "the latest, no more than was asked for last");
        let held = make(&reserve, &[100, 200]);
        reserve.release();
        drop(held);
        assert_eq!(reserve.idle_bytes(), 0, "nor what came back later");
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let reserve = Arc::new(Reserve::default());
        drop(make(&reserve, &[1001]));
        assert_eq!(reserve.idle_bytes(), 0);
        let held: Vec<_> = (0..9).map(|_| make(&reserve, &[600])).collect();
        drop(held);
        assert_eq!(reserve.idle_bytes(), 600);
        let last = make(&reserve, &[600, 0]);
        drop(reserve);
        drop(last); // there is nothing to come back to
    }

    #[test]
    fn sizes_are_checked() {
        let spec = TensorSpec::new(DType::F64, [usize::MAX, 2]);
        let error = Arc::new(Reserve::default()).tensors([&spec], 0).unwrap_err();
        assert!(matches!(error, TensorError::Overflow { .. }), "{error}");
    }
}

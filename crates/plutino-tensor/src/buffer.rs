//! Memory aligned to a cache line.
#![allow(unsafe_code)] // the one place of this crate that allocates by hand

use crate::{Shape, TensorError};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Alignment of every buffer, in bytes: a cache line, and the widest vector register.
pub const ALIGNMENT: usize = 64;

/// A zero-initialised, heap-allocated run of bytes, aligned to [`ALIGNMENT`].
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer is plain bytes, owned by this value alone; shared access is read-only.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; mutation goes through `&mut self`.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// `len` bytes, all zero. Large buffers come straight from the system, untouched pages cost nothing.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`] where the system refuses.
    pub fn zeroed(len: usize) -> Result<Self, TensorError> {
        if len == 0 {
            // Dangling but aligned: never dereferenced, never freed.
            let ptr = NonNull::<Align64>::dangling().cast();
            return Ok(Self { ptr, len });
        }
        let out_of_memory = TensorError::OutOfMemory { bytes: len };
        let layout = Layout::from_size_align(len, ALIGNMENT).map_err(|_| out_of_memory.clone())?;
        // SAFETY: the layout's size is not zero.
        let ptr = unsafe { alloc_zeroed(layout) };
        NonNull::new(ptr).map(|ptr| Self { ptr, len }).ok_or(out_of_memory)
    }

    /// A buffer that holds a copy of `bytes`.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`] where the system refuses.
    pub fn copy_of(bytes: &[u8]) -> Result<Self, TensorError> {
        let mut buf = Self::zeroed(bytes.len())?;
        buf.as_mut_bytes().copy_from_slice(bytes);
        Ok(buf)
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: `ptr` points to `len` initialised bytes (zeroed on allocation) that live as long as self.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// The bytes, for writing.
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_bytes`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }

    /// The first byte. For the runtime's arena, which hands out disjoint parts of one buffer.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.ptr.as_ptr()
    }
}

#[repr(align(64))]
struct Align64;

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.len > 0 {
            // The same layout was accepted in `zeroed`.
            if let Ok(layout) = Layout::from_size_align(self.len, ALIGNMENT) {
                // SAFETY: allocated in `zeroed` with this very layout, freed once.
                unsafe { dealloc(self.ptr.as_ptr(), layout) };
            }
        }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

/// Bytes of `shape` elements of `size` bytes, checked.
pub(crate) fn byte_len(shape: &Shape, size: usize) -> Result<usize, TensorError> {
    shape
        .checked_numel()?
        .checked_mul(size)
        .filter(|&n| isize::try_from(n).is_ok())
        .ok_or_else(|| TensorError::Overflow { shape: shape.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_zero() {
        for len in [0, 1, 63, 64, 1000] {
            let b = AlignedBuf::zeroed(len).unwrap();
            assert_eq!(b.as_bytes().as_ptr() as usize % ALIGNMENT, 0);
            assert!(b.as_bytes().iter().all(|&x| x == 0));
        }
        assert!(AlignedBuf::zeroed(usize::MAX).is_err());
    }
}

//! Memory aligned to a cache line.
#![allow(unsafe_code)] // the one place of this crate that allocates by hand

use crate::{Reserve, Shape, TensorError};
use pages::Pages;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// Alignment of every buffer, in bytes: a cache line, and the widest vector register.
pub const ALIGNMENT: usize = 64;

/// From this many bytes on, memory comes from the system alone and goes back to it when it is not
/// needed any more; smaller buffers share pages with others.
const MAPPED: usize = 2 << 20;

/// From this many bytes on, memory that is filled at once comes from the system alone: long-lived
/// weights.
const RESIDENT: usize = 128 << 10;

/// A zero-initialised run of bytes, aligned to [`ALIGNMENT`].
pub struct AlignedBuf {
    memory: Memory,
    len: usize,
    /// Where the memory goes when this is dropped, if not to the system.
    home: Option<Weak<Reserve>>,
}

enum Memory {
    /// From the allocator.
    Heap(NonNull<u8>),
    /// Pages of its own.
    Pages(Pages),
}

/// Pages from the system.
#[cfg(all(feature = "mmap", not(target_family = "wasm")))]
mod pages {
    pub(super) type Pages = memmap2::MmapMut;

    /// Whether there are any.
    pub(super) const EXIST: bool = true;

    /// `len` bytes, not 0.
    pub(super) fn map(len: usize) -> Option<Pages> {
        Pages::map_anon(len).ok()
    }

    /// Asks for all of them at once, or as long as the work of this thread goes on, and for huge
    /// ones in the course of time. Wishes: since Linux 5.14.
    ///
    /// The kernel copies small pages into huge ones while the program runs (`khugepaged`, 16 MB in
    /// ten seconds unless it is told otherwise). Once all of them are, products of few rows, which
    /// wait for weights from memory, take 6 to 15 % less time: BERT of 16 tokens, one thread, 28.8
    /// to 27.2 ms; 2 rows of linear layers 8.3 to 6.5 ms. Asked for at once, in a guest whose
    /// unused memory the host has taken back, they cost twice the time of loading, 0.4 to 0.8 s
    /// (Zen 4, 2026-11-29).
    pub(super) fn populate(pages: &Pages) {
        #[cfg(target_os = "linux")]
        {
            use memmap2::Advice;
            for part in crate::stop::parts(0..pages.len(), LOOK) {
                let _ = pages.advise_range(Advice::PopulateWrite, part.start, part.len());
            }
            let _ = pages.advise(Advice::HugePage);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = pages;
    }

    /// Bytes between two looks whether the work is to end: whole pages of any size.
    #[cfg(target_os = "linux")]
    const LOOK: usize = 4 << 20;
}

/// Where there is no such thing as pages of one's own, everything comes from the allocator.
#[cfg(not(all(feature = "mmap", not(target_family = "wasm"))))]
mod pages {
    pub(super) enum Pages {}

    pub(super) const EXIST: bool = false;

    pub(super) fn map(_: usize) -> Option<Pages> {
        None
    }

    pub(super) fn populate(pages: &Pages) {
        match *pages {}
    }

    impl std::ops::Deref for Pages {
        type Target = [u8];
        fn deref(&self) -> &[u8] {
            match *self {}
        }
    }

    impl std::ops::DerefMut for Pages {
        fn deref_mut(&mut self) -> &mut [u8] {
            match *self {}
        }
    }
}

// SAFETY: the buffer is plain bytes, owned by this value alone; shared access is read-only.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; mutation goes through `&mut self`.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// `len` bytes, all zero. Large buffers come straight from the system: untouched pages cost
    /// nothing.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`] where the system refuses.
    pub fn zeroed(len: usize) -> Result<Self, TensorError> {
        if len == 0 {
            return Ok(Self::none());
        }
        crate::alloc::charge(len)?;
        let out_of_memory = TensorError::OutOfMemory { bytes: len };
        let layout = Layout::from_size_align(len, ALIGNMENT).map_err(|_| out_of_memory.clone())?;
        if pages::EXIST && len >= MAPPED {
            return Self::mapped(len);
        }
        // SAFETY: the layout's size is not zero.
        let ptr = unsafe { alloc_zeroed(layout) };
        let buf = |ptr| Self { memory: Memory::Heap(ptr), len, home: None };
        NonNull::new(ptr).map(buf).ok_or(out_of_memory)
    }

    /// The same, for memory that will be written from end to end at once: the system is asked for
    /// all pages together, which takes less time than one after the other, and makes huge ones of
    /// them where it can.
    ///
    /// # Errors
    /// As [`AlignedBuf::zeroed`].
    pub fn resident(len: usize) -> Result<Self, TensorError> {
        if !pages::EXIST || len < RESIDENT || isize::try_from(len).is_err() {
            return Self::zeroed(len);
        }
        crate::alloc::charge(len)?;
        let buf = Self::mapped(len)?;
        if let Memory::Pages(pages) = &buf.memory {
            pages::populate(pages);
        }
        Ok(buf)
    }

    /// No bytes.
    fn none() -> Self {
        // Dangling but aligned: never dereferenced, never freed.
        let ptr = NonNull::<Align64>::dangling().cast();
        Self { memory: Memory::Heap(ptr), len: 0, home: None }
    }

    /// The buffer, which goes there when it is dropped.
    pub(crate) fn coming_back_to(mut self, reserve: &Arc<Reserve>) -> Self {
        self.home = Some(Arc::downgrade(reserve));
        self
    }

    /// Pages from the system; `len` is not 0.
    fn mapped(len: usize) -> Result<Self, TensorError> {
        let pages = pages::map(len).ok_or(TensorError::OutOfMemory { bytes: len })?;
        Ok(Self { memory: Memory::Pages(pages), len, home: None })
    }

    /// A buffer that holds a copy of `bytes`.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`] where the system refuses.
    pub fn copy_of(bytes: &[u8]) -> Result<Self, TensorError> {
        // Smaller copies may live for one run only: the allocator has memory at hand for them.
        let make = if bytes.len() >= MAPPED { Self::resident } else { Self::zeroed };
        let mut buf = make(bytes.len())?;
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
        match &self.memory {
            // SAFETY: `ptr` points to `len` initialised bytes (zeroed on allocation) that live as
            // long as self.
            Memory::Heap(ptr) => unsafe { std::slice::from_raw_parts(ptr.as_ptr(), self.len) },
            Memory::Pages(pages) => pages,
        }
    }

    /// The bytes, for writing.
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        match &mut self.memory {
            // SAFETY: as in `as_bytes`, and `&mut self` makes the access unique.
            Memory::Heap(ptr) => unsafe { std::slice::from_raw_parts_mut(ptr.as_ptr(), self.len) },
            Memory::Pages(pages) => pages,
        }
    }

    /// The first byte. For the runtime's arena, which hands out disjoint parts of one buffer.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        match &mut self.memory {
            Memory::Heap(ptr) => ptr.as_ptr(),
            Memory::Pages(pages) => pages.as_mut_ptr(),
        }
    }
}

#[repr(align(64))]
struct Align64;

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Some(home) = self.home.take().and_then(|home| home.upgrade()) {
            home.put(std::mem::replace(self, Self::none()));
            return;
        }
        let Memory::Heap(ptr) = &self.memory else { return };
        // The same layout was accepted in `zeroed`.
        if let (1.., Ok(layout)) = (self.len, Layout::from_size_align(self.len, ALIGNMENT)) {
            // SAFETY: allocated in `zeroed` with this very layout, freed once.
            unsafe { dealloc(ptr.as_ptr(), layout) };
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
        // Interpreted by miri, a look at each byte takes minutes.
        let apart = if cfg!(miri) { 4093 } else { 1 };
        for make in [AlignedBuf::zeroed, AlignedBuf::resident] {
            for len in [0, 1, 63, 64, 1000, RESIDENT, RESIDENT + 1, MAPPED, MAPPED + 100] {
                let b = make(len).unwrap();
                assert_eq!(b.as_bytes().as_ptr() as usize % ALIGNMENT, 0);
                assert!(b.len() == len && b.as_bytes().iter().step_by(apart).all(|&x| x == 0));
                assert_eq!(b.as_bytes().last().copied().unwrap_or(0), 0);
            }
        }
    }

    #[test]
    fn sizes_beyond_memory_are_errors() {
        for make in [AlignedBuf::zeroed, AlignedBuf::resident] {
            assert!(make(usize::MAX).is_err());
            assert!(make(usize::MAX / 2).is_err());
        }
    }
}

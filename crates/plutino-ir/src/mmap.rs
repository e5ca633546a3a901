//! Memory-mapped files: the only unsafe code of this crate.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::Mmap;

/// A file in memory that the weights of a graph are parts of. Cheap to clone.
#[derive(Clone)]
pub struct Mapping(Arc<Mmap>);

impl Mapping {
    /// Tells the system that nobody needs `part` for now: its pages do not count as this process's memory until
    /// they are read again. A part that lies elsewhere is left alone.
    pub fn release(&self, part: &[u8]) {
        let whole = self.0.as_ptr_range();
        let inside = part.as_ptr_range();
        if part.is_empty() || inside.start < whole.start || inside.end > whole.end {
            return;
        }
        #[cfg(unix)]
        {
            let start = inside.start.addr() - whole.start.addr();
            // From the start of a page: what else lies there is merely read again.
            let first = start / PAGE * PAGE;
            let len = start + part.len() - first;
            // SAFETY: the pages are a read-only view of a file that does not change (precondition of `map`):
            // they come back with the same contents. The range lies inside the mapping (checked above).
            let _ = unsafe {
                self.0.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, first, len)
            };
        }
    }
}

/// A multiple of every page size in use.
#[cfg(unix)]
const PAGE: usize = 64 << 10;

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapping({} bytes)", self.0.len())
    }
}

/// Maps a file into memory, read-only.
///
/// Precondition: nobody, in this process or another, changes or truncates the file while the returned bytes
/// or any part of them are alive. Neither Rust nor the operating system can check that; whoever asks for
/// mapping ([`LoadOptions::mmap`](crate::LoadOptions::mmap)) promises it. `save` never writes into a file in
/// place, so saving over a mapped model is fine.
pub(crate) fn map(path: &Path) -> io::Result<(Bytes, Option<Mapping>)> {
    let file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok((Bytes::new(), None)); // an empty mapping is an error on some systems
    }
    // SAFETY: the mapping is read-only and owned by the bytes handed out; that the file does not change is
    // this function's precondition, stated above and in the documentation of the option that leads here.
    let mapped = unsafe { Mmap::map(&file)? };
    let mapping = Mapping(Arc::new(mapped));
    Ok((Bytes::from_owner(mapping.clone()), Some(mapping)))
}

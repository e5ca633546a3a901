//! Memory-mapped files: the only unsafe code of this crate.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::{Mmap, MmapMut, MmapOptions};

/// A file in memory that the weights of a graph are parts of. Cheap to clone.
#[derive(Clone)]
pub struct Mapping(Arc<Mmap>);

impl Mapping {
    /// Whether the whole file may be in memory at a time.
    pub(crate) fn is_small(&self) -> bool {
        self.0.len() <= SMALL
    }

    /// Tells the system that nobody needs `part` for now: its pages do not count as this process's
    /// memory until they are read again. A part that lies elsewhere is left alone, and so are pages
    /// that it shares with others.
    pub fn release(&self, part: &[u8]) {
        let whole = self.0.as_ptr_range();
        let inside = part.as_ptr_range();
        if part.len() < WORTH_RELEASING || inside.start < whole.start || inside.end > whole.end {
            return;
        }
        #[cfg(unix)]
        {
            let start = inside.start.addr() - whole.start.addr();
            let first = start.next_multiple_of(PAGE);
            let len = (start + part.len()) / PAGE * PAGE - first;
            // SAFETY: the pages are a read-only view of a file that does not change (precondition
            // of `map`): they come back with the same contents. The range lies inside the mapping
            // (checked above).
            let _ = unsafe {
                self.0.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, first, len)
            };
        }
    }
}

/// Bytes of a file that may be in memory as a whole, at most.
const SMALL: usize = 32 << 20;

/// Pages of less than this are not worth the call.
const WORTH_RELEASING: usize = 64 << 10;

/// The usual size of a page; where they are larger, some more are released, and merely read again.
#[cfg(unix)]
const PAGE: usize = 4 << 10;

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
/// Precondition: nobody, in this process or another, changes or truncates the file while the
/// returned bytes or any part of them are alive. Neither Rust nor the operating system can check
/// that; whoever asks for mapping ([`LoadOptions::mmap`](crate::LoadOptions::mmap)) promises it.
/// `save` never writes into a file in place, so saving over a mapped model is fine.
///
/// `read` says that all of it is about to be read: a small file's pages come at once then, which
/// takes less time than one after the other.
pub(crate) fn map(path: &Path, read: bool) -> io::Result<(Bytes, Option<Mapping>)> {
    let file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok((Bytes::new(), None)); // an empty mapping is an error on some systems
    }
    // SAFETY: the mapping is read-only and owned by the bytes handed out; that the file does not
    // change is this function's precondition, stated above and in the documentation of the option
    // that leads here.
    let mapping = Mapping(Arc::new(unsafe { Mmap::map(&file)? }));
    if read && mapping.is_small() {
        #[cfg(target_os = "linux")]
        let _ = mapping.0.advise(memmap2::Advice::PopulateRead); // a wish: since Linux 5.14
    }
    Ok((Bytes::from_owner(mapping.clone()), Some(mapping)))
}

/// Memory that is written from end to end. Its pages come in one call, which takes two thirds of
/// what they take one by one as they are written.
pub(crate) type Pages = MmapMut;

/// `len` bytes of 0, at least one.
pub(crate) fn pages(len: usize) -> io::Result<Pages> {
    MmapOptions::new().len(len.max(1)).populate().map_anon()
}

//! Memory-mapped files: the only unsafe code of this crate.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;

use bytes::Bytes;
use memmap2::Mmap;

/// Maps a file into memory, read-only.
///
/// Precondition: nobody, in this process or another, changes or truncates the file while the returned bytes
/// or any part of them are alive. Neither Rust nor the operating system can check that; whoever asks for
/// mapping ([`LoadOptions::mmap`](crate::LoadOptions::mmap)) promises it. `save` never writes into a file in
/// place, so saving over a mapped model is fine.
pub(crate) fn map(path: &Path) -> io::Result<Bytes> {
    let file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(Bytes::new()); // an empty mapping is an error on some systems
    }
    // SAFETY: the mapping is read-only and owned by the bytes handed out; that the file does not change is
    // this function's precondition, stated above and in the documentation of the option that leads here.
    let mapped = unsafe { Mmap::map(&file)? };
    Ok(Bytes::from_owner(mapped))
}

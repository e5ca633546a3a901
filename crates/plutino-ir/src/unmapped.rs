//! Files where memory cannot be mapped, or the feature `mmap` is off: they are read.

use std::convert::Infallible;
use std::io;
use std::path::Path;

use bytes::Bytes;

/// A file in memory that the weights of a graph are parts of. There is none without the feature
/// `mmap`.
#[derive(Clone, Debug)]
pub struct Mapping(Infallible);

impl Mapping {
    pub(crate) fn is_small(&self) -> bool {
        match self.0 {}
    }

    /// Tells the system that nobody needs `part` for now.
    pub fn release(&self, part: &[u8]) {
        let _ = part;
        match self.0 {}
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        match self.0 {}
    }
}

/// The whole file, read.
pub(crate) fn map(path: &Path, _: bool) -> io::Result<(Bytes, Option<Mapping>)> {
    Ok((std::fs::read(path)?.into(), None))
}

/// Memory that is written from end to end.
pub(crate) type Pages = Vec<u8>;

/// `len` bytes of 0, at least one.
pub(crate) fn pages(len: usize) -> io::Result<Pages> {
    let (mut bytes, len) = (Vec::new(), len.max(1));
    bytes.try_reserve_exact(len)?;
    bytes.extend((0..len).map(|_| 0)); // within what is reserved
    Ok(bytes)
}

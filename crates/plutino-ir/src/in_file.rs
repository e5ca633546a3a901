//! Weights that stay in the file until they are needed.
//!
//! A large model is packed weight by weight. Were all of its weights read first, they would be in
//! memory twice, and the pages of the first copy would take as long to come as packing does.

use std::fs::File;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rawzip::{FileReader, ReaderAt};

use crate::attribute::AttributeError;

/// A `.bin` file that is open, and buffers for what is read of it.
pub(crate) struct WeightFile {
    path: PathBuf,
    reader: FileReader,
    len: u64,
    /// Buffers that nobody uses at the moment: pages that are there already cost no fault.
    spare: Mutex<Vec<Vec<u8>>>,
}

/// A buffer of more bytes is not kept.
const MOST_SPARE: usize = 16 << 20;

/// Bytes that are read before their checksum goes on: they are in the second-level cache then.
const PART: usize = 1 << 18;

impl WeightFile {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Ok(Self { path: path.into(), reader: file.into(), len, spare: Mutex::default() })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// A buffer of `len` bytes, whatever they are.
    fn buffer(&self, len: usize) -> Result<Vec<u8>, std::collections::TryReserveError> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = spare.unwrap_or_default();
        buffer.try_reserve_exact(len.saturating_sub(buffer.len()))?;
        buffer.resize(len.max(buffer.len()), 0);
        Ok(buffer)
    }
}

impl ReaderAt for WeightFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.reader.read_at(buffer, offset)
    }
}

/// The bytes of a weight in a file.
#[derive(Clone)]
pub struct FilePart {
    file: Arc<WeightFile>,
    entry: Arc<str>,
    at: Range<u64>,
    /// What is compared whenever the bytes are read; none where nobody asked for that.
    crc: Option<u32>,
    /// The bytes, once somebody reads them in place.
    kept: Arc<OnceLock<Vec<u8>>>,
}

impl FilePart {
    pub(crate) fn new(
        file: &Arc<WeightFile>,
        entry: &str,
        at: Range<u64>,
        crc: Option<u32>,
    ) -> Self {
        Self { file: Arc::clone(file), entry: entry.into(), at, crc, kept: Arc::default() }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        usize::try_from(self.at.end.saturating_sub(self.at.start)).unwrap_or(usize::MAX)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// Whether it is the same part of the same open file.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file) && self.at == other.at
    }

    /// Reads the bytes.
    ///
    /// # Errors
    /// Where the file cannot be read, the bytes do not have their checksum, or no memory is left.
    pub fn read(&self) -> Result<FileBytes, AttributeError> {
        let unreadable = |reason: String| AttributeError::Unreadable {
            file: self.file.path.clone(),
            entry: self.entry.to_string(),
            reason,
        };
        let len = self.len();
        let bytes = self.file.buffer(len).map_err(|error| unreadable(error.to_string()))?;
        let mut read = FileBytes { file: Arc::clone(&self.file), bytes, len };
        let mut hasher = crc32fast::Hasher::new();
        let mut at = self.at.start;
        for part in read.bytes[..len].chunks_mut(PART) {
            self.file.read_exact_at(part, at).map_err(|error| unreadable(error.to_string()))?;
            at += part.len() as u64;
            if self.crc.is_some() {
                hasher.update(part);
            }
        }
        let found = hasher.finalize();
        match self.crc.filter(|&expected| expected != found) {
            None => Ok(read),
            Some(expected) => Err(AttributeError::Checksum {
                file: self.file.path.clone(),
                entry: self.entry.to_string(),
                expected,
                found,
            }),
        }
    }

    /// The bytes, which are in memory from now on, for all clones of this part.
    ///
    /// # Errors
    /// As [`FilePart::read`].
    pub fn keep(&self) -> Result<&[u8], AttributeError> {
        if let Some(kept) = self.kept() {
            return Ok(kept);
        }
        let read = self.read()?.into_vec();
        Ok(self.kept.get_or_init(|| read))
    }

    /// The bytes, if they are in memory.
    pub fn kept(&self) -> Option<&[u8]> {
        self.kept.get().map(Vec::as_slice)
    }

    /// Gives back the memory of buffers that nobody uses at the moment.
    pub fn release_buffers(&self) {
        self.file.spare.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl std::fmt::Debug for FilePart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FilePart({:?} of {})", self.at, self.file.path.display())
    }
}

/// Bytes that were read of a file. Their memory serves the next weight when they are dropped.
pub struct FileBytes {
    file: Arc<WeightFile>,
    /// At least as many as there are.
    bytes: Vec<u8>,
    len: usize,
}

impl Deref for FileBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl FileBytes {
    /// The bytes, in memory of their own.
    pub fn into_vec(mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.truncate(self.len);
        bytes.shrink_to_fit();
        bytes
    }
}

impl Drop for FileBytes {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.capacity() > 0 && bytes.capacity() <= MOST_SPARE {
            self.file.spare.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        }
    }
}

impl std::fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileBytes({})", self.len)
    }
}

//! Weights that stay in the file until they are needed.
//!
//! A large model is packed weight by weight. Were all of its weights read first, they would be in
//! memory twice, and the pages of the first copy would take as long to come as packing does.

use std::fs::File;
use std::ops::{Deref, DerefMut, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rawzip::{FileReader, ReaderAt};

use crate::attribute::AttributeError;
use crate::mmap::{self, Pages};

/// A `.bin` file that is open, and buffers for what is read of it.
pub(crate) struct WeightFile {
    path: PathBuf,
    reader: FileReader,
    len: u64,
    /// Bytes of the largest weight that stays in it, and that a buffer can serve.
    largest: AtomicUsize,
    /// Buffers that nobody uses at the moment: pages that are there already cost no fault.
    spare: Mutex<Vec<Pages>>,
}

/// A buffer of more bytes serves one weight.
const MOST_SPARE: usize = 16 << 20;

/// Bytes that are read before their checksum goes on: they are in the second-level cache then.
const PART: usize = 1 << 18;

impl WeightFile {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let (largest, spare) = (AtomicUsize::new(0), Mutex::default());
        Ok(Self { path: path.into(), reader: file.into(), len, largest, spare })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// A buffer of so many bytes at least. The first one serves all weights that are read one after
    /// the other: it is large enough for the largest.
    fn buffer(&self, len: usize) -> std::io::Result<Pages> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match spare.filter(|buffer| buffer.len() >= len) {
            Some(buffer) => Ok(buffer),
            None => mmap::pages(len.max(self.largest.load(Ordering::Relaxed))),
        }
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

    /// Lets the first buffer be large enough for it, where buffers are that large.
    pub(crate) fn expect(&self) {
        if self.len() <= MOST_SPARE {
            self.file.largest.fetch_max(self.len(), Ordering::Relaxed);
        }
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
        let len = self.len();
        let bytes = self.file.buffer(len).map_err(|error| self.unreadable(&error))?;
        let mut read = FileBytes { file: Arc::clone(&self.file), bytes: Some(bytes), len };
        let mut reader = Reader::new(self);
        read.chunks_mut(PART).try_for_each(|part| reader.read(part))?;
        reader.end()?;
        Ok(read)
    }

    /// The same, in memory of its own, each page of which is written once.
    pub(crate) fn read_whole(&self) -> Result<Vec<u8>, AttributeError> {
        let (mut bytes, len) = (Vec::new(), self.len());
        bytes.try_reserve_exact(len).map_err(|error| self.unreadable(&error))?;
        let mut buffer = vec![0; PART.min(len)];
        let mut reader = Reader::new(self);
        while bytes.len() < len {
            let part = &mut buffer[..PART.min(len - bytes.len())];
            reader.read(part)?;
            bytes.extend_from_slice(part); // within what is reserved
        }
        reader.end()?;
        Ok(bytes)
    }

    fn unreadable(&self, why: &dyn std::fmt::Display) -> AttributeError {
        AttributeError::Unreadable {
            file: self.file.path.clone(),
            entry: self.entry.to_string(),
            reason: why.to_string(),
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
        let read = self.read_whole()?;
        Ok(self.kept.get_or_init(|| read))
    }

    /// The bytes, if they are in memory.
    pub fn kept(&self) -> Option<&[u8]> {
        self.kept.get().map(Vec::as_slice)
    }

    /// The bytes for as long as they are looked at: where they are in memory, or read.
    ///
    /// # Errors
    /// As [`FilePart::read`].
    pub fn look(&self) -> Result<WeightBytes<'_>, AttributeError> {
        Ok(match self.kept() {
            Some(bytes) => WeightBytes::InPlace(bytes),
            None => WeightBytes::Read(self.read()?),
        })
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

/// Reads a part of a file piece by piece.
struct Reader<'a> {
    part: &'a FilePart,
    at: u64,
    hasher: crc32fast::Hasher,
}

impl<'a> Reader<'a> {
    fn new(part: &'a FilePart) -> Self {
        Self { part, at: part.at.start, hasher: crc32fast::Hasher::new() }
    }

    fn read(&mut self, piece: &mut [u8]) -> Result<(), AttributeError> {
        let read = self.part.file.read_exact_at(piece, self.at);
        read.map_err(|error| self.part.unreadable(&error))?;
        self.at = self.at.saturating_add(piece.len() as u64);
        if self.part.crc.is_some() {
            self.hasher.update(piece);
        }
        Ok(())
    }

    /// Compares the checksum.
    fn end(self) -> Result<(), AttributeError> {
        let found = self.hasher.finalize();
        match self.part.crc.filter(|&expected| expected != found) {
            None => Ok(()),
            Some(expected) => Err(AttributeError::Checksum {
                file: self.part.file.path.clone(),
                entry: self.part.entry.to_string(),
                expected,
                found,
            }),
        }
    }
}

/// Bytes that were read of a file. Their memory serves the next weight when they are dropped.
pub struct FileBytes {
    file: Arc<WeightFile>,
    /// At least as many as there are; there until it is dropped.
    bytes: Option<Pages>,
    len: usize,
}

impl Deref for FileBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes.as_ref().and_then(|bytes| bytes.get(..self.len)).unwrap_or_default()
    }
}

impl DerefMut for FileBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut().and_then(|bytes| bytes.get_mut(..self.len)).unwrap_or_default()
    }
}

impl Drop for FileBytes {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take().filter(|bytes| bytes.len() <= MOST_SPARE) {
            self.file.spare.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        }
    }
}

impl std::fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileBytes({})", self.len)
    }
}

/// The bytes of a weight, for as long as they are looked at.
#[derive(Debug)]
pub enum WeightBytes<'a> {
    /// In memory.
    InPlace(&'a [u8]),
    /// In a buffer that serves the next weight afterwards.
    Read(FileBytes),
}

impl Deref for WeightBytes<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::InPlace(bytes) => bytes,
            Self::Read(bytes) => bytes,
        }
    }
}

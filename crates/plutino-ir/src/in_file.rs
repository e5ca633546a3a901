//! Weights that stay in the file until they are needed.
//!
//! A model is packed weight by weight, each some rows at a time. Were all of its weights read
//! first, they would be in memory twice, and the pages of the first copy would take as long to come
//! as packing does.

use std::fs::File;
use std::ops::{Deref, DerefMut, Range};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rawzip::{FileReader, ReaderAt};

use crate::attribute::AttributeError;
use crate::mmap::{self, Pages};

/// A `.bin` file that is open, and buffers for what is read of it.
pub(crate) struct WeightFile {
    path: PathBuf,
    reader: FileReader,
    len: u64,
    /// Buffers that nobody uses at the moment: pages that are there already cost no fault.
    spare: Mutex<Vec<Pages>>,
}

/// A buffer of more bytes serves one weight.
const MOST_SPARE: usize = 16 << 20;

/// Bytes of a buffer, at least: for parts of any weight.
const BUFFER: usize = 2 * PART;

/// Bytes that are read together: they are in the second-level cache when their checksum goes on,
/// and when they are packed.
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

    /// A buffer of so many bytes at least.
    fn buffer(self: &Arc<Self>, len: usize) -> std::io::Result<FileBytes> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = match spare.filter(|buffer| buffer.len() >= len) {
            Some(buffer) => buffer,
            None => mmap::pages(len.max(BUFFER))?,
        };
        Ok(FileBytes { file: Arc::clone(self), bytes: Some(bytes), len })
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
        let mut reader = self.reader();
        reader.read(0..self.len())?;
        let read = reader.buffer.take();
        reader.finish()?;
        match read {
            Some(read) => Ok(read),
            None => self.file.buffer(0).map_err(|error| self.unreadable(&error)), // an empty weight
        }
    }

    /// The same, in memory of its own, each page of which is written once.
    pub(crate) fn read_whole(&self) -> Result<Vec<u8>, AttributeError> {
        let (mut bytes, len) = (Vec::new(), self.len());
        bytes.try_reserve_exact(len).map_err(|error| self.unreadable(&error))?;
        let mut reader = self.reader();
        while bytes.len() < len {
            let part = bytes.len()..len.min(bytes.len() + PART);
            bytes.extend_from_slice(reader.bytes(part)?); // within what is reserved
        }
        reader.finish()?;
        Ok(bytes)
    }

    /// Bytes of memory in which so many of its bytes are read at a time.
    pub fn buffer_len(&self, bytes: usize) -> usize {
        bytes.max(self.len().min(BUFFER))
    }

    /// For reading some bytes at a time.
    pub fn reader(&self) -> PartReader<'_> {
        let (buffer, hasher) = (None, crc32fast::Hasher::new());
        PartReader { part: self, buffer, window: 0..0, hashed: 0, hasher }
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

/// Reads a weight some bytes at a time, from front to back if nothing is to be read twice.
pub struct PartReader<'a> {
    part: &'a FilePart,
    buffer: Option<FileBytes>,
    /// The bytes of the weight that are in the buffer.
    window: Range<usize>,
    /// Bytes whose checksum is taken: the first ones.
    hashed: usize,
    hasher: crc32fast::Hasher,
}

impl PartReader<'_> {
    /// How many bytes are best read at a time.
    pub const AT_A_TIME: usize = PART;

    /// These bytes of the weight, until the next call.
    ///
    /// # Errors
    /// Where they are not all there, the file cannot be read, or no memory is left.
    pub fn bytes(&mut self, range: Range<usize>) -> Result<&[u8], AttributeError> {
        let part = self.part;
        let beyond = || part.unreadable(&"bytes beyond its end");
        if let Some(kept) = part.kept() {
            return kept.get(range).ok_or_else(beyond);
        }
        if range.start < self.window.start || range.end > self.window.end {
            // Whole ranges of this length: the next ones will be like it.
            let ranges = (PART / range.len().max(1)).max(1);
            let end = range.start.saturating_add(range.len().saturating_mul(ranges));
            self.read(range.start..end.min(self.part.len()).max(range.end))?;
        }
        let first = range.start.saturating_sub(self.window.start);
        let bytes = self.buffer.as_deref().unwrap_or_default();
        let bytes = bytes.get(first..first.saturating_add(range.len()));
        bytes.ok_or_else(beyond)
    }

    /// Reads bytes into the buffer, from its start on.
    fn read(&mut self, range: Range<usize>) -> Result<(), AttributeError> {
        let unreadable = |error: std::io::Error| self.part.unreadable(&error);
        if range.end > self.part.len() {
            return Err(self.part.unreadable(&"bytes beyond its end"));
        }
        let len = range.len();
        let mut buffer = match self.buffer.take().and_then(|buffer| buffer.with_len(len)) {
            Some(buffer) => buffer,
            None => self.part.file.buffer(len).map_err(unreadable)?,
        };
        let mut at = range.start;
        for piece in buffer.chunks_mut(PART) {
            let offset = self.part.at.start.saturating_add(at as u64);
            self.part.file.read_exact_at(piece, offset).map_err(unreadable)?;
            let end = at + piece.len();
            if self.part.crc.is_some() && (at..end).contains(&self.hashed) {
                self.hasher.update(piece.get(self.hashed - at..).unwrap_or_default());
                self.hashed = end;
            }
            at = end;
        }
        (self.buffer, self.window) = (Some(buffer), range);
        Ok(())
    }

    /// Compares the checksum of the whole weight, what was not asked for included.
    ///
    /// # Errors
    /// Where it is another one, or the file cannot be read.
    pub fn finish(mut self) -> Result<(), AttributeError> {
        let Some(expected) = self.part.crc.filter(|_| self.part.kept().is_none()) else {
            return Ok(());
        };
        while self.hashed < self.part.len() {
            self.read(self.hashed..self.part.len().min(self.hashed + PART))?;
        }
        match self.hasher.finalize() {
            found if found == expected => Ok(()),
            found => Err(AttributeError::Checksum {
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

impl FileBytes {
    /// The same buffer for another number of bytes, if it is large enough.
    fn with_len(mut self, len: usize) -> Option<Self> {
        self.len = len;
        self.bytes.as_ref().is_some_and(|bytes| bytes.len() >= len).then_some(self)
    }
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

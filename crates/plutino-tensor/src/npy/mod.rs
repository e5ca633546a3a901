//! NumPy's file formats: one array (`.npy`) and archives of named arrays (`.npz`, module [`npz`]).
//!
//! Formats: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
//!
//! | NumPy | here | |
//! |---|---|---|
//! | `f2 f4 f8` | f16, f32, f64 | |
//! | `i1 i2 i4 i8 u1` | i8, i16, i32, i64, u8 | |
//! | `b1` | bool | bytes other than 0 and 1 are refused |
//! | `c8 c16` | c64, c128 | |
//! | - | bf16, c32 | NumPy has no such dtype: writing is an error, cast to f32 or c64 first |
//! | everything else | - | reading is an error |
//!
//! Either byte order and either element order (C, Fortran) is read; the machine's byte order and C
//! order are written. Files may come from anyone: sizes are checked against the bytes that are
//! really there before memory is taken, and no file makes the reader panic.
//!
//! ```
//! use plutino_tensor::{Tensor, npy};
//! let x = Tensor::from_slice(&[1i64, 2, 3], [3])?;
//! let mut file = Vec::new();
//! npy::write(&mut file, &x.view())?;
//! assert_eq!(npy::read(&file)?, x);
//! # Ok::<(), npy::NpyError>(())
//! ```

mod header;
mod literal;
pub mod npz;

use crate::buffer::byte_len;
use crate::{DType, Tensor, TensorError, TensorView, stop};
use header::Header;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// What can be wrong with a npy or npz file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The bytes are not a npy file.
    #[error("not a valid npy file: {what}")]
    Header {
        /// What was found, and what would have been right.
        what: String,
    },
    /// The file's dtype is none of ours.
    #[error("numpy dtype {descr} is not supported: use one of f2 f4 f8 i1 i2 i4 i8 u1 b1 c8 c16")]
    UnsupportedDType {
        /// NumPy's description of the dtype.
        descr: String,
    },
    /// The tensor's dtype is none of NumPy's.
    #[error("numpy has no {dtype}: cast to f32 (from bf16) or c64 (from c32) first")]
    NoNumpyDType {
        /// The dtype of the tensor.
        dtype: DType,
    },
    /// The file holds fewer or more bytes than its header says.
    #[error("the header describes {expected} bytes of data, but the file holds {found}")]
    Size {
        /// Bytes of data by the header's shape and dtype.
        expected: u64,
        /// Bytes of data in the file.
        found: u64,
    },
    /// The bytes are not a npz archive that we read.
    #[error("not a valid npz archive: {what}")]
    Archive {
        /// What was found, and what would have been right.
        what: String,
    },
    /// An array of an archive is wrong.
    #[error("array '{}': {error}", shown(name))]
    Array {
        /// Name of the array.
        name: String,
        /// What is wrong with it.
        error: Box<NpyError>,
    },
    /// A file is wrong.
    #[error("{}: {error}", shown_path(path))]
    File {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<NpyError>,
    },
    /// The tensor could not be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// Names come out of files: the beginning, without what a terminal would obey.
fn shown(name: &str) -> String {
    const MOST: usize = 200;
    let cut = if name.chars().nth(MOST).is_some() { " ..." } else { "" };
    let start = name.chars().take(MOST).flat_map(char::escape_debug).collect::<String>();
    start + cut
}

/// A path, short and escaped; the end of a long one, which names the file.
fn shown_path(path: &Path) -> String {
    const MOST: usize = 200;
    let path = path.to_string_lossy();
    let skipped = path.chars().count().saturating_sub(MOST);
    let cut = if skipped > 0 { "..." } else { "" };
    cut.chars().chain(path.chars().skip(skipped).flat_map(char::escape_debug)).collect()
}

impl NpyError {
    fn in_file(path: &Path) -> impl FnOnce(Self) -> Self {
        move |source| Self::File { path: path.to_owned(), error: Box::new(source) }
    }

    fn in_array(name: &str) -> impl FnOnce(Self) -> Self {
        move |source| Self::Array { name: name.to_owned(), error: Box::new(source) }
    }
}

/// Reads a `.npy` file.
///
/// # Errors
/// [`NpyError::File`] around whatever is wrong.
pub fn load(path: impl AsRef<Path>) -> Result<Tensor, NpyError> {
    let path = path.as_ref();
    let bytes = read_file(path).map_err(NpyError::from);
    bytes.and_then(|bytes| read(&bytes)).map_err(NpyError::in_file(path))
}

/// Writes a `.npy` file. What is written of one that fails does not stay.
///
/// # Errors
/// [`NpyError::File`] around whatever is wrong.
pub fn save(path: impl AsRef<Path>, tensor: &TensorView<'_>) -> Result<(), NpyError> {
    save_file(path.as_ref(), |file| write(file, tensor))
}

/// Writes a file; what is written of one that fails does not stay.
fn save_file(
    path: &Path,
    write: impl FnOnce(io::BufWriter<&File>) -> Result<(), NpyError>,
) -> Result<(), NpyError> {
    let save = || {
        let file = File::create(path)?;
        let written = write(io::BufWriter::new(&file));
        if written.is_err() && file.metadata().is_ok_and(|data| data.is_file()) {
            let _ = std::fs::remove_file(path); // what is told is the first error
        }
        written
    };
    save().map_err(NpyError::in_file(path))
}

/// Bytes that are read between two looks at the signal to stop.
const LOOK: usize = 4 << 20;

/// The bytes of a regular file: opening a pipe would wait for its other end.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    match std::fs::metadata(path)?.is_file() {
        true => std::fs::read(path),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// Reads an array from the bytes of a npy file.
///
/// # Errors
/// Where the bytes are not a complete npy file, or of an unsupported dtype.
pub fn read(bytes: &[u8]) -> Result<Tensor, NpyError> {
    read_from(&mut &*bytes, bytes.len() as u64)
}

/// Reads an array from a source that delivers `available` bytes.
fn read_from(source: &mut dyn Read, available: u64) -> Result<Tensor, NpyError> {
    let header = Header::read(source)?;
    let found = available.saturating_sub(header.len);
    let expected = byte_len(&header.shape, header.dtype.size_of())? as u64;
    if expected != found {
        return Err(NpyError::Size { expected, found });
    }
    let stored = match header.fortran {
        false => header.shape.clone(),
        true => header.shape.iter().rev().copied().collect(),
    };
    let mut tensor = Tensor::zeros(header.dtype, stored)?;
    let bytes = tensor.as_mut_bytes()?;
    // What is compressed may become a thousand times as much.
    for part in stop::parts(0..bytes.len(), LOOK) {
        source.read_exact(bytes.get_mut(part).unwrap_or_default())?;
    }
    stop::check()?;
    if header.swapped {
        swap_bytes(header.dtype, bytes);
    }
    if header.dtype == DType::Bool {
        tensor.as_slice::<bool>()?;
    }
    if header.fortran {
        let reversed: Vec<usize> = (0..header.shape.rank()).rev().collect();
        tensor = tensor.view().permute(&reversed)?.to_tensor()?;
    }
    Ok(tensor)
}

/// Turns every number around; a complex element is two numbers.
fn swap_bytes(dtype: DType, bytes: &mut [u8]) {
    let numbers = if dtype.is_complex() { 2 } else { 1 };
    bytes.chunks_exact_mut(dtype.size_of() / numbers).for_each(<[u8]>::reverse);
}

/// Writes an array in the npy format.
///
/// # Errors
/// Where NumPy has no such dtype, or writing fails.
pub fn write(mut to: impl Write, tensor: &TensorView<'_>) -> Result<(), NpyError> {
    header::write(&mut to, tensor.dtype(), tensor.shape())?;
    match tensor.as_bytes() {
        Ok(bytes) => to.write_all(bytes)?,
        Err(_) => to.write_all(tensor.to_tensor()?.as_bytes())?,
    }
    Ok(to.flush()?)
}

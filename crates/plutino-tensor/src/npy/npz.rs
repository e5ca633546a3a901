//! Archives of named arrays, as `numpy.savez` and `numpy.savez_compressed` write them: a zip file
//! with one `NAME.npy` for each array.
//!
//! ```
//! use plutino_tensor::{Tensor, npy::npz};
//! let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
//! let mut file = Vec::new();
//! npz::write(&mut file, [("x", x.view())])?;
//! assert_eq!(npz::read(&file)?, [("x".to_owned(), x)]);
//! # Ok::<(), plutino_tensor::npy::NpyError>(())
//! ```

use super::NpyError;
use crate::{Tensor, TensorView};
use flate2::bufread::DeflateDecoder;
use rawzip::path::{EntryPath, ZipFilePath};
use rawzip::{CompressionMethod, ZipArchive, ZipArchiveWriter};
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::path::Path;

/// Deflate cannot expand more than this: a size above it is a lie, whatever else the file says.
/// (258 bytes from 2 bits, <https://www.zlib.net/zlib_tech.html>.)
const MAX_EXPANSION: u64 = 1032;

fn invalid(what: impl ToString) -> NpyError {
    NpyError::Archive { what: what.to_string() }
}

/// Reads all arrays of a `.npz` file, in the file's order.
///
/// # Errors
/// [`NpyError::File`] around whatever is wrong.
pub fn load(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>, NpyError> {
    let path = path.as_ref();
    let bytes = super::read_file(path).map_err(NpyError::from);
    bytes.and_then(|bytes| read(&bytes)).map_err(NpyError::in_file(path))
}

/// Writes a `.npz` file, uncompressed. What is written of one that fails does not stay.
///
/// # Errors
/// [`NpyError::File`] around whatever is wrong.
pub fn save<'a, N: AsRef<str>>(
    path: impl AsRef<Path>,
    arrays: impl IntoIterator<Item = (N, TensorView<'a>)>,
) -> Result<(), NpyError> {
    super::save_file(path.as_ref(), |file| write(file, arrays))
}

/// Reads all arrays from the bytes of a npz file, in the file's order.
///
/// # Errors
/// Where the archive or one of its arrays is not valid, or a name occurs twice.
pub fn read(bytes: &[u8]) -> Result<Vec<(String, Tensor)>, NpyError> {
    let archive = ZipArchive::from_slice(bytes).map_err(invalid)?;
    let mut arrays: Vec<(String, Tensor)> = Vec::new();
    let mut seen = HashSet::new();
    for entry in archive.entries() {
        let entry = entry.map_err(invalid)?;
        let path = entry.file_path();
        let path = std::str::from_utf8(path.as_bytes()).map_err(invalid)?;
        let name = path.strip_suffix(".npy").unwrap_or(path);
        if !seen.insert(name.to_owned()) {
            return Err(invalid(format!("array '{}' occurs twice", super::shown(name))));
        }
        let local = archive.get_entry(entry.wayfinder()).map_err(invalid)?;
        let (stored, size) = (local.data(), entry.uncompressed_size_hint());
        let tensor = match entry.compression_method() {
            CompressionMethod::STORE if size == stored.len() as u64 => {
                read_verified(local.verifying_reader(stored), size)
            }
            CompressionMethod::DEFLATE if size / MAX_EXPANSION <= stored.len() as u64 => {
                read_verified(local.verifying_reader(DeflateDecoder::new(stored)), size)
            }
            CompressionMethod::STORE | CompressionMethod::DEFLATE => {
                Err(invalid(format!("{} bytes in the archive cannot hold {size}", stored.len())))
            }
            other => Err(invalid(format!("compression method {other} is not supported"))),
        };
        arrays.push((name.to_owned(), tensor.map_err(NpyError::in_array(name))?));
    }
    Ok(arrays)
}

fn read_verified(mut source: impl Read, size: u64) -> Result<Tensor, NpyError> {
    let tensor = super::read_from(&mut source, size)?;
    // Size and checksum are compared at the end of the stream.
    match source.read(&mut [0])? {
        0 => Ok(tensor),
        _ => Err(invalid("more data than the archive's directory says")),
    }
}

/// Writes arrays in the npz format, uncompressed.
///
/// # Errors
/// Where NumPy has no such dtype, a name would lead out of a folder (`../x`), or writing fails.
pub fn write<'a, N: AsRef<str>>(
    to: impl Write,
    arrays: impl IntoIterator<Item = (N, TensorView<'a>)>,
) -> Result<(), NpyError> {
    let mut archive = ZipArchiveWriter::new(to);
    for (name, tensor) in arrays {
        let name = name.as_ref();
        write_array(&mut archive, name, &tensor).map_err(NpyError::in_array(name))?;
    }
    Ok(archive.finish().map_err(io::Error::other)?.flush()?)
}

/// The path of an entry, so that it reads back as it is here. Left to itself, the writer makes
/// `a/b` of `x:a\b`: one array then comes back under another's name.
///
/// Refused is what leads out of the folder into which somebody unpacks the archive (names of
/// operands come from a model), and what only a normalized path can say.
fn kept(path: &str) -> Result<EntryPath<'_>, NpyError> {
    let mut parts = path.split(['/', '\\']);
    if path.starts_with(['/', '\\']) || parts.any(|part| part == "..") || path.contains('\0') {
        return Err(invalid("such a name leads out of the folder that it is unpacked to"));
    }
    if path.is_ascii() {
        return Ok(EntryPath::verbatim(path.as_bytes()));
    }
    match ZipFilePath::from_str(path).as_ref() == path {
        true => Ok(EntryPath::conformant(path)),
        false => Err(invalid("a name beyond ASCII has neither ':' nor '\\', nor empty parts")),
    }
}

fn write_array(
    archive: &mut ZipArchiveWriter<impl Write>,
    name: &str,
    tensor: &TensorView<'_>,
) -> Result<(), NpyError> {
    let path = format!("{name}.npy");
    let (mut entry, config) = archive.new_file(kept(&path)?).start().map_err(io::Error::other)?;
    let mut data = config.wrap(&mut entry);
    super::write(&mut data, tensor)?;
    let (_, descriptor) = data.finish().map_err(io::Error::other)?;
    entry.finish(descriptor).map_err(io::Error::other)?;
    Ok(())
}

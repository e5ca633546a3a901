//! The header of a npy file. `npyz` reads and writes it; here it is guarded and translated.

use super::NpyError;
use crate::{DType, Shape};
use npyz::{Endianness, NpyHeader, Order, TypeChar, TypeStr, WriteOptions, WriterBuilder};
use std::io::{Read, Write};

/// Longest header text that is read. NumPy's own limit is 10,000.
const MAX_TEXT: usize = 1 << 16;

/// Deepest nesting of brackets that is read: a dict with a tuple needs 2, structured dtypes some more.
const MAX_NESTING: usize = 16;

/// What the header says.
pub(super) struct Header {
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    /// Elements lie in Fortran order: the first dimension varies fastest.
    pub(super) fortran: bool,
    /// Numbers are in the other byte order than the machine's.
    pub(super) swapped: bool,
    /// Bytes of the header itself.
    pub(super) len: u64,
}

fn invalid(what: impl Into<String>) -> NpyError {
    NpyError::Header { what: what.into() }
}

impl Header {
    pub(super) fn read(source: &mut dyn Read) -> Result<Self, NpyError> {
        let bytes = read_guarded(source)?;
        let header = NpyHeader::from_reader(&bytes[..]).map_err(|e| invalid(e.to_string()))?;
        let unsupported = || NpyError::UnsupportedDType { descr: header.dtype().descr() };
        let npyz::DType::Plain(descr) = header.dtype() else {
            return Err(unsupported());
        };
        let dtype = from_numpy(&descr).ok_or_else(unsupported)?;
        let dims: Result<Vec<usize>, _> = header.shape().iter().map(|&d| d.try_into()).collect();
        let endianness = descr.endianness();
        Ok(Self {
            dtype,
            shape: dims.map_err(|_| invalid("a dimension exceeds the address space"))?.into(),
            fortran: header.order() == Order::Fortran,
            swapped: endianness != Endianness::Irrelevant && endianness != Endianness::of_machine(),
            len: bytes.len() as u64,
        })
    }
}

/// The bytes of a header that `npyz` can be trusted with: it allocates whatever length the file names,
/// descends into brackets recursively, and multiplies dimensions without a check.
fn read_guarded(source: &mut dyn Read) -> Result<Vec<u8>, NpyError> {
    let truncated = |_| invalid("the header is cut off");
    let mut bytes = vec![0; 10];
    source.read_exact(&mut bytes).map_err(truncated)?;
    if !bytes.starts_with(b"\x93NUMPY") {
        return Err(invalid("it does not start with \\x93NUMPY"));
    }
    // Version 1 has a length of 2 bytes, later versions of 4.
    let mut len = [bytes[8], bytes[9], 0, 0];
    if bytes[6] >= 2 {
        source.read_exact(&mut len[2..]).map_err(truncated)?;
        bytes.extend(&len[2..]);
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > MAX_TEXT {
        return Err(invalid(format!("a header of {len} bytes, at most {MAX_TEXT} are read")));
    }
    let start = bytes.len();
    bytes.resize(start + len, 0);
    source.read_exact(&mut bytes[start..]).map_err(truncated)?;
    guard(&bytes[start..])?;
    Ok(bytes)
}

/// Bounds the nesting, and the product of all numbers: a valid header has no other numbers than the
/// dimensions and the size of an element, and these multiply to the size of the data.
fn guard(text: &[u8]) -> Result<(), NpyError> {
    let mut depth = 0usize;
    for byte in text {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_NESTING {
            return Err(invalid(format!("brackets nested deeper than {MAX_NESTING}")));
        }
    }
    let numbers = text.split(|b| !b.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let product = numbers.into_iter().try_fold(1u64, |product, digits| {
        let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        product.checked_mul(number.max(1))
    });
    match product.is_some_and(|p| i64::try_from(p).is_ok()) {
        true => Ok(()),
        false => Err(invalid("dimensions whose product exceeds 63 bits")),
    }
}

fn from_numpy(descr: &TypeStr) -> Option<DType> {
    Some(match (descr.type_char(), descr.size_field()) {
        (TypeChar::Bool, 1) => DType::Bool,
        (TypeChar::Uint, 1) => DType::U8,
        (TypeChar::Int, 1) => DType::I8,
        (TypeChar::Int, 2) => DType::I16,
        (TypeChar::Int, 4) => DType::I32,
        (TypeChar::Int, 8) => DType::I64,
        (TypeChar::Float, 2) => DType::F16,
        (TypeChar::Float, 4) => DType::F32,
        (TypeChar::Float, 8) => DType::F64,
        (TypeChar::Complex, 8) => DType::C64,
        (TypeChar::Complex, 16) => DType::C128,
        _ => return None,
    })
}

/// NumPy's kind letter; the number of bytes is that of the dtype.
fn numpy_kind(dtype: DType) -> Option<char> {
    Some(match dtype {
        DType::Bool => 'b',
        DType::U8 => 'u',
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 'i',
        DType::F16 | DType::F32 | DType::F64 => 'f',
        DType::C64 | DType::C128 => 'c',
        DType::Bf16 | DType::C32 => return None,
    })
}

/// Writes the header of a C-ordered array in the machine's byte order.
pub(super) fn write(to: &mut dyn Write, dtype: DType, shape: &Shape) -> Result<(), NpyError> {
    let kind = numpy_kind(dtype).ok_or(NpyError::NoNumpyDType { dtype })?;
    let order =
        if dtype.size_of() == 1 { Endianness::Irrelevant } else { Endianness::of_machine() };
    let descr = format!("{order}{kind}{}", dtype.size_of());
    let descr: TypeStr = descr.parse().map_err(|_| NpyError::NoNumpyDType { dtype })?;
    let dims: Vec<u64> = shape.iter().map(|&d| d as u64).collect();
    let options = WriteOptions::new_header_only().dtype(npyz::DType::new_scalar(descr));
    options.shape(&dims).writer(to).write_header_only()?;
    Ok(())
}

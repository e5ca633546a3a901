//! The header of a npy file: magic, version, length, and a Python dict literal with three entries,
//! `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
//!
//! Read strictly, and without recursion: what NumPy writes (versions 1 to 3, Python 2 included) is
//! understood, anything else is an error that says where it stands.

use super::NpyError;
use super::literal::Literal;
use crate::{DType, Shape};
use std::io::{Read, Write};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Longest header text that is read. NumPy's own limit is 10,000.
const MAX_TEXT: usize = 1 << 16;

/// The data begins at a multiple of this many bytes.
const ALIGN: usize = 64;

/// What the header says.
#[derive(Debug)]
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

pub(super) fn invalid(what: impl Into<String>) -> NpyError {
    NpyError::Header { what: what.into() }
}

impl Header {
    pub(super) fn read(source: &mut dyn Read) -> Result<Self, NpyError> {
        let truncated = |_| invalid("the header is cut off");
        let mut start = [0; 8];
        source.read_exact(&mut start).map_err(truncated)?;
        let [.., major, minor] = start;
        if !start.starts_with(MAGIC) {
            return Err(invalid("it does not start with \\x93NUMPY"));
        }
        let (len, length_field) = match (major, minor) {
            (1, 0) => {
                let mut len = [0; 2];
                source.read_exact(&mut len).map_err(truncated)?;
                (usize::from(u16::from_le_bytes(len)), 2)
            }
            (2 | 3, 0) => {
                let mut len = [0; 4];
                source.read_exact(&mut len).map_err(truncated)?;
                (usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX), 4)
            }
            _ => {
                let what = format!("version {major}.{minor} of the format, known are 1.0 to 3.0");
                return Err(invalid(what));
            }
        };
        if len > MAX_TEXT {
            return Err(invalid(format!("a header of {len} bytes, at most {MAX_TEXT} are read")));
        }
        let mut text = vec![0; len];
        source.read_exact(&mut text).map_err(truncated)?;
        let mut header = Self::parse(&text)?;
        header.len = (start.len() + length_field + len) as u64;
        Ok(header)
    }

    /// The dict literal. The three keys may stand in any order, as NumPy allows.
    fn parse(text: &[u8]) -> Result<Self, NpyError> {
        let mut literal = Literal::new(text);
        let (mut dtype, mut fortran, mut shape) = (None, None, None);
        literal.expect(b'{')?;
        while !literal.accept(b'}') {
            let at = literal.position();
            let key = literal.string()?;
            literal.expect(b':')?;
            let again = match key {
                b"descr" => dtype.replace(dtype_of(&mut literal)?).is_some(),
                b"fortran_order" => fortran.replace(literal.boolean()?).is_some(),
                b"shape" => shape.replace(literal.dims()?).is_some(),
                _ => {
                    return Err(invalid(format!("unknown key '{}' at byte {at}", quote(key))));
                }
            };
            if again {
                let key = quote(key);
                return Err(invalid(format!("key '{key}' stands twice, again at byte {at}")));
            }
            if !literal.accept(b',') {
                literal.expect(b'}')?;
                break;
            }
        }
        literal.end()?;
        let missing = |key: &str| invalid(format!("no key '{key}'"));
        let (dtype, swapped) = dtype.ok_or_else(|| missing("descr"))?;
        let fortran = fortran.ok_or_else(|| missing("fortran_order"))?;
        let shape: Shape = shape.ok_or_else(|| missing("shape"))?.into();
        check_size(&shape, dtype)?;
        Ok(Self { dtype, shape, fortran, swapped, len: 0 })
    }
}

/// No product of dimensions may overflow, not even where another one is 0: strides are such
/// products.
fn check_size(shape: &Shape, dtype: DType) -> Result<(), NpyError> {
    let bytes = shape.iter().try_fold(dtype.size_of(), |bytes, &d| bytes.checked_mul(d.max(1)));
    match bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok()) {
        true => Ok(()),
        false => Err(invalid("dimensions whose product exceeds the address space")),
    }
}

/// The dtype that comes next, and whether its numbers are in the other byte order than the
/// machine's.
fn dtype_of(literal: &mut Literal<'_>) -> Result<(DType, bool), NpyError> {
    // Structured dtypes are lists, NumPy's own way to write nested ones included.
    if literal.peek().is_some_and(|byte| byte == b'[' || byte == b'(') {
        let descr = literal.brackets()?;
        return Err(unsupported(descr));
    }
    let descr = literal.string()?;
    let (order, kind) = match descr {
        [order @ (b'<' | b'>' | b'|' | b'='), kind @ ..] => (*order, kind),
        kind => (b'=', kind),
    };
    let dtype = from_numpy(kind).ok_or_else(|| unsupported(descr))?;
    let swapped = dtype.size_of() > 1
        && match order {
            b'<' => cfg!(target_endian = "big"),
            b'>' => cfg!(target_endian = "little"),
            _ => false, // the machine's
        };
    Ok((dtype, swapped))
}

fn unsupported(descr: &[u8]) -> NpyError {
    NpyError::UnsupportedDType { descr: quote(descr) }
}

/// Text of the file as an error shows it: the beginning, escaped.
fn quote(text: &[u8]) -> String {
    const MOST: usize = 100;
    match text.get(..MOST) {
        Some(start) if text.len() > MOST => format!("{} ...", start.escape_ascii()),
        _ => text.escape_ascii().to_string(),
    }
}

/// NumPy's kind letter and number of bytes, where there is such a dtype.
const fn numpy_kind(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "b1",
        DType::U8 => "u1",
        DType::I8 => "i1",
        DType::I16 => "i2",
        DType::I32 => "i4",
        DType::I64 => "i8",
        DType::F16 => "f2",
        DType::F32 => "f4",
        DType::F64 => "f8",
        DType::C64 => "c8",
        DType::C128 => "c16",
        DType::Bf16 | DType::C32 => return None,
    })
}

fn from_numpy(kind: &[u8]) -> Option<DType> {
    DType::ALL.into_iter().find(|&dtype| numpy_kind(dtype).is_some_and(|k| k.as_bytes() == kind))
}

/// Writes the header of a C-ordered array in the machine's byte order, version 1.
pub(super) fn write(to: &mut dyn Write, dtype: DType, shape: &Shape) -> Result<(), NpyError> {
    let kind = numpy_kind(dtype).ok_or(NpyError::NoNumpyDType { dtype })?;
    let order = match (dtype.size_of(), cfg!(target_endian = "little")) {
        (1, _) => '|',
        (_, true) => '<',
        (_, false) => '>',
    };
    let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
    let comma = if dims.len() == 1 { "," } else { "" };
    let shape = format!("({}{comma})", dims.join(", "));
    let mut text =
        format!("{{'descr': '{order}{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    // Magic, version, length and the text, filled with blanks, with a line end as the last byte.
    let start = MAGIC.len() + 4;
    let end = (start + text.len() + 1).next_multiple_of(ALIGN);
    text.extend(std::iter::repeat_n(' ', end - start - text.len() - 1));
    text.push('\n');
    let len = u16::try_from(text.len())
        .map_err(|_| invalid(format!("{} dimensions do not fit a header", dims.len())))?;
    to.write_all(MAGIC)?;
    to.write_all(&[1, 0])?;
    to.write_all(&len.to_le_bytes())?;
    to.write_all(text.as_bytes())?;
    Ok(())
}

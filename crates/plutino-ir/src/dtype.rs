//! Element types and the type hints that a PNNX file records for its operands.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::quote::quote;

/// Type of one element, as PNNX names it in `#operand=(..)f32` and `@weight=(..)f32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 single precision, `f32` (`torch.float32`).
    F32,
    /// IEEE 754 double precision, `f64` (`torch.float64`).
    F64,
    /// IEEE 754 half precision, `f16` (`torch.float16`).
    F16,
    /// Signed 32-bit integer, `i32` (`torch.int32`).
    I32,
    /// Signed 64-bit integer, `i64` (`torch.int64`).
    I64,
    /// Signed 16-bit integer, `i16` (`torch.int16`).
    I16,
    /// Signed 8-bit integer, `i8` (`torch.int8`, `torch.qint8`).
    I8,
    /// Unsigned 8-bit integer, `u8` (`torch.uint8`, `torch.quint8`).
    U8,
    /// One byte, zero or one, `bool` (`torch.bool`).
    Bool,
    /// Two `f32`, real part first, `c64` (`torch.complex64`); older files write `cp64`.
    C64,
    /// Two `f64`, real part first, `c128` (`torch.complex128`); older files write `cp128`.
    C128,
    /// Two `f16`, real part first, `c32` (`torch.complex32`); older files write `cp32`.
    C32,
    /// Upper half of an `f32`, `bf16` (`torch.bfloat16`).
    Bf16,
}

impl DType {
    /// Every type, in the order of PNNX's own numbering (1 to 13).
    pub const ALL: [DType; 13] = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::I32,
        DType::I64,
        DType::I16,
        DType::I8,
        DType::U8,
        DType::Bool,
        DType::C64,
        DType::C128,
        DType::C32,
        DType::Bf16,
    ];

    /// Name in current files, for example `f32`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F16 => "f16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::I16 => "i16",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::Bool => "bool",
            DType::C64 => "c64",
            DType::C128 => "c128",
            DType::C32 => "c32",
            DType::Bf16 => "bf16",
        }
    }

    /// Size of one element in bytes.
    pub const fn size_of(self) -> usize {
        match self {
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::Bf16 | DType::I16 => 2,
            DType::F32 | DType::I32 | DType::C32 => 4,
            DType::F64 | DType::I64 | DType::C64 => 8,
            DType::C128 => 16,
        }
    }

    /// Looks up a name, including the older spellings `cp64`, `cp128` and `cp32`.
    pub fn from_name(name: &str) -> Option<DType> {
        match name {
            "cp64" => Some(DType::C64),
            "cp128" => Some(DType::C128),
            "cp32" => Some(DType::C32),
            _ => DType::ALL.into_iter().find(|dtype| dtype.name() == name),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is no PNNX element type.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "'{found}' is no element type; PNNX knows f32 f64 f16 i32 i64 i16 i8 u8 bool c64 c128 c32 bf16", found = quote(found)
)]
pub struct UnknownDType {
    /// The text that was read.
    pub found: String,
}

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        DType::from_name(name).ok_or_else(|| UnknownDType { found: name.to_owned() })
    }
}

/// One dimension of a recorded shape.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A size known when the model was exported.
    Known(usize),
    /// `?`: any size; two unknown dimensions need not agree.
    Unknown,
    /// `%name`: any size, the same wherever the name stands.
    Symbol(String),
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Known(size) => write!(f, "{size}"),
            Dim::Unknown => f.write_str("?"),
            Dim::Symbol(name) => write!(f, "%{name}"),
        }
    }
}

impl From<usize> for Dim {
    fn from(size: usize) -> Self {
        Dim::Known(size)
    }
}

/// What a file says about an operand: `#1=(1,64,112,112)f32`.
///
/// This is a hint, not a fact: exporters leave it out (0-d tensors, lists, scalars) and sometimes
/// get it wrong, so infer shapes and compare; never allocate from it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Dimensions; `None` if the file is silent, `Some` of nothing for rank 0.
    pub shape: Option<Vec<Dim>>,
    /// Element type; `None` if the file is silent or says `null`.
    pub dtype: Option<DType>,
}

impl TensorType {
    /// A fully known type.
    pub fn new(dtype: DType, shape: &[usize]) -> Self {
        TensorType {
            shape: Some(shape.iter().copied().map(Dim::Known).collect()),
            dtype: Some(dtype),
        }
    }

    /// Number of dimensions, if recorded.
    pub fn rank(&self) -> Option<usize> {
        self.shape.as_ref().map(Vec::len)
    }

    /// The sizes, if every dimension is recorded as a number.
    pub fn known_shape(&self) -> Option<Vec<usize>> {
        self.shape
            .as_ref()?
            .iter()
            .map(|dim| match dim {
                Dim::Known(size) => Some(*size),
                Dim::Unknown | Dim::Symbol(_) => None,
            })
            .collect()
    }
}

impl fmt::Display for TensorType {
    /// As in the file, `(1,?,%w)f32`; `null` where the element type is not known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            Some(dims) => write_tuple(f, dims)?,
            None => f.write_str("(...)")?,
        }
        f.write_str(self.dtype.map_or("null", DType::name))
    }
}

/// `(a,b,c)` without blanks, as PNNX writes shapes and lists.
pub(crate) fn write_tuple<T: fmt::Display>(out: &mut impl fmt::Write, items: &[T]) -> fmt::Result {
    out.write_char('(')?;
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.write_char(',')?;
        }
        write!(out, "{item}")?;
    }
    out.write_char(')')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        }
        assert_eq!("cp64".parse(), Ok(DType::C64));
        assert_eq!("cp128".parse(), Ok(DType::C128));
        assert_eq!("cp32".parse(), Ok(DType::C32));
        assert_eq!("float".parse::<DType>(), Err(UnknownDType { found: "float".into() }));
        let sizes = DType::ALL.map(DType::size_of);
        assert_eq!(sizes, [4, 8, 2, 4, 8, 2, 1, 1, 1, 8, 16, 4, 2]);
    }

    #[test]
    fn type_text() {
        let ty = TensorType {
            shape: Some(vec![Dim::Known(1), Dim::Unknown, Dim::Symbol("w".into())]),
            dtype: Some(DType::Bf16),
        };
        assert_eq!(ty.to_string(), "(1,?,%w)bf16");
        assert_eq!(ty.known_shape(), None);
        assert_eq!(TensorType::new(DType::F32, &[2, 3]).known_shape(), Some(vec![2, 3]));
        assert_eq!(TensorType { shape: Some(vec![]), dtype: None }.to_string(), "()null");
    }
}

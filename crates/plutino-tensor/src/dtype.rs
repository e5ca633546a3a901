//! Element types.

use bytemuck::checked::CheckedCastError;
use bytemuck::{CheckedBitPattern, NoUninit};
use half::{bf16, f16};
use num_complex::Complex;

/// The element types that PNNX names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary16.
    F16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Signed 16-bit integer.
    I16,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 8-bit integer.
    U8,
    /// One byte, 0 or 1.
    Bool,
    /// Complex number of two f32.
    C64,
    /// Complex number of two f64.
    C128,
    /// Complex number of two f16.
    C32,
    /// The upper half of a binary32 (bfloat16).
    Bf16,
}

impl DType {
    /// Every dtype, in the order of PNNX's type numbers.
    pub const ALL: [Self; 13] = [
        Self::F32,
        Self::F64,
        Self::F16,
        Self::I32,
        Self::I64,
        Self::I16,
        Self::I8,
        Self::U8,
        Self::Bool,
        Self::C64,
        Self::C128,
        Self::C32,
        Self::Bf16,
    ];

    /// Bytes of one element.
    pub const fn size_of(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::Bf16 | Self::I16 => 2,
            Self::F32 | Self::I32 | Self::C32 => 4,
            Self::F64 | Self::I64 | Self::C64 => 8,
            Self::C128 => 16,
        }
    }

    /// PNNX's name, such as `f32`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F16 => "f16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::I16 => "i16",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::Bool => "bool",
            Self::C64 => "c64",
            Self::C128 => "c128",
            Self::C32 => "c32",
            Self::Bf16 => "bf16",
        }
    }

    /// The dtype of this PNNX name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Whether the dtype is a real floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::Bf16)
    }

    /// Whether the dtype is complex.
    pub const fn is_complex(self) -> bool {
        matches!(self, Self::C64 | Self::C128 | Self::C32)
    }

    /// Whether the dtype is an integer (bool is not).
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::I64 | Self::I32 | Self::I16 | Self::I8 | Self::U8)
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is the element of some [`DType`]. Sealed: there are exactly thirteen.
pub trait Element:
    sealed::Sealed
    + crate::Convert
    + CheckedBitPattern
    + NoUninit
    + Default
    + PartialEq
    + std::fmt::Debug
    + Send
    + Sync
{
    /// The dtype of this type.
    const DTYPE: DType;

    /// Reads bytes as elements.
    ///
    /// # Errors
    /// Where length or alignment do not suit them, or a byte is no bool.
    fn of_bytes(bytes: &[u8]) -> Result<&[Self], CheckedCastError>;

    /// As [`Element::of_bytes`].
    ///
    /// # Errors
    /// The same.
    fn of_bytes_mut(bytes: &mut [u8]) -> Result<&mut [Self], CheckedCastError>;
}

macro_rules! elements {
    ($($t:ty => $d:ident),* $(,)?) => {$(
        impl sealed::Sealed for $t {}
        // Whatever the bits are, they are a number: to ask each costs nothing only when optimised.
        impl Element for $t {
            const DTYPE: DType = DType::$d;

            fn of_bytes(bytes: &[u8]) -> Result<&[Self], CheckedCastError> {
                bytemuck::try_cast_slice(bytes).map_err(CheckedCastError::from)
            }

            fn of_bytes_mut(bytes: &mut [u8]) -> Result<&mut [Self], CheckedCastError> {
                bytemuck::try_cast_slice_mut(bytes).map_err(CheckedCastError::from)
            }
        }
    )*};
}
elements! {
    f32 => F32, f64 => F64, f16 => F16, bf16 => Bf16,
    i64 => I64, i32 => I32, i16 => I16, i8 => I8, u8 => U8,
    Complex<f32> => C64, Complex<f64> => C128, Complex<f16> => C32,
}

impl sealed::Sealed for bool {}
impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn of_bytes(bytes: &[u8]) -> Result<&[Self], CheckedCastError> {
        bytemuck::checked::try_cast_slice(bytes)
    }

    fn of_bytes_mut(bytes: &mut [u8]) -> Result<&mut [Self], CheckedCastError> {
        bytemuck::checked::try_cast_slice_mut(bytes)
    }
}

/// Evaluates an expression with a type name bound to the element type of a [`DType`]; all branches
/// have the same type.
///
/// ```
/// use plutino_tensor::{DType, Element, for_dtype};
/// fn name(dtype: DType) -> &'static str {
///     for_dtype!(dtype, T => std::any::type_name::<T>())
/// }
/// assert_eq!(name(DType::I16), "i16");
/// ```
#[macro_export]
macro_rules! for_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::for_dtype!(@match $dtype, $T, $body,
            F32 f32, F64 f64, F16 $crate::f16, Bf16 $crate::bf16,
            I64 i64, I32 i32, I16 i16, I8 i8, U8 u8, Bool bool,
            C64 $crate::Complex<f32>, C128 $crate::Complex<f64>, C32 $crate::Complex<$crate::f16>)
    };
    (@match $dtype:expr, $T:ident, $body:expr, $($d:ident $t:ty),*) => {
        match $dtype {
            $($crate::DType::$d => {
                type $T = $t;
                $body
            })*
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes() {
        for d in DType::ALL {
            assert_eq!(DType::from_name(d.name()), Some(d));
        }
        assert_eq!(size_of::<Complex<f16>>(), DType::C32.size_of());
        assert_eq!(size_of::<Complex<f64>>(), DType::C128.size_of());
    }
}

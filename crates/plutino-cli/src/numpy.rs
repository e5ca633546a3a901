//! What NumPy calls dtypes, and what becomes of those that it does not have.

use plutino::{DType, Tensor, TensorError};
use std::borrow::Cow;

/// NumPy's name of a dtype; none where it has none.
pub(crate) fn name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::F16 => "float16",
        DType::I64 => "int64",
        DType::I32 => "int32",
        DType::I16 => "int16",
        DType::I8 => "int8",
        DType::U8 => "uint8",
        DType::Bool => "bool_",
        DType::C64 => "complex64",
        DType::C128 => "complex128",
        _ => return None,
    })
}

/// The tensor with the same values in a dtype that NumPy has: f32 for bf16, c64 for c32.
pub(crate) fn storable(tensor: &Tensor) -> Result<Cow<'_, Tensor>, TensorError> {
    Ok(match (name(tensor.dtype()), tensor.dtype().is_complex()) {
        (Some(_), _) => Cow::Borrowed(tensor),
        (None, false) => Cow::Owned(tensor.cast(DType::F32)?),
        (None, true) => Cow::Owned(tensor.cast(DType::C64)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_is_stored_with_its_values() {
        for dtype in DType::ALL {
            let x = Tensor::ones(dtype, [2]).unwrap();
            let y = storable(&x).unwrap();
            assert!(name(y.dtype()).is_some(), "{dtype}");
            assert_eq!(y.cast(dtype).unwrap(), x);
            plutino::npy::write(Vec::new(), &y.view()).unwrap();
        }
    }
}

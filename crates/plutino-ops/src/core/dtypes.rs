//! The dtypes of files and those of tensors: the same thirteen, for `plutino-ir` knows no tensors.

use plutino_ir::DType as Recorded;
use plutino_tensor::DType;

/// The dtype of tensors that a file calls so.
pub fn dtype_of(recorded: Recorded) -> DType {
    match recorded {
        Recorded::F32 => DType::F32,
        Recorded::F64 => DType::F64,
        Recorded::F16 => DType::F16,
        Recorded::I32 => DType::I32,
        Recorded::I64 => DType::I64,
        Recorded::I16 => DType::I16,
        Recorded::I8 => DType::I8,
        Recorded::U8 => DType::U8,
        Recorded::Bool => DType::Bool,
        Recorded::C64 => DType::C64,
        Recorded::C128 => DType::C128,
        Recorded::C32 => DType::C32,
        Recorded::Bf16 => DType::Bf16,
    }
}

/// What a file calls a dtype of tensors.
pub fn recorded_as(dtype: DType) -> Recorded {
    match dtype {
        DType::F32 => Recorded::F32,
        DType::F64 => Recorded::F64,
        DType::F16 => Recorded::F16,
        DType::I32 => Recorded::I32,
        DType::I64 => Recorded::I64,
        DType::I16 => Recorded::I16,
        DType::I8 => Recorded::I8,
        DType::U8 => Recorded::U8,
        DType::Bool => Recorded::Bool,
        DType::C64 => Recorded::C64,
        DType::C128 => Recorded::C128,
        DType::C32 => Recorded::C32,
        DType::Bf16 => Recorded::Bf16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_have_the_same_names() {
        for name in "f32 f64 f16 bf16 i32 i64 i16 i8 u8 bool c64 c128 c32".split(' ') {
            let (recorded, dtype) = (Recorded::from_name(name), DType::from_name(name));
            assert_eq!(recorded.map(dtype_of), dtype, "{name}");
            assert_eq!(dtype.map(recorded_as), recorded, "{name}");
            assert!(dtype.is_some_and(|dtype| dtype.name() == name), "{name}");
        }
    }
}

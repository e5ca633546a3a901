//! Type promotion: which dtype a function of several arguments computes in.
//!
//! The rules are those of
//! <https://pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc>. Dtypes have
//! categories, bool < integers < floats < complex numbers. Arguments have a [`Standing`]: a tensor
//! of rank 0 decides the dtype only where its category is higher than that of all tensors with
//! dimensions, and a Python number only where its category is higher than that of all tensors.

use plutino_tensor::DType;

/// The dtype of results that are floats though no argument is (PyTorch's default dtype).
pub(crate) const DEFAULT_FLOAT: DType = DType::F32;

/// How much an argument has to say about the dtype of the result, the most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// A tensor with dimensions.
    Tensor,
    /// A tensor of rank 0.
    Scalar,
    /// A Python number. Its dtype is f64, i64, c128 or bool, and counts as the default one of its
    /// category.
    Python,
}

/// The dtype in which a function computes with these arguments; none without arguments.
pub(crate) fn result_type(arguments: impl IntoIterator<Item = (DType, Standing)>) -> Option<DType> {
    let mut by_standing = [None; 3];
    for (dtype, standing) in arguments {
        let dtype = match standing {
            Standing::Python if dtype.is_complex() => DType::C64,
            Standing::Python if dtype.is_float() => DEFAULT_FLOAT,
            _ => dtype,
        };
        let so_far = &mut by_standing[standing as usize];
        *so_far = Some(so_far.map_or(dtype, |other| promote(other, dtype)));
    }
    by_standing.into_iter().flatten().reduce(defer)
}

/// The dtype for arguments of standing `higher`, and of a lower standing.
fn defer(higher: DType, lower: DType) -> DType {
    let (high, low) = (Category::of(higher), Category::of(lower));
    match () {
        () if high >= low => higher,
        // A float and a complex number: the float's precision is kept.
        () if high == Category::Float => complex_of(higher),
        () => promote(higher, lower),
    }
}

/// The least dtype to which both can be converted: `torch.promote_types`.
pub(crate) fn promote(a: DType, b: DType) -> DType {
    let (low, high) = if Category::of(a) <= Category::of(b) { (a, b) } else { (b, a) };
    match (Category::of(low), Category::of(high)) {
        _ if low == high => low,
        (Category::Bool, _) | (Category::Integer, Category::Float | Category::Complex) => high,
        (Category::Integer, _) => match (low, high) {
            (DType::U8, DType::I8) | (DType::I8, DType::U8) => DType::I16,
            _ => larger(low, high),
        },
        (Category::Float, Category::Complex) => complex_of(promote(low, part_of(high))),
        (Category::Float, _) => match (low, high) {
            (DType::F16, DType::Bf16) | (DType::Bf16, DType::F16) => DType::F32,
            _ => larger(low, high),
        },
        (Category::Complex, _) => larger(low, high),
    }
}

/// The dtype for a function whose results are no integers: `sqrt`, true division.
pub(crate) fn inexact(dtype: DType) -> DType {
    match Category::of(dtype) {
        Category::Bool | Category::Integer => DEFAULT_FLOAT,
        Category::Float | Category::Complex => dtype,
    }
}

/// The least and the greatest integer of a dtype.
pub(crate) fn range_of(dtype: DType) -> Option<[i64; 2]> {
    match dtype {
        DType::U8 => Some([0, 255]),
        DType::I8 => Some([i8::MIN.into(), i8::MAX.into()]),
        DType::I16 => Some([i16::MIN.into(), i16::MAX.into()]),
        DType::I32 => Some([i32::MIN.into(), i32::MAX.into()]),
        DType::I64 => Some([i64::MIN, i64::MAX]),
        _ => None,
    }
}

/// bool < integers < floats < complex numbers
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Category {
    Bool,
    Integer,
    Float,
    Complex,
}

impl Category {
    pub(crate) fn of(dtype: DType) -> Self {
        match dtype {
            DType::Bool => Self::Bool,
            _ if dtype.is_integer() => Self::Integer,
            _ if dtype.is_float() => Self::Float,
            _ => Self::Complex,
        }
    }
}

fn larger(a: DType, b: DType) -> DType {
    if a.size_of() >= b.size_of() { a } else { b }
}

/// The float of a complex number's parts.
fn part_of(dtype: DType) -> DType {
    plutino_kernels::elementwise::real_of(dtype)
}

/// The complex dtype with such parts; bf16 has none of its own.
fn complex_of(dtype: DType) -> DType {
    plutino_kernels::elementwise::complex_of(dtype)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Standing::{Python, Scalar, Tensor};

    #[test]
    fn promote_types_as_documented() {
        use DType::*;
        #[rustfmt::skip]
        let table = [
            (Bool, U8, U8), (Bool, F16, F16), (U8, I8, I16), (U8, I16, I16), (I8, I64, I64), (I64, F16, F16),
            (F16, Bf16, F32), (F16, F32, F32), (F32, F64, F64), (Bf16, F64, F64), (I64, C64, C64),
            (F64, C64, C128), (F32, C32, C64), (F16, C32, C32), (Bf16, C32, C64), (C32, C128, C128),
        ];
        for (a, b, expected) in table {
            assert_eq!(promote(a, b), expected, "{a} and {b}");
            assert_eq!(promote(b, a), expected, "{b} and {a}");
        }
        for a in DType::ALL {
            assert_eq!(promote(a, a), a);
        }
    }

    #[test]
    fn lower_standing_decides_only_by_category() {
        use DType::*;
        #[rustfmt::skip]
        let table: &[(&[(DType, Standing)], DType)] = &[
            // The examples of PyTorch's documentation.
            (&[(I32, Tensor), (I64, Python)], I32),
            (&[(I32, Tensor), (F64, Scalar)], F64),
            (&[(I32, Tensor), (I64, Scalar)], I32),
            (&[(F32, Tensor), (F64, Scalar)], F32),
            (&[(F32, Tensor), (C128, Scalar)], C64),
            (&[(Bool, Tensor), (I64, Python)], I64),
            (&[(Bool, Tensor), (F64, Python)], F32),
            (&[(I64, Tensor), (F64, Python)], F32),
            (&[(F16, Tensor), (F64, Python)], F16),
            (&[(F64, Tensor), (C128, Python)], C128),
            (&[(I64, Tensor), (C128, Python)], C64),
            (&[(I64, Scalar), (I32, Tensor), (U8, Tensor)], I32),
            (&[(F64, Scalar), (F64, Python)], F64),
            (&[(Bool, Tensor), (U8, Scalar), (F64, Python)], F32),
        ];
        for (arguments, expected) in table {
            assert_eq!(result_type(arguments.iter().copied()), Some(*expected), "{arguments:?}");
        }
        assert_eq!(result_type([]), None);
    }
}

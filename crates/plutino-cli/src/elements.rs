//! The elements of a tensor as JSON.

use crate::failure::Failure;
use plutino::{Complex, DType, Tensor};
use serde::Serialize;

/// Elements in row-major order. JSON has neither NaN nor infinities: those are null.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Elements {
    Bools(Vec<bool>),
    Integers(Vec<i64>),
    Floats(Vec<Option<f64>>),
    Complex(Vec<[Option<f64>; 2]>),
}

impl Elements {
    pub(crate) fn of(tensor: &Tensor) -> Result<Self, Failure> {
        let finite = |x: f64| Some(x).filter(|x| x.is_finite());
        Ok(match tensor.dtype() {
            DType::Bool => Self::Bools(tensor.as_slice::<bool>()?.to_vec()),
            dtype if dtype.is_complex() => {
                let cast = tensor.cast(DType::C128)?;
                let all = cast.as_slice::<Complex<f64>>()?.iter();
                Self::Complex(all.map(|z| [finite(z.re), finite(z.im)]).collect())
            }
            dtype if dtype.is_float() => {
                let cast = tensor.cast(DType::F64)?;
                Self::Floats(cast.as_slice::<f64>()?.iter().copied().map(finite).collect())
            }
            _ => Self::Integers(tensor.cast(DType::I64)?.as_slice::<i64>()?.to_vec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sort_of_number() {
        let json = |tensor: Result<Tensor, _>| {
            serde_json::to_string(&Elements::of(&tensor.unwrap()).unwrap()).unwrap()
        };
        assert_eq!(json(Tensor::from_slice(&[true, false], [2])), "[true,false]");
        assert_eq!(json(Tensor::from_slice(&[u8::MAX], [1])), "[255]");
        assert_eq!(json(Tensor::from_slice(&[0.5f32, f32::NAN], [2])), "[0.5,null]");
        let z = Complex::new(1.0f32, f32::INFINITY);
        assert_eq!(json(Tensor::from_slice(&[z], [1])), "[[1.0,null]]");
    }
}

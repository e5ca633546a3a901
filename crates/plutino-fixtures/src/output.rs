//! What PyTorch computed, whole or as a sample.

use plutino_tensor::{DType, Element, Tensor, TensorError, Tolerance};
use serde::Deserialize;
use thiserror::Error;

/// An output as `fixture.json` describes it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Description {
    name: String,
    shape: Vec<usize>,
    min: f64,
    max: f64,
}

/// What PyTorch computed for one output of a network.
#[derive(Debug, Clone)]
pub struct Output {
    /// `out0`, `out1`, ... in the order of the graph's outputs.
    pub name: String,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Smallest and largest value.
    pub range: (f64, f64),
    /// Largest error allowed, relative to the value that is largest in magnitude.
    pub tolerance: f64,
    values: Values,
}

#[derive(Debug, Clone)]
enum Values {
    Whole(Tensor),
    /// Flat indices and the values there.
    Sample(Vec<i64>, Tensor),
}

/// An output is not what PyTorch computed.
#[derive(Debug, Clone, PartialEq, Error)]
#[allow(missing_docs)] // the fields are what their names say
pub enum Mismatch {
    /// Dtype or shape differ, or the tensor cannot be read.
    #[error("{output}: {error}")]
    Tensor { output: String, error: TensorError },
    /// A value is too far away.
    #[error("{output}: error {error:.3e} of the largest value, allowed {tolerance:.0e} ({detail})")]
    Values { output: String, error: f64, tolerance: f64, detail: String },
}

impl Output {
    pub(crate) fn read(
        description: &Description,
        arrays: &[(String, Tensor)],
        tolerance: f64,
    ) -> Result<Output, String> {
        let Description { name, shape, min, max } = description.clone();
        let array = |key: &str| arrays.iter().find(|(name, _)| name == key).map(|(_, array)| array);
        let part = |part: &str| {
            let key = format!("{name}.{part}");
            array(&key).ok_or_else(|| format!("outputs.npz has neither {name} nor {key}"))
        };
        let values = match array(&name) {
            Some(whole) => Values::Whole(whole.clone()),
            None => {
                let indices = part("indices")?.as_slice::<i64>().map_err(|e| e.to_string())?;
                Values::Sample(indices.to_vec(), part("values")?.clone())
            }
        };
        Ok(Output { name, shape, range: (min, max), tolerance, values })
    }

    /// All of PyTorch's values, where they are kept and not only a sample.
    pub fn whole(&self) -> Option<&Tensor> {
        match &self.values {
            Values::Whole(tensor) => Some(tensor),
            Values::Sample(..) => None,
        }
    }

    /// The largest error of `actual`, relative to the value that is largest in magnitude. Where
    /// PyTorch's values are sampled, the extreme values of `actual` must agree as well.
    ///
    /// # Errors
    /// If dtype or shape differ, or the error is larger than the tolerance.
    pub fn verify(&self, actual: &Tensor) -> Result<f64, Mismatch> {
        let broken = |error| Mismatch::Tensor { output: self.name.clone(), error };
        let largest = self.range.0.abs().max(self.range.1.abs());
        let allowed = Tolerance { rtol: 0.0, atol: self.tolerance * largest };
        let comparison = match &self.values {
            Values::Whole(expected) => actual.compare(expected, allowed).map_err(broken)?,
            Values::Sample(indices, expected) => {
                let values = self.floats(actual).map_err(broken)?;
                let at =
                    |&index: &i64| usize::try_from(index).ok().and_then(|i| values.get(i)).copied();
                let mut sampled: Vec<f32> =
                    indices.iter().map(|i| at(i).unwrap_or(f32::NAN)).collect();
                let (min, max) =
                    values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(min, max), &v| {
                        (min.min(v), max.max(v))
                    });
                sampled.extend([min, max]);
                let mut known = expected.as_slice::<f32>().map_err(broken)?.to_vec();
                known.extend([self.range.0 as f32, self.range.1 as f32]);
                let tensor = |values: Vec<f32>| Tensor::from_vec(values.clone(), [values.len()]);
                let (sampled, known) =
                    (tensor(sampled).map_err(broken)?, tensor(known).map_err(broken)?);
                sampled.compare(&known, allowed).map_err(broken)?
            }
        };
        let error = comparison.max_abs_error / largest;
        if comparison.is_match() {
            return Ok(error);
        }
        Err(Mismatch::Values {
            output: self.name.clone(),
            error,
            tolerance: self.tolerance,
            detail: comparison.to_string(),
        })
    }

    /// The elements of an f32 tensor of the right shape.
    fn floats<'t>(&self, actual: &'t Tensor) -> Result<&'t [f32], TensorError> {
        if actual.dtype() != DType::F32 {
            return Err(TensorError::DType { expected: f32::DTYPE, found: actual.dtype() });
        }
        if actual.shape()[..] != self.shape[..] {
            let (expected, found) = (self.shape.clone().into(), actual.shape().clone());
            return Err(TensorError::Shape { expected, found });
        }
        actual.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled() -> Output {
        let description =
            Description { name: "out0".into(), shape: vec![2, 3], min: -4.0, max: 2.0 };
        let indices = Tensor::from_slice(&[0i64, 4], [2]).unwrap();
        let values = Tensor::from_slice(&[1.0f32, 0.5], [2]).unwrap();
        let arrays = [("out0.indices".into(), indices), ("out0.values".into(), values)];
        Output::read(&description, &arrays, 1e-5).unwrap()
    }

    fn tensor(values: [f32; 6]) -> Tensor {
        Tensor::from_slice(&values, [2, 3]).unwrap()
    }

    #[test]
    fn a_sample_is_compared_at_its_indices() {
        let output = sampled();
        assert_eq!(output.verify(&tensor([1.0, 2.0, 0.0, -4.0, 0.5, 0.1])), Ok(0.0));
        let near = output.verify(&tensor([1.0 + 3e-5, 2.0, 0.7, -4.0, 0.5, 0.3])).unwrap();
        assert!((7e-6..8e-6).contains(&near), "{near}");
        let far = output.verify(&tensor([1.0 + 5e-5, 2.0, 0.0, -4.0, 0.5, 0.1]));
        assert!(matches!(far, Err(Mismatch::Values { .. })));
    }

    #[test]
    fn a_sample_comes_with_the_extremes() {
        let wrong = sampled().verify(&tensor([1.0, 2.1, 0.0, -4.0, 0.5, 0.1]));
        assert!(matches!(wrong, Err(Mismatch::Values { .. })));
        let nan = sampled().verify(&tensor([f32::NAN, 2.0, 0.0, -4.0, 0.5, 0.1]));
        assert!(matches!(nan, Err(Mismatch::Values { .. })));
    }

    #[test]
    fn another_shape_is_refused() {
        let flat = Tensor::from_slice(&[0.0f32; 6], [6]).unwrap();
        assert!(matches!(sampled().verify(&flat), Err(Mismatch::Tensor { .. })));
    }
}

//! Chains of layers, for how exact results are.

use plutino_ir::Graph;
use plutino_tensor::{Tensor, npy};
use serde::Deserialize;

use crate::{Fixture, FixtureError, folder, read_json, subfolders};

/// A chain of layers with its outputs in f64: a folder of `fixtures/precision/`.
#[derive(Debug, Clone)]
pub struct Chain {
    /// How far onnxruntime's f32 is off.
    pub onnxruntime: Errors,
    fixture: Fixture,
    /// The largest magnitude among all outputs.
    largest: f64,
    /// Flat indices of the values that are kept, where not all are.
    indices: Option<Vec<i64>>,
    exact: Vec<f64>,
}

/// Errors against f64, relative to the output's largest value.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Errors {
    /// Of the value that is farthest off.
    pub largest: f64,
    /// The root of the mean square.
    pub rms: f64,
}

#[derive(Deserialize)]
struct Description {
    largest: f64,
    onnxruntime: Errors,
}

impl Chain {
    /// The chain of that name.
    ///
    /// # Errors
    /// If there is none, or its files are not right.
    pub fn named(name: &str) -> Result<Self, FixtureError> {
        let path = folder().join("precision").join(name);
        let fixture = Fixture::load(&path)?;
        let Description { largest, onnxruntime } = read_json(path.join("fixture.json"))?;
        let (mut indices, mut exact) = (None, None);
        for (key, array) in npy::npz::load(path.join("outputs.npz"))? {
            match &key[..] {
                "out0.indices" => indices = Some(array.as_slice::<i64>()?.to_vec()),
                _ => exact = Some(array.as_slice::<f64>()?.to_vec()),
            }
        }
        let nothing = || FixtureError::Content { path, what: "no outputs".into() };
        let exact = exact.filter(|values| !values.is_empty()).ok_or_else(nothing)?;
        Ok(Self { onnxruntime, fixture, largest, indices, exact })
    }

    /// Names of all chains, sorted.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn names() -> Result<Vec<String>, FixtureError> {
        subfolders(&folder().join("precision"))
    }

    /// The graph with its weights.
    ///
    /// # Errors
    /// If a file is missing or not right.
    pub fn graph(&self) -> Result<Graph, FixtureError> {
        self.fixture.graph()
    }

    /// The input.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn inputs(&self) -> Result<Vec<Tensor>, FixtureError> {
        Ok(self.fixture.inputs()?.into_iter().map(|(_, tensor)| tensor).collect())
    }

    /// How far an output is off.
    ///
    /// # Errors
    /// If it is not of f32, or has too few values.
    pub fn errors(&self, output: &Tensor) -> Result<Errors, FixtureError> {
        let found = output.as_slice::<f32>()?;
        let place = |i: usize| match &self.indices {
            Some(indices) => indices.get(i).and_then(|&at| usize::try_from(at).ok()),
            None => Some(i),
        };
        let (mut largest, mut squares) = (0.0f64, 0.0);
        for (i, exact) in self.exact.iter().enumerate() {
            let Some(&value) = place(i).and_then(|at| found.get(at)) else {
                let what = format!("an output of {} values", found.len());
                return Err(FixtureError::Content { path: self.fixture.path().into(), what });
            };
            let error = (f64::from(value) - exact).abs() / self.largest;
            // NaN stays.
            largest = if error <= largest || largest.is_nan() { largest } else { error };
            squares += error * error;
        }
        Ok(Errors { largest, rms: (squares / self.exact.len() as f64).sqrt() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chain_is_complete() {
        let names = Chain::names().unwrap();
        assert!(names.len() >= 20, "{} chains", names.len());
        for name in names {
            let chain = Chain::named(&name).unwrap();
            assert!(chain.graph().unwrap().has_weights(), "{name}");
            assert_eq!(chain.inputs().unwrap().len(), 1, "{name}");
            assert!(chain.onnxruntime.rms > 0.0, "{name}");
        }
    }

    #[test]
    fn errors_are_relative_to_the_largest_value() {
        let mut chain = Chain::named("gelu").unwrap();
        (chain.largest, chain.indices, chain.exact) = (4.0, Some(vec![2, 0]), vec![1.0, -4.0]);
        let output = Tensor::from_slice(&[-4.0f32, 9.0, 2.0], [3]).unwrap();
        let Errors { largest, rms } = chain.errors(&output).unwrap();
        assert_eq!(largest, 0.25);
        assert!((rms - 0.25 / 2.0f64.sqrt()).abs() < 1e-12, "{rms}");
        let nan = Tensor::from_slice(&[-4.0f32, 9.0, f32::NAN], [3]).unwrap();
        assert!(chain.errors(&nan).unwrap().largest.is_nan());
        assert!(chain.errors(&Tensor::from_slice(&[1.0f32], [1]).unwrap()).is_err());
    }
}

//! Small graphs of one operator or a few.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plutino_ir::Graph;
use plutino_tensor::{Tensor, Tolerance, npy};
use serde::Deserialize;

use crate::{FixtureError, folder, read_json, subfolders};

/// A graph of one operator or a few, with inputs and PyTorch's outputs: a folder of `fixtures/ops/`.
#[derive(Debug, Clone)]
pub struct OpCase {
    /// Name of its folder.
    pub name: String,
    /// The operators in it, by kind, with their number.
    pub operators: BTreeMap<String, usize>,
    /// How far outputs may be off.
    pub tolerance: Tolerance,
    path: PathBuf,
}

#[derive(Deserialize)]
struct Meta {
    operators: BTreeMap<String, usize>,
    rtol: f64,
    atol: f64,
}

impl OpCase {
    /// The case of that name.
    ///
    /// # Errors
    /// If there is none, or its description is not right.
    pub fn named(name: &str) -> Result<OpCase, FixtureError> {
        let path = folder().join("ops").join(name);
        let Meta { operators, rtol, atol } = read_json(path.join("meta.json"))?;
        Ok(OpCase { name: name.to_owned(), operators, tolerance: Tolerance { rtol, atol }, path })
    }

    /// Every case, by name.
    ///
    /// # Errors
    /// If the folder cannot be read, or a description is not right.
    pub fn all() -> Result<Vec<OpCase>, FixtureError> {
        subfolders(&folder().join("ops"))?.iter().map(|name| OpCase::named(name)).collect()
    }

    /// The case's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The graph with its weights.
    ///
    /// # Errors
    /// If a file is missing or not right.
    pub fn graph(&self) -> Result<Graph, FixtureError> {
        Ok(Graph::load(self.path.join("model.pnnx.param"))?)
    }

    /// The inputs `in0`, `in1`, ... in the order of the graph's.
    ///
    /// # Errors
    /// If the file is missing or not right.
    pub fn inputs(&self) -> Result<Vec<(String, Tensor)>, FixtureError> {
        Ok(npy::npz::load(self.path.join("inputs.npz"))?)
    }

    /// PyTorch's outputs `out0`, `out1`, ... in the order of the graph's.
    ///
    /// # Errors
    /// If the file is missing or not right.
    pub fn outputs(&self) -> Result<Vec<(String, Tensor)>, FixtureError> {
        Ok(npy::npz::load(self.path.join("outputs.npz"))?)
    }
}

//! Small graphs of one operator or a few.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plutino_ir::Graph;
use plutino_tensor::{Tensor, Tolerance, npy};
use serde::Deserialize;

use crate::{FixtureError, folder, read_json, subfolders};

/// A graph of one operator or a few, with inputs and PyTorch's outputs: a folder
/// `fixtures/ops/CHAPTER/NAME`.
#[derive(Debug, Clone)]
pub struct OpCase {
    /// Name of its folder, which no other case has.
    pub name: String,
    /// Name of the folder around it: the table that it is an entry of.
    pub chapter: String,
    /// The operators in it, by kind, with their number.
    pub operators: BTreeMap<String, usize>,
    /// How far outputs may be off.
    pub tolerance: Tolerance,
    path: PathBuf,
}

#[derive(Deserialize)]
struct Meta {
    ops: BTreeMap<String, usize>,
    rtol: f64,
    atol: f64,
}

impl OpCase {
    /// The case of that name in a chapter.
    ///
    /// # Errors
    /// If there is none, or its description is not right.
    pub fn named(chapter: &str, name: &str) -> Result<OpCase, FixtureError> {
        Self::at(folder().join("ops").join(chapter).join(name), chapter, name)
    }

    /// The program of that name: a folder of `fixtures/programs`, with definitions of types in a
    /// folder `definitions` of its own.
    ///
    /// # Errors
    /// As [`OpCase::named`].
    pub fn program(name: &str) -> Result<OpCase, FixtureError> {
        Self::at(folder().join("programs").join(name), "programs", name)
    }

    /// Every program, by name.
    ///
    /// # Errors
    /// As [`OpCase::all`].
    pub fn programs() -> Result<Vec<OpCase>, FixtureError> {
        let mut names = subfolders(&folder().join("programs"))?;
        names.sort();
        names.iter().map(|name| OpCase::program(name)).collect()
    }

    fn at(path: PathBuf, chapter: &str, name: &str) -> Result<OpCase, FixtureError> {
        let Meta { ops: operators, rtol, atol } = read_json(path.join("meta.json"))?;
        let (name, chapter) = (name.to_owned(), chapter.to_owned());
        Ok(OpCase { name, chapter, operators, tolerance: Tolerance { rtol, atol }, path })
    }

    /// Every case, by name.
    ///
    /// # Errors
    /// If the folder cannot be read, or a description is not right.
    pub fn all() -> Result<Vec<OpCase>, FixtureError> {
        let mut cases = Vec::new();
        for chapter in subfolders(&folder().join("ops"))? {
            for name in subfolders(&folder().join("ops").join(&chapter))? {
                cases.push(OpCase::named(&chapter, &name)?);
            }
        }
        cases.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(cases)
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

    /// The inputs with PyTorch's outputs: one set, or a second one of other shapes for the same
    /// graph.
    ///
    /// # Errors
    /// If a file is missing or not right.
    pub fn runs(&self) -> Result<Vec<Run>, FixtureError> {
        let file = |name: &str, suffix: &str| self.path.join(format!("{name}{suffix}.npz"));
        let present = ["", "2"].into_iter().filter(|suffix| file("inputs", suffix).is_file());
        let run = |suffix| {
            let inputs = npy::npz::load(file("inputs", suffix))?;
            Ok(Run { inputs, outputs: npy::npz::load(file("outputs", suffix))? })
        };
        present.map(run).collect()
    }
}

/// Inputs `in0`, `in1`, ... and PyTorch's outputs `out0`, `out1`, ..., in the order of the graph's;
/// tuples among the outputs are flattened.
#[derive(Debug, Clone)]
pub struct Run {
    /// The tensors fed.
    pub inputs: Vec<(String, Tensor)>,
    /// The tensors expected.
    pub outputs: Vec<(String, Tensor)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_complete() {
        let cases = OpCase::all().unwrap();
        assert!(cases.len() >= 380, "{} cases", cases.len());
        assert!(cases.windows(2).all(|pair| pair[0].name < pair[1].name), "a name is taken twice");
        for case in cases {
            let graph = case.graph().unwrap();
            let runs = case.runs().unwrap();
            assert!(!runs.is_empty(), "{}", case.name);
            for Run { inputs, outputs } in runs {
                assert_eq!(inputs.len(), graph.operators_of("pnnx.Input").count(), "{}", case.name);
                assert!(!outputs.is_empty(), "{}", case.name);
            }
            assert_eq!(case.operators.values().sum::<usize>(), graph.operator_count());
        }
    }
}

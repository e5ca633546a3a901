//! Networks with inputs and outputs, described by a `fixture.json`.

use std::path::{Path, PathBuf};

use plutino_ir::Graph;
use plutino_tensor::{Tensor, npy};
use serde::Deserialize;

use crate::output::{self, Output};
use crate::{FixtureError, Recipe, folder, generate_weights, read_json, subfolders};

const DESCRIPTION: &str = "fixture.json";

/// Where a fixture's weights come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    /// A `.bin` file beside the graph.
    Committed,
    /// [`generate_weights`].
    Generated,
}

/// A network with the recipes of its inputs and PyTorch's outputs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Fixture {
    /// Name of its folder.
    pub name: String,
    /// Where the network comes from.
    pub source: String,
    /// Where its weights come from.
    pub weights: Weights,
    /// npz file of the weights that cannot be generated, by weight name.
    pub constants: Option<String>,
    /// How to make the inputs, in the order of the graph's.
    pub inputs: Vec<Recipe>,
    /// Largest error allowed, relative to the output's largest value.
    pub tolerance: f64,
    /// npz file with the true classes of the inputs, as `labels`.
    pub labels: Option<String>,
    /// How many of the inputs PyTorch classifies correctly.
    pub correct: Option<usize>,
    weights_crc32: Option<u32>,
    outputs: Vec<output::Description>,
    #[serde(skip)]
    path: PathBuf,
}

impl Fixture {
    /// The fixture of that name.
    ///
    /// # Errors
    /// If there is none, or its description is not right.
    pub fn named(name: &str) -> Result<Fixture, FixtureError> {
        Fixture::load(folder().join(name))
    }

    /// The fixture in a folder.
    ///
    /// # Errors
    /// If there is none, or its description is not right.
    pub fn load(path: impl Into<PathBuf>) -> Result<Fixture, FixtureError> {
        let path = path.into();
        let fixture: Fixture = read_json(path.join(DESCRIPTION))?;
        Ok(Fixture { path, ..fixture })
    }

    /// Every fixture, by name.
    ///
    /// # Errors
    /// If the folder cannot be read, or a description is not right.
    pub fn all() -> Result<Vec<Fixture>, FixtureError> {
        let names = subfolders(&folder())?;
        let described = names.iter().filter(|name| folder().join(name).join(DESCRIPTION).is_file());
        described.map(|name| Fixture::named(name)).collect()
    }

    /// The fixture's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The `.param` file.
    pub fn param_path(&self) -> PathBuf {
        self.path.join("model.pnnx.param")
    }

    /// The network with all of its weights.
    ///
    /// # Errors
    /// If a file is missing or not right.
    pub fn graph(&self) -> Result<Graph, FixtureError> {
        let path = self.param_path();
        if self.weights == Weights::Committed {
            return Ok(Graph::load(path)?);
        }
        let text = std::fs::read_to_string(&path)
            .map_err(|error| FixtureError::Io { path: path.clone(), error })?;
        let mut graph = Graph::parse(&text).map_err(|error| FixtureError::Graph { path, error })?;
        generate_weights(&mut graph)?;
        self.attach_constants(&mut graph)?;
        Ok(graph)
    }

    fn attach_constants(&self, graph: &mut Graph) -> Result<(), FixtureError> {
        let constants = match &self.constants {
            Some(file) => npy::npz::load(self.path.join(file))?,
            None => Vec::new(),
        };
        for id in graph.operator_ids().to_vec() {
            let operator = graph[id].name.clone();
            let Ok(attrs) = graph.attrs_mut(id) else { continue };
            for (name, attr) in attrs.iter_mut().filter(|(_, attr)| !attr.is_loaded()) {
                let weight = format!("{operator}.{name}");
                let Some((_, tensor)) = constants.iter().find(|(key, _)| *key == weight) else {
                    return Err(self.missing(format!("no constants for the weight {weight}")));
                };
                attr.set_data(tensor.as_bytes().to_vec())
                    .map_err(|error| FixtureError::Weight { weight, error })?;
            }
        }
        Ok(())
    }

    /// The inputs, by name, in the order of the graph's.
    ///
    /// # Errors
    /// If a file is missing or not right.
    pub fn inputs(&self) -> Result<Vec<(String, Tensor)>, FixtureError> {
        let input = |recipe: &Recipe| {
            let tensor = match recipe.generate() {
                Some(tensor) => tensor?,
                None => self.stored(recipe)?,
            };
            Ok((recipe.name.clone(), tensor))
        };
        self.inputs.iter().map(input).collect()
    }

    fn stored(&self, recipe: &Recipe) -> Result<Tensor, FixtureError> {
        let Some(file) = recipe.file() else {
            return Err(self.missing(format!("no recipe for {}", recipe.name)));
        };
        let mut arrays = npy::npz::load(self.path.join(file))?.into_iter();
        match arrays.find(|(name, _)| *name == recipe.name) {
            Some((_, tensor)) => Ok(tensor),
            None => Err(self.missing(format!("{file} has no array {}", recipe.name))),
        }
    }

    /// What PyTorch computed, in the order of the graph's outputs.
    ///
    /// # Errors
    /// If a file is missing or not right.
    pub fn outputs(&self) -> Result<Vec<Output>, FixtureError> {
        let arrays = npy::npz::load(self.path.join("outputs.npz"))?;
        let read = |description| Output::read(description, &arrays, self.tolerance);
        let outputs = self.outputs.iter().map(read).collect::<Result<_, _>>();
        outputs.map_err(|what| self.missing(what))
    }

    /// The true classes of the inputs, where the fixture is a classifier that was trained.
    ///
    /// # Errors
    /// If the file is missing or not right.
    pub fn labels(&self) -> Result<Option<Vec<i64>>, FixtureError> {
        let Some(file) = &self.labels else { return Ok(None) };
        let arrays = npy::npz::load(self.path.join(file))?;
        match arrays.iter().find(|(name, _)| name == "labels") {
            Some((_, labels)) => Ok(Some(labels.as_slice::<i64>()?.to_vec())),
            None => Err(self.missing(format!("{file} has no array labels"))),
        }
    }

    fn missing(&self, what: String) -> FixtureError {
        FixtureError::Content { path: self.path.clone(), what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_weights_are_those_of_python() {
        for fixture in Fixture::all().unwrap() {
            let Some(expected) = fixture.weights_crc32 else { continue };
            let graph = fixture.graph().unwrap();
            let mut crc = crc32fast::Hasher::new();
            for (_, op) in graph.operators() {
                // The map is sorted by name, as the script sorts each operator's weights.
                op.attrs.values().for_each(|attr| crc.update(&attr.data().unwrap()));
            }
            assert_eq!(crc.finalize(), expected, "{}", fixture.name);
        }
    }

    #[test]
    fn every_fixture_is_complete() {
        let fixtures = Fixture::all().unwrap();
        assert!(fixtures.len() >= 15, "{} fixtures", fixtures.len());
        for fixture in fixtures {
            let graph =
                Graph::parse(&std::fs::read_to_string(fixture.param_path()).unwrap()).unwrap();
            let inputs = fixture.inputs().unwrap();
            assert_eq!(inputs.len(), graph.operators_of("pnnx.Input").count(), "{}", fixture.name);
            for ((_, tensor), recipe) in inputs.iter().zip(&fixture.inputs) {
                assert_eq!(tensor.shape()[..], recipe.shape[..], "{}", fixture.name);
            }
            assert!(!fixture.outputs().unwrap().is_empty());
        }
    }

    #[test]
    fn a_digit_has_a_label() {
        let fixture = Fixture::named("digits").unwrap();
        let labels = fixture.labels().unwrap().unwrap();
        assert_eq!(labels.len(), 360);
        assert!(labels.iter().all(|label| (0..10).contains(label)));
        let outputs = fixture.outputs().unwrap();
        let logits = outputs[0].whole().unwrap().as_slice::<f32>().unwrap();
        let likeliest = |row: &[f32]| (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
        let correct =
            logits.chunks(10).zip(&labels).filter(|&(row, &l)| likeliest(row) as i64 == l);
        assert_eq!(Some(correct.count()), fixture.correct);
    }
}

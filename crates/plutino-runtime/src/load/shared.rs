//! Models that have weights in common: a decoder's prefill and its step, the halves of a pipeline.
//!
//! Two exports of one module give weights the same names, because pnnx names them after the module.
//! What has the same name, type and bytes in both is in memory once, as it was read and as kernels
//! packed it.

use crate::load::tied;
use crate::{Model, ModelError, ModelOptions};
use plutino_ir::{Attribute, Graph, LoadError, LoadOptions, Weights, find_param};
use std::path::Path;

impl Model {
    /// Loads a model that has weights in common with this one: those of the same name, shape, dtype
    /// and bytes are in memory once for both, packed forms too. A model without a `.bin` file takes
    /// all of its weights from this one.
    ///
    /// # Errors
    /// As [`Model::load`]; where there is no `.bin` file, and this model lacks a weight.
    pub fn load_sharing(
        &self,
        path: impl AsRef<Path>,
        options: impl Into<ModelOptions>,
    ) -> Result<Self, ModelError> {
        let (path, options) = (&find_param(path.as_ref())?, options.into());
        let graph = match Graph::load_with(path, &options.load) {
            Err(LoadError::NoWeights { .. }) => {
                let load = LoadOptions { weights: Weights::Skip, ..options.load.clone() };
                Graph::load_with(path, &load)?
            }
            graph => graph?,
        };
        self.share(graph, path.display().to_string(), &options)
    }

    /// [`Model::load_sharing`] of a graph in memory: weights without data are those of this model.
    ///
    /// # Errors
    /// As [`Model::from_graph`]; where this model lacks a weight that has no data.
    pub fn from_graph_sharing(
        &self,
        graph: Graph,
        options: impl Into<ModelOptions>,
    ) -> Result<Self, ModelError> {
        self.share(graph, "<graph>".into(), &options.into())
    }

    fn share(
        &self,
        mut graph: Graph,
        file: String,
        options: &ModelOptions,
    ) -> Result<Self, ModelError> {
        options.inline(&mut graph, &file)?;
        let mut common = Vec::new();
        let operators: Vec<_> = graph.operators().map(|(id, op)| (id, op.name.clone())).collect();
        for (id, name) in operators {
            let ours = self.graph().operator_by_name(&name);
            let ours = ours.and_then(|id| self.graph().operator(id));
            let Ok(attributes) = graph.attrs_mut(id) else { continue };
            for (key, attribute) in attributes {
                let weight = || format!("{name}.{key}");
                match ours.and_then(|op| op.attr(key)).filter(|ours| same(ours, attribute)) {
                    Some(ours) => {
                        *attribute = ours.clone();
                        common.push(weight());
                    }
                    None if !attribute.is_loaded() => {
                        return Err(ModelError::NotShared {
                            file,
                            other: self.file().to_owned(),
                            weight: weight(),
                            ty: attribute.to_string(),
                        });
                    }
                    None => {}
                }
            }
        }
        let packs = self.inner.packs.for_another_model(common);
        Self::of_graph_with(graph, file, options, packs)
    }
}

/// Whether a weight may stand for another one, which has the same bytes or none yet.
fn same(ours: &Attribute, other: &Attribute) -> bool {
    ours.is_loaded() && tied::is_same(ours, other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionOptions;
    use plutino_tensor::Tensor;

    const FIRST: &str = "7767517
        3 2
        pnnx.Input in 0 1 0 #0=(1,2)f32
        nn.Linear a 1 1 0 1 bias=False in_features=2 out_features=2 @weight=(2,2)f32
        pnnx.Output out 1 0 1";
    const SECOND: &str = "7767517
        4 3
        pnnx.Input in 0 1 0 #0=(1,2)f32
        nn.Linear a 1 1 0 1 bias=False in_features=2 out_features=2 @weight=(2,2)f32
        nn.Linear b 1 1 1 2 bias=False in_features=2 out_features=2 @weight=(2,2)f32
        pnnx.Output out 1 0 2";

    fn filled(text: &str, weights: &[(&str, [f32; 4])]) -> Graph {
        let mut graph = Graph::parse(text).unwrap();
        for (operator, numbers) in weights {
            let id = graph.operator_by_name(operator).unwrap();
            let weight = Attribute::from_elements([2, 2], numbers).unwrap();
            *graph.attrs_mut(id).unwrap().get_mut("weight").unwrap() = weight;
        }
        graph
    }

    fn run(model: &Model) -> Vec<f32> {
        let session = model.session(SessionOptions::default()).unwrap();
        let outputs = session.run(&[Tensor::from_slice(&[1.0f32, 2.0], [1, 2]).unwrap()]).unwrap();
        outputs[0].as_slice::<f32>().unwrap().to_vec()
    }

    fn bytes_of(model: &Model) -> *const u8 {
        let id = model.graph().operator_by_name("a").unwrap();
        let weight = model.graph().operator(id).unwrap().attr("weight").unwrap();
        weight.data().unwrap().as_ptr()
    }

    #[test]
    fn weights_in_common_are_in_memory_once() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [0.5, 0.0, 0.0, 0.25]);
        let first = Model::from_graph(filled(FIRST, &[("a", a)])).unwrap();
        let options = ModelOptions::default;
        for own in [&[("b", b)][..], &[("b", b), ("a", a)]] {
            let second = first.from_graph_sharing(filled(SECOND, own), options()).unwrap();
            assert_eq!(bytes_of(&first), bytes_of(&second));
            assert_eq!((run(&first), run(&second)), (vec![5.0, 11.0], vec![2.5, 2.75]));
            assert!(first.packed_bytes() > 0, "one form of 'a'");
            assert_eq!(second.packed_bytes(), 2 * first.packed_bytes(), "'a' and 'b'");
            first.release_memory();
        }
        // Another weight of that name is another weight.
        let graph = filled(SECOND, &[("a", b), ("b", b)]);
        let second = first.from_graph_sharing(graph, options()).unwrap();
        assert_ne!(bytes_of(&first), bytes_of(&second));
        assert_eq!((run(&first), run(&second)), (vec![5.0, 11.0], vec![0.25, 0.125]));
    }

    #[test]
    fn what_is_missing_is_named() {
        let first = Model::from_graph(filled(FIRST, &[("a", [1.0; 4])])).unwrap();
        let error = first.from_graph_sharing(filled(SECOND, &[]), ModelOptions::default());
        let message = error.unwrap_err().to_string();
        assert_eq!(
            message,
            "<graph> has no .bin file, and <graph> has no weight 'b.weight' of (2,2)f32"
        );
    }
}

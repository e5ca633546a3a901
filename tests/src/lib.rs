//! Shared helpers of the model-level tests: fixtures as models, and runs of them.
#![forbid(unsafe_code)]
#![allow(clippy::expect_used, clippy::panic)] // helpers of tests: a broken fixture is a failed test

pub mod cancel;
pub mod scale;
pub mod shared;

use plutino::ir::{Attribute, Graph};
use plutino::{DType, Model, SessionOptions, Tensor, TensorSpec};
use plutino_fixtures::Fixture;

/// The examples of docs/programs.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/programs.md")]
pub struct ProgramsPage;

/// The example of docs/generate.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/generate.md")]
pub struct GeneratePage;

/// The examples of docs/state.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/state.md")]
pub struct StatePage;

/// The examples of docs/serving.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/serving.md")]
pub struct ServingPage;

/// The examples of docs/cost.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/cost.md")]
pub struct CostPage;

/// The examples of docs/placement.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/placement.md")]
pub struct PlacementPage;

/// The examples of docs/narrow-weights.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/narrow-weights.md")]
pub struct NarrowWeightsPage;

/// The examples of docs/precision.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/precision.md")]
pub struct PrecisionPage;

/// The fixture of this name.
pub fn fixture(name: &str) -> Fixture {
    Fixture::named(name).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The model of a fixture, weights included.
pub fn model(fixture: &Fixture) -> Model {
    let graph = fixture.graph().unwrap_or_else(|e| panic!("{}: {e}", fixture.name));
    Model::from_graph(graph).unwrap_or_else(|e| panic!("{}: {e}", fixture.name))
}

/// The inputs of a fixture, in order.
pub fn inputs(fixture: &Fixture) -> Vec<Tensor> {
    let inputs = fixture.inputs().unwrap_or_else(|e| panic!("{}: {e}", fixture.name));
    inputs.into_iter().map(|(_, tensor)| tensor).collect()
}

/// The specs of some tensors.
pub fn specs(tensors: &[Tensor]) -> Vec<TensorSpec> {
    tensors.iter().map(Tensor::spec).collect()
}

/// Runs a model on these inputs in a session of its own.
pub fn run(model: &Model, inputs: &[Tensor], options: SessionOptions) -> Vec<Tensor> {
    let session = model.session(options).expect("options are valid");
    session.run(inputs).unwrap_or_else(|e| panic!("{model:?}: {e}"))
}

/// The graph with its weights, and what is recorded of operands, in `to` where they are of f32.
pub fn cast(mut graph: Graph, to: DType) -> Graph {
    let from = plutino::ir::DType::F32;
    let named = plutino::ops::recorded_as(to);
    let recorded: Vec<_> = graph.operands().map(|(id, operand)| (id, operand.ty.clone())).collect();
    for (id, mut ty) in recorded.into_iter().filter(|(_, ty)| ty.dtype == Some(from)) {
        ty.dtype = Some(named);
        graph.set_type(id, ty).expect("an operand of the graph");
    }
    for id in graph.operator_ids().to_vec() {
        let attributes = graph.attrs_mut(id).expect("an operator of the graph").values_mut();
        for attribute in attributes.filter(|attribute| attribute.dtype() == from) {
            let shape = attribute.shape().to_vec();
            let values = attribute.elements::<f32>().expect("weights are there").into_owned();
            let values = Tensor::from_vec(values, shape.clone()).and_then(|t| t.cast(to));
            let bytes = values.expect("a tensor of its shape").as_bytes().to_vec();
            *attribute = Attribute::new(named, shape, bytes).expect("as many bytes");
        }
    }
    graph
}

//! Hand-written models that the suites share.

use plutino_ir::Graph;

/// Text of the fixtures: a small network, and a graph that has every form of the grammar.
pub(crate) const FIXTURES: [&str; 2] =
    [include_str!("../data/convnet.pnnx.param"), include_str!("../data/grammar.pnnx.param")];

/// The graph of a `.param` text, every byte of its weights different from its neighbours.
pub(crate) fn with_weights(param: &str) -> Graph {
    let mut graph = Graph::parse(param).unwrap();
    for id in graph.operator_ids().to_vec() {
        for attr in graph.attrs_mut(id).unwrap().values_mut() {
            let bytes: Vec<u8> = (0..attr.byte_len()).map(|i| (i * 37 + 11) as u8).collect();
            attr.set_data(bytes).unwrap();
        }
    }
    graph
}

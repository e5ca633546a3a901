//! Every operator type that is registered occurs in a fixture with PyTorch's outputs, or in a list
//! with the reason.

use plutino::ops::registry;
use plutino_fixtures::{Fixture, OpCase};
use std::collections::BTreeSet;

/// What no fixture can hold.
const WITHOUT: &[(&str, &str)] = &[
    ("Tensor.resize", "refused: elements that nobody computed would be read"),
    ("Tensor.resize_as", "refused: elements that nobody computed would be read"),
    ("Tensor.set", "refused: tensors have no storage that others could be given"),
    ("torch.as_strided_scatter", "refused: the memory of a tensor is not addressed"),
];

#[test]
fn every_type_occurs_in_a_fixture_or_has_a_reason() {
    let registry = registry().unwrap();
    let cases = OpCase::all().unwrap().into_iter().map(|case| case.graph().unwrap());
    let networks = Fixture::all().unwrap().into_iter().map(|network| network.graph().unwrap());
    let mut found = BTreeSet::new();
    for graph in cases.chain(networks) {
        found.extend(graph.operators().filter_map(|(_, op)| registry.resolve(&graph, op)));
    }
    let excepted: BTreeSet<&str> = WITHOUT.iter().map(|(kind, _)| *kind).collect();
    let known: BTreeSet<&str> = registry.iter().map(|(kind, _)| kind).collect();
    let missing: Vec<_> = known.difference(&found).filter(|k| !excepted.contains(*k)).collect();
    assert!(missing.is_empty(), "in no fixture, and without a reason: {missing:?}");
    let found_after_all: Vec<_> = excepted.intersection(&found).collect();
    assert!(found_after_all.is_empty(), "excepted, but in a fixture: {found_after_all:?}");
    let unknown: Vec<_> = excepted.difference(&known).collect();
    assert!(unknown.is_empty(), "excepted, but not registered: {unknown:?}");
}

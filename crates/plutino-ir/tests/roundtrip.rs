//! What is written reads back equal: fixtures, files on disk, and graphs made at random.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod common;

use std::fs;
use std::path::PathBuf;

use common::{FIXTURES, with_weights};
use plutino_ir::{
    Attribute, BinError, DType, Dim, Graph, LoadError, LoadOptions, Parameter, SaveError,
    TensorType, Weights,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

/// A directory of this test alone, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("plutino-ir-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn fixtures_keep_their_text() {
    for text in FIXTURES {
        let graph = with_weights(text);
        assert_eq!(graph.to_param_string().unwrap(), text);
        assert_eq!(Graph::from_bytes(text, graph.to_bin_bytes().unwrap()).unwrap(), graph);
    }
}

#[test]
fn files_are_found_by_path_and_stem() {
    let dir = Scratch::new("stem");
    let graph = with_weights(FIXTURES[0]);
    let (param, bin) = (dir.0.join("net.pnnx.param"), dir.0.join("net.pnnx.bin"));
    graph.save(&param, &bin).unwrap();
    for path in ["net.pnnx.param", "net.pnnx", "net"] {
        for mmap in [false, true] {
            let options = LoadOptions { mmap, ..LoadOptions::default() };
            assert_eq!(Graph::load_with(dir.0.join(path), &options).unwrap(), graph);
        }
    }
    assert!(
        matches!(Graph::load(dir.0.join("other")), Err(LoadError::NotFound { tried, .. }) if tried.len() == 3)
    );
    assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 2, "nothing is left over from writing");
}

#[test]
fn a_mapped_model_can_be_saved_over_itself() {
    let dir = Scratch::new("mapped");
    let (param, bin) = (dir.0.join("net.param"), dir.0.join("net.bin"));
    with_weights(FIXTURES[1]).save(&param, &bin).unwrap();
    let mut graph =
        Graph::load_with(&param, &LoadOptions { mmap: true, ..LoadOptions::default() }).unwrap();
    let id = graph.operator_by_name("every.dtype").unwrap();
    graph.attrs_mut(id).unwrap().remove("u8");
    graph.save(&param, &bin).unwrap();
    assert_eq!(Graph::load(&param).unwrap(), graph);
}

#[test]
fn weights_of_a_mapped_model_can_be_released_and_read_again() {
    let dir = Scratch::new("released");
    let (param, bin) = (dir.0.join("net.param"), dir.0.join("net.bin"));
    with_weights(FIXTURES[1]).save(&param, &bin).unwrap();
    let mapped = LoadOptions { mmap: true, ..LoadOptions::default() };
    let graph = Graph::load_with(&param, &mapped).unwrap();
    let copy = Graph::load(&param).unwrap();
    let attributes = |graph: &Graph| -> Vec<_> {
        graph.operators().flat_map(|(_, op)| op.attrs.values().cloned()).collect()
    };
    assert!(attributes(&copy).iter().all(|attribute| attribute.mapping().is_none()));
    for attribute in attributes(&graph) {
        let data = attribute.data().unwrap();
        let mapping = attribute.mapping().unwrap();
        mapping.release(&data);
        mapping.release(&[1, 2, 3]); // not a part of the file: left alone
    }
    assert_eq!(attributes(&graph), attributes(&copy));
}

#[test]
fn weights_may_lie_elsewhere() {
    let dir = Scratch::new("elsewhere");
    let graph = with_weights(FIXTURES[0]);
    let [param, beside, apart] = ["net.param", "net.bin", "weights"].map(|name| dir.0.join(name));
    graph.save(&param, &apart).unwrap();
    let at =
        |bin: &std::path::Path| LoadOptions { bin: Some(bin.into()), ..LoadOptions::default() };
    for mmap in [false, true] {
        let options = LoadOptions { mmap, ..at(&apart) };
        assert_eq!(Graph::load_with(&param, &options).unwrap(), graph);
    }
    let error = Graph::load_with(&param, &at(&beside)).unwrap_err();
    assert!(matches!(&error, LoadError::NoWeights { path, .. } if *path == beside), "{error}");
    // A file that is asked for is to exist, though the model has no weights.
    fs::write(&param, "7767517\n1 1\npnnx.Input in 0 1 0\n").unwrap();
    let error = Graph::load_with(&param, &at(&beside)).unwrap_err();
    assert_eq!(error.to_string(), format!("'{}' does not exist", beside.display()));
}

#[test]
fn weights_are_needed_unless_waived() {
    let dir = Scratch::new("weights");
    let param = dir.0.join("net.param");
    fs::write(&param, FIXTURES[0]).unwrap();
    let error = Graph::load(&param).unwrap_err();
    assert!(matches!(&error, LoadError::NoWeights { weights: 3, .. }), "{error}");

    let skip = LoadOptions { weights: Weights::Skip, ..LoadOptions::default() };
    let graph = Graph::load_with(&param, &skip).unwrap();
    assert!(!graph.has_weights());
    assert!(matches!(graph.to_bin_bytes(), Err(SaveError::NotLoaded { .. })));

    // Without weights no archive is needed, and an empty one does.
    fs::write(&param, "7767517\n1 1\npnnx.Input in 0 1 0\n").unwrap();
    let graph = Graph::load(&param).unwrap();
    assert!(graph.has_weights());
    graph.save(&param, dir.0.join("net.bin")).unwrap();
    assert_eq!(fs::metadata(dir.0.join("net.bin")).unwrap().len(), 98);
    assert_eq!(Graph::load(&param).unwrap(), graph);
    fs::write(dir.0.join("net.bin"), "").unwrap();
    assert!(matches!(
        Graph::load(&param),
        Err(LoadError::Bin { error: BinError::Archive { .. }, .. })
    ));
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z_0-9.:-]{1,12}"
}

fn finite() -> impl Strategy<Value = f64> {
    any::<f64>().prop_filter("PNNX has words for the others", |value| value.is_finite())
}

fn parameter() -> impl Strategy<Value = Parameter> {
    prop_oneof![
        Just(Parameter::Null),
        any::<bool>().prop_map(Parameter::Bool),
        any::<i64>().prop_map(Parameter::Int),
        finite().prop_map(Parameter::Float),
        any::<f32>().prop_map(Parameter::from),
        "[a-z%][a-z0-9,>.%_-]{0,9}".prop_map(Parameter::Str),
        vec(any::<bool>(), 1..4).prop_map(Parameter::Bools),
        vec(any::<i64>(), 1..5).prop_map(Parameter::Ints),
        vec(finite(), 1..5).prop_map(Parameter::Floats),
        vec("[a-z@][a-z0-9@]{0,4}", 1..4).prop_map(Parameter::Strs),
        (finite(), finite()).prop_map(|(re, im)| Parameter::Complex(re, im)),
        vec((finite(), finite()), 1..4).prop_map(Parameter::Complexes),
        Just(Parameter::Other("[[0,1],[None,[True]]]".into())),
    ]
}

fn attribute() -> impl Strategy<Value = Attribute> {
    (proptest::sample::select(&DType::ALL[..]), vec(0usize..4, 0..4), any::<u8>()).prop_map(
        |(dtype, shape, seed)| {
            let len = shape.iter().product::<usize>() * dtype.size_of();
            let bytes: Vec<u8> =
                (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect();
            Attribute::new(dtype, shape, bytes).unwrap()
        },
    )
}

fn tensor_type() -> impl Strategy<Value = TensorType> {
    let dim = prop_oneof![
        any::<usize>().prop_map(Dim::Known),
        Just(Dim::Unknown),
        "[a-z]{1,3}".prop_map(Dim::Symbol),
    ];
    let dtype = proptest::option::of(proptest::sample::select(&DType::ALL[..]));
    let typed =
        (vec(dim, 0..5), dtype).prop_map(|(dims, dtype)| TensorType { shape: Some(dims), dtype });
    prop_oneof![Just(TensorType::default()), typed]
}

/// An operator to be: its kind, what it reads (as positions among all operands made before it), how
/// many of its first inputs have keys, the types of what it makes, its parameters, its weights, and
/// which operators before it it comes after.
type Plan = (
    String,
    Vec<prop::sample::Index>,
    usize,
    Vec<TensorType>,
    std::collections::BTreeMap<String, Parameter>,
    std::collections::BTreeMap<String, Attribute>,
    Vec<prop::sample::Index>,
);

fn plan() -> impl Strategy<Value = Plan> {
    let inputs = vec(any::<prop::sample::Index>(), 0..5);
    let params = btree_map("[a-df-z][a-z_]{0,5}", parameter(), 0..5);
    let attrs = btree_map("[a-z][a-z_]{0,5}", attribute(), 0..3);
    let after = vec(any::<prop::sample::Index>(), 0..3);
    (name(), inputs, 0usize..5, vec(tensor_type(), 0..3), params, attrs, after)
}

fn build(plans: Vec<Plan>) -> Graph {
    let mut graph = Graph::new();
    let mut made = Vec::new();
    for (i, (kind, inputs, keys, outputs, params, attrs, after)) in plans.into_iter().enumerate() {
        let operator = graph.new_operator(&format!("{kind}.{i}"), &format!("op{i}")).unwrap();
        for (at, input) in inputs.iter().filter(|_| !made.is_empty()).enumerate() {
            let operand = made[input.index(made.len())];
            if at < keys {
                graph.connect_named_input(operator, &format!("key{at}"), operand).unwrap();
            } else {
                graph.connect_input(operator, operand).unwrap();
            }
        }
        for ty in outputs {
            let operand = graph.new_operand(&made.len().to_string()).unwrap();
            graph.set_type(operand, ty).unwrap();
            graph.connect_output(operator, operand).unwrap();
            made.push(operand);
        }
        for earlier in after {
            let before = graph.operator_ids().len() - 1;
            if before > 0 {
                let earlier = graph.operator_ids()[earlier.index(before)];
                graph.add_control(earlier, operator).unwrap();
            }
        }
        *graph.params_mut(operator).unwrap() = params;
        *graph.attrs_mut(operator).unwrap() = attrs;
    }
    graph
}

proptest! {
    #[test]
    fn any_graph_reads_back_equal(plans in vec(plan(), 0..12)) {
        let graph = build(plans);
        graph.validate().unwrap();
        let (text, bin) = (graph.to_param_string().unwrap(), graph.to_bin_bytes().unwrap());
        let back = Graph::from_bytes(&text, bin.clone()).unwrap();
        prop_assert_eq!(&back, &graph);
        prop_assert_eq!(back.to_param_string().unwrap(), text);
        prop_assert_eq!(back.to_bin_bytes().unwrap(), bin);
    }

    #[test]
    fn any_parameter_text_is_read_or_refused(text in "[0-9a-zA-Z%@.,()\\[\\]+-]{0,16}") {
        if let Ok(value) = text.parse::<Parameter>() {
            prop_assert_eq!(value.to_string().parse::<Parameter>(), Ok(value));
        }
    }
}

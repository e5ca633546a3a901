//! Every operator of `fixtures/ops` that PyTorch has as a native function, written as pnnx writes
//! what it has no pass for: `aten::` in the type, all arguments as inputs in the order of the
//! native schema. Results must not change.

use crate::operators::agrees_with;
use plutino::ir::{Graph, OperandId, OperatorId, Parameter};
use plutino_fixtures::OpCase;
use std::collections::BTreeMap;

/// The table that the engine reads, read by another reader.
const SCHEMAS: &str = include_str!("../../../crates/plutino-ops/src/native/schemas.txt");

/// Arguments that PNNX calls otherwise: type, PNNX's name, PyTorch's.
const NAMES: &[(&str, &str, &str)] = &[
    ("F.embedding", "input", "indices"),
    ("Tensor.expand", "sizes", "size"),
    ("Tensor.repeat", "sizes", "repeats"),
    ("Tensor.view", "shape", "size"),
    ("torch.split", "tensor", "input"),
    ("torch.split", "split_size_or_sections", "split_size"),
];

/// Types whose parameters mean more than those of the native function of the same name.
const OTHERWISE: &[&str] = &[
    "Tensor.index",      // a nested list of constants
    "Tensor.index_put",  // the same
    "Tensor.slice_copy", // writes, where PyTorch's copies a part
    "torch.einsum",      // no expression can hold the equation
    "torch.stft",        // a window out of its length alone
    "torch.istft",
    "torch.max", // one output of two is kept
    "torch.min",
    "torch.norm", // `dim` may be None, and numbers words
    "torch.quantize_per_tensor",
];

/// Cases whose dtype pnnx has dropped, so that only the record shows it; of a raw operator it would
/// be an input.
const LOST_DTYPES: &[&str] = &[
    "cumsum_in_double",
    "log_softmax_in_double",
    "mean_of_integers",
    "softmax_of_integers",
    "sum_in_double",
    "sum_of_integers_as_int",
];

/// An argument of a native function: name, type, default.
type Argument = (&'static str, &'static str, Option<&'static str>);

/// The overloads of the native function that a type of PNNX is.
fn overloads(kind: &str) -> Vec<Vec<Argument>> {
    let modules =
        [("torch.linalg.", "linalg_"), ("torch.fft.", "fft_"), ("torch.special.", "special_")];
    let in_module = modules.iter().find_map(|(module, prefix)| {
        kind.strip_prefix(module).map(|name| format!("{prefix}{name}"))
    });
    let plain = ["torch.", "Tensor.", "F."].iter().find_map(|m| kind.strip_prefix(m));
    let Some(function) = in_module.or(plain.map(str::to_owned)) else { return Vec::new() };
    let lines = SCHEMAS.lines().filter(|line| {
        let name = line.split(' ').next().unwrap();
        name.split('.').next() == Some(&function) && !line.starts_with('#')
    });
    let argument = |word: &'static str| {
        let (name, rest) = word.split_once(':').unwrap();
        match rest.split_once('=') {
            Some((kind, default)) => (name, kind, Some(default)),
            None => (name, rest, None),
        }
    };
    lines.map(|line| line.split(' ').skip(1).map(argument).collect()).collect()
}

/// What a raw operator is given for an argument.
enum Value {
    Operand(OperandId),
    Operands(Vec<OperandId>),
    Constant(String),
}

fn native_name<'a>(kind: &str, name: &'a str) -> &'a str {
    let found = NAMES.iter().find(|(k, ours, _)| *k == kind && *ours == name);
    found.map_or(name, |(_, _, theirs)| theirs)
}

/// The constant as TorchScript has it; none where only PNNX has such a value.
fn constant(value: &Parameter) -> Option<String> {
    let dtypes = ["uint8", "int8", "short", "int", "long", "half", "float", "double"];
    Some(match value {
        Parameter::Str(word) => match word.strip_prefix("torch.") {
            Some(dtype) => match dtypes.iter().position(|d| *d == dtype) {
                Some(number) => number.to_string(),
                None => [("complex64", 9), ("bool", 11), ("contiguous_format", 0)]
                    .iter()
                    .find(|(name, _)| *name == dtype)?
                    .1
                    .to_string(),
            },
            None => word.clone(),
        },
        Parameter::Null => "None".into(),
        other => other.to_string().replace('(', "[").replace(')', "]"),
    })
}

/// The values of an overload's arguments, where it has all that the node says, and nothing is
/// missing.
fn bind(graph: &Graph, id: OperatorId, overload: &[Argument]) -> Option<Vec<Value>> {
    let op = graph.operator(id)?;
    let mut values: BTreeMap<&str, Value> = BTreeMap::new();
    for (key, value) in &op.params {
        values.insert(native_name(&op.kind, key), Value::Constant(constant(value)?));
    }
    let mut unnamed = Vec::new();
    for (&input, name) in op.inputs.iter().zip(&op.input_names) {
        match name {
            Some(name) => {
                values.insert(native_name(&op.kind, name), Value::Operand(input));
            }
            None => unnamed.push(input),
        }
    }
    let mut unnamed = unnamed.into_iter();
    let mut bound = Vec::new();
    for &(name, kind, default) in overload {
        let value = match values.remove(name) {
            Some(value) => value,
            None if kind.starts_with("T[]") => Value::Operands(unnamed.by_ref().collect()),
            None => match unnamed.next().filter(|_| kind.starts_with('T')) {
                Some(operand) => Value::Operand(operand),
                None if kind.ends_with('?') => Value::Constant(default.unwrap_or("None").into()),
                None => Value::Constant(default?.into()),
            },
        };
        let suits = match (&value, kind.as_bytes()[0]) {
            (Value::Constant(text), b'T') => text == "None" && kind.ends_with('?'),
            (Value::Constant(text), b'i' | b'f' | b's' | b'b') => {
                let list = text.starts_with('[');
                let none = text == "None";
                if none { kind.ends_with('?') } else { list == kind.contains('[') }
            }
            _ => true,
        };
        if !suits {
            return None;
        }
        bound.push(value);
    }
    (values.is_empty() && unnamed.next().is_none()).then_some(bound)
}

/// Puts the raw form in the place of a node; says whether it has one.
fn make_raw(graph: &mut Graph, id: OperatorId) -> bool {
    let op = graph.operator(id).unwrap();
    let (kind, name, outputs) = (op.kind.clone(), op.name.clone(), op.outputs.clone());
    if OTHERWISE.contains(&kind.as_str()) || !op.attrs.is_empty() {
        return false;
    }
    let found = overloads(&kind).iter().find_map(|overload| bind(graph, id, overload));
    let Some(values) = found else { return false };
    let function = kind.trim_start_matches("torch.").trim_start_matches("Tensor.");
    let function = function.trim_start_matches("F.").replace('.', "_");
    let raw = graph
        .new_operator_before(&format!("aten::{function}"), &format!("{name}_raw"), id)
        .unwrap();
    for (i, value) in values.into_iter().enumerate() {
        let made = format!("{name}_{i}");
        let input = match value {
            Value::Operand(operand) => operand,
            Value::Operands(operands) => {
                let list = graph.new_operator_before("prim::ListConstruct", &made, raw).unwrap();
                operands.iter().for_each(|&o| graph.connect_input(list, o).unwrap());
                let operand = graph.new_operand(&made).unwrap();
                graph.connect_output(list, operand).unwrap();
                operand
            }
            Value::Constant(text) => {
                let constant = graph.new_operator_before("pnnx.Expression", &made, raw).unwrap();
                let expr = Parameter::Str(text);
                graph.params_mut(constant).unwrap().insert("expr".into(), expr);
                let operand = graph.new_operand(&made).unwrap();
                graph.connect_output(constant, operand).unwrap();
                operand
            }
        };
        graph.connect_input(raw, input).unwrap();
    }
    for operand in outputs {
        let ty = graph.operand(operand).unwrap().ty.clone();
        graph.disconnect_output(operand).unwrap();
        graph.connect_output(raw, operand).unwrap();
        graph.set_type(operand, ty).unwrap();
    }
    graph.remove_operator(id).unwrap();
    true
}

#[test]
fn raw_forms_compute_the_same() {
    let (mut failures, mut forms) = (Vec::new(), BTreeMap::new());
    for case in OpCase::all().unwrap() {
        if LOST_DTYPES.contains(&case.name.as_str()) {
            continue;
        }
        let mut graph = case.graph().unwrap();
        let ids: Vec<_> = graph.operator_ids().to_vec();
        let mut any = false;
        for id in ids {
            let kind = graph.operator(id).unwrap().kind.clone();
            if make_raw(&mut graph, id) {
                *forms.entry(kind).or_insert(0) += 1;
                any = true;
            }
        }
        if any && let Err(e) = agrees_with(&case, graph) {
            failures.push(format!("{}: {e}", case.name));
        }
    }
    assert!(failures.is_empty(), "{}:\n{}", failures.len(), failures.join("\n"));
    assert!(forms.len() >= 85, "only {} types: {forms:?}", forms.len());
}

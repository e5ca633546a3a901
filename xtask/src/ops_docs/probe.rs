//! What builders ask for, and which dtypes operators accept: found by decoding, inferring and
//! planning every operator of the fixtures.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use plutino::ir::{Graph, Operator as Node};
use plutino::kernels::{Isa, Par};
use plutino::ops::{
    Asked, AskedSort, NodeReader, Operator, PackCache, PlanCx, Registry, Setting, ValueSpec, eager,
};
use plutino::{DType, Tensor};
use plutino_fixtures::{Fixture, OpCase};

/// What every machine has: the page must not depend on where it is written.
const ISA: Isa = Isa::PORTABLE;

/// What is known of an operator type.
#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Facts {
    /// Names of inputs, parameters and weights, in the order in which they are asked for first.
    pub(super) asked: Vec<Asked>,
    /// Dtypes of the first tensor that some use of it accepts.
    pub(super) dtypes: BTreeSet<DType>,
}

impl Facts {
    /// Those of one sort; where a name was asked for twice, what says more.
    pub(super) fn of(&self, sort: AskedSort) -> Vec<&Asked> {
        self.asked.iter().filter(|a| a.sort == sort).collect()
    }

    fn add(&mut self, found: Vec<Asked>) {
        for asked in found {
            let same = |other: &&mut Asked| (other.sort, &other.key) == (asked.sort, &asked.key);
            match self.asked.iter_mut().find(same) {
                None => self.asked.push(asked),
                Some(known) => {
                    if known.expected.is_empty() || known.expected == asked.expected {
                        known.expected = asked.expected;
                        known.default = asked.default.or(known.default.take());
                    }
                }
            }
        }
    }
}

/// A value while a graph runs: as planning sees it, and its leaves.
type Value = (ValueSpec, Vec<Tensor>);

/// The facts of every type that occurs in the fixtures.
pub(super) fn facts(registry: &Registry) -> Result<BTreeMap<&'static str, Facts>> {
    let mut facts = BTreeMap::new();
    for case in OpCase::all()? {
        let inputs = case.runs()?.swap_remove(0).inputs;
        let inputs: Vec<Tensor> = inputs.into_iter().map(|(_, tensor)| tensor).collect();
        walk(registry, &case.graph()?, &inputs, &mut facts);
    }
    // The networks say what else is asked for; to run them would take long.
    for network in Fixture::all()? {
        walk(registry, &network.graph()?, &[], &mut facts);
    }
    Ok(facts)
}

fn walk(
    registry: &Registry,
    graph: &Graph,
    inputs: &[Tensor],
    facts: &mut BTreeMap<&'static str, Facts>,
) {
    let mut inputs = inputs.iter();
    let mut values: Vec<Option<Value>> = vec![None; graph.operand_slots()];
    for (_, node) in graph.operators() {
        let taken: Option<Vec<Value>> =
            node.inputs.iter().map(|operand| values[operand.index()].clone()).collect();
        let made = match node.kind.as_str() {
            "pnnx.Input" => inputs.next().map(|x| vec![(x.spec().into(), vec![x.clone()])]),
            "pnnx.Attribute" => attribute(node).map(|x| vec![(x.spec().into(), vec![x])]),
            "prim::TupleConstruct" | "prim::ListConstruct" => taken.map(pack),
            "prim::TupleUnpack" | "prim::ListUnpack" => taken.and_then(unpack),
            _ => {
                let Some(kind) = registry.resolve(graph, node) else { continue };
                let entry = facts.entry(kind).or_default();
                entry.add(registry.asked(graph, node));
                let operator = registry.build("", graph, node).ok();
                taken.zip(operator).and_then(|(taken, operator)| {
                    let (specs, data): (Vec<_>, Vec<_>) = taken.into_iter().unzip();
                    entry.dtypes.extend(accepted(&*operator, &specs));
                    run(&*operator, &specs, &data.concat())
                })
            }
        };
        for (operand, value) in node.outputs.iter().zip(made.unwrap_or_default()) {
            values[operand.index()] = Some(value);
        }
    }
}

fn attribute(node: &Node) -> Option<Tensor> {
    NodeReader::new("", node).any_weight("data").ok()?.tensor().ok()
}

fn pack(values: Vec<Value>) -> Vec<Value> {
    let (specs, data): (Vec<_>, Vec<_>) = values.into_iter().unzip();
    vec![(ValueSpec::List(specs), data.concat())]
}

fn unpack(values: Vec<Value>) -> Option<Vec<Value>> {
    match values.into_iter().next()? {
        (ValueSpec::List(items), data) => Some(apart(items, data)),
        _ => None,
    }
}

/// Each value with its own leaves.
fn apart(specs: Vec<ValueSpec>, data: Vec<Tensor>) -> Vec<Value> {
    let mut data = data.into_iter();
    let own = |spec: ValueSpec| {
        let leaves: Vec<Tensor> = data.by_ref().take(spec.leaf_count()).collect();
        match (&spec, leaves.first()) {
            // What depended on data is known after the run.
            (ValueSpec::Dynamic { .. }, Some(tensor)) => (tensor.spec().into(), leaves),
            _ => (spec, leaves),
        }
    };
    specs.into_iter().map(own).collect()
}

fn run(operator: &dyn Operator, specs: &[ValueSpec], data: &[Tensor]) -> Option<Vec<Value>> {
    let outputs = operator.infer(specs).ok()?;
    let leaves = eager::run(operator, specs, data, ISA, &Par::serial()).ok()?;
    Some(apart(outputs, leaves))
}

/// The dtypes that may stand in the place of that of the first tensor (and of all others that have
/// the same).
fn accepted(operator: &dyn Operator, specs: &[ValueSpec]) -> Vec<DType> {
    let computed = |spec: &ValueSpec| match spec {
        ValueSpec::Tensor(t) if t.known.is_none() => Some(t.spec.dtype),
        _ => None,
    };
    let first = specs.iter().flat_map(ValueSpec::leaves).find_map(computed);
    let Some(first) = first else { return Vec::new() };
    let with = |dtype: DType| -> Vec<ValueSpec> {
        specs.iter().map(|spec| replaced(spec, first, dtype)).collect()
    };
    DType::ALL.into_iter().filter(|&dtype| plans(operator, &with(dtype))).collect()
}

fn replaced(spec: &ValueSpec, old: DType, new: DType) -> ValueSpec {
    match spec {
        ValueSpec::Tensor(t) if t.known.is_none() && t.spec.dtype == old => {
            ValueSpec::tensor(new, t.spec.shape.clone())
        }
        ValueSpec::List(items) => {
            ValueSpec::List(items.iter().map(|item| replaced(item, old, new)).collect())
        }
        other => other.clone(),
    }
}

fn plans(operator: &dyn Operator, inputs: &[ValueSpec]) -> bool {
    let Ok(outputs) = operator.infer(inputs) else { return false };
    let packs = PackCache::default();
    let cx = PlanCx { inputs, outputs: &outputs, setting: Setting::new(ISA, 1), packs: &packs };
    operator.plan(&cx).is_ok()
}

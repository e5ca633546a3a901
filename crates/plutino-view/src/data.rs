//! What a page knows: the file, the plan, and what was measured, as JSON.

use super::scopes;
use super::stats::{self, Stats};
use plutino::ir::{Graph, OperatorId};
use plutino::runtime::passes;
use plutino::{
    MemoryReport, MemoryUse, Model, PassNote, PassReport, Plan, PlannedValue, Profile,
    SessionOptions, Sharing, StepInfo, TensorSpec, ValueKind, ValueStorage,
};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Bytes that a plan may take that nobody runs.
const MOST_UNFUSED: usize = 4 << 30;

/// Everything. Lists refer to each other by position.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Data {
    version: &'static str,
    pub(crate) model: String,
    operators: Vec<Operator>,
    values: Vec<Value>,
    plan: Option<PlanData>,
    /// What the reader should know, one sentence each.
    pub notes: Vec<String>,
}

/// An operator of the file.
#[derive(Debug, Serialize)]
struct Operator {
    kind: String,
    name: String,
    line: Option<u32>,
    /// The module, outermost first.
    scope: Vec<String>,
    params: BTreeMap<String, String>,
    inputs: Vec<Input>,
    outputs: Vec<usize>,
    /// Operators that it comes after without reading from them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after: Vec<usize>,
    weights: Vec<Weight>,
    /// Why it cannot be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    unsupported: Option<String>,
    /// As told by `--errors`.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Input {
    value: usize,
    /// The argument that it stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    argument: Option<String>,
}

#[derive(Debug, Serialize)]
struct Weight {
    name: String,
    shape: Vec<usize>,
    dtype: &'static str,
    bytes: u64,
    stats: Option<Stats>,
}

/// A value of the file.
#[derive(Debug, Serialize)]
struct Value {
    name: String,
    /// As the file records it.
    recorded: String,
    /// As planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    planned: Option<String>,
}

/// A plan, and a profile of it.
#[derive(Debug, Serialize)]
struct PlanData {
    /// Name and spec of each input that it was made for.
    inputs: Vec<(String, String)>,
    steps: Vec<Step>,
    passes: Vec<Pass>,
    memory: Memory,
    residents: Vec<Place>,
    /// Of a run, where it was profiled.
    times: Option<Times>,
}

#[derive(Debug, Serialize)]
struct Step {
    kind: String,
    name: String,
    kernel: String,
    /// The operator of the file, and those that the step absorbed.
    operator: Option<usize>,
    absorbed: Vec<usize>,
    inputs: Vec<StepValue>,
    outputs: Vec<StepValue>,
    scratch: usize,
    flops: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct StepValue {
    name: String,
    spec: String,
    place: String,
}

#[derive(Debug, Serialize)]
struct Pass {
    name: &'static str,
    about: &'static str,
    ran: bool,
    done: Vec<Note>,
    refused: Vec<Note>,
}

#[derive(Debug, Serialize)]
struct Note {
    operator: Option<usize>,
    name: String,
    what: String,
}

#[derive(Debug, Serialize)]
struct Memory {
    total: usize,
    unshared: usize,
    weights: usize,
    packed: usize,
    arena: usize,
    lower_bound: usize,
    scratch: usize,
    outputs: usize,
    tables: usize,
    constants: usize,
}

/// A part of memory that a step writes, or that is there when the run starts, for as long as it is
/// needed.
#[derive(Debug, Serialize)]
struct Place {
    name: String,
    space: &'static str,
    offset: usize,
    bytes: usize,
    by: Option<usize>,
    readers: Vec<usize>,
    fetched: bool,
    scratch: bool,
}

/// Milliseconds: means over some of the runs that were made.
#[derive(Debug, Serialize)]
pub struct Times {
    runs: usize,
    total: f64,
    between: f64,
    /// Of each step.
    steps: Vec<f64>,
}

impl Times {
    /// The means of these runs of one plan, out of so many that were made.
    pub fn of(runs: usize, profiles: &[Profile]) -> Self {
        let mean = |time: &dyn Fn(&Profile) -> Duration| {
            let sum: f64 = profiles.iter().map(|profile| time(profile).as_secs_f64()).sum();
            sum * 1e3 / profiles.len().max(1) as f64
        };
        let steps = profiles.first().map_or(0, |profile| profile.steps.len());
        let step = |i: usize| mean(&|p| p.steps.get(i).map_or(Duration::ZERO, |s| s.duration));
        Self {
            runs,
            total: mean(&|p| p.total),
            between: mean(&Profile::between),
            steps: (0..steps).map(step).collect(), // bounded: steps
        }
    }
}

/// What is known of operators beside the file.
#[derive(Debug, Default)]
pub struct Marks {
    /// Why an operator cannot be run, by name.
    pub unsupported: HashMap<String, String>,
    /// How far it is from what is expected, by name.
    pub errors: BTreeMap<String, Option<f64>>,
}

impl Data {
    /// The file alone; `read` tells whether its weights are those of a file.
    pub fn new(model: String, graph: &Graph, marks: &Marks, read: bool) -> Self {
        let mut at = vec![0; graph.operand_slots()];
        let mut values = Vec::with_capacity(graph.operand_count());
        for (id, operand) in graph.operands() {
            at[id.index()] = values.len();
            let (name, recorded) = (operand.name.clone(), operand.ty.to_string());
            values.push(Value { name, recorded, planned: None });
        }
        let scopes = scopes::scopes(graph);
        let places: HashMap<OperatorId, usize> =
            graph.operator_ids().iter().enumerate().map(|(at, &id)| (id, at)).collect();
        let operators = graph.operators().map(|(id, op)| Operator {
            kind: op.kind.clone(),
            name: op.name.clone(),
            line: op.line,
            scope: scopes.get(id.index()).cloned().unwrap_or_default(),
            params: op.params.iter().map(|(k, v)| (k.clone(), v.to_string())).collect(),
            inputs: inputs(graph, id, &at),
            outputs: op.outputs.iter().map(|o| at[o.index()]).collect(),
            after: op.after.iter().filter_map(|id| places.get(id).copied()).collect(),
            weights: op.attrs.iter().map(|(name, attr)| Weight::new(name, attr, read)).collect(),
            unsupported: marks.unsupported.get(&op.name).cloned(),
            error: marks.errors.get(&op.name).copied().map(|e| e.unwrap_or(f64::INFINITY)),
        });
        let operators = operators.collect();
        let version = env!("CARGO_PKG_VERSION");
        Self { version, model, operators, values, plan: None, notes: Vec::new() }
    }

    /// Adds times of the plan.
    pub fn set_times(&mut self, times: Times) {
        if let Some(plan) = &mut self.plan {
            plan.times = Some(times);
        }
    }

    /// Adds what a plan in which every operator has a step of its own tells of values: the shapes
    /// of those that are not there once operators are fused. Nothing, where such a plan takes too
    /// much memory.
    pub fn add_unfused(&mut self, model: &Model, specs: &[TensorSpec]) {
        let options = SessionOptions::default()
            .stop_after("infer")
            .with_memory(MemoryUse::Low)
            .with_memory_budget(MOST_UNFUSED)
            .with_threads(1);
        let plan = model.session(options).ok().and_then(|session| session.plan(specs).ok());
        plan.iter().for_each(|plan| self.add_specs(plan));
    }

    /// Adds what a plan tells of values, where nothing is known yet.
    fn add_specs(&mut self, plan: &Plan) {
        let mut specs: HashMap<String, String> = HashMap::new();
        specs.extend(plan.inputs().map(|(name, spec)| (name.to_owned(), spec.to_string())));
        let values = plan.steps().flat_map(|step| [step.inputs, step.outputs]).flatten();
        specs.extend(values.filter(|v| !v.spec.is_empty()).map(|v| (v.name, v.spec)));
        for value in self.values.iter_mut().filter(|value| value.planned.is_none()) {
            value.planned = specs.remove(&value.name);
        }
    }

    /// Adds a plan of the same graph.
    pub fn add_plan(&mut self, plan: &Plan) {
        self.add_specs(plan);
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        for (at, op) in self.operators.iter().enumerate() {
            by_name.entry(&op.name).or_insert(at);
        }
        let operator = |name: &str| by_name.get(name).copied();
        let steps: Vec<Step> = plan.steps().map(|step| Step::new(step, &operator)).collect();
        let about = |name: &str| passes().find(|p| p.name == name).map_or("", |p| p.about);
        let note = |note: &PassNote| Note {
            operator: operator(&note.operator),
            name: note.operator.clone(),
            what: note.what.clone(),
        };
        let pass = |pass: &PassReport| Pass {
            name: pass.name,
            about: about(pass.name),
            ran: pass.ran,
            done: pass.done.iter().map(note).collect(),
            refused: pass.refused.iter().map(note).collect(),
        };
        let inputs = plan.inputs().map(|(name, spec)| (name.to_owned(), spec.to_string()));
        let planned = PlanData {
            inputs: inputs.collect(),
            passes: plan.passes().iter().map(pass).collect(),
            memory: plan.memory().into(),
            residents: places(plan),
            steps,
            times: None,
        };
        self.plan = Some(planned);
    }
}

fn inputs(graph: &Graph, id: OperatorId, at: &[usize]) -> Vec<Input> {
    let Some(op) = graph.operator(id) else { return Vec::new() };
    let input = |(i, operand): (usize, &plutino::ir::OperandId)| Input {
        value: at[operand.index()],
        argument: op.input_names.get(i).cloned().flatten(),
    };
    op.inputs.iter().enumerate().map(input).collect()
}

impl Weight {
    fn new(name: &str, attribute: &plutino::ir::Attribute, read: bool) -> Self {
        Self {
            name: name.to_owned(),
            shape: attribute.shape().to_vec(),
            dtype: attribute.dtype().name(),
            bytes: attribute.byte_len() as u64,
            stats: if read { stats::stats(attribute) } else { None },
        }
    }
}

impl Step {
    fn new(step: StepInfo, operator: &impl Fn(&str) -> Option<usize>) -> Self {
        let values = |values: Vec<plutino::ValueReport>| {
            let value =
                |v: plutino::ValueReport| StepValue { name: v.name, spec: v.spec, place: v.place };
            values.into_iter().map(value).collect()
        };
        Self {
            operator: operator(&step.location.name),
            absorbed: step.absorbed.iter().filter_map(|name| operator(name)).collect(),
            kind: step.location.kind,
            name: step.location.name,
            kernel: step.kernel,
            inputs: values(step.inputs),
            outputs: values(step.outputs),
            scratch: step.scratch,
            flops: step.cost.flops,
            bytes: step.cost.bytes,
        }
    }
}

impl From<MemoryReport> for Memory {
    fn from(memory: MemoryReport) -> Self {
        Self {
            total: memory.total(),
            unshared: memory.unshared,
            weights: memory.weights.saturating_add(memory.mapped),
            packed: memory.packed,
            arena: memory.arena,
            lower_bound: memory.lower_bound,
            scratch: memory.scratch,
            outputs: memory.outputs,
            tables: memory.tables,
            constants: memory.constants,
        }
    }
}

/// What lies where during which steps, in the order of writing: inputs and constants that are read,
/// values, scratch memory. Views have no bytes of their own: who reads them reads what they show.
fn places(plan: &Plan) -> Vec<Place> {
    let values = plan.values();
    let by_name: HashMap<&str, &PlannedValue> =
        values.iter().map(|value| (value.name.as_str(), value)).collect();
    let mut places: Vec<Place> =
        values.iter().filter_map(|value| Place::of(value, &by_name)).collect();
    let names: Vec<String> = plan.steps().map(|step| step.location.name).collect();
    places.extend(plan.allocations().iter().filter(|a| a.values.is_empty()).map(|a| Place {
        name: names.get(a.step).cloned().unwrap_or_default(),
        space: "arena",
        offset: a.offset,
        bytes: a.bytes,
        by: Some(a.step),
        readers: Vec::new(),
        fetched: false,
        scratch: true,
    }));
    places.sort_by_key(|place| place.by.map_or(0, |step| step + 1));
    places
}

impl Place {
    /// Of a value with memory of its own that somebody needs.
    fn of(value: &PlannedValue, by_name: &HashMap<&str, &PlannedValue>) -> Option<Self> {
        let mut readers = value.readers.clone();
        match &value.shares {
            Some((Sharing::View | Sharing::Same, _)) => return None,
            // Who reads the whole reads its parts.
            Some((Sharing::Part, whole)) => {
                readers.extend(by_name.get(whole.as_str()).into_iter().flat_map(|v| &v.readers));
                readers.sort_unstable();
                readers.dedup();
            }
            _ => {}
        }
        let there = matches!(value.kind, ValueKind::Bound | ValueKind::Constant);
        let needed = value.kept || !readers.is_empty();
        // All parts of a whole that nobody computes are there themselves.
        if !(there && needed || value.made.is_some()) {
            return None;
        }
        let (space, offset) = match value.storage {
            ValueStorage::Arena { offset } => ("arena", offset),
            ValueStorage::Output { offset, .. } => ("output", offset),
            ValueStorage::Feed { .. } => ("input", 0),
            ValueStorage::Constant { .. } => ("constant", 0),
            _ => ("heap", 0),
        };
        Some(Self {
            name: value.name.clone(),
            space,
            offset,
            bytes: value.bytes,
            by: value.made,
            readers,
            fetched: value.kept,
            scratch: false,
        })
    }
}

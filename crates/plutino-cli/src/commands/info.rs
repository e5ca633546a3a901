//! `plutino info`

use crate::arena_svg;
use crate::costs::{self, CostReport};
use crate::failure::Failure;
use crate::inputs::{self, Open, ShapeArg};
use crate::memory_map::{self, AllocationRow, Totals, ValueRow};
use crate::names;
use crate::output::{Output, bytes, count, si, write_file};
use crate::session::{LimitArgs, MemoryArg};
use plutino::ir::{Graph, Operator, OperatorId};
use plutino::runtime::BodyInfo;
use plutino::{Context, Model, PassReport, PhaseInfo, Plan, Session, StepInfo, ValueInfo};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Show what a model consists of, and how it would be run
///
/// Where the .bin file is missing, zeros stand in for the weights: shapes, kernels, memory and
/// costs are those of the model all the same.
///
/// --plan and --memory list every value: whether it is bound by the caller, constant, internal or
/// dynamic (of a shape that depends on data), how often it is used and by which steps first and
/// last, where it lies, and of what it is a view, a part, or in whose place it is computed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model
    model: PathBuf,
    /// Show every step of the plan: kernel, values and where they lie; then every value
    #[arg(long)]
    plan: bool,
    /// Show the memory of a run, every value, and what each step takes of the arena; with =low, of
    /// a run with --memory low
    #[arg(long, value_name = "USE", value_enum, num_args = 0..=1, require_equals = true,
          default_missing_value = "fast")]
    memory: Option<MemoryArg>,
    /// Show what each operator is estimated to cost: time, and memory that it makes, needs while it
    /// runs, and keeps; then the sums by type and by module
    #[arg(long)]
    cost: bool,
    /// Show what each pass over the graph did, and what it refused to do
    #[arg(long)]
    passes: bool,
    /// Draw the arena over time: what lies where during which step
    #[arg(long, value_name = "FILE.svg")]
    pub(super) svg: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Shape of an input, for --plan, --memory, --cost, --passes and --svg; without NAME, shapes
    /// are those of the inputs in order [default: as recorded in the file]
    #[arg(long = "shape", value_name = "[NAME=]1x3x224x224")]
    shapes: Vec<ShapeArg>,
    #[command(flatten)]
    pub(super) limits: LimitArgs,
}

#[derive(Serialize)]
struct Report {
    model: String,
    operators: usize,
    operands: usize,
    /// Elements of all weights.
    parameters: u64,
    weight_bytes: u64,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    kinds: BTreeMap<String, usize>,
    /// Operators that come after others without reading from them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    order: Vec<After>,
    /// What operators of control flow run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bodies: Vec<Body>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<Vec<Step>>,
    /// Which of the steps run when.
    #[serde(skip_serializing_if = "Option::is_none")]
    phases: Option<Vec<Phase>>,
    /// Whether the thread that calls runs everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    alone: Option<bool>,
    /// Which steps run where, where there are several contexts.
    #[serde(skip_serializing_if = "Option::is_none")]
    contexts: Option<Vec<Placed>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Totals>,
    /// What operators are estimated to cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<CostReport>,
    /// Every tensor of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<ValueRow>>,
    /// What steps take of the arena.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocations: Option<Vec<AllocationRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    passes: Option<Vec<Pass>>,
    warnings: Vec<String>,
}

/// An operator that comes after others without reading from them.
#[derive(Serialize)]
struct After {
    name: String,
    after: Vec<String>,
}

/// A model that an operator of control flow runs.
#[derive(Serialize)]
struct Body {
    operator: String,
    /// The parameter that names it: then, else, cond, body.
    part: &'static str,
    kind: String,
    operators: usize,
    kinds: BTreeMap<String, usize>,
    /// Its steps for the shapes with which it is run first, where plans are asked for; of a body
    /// that is named several times, where it is named first.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<Vec<Step>>,
}

/// An input or output of the model, or of a step.
#[derive(Serialize)]
struct Value {
    name: String,
    /// Shape and dtype.
    spec: String,
    /// Where it lies in a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
}

#[derive(Serialize)]
struct Step {
    kind: String,
    name: String,
    kernel: String,
    absorbed: Vec<String>,
    /// Operators that it comes after without reading from them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after: Vec<String>,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    scratch_bytes: usize,
    flops: u64,
    /// Memory traffic, about.
    bytes: u64,
    /// Where it runs, out of the contexts.
    context: usize,
}

/// What runs in a context.
#[derive(Serialize)]
struct Placed {
    context: usize,
    /// Cores that it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<Vec<usize>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    numa_node: Option<usize>,
    threads: usize,
    /// Steps in a row: the first and the last of each.
    segments: Vec<(usize, usize)>,
    /// What its steps take together, as estimated or measured.
    estimated_us: f64,
}

/// Steps that follow each other: one after the other, or as chains at the same time.
#[derive(Serialize)]
struct Phase {
    first: usize,
    last: usize,
    context: usize,
    /// The steps of each chain; empty where they run one after the other.
    chains: Vec<Vec<usize>>,
    /// What chains would take one step after the other, and what they take, as estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_turn_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    together_us: Option<f64>,
}

#[derive(Serialize)]
struct Pass {
    name: String,
    ran: bool,
    done: Vec<String>,
    refused: Vec<String>,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let model = args.limits.load_or_stand_in(&args.model)?;
    let mut report = describe(args, &model);
    if args.plans() {
        let specs = inputs::specs(&args.shapes, &inputs::slots(&model), Open::Refuse)?;
        let memory = args.memory.unwrap_or(MemoryArg::Fast);
        let session = args.limits.session(&model, memory)?;
        let plan = session.plan(&specs);
        let plan = plan.map_err(|error| inputs::refused_inputs(error, &model, &specs))?;
        report.cost = args
            .cost
            .then(|| CostReport::new(&plan, &session.estimator(), session.isa().to_string()));

        report.warnings.extend(names::warnings(&model, &plan));
        describe_plan(args, &plan, &mut report);
        if args.plan {
            describe_body_plans(&session, &model, &mut report);
        }
        report.contexts =
            (args.plan && session.contexts().len() > 1).then(|| placed(session.contexts(), &plan));
        if let Some(path) = &args.svg {
            write_file(path, arena_svg::draw(&plan, &report.model).as_bytes())?;
        }
    } else {
        let inference = model.inference();
        report.warnings.extend(inference.warnings.iter().map(ToString::to_string));
        if !inference.stand_ins {
            report.warnings.extend(inference.failures.iter().map(ToString::to_string));
        }
    }
    if args.json { out.json(&report) } else { print(&report, out) }
}

impl Args {
    /// Whether something is asked for that a plan tells.
    fn plans(&self) -> bool {
        let Self { plan, memory, cost, passes, svg, .. } = self;
        *plan || memory.is_some() || *cost || *passes || svg.is_some()
    }
}

fn describe(args: &Args, model: &Model) -> Report {
    let graph = model.graph();
    let kinds = kinds(graph);
    let (mut parameters, mut weight_bytes) = (0, 0);
    for (_, operator) in graph.operators() {
        for attribute in operator.attrs.values() {
            parameters += attribute.element_count() as u64;
            weight_bytes += attribute.byte_len() as u64;
        }
    }
    Report {
        model: args.model.display().to_string(),
        operators: graph.operator_count(),
        operands: graph.operand_count(),
        parameters,
        weight_bytes,
        inputs: model.inputs().iter().map(Value::from).collect(),
        outputs: model.outputs().iter().map(Value::from).collect(),
        kinds,
        order: order(graph),
        bodies: model.bodies().iter().map(Body::from).collect(),
        plan: None,
        phases: None,
        alone: None,
        contexts: None,
        memory: None,
        cost: None,
        values: None,
        allocations: None,
        passes: None,
        warnings: model.warnings().iter().map(ToString::to_string).collect(),
    }
}

/// How many operators there are of each type.
fn kinds(graph: &Graph) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for (_, operator) in graph.operators() {
        *kinds.entry(operator.kind.clone()).or_insert(0) += 1;
    }
    kinds
}

fn order(graph: &Graph) -> Vec<After> {
    let name = |id: &OperatorId| graph.operator(*id).map(|op| op.name.clone());
    let later = graph.operators().filter(|(_, op)| !op.after.is_empty());
    let row = |op: &Operator| After {
        name: op.name.clone(),
        after: op.after.iter().filter_map(name).collect(),
    };
    later.map(|(_, op)| row(op)).collect()
}

impl From<&BodyInfo> for Body {
    fn from(body: &BodyInfo) -> Self {
        Self {
            operator: body.operator.name.clone(),
            part: body.part,
            kind: body.kind.clone(),
            operators: body.graph().operator_count(),
            kinds: kinds(body.graph()),
            plan: None,
        }
    }
}

/// The steps of bodies, each where it is named first.
fn describe_body_plans(session: &Session, model: &Model, report: &mut Report) {
    let bodies = model.bodies();
    for (at, (body, row)) in bodies.iter().zip(&mut report.bodies).enumerate() {
        let before = bodies.get(..at).unwrap_or_default();
        if !before.iter().any(|other| other.is_same(body)) {
            let plan = session.body_plans(body).into_iter().next();
            row.plan = plan.map(|plan| plan.steps().map(Step::from).collect());
        }
    }
}

fn describe_plan(args: &Args, plan: &Plan, report: &mut Report) {
    report.plan = args.plan.then(|| plan.steps().map(Step::from).collect());
    report.phases = args.plan.then(|| plan.phases().map(Phase::from).collect());
    report.alone = args.plan.then(|| plan.runs_alone());
    report.memory = args.memory.map(|_| plan.memory().into());
    let values = || plan.values().iter().map(ValueRow::from).collect();
    report.values = (args.plan || args.memory.is_some()).then(values);
    report.allocations = args.memory.map(|_| memory_map::allocations(plan));
    report.passes = args.passes.then(|| plan.passes().iter().map(Pass::from).collect());
}

fn placed(contexts: &[Arc<Context>], plan: &Plan) -> Vec<Placed> {
    let all = contexts.iter().zip(&plan.placement().loads).enumerate();
    let placed = |(number, (context, load)): (usize, (&Arc<Context>, &std::time::Duration))| {
        let mut segments: Vec<(usize, usize)> = Vec::new();
        for (at, _) in plan.steps().enumerate().filter(|(_, step)| step.context == number) {
            match segments.last_mut() {
                Some((_, last)) if *last + 1 == at => *last = at,
                _ => segments.push((at, at)),
            }
        }
        Placed {
            context: number,
            cores: context.cores().map(<[usize]>::to_vec),
            numa_node: context.numa_node(),
            threads: context.threads(),
            segments,
            estimated_us: load.as_secs_f64() * 1e6,
        }
    };
    all.map(placed).collect()
}

impl From<&ValueInfo> for Value {
    fn from(info: &ValueInfo) -> Self {
        Self { name: info.name.clone(), spec: info.recorded.to_string(), place: None }
    }
}

impl From<StepInfo> for Step {
    fn from(step: StepInfo) -> Self {
        let values = |reports: Vec<plutino::ValueReport>| {
            let value = |v: plutino::ValueReport| Value {
                name: v.name,
                spec: v.spec,
                place: Some(v.place),
            };
            reports.into_iter().map(value).collect()
        };
        Self {
            kind: step.location.kind,
            name: step.location.name,
            kernel: step.kernel,
            absorbed: step.absorbed,
            after: step.after,
            inputs: values(step.inputs),
            outputs: values(step.outputs),
            scratch_bytes: step.scratch,
            flops: step.cost.flops,
            bytes: step.cost.bytes,
            context: step.context,
        }
    }
}

impl From<PhaseInfo> for Phase {
    fn from(phase: PhaseInfo) -> Self {
        let micros = |time: std::time::Duration| time.as_secs_f64() * 1e6;
        Self {
            first: phase.steps.start,
            last: phase.steps.end.saturating_sub(1),
            context: phase.context,
            chains: phase.chains,
            in_turn_us: phase.estimated.map(|(in_turn, _)| micros(in_turn)),
            together_us: phase.estimated.map(|(_, together)| micros(together)),
        }
    }
}

impl From<&PassReport> for Pass {
    fn from(pass: &PassReport) -> Self {
        let notes = |notes: &[plutino::PassNote]| {
            notes.iter().map(|note| format!("{}: {}", note.operator, note.what)).collect()
        };
        Self {
            name: pass.name.to_owned(),
            ran: pass.ran,
            done: notes(&pass.done),
            refused: notes(&pass.refused),
        }
    }
}

fn print(report: &Report, out: &mut Output) -> Result<(), Failure> {
    let weights = bytes(report.weight_bytes);
    writeln!(
        out,
        "{}: {}, {}, {} parameters in {weights}",
        report.model,
        count(report.operators, "operator"),
        count(report.operands, "operand"),
        report.parameters
    )?;
    for (what, values) in [("input", &report.inputs), ("output", &report.outputs)] {
        for value in values {
            writeln!(out, "{what:<7} {:<12} {}", value.name, value.spec)?;
        }
    }
    for After { name, after } in &report.order {
        writeln!(out, "order   {name:<12} after {}", after.join(", "))?;
    }
    for Body { operator, part, kind, operators, .. } in &report.bodies {
        let operators = count(*operators, "operator");
        writeln!(out, "body    {operator:<12} {part}={kind}, {operators}")?;
    }
    match (&report.plan, &report.memory, &report.passes) {
        (None, None, None) if report.cost.is_none() => print_kinds(&report.kinds, out)?,
        (plan, memory, passes) => {
            plan.iter().try_for_each(|steps| print_plan(steps, out))?;
            for Body { operator, part, kind, plan, .. } in &report.bodies {
                let Some(steps) = plan else { continue };
                write!(out, "\n{operator} runs {part}={kind}:")?;
                print_plan(steps, out)?;
            }
            print_phases(report, out)?;
            passes.iter().try_for_each(|passes| print_passes(passes, out))?;
            report.cost.iter().try_for_each(|cost| costs::print(cost, out))?;
            if let Some(values) = &report.values {
                writeln!(out)?;
                memory_map::print_values(values, out)?;
            }
            if let Some(allocations) = report.allocations.as_ref().filter(|a| !a.is_empty()) {
                writeln!(out)?;
                memory_map::print_allocations(allocations, out)?;
            }
            if let Some(memory) = memory {
                writeln!(out)?;
                memory_map::print_totals(memory, out)?;
            }
        }
    }
    crate::output::warn_all(&report.warnings);
    Ok(())
}

fn print_kinds(kinds: &BTreeMap<String, usize>, out: &mut Output) -> Result<(), Failure> {
    let mut kinds: Vec<(&String, &usize)> = kinds.iter().collect();
    kinds.sort_by_key(|(kind, n)| (std::cmp::Reverse(**n), *kind));
    kinds.iter().try_for_each(|(kind, n)| Ok(writeln!(out, "{n:>7} {kind}")?))
}

fn print_plan(steps: &[Step], out: &mut Output) -> Result<(), Failure> {
    writeln!(out)?;
    let values = |values: &[Value]| {
        let value = |v: &Value| match &v.place {
            Some(place) => format!("{} {} @{place}", v.name, v.spec),
            None => format!("{} {}", v.name, v.spec),
        };
        values.iter().map(value).collect::<Vec<_>>().join(", ")
    };
    for (i, step) in steps.iter().enumerate() {
        let absorbed: String = step.absorbed.iter().map(|name| format!(" + {name}")).collect();
        let Step { kind, name, kernel, .. } = step;
        let (flops, traffic) = (si(step.flops), bytes(step.bytes));
        let after = match &step.after[..] {
            [] => String::new(),
            after => format!("; after {}", after.join(", ")),
        };
        writeln!(out, "{i:>4} {kind} '{name}'{absorbed}: {kernel}; {flops}FLOP, {traffic}{after}")?;
        writeln!(out, "     {} -> {}", values(&step.inputs), values(&step.outputs))?;
    }
    Ok(())
}

/// Chains of steps that run at the same time, and whether threads are called at all.
fn print_phases(report: &Report, out: &mut Output) -> Result<(), Failure> {
    let phases = report.phases.iter().flatten().filter(|phase| !phase.chains.is_empty());
    for phase in phases {
        let chain = |steps: &Vec<usize>| {
            steps.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        let chains = phase.chains.iter().map(chain).collect::<Vec<_>>().join(" | ");
        let (Phase { first, last, .. }, count) = (phase, phase.chains.len());
        let time = |us: Option<f64>| us.map_or_else(String::new, |us| format!("{us:.1}"));
        let (in_turn, together) = (time(phase.in_turn_us), time(phase.together_us));
        writeln!(
            out,
            "\nsteps {first} to {last} in {count} chains at the same time, estimated at {together} µs \
             instead of {in_turn}:\n     {chains}"
        )?;
    }
    for placed in report.contexts.iter().flatten() {
        let list =
            |cores: &[usize]| cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let cores = placed.cores.as_ref().map(|cores| format!(" on cores {}", list(cores)));
        let node = placed.numa_node.map(|node| format!(" of node {node}")).unwrap_or_default();
        let steps = placed.segments.iter().map(|(first, last)| format!("{first} to {last}"));
        let steps = steps.collect::<Vec<_>>().join(", ");
        let (number, us) = (placed.context, placed.estimated_us);
        let threads = count(placed.threads, "thread");
        writeln!(
            out,
            "\ncontext {number}, {threads}{}{node}: {us:.1} µs, steps {}",
            cores.unwrap_or_default(),
            if steps.is_empty() { "none" } else { &steps }
        )?;
    }
    if report.alone == Some(true) {
        writeln!(out, "\none thread runs all steps: by estimate, others would not save time")?;
    }
    Ok(())
}

fn print_passes(passes: &[Pass], out: &mut Output) -> Result<(), Failure> {
    for pass in passes {
        let state = if pass.ran { "" } else { " (off)" };
        writeln!(
            out,
            "\npass {}{state}: {} done, {} refused",
            pass.name,
            pass.done.len(),
            pass.refused.len()
        )?;
        pass.done.iter().try_for_each(|note| writeln!(out, "  {note}"))?;
        pass.refused.iter().try_for_each(|note| writeln!(out, "  refused: {note}"))?;
    }
    Ok(())
}

//! A plan: a model bound to shapes, an instruction set and threads. A list of steps with nothing
//! left to decide.
//!
//! | module | what |
//! |---|---|
//! | [`net`], [`reach`] | the part of a model that a run needs; why there may be none |
//! | [`infer`], [`strides`] | dtypes, shapes, known values; strides where a model asks for them |
//! | [`build`] | the order in which everything is decided |
//! | [`dispatch`], [`overlap`], [`schedule`] | what runs side by side, and in which phase |
//! | [`cache`] | the last few plans of a session |
//! | [`report`], [`values`] | what a plan says about itself |
//!
//! What is fused is said by [`passes`](crate::passes), what lies where by
//! [`memory`](crate::memory).

pub(crate) mod build;
pub(crate) mod cache;
pub(crate) mod dispatch;
pub(crate) mod infer;
pub(crate) mod net;
pub(crate) mod overlap;
pub(crate) mod reach;
pub(crate) mod report;
pub(crate) mod schedule;
pub(crate) mod strides;
pub(crate) mod values;

use crate::memory::arena::Region;
use crate::open::{Append, Open, Resident};
use crate::passes::PassReport;
use crate::place::PlacementReport;
use crate::plan::net::ValueId;
use crate::plan::report::{MemoryReport, StepInfo, ValueReport, Warning};
use crate::plan::schedule::{How, PhaseInfo, Schedule};
use crate::plan::values::{Allocation, PlannedValue};
use crate::run::bind::Binding;
use crate::run::late::LateStep;
use plutino_ops::{Cost, Kernel, Location, PackCache, ValueSpec};
use plutino_tensor::{DType, Tensor, TensorSpec};
use std::sync::Arc;

/// A model bound to shapes, an instruction set and threads. Made by
/// [`Session::plan`](crate::Session::plan), and by every run with new shapes.
pub struct Plan {
    pub(crate) steps: Vec<Arc<Step>>,
    /// Which of them run when.
    pub(crate) schedule: Arc<Schedule>,
    /// What became of the placement.
    pub(crate) placement: Arc<PlacementReport>,
    /// What it was made for.
    pub(crate) binding: Binding,
    pub(crate) constants: Arc<Vec<Tensor>>,
    pub(crate) fetches: Vec<Fetch>,
    /// Names of the fetched values, each of which may be several results.
    pub(crate) fetched: Arc<Vec<String>>,
    /// Results that steps write to directly; block `1 + i` is entry `i`.
    pub(crate) direct: Vec<Direct>,
    /// Caches that steps append to where they lie; their blocks follow those of `direct`.
    pub(crate) residents: Arc<Vec<Resident>>,
    /// What is copied to each of them: all that their steps need to know of the lengths.
    pub(crate) appends: Vec<Append>,
    /// How it is bound to other lengths of the inputs, where that is possible.
    pub(crate) open: Option<Arc<Open>>,
    pub(crate) heap_slots: usize,
    pub(crate) late_slots: usize,
    /// As known when it was made; see [`Plan::memory`].
    pub(crate) memory: MemoryReport,
    /// The packed weights that it uses.
    pub(crate) packs: Arc<PackCache>,
    pub(crate) values: Arc<Vec<PlannedValue>>,
    pub(crate) allocations: Arc<Vec<Allocation>>,
    pub(crate) passes: Arc<Vec<PassReport>>,
    pub(crate) warnings: Arc<Vec<Warning>>,
    pub(crate) input_names: Arc<Vec<String>>,
}

/// One step.
pub(crate) struct Step {
    pub(crate) location: Arc<Location>,
    pub(crate) absorbed: Vec<String>,
    /// Operators that it comes after without reading from them, by name.
    pub(crate) after: Vec<String>,
    pub(crate) work: Work,
    pub(crate) inputs: Vec<StepInput>,
    pub(crate) outputs: Vec<StepOutput>,
    /// What the inputs of kind [`Source::Lent`] read, in order.
    pub(crate) reads: Vec<Region>,
    /// What the outputs of kind [`Sink::Lent`] write, in order; then the scratch memory.
    pub(crate) writes: Vec<Region>,
    pub(crate) scratch: usize,
    pub(crate) cost: Cost,
}

/// What a step does.
pub(crate) enum Work {
    /// Runs a kernel.
    Kernel(Arc<dyn Kernel>),
    /// Copies every input to the output beside it, byte by byte.
    Copy,
    /// Copies the input to the end of a cache, as this entry of [`Plan::appends`] says.
    Append(usize),
    /// Infers, plans and runs an operator whose inputs were not known before.
    Late(Box<LateStep>),
}

/// An input leaf of a step.
pub(crate) struct StepInput {
    pub(crate) name: Arc<str>,
    pub(crate) spec: TensorSpec,
    pub(crate) source: Source,
    /// Where it lies, if it is in an output's memory ([`Source::Shared`]).
    pub(crate) shared: Option<Region>,
}

/// Where an input leaf is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// In the arena or an output tensor: the next of [`Step::reads`], or this region where a fetch
    /// reads it.
    Lent(Region),
    /// The memory of an output: the kernel works in place.
    Shared,
    /// A part of an input of the run, in bytes.
    Feed { feed: usize, offset: usize, len: usize },
    /// A part of a constant, in bytes.
    Constant { constant: usize, offset: usize, len: usize },
    /// A tensor that its producer handed over.
    Heap(usize),
}

/// An output leaf of a step.
pub(crate) struct StepOutput {
    pub(crate) name: Arc<str>,
    pub(crate) sink: Sink,
}

/// Where an output leaf goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sink {
    /// To the arena or an output tensor: the next of [`Step::writes`].
    Lent(TensorSpec),
    /// To a heap slot, in whatever shape the kernel decides.
    Heap { dtype: DType, slot: usize },
    /// Nowhere: it is a view of an input.
    View,
}

/// A result of the run.
pub(crate) enum Fetch {
    /// One tensor of the fetched value `of`.
    Leaf { of: usize, name: Arc<str>, dtype: DType, spec: Option<TensorSpec>, source: Source },
    /// What a cache holds at the end: it stays where it lies, and is no result.
    Resident { of: usize, value: ValueId, name: Arc<str>, spec: TensorSpec },
    /// Whatever comes out of a late step: any number of tensors.
    Late { of: usize, name: Arc<str>, slot: usize },
}

/// A result that steps write to directly.
#[derive(Debug, Clone)]
pub(crate) struct Direct {
    /// Position among [`Plan::fetches`].
    pub(crate) fetch: usize,
    pub(crate) spec: TensorSpec,
}

/// Names of the tensors of a value: its own, or where it is a tuple `name.0`, `name.1` and so on,
/// with a number more for each tuple inside.
pub(crate) fn members(name: &Arc<str>, spec: &ValueSpec) -> Vec<Arc<str>> {
    fn walk(name: Arc<str>, spec: &ValueSpec, names: &mut Vec<Arc<str>>) {
        match spec {
            ValueSpec::List(members) => {
                let members = members.iter().enumerate();
                members.for_each(|(i, m)| walk(format!("{name}.{i}").into(), m, names));
            }
            ValueSpec::Word(_) => {}
            ValueSpec::Tensor(_) | ValueSpec::Dynamic { .. } => names.push(name),
        }
    }
    let mut names = Vec::new();
    walk(Arc::clone(name), spec, &mut names);
    names
}

impl Plan {
    /// The steps, in order.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = StepInfo> + '_ {
        (self.steps.iter().enumerate()).map(|(at, step)| step.info(self.schedule.context(at)))
    }

    /// The phases, in order: in some of them steps run at the same time.
    pub fn phases(&self) -> impl ExactSizeIterator<Item = PhaseInfo> + '_ {
        self.schedule.phases.iter().map(PhaseInfo::from)
    }

    /// Whether the thread that calls runs all of it, because that takes others no less time.
    pub fn runs_alone(&self) -> bool {
        self.schedule.alone
    }

    /// For each step whether it runs beside others.
    pub(crate) fn chained(&self) -> Vec<bool> {
        let mut chained = vec![false; self.steps.len()]; // bounded: steps
        for phase in &self.schedule.phases {
            if let (How::Together(_), Some(of)) = (&phase.how, chained.get_mut(phase.steps.clone()))
            {
                of.fill(true);
            }
        }
        chained
    }

    /// Names and specs of the inputs that the plan was made for.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = (&str, &TensorSpec)> + '_ {
        let specs = self.binding.feeds.iter().map(|(_, spec)| spec);
        self.input_names.iter().map(String::as_str).zip(specs)
    }

    /// Names of the results, with their specs where those are known before the run: that of the
    /// operand, and for the members of a tuple `name.0`, `name.1` and so on. One that is made while
    /// running may turn out to be several.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = (&str, Option<&TensorSpec>)> + '_ {
        self.fetches.iter().map(|fetch| match fetch {
            Fetch::Leaf { name, spec, .. } => (&**name, spec.as_ref()),
            Fetch::Resident { name, spec, .. } => (&**name, Some(spec)),
            Fetch::Late { name, .. } => (&**name, None),
        })
    }

    /// What the name of a result has beyond that of the fetched value `of`.
    pub(crate) fn ending<'n>(&self, of: usize, name: &'n str) -> &'n str {
        self.fetched.get(of).and_then(|value| name.strip_prefix(value.as_str())).unwrap_or_default()
    }

    /// Memory of the model and a run. Operators that are planned while running may add to the
    /// packed weights.
    pub fn memory(&self) -> MemoryReport {
        MemoryReport { packed: self.packs.used_bytes(), ..self.memory }
    }

    /// What several plans of one model take when one of them runs: what they share counts once.
    pub(crate) fn memory_together(plans: &[&Plan]) -> usize {
        let of = |part: fn(&MemoryReport) -> usize| plans.iter().map(move |p| part(&p.memory));
        let tables = of(|m| m.tables).fold(0, usize::saturating_add);
        let run = of(|m| m.arena.saturating_add(m.outputs)).max().unwrap_or(0);
        let weights = of(|m| m.weights).max().unwrap_or(0);
        let packed = PackCache::used_by_all(plans.iter().map(|plan| &*plan.packs));
        [weights, packed, tables, run].into_iter().fold(0, usize::saturating_add)
    }

    /// Every tensor of the plan: what it is, who needs it when, and where it lies. A plan whose
    /// inputs grow from run to run has memory in reserve: sizes are the greatest for which it
    /// lasts.
    pub fn values(&self) -> &[PlannedValue] {
        &self.values
    }

    /// What steps take of the arena, in the order in which they take it.
    pub fn allocations(&self) -> &[Allocation] {
        &self.allocations
    }

    /// Bytes of the arena that are in use during each step.
    pub fn live_bytes(&self) -> Vec<usize> {
        let steps = self.steps.len();
        let mut taken = vec![(0usize, 0usize); steps + 1]; // bounded: steps
        for a in self.allocations.iter() {
            let freed = a.freed_by.map_or(steps, |last| (last + 1).min(steps));
            taken[a.step.min(steps)].0 += a.bytes;
            taken[freed].1 += a.bytes;
        }
        let mut live = 0usize;
        let step = |(taken, freed): (usize, usize)| {
            live = live.saturating_sub(freed).saturating_add(taken);
            live
        };
        taken.into_iter().take(steps).map(step).collect()
    }

    /// What became of the placement, in a session of several contexts.
    pub fn placement(&self) -> &PlacementReport {
        &self.placement
    }

    /// What the passes did and refused to do.
    pub fn passes(&self) -> &[PassReport] {
        &self.passes
    }

    /// Where inferred dtypes differ from those recorded in the file, each at its origin; shapes as
    /// well, if those of the inputs are as they were when the model was exported.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Plan({} steps, {} bytes of arena)", self.steps.len(), self.memory.arena)
    }
}

impl Step {
    fn info(&self, context: usize) -> StepInfo {
        let mut reads = self.reads.iter();
        let inputs = self.inputs.iter().map(|input| ValueReport {
            name: input.name.to_string(),
            spec: input.spec.to_string(),
            place: match input.source {
                Source::Lent(_) => reads.next().map(ToString::to_string).unwrap_or_default(),
                Source::Shared => "in place".into(),
                Source::Feed { feed, .. } => format!("input {feed}"),
                Source::Constant { constant, .. } => format!("constant {constant}"),
                Source::Heap(slot) => format!("heap {slot}"),
            },
        });
        let mut writes = self.writes.iter();
        let outputs = self.outputs.iter().map(|output| {
            let (spec, place) = match &output.sink {
                Sink::Lent(spec) => {
                    (spec.to_string(), writes.next().map(ToString::to_string).unwrap_or_default())
                }
                Sink::Heap { dtype, slot } => (format!("(?){dtype}"), format!("heap {slot}")),
                Sink::View => (String::new(), "view".into()),
            };
            ValueReport { name: output.name.to_string(), spec, place }
        });
        StepInfo {
            location: (*self.location).clone(),
            kernel: self.kernel_name().to_owned(),
            absorbed: self.absorbed.clone(),
            after: self.after.clone(),
            inputs: inputs.collect(),
            outputs: outputs.collect(),
            scratch: self.scratch,
            cost: self.cost,
            context,
        }
    }

    /// In the place of this step, where its outputs have no elements: copies nothing.
    pub(crate) fn idle(&self) -> Self {
        Self {
            location: Arc::clone(&self.location),
            absorbed: self.absorbed.clone(),
            after: self.after.clone(),
            work: Work::Copy,
            inputs: Vec::new(),
            outputs: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            scratch: 0,
            cost: Cost::default(),
        }
    }

    /// The algorithm.
    pub(crate) fn kernel_name(&self) -> &str {
        match &self.work {
            Work::Kernel(kernel) => kernel.name(),
            Work::Copy => "copy",
            Work::Append(_) => "append",
            Work::Late(_) => "planned while running",
        }
    }
}

impl std::fmt::Display for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.block.checked_sub(1) {
            None => write!(f, "arena+{}", self.offset),
            Some(output) => write!(f, "output {output}+{}", self.offset),
        }
    }
}

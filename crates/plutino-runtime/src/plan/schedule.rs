//! The schedule of a plan: in which phases its steps run.
//!
//! Phases follow each other, and all steps are in one of them. In most a step runs after the other,
//! each with all threads; in others chains of steps run at the same time, each on one thread
//! ([`overlap`](super::overlap) says where that pays, and what it means for memory). That nothing
//! which one chain writes is touched by another is checked here, whatever the memory plan decided,
//! and kept as the [`Territories`] without which chains are lent no memory.

use crate::SessionError;
use crate::memory::arena::{Loan, Territories};
use crate::plan::overlap::{Group, Overlap};
use crate::plan::{Sink, Source, Step, Work};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// In which phases the steps of a plan run.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// In order; together they are all steps.
    pub(crate) phases: Vec<Phase>,
    /// Whether the thread that calls runs everything: the plan is too small for others.
    pub(crate) alone: bool,
}

/// Steps that follow each other.
#[derive(Debug)]
pub(crate) struct Phase {
    pub(crate) steps: Range<usize>,
    pub(crate) how: How,
    /// Where they run, out of the contexts of the session.
    pub(crate) context: usize,
}

/// How the steps of a phase run.
#[derive(Debug)]
pub(crate) enum How {
    /// One after the other.
    InTurn,
    /// As chains, at the same time.
    Together(Together),
}

/// Chains of steps that run at the same time.
#[derive(Debug)]
pub(crate) struct Together {
    /// For each task the steps that it runs, in order.
    pub(crate) chains: Vec<Vec<usize>>,
    /// What chains are lent: the proof that they lie apart.
    pub(crate) territories: Territories,
    /// What the steps would take one after the other, in nanoseconds, as far as estimates tell.
    in_turn: f64,
    /// The same for the phase as it is.
    together: f64,
}

/// A phase of a plan: see [`Plan::phases`](crate::Plan::phases).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhaseInfo {
    /// The steps, which follow each other.
    pub steps: Range<usize>,
    /// Where they run at the same time: for each task the steps that it runs, in order. Empty where
    /// a step runs after the other.
    pub chains: Vec<Vec<usize>>,
    /// The context that they run in, out of those of the session.
    pub context: usize,
    /// What a phase of chains would take one step after the other, and what it takes, as estimated.
    pub estimated: Option<(Duration, Duration)>,
}

impl Schedule {
    /// Of a plan of so many steps, each after the other.
    pub(crate) fn in_turn(steps: usize, alone: bool) -> Self {
        let phases = match steps {
            0 => Vec::new(),
            _ => vec![Phase { steps: 0..steps, how: How::InTurn, context: 0 }],
        };
        Self { phases, alone }
    }

    /// Of the steps of nodes that overlap like this. `times` says which step a node became.
    ///
    /// # Errors
    /// Where chains share memory, which is a defect.
    pub(crate) fn new(
        steps: &[Arc<Step>],
        times: &[Option<usize>],
        overlap: &Overlap,
        alone: bool,
    ) -> Result<Self, SessionError> {
        let mut phases: Vec<Phase> = Vec::new();
        let mut begun = 0;
        for group in &overlap.groups {
            let Some((range, together)) = together(steps, times, group)? else { continue };
            if begun < range.start {
                phases.push(Phase { steps: begun..range.start, how: How::InTurn, context: 0 });
            }
            begun = range.end;
            phases.push(Phase { steps: range, how: How::Together(together), context: 0 });
        }
        if begun < steps.len() {
            phases.push(Phase { steps: begun..steps.len(), how: How::InTurn, context: 0 });
        }
        Ok(Self { phases, alone })
    }

    /// Puts each phase into the context of its steps. Where those of a phase that run in turn are
    /// in several, it becomes several phases.
    pub(crate) fn place(&mut self, contexts: &[usize]) {
        let of = |at: usize| contexts.get(at).copied().unwrap_or(0);
        let mut phases: Vec<Phase> = Vec::new();
        for phase in std::mem::take(&mut self.phases) {
            let Phase { steps, how: How::InTurn, .. } = phase else {
                phases.push(Phase { context: of(phase.steps.start), ..phase });
                continue;
            };
            for at in steps.clone() {
                match phases.last_mut() {
                    Some(last) if at > steps.start && last.context == of(at) => {
                        last.steps.end = at + 1;
                    }
                    _ => {
                        phases.push(Phase { steps: at..at + 1, how: How::InTurn, context: of(at) })
                    }
                }
            }
        }
        self.phases = phases;
    }

    /// The context of a step.
    pub(crate) fn context(&self, step: usize) -> usize {
        let at = self.phases.partition_point(|phase| phase.steps.end <= step);
        self.phases.get(at).map_or(0, |phase| phase.context)
    }
}

/// The steps of a group, and its phase; none where there are no chains left.
fn together(
    steps: &[Arc<Step>],
    times: &[Option<usize>],
    group: &Group,
) -> Result<Option<(Range<usize>, Together)>, SessionError> {
    let step_of = |&node: &usize| times.get(node).copied().flatten();
    let chains = group.chains.iter().map(|nodes| nodes.iter().filter_map(step_of).collect());
    let chains: Vec<Vec<usize>> = chains.filter(|chain: &Vec<usize>| !chain.is_empty()).collect();
    let all = || chains.iter().flatten().copied();
    let (Some(first), Some(last), true) = (all().min(), all().max(), chains.len() > 1) else {
        return Ok(None);
    };
    let range = first..last + 1;
    if all().count() != range.len() {
        return Err(SessionError::internal("a step of a phase is in no chain"));
    }
    let loans = |chain: &Vec<usize>| -> Option<Vec<Loan>> {
        let lent = |&at: &usize| {
            let step = steps.get(at).filter(|step| step.can_overlap())?;
            Some(Loan::new(&step.reads, &step.writes))
        };
        chain.iter().map(lent).collect()
    };
    let loans: Option<Vec<Vec<Loan>>> = chains.iter().map(loans).collect();
    let loans = loans.ok_or_else(|| SessionError::internal("a step cannot be in a chain"))?;
    let territories = Territories::new(loans).map_err(|region| {
        let name = steps.get(first).map(|step| step.location.to_string()).unwrap_or_default();
        SessionError::internal(format!("chains from {name} on share {region:?}"))
    })?;
    let (in_turn, together) = (group.in_turn, group.together);
    Ok(Some((range, Together { chains, territories, in_turn, together })))
}

impl Step {
    /// Whether it touches nothing but what it is lent, constants and inputs of the run.
    fn can_overlap(&self) -> bool {
        let work = matches!(self.work, Work::Kernel(_) | Work::Copy);
        let heap = |source: Source| matches!(source, Source::Heap(_));
        let made = self.outputs.iter().all(|output| !matches!(output.sink, Sink::Heap { .. }));
        work && made && !self.inputs.iter().any(|input| heap(input.source))
    }
}

impl From<&Phase> for PhaseInfo {
    fn from(phase: &Phase) -> Self {
        let time = |ns: f64| Duration::try_from_secs_f64(ns / 1e9).unwrap_or_default();
        let (chains, estimated) = match &phase.how {
            How::InTurn => (Vec::new(), None),
            How::Together(t) => (t.chains.clone(), Some((time(t.in_turn), time(t.together)))),
        };
        Self { steps: phase.steps.clone(), chains, context: phase.context, estimated }
    }
}

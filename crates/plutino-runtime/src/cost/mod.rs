//! What operators cost: estimates of their time.
//!
//! An operator says how much arithmetic it does and how many bytes it reads and writes
//! ([`plutino_ops::Cost`]). A [`Machine`] says how fast a thread computes and how fast bytes come,
//! and a table how much of that each [`Family`] of kernels reaches. The estimate of a step on one
//! thread is
//!
//! ```text
//! overhead + max(flops / (peak * efficiency), bytes / bandwidth) + activations / rate
//! ```
//!
//! where activations are those that a product or a convolution applies to its results, at the rate
//! of elementwise functions, and the bandwidth is that of the cache which the bytes fit in. Where a
//! run was recorded ([`Recorded`]), the time of the same operator with the same shapes on as many
//! threads counts instead.
//!
//! A session estimates by built-in figures for its instruction set, unless it is given others
//! ([`SessionOptions::costs`](crate::SessionOptions::costs)): so a plan depends on nothing but the
//! model, its inputs and the options. Nothing is measured, and no file is read, because a model is
//! run.

mod error;
mod families;
#[cfg(feature = "costs")]
mod file;
mod machine;
mod measure;
mod recorded;

pub use error::CostsError;
pub use families::Family;
pub use machine::Machine;
pub use measure::cpu;
pub use recorded::{Key, Recorded};

use crate::Plan;
use crate::plan::schedule::How;
use crate::plan::{Sink, Step, Work};
use plutino_kernels::Isa;
use plutino_ops::Cost;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// By which figures costs are estimated.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Costs {
    /// The machine; `None`: built-in figures for the instruction set, [`Machine::built_in`].
    pub machine: Option<Arc<Machine>>,
    /// What was measured of single operators, which counts more.
    pub recorded: Option<Arc<Recorded>>,
}

impl Costs {
    /// As measured on this machine.
    #[must_use]
    pub fn with_machine(mut self, machine: impl Into<Arc<Machine>>) -> Self {
        self.machine = Some(machine.into());
        self
    }

    /// With these measured costs of operators.
    #[must_use]
    pub fn with_recorded(mut self, recorded: impl Into<Arc<Recorded>>) -> Self {
        self.recorded = Some(recorded.into());
        self
    }

    /// Estimates for sessions that compute with this instruction set on so many threads.
    pub fn estimator(&self, isa: Isa, threads: usize) -> Estimator {
        let machine = self.machine.clone().unwrap_or_else(|| Arc::new(Machine::built_in(isa)));
        let recorded = self.recorded.clone().filter(|recorded| !recorded.is_empty());
        Estimator { machine, recorded, isa, threads: threads.max(1) }
    }
}

/// Estimates for one instruction set and number of threads.
#[derive(Debug, Clone)]
pub struct Estimator {
    machine: Arc<Machine>,
    recorded: Option<Arc<Recorded>>,
    isa: Isa,
    threads: usize,
}

/// What is estimated of a step, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Nanos {
    /// On one thread.
    pub(crate) alone: f64,
    /// On all threads.
    pub(crate) shared: f64,
}

/// The time that a step is estimated to take, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Estimate {
    /// With the threads of the session.
    pub time: Duration,
    /// On one thread.
    pub alone: Duration,
    /// What sets it.
    pub bound: Bound,
}

/// What a step of a plan is estimated to cost.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StepCost {
    /// The time; `None` for what is planned while running.
    pub estimate: Option<Estimate>,
    /// Arithmetic and memory traffic.
    pub cost: Cost,
    /// Bytes that it makes.
    pub output: usize,
    /// Bytes of scratch memory, while it runs.
    pub scratch: usize,
    /// Bytes that stay: its weights in the form that the kernel wants.
    pub persistent: usize,
}

/// What a plan is estimated to cost.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlanCost {
    /// By step.
    pub steps: Vec<StepCost>,
    /// The time of a run: of steps that run at the same time, the longest chain counts.
    pub time: Duration,
}

impl Estimator {
    /// What a plan costs, of a session with the same instruction set and threads.
    pub fn plan(&self, plan: &Plan) -> PlanCost {
        let packed = plan.packs.used_by_weight();
        let alone = Estimator { threads: 1, ..self.clone() };
        let chained = plan.chained();
        let steps = plan.steps.iter().enumerate().map(|(at, step)| {
            let one = plan.runs_alone() || chained.get(at) == Some(&true);
            (if one { &alone } else { self }).step(step, &packed)
        });
        let steps: Vec<StepCost> = steps.collect();
        let time = |at: &usize| {
            let estimate = steps.get(*at).and_then(|step| step.estimate);
            estimate.map_or(Duration::ZERO, |estimate| estimate.time)
        };
        let phases = plan.schedule.phases.iter().map(|phase| match &phase.how {
            How::InTurn => phase.steps.clone().map(|at| time(&at)).sum(),
            How::Together(together) => {
                let chains = together.chains.iter().map(|chain| chain.iter().map(time).sum());
                let chains: Vec<Duration> = chains.collect();
                let all: Duration = chains.iter().sum();
                let longest = chains.into_iter().max().unwrap_or_default();
                longest.max(all / u32::try_from(self.threads).unwrap_or(u32::MAX).max(1))
            }
        });
        let enter = match self.threads > 1 && !plan.runs_alone() {
            true => Duration::from_nanos(self.machine.enter_ns as u64),
            false => Duration::ZERO,
        };
        PlanCost { time: phases.sum::<Duration>() + enter, steps }
    }

    fn step(&self, step: &Step, packed: &HashMap<String, usize>) -> StepCost {
        let bytes = |spec: &plutino_tensor::TensorSpec| spec.storage_bytes().unwrap_or(0);
        let outputs = step.outputs.iter().filter_map(|output| match &output.sink {
            Sink::Lent(spec) => Some(bytes(spec)),
            Sink::Heap { .. } | Sink::View => None,
        });
        let own = |weight: &str| {
            let operator = weight.rsplit_once('.').map_or(weight, |(operator, _)| operator);
            operator == step.location.name || step.absorbed.iter().any(|name| name == operator)
        };
        let persistent = packed.iter().filter(|(weight, _)| own(weight)).map(|(_, bytes)| *bytes);
        let known = !matches!(step.work, Work::Late(_));
        let key = || Key::of(step).unwrap_or_else(|| Key::new("", "", [], []));
        StepCost {
            estimate: known.then(|| self.estimate(step.kernel_name(), step.cost, key)),
            cost: step.cost,
            output: outputs.fold(0, usize::saturating_add),
            scratch: step.scratch,
            persistent: persistent.fold(0, usize::saturating_add),
        }
    }
}

/// What sets the time of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bound {
    /// Arithmetic.
    Compute,
    /// Bytes that are read and written.
    Memory,
    /// What every step costs, whatever it does.
    Overhead,
    /// It was measured.
    Recorded,
}

impl Bound {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Memory => "memory",
            Self::Overhead => "overhead",
            Self::Recorded => "recorded",
        }
    }
}

impl Estimator {
    /// The machine that the estimates are for.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Threads that a step may be shared by.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// What a step with this kernel costs.
    pub fn estimate(&self, kernel: &str, cost: Cost, key: impl FnOnce() -> Key) -> Estimate {
        let time = |ns: f64| Duration::try_from_secs_f64(ns / 1e9).unwrap_or(Duration::MAX);
        let (nanos, bound) = self.bounded(kernel, cost, key);
        Estimate { time: time(nanos.shared), alone: time(nanos.alone), bound }
    }

    /// The same in numbers.
    pub(crate) fn nanos(&self, kernel: &str, cost: Cost, key: impl FnOnce() -> Key) -> Nanos {
        self.bounded(kernel, cost, key).0
    }

    fn bounded(&self, kernel: &str, cost: Cost, key: impl FnOnce() -> Key) -> (Nanos, Bound) {
        let (estimated, bound) = self.model(kernel, cost);
        let Some(recorded) = &self.recorded else { return (estimated, bound) };
        let key = key();
        let of = |threads| recorded.get(&key, self.isa, threads);
        let (alone, shared) = (of(1), of(self.threads));
        match (alone, shared) {
            (None, None) => (estimated, bound),
            // What is not known of one is estimated by the other.
            (Some(alone), None) => {
                (Nanos { alone, shared: self.share(kernel, alone) }, Bound::Recorded)
            }
            (None, Some(shared)) => {
                let ratio = estimated.alone / estimated.shared.max(1.0);
                (Nanos { alone: shared * ratio.max(1.0), shared }, Bound::Recorded)
            }
            (Some(alone), Some(shared)) => (Nanos { alone, shared }, Bound::Recorded),
        }
    }

    /// By the model alone.
    fn model(&self, kernel: &str, cost: Cost) -> (Nanos, Bound) {
        let family = families::of(kernel);
        let rate = |family| (self.machine.peak_gflops * self.machine.efficiency(family)).max(1e-9);
        let compute = cost.flops as f64 / rate(family);
        let memory = cost.bytes as f64 / self.machine.bandwidth(cost.bytes).max(1e-9);
        let activations = cost.activations as f64 / rate(families::of("elementwise"));
        let work = compute.max(memory) + activations;
        let alone = self.machine.step_ns + work;
        let bound = match () {
            () if work < self.machine.step_ns => Bound::Overhead,
            () if compute + activations >= memory => Bound::Compute,
            () => Bound::Memory,
        };
        (Nanos { alone, shared: self.share(kernel, alone) }, bound)
    }

    /// What is left of the time of one thread where all of them share it. Kernels do not share what
    /// is not worth it.
    fn share(&self, kernel: &str, alone: f64) -> f64 {
        let machine = &self.machine;
        if self.threads < 2 || !families::of(kernel).shares {
            return alone;
        }
        let work = (alone - machine.step_ns).max(0.0);
        let speedup = 1.0 + (self.threads as f64 - 1.0) * machine.scaling;
        (machine.step_ns + work / speedup + machine.job_ns).min(alone)
    }

    /// What it costs to hand a job to all threads, in nanoseconds.
    pub(crate) fn job(&self) -> f64 {
        self.machine.job_ns
    }

    /// What it costs a run to call the threads, in nanoseconds.
    pub(crate) fn enter(&self) -> f64 {
        self.machine.enter_ns
    }
}

#[cfg(test)]
mod tests;

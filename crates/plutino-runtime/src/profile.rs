//! Times of one run.

use crate::Plan;
use std::sync::Arc;
use std::time::Duration;

/// When each step of a run started and how long it took.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Profile {
    /// What was run: its steps are those timed.
    pub plan: Arc<Plan>,
    /// One entry for each step of the plan, in order.
    pub steps: Vec<StepTime>,
    /// From the start of the run to its end: output tensors made, threads called, results copied.
    pub total: Duration,
}

/// When a step started, since the start of the run, and how long it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepTime {
    /// Start, since the start of the run.
    pub start: Duration,
    /// Time taken.
    pub duration: Duration,
}

impl Profile {
    pub(crate) fn new(plan: Arc<Plan>) -> Self {
        let steps = Vec::with_capacity(plan.steps.len());
        Self { plan, steps, total: Duration::ZERO }
    }

    /// Time inside steps.
    pub fn busy(&self) -> Duration {
        self.steps.iter().map(|s| s.duration).sum()
    }

    /// Time between steps, before the first and after the last: dispatch, threads, output tensors.
    pub fn between(&self) -> Duration {
        self.total.saturating_sub(self.busy())
    }
}

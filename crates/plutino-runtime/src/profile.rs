//! Times of one run.

use crate::{Frame, Plan};
use plutino_kernels::par::Trace;
use std::sync::Arc;
use std::time::Duration;

/// When each step of a run started and how long it took, and what each thread did.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Profile {
    /// What was run: its steps are those timed.
    pub plan: Arc<Plan>,
    /// One entry for each step of the plan, in order.
    pub steps: Vec<StepTime>,
    /// What each thread computed together with others, the caller's first; each list in order of
    /// time. Empty lists for a session of one thread: it computes every step alone.
    pub threads: Vec<Vec<ThreadWork>>,
    /// What control operators ran: branches, and the trips of loops, in order of time; the first
    /// few thousand of them.
    pub frames: Vec<Frame>,
    /// Frames beyond those.
    pub frames_left_out: usize,
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

/// What one thread did of a job: of what a step handed out to all threads at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadWork {
    /// The step.
    pub step: usize,
    /// The job: the same number for all threads that took part, greater for later ones.
    pub job: u64,
    /// Start, since the start of the run.
    pub start: Duration,
    /// Time taken, until no task was left.
    pub duration: Duration,
    /// Tasks that this thread computed.
    pub tasks: usize,
}

impl Profile {
    pub(crate) fn new(plan: Arc<Plan>) -> Self {
        let steps = Vec::with_capacity(plan.steps.len());
        let (threads, frames) = (Vec::new(), Vec::new());
        Self { plan, steps, threads, frames, frames_left_out: 0, total: Duration::ZERO }
    }

    /// Takes what the threads noted. The steps are those of the same run, timed by the same clock.
    pub(crate) fn take_threads(&mut self, trace: &Trace) {
        let steps = &self.steps;
        // Steps run one after the other: a job belongs to the last one that had started.
        let step_at = |start: Duration| steps.partition_point(|step| step.start <= start);
        let threads = trace.take().into_iter().map(|parts| {
            let work = parts.into_iter().map(|part| ThreadWork {
                step: step_at(part.start).saturating_sub(1),
                job: part.job,
                start: part.start,
                duration: part.end.saturating_sub(part.start),
                tasks: part.tasks,
            });
            work.collect()
        });
        self.threads = threads.collect();
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

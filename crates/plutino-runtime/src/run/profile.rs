//! Times of one run.

use crate::plan::schedule::{How, Phase};
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StepTime {
    /// Start, since the start of the run.
    pub start: Duration,
    /// Time taken.
    pub duration: Duration,
    /// The thread that ran it, where steps run at the same time; else the caller's, which is 0, and
    /// whoever took part.
    pub thread: usize,
}

impl StepTime {
    fn end(&self) -> Duration {
        self.start.saturating_add(self.duration)
    }
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

/// A phase, with its beginning and its end.
struct Span<'p> {
    start: Duration,
    end: Duration,
    phase: &'p Phase,
}

impl Profile {
    pub(crate) fn new(plan: Arc<Plan>) -> Self {
        let steps = Vec::with_capacity(plan.steps.len());
        let (threads, frames) = (Vec::new(), Vec::new());
        Self { plan, steps, threads, frames, frames_left_out: 0, total: Duration::ZERO }
    }

    /// Takes what the threads noted. The steps are those of the same run, timed by the same clock.
    pub(crate) fn take_threads(&mut self, trace: &Trace) {
        // Phases follow each other, and so do steps that run in turn. A job of chains begins before
        // the first step does.
        let phases: Vec<Span<'_>> =
            self.plan.schedule.phases.iter().map(|p| self.span(p)).collect();
        let threads = trace.take().into_iter().enumerate().map(|(thread, parts)| {
            let mut work = Vec::new();
            for part in parts {
                let phase = phases.partition_point(|phase| phase.start < part.end);
                let phase = phase.checked_sub(1).and_then(|at| phases.get(at));
                let job = ThreadWork {
                    step: 0,
                    job: part.job,
                    start: part.start,
                    duration: part.end.saturating_sub(part.start),
                    tasks: part.tasks,
                };
                let own = self.work_of(phase, thread, job);
                work.extend(own);
            }
            work
        });
        let threads = threads.collect();
        self.threads = threads;
    }

    /// When a phase began and ended.
    fn span<'p>(&self, phase: &'p Phase) -> Span<'p> {
        let times = || self.steps.get(phase.steps.clone()).unwrap_or_default().iter();
        let start = times().map(|time| time.start).min().unwrap_or_default();
        let end = times().map(StepTime::end).max().unwrap_or_default();
        Span { start, end, phase }
    }

    /// What a thread did of a job: of the step that had started last, or of chains the steps that
    /// the thread ran.
    fn work_of(&self, span: Option<&Span<'_>>, thread: usize, job: ThreadWork) -> Vec<ThreadWork> {
        let Some(Span { phase, .. }) = span else { return vec![job] };
        let range = phase.steps.clone();
        let times = self.steps.get(range.clone()).unwrap_or_default();
        match phase.how {
            How::InTurn => {
                let step = times.partition_point(|time| time.start <= job.start);
                vec![ThreadWork { step: range.start + step.saturating_sub(1), ..job }]
            }
            How::Together(_) => {
                let own = range.zip(times).filter(|(_, time)| time.thread == thread);
                let mut own: Vec<ThreadWork> = own
                    .map(|(step, time)| ThreadWork {
                        step,
                        start: time.start,
                        duration: time.duration,
                        tasks: 1,
                        ..job
                    })
                    .collect();
                own.sort_by_key(|work| work.start);
                own
            }
        }
    }

    /// Time inside steps; where several run at the same time, it counts once.
    pub fn busy(&self) -> Duration {
        let phases = self.plan.schedule.phases.iter();
        let times = phases.map(|phase| match phase.how {
            How::InTurn => {
                let steps = self.steps.get(phase.steps.clone()).unwrap_or_default();
                steps.iter().map(|step| step.duration).sum()
            }
            How::Together(_) => {
                let span = self.span(phase);
                span.end.saturating_sub(span.start)
            }
        });
        times.sum()
    }

    /// Time between steps, before the first and after the last: dispatch, threads, output tensors.
    pub fn between(&self) -> Duration {
        self.total.saturating_sub(self.busy())
    }
}

//! The threads of a queue: workers, and one that keeps deadlines.

use super::batch::{Joined, Verdicts};
use super::job::{Job, Outcome, Phase, Together};
use super::line::{Line, Turn};
use super::{Batching, QueueCounts, QueueError};
use crate::monitor::Monitor;
use crate::{Session, SessionError};
use plutino_ir::{Interrupted, Limits};
use plutino_tensor::Tensor;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// What the threads of a queue share.
pub(super) struct Shared {
    pub(super) session: Arc<Session>,
    pub(super) line: Arc<Monitor<Line<Arc<Job>>>>,
    pub(super) deadlines: Arc<Monitor<Deadlines>>,
    pub(super) batching: Option<Batching>,
    verdicts: Verdicts,
    requests: AtomicU64,
    runs: AtomicU64,
}

/// The deadlines of requests that have no result yet.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    by_time: BTreeMap<(Instant, u64), Weak<Job>>,
    over: bool,
}

impl Deadlines {
    fn first(&self) -> Option<(Instant, u64)> {
        self.by_time.first_key_value().map(|(&key, _)| key)
    }
}

impl Shared {
    pub(super) fn new(
        session: Arc<Session>,
        line: Line<Arc<Job>>,
        batching: Option<Batching>,
    ) -> Self {
        Self {
            session,
            line: Monitor::new(line),
            deadlines: Monitor::new(Deadlines::default()),
            batching,
            verdicts: Verdicts::default(),
            requests: AtomicU64::new(0),
            runs: AtomicU64::new(0),
        }
    }

    pub(super) fn counts(&self) -> QueueCounts {
        let waiting = self.line.with(|line| line.len());
        QueueCounts { waiting, done: self.requests.load(Relaxed), runs: self.runs.load(Relaxed) }
    }

    /// Has the keeper of deadlines look at a job that is in the line.
    pub(super) fn remember(&self, job: &Arc<Job>) {
        let Some(deadline) = job.deadline else { return };
        let key = (deadline, job.number);
        let first = self.deadlines.with(|deadlines| {
            deadlines.by_time.insert(key, Arc::downgrade(job));
            deadlines.first() == Some(key)
        });
        if job.ticket.is_done() {
            self.forget(job); // it was done before
        } else if first {
            self.deadlines.change(|_| ()); // the keeper would sleep for too long
        }
    }

    fn forget(&self, job: &Job) {
        if let Some(deadline) = job.deadline {
            self.deadlines.with(|deadlines| deadlines.by_time.remove(&(deadline, job.number)));
        }
    }

    /// Sets the result of a job; whether it had none.
    pub(super) fn finish(&self, job: &Job, outcome: Outcome) -> bool {
        let first = job.finish(outcome, || _ = self.requests.fetch_add(1, Relaxed));
        self.forget(job);
        first
    }

    /// Ends a job at once where it waits, or runs together with others. Its own run ends itself.
    pub(super) fn end(&self, job: &Arc<Job>, why: Interrupted) {
        let (waited, phase) = self.line.change(|line| (line.withdraw(job), job.phase()));
        let ended = |running| self.finish(job, Err(QueueError::Interrupted { why, running }));
        match phase {
            Phase::Together(together) => {
                if ended(true) {
                    together.leave();
                }
            }
            _ if waited => _ = ended(false),
            Phase::Waiting | Phase::Alone => {}
        }
    }

    /// A worker, until the line is closed and empty.
    pub(super) fn work(&self) {
        loop {
            let turn = self.line.wait(&Limits::default(), |line| {
                let turn = line.turn()?;
                if let Turn::One(job) = &turn {
                    job.enter(Phase::Alone);
                }
                Some(turn)
            });
            match turn {
                Ok(Turn::One(job)) => self.alone(&job),
                Ok(Turn::Lead(job)) => self.lead(&job),
                Ok(Turn::Over) | Err(_) => return,
            }
        }
    }

    /// Waits for others that can run with this one, and runs them.
    fn lead(&self, leader: &Arc<Job>) {
        let window = self.batching.map(|batching| batching.window).unwrap_or_default();
        let limits = Limits { deadline: leader.since.checked_add(window), cancel: None };
        // Until there are enough, or the time is over: then those that are there.
        _ = self.line.wait(&limits, |line| line.is_enough(leader).then_some(()));
        let jobs = self.line.change(|line| {
            let jobs = line.gather(leader);
            let phase = match jobs.len() {
                0 | 1 => Phase::Alone,
                n => Phase::Together(Together::new(n)),
            };
            jobs.iter().for_each(|job| job.enter(phase.clone()));
            jobs
        });
        match (&jobs[..], jobs.first().map(|job| job.phase())) {
            ([], _) => {}
            ([job], _) => self.alone(job),
            (_, Some(Phase::Together(together))) => self.together(&jobs, &together),
            _ => jobs.iter().for_each(|job| self.alone(job)),
        }
    }

    fn alone(&self, job: &Job) {
        if !job.ticket.is_done() {
            self.runs.fetch_add(1, Relaxed);
            let outcome = guarded(|| Ok(self.session.run_with(&job.request())?));
            self.finish(job, outcome);
        }
    }

    /// Runs several jobs as one; where that cannot be, or fails, each alone: so no request suffers
    /// from another.
    fn together(&self, jobs: &[Arc<Job>], together: &Together) {
        match guarded(|| self.joined(jobs, together)) {
            Ok(Some(results)) => {
                jobs.iter().zip(results).for_each(|(job, result)| _ = self.finish(job, Ok(result)));
            }
            Ok(None) | Err(_) => {
                self.line.with(|_| jobs.iter().for_each(|job| job.enter(Phase::Alone)));
                jobs.iter().for_each(|job| self.alone(job));
            }
        }
    }

    /// The results of each; none, where the model cannot be run so.
    fn joined(
        &self,
        jobs: &[Arc<Job>],
        together: &Together,
    ) -> Result<Option<Vec<Vec<Tensor>>>, QueueError> {
        let joined = Joined::new(jobs).map_err(SessionError::from)?;
        let latest = jobs.iter().map(|job| job.deadline).collect::<Option<Vec<_>>>();
        let deadline = latest.and_then(|all| all.into_iter().max());
        let limits = Limits { cancel: Some(together.token.clone()), deadline };
        let request = joined.request().within(&limits);
        if !joined.is_open(&self.session, &self.verdicts, &request)? {
            return Ok(None);
        }
        self.runs.fetch_add(1, Relaxed);
        let results = self.session.run_with(&request)?;
        Ok(Some(joined.split(&results).map_err(SessionError::from)?))
    }

    /// Ends requests whose deadline passes while they wait for others, until the queue is dropped.
    pub(super) fn keep_deadlines(&self) {
        loop {
            let first = self.deadlines.with(|deadlines| deadlines.first());
            let limits = Limits { deadline: first.map(|(time, _)| time), cancel: None };
            let changed = self.deadlines.wait(&limits, |deadlines| {
                (deadlines.over || deadlines.first() != first).then_some(deadlines.over)
            });
            match changed {
                Ok(true) => return,
                Ok(false) => {}
                Err(_) => {
                    let due = first
                        .and_then(|key| self.deadlines.with(|d| d.by_time.remove(&key)))
                        .and_then(|job| job.upgrade());
                    if let Some(job) = due {
                        self.end(&job, Interrupted::Deadline);
                    }
                }
            }
        }
    }

    pub(super) fn stop_keeping(&self) {
        self.deadlines.change(|deadlines| deadlines.over = true);
    }
}

/// What `f` makes; where it panics, an error that says so: somebody waits for the result.
fn guarded<R>(f: impl FnOnce() -> Result<R, QueueError>) -> Result<R, QueueError> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let what = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Err(QueueError::Panicked { what: what.unwrap_or_else(|| "without a message".into()) })
    })
}

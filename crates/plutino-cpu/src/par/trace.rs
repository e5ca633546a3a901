//! Who computed when: notes on the jobs of a region, for profiles.
//!
//! A job is what one call of [`Par::run`](super::Par::run) hands out. Threads that take part note
//! when they began and ended, and how many of its tasks they took; whoever reads the notes finds
//! what they waited for between them. Nothing is noted of work that one thread does alone.
//!
//! Without a trace, a job costs one look at an empty field for each thread.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A task of a job: `f(worker, task)`.
pub(super) type Task<'f> = dyn Fn(usize, usize) + Sync + 'f;

/// Notes of the threads of a pool: see [`Pool::enter_traced`](super::Pool::enter_traced).
#[derive(Debug)]
pub struct Trace {
    begin: Instant,
    /// By number of the thread, so that nobody waits for anybody.
    notes: Box<[Mutex<Vec<JobPart>>]>,
}

/// What one thread did of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobPart {
    /// The job: the same number for all threads that took part in it, greater for later jobs of
    /// the same region.
    pub job: u64,
    /// When the thread began, since the trace began.
    pub start: Duration,
    /// When it found no task left.
    pub end: Duration,
    /// Tasks that it computed.
    pub tasks: usize,
}

impl Trace {
    /// A trace without notes, for pools of so many threads. Times count from now on.
    pub fn new(threads: usize) -> Self {
        Self {
            begin: Instant::now(),
            notes: (0..threads.max(1)).map(|_| Mutex::default()).collect(),
        }
    }

    /// What times count from.
    pub fn begin(&self) -> Instant {
        self.begin
    }

    /// Takes the notes: a list for each thread, the caller's first, each in order of time.
    pub fn take(&self) -> Vec<Vec<JobPart>> {
        self.notes.iter().map(|notes| std::mem::take(&mut *lock(notes))).collect()
    }

    fn note(&self, thread: usize, part: JobPart) {
        if let Some(notes) = self.notes.get(thread) {
            lock(notes).push(part);
        }
    }
}

/// Notes are whole at any time.
fn lock(notes: &Mutex<Vec<JobPart>>) -> MutexGuard<'_, Vec<JobPart>> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `work` with the tasks of a job, and notes what it did of them where there is a trace.
pub(super) fn noted(
    trace: Option<&Trace>,
    (thread, job): (usize, u64),
    task: &Task<'_>,
    work: impl FnOnce(&Task<'_>),
) {
    let Some(trace) = trace else { return work(task) };
    let tasks = AtomicUsize::new(0);
    let counting = |worker: usize, number: usize| {
        tasks.fetch_add(1, Relaxed);
        task(worker, number);
    };
    let start = trace.begin.elapsed();
    work(&counting);
    let tasks = tasks.load(Relaxed);
    if tasks > 0 {
        trace.note(thread, JobPart { job, start, end: trace.begin.elapsed(), tasks });
    }
}

#[cfg(test)]
mod tests {
    use super::super::Pool;
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[test]
    fn every_task_of_a_job_is_noted_once() {
        for threads in [2, 3] {
            let pool = Pool::new(threads);
            let trace = Arc::new(Trace::new(pool.threads()));
            let run = |par: &super::super::Par| {
                for tasks in [40, 1, 60] {
                    par.run(tasks, |_| std::thread::sleep(Duration::from_micros(20)));
                }
            };
            pool.enter_traced(Some(&trace), run);
            let notes = trace.take();
            assert_eq!(notes.len(), threads);
            let mut jobs: BTreeMap<u64, usize> = BTreeMap::new();
            for part in notes.iter().flatten() {
                assert!(part.start <= part.end && part.tasks > 0);
                *jobs.entry(part.job).or_default() += part.tasks;
            }
            // What one thread does alone is no job.
            assert_eq!(jobs.into_values().collect::<Vec<_>>(), [40, 60]);
            for parts in &notes {
                assert!(parts.windows(2).all(|two| two[0].end <= two[1].start));
            }
            pool.enter(run);
            assert!(trace.take().iter().all(Vec::is_empty), "taken, and no longer traced");
        }
    }
}

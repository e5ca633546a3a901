//! What is tried.

use crate::region::Region;
use crate::share::Share;
use crate::sync::{AtomicUsize, Ordering::SeqCst, Scope, Stop, UnsafeCell};
use loom::sync::Arc;
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// All interleavings with so many preemptions at most: more find nothing new, but take hours.
fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

/// A region with workers, which are dismissed and awaited at the end.
fn with_workers(workers: usize, f: impl FnOnce(&Arc<Region>)) {
    let region = Arc::new(Region::new(workers + 1, None));
    let threads: Vec<_> = (1..=workers)
        .map(|worker| {
            let region = Arc::clone(&region);
            thread::spawn(move || region.attend(worker))
        })
        .collect();
    f(&region);
    region.dismiss();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A plain memory cell for each task: loom reports whatever is not ordered.
struct Cells(Vec<UnsafeCell<usize>>);

// As memory of tasks is shared: each cell is its task's alone, until the job is done.
unsafe impl Sync for Cells {}
unsafe impl Send for Cells {}

impl Cells {
    fn new(n: usize) -> Self {
        Self((0..n).map(|_| UnsafeCell::new(0)).collect())
    }

    fn raise(&self, task: usize) {
        self.0[task].with_mut(|x| unsafe { *x += 1 });
    }

    fn all(&self) -> Vec<usize> {
        self.0.iter().map(|cell| cell.with(|x| unsafe { *x })).collect()
    }
}

#[test]
fn a_task_is_taken_once_from_either_end() {
    model(4, || {
        let share = Arc::new(Share::default());
        share.fill(5..8);
        let other = {
            let share = Arc::clone(&share);
            thread::spawn(move || std::iter::from_fn(|| share.last()).collect::<Vec<_>>())
        };
        let mut taken: Vec<usize> = std::iter::from_fn(|| share.first()).collect();
        assert!(taken.is_sorted());
        let others = other.join().unwrap();
        assert!(others.is_sorted_by(|a, b| a > b));
        taken.extend(others);
        taken.sort_unstable();
        assert_eq!(taken, [5, 6, 7]);
    });
}

#[test]
fn two_others_take_from_the_back() {
    model(3, || {
        let share = Arc::new(Share::default());
        share.fill(0..2);
        let others: Vec<_> = (0..2)
            .map(|_| {
                let share = Arc::clone(&share);
                thread::spawn(move || share.last())
            })
            .collect();
        let mut taken: Vec<usize> = share.first().into_iter().collect();
        taken.extend(others.into_iter().filter_map(|other| other.join().unwrap()));
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
    });
}

#[test]
fn a_job_runs_each_task_once_and_is_seen_whole() {
    model(2, || {
        with_workers(1, |region| {
            let (cells, input) = (Cells::new(2), UnsafeCell::new(0));
            input.with_mut(|x| unsafe { *x = 7 });
            let (cells, input) = (&cells, &Shared(input));
            region.run(2, 1, &|worker, task| {
                assert!(worker < 2);
                assert_eq!(input.0.with(|x| unsafe { *x }), 7);
                cells.raise(task);
            });
            assert_eq!(cells.all(), [1, 1]);
        });
    });
}

/// Memory that is written before a job alone.
struct Shared(UnsafeCell<usize>);
unsafe impl Sync for Shared {}

/// Three: a worker that sees the first job comes to raise its hand when the second is written.
#[test]
fn one_job_follows_another() {
    model(3, || {
        with_workers(1, |region| {
            for _ in 0..2 {
                // On the stack of this turn: nothing of a job is touched when it is over.
                let cells = Cells::new(2);
                region.run(2, 1, &|_, task| cells.raise(task));
                assert_eq!(cells.all(), [1, 1]);
            }
        });
    });
}

#[test]
fn two_workers_share_a_job() {
    model(1, || {
        with_workers(2, |region| {
            let cells = Cells::new(3);
            region.run(3, 1, &|_, task| cells.raise(task));
            assert_eq!(cells.all(), [1, 1, 1]);
        });
    });
}

#[test]
fn nobody_waits_for_workers_that_come_late() {
    model(2, || {
        let region = Arc::new(Region::new(2, None));
        let cells = Cells::new(2);
        region.run(2, 1, &|_, task| cells.raise(task));
        assert_eq!(cells.all(), [1, 1]);
        region.dismiss();
        let late = Arc::clone(&region);
        thread::spawn(move || late.attend(1)).join().unwrap();
    });
}

#[test]
fn a_nested_job_is_run_by_the_thread_that_has_it() {
    model(1, || {
        with_workers(1, |region| {
            let cells = Cells::new(4);
            region.run(2, 1, &|_, task| {
                region.run(2, 1, &|_, inner| cells.raise(2 * task + inner));
            });
            assert_eq!(cells.all(), [1; 4]);
        });
    });
}

#[test]
fn a_panic_of_any_task_reaches_the_caller() {
    std::panic::set_hook(Box::new(|_| ())); // thousands of them
    model(2, || {
        with_workers(1, |region| {
            let run = || region.run(2, 1, &|_, task| assert!(task != 1));
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
            let cells = Cells::new(1);
            region.run(1, 1, &|_, task| cells.raise(task));
            assert_eq!(cells.all(), [1], "the region lives on");
        });
    });
    drop(std::panic::take_hook());
}

#[test]
fn what_was_left_out_is_known() {
    model(2, || {
        let stop = Stop::new();
        let entered = Scope::ended_by(&stop).enter();
        let asker = {
            let stop = Arc::clone(&stop);
            thread::spawn(move || stop.ask())
        };
        with_workers(1, |region| {
            let cells = Cells::new(2);
            region.run(2, 1, &|_, task| cells.raise(task));
            let (done, seen) = (cells.all(), stop.seen().is_some());
            assert!(done == [1, 1] || seen, "{done:?}, and nobody knows");
        });
        asker.join().unwrap();
        drop(entered);
    });
}

#[test]
fn a_worker_follows_the_scope_of_the_job() {
    model(2, || {
        let stop = Stop::new();
        stop.ask();
        with_workers(1, |region| {
            let count = AtomicUsize::new(0);
            let entered = Scope::ended_by(&stop).enter();
            region.run(2, 1, &|_, _| _ = count.fetch_add(1, SeqCst));
            assert_eq!(count.load(SeqCst), 0, "nothing begins");
            drop(entered);
            region.run(2, 1, &|_, _| {
                assert!(Scope::current().stop().is_none());
                count.fetch_add(1, SeqCst);
            });
            assert_eq!(count.load(SeqCst), 2, "the next job is no business of that signal");
        });
    });
    model(2, || {
        with_workers(1, |region| {
            for _ in 0..2 {
                let (scope, count) = (Scope::ended_by(&Stop::new()), AtomicUsize::new(0));
                let entered = scope.clone().enter();
                region.run(2, 1, &|_, _| {
                    assert!(scope.is_current());
                    count.fetch_add(1, SeqCst);
                });
                assert_eq!(count.load(SeqCst), 2);
                drop(entered);
            }
        });
    });
}

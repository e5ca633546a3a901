//! Threads: the one file that names rayon.
//!
//! A [`Pool`] belongs to a session. [`Pool::enter`] opens a *region*: the pool's workers attend it,
//! spinning between jobs, so that handing out the next small step costs well under a microsecond
//! instead of a wake-up by the system. Inside, [`Par::run`] publishes a job; the caller takes part.
//!
//! Each thread begins with tasks of its own: neighbours of each other, and the same in every job
//! with the same places ([`Par::run_grid`]). So what a step reads lies in the caches of the core
//! that wrote it in the step before; from another core, above all from one with another third-level
//! cache, it comes slower than it is computed with. Who has finished takes the last tasks of the
//! others, so a worker that is late (or serves another region of the same pool) delays nothing.
//!
//! Who computes a task never changes what it computes: results do not depend on the thread count.
//!
//! All threads work in the [`Scope`] of the caller: what tasks take is charged to its ledger, and
//! once its signal is given, tasks that have not begun are left out. Outputs are then not whole:
//! whoever handed the work in asks [`stop::check`].

use plutino_tensor::Scope;
use std::ops::Range;
use std::sync::Arc;

mod grid;
mod refusal;
mod region;
mod share;
mod sync;
mod trace;

use grid::Grid;
pub use grid::{owner, part_of};
pub use plutino_tensor::stop;
pub use refusal::Refusal;
use region::Region;
use share::Share;
pub use trace::{JobPart, Trace};

/// Bytes of a worker's stack: what the standard library gives a thread by default, so that whatever
/// runs on a worker runs on a thread of a caller as well. No frame of an unoptimised build takes
/// more than an eighth of it (`cargo xtask downstream`).
const STACK: usize = 2 << 20;

/// Grains after which a task of [`Par::split`] looks whether its work is to end.
const LOOK: usize = 4;

/// What is called with the number of a worker and a range of items.
type OfRange<'f> = dyn Fn(usize, Range<usize>) + Sync + 'f;

/// The threads of one session.
pub struct Pool {
    /// `threads - 1` workers; the thread that calls [`Pool::enter`] is the last one.
    workers: Option<rayon::ThreadPool>,
    threads: usize,
}

impl Pool {
    /// A pool that computes on `threads` threads (0 counts as 1), the caller's included. Where the
    /// system refuses to start threads, the pool computes on the caller's alone.
    pub fn new(threads: usize) -> Self {
        let workers = threads.checked_sub(1).filter(|&n| n > 0).and_then(|n| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(n)
                .thread_name(|i| format!("plutino-{i}"))
                .stack_size(STACK)
                .build()
                .ok()
        });
        let threads = workers.as_ref().map_or(1, |w| w.current_num_threads() + 1);
        Self { workers, threads }
    }

    /// Number of threads, the caller's included.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `f` with the pool's workers in attendance.
    pub fn enter<R>(&self, f: impl FnOnce(&Par) -> R) -> R {
        self.enter_traced(None, f)
    }

    /// As [`Pool::enter`]; where there is a trace, the threads note in it what they do.
    pub fn enter_traced<R>(&self, trace: Option<&Arc<Trace>>, f: impl FnOnce(&Par) -> R) -> R {
        let Some(workers) = &self.workers else {
            return f(&Par::serial());
        };
        let region = Arc::new(Region::new(self.threads, trace.cloned()));
        for _ in 1..self.threads {
            let region = Arc::clone(&region);
            // The same number for the same thread in every region; no region has a thread twice.
            workers.spawn(move || {
                if let Some(index) = rayon::current_thread_index() {
                    region.attend(index + 1);
                }
            });
        }
        let par = Par { region: Some(region) };
        f(&par) // dropping `par` dismisses the workers, also when `f` panics
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} threads)", self.threads)
    }
}

/// The handle with which kernels run tasks in parallel.
///
/// There is no nesting: a `run` inside a task is executed by the calling thread alone.
pub struct Par {
    region: Option<Arc<Region>>,
}

impl Par {
    /// A handle that runs everything on the calling thread.
    pub fn serial() -> Self {
        Self { region: None }
    }

    /// Number of threads that may take part. Algorithms may size their chunks by it only where the
    /// result of each element does not depend on the chunk it is in.
    pub fn threads(&self) -> usize {
        self.region.as_ref().map_or(1, |r| r.threads())
    }

    /// Calls `f(0), f(1), ... f(tasks - 1)`, each once, in any order and on any thread; returns
    /// when all are done. Where the work of this thread is to end ([`stop`]), tasks that have not
    /// begun by then are left out.
    pub fn run(&self, tasks: usize, f: impl Fn(usize) + Sync) {
        self.run_as(tasks, |_, task| f(task));
    }

    /// As [`Par::run`], with the number of the calling worker (below [`Par::threads`]) first: no
    /// two tasks run at the same time under the same number, so it can index scratch memory.
    pub fn run_as(&self, tasks: usize, f: impl Fn(usize, usize) + Sync) {
        self.run_units(tasks, 1, &f);
    }

    /// Calls `f(worker, [image, layer, place])` for each task of a grid, as [`Par::run_as`] does.
    ///
    /// A place is a part of an image, in the order of memory: some of its rows, or pixels. A layer
    /// is what tasks at the same place differ in: channels, say. A thread begins with all layers of
    /// its own places, which are the same in every job that cuts images alike, layer by layer.
    /// Where there are fewer places than threads it begins with some of the layers instead.
    pub fn run_grid(&self, size: [usize; 3], f: impl Fn(usize, [usize; 3]) + Sync) {
        self.run_cells(size, &f);
    }

    fn run_cells(&self, size: [usize; 3], f: &(dyn Fn(usize, [usize; 3]) + Sync)) {
        let grid = Grid::new(size, self.threads());
        self.run_units(grid.units(), grid.layers(), &|worker, task| f(worker, grid.cell(task)));
    }

    /// Tasks of which each thread begins with those of its share of the units, `each` a unit.
    fn run_units(&self, units: usize, each: usize, f: &(dyn Fn(usize, usize) + Sync)) {
        let tasks = units.saturating_mul(each);
        match &self.region {
            Some(region) if tasks > 1 && tasks <= Share::MOST => region.run(units, each, f),
            _ => region::in_a_row(&Scope::current(), tasks, f),
        }
    }

    /// Cuts `0..items` into ranges of at least `grain` items (but the last), a few for each thread,
    /// and calls `f` for each.
    pub fn split(&self, items: usize, grain: usize, f: impl Fn(Range<usize>) + Sync) {
        self.split_as(items, grain, |_, range| f(range));
    }

    /// As [`Par::split`], with the number of the calling worker first (see [`Par::run_as`]).
    pub fn split_as(&self, items: usize, grain: usize, f: impl Fn(usize, Range<usize>) + Sync) {
        self.split_ranges(items, grain, &f);
    }

    /// No generic function: hundreds of kernels would each compile it.
    fn split_ranges(&self, items: usize, grain: usize, f: &OfRange<'_>) {
        let (least, grain) = (grain, grain.max(1).max(items.div_ceil(self.threads() * 4)));
        self.run_as(items.div_ceil(grain), |worker, i| {
            let range = i * grain..((i + 1) * grain).min(items);
            stop::parts(range, least.saturating_mul(LOOK)).for_each(|range| f(worker, range));
        });
    }

    /// As [`Par::split_as`] for the rows of `[images, planes of an image, rows of a plane]`, which
    /// lie in this order: a thread begins with the same rows of all planes, as with the places of
    /// [`Par::run_grid`].
    pub fn split_planes(
        &self,
        size: [usize; 3],
        grain: usize,
        f: impl Fn(usize, Range<usize>) + Sync,
    ) {
        self.split_rows(size, grain, &f);
    }

    fn split_rows(&self, [images, planes, rows]: [usize; 3], grain: usize, f: &OfRange<'_>) {
        let all = images.saturating_mul(planes).saturating_mul(rows);
        if planes <= 1 || self.threads() == 1 || all <= grain {
            return self.split_ranges(all, grain, f);
        }
        let parts =
            if images.is_multiple_of(self.threads()) { 1 } else { self.threads().min(rows) };
        let layers = (all / grain.max(1) / (images * parts)).clamp(1, planes.min(4));
        self.run_cells([images, layers, parts], &|worker, [image, layer, part]| {
            let part = part_of(part, parts, rows);
            for plane in part_of(layer, layers, planes) {
                let first = (image * planes + plane) * rows;
                let range = first + part.start..first + part.end;
                stop::parts(range, grain.saturating_mul(LOOK)).for_each(|range| f(worker, range));
            }
        });
    }

    /// Cuts `data` into chunks of `chunk` elements (the last may be shorter) and calls
    /// `f(number, chunk)` for each.
    pub fn chunks_mut<T: Send>(
        &self,
        data: &mut [T],
        chunk: usize,
        f: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let chunk = chunk.max(1);
        let tasks = data.len().div_ceil(chunk);
        let shared = SharedMut::new(data);
        self.run(tasks, |i| {
            let range = i * chunk..((i + 1) * chunk).min(shared.len());
            // SAFETY: ranges of different tasks are disjoint and end inside the slice; each task
            // runs once.
            f(i, unsafe { shared.slice(range) });
        });
    }
}

impl Drop for Par {
    fn drop(&mut self) {
        if let Some(region) = &self.region {
            region.dismiss();
        }
    }
}

/// A mutable slice whose disjoint parts are written by several threads.
pub struct SharedMut<'a, T> {
    ptr: *mut T,
    len: usize,
    slice: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: the parts handed out are disjoint (precondition of `slice`), and T may be sent.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    /// Borrows the slice for as long as the parts are in use.
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { ptr: slice.as_mut_ptr(), len: slice.len(), slice: std::marker::PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first element, for kernels that address tiles by pointer.
    #[inline(always)]
    pub fn as_mut_ptr(&self) -> *mut T {
        self.ptr
    }

    /// One part. Panics where the range does not lie inside the slice.
    ///
    /// # Safety
    /// No two parts that overlap may be alive at the same time.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // that is the point; the precondition makes it sound
    pub unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part outside the slice");
        // SAFETY: inside the slice (asserted); not aliased (precondition).
        unsafe {
            std::slice::from_raw_parts_mut(self.ptr.add(range.start), range.end - range.start)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plutino_tensor::alloc::{self, Ledger};
    use plutino_tensor::stop::Stop;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

    /// A signal that is given once this is set.
    fn signal() -> (Arc<AtomicBool>, Arc<Stop>) {
        let asked = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&asked);
        (asked, Stop::new(move || seen.load(SeqCst), None))
    }

    #[test]
    fn tasks_are_left_out_once_the_signal_is_given() {
        for threads in [1, 2, 3] {
            let pool = Pool::new(threads);
            let (asked, stop) = signal();
            let scope = Scope::current().ended_by(&stop).enter();
            let count = AtomicUsize::new(0);
            pool.enter(|par| {
                let one = |_: usize| {
                    // The others wait until everybody can see it.
                    match count.fetch_add(1, SeqCst) {
                        9 => asked.store(true, SeqCst),
                        10.. => while !asked.load(SeqCst) {},
                        _ => {}
                    }
                };
                par.run(1000, one);
                let begun = count.load(SeqCst);
                assert!((10..10 + threads).contains(&begun), "{begun} on {threads} threads");
                assert!(stop.seen().is_some(), "what was left out is known");
                par.run(1, one);
                par.run_grid([2, 3, 4], |_, _| one(0));
                par.split(1000, 1, |range| range.for_each(one));
                par.split_planes([2, 3, 100], 1, |_, range| range.for_each(one));
                assert_eq!(count.load(SeqCst), begun);
            });
            drop(scope);
            // The pool and its threads work on for others.
            pool.enter(|par| par.run(10, |_| _ = count.fetch_add(100, SeqCst)));
            assert!(count.load(SeqCst) >= 1000);
        }
    }

    #[test]
    fn a_long_task_of_a_split_looks_at_the_signal() {
        for threads in [1, 2] {
            let (asked, stop) = signal();
            let _scope = Scope::current().ended_by(&stop).enter();
            let most = AtomicUsize::new(0);
            Pool::new(threads).enter(|par| {
                par.split(1 << 20, 16, |range| {
                    most.fetch_max(range.len(), SeqCst);
                    asked.store(true, SeqCst);
                });
            });
            assert!(most.into_inner() <= 16 * LOOK);
        }
        // Without a signal a task is one call.
        let calls = AtomicUsize::new(0);
        Par::serial().split(1 << 20, 16, |_| _ = calls.fetch_add(1, SeqCst));
        assert_eq!(calls.into_inner(), 4);
    }

    #[test]
    fn what_workers_take_is_charged() {
        for threads in [1, 2, 3] {
            let ledger = Ledger::new(Some(1000));
            let refused = AtomicUsize::new(0);
            let take = |bytes: usize| {
                let taken = alloc::list::<u8>(bytes);
                refused.fetch_add(usize::from(taken.is_err()), SeqCst);
            };
            Pool::new(threads).enter(|par| {
                // Another scope for each job, whoever takes part.
                alloc::charged(&ledger, || par.run(64, |_| take(10)));
                assert_eq!((ledger.spent(), refused.load(SeqCst)), (640, 0));
                par.run(64, |_| take(1000));
                assert_eq!((ledger.spent(), refused.load(SeqCst)), (640, 0));
                alloc::charged(&ledger, || {
                    alloc::temporary(|| par.run(8, |_| take(40)));
                    assert_eq!((ledger.spent(), refused.load(SeqCst)), (640, 0));
                    par.run(64, |_| take(10));
                });
                assert_eq!((ledger.spent(), refused.load(SeqCst)), (1000, 28));
            });
        }
    }

    #[test]
    fn every_task_runs_once() {
        for threads in [1, 2, 3, 8] {
            Pool::new(threads).enter(|par| {
                for tasks in [0, 1, 2, 7, 100] {
                    let counts: Vec<AtomicUsize> =
                        (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                    par.run_as(tasks, |worker, i| {
                        assert!(worker < par.threads());
                        counts[i].fetch_add(1, SeqCst);
                    });
                    assert!(counts.iter().all(|c| c.load(SeqCst) == 1));
                }
            });
        }
    }

    #[test]
    fn chunks_cover_the_slice() {
        Pool::new(3).enter(|par| {
            let mut v = vec![0usize; 1001];
            par.chunks_mut(&mut v, 10, |i, c| c.fill(i + 1));
            assert!(v.iter().enumerate().all(|(k, &x)| x == k / 10 + 1));
        });
    }

    #[test]
    fn planes_are_split_into_all_their_rows() {
        for threads in [1, 2, 3] {
            Pool::new(threads).enter(|par| {
                for [images, planes, rows] in
                    [[1, 1, 9], [1, 5, 7], [2, 3, 4], [3, 4, 1], [2, 6, 0]]
                {
                    for grain in [0, 1, 5, 1000] {
                        let counts: Vec<AtomicUsize> =
                            (0..images * planes * rows).map(|_| AtomicUsize::new(0)).collect();
                        par.split_planes([images, planes, rows], grain, |worker, range| {
                            assert!(worker < par.threads());
                            counts[range].iter().for_each(|c| _ = c.fetch_add(1, SeqCst));
                        });
                        assert!(counts.iter().all(|c| c.load(SeqCst) == 1));
                    }
                }
            });
        }
    }

    #[test]
    fn nested_and_concurrent_runs_finish() {
        let pool = Pool::new(2);
        let total = AtomicUsize::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    pool.enter(|par| {
                        for _ in 0..200 {
                            par.run(3, |_| {
                                par.run(2, |_| {
                                    total.fetch_add(1, SeqCst);
                                })
                            });
                        }
                    });
                });
            }
        });
        assert_eq!(total.load(SeqCst), 4 * 200 * 6);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.enter(|par| {
                par.run(16, |i| {
                    if i == 7 {
                        panic!("seven")
                    }
                })
            });
        }));
        // Whichever thread it was on.
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"seven"));
        let n = AtomicUsize::new(0);
        pool.enter(|par| {
            par.run(16, |_| {
                n.fetch_add(1, SeqCst);
            })
        });
        assert_eq!(n.load(SeqCst), 16);
    }
}

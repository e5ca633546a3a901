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

use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

mod grid;
mod share;
mod trace;

use grid::Grid;
pub use grid::part_of;
use share::Share;
pub use trace::{JobPart, Trace};

/// Spins (with a pause each) before a waiting worker starts to yield its core.
const SPINS: u32 = 4096;

/// Bytes of a worker's stack: what the standard library gives a thread by default, so that whatever
/// runs on a worker runs on a thread of a caller as well. No frame of an unoptimised build takes
/// more than an eighth of it (`cargo xtask downstream`).
const STACK: usize = 2 << 20;

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
        self.region.as_ref().map_or(1, |r| r.shares.len())
    }

    /// Calls `f(0), f(1), ... f(tasks - 1)`, each once, in any order and on any thread; returns
    /// when all are done.
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
        let grid = Grid::new(size, self.threads());
        self.run_units(grid.units(), grid.layers(), &|worker, task| f(worker, grid.cell(task)));
    }

    /// Tasks of which each thread begins with those of its share of the units, `each` a unit.
    fn run_units(&self, units: usize, each: usize, f: &(dyn Fn(usize, usize) + Sync)) {
        let tasks = units.saturating_mul(each);
        match &self.region {
            Some(region) if tasks > 1 && tasks <= Share::MOST => region.run(units, each, f),
            _ => (0..tasks).for_each(|task| f(0, task)),
        }
    }

    /// Cuts `0..items` into ranges of at least `grain` items (but the last), a few for each thread,
    /// and calls `f` for each.
    pub fn split(&self, items: usize, grain: usize, f: impl Fn(Range<usize>) + Sync) {
        self.split_as(items, grain, |_, range| f(range));
    }

    /// As [`Par::split`], with the number of the calling worker first (see [`Par::run_as`]).
    pub fn split_as(&self, items: usize, grain: usize, f: impl Fn(usize, Range<usize>) + Sync) {
        let grain = grain.max(1).max(items.div_ceil(self.threads() * 4));
        self.run_as(items.div_ceil(grain), |worker, i| {
            f(worker, i * grain..((i + 1) * grain).min(items));
        });
    }

    /// As [`Par::split_as`] for the rows of `[images, planes of an image, rows of a plane]`, which
    /// lie in this order: a thread begins with the same rows of all planes, as with the places of
    /// [`Par::run_grid`].
    pub fn split_planes(
        &self,
        [images, planes, rows]: [usize; 3],
        grain: usize,
        f: impl Fn(usize, Range<usize>) + Sync,
    ) {
        let all = images.saturating_mul(planes).saturating_mul(rows);
        if planes <= 1 || self.threads() == 1 || all <= grain {
            return self.split_as(all, grain, f);
        }
        let parts =
            if images.is_multiple_of(self.threads()) { 1 } else { self.threads().min(rows) };
        let layers = (all / grain.max(1) / (images * parts)).clamp(1, planes.min(4));
        self.run_grid([images, layers, parts], |worker, [image, layer, part]| {
            let part = part_of(part, parts, rows);
            for plane in part_of(layer, layers, planes) {
                let first = (image * planes + plane) * rows;
                f(worker, first + part.start..first + part.end);
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
            region.dismissed.store(true, SeqCst);
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

/// A job as the workers see it: `f(worker, task)`.
type Job = *const (dyn Fn(usize, usize) + Sync);

/// A task of a job: `f(worker, task)`.
type Task<'f> = dyn Fn(usize, usize) + Sync + 'f;

/// What the caller and its workers share while a [`Par`] lives.
struct Region {
    /// Odd while a job is open to be joined; changes with every job.
    epoch: AtomicU64,
    /// Workers that have joined, or are about to find out that they are too late.
    active: AtomicUsize,
    /// The open job. Written by the caller only while nobody has joined and `epoch` is even.
    job: UnsafeCell<Option<Job>>,
    /// Tasks of the open job that wait, for each thread.
    shares: Box<[Share]>,
    busy: AtomicBool,
    panicked: AtomicBool,
    dismissed: AtomicBool,
    /// Where threads note what they do, where somebody wants to know.
    trace: Option<Arc<Trace>>,
}

// SAFETY: `job` is written only by the caller that holds `busy`, while `epoch` is even and `active`
// is zero; workers read it only after joining (active raised, then epoch seen odd). See
// `Region::run`.
unsafe impl Sync for Region {}
// SAFETY: the job pointer is only followed while the caller's closure is borrowed by `Region::run`.
unsafe impl Send for Region {}

impl Region {
    fn new(threads: usize, trace: Option<Arc<Trace>>) -> Self {
        Self {
            epoch: AtomicU64::new(0),
            active: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            shares: (0..threads).map(|_| Share::default()).collect(),
            busy: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            dismissed: AtomicBool::new(false),
            trace,
        }
    }

    /// The caller's side: publish `units * each` tasks, take part, close, wait for those who
    /// joined.
    fn run(&self, units: usize, each: usize, f: &(dyn Fn(usize, usize) + Sync)) {
        if self.busy.swap(true, SeqCst) {
            (0..units * each).for_each(|task| f(0, task)); // nested, or a second caller
            return;
        }
        let threads = self.shares.len();
        for (worker, share) in self.shares.iter().enumerate() {
            let own = part_of(worker, threads, units);
            share.fill(own.start * each..own.end * each);
        }
        // SAFETY: only the lifetime changes. The pointer is followed by joined workers alone, and
        // `close` waits for them before `f` goes out of scope, also when a task panics.
        let job: Job = unsafe {
            std::mem::transmute::<
                *const (dyn Fn(usize, usize) + Sync + '_),
                *const (dyn Fn(usize, usize) + Sync + 'static),
            >(std::ptr::from_ref(f))
        };
        // SAFETY: `busy` makes us the only writer; the epoch is even, so no worker reads.
        unsafe { *self.job.get() = Some(job) };
        let epoch = self.epoch.fetch_add(1, SeqCst) + 1;
        let mine = catch_unwind(AssertUnwindSafe(|| self.take_part(0, epoch, f)));
        self.epoch.fetch_add(1, SeqCst); // nobody joins from here on
        let mut spins = 0;
        while self.active.load(SeqCst) != 0 {
            pause(&mut spins);
        }
        let theirs = self.panicked.swap(false, SeqCst);
        self.busy.store(false, SeqCst);
        if let Err(payload) = mine {
            resume_unwind(payload);
        }
        if theirs {
            resume_unwind(Box::new("a parallel task panicked"));
        }
    }

    /// The worker's side: join every job that is open until dismissed. No two threads have the same
    /// number.
    fn attend(&self, worker: usize) {
        let mut spins = 0;
        let mut done = 0;
        while !self.dismissed.load(SeqCst) {
            let epoch = self.epoch.load(SeqCst);
            if epoch.is_multiple_of(2) || epoch == done {
                pause(&mut spins);
                continue;
            }
            self.active.fetch_add(1, SeqCst);
            // Raised before this look at the epoch: a caller that closes the job either is seen
            // here, or sees us and waits.
            let joined = self.epoch.load(SeqCst);
            if !joined.is_multiple_of(2) {
                // SAFETY: the epoch is odd and we are counted as active: the job stays in place.
                if let Some(job) = unsafe { *self.job.get() } {
                    // SAFETY: the closure outlives the job, see `run`.
                    let f = unsafe { &*job };
                    if catch_unwind(AssertUnwindSafe(|| self.take_part(worker, joined, f))).is_err()
                    {
                        self.panicked.store(true, SeqCst);
                    }
                }
                done = joined;
                spins = 0;
            }
            self.active.fetch_sub(1, SeqCst);
        }
    }

    /// [`Region::work`] on the job of this epoch, noted where there is a trace.
    fn take_part(&self, worker: usize, epoch: u64, f: &Task<'_>) {
        trace::noted(self.trace.as_deref(), (worker, epoch), f, |f| self.work(worker, f));
    }

    /// Takes tasks until none is left: its own from the first on, then those of the others from the
    /// last.
    fn work(&self, worker: usize, f: &(dyn Fn(usize, usize) + Sync)) {
        let (before, rest) = self.shares.split_at(worker);
        let Some((own, after)) = rest.split_first() else { return };
        while let Some(task) = own.first() {
            f(worker, task);
        }
        for other in after.iter().chain(before) {
            while let Some(task) = other.last() {
                f(worker, task);
            }
        }
    }
}

fn pause(spins: &mut u32) {
    if *spins < SPINS {
        *spins += 1;
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            pool.enter(|par| par.run(16, |i| assert!(i != 7, "seven")));
        }));
        assert!(caught.is_err());
        let n = AtomicUsize::new(0);
        pool.enter(|par| {
            par.run(16, |_| {
                n.fetch_add(1, SeqCst);
            })
        });
        assert_eq!(n.load(SeqCst), 16);
    }
}

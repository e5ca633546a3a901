//! What a caller and its workers share while a [`Par`](super::Par) lives.
//!
//! A job goes through four states, which `tests/loom` tries in all interleavings: *published* (the
//! epoch becomes odd), *joined* by workers that are counted as active, *closed* (the epoch becomes
//! even: nobody joins any more), *done* (nobody is active). The job and the scope are written by
//! the caller in the state done alone, and read in the state joined alone.

use super::grid::part_of;
use super::share::Share;
use super::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Entered, Ordering::SeqCst, Scope, Stop, Task, Trace,
    UnsafeCell, noted, settle, spin_loop, yield_now,
};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// Spins (with a pause each) before a waiting worker starts to yield its core.
const SPINS: u32 = 4096;

/// What a panic hands to whoever catches it.
type Payload = Box<dyn Any + Send>;

/// A job as the workers see it: `f(worker, task)`.
type Job = *const (dyn Fn(usize, usize) + Sync);

/// What the caller and its workers share while a [`Par`] lives.
pub(super) struct Region {
    /// Odd while a job is open to be joined; changes with every job.
    epoch: AtomicU64,
    /// Workers that have joined, or are about to find out that they are too late.
    active: AtomicUsize,
    /// The open job. Written by the caller only while nobody has joined and `epoch` is even.
    job: UnsafeCell<Option<Job>>,
    /// What the open job is charged to, and what ends it. Written as `job` is.
    scope: UnsafeCell<Scope>,
    /// Tasks of the open job that wait, for each thread.
    shares: Box<[Share]>,
    busy: AtomicBool,
    /// Whether a worker's task of the open job panicked.
    panicked: AtomicBool,
    /// With what the first of them did; written before `panicked`.
    payload: Mutex<Option<Payload>>,
    dismissed: AtomicBool,
    /// Where threads note what they do, where somebody wants to know.
    trace: Option<Arc<Trace>>,
}

// SAFETY: `job` and `scope` are written only by the caller that holds `busy`, while `epoch` is even
// and `active` is zero; workers read them only after joining (active raised, then epoch seen odd).
// See `Region::run`.
unsafe impl Sync for Region {}
// SAFETY: the job pointer is only followed while the caller's closure is borrowed by `Region::run`.
unsafe impl Send for Region {}

impl Region {
    pub(super) fn new(threads: usize, trace: Option<Arc<Trace>>) -> Self {
        Self {
            epoch: AtomicU64::new(0),
            active: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            scope: UnsafeCell::new(Scope::default()),
            shares: (0..threads).map(|_| Share::default()).collect(),
            busy: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            payload: Mutex::new(None),
            dismissed: AtomicBool::new(false),
            trace,
        }
    }

    /// Threads that may take part, the caller's included.
    pub(super) fn threads(&self) -> usize {
        self.shares.len()
    }

    /// Sends the workers home.
    pub(super) fn dismiss(&self) {
        self.dismissed.store(true, SeqCst);
    }

    /// The caller's side: publish `units * each` tasks, take part, close, wait for those who
    /// joined.
    pub(super) fn run(&self, units: usize, each: usize, f: &Task<'_>) {
        if self.busy.swap(true, SeqCst) {
            // Nested, or a second caller.
            return in_a_row(&Scope::current(), units * each, f);
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
        self.job.with_mut(|slot| unsafe { *slot = Some(job) });
        // SAFETY: as above. Most jobs have the scope of the one before: nobody counts references.
        self.scope.with_mut(|scope| unsafe {
            if !(*scope).is_current() {
                *scope = Scope::current();
            }
        });
        let number = self.epoch.fetch_add(1, SeqCst) + 1;
        // SAFETY: only we write to it, after the job.
        let stop = self.scope.with(|scope| unsafe { (*scope).stop() });
        let mine = catch_unwind(AssertUnwindSafe(|| self.work((0, number), stop, f)));
        self.close();
        let theirs = self.panicked.swap(false, SeqCst);
        self.busy.store(false, SeqCst);
        if let Err(payload) = mine {
            resume_unwind(payload);
        }
        if theirs {
            let payload = self.payload.lock().unwrap_or_else(PoisonError::into_inner).take();
            resume_unwind(payload.unwrap_or_else(|| Box::new("a parallel task panicked")));
        }
    }

    /// Nobody joins from here on; who has joined is waited for.
    fn close(&self) {
        self.epoch.fetch_add(1, SeqCst);
        settle();
        let mut spins = 0;
        while self.active.load(SeqCst) != 0 {
            pause(&mut spins);
        }
    }

    /// The worker's side: join every job that is open until dismissed. No two threads have the same
    /// number.
    pub(super) fn attend(&self, worker: usize) {
        let mut spins = 0;
        let mut done = 0;
        let mut presence = Presence::default();
        while !self.dismissed.load(SeqCst) {
            let epoch = self.epoch.load(SeqCst);
            if epoch.is_multiple_of(2) || epoch == done {
                pause(&mut spins);
                continue;
            }
            self.active.fetch_add(1, SeqCst);
            settle();
            // Raised before this look at the epoch: a caller that closes the job either is seen
            // here, or sees us and waits.
            let joined = self.epoch.load(SeqCst);
            if !joined.is_multiple_of(2) {
                self.take_part((worker, joined), &mut presence);
                done = joined;
                spins = 0;
            }
            self.active.fetch_sub(1, SeqCst);
        }
    }

    /// As a worker that has joined the job of this number.
    fn take_part(&self, (worker, number): (usize, u64), presence: &mut Presence) {
        // SAFETY: the epoch is odd and we are counted as active: job and scope stay in place.
        let Some(job) = self.job.with(|job| unsafe { *job }) else { return };
        // SAFETY: as above.
        self.scope.with(|scope| presence.follow(unsafe { &*scope }));
        // SAFETY: the closure outlives the job, see `run`.
        let f = unsafe { &*job };
        let stop = presence.scope.stop();
        let work = AssertUnwindSafe(|| self.work((worker, number), stop, f));
        if let Err(payload) = catch_unwind(work) {
            let mut first = self.payload.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(payload);
            drop(first);
            self.panicked.store(true, SeqCst);
        }
    }

    /// Takes tasks, and notes that where there is a trace.
    fn work(&self, (worker, job): (usize, u64), stop: Option<&Stop>, f: &Task<'_>) {
        noted(self.trace.as_deref(), (worker, job), f, |f| self.take_tasks(worker, stop, f));
    }

    /// Takes tasks until none is left, or the signal is given: its own from the first on, then
    /// those of the others from the last.
    fn take_tasks(&self, worker: usize, stop: Option<&Stop>, f: &Task<'_>) {
        let (before, rest) = self.shares.split_at(worker);
        let Some((own, after)) = rest.split_first() else { return };
        while goes_on(stop)
            && let Some(task) = own.first()
        {
            f(worker, task);
        }
        for other in after.iter().chain(before) {
            while goes_on(stop)
                && let Some(task) = other.last()
            {
                f(worker, task);
            }
        }
    }
}

/// The scope that a worker works in: that of the last job that it took part in.
#[derive(Default)]
struct Presence {
    scope: Scope,
    /// Left before another one is entered.
    entered: Option<Entered>,
}

impl Presence {
    fn follow(&mut self, scope: &Scope) {
        if !self.scope.is(scope) {
            self.entered = None;
            self.scope = scope.clone();
            self.entered = Some(self.scope.clone().enter());
        }
    }
}

/// All tasks on this thread, until the signal is given.
pub(super) fn in_a_row(scope: &Scope, tasks: usize, f: &Task<'_>) {
    for task in 0..tasks {
        if !goes_on(scope.stop()) {
            return;
        }
        f(0, task);
    }
}

#[inline(always)]
fn goes_on(stop: Option<&Stop>) -> bool {
    stop.is_none_or(|stop| !stop.is_given())
}

fn pause(spins: &mut u32) {
    if *spins < SPINS {
        *spins += 1;
        spin_loop();
    } else {
        yield_now();
    }
}

//! loom's atomics, cells and locks under the names of `par/sync.rs` and of the runtime's `sync.rs`,
//! with a scope, a signal and limits that are as small as they can be.

use crate::Why;
use crate::latch::Latch;
use loom::sync::Arc as Shared;
use std::cell::RefCell;
use std::time::Instant;

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::hint::spin_loop;
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
pub(crate) use loom::thread::yield_now;

pub(crate) type Task<'f> = dyn Fn(usize, usize) + Sync + 'f;

/// No model is traced: notes are behind a lock of their own.
#[derive(Debug)]
pub(crate) struct Trace;

pub(crate) fn noted(
    _: Option<&Trace>,
    _: (usize, u64),
    task: &Task<'_>,
    work: impl FnOnce(&Task<'_>),
) {
    work(task);
}

/// loom takes accesses that are sequentially consistent for acquire and release; its fences it
/// takes as they are.
pub(crate) fn settle() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// As `plutino_tensor::stop::Stop`: what is asked is a flag.
#[derive(Debug)]
pub(crate) struct Stop {
    seen: Latch,
    asked: AtomicBool,
}

impl Stop {
    pub(crate) fn new() -> Shared<Self> {
        Shared::new(Self { seen: Latch::new(), asked: AtomicBool::new(false) })
    }

    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_given(&self) -> bool {
        if self.seen.get().is_some() {
            return true;
        }
        let asked = self.asked.load(Ordering::Relaxed);
        if asked {
            self.seen.set(Why::Cancelled);
        }
        asked
    }

    pub(crate) fn seen(&self) -> Option<Why> {
        self.seen.get()
    }
}

/// As `plutino_tensor::Scope`, without a ledger: that is handed on in the same way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope(Option<Shared<Stop>>);

loom::thread_local! {
    static CURRENT: RefCell<Scope> = RefCell::new(Scope(None));
}

impl Scope {
    pub(crate) fn ended_by(stop: &Shared<Stop>) -> Self {
        Self(Some(Shared::clone(stop)))
    }

    pub(crate) fn current() -> Self {
        CURRENT.with(|current| current.borrow().clone())
    }

    pub(crate) fn is_current(&self) -> bool {
        CURRENT.with(|current| self.is(&current.borrow()))
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) => Shared::ptr_eq(a, b),
            _ => false,
        }
    }

    pub(crate) fn stop(&self) -> Option<&Stop> {
        self.0.as_deref()
    }

    pub(crate) fn enter(self) -> Entered {
        Entered(CURRENT.with(|current| current.replace(self)))
    }
}

/// A scope that was entered.
pub(crate) struct Entered(Scope);

impl Drop for Entered {
    fn drop(&mut self) {
        let outer = std::mem::take(&mut self.0);
        CURRENT.with(|current| drop(current.replace(outer)));
    }
}

pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
/// Only owns: what is tried is what is owned.
pub(crate) use std::sync::{Arc, PoisonError};

/// Time stands still: a deadline never passes, and a window may end at any moment.
pub(crate) fn sleep<'a, T>(
    changed: &Condvar,
    state: MutexGuard<'a, T>,
    _: Option<Instant>,
) -> MutexGuard<'a, T> {
    changed.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// As `plutino_ir::Limits`.
#[derive(Clone, Default)]
pub(crate) struct Limits {
    pub(crate) cancel: Option<CancelToken>,
    pub(crate) deadline: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupted {
    Cancelled,
}

impl Limits {
    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        match &self.cancel {
            Some(token) if token.is_cancelled() => Err(Interrupted::Cancelled),
            _ => Ok(()),
        }
    }
}

type Callback = Box<dyn FnOnce() + Send>;

/// As `plutino_ir::CancelToken`, with one callback, which nobody withdraws while it is called.
#[derive(Clone)]
pub(crate) struct CancelToken(Arc<(AtomicBool, Mutex<Option<Callback>>)>);

impl Default for CancelToken {
    fn default() -> Self {
        Self(Arc::new((AtomicBool::new(false), Mutex::new(None))))
    }
}

impl CancelToken {
    pub(crate) fn cancel(&self) {
        if !self.0.0.swap(true, Ordering::SeqCst) {
            let callback = self.0.1.lock().unwrap().take();
            callback.into_iter().for_each(|callback| callback());
        }
    }

    fn is_cancelled(&self) -> bool {
        self.0.0.load(Ordering::Relaxed)
    }

    pub(crate) fn on_cancel(&self, callback: impl FnOnce() + Send + 'static) -> Registration {
        let mut waiting = self.0.1.lock().unwrap();
        if self.0.0.load(Ordering::SeqCst) {
            drop(waiting);
            callback();
        } else {
            *waiting = Some(Box::new(callback));
        }
        Registration(self.clone())
    }
}

/// Withdraws the callback.
pub(crate) struct Registration(CancelToken);

impl Drop for Registration {
    fn drop(&mut self) {
        let callback = self.0.0.1.lock().unwrap().take();
        drop(callback);
    }
}

//! loom's atomics and cells under the names of `par/sync.rs`, with a scope and a signal that are as
//! small as they can be.

use crate::Why;
use crate::latch::Latch;
use loom::sync::Arc;
use std::cell::RefCell;

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
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { seen: Latch::new(), asked: AtomicBool::new(false) })
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
pub(crate) struct Scope(Option<Arc<Stop>>);

loom::thread_local! {
    static CURRENT: RefCell<Scope> = RefCell::new(Scope(None));
}

impl Scope {
    pub(crate) fn ended_by(stop: &Arc<Stop>) -> Self {
        Self(Some(Arc::clone(stop)))
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
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
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

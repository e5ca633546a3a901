//! What ends work early: somebody who asks, or a time.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use thiserror::Error;

/// Ends loading, planning and runs from outside. Clones share the state, and are equal.
///
/// ```
/// use plutino_ir::CancelToken;
/// # use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
/// let token = CancelToken::new();
/// let told = Arc::new(AtomicBool::new(false));
/// let tell = Arc::clone(&told);
/// let registration = token.on_cancel(move || tell.store(true, Ordering::Relaxed));
/// drop(token.on_cancel(|| unreachable!("withdrawn before it could be called")));
/// token.cancel();
/// assert!(token.is_cancelled() && told.load(Ordering::Relaxed));
/// # drop(registration);
/// ```
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<Shared>);

#[derive(Default)]
struct Shared {
    cancelled: AtomicBool,
    waiting: Mutex<Waiting>,
}

/// Callbacks, in the order in which they were registered.
#[derive(Default)]
struct Waiting {
    next: u64,
    callbacks: Vec<(u64, Callback)>,
}

type Callback = Box<dyn FnOnce() + Send>;

impl Shared {
    /// Nothing in here panics while the lock is held.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (cancelled, waiting) = (&self.cancelled, self.waiting().callbacks.len());
        write!(f, "(cancelled: {cancelled:?}, {waiting} callbacks)")
    }
}

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks everything with this token to end, and calls what was registered, in its order, on this
    /// thread. The first call does; others return at once.
    ///
    /// # Panics
    /// Where a callback does, after all of them were called.
    pub fn cancel(&self) {
        if self.0.cancelled.swap(true, Ordering::SeqCst) {
            return;
        }
        // Whoever registers from here on sees that it is too late: `on_cancel` looks in the lock.
        let callbacks = std::mem::take(&mut self.0.waiting().callbacks);
        let mut panicked = None;
        for (_, callback) in callbacks {
            panicked = catch_unwind(AssertUnwindSafe(callback)).err().or(panicked);
        }
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
    }

    /// Whether somebody asked.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Relaxed)
    }

    /// Has `callback` called when the token is cancelled: once, by the thread that cancels, while
    /// no lock is held. So it may use the token, and register or withdraw callbacks; it should be
    /// short. Where the token is cancelled already, it is called at once, by this thread.
    ///
    /// The callback is withdrawn when the registration is dropped. (One that is being called at
    /// that moment is not waited for.)
    pub fn on_cancel(&self, callback: impl FnOnce() + Send + 'static) -> Registration {
        let mut waiting = self.0.waiting();
        let number = waiting.next;
        waiting.next += 1;
        if self.0.cancelled.load(Ordering::SeqCst) {
            drop(waiting);
            callback();
        } else {
            waiting.callbacks.push((number, Box::new(callback)));
        }
        Registration { token: Arc::downgrade(&self.0), number }
    }
}

impl PartialEq for CancelToken {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CancelToken {}

/// A callback that a [`CancelToken`] calls, until this is dropped.
#[derive(Debug)]
#[must_use = "the callback is withdrawn when this is dropped"]
pub struct Registration {
    /// A token that nobody has any more calls nothing: its callbacks go with it.
    token: Weak<Shared>,
    number: u64,
}

impl Registration {
    /// Leaves the callback registered as long as the token lives.
    pub fn keep(mut self) {
        self.token = Weak::new();
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Some(token) = self.token.upgrade() else { return };
        let mut waiting = token.waiting();
        let at = waiting.callbacks.iter().position(|(number, _)| *number == self.number);
        let callback = at.map(|at| waiting.callbacks.remove(at));
        drop(waiting);
        drop(callback); // in no lock: it may own anything
    }
}

/// What ends work early; `Limits::default()` lets it go on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Ends it when the token is cancelled.
    pub cancel: Option<CancelToken>,
    /// Ends it at this time.
    pub deadline: Option<Instant>,
}

/// Why work ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Interrupted {
    /// Somebody asked.
    #[error("cancelled")]
    Cancelled,
    /// The time is over.
    #[error("the deadline passed")]
    Deadline,
}

impl Limits {
    /// Whether work may go on. Takes some 30 ns where there is a deadline.
    ///
    /// # Errors
    /// Where it should end.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Err(Interrupted::Cancelled);
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Interrupted::Deadline);
        }
        Ok(())
    }

    /// [`Limits::check`] at one step of many: every 256th, the first included.
    ///
    /// # Errors
    /// Where work should end.
    pub fn check_at(&self, step: usize) -> Result<(), Interrupted> {
        if step.is_multiple_of(256) { self.check() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_end_work() {
        let mut limits = Limits::default();
        assert_eq!(limits.check(), Ok(()));
        limits.deadline = Some(Instant::now());
        assert_eq!(limits.check_at(0), Err(Interrupted::Deadline));
        assert_eq!(limits.check_at(1), Ok(()));
        let token = CancelToken::new();
        limits.cancel = Some(token.clone());
        token.cancel();
        assert_eq!(limits.check(), Err(Interrupted::Cancelled));
        assert!(limits.cancel == Some(token) && limits.cancel != Some(CancelToken::new()));
    }

    /// Notes that it was called, and by which thread.
    fn note(log: &Arc<Mutex<Vec<u32>>>, what: u32) -> impl FnOnce() + Send + 'static {
        let (log, thread) = (Arc::clone(log), std::thread::current().id());
        move || {
            assert_eq!(std::thread::current().id(), thread);
            log.lock().unwrap().push(what);
        }
    }

    #[test]
    fn callbacks_are_called_once_in_their_order_unless_withdrawn() {
        let (token, log) = (CancelToken::new(), Arc::default());
        let first = token.on_cancel(note(&log, 1));
        let second = token.on_cancel(note(&log, 2));
        token.on_cancel(note(&log, 3)).keep();
        drop(second);
        assert!(format!("{token:?}").contains("2 callbacks"));
        token.cancel();
        token.cancel();
        assert_eq!(*log.lock().unwrap(), [1, 3]);
        drop(first);
        // Too late to wait for it.
        let late = token.on_cancel(note(&log, 4));
        drop(late);
        assert_eq!(*log.lock().unwrap(), [1, 3, 4]);
    }

    #[test]
    fn callbacks_are_called_in_no_lock() {
        let (token, log) = (CancelToken::new(), Arc::default());
        let other = token.on_cancel(note(&log, 1));
        let (inner, last) = (token.clone(), note(&log, 2));
        let own = token.on_cancel(move || {
            assert!(inner.is_cancelled());
            inner.cancel();
            drop(other);
            inner.on_cancel(last).keep();
        });
        token.cancel();
        assert_eq!(*log.lock().unwrap(), [1, 2]);
        drop(own);
    }

    #[test]
    fn a_callback_that_panics_keeps_none_from_being_called() {
        let (token, log) = (CancelToken::new(), Arc::default());
        token.on_cancel(|| resume_unwind(Box::new("one"))).keep();
        token.on_cancel(note(&log, 1)).keep();
        assert!(catch_unwind(AssertUnwindSafe(|| token.cancel())).is_err());
        assert_eq!(*log.lock().unwrap(), [1]);
        assert!(token.is_cancelled());
    }

    #[test]
    fn of_a_race_each_callback_is_called_once_or_withdrawn() {
        for _ in 0..200 {
            let (token, calls) = (CancelToken::new(), Arc::new(Mutex::new(0)));
            std::thread::scope(|scope| {
                scope.spawn(|| token.cancel());
                scope.spawn(|| {
                    let counted = Arc::clone(&calls);
                    let kept = token.on_cancel(move || *counted.lock().unwrap() += 1);
                    kept.keep();
                    drop(token.on_cancel(|| ()));
                });
            });
            assert_eq!(*calls.lock().unwrap(), 1);
        }
    }
}

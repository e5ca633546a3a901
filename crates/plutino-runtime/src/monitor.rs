//! State that threads wait for changes of: the one place where threads of this crate sleep until
//! others wake them.
//!
//! Whoever waits says what for, as a function of the state, and what ends the wait. A change is
//! seen or told: the function is asked in the lock in which changes are made, and a waiter that was
//! told nothing yet has given up the lock only by going to sleep. The same holds for a cancelled
//! token, whose callback goes through the lock. Everybody is told of every change: those who wait
//! for one state are few.

use super::sync::{self, Arc, Condvar, Interrupted, Limits, Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Debug)]
pub(crate) struct Monitor<T> {
    state: Mutex<T>,
    changed: Condvar,
}

impl<T: Send + 'static> Monitor<T> {
    pub(crate) fn new(state: T) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Looks at the state, or changes what nobody waits for.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.lock())
    }

    /// Changes the state, and tells everybody who waits.
    pub(crate) fn change<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let result = f(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `f` makes something of the state. Where it does it may have changed the state,
    /// and everybody is told; where it does not, it must have left it as it was.
    ///
    /// # Errors
    /// Where the limits end the wait. What is there already is had, whatever they say.
    pub(crate) fn wait<R>(
        self: &Arc<Self>,
        limits: &Limits,
        mut f: impl FnMut(&mut T) -> Option<R>,
    ) -> Result<R, Interrupted> {
        // Dropped after the lock is given up.
        let mut told = None;
        let mut state = self.lock();
        loop {
            if let Some(result) = f(&mut state) {
                drop(state);
                self.changed.notify_all();
                return Ok(result);
            }
            limits.check()?;
            match &limits.cancel {
                Some(token) if told.is_none() => {
                    drop(state); // a token that is cancelled already calls at once
                    let this = Arc::clone(self);
                    told = Some(token.on_cancel(move || this.change(|_| ())));
                    state = self.lock();
                }
                _ => state = sync::sleep(&self.changed, state, limits.deadline),
            }
        }
    }

    /// States are whole at any time: a panic elsewhere harms none.
    fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! What ends work early: somebody who asks, or a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use thiserror::Error;

/// Ends loading, planning and runs from outside. Clones share the state, and are equal.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks everything with this token to end after what it is doing now.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl PartialEq for CancelToken {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CancelToken {}

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
}

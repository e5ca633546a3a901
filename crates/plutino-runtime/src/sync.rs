//! What [`monitor`](super::monitor) is made of. The models of `tests/loom` put loom's counterparts
//! in the place of this file, and try all interleavings.

pub(crate) use plutino_ir::{Interrupted, Limits};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Sleeps until somebody tells of a change, until the deadline, or for no reason at all.
pub(crate) fn sleep<'a, T>(
    changed: &Condvar,
    state: MutexGuard<'a, T>,
    deadline: Option<Instant>,
) -> MutexGuard<'a, T> {
    match deadline {
        None => changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        Some(deadline) => {
            let left = deadline.saturating_duration_since(Instant::now());
            changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
        }
    }
}

//! The caller's limits as the signal that everything below looks at, and the error that they
//! become.

use crate::SessionError;
use plutino_ir::{Interrupted, Limits};
use plutino_ops::Location;
use plutino_tensor::stop::{Stop, Why};
use plutino_tensor::{Entered, Scope};
use std::sync::Arc;

/// Makes the limits the signal of this thread, until what is returned is dropped; none where there
/// are no limits.
pub(crate) fn enter(limits: &Limits) -> Option<Entered> {
    let token = limits.cancel.clone();
    if token.is_none() && limits.deadline.is_none() {
        return None;
    }
    let cancelled = move || token.as_ref().is_some_and(plutino_ir::CancelToken::is_cancelled);
    let stop: Arc<Stop> = Stop::new(cancelled, limits.deadline);
    Some(Scope::current().ended_by(&stop).enter())
}

/// Why the work of this thread ended: then nothing that it made is a result.
pub(crate) fn seen(scope: &Scope) -> Option<Interrupted> {
    scope.stop().and_then(Stop::seen).map(|why| match why {
        Why::Cancelled => Interrupted::Cancelled,
        Why::Deadline => Interrupted::Deadline,
    })
}

/// Whether planning may go on with this operator.
///
/// # Errors
/// Where the work of this thread is to end.
pub(crate) fn check(at: &Location) -> Result<(), SessionError> {
    let scope = Scope::current();
    if scope.stop().is_none_or(|stop| !stop.is_given()) {
        return Ok(());
    }
    match seen(&scope) {
        Some(why) => Err(SessionError::interrupted(why, 0, 0, Some(at))),
        None => Ok(()),
    }
}

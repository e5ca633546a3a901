//! The caller's limits as the signal that everything below looks at, and the error that they
//! become.

use crate::SessionError;
use plutino_ir::{Interrupted, Limits};
use plutino_ops::Location;
use plutino_tensor::stop::{self, Stop, Why};
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

/// Whether planning may go on.
///
/// # Errors
/// Where the work of this thread is to end.
pub(crate) fn go_on() -> Result<(), Interrupted> {
    match stop::stopped() {
        true => seen(&Scope::current()).map_or(Ok(()), Err),
        false => Ok(()),
    }
}

/// Steps of planning between two looks.
const PACE: usize = 256;

/// [`go_on`] at one step in many of a loop that does little in each.
///
/// # Errors
/// Where the work of this thread is to end.
pub(crate) fn go_on_at(step: usize) -> Result<(), Interrupted> {
    if step.is_multiple_of(PACE) { go_on() } else { Ok(()) }
}

/// Whether planning may go on with this operator.
///
/// # Errors
/// Where the work of this thread is to end.
pub(crate) fn check(at: &Location) -> Result<(), SessionError> {
    go_on().map_err(|why| SessionError::interrupted(why, 0, 0, Some(at)))
}

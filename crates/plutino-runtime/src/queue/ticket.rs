//! A result that somebody will have: waited for, polled, or woken up for.

use crate::monitor::Monitor;
use crate::sync::{Arc, Interrupted, Limits};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

/// See the module.
#[derive(Debug)]
pub(crate) struct Ticket<R>(Arc<Monitor<State<R>>>);

impl<R> Clone for Ticket<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
enum State<R> {
    /// Nobody knows yet; who is to be woken.
    Open(Option<Waker>),
    Done(R),
    /// Somebody has it.
    Taken,
}

impl<R: Send + 'static> Ticket<R> {
    pub(crate) fn new() -> Self {
        Self(Monitor::new(State::Open(None)))
    }

    /// Sets the result, where there is none yet, and wakes whoever waits; whether this was the
    /// first. `note` is called then, before anybody can see the result.
    pub(crate) fn complete(&self, result: R, note: impl FnOnce()) -> bool {
        let mut result = Some(result);
        let waker = self.0.change(|state| match state {
            State::Open(waker) => {
                let waker = waker.take();
                note();
                if let Some(result) = result.take() {
                    *state = State::Done(result);
                }
                waker
            }
            State::Done(_) | State::Taken => None,
        });
        if let Some(waker) = waker {
            // In no lock: it may do anything. Its panic is no business of whoever has the result.
            _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        result.is_none()
    }

    /// Whether there is a result, or was one.
    pub(crate) fn is_done(&self) -> bool {
        self.0.with(|state| !matches!(state, State::Open(_)))
    }

    /// The result, where there is one and nobody has it.
    pub(crate) fn take(&self) -> Option<R> {
        self.0.with(take)
    }

    /// Waits for the result; none, where somebody has it.
    pub(crate) fn wait(&self, limits: &Limits) -> Result<Option<R>, Interrupted> {
        self.0.wait(limits, |state| match state {
            State::Open(_) => None,
            State::Done(_) | State::Taken => Some(take(state)),
        })
    }

    /// As a future is polled. The last waker is the one that counts.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<R>> {
        let mut old = None;
        let polled = self.0.with(|state| match state {
            State::Open(waker) => {
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    old = waker.replace(cx.waker().clone());
                }
                Poll::Pending
            }
            State::Done(_) | State::Taken => Poll::Ready(take(state)),
        });
        drop(old); // in no lock
        polled
    }
}

fn take<R>(state: &mut State<R>) -> Option<R> {
    match std::mem::replace(state, State::Taken) {
        State::Done(result) => Some(result),
        State::Taken => None,
        open @ State::Open(_) => {
            *state = open;
            None
        }
    }
}

//! Work that ends early: a signal that long loops look at.
//!
//! Whoever works for a caller that may change its mind enters a [`Scope`] with a [`Stop`]. Within
//! it, loops over data ask whether to go on, every few ten microseconds: [`stopped`] costs a load
//! or two, [`paced`], [`parts`] and [`Watch`] make it as good as free. What is computed of nothing
//! more is left as it is: **whoever hands on a result asks [`check`] first**. A signal that was
//! seen once stays, so nobody can take a part of a result for the whole.
//!
//! ```
//! use plutino_tensor::{Scope, stop::{self, Stop}};
//! use std::sync::atomic::{AtomicUsize, Ordering};
//!
//! let looks = AtomicUsize::new(0);
//! let signal = Stop::new(move || looks.fetch_add(1, Ordering::Relaxed) == 3, None);
//! let _scope = Scope::current().ended_by(&signal).enter();
//! let count = stop::paced(0..u64::MAX, 1).count();
//! assert!(count < 1 << 20);
//! assert!(stop::check().is_err()); // it is not the number of all items
//! ```

use crate::TensorError;
use crate::scope::{self, Scope};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

mod latch;

use latch::Latch;

/// The atomics of [`latch`], which the models of `tests/loom` replace.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU8, Ordering};
}

/// Work between two looks at the signal, in operations of about a nanosecond.
pub const PACE: usize = 1 << 16;

/// Why work ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Somebody asked.
    Cancelled,
    /// The time is over.
    Deadline,
}

/// A signal to end work. Once it was seen it stays: who came too late to see it finished in time.
pub struct Stop {
    seen: Latch,
    cancelled: Box<dyn Fn() -> bool + Send + Sync>,
    deadline: Option<Instant>,
    /// That of the work which this one is a part of.
    outer: Option<Arc<Stop>>,
}

impl Stop {
    /// A signal that is given when `cancelled` says so, at the deadline, or with the signal of the
    /// scope that this thread is in. `cancelled` is asked often: it should do no more than load.
    pub fn new(
        cancelled: impl Fn() -> bool + Send + Sync + 'static,
        deadline: Option<Instant>,
    ) -> Arc<Self> {
        let (cancelled, outer) = (Box::new(cancelled), Scope::current().stop);
        Arc::new(Self { seen: Latch::new(), cancelled, deadline, outer })
    }

    /// Whether work is to end. (With a deadline this reads a clock: about 30 ns.)
    #[inline]
    pub fn is_given(&self) -> bool {
        self.seen.get().is_some() || self.look()
    }

    fn look(&self) -> bool {
        let why = if (self.cancelled)() {
            Some(Why::Cancelled)
        } else if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            Some(Why::Deadline)
        } else {
            self.outer.as_ref().filter(|outer| outer.is_given()).and_then(|outer| outer.seen())
        };
        why.inspect(|&why| self.seen.set(why)).is_some()
    }

    /// Why work ended, where somebody saw the signal; else what was computed is whole.
    pub fn seen(&self) -> Option<Why> {
        self.seen.get()
    }
}

impl std::fmt::Debug for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stop({:?}, deadline {:?})", self.seen(), self.deadline)
    }
}

/// Whether the work of this thread is to end.
pub fn stopped() -> bool {
    scope::look(|scope| scope.stop.as_ref().is_some_and(|stop| stop.is_given()))
}

/// Whether anything can end the work of this thread.
pub fn can_stop() -> bool {
    scope::look(|scope| scope.stop.is_some())
}

/// Whether what was computed is whole.
///
/// # Errors
/// [`TensorError::Stopped`] where the work of this thread is to end, or has ended.
pub fn check() -> Result<(), TensorError> {
    if stopped() { Err(TensorError::Stopped) } else { Ok(()) }
}

/// Looks at the signal of a thread once in so much work.
#[derive(Debug, Clone)]
pub struct Watch {
    stop: Option<Arc<Stop>>,
    /// Work until the next look.
    left: usize,
}

impl Watch {
    /// Over the signal of this thread.
    pub fn new() -> Self {
        Self { stop: Scope::current().stop, left: PACE }
    }

    /// Notes that so many operations (of about a nanosecond each) come next; whether the work is to
    /// end instead.
    #[inline]
    pub fn stops(&mut self, operations: usize) -> bool {
        match &self.stop {
            None => false,
            Some(_) if operations < self.left => {
                self.left -= operations;
                false
            }
            Some(stop) => {
                self.left = PACE;
                stop.is_given()
            }
        }
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

/// The items, of about so many operations each, until the work of this thread is to end.
pub fn paced<I: IntoIterator>(items: I, operations: usize) -> impl Iterator<Item = I::Item> {
    let mut watch = Watch::new();
    items.into_iter().take_while(move |_| !watch.stops(operations))
}

/// The range, in parts between which the signal is looked at, until the work of this thread is to
/// end. Where nothing can end it, the range is one part.
pub fn parts(range: Range<usize>, part: usize) -> impl Iterator<Item = Range<usize>> {
    let mut watch = Watch::new();
    let part = if watch.stop.is_some() { part.max(1) } else { range.len().max(1) };
    let mut start = range.start;
    std::iter::from_fn(move || {
        if start >= range.end || watch.stops(PACE) {
            return None;
        }
        let next = start..range.end.min(start.saturating_add(part));
        start = next.end;
        Some(next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    fn asked() -> (Arc<AtomicBool>, Arc<Stop>) {
        let asked = Arc::new(AtomicBool::new(false));
        let stop = Stop::new(
            {
                let asked = Arc::clone(&asked);
                move || asked.load(Relaxed)
            },
            None,
        );
        (asked, stop)
    }

    #[test]
    fn a_signal_that_was_seen_stays() {
        let (asked, stop) = asked();
        assert!(!stop.is_given());
        asked.store(true, Relaxed);
        assert_eq!(stop.seen(), None, "nobody has looked");
        assert!(stop.is_given());
        asked.store(false, Relaxed);
        assert!(stop.is_given());
        assert_eq!(stop.seen(), Some(Why::Cancelled));
    }

    #[test]
    fn deadlines_and_outer_signals() {
        let now = Instant::now();
        let over = Stop::new(|| false, Some(now));
        assert!(over.is_given());
        assert_eq!(over.seen(), Some(Why::Deadline));
        let later = Stop::new(|| false, now.checked_add(std::time::Duration::from_secs(3600)));
        assert!(!later.is_given());

        let (asked, outer) = asked();
        let _scope = Scope::current().ended_by(&outer).enter();
        let inner = Stop::new(|| false, None);
        assert!(!inner.is_given() && check().is_ok());
        asked.store(true, Relaxed);
        assert!(inner.is_given());
        assert_eq!(inner.seen(), Some(Why::Cancelled));
        assert_eq!(check(), Err(TensorError::Stopped));
    }

    #[test]
    fn loops_end_and_are_whole_without_a_signal() {
        assert_eq!(paced(0..5, usize::MAX).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert!(parts(3..10, 2).eq(std::iter::once(3..10)));
        assert_eq!(parts(3..3, 2).count(), 0);
        let (asked, stop) = asked();
        let _scope = Scope::current().ended_by(&stop).enter();
        assert_eq!(parts(3..10, 3).collect::<Vec<_>>(), [3..6, 6..9, 9..10]);
        assert_eq!(paced(0..2 * PACE, 1).count(), 2 * PACE);
        asked.store(true, Relaxed);
        assert_eq!(parts(3..10, 3).count(), 0);
        assert_eq!(paced(0..10 * PACE, 1).count(), PACE - 1);
        assert!(!Watch::new().stops(PACE - 1) && Watch::new().stops(PACE));
    }
}

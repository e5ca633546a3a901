//! What [`region`](super::region) and [`share`](super::share) are made of. The models of
//! `tests/loom` put loom's counterparts in the place of this file, and try all interleavings.

pub(super) use super::trace::{Task, Trace, noted};
pub(super) use plutino_tensor::{Entered, Scope, stop::Stop};
pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(super) use std::thread::yield_now;

/// Memory that somebody else may write: access is up to the caller.
#[derive(Debug, Default)]
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(super) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    #[inline(always)]
    pub(super) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Makes what this thread wrote before visible to whoever has its own, later one behind it. All
/// accesses are sequentially consistent, which is more: only loom, which takes those for acquire
/// and release, needs it.
#[inline(always)]
pub(super) fn settle() {}

//! For whom a thread works: what that may take, and when it shall end.
//!
//! Whoever plans or runs something for a caller enters a scope; what is done within asks it,
//! however deep: [`alloc`](crate::alloc) whether memory may be taken, [`stop`](crate::stop) whether
//! to go on. A scope belongs to a thread. Who hands work to other threads hands on the scope
//! ([`Scope::current`], [`Scope::enter`]).

use crate::alloc::Ledger;
use crate::stop::Stop;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

/// What work is charged to, and what ends it. By default: nothing.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    pub(crate) ledger: Option<Arc<Ledger>>,
    pub(crate) stop: Option<Arc<Stop>>,
}

thread_local! {
    static CURRENT: RefCell<Scope> = const { RefCell::new(Scope { ledger: None, stop: None }) };
}

/// Looks at the scope of this thread.
pub(crate) fn look<R>(f: impl FnOnce(&Scope) -> R) -> R {
    CURRENT.with(|current| f(&current.borrow()))
}

impl Scope {
    /// That of this thread.
    pub fn current() -> Self {
        look(Self::clone)
    }

    /// Whether it is that of this thread: the same ledger, the same signal.
    pub fn is_current(&self) -> bool {
        look(|current| self.is(current))
    }

    /// Whether both have the same ledger and the same signal.
    pub fn is(&self, other: &Self) -> bool {
        let address = |scope: &Self| {
            let ledger = scope.ledger.as_ref().map(Arc::as_ptr);
            (ledger, scope.stop.as_ref().map(Arc::as_ptr))
        };
        address(self) == address(other)
    }

    /// The same, charged to this ledger.
    #[must_use]
    pub fn charged_to(mut self, ledger: &Arc<Ledger>) -> Self {
        self.ledger = Some(Arc::clone(ledger));
        self
    }

    /// The same, ended by this signal.
    #[must_use]
    pub fn ended_by(mut self, stop: &Arc<Stop>) -> Self {
        self.stop = Some(Arc::clone(stop));
        self
    }

    /// The signal that ends it.
    pub fn stop(&self) -> Option<&Stop> {
        self.stop.as_deref()
    }

    /// Makes it the scope of this thread, until what is returned is dropped.
    pub fn enter(self) -> Entered {
        let outer = CURRENT.with(|current| current.replace(self));
        Entered { outer, thread: PhantomData }
    }
}

/// A scope that was entered. When it is dropped, also by a panic, the scope outside is back.
#[derive(Debug)]
#[must_use = "the scope is left when this is dropped"]
pub struct Entered {
    outer: Scope,
    /// Scopes are left by the thread that entered them.
    thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let outer = std::mem::take(&mut self.outer);
        CURRENT.with(|current| drop(current.replace(outer)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_nested_and_belong_to_a_thread() {
        let (ledger, stop) = (Ledger::new(None), Stop::new(|| false, None));
        let outer = Scope::current();
        assert!(outer.is_current() && outer.stop().is_none());
        let scope = outer.clone().charged_to(&ledger).ended_by(&stop);
        let entered = scope.clone().enter();
        assert!(scope.is_current() && !outer.is_current());
        {
            let _inner = Scope::default().enter();
            assert!(!scope.is_current());
        }
        assert!(scope.is_current());
        std::thread::scope(|s| {
            s.spawn(|| {
                assert!(!scope.is_current());
                let _handed_on = scope.clone().enter();
                assert!(crate::alloc::list::<u8>(10).is_ok());
            });
        });
        assert_eq!(ledger.spent(), 10);
        drop(entered);
        assert!(outer.is_current());
    }
}

//! Memory whose size a file or an input decides: counted first, then taken, and never by force.
//!
//! Whoever plans or runs something for a caller enters a [`Scope`] with a [`Ledger`] ([`charged`]).
//! Within it, everything that is taken through this module or as a tensor is charged to the ledger,
//! on this thread and on those that work for it, and what exceeds its limit is an error before any
//! memory is taken. Without a scope there is no limit, but memory that the system refuses is an
//! error all the same: nothing here aborts.
//!
//! Tables, lists and buffers whose length comes from a file, a shape or an input are made here and
//! nowhere else: `cargo xtask tidy` finds `vec![x; n]`, `with_capacity` and their like in the
//! crates above.

use crate::TensorError;
use crate::scope::{self, Scope};
use crate::stop::Watch;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that may be taken, and those that were. Shared by the threads that plan for one caller.
#[derive(Debug)]
pub struct Ledger {
    limit: usize,
    spent: AtomicUsize,
    /// The ledger that this one is a part of: it is charged as well.
    whole: Option<Arc<Ledger>>,
}

impl Ledger {
    /// A ledger of which nothing is spent; none: without a limit, to count only.
    pub fn new(limit: Option<usize>) -> Arc<Self> {
        let limit = limit.unwrap_or(usize::MAX);
        Arc::new(Self { limit, spent: AtomicUsize::new(0), whole: None })
    }

    /// A ledger for a part of the work that this one is charged for: both are charged, so that
    /// several parts at the same time stay within one limit, and what the part gave back can be
    /// told from what others took meanwhile.
    fn part(self: &Arc<Self>) -> Arc<Self> {
        let whole = Some(Arc::clone(self));
        Arc::new(Self { limit: self.limit, spent: AtomicUsize::new(0), whole })
    }

    /// Bytes charged so far.
    pub fn spent(&self) -> usize {
        self.spent.load(Ordering::Relaxed)
    }

    /// Bytes that may still be taken; none: no limit.
    fn left(&self) -> Option<usize> {
        match &self.whole {
            Some(whole) => whole.left(),
            None => (self.limit < usize::MAX).then(|| self.limit.saturating_sub(self.spent())),
        }
    }

    /// Charges memory that will be taken.
    ///
    /// # Errors
    /// [`TensorError::Budget`] where it exceeds what is left. It is not charged then.
    pub fn charge(&self, bytes: usize) -> Result<(), TensorError> {
        if let Some(whole) = &self.whole {
            whole.charge(bytes)?;
            self.spent.fetch_add(bytes, Ordering::Relaxed); // no more than the whole has
            return Ok(());
        }
        let add = |spent: usize| spent.checked_add(bytes).filter(|&sum| sum <= self.limit);
        match self.spent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(()),
            Err(spent) => {
                Err(TensorError::Budget { needed: spent.saturating_add(bytes), budget: self.limit })
            }
        }
    }

    /// Forgets so many bytes that were charged: they were given back.
    pub fn refund(&self, bytes: usize) {
        let less = |spent: usize| Some(spent.saturating_sub(bytes));
        let _ = self.spent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if let Some(whole) = &self.whole {
            whole.refund(bytes);
        }
    }

    /// Forgets what was charged since [`Ledger::spent`] was `before`: it was given back.
    pub fn refund_to(&self, before: usize) {
        self.spent.fetch_min(before, Ordering::Relaxed);
    }
}

fn with<R>(ledger: Option<Arc<Ledger>>, f: impl FnOnce() -> R) -> R {
    let _scope = Scope { ledger, ..Scope::current() }.enter();
    f()
}

/// Runs `f`; what it takes is charged to `ledger`.
pub fn charged<R>(ledger: &Arc<Ledger>, f: impl FnOnce() -> R) -> R {
    with(Some(Arc::clone(ledger)), f)
}

/// Runs `f`; what it takes is charged to nobody.
pub fn uncharged<R>(f: impl FnOnce() -> R) -> R {
    with(None, f)
}

/// Runs `f`, which gives back what it takes: within what is left, but nothing stays charged.
pub fn temporary<R>(f: impl FnOnce() -> R) -> R {
    keeping(f, |_| 0)
}

/// Runs `f`, which gives back all that it takes but what `kept` says of its result: only that stays
/// charged. Meanwhile everything is, so that several threads that do this share one limit.
pub fn keeping<R>(f: impl FnOnce() -> R, kept: impl FnOnce(&R) -> usize) -> R {
    let Some(ledger) = scope::look(|scope| scope.ledger.clone()) else { return f() };
    let part = ledger.part();
    let result = charged(&part, f);
    part.refund(part.spent().saturating_sub(kept(&result)));
    result
}

/// Bytes that the scope of this thread may still take; none: no limit.
pub fn left() -> Option<usize> {
    scope::look(|scope| scope.ledger.as_ref()?.left())
}

/// Charges memory that is taken elsewhere, such as by a library, to the scope of this thread.
///
/// # Errors
/// [`TensorError::Budget`] where it exceeds what is left.
pub fn charge(bytes: usize) -> Result<(), TensorError> {
    scope::look(|scope| match &scope.ledger {
        Some(ledger) => ledger.charge(bytes),
        None => Ok(()),
    })
}

/// Charges memory that a library is about to take by force, and asks the system whether it is
/// there.
///
/// # Errors
/// [`TensorError::Budget`], and [`TensorError::OutOfMemory`] where the system would refuse.
pub fn probe(bytes: usize) -> Result<(), TensorError> {
    list::<u8>(bytes).map(drop)
}

/// An empty list with room for `n`.
///
/// # Errors
/// Where `n` of them exceed the ledger of this thread, or memory.
pub fn list<T>(n: usize) -> Result<Vec<T>, TensorError> {
    let bytes = n.checked_mul(size_of::<T>()).filter(|&b| isize::try_from(b).is_ok());
    let bytes = bytes.ok_or(TensorError::OutOfMemory { bytes: usize::MAX })?;
    charge(bytes)?;
    let mut list = Vec::new();
    list.try_reserve_exact(n).map_err(|_| TensorError::OutOfMemory { bytes })?;
    Ok(list)
}

/// `n` times the same.
///
/// # Errors
/// As [`list`].
pub fn filled<T: Clone>(n: usize, value: T) -> Result<Vec<T>, TensorError> {
    let mut all = list(n)?;
    all.resize(n, value); // within what is reserved
    Ok(all)
}

/// Everything that an iterator of known length yields.
///
/// # Errors
/// As [`list`].
pub fn collect<T>(items: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>, TensorError> {
    let mut all = list(items.len())?;
    all.extend(items);
    Ok(all)
}

/// As [`collect`], up to the first item that is an error.
///
/// # Errors
/// As [`grow`], and those of the items.
pub fn try_collect<T, E: From<TensorError>>(
    items: impl ExactSizeIterator<Item = Result<T, E>>,
) -> Result<Vec<T>, E> {
    let mut all = list(items.len())?;
    let mut watch = Watch::new();
    for item in items {
        if watch.stops(1) {
            return Err(TensorError::Stopped.into());
        }
        all.push(item?);
    }
    Ok(all)
}

/// Everything that an iterator yields whose length is known only at its end: memory is charged and
/// taken as the list grows.
///
/// # Errors
/// As [`list`], and [`TensorError::Stopped`] where the work of this thread is to end.
pub fn grow<T>(items: impl IntoIterator<Item = T>) -> Result<Vec<T>, TensorError> {
    let mut all: Vec<T> = Vec::new();
    let mut watch = Watch::new();
    for item in items {
        if watch.stops(1) {
            return Err(TensorError::Stopped);
        }
        if all.len() == all.capacity() {
            let more = all.capacity().max(4);
            let bytes = more.saturating_mul(size_of::<T>());
            charge(bytes)?;
            all.try_reserve_exact(more).map_err(|_| TensorError::OutOfMemory { bytes })?;
        }
        all.push(item);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Tensor};

    #[test]
    fn what_a_scope_takes_is_charged_until_its_limit() {
        let ledger = Ledger::new(Some(1000));
        charged(&ledger, || {
            assert_eq!(filled(10, 1u64).unwrap(), [1; 10]);
            assert_eq!(collect((0..10).map(|i| i as u32)).unwrap().len(), 10);
            assert_eq!(grow((0..10).filter(|i| i % 2 == 0)).unwrap(), [0, 2, 4, 6, 8]);
            let spent = ledger.spent();
            assert!(spent >= 80 + 40 + 20, "{spent}");
            let error = TensorError::Budget { needed: spent + 8000, budget: 1000 };
            assert_eq!(list::<u64>(1000), Err(error));
            assert_eq!(ledger.spent(), spent, "what was refused is not charged");
            assert!(Tensor::zeros(DType::F32, [1000]).is_err(), "tensors are charged, too");
            assert!(uncharged(|| Tensor::zeros(DType::F32, [1000])).is_ok());
            assert_eq!(left(), Some(1000 - spent));
            assert!(temporary(|| filled(100, 0u8).is_ok() && filled(900, 0u8).is_err()));
            assert_eq!(ledger.spent(), spent, "what was given back is not charged");
            let kept = keeping(
                || {
                    assert_eq!(left(), Some(1000 - spent), "a part has what the whole has");
                    assert!(filled(300, 0u8).is_ok());
                    assert_eq!(left(), Some(700 - spent), "the whole is charged meanwhile");
                    assert!(filled(700, 0u8).is_err(), "both share one limit");
                    temporary(|| assert!(filled(100, 0u8).is_ok()));
                    filled(50, 0u8)
                },
                |kept| kept.as_ref().map_or(0, Vec::len),
            );
            assert_eq!((kept.unwrap().len(), ledger.spent()), (50, spent + 50));
            ledger.refund(50);
            assert_eq!(ledger.spent(), spent);
            let inner = Ledger::new(None);
            charged(&inner, || filled(5000, 0u8).unwrap());
            assert_eq!((inner.spent(), ledger.spent()), (5000, spent));
            ledger.refund_to(0);
            assert!(filled(1000, 0u8).is_ok());
            assert!(filled(1, 0u8).is_err());
        });
        assert!(filled(2000, 0u8).is_ok(), "no limit outside");
    }

    #[test]
    fn sizes_beyond_memory_are_errors() {
        assert!(list::<u64>(usize::MAX).is_err());
        assert!(list::<u64>(usize::MAX / 16).is_err());
        assert!(filled(usize::MAX / 2, 0u8).is_err());
        let endless = || Err::<u8, _>(TensorError::invalid("no"));
        assert!(try_collect((0..3).map(|_| endless())).is_err());
    }
}

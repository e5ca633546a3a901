//! The last few plans of a session, by what they were made for.

use crate::SessionError;
use crate::halt;
use crate::plan::Plan;
use crate::run::bind::Binding;
use plutino_ir::Limits;
use plutino_tensor::stop;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Time between two looks whether a wait is to end.
const LOOK: Duration = Duration::from_micros(200);

/// A new plan.
pub(crate) struct Made {
    pub(crate) plan: Plan,
    /// The one that it takes the place of.
    pub(crate) instead: Option<Arc<Plan>>,
}

/// Plans, the least recently used first.
pub(crate) struct PlanCache {
    plans: Mutex<Vec<Arc<Plan>>>,
    /// Held while a plan is made, so that two runs with the same new shape do not both make it.
    making: Mutex<()>,
    size: usize,
}

impl PlanCache {
    /// An empty cache for `size` plans, at least one.
    pub(crate) fn new(size: usize) -> Self {
        Self { plans: Mutex::default(), making: Mutex::default(), size: size.max(1) }
    }

    /// All of them, the least recently used first.
    pub(crate) fn all(&self) -> Vec<Arc<Plan>> {
        lock(&self.plans).clone()
    }

    /// The plan whose binding `matches`; it becomes the most recently used.
    pub(crate) fn find(&self, matches: impl Fn(&Binding) -> bool) -> Option<Arc<Plan>> {
        let mut plans = lock(&self.plans);
        let at = plans.iter().rposition(|plan| matches(&plan.binding))?;
        if at + 1 < plans.len() {
            plans[at..].rotate_left(1);
        }
        plans.last().map(Arc::clone)
    }

    /// The plan for this binding, made by `make` if need be, which is told of plans that differ
    /// from it in sizes alone, the most recently used first, and says which of them the new one
    /// takes the place of. The least recently used ones make room, where plans are too many, or
    /// more than `fit`.
    ///
    /// # Errors
    /// Those of `make`; and where the limits end the wait for another plan that is being made.
    pub(crate) fn get(
        &self,
        binding: Binding,
        limits: &Limits,
        make: impl FnOnce(Binding, &[Arc<Plan>]) -> Result<Made, SessionError>,
        fit: impl Fn(&[&Plan]) -> bool,
    ) -> Result<Arc<Plan>, SessionError> {
        let _making = self.turn(limits)?;
        if let Some(plan) = self.find(|b| *b == binding) {
            return Ok(plan);
        }
        let related: SmallVec<[Arc<Plan>; 4]> = {
            let plans = lock(&self.plans);
            plans.iter().rev().filter(|p| p.binding.is_related(&binding)).cloned().collect()
        };
        let Made { plan, instead } = make(binding, &related)?;
        let plan = Arc::new(plan);
        let mut plans = lock(&self.plans);
        if let Some(old) = instead {
            plans.retain(|plan| !Arc::ptr_eq(plan, &old));
        }
        if plans.len() >= self.size {
            plans.remove(0);
        }
        plans.push(Arc::clone(&plan));
        while plans.len() > 1 && !fit(&plans.iter().map(|plan| &**plan).collect::<Vec<_>>()) {
            plans.remove(0);
        }
        Ok(plan)
    }

    /// Forgets all plans. Runs that have one finish with it.
    pub(crate) fn clear(&self) {
        let plans = std::mem::take(&mut *lock(&self.plans));
        drop(plans); // outside of the lock
    }

    /// Runs `f` as if somebody made a plan.
    #[cfg(test)]
    pub(crate) fn while_planning(&self, f: impl FnOnce()) {
        let _making = lock(&self.making);
        f();
    }

    /// Leave to make a plan, once nobody else does.
    fn turn(&self, limits: &Limits) -> Result<MutexGuard<'_, ()>, SessionError> {
        if *limits == Limits::default() && !stop::can_stop() {
            return Ok(lock(&self.making));
        }
        loop {
            match self.making.try_lock() {
                Ok(turn) => return Ok(turn),
                Err(TryLockError::Poisoned(turn)) => return Ok(turn.into_inner()),
                Err(TryLockError::WouldBlock) => limits.check().and_then(|()| halt::go_on())?,
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Number of plans.
    pub(crate) fn len(&self) -> usize {
        lock(&self.plans).len()
    }
}

/// Plans are whole at any time: a panic elsewhere harms none.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

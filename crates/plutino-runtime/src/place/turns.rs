//! Turns: one at a time, in the order of arrival.

use crate::monitor::Monitor;
use crate::sync::{Arc, Interrupted, Limits};
use std::collections::VecDeque;

/// Lets one after the other have what it guards, first come, first served.
#[derive(Debug)]
pub(crate) struct Turns(Arc<Monitor<Arrived>>);

#[derive(Debug, Default)]
struct Arrived {
    /// Whose turn it is, and who waits behind.
    order: VecDeque<u64>,
    next: u64,
}

impl Default for Turns {
    fn default() -> Self {
        Self(Monitor::new(Arrived::default()))
    }
}

impl Turns {
    /// Waits for its turn, which lasts until what is returned is dropped.
    ///
    /// # Errors
    /// Where the limits end the wait: those behind come sooner then.
    pub(crate) fn wait(&self, limits: &Limits) -> Result<Turn, Interrupted> {
        let number = self.0.with(|arrived| {
            let number = arrived.next;
            arrived.next = number.wrapping_add(1);
            arrived.order.push_back(number);
            number
        });
        let turn = Turn { arrived: Arc::clone(&self.0), number };
        // On an error `turn` is dropped, which leaves the order.
        self.0.wait(limits, |arrived| (arrived.order.front() == Some(&number)).then_some(()))?;
        Ok(turn)
    }

    /// Those that wait, or have their turn.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.with(|arrived| arrived.order.len())
    }
}

/// A turn, or a place among those that wait.
#[derive(Debug)]
pub(crate) struct Turn {
    arrived: Arc<Monitor<Arrived>>,
    number: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.arrived.change(|arrived| arrived.order.retain(|number| *number != self.number));
    }
}

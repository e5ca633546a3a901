//! What was seen of a signal: nothing yet, or why. The first reason stays.

use super::Why;
use super::sync::{AtomicU8, Ordering::Relaxed};

/// Set once, read often. It orders nothing else: that work which was left out is seen by whoever
/// sees the work that was done, is for those who hand out work (`plutino-cpu`'s `par`).
#[derive(Debug)]
pub(super) struct Latch(AtomicU8);

const NOTHING: u8 = 0;
const CANCELLED: u8 = 1;
const DEADLINE: u8 = 2;

impl Latch {
    pub(super) fn new() -> Self {
        Self(AtomicU8::new(NOTHING))
    }

    pub(super) fn get(&self) -> Option<Why> {
        match self.0.load(Relaxed) {
            NOTHING => None,
            DEADLINE => Some(Why::Deadline),
            _ => Some(Why::Cancelled),
        }
    }

    pub(super) fn set(&self, why: Why) {
        let why = match why {
            Why::Cancelled => CANCELLED,
            Why::Deadline => DEADLINE,
        };
        _ = self.0.compare_exchange(NOTHING, why, Relaxed, Relaxed);
    }
}

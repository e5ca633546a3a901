//! Numbers without an order, the same everywhere and always.

use plutino_fixtures::Words;

/// Chooses.
#[derive(Debug, Clone)]
pub struct Chance(Words);

impl Chance {
    /// The choices that belong to a key.
    pub fn of(key: &str) -> Self {
        Self(Words::of(key))
    }

    /// A word.
    pub fn word(&mut self) -> u64 {
        self.0.next().unwrap_or_default()
    }

    /// A number below `limit`; 0 where there is none.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.word() % limit.max(1) as u64) as usize
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of some; none where there are none.
    pub fn one<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }
}

//! What waits in a queue: a bounded line, from which workers take one entry after the other, or
//! several that may run together.

use std::collections::VecDeque;

/// What can wait in a line.
pub(crate) trait Entry: Clone {
    /// Whether it is the same one.
    fn is(&self, other: &Self) -> bool;

    /// Whether both may run as one.
    fn joins(&self, other: &Self) -> bool;
}

/// What a worker is to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn<J> {
    /// Run this one.
    One(J),
    /// Wait a moment for others that join this one, which stays in the line, then gather.
    Lead(J),
    /// There is nothing more, and there never will be.
    Over,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Line<J> {
    waiting: VecDeque<J>,
    /// Entries that may wait.
    depth: usize,
    /// Entries that may run as one.
    most: usize,
    /// Those for which workers wait for others: nobody else takes what joins them.
    leaders: Vec<J>,
    closed: bool,
}

impl<J: Entry> Line<J> {
    pub(crate) fn new(depth: usize, most: usize) -> Self {
        let (depth, most) = (depth.max(1), most.max(1));
        Self { waiting: VecDeque::new(), depth, most, leaders: Vec::new(), closed: false }
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Puts an entry at the end: false where the line is closed, nothing where it is full.
    pub(crate) fn push(&mut self, entry: &J) -> Option<bool> {
        if self.closed {
            return Some(false);
        }
        (self.waiting.len() < self.depth).then(|| {
            self.waiting.push_back(entry.clone());
            true
        })
    }

    /// The turn of a worker that has nothing to do; none, where it should wait.
    pub(crate) fn turn(&mut self) -> Option<Turn<J>> {
        let free = |entry: &J| !self.leaders.iter().any(|leader| leader.joins(entry));
        let Some(at) = self.waiting.iter().position(free) else {
            return (self.closed && self.waiting.is_empty()).then_some(Turn::Over);
        };
        let first = self.waiting.get(at)?.clone();
        if self.most == 1 || !first.joins(&first) {
            self.waiting.remove(at);
            return Some(Turn::One(first));
        }
        self.leaders.push(first.clone());
        Some(Turn::Lead(first))
    }

    /// Whether waiting for more that join is over, whatever the time.
    pub(crate) fn is_enough(&self, leader: &J) -> bool {
        let joining = || self.waiting.iter().filter(|entry| leader.joins(entry));
        // Where the leader was withdrawn alone, or the line was closed, nobody waits for it.
        self.closed || joining().count() >= self.most || !joining().any(|entry| entry.is(leader))
    }

    /// Takes those that join the leader, the first ones first: as many as may run as one, or the
    /// greatest power of two that are there (each number is a plan of its own).
    pub(crate) fn gather(&mut self, leader: &J) -> Vec<J> {
        self.leaders.retain(|other| !other.is(leader));
        let joining = self.waiting.iter().filter(|entry| leader.joins(entry)).count();
        let mut left = match joining {
            0 => 0,
            n if n >= self.most => self.most,
            n => 1 << n.ilog2(),
        };
        let mut taken = Vec::new();
        self.waiting.retain(|entry| {
            let take = left > 0 && leader.joins(entry);
            if take {
                left -= 1;
                taken.push(entry.clone());
            }
            !take
        });
        taken
    }

    /// Takes an entry out of the line; whether it was there.
    pub(crate) fn withdraw(&mut self, entry: &J) -> bool {
        let at = self.waiting.iter().position(|other| other.is(entry));
        at.and_then(|at| self.waiting.remove(at)).is_some()
    }

    /// Takes no more entries. Those that wait are run.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Takes no more entries, and hands back those that wait.
    pub(crate) fn clear(&mut self) -> VecDeque<J> {
        self.closed = true;
        std::mem::take(&mut self.waiting)
    }
}

//! The tasks of a job that wait for one thread.

use super::sync::{AtomicU64, Ordering::SeqCst};
use std::ops::Range;

/// Tasks `first..end` in one number: the lower half is `first`, the upper half `end`.
///
/// Its owner takes the first, others take the last. A line of cache each, and the one beside it,
/// which CPUs fetch along: taking a task costs little until somebody else does.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(super) struct Share(AtomicU64);

const END: u32 = u32::BITS;

impl Share {
    /// Numbers of tasks end here: below, so that [`Share::first`] may count past the end.
    pub(super) const MOST: usize = (u32::MAX - 1) as usize;

    /// Puts tasks in. Nobody may be taking any, and they end at [`Share::MOST`] at most.
    pub(super) fn fill(&self, tasks: Range<usize>) {
        self.0.store((tasks.end as u64) << END | tasks.start as u64, SeqCst);
    }

    /// Takes the first task. For one thread alone, which calls it no more once it has found none.
    pub(super) fn first(&self) -> Option<usize> {
        let (first, end) = parts(self.0.fetch_add(1, SeqCst));
        (first < end).then_some(first as usize)
    }

    /// Takes the last task.
    pub(super) fn last(&self) -> Option<usize> {
        let shorter = |tasks: u64| {
            let (first, end) = parts(tasks);
            (first < end).then(|| tasks - (1 << END))
        };
        let tasks = self.0.fetch_update(SeqCst, SeqCst, shorter).ok()?;
        Some(parts(tasks).1 as usize - 1)
    }
}

fn parts(tasks: u64) -> (u32, u32) {
    (tasks as u32, (tasks >> END) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_taken_from_both_ends() {
        let share = Share::default();
        assert_eq!((share.last(), share.first()), (None, None));
        share.fill(3..8);
        assert_eq!([share.first(), share.last(), share.last()], [Some(3), Some(7), Some(6)]);
        assert_eq!([share.first(), share.first(), share.first()], [Some(4), Some(5), None]);
        assert_eq!(share.last(), None);
        share.fill(Share::MOST - 1..Share::MOST);
        assert_eq!([share.first(), share.first()], [Some(Share::MOST - 1), None]);
    }

    #[test]
    fn each_task_is_taken_once() {
        const TASKS: usize = 10_000;
        let share = Share::default();
        share.fill(0..TASKS);
        let taken: Vec<usize> = std::thread::scope(|s| {
            let takers = [true, false, false].map(|own| {
                let share = &share;
                s.spawn(move || {
                    std::iter::from_fn(|| if own { share.first() } else { share.last() }).collect()
                })
            });
            takers.map(|t| t.join().unwrap()).into_iter().flat_map(|t: Vec<usize>| t).collect()
        });
        let mut sorted = taken;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..TASKS).collect::<Vec<_>>());
    }
}

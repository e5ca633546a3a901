//! The standard library's sorting and selecting, in pieces: long lists are divided here, and
//! between the pieces somebody may ask the work to end ([`stop`]).
//!
//! Where nothing can end it, or a list is short, it is the standard library's own. Both give the
//! same order, since there is but one: elements that are equal must be indistinguishable.

use crate::par::stop::{self, Watch};
use bytemuck::{Pod, Zeroable};
use std::cmp::Ordering;

/// Elements that are sorted at one go: about a millisecond.
const PIECE: usize = 1 << 14;

/// What a comparison takes, with the memory that it waits for.
const COMPARISON: usize = 8;

/// Sorts a list. When the work of this thread is to end, the list stays as it is by then, with all
/// its elements.
pub fn sort<T: Copy>(list: &mut [T], order: impl Fn(&T, &T) -> Ordering) {
    if list.len() <= PIECE || !stop::can_stop() {
        return list.sort_unstable_by(order);
    }
    Dividing::new(list.len(), &order).sort(list);
}

/// Puts the `k`-th element in its place, with lesser ones before and greater ones behind it. When
/// the work of this thread is to end, the list stays as it is by then, with all its elements.
///
/// # Panics
/// Where there is no such element.
pub fn select<T: Copy>(list: &mut [T], k: usize, order: impl Fn(&T, &T) -> Ordering) {
    assert!(k < list.len(), "an element that does not exist is selected");
    if list.len() <= PIECE || !stop::can_stop() {
        list.select_nth_unstable_by(k, order);
        return;
    }
    Dividing::new(list.len(), &order).select(list, k);
}

/// An element of a list by the rank of its value ([`Ordered::rank`](crate::number::Ordered::rank)):
/// the lesser rank first, of equal ones the one that stands before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Ranked {
    rank: u64,
    at: u64,
}

impl Ranked {
    /// The element at `at`.
    #[inline(always)]
    pub fn new(rank: u64, at: usize) -> Self {
        Self { rank, at: at as u64 }
    }

    /// The rank of its value.
    #[inline(always)]
    pub fn rank(self) -> u64 {
        self.rank
    }

    /// Where the element stands.
    #[inline(always)]
    pub fn at(self) -> usize {
        self.at as usize
    }
}

/// [`sort`] for elements of any dtype, compiled once.
pub fn sort_ranked(list: &mut [Ranked]) {
    sort(list, Ord::cmp);
}

/// [`select`] for elements of any dtype, compiled once.
///
/// # Panics
/// Where there is no such element.
pub fn select_ranked(list: &mut [Ranked], k: usize) {
    select(list, k, Ord::cmp);
}

/// A list on its way.
struct Dividing<'a, F> {
    order: &'a F,
    watch: Watch,
    /// For the choice of pivots.
    random: u64,
    /// Divisions with little on one side that are still borne: after them the standard library has
    /// the rest, which never takes more than n log n.
    patience: u32,
}

impl<'a, F> Dividing<'a, F> {
    fn new(len: usize, order: &'a F) -> Self {
        Self { order, watch: Watch::new(), random: len as u64 | 1, patience: len.ilog2() }
    }

    fn sort<T: Copy>(&mut self, mut list: &mut [T])
    where
        F: Fn(&T, &T) -> Ordering,
    {
        while list.len() > PIECE && self.patience > 0 {
            let Some(at) = self.divide(list) else { return };
            let (left, right) = list.split_at_mut(at);
            let right = right.get_mut(1..).unwrap_or_default();
            // The shorter one first: so calls nest no deeper than a logarithm.
            let (first, rest) =
                if left.len() < right.len() { (left, right) } else { (right, left) };
            self.sort(first);
            list = rest;
        }
        if !self.watch.stops(list.len().saturating_mul(COMPARISON)) {
            list.sort_unstable_by(self.order);
        }
    }

    fn select<T: Copy>(&mut self, mut list: &mut [T], mut k: usize)
    where
        F: Fn(&T, &T) -> Ordering,
    {
        while list.len() > PIECE && self.patience > 0 {
            let Some(at) = self.divide(list) else { return };
            let (left, right) = list.split_at_mut(at);
            match k.cmp(&at) {
                Ordering::Less => list = left,
                Ordering::Equal => return,
                Ordering::Greater => {
                    list = right.get_mut(1..).unwrap_or_default();
                    k -= at + 1;
                }
            }
        }
        list.select_nth_unstable_by(k, self.order);
    }

    /// Puts one element in its place, lesser ones before it: where that is. None where the work is
    /// to end.
    fn divide<T: Copy>(&mut self, list: &mut [T]) -> Option<usize>
    where
        F: Fn(&T, &T) -> Ordering,
    {
        let mut sample = [0; 9].map(|_| self.below(list.len()));
        sample.sort_unstable_by(|&a, &b| (self.order)(&list[a], &list[b]));
        list.swap(0, sample[4]);
        let (pivot, rest) = list.split_first_mut()?;
        let mut end = 0;
        for i in 0..rest.len() {
            if self.watch.stops(COMPARISON) {
                return None;
            }
            if (self.order)(&rest[i], pivot) == Ordering::Less {
                rest.swap(i, end);
                end += 1;
            }
        }
        if end.min(rest.len() - end) < rest.len() / 16 {
            self.patience -= 1;
        }
        list.swap(0, end);
        Some(end)
    }

    /// Some number below `n` (xorshift, Marsaglia 2003).
    fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % n.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plutino_tensor::Scope;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    fn lists() -> [Vec<u32>; 5] {
        let n = 5 * PIECE as u32 + 7;
        let mixed = |i: u32| i.wrapping_mul(2_654_435_761) >> 8;
        [
            (0..n).map(mixed).collect(),
            (0..n).collect(),
            (0..n).rev().collect(),
            vec![7; n as usize],
            (0..n).map(|i| mixed(i) % 3).collect(),
        ]
    }

    #[test]
    fn pieces_give_the_order_of_the_whole() {
        let never = stop::Stop::new(|| false, None);
        let _scope = Scope::current().ended_by(&never).enter();
        for list in lists() {
            let mut expected = list.clone();
            expected.sort_unstable();
            let mut sorted = list.clone();
            sort(&mut sorted, Ord::cmp);
            assert!(sorted == expected);
            for k in [0, 1, PIECE, list.len() / 2, list.len() - 1] {
                let mut selected = list.clone();
                select(&mut selected, k, Ord::cmp);
                let (less, more) = selected.split_at(k);
                assert_eq!(more[0], expected[k]);
                assert!(less.iter().all(|x| *x <= more[0]) && more.iter().all(|x| *x >= more[0]));
                selected.sort_unstable();
                assert!(selected == expected, "elements stay");
            }
        }
    }

    #[test]
    fn a_list_that_is_left_keeps_its_elements() {
        let looks = AtomicUsize::new(0);
        let third = stop::Stop::new(move || looks.fetch_add(1, Relaxed) == 3, None);
        let _scope = Scope::current().ended_by(&third).enter();
        let [list, ..] = lists();
        let mut left = list.clone();
        sort(&mut left, Ord::cmp);
        assert!(!left.is_sorted() && stop::stopped());
        let (mut left, mut list) = (left, list);
        left.sort_unstable();
        list.sort_unstable();
        assert!(left == list);
    }
}

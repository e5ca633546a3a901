//! What the order of a line's elements decides: medians, the k-th elements, modes, quantiles.
//!
//! <https://pytorch.org/docs/stable/generated/torch.median.html>, `kthvalue`, `mode`, `quantile`
//! and their kin. A NaN is greater than every number; equal elements come in their order.
//!
//! Loops: for each line (parallel) - its elements' ranks in scratch memory, sorted, or only divided
//! at one.

use crate::Par;
use crate::extent::elements;
use crate::number::{Float, Ordered, Real};
use crate::par::SharedMut;
use crate::sort::{Ranked, select_ranked, sort_ranked};
use num_traits::One;

/// Elements below which a task is not worth a thread.
const GRAIN: usize = 1 << 12;

/// Which element of a line is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// The lower one of those in the middle: the first NaN where there is one, or as if there were
    /// none.
    Median {
        /// Whether NaN is left out (a line of nothing else yields NaN).
        ignore_nan: bool,
    },
    /// The one with this number in ascending order.
    Kth(usize),
    /// The most frequent, of several the least; the last of those that are equal. Every NaN is
    /// alone.
    Mode,
}

/// How a quantile that lies between two elements is made of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    /// By distance.
    Linear,
    /// The lower one.
    Lower,
    /// The higher one.
    Higher,
    /// The mean of both.
    Midpoint,
    /// The nearer one; in the middle, the one with the even number.
    Nearest,
}

/// How much scratch memory [`pick`] and [`quantiles`] need for lines of `len` elements.
pub fn scratch_len(len: usize, threads: usize) -> usize {
    len.saturating_mul(threads.max(1))
}

/// One line: its elements by number.
struct Line<'a, T> {
    input: &'a [T],
    start: usize,
    step: usize,
    len: usize,
}

impl<T: Ordered> Line<'_, T> {
    #[inline(always)]
    fn at(&self, l: usize) -> T {
        self.input[self.start + l * self.step]
    }

    /// The elements as they stand.
    fn rank(&self, order: &mut [Ranked]) {
        order.iter_mut().enumerate().for_each(|(l, o)| *o = Ranked::new(self.at(l).rank(), l));
    }

    /// The elements in the order of their values.
    fn sort(&self, order: &mut [Ranked]) {
        self.rank(order);
        sort_ranked(order);
    }

    /// The number of the element that is the `k`-th in the order of values.
    fn kth(&self, k: usize, order: &mut [Ranked]) -> usize {
        self.rank(order);
        select_ranked(order, k);
        order[k].at()
    }

    fn pick(&self, what: Pick, order: &mut [Ranked]) -> usize {
        match what {
            Pick::Kth(k) => self.kth(k, order),
            Pick::Median { ignore_nan } => {
                let mut nan = (0..self.len).filter(|&l| self.at(l).is_nan());
                let numbers = match nan.next() {
                    Some(first) if !ignore_nan => return first,
                    None => self.len,
                    Some(_) => self.len - 1 - nan.count(),
                };
                self.kth(numbers.saturating_sub(1) / 2, order)
            }
            Pick::Mode => {
                self.sort(order);
                let (mut best, mut most, mut run) = (0, 0, 0);
                for (i, l) in order.iter().map(|element| element.at()).enumerate() {
                    run += 1;
                    let differs = |next: &Ranked| self.at(next.at()) != self.at(l);
                    let ends = order.get(i + 1).is_none_or(differs);
                    if ends && run > most {
                        (best, most) = (l, run);
                    }
                    run = if ends { 0 } else { run };
                }
                best
            }
        }
    }
}

/// Calls `each` with the number of every line of `[outer, len, inner]`, the line, and scratch
/// memory for an order.
fn lines<T: Ordered>(
    par: &Par,
    [outer, len, inner]: [usize; 3],
    input: &[T],
    scratch: &mut [Ranked],
    each: impl Fn(usize, &Line<'_, T>, &mut [Ranked]) + Sync,
) {
    assert_eq!(Some(input.len()), elements([outer, len, inner]), "input of a choice by order");
    assert!(
        scratch.len() >= scratch_len(len, par.threads()),
        "scratch memory of a choice by order"
    );
    let scratch = SharedMut::new(scratch);
    par.split_as(outer * inner, GRAIN / len.max(1), |worker, range| {
        // SAFETY: every worker has a part of its own.
        let order = unsafe { scratch.slice(worker * len..(worker + 1) * len) };
        for k in range {
            let start = (k / inner) * len * inner + k % inner;
            each(k, &Line { input, start, step: inner, len }, order);
        }
    });
}

/// Writes value and number (where that is asked for) of the chosen element of each line of `[outer,
/// len, inner]`, `len` > 0.
///
/// # Panics
/// Where a slice is not as long as the sizes (and [`scratch_len`]) say, or a line has no such
/// element.
pub fn pick<T: Ordered>(
    par: &Par,
    what: Pick,
    sizes: [usize; 3],
    input: &[T],
    values: &mut [T],
    indices: Option<&mut [i64]>,
    scratch: &mut [Ranked],
) {
    let count = sizes[0] * sizes[2];
    assert_eq!(values.len(), count, "values of a choice");
    assert!(indices.as_ref().is_none_or(|i| i.len() == count), "positions of a choice");
    let (values, indices) = (SharedMut::new(values), indices.map(SharedMut::new));
    lines(par, sizes, input, scratch, |k, line, order| {
        let chosen = line.pick(what, order);
        // SAFETY: each line is handed out once.
        unsafe {
            values.slice(k..k + 1)[0] = line.at(chosen);
            if let Some(indices) = &indices {
                indices.slice(k..k + 1)[0] = chosen as i64;
            }
        }
    });
}

/// Writes the quantiles `q` (each in 0..=1) of each line of `[outer, len, inner]`, `len` > 0, to
/// `[q, outer, inner]`. A line with a NaN has none but NaN, unless they are ignored.
///
/// # Panics
/// Where a slice is not as long as the sizes (and [`scratch_len`]) say.
#[allow(clippy::too_many_arguments)]
pub fn quantiles<T: Float>(
    par: &Par,
    q: &[f64],
    between: Between,
    ignore_nan: bool,
    sizes: [usize; 3],
    input: &[T],
    output: &mut [T],
    scratch: &mut [Ranked],
) {
    let count = sizes[0].saturating_mul(sizes[2]);
    assert_eq!(Some(output.len()), elements([q.len(), sizes[0], sizes[2]]), "quantiles");
    let output = SharedMut::new(output);
    lines(par, sizes, input, scratch, |k, line, order| {
        line.sort(order);
        let numbers = order.partition_point(|l| !line.at(l.at()).is_nan());
        let known = numbers == line.len || (ignore_nan && numbers > 0);
        for (i, &q) in q.iter().enumerate() {
            let y = if known {
                T::from_real(quantile(line, &order[..numbers], T::Real::nearest(q), between))
            } else {
                T::narrow(f64::NAN)
            };
            // SAFETY: each line is handed out once.
            unsafe { output.slice(i * count + k..i * count + k + 1)[0] = y };
        }
    });
}

/// One quantile of sorted numbers, in PyTorch's precision: its place is found in f64, from a `q` of
/// the dtype, and what lies between two numbers in the dtype.
fn quantile<T: Float>(
    line: &Line<'_, T>,
    order: &[Ranked],
    q: T::Real,
    between: Between,
) -> T::Real {
    let rank = q.wide() * (order.len() - 1) as f64;
    let at = |rank: f64| line.at(order[(rank as usize).min(order.len() - 1)].at()).to_real();
    let (below, above) = (rank.floor(), rank.ceil());
    let (half, one) = (T::Real::nearest(0.5), T::Real::one());
    let weight = match between {
        Between::Lower => return at(below),
        Between::Higher => return at(above),
        Between::Nearest => return at(rank.round_ties_even()),
        Between::Midpoint => half,
        Between::Linear => T::Real::nearest(rank - below),
    };
    // From the nearer end, as `torch.lerp`.
    let (low, high) = (at(below), at(above));
    if weight < half { low + weight * (high - low) } else { high - (high - low) * (one - weight) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;
    use bytemuck::Zeroable;
    use plutino_reference::testkit::random;

    fn picked<T: Ordered>(what: Pick, line: &[T]) -> (T, i64) {
        let (mut value, mut index) = ([line[0]], [0]);
        let mut scratch = vec![Ranked::zeroed(); line.len()];
        let sizes = [1, line.len(), 1];
        pick(&Par::serial(), what, sizes, line, &mut value, Some(&mut index), &mut scratch);
        (value[0], index[0])
    }

    #[test]
    fn lines_of_any_stride_on_any_number_of_threads() {
        let (outer, len, inner) = (3, 41, 70);
        let input = random(outer * len * inner, 1);
        for threads in [1, 3] {
            let (mut values, mut indices) = (vec![0.0; outer * inner], vec![0; outer * inner]);
            let mut scratch = vec![Ranked::zeroed(); scratch_len(len, threads)];
            let sizes = [outer, len, inner];
            Pool::new(threads).enter(|par| {
                let what = Pick::Kth(5);
                pick(par, what, sizes, &input, &mut values, Some(&mut indices), &mut scratch);
            });
            for k in 0..outer * inner {
                let at = |l: usize| input[(k / inner * len + l) * inner + k % inner];
                let mut all: Vec<f32> = (0..len).map(at).collect();
                all.sort_by(f32::total_cmp);
                assert_eq!((values[k], at(indices[k] as usize)), (all[5], all[5]));
            }
        }
    }

    #[test]
    fn medians_and_modes() {
        let (nan, median) = (f32::NAN, |ignore_nan| Pick::Median { ignore_nan });
        assert_eq!(picked(median(false), &[3, 1, 2, 4]), (2, 2));
        assert_eq!(picked(median(false), &[true]), (true, 0));
        assert_eq!(picked(median(false), &[2.0, nan, 1.0, nan]).1, 1);
        assert_eq!(picked(median(true), &[2.0, nan, 1.0, nan]), (1.0, 2));
        assert!(picked(median(true), &[nan, nan]).0.is_nan());
        assert_eq!(picked(Pick::Mode, &[5, 2, 5, 2, 7]), (2, 3));
        assert_eq!(picked(Pick::Mode, &[nan, nan, 3.0]), (3.0, 2));
    }

    #[test]
    fn quantiles_between_elements() {
        let of = |q: f64, between, ignore_nan, line: &[f64]| {
            let (mut y, mut scratch) = ([0.0], vec![Ranked::zeroed(); line.len()]);
            let sizes = [1, line.len(), 1];
            let (par, q) = (Par::serial(), [q]);
            quantiles(&par, &q, between, ignore_nan, sizes, line, &mut y, &mut scratch);
            y[0]
        };
        let line = [4.0, 1.0, 3.0, 2.0];
        for (between, expected) in [
            (Between::Linear, 1.75),
            (Between::Lower, 1.0),
            (Between::Higher, 2.0),
            (Between::Midpoint, 1.5),
            (Between::Nearest, 2.0),
        ] {
            assert_eq!(of(0.25, between, false, &line), expected);
            assert_eq!(of(1.0, between, false, &line), 4.0);
        }
        // Ranks 0.5 and 1.5: to the even one.
        assert_eq!(of(0.5, Between::Nearest, false, &line[..2]), 1.0);
        let line = [f64::NAN, 1.0, 3.0];
        assert!(of(0.5, Between::Linear, false, &line).is_nan());
        assert_eq!(of(0.5, Between::Linear, true, &line), 2.0);
        assert!(of(0.5, Between::Linear, true, &line[..1]).is_nan());
    }
}

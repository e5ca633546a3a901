//! The k greatest or least elements of each line, in order.
//!
//! <https://pytorch.org/docs/stable/generated/torch.topk.html>. A NaN is greater than every number;
//! of equal elements the first ones are taken, in their order.
//!
//! Loops: for each line (parallel) - each element that comes before the k-th of those so far. Of
//! these candidates, whenever there are many, the k-th is selected (in linear time) and those
//! behind it are dropped; the k that are left are sorted.

use crate::Par;
use crate::extent::elements;
use crate::number::Ordered;
use crate::par::{Refusal, SharedMut};
use crate::sort::{Ranked, select_ranked, sort_ranked};
use plutino_tensor::{TensorError, alloc, stop};

/// Elements below which a task is not worth a thread.
const GRAIN: usize = 1 << 12;

/// Neighbours that are left out together where none comes before the k-th so far.
const NEIGHBOURS: usize = 64;

/// Elements between two looks at the signal to stop.
const PART: usize = 1 << 16;

/// Writes values and indices of the first `k` elements of each line of `[outer, len, inner]`, the
/// greatest (or the least) first, to outputs of `[outer, k, inner]`.
///
/// # Errors
/// Where a task finds no memory for the order of a line.
///
/// # Panics
/// Where a slice is not as long as the sizes say, or `k` exceeds `len`.
pub fn topk<T: Ordered>(
    par: &Par,
    [outer, len, inner]: [usize; 3],
    k: usize,
    largest: bool,
    input: &[T],
    values: &mut [T],
    indices: &mut [i64],
) -> Result<(), TensorError> {
    assert!(k <= len, "k of a top-k");
    assert_eq!(Some(input.len()), elements([outer, len, inner]), "input of a top-k");
    assert_eq!(Some(values.len()), elements([outer, k, inner]), "values of a top-k");
    assert_eq!(indices.len(), values.len(), "indices of a top-k");
    if k == 0 {
        return Ok(());
    }
    let (values, indices) = (SharedMut::new(values), SharedMut::new(indices));
    let refusal = Refusal::default();
    // Candidates at a time: so many that selecting among them is little beside finding them.
    let most = k.saturating_mul(4).clamp(128, len.max(128));
    par.split(outer * inner, GRAIN / len, |lines| {
        let Some(mut order) = refusal.of(alloc::list::<Ranked>(most)) else { return };
        for line in lines {
            let (o, i) = (line / inner, line % inner);
            let at = |l: usize| input[(o * len + l) * inner + i];
            let turned = if largest { u64::MAX } else { 0 };
            order.clear();
            // The k-th so far, and its rank: of its equals the first ones are there already.
            let (mut bound, mut limit) = (None, u64::MAX);
            let mut consider = |l: usize, x: T, bound: &mut Option<T>| {
                let rank = x.rank() ^ turned;
                if rank < limit || order.len() < k {
                    order.push(Ranked::new(rank, l));
                    if order.len() == most {
                        select_ranked(&mut order, k - 1);
                        order.truncate(k);
                        limit = order[k - 1].rank();
                        *bound = Some(at(order[k - 1].at()));
                    }
                }
            };
            for part in stop::parts(0..len, PART) {
                if inner > 1 {
                    part.for_each(|l| consider(l, at(l), &mut bound));
                    continue;
                }
                let mut first = part.start;
                for some in input[o * len..][part].chunks(NEIGHBOURS) {
                    if bound.is_none_or(|bound| some_before(some, bound, largest)) {
                        let all = (first..).zip(some);
                        all.for_each(|(l, &x)| consider(l, x, &mut bound));
                    }
                    first += some.len();
                }
            }
            if order.len() < k {
                return; // the work is to end
            }
            if k < order.len() {
                select_ranked(&mut order, k - 1);
            }
            sort_ranked(&mut order[..k]);
            // All over the line: 10^7 elements take longer than a cancelled run may.
            for part in stop::parts(0..k, PART) {
                for (n, l) in part.clone().zip(order[part].iter().map(|element| element.at())) {
                    let to = (o * k + n) * inner + i;
                    // SAFETY: lines have disjoint outputs, and each is written by one task.
                    unsafe {
                        values.slice(to..to + 1)[0] = at(l);
                        indices.slice(to..to + 1)[0] = l as i64;
                    }
                }
            }
        }
    });
    refusal.outcome()
}

/// Whether any element may come before `bound`; where one is NaN, it may.
#[inline(always)]
fn some_before<T: Ordered>(elements: &[T], bound: T, largest: bool) -> bool {
    if largest {
        !elements.iter().fold(true, |none, &x| none & (x <= bound))
    } else {
        !elements.iter().fold(true, |none, &x| none & (x >= bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;
    use plutino_reference::testkit::random;
    use plutino_tensor::Scope;
    use plutino_tensor::stop::Stop;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Whoever cancels a sort need not wait until its elements were gathered from all over a line.
    #[test]
    fn nothing_is_gathered_once_the_work_is_to_end() {
        let n = 1 << 18;
        let input = random(n, 3);
        let (mut values, mut indices) = (vec![7.0; n], vec![7; n]);
        let looks = AtomicUsize::new(0);
        let stop = Stop::new(move || looks.fetch_add(1, Relaxed) > 12, None);
        let _scope = Scope::current().ended_by(&stop).enter();
        Pool::new(1).enter(|par| {
            topk(par, [1, n, 1], n, true, &input, &mut values, &mut indices).unwrap();
        });
        assert!(stop.seen().is_some(), "the sort takes more looks than that");
        assert!(values.iter().all(|&v| v == 7.0) && indices.iter().all(|&i| i == 7));
    }

    #[test]
    fn lines_are_sorted() {
        let (outer, len, inner) = (3, 50, 70);
        let input = random(outer * len * inner, 1);
        for (k, largest) in [(1, true), (7, true), (50, true), (7, false), (0, true)] {
            for threads in [1, 3] {
                let (mut values, mut indices) =
                    (vec![0.0; outer * k * inner], vec![0; outer * k * inner]);
                Pool::new(threads).enter(|par| {
                    topk(par, [outer, len, inner], k, largest, &input, &mut values, &mut indices)
                        .unwrap();
                });
                for o in 0..outer {
                    for i in 0..inner {
                        let at = |l: usize| input[(o * len + l) * inner + i];
                        let mut all: Vec<f32> = (0..len).map(at).collect();
                        all.sort_by(f32::total_cmp);
                        if largest {
                            all.reverse();
                        }
                        for (n, &expected) in all[..k].iter().enumerate() {
                            let found = (o * k + n) * inner + i;
                            assert_eq!(values[found], expected);
                            assert_eq!(at(indices[found] as usize), expected);
                        }
                    }
                }
            }
        }
    }

    /// Candidates are dropped again and again, in lines that rise, fall, or have few values.
    #[test]
    fn of_many_few_are_taken() {
        let n = 20_000;
        let lines: [Vec<f32>; 5] = [
            random(n, 5),
            (0..n).map(|i| i as f32).collect(),
            (0..n).map(|i| -(i as f32)).collect(),
            random(n, 6).iter().map(|x| (x * 3.0).round()).collect(),
            random(n, 7).iter().map(|&x| if x > 0.2 { f32::NAN } else { x }).collect(),
        ];
        for (k, largest) in [(1, true), (10, true), (40, false), (3000, true), (7000, false)] {
            for line in &lines {
                let (mut values, mut indices) = (vec![0.0; k], vec![0; k]);
                let par = Par::serial();
                topk(&par, [1, n, 1], k, largest, line, &mut values, &mut indices).unwrap();
                let mut all: Vec<usize> = (0..n).collect();
                let turned = if largest { u64::MAX } else { 0 };
                all.sort_by_key(|&l| line[l].rank() ^ turned);
                assert!(all[..k].iter().zip(&indices).all(|(&a, &b)| a as i64 == b), "{k}");
                assert!(
                    indices
                        .iter()
                        .zip(&values)
                        .all(|(&i, v)| { v.to_bits() == line[i as usize].to_bits() })
                );
            }
        }
    }

    #[test]
    fn nan_is_greatest_and_the_first_of_equals_wins() {
        let input = [1.0, f32::NAN, 3.0, 3.0, f32::NAN, -1.0];
        let (mut values, mut indices) = ([0.0; 3], [0; 3]);
        let par = Par::serial();
        topk(&par, [1, 6, 1], 3, true, &input, &mut values, &mut indices).unwrap();
        assert_eq!((indices, values[2]), ([1, 4, 2], 3.0));
        topk(&par, [1, 6, 1], 3, false, &input, &mut values, &mut indices).unwrap();
        assert_eq!((indices, values), ([5, 0, 2], [-1.0, 1.0, 3.0]));
    }
}

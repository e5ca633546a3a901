//! How far sizes reach that come from a caller: kernels write through pointers once the lengths of
//! slices are held against them, so that no product may wrap, and no element have two places.

/// Elements of these sizes together; none where no slice has as many, so that
/// `Some(x.len()) == elements([m, n])` holds for a slice of m x n elements and no other.
pub fn elements(sizes: impl IntoIterator<Item = usize>) -> Option<usize> {
    let mut sizes = sizes.into_iter();
    let all = sizes.try_fold((1, false), |(n, zero): (usize, bool), size| match size {
        0 => Some((n, true)),
        size => Some((n.checked_mul(size)?, zero)),
    });
    all.map(|(n, zero)| if zero { 0 } else { n })
}

/// One past the last element of runs of `run` elements that lie at all sums of multiples of these
/// dimensions' distances (length, distance), each multiple less than the length; none where two
/// runs may share an element: each distance must be at least what all smaller ones reach together.
/// Sorts the dimensions.
pub fn disjoint(dims: &mut [(usize, usize)], run: usize) -> Option<usize> {
    dims.sort_unstable_by_key(|&(_, distance)| distance);
    if run == 0 || dims.iter().any(|&(len, _)| len == 0) {
        return Some(0);
    }
    dims.iter().filter(|&&(len, _)| len > 1).try_fold(run, |reach, &(len, distance)| {
        let last = (len - 1).checked_mul(distance)?;
        (distance >= reach).then(|| last.checked_add(reach))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn products_do_not_wrap() {
        assert_eq!(elements([]), Some(1));
        assert_eq!(elements([3, 0, 5]), Some(0));
        assert_eq!(elements([1 << 40, 1 << 24]), None);
        assert_eq!(elements([1 << 40, 1 << 40, 0]), None); // whatever the order, the same
        assert_eq!(elements([0, 1 << 40, 1 << 40]), None);
    }

    #[test]
    fn one_place_for_each_element() {
        assert_eq!(disjoint(&mut [(2, 12), (3, 4), (4, 1)], 1), Some(24));
        assert_eq!(disjoint(&mut [(4, 1), (3, 4), (2, 12)], 1), Some(24)); // in any order
        assert_eq!(disjoint(&mut [(2, 10), (3, 3)], 4), None);
        assert_eq!(disjoint(&mut [(2, 0)], 1), None);
        assert_eq!(disjoint(&mut [(1, 0), (2, 8)], 4), Some(12));
        assert_eq!(disjoint(&mut [(0, 0), (2, 0)], 1), Some(0));
        assert_eq!(disjoint(&mut [(3, usize::MAX / 2), (3, 1)], 1), None);
    }

    proptest! {
        #[test]
        fn what_is_disjoint_is(dims in prop::collection::vec((0usize..5, 0usize..40), 0..4), run in 0usize..5) {
            let mut places = vec![0];
            for &(len, distance) in &dims {
                places = (0..len).flat_map(|i| places.iter().map(move |p| p + i * distance)).collect();
            }
            let all: Vec<usize> = places.iter().flat_map(|p| *p..p + run).collect();
            if let Some(end) = disjoint(&mut dims.clone(), run) {
                prop_assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
                prop_assert_eq!(end, all.iter().max().map_or(0, |last| last + 1));
            }
        }
    }
}

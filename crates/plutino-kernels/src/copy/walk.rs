//! The odometer of a loop nest: positions of several operands, from any starting point.

use smallvec::SmallVec;

/// Walks the indices of `lens` in row-major order and keeps the positions of `K` operands, which
/// move by `steps[k]` where index `k` goes up by one.
///
/// Positions wrap: whoever uses them checks the range of each operand beforehand.
#[derive(Debug, Clone)]
pub(crate) struct Walk<'a, const K: usize> {
    lens: &'a [usize],
    steps: &'a [[isize; K]],
    index: SmallVec<[usize; 6]>,
    at: [usize; K],
}

impl<'a, const K: usize> Walk<'a, K> {
    /// Starts at row-major index `first`, from positions `origin` of index 0.
    pub(crate) fn new(
        lens: &'a [usize],
        steps: &'a [[isize; K]],
        origin: [usize; K],
        first: usize,
    ) -> Self {
        let (mut index, mut at, mut left) = (SmallVec::from_elem(0, lens.len()), origin, first);
        for (d, &len) in lens.iter().enumerate().rev() {
            let i = left % len.max(1);
            left /= len.max(1);
            index[d] = i;
            for (at, step) in at.iter_mut().zip(&steps[d]) {
                *at = at.wrapping_add_signed(step.wrapping_mul(i as isize));
            }
        }
        Self { lens, steps, index, at }
    }

    /// Positions of the current index.
    pub(crate) fn at(&self) -> [usize; K] {
        self.at
    }

    /// The index in dimension `d`.
    pub(crate) fn index(&self, d: usize) -> usize {
        self.index[d]
    }

    /// Goes to the next index; after the last one, back to the first.
    pub(crate) fn advance(&mut self) {
        for (d, i) in self.index.iter_mut().enumerate().rev() {
            *i += 1;
            for (at, step) in self.at.iter_mut().zip(&self.steps[d]) {
                *at = at.wrapping_add_signed(*step);
            }
            if *i < self.lens[d] {
                return;
            }
            for (at, step) in self.at.iter_mut().zip(&self.steps[d]) {
                *at = at.wrapping_add_signed(step.wrapping_mul(*i as isize).wrapping_neg());
            }
            *i = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_start_gives_the_same_walk() {
        let (lens, steps) = ([2, 3, 4], [[12, -1], [4, 0], [1, 7]]);
        let mut walk = Walk::new(&lens, &steps, [0, 100], 0);
        for first in 0..24 {
            let other = Walk::new(&lens, &steps, [0, 100], first);
            assert_eq!((walk.at(), walk.index(2)), (other.at(), other.index(2)));
            assert_eq!(walk.at()[0], first);
            walk.advance();
        }
        assert_eq!(walk.at(), [0, 100]);
    }
}

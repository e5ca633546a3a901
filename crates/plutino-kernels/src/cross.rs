//! The cross product of vectors of three elements.
//!
//! `y = (a1 b2 - a2 b1, a2 b0 - a0 b2, a0 b1 - a1 b0)`
//! (<https://pytorch.org/docs/stable/generated/torch.linalg.cross.html>).
//!
//! Loops: for each vector (parallel) - its three elements. Products and their difference are taken
//! in the wide type and rounded once.

use crate::Par;
use crate::copy::Walk;
use crate::extent::disjoint;
use crate::number::{Number, Wide};
use crate::par::SharedMut;

/// Vectors below which a task is not worth a thread.
const GRAIN: usize = 1 << 12;

/// Where the vectors lie. Strides count elements; an operand that is broadcast has strides of 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vectors {
    /// Number of vectors in each dimension.
    pub lens: Vec<usize>,
    /// Distances of the vectors of a, b and y in each dimension.
    pub steps: Vec<[isize; 3]>,
    /// Distances of the three elements of a vector of a, b and y.
    pub inner: [usize; 3],
}

/// Computes the cross products of the vectors of `a` and `b`.
///
/// # Panics
/// Where a vector lies outside its slice, two of the output may overlap, or `lens` and `steps` are
/// of different length.
pub fn cross<T: Number>(par: &Par, vectors: &Vectors, a: &[T], b: &[T], y: &mut [T]) {
    let Vectors { lens, steps, inner } = vectors;
    assert_eq!(lens.len(), steps.len(), "dimensions of a cross product");
    let mut dims: Vec<_> = lens.iter().zip(steps).map(|(n, s)| (*n, s[2].unsigned_abs())).collect();
    dims.push((3, inner[2]));
    assert!(disjoint(&mut dims, 1).is_some(), "the vectors of a cross product overlap");
    let count = lens.iter().product(); // of elements that all have places of their own
    assert!(y.len() / 3 >= count, "output of a cross product");
    let y = SharedMut::new(y);
    par.split(count, GRAIN, |range| {
        let mut walk = Walk::new(lens, steps, [0; 3], range.start);
        for _ in range {
            let [at_a, at_b, at_y] = walk.at();
            let a = [0, 1, 2].map(|i| a[at_a + i * inner[0]].widen());
            let b = [0, 1, 2].map(|i| b[at_b + i * inner[1]].widen());
            for i in 0..3 {
                let (j, k) = ((i + 1) % 3, (i + 2) % 3);
                let at = at_y + i * inner[2];
                // SAFETY: no two elements of the output have the same place (asserted), and `slice`
                // checks that the element lies inside.
                let y = unsafe { y.slice(at..at + 1) };
                y[0] = T::narrow(a[j].times(b[k]).minus(a[k].times(b[j])));
            }
            walk.advance();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;
    use plutino_reference::testkit::random;

    #[test]
    fn the_product_is_orthogonal_and_follows_the_right_hand() {
        let vectors = |n| Vectors { lens: vec![n], steps: vec![[3; 3]], inner: [1; 3] };
        let mut y = [0i32; 9];
        let axes = [1, 0, 0, 0, 1, 0, 0, 0, 1];
        let next = [0, 1, 0, 0, 0, 1, 1, 0, 0];
        cross(&Par::serial(), &vectors(3), &axes, &next, &mut y);
        assert_eq!(y, [0, 0, 1, 1, 0, 0, 0, 1, 0]);
        let n = 10_000;
        let wide = |seed| random(3 * n, seed).into_iter().map(f64::from).collect::<Vec<_>>();
        let (a, b) = (wide(1), wide(2));
        for threads in [1, 3] {
            let mut y = vec![0.0; 3 * n];
            Pool::new(threads).enter(|par| cross(par, &vectors(n), &a, &b, &mut y));
            for ((a, b), y) in a.chunks(3).zip(b.chunks(3)).zip(y.chunks(3)) {
                let dot = |v: &[f64]| v.iter().zip(y).map(|(v, y)| v * y).sum::<f64>();
                // Six products below 1, each rounded twice.
                assert!(dot(a).abs() < 12.0 * f64::EPSILON && dot(b).abs() < 12.0 * f64::EPSILON);
            }
        }
    }

    #[test]
    #[should_panic(expected = "overlap")]
    fn vectors_with_one_place_are_refused() {
        let vectors = Vectors { lens: vec![2], steps: vec![[3, 3, 0]], inner: [1; 3] };
        cross(&Par::serial(), &vectors, &[0.0f32; 6], &[0.0; 6], &mut [0.0; 6]);
    }

    #[test]
    fn vectors_may_lie_anywhere() {
        // One vector against the columns of a matrix.
        let vectors = Vectors { lens: vec![2], steps: vec![[0, 1, 1]], inner: [1, 2, 2] };
        let mut y = [0.0f32; 6];
        cross(&Par::serial(), &vectors, &[1.0, 2.0, 3.0], &[4.0, 1.0, 5.0, 2.0, 6.0, 3.0], &mut y);
        assert_eq!(y, [-3.0, 0.0, 6.0, 0.0, -3.0, 0.0]);
    }
}

//! Distances of vectors: the p-norm of their difference.
//!
//! `y = norm_p(a - b + eps)`
//! (<https://pytorch.org/docs/stable/generated/torch.nn.PairwiseDistance.html>).
//!
//! Loops: for each pair (parallel) - its elements. Differences and sums are taken in f64, of
//! integers exactly.

use crate::Par;
use crate::copy::Walk;
use crate::number::{Number, Wide};

/// Elements below which a task is not worth a thread.
const GRAIN: usize = 1 << 13;

/// Where the vectors lie. Strides count elements; an operand that is broadcast has strides of 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pairs {
    /// Number of pairs in each dimension.
    pub lens: Vec<usize>,
    /// Distances of the vectors of a and b in each dimension.
    pub steps: Vec<[isize; 2]>,
    /// Elements of a vector.
    pub len: usize,
    /// Distances of the elements of a vector of a and b.
    pub inner: [usize; 2],
}

/// What is added up of the differences, and what is made of the sum.
#[derive(Debug, Clone, Copy)]
struct Norm {
    p: f64,
}

impl Norm {
    /// The norm of nothing.
    fn empty(self) -> f64 {
        if self.p == f64::NEG_INFINITY { f64::INFINITY } else { 0.0 }
    }

    fn add(self, sum: f64, x: f64) -> f64 {
        match self.p {
            0.0 => sum + f64::from(x != 0.0),
            1.0 => sum + x,
            2.0 => sum + x * x,
            // NaN wins.
            f64::INFINITY => {
                if x > sum || x.is_nan() {
                    x
                } else {
                    sum
                }
            }
            f64::NEG_INFINITY => {
                if x < sum || x.is_nan() {
                    x
                } else {
                    sum
                }
            }
            p => sum + x.powf(p),
        }
    }

    fn finish(self, sum: f64) -> f64 {
        match self.p {
            0.0 | 1.0 | f64::INFINITY | f64::NEG_INFINITY => sum,
            2.0 => sum.sqrt(),
            p => sum.powf(1.0 / p),
        }
    }
}

/// Computes the distances of the pairs, into a dense output.
///
/// # Panics
/// Where a vector lies outside its slice, `lens` and `steps` are of different length, or the output
/// has not one element for each pair.
pub fn distance<T: Number, U: Number<Wide = f64>>(
    par: &Par,
    pairs: &Pairs,
    p: f64,
    eps: f64,
    a: &[T],
    b: &[T],
    y: &mut [U],
) {
    let Pairs { lens, steps, len, inner } = pairs;
    assert_eq!(lens.len(), steps.len(), "dimensions of a distance");
    assert_eq!(y.len(), lens.iter().product::<usize>(), "output of a distance");
    let (norm, grain) = (Norm { p }, (GRAIN / (*len).max(1)).max(1));
    par.chunks_mut(y, grain, |task, y| {
        let mut walk = Walk::new(lens, steps, [0; 2], task * grain);
        for y in y {
            let [at_a, at_b] = walk.at();
            let mut sum = norm.empty();
            for i in 0..*len {
                let (a, b) = (a[at_a + i * inner[0]].widen(), b[at_b + i * inner[1]].widen());
                let d = a.minus(b).to_complex() + eps;
                sum = norm.add(sum, if d.im == 0.0 { d.re.abs() } else { d.norm() });
            }
            *y = U::narrow(norm.finish(sum));
            walk.advance();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::Complex;
    use plutino_reference::distance::distance as reference;
    use plutino_reference::testkit::{assert_close, on_every_machine, random};

    #[test]
    fn agrees_with_the_reference() {
        for (n, len) in [(1, 1), (3, 7), (2000, 9), (2, 0)] {
            let (a, b) = (random(n * len, 1), random(n * len, 2));
            let pairs = Pairs { lens: vec![n], steps: vec![[len as isize; 2]], len, inner: [1; 2] };
            for p in [0.0, 0.5, 1.0, 2.0, 3.0, f64::INFINITY, f64::NEG_INFINITY] {
                let expected = reference(p, 1e-3, [n, len], &a, &b);
                on_every_machine(
                    |_, par| {
                        let mut y = vec![f32::NAN; n];
                        distance(par, &pairs, p, 1e-3, &a, &b, &mut y);
                        y
                    },
                    // Rounded once, from f64.
                    |found| {
                        assert_close(found, &expected, |i| {
                            f64::from(f32::EPSILON) * expected[i].abs()
                        })
                    },
                );
            }
        }
    }

    #[test]
    fn broadcast_nan_and_complex_numbers() {
        let par = Par::serial();
        let one = Pairs { lens: vec![2], steps: vec![[0, 1]], len: 1, inner: [0; 2] };
        let mut y = [0.0f32; 2];
        distance(&par, &one, f64::INFINITY, 0.0, &[3], &[1, 7], &mut y);
        assert_eq!(y, [2.0, 4.0]);
        distance(&par, &one, f64::INFINITY, 0.0, &[0.0], &[f64::NAN, 7.0], &mut y);
        assert!(y[0].is_nan() && y[1] == 7.0);
        let z = [Complex::new(3.0f32, 4.0), Complex::new(0.0, 0.0)];
        distance(&par, &one, 2.0, 0.0, &[Complex::new(0.0, 0.0)], &z, &mut y);
        assert_eq!(y, [5.0, 0.0]);
    }
}

//! Distances of vectors: the p-norm of their difference.
//!
//! `y = norm_p(a - b + eps)`
//! (<https://pytorch.org/docs/stable/generated/torch.nn.PairwiseDistance.html>).
//!
//! Loops: for each pair (parallel) - its elements. Of f32 that are neighbours, sums, sums of
//! squares and greatest differences are taken in vectors of f32, as PyTorch does. Else differences
//! are rounded to the dtype (those of integers wrap), sums are taken in f64.

use crate::copy::Walk;
use crate::number::{Number, Wide};
use crate::simd::{Simd, Vectorized};
use crate::{Isa, Par};
use plutino_tensor::DType;

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

/// A norm whose terms are found in vectors of f32.
trait Terms {
    /// With one more difference, none of which is negative.
    fn add<S: Simd>(s: S, sum: S::F32, difference: S::F32) -> S::F32;
    /// Of all lanes of two sums.
    fn join<S: Simd>(s: S, sums: [S::F32; 2]) -> f32;
}

/// p = 1
struct Sum;
/// p = 2, without the root
struct Squares;
/// p = inf
struct Greatest;

impl Terms for Sum {
    #[inline(always)]
    fn add<S: Simd>(s: S, sum: S::F32, difference: S::F32) -> S::F32 {
        s.add(sum, difference)
    }
    #[inline(always)]
    fn join<S: Simd>(s: S, [x, y]: [S::F32; 2]) -> f32 {
        s.sum(s.add(x, y))
    }
}

impl Terms for Squares {
    #[inline(always)]
    fn add<S: Simd>(s: S, sum: S::F32, difference: S::F32) -> S::F32 {
        s.fma(difference, difference, sum)
    }
    #[inline(always)]
    fn join<S: Simd>(s: S, sums: [S::F32; 2]) -> f32 {
        Sum::join(s, sums)
    }
}

impl Terms for Greatest {
    #[inline(always)]
    fn add<S: Simd>(s: S, sum: S::F32, difference: S::F32) -> S::F32 {
        // NaN wins: max yields its second operand where either is NaN.
        s.select(s.eq(sum, sum), s.max(sum, difference), sum)
    }
    #[inline(always)]
    fn join<S: Simd>(s: S, [x, y]: [S::F32; 2]) -> f32 {
        // A sum is NaN where any lane is; none is negative.
        let nan = s.sum(s.select(s.eq(x, x), s.select(s.eq(y, y), s.zero(), y), x));
        if nan.is_nan() { nan } else { s.max_lane(s.max(x, y)) }
    }
}

/// Pairs whose sums are kept until they become distances.
const SUMS: usize = 64;

/// Sums of pairs of vectors of neighbours, none of nothing.
struct InVectors<'a, 'w> {
    p: f64,
    eps: f32,
    len: usize,
    a: &'a [f32],
    b: &'a [f32],
    walk: &'a mut Walk<'w, 2>,
    sums: &'a mut [f32],
}

impl InVectors<'_, '_> {
    /// Whether these are right for the norm.
    fn suits(p: f64) -> bool {
        matches!(p, 1.0 | 2.0 | f64::INFINITY)
    }

    #[inline(never)] // compiled here, where vectors are optimised, and not with its callers
    fn compute(self, isa: Isa) {
        isa.run(self);
    }

    /// The differences of the first elements.
    #[inline(always)]
    fn apart<S: Simd>(s: S, eps: S::F32, a: &[f32], b: &[f32]) -> S::F32 {
        s.abs(s.add(s.sub(s.load(a), s.load(b)), eps))
    }

    /// Those of the first `n`, and zeros.
    #[inline(always)]
    fn apart_up_to<S: Simd>(s: S, eps: S::F32, a: &[f32], b: &[f32], n: usize) -> S::F32 {
        let d = s.sub(s.load_up_to(a, n), s.load_up_to(b, n));
        s.first(s.abs(s.add(d, eps)), n, 0.0)
    }

    #[inline(always)]
    fn with<S: Simd, T: Terms>(self, s: S) {
        let Self { eps, len, a, b, walk, sums, .. } = self;
        let eps = s.splat(eps);
        for sum in sums {
            let [at_a, at_b] = walk.at();
            let (a, b) = (&a[at_a..at_a + len], &b[at_b..at_b + len]);
            let mut parts = [s.zero(); 2];
            let whole = len - len % (2 * S::LANES);
            for at in (0..whole).step_by(2 * S::LANES) {
                let next = at + S::LANES;
                parts[0] = T::add(s, parts[0], Self::apart(s, eps, &a[at..], &b[at..]));
                parts[1] = T::add(s, parts[1], Self::apart(s, eps, &a[next..], &b[next..]));
            }
            let (a, b) = (&a[whole..], &b[whole..]);
            let n = a.len().min(S::LANES);
            parts[0] = T::add(s, parts[0], Self::apart_up_to(s, eps, a, b, n));
            parts[1] =
                T::add(s, parts[1], Self::apart_up_to(s, eps, &a[n..], &b[n..], a.len() - n));
            *sum = T::join(s, parts);
            walk.advance();
        }
    }
}

impl Vectorized for InVectors<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.p {
            1.0 => self.with::<S, Sum>(s),
            2.0 => self.with::<S, Squares>(s),
            _ => self.with::<S, Greatest>(s),
        }
    }
}

/// Computes the distances of the pairs, into a dense output.
///
/// # Panics
/// Where a vector lies outside its slice, `lens` and `steps` are of different length, or the output
/// has not one element for each pair.
#[allow(clippy::too_many_arguments)]
pub fn distance<T: Number, U: Number<Wide = f64>>(
    isa: Isa,
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
    let vectors = match inner {
        // Vectors of nothing may lie anywhere.
        [1, 1] if InVectors::suits(p) && *len > 0 => floats(a).zip(floats(b)),
        _ => None,
    };
    par.chunks_mut(y, grain, |task, y| {
        let mut walk = Walk::new(lens, steps, [0; 2], task * grain);
        if let Some((a, b)) = vectors {
            let mut sums = [0.0; SUMS];
            for y in y.chunks_mut(SUMS) {
                let (eps, len, walk) = (eps as f32, *len, &mut walk);
                let sums = &mut sums[..y.len()];
                InVectors { p, eps, len, a, b, walk, sums: &mut *sums }.compute(isa);
                for (y, &mut sum) in y.iter_mut().zip(sums) {
                    *y = U::narrow(norm.finish(sum.into()));
                }
            }
            return;
        }
        for y in y {
            let [at_a, at_b] = walk.at();
            let mut sum = norm.empty();
            for i in 0..*len {
                let (a, b) = (a[at_a + i * inner[0]].widen(), b[at_b + i * inner[1]].widen());
                let d = T::narrow(a.minus(b)).widen().to_complex() + eps;
                sum = norm.add(sum, if d.im == 0.0 { d.re.abs() } else { d.norm() });
            }
            *y = U::narrow(norm.finish(sum));
            walk.advance();
        }
    });
}

/// The elements as f32, where they are.
fn floats<T: Number>(x: &[T]) -> Option<&[f32]> {
    if T::DTYPE == DType::F32 { bytemuck::try_cast_slice(x).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::Complex;
    use plutino_reference::distance::distance as reference;
    use plutino_reference::testkit::{assert_close, on_every_machine, random};

    #[test]
    fn agrees_with_the_reference() {
        for (n, len) in [(1, 1), (3, 7), (2000, 9), (40, 75), (5, 64), (2, 0)] {
            let (a, b) = (random(n * len, 1), random(n * len, 2));
            let pairs = Pairs { lens: vec![n], steps: vec![[len as isize; 2]], len, inner: [1; 2] };
            for p in [0.0, 0.5, 1.0, 2.0, 3.0, f64::INFINITY, f64::NEG_INFINITY] {
                let expected = reference(p, 1e-3, [n, len], &a, &b);
                on_every_machine(
                    |isa, par| {
                        let mut y = vec![f32::NAN; n];
                        distance(isa, par, &pairs, p, 1e-3, &a, &b, &mut y);
                        y
                    },
                    // Each difference is rounded twice, the square once, and each sum is one of at
                    // most len; or all at once, from f64.
                    |found| {
                        assert_close(found, &expected, |i| {
                            (4.0 + len as f64) * f64::from(f32::EPSILON) * expected[i].abs()
                        })
                    },
                );
            }
        }
    }

    #[test]
    fn vectors_of_nothing_lie_anywhere() {
        let pairs = Pairs { lens: vec![3], steps: vec![[7, 7]], len: 0, inner: [1; 2] };
        let mut y = [1.0f32; 3];
        distance(Isa::best(), &Par::serial(), &pairs, 2.0, 0.0, &[0.0f32; 0], &[], &mut y);
        assert_eq!(y, [0.0; 3]);
    }

    #[test]
    fn broadcast_nan_and_complex_numbers() {
        let (isa, par) = (Isa::best(), Par::serial());
        let one = Pairs { lens: vec![2], steps: vec![[0, 1]], len: 1, inner: [0; 2] };
        let mut y = [0.0f32; 2];
        distance(isa, &par, &one, f64::INFINITY, 0.0, &[3], &[1, 7], &mut y);
        assert_eq!(y, [2.0, 4.0]);
        distance(isa, &par, &one, 2.0, 0.0, &[3u8], &[5, 1], &mut y);
        assert_eq!(y, [254.0, 2.0]);
        distance(isa, &par, &one, f64::INFINITY, 0.0, &[0.0], &[f64::NAN, 7.0], &mut y);
        assert!(y[0].is_nan() && y[1] == 7.0);
        let whole = Pairs { lens: vec![1], steps: vec![[0; 2]], len: 40, inner: [1; 2] };
        for at in [0, 17, 39] {
            let mut x = [1.0f32; 40];
            x[at] = f32::NAN;
            for isa in Isa::available() {
                let y = &mut y[..1];
                distance(isa, &par, &whole, f64::INFINITY, 0.0, &[2.0f32; 40], &x, y);
                assert!(y[0].is_nan(), "{isa} {at}");
            }
        }
        let z = [Complex::new(3.0f32, 4.0), Complex::new(0.0, 0.0)];
        distance(isa, &par, &one, 2.0, 0.0, &[Complex::new(0.0, 0.0)], &z, &mut y);
        assert_eq!(y, [5.0, 0.0]);
    }
}

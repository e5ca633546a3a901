//! Eigenvalues and eigenvectors of matrices that need not be symmetric: complex numbers.

use super::spectral::{failed, most_rounds, scaled};
use super::{Batched, OfMatrices, Own, Size, elements};
use crate::support::rearrange::{invalid, subject};
use crate::{BuildError, NodeReader, Operator, ShapeError, register_op};
use nalgebra::linalg::Schur;
use nalgebra::{Complex, DMatrix};
use plutino_kernels::elementwise::complex_of;
use plutino_tensor::DType;

/// <https://pytorch.org/docs/stable/generated/torch.linalg.eig.html>, and its values alone:
/// <https://pytorch.org/docs/stable/generated/torch.linalg.eigvals.html>. The order is no better
/// defined than PyTorch's, but that of a conjugate pair the value above the real line comes first.
#[derive(Debug, Clone, Copy)]
struct Eigen {
    vectors: bool,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let vectors = r.kind().ends_with("eig");
    let input = r.named_input("A").map_or_else(|| subject(r), Ok)?;
    Batched::boxed(vec![input], Eigen { vectors })
}
register_op!(build => "torch.linalg.eig", "torch.linalg.eigvals");

impl OfMatrices for Eigen {
    fn name(&self) -> &'static str {
        if self.vectors { "eig" } else { "eigvals" }
    }

    fn results(&self, sizes: &[Size], dtype: DType) -> Result<Vec<Own>, ShapeError> {
        let &[(n, m)] = sizes else { return Err(invalid("one tensor")) };
        if n != m {
            return Err(invalid(format!("{} needs square matrices, not {n} x {m}", self.name())));
        }
        let mut results = vec![Own::Each(complex_of(dtype), vec![n])];
        if self.vectors {
            results.push(Own::Each(complex_of(dtype), vec![n, n]));
        }
        Ok(results)
    }

    fn work(&self, sizes: &[Size]) -> usize {
        let n = sizes.first().map_or(0, |size| size.0);
        // Complex vectors are as large as two matrices, and are there twice in the end.
        elements(&[(if self.vectors { 9 } else { 3 }, n, n), (8, n, 1)])
    }

    fn compute(&self, matrices: Vec<DMatrix<f64>>, _: f64) -> Result<Vec<Vec<f64>>, String> {
        let Ok([a]) = <[DMatrix<f64>; 1]>::try_from(matrices) else {
            return Err("of another argument".into());
        };
        let parts = |x: Complex<f64>| [x.re, x.im];
        let (a, scale) = scaled(&a)?;
        let form = Form::new(a)?;
        let mut results = vec![form.values.iter().flat_map(|&x| parts(x * scale)).collect()];
        if self.vectors {
            let vectors = form.vectors();
            results.push(vectors.transpose().iter().flat_map(|&x| parts(x)).collect());
        }
        Ok(results)
    }
}

/// A = Q T Q^T, where T is triangular but for blocks of two rows that belong to a pair of complex
/// eigenvalues.
struct Form {
    q: DMatrix<f64>,
    t: DMatrix<f64>,
    /// Of each row the eigenvalue.
    values: Vec<Complex<f64>>,
}

impl Form {
    fn new(a: DMatrix<f64>) -> Result<Self, String> {
        let n = a.nrows();
        if n == 0 {
            return Ok(Self { q: a.clone(), t: a, values: Vec::new() });
        }
        let schur = Schur::try_new(a, f64::EPSILON, most_rounds(n)).ok_or_else(failed)?;
        let (q, t) = schur.unpack();
        let mut form = Self { q, t, values: Vec::new() };
        let mut i = 0;
        while i < n {
            match form.is_pair(i) {
                true => form.values.extend(form.pair(i)), // bounded: two for two rows
                false => form.values.push(form.t[(i, i)].into()), // bounded: one for a row
            }
            i = form.values.len();
        }
        Ok(form)
    }

    /// Whether rows i and i + 1 are a block.
    fn is_pair(&self, i: usize) -> bool {
        i + 1 < self.t.nrows() && self.t[(i + 1, i)] != 0.0
    }

    /// The eigenvalues of the block of rows i and i + 1; real ones are possible, too.
    fn pair(&self, i: usize) -> [Complex<f64>; 2] {
        let (a, b) = (self.t[(i, i)], self.t[(i, i + 1)]);
        let (c, d) = (self.t[(i + 1, i)], self.t[(i + 1, i + 1)]);
        let (middle, half) = ((a + d) / 2.0, (a - d) / 2.0);
        let square = half * half + b * c;
        let root = square.abs().sqrt();
        match square < 0.0 {
            true => [Complex::new(middle, root), Complex::new(middle, -root)],
            false => [(middle + root).into(), (middle - root).into()],
        }
    }

    /// Eigenvectors of norm 1 as columns. Those of a pair are conjugate.
    fn vectors(&self) -> DMatrix<Complex<f64>> {
        let n = self.t.nrows();
        let mut vectors = DMatrix::from_element(n, n, Complex::new(0.0, 0.0));
        for k in 0..n {
            let second = k > 0 && self.values[k].im < 0.0;
            let vector = match second {
                true => vectors.column(k - 1).map(|x| x.conj()),
                false => self.vector(k),
            };
            vectors.set_column(k, &vector);
        }
        vectors
    }

    /// The eigenvector of value k: T's by substitution from the last row that counts, then A's.
    fn vector(&self, k: usize) -> nalgebra::DVector<Complex<f64>> {
        let (n, value) = (self.t.nrows(), self.values[k]);
        let at = |i: usize, j: usize| Complex::from(self.t[(i, j)]);
        // Divisors below that are errors of rounding; the greatest element of the matrix is 1.
        let smallest = f64::EPSILON * self.t.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
        let safe = |x: Complex<f64>| if x.norm() < smallest { smallest.into() } else { x };
        let mut v = nalgebra::DVector::from_element(n, Complex::new(0.0, 0.0));
        // The block of the value itself.
        let first = if k > 0 && self.is_pair(k - 1) { k - 1 } else { k };
        if self.is_pair(first) {
            // Either row gives the vector; the one with greater numbers gives it better.
            let (upper, lower) = (value - at(first, first), value - at(first + 1, first + 1));
            let (b, c) = (at(first, first + 1), at(first + 1, first));
            let [x, y] = if b.norm() + upper.norm() >= c.norm() + lower.norm() {
                [b, upper]
            } else {
                [lower, c]
            };
            (v[first], v[first + 1]) = (x, y);
        } else {
            v[k] = 1.0.into();
        }
        let mut rest = first;
        while rest > 0 {
            let i = rest - 1;
            let sum = |row: usize| {
                let known = rest..n;
                known.map(|j| at(row, j) * v[j]).sum::<Complex<f64>>()
            };
            if i > 0 && self.is_pair(i - 1) {
                let (a, b) = (at(i - 1, i - 1) - value, at(i - 1, i));
                let (c, d) = (at(i, i - 1), at(i, i) - value);
                let (x, y) = (-sum(i - 1), -sum(i));
                let determinant = a * d - b * c;
                let determinant = match determinant.norm() < smallest * smallest {
                    true => (smallest * smallest).into(),
                    false => determinant,
                };
                (v[i - 1], v[i]) = ((x * d - b * y) / determinant, (a * y - x * c) / determinant);
                rest = i - 1;
            } else {
                v[i] = -sum(i) / safe(at(i, i) - value);
                rest = i;
            }
            // Almost equal values make vectors grow.
            let greatest = v.iter().fold(0.0, |most: f64, x| most.max(x.norm()));
            if greatest > 1e100 {
                v /= Complex::from(greatest);
            }
        }
        let v = self.q.map(Complex::from) * v;
        let greatest = v
            .iter()
            .fold(Complex::new(0.0, 0.0), |most, &x| if x.norm() > most.norm() { x } else { most });
        // LAPACK turns the greatest element of a complex vector to the real line.
        let turn = match value.im != 0.0 && greatest.norm() > 0.0 {
            true => greatest.conj() / greatest.norm(),
            false => 1.0.into(),
        };
        let norm = v.iter().map(|x| x.norm_sqr()).sum::<f64>().sqrt();
        let norm = if norm > 0.0 { norm } else { 1.0 };
        v.map(|x| x * turn / norm)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, random, tensor};
    use plutino_tensor::{Complex, DType, Tensor};

    type C = Complex<f64>;

    fn eig(a: &Tensor) -> (Vec<C>, Vec<C>) {
        let y = check(&*op("torch.linalg.eig e 1 2 0 1 2"), std::slice::from_ref(a));
        let values = check(&*op("torch.linalg.eigvals e 1 1 0 1"), std::slice::from_ref(a));
        assert_eq!(values[0], y[0]);
        (y[0].as_slice().unwrap().to_vec(), y[1].as_slice().unwrap().to_vec())
    }

    /// A V = V diag(L) and columns of norm 1, within n rounding errors of the largest element.
    fn holds(a: &[f64], n: usize, (values, vectors): &(Vec<C>, Vec<C>), bound: f64) {
        let scale = a.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
        for (k, value) in values.iter().enumerate() {
            let column: Vec<C> = (0..n).map(|i| vectors[i * n + k]).collect();
            let norm: f64 = column.iter().map(|x| x.norm_sqr()).sum();
            assert!((norm - 1.0).abs() < 1e-12, "{k}: {norm}");
            for i in 0..n {
                let left: C = (0..n).map(|j| column[j] * a[i * n + j]).sum();
                let error = (left - value * column[i]).norm();
                assert!(error <= bound * scale, "value {k} ({value}), row {i}: {error}");
            }
        }
    }

    #[test]
    fn vectors_are_turned_by_their_values() {
        for n in [1, 2, 3, 4, 7, 20] {
            for seed in 0..6 {
                let a = random([n, n], seed * 100 + n as u64).cast(DType::F64).unwrap();
                let found = eig(&a);
                holds(a.as_slice().unwrap(), n, &found, 1e3 * n as f64 * f64::EPSILON);
                // Pairs are conjugate, the value above the real line first.
                let mut k = 0;
                while k < n {
                    let value = found.0[k];
                    if value.im != 0.0 {
                        assert!(value.im > 0.0 && found.0[k + 1] == value.conj());
                        k += 1;
                    }
                    k += 1;
                }
                // The trace is the sum of all.
                let trace: f64 = (0..n).map(|i| a.as_slice::<f64>().unwrap()[i * n + i]).sum();
                let sum: C = found.0.iter().sum();
                assert!((sum - trace).norm() < 1e-12 * n as f64, "{sum} {trace}");
            }
        }
    }

    #[test]
    fn known_values() {
        let a = tensor([3, 3], &[1.0f64, 2., 0., -2., 1., 0., 0., 0., 3.]);
        let (mut values, vectors) = eig(&a);
        holds(a.as_slice().unwrap(), 3, &(values.clone(), vectors), 1e-14);
        values.sort_by(|x, y| x.re.total_cmp(&y.re).then(y.im.total_cmp(&x.im)));
        let expected = [C::new(1.0, 2.0), C::new(1.0, -2.0), C::new(3.0, 0.0)];
        for (x, y) in values.iter().zip(expected) {
            assert!((x - y).norm() < 1e-14, "{x} {y}");
        }
        // A Jordan block has one direction only; equal values and none at all are no trouble.
        let jordan = tensor([3, 3], &[2.0f64, 1., 0., 0., 2., 1., 0., 0., 2.]);
        holds(jordan.as_slice().unwrap(), 3, &eig(&jordan), 1e-4);
        let zero = tensor([2, 2], &[0.0f64; 4]);
        holds(&[0.0; 4], 2, &eig(&zero), 0.0);
        let y = check(&*op("torch.linalg.eig e 1 2 0 1 2"), &[iota([2, 0, 0])]);
        assert_eq!((y[0].shape().dims(), y[1].shape().dims()), (&[2, 0][..], &[2, 0, 0][..]));
        // Large numbers do not overflow; a batch is done matrix by matrix.
        let large = tensor([2, 2, 2], &[0.0f32, 1e30, -1e30, 0., 1., 0., 0., 4.]);
        let y = check(&*op("torch.linalg.eigvals e 1 1 0 1"), &[large]).remove(0);
        assert_eq!((y.dtype(), y.shape().dims()), (DType::C64, &[2, 2][..]));
        let y = y.as_slice::<Complex<f32>>().unwrap().to_vec();
        assert_eq!(y[0], Complex::new(0.0, 1e30));
        assert_eq!(y[2..].iter().map(|x| x.re).sum::<f32>(), 5.0);
        error(&*op("torch.linalg.eig e 1 2 0 1 2"), &[iota([2, 3])]);
        error(&*op("torch.linalg.eigvals e 1 1 0 1"), &[tensor([1, 1], &[f32::NAN])]);
    }
}

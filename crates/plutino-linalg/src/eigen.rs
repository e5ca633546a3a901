//! Eigenvalues and eigenvectors of matrices that need not be symmetric: complex numbers.

use crate::spectral::{most_rounds, scaled};
use crate::{LinalgError, Matrix};
use nalgebra::Complex;
use nalgebra::linalg::Schur;

/// What [`eig`] finds.
#[derive(Debug, Clone)]
pub struct Eigen {
    /// In the order in which they were found; of a conjugate pair the one above the real line is
    /// the first.
    pub values: Vec<Complex<f64>>,
    /// A square matrix row by row, whose column k is the vector of value k, of norm 1. Those of a
    /// pair are conjugate, and their greatest element is real, as LAPACK has it. Nothing where they
    /// were not asked for.
    pub vectors: Vec<Complex<f64>>,
}

/// The eigenvalues of a square matrix, and its eigenvectors if wanted.
///
/// # Errors
/// [`LinalgError::NotFinite`], [`LinalgError::NotConverged`].
///
/// # Panics
/// Where the matrix is not square.
pub fn eig(a: &Matrix, vectors: bool) -> Result<Eigen, LinalgError> {
    let (a, scale) = scaled(a)?;
    let form = Form::new(a)?;
    let vectors = match vectors {
        true => form.vectors().transpose().as_slice().to_vec(),
        false => Vec::new(),
    };
    Ok(Eigen { values: form.values.iter().map(|&x| x * scale).collect(), vectors })
}

/// A = Q T Q^T, where T is triangular but for blocks of two rows that belong to a pair of complex
/// eigenvalues.
struct Form {
    q: Matrix,
    t: Matrix,
    /// Of each row the eigenvalue.
    values: Vec<Complex<f64>>,
}

impl Form {
    fn new(a: Matrix) -> Result<Self, LinalgError> {
        let n = a.nrows();
        if n == 0 {
            return Ok(Self { q: a.clone(), t: a, values: Vec::new() });
        }
        let schur = Schur::try_new(a, f64::EPSILON, most_rounds(n));
        let schur = schur.ok_or(LinalgError::NotConverged)?;
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
    fn vectors(&self) -> nalgebra::DMatrix<Complex<f64>> {
        let n = self.t.nrows();
        let mut vectors = nalgebra::DMatrix::from_element(n, n, Complex::new(0.0, 0.0));
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

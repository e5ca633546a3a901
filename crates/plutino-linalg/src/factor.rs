//! Factorisations with LAPACK's conventions: LU with partial pivoting, QR by Householder's
//! reflections, and the solution of triangular systems.

use crate::{LinalgError, Matrix};
use plutino_tensor::stop::Watch;

/// P A = L U of a matrix A of any shape, with partial pivoting.
#[derive(Debug, Clone)]
pub struct Lu {
    /// L below the diagonal, where it is 1, and U.
    pub both: Matrix,
    /// For each step the row that changed places with row i.
    pub pivots: Vec<usize>,
    /// Whether the permutation is odd.
    pub odd: bool,
    /// The first zero on U's diagonal.
    pub zero: Option<usize>,
}

impl Lu {
    /// Factorises a matrix of any shape; [`Lu::zero`] says whether it is singular.
    pub fn new(mut a: Matrix) -> Self {
        let (n, m) = a.shape();
        let mut lu = Self { both: Matrix::zeros(0, 0), pivots: Vec::new(), odd: false, zero: None };
        let mut watch = Watch::new();
        for k in 0..n.min(m) {
            if watch.stops((n - k).saturating_mul(m - k)) {
                break;
            }
            // The first of the greatest; a NaN stays where it is.
            let mut pivot = k;
            for i in k + 1..n {
                if a[(i, k)].abs() > a[(pivot, k)].abs() {
                    pivot = i;
                }
            }
            lu.pivots.push(pivot);
            if pivot != k {
                a.swap_rows(pivot, k);
                lu.odd = !lu.odd;
            }
            let x = a[(k, k)];
            if x == 0.0 {
                lu.zero = lu.zero.or(Some(k));
                continue;
            }
            for i in k + 1..n {
                a[(i, k)] /= x;
            }
            for j in k + 1..m {
                let factor = a[(k, j)];
                if factor != 0.0 {
                    for i in k + 1..n {
                        a[(i, j)] -= a[(i, k)] * factor;
                    }
                }
            }
        }
        lu.both = a;
        lu
    }

    /// The factors L (n, k) and U (k, m), where k is the lesser of n and m.
    pub fn factors(&self) -> (Matrix, Matrix) {
        let (n, m) = self.both.shape();
        let k = n.min(m);
        let lower = Matrix::from_fn(n, k, |i, j| match i.cmp(&j) {
            std::cmp::Ordering::Greater => self.both[(i, j)],
            std::cmp::Ordering::Equal => 1.0,
            std::cmp::Ordering::Less => 0.0,
        });
        let upper = Matrix::from_fn(k, m, |i, j| if i <= j { self.both[(i, j)] } else { 0.0 });
        (lower, upper)
    }

    /// The solution X of A X = B; A is square.
    pub fn solve(&self, mut b: Matrix) -> Matrix {
        for (k, &pivot) in self.pivots.iter().enumerate() {
            b.swap_rows(pivot, k);
        }
        let lower = Triangle { upper: false, unit: true };
        let upper = Triangle { upper: true, unit: false };
        solve_triangular(&self.both, &mut b, lower);
        solve_triangular(&self.both, &mut b, upper);
        b
    }

    /// The inverse of a square matrix; none of a singular one.
    pub fn inverse(&self) -> Option<Matrix> {
        let n = self.both.nrows();
        self.zero.is_none().then(|| self.solve(Matrix::identity(n, n)))
    }

    /// P of P A = L U.
    pub fn permutation(&self) -> Matrix {
        let n = self.both.nrows();
        let mut p = Matrix::identity(n, n);
        for (k, &pivot) in self.pivots.iter().enumerate() {
            p.swap_rows(k, pivot);
        }
        p
    }

    /// The determinant of a square matrix.
    pub fn determinant(&self) -> f64 {
        let sign = if self.odd { -1.0 } else { 1.0 };
        self.both.diagonal().iter().product::<f64>() * sign
    }

    /// The determinant's sign and the logarithm of its absolute value.
    pub fn sign_and_log(&self) -> (f64, f64) {
        let (mut sign, mut log) = (if self.odd { -1.0 } else { 1.0 }, 0.0);
        for &x in self.both.diagonal().iter() {
            log += x.abs().ln();
            sign *= if x == 0.0 { 0.0 } else { x.signum() };
        }
        (sign, log)
    }
}

/// Which half of a matrix is meant.
#[derive(Debug, Clone, Copy)]
pub struct Triangle {
    /// The upper one.
    pub upper: bool,
    /// Whether the diagonal counts as ones.
    pub unit: bool,
}

/// B becomes the solution X of T X = B, where T is a triangle of `a`. Zeros on the diagonal divide,
/// as in PyTorch.
pub fn solve_triangular(a: &Matrix, b: &mut Matrix, which: Triangle) {
    let n = a.nrows();
    let mut watch = Watch::new();
    for column in 0..b.ncols() {
        for step in 0..n {
            if watch.stops(n) {
                return;
            }
            let k = if which.upper { n - 1 - step } else { step };
            if !which.unit {
                b[(k, column)] /= a[(k, k)];
            }
            let x = b[(k, column)];
            let rest = if which.upper { 0..k } else { k + 1..n };
            for i in rest {
                b[(i, column)] -= a[(i, k)] * x;
            }
        }
    }
}

/// A = Q R: Q is (n, q), R is (q, m).
///
/// As LAPACK's `geqrf` has it: a reflection makes the diagonal's element the opposite sign of what
/// stood there, and a column that is zero below the diagonal is left as it is.
pub fn qr(mut a: Matrix, q: usize) -> (Matrix, Matrix) {
    let (n, m) = a.shape();
    let mut reflections = Vec::with_capacity(n.min(m)); // bounded: by the matrix
    let mut watch = Watch::new();
    for k in 0..n.min(m) {
        if watch.stops((n - k).saturating_mul(m - k)) {
            break;
        }
        let alpha = a[(k, k)];
        let below = (k + 1..n).map(|i| a[(i, k)]).fold(0.0, f64::hypot);
        if below == 0.0 {
            reflections.push((0.0, Vec::new()));
            continue;
        }
        let beta = -alpha.hypot(below).copysign(alpha);
        let tau = (beta - alpha) / beta;
        let v: Vec<f64> = (k + 1..n).map(|i| a[(i, k)] / (alpha - beta)).collect();
        reflect(&mut a, k, k + 1..m, tau, &v);
        a[(k, k)] = beta;
        for i in k + 1..n {
            a[(i, k)] = 0.0;
        }
        reflections.push((tau, v));
    }
    let mut unitary = Matrix::identity(n, q);
    for (k, (tau, v)) in reflections.iter().enumerate().rev() {
        if watch.stops((n - k).saturating_mul(q)) {
            break;
        }
        reflect(&mut unitary, k, 0..q, *tau, v);
    }
    let r = Matrix::from_fn(q, m, |i, j| if i <= j { a[(i, j)] } else { 0.0 });
    (unitary, r)
}

/// Multiplies rows from `k` on of some columns by I - tau (1, v) (1, v)^T.
fn reflect(a: &mut Matrix, k: usize, columns: std::ops::Range<usize>, tau: f64, v: &[f64]) {
    if tau == 0.0 {
        return;
    }
    for j in columns {
        let mut dot = a[(k, j)];
        for (i, v) in v.iter().enumerate() {
            dot += a[(k + 1 + i, j)] * v;
        }
        let step = tau * dot;
        a[(k, j)] -= step;
        for (i, v) in v.iter().enumerate() {
            a[(k + 1 + i, j)] -= step * v;
        }
    }
}

/// L of A = L L^T; only the lower triangle of A is read.
///
/// # Errors
/// [`LinalgError::NotPositiveDefinite`].
pub fn cholesky(a: &Matrix) -> Result<Matrix, LinalgError> {
    let n = a.nrows();
    let mut l = Matrix::zeros(n, n);
    let mut watch = Watch::new();
    for j in 0..n {
        let square: f64 = (0..j).map(|k| l[(j, k)] * l[(j, k)]).sum::<f64>();
        let rest = a[(j, j)] - square;
        if rest.is_nan() || rest <= 0.0 {
            return Err(LinalgError::NotPositiveDefinite { order: j + 1 });
        }
        let diagonal: f64 = rest.sqrt();
        l[(j, j)] = diagonal;
        if watch.stops((n - j).saturating_mul(j)) {
            break;
        }
        for i in j + 1..n {
            let dot: f64 = (0..j).map(|k| l[(i, k)] * l[(j, k)]).sum::<f64>();
            l[(i, j)] = (a[(i, j)] - dot) / diagonal;
        }
    }
    Ok(l)
}

/// (L L^T)^-1 of a lower triangle L.
pub fn cholesky_inverse(lower: &Matrix) -> Matrix {
    let mut inverse = Matrix::identity(lower.nrows(), lower.ncols());
    solve_triangular(lower, &mut inverse, Triangle { upper: false, unit: false });
    inverse.transpose() * inverse
}

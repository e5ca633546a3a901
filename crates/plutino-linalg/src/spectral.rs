//! Eigenvalues of symmetric matrices and singular values, by nalgebra, and what follows from them.

use crate::factor::{Lu, qr};
use crate::{LinalgError, Matrix};
use nalgebra::DVector;
use nalgebra::linalg::{SVD, SymmetricEigen};

/// Rounds after which a decomposition counts as failed; it converges within a few for each row.
pub fn most_rounds(n: usize) -> usize {
    n.saturating_mul(100).saturating_add(1000)
}

/// The matrix over its greatest absolute value, so that squares stay in range, and that value.
///
/// # Errors
/// [`LinalgError::NotFinite`].
pub fn scaled(a: &Matrix) -> Result<(Matrix, f64), LinalgError> {
    if !a.iter().all(|x| x.is_finite()) {
        return Err(LinalgError::NotFinite);
    }
    let scale = a.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    match scale {
        0.0 => Ok((a.clone(), 1.0)),
        _ => Ok((a.map(|x| x / scale), scale)),
    }
}

/// The symmetric matrix one of whose triangles is that of a square one.
pub fn symmetric(a: &Matrix, upper: bool) -> Matrix {
    let half = |i: usize, j: usize| if upper { (i.min(j), i.max(j)) } else { (i.max(j), i.min(j)) };
    Matrix::from_fn(a.nrows(), a.nrows(), |i, j| a[half(i, j)])
}

/// Eigenvalues in ascending order, and their vectors as columns. One triangle is read.
///
/// # Errors
/// [`LinalgError::NotFinite`], [`LinalgError::NotConverged`].
pub fn eigh(a: &Matrix, upper: bool) -> Result<(Vec<f64>, Matrix), LinalgError> {
    let n = a.nrows();
    if n == 0 {
        return Ok((Vec::new(), Matrix::zeros(0, 0)));
    }
    let (symmetric, scale) = scaled(&symmetric(a, upper))?;
    let found = SymmetricEigen::try_new(symmetric, f64::EPSILON, most_rounds(n));
    let found = found.ok_or(LinalgError::NotConverged)?;
    let mut order: Vec<usize> = (0..n).collect(); // bounded: by the matrix
    order.sort_by(|&i, &j| found.eigenvalues[i].total_cmp(&found.eigenvalues[j]));
    let values = order.iter().map(|&i| found.eigenvalues[i] * scale).collect();
    Ok((values, Matrix::from_fn(n, n, |i, j| found.eigenvectors[(i, order[j])])))
}

/// Left vectors as columns, singular values, right vectors as rows.
pub type Singular = (Matrix, Vec<f64>, Matrix);

/// A = U diag(s) V^T: U is (n, k), V^T is (k, m), singular values in descending order; k is the
/// lesser of n and m.
///
/// # Errors
/// [`LinalgError::NotFinite`], [`LinalgError::NotConverged`].
pub fn svd(a: &Matrix) -> Result<Singular, LinalgError> {
    let (n, m) = a.shape();
    if n == 0 || m == 0 {
        return Ok((Matrix::zeros(n, 0), Vec::new(), Matrix::zeros(0, m)));
    }
    let (inner, scale) = scaled(a)?;
    let rounds = most_rounds(n.max(m));
    let found = SVD::try_new_unordered(inner, true, true, f64::EPSILON, rounds);
    let found = found.ok_or(LinalgError::NotConverged)?;
    let (Some(u), Some(v_t)) = (found.u, found.v_t) else { return Err(LinalgError::NotConverged) };
    let s = found.singular_values;
    let mut order: Vec<usize> = (0..s.len()).collect();
    order.sort_by(|&i, &j| s[j].total_cmp(&s[i]));
    let values = order.iter().map(|&i| s[i] * scale).collect();
    let k = order.len();
    let u = Matrix::from_fn(n, k, |i, j| u[(i, order[j])]);
    Ok((u, values, Matrix::from_fn(k, m, |i, j| v_t[(order[i], j)])))
}

/// An orthogonal matrix whose first columns are those of `a`, which are orthonormal.
pub fn complete(a: &Matrix) -> Matrix {
    let (n, k) = a.shape();
    let (mut q, r) = qr(a.clone(), n);
    for j in 0..k.min(n) {
        // Up to its sign, a column is what its own reflection made of it.
        if r[(j, j)] < 0.0 {
            q.column_mut(j).neg_mut();
        }
    }
    q
}

/// V diag(1 / s) U^T over the singular values above the greatest times `tolerance`.
///
/// # Errors
/// [`LinalgError::NotFinite`], [`LinalgError::NotConverged`].
pub fn pseudo_inverse(a: &Matrix, tolerance: f64) -> Result<Matrix, LinalgError> {
    let (u, s, v_t) = svd(a)?;
    Ok(v_t.transpose() * Matrix::from_diagonal(&reciprocals(&s, tolerance)) * u.transpose())
}

/// 1 / s of the singular values above the greatest times `tolerance`, 0 of the others.
fn reciprocals(values: &[f64], tolerance: f64) -> DVector<f64> {
    let bound = values.first().copied().unwrap_or(0.0) * tolerance;
    let each = values.iter().map(|&s| if s > bound { s.recip() } else { 0.0 });
    DVector::from_iterator(values.len(), each)
}

/// The shortest X of all for which the errors A X - B are least, and what was found on the way.
#[derive(Debug, Clone)]
pub struct LeastSquares {
    /// X, a column for each of B.
    pub solution: Matrix,
    /// How many singular values counted.
    pub rank: usize,
    /// The singular values of A, in descending order.
    pub values: Vec<f64>,
}

/// Solves A X = B as well as can be; singular values up to the greatest times `tolerance` count as
/// zero.
///
/// # Errors
/// Those of [`svd`] of A.
pub fn least_squares(a: &Matrix, b: &Matrix, tolerance: f64) -> Result<LeastSquares, LinalgError> {
    let (u, values, v_t) = svd(a)?;
    let inverse = reciprocals(&values, tolerance);
    let rank = inverse.iter().filter(|&&s| s > 0.0).count();
    let solution = v_t.transpose() * (Matrix::from_diagonal(&inverse) * (u.transpose() * b));
    Ok(LeastSquares { solution, rank, values })
}

/// The squares of each column's norm of A X - B.
pub fn residuals(a: &Matrix, x: &Matrix, b: &Matrix) -> Vec<f64> {
    (a * x - b).column_iter().map(|column| column.norm_squared()).collect()
}

/// e^A, by scaling and squaring with the Pade approximant of order 13 (Higham, 2005).
pub fn exponential(a: &Matrix) -> Matrix {
    const B: [f64; 14] = [
        64_764_752_532_480_000.0,
        32_382_376_266_240_000.0,
        7_771_770_303_897_600.0,
        1_187_353_796_428_800.0,
        129_060_195_264_000.0,
        10_559_470_521_600.0,
        670_442_572_800.0,
        33_522_128_640.0,
        1_323_241_920.0,
        40_840_800.0,
        960_960.0,
        16_380.0,
        182.0,
        1.0,
    ];
    /// Up to this norm the approximant is as good as f64 is.
    const LARGEST: f64 = 5.371_920_351_148_152;
    let n = a.nrows();
    let norm = a.column_iter().map(|c| c.iter().map(|x| x.abs()).sum::<f64>()).fold(0.0, f64::max);
    if !norm.is_finite() || a.iter().any(|x| x.is_nan()) {
        return Matrix::from_element(n, n, f64::NAN);
    }
    let squarings = (norm / LARGEST).log2().ceil().max(0.0) as i32;
    let a = a.map(|x| x * 2f64.powi(-squarings));
    let (one, a2) = (Matrix::identity(n, n), &a * &a);
    let a4 = &a2 * &a2;
    let a6 = &a4 * &a2;
    let sum = |b6: f64, b4: f64, b2: f64| &a6 * b6 + &a4 * b4 + &a2 * b2;
    let odd = &a6 * sum(B[13], B[11], B[9]) + sum(B[7], B[5], B[3]) + &one * B[1];
    let (u, v) = (a * odd, &a6 * sum(B[12], B[10], B[8]) + sum(B[6], B[4], B[2]) + &one * B[0]);
    let mut result = Lu::new(&v - &u).solve(v + u);
    for _ in 0..squarings {
        result = &result * &result;
    }
    result
}

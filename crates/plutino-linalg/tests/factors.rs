//! Factors multiplied again, within some rounding errors for each row.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use plutino_linalg::eigen::eig;
use plutino_linalg::factor::{Lu, Triangle, cholesky, cholesky_inverse, qr, solve_triangular};
use plutino_linalg::spectral::{
    complete, eigh, exponential, least_squares, pseudo_inverse, residuals, svd,
};
use plutino_linalg::{Complex, LinalgError, Matrix, rows};

/// Numbers between -1 and 1 that follow no pattern.
fn matrix(n: usize, m: usize) -> Matrix {
    let mut state = (n * 31 + m) as u64;
    Matrix::from_fn(n, m, |_, _| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1u32 << 30) - 1.0
    })
}

/// Sums of as many products as there are rows, of numbers that factors make somewhat larger.
fn near(found: &Matrix, expected: &Matrix) -> bool {
    let n = found.nrows().max(found.ncols()).max(1) as f64;
    found.shape() == expected.shape() && (found - expected).amax() <= 100.0 * n * f64::EPSILON
}

const SHAPES: [(usize, usize); 7] = [(1, 1), (2, 2), (5, 3), (3, 5), (9, 9), (20, 7), (1, 6)];

#[test]
fn lu_and_qr_of_any_shape() {
    for (n, m) in SHAPES {
        let a = matrix(n, m);
        let lu = Lu::new(a.clone());
        let (lower, upper) = lu.factors();
        assert!(near(&(lu.permutation() * &a), &(lower * upper)), "{n} x {m}");
        for q in [n.min(m), n] {
            let (unitary, r) = qr(a.clone(), q);
            assert!(near(&(&unitary * r), &a), "{n} x {m}");
            assert!(near(&(unitary.transpose() * unitary), &Matrix::identity(q, q)));
        }
    }
}

#[test]
fn singular_values_of_any_shape() {
    for (n, m) in SHAPES {
        let a = matrix(n, m);
        let (u, s, v_t) = svd(&a).unwrap();
        assert!(s.is_sorted_by(|a, b| a >= b));
        let middle = Matrix::from_diagonal(&s.into());
        assert!(near(&(&u * middle * &v_t), &a), "{n} x {m}");
        let whole = complete(&u);
        assert!(near(&whole.columns(0, u.ncols()).into_owned(), &u));
        assert!(near(&(whole.transpose() * whole), &Matrix::identity(n, n)));
        let inverse = pseudo_inverse(&a, 1e-15).unwrap();
        assert!(near(&(&a * &inverse * &a), &a), "{n} x {m}");
        // The errors of the best solution are at right angles to what A can reach.
        let b = matrix(n, 2);
        let found = least_squares(&a, &b, 0.0).unwrap();
        let errors = &a * &found.solution - &b;
        assert!(near(&(a.transpose() * &errors), &Matrix::zeros(m, 2)), "{n} x {m}");
        let squares: f64 = residuals(&a, &found.solution, &b).iter().sum();
        assert!((squares - errors.norm_squared()).abs() < 1e-12);
        assert_eq!(found.rank, n.min(m));
    }
}

#[test]
fn of_square_matrices() {
    for n in [1, 2, 5, 16] {
        let (a, one) = (matrix(n, n), Matrix::identity(n, n));
        let lu = Lu::new(a.clone());
        let (sign, log) = lu.sign_and_log();
        assert!((sign * log.exp() - lu.determinant()).abs() < 1e-12);
        let inverse = lu.inverse().unwrap();
        assert!(near(&(&a * &inverse), &(&one * &one)));
        let definite = &a * a.transpose() + &one;
        let l = cholesky(&definite).unwrap();
        assert!(near(&(&l * l.transpose()), &definite));
        assert!(near(&(cholesky_inverse(&l) * &definite), &one));
        let mut x = a.clone();
        solve_triangular(&l, &mut x, Triangle { upper: false, unit: false });
        assert!(near(&(&l * x), &a));
        let (values, vectors) = eigh(&definite, false).unwrap();
        let middle = Matrix::from_diagonal(&values.clone().into());
        assert!(near(&(&vectors * middle * vectors.transpose()), &definite));
        let e = vectors.clone()
            * Matrix::from_diagonal(&values.iter().map(|x| (-x).exp()).collect::<Vec<_>>().into())
            * vectors.transpose();
        assert!(near(&exponential(&-definite), &e));
        // A v = v times its value.
        let found = eig(&a, true).unwrap();
        assert_eq!(eig(&a, false).unwrap().values, found.values);
        for (k, value) in found.values.iter().enumerate() {
            for i in 0..n {
                let product: Complex<f64> =
                    (0..n).map(|j| found.vectors[j * n + k] * a[(i, j)]).sum();
                let error = (product - found.vectors[i * n + k] * value).norm();
                assert!(error < 1e-12, "{n}: value {k}, row {i}: {error}");
            }
        }
    }
}

#[test]
fn what_cannot_be() {
    let singular = Matrix::from_row_slice(2, 2, &[1.0, 2.0, 2.0, 4.0]);
    let lu = Lu::new(singular.clone());
    assert_eq!((lu.zero, lu.inverse(), lu.determinant().abs()), (Some(1), None, 0.0));
    let indefinite = Matrix::from_row_slice(2, 2, &[1.0, 2.0, 2.0, 1.0]);
    assert_eq!(cholesky(&indefinite), Err(LinalgError::NotPositiveDefinite { order: 2 }));
    for bad in [f64::NAN, f64::INFINITY] {
        let a = Matrix::from_element(2, 2, bad);
        assert_eq!(svd(&a).unwrap_err(), LinalgError::NotFinite);
        assert_eq!(eigh(&a, true).unwrap_err(), LinalgError::NotFinite);
        assert_eq!(eig(&a, true).unwrap_err(), LinalgError::NotFinite);
    }
    // Nothing has a factorisation, too.
    let none = Matrix::zeros(0, 0);
    assert_eq!(Lu::new(none.clone()).determinant(), 1.0);
    assert!(svd(&none).unwrap().1.is_empty() && eig(&none, true).unwrap().values.is_empty());
    assert_eq!(
        rows(&Matrix::from_row_slice(2, 3, &[1., 2., 3., 4., 5., 6.])),
        [1., 2., 3., 4., 5., 6.]
    );
}

//! Factorisations of matrices in f64, with LAPACK's conventions where a factorisation leaves a
//! choice: signs, the order of values, which row is the pivot.
//!
//! | module | what |
//! |---|---|
//! | [`factor`] | LU with partial pivoting, QR, Cholesky, triangular systems |
//! | [`spectral`] | singular values, eigenvalues of symmetric matrices, e^A, least squares |
//! | [`eigen`] | eigenvalues and vectors of any square matrix |
//!
//! ```
//! use plutino_linalg::{Matrix, factor::Lu, rows};
//! let a = Matrix::from_row_slice(2, 2, &[0.0, 2.0, 1.0, 0.0]);
//! let lu = Lu::new(a);
//! assert_eq!(lu.determinant(), -2.0);
//! let inverse = lu.inverse().ok_or("is singular")?;
//! assert_eq!(rows(&inverse), [0.0, 1.0, 0.5, 0.0]);
//! # Ok::<(), &str>(())
//! ```
//!
//! Factorisations look at the caller's signal to stop ([`plutino_tensor::stop`]) and then end
//! early, with a result that is not whole: whoever keeps one asks. Sizes that do not suit each
//! other panic.

#![forbid(unsafe_code)]

pub mod eigen;
pub mod factor;
pub mod spectral;

pub use nalgebra::Complex;

/// A matrix of f64, column by column.
pub type Matrix = nalgebra::DMatrix<f64>;

/// Why there is no factorisation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinalgError {
    /// An infinity or a NaN.
    #[error("has elements that are not finite")]
    NotFinite,
    /// An iteration did not end within [`spectral::most_rounds`].
    #[error("did not converge")]
    NotConverged,
    /// See [`factor::cholesky`].
    #[error("is not positive definite: its leading minor of order {order} is not")]
    NotPositiveDefinite {
        /// Rows and columns of the first leading part that is not.
        order: usize,
    },
}

/// The elements of a matrix, row by row.
pub fn rows(m: &Matrix) -> Vec<f64> {
    m.transpose().as_slice().to_vec()
}

//! Systems of linear equations: solve, solve_triangular, cholesky_solve, lstsq.

use super::{Batched, OfMatrices, Own, Refused, Size, elements};
use crate::support::rearrange::invalid;
use crate::{BuildError, NodeReader, Operator, ShapeError, register_op};
use plutino_kernels::linalg::factor::{Lu, Triangle, solve_triangular};
use plutino_kernels::linalg::spectral::{least_squares, residuals};
use plutino_kernels::linalg::{Matrix, rows};
use plutino_tensor::DType;

#[derive(Debug, Clone, Copy)]
enum System {
    /// A X = B, or X A = B: <https://pytorch.org/docs/stable/generated/torch.linalg.solve.html>
    Full { left: bool },
    /// The same with a triangle of A:
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.solve_triangular.html>
    Triangular { which: Triangle, left: bool },
    /// L L^T X = B, or U^T U X = B:
    /// <https://pytorch.org/docs/stable/generated/torch.cholesky_solve.html>
    Cholesky { upper: bool },
}

fn solve(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let left = r.or("left", true)?;
    let inputs = vec![r.required_input("A")?, r.required_input("B")?];
    // X A = B has no vectors.
    Ok(Box::new(Batched { inputs, vector: left, function: System::Full { left } }))
}
register_op!(solve => "torch.linalg.solve");

fn triangular(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let which = Triangle { upper: r.required("upper")?, unit: r.or("unitriangular", false)? };
    let left = r.or("left", true)?;
    let a = r.named_input("A").map_or_else(|| r.required_input("input"), Ok)?;
    Batched::boxed(vec![a, r.required_input("B")?], System::Triangular { which, left })
}
register_op!(triangular => "torch.linalg.solve_triangular");

fn cholesky_solve(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let upper = r.or("upper", false)?;
    // The right side comes first.
    let b = r.named_input("B").map_or_else(|| r.required_input("input"), Ok)?;
    let l = r.named_input("L").map_or_else(|| r.required_input("input2"), Ok)?;
    Batched::boxed(vec![l, b], System::Cholesky { upper })
}
register_op!(cholesky_solve => "torch.cholesky_solve");

impl System {
    fn left(self) -> bool {
        match self {
            Self::Full { left } | Self::Triangular { left, .. } => left,
            Self::Cholesky { .. } => true,
        }
    }
}

impl OfMatrices for System {
    fn name(&self) -> &'static str {
        match self {
            Self::Full { .. } => "solve",
            Self::Triangular { .. } => "solve_triangular",
            Self::Cholesky { .. } => "cholesky_solve",
        }
    }

    fn results(&self, sizes: &[Size], dtype: DType) -> Result<Vec<Own>, ShapeError> {
        let &[(n, m), (rows, columns)] = sizes else { return Err(invalid("two tensors")) };
        let side = if self.left() { rows } else { columns };
        if n != m || side != n {
            return Err(invalid(format!(
                "{}: matrices of {n} x {m} do not suit a right side of {rows} x {columns}",
                self.name()
            )));
        }
        Ok(vec![Own::Each(dtype, vec![rows, columns])])
    }

    fn work(&self, sizes: &[Size]) -> usize {
        let &[(n, _), (rows, columns)] = sizes else { return 0 };
        let turned = usize::from(!self.left());
        let both = usize::from(matches!(self, Self::Cholesky { .. }));
        elements(&[(1 + turned + both, n, n), (3 + 2 * turned, rows, columns), (8, n, 1)])
    }

    fn compute(&self, matrices: Vec<Matrix>, _: f64) -> Result<Vec<Vec<f64>>, Refused> {
        let Ok([a, b]) = <[Matrix; 2]>::try_from(matrices) else {
            return Err(Refused::Arguments);
        };
        // X A = B is the transpose of A^T X^T = B^T.
        let (a, mut b) = match self.left() {
            true => (a, b),
            false => (a.transpose(), b.transpose()),
        };
        match *self {
            Self::Full { .. } => {
                let lu = Lu::new(a);
                if lu.zero.is_some() {
                    return Err(Refused::NoSolution);
                }
                b = lu.solve(b);
            }
            Self::Triangular { which, left } => {
                let which = Triangle { upper: which.upper == left, ..which };
                solve_triangular(&a, &mut b, which);
            }
            Self::Cholesky { upper } => {
                let (lower, turned) =
                    if upper { (a.transpose(), a) } else { (a.clone(), a.transpose()) };
                solve_triangular(&lower, &mut b, Triangle { upper: false, unit: false });
                solve_triangular(&turned, &mut b, Triangle { upper: true, unit: false });
            }
        }
        Ok(vec![rows(&if self.left() { b } else { b.transpose() })])
    }

    /// A matrix without an inverse, whatever it is to be applied to.
    fn refuses_data(&self) -> bool {
        matches!(self, Self::Full { .. })
    }
}

/// The solution of least squares, of all that there are the shortest:
/// <https://pytorch.org/docs/stable/generated/torch.linalg.lstsq.html>
#[derive(Debug, Clone, Copy)]
struct LeastSquares {
    /// Singular values below the greatest times this count as zero.
    rcond: Option<f64>,
    driver: Driver,
}

/// LAPACK's routine: all find the same solution, with different results beside it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Driver {
    /// Takes the matrices to have full rank.
    Gels,
    /// The rank.
    Gelsy,
    /// The rank and the singular values.
    Svd,
}

fn lstsq(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let drivers = [
        ("gelsy", Driver::Gelsy),
        ("gels", Driver::Gels),
        ("gelsd", Driver::Svd),
        ("gelss", Driver::Svd),
    ];
    // None is PyTorch's default, too.
    let none = r.has("driver") && r.optional::<String>("driver")?.is_none();
    let driver =
        if none { Driver::Gelsy } else { r.one_of("driver", &drivers, Some(Driver::Gelsy))? };
    let function = LeastSquares { rcond: r.optional("rcond")?, driver };
    // The tensors have other names in PyTorch's Python than in its schema.
    let a = r.named_input("A").map_or_else(|| r.required_input("input"), Ok)?;
    let b = r.named_input("B").map_or_else(|| r.required_input("b"), Ok)?;
    Ok(Box::new(Batched { inputs: vec![a, b], vector: true, function }))
}
register_op!(lstsq => "torch.linalg.lstsq");

impl OfMatrices for LeastSquares {
    fn name(&self) -> &'static str {
        "lstsq"
    }

    fn results(&self, sizes: &[Size], dtype: DType) -> Result<Vec<Own>, ShapeError> {
        let &[(n, m), (rows, columns)] = sizes else { return Err(invalid("two tensors")) };
        if rows != n {
            return Err(invalid(format!(
                "lstsq: matrices of {n} x {m} do not suit a right side of {rows} x {columns}"
            )));
        }
        // Errors of a solution that is not exact.
        let over = n > m;
        let residuals = match self.driver {
            Driver::Gels if over => Own::Each(dtype, vec![columns]),
            Driver::Svd if over => Own::EachOrNothing(dtype, vec![columns]),
            _ => Own::Nothing(dtype),
        };
        let rank = match self.driver {
            Driver::Gels => Own::Nothing(DType::I64),
            _ => Own::Each(DType::I64, vec![]),
        };
        let values = match self.driver {
            Driver::Svd => Own::Each(dtype, vec![n.min(m)]),
            _ => Own::Nothing(dtype),
        };
        Ok(vec![Own::Each(dtype, vec![m, columns]), residuals, rank, values])
    }

    fn work(&self, sizes: &[Size]) -> usize {
        let &[(n, m), (_, columns)] = sizes else { return 0 };
        let k = n.min(m);
        // A, its copy, which becomes a bidiagonal one, the factors; B and the errors; X.
        let factors = [(2, n, m), (1, n, k), (2, k, m), (2, k, k), (8, n, 1), (8, m, 1)];
        elements(&[&factors[..], &[(2, n, columns), (3, m, columns)]].concat())
    }

    fn compute(&self, matrices: Vec<Matrix>, eps: f64) -> Result<Vec<Vec<f64>>, Refused> {
        let Ok([a, b]) = <[Matrix; 2]>::try_from(matrices) else {
            return Err(Refused::Arguments);
        };
        let (n, m) = a.shape();
        let tolerance = match self.driver {
            Driver::Gels => 0.0,
            _ => self.rcond.unwrap_or(n.max(m) as f64 * eps),
        };
        let found = least_squares(&a, &b, tolerance)?;
        // `gels` takes the rank to be full, whatever the numbers are.
        let full = found.rank == m || self.driver == Driver::Gels;
        let residuals = match full && n > m {
            true => residuals(&a, &found.solution, &b),
            false => Vec::new(),
        };
        Ok(vec![rows(&found.solution), residuals, vec![found.rank as f64], found.values])
    }
}

//! Systems of linear equations: solve, solve_triangular, cholesky_solve.

use super::factor::{Lu, Triangle, solve_triangular};
use super::{Batched, OfMatrices, Own, Size, rows};
use crate::support::rearrange::invalid;
use crate::{BuildError, NodeReader, Operator, ShapeError, register_op};
use nalgebra::DMatrix;
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
        Ok(vec![(dtype, vec![rows, columns])])
    }

    fn compute(&self, matrices: Vec<DMatrix<f64>>, _: f64) -> Result<Vec<Vec<f64>>, String> {
        let Ok([a, b]) = <[DMatrix<f64>; 2]>::try_from(matrices) else {
            return Err("of another argument".into());
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
                    return Err("is singular: the system has no unique solution".into());
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
}

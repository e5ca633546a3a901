//! Functions of one tensor of matrices.

use super::factor::{Lu, cholesky, qr};
use super::spectral::{complete, eigh, exponential, pseudo_inverse, svd};
use super::{Batched, OfMatrices, Own, Size, rows};
use crate::support::rearrange::{invalid, subject};
use crate::{BuildError, NodeReader, Operator, ShapeError, register_op};
use nalgebra::DMatrix;
use plutino_tensor::DType;

#[derive(Debug, Clone, Copy)]
enum Single {
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.inv.html>
    Inverse,
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.det.html>
    Determinant,
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.slogdet.html>
    SignAndLog,
    /// <https://pytorch.org/docs/stable/generated/torch.logdet.html>
    Log,
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.cholesky.html>
    Cholesky { upper: bool },
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.qr.html>
    Qr(Mode),
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.svd.html>; V instead of its
    /// transpose: <https://pytorch.org/docs/stable/generated/torch.svd.html>
    Svd { full: bool, transposed: bool },
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.svdvals.html>
    SingularValues,
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.eigh.html>
    Eigh { upper: bool },
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.eigvalsh.html>
    Eigenvalues { upper: bool },
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.pinv.html>
    PseudoInverse { tolerance: Option<f64> },
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.matrix_rank.html>
    Rank { tolerance: Option<f64>, absolute: f64 },
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.lu_factor.html>
    LuFactor,
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.lu.html>
    Lu,
    /// <https://pytorch.org/docs/stable/generated/torch.matrix_exp.html>
    Exponential,
}

/// How much of a QR factorisation is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Reduced,
    Complete,
    OnlyR,
}

fn single(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let kind = r.kind();
    let upper =
        |r: &mut NodeReader<'_>| r.one_of("UPLO", &[("L", false), ("U", true)], Some(false));
    let function = match kind.rsplit('.').next().unwrap_or(kind) {
        "inv" | "inverse" => Single::Inverse,
        "det" => Single::Determinant,
        "slogdet" => Single::SignAndLog,
        "logdet" => Single::Log,
        "cholesky" => Single::Cholesky { upper: r.or("upper", false)? },
        "qr" if kind == "torch.qr" => {
            Single::Qr(if r.or("some", true)? { Mode::Reduced } else { Mode::Complete })
        }
        "qr" => {
            let modes =
                [("reduced", Mode::Reduced), ("complete", Mode::Complete), ("r", Mode::OnlyR)];
            Single::Qr(r.one_of("mode", &modes, Some(Mode::Reduced))?)
        }
        "svd" if kind == "torch.svd" => {
            if !r.or("compute_uv", true)? {
                return Err(r.bad("compute_uv", "True: take torch.linalg.svdvals for values only"));
            }
            Single::Svd { full: !r.or("some", true)?, transposed: false }
        }
        "svd" => {
            r.raw("driver");
            Single::Svd { full: r.or("full_matrices", true)?, transposed: true }
        }
        "svdvals" => {
            r.raw("driver");
            Single::SingularValues
        }
        "eigh" => Single::Eigh { upper: upper(r)? },
        "eigvalsh" => Single::Eigenvalues { upper: upper(r)? },
        "pinv" | "pinverse" => {
            symmetric_only_as_others(r)?;
            if r.or("atol", 0.0)? != 0.0 {
                return Err(r.bad("atol", "0: a tolerance relative to the greatest singular value"));
            }
            let tolerance = r.optional("rtol")?;
            let rcond = r.optional("rcond")?;
            let default = if kind == "torch.pinverse" { Some(1e-15) } else { None };
            Single::PseudoInverse { tolerance: tolerance.or(rcond).or(default) }
        }
        "matrix_rank" => {
            symmetric_only_as_others(r)?;
            let (atol, rtol, tol): (Option<f64>, Option<f64>, Option<f64>) =
                (r.optional("atol")?, r.optional("rtol")?, r.optional("tol")?);
            let absolute = atol.or(tol);
            let tolerance = rtol.or(absolute.filter(|a| *a > 0.0).map(|_| 0.0));
            Single::Rank { tolerance, absolute: absolute.unwrap_or(0.0) }
        }
        "lu_factor" | "lu" => {
            if !r.or("pivot", true)? {
                return Err(r.bad("pivot", "True"));
            }
            if kind.ends_with("lu") { Single::Lu } else { Single::LuFactor }
        }
        _ => Single::Exponential,
    };
    let input = r.named_input("A").map_or_else(|| subject(r), Ok)?;
    Batched::boxed(vec![input], function)
}
register_op!(single =>
    "torch.linalg.inv", "torch.inverse", "torch.linalg.det", "torch.det", "torch.linalg.slogdet",
    "torch.slogdet", "torch.logdet", "torch.linalg.cholesky", "torch.cholesky", "torch.linalg.qr",
    "torch.qr", "torch.linalg.svd", "torch.svd", "torch.linalg.svdvals", "torch.linalg.eigh",
    "torch.linalg.eigvalsh", "torch.linalg.pinv", "torch.pinverse", "torch.linalg.matrix_rank",
    "torch.linalg.lu_factor", "torch.linalg.lu", "torch.matrix_exp", "torch.linalg.matrix_exp");

/// `hermitian` names a faster way to the same numbers.
fn symmetric_only_as_others(r: &mut NodeReader<'_>) -> Result<(), BuildError> {
    let _: bool = r.or("hermitian", false)?;
    Ok(())
}

impl Single {
    fn needs_square(self) -> bool {
        !matches!(
            self,
            Self::Qr(_)
                | Self::Svd { .. }
                | Self::SingularValues
                | Self::PseudoInverse { .. }
                | Self::Rank { .. }
                | Self::LuFactor
                | Self::Lu
        )
    }
}

impl OfMatrices for Single {
    fn name(&self) -> &'static str {
        match self {
            Self::Inverse => "inv",
            Self::Determinant => "det",
            Self::SignAndLog => "slogdet",
            Self::Log => "logdet",
            Self::Cholesky { .. } => "cholesky",
            Self::Qr(_) => "qr",
            Self::Svd { .. } => "svd",
            Self::SingularValues => "svdvals",
            Self::Eigh { .. } => "eigh",
            Self::Eigenvalues { .. } => "eigvalsh",
            Self::PseudoInverse { .. } => "pinv",
            Self::Rank { .. } => "matrix_rank",
            Self::LuFactor => "lu_factor",
            Self::Lu => "lu",
            Self::Exponential => "matrix_exp",
        }
    }

    fn results(&self, sizes: &[Size], dtype: DType) -> Result<Vec<Own>, ShapeError> {
        let &[(n, m)] = sizes else { return Err(invalid("one tensor")) };
        if self.needs_square() && n != m {
            return Err(invalid(format!("{} needs square matrices, not {n} x {m}", self.name())));
        }
        let k = n.min(m);
        let own: Vec<Vec<usize>> = match self {
            Self::Inverse | Self::Cholesky { .. } | Self::Exponential => vec![vec![n, n]],
            Self::Determinant | Self::Log => vec![vec![]],
            Self::SignAndLog => vec![vec![], vec![]],
            Self::Qr(Mode::Reduced) => vec![vec![n, k], vec![k, m]],
            Self::Qr(Mode::Complete) => vec![vec![n, n], vec![n, m]],
            // PyTorch gives an empty Q as well, which nobody reads.
            Self::Qr(Mode::OnlyR) => vec![vec![0], vec![k, m]],
            Self::Svd { full: true, .. } => vec![vec![n, n], vec![k], vec![m, m]],
            Self::Svd { transposed: true, .. } => vec![vec![n, k], vec![k], vec![k, m]],
            Self::Svd { .. } => vec![vec![n, k], vec![k], vec![m, k]],
            Self::SingularValues | Self::Eigenvalues { .. } => vec![vec![k]],
            Self::Eigh { .. } => vec![vec![n], vec![n, n]],
            Self::PseudoInverse { .. } => vec![vec![m, n]],
            Self::Rank { .. } => return Ok(vec![(DType::I64, vec![])]),
            Self::LuFactor => return Ok(vec![(dtype, vec![n, m]), (DType::I32, vec![k])]),
            Self::Lu => vec![vec![n, n], vec![n, k], vec![k, m]],
        };
        Ok(own.into_iter().map(|own| (dtype, own)).collect())
    }

    fn compute(&self, matrices: Vec<DMatrix<f64>>, eps: f64) -> Result<Vec<Vec<f64>>, String> {
        let Ok([a]) = <[DMatrix<f64>; 1]>::try_from(matrices) else {
            return Err("of another argument".into());
        };
        let (n, m) = a.shape();
        // Below that, a singular value is an error of rounding.
        let rounding = n.max(m) as f64 * eps;
        Ok(match *self {
            Self::Inverse => {
                let lu = Lu::new(a);
                if lu.zero.is_some() {
                    return Err("is singular: it has no inverse".into());
                }
                vec![rows(&lu.solve(DMatrix::identity(n, n)))]
            }
            Self::Determinant => vec![vec![product(&Lu::new(a))]],
            Self::SignAndLog => {
                let (sign, log) = sign_and_log(&Lu::new(a));
                vec![vec![sign], vec![log]]
            }
            Self::Log => {
                let (sign, log) = sign_and_log(&Lu::new(a));
                vec![vec![if sign < 0.0 { f64::NAN } else { log }]]
            }
            Self::Cholesky { upper } => {
                let a = if upper { a.transpose() } else { a };
                let l = cholesky(&a).map_err(|order| {
                    format!("is not positive definite: its leading minor of order {order} is not")
                })?;
                vec![rows(&if upper { l.transpose() } else { l })]
            }
            Self::Qr(mode) => {
                let (q, r) = qr(a, if mode == Mode::Complete { n } else { n.min(m) });
                vec![if mode == Mode::OnlyR { Vec::new() } else { rows(&q) }, rows(&r)]
            }
            Self::Svd { full, transposed } => {
                let (mut u, s, v_t) = svd(&a)?;
                let mut v = v_t.transpose();
                if full {
                    (u, v) = (complete(&u), complete(&v));
                }
                vec![rows(&u), s, rows(&if transposed { v.transpose() } else { v })]
            }
            Self::SingularValues => vec![svd(&a)?.1],
            Self::Eigh { upper } => {
                let (values, vectors) = eigh(&a, upper)?;
                vec![values, rows(&vectors)]
            }
            Self::Eigenvalues { upper } => vec![eigh(&a, upper)?.0],
            Self::PseudoInverse { tolerance } => {
                vec![rows(&pseudo_inverse(&a, tolerance.unwrap_or(rounding))?)]
            }
            Self::Rank { tolerance, absolute } => {
                let values = svd(&a)?.1;
                let greatest = values.first().copied().unwrap_or(0.0);
                let bound = absolute.max(greatest * tolerance.unwrap_or(rounding));
                vec![vec![values.iter().filter(|s| **s > bound).count() as f64]]
            }
            Self::LuFactor => {
                let lu = Lu::new(a);
                let pivots = lu.pivots.iter().map(|&p| (p + 1) as f64).collect();
                vec![rows(&lu.both), pivots]
            }
            Self::Lu => {
                let lu = Lu::new(a);
                let (lower, upper) = lu.factors();
                let mut p = DMatrix::<f64>::identity(n, n);
                for (k, &pivot) in lu.pivots.iter().enumerate() {
                    p.swap_rows(k, pivot);
                }
                vec![rows(&p.transpose()), rows(&lower), rows(&upper)]
            }
            Self::Exponential => vec![rows(&exponential(&a))],
        })
    }
}

/// The determinant of what was factorised.
fn product(lu: &Lu) -> f64 {
    let sign = if lu.odd { -1.0 } else { 1.0 };
    lu.both.diagonal().iter().product::<f64>() * sign
}

/// The determinant's sign and the logarithm of its absolute value.
fn sign_and_log(lu: &Lu) -> (f64, f64) {
    let (mut sign, mut log) = (if lu.odd { -1.0 } else { 1.0 }, 0.0);
    for &x in lu.both.diagonal().iter() {
        log += x.abs().ln();
        sign *= if x == 0.0 { 0.0 } else { x.signum() };
    }
    (sign, log)
}

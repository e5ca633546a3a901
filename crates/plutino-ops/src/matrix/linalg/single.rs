//! Functions of one tensor of matrices.

use super::{Batched, OfMatrices, Own, Refused, Size, elements};
use crate::support::rearrange::{invalid, subject};
use crate::{BuildError, NodeReader, Operator, ShapeError, register_op};
use plutino_kernels::linalg::factor::{Lu, cholesky, cholesky_inverse, qr};
use plutino_kernels::linalg::spectral::{
    complete, eigh, exponential, pseudo_inverse, svd, symmetric,
};
use plutino_kernels::linalg::{LinalgError, Matrix, rows};
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
    PseudoInverse { tolerance: Option<f64>, hermitian: bool },
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.matrix_rank.html>
    Rank { tolerance: Option<f64>, absolute: f64, hermitian: bool },
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.lu_factor.html>
    LuFactor,
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.lu.html>
    Lu,
    /// <https://pytorch.org/docs/stable/generated/torch.matrix_exp.html>
    Exponential,
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.cond.html>
    Condition(MatrixNorm),
    /// <https://pytorch.org/docs/stable/generated/torch.cholesky_inverse.html>
    CholeskyInverse { upper: bool },
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.inv_ex.html>
    InverseAndInfo,
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.cholesky_ex.html>
    CholeskyAndInfo { upper: bool },
}

/// The norms of which there are condition numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum MatrixNorm {
    /// The greatest singular value.
    Greatest,
    /// The least one.
    Least,
    /// The sum of all.
    Nuclear,
    Frobenius,
    /// The greatest sum of a row's absolute values; of a column's.
    Rows,
    Columns,
    /// The least such sum.
    LeastRow,
    LeastColumn,
}

impl MatrixNorm {
    /// Infinities, as PNNX writes them, count as such.
    fn read(r: &mut NodeReader<'_>) -> Result<Self, BuildError> {
        let words = [("fro", Self::Frobenius), ("nuc", Self::Nuclear)];
        let Some(number) = r.optional::<f64>("p").ok().flatten() else {
            let none = !r.has("p") || r.optional::<String>("p")?.is_none();
            return if none { Ok(Self::Greatest) } else { r.one_of("p", &words, None) };
        };
        let numbers = [
            (2.0, Self::Greatest),
            (-2.0, Self::Least),
            (1.0, Self::Columns),
            (-1.0, Self::LeastColumn),
            (f64::INFINITY, Self::Rows),
            (f64::NEG_INFINITY, Self::LeastRow),
        ];
        let found = numbers.iter().find(|(n, _)| *n == number).map(|(_, norm)| *norm);
        found.ok_or_else(|| r.bad("p", "None, fro, nuc, inf, -inf, 1, -1, 2 or -2"))
    }

    /// Of a matrix; those of singular values are not asked for here.
    fn of(self, a: &Matrix) -> Result<f64, LinalgError> {
        let sum = |xs: &mut dyn Iterator<Item = f64>| xs.map(f64::abs).sum::<f64>();
        let rows = || a.row_iter().map(|row| sum(&mut row.iter().copied()));
        let columns = || a.column_iter().map(|column| sum(&mut column.iter().copied()));
        Ok(match self {
            Self::Frobenius => a.norm(),
            Self::Rows => rows().fold(0.0, f64::max),
            Self::LeastRow => rows().fold(f64::INFINITY, f64::min),
            Self::Columns => columns().fold(0.0, f64::max),
            Self::LeastColumn => columns().fold(f64::INFINITY, f64::min),
            Self::Greatest | Self::Least | Self::Nuclear => {
                let values = svd(a)?.1;
                match self {
                    Self::Nuclear => values.iter().sum(),
                    Self::Greatest => values.first().copied().unwrap_or(0.0),
                    _ => values.last().copied().unwrap_or(0.0),
                }
            }
        })
    }
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
            let hermitian = r.or("hermitian", false)?;
            if r.or("atol", 0.0)? != 0.0 {
                return Err(r.bad("atol", "0: a tolerance relative to the greatest singular value"));
            }
            let tolerance = r.optional("rtol")?;
            let rcond = r.optional("rcond")?;
            let default = if kind == "torch.pinverse" { Some(1e-15) } else { None };
            Single::PseudoInverse { tolerance: tolerance.or(rcond).or(default), hermitian }
        }
        "matrix_rank" => {
            let hermitian = r.or("hermitian", false)?;
            let (atol, rtol, tol): (Option<f64>, Option<f64>, Option<f64>) =
                (r.optional("atol")?, r.optional("rtol")?, r.optional("tol")?);
            let absolute = atol.or(tol);
            let tolerance = rtol.or(absolute.filter(|a| *a > 0.0).map(|_| 0.0));
            Single::Rank { tolerance, absolute: absolute.unwrap_or(0.0), hermitian }
        }
        "lu_factor" | "lu" => {
            if !r.or("pivot", true)? {
                return Err(r.bad("pivot", "True"));
            }
            if kind.ends_with("lu") { Single::Lu } else { Single::LuFactor }
        }
        "cond" => Single::Condition(MatrixNorm::read(r)?),
        "cholesky_inverse" => Single::CholeskyInverse { upper: r.or("upper", false)? },
        "inv_ex" | "cholesky_ex" => {
            // With it PyTorch raises an error where the results would say so.
            if r.or("check_errors", false)? {
                return Err(r.bad("check_errors", "False: the second result says what is wrong"));
            }
            match kind.ends_with("inv_ex") {
                true => Single::InverseAndInfo,
                false => Single::CholeskyAndInfo { upper: r.or("upper", false)? },
            }
        }
        _ => Single::Exponential,
    };
    let named = ["A", "L"].iter().find_map(|name| r.named_input(name));
    let input = named.map_or_else(|| subject(r), Ok)?;
    Batched::boxed(vec![input], function)
}
register_op!(single =>
    "torch.linalg.cond", "torch.cholesky_inverse", "torch.linalg.inv_ex", "torch.linalg.cholesky_ex",
    "torch.linalg.inv", "torch.inverse", "torch.linalg.det", "torch.det", "torch.linalg.slogdet",
    "torch.slogdet", "torch.logdet", "torch.linalg.cholesky", "torch.cholesky", "torch.linalg.qr",
    "torch.qr", "torch.linalg.svd", "torch.svd", "torch.linalg.svdvals", "torch.linalg.eigh",
    "torch.linalg.eigvalsh", "torch.linalg.pinv", "torch.pinverse", "torch.linalg.matrix_rank",
    "torch.linalg.lu_factor", "torch.linalg.lu", "torch.matrix_exp", "torch.linalg.matrix_exp");

impl Single {
    fn needs_square(self) -> bool {
        !matches!(
            self,
            Self::Qr(_)
                | Self::Svd { .. }
                | Self::SingularValues
                | Self::PseudoInverse { hermitian: false, .. }
                | Self::Rank { hermitian: false, .. }
                | Self::LuFactor
                | Self::Lu
                | Self::Condition(MatrixNorm::Greatest | MatrixNorm::Least)
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
            Self::Condition(_) => "cond",
            Self::CholeskyInverse { .. } => "cholesky_inverse",
            Self::InverseAndInfo => "inv_ex",
            Self::CholeskyAndInfo { .. } => "cholesky_ex",
        }
    }

    fn results(&self, sizes: &[Size], dtype: DType) -> Result<Vec<Own>, ShapeError> {
        let &[(n, m)] = sizes else { return Err(invalid("one tensor")) };
        if self.needs_square() && n != m {
            return Err(invalid(format!("{} needs square matrices, not {n} x {m}", self.name())));
        }
        let k = n.min(m);
        let own: Vec<Vec<usize>> = match self {
            Self::Inverse
            | Self::Cholesky { .. }
            | Self::Exponential
            | Self::CholeskyInverse { .. } => vec![vec![n, n]],
            Self::InverseAndInfo | Self::CholeskyAndInfo { .. } => {
                let info = Own::Each(DType::I32, vec![]);
                return Ok(vec![Own::Each(dtype, vec![n, n]), info]);
            }
            Self::Determinant | Self::Log | Self::Condition(_) => vec![vec![]],
            Self::SignAndLog => vec![vec![], vec![]],
            Self::Qr(Mode::Reduced) => vec![vec![n, k], vec![k, m]],
            Self::Qr(Mode::Complete) => vec![vec![n, n], vec![n, m]],
            Self::Qr(Mode::OnlyR) => {
                return Ok(vec![Own::Nothing(dtype), Own::Each(dtype, vec![k, m])]);
            }
            Self::Svd { full: true, .. } => vec![vec![n, n], vec![k], vec![m, m]],
            Self::Svd { transposed: true, .. } => vec![vec![n, k], vec![k], vec![k, m]],
            Self::Svd { .. } => vec![vec![n, k], vec![k], vec![m, k]],
            Self::SingularValues | Self::Eigenvalues { .. } => vec![vec![k]],
            Self::Eigh { .. } => vec![vec![n], vec![n, n]],
            Self::PseudoInverse { .. } => vec![vec![m, n]],
            Self::Rank { .. } => return Ok(vec![Own::Each(DType::I64, vec![])]),
            Self::LuFactor => {
                let pivots = Own::Each(DType::I32, vec![k]);
                return Ok(vec![Own::Each(dtype, vec![n, m]), pivots]);
            }
            Self::Lu => vec![vec![n, n], vec![n, k], vec![k, m]],
        };
        Ok(own.into_iter().map(|own| Own::Each(dtype, own)).collect())
    }

    fn work(&self, sizes: &[Size]) -> usize {
        let &[(n, m)] = sizes else { return 0 };
        let k = n.min(m);
        // A, its copy, which becomes a bidiagonal one, the factors.
        let svd = [(2, n, m), (1, n, k), (1, k, m), (1, k, k)];
        let also = |more: &[_]| elements(&[&svd[..], more].concat());
        let most = match *self {
            Self::Determinant | Self::SignAndLog | Self::Log => elements(&[(1, n, m)]),
            Self::Inverse | Self::InverseAndInfo | Self::CholeskyInverse { .. } => {
                elements(&[(4, n, n)])
            }
            Self::Cholesky { upper } | Self::CholeskyAndInfo { upper } => {
                elements(&[(if upper { 6 } else { 4 }, n, n)])
            }
            Self::Qr(mode) => {
                let q = if mode == Mode::Complete { n } else { k };
                let found = elements(&[(1, n, m), (1, n, k), (1, n, q), (1, q, m)]);
                let turned =
                    elements(&[(3, n, q), (1, q, m)]).max(elements(&[(2, n, q), (3, q, m)]));
                found.max(turned)
            }
            Self::Svd { full: true, .. } => also(&[(3, n, n), (4, m, m)]),
            Self::Svd { .. } => also(&[(1, n, k), (4, k, m)]),
            Self::SingularValues => also(&[]),
            Self::Rank { .. } => also(&[(1, n, m)]),
            Self::PseudoInverse { .. } => also(&[(2, n, m), (1, k, k)]),
            Self::Condition(MatrixNorm::Greatest | MatrixNorm::Least) => also(&[]),
            Self::Condition(MatrixNorm::Nuclear) => also(&[(3, n, n)]),
            Self::Condition(_) => elements(&[(3, n, n)]),
            Self::Eigh { .. } | Self::Eigenvalues { .. } => elements(&[(4, n, n)]),
            Self::LuFactor => elements(&[(3, n, m)]),
            Self::Lu => elements(&[(1, n, m), (4, n, n), (3, n, k), (3, k, m)]),
            Self::Exponential => elements(&[(9, n, n)]),
        };
        most.saturating_add(elements(&[(8, n, 1), (8, m, 1)])) // vectors
    }

    fn compute(&self, matrices: Vec<Matrix>, eps: f64) -> Result<Vec<Vec<f64>>, Refused> {
        let Ok([a]) = <[Matrix; 1]>::try_from(matrices) else { return Err(Refused::Arguments) };
        let (n, m) = a.shape();
        // Below that, a singular value is an error of rounding.
        let rounding = n.max(m) as f64 * eps;
        Ok(match *self {
            Self::Inverse => {
                vec![rows(&Lu::new(a).inverse().ok_or(Refused::NoInverse)?)]
            }
            Self::Determinant => vec![vec![Lu::new(a).determinant()]],
            Self::SignAndLog => {
                let (sign, log) = Lu::new(a).sign_and_log();
                vec![vec![sign], vec![log]]
            }
            Self::Log => {
                let (sign, log) = Lu::new(a).sign_and_log();
                vec![vec![if sign < 0.0 { f64::NAN } else { log }]]
            }
            Self::Cholesky { upper } => {
                let a = if upper { a.transpose() } else { a };
                let l = cholesky(&a)?;
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
            Self::PseudoInverse { tolerance, hermitian } => {
                let a = if hermitian { symmetric(&a, false) } else { a };
                vec![rows(&pseudo_inverse(&a, tolerance.unwrap_or(rounding))?)]
            }
            Self::Rank { tolerance, absolute, hermitian } => {
                let a = if hermitian { symmetric(&a, false) } else { a };
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
                vec![rows(&lu.permutation().transpose()), rows(&lower), rows(&upper)]
            }
            Self::Exponential => vec![rows(&exponential(&a))],
            Self::Condition(norm @ (MatrixNorm::Greatest | MatrixNorm::Least)) => {
                let values = svd(&a)?.1;
                let ends = values.first().zip(values.last());
                let (greatest, least) = ends.map_or((0.0, 0.0), |(g, l)| (*g, *l));
                vec![vec![match norm {
                    MatrixNorm::Greatest => greatest / least,
                    _ => least / greatest,
                }]]
            }
            Self::Condition(norm) => {
                let lu = Lu::new(a.clone());
                // Infinite where there is no inverse, as PyTorch has it.
                let inverse = match lu.inverse() {
                    Some(inverse) => norm.of(&inverse)?,
                    None => f64::INFINITY,
                };
                vec![vec![norm.of(&a)? * inverse]]
            }
            Self::CholeskyInverse { upper } => {
                // Of U^T U, or of L L^T.
                let lower = if upper { a.transpose() } else { a };
                vec![rows(&cholesky_inverse(&lower))]
            }
            Self::InverseAndInfo => {
                let lu = Lu::new(a);
                let info = lu.zero.map_or(0.0, |zero| (zero + 1) as f64);
                // Of a singular matrix PyTorch promises nothing.
                let none = || Matrix::from_element(n, n, f64::NAN);
                let inverse = lu.inverse().unwrap_or_else(none);
                vec![rows(&inverse), vec![info]]
            }
            Self::CholeskyAndInfo { upper } => {
                let a = if upper { a.transpose() } else { a };
                let (l, info) = match cholesky(&a) {
                    Ok(l) => (l, 0.0),
                    Err(LinalgError::NotPositiveDefinite { order }) => {
                        (Matrix::from_element(n, n, f64::NAN), order as f64)
                    }
                    Err(other) => return Err(other.into()),
                };
                vec![rows(&if upper { l.transpose() } else { l }), vec![info]]
            }
        })
    }
}

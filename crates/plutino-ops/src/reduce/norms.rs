//! Norms of vectors and matrices: `torch.linalg.norm` and its kin.
//!
//! <https://pytorch.org/docs/stable/generated/torch.linalg.norm.html>,
//! <https://pytorch.org/docs/stable/generated/torch.linalg.vector_norm.html>,
//! <https://pytorch.org/docs/stable/generated/torch.linalg.matrix_norm.html>,
//! <https://pytorch.org/docs/stable/generated/torch.norm.html>. Those of a matrix of order 2, -2
//! and `nuc` are made of its singular values.

use super::planned;
use crate::support::composite::{Compose, StepText, composed, number};
use crate::support::in_dtype::to_dtype;
use crate::support::rearrange::invalid;
use crate::{
    BuildError, NodeReader, Operator, PlanCx, PlanError, Planned, ShapeError, TensorValue,
    ValueSpec, function, register_op,
};
use plutino_ir::Parameter;
use plutino_kernels::elementwise::real_of;
use plutino_kernels::for_floats;
use plutino_kernels::number::Number as _;
use plutino_kernels::singular::singular_values;
use plutino_tensor::stop;
use plutino_tensor::{DType, Shape, Tensor};

/// What a norm is called.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    /// The root of the sum of squares, of vectors and matrices.
    Missing,
    Frobenius,
    Nuclear,
    Number(f64),
}

/// Whose norms are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Vectors,
    Matrices,
    /// By the number of dimensions.
    Either,
}

#[derive(Debug)]
struct Norm {
    input: usize,
    of: Of,
    order: Order,
    dims: Option<Vec<i64>>,
    keepdim: bool,
    /// The dtype in which it is computed, where the file names it.
    dtype: Option<DType>,
}

fn order(r: &mut NodeReader<'_>, key: &str) -> Result<Order, BuildError> {
    match r.raw(key) {
        None | Some(Parameter::Null) => Ok(Order::Missing),
        Some(p) => match (p.as_float(), p.as_str()) {
            (Some(p), _) if !p.is_nan() => Ok(Order::Number(p)),
            (_, Some("fro")) => Ok(Order::Frobenius),
            (_, Some("nuc")) => Ok(Order::Nuclear),
            (_, Some("inf")) => Ok(Order::Number(f64::INFINITY)),
            (_, Some("-inf")) => Ok(Order::Number(f64::NEG_INFINITY)),
            _ => Err(r.bad(key, "a number, inf, -inf, fro or nuc")),
        },
    }
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let name = function(r.kind());
    let (of, order) = match name {
        "vector_norm" => (Of::Vectors, order(r, "ord")?),
        "matrix_norm" => (Of::Matrices, order(r, "ord")?),
        "nuclear_norm" => (Of::Matrices, Order::Nuclear),
        "frobenius_norm" => (Of::Vectors, Order::Missing),
        _ => (Of::Either, order(r, "ord")?),
    };
    if of == Of::Vectors && matches!(order, Order::Frobenius | Order::Nuclear) {
        return Err(r.bad("ord", "a number, inf or -inf"));
    }
    let (dims, keepdim) = (r.optional("dim")?, r.or("keepdim", false)?);
    let dtype = r.optional("dtype")?;
    let norm = Norm { input: r.required_input("input")?, of, order, dims, keepdim, dtype };
    composed(norm)
}
register_op!(build => "torch.linalg.norm", "torch.linalg.vector_norm", "torch.linalg.matrix_norm",
    "torch.nuclear_norm", "torch.frobenius_norm");

/// `torch.norm` with `p=nuc`, or with a dtype.
pub(super) fn of_torch(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let order = order(r, "p")?;
    let of = if order == Order::Nuclear { Of::Matrices } else { Of::Vectors };
    let order = if order == Order::Frobenius { Order::Missing } else { order };
    let dims = r.optional::<Vec<i64>>("dim")?.filter(|dims| !dims.is_empty());
    let (keepdim, dtype) = (r.or("keepdim", false)?, r.optional("dtype")?);
    composed(Norm { input: r.required_input("input")?, of, order, dims, keepdim, dtype })
}

fn python(truth: bool) -> &'static str {
    if truth { "True" } else { "False" }
}

impl Norm {
    /// The dimensions of the matrices, where their norms are asked for.
    fn matrices(&self, shape: &Shape) -> Result<Option<[usize; 2]>, ShapeError> {
        let two = |dims: &[i64]| match dims {
            &[rows, columns] => {
                let (rows, columns) = (shape.dim(rows)?, shape.dim(columns)?);
                match rows == columns {
                    true => {
                        Err(invalid(format!("the dimensions of matrices must differ: {dims:?}")))
                    }
                    false => Ok(Some([rows, columns])),
                }
            }
            _ => Err(invalid(format!("matrices have two dimensions, not {dims:?}"))),
        };
        match (self.of, &self.dims, self.order) {
            (Of::Vectors, ..) => Ok(None),
            (Of::Either, None, Order::Missing) => Ok(None),
            (Of::Either, None, _) => match shape.rank() {
                1 => Ok(None),
                _ => two(&[0, 1]).and_then(|dims| match shape.rank() {
                    2 => Ok(dims),
                    rank => Err(invalid(format!("of {rank} dimensions, dim must say which"))),
                }),
            },
            (Of::Either, Some(dims), _) if dims.len() == 1 => Ok(None),
            (Of::Either, Some(dims), Order::Missing) if dims.len() != 2 => Ok(None),
            (Of::Matrices, None, _) if shape.rank() < 2 => two(&[]),
            (Of::Matrices, None, _) => two(&[-2, -1]),
            (_, Some(dims), _) => two(dims),
        }
    }

    /// The norms of `x`, which holds real numbers and is not negative where it was complex.
    fn of_real(&self, x: &str, shape: &Shape, steps: &mut Vec<StepText>) -> Result<(), ShapeError> {
        let keepdim = python(self.keepdim);
        let Some([rows, columns]) = self.matrices(shape)? else {
            let dims = self.dims.as_deref().unwrap_or_default();
            let p = match self.order {
                Order::Missing => 2.0,
                Order::Number(p) => p,
                Order::Frobenius | Order::Nuclear => {
                    return Err(invalid("'fro' and 'nuc' are norms of matrices"));
                }
            };
            let reduced = |d: usize| {
                dims.is_empty() || dims.iter().any(|&dim| shape.dim(dim).is_ok_and(|at| at == d))
            };
            let elements = (0..shape.rank()).filter(|&d| reduced(d)).map(|d| shape[d]);
            if (p < 0.0 || p == f64::INFINITY) && elements.fold(1, usize::saturating_mul) == 0 {
                return Err(invalid(format!("there is no norm of order {p} of nothing: {shape}")));
            }
            let dims = dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let text = format!("p={} dim=({dims}) keepdim={keepdim}", number(p));
            steps.push(StepText::new("torch.norm", &[x], "norm", &text));
            return Ok(());
        };
        let norm = match self.order {
            Order::Missing | Order::Frobenius => {
                let text = format!("p=2 dim=({rows},{columns}) keepdim={keepdim}");
                steps.push(StepText::new("torch.norm", &[x], "norm", &text));
                return Ok(());
            }
            Order::Nuclear => SingularNorm::Sum,
            Order::Number(2.0) => SingularNorm::Greatest,
            Order::Number(-2.0) => SingularNorm::Least,
            Order::Number(p) if p.abs() == 1.0 || p.is_infinite() => {
                // Sums of columns, or of rows; then the greatest or the least one.
                let (first, mut second) =
                    if p.abs() == 1.0 { (rows, columns) } else { (columns, rows) };
                if !self.keepdim && first < second {
                    second -= 1;
                }
                steps.push(StepText::new("torch.abs", &[x], "sizes", ""));
                let text = format!("dim=({first}) keepdim={keepdim}");
                steps.push(StepText::new("torch.sum", &["sizes"], "sums", &text));
                let text = format!("dim=({second}) keepdim={keepdim}");
                // The greatest of no sums is 0; there is no least one.
                let of_nothing = shape.get(if p.abs() == 1.0 { columns } else { rows }) == Some(&0);
                let kind = match p > 0.0 {
                    true if of_nothing => "torch.sum",
                    true => "torch.amax",
                    false => "torch.amin",
                };
                steps.push(StepText::new(kind, &["sums"], "norm", &text));
                return Ok(());
            }
            Order::Number(p) => return Err(invalid(format!("matrices have no norm of order {p}"))),
        };
        let singular = Singular { norm, dims: [rows, columns], keepdim: self.keepdim };
        steps.push(StepText::of(Box::new(singular), &[x], "norm"));
        Ok(())
    }
}

impl Compose for Norm {
    fn name(&self) -> &'static str {
        "norm"
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.input]
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[x] = inputs else { return Err(invalid("one tensor")) };
        let (input, mut dtype, mut name) = (self.input, x.dtype(), "x0");
        if !dtype.is_float() && !dtype.is_complex() {
            let expected = "a float or complex".into();
            return Err(ShapeError::DType { input, expected, found: dtype });
        }
        let mut steps = Vec::new();
        if dtype.is_complex() {
            if self.matrices(x.shape())?.is_some()
                && matches!(self.order, Order::Nuclear | Order::Number(2.0 | -2.0))
            {
                let expected = "a float".into();
                return Err(ShapeError::DType { input, expected, found: dtype });
            }
            steps.push(StepText::new("torch.abs", &[name], "sizes0", ""));
            (dtype, name) = (real_of(dtype), "sizes0");
        }
        let wanted = self.dtype.map_or(dtype, real_of);
        if wanted != dtype {
            if !wanted.is_float() {
                return Err(invalid(format!("a norm is no {wanted}")));
            }
            steps.push(StepText::new("Tensor.to", &[name], "cast", &to_dtype(wanted)));
            name = "cast";
        }
        self.of_real(name, x.shape(), &mut steps)?;
        Ok(steps)
    }
}

/// What is made of the singular values of each matrix.
#[derive(Debug, Clone, Copy)]
enum SingularNorm {
    Sum,
    Greatest,
    Least,
}

impl SingularNorm {
    fn of(self, values: &[f64]) -> f64 {
        match self {
            Self::Sum => values.iter().fold(0.0, |sum, x| sum + x), // an empty `sum` is -0
            Self::Greatest => values.first().copied().unwrap_or(0.0),
            Self::Least => values.last().copied().unwrap_or(0.0),
        }
    }
}

/// A norm of the matrices in these two dimensions of the only input.
#[derive(Debug)]
struct Singular {
    norm: SingularNorm,
    dims: [usize; 2],
    keepdim: bool,
}

impl Singular {
    /// The order of dimensions in which matrices come last, the shorter of their dimensions before
    /// the longer one.
    fn order(&self, shape: &Shape) -> Vec<usize> {
        let [mut rows, mut columns] = self.dims;
        if shape.get(rows) > shape.get(columns) {
            (rows, columns) = (columns, rows);
        }
        let kept = (0..shape.rank()).filter(|d| !self.dims.contains(d));
        kept.chain([rows, columns]).collect()
    }
}

impl Operator for Singular {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let x = TensorValue::at(inputs, 0)?;
        let gone = &self.dims;
        let sizes = x.shape().iter().enumerate();
        let shape: Shape = match self.keepdim {
            true => sizes.map(|(d, &size)| if gone.contains(&d) { 1 } else { size }).collect(),
            false => sizes.filter(|(d, _)| !gone.contains(d)).map(|(_, &size)| size).collect(),
        };
        Ok(vec![ValueSpec::tensor(x.dtype(), shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, 0)?;
        let (norm, order, shape) = (self.norm, self.order(x.shape()), x.shape());
        let [a, b] = self.dims.map(|d| shape.get(d).copied().unwrap_or(1));
        let (rows, columns) = (a.min(b), a.max(b));
        for_floats!(x.dtype(),
            T => Ok(planned("norm.singular", move |cx| {
                let view = cx.inputs.view(0)?.permute(&order)?;
                let mut matrix = Tensor::zeros(DType::F64, [rows, columns])?;
                let matrix = matrix.as_mut_slice::<f64>()?;
                let mut values = Tensor::zeros(DType::F64, [rows])?;
                let values = values.as_mut_slice::<f64>()?;
                let mut elements = view.iter::<T>()?;
                for y in cx.outputs.take::<T>(0)? {
                    stop::check()?;
                    for (to, x) in matrix.iter_mut().zip(&mut elements) {
                        *to = x.widen();
                    }
                    singular_values(rows, columns, matrix, values);
                    *y = T::narrow(norm.of(values));
                }
                Ok(())
            })),
            _ => Err(PlanError::Unsupported(format!("a norm of {}", x.dtype()))),
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, iota, op, tensor, try_op, values};
    use num_complex::Complex;
    use plutino_tensor::{DType, Tensor};

    fn run(line: &str, x: &Tensor) -> Tensor {
        check(&*op(line), std::slice::from_ref(x)).remove(0)
    }

    #[test]
    fn of_matrices_of_nothing() {
        for (order, shape, zero) in [
            ("inf", [0, 0], true),
            ("inf", [3, 0], true),
            ("1", [0, 3], true),
            ("1", [3, 0], true),
            ("-inf", [3, 0], true),
            ("-inf", [0, 3], false),
            ("-1", [3, 0], false),
        ] {
            let line = format!("torch.linalg.norm n 1 1 0 1 ord={order}");
            let x = Tensor::zeros(DType::F32, shape).unwrap();
            match zero {
                true => assert_eq!(run(&line, &x), tensor([], &[0.0f32]), "{order} {shape:?}"),
                false => drop(error(&*op(&line), &[x])),
            }
        }
    }

    #[test]
    fn of_vectors() {
        let x = tensor([2, 2], &[3.0f32, -4.0, 6.0, 8.0]);
        let line = "torch.linalg.vector_norm n 1 1 0 1 ord=2 dim=(-1) keepdim=True $input=0";
        assert_eq!(run(line, &x), tensor([2, 1], &[5.0f32, 10.0]));
        assert_eq!(run("torch.linalg.vector_norm n 1 1 0 1 ord=1", &x), tensor([], &[21.0f32]));
        let line = "torch.linalg.norm n 1 1 0 1 ord=-inf dim=0";
        assert_eq!(run(line, &x), tensor([2], &[3.0f32, 4.0]));
        assert_close(&run("torch.linalg.norm n 1 1 0 1", &x), &tensor([], &[125f32.sqrt()]), 1e-5);
        let y = run("torch.linalg.norm n 1 1 0 1 dtype=torch.double dim=1", &x);
        assert_eq!(y, tensor([2], &[5.0f64, 10.0]));
        assert_eq!(run("torch.norm n 1 1 0 1 p=1 dtype=torch.double", &x), tensor([], &[21.0f64]));
        let z = tensor([1], &[Complex::new(3.0f32, 4.0)]);
        assert_eq!(run("torch.linalg.vector_norm n 1 1 0 1", &z), tensor([], &[5.0f32]));
        error(&*op("torch.linalg.vector_norm n 1 1 0 1 ord=inf"), &[iota([0])]);
        error(&*op("torch.linalg.vector_norm n 1 1 0 1"), &[tensor([1], &[1i64])]);
        assert!(try_op("torch.linalg.vector_norm n 1 1 0 1 ord=nuc", &[]).is_err());
    }

    #[test]
    fn of_matrices() {
        let x = tensor([2, 3], &[1.0f32, -2.0, 3.0, -4.0, 5.0, 6.0]);
        let of = |ord: &str| {
            values::<f32>(&run(&format!("torch.linalg.norm n 1 1 0 1 ord={ord}"), &x))[0]
        };
        assert_eq!([of("1"), of("-1"), of("inf"), of("-inf")], [9.0, 5.0, 15.0, 6.0]);
        assert!((of("fro") - 91f32.sqrt()).abs() < 1e-5);
        // A A^T is [[14, 4], [4, 77]].
        let root = (63f32 * 63.0 + 64.0).sqrt();
        let (greatest, least) = (((91.0 + root) / 2.0).sqrt(), ((91.0 - root) / 2.0).sqrt());
        assert!((of("2") - greatest).abs() < 1e-5 && (of("-2") - least).abs() < 1e-5);
        assert!((of("nuc") - greatest - least).abs() < 1e-5);
        let batch = tensor([3, 2, 1], &values::<f32>(&x));
        let line = "torch.linalg.matrix_norm n 1 1 0 1 ord=1 dim=(0,1) keepdim=True";
        assert_eq!(run(line, &batch), tensor([1, 1, 1], &[12.0f32]));
        let line = "torch.linalg.matrix_norm n 1 1 0 1 ord=inf dim=(2,0)";
        assert_eq!(run(line, &batch), tensor([2], &[9.0f32, 12.0]));
        let y = run("torch.nuclear_norm n 1 1 0 1", &x);
        assert_eq!(y, run("torch.norm n 1 1 0 1 p=nuc", &x));
        error(&*op("torch.linalg.norm n 1 1 0 1 ord=3"), std::slice::from_ref(&x));
        error(&*op("torch.linalg.matrix_norm n 1 1 0 1"), &[iota([3])]);
        error(&*op("torch.linalg.norm n 1 1 0 1 ord=1"), &[iota([2, 2, 2])]);
        error(&*op("torch.linalg.matrix_norm n 1 1 0 1 dim=(1,1)"), &[x]);
        let nothing = Tensor::zeros(DType::F32, [2, 0, 3]).unwrap();
        assert_eq!(
            run("torch.linalg.matrix_norm n 1 1 0 1 ord=nuc", &nothing),
            tensor([2], &[0.0f32; 2])
        );
    }
}

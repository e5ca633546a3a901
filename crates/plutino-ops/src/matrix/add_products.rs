//! Products added to a tensor, and products of many matrices: addmv, addr, addbmm, chain_matmul,
//! multi_dot, matrix_power.

use crate::matrix::products::reshape;
use crate::support::composite::{Compose, StepText, composed, list, word};
use crate::support::rearrange::invalid;
use crate::{
    BuildError, FromParameter, NodeReader, Operator, ShapeError, TensorValue, register_op,
};
use plutino_kernels::elementwise::Scalar;
use plutino_tensor::{DType, Shape};

/// `beta input + alpha (a x b)`; where beta is 0, `input` is not looked at.
#[derive(Debug)]
struct AddProduct {
    /// `input` and the two factors.
    inputs: [usize; 3],
    what: What,
    beta: Scalar,
    alpha: Scalar,
}

#[derive(Debug, Clone, Copy)]
enum What {
    /// <https://pytorch.org/docs/stable/generated/torch.addmv.html>
    MatrixVector,
    /// <https://pytorch.org/docs/stable/generated/torch.addr.html>
    Outer,
    /// <https://pytorch.org/docs/stable/generated/torch.addbmm.html>
    SumOfBatch,
}

fn add_product(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (what, [a, b]) = match r.kind().rsplit('.').next() {
        Some("addmv") => (What::MatrixVector, ["mat", "vec"]),
        Some("addr") => (What::Outer, ["vec1", "vec2"]),
        _ => (What::SumOfBatch, ["batch1", "batch2"]),
    };
    let one = Scalar::Int(1);
    let (beta, alpha) = (r.or("beta", one)?, r.or("alpha", one)?);
    let inputs = [r.required_input("input")?, r.required_input(a)?, r.required_input(b)?];
    composed(AddProduct { inputs, what, beta, alpha })
}
register_op!(add_product => "torch.addmv", "torch.addr", "torch.addbmm");

/// A factor in the dtype of the product: PyTorch drops the fractions of one for integers.
fn of_dtype(factor: Scalar, dtype: DType) -> Scalar {
    match factor {
        Scalar::Float(x) if dtype.is_integer() => Scalar::Int(x as i64),
        factor => factor,
    }
}

/// A number as a parameter has it.
fn number(x: Scalar) -> Result<String, ShapeError> {
    match x {
        Scalar::Bool(b) => Ok(if b { "True" } else { "False" }.into()),
        Scalar::Int(i) => Ok(i.to_string()),
        Scalar::Float(x) => Ok(format!("{x:e}")),
        Scalar::Complex(_) => Err(invalid(format!("a complex factor is not {}", f64::EXPECTED))),
    }
}

fn is(x: Scalar, value: f64) -> bool {
    match x {
        Scalar::Int(i) => i as f64 == value,
        Scalar::Float(x) => x == value,
        Scalar::Bool(b) => f64::from(b) == value,
        Scalar::Complex(_) => false,
    }
}

impl AddProduct {
    /// The steps of the product, named `product`.
    fn product(&self, a: &Shape, b: &Shape) -> Result<(Vec<StepText>, Shape), ShapeError> {
        let refuse = || invalid(format!("cannot multiply {a} by {b} in {}", self.name()));
        match (self.what, a.dims(), b.dims()) {
            (What::MatrixVector, &[n, k], &[k_too]) if k == k_too => {
                Ok((vec![StepText::new("torch.mv", &["x1", "x2"], "product", "")], [n].into()))
            }
            (What::Outer, &[n], &[m]) => Ok((
                vec![StepText::new("torch.outer", &["x1", "x2"], "product", "")],
                [n, m].into(),
            )),
            // The batch is one long inner dimension.
            (What::SumOfBatch, &[batch, n, k], &[batch_too, k_too, m])
                if (batch, k) == (batch_too, k_too) =>
            {
                let long = Shape::from([batch, k]).checked_numel()?;
                let steps = vec![
                    StepText::new("torch.transpose", &["x1"], "turned", "dim0=0 dim1=1"),
                    reshape("turned", "left", &Shape::from([n, long])),
                    reshape("x2", "right", &Shape::from([long, m])),
                    StepText::new("torch.mm", &["left", "right"], "product", ""),
                ];
                Ok((steps, [n, m].into()))
            }
            _ => Err(refuse()),
        }
    }
}

impl Compose for AddProduct {
    fn name(&self) -> &'static str {
        match self.what {
            What::MatrixVector => "addmv",
            What::Outer => "addr",
            What::SumOfBatch => "addbmm",
        }
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.to_vec()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[x, a, b] = inputs else { return Err(invalid("three tensors")) };
        let (mut steps, shape) = self.product(a.shape(), b.shape())?;
        if x.shape().broadcast(&shape)? != shape {
            return Err(invalid(format!("{} does not broadcast to {shape}", x.shape())));
        }
        let fraction = [self.beta, self.alpha].into_iter().any(|f| matches!(f, Scalar::Float(_)));
        if matches!(self.what, What::Outer) && fraction && x.dtype().is_integer() {
            return Err(invalid("beta and alpha of addr are integers where the tensors are"));
        }
        let [beta, alpha] = [self.beta, self.alpha].map(|f| of_dtype(f, x.dtype()));
        let mut scaled = |x: &'static str, factor: Scalar, to: &'static str| {
            if is(factor, 1.0) {
                return Ok::<_, ShapeError>(x);
            }
            let other = format!("other={}", number(factor)?);
            steps.push(StepText::new("torch.mul", &[x], to, &other));
            Ok(to)
        };
        let product = scaled("product", alpha, "times_alpha")?;
        if !is(beta, 0.0) {
            let addend = scaled("x0", beta, "times_beta")?;
            steps.push(StepText::new("torch.add", &[addend, product], "y", ""));
        }
        Ok(steps)
    }
}

/// The product of many matrices, in the order that takes the fewest multiplications; the first may
/// be a row, the last a column:
/// <https://pytorch.org/docs/stable/generated/torch.linalg.multi_dot.html>,
/// <https://pytorch.org/docs/stable/generated/torch.chain_matmul.html>
#[derive(Debug)]
struct MultiDot {
    inputs: Vec<usize>,
}

/// As many matrices as a chain may have: the best order takes the cube of their number to find.
const MOST_MATRICES: usize = 256;

fn multi_dot(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    composed(MultiDot { inputs: r.rest() })
}
register_op!(multi_dot => "torch.linalg.multi_dot", "torch.chain_matmul");

/// Where to cut a chain of matrices, `sizes[i]` by `sizes[i + 1]` each: for every part of the chain
/// the last matrix of its left half, and the number of multiplications.
fn cuts(sizes: &[usize]) -> Vec<Vec<(usize, f64)>> {
    let n = sizes.len().saturating_sub(1);
    let mut best = vec![vec![(0, 0.0); n]; n]; // bounded: MOST_MATRICES
    for len in 2..=n {
        for first in 0..=n - len {
            let last = first + len - 1;
            let cost = |cut: usize| {
                let product = [sizes[first], sizes[cut + 1], sizes[last + 1]];
                let product: f64 = product.iter().map(|&s| s as f64).product();
                (cut, best[first][cut].1 + best[cut + 1][last].1 + product)
            };
            let least = (first..last).map(cost).min_by(|a, b| a.1.total_cmp(&b.1));
            best[first][last] = least.unwrap_or_default();
        }
    }
    best
}

/// The steps that multiply matrices `first` to `last`, and the name of the result.
fn multiply(
    best: &[Vec<(usize, f64)>],
    (first, last): (usize, usize),
    steps: &mut Vec<StepText>,
) -> String {
    if first == last {
        return format!("x{first}");
    }
    let cut = best[first][last].0;
    let left = multiply(best, (first, cut), steps);
    let right = multiply(best, (cut + 1, last), steps);
    let name = format!("p{first}_{last}");
    steps.push(StepText::new("torch.matmul", &[&left, &right], &name, ""));
    name
}

impl Compose for MultiDot {
    fn name(&self) -> &'static str {
        "multi_dot"
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.clone()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let last = inputs.len().saturating_sub(1);
        if last == 0 || inputs.len() > MOST_MATRICES {
            return Err(invalid(format!("multi_dot takes 2 to {MOST_MATRICES} tensors")));
        }
        let mut sizes = Vec::new();
        for (i, x) in inputs.iter().enumerate() {
            let (rows, columns) = match *x.shape().dims() {
                [n, m] => (n, m),
                [n] if i == 0 => (1, n),
                [n] if i == last => (n, 1),
                _ => {
                    let expected = "2 (the first and the last also 1)".into();
                    let found = x.shape().clone();
                    return Err(ShapeError::Rank { input: i, expected, found });
                }
            };
            if i == 0 {
                sizes.push(rows);
            }
            sizes.push(columns);
            if sizes.get(i) != Some(&rows) {
                return Err(invalid(format!("matrix {i} of shape {} does not fit", x.shape())));
            }
        }
        let mut steps = Vec::new();
        multiply(&cuts(&sizes), (0, last), &mut steps);
        Ok(steps)
    }
}

/// A square matrix times itself:
/// <https://pytorch.org/docs/stable/generated/torch.linalg.matrix_power.html>
#[derive(Debug)]
struct MatrixPower {
    input: usize,
    n: i64,
}

fn matrix_power(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let n = r.required("n")?;
    let input = r.named_input("A").map_or_else(|| r.required_input("input"), Ok)?;
    composed(MatrixPower { input, n })
}
register_op!(matrix_power => "torch.matrix_power", "torch.linalg.matrix_power");

impl Compose for MatrixPower {
    fn name(&self) -> &'static str {
        "matrix_power"
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.input]
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[x] = inputs else { return Err(invalid("one tensor")) };
        let &[.., n, m] = x.shape().dims() else {
            let (expected, found) = ("at least 2".into(), x.shape().clone());
            return Err(ShapeError::Rank { input: self.input, expected, found });
        };
        if n != m {
            return Err(invalid(format!("{} is no tensor of square matrices", x.shape())));
        }
        let mut steps = Vec::new();
        let times = |steps: &mut Vec<StepText>, a: &str, b: &str| {
            let name = format!("p{}", steps.len());
            steps.push(StepText::new("torch.matmul", &[a, b], &name, ""));
            name
        };
        let mut exponent = self.n.unsigned_abs();
        if exponent == 0 {
            let eye = format!("n={n} dtype={}", word(x.dtype()));
            steps.push(StepText::new("torch.eye", &[], "one", &eye));
            let sizes = format!("sizes={}", list(x.shape()));
            steps.push(StepText::new("Tensor.expand", &["one"], "y", &sizes));
            return Ok(steps);
        }
        let mut square = "x0".to_owned();
        if self.n < 0 {
            steps.push(StepText::new("torch.linalg.inv", &["x0"], "inverse", ""));
            square = "inverse".to_owned();
        }
        let mut result: Option<String> = None;
        loop {
            if exponent % 2 == 1 {
                result = Some(match result {
                    None => square.clone(),
                    Some(so_far) => times(&mut steps, &so_far, &square),
                });
            }
            exponent /= 2;
            if exponent == 0 {
                break;
            }
            square = times(&mut steps, &square, &square);
        }
        if steps.is_empty() {
            steps.push(StepText::new("torch.clone", &["x0"], "y", ""));
        }
        Ok(steps)
    }
}

#[cfg(test)]
mod tests {
    use crate::ValueSpec;
    use crate::testkit::{assert_close, check_values, error, iota, op, random, run, specs, tensor};

    #[test]
    fn products_are_added() {
        let nan = tensor([], &[f32::NAN]);
        let y =
            run("torch.addmv a 3 1 0 1 2 3 beta=2 alpha=1", &[iota([2]), iota([2, 3]), iota([3])]);
        assert_eq!(y, tensor([2], &[5.0f32, 16.]));
        let y = run(
            "torch.addmv a 3 1 0 1 2 3 beta=0 alpha=0.5",
            &[nan.clone(), iota([2, 3]), iota([3])],
        );
        assert_eq!(y, tensor([2], &[2.5f32, 7.]));
        let y = run("torch.addr a 3 1 0 1 2 3 alpha=10", &[iota([2, 2]), iota([2]), iota([2])]);
        assert_eq!(y, tensor([2, 2], &[0.0f32, 1., 2., 13.]));
        let whole = [tensor([2], &[10i64, 20]), tensor([2, 1], &[3i64, 7]), tensor([1], &[1i64])];
        let y = run("torch.addmv a 3 1 0 1 2 3 beta=1.7 alpha=1.5", &whole);
        assert_eq!(y, tensor([2], &[13i64, 27]));
        let rows = [tensor([1, 1], &[4i64]), tensor([1], &[5i64]), tensor([1], &[6i64])];
        assert_eq!(run("torch.addr a 3 1 0 1 2 3 alpha=2", &rows), tensor([1, 1], &[64i64]));
        error(&*op("torch.addr a 3 1 0 1 2 3 alpha=1.5"), &rows);
        let (a, b) = (random([3, 2, 4], 1), random([3, 4, 2], 2));
        let y = run("torch.addbmm a 3 1 0 1 2 3 beta=0", &[nan, a.clone(), b.clone()]);
        let products = run("torch.bmm b 2 1 0 1 2", &[a.clone(), b.clone()]);
        let sum = run("torch.sum s 1 1 0 1 dim=(0) keepdim=False", &[products]);
        assert_close(&y, &sum, 1e-5);
        error(&*op("torch.addbmm a 3 1 0 1 2 3"), &[iota([3, 2, 2]), a.clone(), b.clone()]);
        error(&*op("torch.addbmm a 3 1 0 1 2 3"), &[iota([2]), a, iota([2, 4, 2])]);
        error(&*op("torch.addmv a 3 1 0 1 2 3"), &[iota([2]), iota([2, 3]), iota([2])]);
    }

    #[test]
    fn chains_of_matrices() {
        let chain = [random([1, 8], 1), random([8, 2], 2), random([2, 9], 3), random([9, 3], 4)];
        let mut expected = chain[0].clone();
        for next in &chain[1..] {
            expected = run("torch.mm m 2 1 0 1 2", &[expected, next.clone()]);
        }
        let y = run("torch.chain_matmul c 4 1 0 1 2 3 4", &chain);
        assert_close(&y, &expected, 1e-5);
        let list = [ValueSpec::List(specs(&chain))];
        let y = check_values(&*op("torch.linalg.multi_dot c 1 1 0 1"), &list, &chain);
        assert_close(&y[0], &expected, 1e-5);
        let y = run("torch.linalg.multi_dot c 3 1 0 1 2 3", &[iota([2]), iota([2, 2]), iota([2])]);
        assert_eq!(y, tensor([], &[3.0f32]));
        error(&*op("torch.linalg.multi_dot c 1 1 0 1"), &[iota([2, 2])]);
        error(&*op("torch.linalg.multi_dot c 3 1 0 1 2 3"), &[iota([2]), iota([2]), iota([2])]);
        error(&*op("torch.linalg.multi_dot c 2 1 0 1 2"), &[iota([2, 2]), iota([3, 2])]);
    }

    #[test]
    fn powers_of_matrices() {
        let a = tensor([1, 2, 2], &[1.0f32, 1., 0., 1.]);
        for n in [0, 1, 2, 3, 5, 6, 8] {
            let y = run(&format!("torch.matrix_power m 1 1 0 1 n={n}"), std::slice::from_ref(&a));
            assert_eq!(y, tensor([1, 2, 2], &[1.0f32, n as f32, 0., 1.]), "{n}");
        }
        let whole = tensor([1, 1], &[3i64]);
        let y = run("torch.linalg.matrix_power m 1 1 0 1 n=4 $A=0", &[whole]);
        assert_eq!(y, tensor([1, 1], &[81i64]));
        error(&*op("torch.matrix_power m 1 1 0 1 n=2"), &[iota([2, 3])]);
        error(&*op("torch.matrix_power m 1 1 0 1 n=2"), &[iota([2])]);
    }
}

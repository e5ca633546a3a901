//! Statistics that are a few other operators: differences, integrals, covariances, distances of
//! tensors.

use crate::support::composite::{Compose, StepText, composed, number};
use crate::support::names::optional_tensor;
use crate::support::promotion::Category;
use crate::support::rearrange::invalid;
use crate::{BuildError, NodeReader, Operator, ShapeError, TensorValue, function, register_op};
use plutino_tensor::{DType, Shape};

/// An expression of the inputs of a step.
fn expression(text: &str, inputs: &[&str], output: &str) -> StepText {
    StepText::new("pnnx.Expression", inputs, output, &format!("expr={text}"))
}

/// All elements of a dimension but those before `start` and from `end` on.
fn slice(x: &str, output: &str, dim: usize, start: usize, end: usize) -> StepText {
    let range = format!("dim={dim} start={start} end={end} step=1");
    StepText::new("Tensor.slice", &[x], output, &range)
}

/// A dimension that the tensor has, and its size.
fn dimension(shape: &Shape, dim: i64) -> Result<(usize, usize), ShapeError> {
    let at = shape.dim(dim)?;
    match shape.get(at) {
        Some(&size) => Ok((at, size)),
        None => Err(invalid("a scalar has no dimension")),
    }
}

/// The n-th differences of neighbours.
#[derive(Debug)]
struct Diff {
    inputs: Vec<usize>,
    /// Whether something is put before the tensor.
    before: bool,
    /// Whether something is put after it.
    after: bool,
    n: usize,
    dim: i64,
}

/// Differences that are taken one after the other: each is a step.
const MOST_DIFFERENCES: usize = 64;

/// <https://pytorch.org/docs/stable/generated/torch.diff.html>: of bools whether neighbours differ.
fn diff(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (n, dim) = (r.or("n", 1usize)?, r.or("dim", -1)?);
    let mut inputs = Vec::new();
    let (before, after) = (optional_tensor(r, "prepend")?, optional_tensor(r, "append")?);
    inputs.push(r.required_input("input")?);
    inputs.extend(before);
    inputs.extend(after);
    composed(Diff { inputs, before: before.is_some(), after: after.is_some(), n, dim })
}
register_op!(diff => "torch.diff");

impl Compose for Diff {
    fn name(&self) -> &'static str {
        "diff"
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.clone()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let Some(x) = inputs.first() else { return Err(invalid("one tensor")) };
        let (dim, mut size) = dimension(x.shape(), self.dim)?;
        let names = ["x0", "x1", "x2"];
        let parts = match (self.before, self.after) {
            (false, false) => vec![names[0]],
            (true, false) => vec![names[1], names[0]],
            (false, true) => vec![names[0], names[1]],
            (true, true) => vec![names[1], names[0], names[2]],
        };
        for other in inputs.iter().skip(1) {
            let own = dimension(other.shape(), self.dim)?.1;
            size = size.checked_add(own).ok_or_else(|| invalid("too many elements"))?;
        }
        let dims = format!("dim={dim}");
        let mut steps = vec![StepText::new("torch.cat", &parts, "d0", &dims)];
        let n = self.n.min(size);
        if n > MOST_DIFFERENCES && n < size {
            let text = format!("differences are taken {MOST_DIFFERENCES} times at most, not {n}");
            return Err(invalid(text));
        }
        if n == size && n > 0 {
            // Nothing is left.
            steps.push(slice("d0", "none", dim, 0, 0));
            steps.push(StepText::new("torch.cat", &["none"], "result", &dims));
            return Ok(steps);
        }
        if parts.len() == 1 && n > 0 {
            steps.clear();
        }
        for i in 0..n {
            let before = if i == 0 && parts.len() == 1 { "x0".into() } else { format!("d{i}") };
            let [low, high, next] = [format!("low{i}"), format!("high{i}"), format!("d{}", i + 1)];
            steps.push(slice(&before, &low, dim, 0, size - 1));
            steps.push(slice(&before, &high, dim, 1, size));
            steps.push(match x.dtype() {
                DType::Bool => StepText::new("torch.logical_xor", &[&high, &low], &next, ""),
                _ => expression("sub(@0,@1)", &[&high, &low], &next),
            });
            size -= 1;
        }
        Ok(steps)
    }
}

/// An integral by trapezoids.
#[derive(Debug)]
struct Trapezoid {
    y: usize,
    /// The places of the samples.
    x: Option<usize>,
    /// Their distance, where there are none.
    dx: f64,
    dim: i64,
    cumulative: bool,
}

/// <https://pytorch.org/docs/stable/generated/torch.trapezoid.html>,
/// <https://pytorch.org/docs/stable/generated/torch.cumulative_trapezoid.html>
fn trapezoid(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let cumulative = function(r.kind()) == "cumulative_trapezoid";
    let (dx, dim) = (r.or("dx", 1.0)?, r.or("dim", -1)?);
    let y = match (r.named_input("y"), r.named_input("input")) {
        (Some(y), _) | (None, Some(y)) => y,
        (None, None) => r.required_input("y")?,
    };
    let x = optional_tensor(r, "x")?.or_else(|| r.input("x"));
    composed(Trapezoid { y, x, dx, dim, cumulative })
}
register_op!(trapezoid => "torch.trapezoid", "torch.trapz", "torch.cumulative_trapezoid");

impl Compose for Trapezoid {
    fn name(&self) -> &'static str {
        if self.cumulative { "cumulative_trapezoid" } else { "trapezoid" }
    }

    fn inputs(&self) -> Vec<usize> {
        std::iter::once(self.y).chain(self.x).collect()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let Some(y) = inputs.first() else { return Err(invalid("one tensor")) };
        let (dim, size) = dimension(y.shape(), self.dim)?;
        let mut steps = Vec::new();
        let last = size.saturating_sub(1);
        steps.push(slice("x0", "left", dim, 0, last));
        steps.push(slice("x0", "right", dim, size.min(1), size));
        match inputs.get(1) {
            None => steps.push(expression(
                &format!("mul(add(@0,@1),{:e})", self.dx / 2.0),
                &["left", "right"],
                "areas",
            )),
            Some(x) => {
                // Places for all lines, or for each: their dimension is the one that is integrated.
                let (mut name, mut own) = ("x1", x.shape().clone());
                if own.rank() == 1 && y.shape().rank() > 1 {
                    (dim + 1..y.shape().rank()).for_each(|_| own.push(1));
                    let shape = own.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
                    let shape = format!("shape=({shape})");
                    steps.push(StepText::new("Tensor.reshape", &["x1"], "places", &shape));
                    name = "places";
                }
                let at = (own.rank() + dim).checked_sub(y.shape().rank());
                let Some((at, &count)) = at.and_then(|at| Some((at, own.get(at)?))) else {
                    return Err(invalid(format!("the places are {own}, of {}", y.shape())));
                };
                steps.push(slice(name, "near", at, 0, count.saturating_sub(1)));
                steps.push(slice(name, "far", at, count.min(1), count));
                steps.push(expression(
                    "div(mul(sub(@3,@2),add(@0,@1)),2.0)",
                    &["left", "right", "near", "far"],
                    "areas",
                ));
            }
        }
        steps.push(match self.cumulative {
            true => StepText::new("torch.cumsum", &["areas"], "sum", &format!("dim={dim}")),
            false => {
                let dims = format!("dim=({dim}) keepdim=False");
                StepText::new("torch.sum", &["areas"], "sum", &dims)
            }
        });
        Ok(steps)
    }
}

/// The sum of a diagonal.
#[derive(Debug)]
struct Trace(usize);

/// <https://pytorch.org/docs/stable/generated/torch.trace.html>
fn trace(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    composed(Trace(r.required_input("input")?))
}
register_op!(trace => "torch.trace");

impl Compose for Trace {
    fn name(&self) -> &'static str {
        "trace"
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.0]
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        match inputs {
            [x] if x.shape().rank() == 2 => Ok(vec![
                StepText::new("torch.diagonal", &["x0"], "diagonal", ""),
                StepText::new("torch.sum", &["diagonal"], "sum", "dim=(0) keepdim=False"),
            ]),
            _ => Err(invalid("a matrix has a trace, nothing else")),
        }
    }
}

/// Norms of some slices, cut to a greatest one.
#[derive(Debug)]
struct Renorm {
    input: usize,
    p: f64,
    dim: i64,
    most: f64,
}

/// <https://pytorch.org/docs/stable/generated/torch.renorm.html>
fn renorm(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (p, most): (f64, f64) = (r.required("p")?, r.required("maxnorm")?);
    let dim = r.required("dim")?;
    if p <= 0.0 || p.is_nan() {
        return Err(r.bad("p", "a number above 0, or inf"));
    }
    if !(most >= 0.0 && most.is_finite()) {
        return Err(r.bad("maxnorm", "a finite number, at least 0"));
    }
    composed(Renorm { input: r.required_input("input")?, p, dim, most })
}
register_op!(renorm => "torch.renorm");

impl Compose for Renorm {
    fn name(&self) -> &'static str {
        "renorm"
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.input]
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[x] = inputs else { return Err(invalid("one tensor")) };
        let rank = x.shape().rank();
        let dim = x.shape().dim(self.dim)?;
        if rank < 2 {
            let (input, found) = (self.input, x.shape().clone());
            return Err(ShapeError::Rank { input, expected: "at least 2".into(), found });
        }
        let others = (0..rank).filter(|&d| d != dim).map(|d| d.to_string());
        let others = others.collect::<Vec<_>>().join(",");
        let norms = format!("p={:e} dim=({others}) keepdim=True", self.p);
        let most = self.most;
        Ok(vec![
            StepText::new("torch.norm", &["x0"], "norms", &norms),
            StepText::new(
                "torch.gt",
                &["norms"],
                "longer",
                &format!("$input=norms other={most:e}"),
            ),
            expression(&format!("div({most:e},add(@0,1.000000e-7))"), &["norms"], "factors"),
            StepText::new(
                "torch.where",
                &["longer", "factors"],
                "all",
                "$condition=longer $input=factors other=1",
            ),
            StepText::new("torch.mul", &["x0", "all"], "result", ""),
        ])
    }
}

/// The norm of a difference.
#[derive(Debug)]
struct Dist {
    inputs: [usize; 2],
    p: f64,
}

/// <https://pytorch.org/docs/stable/generated/torch.dist.html>
fn dist(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let p = r.or("p", 2.0)?;
    composed(Dist { inputs: [r.required_input("input")?, r.required_input("other")?], p })
}
register_op!(dist => "torch.dist");

impl Compose for Dist {
    fn name(&self) -> &'static str {
        "dist"
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.to_vec()
    }

    fn steps(&self, _: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        Ok(vec![
            expression("sub(@0,@1)", &["x0", "x1"], "difference"),
            StepText::new("torch.norm", &["difference"], "norm", &format!("p={}", number(self.p))),
        ])
    }
}

/// The covariances of variables, or their correlations.
#[derive(Debug)]
struct Covariance {
    input: usize,
    correction: i64,
    correlation: bool,
}

/// <https://pytorch.org/docs/stable/generated/torch.cov.html>: rows are variables, columns
/// observations. Weights are not computed.
/// <https://pytorch.org/docs/stable/generated/torch.corrcoef.html>
fn covariance(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let correlation = function(r.kind()) == "corrcoef";
    for key in ["fweights", "aweights"] {
        if optional_tensor(r, key)?.is_some() {
            return Err(r.bad(key, "None: covariances with weights are not supported"));
        }
    }
    let correction = r.or("correction", 1)?;
    composed(Covariance { input: r.required_input("input")?, correction, correlation })
}
register_op!(covariance => "torch.cov", "torch.corrcoef");

impl Compose for Covariance {
    fn name(&self) -> &'static str {
        if self.correlation { "corrcoef" } else { "cov" }
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.input]
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[x] = inputs else { return Err(invalid("one tensor")) };
        let (input, dtype) = (self.input, x.dtype());
        if Category::of(dtype) == Category::Complex || dtype == DType::Bool {
            let expected = "a real number".into();
            return Err(ShapeError::DType { input, expected, found: dtype });
        }
        let (rows, columns) = match x.shape().dims() {
            [] => (1, 1),
            &[columns] => (1, columns),
            &[rows, columns] => (rows, columns),
            _ => {
                let (expected, found) = ("at most 2".into(), x.shape().clone());
                return Err(ShapeError::Rank { input, expected, found });
            }
        };
        let shape = format!("shape=({rows},{columns})");
        let divisor = i64::try_from(columns).unwrap_or(i64::MAX).saturating_sub(self.correction);
        let mut steps = vec![
            StepText::new("Tensor.reshape", &["x0"], "x", &shape),
            StepText::new("torch.sum", &["x"], "sums", "dim=(1) keepdim=True"),
            expression(&format!("sub(@0,div(@1,{columns}.0))"), &["x", "sums"], "centered"),
            StepText::new("torch.transpose", &["centered"], "turned", "dim0=0 dim1=1"),
            StepText::new("torch.matmul", &["centered", "turned"], "products", ""),
        ];
        let covariances = format!("div(@0,{}.0)", divisor.max(0));
        let mut result = "covariances";
        steps.push(expression(&covariances, &["products"], result));
        if self.correlation {
            steps.extend([
                StepText::new("torch.diagonal", &["covariances"], "variances", ""),
                expression("sqrt(@0)", &["variances"], "own"),
                StepText::new("Tensor.reshape", &["own"], "down", &format!("shape=({rows},1)")),
                expression("div(div(@0,@1),@2)", &["covariances", "down", "own"], "ratios"),
                StepText::new("torch.clamp", &["ratios"], "bounded", "min=-1.0 max=1.0"),
            ]);
            result = "bounded";
        }
        if rows == 1 {
            // A number, not a matrix.
            steps.push(StepText::new("torch.sum", &[result], "number", "dim=(0,1) keepdim=False"));
        }
        Ok(steps)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, error, iota, op, run, tensor, try_op, values};

    #[test]
    fn differences() {
        let x = tensor([2, 4], &[1.0f32, 4.0, 9.0, 16.0, 0.0, 1.0, 0.0, 1.0]);
        let of = |line: &str| run(line, std::slice::from_ref(&x));
        let line = "torch.diff d 1 1 0 1 n=1 dim=-1 prepend=None append=None $input=0";
        assert_eq!(of(line), tensor([2, 3], &[3.0f32, 5.0, 7.0, 1.0, -1.0, 1.0]));
        assert_eq!(of("torch.diff d 1 1 0 1 n=2"), tensor([2, 2], &[2.0f32, 2.0, -2.0, 2.0]));
        assert_eq!(of("torch.diff d 1 1 0 1 n=0"), x);
        assert_eq!(of("torch.diff d 1 1 0 1 dim=0 n=1000000000"), iota([0, 4]));
        let truth = run("torch.diff d 1 1 0 1", &[tensor([3], &[true, false, false])]);
        assert_eq!(truth, tensor([2], &[true, false]));
        let line = "torch.diff d 3 1 0 1 2 3 $input=0 $prepend=1 $append=2";
        let whole = [tensor([2], &[3i64, 5]), tensor([1], &[0i64]), tensor([1], &[9i64])];
        assert_eq!(run(line, &whole), tensor([3], &[3i64, 2, 4]));
        let line = "torch.diff d 2 1 0 1 2 $input=0 $append=1";
        assert_eq!(run(line, &whole[..2]), tensor([2], &[2i64, -5]));
        error(&*op("torch.diff d 1 1 0 1 n=100"), &[iota([200])]);
        error(&*op("torch.diff d 1 1 0 1"), &[iota([])]);
    }

    #[test]
    fn integrals() {
        let y = tensor([2, 3], &[1.0f32, 2.0, 4.0, 0.0, 1.0, 0.0]);
        let of = |line: &str| run(line, std::slice::from_ref(&y));
        assert_eq!(of("torch.trapezoid t 1 1 0 1"), tensor([2], &[4.5f32, 1.0]));
        assert_eq!(of("torch.trapz t 1 1 0 1 dx=2.0 dim=0"), tensor([3], &[1.0f32, 3.0, 4.0]));
        let y2 = of("torch.cumulative_trapezoid t 1 1 0 1 $y=0");
        assert_eq!(y2, tensor([2, 2], &[1.5f32, 4.5, 0.5, 1.0]));
        let places = tensor([3], &[0.0f32, 1.0, 3.0]);
        let line = "torch.trapezoid t 2 1 0 1 2 $y=0 $x=1";
        assert_eq!(run(line, &[y.clone(), places]), tensor([2], &[7.5f32, 1.5]));
        let places = tensor([2], &[0.0f32, 10.0]);
        let line = "torch.cumulative_trapezoid t 2 1 0 1 2 dim=0 $y=0 $x=1";
        assert_eq!(run(line, &[y.clone(), places]), tensor([1, 3], &[5.0f32, 15.0, 20.0]));
        assert_eq!(run("torch.trapezoid t 1 1 0 1", &[iota([2, 0])]), tensor([2], &[0.0f32; 2]));
        error(&*op("torch.trapezoid t 2 1 0 1 2"), &[y, iota([5])]);
    }

    #[test]
    fn traces_norms_and_distances() {
        let x = iota([2, 3]);
        assert_eq!(run("torch.trace t 1 1 0 1", std::slice::from_ref(&x)), tensor([], &[4.0f32]));
        let whole = run("torch.trace t 1 1 0 1", &[tensor([1, 1], &[7u8])]);
        assert_eq!(whole, tensor([], &[7i64]));
        error(&*op("torch.trace t 1 1 0 1"), &[iota([2, 2, 2])]);
        let y = run("torch.renorm r 1 1 0 1 p=1 dim=0 maxnorm=6", std::slice::from_ref(&x));
        assert_close(&y, &tensor([2, 3], &[0.0f32, 1.0, 2.0, 1.5, 2.0, 2.5]), 1e-6);
        let y = run("torch.renorm r 1 1 0 1 p=inf dim=0 maxnorm=4", std::slice::from_ref(&x));
        assert_close(&y, &tensor([2, 3], &[0.0f32, 1.0, 2.0, 2.4, 3.2, 4.0]), 1e-6);
        assert!(try_op("torch.renorm r 1 1 0 1 p=0 dim=0 maxnorm=6", &[]).is_err());
        let both = [x, tensor([1, 3], &[0.0f32, 1.0, 2.0])];
        let y = run("torch.dist d 2 1 0 1 2", &both);
        assert_close(&y, &tensor([], &[27f32.sqrt()]), 1e-6);
        assert_eq!(run("torch.dist d 2 1 0 1 2 p=inf", &both), tensor([], &[3.0f32]));
    }

    #[test]
    fn covariances_and_correlations() {
        let x = tensor([2, 3], &[0.0f32, 1.0, 2.0, 2.0, 1.0, 0.0]);
        let of = |line: &str| run(line, std::slice::from_ref(&x));
        assert_eq!(of("torch.cov c 1 1 0 1"), tensor([2, 2], &[1.0f32, -1.0, -1.0, 1.0]));
        let y = of("torch.cov c 1 1 0 1 correction=0 fweights=None aweights=None $input=0");
        assert!((values::<f32>(&y)[0] - 2.0 / 3.0).abs() < 1e-6);
        assert_eq!(of("torch.corrcoef c 1 1 0 1"), tensor([2, 2], &[1.0f32, -1.0, -1.0, 1.0]));
        assert_eq!(run("torch.cov c 1 1 0 1", &[iota([3])]), tensor([], &[1.0f32]));
        assert_eq!(run("torch.corrcoef c 1 1 0 1", &[iota([3])]), tensor([], &[1.0f32]));
        let whole = run("torch.cov c 1 1 0 1", &[tensor([3], &[0i64, 1, 2])]);
        assert_eq!(whole, tensor([], &[1.0f32]));
        error(&*op("torch.cov c 1 1 0 1"), &[iota([1, 1, 1])]);
    }
}

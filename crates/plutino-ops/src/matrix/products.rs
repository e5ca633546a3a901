//! Products of vectors and tensors that matrix products and elementwise ones come to: outer, inner,
//! dot, vdot, vecdot, kron, tensordot, bilinear.

use crate::support::composite::{Compose, StepText, composed, list, word};
use crate::support::rearrange::{distinct_dims, invalid};
use crate::{BuildError, NodeReader, Operator, ShapeError, TensorValue, register_op};
use plutino_tensor::Shape;

/// A product of two tensors.
#[derive(Debug, Clone, Copy)]
enum What {
    /// <https://pytorch.org/docs/stable/generated/torch.outer.html>
    Outer,
    /// <https://pytorch.org/docs/stable/generated/torch.inner.html>
    Inner,
    /// <https://pytorch.org/docs/stable/generated/torch.dot.html>
    Dot,
    /// <https://pytorch.org/docs/stable/generated/torch.vdot.html>
    Vdot,
    /// <https://pytorch.org/docs/stable/generated/torch.linalg.vecdot.html>, along this dimension.
    Vecdot(i64),
    /// <https://pytorch.org/docs/stable/generated/torch.kron.html>
    Kron,
}

#[derive(Debug)]
struct Product {
    inputs: [usize; 2],
    what: What,
}

fn product(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (what, keys) = match r.kind().rsplit('.').next() {
        Some("inner") => (What::Inner, ["input", "other"]),
        Some("dot") => (What::Dot, ["input", "tensor"]),
        Some("vdot") => (What::Vdot, ["input", "other"]),
        Some("vecdot") => (What::Vecdot(r.or("dim", -1)?), ["x", "y"]),
        Some("kron") => (What::Kron, ["input", "other"]),
        _ => (What::Outer, ["input", "vec2"]),
    };
    let [a, b] = keys;
    let inputs = [r.required_input(a)?, r.required_input(b)?];
    composed(Product { inputs, what })
}
register_op!(product =>
    "torch.outer", "torch.ger", "torch.inner", "torch.dot", "torch.vdot", "torch.linalg.vecdot",
    "torch.kron");

impl Product {
    /// Refuses tensors of another rank than 1.
    fn vectors(&self, tensors: [&TensorValue; 2]) -> Result<(), ShapeError> {
        for (input, t) in self.inputs.into_iter().zip(tensors) {
            if t.shape().rank() != 1 {
                let (expected, found) = ("1".into(), t.shape().clone());
                return Err(ShapeError::Rank { input, expected, found });
            }
        }
        Ok(())
    }
}

impl Compose for Product {
    fn name(&self) -> &'static str {
        match self.what {
            What::Outer => "outer",
            What::Inner => "inner",
            What::Dot => "dot",
            What::Vdot => "vdot",
            What::Vecdot(_) => "vecdot",
            What::Kron => "kron",
        }
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.to_vec()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[a, b] = inputs else { return Err(invalid("two tensors")) };
        match self.what {
            What::Outer => {
                self.vectors([a, b])?;
                let column = Shape::from([a.shape().numel(), 1]);
                Ok(vec![
                    reshape("x0", "column", &column),
                    StepText::new("torch.mul", &["column", "x1"], "y", ""),
                ])
            }
            What::Dot | What::Vdot => {
                self.vectors([a, b])?;
                let mut steps = Vec::new();
                let conjugate = matches!(self.what, What::Vdot) && a.dtype().is_complex();
                let left = if conjugate { conjugated(&mut steps, "x0", "left") } else { "x0" };
                steps.push(StepText::new("torch.matmul", &[left, "x1"], "y", ""));
                Ok(steps)
            }
            What::Inner => inner(a, b),
            What::Vecdot(dim) => vecdot(a, b, dim),
            What::Kron => Ok(kron(a.shape(), b.shape())),
        }
    }
}

/// `from` in this shape.
pub(crate) fn reshape(from: &str, to: &str, shape: &Shape) -> StepText {
    StepText::new("torch.reshape", &[from], to, &format!("shape={}", list(shape)))
}

/// The steps that make the complex conjugate of `x`, whose name is returned.
pub(crate) fn conjugated<'a>(steps: &mut Vec<StepText>, x: &str, to: &'a str) -> &'a str {
    let [re, im, neg] = ["re", "im", "neg"].map(|part| format!("{to}_{part}"));
    steps.push(StepText::new("torch.real", &[x], &re, ""));
    steps.push(StepText::new("torch.imag", &[x], &im, ""));
    steps.push(StepText::new("torch.neg", &[&im], &neg, ""));
    steps.push(StepText::new("torch.complex", &[&re, &neg], to, ""));
    to
}

/// Sums over the last dimension of both; a tensor without dimensions is a factor.
fn inner(a: &TensorValue, b: &TensorValue) -> Result<Vec<StepText>, ShapeError> {
    let (Some((k, a_rest)), Some((k_too, b_rest))) =
        (a.shape().split_last(), b.shape().split_last())
    else {
        return Ok(vec![StepText::new("torch.mul", &["x0", "x1"], "y", "")]);
    };
    if k != k_too {
        return Err(invalid(format!(
            "the last dimensions of {} and {} must have the same size",
            a.shape(),
            b.shape()
        )));
    }
    let (left, right) = (Shape::from(a_rest), Shape::from(b_rest));
    let matrix = |rest: &Shape| Ok::<_, ShapeError>(Shape::from([rest.checked_numel()?, *k]));
    Ok(vec![
        reshape("x0", "left", &matrix(&left)?),
        reshape("x1", "rows", &matrix(&right)?),
        StepText::new("torch.t", &["rows"], "right", ""),
        StepText::new("torch.matmul", &["left", "right"], "product", ""),
        reshape("product", "y", &left.iter().chain(right.iter()).copied().collect()),
    ])
}

/// Rows of one times columns of the other, one by one.
fn vecdot(a: &TensorValue, b: &TensorValue, dim: i64) -> Result<Vec<StepText>, ShapeError> {
    let shape = a.shape().broadcast(b.shape())?;
    let at = crate::shaping::slice::existing(&shape, dim)?;
    let mut steps = Vec::new();
    let conjugate = a.dtype().is_complex();
    let left = if conjugate { conjugated(&mut steps, "x0", "conj") } else { "x0" };
    for (from, x, [wide, moved, vector], place) in
        [(left, a, ["w0", "m0", "v0"], -2), ("x1", b, ["w1", "m1", "v1"], -1)]
    {
        let mut name = from;
        if *x.shape() != shape {
            let sizes = format!("sizes={}", list(&shape));
            steps.push(StepText::new("Tensor.expand", &[from], wide, &sizes));
            name = wide;
        }
        let ends = format!("source=({at}) destination=(-1)");
        steps.push(StepText::new("torch.movedim", &[name], moved, &ends));
        steps.push(StepText::new("torch.unsqueeze", &[moved], vector, &format!("dim={place}")));
    }
    let mut result = shape.clone();
    result.remove(at);
    steps.push(StepText::new("torch.matmul", &["v0", "v1"], "products", ""));
    steps.push(reshape("products", "y", &result));
    Ok(steps)
}

/// Every element of one times the whole other tensor: each dimension becomes a pair of dimensions.
fn kron(a: &Shape, b: &Shape) -> Vec<StepText> {
    let rank = a.rank().max(b.rank());
    let size = |shape: &Shape, d: usize| {
        let at = (d + shape.rank()).checked_sub(rank);
        at.and_then(|d| shape.get(d)).copied().unwrap_or(1)
    };
    let (mut left, mut right, mut result) = (Shape::default(), Shape::default(), Shape::default());
    for d in 0..rank {
        let (outer, inner) = (size(a, d), size(b, d));
        left.push(outer);
        left.push(1);
        right.push(1);
        right.push(inner);
        result.push(outer.saturating_mul(inner));
    }
    vec![
        reshape("x0", "left", &left),
        reshape("x1", "right", &right),
        StepText::new("torch.mul", &["left", "right"], "product", ""),
        reshape("product", "y", &result),
    ]
}

/// Sums over several dimensions of two tensors:
/// <https://pytorch.org/docs/stable/generated/torch.tensordot.html>
#[derive(Debug)]
struct Tensordot {
    inputs: [usize; 2],
    dims: Contracted,
}

/// The dimensions that are summed over.
#[derive(Debug)]
enum Contracted {
    /// So many last ones of the first tensor, first ones of the second.
    Count(usize),
    Lists(Vec<i64>, Vec<i64>),
}

fn tensordot(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dims = match r.has("dims") {
        true => Contracted::Count(r.required("dims")?),
        false => Contracted::Lists(r.required("dims_self")?, r.required("dims_other")?),
    };
    let a = r.named_input("a").map_or_else(|| r.required_input("input"), Ok)?;
    let b = r.named_input("b").map_or_else(|| r.required_input("other"), Ok)?;
    composed(Tensordot { inputs: [a, b], dims })
}
register_op!(tensordot => "torch.tensordot");

impl Tensordot {
    /// The dimensions of both shapes that are summed over.
    fn dims(&self, a: &Shape, b: &Shape) -> Result<[Vec<usize>; 2], ShapeError> {
        let dims = match &self.dims {
            Contracted::Count(n) if *n > a.rank().min(b.rank()) => {
                return Err(invalid(format!("{a} and {b} do not have {n} dimensions each")));
            }
            Contracted::Count(n) => {
                [(a.rank() - n..a.rank()).collect(), (0..*n).collect()] // bounded: the rank
            }
            Contracted::Lists(of_a, of_b) => [distinct_dims(a, of_a)?, distinct_dims(b, of_b)?],
        };
        let [of_a, of_b] = &dims;
        let fits = |(&i, &j): (&usize, &usize)| match (a.get(i), b.get(j)) {
            (Some(m), Some(n)) => m == n || *m == 1 || *n == 1,
            _ => false,
        };
        if of_a.len() != of_b.len() || !of_a.iter().zip(of_b).all(fits) {
            return Err(invalid(format!(
                "dimensions {of_a:?} of {a} and {of_b:?} of {b} must have the same sizes"
            )));
        }
        Ok(dims)
    }
}

impl Compose for Tensordot {
    fn name(&self) -> &'static str {
        "tensordot"
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.to_vec()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[a, b] = inputs else { return Err(invalid("two tensors")) };
        let [of_a, of_b] = self.dims(a.shape(), b.shape())?;
        let mut steps = Vec::new();
        let mut free = Vec::new();
        let mut summed = Vec::new();
        // Where a dimension is 1 in one of them only, the other is summed over it before.
        for (x, own, y, others) in [(a, &of_a, b, &of_b), (b, &of_b, a, &of_a)] {
            let narrower = |&(&d, &e): &(&usize, &usize)| {
                x.shape().get(d) != Some(&1) && y.shape().get(e) == Some(&1)
            };
            summed
                .push(own.iter().zip(others).filter(narrower).map(|(&d, _)| d).collect::<Vec<_>>());
        }
        for (i, (x, own)) in [(a, &of_a), (b, &of_b)].into_iter().enumerate() {
            let mut name = format!("x{i}");
            let mut shape = x.shape().clone();
            if let Some(dims) = summed.get(i).filter(|dims| !dims.is_empty()) {
                let to = format!("s{i}");
                let how = format!("dim={} keepdim=True dtype={}", list(dims), word(x.dtype()));
                steps.push(StepText::new("torch.sum", &[&name], &to, &how));
                name = to;
                for &d in dims {
                    shape[d] = 1;
                }
            }
            let rest: Vec<usize> = (0..shape.rank()).filter(|d| !own.contains(d)).collect();
            let size = |dims: &[usize]| -> Shape { dims.iter().map(|&d| shape[d]).collect() };
            let (outer, inner) = (size(&rest), size(own));
            free.extend_from_slice(&outer);
            let (outer, inner) = (outer.checked_numel()?, inner.checked_numel()?);
            let (order, matrix) = match i {
                0 => ([&rest[..], own].concat(), Shape::from([outer, inner])),
                _ => ([own, &rest[..]].concat(), Shape::from([inner, outer])),
            };
            let (turned, flat) = (format!("t{i}"), format!("m{i}"));
            let dims = format!("dims={}", list(&order));
            steps.push(StepText::new("torch.permute", &[&name], &turned, &dims));
            steps.push(reshape(&turned, &flat, &matrix));
        }
        steps.push(StepText::new("torch.mm", &["m0", "m1"], "product", ""));
        steps.push(reshape("product", "y", &Shape::from(free)));
        Ok(steps)
    }
}

/// Two vectors and a matrix for each output:
/// <https://pytorch.org/docs/stable/generated/torch.nn.functional.bilinear.html>
#[derive(Debug)]
struct Bilinear {
    /// `input1`, `input2`, `weight` and, where there is one, `bias`.
    inputs: Vec<usize>,
}

fn bilinear(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let mut inputs = Vec::new();
    for key in ["input1", "input2", "weight"] {
        inputs.push(r.required_input(key)?);
    }
    if !r.has("bias") {
        inputs.extend(r.input("bias"));
    }
    r.raw("bias");
    composed(Bilinear { inputs })
}
register_op!(bilinear => "F.bilinear");

impl Compose for Bilinear {
    fn name(&self) -> &'static str {
        "bilinear"
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.clone()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let [a, b, weight, ..] = inputs else { return Err(invalid("three tensors")) };
        let shapes = (a.shape().split_last(), b.shape().split_last(), weight.shape().dims());
        let (Some((i, batch)), Some((j, other)), &[outputs, rows, columns]) = shapes else {
            return Err(invalid(format!(
                "vectors, vectors and a weight (outputs, of input1, of input2) are needed, found {}, {}, {}",
                a.shape(),
                b.shape(),
                weight.shape()
            )));
        };
        if batch != other || (*i, *j) != (rows, columns) {
            return Err(invalid(format!(
                "a weight of shape {} does not suit vectors of shapes {} and {}",
                weight.shape(),
                a.shape(),
                b.shape()
            )));
        }
        let n = Shape::from(batch).checked_numel()?;
        let wide = outputs.saturating_mul(columns);
        let result: Shape = batch.iter().copied().chain([outputs]).collect();
        let mut steps = vec![
            reshape("x0", "left", &Shape::from([n, rows])),
            reshape("x1", "right", &Shape::from([n, columns, 1])),
            StepText::new("torch.transpose", &["x2"], "turned", "dim0=0 dim1=1"),
            reshape("turned", "matrix", &Shape::from([rows, wide])),
            StepText::new("torch.mm", &["left", "matrix"], "half", ""),
            reshape("half", "rows", &Shape::from([n, outputs, columns])),
            StepText::new("torch.bmm", &["rows", "right"], "products", ""),
            reshape("products", "sums", &result),
        ];
        if inputs.len() > 3 {
            steps.push(StepText::new("torch.add", &["sums", "x3"], "y", ""));
        }
        Ok(steps)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, error, iota, op, random, run, tensor, values};
    use plutino_tensor::Complex;

    #[test]
    fn outer_products() {
        let (a, b) = (tensor([2], &[2i64, 3]), tensor([3], &[1.0f32, 10., 100.]));
        for kind in ["torch.outer", "torch.ger"] {
            let y = run(&format!("{kind} o 2 1 0 1 2 $input=0 $vec2=1"), &[a.clone(), b.clone()]);
            assert_eq!(y, tensor([2, 3], &[2.0f32, 20., 200., 3., 30., 300.]));
        }
        assert_eq!(run("torch.outer o 2 1 0 1 2", &[iota([0]), iota([2])]), iota([0, 2]));
        error(&*op("torch.outer o 2 1 0 1 2"), &[iota([2, 1]), iota([2])]);
    }

    #[test]
    fn inner_products() {
        let y = run("torch.dot d 2 1 0 1 2", &[iota([4]), iota([4])]);
        assert_eq!(y, tensor([], &[14.0f32]));
        let z = |re, im| Complex::<f32>::new(re, im);
        let z = tensor([2], &[z(1.0, 2.0), z(0.0, -1.0)]);
        let y = run("torch.vdot d 2 1 0 1 2", &[z.clone(), z]);
        assert_eq!(y, tensor([], &[Complex::<f32>::new(6.0, 0.0)]));
        let y = run("torch.vdot d 2 1 0 1 2", &[tensor([2], &[2i32, 3]), tensor([2], &[4i32, 5])]);
        assert_eq!(y, tensor([], &[23i32]));
        let y = run("torch.inner i 2 1 0 1 2", &[iota([2, 1, 3]), iota([2, 3])]);
        assert_eq!(y, tensor([2, 1, 2], &[5.0f32, 14., 14., 50.]));
        let y = run("torch.inner i 2 1 0 1 2", &[iota([3]), tensor([], &[2.0f32])]);
        assert_eq!(y, tensor([3], &[0.0f32, 2., 4.]));
        error(&*op("torch.inner i 2 1 0 1 2"), &[iota([3]), iota([2, 2])]);
        error(&*op("torch.dot d 2 1 0 1 2"), &[iota([3]), iota([2])]);
        error(&*op("torch.dot d 2 1 0 1 2"), &[iota([1, 3]), iota([3])]);
    }

    #[test]
    fn dot_products_along_a_dimension() {
        let along = |dim: i64| format!("torch.linalg.vecdot v 2 1 0 1 2 dim={dim} $x=0 $y=1");
        let (a, b) = (iota([2, 3]), iota([3]));
        assert_eq!(run(&along(-1), &[a.clone(), b]), tensor([2], &[5.0f32, 14.]));
        assert_eq!(run(&along(0), &[a.clone(), a.clone()]), tensor([3], &[9.0f32, 17., 29.]));
        let i = Complex::<f32>::new(0.0, 1.0);
        let y = run(&along(-1), &[tensor([1], &[i]), tensor([1], &[i])]);
        assert_eq!(y, tensor([], &[Complex::<f32>::new(1.0, 0.0)]));
        error(&*op(&along(2)), &[a.clone(), a]);
    }

    #[test]
    fn kronecker_products() {
        let y = run("torch.kron k 2 1 0 1 2", &[iota([2, 2]), tensor([2], &[1i64, 10])]);
        assert_eq!(y, tensor([2, 4], &[0.0f32, 0., 1., 10., 2., 20., 3., 30.]));
        assert_eq!(
            run("torch.kron k 2 1 0 1 2", &[iota([]), iota([3])]),
            tensor([3], &[0.0f32; 3])
        );
    }

    #[test]
    fn sums_over_several_dimensions() {
        let (a, b) = (random([2, 3, 4], 1), random([4, 3, 5], 2));
        let y = run(
            "torch.tensordot t 2 1 0 1 2 dims_self=(1,2) dims_other=(1,0)",
            &[a.clone(), b.clone()],
        );
        let (x, w) = (values::<f32>(&a), values::<f32>(&b));
        let sum = |i: usize, j: usize| -> f32 {
            let terms = (0..3).flat_map(|k| (0..4).map(move |l| (k, l)));
            terms.map(|(k, l)| x[i * 12 + k * 4 + l] * w[l * 15 + k * 5 + j]).sum()
        };
        let expected: Vec<f32> =
            (0..2).flat_map(|i| (0..5).map(move |j| (i, j))).map(|(i, j)| sum(i, j)).collect();
        assert_close(&y, &tensor([2, 5], &expected), 1e-5);
        let (a, b) = (iota([2, 3]), iota([3, 2]));
        let by_count = run("torch.tensordot t 2 1 0 1 2 dims=1 $a=0 $b=1", &[a.clone(), b.clone()]);
        assert_eq!(by_count, tensor([2, 2], &[10.0f32, 13., 28., 40.]));
        let outer = run("torch.tensordot t 2 1 0 1 2 dims=0", &[iota([2]), iota([2])]);
        assert_eq!(outer, tensor([2, 2], &[0.0f32, 0., 0., 1.]));
        // A dimension of 1 in one of them.
        let y = run(
            "torch.tensordot t 2 1 0 1 2 dims_self=(1) dims_other=(0)",
            &[a.clone(), iota([1, 2])],
        );
        assert_eq!(y, tensor([2, 2], &[0.0f32, 3., 0., 12.]));
        error(
            &*op("torch.tensordot t 2 1 0 1 2 dims_self=(0) dims_other=(0)"),
            &[a.clone(), b.clone()],
        );
        error(&*op("torch.tensordot t 2 1 0 1 2 dims=3"), &[a, b]);
    }

    #[test]
    fn bilinear_forms() {
        let (a, b, w) = (iota([2, 2]), iota([2, 3]), iota([2, 2, 3]));
        let y = run("F.bilinear b 3 1 0 1 2 3 bias=None", &[a.clone(), b.clone(), w.clone()]);
        // x1 W_o x2 by hand for the first pair: (0, 1) W (0, 1, 2)
        assert_eq!(y.shape().dims(), [2, 2]);
        assert_eq!(values::<f32>(&y)[..2], [14., 32.]);
        let bias = tensor([2], &[1.0f32, -1.]);
        let z = run("F.bilinear b 4 1 0 1 2 3 4", &[a.clone(), b, w.clone(), bias]);
        assert_eq!(values::<f32>(&z)[..2], [15., 31.]);
        error(&*op("F.bilinear b 3 1 0 1 2 3"), &[a.clone(), a, w]);
    }
}

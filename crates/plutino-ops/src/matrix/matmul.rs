//! Products of matrices: `torch.matmul`, `torch.mm`, `torch.bmm`, `torch.mv`, `torch.addmm`,
//! `torch.baddbmm`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.matmul.html>: the last two dimensions are
//! matrices, those before are broadcast; an operand of one dimension is a row (left) or a column
//! (right), whose dimension is dropped. The others are the same with fixed ranks, and `addmm = beta
//! input + alpha (mat1 @ mat2)` with `input` broadcast to the result; where beta is 0, `input` is
//! not looked at.

use crate::matrix::linear::plan_known;
use crate::support::halves;
use crate::{
    BuildError, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, Role, RunCx,
    RunError, ShapeError, StrideRule, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::gemm::{
    AnyMatrix, Batch, Bias, Gemm, PostOps, Residual, Size, Target, gemm_any,
};
use plutino_kernels::number::{Number, Wide};
use plutino_kernels::{Isa, for_numbers};
use plutino_tensor::{DType, Shape, TensorError, TensorSpec, alloc};

register_op!(matmul => "torch.matmul");
register_op!(mm => "torch.mm");
register_op!(bmm => "torch.bmm");
register_op!(mv => "torch.mv");
register_op!(addmm => "torch.addmm");
register_op!(baddbmm => "torch.baddbmm");

/// alpha (a @ b) + beta addend
#[derive(Debug)]
struct MatMul {
    a: usize,
    b: usize,
    /// Dimensions that the operands must have; none for any.
    ranks: Option<(usize, usize)>,
    addend: Option<Addend>,
    alpha: f64,
}

/// A tensor that is added.
#[derive(Debug, Clone, Copy)]
struct Addend {
    input: usize,
    beta: f64,
}

fn matmul(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    product(r, ("input", "other"), None)
}

fn mm(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    product(r, ("input", "mat2"), Some((2, 2)))
}

fn bmm(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    product(r, ("input", "mat2"), Some((3, 3)))
}

fn mv(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    product(r, ("input", "vec"), Some((2, 1)))
}

fn addmm(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    sum(r, ("mat1", "mat2"), (2, 2))
}

fn baddbmm(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    sum(r, ("batch1", "batch2"), (3, 3))
}

fn product(
    r: &mut NodeReader<'_>,
    (a, b): (&str, &str),
    ranks: Option<(usize, usize)>,
) -> Result<Box<dyn Operator>, BuildError> {
    let (a, b) = (r.required_input(a)?, r.required_input(b)?);
    Ok(Box::new(MatMul { a, b, ranks, addend: None, alpha: 1.0 }))
}

fn sum(
    r: &mut NodeReader<'_>,
    (a, b): (&str, &str),
    ranks: (usize, usize),
) -> Result<Box<dyn Operator>, BuildError> {
    let addend = Addend { input: r.required_input("input")?, beta: r.or("beta", 1.0)? };
    let (a, b) = (r.required_input(a)?, r.required_input(b)?);
    let addend = (addend.beta != 0.0).then_some(addend);
    Ok(Box::new(MatMul { a, b, ranks: Some(ranks), addend, alpha: r.or("alpha", 1.0)? }))
}

/// Which products a node means.
#[derive(Debug)]
struct Products {
    size: Size,
    output: TensorSpec,
    /// Dimensions of the batch, and how far apart the operands' matrices lie along each.
    batch: Shape,
    strides: (Vec<usize>, Vec<usize>),
}

impl Products {
    /// First elements of the operands of each product.
    fn offsets(&self) -> Result<Vec<(usize, usize)>, TensorError> {
        let at =
            |i| (offset(&self.strides.0, &self.batch, i), offset(&self.strides.1, &self.batch, i));
        alloc::collect((0..self.size.batch).map(at))
    }
}

impl MatMul {
    fn products(&self, inputs: &[ValueSpec]) -> Result<Products, ShapeError> {
        let (a, b) =
            (&TensorValue::at(inputs, self.a)?.spec, &TensorValue::at(inputs, self.b)?.spec);
        let unsuited = || ShapeError::Invalid(format!("cannot multiply {a} by {b}"));
        let ranks = (a.shape.rank(), b.shape.rank());
        let batches_equal = ranks != (3, 3) || a.shape[0] == b.shape[0];
        if a.dtype != b.dtype || self.ranks.is_some_and(|r| r != ranks || !batches_equal) {
            return Err(unsuited());
        }
        let (a_batch, m, k) = match a.shape.dims() {
            &[k] => (&[][..], None, k),
            &[ref batch @ .., m, k] => (batch, Some(m), k),
            [] => return Err(unsuited()),
        };
        let (b_batch, k_too, n) = match b.shape.dims() {
            &[k] => (&[][..], k, None),
            &[ref batch @ .., k, n] => (batch, k, Some(n)),
            [] => return Err(unsuited()),
        };
        if k != k_too {
            return Err(unsuited());
        }
        let batch = Shape::from(a_batch).broadcast(&Shape::from(b_batch))?;
        let shape: Shape = batch.iter().copied().chain(m).chain(n).collect();
        shape.checked_numel()?;
        let output = TensorSpec::new(a.dtype, shape);
        let (m, n) = (m.unwrap_or(1), n.unwrap_or(1));
        // One right matrix for all: the left ones stand one below the other.
        if b_batch.is_empty() {
            let m = batch.numel() * m;
            return Ok(Products {
                size: Size { batch: 1, m, n, k },
                output,
                batch: Shape::scalar(),
                strides: (Vec::new(), Vec::new()),
            });
        }
        let strides =
            (batch_strides(a_batch, &batch, m * k), batch_strides(b_batch, &batch, k * n));
        let count = batch.checked_numel()?;
        let size = Size { batch: count, m, n, k };
        Ok(Products { size, output, batch, strides })
    }

    /// How the addend lies under the output: its strides along the output's dimensions.
    fn addend(&self, inputs: &[ValueSpec], output: &Shape) -> Result<Option<Under>, ShapeError> {
        let Some(Addend { input, beta }) = self.addend else { return Ok(None) };
        let spec = &TensorValue::at(inputs, input)?.spec;
        if spec.shape.broadcast(output)? != *output {
            let text = format!("{spec} cannot be broadcast to {output}");
            return Err(ShapeError::Invalid(text));
        }
        let strides = batch_strides(&spec.shape, output, 1);
        Ok(Some(Under { input, beta, shape: output.clone(), strides }))
    }
}

/// The distances along each dimension of `batch` for matrices of `size` elements in batches of
/// `dims`: 0 where a dimension is broadcast.
fn batch_strides(dims: &[usize], batch: &Shape, size: usize) -> Vec<usize> {
    let mut strides = vec![0; batch.rank()];
    let mut stride = size;
    for (to, &dim) in strides.iter_mut().rev().zip(dims.iter().rev()) {
        *to = if dim == 1 { 0 } else { stride };
        stride = stride.saturating_mul(dim);
    }
    strides
}

/// The offset of element `i` of a batch.
fn offset(strides: &[usize], batch: &Shape, mut i: usize) -> usize {
    let mut at = 0;
    for (stride, dim) in strides.iter().zip(batch.iter()).rev() {
        at += i % dim * stride;
        i /= dim;
    }
    at
}

/// An addend, broadcast to the output.
#[derive(Debug, Clone)]
struct Under {
    input: usize,
    beta: f64,
    shape: Shape,
    strides: Vec<usize>,
}

impl Under {
    /// The element of the addend under element `i` of the output.
    fn at(&self, i: usize) -> usize {
        offset(&self.strides, &self.shape, i)
    }

    /// Whether it is one number for each column of a matrix, as it is.
    fn is_row(&self) -> bool {
        self.beta == 1.0 && matches!(self.strides[..], [0, 1])
    }
}

impl Operator for MatMul {
    fn stride_rule(&self, inputs: &[ValueSpec]) -> StrideRule {
        // A matrix times matrices of a higher rank is computed transposed.
        let rank = |i: usize| TensorValue::at(inputs, i).map_or(0, |t| t.shape().rank());
        if rank(self.a) >= rank(self.b) { StrideRule::Contiguous } else { StrideRule::Unknown }
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let output = self.products(inputs)?.output;
        if let Some(under) = self.addend(inputs, &output.shape)? {
            let addend = &TensorValue::at(inputs, under.input)?.spec;
            if addend.dtype != output.dtype {
                return Err(ShapeError::Invalid(format!("cannot add {addend} to {output}")));
            }
        }
        Ok(vec![output.into()])
    }

    fn role(&self, inputs: &[ValueSpec]) -> Option<Role> {
        let matrices = |i| TensorValue::at(inputs, i).is_ok_and(|t| t.shape().rank() >= 2);
        let plain = self.addend.is_none() && self.alpha == 1.0;
        (plain && matrices(self.a) && matrices(self.b)).then_some(Role::Product(self.a, self.b))
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let products = self.products(cx.inputs)?;
        let offsets = products.offsets()?;
        let Products { size, output, .. } = products;
        let under = self.addend(cx.inputs, &output.shape)?;
        let (a, b, alpha) = (self.a, self.b, self.alpha);
        let bias = under.as_ref().map(|under| under.is_row().then_some(under.input));
        // One of a batch of matrices alone is no weight where a batch of several is none.
        let matrices = TensorValue::at(cx.inputs, b)?.shape().rank() > 2;
        if let (DType::F32, 1, [(0, 0)]) = (output.dtype, size.batch, &offsets[..])
            && alpha == 1.0
            && !(cx.batch_invariant && matrices)
            && bias != Some(None)
        {
            let (inputs, sizes) = ((a, b, bias.flatten()), [size.m, size.k, size.n]);
            if let Some(planned) = plan_known(cx, inputs, sizes, (size.n, 1))? {
                return Ok(planned);
            }
        }
        if output.dtype == DType::F32 {
            let gemm = Gemm::new(Target::this(cx.isa), cx.threads, size, (false, false));
            let scratch = gemm.scratch(cx.threads).saturating_mul(size_of::<f32>());
            let name = format!("gemm.{}", cx.isa);
            let kernel = MatMulKernel { name, gemm, a, b, alpha: alpha as f32, offsets, under };
            return Ok(Planned::new(kernel).with_scratch(scratch));
        }
        if halves::is_half(output.dtype) {
            return halves::widened(cx, |cx| self.plan(cx));
        }
        for_numbers!(output.dtype, T => {
            let scaled = under.as_ref().is_some_and(|u| u.beta != 1.0) || alpha != 1.0;
            let factor = factors::<T>();
            if scaled && factor.is_none() {
                return Err(PlanError::Unsupported(format!("alpha and beta of {}", output.dtype)));
            }
            let isa = cx.isa;
            Ok(Planned::new(AnyMatMul::<T> { isa, size, a, b, alpha, offsets, under, factor }))
        })
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let flops = self.products(inputs).map_or(0, |p| {
            let Size { batch, m, n, k } = p.size;
            [batch, m, n, k].iter().fold(2u64, |all, &x| all.saturating_mul(x as u64))
        });
        Cost { flops, ..Cost::moved(inputs, outputs) }
    }
}

/// Products of f32.
struct MatMulKernel {
    name: String,
    gemm: Gemm,
    a: usize,
    b: usize,
    alpha: f32,
    offsets: Vec<(usize, usize)>,
    under: Option<Under>,
}

impl Kernel for MatMulKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let size = self.gemm.size();
        let y = cx.outputs.take::<f32>(0)?;
        let mut post_ops = PostOps::default();
        if let Some(under) = &self.under {
            let addend = cx.inputs.get::<f32>(under.input)?;
            if under.is_row() {
                post_ops.bias = Bias::Cols(addend);
            } else {
                for (i, y) in y.iter_mut().enumerate() {
                    *y = under.beta as f32 * addend[under.at(i)];
                }
                post_ops.residual = Residual::Output;
            }
        }
        let batch = Batch {
            size,
            a: (cx.inputs.get(self.a)?, (size.k, 1)),
            b: (cx.inputs.get(self.b)?, (size.n, 1)),
            offsets: &self.offsets,
            scale: self.alpha,
            post_ops,
        };
        self.gemm.run_batch(cx.par, &batch, y, size.n, cx.take_scratch()?);
        Ok(())
    }
}

/// The product of an element's wide form and a factor.
type Factor<W> = fn(W, f64) -> W;

/// How elements of this dtype are multiplied by alpha and beta.
fn factors<T: Number>() -> Option<Factor<T::Wide>> {
    use std::any::Any;
    let real: Factor<f64> = |x, f| x * f;
    let whole: Factor<i64> = |x, f| x.wrapping_mul(f as i64);
    let all: [&dyn Any; 2] = [&real, &whole];
    all.iter().find_map(|f| f.downcast_ref::<Factor<T::Wide>>()).copied()
}

/// Products of any other dtype.
struct AnyMatMul<T: Number> {
    isa: Isa,
    size: Size,
    a: usize,
    b: usize,
    alpha: f64,
    offsets: Vec<(usize, usize)>,
    under: Option<Under>,
    factor: Option<Factor<T::Wide>>,
}

impl<T: Number> Kernel for AnyMatMul<T> {
    fn name(&self) -> &str {
        "gemm.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let Size { m, n, k, .. } = self.size;
        let (a, b) = (cx.inputs.get::<T>(self.a)?, cx.inputs.get::<T>(self.b)?);
        let addend =
            self.under.as_ref().map(|u| Ok::<_, RunError>((u, cx.inputs.get::<T>(u.input)?)));
        let addend = addend.transpose()?;
        let times = |x: T::Wide, f: f64| match self.factor {
            Some(factor) if f != 1.0 => factor(x, f),
            _ => x,
        };
        let y = cx.outputs.take::<T>(0)?;
        for (i, (y, &(at_a, at_b))) in y.chunks_exact_mut(m * n).zip(&self.offsets).enumerate() {
            let a = AnyMatrix { data: &a[at_a..], strides: (k, 1) };
            let b = AnyMatrix { data: &b[at_b..], strides: (n, 1) };
            let store = |j: usize, sum: T::Wide| {
                let mut sum = times(sum, self.alpha);
                if let Some((under, addend)) = addend {
                    let x = addend[under.at(i * m * n + j)].widen();
                    sum = sum.plus(times(x, under.beta));
                }
                T::narrow(sum)
            };
            gemm_any(self.isa, cx.par, (m, n, k), a, b, &store, y);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, check_values, error, iota, op, specs, tensor, values};
    use plutino_tensor::DType;

    #[test]
    fn batches_are_broadcast() {
        let matmul = op("torch.matmul m 2 1 0 1 9");
        let y = check(&*matmul, &[iota([2, 1, 2, 3]), iota([2, 3, 1])]);
        assert_eq!(y[0].shape().dims(), [2, 2, 2, 1]);
        assert_eq!(values::<f32>(&y[0]), [5., 14., 14., 50., 23., 32., 86., 122.]);
        let y = check(&*matmul, &[iota([2, 2, 3]), iota([3, 2])]);
        assert_eq!(values::<f32>(&y[0]), [10., 13., 28., 40., 46., 67., 64., 94.]);
    }

    #[test]
    fn vectors_lose_their_dimension() {
        let matmul = op("torch.matmul m 2 1 0 1 9");
        for (a, b, shape, expected) in [
            (&[3][..], &[3][..], &[][..], &[5.0f32][..]),
            (&[2, 3], &[3], &[2], &[5., 14.]),
            (&[2], &[2, 3], &[3], &[3., 4., 5.]),
            (&[2, 2, 2], &[2], &[2, 2], &[1., 3., 5., 7.]),
            (&[2], &[2, 2, 2], &[2, 2], &[2., 3., 6., 7.]),
            (&[2, 0], &[0, 2], &[2, 2], &[0.; 4]),
        ] {
            let y = check(&*matmul, &[iota(a), iota(b)]);
            assert_eq!(y[0].shape().dims(), shape);
            assert_eq!(values::<f32>(&y[0]), expected, "{a:?} {b:?}");
        }
        error(&*matmul, &[iota([2, 3]), iota([2, 3])]);
        error(&*matmul, &[iota([]), iota([1])]);
    }

    #[test]
    fn a_known_right_matrix_is_packed() {
        let (x, w, bias) = (iota([5, 3]), iota([3, 20]), iota([20]));
        for (line, data) in [
            ("torch.mm m 2 1 0 1 9", vec![x.clone(), w.clone()]),
            ("torch.matmul m 2 1 0 1 9", vec![iota([2, 5, 3]), w.clone()]),
            ("torch.addmm m 3 1 2 0 1 9 alpha=1 beta=1", vec![bias, x, w.clone()]),
        ] {
            let mut inputs = specs(&data);
            let expected = check(&*op(line), &data).remove(0);
            *inputs.last_mut().unwrap() = w.clone().into();
            let found = check_values(&*op(line), &inputs, &data).remove(0);
            assert_eq!(values::<f32>(&found), values::<f32>(&expected), "{line}");
        }
    }

    #[test]
    fn fixed_ranks() {
        error(&*op("torch.mm m 2 1 0 1 9"), &[iota([1, 2, 2]), iota([2, 2])]);
        error(&*op("torch.bmm m 2 1 0 1 9"), &[iota([1, 2, 2]), iota([2, 2, 2])]);
        let y = check(&*op("torch.mv m 2 1 0 1 9 $input=0 $vec=1"), &[iota([2, 2]), iota([2])]);
        assert_eq!(values::<f32>(&y[0]), [1., 3.]);
    }

    #[test]
    fn sums() {
        let inputs = |addend| [addend, iota([2, 2]), iota([2, 2])];
        let addmm = op("torch.addmm m 3 1 0 1 2 9 alpha=2 beta=0.5");
        let y = check(&*addmm, &inputs(tensor([2, 1], &[10.0f32, 20.0])));
        assert_eq!(values::<f32>(&y[0]), [9., 11., 22., 32.]);
        let addmm = op("torch.addmm m 3 1 0 1 2 9 alpha=1 beta=1");
        let y = check(&*addmm, &inputs(tensor([2], &[10.0f32, 20.0])));
        assert_eq!(values::<f32>(&y[0]), [12., 23., 16., 31.]);
        let addmm = op("torch.addmm m 3 1 0 1 2 9 alpha=1 beta=0");
        let y = check(&*addmm, &inputs(tensor([1], &[f32::NAN])));
        assert_eq!(values::<f32>(&y[0]), [2., 3., 6., 11.]);
        let addmm = op("torch.baddbmm m 3 1 0 1 2 9 alpha=3 beta=2");
        let inputs = [iota([2]), iota([1, 2, 2]), iota([1, 2, 2])];
        let y = check(&*addmm, &inputs.map(|t| t.cast(DType::I32).unwrap()));
        assert_eq!(values::<i32>(&y[0]), [6, 11, 18, 35]);
    }
}

//! Quantiles of lines.
//!
//! <https://pytorch.org/docs/stable/generated/torch.quantile.html>,
//! <https://pytorch.org/docs/stable/generated/torch.nanquantile.html>: of f32 and f64; `q` is a
//! number, or a tensor of them, whose dimension then comes first.

use super::planned;
use crate::activations::softmax::lines;
use crate::support::assemble::leaf;
use crate::support::rearrange::invalid;
use crate::{
    Arg, BuildError, Cost, Inputs, NodeReader, Operator, PlanCx, PlanError, Planned, RunError,
    ShapeError, TensorValue, ValueSpec, function, register_op,
};
use plutino_kernels::for_floats;
use plutino_kernels::order::{Between, quantiles, scratch_len};
use plutino_kernels::sort::Ranked;
use plutino_tensor::{DType, Shape, alloc};

#[derive(Debug)]
struct Quantile {
    input: usize,
    q: Arg<f64>,
    /// None: the tensor as one line.
    dim: Option<i64>,
    keepdim: bool,
    between: Between,
    ignore_nan: bool,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let ignore_nan = function(r.kind()) == "nanquantile";
    let words = [
        ("linear", Between::Linear),
        ("lower", Between::Lower),
        ("higher", Between::Higher),
        ("midpoint", Between::Midpoint),
        ("nearest", Between::Nearest),
    ];
    let between = r.one_of("interpolation", &words, Some(Between::Linear))?;
    let (dim, keepdim) = (r.optional("dim")?, r.or("keepdim", false)?);
    let q = r.arg("q")?;
    let input = r.required_input("input")?;
    let q = match q {
        Some(Arg::Value(q)) if !(0.0..=1.0).contains(&q) => return Err(r.bad("q", "in 0..=1")),
        Some(q) => q,
        None => Arg::Input(r.required_input("q")?),
    };
    Ok(Box::new(Quantile { input, q, dim, keepdim, between, ignore_nan }))
}
register_op!(build => "torch.quantile", "torch.nanquantile");

impl Quantile {
    /// Lines, and the shape of the result.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<([usize; 3], Shape), ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        let dtype = x.dtype();
        if !matches!(dtype, DType::F32 | DType::F64) {
            return Err(ShapeError::DType { input, expected: "f32 or f64".into(), found: dtype });
        }
        if x.shape().numel() == 0 {
            return Err(invalid(format!(
                "there is no quantile of nothing: the input is {}",
                x.shape()
            )));
        }
        let mut shape = Shape::scalar();
        if let Arg::Input(at) = self.q {
            let q = TensorValue::at(inputs, at)?;
            let number = q.python && q.dtype().is_float();
            if q.dtype() != dtype && !number {
                let expected = format!("{dtype}, as input {input}");
                return Err(ShapeError::DType { input: at, expected, found: q.dtype() });
            }
            if q.shape().rank() > 1 {
                let (expected, found) = ("0 or 1".into(), q.shape().clone());
                return Err(ShapeError::Rank { input: at, expected, found });
            }
            shape = q.shape().clone();
        }
        let of = x.shape();
        let sizes = match self.dim {
            None => [1, of.numel(), 1],
            Some(dim) => lines(of, dim)?,
        };
        let reduced = self.dim.map(|dim| of.dim(dim)).transpose()?;
        for (d, &size) in of.iter().enumerate() {
            match reduced.is_none_or(|at| at == d) {
                true if self.keepdim => shape.push(1),
                true => {}
                false => shape.push(size),
            }
        }
        shape.checked_numel()?;
        Ok((sizes, shape))
    }
}

/// The numbers of an input that says which quantiles are asked for.
fn asked(inputs: &Inputs<'_>, at: usize) -> Result<Vec<f64>, RunError> {
    let q: Vec<f64> = match inputs.spec(at)?.dtype {
        DType::F32 => alloc::collect(inputs.get::<f32>(at)?.iter().map(|&q| q.into()))?,
        _ => alloc::collect(inputs.get::<f64>(at)?.iter().copied())?,
    };
    match q.iter().find(|q| !(0.0..=1.0).contains(*q)) {
        None => Ok(q),
        Some(q) => Err(RunError::Value { input: at, what: format!("{q} must be in 0..=1") }),
    }
}

impl Operator for Quantile {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (_, shape) = self.bind(inputs)?;
        Ok(vec![ValueSpec::tensor(TensorValue::at(inputs, self.input)?.dtype(), shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (sizes, _) = self.bind(cx.inputs)?;
        let dtype = TensorValue::at(cx.inputs, self.input)?.dtype();
        let input = leaf(cx.inputs, self.input);
        let q = match self.q {
            Arg::Value(q) => Arg::Value(q),
            Arg::Input(at) => Arg::Input(leaf(cx.inputs, at)),
        };
        let (between, ignore_nan) = (self.between, self.ignore_nan);
        let scratch = scratch_len(sizes[1], cx.threads).saturating_mul(size_of::<Ranked>());
        for_floats!(dtype,
            T => Ok(planned("order.quantile", move |cx| {
                let q = match q {
                    Arg::Value(q) => vec![q],
                    Arg::Input(at) => asked(&cx.inputs, at)?,
                };
                let (x, y) = (cx.inputs.get::<T>(input)?, cx.outputs.take::<T>(0)?);
                let scratch = cx.take_scratch()?;
                quantiles(cx.par, &q, between, ignore_nan, sizes, x, y, scratch);
                Ok(())
            })
            .with_scratch(scratch)),
            _ => Err(PlanError::Unsupported(format!("a quantile of {dtype}"))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let x = TensorValue::at(inputs, self.input).map_or(0, |x| x.shape().numel() as u64);
        let comparisons = u64::from(x.checked_ilog2().unwrap_or(0)).saturating_mul(x);
        Cost { flops: comparisons, ..Cost::moved(inputs, outputs) }
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, iota, op, tensor, try_op};
    use plutino_tensor::Tensor;

    #[test]
    fn numbers_along_dimensions_and_over_everything() {
        let x = tensor([2, 3], &[3.0f32, 1.0, 2.0, 6.0, 4.0, 5.0]);
        let run = |line: &str| check(&*op(line), std::slice::from_ref(&x)).remove(0);
        let line =
            "torch.quantile q 1 1 0 1 q=0.25 dim=1 keepdim=True interpolation=linear $input=0";
        assert_eq!(run(line), tensor([2, 1], &[1.5f32, 4.5]));
        assert_eq!(run("torch.quantile q 1 1 0 1 q=0.5 dim=-2"), tensor([3], &[4.5f32, 2.5, 3.5]));
        assert_eq!(run("torch.quantile q 1 1 0 1 q=0.5"), tensor([], &[3.5f32]));
        // 0.1 and 0.7 of f32, times 5 in f64: more than a half, less than 3.5.
        for (q, at) in [(0.1, 2.0f32), (0.7, 4.0)] {
            let line = format!("torch.quantile q 1 1 0 1 q={q} interpolation=nearest");
            assert_eq!(run(&line), tensor([], &[at]));
        }
        let line = "torch.quantile q 1 1 0 1 q=0.3 keepdim=True interpolation=higher";
        assert_eq!(run(line), tensor([1, 1], &[3.0f32]));
        assert_eq!(run("torch.quantile q 1 1 0 1 q=1 interpolation=lower"), tensor([], &[6.0f32]));
        assert!(try_op("torch.quantile q 1 1 0 1 q=1.5", &[]).is_err());
        assert!(try_op("torch.quantile q 1 1 0 1 q=0.5 interpolation=cubic", &[]).is_err());
        error(&*op("torch.quantile q 1 1 0 1 q=0.5"), &[iota([0])]);
        error(&*op("torch.quantile q 1 1 0 1 q=0.5"), &[tensor([1], &[1i64])]);
        error(&*op("torch.quantile q 1 1 0 1 q=0.5 dim=2"), &[x]);
    }

    #[test]
    fn tensors_of_numbers_and_nan() {
        let nan = f64::NAN;
        let x = tensor([3, 2], &[1.0f64, 4.0, 2.0, nan, 3.0, 6.0]);
        let q = tensor([2], &[0.0f64, 0.5]);
        let run = |line: &str, q: &Tensor| check(&*op(line), &[x.clone(), q.clone()]).remove(0);
        let line = "torch.quantile q 2 1 0 1 2 dim=0 keepdim=True $input=0 $q=1";
        let y = run(line, &q).cast(plutino_tensor::DType::F32).unwrap();
        assert_close(&y, &tensor([2, 1, 2], &[1.0f32, f32::NAN, 2.0, f32::NAN]), 0.0);
        let y = run("torch.nanquantile q 2 1 0 1 2 dim=0", &q);
        assert_eq!(y, tensor([2, 2], &[1.0f64, 4.0, 2.0, 5.0]));
        let y = run("torch.nanquantile q 2 1 0 1 2", &tensor([], &[1.0f64]));
        assert_eq!(y, tensor([], &[6.0f64]));
        error(&*op("torch.quantile q 2 1 0 1 2"), &[iota([2]), tensor([1], &[1.5f32])]);
        error(&*op("torch.quantile q 2 1 0 1 2"), &[iota([2]), tensor([1], &[0.5f64])]);
        error(&*op("torch.quantile q 2 1 0 1 2"), &[iota([2]), tensor([1, 1], &[0.5f32])]);
    }
}

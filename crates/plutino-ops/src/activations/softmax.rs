//! Softmax, softmin and log-softmax along any dimension.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.softmax.html>

use crate::support::assemble::leaf;
use crate::support::composite::{Compose, StepText, composed};
use crate::support::halves::{self, Parts};
use crate::support::in_dtype::in_dtype;
use crate::{
    BuildError, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, Role, RunCx,
    RunError, ShapeError, StrideRule, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::number::Float;
use plutino_kernels::softmax::{Softmax, softmax_any, softmax_f32};
use plutino_kernels::{Isa, for_floats};
use plutino_tensor::{DType, Shape};
use std::marker::PhantomData;

#[derive(Debug)]
struct SoftmaxOp {
    input: usize,
    kind: Softmax,
    dim: Dim,
}

#[derive(Debug, Clone, Copy)]
enum Dim {
    At(i64),
    /// PyTorch's deprecated choice without `dim`: 0 for rank 0, 1 and 3, else 1.
    Implicit,
    /// `nn.Softmax2d`: the channels of (C, H, W) or (N, C, H, W).
    Channels,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let name = r.kind().to_ascii_lowercase();
    let kind = if name.contains("softmin") {
        Softmax::Softmin
    } else if name.contains("log") {
        Softmax::LogSoftmax
    } else {
        Softmax::Softmax
    };
    let dim = match r.optional("dim")? {
        Some(dim) => Dim::At(dim),
        None if r.kind() == "nn.Softmax2d" => Dim::Channels,
        None => Dim::Implicit,
    };
    let dtype = r.optional("dtype")?;
    let input = r.required_input("input")?;
    match dtype {
        None => Ok(Box::new(SoftmaxOp { input, kind, dim })),
        Some(dtype) => in_dtype("softmax", input, Some(dtype), move || {
            Box::new(SoftmaxOp { input: 0, kind, dim })
        }),
    }
}
register_op!(build => "nn.Softmax", "F.softmax", "nn.Softmin", "F.softmin", "nn.LogSoftmax", "F.log_softmax",
    "nn.Softmax2d", "torch.softmax", "torch.log_softmax", "torch.special.softmax",
    "torch.special.log_softmax", "Tensor.softmax", "Tensor.log_softmax");

/// Softmax whose lines of nothing but -inf are zero: what attention makes of queries whose keys are
/// all hidden.
#[derive(Debug)]
struct Safe {
    input: usize,
    dim: i64,
}

fn safe(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.required("dim")?;
    if r.optional::<String>("dtype")?.is_some() {
        return Err(r.bad("dtype", "None"));
    }
    composed(Safe { input: r.required_input("input")?, dim })
}
register_op!(safe => "aten::_safe_softmax");

impl Compose for Safe {
    fn name(&self) -> &'static str {
        "softmax.safe"
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.input]
    }

    fn steps(&self, _: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let (step, dim) = (StepText::new, format!("dim={}", self.dim));
        Ok(vec![
            step("F.softmax", &["x0"], "soft", &dim),
            step("torch.amax", &["x0"], "greatest", &format!("{dim} keepdim=True")),
            step("torch.eq", &["greatest"], "hidden", "other=-inf"),
            step("Tensor.masked_fill", &["soft", "hidden"], "y", "value=0.0"),
        ])
    }
}

/// Lines along a dimension: `[outer, len, inner]`.
pub(crate) fn lines(shape: &Shape, dim: i64) -> Result<[usize; 3], ShapeError> {
    let (dim, rank) = (shape.dim(dim)?, shape.rank());
    let len = shape.get(dim).copied().unwrap_or(1); // a scalar is a line of one
    Ok([shape.product(0..dim), len, shape.product(dim + 1..rank.max(dim + 1))])
}

impl SoftmaxOp {
    /// The input, and the dimension along which it is normalised.
    fn subject<'a>(&self, inputs: &'a [ValueSpec]) -> Result<(&'a TensorValue, usize), ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        let rank = x.shape().rank();
        if !x.dtype().is_float() {
            return Err(ShapeError::DType { input, expected: "a float".into(), found: x.dtype() });
        }
        let dim = match self.dim {
            Dim::At(dim) => dim,
            Dim::Implicit => i64::from(!matches!(rank, 0 | 1 | 3)),
            Dim::Channels if matches!(rank, 3 | 4) => -3,
            Dim::Channels => {
                let (expected, found) = ("3 or 4".into(), x.shape().clone());
                return Err(ShapeError::Rank { input, expected, found });
            }
        };
        Ok((x, x.shape().dim(dim)?))
    }
}

impl Operator for SoftmaxOp {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (x, _) = self.subject(inputs)?;
        Ok(vec![ValueSpec::tensor(x.dtype(), x.shape().clone())])
    }

    fn role(&self, inputs: &[ValueSpec]) -> Option<Role> {
        let rank = TensorValue::at(inputs, self.input).ok()?.shape().rank();
        let last = match self.dim {
            Dim::At(dim) => dim == -1 || usize::try_from(dim).is_ok_and(|d| d + 1 == rank),
            Dim::Implicit | Dim::Channels => false,
        };
        (last && self.kind == Softmax::Softmax).then_some(Role::SoftmaxOfRows(self.input))
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let ((x, dim), input) = (self.subject(cx.inputs)?, leaf(cx.inputs, self.input));
        let (kind, dtype) = (self.kind, x.dtype());
        let sizes = lines(x.shape(), i64::try_from(dim).unwrap_or(i64::MAX))?;
        if dtype == DType::F32 {
            let along = if sizes[2] == 1 { "rows" } else { "columns" };
            let name = format!("softmax.{along}.{}", cx.isa);
            return Ok(Planned::new(F32 { name, isa: cx.isa, kind, sizes, input }).in_place(input));
        }
        if halves::is_half(dtype) {
            let parts = Parts { dims: dim, of: &[self.input] };
            return halves::widened_by(cx, parts, |cx| self.plan(cx));
        }
        for_floats!(dtype,
            T => Ok(Planned::new(Any::<T> { kind, sizes, input, element: PhantomData })),
            _ => Err(PlanError::Unsupported(format!("a softmax of {dtype}"))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::elementwise(inputs, outputs, 20)
    }
}

struct F32 {
    name: String,
    isa: Isa,
    kind: Softmax,
    sizes: [usize; 3],
    input: usize,
}

impl Kernel for F32 {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let data = cx.inout(self.input, 0)?;
        softmax_f32(self.isa, cx.par, self.kind, self.sizes, data);
        Ok(())
    }
}

struct Any<T> {
    kind: Softmax,
    sizes: [usize; 3],
    input: usize,
    element: PhantomData<T>,
}

impl<T: Float> Kernel for Any<T> {
    fn name(&self) -> &str {
        "softmax.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (x, y) = (cx.inputs.get::<T>(self.input)?, cx.outputs.take::<T>(0)?);
        softmax_any(cx.par, self.kind, self.sizes, x, y);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{assert_close, check, check_line, error, op, random, tensor, values};
    use plutino_tensor::Tensor;

    fn expected(kind: Softmax, x: &Tensor, dim: i64) -> Tensor {
        let sizes = lines(x.shape(), dim).unwrap();
        let y = plutino_reference::softmax::softmax(kind, sizes, &values::<f32>(x));
        tensor(x.shape().clone(), &y.iter().map(|&v| v as f32).collect::<Vec<_>>())
    }

    #[test]
    fn every_name_and_dimension() {
        let x = random([2, 3, 4, 5], 1);
        for (name, kind) in [
            ("nn.Softmax", Softmax::Softmax),
            ("F.softmax", Softmax::Softmax),
            ("nn.Softmin", Softmax::Softmin),
            ("F.softmin", Softmax::Softmin),
            ("nn.LogSoftmax", Softmax::LogSoftmax),
            ("F.log_softmax", Softmax::LogSoftmax),
        ] {
            for dim in [0, 1, 2, 3, -1, -4] {
                let y =
                    check(&*op(&format!("{name} s 1 1 0 1 dim={dim}")), std::slice::from_ref(&x));
                assert_close(&y[0], &expected(kind, &x, dim), 2e-6);
            }
        }
        let y = check(&*op("nn.Softmax2d s 1 1 0 1"), std::slice::from_ref(&x));
        assert_close(&y[0], &expected(Softmax::Softmax, &x, 1), 1e-6);
        let y = check(&*op("F.softmax s 1 1 0 1 dim=None $input=0"), std::slice::from_ref(&x));
        assert_close(&y[0], &expected(Softmax::Softmax, &x, 1), 1e-6);
    }

    #[test]
    fn scalars_other_floats_and_errors() {
        let softmax = op("F.softmax s 1 1 0 1 dim=-1 $input=0");
        assert_eq!(values::<f32>(&check(&*softmax, &[tensor([], &[3.0f32])])[0]), [1.0]);
        assert_eq!(check(&*softmax, &[Tensor::zeros(DType::F32, [2, 0]).unwrap()])[0].numel(), 0);
        let y = values::<f64>(&check(&*softmax, &[tensor([2], &[0.0f64, 3.0f64.ln()])])[0]);
        assert!((y[0] - 0.25).abs() < 1e-15 && (y[1] - 0.75).abs() < 1e-15);
        assert!(error(&*softmax, &[tensor([2], &[1i64, 2])]).to_string().contains("a float"));
        error(&*op("F.softmax s 1 1 0 1 dim=2 $input=0"), &[random([2, 2], 1)]);
        error(&*op("nn.Softmax2d s 1 1 0 1"), &[random([2, 2], 1)]);
        let wide = op("torch.softmax s 1 1 0 1 dim=0 dtype=torch.double $input=0");
        let y = values::<f64>(&check(&*wide, &[tensor([2], &[0.0f32, 0.0])])[0]);
        assert_eq!(y, [0.5, 0.5]);
        let of_whole = op("Tensor.log_softmax s 1 1 0 1 dim=0 dtype=torch.float");
        assert_eq!(values::<f32>(&check(&*of_whole, &[tensor([1], &[3i64])])[0]), [0.0]);
    }

    #[test]
    fn native_forms() {
        let x = tensor([2, 2], &[1.0f32, 1.0, f32::NEG_INFINITY, f32::NEG_INFINITY]);
        let y = check_line("aten::_safe_softmax s 3 1 0 =-1 =None 1", std::slice::from_ref(&x));
        assert_eq!(values::<f32>(&y[0]), [0.5, 0.5, 0.0, 0.0]);
        let half = x.cast(DType::F16).unwrap();
        let y = check(&*op("F.softmax s 1 1 0 1 dim=0 dtype=torch.float32"), &[half]);
        assert_eq!(values::<f32>(&y[0]), [1.0, 1.0, 0.0, 0.0]);
    }
}

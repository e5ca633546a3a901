//! Layer norm and RMS norm: the trailing dimensions normalised together.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.LayerNorm.html>,
//! <https://pytorch.org/docs/stable/generated/torch.nn.RMSNorm.html>

use crate::support::assemble::leaf;
use crate::support::halves::{self, Parts};
use crate::support::weights::{Bound, Source, optional};
use crate::{
    Bf16Support, BuildError, Cost, Kernel, LayoutCx, NodeReader, Operator, PlanCx, PlanError,
    Planned, RunCx, RunError, ShapeError, StrideRule, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::norm::{RowNorm, normalize_rows, normalize_rows_any, normalize_rows_to_bf16};
use plutino_kernels::number::Float;
use plutino_kernels::{Isa, for_floats};
use plutino_tensor::{DType, Layout};

#[derive(Debug)]
pub(crate) struct LayerNorm {
    pub(crate) input: usize,
    /// The trailing dimensions that are normalised.
    shape: Vec<usize>,
    /// None: the dtype's epsilon (RMS norm only).
    eps: Option<f64>,
    /// Whether the mean is taken off; RMS norm leaves it.
    centered: bool,
    weight: Option<Source>,
    bias: Option<Source>,
}

fn normalized_shape(r: &mut NodeReader<'_>) -> Result<Vec<usize>, BuildError> {
    let shape: Vec<i64> = r.required("normalized_shape")?;
    let sizes: Option<Vec<usize>> = shape.iter().map(|&n| usize::try_from(n).ok()).collect();
    sizes.filter(|s| !s.is_empty()).ok_or_else(|| r.bad("normalized_shape", "one size or more"))
}

fn module(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let centered = r.kind() == "nn.LayerNorm";
    let shape = normalized_shape(r)?;
    let affine = r.or("elementwise_affine", true)?;
    // `LayerNorm(bias=False)` has a weight only.
    let bias = centered && affine && r.or("bias", r.has_weight("bias"))?;
    let eps = r.optional("eps")?;
    Ok(Box::new(LayerNorm {
        input: r.required_input("input")?,
        weight: r.weight_if(affine, "weight", &shape)?.map(Source::Stored),
        bias: r.weight_if(bias, "bias", &shape)?.map(Source::Stored),
        shape,
        eps: eps.or(centered.then_some(1e-5)),
        centered,
    }))
}
register_op!(module => "nn.LayerNorm", "nn.RMSNorm");

fn spelled(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let centered = r.kind() == "F.layer_norm";
    Ok(Box::new(function(r, centered)?))
}
register_op!(spelled => "F.layer_norm", "F.rms_norm");

/// A function whose weights are inputs; RMS norm where it is not centered.
pub(crate) fn function(r: &mut NodeReader<'_>, centered: bool) -> Result<LayerNorm, BuildError> {
    let shape = normalized_shape(r)?;
    let eps = r.optional("eps")?;
    Ok(LayerNorm {
        input: r.required_input("input")?,
        shape,
        eps: eps.or(centered.then_some(1e-5)),
        centered,
        weight: Source::optional_input(r, "weight")?,
        bias: if centered { Source::optional_input(r, "bias")? } else { None },
    })
}

/// A layer norm, or an RMS norm, of rows, as models write it out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormPattern {
    /// Elements of a row.
    pub width: usize,
    /// What is added to the mean of squares.
    pub eps: f64,
    /// Whether the mean is taken off.
    pub centred: bool,
    /// Whether input 1 is a factor for each element of a row.
    pub weighted: bool,
    /// Whether the last input is added to each row.
    pub biased: bool,
}

impl NormPattern {
    /// The operator that computes the pattern.
    pub fn into_operator(self) -> Box<dyn Operator> {
        let weight = self.weighted.then_some(Source::Input(1));
        let bias = self.biased.then_some(Source::Input(1 + usize::from(self.weighted)));
        Box::new(LayerNorm {
            input: 0,
            shape: vec![self.width],
            eps: Some(self.eps),
            centered: self.centred,
            weight,
            bias,
        })
    }
}

/// What is added to the mean of squares where no number is given: the epsilon of the dtype that it
/// is computed in.
pub(crate) fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    }
}

impl LayerNorm {
    fn subject<'a>(&self, inputs: &'a [ValueSpec]) -> Result<&'a TensorValue, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        if !x.shape().dims().ends_with(&self.shape) {
            let text = format!("the last dimensions of {} must be {:?}", x.shape(), self.shape);
            return Err(ShapeError::Invalid(text));
        }
        check_parameters(x, self.input, &self.shape, [&self.weight, &self.bias], inputs)?;
        Ok(x)
    }
}

/// Checks that the input is a float, and that the parameters have its dtype and this shape.
pub(crate) fn check_parameters(
    x: &TensorValue,
    input: usize,
    shape: &[usize],
    parameters: [&Option<Source>; 2],
    inputs: &[ValueSpec],
) -> Result<(), ShapeError> {
    if !x.dtype().is_float() {
        return Err(ShapeError::DType { input, expected: "a float".into(), found: x.dtype() });
    }
    for parameter in parameters.into_iter().flatten() {
        let spec = parameter.spec(inputs)?;
        if spec.shape.dims() != shape || spec.dtype != x.dtype() {
            return Err(ShapeError::Invalid(format!(
                "weight and bias must be {}{}, found {spec}",
                plutino_tensor::Shape::from(shape),
                x.dtype()
            )));
        }
    }
    Ok(())
}

impl Operator for LayerNorm {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::Contiguous
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let x = self.subject(inputs)?;
        Ok(vec![ValueSpec::tensor(x.dtype(), x.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = self.subject(cx.inputs)?;
        let len = self.shape.iter().fold(1, |n: usize, &d| n.saturating_mul(d)).max(1);
        let eps = self.eps.unwrap_or_else(|| epsilon(x.dtype()));
        let norm = RowNorm { len, span: 1, centered: self.centered, eps };
        let rows = x.shape().rank().saturating_sub(self.shape.len());
        plan_rows(cx, (self.input, rows), norm, [&self.weight, &self.bias])
    }

    fn bf16(&self, cx: &LayoutCx<'_>) -> Bf16Support {
        let output = self.subject(cx.inputs).is_ok_and(|x| x.dtype() == DType::F32);
        Bf16Support { output, ..Bf16Support::default() }.of_plain()
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::elementwise(inputs, outputs, 7)
    }
}

/// Plans the normalisation of rows: layer, group, instance and RMS norm.
pub(crate) fn plan_rows(
    cx: &PlanCx<'_>,
    (at, dims): (usize, usize),
    norm: RowNorm,
    [weight, bias]: [&Option<Source>; 2],
) -> Result<Planned, PlanError> {
    let (x, input) = (TensorValue::at(cx.inputs, at)?, leaf(cx.inputs, at));
    if halves::is_half(x.dtype()) {
        return halves::widened_by(cx, Parts { dims, of: &[at] }, |cx| {
            plan_rows(cx, (at, dims), norm, [weight, bias])
        });
    }
    fn elements<T: Float>(
        cx: &PlanCx<'_>,
        source: &Option<Source>,
    ) -> Result<Option<Bound<[T]>>, PlanError> {
        source.as_ref().map(|s| s.elements::<T>(cx.inputs)).transpose()
    }
    if x.dtype() == DType::F32 {
        let to_bf16 = TensorValue::at(cx.outputs, 0)?.spec.layout == Layout::PlainBf16;
        let kernel = Rows {
            name: format!("normalize_rows.{}", cx.isa),
            isa: cx.isa,
            norm,
            input,
            weight: elements(cx, weight)?,
            bias: elements(cx, bias)?,
            to_bf16,
        };
        return Ok(match to_bf16 {
            true => Planned::new(kernel),
            false => Planned::new(kernel).in_place(input),
        });
    }
    for_floats!(x.dtype(),
        T => Ok(Planned::new(RowsAny::<T> {
            norm,
            input,
            weight: elements(cx, weight)?,
            bias: elements(cx, bias)?,
        })),
        _ => Err(PlanError::Unsupported(format!("a normalisation of {}", x.dtype()))),
    )
}

struct Rows {
    name: String,
    isa: Isa,
    norm: RowNorm,
    input: usize,
    weight: Option<Bound<[f32]>>,
    bias: Option<Bound<[f32]>>,
    /// Whether the result is bf16.
    to_bf16: bool,
}

impl Kernel for Rows {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (weight, bias) =
            (optional(&self.weight, &cx.inputs)?, optional(&self.bias, &cx.inputs)?);
        if self.to_bf16 {
            let (x, words) = (cx.inputs.get(self.input)?, cx.outputs.take(0)?);
            normalize_rows_to_bf16(self.isa, cx.par, &self.norm, weight, bias, x, words);
            return Ok(());
        }
        let data = cx.inout(self.input, 0)?;
        normalize_rows(self.isa, cx.par, &self.norm, weight, bias, data);
        Ok(())
    }
}

struct RowsAny<T> {
    norm: RowNorm,
    input: usize,
    weight: Option<Bound<[T]>>,
    bias: Option<Bound<[T]>>,
}

impl<T: Float> Kernel for RowsAny<T> {
    fn name(&self) -> &str {
        "normalize_rows.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (weight, bias) =
            (optional(&self.weight, &cx.inputs)?, optional(&self.bias, &cx.inputs)?);
        let (x, y) = (cx.inputs.get::<T>(self.input)?, cx.outputs.take::<T>(0)?);
        normalize_rows_any(cx.par, &self.norm, weight, bias, x, y);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{
        assert_close, check, check_bf16, error, op, op_with, random, tensor, try_op, values,
    };
    use plutino_reference::norm::rows;
    use plutino_tensor::Tensor;

    fn expected(norm: RowNorm, w: Option<&Tensor>, b: Option<&Tensor>, x: &Tensor) -> Tensor {
        let (w, b) = (w.map(values::<f32>), b.map(values::<f32>));
        let y = rows(&norm, w.as_deref(), b.as_deref(), &values::<f32>(x));
        tensor(x.shape().clone(), &y.iter().map(|&v| v as f32).collect::<Vec<_>>())
    }

    #[test]
    fn modules_and_functions() {
        let x = random([2, 3, 4, 6], 1);
        let (w, b) = (random([4, 6], 2), random([4, 6], 3));
        for (centered, name) in [(true, "Layer"), (false, "RMS")] {
            let norm = RowNorm { len: 24, span: 1, centered, eps: 1e-3 };
            let mut weights = vec![("weight", w.clone()), ("bias", b.clone())];
            weights.truncate(if centered { 2 } else { 1 });
            let line = format!(
                "nn.{name}Norm l 1 1 0 1 elementwise_affine=True eps=0.001 normalized_shape=(4,6)"
            );
            let bias = centered.then_some(&b);
            let module = check(&*op_with(&line, &weights), std::slice::from_ref(&x));
            assert_close(&module[0], &expected(norm, Some(&w), bias, &x), 1e-5);
            let function = if centered {
                let line = "F.layer_norm l 3 1 0 1 2 3 eps=0.001 normalized_shape=(4,6) $input=0 $weight=1 $bias=2";
                check(&*op(line), &[x.clone(), w.clone(), b.clone()])
            } else {
                let line =
                    "F.rms_norm l 2 1 0 1 2 eps=0.001 normalized_shape=(4,6) $input=0 $weight=1";
                check(&*op(line), &[x.clone(), w.clone()])
            };
            assert_eq!(function, module);
        }
        let plain = op(
            "F.layer_norm l 1 1 0 1 bias=None weight=None eps=0.001 normalized_shape=(6) $input=0",
        );
        let norm = RowNorm { len: 6, span: 1, centered: true, eps: 1e-3 };
        assert_close(
            &check(&*plain, std::slice::from_ref(&x))[0],
            &expected(norm, None, None, &x),
            1e-5,
        );
        let no_bias = op_with(
            "nn.LayerNorm l 1 1 0 1 elementwise_affine=True eps=0.001 normalized_shape=(4,6)",
            &[("weight", w.clone())],
        );
        let norm = RowNorm { len: 24, ..norm };
        assert_close(
            &check(&*no_bias, std::slice::from_ref(&x))[0],
            &expected(norm, Some(&w), None, &x),
            1e-5,
        );
    }

    #[test]
    fn results_of_bf16() {
        for shape in [vec![3usize, 6], vec![2, 5, 34], vec![40, 2, 8]] {
            let last = shape[shape.len() - 1];
            let line = format!(
                "nn.LayerNorm l 1 1 0 1 elementwise_affine=True eps=0.001 normalized_shape=({last})"
            );
            let norm =
                op_with(&line, &[("weight", random([last], 1)), ("bias", random([last], 2))]);
            check_bf16(&*norm, &[random(shape, 3)], &[], true);
        }
    }

    #[test]
    fn without_eps_it_is_the_dtypes() {
        let rms = op("nn.RMSNorm l 1 1 0 1 elementwise_affine=False eps=None normalized_shape=(2)");
        // sqrt(mean square) is 1e-4: its square is a tenth of f32's epsilon.
        let y = values::<f32>(&check(&*rms, &[tensor([2], &[1e-4f32, 1e-4])])[0]);
        assert!((f64::from(y[0]) - 1e-4 / (1e-8 + f64::from(f32::EPSILON)).sqrt()).abs() < 1e-6);
        let y = values::<f64>(&check(&*rms, &[tensor([2], &[1e-4f64, 1e-4])])[0]);
        assert!((y[0] - 1.0).abs() < 1e-7);
    }

    #[test]
    fn empty_and_wrong_inputs() {
        let norm = op("F.layer_norm l 1 1 0 1 bias=None weight=None normalized_shape=(3) $input=0");
        assert_eq!(check(&*norm, &[Tensor::zeros(DType::F32, [0, 3]).unwrap()])[0].numel(), 0);
        assert!(error(&*norm, &[random([3, 4], 1)]).to_string().contains("must be [3]"));
        assert!(error(&*norm, &[tensor([3], &[1i64; 3])]).to_string().contains("a float"));
        assert!(
            try_op("nn.LayerNorm l 1 1 0 1 elementwise_affine=False normalized_shape=()", &[])
                .is_err()
        );
        assert!(
            try_op("nn.LayerNorm l 1 1 0 1 normalized_shape=(3)", &[("weight", random([4], 1))])
                .is_err()
        );
    }
}

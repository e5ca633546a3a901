//! Linear layers: `nn.Linear`, `F.linear`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.linear.html>: `y[..., o] = sum
//! over i of x[..., i] weight[o, i] + bias[o]`; a weight of one dimension stands for a single
//! output, whose dimension is dropped.

use crate::support::assemble::leaf;
use crate::support::halves;
use crate::support::weighted::{AnyWeighted, Weighted, activate};
use crate::support::weights::{self, Bound, Source, Stored};
use crate::{
    Bf16Support, BuildError, Cost, Kernel, LayoutCx, MemoryUse, Neighbour, NodeReader, Operator,
    PlanCx, PlanError, Planned, Role, RunCx, RunError, Setting, ShapeError, StrideRule,
    TensorValue, ValueSpec, register_op,
};
use plutino_kernels::gemm::{
    AnyMatrix, Bf16Matrices, Compact, GemmError, LinearArgs, LinearProduct, Matrix, MatrixUnit,
    Narrow, PackedMatrix, Target, cost, gemm_any,
};
use plutino_kernels::number::{Number, Wide};
use plutino_kernels::tiles::Terms;
use plutino_kernels::{Activation, Isa, Par, for_floats, for_numbers};
use plutino_tensor::{DType, Layout, TensorSpec};

register_op!(module => "nn.Linear");
register_op!(function => "F.linear");

/// A linear layer with what it has absorbed: activation(x weight^T + bias + residual).
#[derive(Debug, Clone)]
struct Linear(Weighted);

fn module(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    with_weights(r, weights::of_module)
}

/// A module whose weight, of the shape that it is given, and bias `read` reads.
pub(crate) fn with_weights(
    r: &mut NodeReader<'_>,
    read: impl FnOnce(&mut NodeReader<'_>, &[usize]) -> Result<Stored, BuildError>,
) -> Result<Box<dyn Operator>, BuildError> {
    let (inp, out): (usize, usize) = (r.required("in_features")?, r.required("out_features")?);
    let (weight, bias) = read(r, &[out, inp])?;
    let input = r.required_input("input")?;
    let weighted = Weighted::new(input, Source::Stored(weight), bias.map(Source::Stored));
    Ok(Box::new(Linear(weighted)))
}

fn function(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    Ok(Box::new(Linear(Weighted::of_function(r)?)))
}

impl Linear {
    /// Rows, input features, output features, and the output.
    fn sizes(&self, inputs: &[ValueSpec]) -> Result<([usize; 3], TensorSpec), ShapeError> {
        let x = &TensorValue::at(inputs, self.0.input)?.spec;
        let weight = self.0.weight.spec(inputs)?;
        let unsuited =
            || ShapeError::Invalid(format!("a weight {weight} does not suit an input {x}"));
        let (out, features) = match *weight.shape.dims() {
            [features] => (None, features),
            [out, features] => (Some(out), features),
            _ => return Err(unsuited()),
        };
        if x.shape.last() != Some(&features) || weight.dtype != x.dtype {
            return Err(unsuited());
        }
        self.0.check_bias(out.as_slice(), x.dtype, inputs)?;
        let leading = x.shape.rank() - 1;
        let rows = x.shape.product(0..leading);
        let mut shape = x.shape.clone();
        shape.remove(leading);
        if let Some(out) = out {
            shape.push(out);
        }
        shape.checked_numel()?;
        Ok(([rows, features, out.unwrap_or(1)], TensorSpec::new(x.dtype, shape)))
    }
}

impl Operator for Linear {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::Contiguous
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (_, output) = self.sizes(inputs)?;
        self.0.check_residual(&output, inputs)?;
        Ok(vec![output.into()])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (sizes, output) = self.sizes(cx.inputs)?;
        if output.dtype == DType::F32 {
            return self.plan_f32(cx, sizes);
        }
        if halves::is_half(output.dtype) {
            return halves::widened(cx, |cx| self.plan_f32(cx, sizes));
        }
        for_floats!(output.dtype,
            T => plan_any(cx.isa, self.0.of_any::<T>(cx, Some(activate::<T>))?, sizes),
            _ => for_numbers!(output.dtype, T => plan_any(cx.isa, self.0.of_any::<T>(cx, None)?, sizes)),
        )
    }

    fn absorb(&self, neighbour: &Neighbour, inputs: &[ValueSpec]) -> Option<Box<dyn Operator>> {
        match neighbour {
            // Products add before the activation alone.
            Neighbour::Add if self.0.post_ops.activation.is_some() => None,
            // Channels are dimension 1: features of a matrix.
            Neighbour::Affine(_)
                if TensorValue::at(inputs, self.0.input).is_ok_and(|x| x.shape().rank() != 2) =>
            {
                None
            }
            other => self.0.absorb(other).map(|new| Box::new(Self(new)) as Box<dyn Operator>),
        }
    }

    fn role(&self, _: &[ValueSpec]) -> Option<Role> {
        // A weight of one dimension makes numbers, not rows.
        let matrix = self.0.weight.spec(&[]).is_ok_and(|weight| weight.shape.rank() == 2);
        (self.0.input == 0 && matrix && self.0.is_stored()).then_some(Role::ByRow)
    }

    fn bf16(&self, cx: &LayoutCx<'_>) -> Bf16Support {
        let of = |(sizes, output): ([usize; 3], TensorSpec)| {
            let weight = self.0.weight.spec(cx.inputs).ok()?;
            let known = output.dtype == DType::F32 && self.0.weight.is_known(cx.inputs);
            let product = product_of_packed(&cx.setting, weight.dtype, sizes, None).ok()?;
            let Bf16Matrices { x, y } = product.bf16_matrices();
            let inputs = (known && x).then_some(self.0.input).into_iter().collect();
            let output = known && y && self.0.residual(cx.inputs).is_none();
            Some(Bf16Support { inputs, output, ..Bf16Support::default() }.of_plain())
        };
        self.sizes(cx.inputs).ok().and_then(of).unwrap_or_default()
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let product = |sizes: [usize; 3]| {
            sizes.iter().fold(2u64, |all, &size| all.saturating_mul(size as u64))
        };
        let flops = self.sizes(inputs).map_or(0, |(sizes, _)| product(sizes));
        self.0.cost(flops, inputs, outputs)
    }
}

impl Linear {
    /// Plans a layer of f32, of `m` rows of `k` elements to `n` each.
    fn plan_f32(&self, cx: &PlanCx<'_>, sizes: [usize; 3]) -> Result<Planned, PlanError> {
        let own = RowProduct {
            input: self.0.input,
            bias: self.0.bias.as_ref().map(|b| b.elements(cx.inputs)).transpose()?,
            residual: self.0.residual(cx.inputs),
            activation: self.0.post_ops.activation,
        };
        own.plan(cx, &self.0.weight, sizes, (1, sizes[1]))
    }
}

fn plan_any<T: Number>(
    isa: Isa,
    weighted: AnyWeighted<T>,
    sizes: [usize; 3],
) -> Result<Planned, PlanError> {
    Ok(Planned::new(AnyLinear { isa, sizes, weighted }))
}

/// A product of f32 with a matrix that is known while planning, packed like the weight of a linear
/// layer: `m` rows of `k` elements, times the matrix at input `weight`, whose element (k, n) lies
/// at `strides`; plus the row at input `bias`. None where the matrix is computed.
pub(crate) fn plan_known(
    cx: &PlanCx<'_>,
    (input, weight, bias): (usize, usize, Option<usize>),
    sizes: [usize; 3],
    strides: (usize, usize),
) -> Result<Option<Planned>, PlanError> {
    let source = Source::Input(weight);
    // A copy in another form is what the caller who saves memory does without.
    if cx.memory == MemoryUse::Low || !source.is_known(cx.inputs) {
        return Ok(None);
    }
    let bias = bias.map(|input| Bound::AtRun(leaf(cx.inputs, input)));
    let product = RowProduct { input, bias, residual: None, activation: None };
    product.plan(cx, &source, sizes, strides).map(Some)
}

/// Rows times a matrix, and what follows.
struct RowProduct {
    input: usize,
    bias: Option<Bound<[f32]>>,
    residual: Option<usize>,
    activation: Option<Activation>,
}

/// Which of the matrices of a product lie as bf16: rows that are input `x`, and the only output.
pub(crate) fn bf16_of(cx: &PlanCx<'_>, x: usize) -> Result<Bf16Matrices, ShapeError> {
    let lies = |value: &TensorValue| value.spec.layout == Layout::PlainBf16;
    let (x, y) = (TensorValue::at(cx.inputs, x)?, TensorValue::at(cx.outputs, 0)?);
    Ok(Bf16Matrices { x: lies(x), y: lies(y) })
}

impl RowProduct {
    /// Plans `[m, k, n]`: `m` rows of `k` elements times `weight`, whose element (k, n) lies at
    /// `strides`: packed while planning where it is known.
    fn plan(
        self,
        cx: &PlanCx<'_>,
        weight: &Source,
        sizes: [usize; 3],
        strides: (usize, usize),
    ) -> Result<Planned, PlanError> {
        let stored = weight.spec(cx.inputs)?.dtype;
        let known = product_of_packed(&cx.setting, stored, sizes, self.activation)?;
        let known = known.with_bf16(bf16_of(cx, self.input)?).map_err(plan_error)?;
        let weights = weight.packed(cx.inputs, cx.packs, known.pack_key(), |weight| {
            known.pack_from(weight, strides, &Par::serial()).map_err(plan_error)
        })?;
        let product = match weights {
            Bound::Ready(_) => known,
            Bound::AtRun(_) => {
                let target = Target::this(cx.isa);
                LinearProduct::plan(target, cx.threads, sizes, false, self.activation)
                    .map_err(plan_error)?
            }
        };
        let name = match (product.unit(), product.narrow()) {
            (Some(unit), _) => format!("gemm.{unit}"),
            (None, None) => format!("gemm.{}", cx.isa),
            (None, Some(narrow)) => format!("gemm.{}.{}", narrow.name(), cx.isa),
        };
        let workspace = product.workspace();
        let kernel = LinearKernel { name, product, rows: self, weights, strides };
        Ok(Planned::new(kernel).with_scratch(workspace))
    }
}

/// A product with a weight of this dtype, which is packed while planning: as narrow floats where
/// the weight, or the setting, says so.
pub(crate) fn product_of_packed(
    cx: &Setting,
    stored: DType,
    sizes: [usize; 3],
    activation: Option<Activation>,
) -> Result<LinearProduct, PlanError> {
    let target = Target::this(cx.isa);
    let narrow = cx.weights.compact(stored);
    // Weights of f16 have more bits than one bf16, and integers have scales; as three terms narrow
    // ones would be no more.
    let suits = |unit: &MatrixUnit| match (unit, narrow) {
        (_, Some(Compact::Float(Narrow::F16) | Compact::Int8 | Compact::Nf4))
        | (MatrixUnit::Tiles(_, Terms::Three), Some(_)) => false,
        _ => cx.batch_invariant || cost::pays(*unit, cx.isa, sizes),
    };
    if let Some(unit) = cx.unit().filter(suits) {
        return LinearProduct::plan_on_unit(target, cx.threads, sizes, unit, activation)
            .map_err(plan_error);
    }
    match narrow {
        Some(narrow) => LinearProduct::plan_narrow(target, cx.threads, sizes, narrow, activation),
        None => LinearProduct::plan(target, cx.threads, sizes, true, activation),
    }
    .map_err(plan_error)
}

/// The error of sizes or weights that do not fit.
pub(crate) fn plan_error(error: GemmError) -> PlanError {
    match error {
        GemmError::Memory(error) => error.into(),
        error => ShapeError::Invalid(error.to_string()).into(),
    }
}

/// The error of a kernel whose plan does not fit its run.
pub(crate) fn run_error(error: GemmError) -> RunError {
    match error {
        GemmError::Memory(error) => error.into(),
        error => RunError::Internal(error.to_string()),
    }
}

/// A linear layer of f32.
struct LinearKernel {
    name: String,
    product: LinearProduct,
    rows: RowProduct,
    weights: Bound<PackedMatrix>,
    /// Of the weight's elements (k, n), where it comes with the run.
    strides: (usize, usize),
}

impl Kernel for LinearKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (own, stride) = (&self.rows, self.product.row_of_results());
        let args = LinearArgs {
            x: cx.inputs.get(own.input)?,
            w: match &self.weights {
                Bound::Ready(weights) => Matrix::Packed(weights),
                &Bound::AtRun(i) => Matrix::Strided(cx.inputs.get(i)?, self.strides),
            },
            bias: weights::optional(&own.bias, &cx.inputs)?,
            residual: own.residual.map(|i| cx.inputs.get(i)).transpose()?,
            y: cx.outputs.take(0)?,
            stride,
            workspace: cx.take_scratch()?,
        };
        self.product.run(args, cx.par).map_err(run_error)
    }
}

/// A linear layer of any other dtype.
struct AnyLinear<T> {
    isa: Isa,
    sizes: [usize; 3],
    weighted: AnyWeighted<T>,
}

impl<T: Number> Kernel for AnyLinear<T> {
    fn name(&self) -> &str {
        "gemm.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let ([m, k, n], own) = (self.sizes, &self.weighted);
        let a = AnyMatrix { data: cx.inputs.get::<T>(own.input)?, strides: (k, 1) };
        let b = AnyMatrix { data: own.weight.get(&cx.inputs)?, strides: (1, k) };
        let bias = weights::optional(&own.bias, &cx.inputs)?;
        let store =
            |i: usize, sum: T::Wide| T::narrow(bias.map_or(sum, |b| sum.plus(b[i % n].widen())));
        let y = cx.outputs.take::<T>(0)?;
        gemm_any(self.isa, cx.par, (m, n, k), a, b, &store, y);
        own.finish(y, &cx.inputs)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{
        check, check_bf16, error, iota, op, op_with, random, specs, tensor, values,
    };
    use crate::{LayoutCx, Neighbour, Operator, Precision, Setting, Units};
    use plutino_kernels::Isa;
    use plutino_tensor::{DType, Tensor};

    #[test]
    fn features_are_the_last_dimension() {
        let line = "nn.Linear l 1 1 0 9 bias=True in_features=3 out_features=2";
        let weight = tensor([2, 3], &[1.0f32, 10.0, 100.0, 0.0, 0.0, -1.0]);
        let linear = op_with(line, &[("weight", weight), ("bias", tensor([2], &[0.5f32, 0.0]))]);
        let y = check(&*linear, &[iota([2, 2, 3])]);
        assert_eq!(y[0].shape().dims(), [2, 2, 2]);
        let expected = [210.5, -2.0, 543.5, -5.0, 876.5, -8.0, 1209.5, -11.0];
        assert_eq!(values::<f32>(&y[0]), expected);
        let y = check(&*linear, &[iota([3])]);
        assert_eq!(y[0].shape().dims(), [2]);
        error(&*linear, &[iota([2])]);
        error(&*linear, &[tensor([], &[1.0f32])]);
    }

    #[test]
    fn rows_and_results_of_bf16() {
        for (rows, features, out) in [([2, 3], 6, 10), ([1, 1], 64, 34), ([5, 7], 130, 2)] {
            let line =
                format!("nn.Linear l 1 1 0 1 bias=True in_features={features} out_features={out}");
            let weights = [("weight", random([out, features], 1)), ("bias", random([out], 2))];
            let linear = op_with(&line, &weights);
            let x = random([rows[0], rows[1], features], 3);
            for (inputs, output) in [(&[0][..], false), (&[], true), (&[0], true)] {
                check_bf16(&*linear, std::slice::from_ref(&x), inputs, output);
            }
        }
        // A sum is not rounded, and a word has two numbers.
        let line = "nn.Linear l 1 1 0 1 bias=False in_features=3 out_features=4";
        let linear = op_with(line, &[("weight", random([4, 3], 1))]);
        let setting = Setting { precision: Precision::Medium, ..Setting::new(Isa::PORTABLE, 1) };
        let setting = Setting { units: Units::EmulatedBf16, ..setting };
        let asked = |operator: &dyn Operator, inputs: &[Tensor]| {
            let support = operator.bf16(&LayoutCx { inputs: &specs(inputs), setting });
            (support.inputs.to_vec(), support.output)
        };
        let x = random([2, 3], 2);
        assert_eq!(asked(&*linear, std::slice::from_ref(&x)), (vec![], true));
        let summed = linear.absorb(&Neighbour::Add, &[]).unwrap();
        assert_eq!(asked(&*summed, &[x.clone(), random([2, 4], 3)]), (vec![], false));
        let unknown = op("F.linear l 2 1 0 1 9 bias=None");
        assert_eq!(asked(&*unknown, &[x, random([4, 3], 1)]), (vec![], false));
    }

    #[test]
    fn a_function_of_other_dtypes_and_a_weight_of_one_dimension() {
        let linear = op("F.linear l 2 1 0 1 9 bias=None");
        let (x, w) = (iota([4, 3]), tensor([3], &[1.0f32, 2.0, 3.0]));
        let y = check(&*linear, &[x.clone(), w.clone()]);
        assert_eq!(y[0].shape().dims(), [4]);
        assert_eq!(values::<f32>(&y[0]), [8.0, 26.0, 44.0, 62.0]);
        let long = |t: plutino_tensor::Tensor| t.cast(DType::I64).unwrap();
        let y = check(&*linear, &[long(x), long(w)]);
        assert_eq!(values::<i64>(&y[0]), [8, 26, 44, 62]);
    }
}

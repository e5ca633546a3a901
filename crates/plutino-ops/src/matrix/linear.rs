//! Linear layers: `nn.Linear`, `F.linear`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.linear.html>: `y[..., o] = sum
//! over i of x[..., i] weight[o, i] + bias[o]`; a weight of one dimension stands for a single
//! output, whose dimension is dropped.

use crate::convolution::conv::{Activate, activate, add, with_activation};
use crate::support::assemble::leaf;
use crate::support::halves;
use crate::support::weights::{self, Bound, Source, Stored};
use crate::{
    BuildError, Cost, Kernel, MemoryUse, Neighbour, NodeReader, Operator, PlanCx, PlanError,
    Planned, Role, RunCx, RunError, ShapeError, StrideRule, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::gemm::{
    self, AnyMatrix, Bias, Gemm, Operand, PackedMatrix, Product, Side, Size, Strided, Summand,
    Target, gemm_any,
};
use plutino_kernels::number::{Number, Wide};
use plutino_kernels::{Activation, Par, for_floats, for_numbers};
use plutino_tensor::{DType, TensorSpec};

register_op!(module => "nn.Linear");
register_op!(function => "F.linear");

/// A linear layer with what it has absorbed: activation(x weight^T + bias + summand).
#[derive(Debug, Clone)]
pub(crate) struct Linear {
    pub(crate) input: usize,
    pub(crate) weight: Source,
    pub(crate) bias: Option<Source>,
    /// Whether a summand follows as the last input.
    pub(crate) add: bool,
    pub(crate) activation: Option<Activation>,
}

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
    Ok(Box::new(Linear {
        input: r.required_input("input")?,
        weight: Source::Stored(weight),
        bias: bias.map(Source::Stored),
        add: false,
        activation: None,
    }))
}

fn function(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    Ok(Box::new(Linear {
        input: r.required_input("input")?,
        weight: Source::Input(r.required_input("weight")?),
        bias: Source::optional_input(r, "bias")?,
        add: false,
        activation: None,
    }))
}

impl Linear {
    /// Rows, input features, output features, and the output.
    fn sizes(&self, inputs: &[ValueSpec]) -> Result<([usize; 3], TensorSpec), ShapeError> {
        let x = &TensorValue::at(inputs, self.input)?.spec;
        let weight = self.weight.spec(inputs)?;
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
        let bias_dims: Vec<usize> = out.into_iter().collect();
        if let Some(bias) = &self.bias {
            let bias = bias.spec(inputs)?;
            if bias.shape.dims() != bias_dims || bias.dtype != x.dtype {
                let expected = TensorSpec::new(x.dtype, bias_dims);
                let text = format!("the bias must be {expected}, found {bias}");
                return Err(ShapeError::Invalid(text));
            }
        }
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

    /// The position of the absorbed summand.
    fn summand(&self, inputs: &[ValueSpec]) -> Option<usize> {
        self.add.then(|| inputs.len().saturating_sub(1))
    }
}

impl Operator for Linear {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::Contiguous
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (_, output) = self.sizes(inputs)?;
        if let Some(i) = self.summand(inputs) {
            let summand = &TensorValue::at(inputs, i)?.spec;
            if (&summand.shape, summand.dtype) != (&output.shape, output.dtype) {
                return Err(ShapeError::Invalid(format!("cannot add {summand} to {output}")));
            }
        }
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
            T => self.plan_any::<T>(cx, sizes, Some(activate::<T>)),
            _ => for_numbers!(output.dtype, T => self.plan_any::<T>(cx, sizes, None)),
        )
    }

    fn absorb(&self, neighbour: &Neighbour, inputs: &[ValueSpec]) -> Option<Box<dyn Operator>> {
        let mut linear = self.clone();
        match neighbour {
            Neighbour::Activation(activation) if self.activation.is_none() => {
                linear.activation = Some(*activation);
            }
            Neighbour::Add if self.activation.is_none() && !self.add => linear.add = true,
            // Channels are dimension 1: features of a matrix.
            Neighbour::Affine(affine)
                if self.activation.is_none()
                    && !self.add
                    && TensorValue::at(inputs, self.input).is_ok_and(|x| x.shape().rank() == 2) =>
            {
                let (weight, bias) =
                    weights::with_affine(&self.weight, self.bias.as_ref(), affine)?;
                (linear.weight, linear.bias) = (weight, Some(bias));
            }
            _ => return None,
        }
        Some(Box::new(linear))
    }

    fn role(&self, _: &[ValueSpec]) -> Option<Role> {
        // A weight of one dimension makes numbers, not rows.
        let stored = |source: &Source| matches!(source, Source::Stored(_));
        let matrix = self.weight.spec(&[]).is_ok_and(|weight| weight.shape.rank() == 2);
        let alone = stored(&self.weight) && self.bias.as_ref().is_none_or(stored);
        (self.input == 0 && matrix && alone).then_some(Role::ByRow)
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let product = |sizes: [usize; 3]| {
            sizes.iter().fold(2u64, |all, &size| all.saturating_mul(size as u64))
        };
        let flops = self.sizes(inputs).map_or(0, |(sizes, _)| product(sizes));
        let weight = self.weight.spec(inputs).and_then(|w| Ok(w.storage_bytes()?)).unwrap_or(0);
        let moved = Cost::moved(inputs, outputs);
        Cost { flops, bytes: moved.bytes.saturating_add(weight as u64) }
    }
}

impl Linear {
    /// Plans a layer of f32, of `m` rows of `k` elements to `n` each.
    pub(crate) fn plan_f32(
        &self,
        cx: &PlanCx<'_>,
        [m, k, n]: [usize; 3],
    ) -> Result<Planned, PlanError> {
        let target = Target::this(cx.isa);
        let packing = format!("gemm.right.{}", cx.isa);
        let weights = self.weight.packed(cx.inputs, cx.packs, &packing, |weight| {
            let right = Strided::right(weight, (k, n), (1, k));
            Ok(PackedMatrix::of(target, Side::Right, &right, &Par::serial())?)
        })?;
        let packed = matches!(weights, Bound::Ready(_));
        let gemm = Gemm::new(target, cx.threads, Size { batch: 1, m, n, k }, (false, packed));
        let scratch = gemm.scratch(cx.threads).saturating_mul(size_of::<f32>());
        let kernel = LinearKernel {
            name: format!("gemm.{}", cx.isa),
            gemm,
            input: self.input,
            weights,
            bias: self.bias.as_ref().map(|b| b.elements(cx.inputs)).transpose()?,
            summand: self.summand(cx.inputs),
            activation: self.activation,
        };
        Ok(Planned::new(kernel).with_scratch(scratch))
    }

    fn plan_any<T: Number>(
        &self,
        cx: &PlanCx<'_>,
        sizes: [usize; 3],
        apply: Option<Activate<T>>,
    ) -> Result<Planned, PlanError> {
        Ok(Planned::new(AnyLinear::<T> {
            sizes,
            input: self.input,
            weight: self.weight.elements(cx.inputs)?,
            bias: self.bias.as_ref().map(|b| b.elements(cx.inputs)).transpose()?,
            summand: self.summand(cx.inputs),
            activation: with_activation(self.activation, apply)?,
        }))
    }
}

/// A product of f32 with a matrix that is known while planning, packed like the weight of a linear
/// layer: `m` rows of `k` elements, times the matrix at input `weight`, whose element (k, n) lies
/// at `strides`; plus the row at input `bias`. None where the matrix is computed.
pub(crate) fn plan_known(
    cx: &PlanCx<'_>,
    (input, weight, bias): (usize, usize, Option<usize>),
    [m, k, n]: [usize; 3],
    strides: (usize, usize),
) -> Result<Option<Planned>, PlanError> {
    let target = Target::this(cx.isa);
    let source = Source::Input(weight);
    // A copy in another form is what the caller who saves memory does without.
    if cx.memory == MemoryUse::Low || !source.is_known(cx.inputs) {
        return Ok(None);
    }
    let weights = source.packed(cx.inputs, cx.packs, "gemm.right.known", |weight| {
        let right = Strided::right(weight, (k, n), strides);
        Ok(PackedMatrix::of(target, Side::Right, &right, &Par::serial())?)
    })?;
    let gemm = Gemm::new(target, cx.threads, Size { batch: 1, m, n, k }, (false, true));
    let scratch = gemm.scratch(cx.threads).saturating_mul(size_of::<f32>());
    let kernel = LinearKernel {
        name: format!("gemm.{}", cx.isa),
        gemm,
        input,
        weights,
        bias: bias.map(|input| Bound::AtRun(leaf(cx.inputs, input))),
        summand: None,
        activation: None,
    };
    Ok(Some(Planned::new(kernel).with_scratch(scratch)))
}

/// A linear layer of f32.
struct LinearKernel {
    name: String,
    gemm: Gemm,
    input: usize,
    weights: Bound<PackedMatrix>,
    bias: Option<Bound<[f32]>>,
    summand: Option<usize>,
    activation: Option<Activation>,
}

impl Kernel for LinearKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let Size { m, n, k, .. } = self.gemm.size();
        let product = Product {
            a: Operand::Source(Strided::left(cx.inputs.get(self.input)?, (m, k), (k, 1))),
            b: match &self.weights {
                Bound::Ready(weights) => Operand::Packed(weights),
                &Bound::AtRun(i) => {
                    Operand::Source(Strided::right(cx.inputs.get(i)?, (k, n), (1, k)))
                }
            },
            epilogue: gemm::Epilogue {
                bias: weights::optional(&self.bias, &cx.inputs)?.map_or(Bias::None, Bias::Cols),
                summand: match self.summand {
                    Some(i) => Summand::Other(cx.inputs.get(i)?),
                    None => Summand::None,
                },
                activation: self.activation,
            },
        };
        let y = cx.outputs.take(0)?;
        self.gemm.run(cx.par, &product, y, n, cx.take_scratch()?);
        Ok(())
    }
}

/// A linear layer of any other dtype.
struct AnyLinear<T> {
    sizes: [usize; 3],
    input: usize,
    weight: Bound<[T]>,
    bias: Option<Bound<[T]>>,
    summand: Option<usize>,
    activation: Option<(Activation, Activate<T>)>,
}

impl<T: Number> Kernel for AnyLinear<T> {
    fn name(&self) -> &str {
        "gemm.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let [m, k, n] = self.sizes;
        let a = AnyMatrix { data: cx.inputs.get::<T>(self.input)?, strides: (k, 1) };
        let b = AnyMatrix { data: self.weight.get(&cx.inputs)?, strides: (1, k) };
        let bias = weights::optional(&self.bias, &cx.inputs)?;
        let store =
            |i: usize, sum: T::Wide| T::narrow(bias.map_or(sum, |b| sum.plus(b[i % n].widen())));
        let y = cx.outputs.take::<T>(0)?;
        gemm_any(cx.par, (m, n, k), a, b, store, y);
        if let Some(i) = self.summand {
            add(y, cx.inputs.get(i)?);
        }
        if let Some((activation, apply)) = self.activation {
            apply(activation, y);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, op_with, tensor, values};
    use plutino_tensor::DType;

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

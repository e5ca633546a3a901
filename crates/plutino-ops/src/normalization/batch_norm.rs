//! Batch normalisation at inference: a scale and a shift for each channel.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html>:
//! `y = (x - running_mean) / sqrt(running_var + eps) * weight + bias`, channels in dimension 1.

use crate::normalization::native_norm::own_statistics;
use crate::support::assemble::leaf;
use crate::support::composite::{Compose, StepText, composed, composite};
use crate::support::halves::{self, Parts};
use crate::support::weights::{Bound, Source, optional};
use crate::{
    BuildError, ChannelAffine, Cost, Expansion, Inputs, Kernel, LayoutCx, LayoutSupport, Neighbour,
    NodeReader, Operator, PlanCx, PlanError, Planned, Role, RunCx, RunError, ShapeError,
    StrideRule, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::norm::{channel_affine, channel_affine_any, channel_affine_blocked};
use plutino_kernels::number::Float;
use plutino_kernels::{Activation, Isa, for_floats};
use plutino_tensor::{DType, Layout};
use std::sync::Arc;

/// Statistics and parameters by channel.
#[derive(Debug, Clone)]
pub(crate) struct BatchNorm {
    pub(crate) input: usize,
    pub(crate) eps: f64,
    pub(crate) mean: Source,
    pub(crate) variance: Source,
    pub(crate) weight: Option<Source>,
    pub(crate) bias: Option<Source>,
    /// Numbers of dimensions that PyTorch accepts.
    pub(crate) ranks: (usize, usize),
    /// Whether one dimension fewer is an image by itself, whose channels come first.
    pub(crate) unbatched: bool,
    /// Absorbed.
    pub(crate) activation: Option<Activation>,
}

/// A norm of an image without a batch.
#[derive(Debug)]
struct OfImage(BatchNorm);

impl Compose for OfImage {
    fn name(&self) -> &'static str {
        "instance_norm"
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.0.input]
    }

    fn steps(&self, _: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let norm = BatchNorm { input: 0, unbatched: false, ..self.0.clone() };
        Ok(vec![
            StepText::new("torch.unsqueeze", &["x0"], "batch", "dim=0"),
            StepText::of(Box::new(norm), &["batch"], "normal"),
            StepText::new("torch.squeeze", &["normal"], "y", "dim=0"),
        ])
    }
}

fn module(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let ranks = match r.kind() {
        "nn.BatchNorm1d" => (2, 3),
        "nn.BatchNorm2d" => (4, 4),
        "nn.SyncBatchNorm" => (2, usize::MAX),
        _ => (5, 5),
    };
    Ok(Box::new(with_running_statistics(r, ranks)?))
}
register_op!(module => "nn.BatchNorm1d", "nn.BatchNorm2d", "nn.BatchNorm3d", "nn.SyncBatchNorm");

/// A module with running statistics; also that of instance norm, where it tracks them.
pub(crate) fn with_running_statistics(
    r: &mut NodeReader<'_>,
    ranks: (usize, usize),
) -> Result<BatchNorm, BuildError> {
    let channels: usize = r.required("num_features")?;
    let affine = r.or("affine", true)?;
    let eps = r.or("eps", 1e-5)?;
    Ok(BatchNorm {
        input: r.required_input("input")?,
        eps,
        mean: Source::Stored(r.weight("running_mean", &[channels])?),
        variance: Source::Stored(r.weight("running_var", &[channels])?),
        weight: r.weight_if(affine, "weight", &[channels])?.map(Source::Stored),
        bias: r.weight_if(affine, "bias", &[channels])?.map(Source::Stored),
        ranks,
        unbatched: false,
        activation: None,
    })
}

fn function(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    Ok(functional(r)?.1)
}
register_op!(function => "F.batch_norm");

/// The number of the input, and the operator: by running statistics, or, in training or where there
/// are none, by those of the batch.
pub(crate) fn functional(r: &mut NodeReader<'_>) -> Result<(usize, Box<dyn Operator>), BuildError> {
    let eps = r.or("eps", 1e-5)?;
    let _: Option<f64> = r.optional("momentum")?; // of what is not kept
    let input = r.required_input("input")?;
    let mean = Source::optional_input(r, "running_mean")?;
    let variance = Source::optional_input(r, "running_var")?;
    let (Some(mean), Some(variance), false) = (mean, variance, r.or("training", false)?) else {
        return Ok((input, composed(own_statistics(r, input, eps)?)?));
    };
    let norm = BatchNorm {
        input,
        eps,
        mean,
        variance,
        weight: Source::optional_input(r, "weight")?,
        bias: Source::optional_input(r, "bias")?,
        ranks: (2, usize::MAX),
        unbatched: false,
        activation: None,
    };
    Ok((input, Box::new(norm)))
}

impl BatchNorm {
    /// The operator of an image without a batch, where the input is one.
    fn of_image(&self, inputs: &[ValueSpec]) -> Option<Box<dyn Operator>> {
        let x = TensorValue::at(inputs, self.input).ok()?;
        let alone = self.unbatched && x.shape().rank() + 1 == self.ranks.0;
        alone.then(|| composite(OfImage(self.clone())))
    }

    /// The input, checked.
    fn subject<'a>(&self, inputs: &'a [ValueSpec]) -> Result<&'a TensorValue, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let (least, most) = self.ranks;
        if !(least..=most).contains(&x.shape().rank()) {
            return Err(ShapeError::Rank {
                input: self.input,
                expected: match most {
                    usize::MAX => format!("at least {least}"),
                    most if most == least => least.to_string(),
                    most => format!("{least} to {most}"),
                },
                found: x.shape().clone(),
            });
        }
        if !x.dtype().is_float() {
            let expected = "a float".into();
            return Err(ShapeError::DType { input: self.input, expected, found: x.dtype() });
        }
        let channels = x.shape()[1];
        let parameters =
            [Some(&self.mean), Some(&self.variance), self.weight.as_ref(), self.bias.as_ref()];
        for parameter in parameters.into_iter().flatten() {
            let spec = parameter.spec(inputs)?;
            if spec.shape.dims() != [channels] || spec.dtype != x.dtype() {
                return Err(ShapeError::Invalid(format!(
                    "statistics and parameters of an input {} must be ({channels}){}, found {spec}",
                    x.spec,
                    x.dtype()
                )));
            }
        }
        Ok(x)
    }

    /// The plan for an input of any dtype; parameters may be stored by halves for one of f32.
    fn planned(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, self.input)?;
        let (shape, input) = (x.shape(), leaf(cx.inputs, self.input));
        let sizes = [shape[0], shape[1], shape.product(2..shape.rank())];
        if x.dtype() != DType::F32 {
            if self.activation.is_some() {
                let what = format!("an absorbed activation of {}", x.dtype());
                return Err(PlanError::Unsupported(what));
            }
            return for_floats!(x.dtype(),
                T => Ok(Planned::new(Any { sizes, input, parameters: self.parameters::<T>(cx.inputs)? })),
                _ => Err(PlanError::Unsupported(format!("a batch norm of {}", x.dtype()))),
            );
        }
        let block = match x.spec.layout {
            Layout::Plain => None,
            Layout::Blocked { block } => Some(block.max(1)),
            of => return Err(PlanError::Unsupported(format!("a batch norm of {of}"))),
        };
        let padded = block.map_or(sizes[1], |b| sizes[1].next_multiple_of(b));
        let parameters = self.parameters::<f32>(cx.inputs)?;
        let affine = match parameters.ready(padded) {
            Some(affine) => Affine::Ready(affine),
            None => Affine::AtRun(parameters),
        };
        let scratch = match affine {
            Affine::Ready(_) => 0,
            Affine::AtRun(_) => padded.saturating_mul(2 * size_of::<f32>()),
        };
        let name = match block {
            Some(block) => format!("channel_affine.c{block}.{}", cx.isa),
            None => format!("channel_affine.{}", cx.isa),
        };
        let (isa, activation) = (cx.isa, self.activation);
        let kernel = AffineKernel { name, isa, sizes, block, padded, input, affine, activation };
        Ok(Planned::new(kernel).with_scratch(scratch).in_place(input))
    }

    fn parameters<T: Float>(&self, inputs: &[ValueSpec]) -> Result<Parameters<T>, PlanError> {
        let elements = |s: &Source| s.elements::<T>(inputs);
        Ok(Parameters {
            eps: self.eps,
            mean: elements(&self.mean)?,
            variance: elements(&self.variance)?,
            weight: self.weight.as_ref().map(elements).transpose()?,
            bias: self.bias.as_ref().map(elements).transpose()?,
        })
    }
}

impl Operator for BatchNorm {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        if let Some(image) = self.of_image(inputs) {
            return image.infer(inputs);
        }
        let x = self.subject(inputs)?;
        Ok(vec![ValueSpec::tensor(x.dtype(), x.shape().clone())])
    }

    fn expand(&self, inputs: &[ValueSpec]) -> Option<Result<Expansion, ShapeError>> {
        self.of_image(inputs)?.expand(inputs)
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        if let Some(image) = self.of_image(cx.inputs) {
            return image.plan(cx);
        }
        let dtype = self.subject(cx.inputs)?.dtype();
        if halves::is_half(dtype) {
            let parts = Parts { dims: 1, of: &[self.input] };
            return halves::widened_by(cx, parts, |cx| self.planned(cx));
        }
        self.planned(cx)
    }

    fn absorb(&self, neighbour: &Neighbour, inputs: &[ValueSpec]) -> Option<Box<dyn Operator>> {
        // The kernel of f32 computes activations, for f16 and bf16 as well.
        let of_f64 = |x: &TensorValue| x.dtype() == DType::F64;
        let fits = !TensorValue::at(inputs, self.input).is_ok_and(of_f64);
        match neighbour {
            Neighbour::Activation(activation) if self.activation.is_none() && fits => {
                Some(Box::new(Self { activation: Some(*activation), ..self.clone() }))
            }
            _ => None,
        }
    }

    fn role(&self, inputs: &[ValueSpec]) -> Option<Role> {
        let x = self.subject(inputs).ok().filter(|x| x.dtype() == DType::F32)?;
        let channels = x.shape()[1];
        if self.activation.is_some() || self.input != 0 {
            return None;
        }
        let parameters = self.parameters::<f32>(inputs).ok().filter(Parameters::are_known)?;
        let mut both = [vec![0.0; channels], vec![0.0; channels]]; // bounded: as many as weights
        let none = Inputs(smallvec::SmallVec::new());
        parameters
            .write(&none, |c, scale, shift| (both[0][c], both[1][c]) = (scale, shift))
            .ok()?;
        let [scale, shift] = both.map(Arc::from);
        Some(Role::Affine(match self.mean.stored() {
            Some(mean) => ChannelAffine { key: Arc::clone(&mean.name), scale, shift },
            None => ChannelAffine::unnamed(scale, shift),
        }))
    }

    fn layouts(&self, cx: &LayoutCx<'_>) -> LayoutSupport {
        let x = TensorValue::at(cx.inputs, self.input);
        LayoutSupport::common_if(x.is_ok_and(|x| x.spec.may_lie_in_blocks()))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::elementwise(inputs, outputs, 2)
    }
}

/// Statistics and parameters, where they are known.
struct Parameters<T: Float> {
    eps: f64,
    mean: Bound<[T]>,
    variance: Bound<[T]>,
    weight: Option<Bound<[T]>>,
    bias: Option<Bound<[T]>>,
}

/// The scale and the shift of one channel: weight / sqrt(variance + eps), bias - mean scale.
fn affine<T: Float>(
    eps: f64,
    mean: T,
    variance: T,
    weight: Option<T>,
    bias: Option<T>,
) -> (f64, f64) {
    let weight = weight.map_or(1.0, T::widen);
    let scale = weight / (variance.widen() + eps).sqrt();
    (scale, bias.map_or(0.0, T::widen) - mean.widen() * scale)
}

impl<T: Float> Parameters<T> {
    /// Scale and shift of each channel, 0 for those from `mean.len()` on.
    fn write(
        &self,
        inputs: &Inputs<'_>,
        mut each: impl FnMut(usize, f64, f64),
    ) -> Result<(), RunError> {
        let (mean, variance) = (self.mean.get(inputs)?, self.variance.get(inputs)?);
        let (weight, bias) = (optional(&self.weight, inputs)?, optional(&self.bias, inputs)?);
        let at = |p: Option<&[T]>, c: usize| p.and_then(|p| p.get(c).copied());
        for (c, (&mean, &variance)) in mean.iter().zip(variance).enumerate() {
            let (scale, shift) = affine(self.eps, mean, variance, at(weight, c), at(bias, c));
            each(c, scale, shift);
        }
        Ok(())
    }

    /// Whether none of them is an input of the run.
    fn are_known(&self) -> bool {
        let known = |b: &Bound<[T]>| matches!(b, Bound::Ready(_));
        let given = self.weight.iter().chain(&self.bias).all(known);
        known(&self.mean) && known(&self.variance) && given
    }

    /// Scales, then shifts, `channels` each, where all parameters are known.
    fn ready(&self, channels: usize) -> Option<[Vec<f32>; 2]> {
        if !self.are_known() {
            return None;
        }
        let mut all = [vec![0.0; channels], vec![0.0; channels]]; // bounded: as many as weights
        let none = Inputs(smallvec::SmallVec::new());
        self.write(&none, |c, scale, shift| {
            (all[0][c], all[1][c]) = (scale as f32, shift as f32);
        })
        .ok()?;
        Some(all)
    }
}

enum Affine {
    Ready([Vec<f32>; 2]),
    AtRun(Parameters<f32>),
}

struct AffineKernel {
    name: String,
    isa: Isa,
    /// Batch, channels, elements of a channel.
    sizes: [usize; 3],
    block: Option<usize>,
    /// Channels, those that pad the last block counted.
    padded: usize,
    input: usize,
    affine: Affine,
    activation: Option<Activation>,
}

impl Kernel for AffineKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let scratch = cx.take_scratch::<f32>()?;
        let data = cx.inout(self.input, 0)?;
        let (scale, shift) = match &self.affine {
            Affine::Ready([scale, shift]) => (&scale[..], &shift[..]),
            Affine::AtRun(parameters) => {
                let (scale, shift) = scratch.split_at_mut(self.padded);
                scale.fill(0.0);
                shift.fill(0.0);
                parameters
                    .write(&cx.inputs, |c, a, b| (scale[c], shift[c]) = (a as f32, b as f32))?;
                (&*scale, &shift[..self.padded])
            }
        };
        let (isa, par, activation) = (self.isa, cx.par, self.activation);
        match self.block {
            None => channel_affine(isa, par, self.sizes, scale, shift, activation, data),
            Some(block) => {
                let [batch, _, pixels] = self.sizes;
                let sizes = [batch, self.padded / block, pixels, block];
                channel_affine_blocked(isa, par, sizes, scale, shift, activation, data);
            }
        }
        Ok(())
    }
}

struct Any<T: Float> {
    sizes: [usize; 3],
    input: usize,
    parameters: Parameters<T>,
}

impl<T: Float> Kernel for Any<T> {
    fn name(&self) -> &str {
        "channel_affine.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (mut scale, mut shift) = (Vec::new(), Vec::new());
        self.parameters.write(&cx.inputs, |_, a, b| {
            scale.push(a);
            shift.push(b);
        })?;
        let (x, y) = (cx.inputs.get::<T>(self.input)?, cx.outputs.take::<T>(0)?);
        channel_affine_any(cx.par, self.sizes, &scale, &shift, x, y);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{
        assert_close, check, check_values, error, op, op_with, random, specs, tensor, try_op,
        values,
    };
    use plutino_reference::norm::channels;
    use plutino_tensor::Tensor;

    fn statistics() -> Vec<(&'static str, Tensor)> {
        let positive: Vec<f32> =
            values::<f32>(&random([7], 5)).iter().map(|v| v.abs() + 0.1).collect();
        vec![
            ("running_mean", random([7], 4)),
            ("running_var", tensor([7], &positive)),
            ("weight", random([7], 6)),
            ("bias", random([7], 7)),
        ]
    }

    fn expected(shape: [usize; 3], x: &Tensor, affine: bool) -> Vec<f32> {
        let all: Vec<Vec<f32>> = statistics().iter().map(|(_, t)| values(t)).collect();
        let w = |c: usize| if affine { f64::from(all[2][c]) } else { 1.0 };
        let scale = |c: usize| w(c) / (f64::from(all[1][c]) + 0.01).sqrt();
        let bias = |c: usize| if affine { f64::from(all[3][c]) } else { 0.0 };
        let scales: Vec<f32> = (0..7).map(|c| scale(c) as f32).collect();
        let shifts: Vec<f32> =
            (0..7).map(|c| (bias(c) - f64::from(all[0][c]) * scale(c)) as f32).collect();
        channels(shape, &scales, &shifts, &values::<f32>(x)).iter().map(|&v| v as f32).collect()
    }

    #[test]
    fn modules() {
        for (kind, shape) in [
            ("nn.BatchNorm1d", vec![3, 7]),
            ("nn.BatchNorm1d", vec![3, 7, 5]),
            ("nn.BatchNorm2d", vec![2, 7, 5, 9]),
            ("nn.BatchNorm3d", vec![1, 7, 2, 3, 4]),
        ] {
            let x = random(shape.clone(), 1);
            let sizes = [shape[0], 7, shape[2..].iter().product()];
            for affine in [true, false] {
                let line = format!(
                    "{kind} b 1 1 0 1 affine={} eps=0.01 num_features=7",
                    if affine { "True" } else { "False" }
                );
                let weights = statistics();
                let norm = op_with(&line, &weights[..if affine { 4 } else { 2 }]);
                let expected = tensor(shape.clone(), &expected(sizes, &x, affine));
                // Scales are at most 1 / sqrt(0.11) = 3.1 here: two roundings of at most 6.
                assert_close(&check(&*norm, std::slice::from_ref(&x))[0], &expected, 2e-6);
            }
        }
    }

    #[test]
    fn functions_take_their_parameters_from_inputs() {
        let x = random([2, 7, 5], 1);
        let expected = tensor([2, 7, 5], &expected([2, 7, 5], &x, true));
        let norm = op(
            "F.batch_norm b 5 1 0 1 2 3 4 5 eps=0.01 $input=0 $running_mean=1 $running_var=2 $weight=3 $bias=4",
        );
        let mut data = vec![x];
        data.extend(statistics().into_iter().map(|(_, t)| t));
        assert_close(&check(&*norm, &data)[0], &expected, 2e-6);
        // The same, with the parameters known when planning.
        let mut inputs = specs(&data[..1]);
        inputs.extend(data[1..].iter().map(|t| ValueSpec::from(t.clone())));
        assert_close(&check_values(&*norm, &inputs, &data)[0], &expected, 2e-6);
        let wide: Vec<Tensor> = data
            .iter()
            .map(|t| {
                let v: Vec<f64> = values::<f32>(t).iter().map(|&v| f64::from(v)).collect();
                tensor(t.shape().clone(), &v)
            })
            .collect();
        let y: Vec<f32> =
            values::<f64>(&check(&*norm, &wide)[0]).iter().map(|&v| v as f32).collect();
        assert_close(&tensor([2, 7, 5], &y), &expected, 2e-6);
        let plain = op(
            "F.batch_norm b 3 1 0 1 2 3 bias=None weight=None eps=0.01 $input=0 $running_mean=1 $running_var=2",
        );
        check(&*plain, &data[..3]);
    }

    #[test]
    fn activations_are_absorbed() {
        let norm =
            op_with("nn.BatchNorm1d b 1 1 0 1 affine=True eps=0.01 num_features=7", &statistics());
        let relu = Neighbour::Activation(Activation::Relu);
        let norm = norm.absorb(&relu, &[]).unwrap();
        assert!(norm.absorb(&relu, &[]).is_none());
        assert!(norm.absorb(&Neighbour::Add, &[]).is_none());
        let x = random([3, 7], 1);
        let expected: Vec<f32> = expected([3, 7, 1], &x, true).iter().map(|v| v.max(0.0)).collect();
        assert_close(&check(&*norm, &[x])[0], &tensor([3, 7], &expected), 2e-6);
    }

    /// The kernel of f64 computes none.
    #[test]
    fn activations_of_f64_are_left_alone() {
        let norm =
            op_with("nn.BatchNorm1d b 1 1 0 1 affine=True eps=0.01 num_features=7", &statistics());
        let relu = Neighbour::Activation(Activation::Relu);
        let of = |dtype| [ValueSpec::tensor(dtype, [3, 7])];
        assert!(norm.absorb(&relu, &of(DType::F64)).is_none());
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            assert!(norm.absorb(&relu, &of(dtype)).is_some());
        }
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        let norm =
            op_with("nn.BatchNorm2d b 1 1 0 1 affine=True eps=0.01 num_features=7", &statistics());
        assert!(error(&*norm, &[random([7, 7], 1)]).to_string().contains("must have 4 dimensions"));
        assert!(error(&*norm, &[random([1, 6, 2, 2], 1)]).to_string().contains("must be (6)f32"));
        assert!(error(&*norm, &[tensor([1, 7, 1, 1], &[1i64; 7])]).to_string().contains("a float"));
        let line = "nn.BatchNorm2d b 1 1 0 1 affine=True eps=0.01 num_features=8";
        assert!(try_op(line, &statistics()).is_err());
    }
}

//! Transposed convolution: `nn.ConvTranspose1d`, `nn.ConvTranspose2d`, `nn.ConvTranspose3d` and
//! `F.conv_transpose1d`, `F.conv_transpose2d`, `F.conv_transpose3d`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.ConvTranspose2d.html>

use crate::convolution::conv::{
    Activate, activate, batch_and_image, check_bias, run_error, shape_error, spatial_dims,
    with_activation,
};
use crate::support::halves;
use crate::support::weights::{self, Bound, Source};
use crate::{
    BuildError, Cost, Kernel, LayoutSupport, Neighbour, NodeReader, Operator, PlanCx, PlanError,
    Planned, RunCx, RunError, ShapeError, StrideRule, TensorValue, ValueSpec, Weight, register_op,
};
use plutino_kernels::conv::{
    Axis, ConvGeometry, ConvTranspose as Kernels, ConvTransposeWeights, PadMode, Window,
    conv_transpose_any,
};
use plutino_kernels::gemm::Target;
use plutino_kernels::nchwc::{DirectConv, TransposedConv, TransposedWeights, TransposedWindow};
use plutino_kernels::number::Number;
use plutino_kernels::{Activation, Par, for_floats, for_numbers};
use plutino_tensor::{DType, Layout, TensorSpec};
use std::sync::Arc;

register_op!(module => "nn.ConvTranspose1d", "nn.ConvTranspose2d", "nn.ConvTranspose3d");
register_op!(function => "F.conv_transpose1d", "F.conv_transpose2d", "F.conv_transpose3d");

/// A transposed convolution with its bias and the activation that it has absorbed.
#[derive(Debug, Clone)]
struct ConvTranspose {
    /// Spatial dimensions.
    dims: usize,
    input: usize,
    weight: Source,
    bias: Option<Source>,
    stride: Vec<usize>,
    padding: Vec<usize>,
    output_padding: Vec<usize>,
    dilation: Vec<usize>,
    groups: usize,
    activation: Option<Activation>,
}

fn module(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dims = spatial_dims(r)?;
    let (inp, out): (usize, usize) = (r.required("in_channels")?, r.required("out_channels")?);
    let groups: usize = r.or("groups", 1)?;
    if groups == 0 || inp % groups != 0 || out % groups != 0 {
        return Err(r.bad("groups", format!("a divisor of {inp} and {out} channels")));
    }
    let mut shape = vec![inp, out / groups];
    shape.extend(r.sizes("kernel_size", dims, 1, None)?);
    r.one_of("padding_mode", &[("zeros", ())], Some(()))?;
    let bias = r.or("bias", true)?;
    Ok(Box::new(ConvTranspose {
        weight: Source::Stored(r.weight("weight", &shape)?),
        bias: r.weight_if(bias, "bias", &[out])?.map(Source::Stored),
        ..common(r, dims, groups)?
    }))
}

fn function(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dims = spatial_dims(r)?;
    functional(r, dims)
}

/// A function whose weights are inputs.
pub(crate) fn functional(
    r: &mut NodeReader<'_>,
    dims: usize,
) -> Result<Box<dyn Operator>, BuildError> {
    let groups: usize = r.or("groups", 1)?;
    if groups == 0 {
        return Err(r.bad("groups", "a positive integer"));
    }
    let conv = common(r, dims, groups)?;
    let weight = Source::Input(r.required_input("weight")?);
    Ok(Box::new(ConvTranspose { weight, bias: Source::optional_input(r, "bias")?, ..conv }))
}

/// What modules and functions share. The weight is a placeholder.
fn common(r: &mut NodeReader<'_>, dims: usize, groups: usize) -> Result<ConvTranspose, BuildError> {
    let input = r.required_input("input")?;
    Ok(ConvTranspose {
        dims,
        input,
        weight: Source::Input(input),
        bias: None,
        stride: r.sizes("stride", dims, 1, Some(1))?,
        padding: r.sizes("padding", dims, 0, Some(0))?,
        output_padding: r.sizes("output_padding", dims, 0, Some(0))?,
        dilation: r.sizes("dilation", dims, 1, Some(1))?,
        groups,
        activation: None,
    })
}

impl ConvTranspose {
    /// The sizes of the convolution whose gradient this is, and the shape of the output.
    fn geometry(&self, inputs: &[ValueSpec]) -> Result<(ConvGeometry, TensorSpec), ShapeError> {
        let x = &TensorValue::at(inputs, self.input)?.spec;
        let weight = self.weight.spec(inputs)?;
        let (batch, image) = batch_and_image(&x.shape, self.dims, self.input)?;
        let &[inp, per_group, ref kernel @ ..] = weight.shape.dims() else {
            return Err(ShapeError::Invalid(format!("the weight cannot be {weight}")));
        };
        let out = per_group.saturating_mul(self.groups);
        if kernel.len() != self.dims || image[0] != inp || weight.dtype != x.dtype {
            return Err(ShapeError::Invalid(format!(
                "a weight {weight} in {} groups does not suit an input {x}",
                self.groups
            )));
        }
        check_bias(self.bias.as_ref(), out, x.dtype, inputs)?;
        let mut axes = Vec::with_capacity(self.dims);
        for (i, &kernel) in kernel.iter().enumerate() {
            let window = Window {
                kernel,
                stride: self.stride[i],
                dilation: self.dilation[i],
                padding: (self.padding[i], self.padding[i]),
                mode: PadMode::Zeros,
            };
            let axis = Axis::transposed(image[i + 1], window, self.output_padding[i]);
            axes.push(axis.map_err(shape_error)?);
        }
        let geometry =
            ConvGeometry::new(batch, self.groups, out, inp, &axes).map_err(shape_error)?;
        let mut shape = x.shape.clone();
        let first = shape.rank() - self.dims;
        shape[first - 1] = out;
        for (dim, axis) in shape[first..].iter_mut().zip(&axes) {
            *dim = axis.input();
        }
        Ok((geometry, TensorSpec::new(x.dtype, shape)))
    }
}

impl Operator for ConvTranspose {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        Ok(vec![self.geometry(inputs)?.1.into()])
    }

    fn layouts(&self, inputs: &[ValueSpec], block: usize) -> LayoutSupport {
        let Ok((g, output)) = self.geometry(inputs) else { return LayoutSupport::Plain };
        let batched = output.dtype == DType::F32 && output.shape.rank() == 4;
        match self.blocked(&g) {
            Some((window, _)) if batched && window.suits(g.in_channels(), block) => {
                LayoutSupport::Blocked
            }
            _ => LayoutSupport::Plain,
        }
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (geometry, output) = self.geometry(cx.inputs)?;
        if TensorValue::at(cx.outputs, 0)?.spec.layout != Layout::Plain {
            return self.plan_blocked(cx, &geometry);
        }
        if halves::is_half(output.dtype) {
            return halves::widened(cx, |cx| self.plan_f32(cx, geometry));
        }
        if output.dtype != DType::F32 {
            return for_floats!(output.dtype,
                T => self.plan_any::<T>(cx, geometry, Some(activate::<T>)),
                _ => for_numbers!(output.dtype, T => self.plan_any::<T>(cx, geometry, None)),
            );
        }
        self.plan_f32(cx, geometry)
    }

    fn absorb(&self, neighbour: &Neighbour, _: &[ValueSpec]) -> Option<Box<dyn Operator>> {
        match neighbour {
            Neighbour::Activation(activation) if self.activation.is_none() => {
                Some(Box::new(Self { activation: Some(*activation), ..self.clone() }))
            }
            _ => None,
        }
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let flops = self.geometry(inputs).map_or(0, |(g, _)| g.flops() as u64);
        Cost { flops, ..Cost::moved(inputs, outputs) }
    }
}

impl ConvTranspose {
    /// The window and the weights, as far as the kernel on channel blocks computes such a
    /// convolution.
    fn blocked(&self, g: &ConvGeometry) -> Option<(TransposedWindow, &Weight)> {
        if self.dims != 2 || self.input != 0 || self.groups != 1 || self.dilation != [1, 1] {
            return None;
        }
        let stored = self.bias.as_ref().is_none_or(|bias| bias.stored().is_some());
        let [_, h, w] = g.axes();
        let both = |f: fn(&Axis) -> usize| [f(h), f(w)];
        // What this reads is what the convolution whose gradient it is writes.
        let window = TransposedWindow {
            input: both(Axis::output),
            output: both(Axis::input),
            kernel: both(|a| a.window().kernel),
            stride: both(|a| a.window().stride),
            pad: both(|a| a.window().padding.0),
        };
        self.weight.stored().filter(|_| stored).map(|weight| (window, weight))
    }

    /// Plans by matrix products.
    fn plan_f32(&self, cx: &PlanCx<'_>, geometry: ConvGeometry) -> Result<Planned, PlanError> {
        let conv = Kernels::new(Target::this(cx.isa), cx.threads, geometry);
        let packing = format!("conv_transpose.{}", cx.isa);
        let weights = self.weight.packed(cx.inputs, cx.packs, &packing, |weights| {
            conv.pack(weights, &Par::serial()).map_err(|e| shape_error(e).into())
        })?;
        let scratch = conv.scratch().saturating_mul(size_of::<f32>());
        let kernel = F32Kernel {
            name: format!("conv_transpose.gemm.{}", cx.isa),
            conv,
            input: self.input,
            weights,
            bias: self.bias.as_ref().map(|b| b.elements(cx.inputs)).transpose()?,
            activation: self.activation,
        };
        Ok(Planned::new(kernel).with_scratch(scratch))
    }

    /// Plans for an input and an output in channel blocks.
    fn plan_blocked(&self, cx: &PlanCx<'_>, g: &ConvGeometry) -> Result<Planned, PlanError> {
        let unsupported = || PlanError::Unsupported("this blocked transposed convolution".into());
        let (window, weight) = self.blocked(g).ok_or_else(unsupported)?;
        let block = cx.isa.lanes();
        let layouts = [&cx.inputs[..1], cx.outputs].map(|values| TensorValue::at(values, 0));
        for value in layouts {
            if value?.spec.layout != (Layout::Blocked { block }) {
                return Err(unsupported());
            }
        }
        let channels = [g.out_channels(), g.in_channels()];
        let conv =
            TransposedConv::new(cx.isa, &window, channels, g.batch(), self.activation, cx.threads)
                .ok_or_else(unsupported)?;
        let name = format!("conv_transpose.phases.c{block}.{}", cx.isa);
        let packing = format!("{name} {:?}", window.stride);
        let weights = cx.packs.get(&weight.name, &packing, || {
            Ok::<_, PlanError>(weight.read_f32(|w| conv.pack(w, channels))??)
        })?;
        let bias = self.bias.as_ref().and_then(Source::stored).map(Weight::to_f32).transpose()?;
        let bias = DirectConv::pad_bias(bias.as_deref(), 1, channels[1], block);
        let scratch = conv.scratch(cx.threads).saturating_mul(size_of::<isize>());
        Ok(Planned::new(BlockedKernel { name, conv, weights, bias }).with_scratch(scratch))
    }

    fn plan_any<T: Number>(
        &self,
        cx: &PlanCx<'_>,
        geometry: ConvGeometry,
        apply: Option<Activate<T>>,
    ) -> Result<Planned, PlanError> {
        Ok(Planned::new(AnyKernel::<T> {
            geometry,
            input: self.input,
            weight: self.weight.elements(cx.inputs)?,
            bias: self.bias.as_ref().map(|b| b.elements(cx.inputs)).transpose()?,
            activation: with_activation(self.activation, apply)?,
        }))
    }
}

/// A transposed convolution of f32.
struct F32Kernel {
    name: String,
    conv: Kernels,
    input: usize,
    weights: Bound<ConvTransposeWeights>,
    bias: Option<Bound<[f32]>>,
    activation: Option<Activation>,
}

impl Kernel for F32Kernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let finish = (weights::optional(&self.bias, &cx.inputs)?, self.activation);
        let (x, y) = (cx.inputs.get(self.input)?, cx.outputs.take(0)?);
        let scratch = cx.take_scratch()?;
        match &self.weights {
            Bound::Ready(weights) => self.conv.run(cx.par, weights, x, finish, y, scratch),
            &Bound::AtRun(i) => {
                let weights = self.conv.pack(cx.inputs.get(i)?, cx.par).map_err(run_error)?;
                self.conv.run(cx.par, &weights, x, finish, y, scratch)
            }
        }
        .map_err(run_error)
    }
}

/// A transposed convolution of f32 on channel blocks.
struct BlockedKernel {
    name: String,
    conv: TransposedConv,
    weights: Arc<TransposedWeights>,
    /// Padded as the convolution wants it.
    bias: Vec<f32>,
}

impl Kernel for BlockedKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (x, y) = (cx.inputs.get(0)?, cx.outputs.take(0)?);
        self.conv.run(x, &self.weights, &self.bias, y, cx.take_scratch()?, cx.par);
        Ok(())
    }
}

/// A transposed convolution of any other dtype.
struct AnyKernel<T> {
    geometry: ConvGeometry,
    input: usize,
    weight: Bound<[T]>,
    bias: Option<Bound<[T]>>,
    activation: Option<(Activation, Activate<T>)>,
}

impl<T: Number> Kernel for AnyKernel<T> {
    fn name(&self) -> &str {
        "conv_transpose.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (x, y) = (cx.inputs.get::<T>(self.input)?, cx.outputs.take::<T>(0)?);
        let bias = weights::optional(&self.bias, &cx.inputs)?;
        let weight = self.weight.get(&cx.inputs)?;
        conv_transpose_any(&self.geometry, x, weight, bias, y, cx.par).map_err(run_error)?;
        if let Some((activation, apply)) = self.activation {
            apply(activation, y);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, op, random, tensor, try_op, values};
    use plutino_tensor::DType;

    #[test]
    fn windows_add_up_at_their_places() {
        let line = "F.conv_transpose1d c 3 1 0 1 2 9 stride=(2) padding=(1) output_padding=(1)";
        let x = tensor([1, 1, 3], &[1.0f32, 2.0, 3.0]);
        let w = tensor([1, 1, 3], &[1.0f32, 10.0, 100.0]);
        let y = check(&*op(line), &[x, w, tensor([1], &[0.5f32])]);
        // 1 10 100+2 20 200+3 30 300, without the first and the last, and one more
        assert_eq!(values::<f32>(&y[0]), [10.5, 102.5, 20.5, 203.5, 30.5, 300.5]);
        assert_eq!(y[0].shape().dims(), [1, 1, 6]);
    }

    #[test]
    fn other_dtypes_agree_with_f32() {
        let conv = op("F.conv_transpose2d c 2 1 0 1 9 bias=None stride=(2,1) groups=2");
        let inputs = [random([4, 3, 4], 1), random([4, 3, 2, 3], 2)];
        let expected = check(&*conv, &inputs);
        assert_eq!(expected[0].shape().dims(), [6, 6, 6]);
        let wide = inputs.map(|t| t.cast(DType::F64).unwrap());
        let found = check(&*conv, &wide)[0].cast(DType::F32).unwrap();
        assert_close(&found, &expected[0], 12.0 * 12.0 * f32::EPSILON);
    }

    #[test]
    fn what_does_not_suit_is_an_error() {
        let line = "nn.ConvTranspose2d c 1 1 0 9 in_channels=4 out_channels=6 kernel_size=(3,3)";
        let text = try_op(&format!("{line} padding_mode=reflect"), &[]).unwrap_err().to_string();
        assert!(text.contains("'padding_mode' must be one of zeros"), "{text}");
        let conv = op("F.conv_transpose1d c 2 1 0 1 9 bias=None stride=(2) output_padding=(2)");
        error(&*conv, &[random([1, 1, 3], 1), random([1, 1, 3], 2)]);
        error(&*conv, &[random([1, 2, 3], 1), random([1, 1, 3], 2)]);
    }
}

//! Convolution: `nn.Conv1d`, `nn.Conv2d`, `nn.Conv3d` and `F.conv1d`, `F.conv2d`, `F.conv3d`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.Conv2d.html>,
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.conv2d.html>

use crate::convolution::conv_blocked::{self, Conv2d};
use crate::convolution::conv_transpose;
use crate::matrix::linear::Linear;
use crate::support::halves;
use crate::support::weights::{self, Bound, Source, Stored};
use crate::{
    BuildError, BuildProblem, Cost, Kernel, LayoutSupport, Neighbour, NodeReader, Operator, PlanCx,
    PlanError, Planned, RunCx, RunError, ShapeError, StrideRule, TensorValue, ValueSpec,
    register_op,
};
use plutino_kernels::activation::exact;
use plutino_kernels::conv::{
    Axis, Conv as ConvPlan, ConvError, ConvGeometry, ConvWeights, PadMode, Window, conv_any,
};
use plutino_kernels::gemm::{self, Bias, Target};
use plutino_kernels::number::{Float, Number};
use plutino_kernels::{Activation, Par, for_floats, for_numbers};
use plutino_tensor::{DType, Floats, Layout, Shape, TensorSpec};

register_op!(module => "nn.Conv1d", "nn.Conv2d", "nn.Conv3d");
register_op!(function => "F.conv1d", "F.conv2d", "F.conv3d");

/// Zero or other padding of a convolution.
#[derive(Debug, Clone)]
enum Padding {
    /// Before and after each dimension.
    Sizes(Vec<(usize, usize)>),
    /// As much as keeps the size; the odd element goes behind.
    Same,
}

/// A tensor that a convolution has absorbed the sum with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Summand {
    /// The input leaf.
    pub(crate) input: usize,
    /// Whether it is added after the activation.
    pub(crate) last: bool,
}

/// A convolution with its bias and what it has absorbed: activation(conv(x) + bias + summand), or
/// activation(conv(x) + bias) + summand. A 1x1 convolution in channel blocks may also read x times
/// factors.
#[derive(Debug, Clone)]
struct Conv {
    /// Spatial dimensions.
    dims: usize,
    input: usize,
    weight: Source,
    bias: Option<Source>,
    stride: Vec<usize>,
    padding: Padding,
    dilation: Vec<usize>,
    groups: usize,
    mode: PadMode,
    /// Whether the channels of x are multiplied by the factors that are input 1.
    scaled: bool,
    /// Whether a summand follows as the last input, and whether it is added after the activation.
    add: Option<bool>,
    activation: Option<Activation>,
}

/// Spatial dimensions, from the digit in the type's name.
pub(crate) fn spatial_dims(reader: &NodeReader<'_>) -> Result<usize, BuildError> {
    let digit = reader.kind().chars().find_map(|c| c.to_digit(10));
    digit.map(|d| d as usize).filter(|d| (1..=3).contains(d)).ok_or_else(|| {
        reader.error(BuildProblem::Invalid("a convolution has 1, 2 or 3 dimensions".into()))
    })
}

fn module(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    with_weights(r, weights::of_module)
}

/// A module whose weight, of the shape that it is given, and bias `read` reads.
pub(crate) fn with_weights(
    r: &mut NodeReader<'_>,
    read: impl FnOnce(&mut NodeReader<'_>, &[usize]) -> Result<Stored, BuildError>,
) -> Result<Box<dyn Operator>, BuildError> {
    let dims = spatial_dims(r)?;
    let (inp, out): (usize, usize) = (r.required("in_channels")?, r.required("out_channels")?);
    let groups: usize = r.or("groups", 1)?;
    if groups == 0 || inp % groups != 0 || out % groups != 0 {
        return Err(r.bad("groups", format!("a divisor of {inp} and {out} channels")));
    }
    let mut shape = vec![out, inp / groups];
    shape.extend(r.sizes("kernel_size", dims, 1, None)?);
    let modes = [
        ("zeros", PadMode::Zeros),
        ("reflect", PadMode::Reflect),
        ("replicate", PadMode::Replicate),
        ("circular", PadMode::Circular),
    ];
    let (weight, bias) = read(r, &shape)?;
    let conv = Conv {
        weight: Source::Stored(weight),
        bias: bias.map(Source::Stored),
        mode: r.one_of("padding_mode", &modes, Some(PadMode::Zeros))?,
        ..common(r, dims, groups)?
    };
    Ok(Box::new(conv))
}

fn function(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dims = spatial_dims(r)?;
    functional(r, dims)
}

/// The native functions of any number of dimensions, transposed or not.
fn native(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    // A list of one stands for all dimensions: then the recorded weight says how many there are.
    let dims = match r.required::<Vec<i64>>("stride")?.len() {
        1 => r.recorded_input(1).map_or(1, |weight| weight.len().saturating_sub(2)),
        dims => dims,
    };
    if !(1..=3).contains(&dims) {
        return Err(r.bad("stride", "1, 2 or 3 integers"));
    }
    match r.or("transposed", false)? {
        true => conv_transpose::functional(r, dims),
        false => {
            let _: Vec<i64> = r.or("output_padding", Vec::new())?;
            functional(r, dims)
        }
    }
}
register_op!(native => "aten::convolution", "aten::_convolution");

/// A function whose weights are inputs.
fn functional(r: &mut NodeReader<'_>, dims: usize) -> Result<Box<dyn Operator>, BuildError> {
    let groups: usize = r.or("groups", 1)?;
    if groups == 0 {
        return Err(r.bad("groups", "a positive integer"));
    }
    let conv = common(r, dims, groups)?;
    let weight = Source::Input(r.required_input("weight")?);
    Ok(Box::new(Conv { weight, bias: Source::optional_input(r, "bias")?, ..conv }))
}

/// What modules and functions share. The weight is a placeholder.
fn common(r: &mut NodeReader<'_>, dims: usize, groups: usize) -> Result<Conv, BuildError> {
    let stride = r.sizes("stride", dims, 1, Some(1))?;
    let padding = match r.raw("padding").and_then(|p| p.as_str()) {
        Some("valid") => Padding::Sizes(vec![(0, 0); dims]),
        Some("same") if stride.iter().all(|&s| s == 1) => Padding::Same,
        Some("same") => return Err(r.bad("stride", "1 where padding is 'same'")),
        Some(_) => return Err(r.bad("padding", "sizes, same or valid")),
        None => {
            let sizes = r.sizes("padding", dims, 0, Some(0))?;
            Padding::Sizes(sizes.into_iter().map(|size| (size, size)).collect())
        }
    };
    let input = r.required_input("input")?;
    Ok(Conv {
        dims,
        input,
        weight: Source::Input(input),
        bias: None,
        stride,
        padding,
        dilation: r.sizes("dilation", dims, 1, Some(1))?,
        groups,
        mode: PadMode::Zeros,
        scaled: false,
        add: None,
        activation: None,
    })
}

/// The batch (1 where there is none) and the rest of an input of `dims + 1` or `dims + 2`
/// dimensions.
pub(crate) fn batch_and_image(
    shape: &Shape,
    dims: usize,
    input: usize,
) -> Result<(usize, &[usize]), ShapeError> {
    match shape.dims() {
        [batch, image @ ..] if image.len() == dims + 1 => Ok((*batch, image)),
        image if image.len() == dims + 1 => Ok((1, image)),
        _ => Err(ShapeError::Rank {
            input,
            expected: format!("{} or {}", dims + 1, dims + 2),
            found: shape.clone(),
        }),
    }
}

/// The error of sizes that do not go together.
pub(crate) fn shape_error(error: ConvError) -> ShapeError {
    ShapeError::Invalid(error.to_string())
}

/// The error of a kernel whose plan does not fit its run.
pub(crate) fn run_error(error: ConvError) -> RunError {
    RunError::Internal(error.to_string())
}

/// Checks that a bias is one number for each channel.
pub(crate) fn check_bias(
    bias: Option<&Source>,
    channels: usize,
    dtype: DType,
    inputs: &[ValueSpec],
) -> Result<(), ShapeError> {
    let Some(bias) = bias else { return Ok(()) };
    let spec = bias.spec(inputs)?;
    if spec.shape.dims() == [channels] && spec.dtype == dtype {
        return Ok(());
    }
    let expected = TensorSpec::new(dtype, [channels]);
    Err(ShapeError::Invalid(format!("the bias must be {expected}, found {spec}")))
}

impl Conv {
    /// The sizes, and the shape of the output.
    fn geometry(&self, inputs: &[ValueSpec]) -> Result<(ConvGeometry, TensorSpec), ShapeError> {
        let x = &TensorValue::at(inputs, self.input)?.spec;
        let weight = self.weight.spec(inputs)?;
        let (batch, image) = batch_and_image(&x.shape, self.dims, self.input)?;
        let &[out, per_group, ref kernel @ ..] = weight.shape.dims() else {
            return Err(ShapeError::Invalid(format!("the weight cannot be {weight}")));
        };
        let channels = per_group.saturating_mul(self.groups);
        if kernel.len() != self.dims || image[0] != channels || weight.dtype != x.dtype {
            return Err(ShapeError::Invalid(format!(
                "a weight {weight} in {} groups does not suit an input {x}",
                self.groups
            )));
        }
        check_bias(self.bias.as_ref(), out, x.dtype, inputs)?;
        let mut axes = Vec::with_capacity(self.dims);
        for (i, &kernel) in kernel.iter().enumerate() {
            let dilation = self.dilation[i];
            let padding = match &self.padding {
                Padding::Sizes(sizes) => sizes[i],
                Padding::Same => {
                    let all = kernel.saturating_sub(1).saturating_mul(dilation);
                    (all / 2, all - all / 2)
                }
            };
            let window =
                Window { kernel, stride: self.stride[i], dilation, padding, mode: self.mode };
            axes.push(Axis::new(image[i + 1], window).map_err(shape_error)?);
        }
        let geometry = ConvGeometry::new(batch, self.groups, channels, out, &axes);
        let mut shape = x.shape.clone();
        let first = shape.rank() - self.dims;
        shape[first - 1] = out;
        for (dim, axis) in shape[first..].iter_mut().zip(&axes) {
            *dim = axis.output();
        }
        Ok((geometry.map_err(shape_error)?, TensorSpec::new(x.dtype, shape)))
    }

    /// The absorbed summand.
    fn summand(&self, inputs: &[ValueSpec]) -> Option<Summand> {
        self.add.map(|last| Summand { input: inputs.len().saturating_sub(1), last })
    }
}

impl Operator for Conv {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (geometry, output) = self.geometry(inputs)?;
        if self.scaled {
            let factors = &TensorValue::at(inputs, 1)?.spec;
            let shape = [geometry.batch(), geometry.in_channels(), 1, 1];
            if factors.shape.dims() != shape || factors.dtype != DType::F32 {
                let expected = TensorSpec::new(DType::F32, shape);
                return Err(ShapeError::Invalid(format!(
                    "factors must be {expected}, found {factors}"
                )));
            }
        }
        if let Some(Summand { input, .. }) = self.summand(inputs) {
            let summand = &TensorValue::at(inputs, input)?.spec;
            if (&summand.shape, summand.dtype) != (&output.shape, output.dtype) {
                return Err(ShapeError::Invalid(format!("cannot add {summand} to {output}")));
            }
        }
        Ok(vec![output.into()])
    }

    fn layouts(&self, inputs: &[ValueSpec], block: usize) -> LayoutSupport {
        let Ok((g, output)) = self.geometry(inputs) else { return LayoutSupport::Plain };
        let channels = (g.groups(), g.in_channels(), g.out_channels());
        let window = self.blocked(inputs, &g).and_then(|conv| conv.window(&g));
        let fits = output.dtype == DType::F32
            && output.shape.rank() == 4
            && conv_blocked::supports(channels.0, channels.1, channels.2, block);
        match window {
            Some(window) if fits && conv_blocked::reads_plain(channels.0, channels.1, &window) => {
                LayoutSupport::PlainToBlocked
            }
            Some(_) if fits => LayoutSupport::Blocked,
            _ => LayoutSupport::Plain,
        }
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (geometry, output) = self.geometry(cx.inputs)?;
        if TensorValue::at(cx.outputs, 0)?.spec.layout != Layout::Plain {
            let conv = self.blocked(cx.inputs, &geometry);
            let conv = conv.ok_or_else(|| PlanError::Unsupported("this blocked layout".into()))?;
            return match self.as_linear(&geometry, &conv, cx.isa.lanes()) {
                Some((linear, sizes)) => linear.plan_f32(cx, sizes),
                None => conv_blocked::plan(cx, &conv),
            };
        }
        if self.scaled {
            return Err(PlanError::Unsupported("factors in this layout".into()));
        }
        if output.dtype == DType::F32 {
            return self.plan_f32(cx, geometry);
        }
        if halves::is_half(output.dtype) {
            return halves::widened(cx, |cx| self.plan_f32(cx, geometry));
        }
        for_floats!(output.dtype,
            T => self.plan_any::<T>(cx, geometry, Some(activate::<T>)),
            _ => for_numbers!(output.dtype, T => self.plan_any::<T>(cx, geometry, None)),
        )
    }

    fn absorb(&self, neighbour: &Neighbour, inputs: &[ValueSpec]) -> Option<Box<dyn Operator>> {
        let mut conv = self.clone();
        match neighbour {
            Neighbour::Activation(activation)
                if self.activation.is_none() && self.add != Some(true) =>
            {
                conv.activation = Some(*activation);
            }
            Neighbour::Add if self.add.is_none() => conv.add = Some(self.activation.is_some()),
            Neighbour::Factors if self.takes_factors(inputs) => conv.scaled = true,
            Neighbour::Affine(affine) if self.activation.is_none() && self.add.is_none() => {
                let (weight, bias) =
                    weights::with_affine(&self.weight, self.bias.as_ref(), affine)?;
                (conv.weight, conv.bias) = (weight, Some(bias));
            }
            Neighbour::Zeros(zeros) => conv.padding = self.with_zeros(zeros)?,
            _ => return None,
        }
        Some(Box::new(conv))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let flops = self.geometry(inputs).map_or(0, |(g, _)| g.flops() as u64);
        Cost { flops, ..Cost::moved(inputs, outputs) }
    }
}

impl Conv {
    /// The padding with these zeros around the input, by dimension, if they lie around pixels.
    fn with_zeros(&self, zeros: &[(usize, usize)]) -> Option<Padding> {
        let (others, spatial) = zeros.split_at_checked(zeros.len().checked_sub(self.dims)?)?;
        let Padding::Sizes(own) = &self.padding else { return None };
        if self.mode != PadMode::Zeros || self.input != 0 || others.iter().any(|&z| z != (0, 0)) {
            return None;
        }
        let sum = |(a, b): (&(usize, usize), &(usize, usize))| {
            Some((a.0.checked_add(b.0)?, a.1.checked_add(b.1)?))
        };
        Some(Padding::Sizes(own.iter().zip(spatial).map(sum).collect::<Option<_>>()?))
    }

    /// Whether it is faster to multiply the weights by the factors of the input's channels.
    fn takes_factors(&self, inputs: &[ValueSpec]) -> bool {
        let Ok((g, _)) = self.geometry(inputs) else { return false };
        let window = self.blocked(inputs, &g).and_then(|conv| conv.window(&g));
        let blocked = TensorValue::at(inputs, 0).is_ok_and(|x| x.spec.layout != Layout::Plain);
        // Multiplying the weights takes `out` multiplications for each channel, multiplying the
        // image one for each pixel: these take two to three times as long, since every vector of
        // the image has another address of its factors.
        !self.scaled
            && blocked
            && self.groups == 1
            && window.is_some_and(|w| w.is_pointwise() && g.out_channels() <= 2 * w.pixels())
    }

    /// The convolution as the kernels on channel blocks see it, where they compute its kind.
    fn blocked(&self, inputs: &[ValueSpec], g: &ConvGeometry) -> Option<Conv2d<'_>> {
        if self.dims != 2 || self.input != 0 || self.mode != PadMode::Zeros {
            return None;
        }
        let bias = match &self.bias {
            Some(bias) => Some(bias.stored()?),
            None => None,
        };
        let [_, h, w] = g.axes().map(|a| a.window());
        Some(Conv2d {
            weight: self.weight.stored()?,
            bias,
            groups: self.groups,
            stride: [h.stride, w.stride],
            dilation: [h.dilation, w.dilation],
            pad: [h.padding.0, w.padding.0],
            activation: self.activation,
            factors: self.scaled.then_some(1),
            residual: self.summand(inputs),
        })
    }

    /// A 1x1 convolution of single pixels (squeeze and excite) as the linear layer that it is, with
    /// its sizes: whole blocks of channels of one pixel lie as a row of features does.
    fn as_linear(
        &self,
        g: &ConvGeometry,
        conv: &Conv2d<'_>,
        block: usize,
    ) -> Option<(Linear, [usize; 3])> {
        let window = conv.window(g)?;
        let [batch, inp, out] = [g.batch(), g.in_channels(), g.out_channels()];
        let fits = window.is_pointwise()
            && window.pixels() == 1
            && !self.scaled
            && self.groups == 1
            && inp.is_multiple_of(block)
            && out.is_multiple_of(block)
            && self.add != Some(true);
        let linear = Linear {
            input: self.input,
            weight: self.weight.clone(),
            bias: self.bias.clone(),
            add: self.add.is_some(),
            activation: self.activation,
        };
        fits.then_some((linear, [batch, inp, out]))
    }

    fn plan_f32(&self, cx: &PlanCx<'_>, geometry: ConvGeometry) -> Result<Planned, PlanError> {
        let conv = ConvPlan::new(Target::this(cx.isa), cx.threads, geometry);
        let pack = |weights: Floats<'_>| {
            conv.pack(weights, &Par::serial())
                .map_err(|e| PlanError::Shape(ShapeError::Invalid(e.to_string())))
        };
        let weights = self.weight.packed(cx.inputs, cx.packs, &conv.packing(), pack)?;
        let bias = self.bias.as_ref().map(|b| b.elements(cx.inputs)).transpose()?;
        let scratch = conv.scratch().saturating_mul(size_of::<f32>());
        let kernel = ConvKernel {
            name: format!("{}.{}", conv.name(), cx.isa),
            conv,
            input: self.input,
            weights,
            bias,
            summand: self.summand(cx.inputs),
            activation: self.activation,
        };
        Ok(Planned::new(kernel).with_scratch(scratch))
    }

    fn plan_any<T: Number>(
        &self,
        cx: &PlanCx<'_>,
        geometry: ConvGeometry,
        apply: Option<Activate<T>>,
    ) -> Result<Planned, PlanError> {
        Ok(Planned::new(AnyConv::<T> {
            geometry,
            input: self.input,
            weight: self.weight.elements(cx.inputs)?,
            bias: self.bias.as_ref().map(|b| b.elements(cx.inputs)).transpose()?,
            summand: self.summand(cx.inputs),
            activation: with_activation(self.activation, apply)?,
        }))
    }
}

/// An activation function of a dtype without vector kernels.
pub(crate) type Activate<T> = fn(Activation, &mut [T]);

/// Applies an activation element by element.
pub(crate) fn activate<T: Float>(activation: Activation, y: &mut [T]) {
    for v in y {
        *v = T::narrow(exact(activation, v.widen()));
    }
}

/// An absorbed activation with the function that applies it.
pub(crate) fn with_activation<T>(
    activation: Option<Activation>,
    apply: Option<Activate<T>>,
) -> Result<Option<(Activation, Activate<T>)>, PlanError> {
    match (activation, apply) {
        (Some(activation), None) => {
            Err(PlanError::Unsupported(format!("{} of this dtype", activation.name())))
        }
        (activation, apply) => Ok(activation.zip(apply)),
    }
}

/// A convolution of f32.
struct ConvKernel {
    name: String,
    conv: ConvPlan,
    input: usize,
    weights: Bound<ConvWeights>,
    bias: Option<Bound<[f32]>>,
    summand: Option<Summand>,
    activation: Option<Activation>,
}

impl Kernel for ConvKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let epilogue = gemm::Epilogue {
            bias: weights::optional(&self.bias, &cx.inputs)?.map_or(Bias::None, Bias::Rows),
            summand: match self.summand.filter(|s| !s.last) {
                Some(Summand { input, .. }) => gemm::Summand::Other(cx.inputs.get(input)?),
                None => gemm::Summand::None,
            },
            activation: self.activation,
        };
        let (x, y) = (cx.inputs.get(self.input)?, cx.outputs.take::<f32>(0)?);
        let scratch = cx.take_scratch()?;
        match &self.weights {
            Bound::Ready(weights) => self.conv.run(cx.par, weights, x, &epilogue, &mut *y, scratch),
            &Bound::AtRun(i) => {
                let weights = self.conv.pack(cx.inputs.get(i)?, cx.par).map_err(run_error)?;
                self.conv.run(cx.par, &weights, x, &epilogue, &mut *y, scratch)
            }
        }
        .map_err(run_error)?;
        if let Some(Summand { input, .. }) = self.summand.filter(|s| s.last) {
            add(y, cx.inputs.get(input)?);
        }
        Ok(())
    }
}

/// A convolution of any other dtype.
struct AnyConv<T> {
    geometry: ConvGeometry,
    input: usize,
    weight: Bound<[T]>,
    bias: Option<Bound<[T]>>,
    summand: Option<Summand>,
    activation: Option<(Activation, Activate<T>)>,
}

impl<T: Number> Kernel for AnyConv<T> {
    fn name(&self) -> &str {
        "conv.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (x, y) = (cx.inputs.get::<T>(self.input)?, cx.outputs.take::<T>(0)?);
        let bias = weights::optional(&self.bias, &cx.inputs)?;
        conv_any(&self.geometry, x, self.weight.get(&cx.inputs)?, bias, y, cx.par)
            .map_err(run_error)?;
        let summand = |last: bool| self.summand.filter(|s| s.last == last);
        if let Some(Summand { input, .. }) = summand(false) {
            add(y, cx.inputs.get(input)?);
        }
        if let Some((activation, apply)) = self.activation {
            apply(activation, y);
        }
        if let Some(Summand { input, .. }) = summand(true) {
            add(y, cx.inputs.get(input)?);
        }
        Ok(())
    }
}

/// y += x
pub(crate) fn add<T: Number>(y: &mut [T], x: &[T]) {
    use plutino_kernels::number::Wide;
    for (y, x) in y.iter_mut().zip(x) {
        *y = T::narrow(y.widen().plus(x.widen()));
    }
}

#[cfg(test)]
mod tests {
    use crate::Neighbour;
    use crate::testkit::{check, check_line, error, op, random, tensor, try_op, values};
    use plutino_tensor::DType;

    #[test]
    fn a_padded_convolution_with_bias() {
        let conv = op("F.conv1d c 3 1 0 1 2 9 stride=(1) padding=(1) dilation=(1) groups=1");
        let x = tensor([1, 1, 4], &[1.0f32, 2.0, 3.0, 4.0]);
        let w = tensor([2, 1, 3], &[1.0f32, 0.0, -1.0, 1.0, 1.0, 1.0]);
        let y = check(&*conv, &[x, w, tensor([2], &[0.5f32, 0.0])]);
        assert_eq!(y[0].shape().dims(), [1, 2, 4]);
        assert_eq!(values::<f32>(&y[0]), [-1.5, -1.5, -1.5, 3.5, 3.0, 6.0, 9.0, 7.0]);
    }

    #[test]
    fn same_padding_puts_the_odd_element_behind() {
        let conv = op("F.conv1d c 2 1 0 1 9 bias=None stride=(1) padding=same");
        let x = tensor([1, 3], &[1.0f32, 2.0, 4.0]); // without batch
        let y = check(&*conv, &[x, tensor([1, 1, 2], &[1.0f32, 10.0])]);
        assert_eq!(y[0].shape().dims(), [1, 3]);
        assert_eq!(values::<f32>(&y[0]), [21.0, 42.0, 4.0]);
    }

    #[test]
    fn other_dtypes_agree_with_f32() {
        let conv = op("F.conv2d c 3 1 0 1 2 9 stride=(2,1) padding=(1,0) groups=2");
        let inputs = [random([2, 4, 5, 6], 1), random([6, 2, 3, 2], 2), random([6], 3)];
        let expected = check(&*conv, &inputs);
        let wide = inputs.map(|t| t.cast(DType::F64).unwrap());
        let found = check(&*conv, &wide)[0].cast(DType::F32).unwrap();
        // 12 terms below 1 in all.
        crate::testkit::assert_close(&found, &expected[0], 13.0 * 13.0 * f32::EPSILON);
    }

    #[test]
    fn absorbed_operators_act_in_order() {
        let conv = op("F.conv1d c 2 1 0 1 9 bias=None");
        let conv = conv.absorb(&Neighbour::Add, &[]).unwrap();
        let relu = Neighbour::Activation(plutino_kernels::Activation::Relu);
        let conv = conv.absorb(&relu, &[]).unwrap();
        assert!(conv.absorb(&Neighbour::Add, &[]).is_none());
        let x = tensor([1, 1, 3], &[1.0f32, -2.0, 3.0]);
        let other = tensor([1, 1, 3], &[0.5f32, 1.0, -9.0]);
        let y = check(&*conv, &[x, tensor([1, 1, 1], &[2.0f32]), other]);
        assert_eq!(values::<f32>(&y[0]), [2.5, 0.0, 0.0]);
    }

    #[test]
    fn a_module_pads_as_it_is_told() {
        let line = "nn.Conv1d c 1 1 0 9 bias=False dilation=(1) groups=1 in_channels=1 \
                    kernel_size=(3) out_channels=1 padding=(2) padding_mode=reflect stride=(2)";
        let weight = [("weight", tensor([1, 1, 3], &[1.0f32, 10.0, 100.0]))];
        let conv = try_op(line, &weight).unwrap();
        let y = check(&*conv, &[tensor([1, 1, 3], &[1.0f32, 2.0, 3.0])]);
        // 3 2 1 2 3 2 1, every second window
        assert_eq!(values::<f32>(&y[0]), [123.0, 321.0, 123.0]);
    }

    #[test]
    fn bad_parameters_are_named() {
        let text = |line: &str| try_op(line, &[]).unwrap_err().to_string();
        let module = "nn.Conv2d c 1 1 0 9 in_channels=4 out_channels=6";
        let found = text(&format!("{module} kernel_size=(3,3) groups=3"));
        assert!(found.contains("'groups' must be a divisor of 4 and 6 channels"), "{found}");
        let found = text(&format!("{module} kernel_size=(3,0)"));
        assert!(found.contains("'kernel_size' must be 2 integers of at least 1"), "{found}");
        let found = text("F.conv2d c 1 1 0 9 stride=(2,2) padding=same");
        assert!(found.contains("'stride' must be 1 where padding is 'same'"), "{found}");
    }

    #[test]
    fn inputs_that_do_not_suit_are_errors() {
        let conv = op("F.conv2d c 2 1 0 1 9 bias=None");
        for (x, w) in [
            (&[1, 3, 5, 5][..], &[4, 2, 3, 3][..]),
            (&[1, 2, 2, 5], &[4, 2, 3, 3]),
            (&[2, 5], &[4, 2, 3, 3]),
            (&[1, 2, 5, 5], &[4, 2, 3]),
        ] {
            error(&*conv, &[random(x, 1), random(w, 2)]);
        }
    }

    #[test]
    fn native_functions() {
        let given = [random([1, 4, 7, 8], 1), random([6, 2, 3, 2], 2), random([6], 3)];
        let spelled =
            op("F.conv2d c 3 1 0 1 2 9 stride=(2,1) padding=(1,0) dilation=(1,2) groups=2");
        let expected = check(&*spelled, &given);
        for line in [
            "aten::convolution c 9 1 0 1 2 =[2,1] =[1,0] =[1,2] =False =[0,0] =2 3",
            "aten::_convolution c 13 1 0 1 2 =[2,1] =[1,0] =[1,2] =False =[0,0] =2 =False =False =True =True 3",
        ] {
            assert_eq!(check_line(line, &given), expected, "{line}");
        }
        // A single number stands for both dimensions of the recorded weight.
        let line =
            "aten::convolution c 9 1 0 1 =None =[1] =[0] =[1] =False =[0] =2 3 #1=(6,2,3,2)f32";
        let spelled = op("F.conv2d c 2 1 0 1 9 bias=None groups=2");
        assert_eq!(check_line(line, &given[..2]), check(&*spelled, &given[..2]));
        let given = [random([1, 6, 3, 4], 1), random([6, 2, 3, 2], 2), random([4], 3)];
        let spelled = op(
            "F.conv_transpose2d c 3 1 0 1 2 9 stride=(2,2) padding=(1,0) output_padding=(1,0) groups=2",
        );
        let line = "aten::convolution c 9 1 0 1 2 =[2,2] =[1,0] =[1,1] =True =[1,0] =2 3";
        assert_eq!(check_line(line, &given), check(&*spelled, &given));
        assert!(
            try_op("aten::convolution c 9 1 0 1 2 =[1,1,1,1] =[0] =[1] =False =[0] =1 3", &[])
                .is_err()
        );
    }
}

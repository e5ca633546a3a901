//! How a 2-D convolution is planned on channel blocks (NCHWc): depthwise, Winograd or direct.

use crate::convolution::conv::Summand;
use crate::{Kernel, MemoryUse, PlanCx, PlanError, Planned, RunCx, RunError, TensorValue, Weight};
use plutino_kernels::Activation;
use plutino_kernels::conv::ConvGeometry;
use plutino_kernels::nchwc::{
    ConvInput, DepthwiseConv, DepthwiseWeights, DirectConv, DirectWeights, FEW, Residual, Window,
    WinogradConv, WinogradWeights,
};
use plutino_tensor::{Floats, Layout};
use std::sync::Arc;

/// A 2-D convolution with zero padding, as far as its kernels on channel blocks care.
pub(crate) struct Conv2d<'a> {
    /// `(out, in / groups, kernel...)`.
    pub(crate) weight: &'a Weight,
    pub(crate) bias: Option<&'a Weight>,
    pub(crate) groups: usize,
    pub(crate) stride: [usize; 2],
    pub(crate) dilation: [usize; 2],
    /// Zeros above and to the left.
    pub(crate) pad: [usize; 2],
    pub(crate) activation: Option<Activation>,
    /// The input with a factor for each channel of each image, for 1x1 convolutions.
    pub(crate) factors: Option<usize>,
    pub(crate) residual: Option<Summand>,
}

impl Conv2d<'_> {
    /// The window, where its numbers suit the kernels.
    pub(crate) fn window(&self, g: &ConvGeometry) -> Option<Window> {
        let [_, h, w] = g.axes();
        let kernel = [h.window().kernel, w.window().kernel];
        let (input, output) = ([h.input(), w.input()], [h.output(), w.output()]);
        Window::new(input, output, kernel, self.stride, self.dilation, self.pad)
    }
}

/// Whether the kernels below compute a convolution of these channels.
pub(crate) fn supports(
    groups: usize,
    in_channels: usize,
    out_channels: usize,
    block: usize,
) -> bool {
    let depthwise = groups == in_channels && groups == out_channels;
    let whole = |c: usize| (c / groups.max(1)).is_multiple_of(block);
    groups == 1 || depthwise || (whole(in_channels) && whole(out_channels))
}

/// Whether a convolution reads plain input and writes blocks.
pub(crate) fn reads_plain(groups: usize, in_channels: usize, window: &Window) -> bool {
    groups == 1 && in_channels <= FEW && window.is_padded_little()
}

/// Plans `conv` for an output in channel blocks.
pub(crate) fn plan(cx: &PlanCx<'_>, conv: &Conv2d<'_>) -> Result<Planned, PlanError> {
    let unsupported = |what: &str| PlanError::Unsupported(format!("a blocked convolution {what}"));
    let (x, y) = (TensorValue::at(cx.inputs, 0)?, TensorValue::at(cx.outputs, 0)?);
    let (&[batch, in_channels, h, w], &[_, out_channels, oh, ow]) =
        (x.shape().dims(), y.shape().dims())
    else {
        return Err(unsupported("of another rank than 4"));
    };
    let &[_, group_in, kh, kw] = conv.weight.dims() else {
        return Err(unsupported("with weights of another rank than 4"));
    };
    let block = cx.isa.lanes();
    let blocked = Layout::Blocked { block };
    if y.spec.layout != blocked || !supports(conv.groups, in_channels, out_channels, block) {
        return Err(unsupported("with these channels"));
    }
    let window = Window::new([h, w], [oh, ow], [kh, kw], conv.stride, conv.dilation, conv.pad)
        .ok_or_else(|| unsupported("of these sizes"))?;
    let input = match x.spec.layout {
        Layout::Plain if reads_plain(conv.groups, in_channels, &window) => ConvInput::Plain,
        layout if layout == blocked => ConvInput::Blocked,
        _ => return Err(unsupported("from this layout")),
    };
    let bias = conv.bias.map(Weight::to_f32).transpose()?;
    let name = |algorithm: &str| format!("conv.{algorithm}.c{block}.{}", cx.isa);
    let isa = cx.isa;
    let (weight, activation, residual) = (conv.weight, conv.activation, conv.residual);
    let factors = conv.factors;
    if factors.is_some() && (input == ConvInput::Plain || !window.is_pointwise() || conv.groups > 1)
    {
        return Err(unsupported("with factors of its channels"));
    }

    if conv.groups > 1 && group_in == 1 && conv.groups == out_channels {
        let weights =
            cx.packs.get(&weight.name, &name("depthwise"), || {
                Ok::<_, PlanError>(weight.read_f32(|w| {
                    DepthwiseWeights::pack(w, bias.as_deref(), window.taps(), block)
                })??)
            })?;
        let conv = DepthwiseConv::new(isa, window, activation);
        let kernel = BlockedConv {
            name: name("depthwise"),
            algorithm: Algorithm::Depthwise(conv, weights),
            factors,
            residual,
        };
        return Ok(Planned::new(kernel));
    }
    let out = out_channels / conv.groups;
    let bias = DirectConv::pad_bias(bias.as_deref(), conv.groups, out, block);
    let sizes = [out, group_in];
    // Without groups, and with memory for more weights.
    let winograd = (cx.memory == MemoryUse::Fast && conv.groups == 1)
        .then(|| WinogradConv::fastest(isa, &window, input, sizes, batch, activation, cx.threads));
    if let Some(winograd) = winograd.flatten() {
        let name = name(&winograd.name());
        let weights = cx.packs.get(&weight.name, &name, || {
            Ok::<_, PlanError>(weight.read_f32(|w| winograd.pack(w))??)
        })?;
        let scratch = winograd.scratch() * size_of::<f32>();
        let algorithm = Algorithm::Winograd(Box::new(winograd), weights, bias);
        let kernel = BlockedConv { name, algorithm, factors, residual };
        return Ok(Planned::new(kernel).with_scratch(scratch));
    }
    let algorithm = match (input, window.is_pointwise()) {
        (ConvInput::Plain, _) => "direct_plain",
        (_, true) => "pointwise",
        (_, false) => "direct",
    };
    let weights = cx.packs.get(&weight.name, &name(algorithm), || {
        let pack =
            |w: Floats<'_>| DirectWeights::pack(w, conv.groups, sizes, window.taps(), block, input);
        Ok::<_, PlanError>(weight.read_f32(pack)??)
    })?;
    let direct = DirectConv::new(
        isa,
        window,
        input,
        in_channels,
        out_channels,
        if factors.is_some() { 1 } else { batch }, // at a time
        activation,
        cx.threads,
    );
    let (scratch, algorithm) = match factors {
        Some(_) => (direct.scaled_scratch(cx.threads, &weights), "scaled_pointwise"),
        None => (direct.scratch(cx.threads), algorithm),
    };
    let kernel = BlockedConv {
        name: name(algorithm),
        algorithm: Algorithm::Direct(Box::new(direct), weights, bias),
        factors,
        residual,
    };
    Ok(Planned::new(kernel).with_scratch(scratch.saturating_mul(size_of::<isize>())))
}

enum Algorithm {
    Depthwise(DepthwiseConv, Arc<DepthwiseWeights>),
    Winograd(Box<WinogradConv>, Arc<WinogradWeights>, Vec<f32>),
    Direct(Box<DirectConv>, Arc<DirectWeights>, Vec<f32>),
}

struct BlockedConv {
    name: String,
    algorithm: Algorithm,
    factors: Option<usize>,
    residual: Option<Summand>,
}

impl Kernel for BlockedConv {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let x = cx.inputs.get::<f32>(0)?;
        let residual = match self.residual {
            Some(Summand { input, last }) => Some(Residual { data: cx.inputs.get(input)?, last }),
            None => None,
        };
        let factors = self.factors.map(|at| cx.inputs.get::<f32>(at)).transpose()?;
        let y = cx.outputs.take::<f32>(0)?;
        match &self.algorithm {
            Algorithm::Depthwise(conv, weights) => conv.run(x, weights, residual, y, cx.par),
            Algorithm::Winograd(conv, weights, bias) => {
                conv.run(x, weights, bias, residual, y, cx.take_scratch()?, cx.par);
            }
            Algorithm::Direct(conv, weights, bias) => {
                let (scratch, par) = (cx.take_scratch()?, cx.par);
                match factors {
                    Some(f) => conv.run_scaled(x, f, weights, bias, residual, y, scratch, par),
                    None => conv.run(x, weights, bias, residual, y, scratch, par),
                }
            }
        }
        Ok(())
    }
}

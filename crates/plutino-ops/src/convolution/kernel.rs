//! From a convolution's sizes and weights to its kernel. The algorithm is chosen in
//! `plutino_kernels::conv`.

use crate::support::halves;
use crate::support::weighted::{AnyWeighted, Weighted, activate};
use crate::support::weights::{self, Bound};
use crate::{
    Bf16Support, Kernel, LayoutCx, LayoutOf, LayoutSupport, MemoryUse, PlanCx, PlanError, Planned,
    RunCx, RunError, Setting, ShapeError, TensorValue, Units,
};
use plutino_kernels::conv::{
    Bf16Tensors, ConvArgs, ConvError, ConvLayout, ConvProblem, ConvWeights, Convolution, FusedArgs,
    FusedDepthwise, Layer, PostOps, Request, choose, conv_any,
};
use plutino_kernels::gemm::Machine;
use plutino_kernels::number::Number;
use plutino_kernels::{Isa, Par, for_floats, for_numbers};
use plutino_tensor::{DType, Layout};
use smallvec::SmallVec;
use std::sync::Arc;

/// The error of sizes that do not go together.
pub(crate) fn shape_error(error: ConvError) -> ShapeError {
    match error {
        ConvError::Memory(error) => error.into(),
        error => ShapeError::Invalid(error.to_string()),
    }
}

/// The error of a convolution that cannot be planned.
pub(crate) fn plan_error(error: ConvError) -> PlanError {
    match error {
        ConvError::NoAlgorithm(_) => PlanError::Unsupported(error.to_string()),
        error => shape_error(error).into(),
    }
}

/// The error of a kernel whose plan does not fit its run.
pub(crate) fn run_error(error: ConvError) -> RunError {
    match error {
        ConvError::Memory(error) => error.into(),
        error => RunError::Internal(error.to_string()),
    }
}

/// The algorithm for a convolution in one of these layouts.
pub(crate) fn chosen(
    problem: ConvProblem,
    post_ops: PostOps,
    on: Setting,
    layouts: &[ConvLayout],
) -> Result<Convolution, ConvError> {
    chosen_with(problem, post_ops, on, Bf16Tensors::NONE, layouts)
}

/// The same, with these tensors of bf16.
fn chosen_with(
    problem: ConvProblem,
    post_ops: PostOps,
    on: Setting,
    bf16: Bf16Tensors,
    layouts: &[ConvLayout],
) -> Result<Convolution, ConvError> {
    let save_memory = on.memory == MemoryUse::Low;
    let Setting { isa, threads, winograd, batch_invariant, .. } = on;
    choose(&Request {
        problem,
        post_ops,
        isa,
        threads,
        save_memory,
        winograd,
        unit: on.unit(),
        bf16,
        batch_invariant,
        layouts,
    })
}

/// The layouts that a convolution may have: channel blocks have weights that are packed while
/// planning, and the image as first input.
fn possible(weighted: &Weighted, batched: bool) -> &'static [ConvLayout] {
    match weighted.is_stored() && weighted.input == 0 && batched {
        true => &ConvLayout::ALL,
        false => &[ConvLayout::Plain],
    }
}

/// The layout that the algorithm of a convolution of f32 wants, if `batched` says that its images
/// have a batch before them.
pub(crate) fn layouts(
    weighted: &Weighted,
    problem: ConvProblem,
    batched: bool,
    cx: &LayoutCx<'_>,
) -> LayoutSupport {
    match chosen(problem, weighted.post_ops, cx.setting, possible(weighted, batched)) {
        Ok(conv) => match conv.layout() {
            ConvLayout::Plain => LayoutSupport::PLAIN,
            // A residual lies as the result does.
            ConvLayout::PlainToBlocked => LayoutSupport {
                inputs: &[LayoutOf::Plain, LayoutOf::Blocks],
                outputs: &[LayoutOf::Blocks],
            },
            ConvLayout::Blocked => LayoutSupport::BLOCKS,
        },
        Err(_) => LayoutSupport::PLAIN,
    }
}

/// Which tensors the algorithm of a convolution of f32 can have as bf16, of those in blocks.
pub(crate) fn bf16(weighted: &Weighted, problem: ConvProblem, cx: &LayoutCx<'_>) -> Bf16Support {
    let input = TensorValue::at(cx.inputs, weighted.input);
    let layout = match input.is_ok_and(|x| x.spec.layout == Layout::Plain) {
        true => ConvLayout::PlainToBlocked,
        false => ConvLayout::Blocked,
    };
    let Ok(conv) = chosen(problem, weighted.post_ops, cx.setting, &[layout]) else {
        return Bf16Support::default();
    };
    let Bf16Tensors { input, residual, output } = conv.bf16_tensors();
    let input = Some(weighted.input).filter(|_| input);
    let residual = weighted.residual(cx.inputs).filter(|_| residual);
    let inputs = input.into_iter().chain(residual).collect();
    Bf16Support { inputs, output, ..Bf16Support::default() }
}

/// Whether an algorithm multiplies channels by factors on the way, and it pays: in the layout that
/// the image has.
pub(crate) fn takes_factors(
    weighted: &Weighted,
    problem: ConvProblem,
    layout: Layout,
    isa: Isa,
) -> bool {
    // What any session can do.
    let on = Setting { units: Units::Vectors, ..Setting::new(isa, 1) };
    let post_ops = PostOps { factors: true, ..weighted.post_ops };
    let blocks = layout != Layout::Plain;
    blocks
        && !weighted.post_ops.factors
        && possible(weighted, true).contains(&ConvLayout::Blocked)
        && chosen(problem, post_ops, on, &[ConvLayout::Blocked]).is_ok()
}

/// Plans a convolution, of any dtype, in the layouts of `cx`.
pub(crate) fn plan(
    weighted: &Weighted,
    problem: ConvProblem,
    cx: &PlanCx<'_>,
) -> Result<Planned, PlanError> {
    let (x, y) = (TensorValue::at(cx.inputs, weighted.input)?, TensorValue::at(cx.outputs, 0)?);
    let dtype = y.dtype();
    if halves::is_half(dtype) {
        let plain = (ConvLayout::Plain, Bf16Tensors::NONE);
        return halves::widened(cx, |cx| plan_f32(weighted, problem, plain, cx));
    }
    if dtype != DType::F32 {
        return for_floats!(dtype,
            T => plan_any::<T>(cx.isa, weighted.of_any(cx, Some(activate::<T>))?, problem),
            _ => for_numbers!(dtype, T => plan_any::<T>(cx.isa, weighted.of_any(cx, None)?, problem)),
        );
    }
    let layout = match (x.spec.layout == Layout::Plain, y.spec.layout == Layout::Plain) {
        (true, true) => ConvLayout::Plain,
        (true, false) => ConvLayout::PlainToBlocked,
        (false, false) => ConvLayout::Blocked,
        (false, true) => {
            let what = format!("a convolution from {} to plain", x.spec.layout);
            return Err(PlanError::Unsupported(what));
        }
    };
    // Which lie in blocks of bf16; the others in blocks of f32, if in any.
    let block = cx.isa.lanes();
    let is_bf16 = |value: &TensorValue| match value.spec.layout {
        Layout::Plain => Ok(false),
        of if of == Layout::Blocked { block } => Ok(false),
        of if of == Layout::BlockedBf16 { block: 2 * block } => Ok(true),
        of => Err(PlanError::Unsupported(format!("a convolution of {of}"))),
    };
    let residual = match weighted.residual(cx.inputs) {
        Some(at) => is_bf16(TensorValue::at(cx.inputs, at)?)?,
        None => false,
    };
    let bf16 = Bf16Tensors { input: is_bf16(x)?, residual, output: is_bf16(y)? };
    plan_f32(weighted, problem, (layout, bf16), cx)
}

fn plan_f32(
    weighted: &Weighted,
    problem: ConvProblem,
    (layout, bf16): (ConvLayout, Bf16Tensors),
    cx: &PlanCx<'_>,
) -> Result<Planned, PlanError> {
    let conv = chosen_with(problem, weighted.post_ops, cx.setting, bf16, &[layout]);
    let conv = conv.map_err(plan_error)?;
    let (weights, bias) = prepared(&conv, weighted, cx)?;
    let workspace = conv.workspace();
    let kernel = ConvKernel {
        name: conv.name(),
        conv,
        input: weighted.input,
        weights,
        bias,
        factors: weighted.post_ops.factors.then_some(1),
        residual: weighted.residual(cx.inputs),
    };
    Ok(Planned::new(kernel).with_scratch(workspace))
}

/// Weights and bias as the algorithm wants them, or still to be made so where they are inputs.
fn prepared(
    conv: &Convolution,
    weighted: &Weighted,
    cx: &PlanCx<'_>,
) -> Result<(Bound<ConvWeights>, Bias), PlanError> {
    let weights = weighted.weight.packed(cx.inputs, cx.packs, conv.pack_key(), |weight| {
        conv.pack_from(weight, &Par::serial()).map_err(plan_error)
    })?;
    let ready = |bias: Option<&[f32]>| -> Result<Bias, PlanError> {
        Ok(Bias::Ready(conv.bias(bias).map_err(plan_error)?.into_owned()))
    };
    let bias = match weighted.bias.as_ref().map(|b| b.elements::<f32>(cx.inputs)).transpose()? {
        Some(Bound::AtRun(input)) => Bias::AtRun(input),
        Some(Bound::Ready(bias)) => ready(Some(&bias))?,
        None => ready(None)?,
    };
    Ok((weights, bias))
}

/// What a convolution has absorbed, and its sizes.
pub(crate) type OfSizes<'a> = (&'a Weighted, ConvProblem);

/// A depthwise convolution with the 1x1 convolutions before and after it, as one, in channel
/// blocks; none where they are better computed apart, or weights are not in the file.
pub(crate) fn fused_depthwise(
    [before, after]: [Option<OfSizes<'_>>; 2],
    depthwise: OfSizes<'_>,
    on: Setting,
) -> Option<FusedDepthwise> {
    let one = |(weighted, problem): OfSizes<'_>| {
        let stored = weighted.is_stored() && weighted.input == 0;
        let conv = chosen(problem, weighted.post_ops, on, &[ConvLayout::Blocked]);
        conv.ok().filter(|_| stored)
    };
    let beside = |layer: Option<OfSizes<'_>>| match layer {
        Some(layer) => one(layer).map(Some),
        None => Some(None),
    };
    let (before, after) = (beside(before)?, beside(after)?);
    FusedDepthwise::new(before, one(depthwise)?, after, Machine::this().l2)
}

/// Plans what is fused, whose layers have these weights.
pub(crate) fn plan_fused_depthwise(
    conv: FusedDepthwise,
    weighted: &[&Weighted],
    cx: &PlanCx<'_>,
) -> Result<Planned, PlanError> {
    let layer = |(conv, weighted): (&Convolution, &&Weighted)| match prepared(conv, weighted, cx)? {
        (Bound::Ready(weights), Bias::Ready(bias)) => Ok(StoredLayer { weights, bias }),
        _ => Err(PlanError::Unsupported("weights that are not in the file".into())),
    };
    let layers = conv.layers().zip(weighted).map(layer).collect::<Result<_, PlanError>>()?;
    let residual = weighted.last().and_then(|last| last.residual(cx.inputs));
    let workspace = conv.workspace();
    let kernel = FusedKernel { name: conv.name(), conv, layers, residual };
    Ok(Planned::new(kernel).with_scratch(workspace))
}

fn plan_any<T: Number>(
    isa: Isa,
    weighted: AnyWeighted<T>,
    problem: ConvProblem,
) -> Result<Planned, PlanError> {
    Ok(Planned::new(AnyConv { isa, problem, weighted }))
}

/// A bias, as the algorithm wants it or still to be made so.
enum Bias {
    Ready(Vec<f32>),
    AtRun(usize),
}

/// A convolution of f32.
struct ConvKernel {
    name: String,
    conv: Convolution,
    input: usize,
    weights: Bound<ConvWeights>,
    bias: Bias,
    factors: Option<usize>,
    residual: Option<usize>,
}

impl Kernel for ConvKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let packed;
        let weights = match &self.weights {
            Bound::Ready(weights) => weights,
            &Bound::AtRun(i) => {
                let weight: &[f32] = cx.inputs.get(i)?;
                packed = self.conv.pack(weight, cx.par).map_err(run_error)?;
                &packed
            }
        };
        let bias = match &self.bias {
            Bias::Ready(bias) => bias.into(),
            &Bias::AtRun(i) => self.conv.bias(Some(cx.inputs.get(i)?)).map_err(run_error)?,
        };
        let args = ConvArgs {
            x: cx.inputs.get(self.input)?,
            weights,
            bias: &bias,
            factors: self.factors.map(|i| cx.inputs.get(i)).transpose()?,
            residual: self.residual.map(|i| cx.inputs.get(i)).transpose()?,
            y: cx.outputs.take(0)?,
            workspace: cx.take_scratch()?,
        };
        self.conv.run(args, cx.par).map_err(run_error)
    }
}

/// Weights and bias of a layer, out of the file.
struct StoredLayer {
    weights: Arc<ConvWeights>,
    bias: Vec<f32>,
}

/// A depthwise convolution with the 1x1 convolutions beside it.
struct FusedKernel {
    name: String,
    conv: FusedDepthwise,
    layers: SmallVec<[StoredLayer; 3]>,
    residual: Option<usize>,
}

impl Kernel for FusedKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let layers: SmallVec<[Layer<'_>; 3]> =
            self.layers.iter().map(|l| Layer { weights: &l.weights, bias: &l.bias }).collect();
        let args = FusedArgs {
            x: cx.inputs.get(0)?,
            layers: &layers,
            residual: self.residual.map(|i| cx.inputs.get(i)).transpose()?,
            y: cx.outputs.take(0)?,
            workspace: cx.take_scratch()?,
        };
        self.conv.run(args, cx.par).map_err(run_error)
    }
}

/// A convolution of any other dtype.
struct AnyConv<T> {
    isa: Isa,
    problem: ConvProblem,
    weighted: AnyWeighted<T>,
}

impl<T: Number> Kernel for AnyConv<T> {
    fn name(&self) -> &str {
        "conv.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let w = &self.weighted;
        let (x, y) = (cx.inputs.get::<T>(w.input)?, cx.outputs.take::<T>(0)?);
        let bias = weights::optional(&w.bias, &cx.inputs)?;
        conv_any(self.isa, &self.problem, x, w.weight.get(&cx.inputs)?, bias, y, cx.par)
            .map_err(run_error)?;
        w.finish(y, &cx.inputs)
    }
}

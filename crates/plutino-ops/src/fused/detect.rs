//! The head of YOLOv5 kept whole: `models.yolo.Detect` (`moduleop=models.yolo.Detect`).
//!
//! For each of its stages a 1x1 convolution, then with y = sigmoid of its result, for each anchor
//! and pixel
//!
//! ```text
//! xy = (2 y[0..2] + grid) stride       wh = (2 y[2..4])^2 anchor       the rest as it is
//! ```
//! Rows of (xy, wh, the rest) of all stages, anchors and pixels, in this order, make the output
//! `(N, rows, outputs of an anchor)`.

use crate::convolution::kernel;
use crate::{
    BuildError, BuildProblem, Cost, Kernel, LayoutCx, LayoutOf, LayoutSupport, NodeReader,
    Operator, PlanCx, PlanError, Planned, RunCx, RunError, ShapeError, TensorValue, ValueSpec,
    Weight, register_op,
};
use plutino_kernels::conv::{
    Axis, ConvArgs, ConvError, ConvLayout, ConvProblem, ConvWeights, Convolution, PostOps, Window,
};
use plutino_kernels::nchwc::to_blocked;
use plutino_kernels::{Activation, Isa, Par};
use plutino_tensor::{DType, Layout, Shape};
use std::sync::Arc;

register_op!(detect => "models.yolo.Detect");

/// Names of the weights that the converter makes up: strides, then grid and anchors of each stage.
/// It numbers them in the order of use; earlier versions did so from the end.
const NAMES: [(&str, [(&str, &str); 3]); 2] = [
    ("pnnx_01", [("pnnx_00", "pnnx_02"), ("pnnx_03", "pnnx_04"), ("pnnx_05", "pnnx_06")]),
    ("pnnx_5", [("pnnx_6", "pnnx_4"), ("pnnx_3", "pnnx_2"), ("pnnx_1", "pnnx_0")]),
];

#[derive(Debug)]
struct Detect {
    strides: Weight,
    stages: Vec<Stage>,
}

#[derive(Debug)]
struct Stage {
    input: usize,
    /// `(anchors x outputs, channels, 1, 1)`
    weight: Weight,
    bias: Weight,
    /// `(1, anchors, height, width, 2)`, as is `anchors`.
    grid: Weight,
    anchors: Weight,
}

fn detect(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (strides, names) = if r.has_weight(NAMES[0].0) { NAMES[0] } else { NAMES[1] };
    let strides = r.weight(strides, &[names.len()])?;
    let mut stages = Vec::with_capacity(names.len());
    for (i, (grid, anchors)) in names.into_iter().enumerate() {
        let weight = r.any_weight(&format!("m.{i}.weight"))?;
        let grid = r.any_weight(grid)?;
        let anchors = r.weight(anchors, grid.dims())?;
        let fits = match (weight.dims(), grid.dims()) {
            (&[out, _, 1, 1], &[1, count, _, _, 2]) => {
                count > 0 && out % count == 0 && out / count > 4
            }
            _ => false,
        };
        if !fits {
            let what =
                format!("stage {i}: a weight {} does not suit a grid {}", weight.spec, grid.spec);
            return Err(r.error(BuildProblem::Invalid(what)));
        }
        let bias = r.weight(&format!("m.{i}.bias"), &weight.dims()[..1])?;
        stages.push(Stage { input: r.required_input("input")?, weight, bias, grid, anchors });
    }
    Ok(Box::new(Detect { strides, stages }))
}

/// Sizes of a stage.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    channels: usize,
    anchors: usize,
    /// Numbers of an anchor: box, confidence, classes.
    outputs: usize,
    height: usize,
    width: usize,
}

impl Sizes {
    fn pixels(&self) -> usize {
        self.height * self.width
    }

    /// Channels that the convolution makes.
    fn made(&self) -> usize {
        self.anchors * self.outputs
    }

    /// The 1x1 convolution, in channel blocks, and the sigmoid.
    fn convolution(&self, cx: &PlanCx<'_>) -> Result<Convolution, ConvError> {
        let axis = |size: usize| Axis::new(size, Window::default());
        let axes = [axis(self.height)?, axis(self.width)?];
        let problem = ConvProblem::new(self.batch, 1, self.channels, self.made(), &axes)?;
        let sigmoid = PostOps { activation: Some(Activation::Sigmoid), ..PostOps::default() };
        kernel::chosen(problem, sigmoid, cx.setting, &[ConvLayout::Blocked])
    }
}

impl Stage {
    /// The sizes for these inputs.
    fn sizes(&self, inputs: &[ValueSpec]) -> Result<Sizes, ShapeError> {
        let invalid = |what: String| ShapeError::Invalid(what);
        let x = TensorValue::at(inputs, self.input)?;
        let (&[out, channels, ..], &[_, anchors, height, width, _]) =
            (self.weight.dims(), self.grid.dims())
        else {
            return Err(invalid(format!("a grid cannot be {}", self.grid.spec)));
        };
        let &[batch, c, h, w] = x.shape().dims() else {
            let found = x.shape().clone();
            return Err(ShapeError::Rank { input: self.input, expected: "4".into(), found });
        };
        if x.dtype() != DType::F32 || (c, h, w) != (channels, height, width) {
            let expected = Shape::from([batch, channels, height, width]);
            return Err(invalid(format!(
                "input {} must be {expected}f32, found {}",
                self.input, x.spec
            )));
        }
        Ok(Sizes { batch, channels, anchors, outputs: out / anchors, height, width })
    }
}

impl Detect {
    fn all_sizes(&self, inputs: &[ValueSpec]) -> Result<Vec<Sizes>, ShapeError> {
        let sizes = self.stages.iter().map(|s| s.sizes(inputs)).collect::<Result<Vec<_>, _>>()?;
        let alike = |a: &Sizes, b: &Sizes| (a.batch, a.outputs) == (b.batch, b.outputs);
        if sizes.windows(2).any(|w| !alike(&w[0], &w[1])) {
            return Err(ShapeError::Invalid(
                "the stages differ in batch or in outputs of an anchor".into(),
            ));
        }
        Ok(sizes)
    }
}

impl Operator for Detect {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let sizes = self.all_sizes(inputs)?;
        let rows = sizes.iter().map(|s| s.anchors * s.pixels()).sum();
        let (batch, outputs) = sizes.first().map_or((0, 0), |s| (s.batch, s.outputs));
        Ok(vec![ValueSpec::tensor(DType::F32, [batch, rows, outputs])])
    }

    fn layouts(&self, _: &LayoutCx<'_>) -> LayoutSupport {
        LayoutSupport { inputs: &[LayoutOf::Blocks], outputs: &[LayoutOf::Plain] }
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let strides = self.strides.to_f32()?.to_vec();
        let block = cx.isa.lanes();
        let mut stages = Vec::with_capacity(self.stages.len());
        let (mut first_row, mut scratch) = (0, 0);
        for ((stage, sizes), stride) in
            self.stages.iter().zip(self.all_sizes(cx.inputs)?).zip(strides)
        {
            let (channels, made) = (sizes.channels, sizes.made());
            let conv = sizes.convolution(cx).map_err(kernel::plan_error)?;
            let weights = cx.packs.get(&stage.weight.name, conv.pack_key(), || {
                let packed = stage.weight.read_f32(|w| conv.pack_from(w, &Par::serial()))?;
                packed.map_err(kernel::plan_error)
            })?;
            let bias = stage.bias.to_f32()?;
            let bias = conv.bias(Some(&bias)).map_err(kernel::plan_error)?;
            let plane = |channels: usize| {
                channels.next_multiple_of(block).saturating_mul(sizes.batch * sizes.pixels())
            };
            let plain = TensorValue::at(cx.inputs, stage.input)?.spec.layout == Layout::Plain;
            let stage = StageKernel {
                input: stage.input,
                weights,
                bias: bias.into_owned(),
                grid: stage.grid.to_f32()?.to_vec(),
                anchors: stage.anchors.to_f32()?.to_vec(),
                stride,
                sizes,
                first_row,
                isa: cx.isa,
                block,
                workspace: conv.workspace(),
                raw: plane(made),
                copy: if plain { plane(channels) } else { 0 },
                conv,
            };
            scratch = scratch.max(
                (stage.raw + stage.copy)
                    .saturating_mul(size_of::<f32>())
                    .saturating_add(stage.workspace),
            );
            stages.push(stage);
            first_row += sizes.anchors * sizes.pixels();
        }
        let kernel = DetectKernel { stages, rows: first_row };
        Ok(Planned::new(kernel).with_scratch(scratch))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let flops = |s: &Sizes| 2 * (s.batch * s.channels * s.made() * s.pixels()) as u64;
        let flops = self.all_sizes(inputs).map_or(0, |s| s.iter().map(flops).sum());
        Cost { flops, ..Cost::moved(inputs, outputs) }
    }
}

struct DetectKernel {
    stages: Vec<StageKernel>,
    /// Rows of an image.
    rows: usize,
}

struct StageKernel {
    input: usize,
    conv: Convolution,
    weights: Arc<ConvWeights>,
    /// Padded as the convolution wants it.
    bias: Vec<f32>,
    /// `[anchor][pixel][2]`, as are `anchors`.
    grid: Vec<f32>,
    anchors: Vec<f32>,
    stride: f32,
    sizes: Sizes,
    first_row: usize,
    isa: Isa,
    /// Channels of a block.
    block: usize,
    /// Scratch memory: bytes of the convolution's workspace, f32 of its result, f32 of the input's
    /// copy in blocks (none where it comes in blocks).
    workspace: usize,
    raw: usize,
    copy: usize,
}

impl Kernel for DetectKernel {
    fn name(&self) -> &str {
        "detect"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let y = cx.outputs.take::<f32>(0)?;
        let scratch = cx.take_scratch::<u8>()?;
        for stage in &self.stages {
            let x = cx.inputs.get::<f32>(stage.input)?;
            stage.run(x, y, self.rows, scratch, cx.par)?;
        }
        Ok(())
    }
}

impl StageKernel {
    fn run(
        &self,
        x: &[f32],
        y: &mut [f32],
        rows: usize,
        scratch: &mut [u8],
        par: &Par,
    ) -> Result<(), RunError> {
        let short = || RunError::Internal("scratch memory of a detector".into());
        let (workspace, rest) = scratch.split_at_mut_checked(self.workspace).ok_or_else(short)?;
        let len = (self.raw + self.copy).saturating_mul(size_of::<f32>());
        let rest = rest.get_mut(..len).ok_or_else(short)?;
        let rest: &mut [f32] = bytemuck::try_cast_slice_mut(rest).map_err(|_| short())?;
        let (raw, rest) = rest.split_at_mut_checked(self.raw).ok_or_else(short)?;
        let x = if self.copy > 0 {
            let copy = rest.get_mut(..self.copy).ok_or_else(short)?;
            to_blocked(
                self.isa,
                x,
                copy,
                self.sizes.channels,
                self.sizes.pixels(),
                self.block,
                par,
            );
            copy
        } else {
            x
        };
        let args = ConvArgs {
            x,
            weights: &self.weights,
            bias: &self.bias,
            factors: None,
            residual: None,
            y: &mut *raw,
            workspace,
        };
        self.conv.run(args, par).map_err(kernel::run_error)?;
        let batch = self.sizes.batch.max(1);
        let images = y.chunks_exact_mut((rows * self.sizes.outputs).max(1));
        for (y, raw) in images.zip(raw.chunks_exact((raw.len() / batch).max(1))) {
            self.decode(raw, y, par);
        }
        Ok(())
    }

    /// Writes the rows of one image: `raw` is `[channel block][pixel][b]` after the sigmoid, where
    /// anchor `a`'s output `k` is channel `a * outputs + k`.
    fn decode(&self, raw: &[f32], y: &mut [f32], par: &Par) {
        let Sizes { anchors, outputs, .. } = self.sizes;
        let (pixels, b) = (self.sizes.pixels(), self.block);
        let rows = &mut y[self.first_row * outputs..][..anchors * pixels * outputs];
        // A few pixels at a time: their rows stay in the first-level cache from block to block.
        const TILE: usize = 32;
        for (a, rows) in rows.chunks_exact_mut((pixels * outputs).max(1)).enumerate() {
            par.chunks_mut(rows, TILE * outputs, |tile, rows| {
                let first = tile * TILE;
                // What lies in one block is copied at once.
                let mut k = 0;
                while k < outputs {
                    let channel = a * outputs + k;
                    let n = (b - channel % b).min(outputs - k);
                    let pixels_of_block = raw[(channel / b * pixels + first) * b..].chunks_exact(b);
                    for (row, pixel) in rows.chunks_exact_mut(outputs).zip(pixels_of_block) {
                        copy(&pixel[channel % b..][..n], &mut row[k..k + n]);
                    }
                    k += n;
                }
                for (p, row) in rows.chunks_exact_mut(outputs).enumerate() {
                    for k in 0..2 {
                        let at = (a * pixels + first + p) * 2 + k;
                        row[k] = (2.0 * row[k] + self.grid[at]) * self.stride;
                        let side = 2.0 * row[2 + k];
                        row[2 + k] = side * side * self.anchors[at];
                    }
                }
            });
        }
    }
}

/// Copies a slice; those of a whole block, most of them, without a call.
fn copy(from: &[f32], to: &mut [f32]) {
    if !copy_array::<16>(from, to) && !copy_array::<8>(from, to) {
        to.copy_from_slice(from);
    }
}

/// Copies N elements, where it is so many.
fn copy_array<const N: usize>(from: &[f32], to: &mut [f32]) -> bool {
    let arrays = <&[f32; N]>::try_from(from).ok().zip(<&mut [f32; N]>::try_from(to).ok());
    arrays.map(|(from, to)| *to = *from).is_some()
}

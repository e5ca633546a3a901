//! The head of YOLOv5 kept whole: `models.yolo.Detect` (`moduleop=models.yolo.Detect`).
//!
//! For each of its stages a 1x1 convolution, then with y = sigmoid of its result, for each anchor and pixel
//!
//! ```text
//! xy = (2 y[0..2] + grid) stride       wh = (2 y[2..4])^2 anchor       the rest as it is
//! ```
//! Rows of (xy, wh, the rest) of all stages, anchors and pixels, in this order, make the output
//! `(N, rows, outputs of an anchor)`.

use crate::{
    BuildError, BuildProblem, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned,
    RunCx, RunError, ShapeError, TensorValue, ValueSpec, Weight, register_op,
};
use plutino_kernels::conv::{Axis, Conv, ConvGeometry, ConvWeights, Window};
use plutino_kernels::gemm::{Bias, Epilogue, Summand, Target};
use plutino_kernels::{Activation, Par};
use plutino_tensor::{DType, Shape};
use std::sync::Arc;

register_op!(detect => "models.yolo.Detect");

/// Names of the weights that the converter makes up: strides, then grid and anchors of each stage. It numbers
/// them in the order of use; earlier versions did so from the end.
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
    anchors: usize,
    /// Numbers of an anchor: box, confidence, classes.
    outputs: usize,
    pixels: usize,
}

impl Stage {
    /// The sizes for these inputs, and the geometry of the convolution.
    fn sizes(&self, inputs: &[ValueSpec]) -> Result<(Sizes, ConvGeometry), ShapeError> {
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
        let axis = |size| Axis::new(size, Window::default());
        let geometry = axis(h)
            .and_then(|y| ConvGeometry::new(batch, 1, channels, out, &[y, axis(w)?]))
            .map_err(|e| invalid(e.to_string()))?;
        Ok((Sizes { batch, anchors, outputs: out / anchors, pixels: h * w }, geometry))
    }
}

impl Detect {
    fn all_sizes(&self, inputs: &[ValueSpec]) -> Result<Vec<(Sizes, ConvGeometry)>, ShapeError> {
        let sizes = self.stages.iter().map(|s| s.sizes(inputs)).collect::<Result<Vec<_>, _>>()?;
        let alike =
            |(a, _): &(Sizes, _), (b, _): &(Sizes, _)| (a.batch, a.outputs) == (b.batch, b.outputs);
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
        let rows = sizes.iter().map(|(s, _)| s.anchors * s.pixels).sum();
        let (batch, outputs) = sizes.first().map_or((0, 0), |(s, _)| (s.batch, s.outputs));
        Ok(vec![ValueSpec::tensor(DType::F32, [batch, rows, outputs])])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let strides = self.strides.to_f32()?.to_vec();
        let mut stages = Vec::with_capacity(self.stages.len());
        let (mut first_row, mut scratch) = (0, 0);
        for ((stage, (sizes, geometry)), stride) in
            self.stages.iter().zip(self.all_sizes(cx.inputs)?).zip(strides)
        {
            let conv = Conv::new(Target::this(cx.isa), cx.threads, geometry);
            let weights = cx.packs.get(&stage.weight.name, &conv.packing(), || {
                conv.pack(&stage.weight.to_f32()?, &Par::serial())
                    .map_err(|e| PlanError::from(ShapeError::Invalid(e.to_string())))
            })?;
            scratch = scratch.max(geometry.output_len() + conv.scratch());
            stages.push(StageKernel {
                input: stage.input,
                weights,
                bias: stage.bias.to_f32()?.to_vec(),
                grid: stage.grid.to_f32()?.to_vec(),
                anchors: stage.anchors.to_f32()?.to_vec(),
                stride,
                sizes,
                first_row,
                conv,
            });
            first_row += sizes.anchors * sizes.pixels;
        }
        let kernel = DetectKernel { stages, rows: first_row };
        Ok(Planned::new(kernel).with_scratch(scratch * size_of::<f32>()))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let flops =
            self.all_sizes(inputs).map_or(0, |s| s.iter().map(|(_, g)| g.flops() as u64).sum());
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
    conv: Conv,
    weights: Arc<ConvWeights>,
    bias: Vec<f32>,
    /// `[anchor][pixel][2]`, as are `anchors`.
    grid: Vec<f32>,
    anchors: Vec<f32>,
    stride: f32,
    sizes: Sizes,
    first_row: usize,
}

impl Kernel for DetectKernel {
    fn name(&self) -> &str {
        "detect"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let y = cx.outputs.take::<f32>(0)?;
        let scratch = cx.take_scratch::<f32>()?;
        for stage in &self.stages {
            let len = stage.conv.geometry().output_len();
            let (raw, rest) = scratch.split_at_mut(len.min(scratch.len()));
            let activation = Some(Activation::Sigmoid);
            let epilogue =
                Epilogue { bias: Bias::Rows(&stage.bias), summand: Summand::None, activation };
            stage
                .conv
                .run(cx.par, &stage.weights, cx.inputs.get(stage.input)?, &epilogue, raw, rest)
                .map_err(|e| RunError::Internal(e.to_string()))?;
            let image = self.rows * stage.sizes.outputs;
            for (y, raw) in y
                .chunks_exact_mut(image.max(1))
                .zip(raw.chunks_exact(len / stage.sizes.batch.max(1)))
            {
                stage.decode(raw, y, cx.par);
            }
        }
        Ok(())
    }
}

impl StageKernel {
    /// Writes the rows of one image: `raw` is `[anchor][output][pixel]` after the sigmoid.
    fn decode(&self, raw: &[f32], y: &mut [f32], par: &Par) {
        let Sizes { anchors, outputs, pixels, .. } = self.sizes;
        let rows = &mut y[self.first_row * outputs..][..anchors * pixels * outputs];
        // A few pixels at a time: their rows stay in the first-level cache while planes are read.
        const STEP: usize = 32;
        par.chunks_mut(rows, pixels * outputs, |a, rows| {
            let raw = &raw[a * outputs * pixels..][..outputs * pixels];
            for (step, rows) in rows.chunks_mut(STEP * outputs).enumerate() {
                for (k, plane) in raw.chunks_exact(pixels).enumerate() {
                    for (row, &v) in
                        rows.chunks_exact_mut(outputs).zip(plane.iter().skip(step * STEP))
                    {
                        row[k] = v;
                    }
                }
                for (p, row) in rows.chunks_exact_mut(outputs).enumerate() {
                    for k in 0..2 {
                        let at = (a * pixels + step * STEP + p) * 2 + k;
                        row[k] = (2.0 * row[k] + self.grid[at]) * self.stride;
                        let side = 2.0 * row[2 + k];
                        row[2 + k] = side * side * self.anchors[at];
                    }
                }
            }
        });
    }
}

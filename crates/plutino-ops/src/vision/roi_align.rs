//! Averages over the cells of boxes: `torchvision.ops.RoIAlign`.
//!
//! <https://pytorch.org/vision/stable/generated/torchvision.ops.roi_align.html>. Boxes are one
//! tensor of rows (image, x1, y1, x2, y2), or a list with a tensor of (x1, y1, x2, y2) for each
//! image.

use crate::support::assemble::leaf;
use crate::support::halves;
use crate::support::rearrange::invalid;
use crate::{
    BuildError, Cost, Inputs, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx,
    RunError, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::for_floats;
use plutino_kernels::number::Float;
use plutino_kernels::sample::roi_align::{RoiAlign, RoiError};
use plutino_tensor::{DType, alloc};
use std::ops::Range;

#[derive(Debug)]
struct Roi {
    input: usize,
    boxes: usize,
    cells: [usize; 2],
    scale: f64,
    samples: usize,
    aligned: bool,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let cells = match r.sizes("output_size", 2, 1, None)?[..] {
        [h, w] => [h, w],
        _ => return Err(r.bad("output_size", "2 integers")),
    };
    let samples = r.or::<i64>("sampling_ratio", -1)?;
    let samples = samples_of(r, "sampling_ratio", samples)?;
    let (scale, aligned) = (r.or("spatial_scale", 1.0)?, r.or("aligned", false)?);
    let input = r.required_input("input")?;
    // The module calls them otherwise than the function.
    let boxes = match r.named_input("boxes") {
        Some(at) => at,
        None => r.required_input("rois")?,
    };
    Ok(Box::new(Roi { input, boxes, cells, scale, samples, aligned }))
}
register_op!(build => "torchvision.ops.RoIAlign", "torchvision.ops.roi_align");

/// The function as PNNX leaves it where it finds no module around it: arguments by their place.
fn raw(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let cells = [side(r, "arg_3")?, side(r, "arg_4")?];
    let samples = r.or::<i64>("arg_5", -1)?;
    let samples = samples_of(r, "arg_5", samples)?;
    let (scale, aligned) = (r.required("arg_2")?, r.or("arg_6", false)?);
    let (input, boxes) = (r.required_input("arg_0")?, r.required_input("arg_1")?);
    Ok(Box::new(Roi { input, boxes, cells, scale, samples, aligned }))
}
register_op!(raw => "pnnx.custom_op.torchvision.roi_align");

/// A number of cells.
pub(crate) fn side(r: &mut NodeReader<'_>, key: &str) -> Result<usize, BuildError> {
    Ok(r.sizes(key, 1, 1, None)?.iter().product())
}

/// Samples of a cell in each direction: 0, as many as there are pixels, where the ratio is not
/// positive.
pub(crate) fn samples_of(r: &NodeReader<'_>, key: &str, ratio: i64) -> Result<usize, BuildError> {
    match usize::try_from(ratio).unwrap_or(0) {
        samples if samples <= 1 << 16 => Ok(samples),
        _ => Err(r.bad(key, "an integer below 65537")),
    }
}

/// Where boxes come from.
pub(crate) struct Boxes {
    /// Leaves.
    leaves: Range<usize>,
    /// Whether the boxes of each image are a leaf of their own.
    listed: bool,
    /// How many there are.
    pub(crate) count: usize,
}

impl Boxes {
    /// The boxes that input `input` is, of `batch` images of this dtype.
    ///
    /// # Errors
    /// Where they are not rows of numbers of the images' dtype.
    pub(crate) fn bind(
        inputs: &[ValueSpec],
        input: usize,
        batch: usize,
        dtype: DType,
    ) -> Result<Self, ShapeError> {
        let (items, listed) = match inputs.get(input) {
            Some(ValueSpec::List(items)) => (&items[..], true),
            Some(one) => (std::slice::from_ref(one), false),
            None => (&[][..], false),
        };
        if listed && items.len() != batch {
            return Err(invalid(format!(
                "{} lists of boxes are given for {batch} images",
                items.len()
            )));
        }
        let columns = if listed { 4 } else { 5 };
        let mut count = 0usize;
        for i in 0..items.len() {
            let boxes = TensorValue::at(items, i)?;
            match boxes.shape().dims() {
                &[n, c] if c == columns && boxes.dtype() == dtype => {
                    count = count.saturating_add(n)
                }
                _ => {
                    return Err(invalid(format!(
                        "boxes must be rows of {columns} numbers of dtype {dtype}, found {}",
                        boxes.spec
                    )));
                }
            }
        }
        let first = leaf(inputs, input);
        Ok(Self { leaves: first..first + items.len(), listed, count })
    }

    /// The boxes, each with its image.
    ///
    /// # Errors
    /// Where no memory is left.
    pub(crate) fn rows<T: Float>(&self, inputs: &Inputs<'_>) -> Result<Vec<T>, RunError> {
        let mut rows: Vec<T> = alloc::list(self.count.saturating_mul(5))?;
        for (image, leaf) in self.leaves.clone().enumerate() {
            let boxes = inputs.get::<T>(leaf)?;
            if !self.listed {
                rows.extend_from_slice(boxes);
                continue;
            }
            for b in boxes.chunks_exact(4) {
                rows.push(T::narrow(image as f64));
                rows.extend_from_slice(b);
            }
        }
        Ok(rows)
    }
}

/// The image that box `index` names, of `batch`. Fractions are cut off, as PyTorch does.
///
/// # Errors
/// Where it does not exist.
pub(crate) fn image_of(index: usize, image: f64, batch: usize) -> Result<usize, String> {
    match image as usize {
        found if image > -1.0 && found < batch => Ok(found),
        _ => Err(format!("box {index} is of image {image}, there are {batch}")),
    }
}

impl Roi {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, RoiAlign, Boxes), ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        if !x.dtype().is_float() {
            return Err(ShapeError::DType { input, expected: "a float".into(), found: x.dtype() });
        }
        let &[batch, channels, height, width] = x.shape().dims() else {
            let (expected, found) = ("4".into(), x.shape().clone());
            return Err(ShapeError::Rank { input, expected, found });
        };
        let boxes = Boxes::bind(inputs, self.boxes, batch, x.dtype())?;
        let roi = RoiAlign {
            batch,
            channels,
            size: [height, width],
            cells: self.cells,
            scale: self.scale,
            samples: self.samples,
            aligned: self.aligned,
        };
        Ok((x.dtype(), roi, boxes))
    }
}

impl Operator for Roi {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, roi, boxes) = self.bind(inputs)?;
        let [h, w] = roi.cells;
        Ok(vec![ValueSpec::tensor(dtype, [boxes.count, roi.channels, h, w])])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, roi, boxes) = self.bind(cx.inputs)?;
        if halves::is_half(dtype) {
            return halves::widened(cx, |cx| self.plan(cx));
        }
        let kernel = RoiKernel {
            dtype,
            input: leaf(cx.inputs, self.input),
            input_boxes: self.boxes,
            roi,
            boxes,
        };
        Ok(Planned::new(kernel))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let samples = (self.samples as u64).max(2).saturating_pow(2);
        Cost::elementwise(inputs, outputs, samples.saturating_mul(8))
    }
}

struct RoiKernel {
    dtype: DType,
    /// Leaf of the images.
    input: usize,
    /// Number of the input with the boxes, for messages.
    input_boxes: usize,
    roi: RoiAlign,
    boxes: Boxes,
}

impl Kernel for RoiKernel {
    fn name(&self) -> &str {
        "roi_align"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        for_floats!(self.dtype,
            T => {
                let rows = self.boxes.rows::<T>(&cx.inputs)?;
                let (x, y) = (cx.inputs.get::<T>(self.input)?, cx.outputs.take::<T>(0)?);
                let input = self.input_boxes;
                self.roi.run(cx.par, x, &rows, y).map_err(|e| match e {
                    RoiError::Memory(e) => e.into(),
                    e => RunError::Value { input, what: e.to_string() },
                })
            },
            _ => Err(RunError::Internal("images are floats".into())),
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, check_values, error, iota, op, specs, tensor};
    use crate::{RunError, ValueSpec, eager::EagerError};

    #[test]
    fn averages_of_cells() {
        let line = "torchvision.ops.RoIAlign r 2 1 0 1 2 aligned=True output_size=(1,2) sampling_ratio=2 spatial_scale=0.5";
        let roi = op(line);
        // Rows 0 to 4: pixel centres are at whole numbers, so the box of all pixels is -0.5 to 3.5.
        let x = iota([1, 1, 4, 4]);
        let y = check(&*roi, &[x.clone(), tensor([1, 5], &[0.0f32, 0.0, 0.0, 8.0, 8.0])]);
        assert_close(&y[0], &tensor([1, 1, 1, 2], &[6.5f32, 8.5]), 1e-5);
        let raw = op(
            "pnnx.custom_op.torchvision.roi_align r 2 1 0 1 2 arg_2=0.5 arg_3=1 arg_4=2 arg_5=2 arg_6=True $arg_0=0 $arg_1=1",
        );
        assert_eq!(check(&*raw, &[x.clone(), tensor([1, 5], &[0.0f32, 0.0, 0.0, 8.0, 8.0])]), y);
        let function = op(&format!(
            "torchvision.ops.roi_align {} $input=0 $boxes=1",
            &line["torchvision.ops.RoIAlign ".len()..]
        ));
        assert_eq!(
            check(&*function, &[x.clone(), tensor([1, 5], &[0.0f32, 0.0, 0.0, 8.0, 8.0])]),
            y
        );
        let boxes = tensor([1, 4], &[0.0f32, 0.0, 8.0, 8.0]);
        let inputs = [x.spec().into(), ValueSpec::List(specs(std::slice::from_ref(&boxes)))];
        assert_eq!(check_values(&*roi, &inputs, &[x.clone(), boxes])[0], y[0]);
        assert_eq!(check(&*roi, &[x.clone(), iota([0, 5])])[0], iota([0, 1, 1, 2]));
        error(&*roi, &[x.clone(), iota([1, 4])]);
        error(&*roi, &[iota([4, 4]), iota([1, 5])]);
        let e = error(&*roi, &[x, tensor([1, 5], &[1.0f32, 0.0, 0.0, 1.0, 1.0])]);
        assert!(matches!(e, EagerError::Run(RunError::Value { input: 1, .. })), "{e}");
    }
}

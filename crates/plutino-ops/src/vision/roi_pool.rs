//! Other pooling of boxes: maxima of their cells, and cells that read a channel each.
//!
//! <https://pytorch.org/vision/stable/generated/torchvision.ops.roi_pool.html>,
//! [ps_roi_align](https://pytorch.org/vision/stable/generated/torchvision.ops.ps_roi_align.html)
//! and [ps_roi_pool](https://pytorch.org/vision/stable/generated/torchvision.ops.ps_roi_pool.html).
//! Boxes as in [`roi_align`](crate::vision::roi_align). Results are `[boxes, channels, cells...]`; the
//! position-sensitive ones have a channel for as many of the image's as there are cells. The second
//! output of the raw forms says where each value comes from: the pixel, or the channel, as i32.

use crate::support::assemble::leaf;
use crate::support::rearrange::invalid;
use crate::vision::roi_align::{Boxes, image_of, samples_of, side};
use crate::{
    BuildError, BuildProblem, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned,
    RunCx, RunError, ShapeError, TensorValue, ValueSpec, register_op,
};
use num_traits::Float as _;
use plutino_kernels::for_floats;
use plutino_kernels::number::{Float, Real};
use plutino_tensor::{DType, Shape, alloc};
use std::marker::PhantomData;
use std::ops::Range;

/// What a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The maximum of its pixels.
    Max,
    /// The mean of its pixels in a channel of its own.
    OwnMean,
    /// The mean of samples in a channel of its own: so many along each dimension, 0 for as many as
    /// pixels.
    OwnSamples(usize),
}

#[derive(Debug)]
struct RoiPool {
    input: usize,
    boxes: usize,
    kind: Kind,
    cells: [usize; 2],
    scale: f64,
    /// Whether the second output is asked for.
    sources: bool,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let raw = r.kind().starts_with("pnnx.custom_op");
    let samples = if raw { "arg_5" } else { "sampling_ratio" };
    let kind = match r.kind().rsplit('.').next().unwrap_or_default() {
        "RoIPool" | "roi_pool" => Kind::Max,
        "PSRoIPool" | "ps_roi_pool" => Kind::OwnMean,
        _ => {
            let ratio = r.or::<i64>(samples, -1)?;
            Kind::OwnSamples(samples_of(r, samples, ratio)?)
        }
    };
    let (cells, scale, names) = if raw {
        ([side(r, "arg_3")?, side(r, "arg_4")?], r.required("arg_2")?, ["arg_0", "arg_1"])
    } else {
        (r.pair("output_size", 1, None)?, r.or("spatial_scale", 1.0)?, ["input", "boxes"])
    };
    let sources = match (raw, r.output_count()) {
        (_, 1) => false,
        (true, 2) => true,
        (_, found) => {
            let expected = if raw { "1 or 2" } else { "1" }.into();
            return Err(r.error(BuildProblem::Outputs { expected, found }));
        }
    };
    let (input, boxes) = (r.required_input(names[0])?, r.required_input(names[1])?);
    Ok(Box::new(RoiPool { input, boxes, kind, cells, scale, sources }))
}
register_op!(build => "torchvision.ops.RoIPool", "torchvision.ops.roi_pool",
    "torchvision.ops.PSRoIPool", "torchvision.ops.ps_roi_pool",
    "torchvision.ops.PSRoIAlign", "torchvision.ops.ps_roi_align",
    "pnnx.custom_op.torchvision.roi_pool", "pnnx.custom_op.torchvision.ps_roi_pool",
    "pnnx.custom_op.torchvision.ps_roi_align");

/// Images, and how they are cut.
#[derive(Debug, Clone, Copy)]
struct Geometry {
    kind: Kind,
    batch: usize,
    channels: usize,
    size: [usize; 2],
    cells: [usize; 2],
    scale: f64,
}

impl Geometry {
    fn cell_count(&self) -> usize {
        self.cells[0].saturating_mul(self.cells[1])
    }

    /// Channels of the result.
    fn outputs(&self) -> usize {
        if self.kind == Kind::Max {
            self.channels
        } else {
            self.channels / self.cell_count().max(1)
        }
    }
}

impl RoiPool {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Geometry, Boxes), ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        let dtype = x.dtype();
        if !matches!(dtype, DType::F32 | DType::F64 | DType::F16) {
            let expected = "f32, f64 or f16".into();
            return Err(ShapeError::DType { input, expected, found: dtype });
        }
        let &[batch, channels, height, width] = x.shape().dims() else {
            let (expected, found) = ("4".into(), x.shape().clone());
            return Err(ShapeError::Rank { input, expected, found });
        };
        let boxes = Boxes::bind(inputs, self.boxes, batch, dtype)?;
        let (kind, cells, scale) = (self.kind, self.cells, self.scale);
        let geometry = Geometry { kind, batch, channels, size: [height, width], cells, scale };
        // Positions of pixels are an output as i32, and of no use where they do not fit.
        let small = |n: usize| i32::try_from(n).is_ok();
        if !small(height.saturating_mul(width)) || !small(channels) || !small(geometry.cell_count())
        {
            return Err(invalid(format!("images of shape {} are too large", x.shape())));
        }
        if kind != Kind::Max && !channels.is_multiple_of(geometry.cell_count().max(1)) {
            return Err(invalid(format!(
                "{channels} channels are no multiple of {} x {} cells",
                cells[0], cells[1]
            )));
        }
        Ok((dtype, geometry, boxes))
    }
}

impl Operator for RoiPool {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, g, boxes) = self.bind(inputs)?;
        let shape = Shape::from([boxes.count, g.outputs(), g.cells[0], g.cells[1]]);
        shape.checked_numel()?;
        let mut outputs = vec![ValueSpec::tensor(dtype, shape.clone())];
        if self.sources {
            outputs.push(ValueSpec::tensor(DType::I32, shape));
        }
        Ok(outputs)
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, geometry, boxes) = self.bind(cx.inputs)?;
        let (input, input_boxes) = (leaf(cx.inputs, self.input), self.boxes);
        let sources = self.sources;
        for_floats!(dtype,
            T => Ok(Planned::new(PoolKernel::<T> {
                input, input_boxes, geometry, boxes, sources, element: PhantomData,
            })),
            _ => Err(PlanError::Unsupported(format!("pooling of boxes in {dtype}"))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let per_cell = match self.kind {
            Kind::OwnSamples(n) => (n as u64).max(2).saturating_pow(2).saturating_mul(8),
            _ => 16,
        };
        Cost::elementwise(inputs, outputs, per_cell)
    }
}

struct PoolKernel<T> {
    /// Leaf of the images.
    input: usize,
    /// Number of the input with the boxes, for messages.
    input_boxes: usize,
    geometry: Geometry,
    boxes: Boxes,
    sources: bool,
    element: PhantomData<T>,
}

impl<T: Float> Kernel for PoolKernel<T> {
    fn name(&self) -> &str {
        match self.geometry.kind {
            Kind::Max => "roi_pool",
            Kind::OwnMean => "ps_roi_pool",
            Kind::OwnSamples(_) => "ps_roi_align",
        }
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let rows = self.boxes.rows::<T>(&cx.inputs)?;
        let refuse = |what: String| RunError::Value { input: self.input_boxes, what };
        let g = &self.geometry;
        let mut regions = alloc::list(self.boxes.count)?;
        for (i, b) in rows.chunks_exact(5).enumerate() {
            regions.push(g.region::<T>(i, b).map_err(refuse)?);
        }
        let x = cx.inputs.get::<T>(self.input)?;
        let values = cx.outputs.take::<T>(0)?;
        let sources = if self.sources { Some(cx.outputs.take::<i32>(1)?) } else { None };
        let of_box = g.outputs() * g.cell_count();
        // Values first: sources are few and follow from the same walk.
        cx.par.chunks_mut(values, of_box.max(1), |i, values| {
            if let Some(region) = regions.get(i) {
                g.pool(region, x, |at, value, _| values[at] = value);
            }
        });
        if let Some(sources) = sources {
            cx.par.chunks_mut(sources, of_box.max(1), |i, sources| {
                if let Some(region) = regions.get(i) {
                    g.pool(region, x, |at, _, source| sources[at] = source);
                }
            });
        }
        Ok(())
    }
}

/// A box on an image, in pixels.
struct Region<R> {
    image: usize,
    /// y and x of its first corner; whole numbers but for samples.
    start: [R; 2],
    /// Height and width of a cell.
    cell: [R; 2],
    /// Rows and columns of samples in a cell.
    samples: [usize; 2],
}

/// Rounds as arithmetic on elements does: torchvision computes positions in the image's dtype.
fn element<T: Float>(x: T::Real) -> T::Real {
    T::from_real(x).to_real()
}

impl Geometry {
    fn region<T: Float>(&self, index: usize, b: &[T]) -> Result<Region<T::Real>, String> {
        let &[image, x1, y1, x2, y2] = b else { return Err("a box has five numbers".into()) };
        let image = image_of(index, image.widen(), self.batch)?;
        let (real, e) = (<T::Real as Real>::nearest, element::<T>);
        let scale = e(real(self.scale));
        let mut region =
            Region { image, start: [real(0.0); 2], cell: [real(0.0); 2], samples: [0; 2] };
        for (d, [first, last]) in [[y1, y2], [x1, x2]].into_iter().enumerate() {
            let [first, last] = [first, last].map(|v| e(v.to_real() * scale));
            let count = real(self.cells[d] as f64);
            let length = if let Kind::OwnSamples(samples) = self.kind {
                let [first, last] = [first, last].map(|v| e(v - real(0.5)));
                region.start[d] = first;
                let length = e(last - first);
                region.samples[d] = samples;
                let wanted = e(length / count).ceil().wide();
                // As many as are allowed where the file names their number.
                if samples == 0 && wanted.abs() <= 65536.0 {
                    region.samples[d] = wanted.max(0.0) as usize;
                } else if samples == 0 {
                    return Err(format!("box {index} is not finite, or too large for its cells"));
                }
                length
            } else {
                let [first, last] = [first, last].map(|v| v.round());
                region.start[d] = first;
                let more = if self.kind == Kind::Max { 1.0 } else { 0.0 };
                e((last - first + real(more)).max(real(1.0)))
            };
            region.cell[d] = e(length / count);
            // Far outside of every image, or no number: torchvision's integers overflow.
            if !(region.start[d].wide().abs() < 1e9 && length.wide().abs() < 1e9) {
                return Err(format!("box {index} is not finite, or too large"));
            }
        }
        Ok(region)
    }

    /// Calls `put` with the place in the box's part of the result, the value, and where it comes
    /// from.
    fn pool<T: Float>(
        &self,
        region: &Region<T::Real>,
        x: &[T],
        mut put: impl FnMut(usize, T, i32),
    ) {
        let (plane, cells) = (self.size[0] * self.size[1], self.cell_count());
        for cell in 0..cells {
            let at = [cell / self.cells[1], cell % self.cells[1]];
            let pixels = [0, 1].map(|d| self.pixels::<T>(region, d, at[d]));
            for c in 0..self.outputs() {
                let own = c * cells + cell;
                let channel = if self.kind == Kind::Max { c } else { own };
                let image = &x[(region.image * self.channels + channel) * plane..][..plane];
                let (value, source) = match self.kind {
                    Kind::Max => self.maximum(&pixels, image),
                    Kind::OwnMean => (self.mean(&pixels, image), own as i32),
                    Kind::OwnSamples(_) => (self.samples(region, at, image), own as i32),
                };
                put(own, value, source);
            }
        }
    }

    /// The pixels of a cell along dimension `d`.
    fn pixels<T: Float>(&self, region: &Region<T::Real>, d: usize, cell: usize) -> Range<usize> {
        let (real, e) = (<T::Real as Real>::nearest, element::<T>);
        let edge = |cell: usize| e(e(real(cell as f64)) * region.cell[d]);
        // torchvision's means leave out the last row and the last column.
        let last = self.size[d].saturating_sub(usize::from(self.kind == Kind::OwnMean)) as f64;
        let place =
            |edge: T::Real| (edge.wide() + region.start[d].wide()).clamp(0.0, last) as usize;
        place(edge(cell).floor())..place(edge(cell + 1).ceil())
    }

    /// The maximum and its pixel; 0 and -1 of no pixels. What is not above the least f32 is no
    /// maximum.
    fn maximum<T: Float>(&self, [rows, columns]: &[Range<usize>; 2], image: &[T]) -> (T, i32) {
        let empty = rows.is_empty() || columns.is_empty();
        let (mut best, mut source) = (T::narrow(if empty { 0.0 } else { f64::from(f32::MIN) }), -1);
        for row in rows.clone() {
            let first = row * self.size[1];
            let pixels = image[first..].iter().enumerate().take(columns.end).skip(columns.start);
            for (column, &pixel) in pixels {
                if pixel > best {
                    (best, source) = (pixel, (first + column) as i32);
                }
            }
        }
        (best, source)
    }

    /// The mean of a cell's pixels; 0 of none.
    fn mean<T: Float>(&self, [rows, columns]: &[Range<usize>; 2], image: &[T]) -> T {
        if rows.is_empty() || columns.is_empty() {
            return T::narrow(0.0);
        }
        let mut sum = 0.0;
        for row in rows.clone() {
            let row = &image[row * self.size[1]..][..self.size[1]];
            sum += row[columns.clone()].iter().map(|v| v.widen()).sum::<f64>();
        }
        T::narrow(sum / (rows.len() * columns.len()) as f64)
    }

    /// The mean of samples, each interpolated between four pixels; NaN of none.
    fn samples<T: Float>(&self, region: &Region<T::Real>, at: [usize; 2], image: &[T]) -> T {
        let (real, e) = (<T::Real as Real>::nearest, element::<T>);
        let position = |d: usize, i: usize| {
            let first = e(e(e(real(at[d] as f64)) * region.cell[d]) + region.start[d]);
            let within =
                e(e(real(i as f64 + 0.5) * region.cell[d]) / real(region.samples[d] as f64));
            e(first + within)
        };
        let [rows, columns] = region.samples;
        let mut sum = 0.0;
        for y in (0..rows).map(|i| position(0, i)) {
            for x in (0..columns).map(|i| position(1, i)) {
                sum += self.sample(y, x, image);
            }
        }
        T::narrow(sum / rows.saturating_mul(columns) as f64)
    }

    /// The value at a position; 0 beyond one pixel outside of the image.
    fn sample<T: Float>(&self, y: T::Real, x: T::Real, image: &[T]) -> f64 {
        let [height, width] = self.size;
        let (Some(y), Some(x)) = (neighbours(y, height), neighbours(x, width)) else { return 0.0 };
        let row = |(row, wy): (usize, f64)| {
            let value = |(column, wx): (usize, f64)| wx * image[row * width + column].widen();
            wy * (value(x[0]) + value(x[1]))
        };
        row(y[0]) + row(y[1])
    }
}

/// The two pixels beside a position along a dimension, and their weights; none beyond one pixel
/// outside.
fn neighbours<R: Real>(x: R, size: usize) -> Option<[(usize, f64); 2]> {
    let (x, last) = (x.wide(), size.checked_sub(1)?);
    if !(-1.0..=size as f64).contains(&x) {
        return None;
    }
    let x = x.max(0.0);
    let low = (x as usize).min(last);
    if low == last {
        return Some([(last, 1.0), (last, 0.0)]);
    }
    let t = x - low as f64;
    Some([(low, 1.0 - t), (low + 1, t)])
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, iota, op, tensor, try_op, values};
    use plutino_tensor::DType;

    fn line(name: &str, tail: &str) -> String {
        format!(
            "pnnx.custom_op.torchvision.{name} r 2 2 0 1 2 3 arg_2=1.0 {tail} $arg_0=0 $arg_1=1"
        )
    }

    #[test]
    fn maxima_of_cells() {
        let pool = op(&line("roi_pool", "arg_3=1 arg_4=2"));
        let x = iota([1, 1, 4, 4]);
        // Corners are rounded and belong to the box; beyond the image there is nothing.
        let boxes = tensor([2, 5], &[0.0f32, 0.4, 0.6, 3.0, 2.0, 0.0, 50.0, 50.0, 60.0, 60.0]);
        let y = check(&*pool, &[x.clone(), boxes.clone()]);
        assert_eq!(values::<f32>(&y[0]), [9.0, 11.0, 0.0, 0.0]);
        assert_eq!(values::<i32>(&y[1]), [9, 11, -1, -1]);
        let module = op("torchvision.ops.RoIPool r 2 1 0 1 2 output_size=(1,2) spatial_scale=1.0");
        for dtype in [DType::F32, DType::F64, DType::F16] {
            let [x, boxes] = [&x, &boxes].map(|t| t.cast(dtype).unwrap());
            let found = check(&*module, &[x, boxes])[0].cast(DType::F32).unwrap();
            assert_eq!(found, y[0]);
        }
        // What is not above the least f32 is no maximum, as in torchvision.
        let least = tensor([1, 1, 1, 2], &[f32::NEG_INFINITY, f32::NAN]);
        let y = check(&*pool, &[least, tensor([1, 5], &[0.0f32, 0.0, 0.0, 1.0, 0.0])]);
        assert_eq!((values::<f32>(&y[0]), values::<i32>(&y[1])), (vec![f32::MIN; 2], vec![-1; 2]));
    }

    #[test]
    fn cells_with_a_channel_each() {
        let mean = op(&line("ps_roi_pool", "arg_3=1 arg_4=2"));
        let x = iota([1, 4, 2, 2]);
        let boxes = tensor([1, 5], &[0.0f32, 0.0, 0.0, 2.0, 2.0]);
        let y = check(&*mean, &[x.clone(), boxes.clone()]);
        // Without the last row and the last column of the image.
        assert_eq!(y[0], tensor([1, 2, 1, 2], &[0.0f32, 0.0, 8.0, 0.0]));
        assert_eq!(y[1], tensor([1, 2, 1, 2], &[0i32, 1, 2, 3]));
        let samples = op(&line("ps_roi_align", "arg_3=1 arg_4=2 arg_5=1"));
        let y = check(&*samples, &[x.clone(), boxes]);
        assert_close(&y[0], &tensor([1, 2, 1, 2], &[1.0f32, 6.0, 9.0, 14.0]), 1e-6);
        // As many samples as pixels, of a box of no size: none.
        let adaptive = op(&line("ps_roi_align", "arg_3=1 arg_4=2 arg_5=-1"));
        let y = check(&*adaptive, &[x, tensor([1, 5], &[0.0f32, 1.0, 1.0, 1.0, 1.0])]);
        assert!(values::<f32>(&y[0]).iter().all(|v| v.is_nan()));
    }

    #[test]
    fn what_does_not_fit() {
        let pool = op(&line("ps_roi_pool", "arg_3=1 arg_4=2"));
        let b = |image: f32, x: f32| tensor([1, 5], &[image, x, 0.0, 1.0, 1.0]);
        error(&*pool, &[iota([1, 3, 2, 2]), b(0.0, 0.0)]);
        error(&*pool, &[iota([4, 2, 2]), b(0.0, 0.0)]);
        error(&*pool, &[iota([1, 4, 2, 2]), iota([1, 4])]);
        for (image, x) in [(1.0, 0.0), (-1.0, 0.0), (f32::NAN, 0.0), (0.0, f32::NAN), (0.0, 1e30)] {
            error(&*pool, &[iota([1, 4, 2, 2]), b(image, x)]);
        }
        error(&*pool, &[tensor([1, 4, 1, 1], &[0i64; 4]), tensor([1, 5], &[0i64; 5])]);
        assert!(try_op("torchvision.ops.RoIPool r 2 2 0 1 2 3 output_size=1", &[]).is_err());
    }
}

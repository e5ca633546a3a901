//! Resizing of images: `F.interpolate` and its many names.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html>. Inputs are (N,
//! C, spatial...) with 1 to 3 spatial dimensions. The output has `size`, or `floor(input *
//! scale_factor)`; positions follow the given factor unless `recompute_scale_factor` asks for the
//! quotient of the sizes.

use crate::support::assemble::leaf;
use crate::support::halves::{self, Parts};
use crate::{
    Arg, Bf16Support, BuildError, BuildProblem, Cost, Kernel, LayoutCx, LayoutSupport, NodeReader,
    Operator, PlanCx, PlanError, Planned, Role, RunCx, RunError, ShapeError, StrideRule,
    TensorValue, ValueSpec, register_op,
};
use plutino_kernels::number::Float;
use plutino_kernels::pool::{Axis, Divisor, Geometry, Reduction, pool_any, pool_f32, scratch_len};
use plutino_kernels::resize::{
    Nearest, Resize, ResizeBytes, Sampling, Scale, Taps, TapsError, resize_any, resize_bytes,
    resize_f32, resize_nearest,
};
use plutino_kernels::{Isa, for_floats};
use plutino_tensor::{DType, Layout, Shape};
use std::marker::PhantomData;

register_op!(interpolate => "F.interpolate", "F.upsample", "nn.Upsample");
register_op!(nearest => "F.upsample_nearest", "nn.UpsamplingNearest2d");
register_op!(bilinear => "F.upsample_bilinear", "nn.UpsamplingBilinear2d");
register_op!(native => "aten::upsample_nearest1d", "aten::upsample_nearest2d", "aten::upsample_nearest3d",
    "aten::_upsample_nearest_exact1d", "aten::_upsample_nearest_exact2d", "aten::_upsample_nearest_exact3d",
    "aten::upsample_linear1d", "aten::upsample_bilinear2d", "aten::upsample_trilinear3d",
    "aten::upsample_bicubic2d", "aten::_upsample_bilinear2d_aa", "aten::_upsample_bicubic2d_aa");

#[derive(Debug)]
struct Upsample {
    input: usize,
    target: Target,
    mode: Mode,
    /// Spatial dimensions, where the mode is made for a certain number.
    rank: Option<usize>,
    align_corners: bool,
    /// Whether positions follow the sizes, although a factor was given.
    recompute: bool,
}

/// How large the output is.
#[derive(Debug)]
enum Target {
    /// The size and, where they are given beside it, the factors that positions follow.
    Size(Arg<Vec<i64>>, Vec<Option<Arg<Vec<f64>>>>),
    Factor(Arg<Vec<f64>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Sampled(Sampling),
    /// Averages over adaptive windows.
    Area,
}

/// Mode, its name, and the number of spatial dimensions where that is fixed.
const MODES: [(&str, (Mode, Option<usize>)); 7] = [
    ("nearest", (Mode::Sampled(Sampling::Nearest), None)),
    ("nearest-exact", (Mode::Sampled(Sampling::NearestExact), None)),
    ("linear", (Mode::Sampled(Sampling::Linear), Some(1))),
    ("bilinear", (Mode::Sampled(Sampling::Linear), Some(2))),
    ("trilinear", (Mode::Sampled(Sampling::Linear), Some(3))),
    ("bicubic", (Mode::Sampled(Sampling::Cubic), Some(2))),
    ("area", (Mode::Area, None)),
];

fn interpolate(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (mut mode, rank) = r.one_of("mode", &MODES, Some(MODES[0].1))?;
    let align_corners = r.optional::<bool>("align_corners")?;
    let weighted = matches!(mode, Mode::Sampled(Sampling::Linear | Sampling::Cubic));
    if align_corners == Some(true) && !weighted {
        return Err(r.bad("align_corners", "None or False in this mode"));
    }
    if r.or("antialias", false)? {
        mode = match mode {
            Mode::Sampled(Sampling::Linear) => Mode::Sampled(Sampling::LinearAntialias),
            Mode::Sampled(Sampling::Cubic) => Mode::Sampled(Sampling::CubicAntialias),
            _ => return Err(r.bad("antialias", "False unless the mode is bilinear or bicubic")),
        };
    }
    upsample(r, mode, rank, align_corners.unwrap_or(false))
}

fn nearest(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    upsample(r, Mode::Sampled(Sampling::Nearest), None, false)
}

fn bilinear(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    upsample(r, Mode::Sampled(Sampling::Linear), Some(2), true)
}

fn upsample(
    r: &mut NodeReader<'_>,
    mode: Mode,
    rank: Option<usize>,
    align_corners: bool,
) -> Result<Box<dyn Operator>, BuildError> {
    let recompute = r.or("recompute_scale_factor", false)?;
    let target = match (r.arg("size")?, r.arg("scale_factor")?) {
        (Some(size), None) => Target::Size(size, Vec::new()),
        (None, Some(factor)) => Target::Factor(factor),
        (Some(_), Some(_)) => return Err(r.bad("size", "None where there is a scale_factor")),
        (None, None) => return Err(r.bad("size", "a size, where there is no scale_factor")),
    };
    let input = r.required_input("input")?;
    Ok(Box::new(Upsample { input, target, mode, rank, align_corners, recompute }))
}

/// Mode and number of spatial dimensions of each native function.
const NATIVE: [(&str, Sampling, usize); 12] = [
    ("upsample_nearest1d", Sampling::Nearest, 1),
    ("upsample_nearest2d", Sampling::Nearest, 2),
    ("upsample_nearest3d", Sampling::Nearest, 3),
    ("_upsample_nearest_exact1d", Sampling::NearestExact, 1),
    ("_upsample_nearest_exact2d", Sampling::NearestExact, 2),
    ("_upsample_nearest_exact3d", Sampling::NearestExact, 3),
    ("upsample_linear1d", Sampling::Linear, 1),
    ("upsample_bilinear2d", Sampling::Linear, 2),
    ("upsample_trilinear3d", Sampling::Linear, 3),
    ("upsample_bicubic2d", Sampling::Cubic, 2),
    ("_upsample_bilinear2d_aa", Sampling::LinearAntialias, 2),
    ("_upsample_bicubic2d_aa", Sampling::CubicAntialias, 2),
];

/// The native functions: a size with a factor for each dimension, or (`.vec`) a size or factors.
fn native(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let name = r.kind().strip_prefix("aten::").unwrap_or_default();
    let Some(&(_, sampling, rank)) = NATIVE.iter().find(|(native, ..)| *native == name) else {
        return Err(r.error(BuildProblem::UnsupportedKind { nearest: None }));
    };
    let scales = match rank {
        1 => &["scales"][..],
        2 => &["scales_h", "scales_w"],
        _ => &["scales_d", "scales_h", "scales_w"],
    };
    let align_corners = r.or("align_corners", false)?;
    let factors = r.arg::<Vec<f64>>("scale_factors")?;
    let target = match (r.arg("output_size")?, factors) {
        (Some(size), Some(factor)) => Target::Size(size, vec![Some(factor)]),
        (Some(size), None) => {
            let factors = scales.iter().map(|key| r.arg::<Vec<f64>>(key));
            Target::Size(size, factors.collect::<Result<_, _>>()?)
        }
        (None, Some(factor)) => Target::Factor(factor),
        (None, None) => return Err(r.bad("output_size", "a size, where there are no factors")),
    };
    let input = r.required_input("input")?;
    let mode = Mode::Sampled(sampling);
    let rank = Some(rank);
    Ok(Box::new(Upsample { input, target, mode, rank, align_corners, recompute: false }))
}

/// What [`Operator::plan`] needs to know.
struct Sizes {
    /// Output size and factor for the positions, for each spatial dimension.
    spatial: Vec<(usize, Option<f64>)>,
    shape: Shape,
}

impl Upsample {
    /// Whether each element of the output is one of the input.
    fn is_nearest(&self) -> bool {
        matches!(self.mode, Mode::Sampled(Sampling::Nearest | Sampling::NearestExact))
    }

    fn sizes(&self, inputs: &[ValueSpec]) -> Result<Sizes, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let suits = |n: &usize| self.rank.map_or((1..=3).contains(n), |rank| *n == rank);
        let rank = x.shape().rank().checked_sub(2).filter(suits);
        let rank = rank.ok_or_else(|| ShapeError::Rank {
            input: self.input,
            expected: self.rank.map_or("3 to 5".into(), |rank| (rank + 2).to_string()),
            found: x.shape().clone(),
        })?;
        let bytes = x.dtype() == DType::U8 && rank == 2 && self.mode != Mode::Area;
        if !(x.dtype().is_float() || self.is_nearest() || bytes) {
            let expected =
                "a float, or uint8 if the mode is bilinear or bicubic, unless the mode is nearest";
            let expected = expected.into();
            return Err(ShapeError::DType { input: self.input, expected, found: x.dtype() });
        }
        let mut spatial = Vec::with_capacity(rank);
        match &self.target {
            Target::Size(size, factors) => {
                let size = size.ints(inputs)?;
                for d in 0..rank {
                    let factor = factors.get(d).and_then(Option::as_ref);
                    let factor = factor.map(|f| f.floats(inputs)).transpose()?;
                    let n = each(&size, rank, d).and_then(|n| usize::try_from(n).ok());
                    let n = n.filter(|&n| n > 0).ok_or_else(|| {
                        ShapeError::Invalid(format!("size {size:?} must be {rank} positive sizes"))
                    })?;
                    spatial.push((n, factor.and_then(|f| f.first().copied())));
                }
            }
            Target::Factor(factor) => {
                let factors = factor.floats(inputs)?;
                for d in 0..rank {
                    let input = x.shape()[d + 2];
                    let size = each(&factors, rank, d).map(|f| (f, (input as f64 * f).floor()));
                    let size = size.filter(|(_, n)| (1.0..=2e15).contains(n));
                    let (f, n) = size.ok_or_else(|| {
                        ShapeError::Invalid(format!(
                            "scale_factor {factors:?} must be {rank} factors that leave something of {}",
                            x.shape()
                        ))
                    })?;
                    spatial.push((n as usize, (!self.recompute).then_some(f)));
                }
            }
        }
        let mut shape = x.shape().clone();
        for (d, (n, _)) in spatial.iter().enumerate() {
            shape[d + 2] = *n;
        }
        shape.checked_numel()?;
        if x.shape()[2..].contains(&0) {
            return Err(ShapeError::Invalid(format!("an input {} has no pixels", x.shape())));
        }
        Ok(Sizes { spatial, shape })
    }

    /// The taps of depth, height and width.
    fn taps(
        &self,
        x: &TensorValue,
        sizes: &Sizes,
        sampling: Sampling,
    ) -> Result<[Taps; 3], PlanError> {
        let failed = |e| match e {
            TapsError::Memory(e) => PlanError::Tensor(e),
            e => PlanError::Unsupported(e.to_string()),
        };
        let rank = sizes.spatial.len();
        let tap = |a: usize| match (a + rank).checked_sub(3) {
            None => Taps::identity(1),
            Some(d) => {
                let (output, factor) = sizes.spatial[d];
                let double = matches!(x.dtype(), DType::F64 | DType::U8);
                let scale = Scale { align_corners: self.align_corners, factor, double };
                Taps::new(x.shape()[d + 2], output, sampling, scale)
            }
        };
        Ok([tap(0).map_err(failed)?, tap(1).map_err(failed)?, tap(2).map_err(failed)?])
    }
}

/// Element `d` of `rank`, where a single one stands for all.
fn each<T: Copy>(values: &[T], rank: usize, d: usize) -> Option<T> {
    match values {
        [one] => Some(*one),
        all if all.len() == rank => all.get(d).copied(),
        _ => None,
    }
}

impl Operator for Upsample {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn role(&self, inputs: &[ValueSpec]) -> Option<Role> {
        use Sampling::{Linear, Nearest, NearestExact};
        let sizes = self.sizes(inputs).ok()?;
        // Positions follow the factor, where there is one.
        let stays = |&(_, factor): &(usize, Option<f64>)| factor.is_none_or(|f| f == 1.0);
        let mode = matches!(self.mode, Mode::Sampled(Nearest | NearestExact | Linear));
        let same = TensorValue::at(inputs, self.input).ok()?.shape() == &sizes.shape;
        (mode && same && sizes.spatial.iter().all(stays)).then_some(Role::Same(self.input))
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let dtype = TensorValue::at(inputs, self.input)?.dtype();
        Ok(vec![ValueSpec::tensor(dtype, self.sizes(inputs)?.shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, self.input)?;
        let sizes = self.sizes(cx.inputs)?;
        let input = leaf(cx.inputs, self.input);
        let (planes, inner) = match x.spec.layout {
            Layout::Plain => (x.shape().product(0..2), 1),
            of if matches!(of, Layout::BlockedBf16 { .. }) && !self.is_nearest() => {
                return Err(PlanError::Unsupported(format!("interpolation of {of}")));
            }
            _ => {
                let physical = x.spec.physical_shape();
                (physical.product(0..2), physical.last().copied().unwrap_or(1))
            }
        };
        match self.mode {
            Mode::Sampled(s @ (Sampling::Nearest | Sampling::NearestExact)) => {
                let resize = Nearest::new(self.taps(x, &sizes, s)?);
                let size = x.dtype().size_of().saturating_mul(inner);
                plan_nearest(
                    size,
                    NearestKernel { resize, planes, input, pixel: PhantomData::<u8> },
                )
            }
            _ if halves::is_half(x.dtype()) => {
                let parts = Parts { dims: 2, of: &[self.input] };
                halves::widened_by(cx, parts, |cx| self.plan(cx))
            }
            Mode::Sampled(sampling) if x.dtype() == DType::U8 => {
                let [_, height, width] = self.taps(x, &sizes, sampling)?;
                let resize = ResizeBytes::new([height, width])?;
                let scratch = resize.scratch_len(cx.threads);
                let kernel = Bytes { isa: cx.isa, resize, planes, input };
                Ok(Planned::new(kernel).with_scratch(scratch))
            }
            Mode::Sampled(sampling) => {
                let resize = Resize { axes: self.taps(x, &sizes, sampling)?, inner };
                if x.dtype() == DType::F32 {
                    let scratch = resize.scratch_len(cx.threads).saturating_mul(size_of::<f32>());
                    let name = format!("resize.{}", cx.isa);
                    let kernel = Weighted { name, isa: cx.isa, resize, planes, input };
                    return Ok(Planned::new(kernel).with_scratch(scratch));
                }
                for_floats!(x.dtype(),
                    T => Ok(Planned::new(WeightedAny::<T> { resize, planes, input, element: PhantomData })),
                    _ => Err(PlanError::Unsupported(format!("resizing of {}", x.dtype()))),
                )
            }
            Mode::Area => {
                let axes: Result<Vec<Axis>, _> = sizes
                    .spatial
                    .iter()
                    .enumerate()
                    .map(|(d, (n, _))| Axis::adaptive(x.shape()[d + 2], *n))
                    .collect();
                let axes = axes.map_err(|e| ShapeError::Invalid(e.to_string()))?;
                let geometry = Geometry { inner, ..Geometry::new(planes, &axes) };
                if x.dtype() == DType::F32 {
                    let scratch =
                        scratch_len(&geometry, cx.threads).saturating_mul(size_of::<f32>());
                    return Ok(
                        Planned::new(Area { isa: cx.isa, geometry, input }).with_scratch(scratch)
                    );
                }
                for_floats!(x.dtype(),
                    T => Ok(Planned::new(AreaAny::<T> { geometry, input, element: PhantomData })),
                    _ => Err(PlanError::Unsupported(format!("resizing of {}", x.dtype()))),
                )
            }
        }
    }

    fn layouts(&self, cx: &LayoutCx<'_>) -> LayoutSupport {
        let x = TensorValue::at(cx.inputs, self.input);
        LayoutSupport::common_if(x.is_ok_and(|x| x.spec.may_lie_in_blocks()))
    }

    fn bf16(&self, _: &LayoutCx<'_>) -> Bf16Support {
        Bf16Support::moves_if(self.is_nearest())
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let rank = TensorValue::at(inputs, self.input)
            .map_or(2, |x| x.shape().rank().saturating_sub(2) as u32);
        let taps: u64 = match self.mode {
            Mode::Sampled(Sampling::Nearest | Sampling::NearestExact) => 0,
            Mode::Sampled(Sampling::Cubic | Sampling::CubicAntialias) => 4,
            _ => 2,
        };
        Cost::elementwise(inputs, outputs, 2 * taps.saturating_pow(rank))
    }
}

struct NearestKernel<P> {
    resize: Nearest,
    planes: usize,
    input: usize,
    pixel: PhantomData<P>,
}

/// Chooses the type whose size is a pixel's: a block of channels moves as a whole.
fn plan_nearest(size: usize, k: NearestKernel<u8>) -> Result<Planned, PlanError> {
    fn typed<P: bytemuck::Pod + Send + Sync>(k: NearestKernel<u8>) -> Result<Planned, PlanError> {
        let NearestKernel { resize, planes, input, .. } = k;
        Ok(Planned::new(NearestKernel { resize, planes, input, pixel: PhantomData::<P> }))
    }
    match size {
        1 => typed::<u8>(k),
        2 => typed::<u16>(k),
        4 => typed::<u32>(k),
        8 => typed::<u64>(k),
        16 => typed::<[u64; 2]>(k),
        32 => typed::<[u64; 4]>(k),
        64 => typed::<[u64; 8]>(k),
        _ => Err(PlanError::Unsupported(format!("pixels of {size} bytes"))),
    }
}

impl<P: bytemuck::Pod + Send + Sync> Kernel for NearestKernel<P> {
    fn name(&self) -> &str {
        "resize.nearest"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let cast = |e: bytemuck::PodCastError| RunError::Internal(format!("pixels: {e}"));
        let x = bytemuck::try_cast_slice::<u8, P>(cx.inputs.bytes(self.input)?).map_err(cast)?;
        let (_, y) = cx.outputs.take_bytes(0)?;
        let y = bytemuck::try_cast_slice_mut::<u8, P>(y).map_err(cast)?;
        resize_nearest(cx.par, &self.resize, self.planes, x, y);
        Ok(())
    }
}

struct Weighted {
    name: String,
    isa: Isa,
    resize: Resize,
    planes: usize,
    input: usize,
}

impl Kernel for Weighted {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let scratch = cx.take_scratch::<f32>()?;
        let (x, y) = (cx.inputs.get(self.input)?, cx.outputs.take(0)?);
        resize_f32(self.isa, cx.par, &self.resize, self.planes, x, y, scratch);
        Ok(())
    }
}

struct WeightedAny<T> {
    resize: Resize,
    planes: usize,
    input: usize,
    element: PhantomData<T>,
}

impl<T: Float> Kernel for WeightedAny<T> {
    fn name(&self) -> &str {
        "resize.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (x, y) = (cx.inputs.get::<T>(self.input)?, cx.outputs.take::<T>(0)?);
        resize_any(cx.par, &self.resize, self.planes, x, y);
        Ok(())
    }
}

struct Bytes {
    isa: Isa,
    resize: ResizeBytes,
    planes: usize,
    input: usize,
}

impl Kernel for Bytes {
    fn name(&self) -> &str {
        "resize.bytes"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let scratch = cx.take_scratch::<u8>()?;
        let (x, y) = (cx.inputs.get(self.input)?, cx.outputs.take(0)?);
        resize_bytes(self.isa, cx.par, &self.resize, self.planes, x, y, scratch);
        Ok(())
    }
}

struct Area {
    isa: Isa,
    geometry: Geometry,
    input: usize,
}

impl Kernel for Area {
    fn name(&self) -> &str {
        "resize.area"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let scratch = cx.take_scratch::<f32>()?;
        let (x, y) = (cx.inputs.get(self.input)?, cx.outputs.take(0)?);
        let reduction = Reduction::Average(Divisor::Inputs);
        pool_f32(self.isa, cx.par, &self.geometry, reduction, x, y, scratch);
        Ok(())
    }
}

struct AreaAny<T> {
    geometry: Geometry,
    input: usize,
    element: PhantomData<T>,
}

impl<T: Float> Kernel for AreaAny<T> {
    fn name(&self) -> &str {
        "resize.area.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (x, y) = (cx.inputs.get::<T>(self.input)?, cx.outputs.take::<T>(0)?);
        pool_any(cx.par, &self.geometry, Reduction::Average(Divisor::Inputs), x, y);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{
        assert_close, check, check_line, check_values, error, line_error, op, random, specs,
        tensor, try_op, values,
    };

    /// The 2 x 2 input of PyTorch's page of nn.Upsample.
    fn small() -> plutino_tensor::Tensor {
        tensor([1, 1, 2, 2], &[1.0f32, 2.0, 3.0, 4.0])
    }

    #[test]
    fn pytorchs_examples() {
        let y = check(
            &*op("nn.Upsample u 1 1 0 1 mode=nearest scale_factor=(2.0,2.0) size=None"),
            &[small()],
        );
        let expected = [1., 1., 2., 2., 1., 1., 2., 2., 3., 3., 4., 4., 3., 3., 4., 4.];
        assert_eq!(values::<f32>(&y[0]), expected);

        let line = "nn.Upsample u 1 1 0 1 align_corners=False mode=bilinear scale_factor=(2.0,2.0) size=None";
        let expected = [
            1.0f32, 1.25, 1.75, 2.0, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3.0, 3.25, 3.75,
            4.0,
        ];
        assert_close(&check(&*op(line), &[small()])[0], &tensor([1, 1, 4, 4], &expected), 1e-6);

        let corners = [
            1.0f32,
            1.333_333_4,
            1.666_666_6,
            2.0,
            1.666_666_6,
            2.0,
            2.333_333_3,
            2.666_666_7,
            2.333_333_3,
            2.666_666_7,
            3.0,
            3.333_333_3,
            3.0,
            3.333_333_3,
            3.666_666_7,
            4.0,
        ];
        for line in [
            "nn.Upsample u 1 1 0 1 align_corners=True mode=bilinear scale_factor=(2.0,2.0) size=None",
            "nn.UpsamplingBilinear2d u 1 1 0 1 scale_factor=(2.0,2.0) size=None",
            "F.upsample_bilinear u 1 1 0 1 size=(4,4) $input=0",
        ] {
            assert_close(&check(&*op(line), &[small()])[0], &tensor([1, 1, 4, 4], &corners), 1e-6);
        }
    }

    #[test]
    fn ranks_modes_and_factors() {
        for (line, from, to) in [
            (
                "F.interpolate u 1 1 0 1 mode=linear align_corners=False size=(12) $input=0",
                vec![1, 3, 16],
                vec![1, 3, 12],
            ),
            (
                "F.interpolate u 1 1 0 1 mode=nearest-exact recompute_scale_factor=False scale_factor=1.5 $input=0",
                vec![1, 3, 11],
                vec![1, 3, 16],
            ),
            (
                "F.interpolate u 1 1 0 1 mode=bicubic align_corners=True recompute_scale_factor=True scale_factor=(1.6,2.0) $input=0",
                vec![2, 3, 12, 7],
                vec![2, 3, 19, 14],
            ),
            (
                "F.upsample u 1 1 0 1 mode=trilinear align_corners=False scale_factor=(2.0,3.0,4.0) $input=0",
                vec![1, 2, 3, 4, 5],
                vec![1, 2, 6, 12, 20],
            ),
            (
                "F.upsample_nearest u 1 1 0 1 scale_factor=(2.97674394,2.97674394) $input=0",
                vec![1, 8, 12, 12],
                vec![1, 8, 35, 35],
            ),
            (
                "F.interpolate u 1 1 0 1 mode=area size=(5,3) $input=0",
                vec![1, 2, 9, 10],
                vec![1, 2, 5, 3],
            ),
            (
                "F.interpolate u 1 1 0 1 mode=bilinear antialias=True align_corners=False size=(5,3) $input=0",
                vec![1, 2, 19, 10],
                vec![1, 2, 5, 3],
            ),
        ] {
            // A constant stays one in every mode, and all dtypes agree.
            let operator = op(line);
            let x = random(from.clone(), 1);
            let y = check(&*operator, std::slice::from_ref(&x));
            assert_eq!(y[0].shape(), &Shape::from(to.clone()));
            let ones = check(&*operator, &[tensor(from.clone(), &vec![1.0f32; x.numel()])]);
            assert_close(&ones[0], &tensor(to.clone(), &vec![1.0f32; y[0].numel()]), 1e-6);
            let wide: Vec<f64> = values::<f32>(&x).iter().map(|&v| f64::from(v)).collect();
            let wide = check(&*operator, &[tensor(from, &wide)]);
            let wide: Vec<f32> = values::<f64>(&wide[0]).iter().map(|&v| v as f32).collect();
            // Positions of f32 tensors are rounded to f32: up to 64 * 2^-24, times slopes below 2.
            assert_close(&y[0], &tensor(to, &wide), 1e-4);
        }
    }

    #[test]
    fn the_factor_counts_unless_it_is_recomputed() {
        let x = tensor([1, 1, 5], &[0.0f32, 1.0, 2.0, 3.0, 4.0]);
        let line = "F.interpolate u 1 1 0 1 mode=nearest scale_factor=(1.3) $input=0";
        let given = op(line);
        assert_eq!(
            values::<f32>(&check(&*given, std::slice::from_ref(&x))[0]),
            [0., 0., 1., 2., 3., 3.]
        );
        let quotient = op(&format!("{line} recompute_scale_factor=True"));
        assert_eq!(values::<f32>(&check(&*quotient, &[x])[0]), [0., 0., 1., 2., 3., 4.]);
    }

    #[test]
    fn the_size_may_be_an_input() {
        let operator = op("F.upsample_nearest u 2 1 0 1 2 $input=0 $size=1");
        let size = ValueSpec::python_ints(&[4, 2]).unwrap();
        let inputs = [specs(&[small()]).remove(0), size];
        let data = [small(), tensor([], &[4i64]), tensor([], &[2i64])];
        let y = check_values(&*operator, &inputs, &data);
        assert_eq!(values::<f32>(&y[0]), [1., 2., 1., 2., 3., 4., 3., 4.]);
        let unknown = error(&*operator, &[small(), tensor([2], &[4i64, 2])]);
        assert!(unknown.to_string().contains("depends on data"));
    }

    #[test]
    fn every_dtype_has_nearest_neighbours() {
        let operator = op("nn.UpsamplingNearest2d u 1 1 0 1 scale_factor=(1.0,2.0) size=None");
        let y = check(&*operator, &[tensor([1, 1, 1, 2], &[3u8, 9])]);
        assert_eq!(values::<u8>(&y[0]), [3, 3, 9, 9]);
        let bilinear = op("nn.UpsamplingBilinear2d u 1 1 0 1 size=(4,4)");
        let refused = error(&*bilinear, &[tensor([1, 1, 1, 2], &[3i32, 9])]);
        assert!(refused.to_string().contains("a float"), "{refused}");
        let linear = op("F.interpolate u 1 1 0 1 mode=linear size=(4) $input=0");
        error(&*linear, &[tensor([1, 1, 2], &[3u8, 9])]);
    }

    /// Expected: what PyTorch 2.15 computes, in integers, whose roundings differ from those of f32.
    #[test]
    fn images_of_bytes() {
        let x: Vec<u8> = (0..20u32).map(|i| ((i * 53 + 7) % 256) as u8).collect();
        for (parameters, shape, expected) in [
            (
                "size=(3,7) mode=bilinear",
                [1, 1, 3, 7],
                &[
                    8u8, 38, 76, 114, 152, 190, 220, 21, 51, 89, 127, 165, 203, 233, 33, 63, 101,
                    139, 177, 215, 245,
                ][..],
            ),
            (
                "size=(6,3) mode=bicubic align_corners=True",
                [1, 1, 6, 3],
                &[
                    7, 113, 219, 12, 118, 224, 18, 124, 230, 23, 129, 235, 29, 135, 241, 34, 140,
                    246,
                ],
            ),
            ("size=(2,2) mode=bilinear antialias=True", [1, 1, 2, 2], &[66, 172, 81, 187]),
            ("size=(3,2) mode=bicubic antialias=True", [1, 1, 3, 2], &[54, 176, 66, 188, 77, 199]),
        ] {
            let line = format!("F.interpolate u 1 1 0 1 $input=0 {parameters}");
            let y = check_line(&line, &[tensor([1, 1, 4, 5], &x)]);
            assert_eq!(y[0], tensor(shape, expected), "{parameters}");
        }
        // Beyond both ends of a byte.
        let line = "F.interpolate u 1 1 0 1 $input=0 size=(1,9) mode=bicubic";
        let y = check_line(line, &[tensor([1, 1, 1, 4], &[0u8, 255, 0, 255])]);
        assert_eq!(values::<u8>(&y[0]), [0, 41, 187, 253, 128, 2, 68, 214, 255]);
    }

    #[test]
    fn native_functions() {
        let x = random([1, 2, 9, 7], 3);
        let same = |native: &str, spelled: &str| {
            let expected = check(&*op(spelled), std::slice::from_ref(&x));
            assert_eq!(check_line(native, std::slice::from_ref(&x)), expected, "{native}");
        };
        let bilinear = "F.interpolate u 1 1 0 1 mode=bilinear align_corners=False $input=0";
        same(
            "aten::upsample_bilinear2d u 5 1 0 =[4,5] =False =None =None 1",
            &format!("{bilinear} size=(4,5)"),
        );
        same(
            "aten::upsample_bilinear2d u 4 1 0 =None =False =[1.5,2.0] 1",
            &format!("{bilinear} scale_factor=(1.5,2.0)"),
        );
        // Positions follow the factors, not the sizes.
        same(
            "aten::upsample_bilinear2d u 5 1 0 =[13,14] =False =1.5 =2.0 1",
            &format!("{bilinear} scale_factor=(1.5,2.0)"),
        );
        same(
            "aten::_upsample_bilinear2d_aa u 5 1 0 =[4,5] =False =None =None 1",
            &format!("{bilinear} antialias=True size=(4,5)"),
        );
        same(
            "aten::_upsample_bicubic2d_aa u 4 1 0 =[4,5] =True =None 1",
            "F.interpolate u 1 1 0 1 mode=bicubic align_corners=True antialias=True size=(4,5) $input=0",
        );
        same(
            "aten::_upsample_nearest_exact2d u 3 1 0 =None =[0.5,1.7] 1",
            "F.interpolate u 1 1 0 1 mode=nearest-exact scale_factor=(0.5,1.7) $input=0",
        );
        let x = random([1, 2, 9], 3);
        for (native, spelled) in [
            (
                "aten::upsample_linear1d u 4 1 0 =[15] =True =None 1",
                "mode=linear align_corners=True size=15",
            ),
            ("aten::upsample_nearest1d u 3 1 0 =[15] =1.7 1", "mode=nearest scale_factor=1.7"),
        ] {
            let spelled = op(&format!("F.interpolate u 1 1 0 1 {spelled} $input=0"));
            let expected = check(&*spelled, std::slice::from_ref(&x));
            assert_eq!(check_line(native, std::slice::from_ref(&x)), expected, "{native}");
        }
        let x = [random([1, 2, 3, 4, 5], 3)];
        let y =
            check_line("aten::upsample_trilinear3d u 6 1 0 =[2,8,3] =True =None =None =None 1", &x);
        assert_eq!(y[0].shape().dims(), [1, 2, 2, 8, 3]);
        line_error("aten::upsample_nearest2d u 4 1 0 =[2,8] =None =None 1", &x);
        assert!(try_op("aten::upsample_nearest2d u 3 1 0 =None =None 1", &[]).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        for line in [
            "nn.Upsample u 1 1 0 1 mode=cubic size=(4,4)",
            "nn.Upsample u 1 1 0 1 mode=nearest size=(4,4) align_corners=True",
            "nn.Upsample u 1 1 0 1 mode=nearest size=None",
            "nn.Upsample u 1 1 0 1 mode=nearest size=(4,4) scale_factor=(2.0,2.0)",
        ] {
            assert!(try_op(line, &[]).is_err(), "{line}");
        }
        for line in [
            "nn.Upsample u 1 1 0 1 mode=nearest size=(4,4,4)",
            "nn.Upsample u 1 1 0 1 mode=nearest size=(4,-4)",
            "nn.Upsample u 1 1 0 1 mode=nearest scale_factor=(0.1,1.0)",
            "nn.Upsample u 1 1 0 1 mode=nearest scale_factor=(1e300,1.0)",
            "nn.Upsample u 1 1 0 1 mode=trilinear size=(4,4)",
        ] {
            error(&*op(line), &[small()]);
        }
        error(&*op("nn.Upsample u 1 1 0 1 mode=nearest size=(4,4)"), &[random([2, 2], 1)]);
    }
}

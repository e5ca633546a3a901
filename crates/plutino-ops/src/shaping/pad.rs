//! Padding: constants, reflections, repetitions.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.pad.html>. The parameter lists
//! elements before and after, for the last dimension first. Negative numbers crop.

use crate::support::assemble::leaf;
use crate::{
    Arg, BuildError, FromParameter, Kernel, LayoutCx, LayoutSupport, NodeReader, Operator, PlanCx,
    PlanError, Planned, Role, RunCx, RunError, ShapeError, StrideRule, TensorValue, ValueSpec,
    register_op,
};
use plutino_kernels::elementwise::Scalar;
use plutino_kernels::number::{Complex, Number, WideReal};
use plutino_kernels::pad::{Pad, PadMode};
use plutino_kernels::{for_ordered, number};
use plutino_tensor::{DType, Shape};

#[derive(Debug)]
struct PadOp {
    input: usize,
    /// Before, after; last dimension first.
    padding: Arg<Vec<i64>>,
    mode: PadMode,
    fill: f64,
    /// How many dimensions are padded, and whether one or two lead, where the type says so.
    spatial: Option<usize>,
}

const MODES: [(&str, PadMode); 4] = [
    ("constant", PadMode::Constant),
    ("reflect", PadMode::Reflect),
    ("replicate", PadMode::Replicate),
    ("circular", PadMode::Circular),
];

fn function(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let mode = r.one_of("mode", &MODES, Some(PadMode::Constant))?;
    padded(r, mode)
}
register_op!(function => "F.pad");

/// A real number, or a truth value for masks.
fn filling(r: &mut NodeReader<'_>) -> Result<f64, BuildError> {
    match r.or("value", Scalar::Int(0))? {
        Scalar::Bool(value) => Ok(value.into()),
        Scalar::Int(value) => Ok(value as f64),
        Scalar::Float(value) => Ok(value),
        Scalar::Complex(_) => Err(r.bad("value", f64::EXPECTED)),
    }
}

/// A function whose padding may be an input.
fn padded(r: &mut NodeReader<'_>, mode: PadMode) -> Result<Box<dyn Operator>, BuildError> {
    let fill = filling(r)?;
    let padding: Arg<Vec<i64>> = match r.arg("pad")? {
        Some(padding) => padding,
        None => Arg::Value(r.required("pad")?),
    };
    if let Arg::Value(p) = &padding
        && !p.len().is_multiple_of(2)
    {
        return Err(r.bad("pad", "an even number of integers"));
    }
    Ok(Box::new(PadOp { input: r.required_input("input")?, padding, mode, fill, spatial: None }))
}

/// The native function that numbers the modes.
fn numbered(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let mode = r.required::<usize>("mode")?;
    // `at::padding_mode`
    let modes = [PadMode::Reflect, PadMode::Replicate, PadMode::Circular, PadMode::Constant];
    let mode = modes.get(mode).ok_or_else(|| r.bad("mode", "0, 1, 2 or 3"))?;
    padded(r, *mode)
}
register_op!(numbered => "aten::_pad_enum");

fn module(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let mode = match r.kind() {
        k if k.starts_with("nn.Reflection") => PadMode::Reflect,
        k if k.starts_with("nn.Replication") => PadMode::Replicate,
        k if k.starts_with("nn.Circular") => PadMode::Circular,
        _ => PadMode::Constant,
    };
    let spatial = match r.kind() {
        k if k.ends_with("1d") => 1,
        k if k.ends_with("2d") => 2,
        _ => 3,
    };
    let mut padding: Vec<i64> = r.required("padding")?;
    if let [one] = padding[..] {
        padding = vec![one; 2 * spatial]; // bounded: dimensions
    }
    if padding.len() != 2 * spatial {
        return Err(r.bad("padding", format!("{} integers", 2 * spatial)));
    }
    let fill = if r.kind().starts_with("nn.Constant") { r.required("value")? } else { 0.0 };
    let (input, padding) = (r.required_input("input")?, Arg::Value(padding));
    Ok(Box::new(PadOp { input, padding, mode, fill, spatial: Some(spatial) }))
}
register_op!(module => "nn.ConstantPad1d", "nn.ConstantPad2d", "nn.ConstantPad3d", "nn.ZeroPad1d", "nn.ZeroPad2d",
    "nn.ZeroPad3d", "nn.ReflectionPad1d", "nn.ReflectionPad2d", "nn.ReflectionPad3d", "nn.ReplicationPad1d",
    "nn.ReplicationPad2d", "nn.ReplicationPad3d", "nn.CircularPad1d", "nn.CircularPad2d", "nn.CircularPad3d");

impl PadOp {
    /// Before and after, for each dimension of the input.
    fn padding(&self, inputs: &[ValueSpec]) -> Result<Vec<(i64, i64)>, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let (rank, padding) = (x.shape().rank(), self.padding.ints(inputs)?);
        if self.mode != PadMode::Constant {
            // PyTorch mirrors spatial dimensions only: one or two others lead.
            let spatial = self.spatial.unwrap_or(padding.len() / 2);
            if rank != spatial + 1 && rank != spatial + 2 {
                return Err(ShapeError::Rank {
                    input: self.input,
                    expected: format!("{} or {}", spatial + 1, spatial + 2),
                    found: x.shape().clone(),
                });
            }
        }
        if !padding.len().is_multiple_of(2) || padding.len() / 2 > rank {
            return Err(ShapeError::Invalid(format!(
                "padding {padding:?} must have two numbers for some of the dimensions of {}",
                x.shape()
            )));
        }
        let mut all = vec![(0, 0); rank];
        for (pair, both) in all.iter_mut().rev().zip(padding.chunks_exact(2)) {
            *pair = (both[0], both[1]);
        }
        Ok(all)
    }

    fn pad(&self, shape: &[usize], padding: &[(i64, i64)]) -> Result<Pad, ShapeError> {
        Pad::new(shape, padding, self.mode).map_err(|e| ShapeError::Invalid(e.to_string()))
    }
}

impl Operator for PadOp {
    fn stride_rule(&self, inputs: &[ValueSpec]) -> StrideRule {
        // PyTorch asks the input for its memory format, which is only ever another for images and
        // volumes. Where nothing but cuts is asked for, it copies the rest as it lies.
        let rank = TensorValue::at(inputs, self.input).map_or(usize::MAX, |x| x.shape().rank());
        let padding = self.padding(inputs).unwrap_or_default();
        let adds = padding.iter().any(|&(before, after)| before > 0 || after > 0);
        match rank < 4 && (adds || self.mode != PadMode::Constant) {
            true => StrideRule::Contiguous,
            false => StrideRule::LikeInputs,
        }
    }

    fn role(&self, inputs: &[ValueSpec]) -> Option<Role> {
        let sizes = |&(before, after): &(i64, i64)| {
            Some((usize::try_from(before).ok()?, usize::try_from(after).ok()?))
        };
        let padding: Option<Vec<_>> = self.padding(inputs).ok()?.iter().map(sizes).collect();
        let padding = padding?;
        if padding.iter().all(|&both| both == (0, 0)) {
            return Some(Role::Same(self.input));
        }
        let zeros = self.mode == PadMode::Constant && self.fill == 0.0;
        zeros.then_some(Role::Zeros(self.input, padding))
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let padding = self.padding(inputs)?;
        self.pad(x.shape(), &padding)?;
        let sizes = x.shape().iter().zip(&padding);
        let size = |(&n, (before, after)): (&usize, &(i64, i64))| {
            n.saturating_add_signed(*before as isize).saturating_add_signed(*after as isize)
        };
        let shape: Shape = sizes.map(size).collect();
        shape.checked_numel()?;
        Ok(vec![ValueSpec::tensor(x.dtype(), shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, self.input)?;
        let (input, padding) = (leaf(cx.inputs, self.input), self.padding(cx.inputs)?);
        if padding.iter().all(|&p| p == (0, 0)) {
            return Ok(Planned::view_of(input));
        }
        // Where channels lie in blocks, neither they nor what is in a block is padded.
        let inside = std::iter::repeat((0, 0));
        let physical = x.spec.physical_shape();
        let padding: smallvec::SmallVec<[(i64, i64); 6]> =
            padding.into_iter().chain(inside).take(physical.rank()).collect();
        let pad = self.pad(&physical, &padding)?;
        plan_bytes(pad, input, &fill(x.dtype(), self.fill))
    }

    fn layouts(&self, cx: &LayoutCx<'_>) -> LayoutSupport {
        let supported = || -> Result<bool, ShapeError> {
            let x = TensorValue::at(cx.inputs, self.input)?;
            let padding = self.padding(cx.inputs)?;
            let inside = x.spec.may_lie_in_blocks() && padding[..2] == [(0, 0); 2];
            // The channels that pad a block must stay 0.
            let whole = inside && x.shape()[1].is_multiple_of(cx.block().max(1));
            let filled = self.mode == PadMode::Constant && self.fill.to_bits() != 0;
            Ok(inside && (whole || !filled))
        };
        LayoutSupport::common_if(supported().unwrap_or(false))
    }
}

/// The bytes of the fill value in a dtype.
fn fill(dtype: DType, value: f64) -> Vec<u8> {
    fn complex<T: bytemuck::NoUninit>(value: T) -> Vec<u8> {
        bytemuck::bytes_of(&value).to_vec()
    }
    let wide = Complex::new(value, 0.0);
    match dtype {
        DType::C64 => complex(Complex::<f32>::narrow(wide)),
        DType::C128 => complex(wide),
        DType::C32 => complex(Complex::<number::f16>::narrow(wide)),
        _ => for_ordered!(dtype,
            T => bytemuck::bytes_of(&T::narrow(<T as Number>::Wide::from_f64(value))).to_vec(),
            _ => Vec::new(),
        ),
    }
}

struct PadKernel<P> {
    pad: Pad,
    input: usize,
    fill: P,
}

/// Chooses the type that has the size of an element.
fn plan_bytes(pad: Pad, input: usize, fill: &[u8]) -> Result<Planned, PlanError> {
    fn typed<P: bytemuck::Pod + Send + Sync>(
        pad: Pad,
        input: usize,
        fill: &[u8],
    ) -> Result<Planned, PlanError> {
        let fill = bytemuck::pod_read_unaligned::<P>(fill);
        Ok(Planned::new(PadKernel { pad, input, fill }))
    }
    match fill.len() {
        1 => typed::<u8>(pad, input, fill),
        2 => typed::<u16>(pad, input, fill),
        4 => typed::<u32>(pad, input, fill),
        8 => typed::<u64>(pad, input, fill),
        16 => typed::<[u64; 2]>(pad, input, fill),
        n => Err(PlanError::Unsupported(format!("elements of {n} bytes"))),
    }
}

impl<P: bytemuck::Pod + Send + Sync> Kernel for PadKernel<P> {
    fn name(&self) -> &str {
        "pad"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let cast = |e: bytemuck::PodCastError| RunError::Internal(format!("elements: {e}"));
        let x = bytemuck::try_cast_slice::<u8, P>(cx.inputs.bytes(self.input)?).map_err(cast)?;
        let (_, y) = cx.outputs.take_bytes(0)?;
        let y = bytemuck::try_cast_slice_mut::<u8, P>(y).map_err(cast)?;
        self.pad.run(cx.par, self.fill, x, y);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{
        check, check_line, check_values, error, iota, op, random, specs, tensor, try_op, values,
    };

    #[test]
    fn pytorchs_examples() {
        // t4d = torch.empty(3, 3, 4, 2), with F.pad(t4d, (1, 1)), (1, 1, 2, 2) and (0, 1, 2, 1, 3,
        // 3)
        for (pad, shape) in
            [("(1,1)", [3, 3, 4, 4]), ("(1,1,2,2)", [3, 3, 8, 4]), ("(0,1,2,1,3,3)", [3, 9, 7, 3])]
        {
            let y = check(
                &*op(&format!("F.pad p 1 1 0 1 mode=constant pad={pad} value=0.0 $input=0")),
                &[random([3, 3, 4, 2], 1)],
            );
            assert_eq!(y[0].shape(), &Shape::from(shape));
        }
        let x = iota([1, 1, 3, 3]);
        let reflect =
            check(&*op("nn.ReflectionPad2d p 1 1 0 1 padding=(1,1,2,0)"), std::slice::from_ref(&x));
        let expected = [
            7., 6., 7., 8., 7., 4., 3., 4., 5., 4., 1., 0., 1., 2., 1., 4., 3., 4., 5., 4., 7., 6.,
            7., 8., 7.,
        ];
        assert_eq!(values::<f32>(&reflect[0]), expected);
        let replicate = check(
            &*op("nn.ReplicationPad2d p 1 1 0 1 padding=(1,1,2,0)"),
            std::slice::from_ref(&x),
        );
        let expected = [
            0., 0., 1., 2., 2., 0., 0., 1., 2., 2., 0., 0., 1., 2., 2., 3., 3., 4., 5., 5., 6., 6.,
            7., 8., 8.,
        ];
        assert_eq!(values::<f32>(&replicate[0]), expected);
        let constant = check(
            &*op("nn.ConstantPad2d p 1 1 0 1 padding=(3,0,2,1) value=3.5"),
            &[tensor([1, 2, 2], &[1.0f32, 2.0, 3.0, 4.0])],
        );
        assert_eq!(constant[0].shape(), &Shape::from([1, 5, 5]));
        assert_eq!(values::<f32>(&constant[0])[10..15], [3.5, 3.5, 3.5, 1.0, 2.0]);
        let crop = check(&*op("nn.ZeroPad2d p 1 1 0 1 padding=(-1,-1,0,-1)"), &[x]);
        assert_eq!(values::<f32>(&crop[0]), [1.0, 4.0]);
    }

    #[test]
    fn every_dtype_and_sizes_from_inputs() {
        let pad = op("F.pad p 2 1 0 1 2 mode=constant value=7.0 $input=0 $pad=1");
        let x = tensor([2], &[1u8, 2]);
        let inputs =
            [specs(std::slice::from_ref(&x)).remove(0), ValueSpec::python_ints(&[1, 0]).unwrap()];
        let data = [x, tensor([], &[1i64]), tensor([], &[0i64])];
        assert_eq!(values::<u8>(&check_values(&*pad, &inputs, &data)[0]), [7, 1, 2]);
        let pad = op("F.pad p 1 1 0 1 mode=constant pad=(1,0) value=None $input=0");
        assert_eq!(values::<bool>(&check(&*pad, &[tensor([1], &[true])])[0]), [false, true]);
        let complex = "F.pad p 1 1 0 1 mode=constant pad=(1,0) value=1.0+2.0j $input=0";
        assert!(try_op(complex, &[]).is_err());
        let masked = op("F.pad p 1 1 0 1 mode=constant pad=(1,0) value=True $input=0");
        assert_eq!(values::<bool>(&check(&*masked, &[tensor([1], &[false])])[0]), [true, false]);
        let pad = op("F.pad p 1 1 0 1 mode=constant pad=(1,0) value=2.5 $input=0");
        let c = Complex::new(0.5, 1.0);
        assert_eq!(
            values::<Complex<f64>>(&check(&*pad, &[tensor([1], &[c])])[0]),
            [Complex::new(2.5, 0.0), c]
        );
        // Nothing to pad: a view.
        let pad = op("F.pad p 1 1 0 1 mode=constant pad=(0,0) value=2.5 $input=0");
        assert_eq!(values::<f32>(&check(&*pad, &[iota([3])])[0]), [0.0, 1.0, 2.0]);
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        for line in [
            "F.pad p 1 1 0 1 mode=constant pad=(1,1,1) $input=0",
            "F.pad p 1 1 0 1 mode=mirror pad=(1,1) $input=0",
            "nn.ReflectionPad2d p 1 1 0 1 padding=(1,1)",
        ] {
            assert!(try_op(line, &[]).is_err(), "{line}");
        }
        for (line, shape) in [
            ("F.pad p 1 1 0 1 mode=constant pad=(1,1,1,1) $input=0", vec![3]),
            ("F.pad p 1 1 0 1 mode=constant pad=(-2,-2) $input=0", vec![3]),
            ("F.pad p 1 1 0 1 mode=reflect pad=(3,0) $input=0", vec![1, 3]),
            ("F.pad p 1 1 0 1 mode=circular pad=(4,0) $input=0", vec![1, 3]),
            ("nn.ReflectionPad1d p 1 1 0 1 padding=(1,1)", vec![3]),
        ] {
            error(&*op(line), &[random(shape, 1)]);
        }
    }

    #[test]
    fn native_functions() {
        let x = random([1, 2, 4, 5], 3);
        for (native, spelled) in [
            ("aten::constant_pad_nd p 3 1 0 =[1,2] =0.5 1", "mode=constant pad=(1,2) value=0.5"),
            ("aten::reflection_pad2d p 2 1 0 =[1,2,3,0] 1", "mode=reflect pad=(1,2,3,0)"),
            ("aten::replication_pad2d p 2 1 0 =[1,2,3,0] 1", "mode=replicate pad=(1,2,3,0)"),
            ("aten::_pad_circular p 2 1 0 =[1,2,3,0] 1", "mode=circular pad=(1,2,3,0)"),
            ("aten::_pad_enum p 4 1 0 =[1,2,3,0] =1 =None 1", "mode=replicate pad=(1,2,3,0)"),
        ] {
            let spelled = op(&format!("F.pad p 1 1 0 1 {spelled} $input=0"));
            let expected = check(&*spelled, std::slice::from_ref(&x));
            assert_eq!(check_line(native, std::slice::from_ref(&x)), expected, "{native}");
        }
    }
}

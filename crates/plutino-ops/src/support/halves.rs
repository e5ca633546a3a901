//! f16 and bf16 computed in f32: the kernel of f32 runs on widened inputs, and its results are
//! rounded once, as PyTorch's kernels do.
//!
//! Whole tensors are widened, or, where an operator says which first dimensions tell independent
//! parts apart ([`Parts`]), so much at a time as stays in cache.

use crate::support::assemble::leaf;
use crate::{
    Input, Inputs, Kernel, Output, Outputs, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec,
};
use plutino_kernels::halves::Half;
use plutino_kernels::{Isa, Par};
use plutino_tensor::{ALIGNMENT, DType, Shape, TensorError, TensorSpec, bf16, f16};
use smallvec::SmallVec;
use std::sync::Arc;

/// Elements that a thread converts at a time.
const CHUNK: usize = 16 << 10;

/// Elements of all inputs and outputs of a part, about: widened, they stay in a second-level cache.
/// The number of threads does not change it, for results might depend on where a part begins.
const PART: usize = 64 << 10;

/// Whether values of this dtype are computed in f32.
pub(crate) fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::Bf16)
}

/// What of an operator's result can be computed part by part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts<'a> {
    /// First dimensions of these inputs, and of every output, in which each index is computed from
    /// the same index of these inputs alone.
    pub(crate) dims: usize,
    /// Tensors with these dimensions. Other inputs are needed as a whole for each part.
    pub(crate) of: &'a [usize],
}

/// The plan of an operator of f16 or bf16: `plan` plans the same for f32.
///
/// # Errors
/// Those of `plan`.
pub(crate) fn widened(
    cx: &PlanCx<'_>,
    plan: impl FnOnce(&PlanCx<'_>) -> Result<Planned, PlanError>,
) -> Result<Planned, PlanError> {
    widened_by(cx, Parts { dims: 0, of: &[] }, plan)
}

/// The same, part by part: `plan` plans for the shapes of a part.
///
/// # Errors
/// Those of `plan`.
pub(crate) fn widened_by(
    cx: &PlanCx<'_>,
    parts: Parts<'_>,
    plan: impl FnOnce(&PlanCx<'_>) -> Result<Planned, PlanError>,
) -> Result<Planned, PlanError> {
    let cut = Cut::new(cx, parts);
    let wide = |values: &[ValueSpec], is_cut: &dyn Fn(usize) -> bool| {
        let each = values.iter().enumerate();
        each.map(|(i, value)| widen(value, cut.filter(|_| is_cut(i))))
            .collect::<Result<Vec<_>, _>>()
    };
    let (inputs, outputs) =
        (wide(cx.inputs, &|i| parts.of.contains(&i))?, wide(cx.outputs, &|_| true)?);
    let planned = plan(&PlanCx { inputs: &inputs, outputs: &outputs, ..*cx })?;
    let Some(kernel) = planned.kernel else {
        return Ok(planned); // views count elements
    };
    let inner = planned.scratch.next_multiple_of(ALIGNMENT);
    let mut scratch = inner;
    let places = |values: &[ValueSpec], wide: &[ValueSpec], is_cut: &dyn Fn(usize) -> bool| {
        let leaves = values.iter().flat_map(ValueSpec::leaves);
        let wide = wide.iter().flat_map(ValueSpec::leaves);
        leaves
            .zip(wide)
            .enumerate()
            .map(|(i, (leaf, wide))| Place {
                converted: leaf.as_tensor().is_some_and(|t| is_half(t.spec.dtype)),
                spec: wide.as_tensor().map(|t| t.spec.clone()),
                cut: cut.filter(|_| is_cut(i)),
            })
            .collect::<Vec<_>>()
    };
    let split: SmallVec<[usize; 4]> = parts.of.iter().map(|&i| leaf(cx.inputs, i)).collect();
    let inputs = places(cx.inputs, &inputs, &|i| split.contains(&i));
    let outputs = places(cx.outputs, &outputs, &|_| true);
    for place in inputs.iter().chain(&outputs).filter(|place| place.converted) {
        let room = place.spec.as_ref().map_or(Ok(0), room_of).map_err(ShapeError::from)?;
        scratch = scratch.saturating_add(room);
    }
    let name = format!("{}.widened", kernel.name());
    let parts = cut.map_or(1, Cut::parts);
    let kernel = Widened { name, isa: cx.isa, kernel, inner, parts, inputs, outputs };
    Ok(Planned::new(kernel).with_scratch(scratch))
}

/// How tensors are cut along a dimension before which all are 1, so that parts are neighbours in
/// memory.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cut {
    axis: usize,
    /// Size of the dimension, and of a part.
    size: usize,
    part: usize,
}

impl Cut {
    /// None where one part is all.
    fn new(cx: &PlanCx<'_>, parts: Parts<'_>) -> Option<Self> {
        let inputs = parts.of.iter().map(|&i| TensorValue::at(cx.inputs, i).ok());
        let outputs = cx.outputs.iter().map(ValueSpec::as_tensor);
        let tensors: Vec<&TensorValue> = inputs.chain(outputs).collect::<Option<_>>()?;
        let first = tensors.first()?.shape();
        let axis = first.iter().position(|&size| size != 1).filter(|&axis| axis < parts.dims)?;
        let size = first.get(axis).copied().filter(|&size| size > 0)?;
        let fits =
            |t: &&TensorValue| t.known.is_none() && t.shape().get(..=axis) == first.get(..=axis);
        if !tensors.iter().all(fits) {
            return None;
        }
        let all = tensors.iter().fold(0usize, |n, t| n.saturating_add(t.shape().numel()));
        let part = (PART / (all / size).max(1)).max(1);
        (part < size).then_some(Self { axis, size, part })
    }

    fn parts(self) -> usize {
        self.size.div_ceil(self.part)
    }

    /// Where part `i` lies in so many bytes. The last one ends where all end, and begins in the one
    /// before: all parts have one size.
    fn bytes(self, i: usize, all: usize) -> Option<std::ops::Range<usize>> {
        let each = all / self.size;
        let first = i.checked_mul(self.part)?.min(self.size.checked_sub(self.part)?);
        Some(first.checked_mul(each)?..first.checked_add(self.part)?.checked_mul(each)?)
    }
}

/// A leaf of the operator, as its kernel sees it.
struct Place {
    /// None for what is no tensor.
    spec: Option<TensorSpec>,
    /// Whether it is of half the width.
    converted: bool,
    cut: Option<Cut>,
}

impl Place {
    /// The bytes of part `i` among all.
    fn part<'a>(&self, i: usize, all: &'a [u8]) -> Result<&'a [u8], RunError> {
        match self.cut {
            None => Ok(all),
            Some(cut) => cut.bytes(i, all.len()).and_then(|at| all.get(at)).ok_or_else(short),
        }
    }

    /// The same to write to.
    fn part_mut<'a>(&self, i: usize, all: &'a mut [u8]) -> Result<&'a mut [u8], RunError> {
        match self.cut {
            None => Ok(all),
            Some(cut) => cut.bytes(i, all.len()).and_then(|at| all.get_mut(at)).ok_or_else(short),
        }
    }

    /// Takes the room of the value in f32 from the front of `rest`, if it needs any.
    fn room<'a>(&self, rest: &mut &'a mut [u8]) -> Result<&'a mut [u8], RunError> {
        let Some(spec) = self.spec.as_ref().filter(|_| self.converted) else { return Ok(&mut []) };
        let (room, after) =
            std::mem::take(rest).split_at_mut_checked(room_of(spec)?).ok_or_else(short)?;
        *rest = after;
        room.get_mut(..spec.storage_bytes()?).ok_or_else(short)
    }
}

/// Bytes of a value, up to the place of the next one.
fn room_of(spec: &TensorSpec) -> Result<usize, TensorError> {
    Ok(spec.storage_bytes()?.next_multiple_of(ALIGNMENT))
}

/// What planning knows of a value, or of a part of it, in f32 where it is a tensor of half the
/// width.
fn widen(value: &ValueSpec, cut: Option<Cut>) -> Result<ValueSpec, PlanError> {
    Ok(match value {
        ValueSpec::Tensor(tensor) if cut.is_some() || is_half(tensor.spec.dtype) => {
            let mut tensor = tensor.clone();
            if is_half(tensor.spec.dtype) {
                tensor.spec.dtype = DType::F32;
                tensor.known = tensor.known.map(|t| t.cast(DType::F32)).transpose()?;
            }
            if let Some(cut) = cut {
                let sizes = tensor.spec.shape.iter().enumerate();
                let size = |(d, &size)| if d == cut.axis { cut.part } else { size };
                tensor.spec.shape = sizes.map(size).collect::<Shape>();
            }
            ValueSpec::Tensor(tensor)
        }
        ValueSpec::List(members) => {
            ValueSpec::List(members.iter().map(|m| widen(m, None)).collect::<Result<_, _>>()?)
        }
        other => other.clone(),
    })
}

/// A kernel of f32 between conversions.
struct Widened {
    name: String,
    isa: Isa,
    kernel: Arc<dyn Kernel>,
    /// Bytes of scratch memory of the kernel itself; the values follow.
    inner: usize,
    parts: usize,
    inputs: Vec<Place>,
    outputs: Vec<Place>,
}

impl Kernel for Widened {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let scratch = std::mem::take(&mut cx.scratch);
        let (inner, mut rest) = scratch.split_at_mut_checked(self.inner).ok_or_else(short)?;
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for (i, place) in self.outputs.iter().enumerate() {
            let (spec, bytes) = cx.outputs.take_bytes(i)?;
            outputs.push((place, spec, bytes, place.room(&mut rest)?));
        }
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for (i, place) in self.inputs.iter().enumerate() {
            let (spec, bytes) = (cx.inputs.spec(i)?, cx.inputs.bytes(i)?);
            inputs.push((place, spec, bytes, place.room(&mut rest)?));
        }
        for part in 0..self.parts {
            let mut read = Inputs(SmallVec::new());
            for (place, spec, bytes, room) in &mut inputs {
                let own = place.part(part, bytes)?;
                let again = part > 0 && place.cut.is_none();
                if place.converted && !again {
                    self.widen(spec.dtype, own, room, cx.par)?;
                }
                let bytes = if place.converted { &**room } else { own };
                read.0
                    .push(Input { spec: place.spec.as_ref().unwrap_or(spec), bytes: Some(bytes) });
            }
            let mut written = Outputs(SmallVec::new());
            for (place, spec, bytes, room) in &mut outputs {
                let bytes = match place.converted {
                    true => &mut **room,
                    false => place.part_mut(part, bytes)?,
                };
                let spec = place.spec.as_ref().unwrap_or(spec);
                written.0.push(Some(Output::Fixed { spec, bytes }));
            }
            let mut part_cx =
                RunCx { inputs: read, outputs: written, scratch: &mut *inner, par: cx.par };
            self.kernel.run(&mut part_cx)?;
            drop(part_cx);
            for (place, spec, bytes, room) in &mut outputs {
                if place.converted {
                    self.narrow(spec.dtype, room, place.part_mut(part, bytes)?, cx.par)?;
                }
            }
        }
        Ok(())
    }
}

impl Widened {
    fn widen(&self, from: DType, half: &[u8], wide: &mut [u8], par: &Par) -> Result<(), RunError> {
        match from {
            DType::F16 => self.widen_all::<f16>(half, wide, par),
            _ => self.widen_all::<bf16>(half, wide, par),
        }
    }

    fn widen_all<T: Half + bytemuck::Pod>(
        &self,
        half: &[u8],
        wide: &mut [u8],
        par: &Par,
    ) -> Result<(), RunError> {
        convert(cast::<T>(half)?, cast_mut(wide)?, par, |from, to| {
            T::widen_all(self.isa, from, to)
        });
        Ok(())
    }

    fn narrow(&self, to: DType, wide: &[u8], half: &mut [u8], par: &Par) -> Result<(), RunError> {
        match to {
            DType::F16 => self.narrow_all::<f16>(wide, half, par),
            _ => self.narrow_all::<bf16>(wide, half, par),
        }
    }

    fn narrow_all<T: Half + bytemuck::Pod>(
        &self,
        wide: &[u8],
        half: &mut [u8],
        par: &Par,
    ) -> Result<(), RunError> {
        convert(cast(wide)?, cast_mut::<T>(half)?, par, |from, to| {
            T::narrow_all(self.isa, from, to)
        });
        Ok(())
    }
}

fn short() -> RunError {
    RunError::Internal("memory is too short to widen into".into())
}

fn cast<T: bytemuck::Pod>(bytes: &[u8]) -> Result<&[T], RunError> {
    bytemuck::try_cast_slice(bytes).map_err(|e| RunError::Internal(e.to_string()))
}

fn cast_mut<T: bytemuck::Pod>(bytes: &mut [u8]) -> Result<&mut [T], RunError> {
    bytemuck::try_cast_slice_mut(bytes).map_err(|e| RunError::Internal(e.to_string()))
}

/// Converts as many elements as both have.
fn convert<A: Sync, B: Send>(
    from: &[A],
    to: &mut [B],
    par: &Par,
    chunk: impl Fn(&[A], &mut [B]) + Sync,
) {
    let len = from.len().min(to.len());
    par.chunks_mut(&mut to[..len], CHUNK, |i, to| chunk(&from[i * CHUNK..][..to.len()], to));
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, op, op_with, random, tensor, values};
    use plutino_tensor::{DType, Tensor};

    const HALVES: [DType; 2] = [DType::F16, DType::Bf16];

    fn cast(tensors: &[Tensor], dtype: DType) -> Vec<Tensor> {
        tensors.iter().map(|x| x.cast(dtype).unwrap()).collect()
    }

    fn positive<const N: usize>(shape: [usize; N], seed: u64) -> Tensor {
        let values: Vec<f32> = values::<f32>(&random(shape, seed));
        tensor(shape, &values.iter().map(|v| v.abs() + 0.5).collect::<Vec<_>>())
    }

    /// Results of half the width are those of f32 on the same inputs, rounded once.
    #[track_caller]
    fn assert_rounded_once(line: &str, inputs: &[Tensor]) {
        let operator = op(line);
        for dtype in HALVES {
            let half = cast(inputs, dtype);
            let found = check(&*operator, &half);
            let expected = check(&*operator, &cast(&half, DType::F32));
            assert_eq!(found.len(), expected.len(), "{line}");
            for (found, expected) in found.iter().zip(&expected) {
                let rounded = expected.dtype() == DType::F32;
                let expected =
                    if rounded { expected.cast(dtype).unwrap() } else { expected.clone() };
                // To the bit: any difference before rounding shows somewhere in so many elements.
                assert_eq!(*found, expected, "{line} of {dtype}");
            }
        }
    }

    #[test]
    fn results_are_rounded_once() {
        let line = "F.conv2d c 3 1 0 1 2 9 stride=(1,1) padding=(1,1)";
        let conv = [random([2, 20, 9, 7], 1), random([12, 20, 3, 3], 2), random([12], 3)];
        let rows = [random([3, 40], 4), random([17, 40], 5), random([17], 6)];
        let products = [random([2, 5, 33], 7), random([2, 33, 8], 8)];
        let heads =
            [random([1, 2, 6, 16], 9), random([1, 2, 9, 16], 10), random([1, 2, 9, 16], 11)];
        let grid = [random([2, 3, 5, 6], 12), random([2, 4, 4, 2], 13)];
        let deform = [
            random([1, 4, 6, 6], 14),
            random([5, 4, 3, 3], 16),
            random([1, 18, 4, 4], 15),
            random([1, 9, 4, 4], 17),
            random([5], 18),
        ];
        let cases: [(&str, &[Tensor]); 15] = [
            (line, &conv),
            ("F.linear l 3 1 0 1 2 9", &rows),
            ("torch.matmul m 2 1 0 1 9", &products),
            ("torch.einsum e 2 1 0 1 9 equation=bij,bjk->bik", &products),
            ("F.scaled_dot_product_attention a 3 1 0 1 2 9", &heads),
            ("F.softmax s 1 1 0 9 dim=-1", &rows[..1]),
            ("F.fold f 1 1 0 9 output_size=(4,5) kernel_size=(2,2)", &[random([1, 8, 12], 17)]),
            ("F.grid_sample g 2 1 0 1 9 $input=0 $grid=1", &grid),
            (
                "torch.cdist c 2 1 0 1 9 p=2.0 $x1=0 $x2=1",
                &[random([5, 7], 18), random([6, 7], 19)],
            ),
            (
                "F.pairwise_distance p 2 1 0 1 9 p=2 eps=1e-6 keepdim=False $x1=0 $x2=1",
                &[random([5, 7], 18), random([5, 7], 19)],
            ),
            ("torch.median m 1 2 0 8 9 dim=1 keepdim=False", &rows[..1]),
            ("torch.nansum n 1 1 0 9 dim=(1) keepdim=True", &rows[..1]),
            ("F.local_response_norm l 1 1 0 9 size=3 alpha=0.1 beta=0.75 k=1.0", &conv[..1]),
            (
                "pnnx.custom_op.torchvision.deform_conv2d d 5 1 0 1 2 3 4 9 $arg_0=0 $arg_1=1 $arg_2=2 $arg_3=3 $arg_4=4 \
                 arg_5=1 arg_6=1 arg_7=0 arg_8=0 arg_9=1 arg_10=1 arg_11=1 arg_12=1 arg_13=True",
                &deform,
            ),
            ("F.adaptive_avg_pool2d a 1 1 0 9 output_size=(1,1)", &conv[..1]),
        ];
        for (line, inputs) in cases {
            assert_rounded_once(line, inputs);
        }
    }

    /// Of more than one part, with a last one that is shorter.
    #[test]
    fn parts_make_up_the_whole() {
        let rows = [random([301, 512], 1), random([512], 2), random([512], 3)];
        let image = [random([1, 31, 70, 60], 4)];
        let images = [random([5, 6, 70, 60], 5), random([6], 6), random([6], 7)];
        let batch = [images[0].clone(), random([6], 8), positive([6], 9), images[1].clone()];
        let cases: [(&str, &[Tensor]); 14] = [
            ("F.softmax s 1 1 0 9 dim=-1", &rows[..1]),
            ("F.glu g 1 1 0 9 dim=-1", &rows[..1]),
            ("F.normalize n 1 1 0 9 dim=1 p=2 eps=1e-12", &rows[..1]),
            (
                "F.layer_norm l 3 1 0 1 2 9 normalized_shape=(512) eps=1e-5 $input=0 $weight=1 $bias=2",
                &rows,
            ),
            ("F.rms_norm l 2 1 0 1 9 normalized_shape=(512) $input=0 $weight=1", &rows[..2]),
            ("torch.sum s 1 1 0 9 dim=(1) keepdim=False", &rows[..1]),
            ("torch.var v 1 1 0 9 dim=(1) keepdim=True", &rows[..1]),
            ("torch.max m 1 2 0 8 9 dim=1 keepdim=False", &rows[..1]),
            ("torch.logsumexp l 1 1 0 9 dim=(1) keepdim=False", &rows[..1]),
            (
                "F.max_pool2d m 1 2 0 8 9 kernel_size=(3,3) stride=(2,2) padding=(1,1) return_indices=True",
                &image,
            ),
            (
                "F.interpolate i 1 1 0 9 scale_factor=(2.0,2.0) mode=bilinear align_corners=False",
                &image,
            ),
            ("F.instance_norm i 1 1 0 9 eps=1e-5", &image),
            (
                "F.group_norm g 3 1 0 1 2 9 num_groups=3 eps=1e-5 $input=0 $weight=1 $bias=2",
                &images,
            ),
            (
                "F.batch_norm b 4 1 0 1 2 3 9 eps=1e-5 $input=0 $running_mean=1 $running_var=2 $weight=3",
                &batch,
            ),
        ];
        for (line, inputs) in cases {
            assert_rounded_once(line, inputs);
        }
    }

    /// Weights of half the width are widened with the inputs.
    #[test]
    fn stored_weights_are_widened() {
        let pair = || vec![("weight", random([6], 1)), ("bias", random([6], 2))];
        let statistics = vec![("running_mean", random([6], 3)), ("running_var", positive([6], 4))];
        let cases = [
            (
                "nn.LayerNorm l 1 1 0 1 elementwise_affine=True eps=1e-5 normalized_shape=(6)",
                pair(),
                [4, 6, 6, 6],
            ),
            (
                "nn.GroupNorm l 1 1 0 1 affine=True eps=1e-5 num_channels=6 num_groups=2",
                pair(),
                [4, 6, 3, 5],
            ),
            (
                "nn.BatchNorm2d b 1 1 0 1 affine=True eps=1e-5 num_features=6",
                [pair(), statistics].concat(),
                [4, 6, 3, 5],
            ),
        ];
        for (line, weights, shape) in cases {
            for dtype in HALVES {
                let half: Vec<_> =
                    weights.iter().map(|(name, w)| (*name, w.cast(dtype).unwrap())).collect();
                let wide: Vec<_> =
                    half.iter().map(|(name, w)| (*name, w.cast(DType::F32).unwrap())).collect();
                let x = random(shape, 5).cast(dtype).unwrap();
                let found = check(&*op_with(line, &half), std::slice::from_ref(&x)).remove(0);
                let wide = check(&*op_with(line, &wide), &[x.cast(DType::F32).unwrap()]).remove(0);
                assert_eq!(found, wide.cast(dtype).unwrap(), "{line} of {dtype}");
            }
        }
    }
}

//! f16 and bf16 computed in f32: the kernel of f32 runs on widened inputs, and its results are
//! rounded once, as PyTorch's kernels do.

use crate::{
    Input, Inputs, Kernel, Output, Outputs, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec,
};
use half::slice::HalfFloatSliceExt;
use plutino_kernels::Par;
use plutino_tensor::{ALIGNMENT, DType, TensorError, TensorSpec, bf16, f16};
use smallvec::SmallVec;

/// Elements that a thread converts at a time.
const CHUNK: usize = 16 << 10;

/// Whether values of this dtype are computed in f32.
pub(crate) fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::Bf16)
}

/// The plan of an operator of f16 or bf16: `plan` plans the same for f32.
///
/// # Errors
/// Those of `plan`.
pub(crate) fn widened(
    cx: &PlanCx<'_>,
    plan: impl FnOnce(&PlanCx<'_>) -> Result<Planned, PlanError>,
) -> Result<Planned, PlanError> {
    let wide = |values: &[ValueSpec]| values.iter().map(widen).collect::<Result<Vec<_>, _>>();
    let (inputs, outputs) = (wide(cx.inputs)?, wide(cx.outputs)?);
    let planned = plan(&PlanCx { inputs: &inputs, outputs: &outputs, ..*cx })?;
    let Some(kernel) = planned.kernel else {
        return Ok(planned); // views count elements
    };
    let inner = planned.scratch.next_multiple_of(ALIGNMENT);
    let mut scratch = inner;
    for value in cx.inputs.iter().chain(cx.outputs).flat_map(ValueSpec::leaves) {
        if let Some(half) = value.as_tensor().filter(|t| is_half(t.spec.dtype)) {
            let room = room_of(&as_f32(&half.spec)).map_err(ShapeError::from)?;
            scratch = scratch.saturating_add(room);
        }
    }
    let specs = |values: &[ValueSpec]| {
        let leaves = values.iter().flat_map(ValueSpec::leaves);
        leaves.map(|leaf| leaf.as_tensor().map(|t| t.spec.clone())).collect()
    };
    let name = format!("{}.widened", kernel.name());
    let kernel = Widened { name, kernel, inner, inputs: specs(&inputs), outputs: specs(&outputs) };
    Ok(Planned::new(kernel).with_scratch(scratch))
}

/// The f32 tensor of this shape.
fn as_f32(spec: &TensorSpec) -> TensorSpec {
    TensorSpec { dtype: DType::F32, ..spec.clone() }
}

/// Bytes of a value, up to the place of the next one.
fn room_of(spec: &TensorSpec) -> Result<usize, TensorError> {
    Ok(spec.storage_bytes()?.next_multiple_of(ALIGNMENT))
}

/// What planning knows of a value, in f32 where it is a tensor of half the width.
fn widen(value: &ValueSpec) -> Result<ValueSpec, PlanError> {
    Ok(match value {
        ValueSpec::Tensor(tensor) if is_half(tensor.spec.dtype) => {
            let known = tensor.known.as_ref().map(|t| t.cast(DType::F32)).transpose()?;
            ValueSpec::Tensor(TensorValue { spec: as_f32(&tensor.spec), known, ..tensor.clone() })
        }
        ValueSpec::List(members) => {
            ValueSpec::List(members.iter().map(widen).collect::<Result<_, _>>()?)
        }
        other => other.clone(),
    })
}

/// A kernel of f32 between conversions.
struct Widened {
    name: String,
    kernel: Box<dyn Kernel>,
    /// Bytes of scratch memory of the kernel itself; the values follow.
    inner: usize,
    /// The leaves as the kernel sees them; none for what is no tensor.
    inputs: Vec<Option<TensorSpec>>,
    outputs: Vec<Option<TensorSpec>>,
}

impl Kernel for Widened {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let scratch = std::mem::take(&mut cx.scratch);
        let (scratch, mut rest) = scratch.split_at_mut_checked(self.inner).ok_or_else(short)?;
        // What the kernel writes, and where that is narrowed into.
        let mut made = Vec::with_capacity(self.outputs.len());
        for (i, wide) in self.outputs.iter().enumerate() {
            let (spec, bytes) = cx.outputs.take_bytes(i)?;
            match wide.as_ref().filter(|_| is_half(spec.dtype)) {
                Some(wide) => made.push((wide, take(&mut rest, wide)?, Some((spec.dtype, bytes)))),
                None => made.push((spec, bytes, None)),
            }
        }
        let mut inputs = Inputs(SmallVec::new());
        for (i, wide) in self.inputs.iter().enumerate() {
            let spec = cx.inputs.spec(i)?;
            let Some(wide) = wide.as_ref().filter(|_| is_half(spec.dtype)) else {
                inputs.0.push(Input { spec, bytes: Some(cx.inputs.bytes(i)?) });
                continue;
            };
            let room = take(&mut rest, wide)?;
            match spec.dtype {
                DType::F16 => convert(cx.inputs.get::<f16>(i)?, cast(room)?, cx.par, |from, to| {
                    from.convert_to_f32_slice(to);
                }),
                _ => convert(cx.inputs.get::<bf16>(i)?, cast(room)?, cx.par, |from, to| {
                    from.convert_to_f32_slice(to);
                }),
            }
            inputs.0.push(Input { spec: wide, bytes: Some(room) });
        }
        let written = made.iter_mut().map(|(spec, bytes, _)| Output::Fixed { spec, bytes });
        let outputs = Outputs(written.map(Some).collect());
        self.kernel.run(&mut RunCx { inputs, outputs, scratch, par: cx.par })?;
        for (_, wide, narrow) in made {
            let Some((dtype, bytes)) = narrow else { continue };
            match dtype {
                DType::F16 => convert(cast(wide)?, cast::<f16>(bytes)?, cx.par, |from, to| {
                    to.convert_from_f32_slice(from);
                }),
                _ => convert(cast(wide)?, cast::<bf16>(bytes)?, cx.par, |from, to| {
                    to.convert_from_f32_slice(from);
                }),
            }
        }
        Ok(())
    }
}

/// Takes the room of a value in f32 from the front of `rest`.
fn take<'a>(rest: &mut &'a mut [u8], spec: &TensorSpec) -> Result<&'a mut [u8], RunError> {
    let (room, after) =
        std::mem::take(rest).split_at_mut_checked(room_of(spec)?).ok_or_else(short)?;
    *rest = after;
    room.get_mut(..spec.storage_bytes()?).ok_or_else(short)
}

fn short() -> RunError {
    RunError::Internal("scratch memory is too short to widen into".into())
}

fn cast<T: bytemuck::Pod>(bytes: &mut [u8]) -> Result<&mut [T], RunError> {
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
    use crate::testkit::{assert_close, check, op, random};
    use plutino_tensor::{DType, Tensor};

    /// Results of half the width are those of f32 on the same inputs, rounded once.
    #[test]
    fn results_are_rounded_once() {
        let line = "F.conv2d c 3 1 0 1 2 9 stride=(1,1) padding=(1,1)";
        let conv = [random([2, 20, 9, 7], 1), random([12, 20, 3, 3], 2), random([12], 3)];
        let rows = [random([3, 40], 4), random([17, 40], 5), random([17], 6)];
        let products = [random([2, 5, 33], 7), random([2, 33, 8], 8)];
        let heads =
            [random([1, 2, 6, 16], 9), random([1, 2, 9, 16], 10), random([1, 2, 9, 16], 11)];
        let cases: [(&str, &[Tensor]); 5] = [
            (line, &conv),
            ("F.linear l 3 1 0 1 2 9", &rows),
            ("torch.matmul m 2 1 0 1 9", &products),
            ("F.scaled_dot_product_attention a 3 1 0 1 2 9", &heads),
            ("F.softmax s 1 1 0 9 dim=-1", &rows[..1]),
        ];
        for (line, inputs) in cases {
            for dtype in [DType::F16, DType::Bf16] {
                let half: Vec<_> = inputs.iter().map(|x| x.cast(dtype).unwrap()).collect();
                let wide: Vec<_> = half.iter().map(|x| x.cast(DType::F32).unwrap()).collect();
                let found = check(&*op(line), &half)[0].clone();
                assert_eq!(found.dtype(), dtype, "{line}");
                let expected = check(&*op(line), &wide)[0].cast(dtype).unwrap();
                let [found, expected] = [found, expected].map(|t| t.cast(DType::F32).unwrap());
                assert_close(&found, &expected, 0.0);
            }
        }
    }
}

//! Running a single step: who lends its memory does not matter here, nor who runs beside it.

use crate::memory::arena::Lend;
use crate::plan::{Plan, Sink, Source, Step};
use crate::run::request::Dense;
use plutino_kernels::Par;
use plutino_ops::{Input, Inputs, Output, Outputs, RunCx, RunError};
use plutino_tensor::{AlignedBuf, Tensor};
use smallvec::SmallVec;

/// Bytes that one task of a copy moves.
const COPY_GRAIN: usize = 64 << 10;

/// What steps read that nobody writes to.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) feeds: &'a [Dense<'a>],
}

impl Given<'_> {
    /// The bytes of an input that is not lent by the blocks.
    pub(crate) fn outside<'s>(
        &'s self,
        source: Source,
        heap: &'s [Option<Tensor>],
    ) -> Result<Option<&'s [u8]>, RunError> {
        let (bytes, offset, len) = match source {
            Source::Lent(_) | Source::Shared => return Ok(None),
            Source::Feed { feed, offset, len } => {
                (self.feeds.get(feed).map(Dense::bytes), offset, len)
            }
            Source::Constant { constant, offset, len } => {
                (self.plan.constants.get(constant).map(Tensor::as_bytes), offset, len)
            }
            Source::Heap(slot) => {
                let bytes = heap.get(slot).and_then(Option::as_ref).map(Tensor::as_bytes);
                (bytes, 0, bytes.map_or(0, <[u8]>::len))
            }
        };
        let part = bytes.and_then(|b| b.get(offset..offset.checked_add(len)?));
        part.map(Some).ok_or_else(|| RunError::Internal(format!("{source:?} has no such bytes")))
    }

    /// Runs a kernel; the tensors that it hands over, with their slots.
    pub(crate) fn kernel(
        &self,
        step: &Step,
        kernel: &dyn plutino_ops::Kernel,
        blocks: &mut impl Lend,
        heap: &[Option<Tensor>],
        par: &Par,
    ) -> Result<SmallVec<[(usize, Tensor); 2]>, RunError> {
        let mut emitted: SmallVec<[Option<Tensor>; 2]> = SmallVec::new();
        let dynamic = step.outputs.iter().filter(|o| matches!(o.sink, Sink::Heap { .. })).count();
        emitted.resize(dynamic, None); // bounded: outputs
        // What a kernel cuts out of no memory is aligned as well.
        let mut none = AlignedBuf::zeroed(0)?;
        let mut read: SmallVec<[&[u8]; 4]> = SmallVec::new();
        let mut written: SmallVec<[&mut [u8]; 4]> = SmallVec::new();
        blocks.lend(&step.reads, &step.writes, |r| read.push(r), |w| written.push(w))?;
        let (mut read, mut written) = (read.into_iter(), written.into_iter());
        let missing = || RunError::Internal("a region was not lent".into());
        let mut inputs = SmallVec::new();
        for input in &step.inputs {
            let bytes = match input.source {
                Source::Shared => None,
                Source::Lent(_) => Some(read.next().ok_or_else(missing)?),
                source => self.outside(source, heap)?,
            };
            inputs.push(Input { spec: &input.spec, bytes });
        }
        let mut slots = emitted.iter_mut();
        let mut outputs = SmallVec::new();
        for output in &step.outputs {
            outputs.push(match &output.sink {
                Sink::Lent(spec) => {
                    Some(Output::Fixed { spec, bytes: written.next().ok_or_else(missing)? })
                }
                Sink::Heap { dtype, .. } => {
                    Some(Output::Dynamic { dtype: *dtype, slot: slots.next().ok_or_else(missing)? })
                }
                Sink::View => None,
            });
        }
        let scratch = written.next().unwrap_or_else(|| none.as_mut_bytes());
        let mut cx = RunCx { inputs: Inputs(inputs), outputs: Outputs(outputs), scratch, par };
        kernel.run(&mut cx)?;
        drop(cx);
        let mut emitted = emitted.into_iter();
        let mut made = SmallVec::new();
        for output in &step.outputs {
            if let Sink::Heap { slot, .. } = output.sink {
                match emitted.next().flatten() {
                    Some(tensor) => made.push((slot, tensor)),
                    None => {
                        let (name, output) = (kernel.name(), &output.name);
                        let what = format!("{name} did not make output '{output}'");
                        return Err(RunError::Internal(what));
                    }
                }
            }
        }
        Ok(made)
    }

    /// Copies bytes.
    pub(crate) fn copy(
        &self,
        step: &Step,
        blocks: &mut impl Lend,
        heap: &[Option<Tensor>],
        par: &Par,
    ) -> Result<(), RunError> {
        let mut read: SmallVec<[&[u8]; 4]> = SmallVec::new();
        let mut written: SmallVec<[&mut [u8]; 4]> = SmallVec::new();
        blocks.lend(&step.reads, &step.writes, |r| read.push(r), |w| written.push(w))?;
        let mut read = read.into_iter();
        for (input, to) in step.inputs.iter().zip(written) {
            let from = match self.outside(input.source, heap)? {
                Some(bytes) => bytes,
                None => read.next().unwrap_or_default(),
            };
            if from.len() != to.len() {
                return Err(RunError::Internal("a copy between different sizes".into()));
            }
            par.chunks_mut(to, COPY_GRAIN, |i, chunk| {
                let start = i * COPY_GRAIN;
                chunk.copy_from_slice(&from[start..start + chunk.len()]);
            });
        }
        Ok(())
    }
}

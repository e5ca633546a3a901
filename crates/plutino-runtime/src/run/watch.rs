//! Values of a run, shown between its steps: for comparisons, and to find where numbers stop being
//! finite.
//!
//! What is shown is what is in memory: a step's outputs as soon as it has run, before anything
//! works in place on them. Views, parts of a concatenation that were written into place, inputs and
//! constants are made by no step; they are shown before the first step that reads them. Channel
//! blocks are shown in PyTorch's layout.

use crate::SessionError;
use crate::memory::arena::Blocks;
use crate::plan::{Fetch, Sink, Source, Step, StepInput, Work};
use crate::run::exec::{Handed, Run};
use crate::run::late::{LateInput, LateValue};
use plutino_ops::RunError;
use plutino_tensor::{DType, Layout, Tensor, TensorSpec};

/// How a value comes into view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// A step has just made it.
    Made,
    /// A step is about to read it, or it is a result: a view, or a concatenation.
    Read,
    /// A step is about to read it: an input of the run, a constant, or a part of one.
    Given,
}

impl Shown {
    fn read(source: Source) -> Self {
        match source {
            Source::Feed { .. } | Source::Constant { .. } => Self::Given,
            _ => Self::Read,
        }
    }
}

/// Whoever looks on.
pub(crate) trait Watch {
    /// Whether a value that a step reads is worth showing. Those that a step made always are.
    fn wants(&self, name: &str) -> bool;

    /// A value.
    ///
    /// # Errors
    /// Ends the run.
    fn see(&self, how: Shown, name: &str, value: Tensor) -> Result<(), SessionError>;

    /// A step is over: all that it reads and makes was shown.
    fn done(&self, step: &Step);
}

impl Run<'_> {
    /// Shows what a step is about to read.
    pub(crate) fn show_inputs(
        &self,
        step: &Step,
        blocks: &mut Blocks<'_>,
        handed: &Handed,
    ) -> Result<(), SessionError> {
        let Some(watch) = self.watch else { return Ok(()) };
        for input in step.inputs.iter().filter(|input| watch.wants(&input.name)) {
            let source = match (input.source, input.shared) {
                (Source::Shared, Some(region)) => Source::Lent(region),
                (source, _) => source,
            };
            let value = self.plain(source, &input.spec, blocks, handed)?;
            watch.see(Shown::read(source), &input.name, value)?;
        }
        let Work::Late(late) = &step.work else { return Ok(()) };
        for (input, name) in late.inputs.iter().zip(&late.input_names) {
            let LateInput::Planned { leaves, .. } = input else { continue };
            for (i, (spec, source)) in leaves.iter().enumerate() {
                let name = leaf_name(name, i, leaves.len());
                if watch.wants(&name) {
                    let value = self.plain(*source, spec, blocks, handed)?;
                    watch.see(Shown::read(*source), &name, value)?;
                }
            }
        }
        Ok(())
    }

    /// Shows what a step has just made.
    pub(crate) fn show_outputs(
        &self,
        step: &Step,
        blocks: &mut Blocks<'_>,
        handed: &Handed,
    ) -> Result<(), SessionError> {
        let Some(watch) = self.watch else { return Ok(()) };
        // A placed concatenation writes its parts, each under the name of the whole: no value.
        let whole = !matches!(step.work, Work::Copy);
        let mut written = step.writes.iter();
        for output in step.outputs.iter().filter(|_| whole) {
            let value = match &output.sink {
                Sink::Lent(spec) => match written.next() {
                    Some(&region) => self.plain(Source::Lent(region), spec, blocks, handed)?,
                    None => return Err(SessionError::internal("an output without a region")),
                },
                Sink::Heap { slot, .. } => match handed.heap.get(*slot).and_then(Option::as_ref) {
                    Some(tensor) => tensor.clone(),
                    None => continue,
                },
                Sink::View => continue,
            };
            watch.see(Shown::Made, &output.name, value)?;
        }
        if let Work::Late(late) = &step.work {
            for (&slot, name) in late.outputs.iter().zip(&late.output_names) {
                let value = handed.late.get(slot).and_then(Option::as_ref);
                show_late(name, value, |name, leaf| watch.see(Shown::Made, name, leaf))?;
            }
        }
        watch.done(step);
        Ok(())
    }

    /// Shows the results of the run.
    pub(crate) fn show_results(
        &self,
        blocks: &mut Blocks<'_>,
        handed: &Handed,
    ) -> Result<(), SessionError> {
        let Some(watch) = self.watch else { return Ok(()) };
        for fetch in &self.plan.fetches {
            match fetch {
                Fetch::Resident { .. } => {}
                Fetch::Late { name, slot, .. } => {
                    let value = handed.late.get(*slot).and_then(Option::as_ref);
                    show_late(name, value, |name, leaf| match watch.wants(name) {
                        true => watch.see(Shown::Read, name, leaf),
                        false => Ok(()),
                    })?;
                }
                Fetch::Leaf { name, .. } if !watch.wants(name) => {}
                Fetch::Leaf { name, dtype, spec, source, .. } => {
                    let spec = spec.clone().unwrap_or(TensorSpec::new(*dtype, [0]));
                    let value = self.plain(*source, &spec, blocks, handed)?;
                    watch.see(Shown::read(*source), name, value)?;
                }
            }
        }
        Ok(())
    }

    /// A value in PyTorch's layout.
    fn plain(
        &self,
        source: Source,
        spec: &TensorSpec,
        blocks: &mut Blocks<'_>,
        handed: &Handed,
    ) -> Result<Tensor, SessionError> {
        let failed = |e: RunError| SessionError::internal(format!("a value cannot be shown: {e}"));
        if spec.layout == Layout::Plain {
            return self.tensor(source, spec, blocks, &handed.heap).map_err(failed);
        }
        let stored = TensorSpec::new(spec.dtype, spec.physical_shape());
        let stored = self.tensor(source, &stored, blocks, &handed.heap).map_err(failed)?;
        match spec.layout {
            Layout::BlockedBf16 { block } => {
                let bf16 = TensorSpec::new(DType::Bf16, spec.shape.clone());
                Ok(unblocked(&stored, &bf16, block)?.cast(spec.dtype)?)
            }
            Layout::Blocked { block } => Ok(unblocked(&stored, spec, block)?),
            Layout::PlainBf16 => {
                let bf16 = Tensor::from_bytes(DType::Bf16, spec.shape.clone(), stored.as_bytes())?;
                Ok(bf16.cast(spec.dtype)?)
            }
            Layout::Plain => Ok(stored),
        }
    }
}

/// Shows the leaves of a value that became known while running.
fn show_late(
    name: &str,
    value: Option<&LateValue>,
    mut show: impl FnMut(&str, Tensor) -> Result<(), SessionError>,
) -> Result<(), SessionError> {
    let Some(value) = value else { return Ok(()) };
    let mut leaves = value.leaves.iter().enumerate();
    let list = matches!(value.spec, plutino_ops::ValueSpec::List(_));
    let count = if list { usize::MAX } else { 1 };
    leaves.try_for_each(|(i, leaf)| show(&leaf_name(name, i, count), leaf.clone()))
}

/// A leaf of a value: the value itself, or the number of one in a list.
pub(crate) fn leaf_name(name: &str, leaf: usize, leaves: usize) -> String {
    if leaves == 1 { name.to_owned() } else { format!("{name}.{leaf}") }
}

/// `(N, ceil(C/b), pixels, b)` as `(N, C, pixels)`, whatever dtype `stored` says it has.
fn unblocked(
    stored: &Tensor,
    spec: &TensorSpec,
    block: usize,
) -> Result<Tensor, plutino_tensor::TensorError> {
    let mut plain = Tensor::zeros(spec.dtype, spec.shape.clone())?;
    let size = spec.dtype.size_of();
    let (from, to) = (stored.as_bytes(), plain.as_mut_bytes()?);
    let channels = spec.shape.get(1).copied().unwrap_or(1);
    let pixels: usize = spec.shape.iter().skip(2).product();
    let image = channels.div_ceil(block.max(1)) * block * pixels; // both tensors exist: no overflow
    for (row, to) in to.chunks_exact_mut((pixels * size).max(1)).enumerate() {
        let (n, c) = (row / channels.max(1), row % channels.max(1));
        let start = n * image + c / block * block * pixels + c % block;
        for (pixel, to) in to.chunks_exact_mut(size).enumerate() {
            let at = (start + pixel * block) * size;
            if let Some(element) = from.get(at..at + size) {
                to.copy_from_slice(element);
            }
        }
    }
    Ok(plain)
}

impl StepInput {
    /// Its name in messages.
    pub(crate) fn described(&self) -> String {
        format!("{} {}", self.name, self.spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_blocks_are_shown_as_pytorch_has_them() {
        // Two images of three channels and two pixels, in blocks of two.
        let plain: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let mut stored = vec![-1.0f32; 16];
        for (i, &value) in plain.iter().enumerate() {
            let (n, c, pixel) = (i / 6, i / 2 % 3, i % 2);
            stored[n * 8 + c / 2 * 4 + pixel * 2 + c % 2] = value;
        }
        let spec = TensorSpec::new(DType::F32, [2, 3, 1, 2]);
        let blocked = spec.with_layout(Layout::Blocked { block: 2 });
        let stored = Tensor::from_slice(&stored, blocked.physical_shape()).unwrap();
        let shown = unblocked(&stored, &blocked, 2).unwrap();
        assert_eq!(shown.as_slice::<f32>().unwrap(), plain);
        // The same as bf16, in words of two.
        let words = stored.cast(DType::Bf16).unwrap();
        let spec = TensorSpec::new(DType::Bf16, [2, 3, 1, 2]);
        let shown = unblocked(&words, &spec, 2).unwrap().cast(DType::F32).unwrap();
        assert_eq!(shown.as_slice::<f32>().unwrap(), plain);
    }
}

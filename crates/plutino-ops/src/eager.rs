//! One operator at a time, without a graph: for tests, for folding constants, and for whoever wants
//! a single operator of PyTorch's.

use crate::{
    Alias, Input, Inputs, Operator, Output, Outputs, PackCache, PlanCx, PlanError, Planned, RunCx,
    RunError, Setting, ValueSpec,
};
use plutino_kernels::{Isa, Par};
use plutino_tensor::stop;
use plutino_tensor::{AlignedBuf, Tensor, TensorError, TensorSpec};

/// What went wrong in [`run`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EagerError {
    /// While inferring or planning.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// While running.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Infers, plans and runs `operator` on these inputs; returns the output leaves.
///
/// `specs` are the inputs as planning sees them; `data` holds their leaves, in order.
///
/// # Errors
/// Those of the three stages.
pub fn run(
    operator: &dyn Operator,
    specs: &[ValueSpec],
    data: &[Tensor],
    isa: Isa,
    par: &Par,
) -> Result<Vec<Tensor>, EagerError> {
    let outputs = operator.infer(specs).map_err(PlanError::from)?;
    let packs = PackCache::default();
    let cx = PlanCx {
        inputs: specs,
        outputs: &outputs,
        setting: Setting::new(isa, par.threads()),
        packs: &packs,
    };
    let planned = Planned::of(operator, &cx, &[])?;
    Ok(execute(&planned, &outputs, data, par)?)
}

/// Runs a plan on plain tensors; returns the output leaves.
///
/// # Errors
/// Those of the kernel.
pub fn execute(
    planned: &Planned,
    outputs: &[ValueSpec],
    data: &[Tensor],
    par: &Par,
) -> Result<Vec<Tensor>, RunError> {
    execute_in(planned, outputs, data, par, Memory::Apart { garbage: 0 })
}

/// What a kernel finds in its outputs and its scratch memory: it must not matter.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Memory {
    /// Every byte is this one.
    Apart { garbage: u8 },
    /// Zeros; but outputs that may overwrite an input are that input.
    #[cfg_attr(not(any(test, feature = "testkit")), allow(dead_code))] // for tests
    InPlace,
}

/// As [`execute`], in memory of this kind.
pub(crate) fn execute_in(
    planned: &Planned,
    outputs: &[ValueSpec],
    data: &[Tensor],
    par: &Par,
    memory: Memory,
) -> Result<Vec<Tensor>, RunError> {
    let leaves: Vec<&ValueSpec> = outputs.iter().flat_map(ValueSpec::leaves).collect();
    let specs: Vec<TensorSpec> = data.iter().map(Tensor::spec).collect();
    let garbage = if let Memory::Apart { garbage } = memory { garbage } else { 0 };
    let mut overwritten = vec![false; data.len()];
    let mut fixed = Vec::with_capacity(leaves.len());
    for (i, leaf) in leaves.iter().enumerate() {
        let ValueSpec::Tensor(t) = leaf else {
            fixed.push(None);
            continue;
        };
        let mut tensor = Tensor::zeros(t.spec.dtype, t.spec.shape.clone())?;
        match (memory, planned.alias.get(i)) {
            (Memory::InPlace, Some(&Alias::InPlace { input })) if input < data.len() => {
                tensor.as_mut_bytes()?.copy_from_slice(data[input].as_bytes());
                overwritten[input] = true;
            }
            _ if garbage != 0 => tensor.as_mut_bytes()?.fill(garbage),
            _ => {}
        }
        fixed.push(Some(tensor));
    }
    let mut dynamic: Vec<Option<Tensor>> = vec![None; leaves.len()];
    if let Some(kernel) = &planned.kernel {
        let mut scratch = AlignedBuf::zeroed(planned.scratch)?;
        scratch.as_mut_bytes().fill(garbage);
        let inputs = data.iter().zip(&specs).zip(&overwritten).map(|((t, spec), &overwritten)| {
            Input { spec, bytes: (!overwritten).then(|| t.as_bytes()) }
        });
        let mut slots = Outputs(Default::default());
        for ((leaf, tensor), slot) in leaves.iter().zip(&mut fixed).zip(&mut dynamic) {
            slots.0.push(Some(match (leaf, tensor) {
                (ValueSpec::Tensor(t), Some(tensor)) => {
                    Output::Fixed { spec: &t.spec, bytes: tensor.as_mut_bytes()? }
                }
                (ValueSpec::Dynamic { dtype }, _) => Output::Dynamic { dtype: *dtype, slot },
                _ => return Err(RunError::Internal("a list is not a leaf".into())),
            }));
        }
        let mut cx = RunCx {
            inputs: Inputs(inputs.collect()),
            outputs: slots,
            scratch: scratch.as_mut_bytes(),
            par,
        };
        kernel.run(&mut cx)?;
        drop(cx);
        stop::check()?; // what was left out is no result
    }
    let mut results = Vec::with_capacity(leaves.len());
    for (i, (leaf, tensor)) in leaves.iter().zip(fixed).enumerate() {
        let known = leaf.as_tensor().and_then(|t| t.known.clone());
        results.push(match (planned.alias.get(i), known) {
            (_, Some(known)) => known,
            (Some(&Alias::View { input, offset }), None) => {
                let source =
                    data.get(input).ok_or_else(|| RunError::Internal("view of no input".into()))?;
                view(source, offset, leaf)?
            }
            _ => tensor
                .or_else(|| dynamic.get_mut(i).and_then(Option::take))
                .ok_or_else(|| RunError::Internal(format!("the kernel did not emit output {i}")))?,
        });
    }
    Ok(results)
}

/// A copy of the part of `source` that `leaf` views.
fn view(source: &Tensor, offset: usize, leaf: &ValueSpec) -> Result<Tensor, RunError> {
    let outside = || RunError::Internal("a view lies outside its input".into());
    let spec = &leaf.as_tensor().ok_or_else(outside)?.spec;
    let bytes = spec.storage_bytes()?;
    let start = offset.checked_mul(spec.dtype.size_of()).ok_or_else(outside)?;
    let end = start.checked_add(bytes).ok_or_else(outside)?;
    let part = source.as_bytes().get(start..end).ok_or_else(outside)?;
    let tensor: Result<Tensor, TensorError> =
        Tensor::from_bytes(spec.dtype, spec.shape.clone(), part);
    Ok(tensor?)
}

//! Late steps: operators whose inputs' shapes or values depend on data. They are inferred, planned
//! and run on the spot, with tensors of their own; everything else stays in the arena.

use crate::plan::Source;
use crate::plan::infer;
use crate::plan::net::Action;
use plutino_kernels::Par;
use plutino_ops::{
    Operator, PackCache, PlanCx, PlanError, Planned, RunError, Setting, ShapeError, ValueSpec,
    eager,
};
use plutino_tensor::Tensor;

/// A step that is planned while running.
pub(crate) struct LateStep {
    pub(crate) action: Action,
    pub(crate) inputs: Vec<LateInput>,
    /// Slots that the outputs go to.
    pub(crate) outputs: Vec<usize>,
    /// What the inputs are called.
    pub(crate) input_names: Vec<String>,
    /// What the outputs are called.
    pub(crate) output_names: Vec<String>,
}

/// An input of a late step.
pub(crate) enum LateInput {
    /// What another late step made.
    Slot(usize),
    /// A value of the plan: its spec and where its leaves are. Some may be on the heap.
    Planned { spec: ValueSpec, leaves: Vec<(plutino_tensor::TensorSpec, Source)> },
}

/// A value that became known while running.
#[derive(Debug, Clone)]
pub(crate) struct LateValue {
    /// What it is: without anything dynamic in it.
    pub(crate) spec: ValueSpec,
    /// Its leaves, in order.
    pub(crate) leaves: Vec<Tensor>,
}

impl LateValue {
    /// A value of these leaves; where `spec` says that a shape depends on data, the leaf says which
    /// it became.
    pub(crate) fn new(mut spec: ValueSpec, leaves: Vec<Tensor>) -> Self {
        fn settle<'a>(spec: &mut ValueSpec, leaves: &mut impl Iterator<Item = &'a Tensor>) {
            match spec {
                ValueSpec::List(members) => members.iter_mut().for_each(|m| settle(m, leaves)),
                ValueSpec::Dynamic { .. } => {
                    if let Some(tensor) = leaves.next() {
                        *spec = tensor.spec().into();
                    }
                }
                ValueSpec::Tensor(_) => {
                    leaves.next();
                }
                ValueSpec::Word(_) => {}
            }
        }
        settle(&mut spec, &mut leaves.iter());
        Self { spec, leaves }
    }

    /// The same, with the value itself as known as its leaves are.
    fn known(&self) -> ValueSpec {
        fn fill<'a>(spec: &mut ValueSpec, leaves: &mut impl Iterator<Item = &'a Tensor>) {
            match spec {
                ValueSpec::List(members) => members.iter_mut().for_each(|m| fill(m, leaves)),
                ValueSpec::Tensor(t) => t.known = leaves.next().cloned(),
                ValueSpec::Dynamic { .. } | ValueSpec::Word(_) => {}
            }
        }
        let mut spec = self.spec.clone();
        fill(&mut spec, &mut self.leaves.iter());
        spec
    }
}

/// What went wrong in a late step.
pub(crate) enum LateError {
    Plan(PlanError),
    Run(RunError),
}

impl From<PlanError> for LateError {
    fn from(e: PlanError) -> Self {
        Self::Plan(e)
    }
}

impl From<ShapeError> for LateError {
    fn from(e: ShapeError) -> Self {
        Self::Plan(e.into())
    }
}

impl From<RunError> for LateError {
    fn from(e: RunError) -> Self {
        Self::Run(e)
    }
}

/// Runs a late step; returns its outputs.
pub(crate) fn run(
    step: &LateStep,
    inputs: Vec<LateValue>,
    setting: Setting,
    packs: &PackCache,
    par: &Par,
) -> Result<Vec<LateValue>, LateError> {
    let mut specs: Vec<ValueSpec> = inputs.iter().map(|i| i.spec.clone()).collect();
    let (specs, data, results) = match &step.action {
        Action::Operator(op) => {
            let outputs = infer_known(op.as_ref(), &mut specs, &inputs)?;
            infer::check_sizes(&outputs)?;
            let data: Vec<Tensor> = inputs.into_iter().flat_map(|i| i.leaves).collect();
            let cx = PlanCx { inputs: &specs, outputs: &outputs, setting, packs };
            let planned = Planned::of(op.as_ref(), &cx, &[])?;
            let results = eager::execute(&planned, &outputs, &data, par)?;
            (outputs, data, results)
        }
        action => {
            let outputs = infer::structure(action, &specs, step.outputs.len())?;
            let results = inputs.into_iter().flat_map(|i| i.leaves).collect();
            (outputs, Vec::new(), results)
        }
    };
    drop(data);
    if specs.len() != step.outputs.len() {
        let what = format!(
            "the operator makes {} output(s), the file names {}",
            specs.len(),
            step.outputs.len()
        );
        return Err(ShapeError::Invalid(what).into());
    }
    let mut results = results.into_iter();
    let take = |spec: ValueSpec| {
        let leaves = results.by_ref().take(spec.leaf_count()).collect();
        LateValue::new(spec, leaves)
    };
    Ok(specs.into_iter().map(take).collect())
}

/// Infers; where the operator asks for the value of an input, it is told.
fn infer_known(
    op: &dyn Operator,
    specs: &mut [ValueSpec],
    inputs: &[LateValue],
) -> Result<Vec<ValueSpec>, ShapeError> {
    let mut told = vec![false; specs.len()];
    loop {
        match op.infer(specs) {
            Err(ShapeError::NotKnown { input, .. })
                if told.get(input).is_some_and(|&already| !already) =>
            {
                told[input] = true;
                specs[input] = inputs[input].known();
            }
            result => return result,
        }
    }
}

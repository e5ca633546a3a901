//! Operators with several results, each of them computed by an operator of its own from the same
//! inputs: the mean beside the variance.

use super::steps::{Composed, Composite};
use crate::{
    ExpandedStep, Expansion, Operator, PlanCx, PlanError, Planned, ShapeError, StepValue,
    TensorValue, ValueSpec,
};
use plutino_tensor::DType;
use std::sync::Arc;

/// The parts, by their results.
#[derive(Debug)]
struct Several {
    name: &'static str,
    parts: Vec<Arc<dyn Operator>>,
    /// Whether the results are members of a list.
    listed: bool,
}

/// An operator whose results are those of `parts`, each of which has one and reads the inputs of
/// the whole.
pub(crate) fn several(name: &'static str, parts: Vec<Box<dyn Operator>>) -> Box<dyn Operator> {
    let parts = parts.into_iter().map(Arc::from).collect();
    Box::new(Composite(Several { name, parts, listed: false }))
}

/// What the list of the results of such parts consists of for these inputs.
///
/// # Errors
/// None.
pub(crate) fn list_of(
    name: &'static str,
    parts: Vec<Box<dyn Operator>>,
    inputs: &[ValueSpec],
) -> Result<Expansion, ShapeError> {
    let parts = parts.into_iter().map(Arc::from).collect();
    Several { name, parts, listed: true }.expansion(inputs)
}

impl Composed for Several {
    fn name(&self) -> &str {
        self.name
    }

    fn expansion(&self, inputs: &[ValueSpec]) -> Result<Expansion, ShapeError> {
        let step = |(i, part): (usize, &Arc<dyn Operator>)| ExpandedStep {
            kind: self.name.to_owned(),
            name: i.to_string(),
            operator: Arc::clone(part),
            inputs: (0..inputs.len()).map(StepValue::Input).collect(),
        };
        let steps: Vec<_> = self.parts.iter().enumerate().map(step).collect();
        let outputs = (0..steps.len()).map(|step| StepValue::Step(step, 0)).collect();
        Ok(Expansion { steps, outputs, listed: self.listed })
    }
}

/// An operator that computes `next` of what `first` makes of its inputs.
#[derive(Debug)]
struct Chain {
    name: &'static str,
    first: Arc<dyn Operator>,
    next: Arc<dyn Operator>,
}

/// `next`, an operator of one tensor, of the result of `first`.
pub(crate) fn chain(
    name: &'static str,
    first: Box<dyn Operator>,
    next: Box<dyn Operator>,
) -> Box<dyn Operator> {
    Box::new(Composite(Chain { name, first: first.into(), next: next.into() }))
}

impl Composed for Chain {
    fn name(&self) -> &str {
        self.name
    }

    fn expansion(&self, inputs: &[ValueSpec]) -> Result<Expansion, ShapeError> {
        let step = |name: &str, operator: &Arc<dyn Operator>, inputs| ExpandedStep {
            kind: self.name.to_owned(),
            name: name.to_owned(),
            operator: Arc::clone(operator),
            inputs,
        };
        let all = (0..inputs.len()).map(StepValue::Input).collect();
        let next = step("next", &self.next, vec![StepValue::Step(0, 0)]);
        let steps = vec![step("first", &self.first, all), next];
        Ok(Expansion { steps, outputs: vec![StepValue::Step(1, 0)], listed: false })
    }
}

/// A result without elements, of an input's dtype or this one.
#[derive(Debug)]
pub(crate) struct Nothing {
    pub(crate) input: usize,
    pub(crate) dtype: Option<DType>,
}

impl Operator for Nothing {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let dtype = TensorValue::at(inputs, self.input)?.dtype();
        Ok(vec![ValueSpec::tensor(self.dtype.unwrap_or(dtype), [0])])
    }

    fn plan(&self, _: &PlanCx<'_>) -> Result<Planned, PlanError> {
        Ok(Planned::views(Vec::new()))
    }
}

//! Operators that are others: what they consist of for given inputs.

use super::{Operator, ShapeError, ValueSpec};
use std::sync::Arc;

/// Operators that compute, one after the other, what one operator stands for.
#[derive(Debug)]
pub struct Expansion {
    /// In execution order.
    pub steps: Vec<ExpandedStep>,
    /// The outputs of the whole.
    pub outputs: Vec<StepValue>,
    /// Whether these are members of a list, which is the only output.
    pub listed: bool,
}

/// One of the operators that another one consists of.
#[derive(Debug)]
pub struct ExpandedStep {
    /// Its type, such as `F.linear`.
    pub kind: String,
    /// A name of its own within the expansion.
    pub name: String,
    /// What it computes.
    pub operator: Arc<dyn Operator>,
    /// Where its inputs come from.
    pub inputs: Vec<StepValue>,
}

/// A value within an expansion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepValue {
    /// An input of the whole.
    Input(usize),
    /// A leaf of an input of the whole that is a list.
    Member(usize, usize),
    /// An output of a step.
    Step(usize, usize),
}

impl Expansion {
    /// What the steps make of these inputs of the whole.
    ///
    /// # Errors
    /// Where a step refuses its inputs, or reads what does not exist.
    pub fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<Vec<ValueSpec>>, ShapeError> {
        let mut made: Vec<Vec<ValueSpec>> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let specs = specs(&step.inputs, inputs, &made)?;
            made.push(step.operator.infer(&specs)?);
        }
        Ok(made)
    }

    /// What the outputs of the whole are, where the steps make this of these inputs.
    ///
    /// # Errors
    /// Where an output does not exist.
    pub(crate) fn results(
        &self,
        inputs: &[ValueSpec],
        made: &[Vec<ValueSpec>],
    ) -> Result<Vec<ValueSpec>, ShapeError> {
        let results = specs(&self.outputs, inputs, made)?;
        Ok(if self.listed { vec![ValueSpec::List(results)] } else { results })
    }
}

/// What is known of these values.
///
/// # Errors
/// Where one does not exist.
pub(crate) fn specs(
    values: &[StepValue],
    inputs: &[ValueSpec],
    made: &[Vec<ValueSpec>],
) -> Result<Vec<ValueSpec>, ShapeError> {
    let spec = |value: &StepValue| match *value {
        StepValue::Input(i) => inputs.get(i).cloned(),
        StepValue::Member(i, m) => inputs.get(i)?.leaves().get(m).copied().cloned(),
        StepValue::Step(step, output) => made.get(step)?.get(output).cloned(),
    };
    let missing = || ShapeError::Invalid("internal: a step reads what nobody made".into());
    values.iter().map(|value| spec(value).ok_or_else(missing)).collect()
}

//! Where a run differs from what it should be: value by value, in the order of the run.
//!
//! A [`Reference`] holds what values should be, by the names of operands: PyTorch's, or those of
//! another session. [`Session::compare`] runs the plan as it is and looks at every value that
//! exists in it; [`Session::isolate`] runs each operator alone, on the reference's inputs, so that
//! an operator that is wrong is told from one that inherits. [`Session::blame_passes`] finds the
//! pass that is to blame.
//!
//! # How far a value may lie off
//!
//! Two programs that sum the same numbers in another order differ. A value passes where its largest
//! error is at most `tolerance * s`, with `s` the largest finite magnitude of the expected tensor.
//! Alone, an operator is allowed
//!
//! ```text
//! own = 4 r + 8 u sqrt(k + 16)
//! ```
//!
//! - `k` is the number of operations behind one element of its outputs: its arithmetic
//!   ([`Cost`](plutino_ops::Cost)) divided by the elements of its outputs, so that a sum of n
//!   products has 2n; 1024 where shapes depend on data, and nothing is known of the cost before the
//!   run.
//! - `u` is the unit roundoff that is computed with: 2^-24 for f32, bf16 and f16, 2^-53 for f64.
//!   Roundings are independent, so that errors of a sum grow with the square root of its length.
//!   The sum on top of k stands for functions such as `exp`, whose last bits libraries differ in,
//!   and the factor 8 is the largest of a million normally distributed errors (5 deviations) of two
//!   programs (times the square root of 2).
//! - `r` is the unit roundoff of bf16 (2^-8) or f16 (2^-11) where the result is stored so, and 0
//!   otherwise: two roundings by either program. Where the precision lets numbers of f32 become
//!   bf16 while they are multiplied, or in memory, it is that of bf16, or of two terms, for all of
//!   them.
//!
//! In a whole run errors are inherited: the tolerance of a value is the root of the sum of `own`
//! squared and the largest tolerance of an input squared. Integers and booleans must be equal.
//! Whoever knows better gives [`CompareOptions::tolerance`].

mod blame;
mod finite;
mod isolate;
mod measure;
mod outline;
mod walk;

#[cfg(test)]
mod tests;

pub use blame::PassBlame;
pub use finite::{FiniteReport, Origin, Seed};
pub use measure::ValueError;
pub(crate) use outline::is_random;

use crate::{Model, SessionError};
use plutino_ir::OperandId;
use plutino_ops::Location;
use plutino_tensor::Tensor;
use std::collections::{HashMap, HashSet};

#[cfg(doc)]
use crate::Session;

/// What values should be: arrays by the names of operands. The members of a list or tuple are
/// numbered: `7.0`, `7.1`.
#[derive(Debug, Clone, Default)]
pub struct Reference {
    arrays: HashMap<String, Tensor>,
}

impl Reference {
    /// A reference of these arrays. Of two of the same name the last counts.
    pub fn new(arrays: impl IntoIterator<Item = (String, Tensor)>) -> Self {
        Self { arrays: arrays.into_iter().collect() }
    }

    /// What an operand should be.
    pub fn get(&self, operand: &str) -> Option<&Tensor> {
        self.arrays.get(operand)
    }

    /// The same with these arrays for the inputs of a model, in its order.
    #[must_use]
    pub fn with_inputs(mut self, model: &Model, inputs: &[Tensor]) -> Self {
        let names = model.inputs().iter().map(|input| input.name.clone());
        self.arrays.extend(names.zip(inputs.iter().cloned()));
        self
    }

    /// Number of arrays.
    pub fn len(&self) -> usize {
        self.arrays.len()
    }

    /// Whether there is nothing to compare with.
    pub fn is_empty(&self) -> bool {
        self.arrays.is_empty()
    }

    /// The inputs of a model, in its order: arrays called as their operand, as their `pnnx.Input`
    /// operator, or `in0`, `in1` and so on.
    ///
    /// # Errors
    /// Where one is missing.
    pub fn inputs(&self, model: &Model) -> Result<Vec<Tensor>, SessionError> {
        let each = model.inputs().iter().enumerate().map(|(i, input)| {
            let names = [input.name.clone(), input.operator.clone(), format!("in{i}")];
            let found = names.iter().find_map(|name| self.get(name));
            found.cloned().ok_or_else(|| SessionError::NoReference { name: input.name.clone() })
        });
        each.collect()
    }

    /// The same arrays under the names that the operands at the same places of another model have;
    /// none where the two graphs are not the same but for names.
    ///
    /// What `from` calls `a`, `to` calls as it calls the output at the same place.
    #[must_use]
    pub fn renamed(&self, from: &Model, to: &Model) -> Option<Self> {
        let outputs = |model: &Model| -> Vec<(String, Vec<String>)> {
            let graph = model.graph();
            let name = |&id: &_| graph.operand(id).map(|o| o.name.clone()).unwrap_or_default();
            let operators = graph.operators();
            operators
                .map(|(_, op)| (op.kind.clone(), op.outputs.iter().map(name).collect()))
                .collect()
        };
        let (from, to) = (outputs(from), outputs(to));
        let alike =
            |((a, x), (b, y)): (&(String, Vec<_>), &(String, Vec<_>))| a == b && x.len() == y.len();
        if from.len() != to.len() || !from.iter().zip(&to).all(alike) {
            return None;
        }
        let pairs = from.into_iter().zip(to).flat_map(|((_, x), (_, y))| x.into_iter().zip(y));
        let names: HashMap<String, String> = pairs.collect();
        let arrays = self.arrays.iter().filter_map(|(name, tensor)| {
            let (operand, member) = match names.contains_key(name) {
                true => (name.as_str(), None),
                false => name.rsplit_once('.').map(|(operand, m)| (operand, Some(m)))?,
            };
            let renamed = names.get(operand)?;
            let renamed = member.map_or_else(|| renamed.clone(), |m| format!("{renamed}.{m}"));
            Some((renamed, tensor.clone()))
        });
        Some(Self { arrays: arrays.collect() })
    }
}

/// How values are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct CompareOptions {
    /// The largest error allowed, relative to the largest magnitude of the expected tensor; none:
    /// what follows from dtypes and the length of sums, see [the module](self).
    pub tolerance: Option<f64>,
}

impl CompareOptions {
    /// Allows errors of so much, relative to the largest magnitude of the expected tensor.
    #[must_use]
    pub fn with_tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = Some(tolerance);
        self
    }
}

/// How a value compares.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Within its tolerance.
    Match,
    /// Outside of its tolerance.
    Differs,
    /// Another dtype or shape: what is expected, and what there is.
    Spec(String),
    /// The operator could not be run on the reference's inputs: why.
    Failed(String),
    /// Nothing to compare: why.
    Skipped(String),
}

impl Verdict {
    /// Whether something is wrong.
    pub fn is_wrong(&self) -> bool {
        matches!(self, Self::Differs | Self::Spec(_) | Self::Failed(_))
    }
}

/// One value, compared with the reference.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ValueComparison {
    /// Name of the operand; members of a list are numbered (`7.0`).
    pub operand: String,
    /// The operator that made it, or the last one of those that were fused.
    pub location: Location,
    /// The algorithm; empty for a view, and for what was computed while planning.
    pub kernel: String,
    /// Operators that were fused with it, by name.
    pub absorbed: Vec<String>,
    /// Names and specs of what it was computed from.
    pub inputs: Vec<String>,
    /// Dtype and shape.
    pub spec: String,
    /// How it compares.
    pub verdict: Verdict,
    /// What was measured, where dtypes and shapes allow it.
    pub error: Option<ValueError>,
}

/// A run, or operators one by one, compared with a reference.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct CompareReport {
    /// The values that were compared, in the order of the run.
    pub values: Vec<ValueComparison>,
    /// Operands that the reference knows and that were not seen: fused with what follows, or
    /// computed while planning.
    pub unseen: Vec<String>,
}

impl CompareReport {
    /// The first value that is wrong.
    pub fn first(&self) -> Option<&ValueComparison> {
        self.wrong().next()
    }

    /// Operands that may have made the first wrong value what it is: itself, and those above it
    /// that were not seen. [`Session::isolate`] tells which of them is wrong.
    pub fn suspects<'m>(&self, model: &'m Model) -> Vec<&'m str> {
        let Some(first) = self.first() else { return Vec::new() };
        let graph = model.graph();
        let list = || first.operand.rsplit_once('.').and_then(|(n, _)| graph.operand_by_name(n));
        let mut stack: Vec<OperandId> =
            graph.operand_by_name(&first.operand).or_else(list).into_iter().collect();
        let mut met: HashSet<OperandId> = stack.iter().copied().collect();
        let mut names = Vec::new();
        let seen = |name: &str| self.values.iter().any(|value| value.operand == name);
        while let Some(id) = stack.pop() {
            let Some(operand) = graph.operand(id) else { continue };
            names.push(operand.name.as_str());
            let above = operand.producer.and_then(|id| graph.operator(id));
            for &id in above.into_iter().flat_map(|op| &op.inputs) {
                let hidden = graph.operand(id).is_some_and(|operand| !seen(&operand.name));
                if hidden && met.insert(id) {
                    stack.push(id);
                }
            }
        }
        names
    }

    /// The values that are wrong, in the order of the run.
    pub fn wrong(&self) -> impl Iterator<Item = &ValueComparison> {
        self.values.iter().filter(|value| value.verdict.is_wrong())
    }
}

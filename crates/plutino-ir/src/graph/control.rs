//! Order without data: operators that come after others of which they read nothing.

use std::fmt;

use super::error::EditError;
use super::{Graph, OperatorId};
use crate::quote::quote;

/// Why an operator cannot come after another one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlProblem {
    /// There is no operator of that name.
    Unknown {
        /// The operator that makes the operand of that name, where there is one.
        producer: Option<String>,
    },
    /// It is the same one.
    Itself,
    /// `pnnx.Output` is where a run ends: nothing comes after it.
    AfterOutput,
    /// `pnnx.Input` is where a run begins: it comes after nothing.
    Input,
}

impl fmt::Display for ControlProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { producer: None } => f.write_str("there is no operator of that name"),
            Self::Unknown { producer: Some(name) } => write!(
                f,
                "that is an operand; '{0}' makes it: write ^{0}=after",
                quote(name)
            ),
            Self::Itself => f.write_str("it is the same operator"),
            Self::AfterOutput => f.write_str(
                "a pnnx.Output is where a run ends; it may come after others, and nothing after it",
            ),
            Self::Input => f.write_str(
                "a pnnx.Input is where a run begins; others may come after it, and it after nothing",
            ),
        }
    }
}

impl Graph {
    /// Lets `later` come after `earlier`, whether or not it reads what that makes: it begins when
    /// `earlier` is over. Whoever needs `later` needs `earlier` as well. Nothing changes where that
    /// was said before. A `pnnx.Output` that comes after an operator makes it a part of every run
    /// for the outputs of the model.
    ///
    /// A cycle is found by [`Graph::validate`], as one of operands is.
    ///
    /// # Errors
    /// If one of them is not in the graph, they are the same, `earlier` is a `pnnx.Output` or
    /// `later` a `pnnx.Input`.
    pub fn add_control(&mut self, earlier: OperatorId, later: OperatorId) -> Result<(), EditError> {
        let name = |id| self.operator(id).map(|op| op.name.clone());
        let names = [earlier, later].map(|id| name(id).ok_or(EditError::NoSuchOperator(id)));
        let [first, second] = names;
        let (earlier_name, later_name) = (first?, second?);
        if let Some(problem) = self.control_problem(earlier, later) {
            let (later, earlier) = (later_name, earlier_name);
            return Err(EditError::Control { later, earlier, problem });
        }
        if self.operator(later).is_some_and(|operator| !operator.after.contains(&earlier)) {
            self.link(earlier, later);
        }
        Ok(())
    }

    /// Notes at both that one operator comes after another one, which was not said before.
    pub(crate) fn link(&mut self, earlier: OperatorId, later: OperatorId) {
        if let Some(operator) = self.operator_mut(later) {
            operator.after.push(earlier);
        }
        if let Some(operator) = self.operator_mut(earlier) {
            operator.followers.push(later);
        }
    }

    /// The operator of this name, for [`Graph::add_control`].
    ///
    /// # Errors
    /// If there is none; where an operand has the name, the operator that makes it is named.
    pub fn named(&self, name: &str) -> Result<OperatorId, EditError> {
        self.operator_by_name(name).ok_or_else(|| EditError::NoOperatorNamed {
            name: name.to_owned(),
            problem: self.no_such_operator(name),
        })
    }

    /// Lets `later` begin whenever its inputs are there, as far as `earlier` goes. Whether that was
    /// otherwise before.
    ///
    /// # Errors
    /// If `later` is not in the graph.
    pub fn remove_control(
        &mut self,
        earlier: OperatorId,
        later: OperatorId,
    ) -> Result<bool, EditError> {
        let operator = self.operator_mut(later).ok_or(EditError::NoSuchOperator(later))?;
        let before = operator.after.len();
        operator.after.retain(|&id| id != earlier);
        let changed = before > operator.after.len();
        if let Some(operator) = self.operator_mut(earlier) {
            operator.followers.retain(|&id| id != later);
        }
        Ok(changed)
    }

    /// All pairs of operators of which the second comes after the first without reading from it,
    /// in the file order of the second.
    pub fn controls(&self) -> impl Iterator<Item = (OperatorId, OperatorId)> + '_ {
        self.operators().flat_map(|(id, operator)| operator.after.iter().map(move |&e| (e, id)))
    }

    /// Where a run begins: operators that read nothing and come after nothing, in file order.
    pub fn sources(&self) -> impl Iterator<Item = (OperatorId, &super::Operator)> + '_ {
        self.operators().filter(|(_, op)| op.inputs.is_empty() && op.after.is_empty())
    }

    /// Where a run ends: operators of which nobody reads anything and after which nothing comes, in
    /// file order. Of these a run for the outputs of the model needs those of type `pnnx.Output`,
    /// and whatever they read or come after.
    pub fn sinks(&self) -> impl Iterator<Item = (OperatorId, &super::Operator)> + '_ {
        self.operators().filter(|(_, operator)| {
            let mut made = operator.outputs.iter().filter_map(|&output| self.operand(output));
            operator.followers.is_empty() && made.all(|operand| operand.consumers.is_empty())
        })
    }

    /// Names of operators, in order.
    pub(super) fn names_of<'a>(&'a self, ids: &'a [OperatorId]) -> impl Iterator<Item = &'a str> {
        ids.iter().filter_map(|&id| Some(self.operator(id)?.name.as_str()))
    }

    /// Why one operator of the graph cannot come after another one, beside cycles.
    pub(crate) fn control_problem(
        &self,
        earlier: OperatorId,
        later: OperatorId,
    ) -> Option<ControlProblem> {
        let is = |id: OperatorId, kind: &str| self.operator(id).is_some_and(|op| op.kind == kind);
        if earlier == later {
            Some(ControlProblem::Itself)
        } else if is(earlier, "pnnx.Output") {
            Some(ControlProblem::AfterOutput)
        } else if is(later, "pnnx.Input") {
            Some(ControlProblem::Input)
        } else {
            None
        }
    }

    /// What to say of a name that no operator has.
    pub(crate) fn no_such_operator(&self, name: &str) -> ControlProblem {
        let producer = self.operand_by_name(name).and_then(|id| self.operand(id)?.producer);
        let producer = producer.and_then(|id| Some(self.operator(id)?.name.clone()));
        ControlProblem::Unknown { producer }
    }

    /// Before an operator goes: who was to come after it comes after those that it came after or
    /// read from, but for inputs and constants, which are there when a run begins.
    pub(super) fn hand_on_control(&mut self, id: OperatorId) {
        let Some(operator) = self.operator_mut(id) else { return };
        let followers = std::mem::take(&mut operator.followers);
        let after = operator.after.clone();
        for &earlier in &after {
            if let Some(operator) = self.operator_mut(earlier) {
                operator.followers.retain(|&follower| follower != id);
            }
        }
        let Some(operator) = self.operator(id).filter(|_| !followers.is_empty()) else { return };
        let made = operator.inputs.iter().filter_map(|&input| self.operand(input)?.producer);
        let waits = |id: &OperatorId| {
            let kind = self.operator(*id).map(|operator| operator.kind.as_str());
            !matches!(kind, None | Some("pnnx.Input" | "pnnx.Attribute"))
        };
        let before: Vec<OperatorId> = after.into_iter().chain(made.filter(waits)).collect();
        for follower in followers {
            let Some(operator) = self.operator_mut(follower) else { continue };
            operator.after.retain(|&earlier| earlier != id);
            for &earlier in before.iter().filter(|&&earlier| earlier != follower) {
                if self.operator(follower).is_some_and(|op| !op.after.contains(&earlier)) {
                    self.link(earlier, follower);
                }
            }
        }
    }
}

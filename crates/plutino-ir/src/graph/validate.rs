//! The invariants of a graph, checked.

use std::collections::{BTreeMap, HashMap};

use thiserror::Error;

use crate::quote::quote;

use super::{ControlProblem, Graph, OperandId, OperatorId};
use crate::topo::{self, CycleError};

/// What is wrong with a graph.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidGraph {
    /// An operator reads or makes an operand, or comes after an operator, that is not in the graph.
    #[error("operator '{operator}' refers to an operand or operator that was removed", operator = quote(operator))]
    Dangling {
        /// Name of the operator.
        operator: String,
    },
    /// Nobody makes the operand.
    #[error("operand '{operand}' has no producer", operand = quote(operand))]
    NoProducer {
        /// Name of the operand.
        operand: String,
    },
    /// Operand and operators disagree about who makes or reads it.
    #[error("operand '{operand}' and its operators disagree about who makes and reads it", operand = quote(operand))]
    Inconsistent {
        /// Name of the operand.
        operand: String,
    },
    /// An operator cannot come after another one.
    #[error("operator '{later}' cannot come after '{earlier}': {problem}", later = quote(later), earlier = quote(earlier))]
    Control {
        /// Name of the operator that would wait.
        later: String,
        /// Name of the operator that it would wait for.
        earlier: String,
        /// Why not.
        problem: ControlProblem,
    },
    /// Input names and inputs differ in number.
    #[error("operator '{operator}' has {inputs} inputs but {names} input names", operator = quote(operator))]
    InputNames {
        /// Name of the operator.
        operator: String,
        /// Number of inputs.
        inputs: usize,
        /// Number of input names.
        names: usize,
    },
    /// Operators wait for each other.
    #[error(transparent)]
    Cycle(#[from] CycleError),
    /// Two weights would share one entry of the `.bin` file: operator `a` with weight `b.c`, and
    /// operator `a.b` with weight `c`.
    #[error("operators '{first}' and '{second}' both have a weight stored as '{entry}'", first = quote(first), second = quote(second), entry = quote(entry))]
    SharedEntry {
        /// Name of the entry.
        entry: String,
        /// Name of one operator.
        first: String,
        /// Name of the other operator.
        second: String,
    },
}

impl Graph {
    /// Checks that every operand has one producer, that operands and operators agree about every
    /// connection, that there is no cycle, and that every weight has an entry of its own.
    ///
    /// A graph that was read is valid, and every edit keeps connections in agreement; what edits
    /// can leave behind are operands without producer, cycles and shared entries.
    ///
    /// # Errors
    /// The first fault found.
    pub fn validate(&self) -> Result<(), InvalidGraph> {
        self.validate_connections()?;
        topo::kahn(self)?;
        self.entries().map(drop)
    }

    fn validate_connections(&self) -> Result<(), InvalidGraph> {
        let mut uses: BTreeMap<(OperandId, OperatorId), isize> = BTreeMap::new();
        let mut makers: HashMap<OperandId, OperatorId> = HashMap::new();
        for (id, operator) in self.operators() {
            if operator.input_names.len() != operator.inputs.len() {
                return Err(InvalidGraph::InputNames {
                    operator: operator.name.clone(),
                    inputs: operator.inputs.len(),
                    names: operator.input_names.len(),
                });
            }
            let dangling = || InvalidGraph::Dangling { operator: operator.name.clone() };
            for &input in &operator.inputs {
                self.operand(input).ok_or_else(dangling)?;
                *uses.entry((input, id)).or_default() += 1;
            }
            for &earlier in &operator.after {
                let name = self.operator(earlier).ok_or_else(dangling)?.name.clone();
                if let Some(problem) = self.control_problem(earlier, id) {
                    let later = operator.name.clone();
                    return Err(InvalidGraph::Control { later, earlier: name, problem });
                }
            }
            for &output in &operator.outputs {
                let operand = self.operand(output).ok_or_else(dangling)?;
                if operand.producer != Some(id) || makers.insert(output, id).is_some() {
                    return Err(InvalidGraph::Inconsistent { operand: operand.name.clone() });
                }
            }
        }
        for (id, operand) in self.operands() {
            let producer = operand
                .producer
                .ok_or_else(|| InvalidGraph::NoProducer { operand: operand.name.clone() })?;
            for &consumer in &operand.consumers {
                *uses.entry((id, consumer)).or_default() -= 1;
            }
            if makers.get(&id) != Some(&producer) {
                return Err(InvalidGraph::Inconsistent { operand: operand.name.clone() });
            }
        }
        match uses.into_iter().find(|&(_, balance)| balance != 0) {
            None => Ok(()),
            Some(((operand, _), _)) => Err(InvalidGraph::Inconsistent {
                operand: self.operand_name(operand).unwrap_or_default().to_owned(),
            }),
        }
    }

    /// Entry of the `.bin` file -> operator and name of the weight.
    pub(crate) fn entries(&self) -> Result<HashMap<String, (OperatorId, &str)>, InvalidGraph> {
        let mut entries: HashMap<String, (OperatorId, &str)> = HashMap::new();
        for (id, operator) in self.operators() {
            for weight in operator.attrs.keys() {
                let entry = entry_name(&operator.name, weight);
                if let Some((other, _)) = entries.insert(entry.clone(), (id, weight)) {
                    let first =
                        self.operator(other).map(|other| other.name.clone()).unwrap_or_default();
                    return Err(InvalidGraph::SharedEntry {
                        entry,
                        first,
                        second: operator.name.clone(),
                    });
                }
            }
        }
        Ok(entries)
    }
}

/// Name of a weight's entry in the `.bin` file.
pub(crate) fn entry_name(operator: &str, weight: &str) -> String {
    format!("{operator}.{weight}")
}

//! What an edit can do wrong.

use thiserror::Error;

use crate::quote::quote;

use super::{ControlProblem, OperandId, OperatorId};

/// An edit that would break the graph.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EditError {
    /// A name or kind that the file format cannot hold.
    #[error("'{name}' cannot be written to a .param file as {what}: {why}", name = quote(name))]
    InvalidName {
        /// What was to be named, for example `an operator's name`.
        what: &'static str,
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The name is taken by another operator.
    #[error("there is already an operator named '{name}'", name = quote(name))]
    DuplicateOperator {
        /// The name.
        name: String,
    },
    /// The name is taken by another operand.
    #[error("there is already an operand named '{name}'", name = quote(name))]
    DuplicateOperand {
        /// The name.
        name: String,
    },
    /// The id belongs to a removed operator, or to another graph.
    #[error("no operator {0:?} in this graph")]
    NoSuchOperator(OperatorId),
    /// The id belongs to a removed operand, or to another graph.
    #[error("no operand {0:?} in this graph")]
    NoSuchOperand(OperandId),
    /// The operator has fewer inputs.
    #[error("operator '{operator}' has {count} inputs, so none at index {index}", operator = quote(operator))]
    NoSuchInput {
        /// Name of the operator.
        operator: String,
        /// The index asked for.
        index: usize,
        /// Number of inputs.
        count: usize,
    },
    /// An operand has one producer at most.
    #[error("operand '{operand}' is already made by '{producer}'", operand = quote(operand), producer = quote(producer))]
    AlreadyProduced {
        /// Name of the operand.
        operand: String,
        /// Name of the operator that makes it.
        producer: String,
    },
    /// The operand is still read.
    #[error("operand '{operand}' is still read by '{consumer}'", operand = quote(operand), consumer = quote(consumer))]
    StillRead {
        /// Name of the operand.
        operand: String,
        /// Name of one operator that reads it.
        consumer: String,
    },
    /// The input already has this name on this operator.
    #[error("operator '{operator}' already has an input named '{key}'", operator = quote(operator), key = quote(key))]
    DuplicateInputName {
        /// Name of the operator.
        operator: String,
        /// The argument's name.
        key: String,
    },
    /// No operator has the name.
    #[error("'{name}': {problem}", name = quote(name))]
    NoOperatorNamed {
        /// The name.
        name: String,
        /// That nobody has it, or who makes the operand of that name.
        problem: ControlProblem,
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
    /// The new order is not a permutation of the operators.
    #[error("the new order must hold each of the {count} operators once")]
    NotAPermutation {
        /// Number of operators in the graph.
        count: usize,
    },
}

/// Checks a word of the `.param` file: something, without blanks; `also_not` cannot stand in it
/// either.
pub(crate) fn check_word(
    what: &'static str,
    name: &str,
    also_not: Option<char>,
) -> Result<(), EditError> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        "it has blanks or control characters"
    } else if also_not.is_some_and(|c| name.contains(c)) {
        "it contains '='"
    } else {
        return Ok(());
    };
    Err(EditError::InvalidName { what, name: name.to_owned(), why })
}

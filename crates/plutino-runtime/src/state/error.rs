//! What can be wrong with a state.

use plutino_ir::quote;
use plutino_tensor::{DType, Shape};

/// A value cannot be carried from run to run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The state belongs to another model than the session.
    #[error("the state is one of {state}, the session runs {session}")]
    AnotherModel {
        /// File of the state's model.
        state: String,
        /// File of the session's model.
        session: String,
    },
    /// An input is to take two outputs.
    #[error("operand '{input}' is carried to twice, from '{first}' and '{second}'", input = quote(input), first = quote(first), second = quote(second))]
    CarriedTwice {
        /// The operand that is fed.
        input: String,
        /// What it is fed with already.
        first: String,
        /// What it was to be fed with as well.
        second: String,
    },
    /// Nothing is carried to this operand.
    #[error("nothing is carried to operand '{input}'; carried to are: {}", list(carried), input = quote(input))]
    NotCarried {
        /// The operand.
        input: String,
        /// What is carried to.
        carried: Vec<String>,
    },
    /// A caller feeds what the state feeds.
    #[error("operand '{input}' is fed, and carried from '{output}' as well", input = quote(input), output = quote(output))]
    FedAndCarried {
        /// The operand that is fed.
        input: String,
        /// What the state feeds it with.
        output: String,
    },
    /// The first run has nothing to feed an operand with.
    #[error("operand '{input}' has no value for the first run: its shape is recorded as {recorded}, so give one (State::start, State::start_empty)", input = quote(input))]
    NoStart {
        /// The operand that is fed.
        input: String,
        /// What the file records of it.
        recorded: String,
    },
    /// What is carried, or set, has another dtype than the operand that it is for.
    #[error("operand '{input}' is {expected}, '{from}' is {found}", input = quote(input), from = quote(from))]
    DType {
        /// The operand that is fed.
        input: String,
        /// Its dtype.
        expected: DType,
        /// Where the value comes from.
        from: String,
        /// Its dtype.
        found: DType,
    },
    /// What is carried, or set, has a shape that the operand that it is for cannot have.
    #[error("operand '{input}' of shape {expected} cannot take '{from}' of shape {found}", input = quote(input), from = quote(from))]
    Shape {
        /// The operand that is fed.
        input: String,
        /// Its shape, as recorded or as it was fed so far.
        expected: String,
        /// Where the value comes from.
        from: String,
        /// Its shape.
        found: String,
    },
    /// What is carried is a tuple, or several tensors.
    #[error("'{output}' yields {found} tensors: one is needed", output = quote(output))]
    NotATensor {
        /// The operand that is carried.
        output: String,
        /// Number of tensors.
        found: usize,
    },
    /// A dimension that an operand does not have.
    #[error("operand '{input}' has no dimension {dim}: its shape is recorded as {recorded}", input = quote(input))]
    NoDimension {
        /// The operand that is fed.
        input: String,
        /// The dimension that was named.
        dim: usize,
        /// What the file records of it.
        recorded: String,
    },
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none".into(),
        _ => names.iter().map(|n| format!("'{}'", quote(n))).collect::<Vec<_>>().join(", "),
    }
}

impl StateError {
    pub(super) fn shape(input: &str, expected: &Shape, from: &str, found: &Shape) -> Self {
        let (expected, found) = (expected.to_string(), found.to_string());
        Self::Shape { input: input.into(), expected, from: from.into(), found }
    }
}

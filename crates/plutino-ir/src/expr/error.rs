//! What can be wrong with an expression or literal.

use thiserror::Error;

/// A malformed expression or literal.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("column {column} of '{}': {kind}", excerpt(text))]
pub struct ExprError {
    /// The whole text.
    pub text: String,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong there.
    pub kind: ExprErrorKind,
}

/// What can be wrong in an expression or literal.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExprErrorKind {
    /// Something else is needed here.
    #[error("expected {expected}, found {}", if found.is_empty() { "the end".into() } else { format!("'{found}'") })]
    Unexpected {
        /// What would have been right.
        expected: &'static str,
        /// What stands there; empty at the end.
        found: String,
    },
    /// No function has this name.
    #[error("'{name}' is no function of pnnx.Expression{}", nearest.map(|name| format!("; did you mean '{name}'?")).unwrap_or_default())]
    UnknownFunction {
        /// The name.
        name: String,
        /// A function whose name differs in a letter or two.
        nearest: Option<&'static str>,
    },
    /// A function has too few or too many arguments.
    #[error("'{function}' takes {}, found {found}", arguments(*least, *most))]
    Arity {
        /// Name of the function.
        function: &'static str,
        /// Least number of arguments.
        least: usize,
        /// Largest number of arguments.
        most: usize,
        /// Number found.
        found: usize,
    },
    /// A bracket is closed that was not opened, not closed, or closed by another kind of bracket.
    #[error("'{bracket}' has no counterpart")]
    Unbalanced {
        /// The bracket.
        bracket: char,
    },
    /// Functions and lists are nested too deeply.
    #[error("nested deeper than {limit} levels")]
    TooDeep {
        /// Deepest nesting that is read.
        limit: usize,
    },
}

impl ExprError {
    pub(super) fn new(text: &str, at: usize, kind: ExprErrorKind) -> Self {
        let before = text.get(..at).unwrap_or(text);
        ExprError { text: text.to_owned(), column: before.chars().count() + 1, kind }
    }
}

fn arguments(least: usize, most: usize) -> String {
    match (least, most) {
        (1, 1) => "1 argument".into(),
        (least, most) if least == most => format!("{least} arguments"),
        (least, most) => format!("{least} or {most} arguments"),
    }
}

/// A text that fits in a message.
fn excerpt(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((cut, _)) => format!("{}...", text.get(..cut).unwrap_or_default()),
        None => text.to_owned(),
    }
}

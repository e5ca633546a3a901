//! What can be wrong with an expression or literal.

use thiserror::Error;

use crate::quote::quote;

/// A malformed expression or literal.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("column {column} of '{}': {kind}", quote(text))]
pub struct ExprError {
    /// The text, or its beginning where it is very long.
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
    #[error("expected {expected}, found {}", if found.is_empty() { "the end".into() } else { format!("'{}'", quote(found)) })]
    Unexpected {
        /// What would have been right.
        expected: &'static str,
        /// What stands there; empty at the end.
        found: String,
    },
    /// No function has this name.
    #[error("'{name}' is no function of pnnx.Expression{}", nearest.map(|name| format!("; did you mean '{name}'?")).unwrap_or_default(), name = quote(name))]
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
        ExprError { text: beginning(text), column: before.chars().count() + 1, kind }
    }
}

fn arguments(least: usize, most: usize) -> String {
    match (least, most) {
        (1, 1) => "1 argument".into(),
        (least, most) if least == most => format!("{least} arguments"),
        (least, most) => format!("{least} or {most} arguments"),
    }
}

/// As much of a text as an error keeps.
pub(super) fn beginning(text: &str) -> String {
    match text.char_indices().nth(MOST_KEPT) {
        Some((cut, _)) => text.get(..cut).unwrap_or_default().to_owned(),
        None => text.to_owned(),
    }
}

/// Characters of a text that an error keeps.
const MOST_KEPT: usize = 4096;

//! What can be wrong with figures of costs.

use crate::{ModelError, SessionError};
use plutino_ir::{quote, quote_path, told};
use std::path::PathBuf;

/// Figures of costs that cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostsError {
    /// A file cannot be read or written.
    #[error("'{}' cannot be {what}: {error}", quote_path(file))]
    Io {
        /// The file.
        file: PathBuf,
        /// `read` or `written`.
        what: &'static str,
        /// Why.
        error: std::io::Error,
    },
    /// A file is larger than any file of costs.
    #[error("'{}' has more than {most} bytes: no file of costs", quote_path(file))]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// What is read at most.
        most: u64,
    },
    /// A file is not what it should be.
    #[error("'{}', line {line}, column {column}: {}", quote_path(file), told(what))]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
        /// What is wrong.
        what: String,
    },
    /// A number is none that a machine or an operator can have.
    #[error("'{}': {} must be {expected}, found {}", quote_path(file), quote(field), quote(found))]
    Value {
        /// The file.
        file: PathBuf,
        /// Which number.
        field: String,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A net that is measured cannot be read: a defect of plutino.
    #[error("the machine cannot be measured: {0}")]
    Net(#[from] plutino_ir::ParseError),
    /// An operator that is measured is not linked into the program, or refuses to be.
    #[error("the machine cannot be measured: {0}")]
    Model(#[from] ModelError),
    /// A run that is measured fails.
    #[error("the machine cannot be measured: {0}")]
    Session(#[from] SessionError),
}

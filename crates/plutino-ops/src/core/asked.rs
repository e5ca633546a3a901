//! What a builder asks a node for: parameters, weights and inputs with their defaults. The source
//! of `docs/operators.md`, so that the page cannot say anything else than the code.

/// Something that a builder asked a node for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Asked {
    /// What it is.
    pub sort: AskedSort,
    /// Its name.
    pub key: String,
    /// What it must be, such as `2 integers of at least 1`; empty where the builder looks at the
    /// text itself.
    pub expected: String,
    /// What stands for it where the file leaves it out; none where it must be there.
    pub default: Option<String>,
}

/// What a builder may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AskedSort {
    /// An input.
    Input,
    /// A parameter.
    Parameter,
    /// A weight.
    Weight,
}

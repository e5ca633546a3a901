//! Errors of operators: structured first, worded second.

use plutino_ir::{Origin, quote, quote_path, told};
use plutino_tensor::{DType, Shape, TensorError};
use std::sync::Arc;

/// Where in which file an operator stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Location {
    /// The `.param` file, or what stands for it.
    pub file: String,
    /// Line, from 1; none where the operator was made by an edit.
    pub line: Option<u32>,
    /// Type, such as `nn.Conv2d`.
    pub kind: String,
    /// Name, such as `layer1.0.conv1`.
    pub name: String,
    /// The node in whose place the operator stands, where a definition put it there: file and line
    /// are the definition's then.
    pub origin: Option<Arc<Origin>>,
}

impl Location {
    /// Where an operator of a graph stands that was read from `file`.
    pub fn of(file: &str, operator: &plutino_ir::Operator) -> Self {
        let origin = operator.origin.clone();
        Self {
            file: origin.as_ref().map_or(file, |origin| &origin.file).to_owned(),
            line: operator.line,
            kind: operator.kind.clone(),
            name: operator.name.clone(),
            origin,
        }
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A step that a pass added stands in no file.
        if !self.file.is_empty() {
            f.write_str(&quote_path(&self.file))?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
            }
            f.write_str(": ")?;
        }
        write!(f, "{} '{}'", quote(&self.kind), quote(&self.name))?;
        self.origin.as_ref().map_or(Ok(()), |origin| origin.fmt(f))
    }
}

/// A node could not be decoded.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{location}: {problem}")]
pub struct BuildError {
    /// Which node.
    pub location: Box<Location>,
    /// What is wrong with it.
    pub problem: BuildProblem,
}

/// What is wrong with a node.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildProblem {
    /// No builder is registered for this type.
    #[error("unsupported operator{}", nearest.map(|n| format!(" (nearest known: {n})")).unwrap_or_default())]
    UnsupportedKind {
        /// The registered type with the most similar name.
        nearest: Option<&'static str>,
    },
    /// A parameter is missing.
    #[error("parameter '{key}' is missing: it must be {expected}", key = quote(key))]
    MissingParameter {
        /// Name of the parameter.
        key: String,
        /// What it must be.
        expected: String,
    },
    /// A parameter has a value that makes no sense.
    #[error("parameter '{key}' must be {expected}, found {found}", key = quote(key), expected = told(expected), found = quote(found))]
    BadParameter {
        /// Name of the parameter.
        key: String,
        /// What would have been right.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// A parameter that the operator does not know: ignoring it could change the result.
    #[error("parameter '{key}={value}' is not known to this operator", key = quote(key), value = quote(value))]
    UnknownParameter {
        /// Name of the parameter.
        key: String,
        /// Its value.
        value: String,
    },
    /// A weight is missing.
    #[error("weight '@{key}' is missing", key = quote(key))]
    MissingWeight {
        /// Name of the weight.
        key: String,
    },
    /// A weight has another shape or dtype than the parameters ask for.
    #[error("weight '@{key}' must be {expected}, found {found}", key = quote(key), expected = told(expected), found = quote(found))]
    BadWeight {
        /// Name of the weight.
        key: String,
        /// What would have been right.
        expected: String,
        /// What the file has.
        found: String,
    },
    /// A weight that the operator does not know.
    #[error("weight '@{key}' is not known to this operator", key = quote(key))]
    UnknownWeight {
        /// Name of the weight.
        key: String,
    },
    /// An input is missing.
    #[error("input '{key}' is missing", key = quote(key))]
    MissingInput {
        /// Name of the argument.
        key: String,
    },
    /// Inputs that the operator does not know.
    #[error("{found} inputs are given, of which the operator knows {expected}")]
    UnknownInputs {
        /// Number of inputs that the builder asked for.
        expected: usize,
        /// Number of inputs of the node.
        found: usize,
    },
    /// The number of outputs does not fit the operator.
    #[error("the operator has {expected} outputs, the file gives it {found}")]
    Outputs {
        /// What the operator produces.
        expected: String,
        /// What the file says.
        found: usize,
    },
    /// Memory or tensors, where weights are computed.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Anything else.
    #[error("{}", told(.0))]
    Invalid(String),
}

impl From<PlanError> for BuildProblem {
    /// Of a weight that is read while decoding.
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Tensor(error) => error.into(),
            error => Self::Invalid(error.to_string()),
        }
    }
}

/// The shapes, dtypes or known values of the inputs do not suit the operator.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// A wrong number of dimensions.
    #[error("input {input} must have {expected} dimensions, found shape {found}")]
    Rank {
        /// Number of the input, from 0.
        input: usize,
        /// What would have been right, such as `3 or 4`.
        expected: String,
        /// The shape found.
        found: Shape,
    },
    /// A dimension has the wrong size.
    #[error("input {input}: dimension {dim} must be {expected}, found shape {found}")]
    Size {
        /// Number of the input, from 0.
        input: usize,
        /// Number of the dimension, from 0.
        dim: usize,
        /// What would have been right.
        expected: String,
        /// The shape found.
        found: Shape,
    },
    /// A dtype that the operator does not compute.
    #[error("input {input} must be {expected}, found {found}")]
    DType {
        /// Number of the input, from 0.
        input: usize,
        /// What would have been right.
        expected: String,
        /// The dtype found.
        found: DType,
    },
    /// An input is of another sort: a list where a tensor is expected, or the reverse.
    #[error("input {input} must be {expected}, found {found}", found = told(found))]
    Sort {
        /// Number of the input, from 0.
        input: usize,
        /// What would have been right.
        expected: &'static str,
        /// What was found.
        found: String,
    },
    /// An input must be known before the run and is not.
    #[error("input {input} ({what}) depends on data; it must be known when the model is planned")]
    NotKnown {
        /// Number of the input, from 0.
        input: usize,
        /// What the input stands for.
        what: String,
    },
    /// A tensor operation on shapes failed.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Anything else.
    #[error("{}", told(.0))]
    Invalid(String),
}

/// An operator could not be planned for these shapes.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The shapes do not suit.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The operator is known, this use of it is not computed.
    #[error("not supported: {}", told(.0))]
    Unsupported(String),
    /// The model was loaded without its weights.
    #[error("weight '{name}' was not loaded", name = quote(name))]
    NoWeights {
        /// Full name of the weight.
        name: String,
    },
    /// The weight was left in its file, which cannot be read any more.
    #[error("weight '{name}': {error}", name = quote(name))]
    WeightFile {
        /// Full name of the weight.
        name: String,
        /// Why.
        error: plutino_ir::AttributeError,
    },
    /// Memory or tensors.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// A kernel failed while running.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A value in the data is outside what the operator accepts, such as an index.
    #[error("input {input}: {what}", what = told(what))]
    Value {
        /// Number of the input, from 0.
        input: usize,
        /// What was wrong and what would have been right.
        what: String,
    },
    /// The plan and the run disagree: a defect of plutino.
    #[error("internal: {}", told(.0))]
    Internal(String),
    /// Memory or tensors.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

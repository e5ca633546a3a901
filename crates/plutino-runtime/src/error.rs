//! Errors: of models, and of sessions. Structured first, worded second.

use plutino_ir::topo::CycleError;
use plutino_ops::{BuildError, DuplicateKind, Location, PlanError, RunError, ShapeError};
use plutino_tensor::{DType, TensorError};

/// A model could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The files could not be read, or something in them is wrong.
    #[error(transparent)]
    Load(#[from] plutino_ir::LoadError),
    /// Some operators could not be decoded: all of them are listed.
    #[error(transparent)]
    Operators(#[from] UndecodedOperators),
    /// Operators wait for each other.
    #[error("{file}: {source}")]
    Cycle {
        /// The `.param` file.
        file: String,
        /// The members of the cycle.
        source: CycleError,
    },
    /// Two linked crates register the same operator type.
    #[error(transparent)]
    Registry(#[from] DuplicateKind),
}

/// Every operator of a model that could not be decoded.
#[derive(Debug, Clone, PartialEq)]
pub struct UndecodedOperators {
    /// The `.param` file.
    pub file: String,
    /// Types without an implementation, the most frequent first.
    pub kinds: Vec<UnsupportedKind>,
    /// Operators of known types with something wrong in them, in file order.
    pub nodes: Vec<BuildError>,
}

/// An operator type without an implementation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedKind {
    /// The type, such as `torch.stft`.
    pub kind: String,
    /// How many operators of the model are of this type.
    pub count: usize,
    /// The first of them.
    pub first: Location,
    /// The registered type with the most similar name.
    pub nearest: Option<&'static str>,
}

impl std::error::Error for UndecodedOperators {}

impl std::fmt::Display for UndecodedOperators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let total = self.nodes.len() + self.kinds.iter().map(|k| k.count).sum::<usize>();
        write!(f, "{}: {total} operator(s) cannot be run", self.file)?;
        for k in &self.kinds {
            write!(f, "\n  unsupported type {} x{} (first: ", k.kind, k.count)?;
            match k.first.line {
                Some(line) => write!(f, "line {line}, '{}'", k.first.name)?,
                None => write!(f, "'{}'", k.first.name)?,
            }
            match k.nearest {
                Some(nearest) => write!(f, "; nearest known: {nearest})")?,
                None => f.write_str(")")?,
            }
        }
        self.nodes.iter().try_for_each(|node| write!(f, "\n  {node}"))
    }
}

/// A session could not be made, planned or run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// An option, or an environment variable, has a value that makes no sense here.
    #[error("{option} must be {expected}, found '{found}'")]
    Option {
        /// Name of the option or variable.
        option: String,
        /// What would have been right.
        expected: String,
        /// What was given.
        found: String,
    },
    /// A wrong number of inputs.
    #[error("the model has {expected} input(s) ({names}), {found} given")]
    InputCount {
        /// Number of inputs of the model.
        expected: usize,
        /// Their names, separated by commas.
        names: String,
        /// Number of tensors given.
        found: usize,
    },
    /// An input has another dtype than the model was exported with.
    #[error("input '{name}' must be {expected}, found {found}")]
    InputDType {
        /// Name of the input.
        name: String,
        /// The dtype recorded in the file.
        expected: DType,
        /// The dtype of the tensor given.
        found: DType,
    },
    /// Two dimensions that share a symbol (`%w`) have different sizes.
    #[error(
        "dimension %{symbol} is {first} in input '{first_input}' and {second} in input '{second_input}'"
    )]
    Symbol {
        /// The symbol.
        symbol: String,
        /// Size where it was met first.
        first: usize,
        /// Input where it was met first.
        first_input: String,
        /// Size where it was met next.
        second: usize,
        /// Input where it was met next.
        second_input: String,
    },
    /// There is no operand of this name.
    #[error("the model has no operand named '{name}'")]
    NoSuchOperand {
        /// The name.
        name: String,
    },
    /// An operand is fed twice.
    #[error("operand '{name}' is fed twice")]
    FedTwice {
        /// Name of the operand.
        name: String,
    },
    /// A fetched operand cannot be computed from what is fed.
    #[error("operand '{fetch}' cannot be computed: input '{missing}' is not fed")]
    NotFed {
        /// The operand to compute.
        fetch: String,
        /// The model input that it needs.
        missing: String,
    },
    /// Shapes or dtypes do not suit an operator.
    #[error("{location}: {source} (inputs: {inputs})")]
    Shape {
        /// Which operator.
        location: Box<Location>,
        /// Its inputs, as inferred.
        inputs: String,
        /// What is wrong.
        source: ShapeError,
    },
    /// An operator could not be planned.
    #[error("{location}: {source} (inputs: {inputs})")]
    Plan {
        /// Which operator.
        location: Box<Location>,
        /// Its inputs, as inferred.
        inputs: String,
        /// What is wrong.
        source: PlanError,
    },
    /// An operator failed while running.
    #[error("{location}: {source}")]
    Run {
        /// Which operator.
        location: Box<Location>,
        /// What is wrong.
        source: RunError,
    },
    /// The run was cancelled from outside.
    #[error("cancelled after {done} of {steps} steps")]
    Cancelled {
        /// Steps that were finished.
        done: usize,
        /// Steps of the plan.
        steps: usize,
    },
    /// The deadline passed.
    #[error("the deadline passed after {done} of {steps} steps")]
    Deadline {
        /// Steps that were finished.
        done: usize,
        /// Steps of the plan.
        steps: usize,
    },
    /// The plan needs more memory than the budget allows. Nothing was allocated.
    #[error("the plan needs {needed} bytes for activations and outputs, the budget is {budget}")]
    Budget {
        /// Bytes of arena and output tensors.
        needed: usize,
        /// Bytes allowed.
        budget: usize,
    },
    /// Memory or tensors.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// The operators' registry.
    #[error(transparent)]
    Registry(#[from] DuplicateKind),
    /// Parts of the plan contradict each other: a defect of plutino.
    #[error("internal: {0}")]
    Internal(String),
}

impl SessionError {
    pub(crate) fn internal(what: impl Into<String>) -> Self {
        Self::Internal(what.into())
    }

    /// Whether a limit set by the caller ended the work: cancellation, deadline or memory budget.
    pub fn is_limit(&self) -> bool {
        matches!(self, Self::Cancelled { .. } | Self::Deadline { .. } | Self::Budget { .. })
    }
}

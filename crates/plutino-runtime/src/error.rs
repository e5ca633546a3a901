//! Errors: of models, and of sessions. Structured first, worded second.
//!
//! A message tells the cause as well, so that no error hands it out as its source: who prints a
//! chain would read it twice.

use crate::run::store::StoreError;
use crate::state::StateError;
use plutino_ir::topo::CycleError;
use plutino_ir::{DefineError, Interrupted, TooLarge, quote, quote_path};
use plutino_ops::{
    BuildError, BuildProblem, DuplicateKind, Location, PlanError, RunError, ShapeError,
};
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
    /// A definition does not fit a node of its type.
    #[error(transparent)]
    Define(#[from] DefineError),
    /// Operators wait for each other.
    #[error("{file}: {error}", file = quote_path(file))]
    Cycle {
        /// The `.param` file.
        file: String,
        /// The members of the cycle.
        error: CycleError,
    },
    /// A graph that was made in memory exceeds one of
    /// [`LoadOptions::sizes`](plutino_ir::LoadOptions::sizes); what a file exceeds is told by
    /// [`ModelError::Load`].
    #[error("{}: {error}", at.as_ref().map_or_else(|| quote_path(file), ToString::to_string))]
    TooLarge {
        /// The `.param` file.
        file: String,
        /// The operator that is too large, where it is one.
        at: Option<Box<Location>>,
        /// Which limit.
        error: TooLarge,
    },
    /// Memory is refused.
    #[error("{file}: {error}", file = quote_path(file))]
    Memory {
        /// The `.param` file.
        file: String,
        /// How much was asked for.
        error: TensorError,
    },
    /// More results than a model may have.
    #[error("{file}: the model has {found} results, tuples taken apart; {most} are possible", file = quote_path(file))]
    TooManyOutputs {
        /// The `.param` file.
        file: String,
        /// Results, as far as they were counted.
        found: usize,
        /// The most that there may be.
        most: usize,
    },
    /// Zeros are to stand in for weights that are larger than the caller allows, or than memory.
    #[error(
        "{file}: zeros cannot stand in for weights of {bytes} bytes: at most {most} are allowed",
        file = quote_path(file)
    )]
    StandIns {
        /// The `.param` file.
        file: String,
        /// Bytes of all weights that have no data.
        bytes: usize,
        /// Bytes allowed.
        most: usize,
    },
    /// The caller's limits ended the work.
    #[error("{file}: {error} while loading", file = quote_path(file))]
    Interrupted {
        /// The `.param` file.
        file: String,
        /// Which limit.
        error: Interrupted,
    },
    /// The model takes more memory than [`plutino_ir::LoadOptions::memory_budget`] allows.
    #[error("{file}: the model needs {needed} bytes of memory, the budget is {budget}", file = quote_path(file))]
    Budget {
        /// The `.param` file.
        file: String,
        /// Bytes, as far as they were counted.
        needed: usize,
        /// Bytes allowed.
        budget: usize,
    },
    /// A model without a `.bin` file of its own needs a weight that the model does not have whose
    /// weights it shares.
    #[error(
        "{file} has no .bin file, and {other} has no weight '{weight}' of {ty}",
        file = quote_path(file), other = quote_path(other), weight = quote(weight)
    )]
    NotShared {
        /// The `.param` file.
        file: String,
        /// The `.param` file of the other model.
        other: String,
        /// The weight: `operator.attribute`.
        weight: String,
        /// Its shape and dtype, as the `.param` file has them.
        ty: String,
    },
    /// Two linked crates register the same operator type.
    #[error(transparent)]
    Registry(#[from] DuplicateKind),
}

impl ModelError {
    /// Whether a limit that the caller can move ended the work: cancellation, deadline, memory
    /// budget, or a size.
    pub fn is_limit(&self) -> bool {
        use plutino_ir::{LoadError, ParseErrorKind};
        match self {
            Self::Interrupted { .. }
            | Self::Budget { .. }
            | Self::StandIns { .. }
            | Self::TooLarge { .. }
            | Self::Load(LoadError::Interrupted { .. } | LoadError::Budget { .. }) => true,
            Self::Load(LoadError::Param { error, .. }) => {
                matches!(error.kind, ParseErrorKind::TooLarge(_))
            }
            Self::Define(error) => error.problem.is_limit(),
            _ => matches!(self.tensor_error(), Some(TensorError::Budget { .. })),
        }
    }

    /// Whether the system had no memory left.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self.tensor_error(), Some(TensorError::OutOfMemory { .. }))
    }

    /// What is wrong with a tensor, such as memory that is refused, in whichever operator that was.
    pub fn tensor_error(&self) -> Option<&TensorError> {
        match self {
            Self::Memory { error, .. } => Some(error),
            Self::Operators(all) => all.nodes.iter().find_map(|node| match &node.problem {
                BuildProblem::Tensor(error) => Some(error),
                _ => None,
            }),
            _ => None,
        }
    }
}

/// Every operator of a model that could not be decoded.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct UndecodedOperators {
    /// The `.param` file.
    pub file: String,
    /// Types without an implementation, the most frequent first.
    pub kinds: Vec<UnsupportedKind>,
    /// Operators of known types with something wrong in them, in file order: the first thousand.
    pub nodes: Vec<BuildError>,
    /// Operators, of known types or not, beyond those.
    pub more: usize,
}

/// An operator type without an implementation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
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

impl UnsupportedKind {
    /// Whether the type is a name of the model's own, such as a module that was kept whole, so that
    /// a definition is what is missing ([`ModelOptions::define`](crate::ModelOptions::define)).
    pub fn may_be_defined(&self) -> bool {
        let known = ["aten::", "prim::", "quantized::", "nn.", "F.", "torch.", "Tensor.", "pnnx."];
        !known.iter().any(|space| self.kind.starts_with(space))
    }

    /// What to do about types that no engine could run, because the file lacks what they are about.
    pub fn remedy(&self) -> Option<&'static str> {
        match self.kind.as_str() {
            "prim::If" | "prim::Loop" => Some(
                "pnnx writes no bodies of scripted control flow; trace the model instead of scripting it \
                 (torch.jit.trace, or pnnx.export, which does), or export each body as a model of its own \
                 and name it in a plutino.If or plutino.While (docs/programs.md); a part that scripts itself while it is traced, such as \
                 torchvision's batched_nms in its detectors, is best left out of the export",
            ),
            "prim::CallMethod" | "prim::CallFunction" => Some(
                "pnnx left a call in the graph, whose body is not in the file; trace the model instead of \
                 scripting it (torch.jit.trace, or pnnx.export, which does)",
            ),
            _ => None,
        }
    }
}

impl UndecodedOperators {
    /// How a type is defined, in the words of messages.
    pub const HOW_TO_DEFINE: &str = "--define TYPE=MODEL, or ModelOptions::define";
}

impl std::error::Error for UndecodedOperators {}

impl std::fmt::Display for UndecodedOperators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let total =
            self.more + self.nodes.len() + self.kinds.iter().map(|k| k.count).sum::<usize>();
        write!(f, "{}: {total} operator(s) cannot be run", self.file)?;
        for k in self.kinds.iter().take(MOST_LISTED) {
            write!(f, "\n  unsupported type {} x{} (first: ", quote(&k.kind), k.count)?;
            match k.first.line {
                Some(line) => write!(f, "line {line}, '{}'", quote(&k.first.name))?,
                None => write!(f, "'{}'", quote(&k.first.name))?,
            }
            match (k.remedy(), k.nearest) {
                (Some(remedy), _) => write!(f, "): {remedy}")?,
                (None, Some(nearest)) => write!(f, "; nearest known: {nearest})")?,
                (None, None) => f.write_str(")")?,
            }
        }
        if self.kinds.iter().any(UnsupportedKind::may_be_defined) {
            f.write_str("\n  a type can be given as another PNNX model: ")?;
            f.write_str(Self::HOW_TO_DEFINE)?;
        }
        self.nodes.iter().take(MOST_LISTED).try_for_each(|node| write!(f, "\n  {node}"))?;
        let kinds = self.kinds.iter().skip(MOST_LISTED).map(|k| k.count).sum::<usize>();
        match kinds + self.nodes.len().saturating_sub(MOST_LISTED) + self.more {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more operators"),
        }
    }
}

/// Types, and operators, that a message lists.
const MOST_LISTED: usize = 50;

/// A session could not be made, planned or run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// An option, or an environment variable, has a value that makes no sense here.
    #[error("{option} must be {expected}, found '{found}'", found = quote(found))]
    Option {
        /// Name of the option or variable.
        option: String,
        /// What would have been right.
        expected: String,
        /// What was given.
        found: String,
    },
    /// A pass is to leave an operator alone (`fuse@conv1`) that the model does not have.
    #[error(
        "{option} {asked}: the model has no operator of this name{}",
        nearest.as_ref().map(|name| format!("; the most similar one is '{}'", quote(name))).unwrap_or_default(),
        asked = quote(asked)
    )]
    NoSuchOperator {
        /// Name of the option or variable.
        option: String,
        /// What was given.
        asked: String,
        /// The operator that was perhaps meant.
        nearest: Option<String>,
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
    #[error("input '{name}' must be {expected}, found {found}", name = quote(name))]
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
        "dimension %{symbol} is {first} in input '{first_input}' and {second} in input '{second_input}'", first_input = quote(first_input), second_input = quote(second_input), symbol = quote(symbol)
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
    /// There is no operand of this name, nor an operator that makes one operand and no other.
    #[error("{}", no_operand(name, made, [inputs, outputs]))]
    NoSuchOperand {
        /// The name.
        name: String,
        /// What the operator of this name makes, where there is one.
        made: Vec<String>,
        /// Where there is no such operator: the inputs, which are `in0`, `in1`, ... as well.
        inputs: Vec<String>,
        /// And its outputs, `out0`, `out1`, ...
        outputs: Vec<String>,
    },
    /// What an operand is fed with cannot be read.
    #[error("operand '{name}' cannot be fed: {error}", name = quote(name))]
    Feed {
        /// Name of the operand, as it was given.
        name: String,
        /// What is wrong.
        error: TensorError,
    },
    /// A comparison lacks an input of the model.
    #[error("the reference holds no array for input '{name}'", name = quote(name))]
    NoReference {
        /// Name of the input.
        name: String,
    },
    /// An operand is fed twice.
    #[error("operand '{name}' is fed twice", name = quote(name))]
    FedTwice {
        /// Name of the operand.
        name: String,
    },
    /// A fetched operand cannot be computed from what is fed.
    #[error("{}", not_fed(fetch, missing, instead))]
    NotFed {
        /// The operand to compute.
        fetch: String,
        /// The model inputs that it needs and that are not fed.
        missing: Vec<String>,
        /// Other operands, each of which could be fed instead of all that are missing, in the order
        /// in which they are computed.
        instead: Vec<String>,
    },
    /// Shapes or dtypes do not suit an operator.
    #[error("{location}: {error} (inputs: {inputs})")]
    Shape {
        /// Which operator.
        location: Box<Location>,
        /// Its inputs, as inferred.
        inputs: String,
        /// What is wrong.
        error: ShapeError,
    },
    /// An operator could not be planned.
    #[error("{location}: {error} (inputs: {inputs})")]
    Plan {
        /// Which operator.
        location: Box<Location>,
        /// Its inputs, as inferred.
        inputs: String,
        /// What is wrong.
        error: PlanError,
    },
    /// An operator failed while running.
    #[error("{location}: {error}")]
    Run {
        /// Which operator.
        location: Box<Location>,
        /// What is wrong.
        error: RunError,
    },
    /// A body of a control operator failed.
    #[error("{location}: in {part}: {error}")]
    Inside {
        /// The control operator.
        location: Box<Location>,
        /// Which body, and in which trip of a loop.
        part: String,
        /// What is wrong there.
        error: Box<SessionError>,
    },
    /// A plan exceeds one of the model's [`LoadOptions::sizes`](plutino_ir::LoadOptions::sizes).
    #[error("{}{error}", at.as_ref().map(|at| format!("{at}: ")).unwrap_or_default())]
    TooLarge {
        /// The operator that is too large, where it is one.
        at: Option<Box<Location>>,
        /// Which limit.
        error: TooLarge,
    },
    /// The run was cancelled from outside.
    #[error("cancelled {}", progress(*done, *steps, at.as_deref()))]
    Cancelled {
        /// Steps that were finished.
        done: usize,
        /// Steps of the plan; 0 where it was still being made.
        steps: usize,
        /// The operator that was computed or planned, or was the next.
        at: Option<Box<Location>>,
    },
    /// The deadline passed.
    #[error("the deadline passed {}", progress(*done, *steps, at.as_deref()))]
    Deadline {
        /// Steps that were finished.
        done: usize,
        /// Steps of the plan; 0 where it was still being made.
        steps: usize,
        /// The operator that was computed or planned, or was the next.
        at: Option<Box<Location>>,
    },
    /// The model and the plan need more memory than the budget allows. None was taken for
    /// activations and outputs.
    #[error(
        "the model needs {needed} bytes for weights, tables, activations and outputs, the budget is {budget}"
    )]
    Budget {
        /// Bytes in all ([`MemoryReport::total`](crate::MemoryReport::total)), or of the part that
        /// exceeds the budget alone.
        needed: usize,
        /// Bytes allowed.
        budget: usize,
    },
    /// A value cannot be carried from run to run.
    #[error(transparent)]
    State(#[from] StateError),
    /// A tensor cannot be kept in, or taken from, the store of the session.
    #[error(transparent)]
    Store(#[from] StoreError),
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

    /// Of a result that could not be handed out.
    pub(crate) fn of_result(error: RunError) -> Self {
        match error {
            RunError::Tensor(error) => error.into(),
            error => Self::internal(error.to_string()),
        }
    }

    /// Whether a limit set by the caller ended the work: cancellation, deadline, memory budget, or
    /// how large plans may be.
    pub fn is_limit(&self) -> bool {
        match self {
            Self::Cancelled { .. }
            | Self::Deadline { .. }
            | Self::Budget { .. }
            | Self::TooLarge { .. } => true,
            Self::Inside { error, .. } => error.is_limit(),
            _ => matches!(self.tensor_error(), Some(TensorError::Budget { .. })),
        }
    }

    /// Whether the system had no memory left.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self.tensor_error(), Some(TensorError::OutOfMemory { .. }))
    }

    /// What is wrong with a tensor, such as memory that is refused, in whichever operator or body
    /// that was.
    pub fn tensor_error(&self) -> Option<&TensorError> {
        match self {
            Self::Tensor(e)
            | Self::Feed { error: e, .. }
            | Self::Shape { error: ShapeError::Tensor(e), .. }
            | Self::Plan { error: PlanError::Tensor(e), .. }
            | Self::Plan { error: PlanError::Shape(ShapeError::Tensor(e)), .. }
            | Self::Run { error: RunError::Tensor(e), .. }
            | Self::Store(StoreError::Tensor(e)) => Some(e),
            Self::Inside { error, .. } => error.tensor_error(),
            _ => None,
        }
    }

    /// Ended by the caller's limits after some steps of a plan.
    pub(crate) fn interrupted(
        why: Interrupted,
        done: usize,
        steps: usize,
        at: Option<&Location>,
    ) -> Self {
        let at = at.cloned().map(Box::new);
        match why {
            Interrupted::Cancelled => Self::Cancelled { done, steps, at },
            Interrupted::Deadline => Self::Deadline { done, steps, at },
        }
    }
}

impl From<TooLarge> for SessionError {
    /// Of a plan as a whole.
    fn from(error: TooLarge) -> Self {
        Self::TooLarge { at: None, error }
    }
}

impl From<Interrupted> for SessionError {
    /// While planning.
    fn from(why: Interrupted) -> Self {
        Self::interrupted(why, 0, 0, None)
    }
}

/// Names that a message lists at most.
const MOST_NAMES: usize = 8;

/// `'a', 'b' and 3 more`.
fn names(all: &[String]) -> String {
    let shown = all.iter().take(MOST_NAMES).map(|name| format!("'{}'", quote(name)));
    let shown = shown.collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(MOST_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn no_operand(name: &str, made: &[String], ends: [&[String]; 2]) -> String {
    let name = quote(name);
    match made {
        [] => {
            let ends = ["input", "output"].into_iter().zip(ends).filter_map(|(what, all)| {
                let plural = if all.len() == 1 { "" } else { "s" };
                (!all.is_empty()).then(|| format!("{what}{plural} {}", names(all)))
            });
            let ends = ends.collect::<Vec<_>>().join(", ");
            let ends = if ends.is_empty() { ends } else { format!(" ({ends})") };
            format!("the model has no operand named '{name}'{ends}")
        }
        _ => format!("the operator '{name}' makes several operands: {}", names(made)),
    }
}

fn not_fed(fetch: &str, missing: &[String], instead: &[String]) -> String {
    let (inputs, are) = if missing.len() == 1 { ("input", "is") } else { ("inputs", "are") };
    let fetch = quote(fetch);
    let what =
        format!("operand '{fetch}' cannot be computed: {inputs} {} {are} not fed", names(missing));
    match instead {
        [] => what,
        [only] => format!("{what}; '{}' could be fed instead", quote(only)),
        several => format!("{what}; one of {} could be fed instead", names(several)),
    }
}

/// How far a run came.
fn progress(done: usize, steps: usize, at: Option<&Location>) -> String {
    let at = at.map(|at| format!(", at {at}")).unwrap_or_default();
    match steps {
        0 => format!("while planning{at}"),
        _ => format!("after {done} of {steps} steps{at}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    #[test]
    fn no_cause_is_told_twice() {
        let location = || Box::new(Location { name: "conv".into(), ..Location::default() });
        let memory = TensorError::OutOfMemory { bytes: 123 };
        let run = SessionError::Run { location: location(), error: memory.clone().into() };
        let plan = PlanError::Shape(memory.clone().into());
        let all: Vec<Box<dyn Error>> = vec![
            Box::new(SessionError::Inside {
                location: location(),
                part: "then".into(),
                error: Box::new(run.clone()),
            }),
            Box::new(run),
            Box::new(SessionError::Plan {
                location: location(),
                inputs: String::new(),
                error: plan,
            }),
            Box::new(SessionError::Feed { name: "x".into(), error: memory.clone() }),
            Box::new(ModelError::Memory { file: "f".into(), error: memory.clone() }),
            Box::new(SessionError::Tensor(memory)),
        ];
        for error in all {
            assert_eq!(error.to_string().matches("123 bytes").count(), 1, "{error}");
            assert!(error.source().is_none(), "{error}");
        }
    }
}

//! Errors of plutino as exceptions of Python.
//!
//! The classes are written in Python (`plutino._errors`). Here stands which of our errors becomes
//! which class, and what its fields are.

use plutino::ir::{AttributeError, LoadError, TooLarge, quote};
use plutino::ops::{Location, PlanError};
use plutino::runtime::UndecodedOperators;
use plutino::{ModelError, SessionError, StateError, TensorError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An exception that is to be raised: made without the interpreter, so that work that does not hold
/// it can fail.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Name of the class in `plutino._errors`.
    class: &'static str,
    message: String,
    /// Attributes of the exception.
    fields: Vec<(&'static str, Field)>,
}

/// The value of an attribute.
#[derive(Debug, Clone, IntoPyObject)]
pub(crate) enum Field {
    /// Something that is named or said.
    Text(String),
    /// A size, a line, a number of something.
    Number(usize),
    /// Several names.
    Texts(Vec<String>),
    /// Types with the number of their operators.
    Counts(Vec<(String, usize)>),
    /// What is not known.
    Nothing(Option<usize>),
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Field {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<usize> for Field {
    fn from(number: usize) -> Self {
        Self::Number(number)
    }
}

impl From<Vec<String>> for Field {
    fn from(texts: Vec<String>) -> Self {
        Self::Texts(texts)
    }
}

impl From<Option<usize>> for Field {
    fn from(number: Option<usize>) -> Self {
        number.map_or(Self::Nothing(None), Self::Number)
    }
}

impl Failure {
    /// An exception of this class.
    pub(crate) fn new(class: &'static str, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), fields: Vec::new() }
    }

    /// An option that makes no sense.
    pub(crate) fn option(name: &str, expected: &str, found: &str) -> Self {
        let message = format!("{name} must be {expected}, found '{}'", quote(found));
        Self::new("OptionError", message).with("option", name).with("expected", expected)
    }

    /// With an attribute.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Field>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// With the attributes of the operator that it is about.
    fn at(self, location: Option<&Location>) -> Self {
        let Some(location) = location else { return self };
        self.with("file", location.file.as_str())
            .with("line", location.line.map(|line| line as usize))
            .with("kind", location.kind.as_str())
            .with("operator", location.name.as_str())
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| {
            let raise = || {
                let fields = PyDict::new(py);
                for (name, value) in failure.fields {
                    fields.set_item(name, value)?;
                }
                let class = py.import("plutino._errors")?.getattr(failure.class)?;
                class.call((failure.message,), Some(&fields))
            };
            raise().map_or_else(|error| error, PyErr::from_value)
        })
    }
}

/// What a message says, in the words of Python: options of the command line and calls of Rust help
/// nobody here.
fn told(error: &impl ToString) -> String {
    let message = error.to_string();
    let defined = "definitions={'TYPE': 'MODEL'}, the path of its model";
    let mut message = message.replace(UndecodedOperators::HOW_TO_DEFINE, defined);
    // How large models may be cannot be said in Python.
    if let Some(end) = message.find(TooLarge::REMEDY) {
        message.truncate(end);
    }
    message
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        let message = told(&error);
        let class = |name| Self::new(name, message.clone());
        let refused =
            error.tensor_error().map(|inner| tensor(inner, "ModelError", message.clone()));
        match error {
            ModelError::Load(error) => load(error, message),
            ModelError::Operators(list) => match refused {
                Some(refused) => refused.with("file", list.file),
                None => undecoded(&list, message),
            },
            ModelError::TooLarge { file, at, .. } => {
                class("TooLarge").with("file", file).at(at.as_deref())
            }
            ModelError::Interrupted { file, error } => class(interrupted(error)).with("file", file),
            ModelError::Budget { file, needed, budget } => class("BudgetExceeded")
                .with("file", file)
                .with("needed", needed)
                .with("budget", budget),
            ModelError::Memory { file, .. } => {
                refused.unwrap_or_else(|| class("ModelError")).with("file", file)
            }
            ModelError::Cycle { file, .. }
            | ModelError::TooManyOutputs { file, .. }
            | ModelError::StandIns { file, .. } => class("ModelError").with("file", file),
            _ => class("ModelError"),
        }
    }
}

fn interrupted(why: plutino::ir::Interrupted) -> &'static str {
    match why {
        plutino::ir::Interrupted::Cancelled => "Cancelled",
        plutino::ir::Interrupted::Deadline => "DeadlineExceeded",
    }
}

fn load(error: LoadError, message: String) -> Failure {
    let class = |name| Failure::new(name, message.clone());
    let name = |path: &std::path::Path| path.display().to_string();
    match error {
        LoadError::NotFound { path, tried } => class("ModelNotFound")
            .with("file", name(&path))
            .with("tried", tried.iter().map(|path| name(path)).collect::<Vec<_>>()),
        LoadError::NoWeights { path, .. } => {
            class("ModelNotFound").with("file", name(&path)).with("tried", vec![name(&path)])
        }
        LoadError::Io { path, .. } | LoadError::NotAFile { path } => {
            class("ModelError").with("file", name(&path))
        }
        LoadError::Interrupted { path, error } => {
            class(interrupted(error)).with("file", name(&path))
        }
        LoadError::Budget { path, needed, budget } => class("BudgetExceeded")
            .with("file", name(&path))
            .with("needed", needed)
            .with("budget", budget),
        LoadError::Param { file, error } => class("ModelError")
            .with("file", file)
            .with("line", error.line as usize)
            .with("column", error.column as usize),
        LoadError::Bin { file, .. } => class("ModelError").with("file", file),
        _ => class("ModelError"),
    }
}

fn undecoded(list: &UndecodedOperators, message: String) -> Failure {
    let kinds = list.kinds.iter().map(|kind| (kind.kind.clone(), kind.count)).collect();
    let first = list.kinds.first().map(|kind| &kind.first);
    let first = first.or(list.nodes.first().map(|node| &*node.location));
    Failure::new("UnsupportedOperators", message)
        .with("file", list.file.as_str())
        .at(first)
        .with("kinds", Field::Counts(kinds))
        .with("problems", list.nodes.iter().map(ToString::to_string).collect::<Vec<_>>())
}

/// Memory that is refused, or `class`.
fn tensor(error: &TensorError, class: &'static str, message: String) -> Failure {
    match error {
        TensorError::Budget { needed, budget } => {
            Failure::new("BudgetExceeded", message).with("needed", *needed).with("budget", *budget)
        }
        TensorError::OutOfMemory { bytes } => {
            Failure::new("OutOfMemory", message).with("needed", *bytes)
        }
        _ => Failure::new(class, message),
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let message = told(&error);
        let class = |name| Self::new(name, message.clone());
        // What is met may be memory that is refused.
        let met_as = |name: &'static str| match error.tensor_error() {
            Some(inner) => tensor(inner, name, message.clone()),
            None => class(name),
        };
        let operator = |location: &Location| met_as("OperatorError").at(Some(location));
        // What a body of control flow meets is of the same class as elsewhere.
        let mut met = &error;
        while let SessionError::Inside { error, .. } = met {
            met = error;
        }
        match met {
            SessionError::Option { option, expected, .. } => class("OptionError")
                .with("option", option.as_str())
                .with("expected", expected.as_str()),
            SessionError::NoSuchOperator { option, .. } => {
                class("OptionError").with("option", option.as_str())
            }
            SessionError::InputCount { .. } => class("InputError"),
            SessionError::InputDType { name, expected, .. } => {
                class("InputError").with("input", name.as_str()).with("expected", expected.name())
            }
            SessionError::Symbol { second_input, .. } => {
                class("InputError").with("input", second_input.as_str())
            }
            SessionError::Feed { name, .. } => met_as("InputError").with("input", name.as_str()),
            SessionError::NoSuchOperand { name, .. }
            | SessionError::NoReference { name }
            | SessionError::FedTwice { name } => class("InputError").with("input", name.as_str()),
            SessionError::NotFed { missing, instead, .. } => class("InputError")
                .with("input", missing.first().cloned().unwrap_or_default())
                .with("missing", missing.clone())
                .with("instead", instead.clone()),
            // A file that is damaged is told as it is where all of it is read at once.
            SessionError::Plan { location, error: PlanError::WeightFile { error, .. }, .. } => {
                let failure = class("ModelError").at(Some(location));
                match error {
                    AttributeError::Unreadable { file, .. }
                    | AttributeError::Checksum { file, .. } => {
                        failure.with("file", file.display().to_string())
                    }
                    _ => failure,
                }
            }
            SessionError::Shape { location, inputs, .. }
            | SessionError::Plan { location, inputs, .. } => {
                operator(location).with("inputs", inputs.as_str())
            }
            SessionError::Run { location, .. } => operator(location),
            SessionError::Store(_) => met_as("StoreError"),
            SessionError::State(error) => class("StateError").with("input", carried(error)),
            SessionError::TooLarge { at, .. } => class("TooLarge").at(at.as_deref()),
            SessionError::Cancelled { done, steps, at } => {
                class("Cancelled").with("done", *done).with("steps", *steps).at(at.as_deref())
            }
            SessionError::Deadline { done, steps, at } => class("DeadlineExceeded")
                .with("done", *done)
                .with("steps", *steps)
                .at(at.as_deref()),
            SessionError::Budget { needed, budget } => {
                class("BudgetExceeded").with("needed", *needed).with("budget", *budget)
            }
            SessionError::Tensor(_) => met_as("Error"),
            SessionError::Internal(_) => class("InternalError"),
            _ => class("Error"),
        }
    }
}

/// The operand that an error of a state is about.
fn carried(error: &StateError) -> Field {
    match error {
        StateError::CarriedTwice { input, .. }
        | StateError::NotCarried { input, .. }
        | StateError::FedAndCarried { input, .. }
        | StateError::NoStart { input, .. }
        | StateError::DType { input, .. }
        | StateError::Shape { input, .. }
        | StateError::NoDimension { input, .. } => input.as_str().into(),
        _ => Field::Nothing(None),
    }
}

impl From<TensorError> for Failure {
    fn from(error: TensorError) -> Self {
        tensor(&error, "InputError", error.to_string())
    }
}

//! Why a command ends, and with which exit code.

use plutino::cost::CostsError;
use plutino::generate::{GenerateError, SamplingError, TokenizerError};
use plutino::npy::NpyError;
use plutino::{ModelError, SessionError, TensorError};
use plutino_vision::VisionError;
use std::io;
use std::process::ExitCode;

/// Everything that ends a command before its work is done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The work is done, and its result is that two things are not equal: exit code 1.
    Mismatch,
    /// Arguments, or files named in them, are wrong: exit code 2.
    Usage(String),
    /// The model is wrong, or not supported: exit code 3.
    Model(String),
    /// A limit (time, memory) was reached, the caller's or the system's: exit code 4.
    Limit(String),
    /// Nobody reads what we print any more: not an error.
    ClosedPipe,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// What to tell the user.
    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            Self::Usage(message) | Self::Model(message) | Self::Limit(message) => Some(message),
            Self::Mismatch | Self::ClosedPipe => None,
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::ClosedPipe => 0,
            Self::Mismatch => 1,
            Self::Usage(_) => 2,
            Self::Model(_) => 3,
            Self::Limit(_) => 4,
        })
    }
}

impl From<io::Error> for Failure {
    /// Of printing. Errors of files are [`NpyError`]s and know their path.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ClosedPipe,
            _ => Self::Usage(format!("cannot print: {error}")),
        }
    }
}

impl From<NpyError> for Failure {
    fn from(error: NpyError) -> Self {
        let mut inner = &error;
        while let NpyError::File { error, .. } | NpyError::Array { error, .. } = inner {
            inner = error;
        }
        match inner {
            NpyError::Tensor(
                TensorError::Budget { .. } | TensorError::OutOfMemory { .. } | TensorError::Stopped,
            ) => Self::Limit(error.to_string()),
            _ => Self::Usage(error.to_string()),
        }
    }
}

impl From<CostsError> for Failure {
    fn from(error: CostsError) -> Self {
        match error {
            CostsError::Session(error) => error.into(),
            CostsError::Model(error) => error.into(),
            _ => Self::Usage(error.to_string()),
        }
    }
}

impl From<TokenizerError> for Failure {
    fn from(error: TokenizerError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<GenerateError> for Failure {
    fn from(error: GenerateError) -> Self {
        match error {
            GenerateError::Model(error) => error.into(),
            GenerateError::Session(error) => error.into(),
            GenerateError::Tensor(error) => error.into(),
            GenerateError::Tokenizer(error) => error.into(),
            GenerateError::Sampling(SamplingError::Memory(error)) => error.into(),
            GenerateError::Sampling(SamplingError::Option { .. })
            | GenerateError::EmptyPrompt { .. }
            | GenerateError::Context { .. } => Self::Usage(error.to_string()),
            _ => Self::Model(error.to_string()),
        }
    }
}

impl From<TensorError> for Failure {
    fn from(error: TensorError) -> Self {
        match error {
            TensorError::OutOfMemory { .. } | TensorError::Budget { .. } => {
                Self::Limit(error.to_string())
            }
            TensorError::Stopped => Self::Limit("the deadline passed".into()),
            _ => Self::Usage(error.to_string()),
        }
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        match error {
            e if e.is_limit() || e.is_out_of_memory() => Self::Limit(e.to_string()),
            _ => Self::Model(error.to_string()),
        }
    }
}

impl From<SessionError> for Failure {
    fn from(mut error: SessionError) -> Self {
        if let SessionError::Option { option, .. } | SessionError::NoSuchOperator { option, .. } =
            &mut error
        {
            *option = flag(option);
        }
        let message = error.to_string();
        match error {
            e if e.is_limit() || e.is_out_of_memory() => Self::Limit(message),
            SessionError::Option { .. }
            | SessionError::NoSuchOperator { .. }
            | SessionError::InputCount { .. }
            | SessionError::InputDType { .. }
            | SessionError::NoSuchOperand { .. }
            | SessionError::FedTwice { .. }
            | SessionError::Feed { .. }
            | SessionError::NotFed { .. }
            | SessionError::Symbol { .. } => Self::Usage(message),
            SessionError::Tensor(e) => e.into(),
            _ => Self::Model(message),
        }
    }
}

/// How the command line calls an option of a session. (Variables keep their names, and so does what
/// says more than a name.)
fn flag(option: &str) -> String {
    match option {
        "passes_off" => "--disable".into(),
        "threads" | "contexts" | "precision_of" | "stop_after" => {
            format!("--{}", option.replace('_', "-"))
        }
        _ => option.to_owned(),
    }
}

impl From<VisionError> for Failure {
    fn from(error: VisionError) -> Self {
        match error {
            VisionError::Output { .. } => Self::Model(error.to_string()),
            VisionError::Tensor(error) => error.into(),
            VisionError::Model(error) => error.into(),
            VisionError::Session(error) => error.into(),
            _ => Self::Usage(error.to_string()),
        }
    }
}

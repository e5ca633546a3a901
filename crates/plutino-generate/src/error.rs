//! Errors of generation. Structured first, worded second.

use crate::{SamplingError, TokenizerError};
use plutino_ir::{quote_path, told};
use plutino_runtime::{ModelError, SessionError};
use plutino_tensor::TensorError;

/// Tokens cannot be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// A model cannot be loaded.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A model cannot be run.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Memory is refused.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// No token can be chosen.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// A tokenizer cannot be read, or a token has no text.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The file `*.generate.json` is wrong.
    #[error("{}: {}", quote_path(file), told(problem))]
    Recipe {
        /// The file.
        file: String,
        /// What is wrong, and what would have been right.
        problem: String,
    },
    /// A model is no decoder, or of a form that is not known.
    #[error("{}: {}", quote_path(file), told(problem))]
    NotADecoder {
        /// The `.param` file.
        file: String,
        /// What is wrong, and what would have been right.
        problem: String,
    },
    /// There is no prompt, or one has no tokens.
    #[error("prompt {row} (from 0) has no tokens")]
    EmptyPrompt {
        /// Which one.
        row: usize,
    },
    /// A prompt is longer than the model can see.
    #[error("prompt {row} (from 0) has {tokens} tokens, the model's context is {context}")]
    Context {
        /// Which one.
        row: usize,
        /// Its tokens.
        tokens: usize,
        /// The most that there may be.
        context: usize,
    },
}

impl GenerateError {
    /// Whether a limit set by the caller ended the work: cancellation, deadline, memory budget.
    pub fn is_limit(&self) -> bool {
        match self {
            Self::Model(error) => error.is_limit(),
            Self::Session(error) => error.is_limit(),
            Self::Tensor(error) | Self::Sampling(SamplingError::Memory(error)) => {
                matches!(error, TensorError::Budget { .. } | TensorError::OutOfMemory { .. })
            }
            _ => false,
        }
    }
}

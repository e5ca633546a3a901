//! What can become of a request other than a result.

use crate::SessionError;
use plutino_ir::{Interrupted, quote};

/// A request that was submitted has no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The run failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// As many requests wait as may wait, and the caller does not.
    #[error("{depth} request(s) wait in the queue, which is all there is room for")]
    Full {
        /// Requests that may wait.
        depth: usize,
    },
    /// The queue was closed before the request was run.
    #[error("the queue was closed")]
    Closed,
    /// The request's limits ended it before a run of its own did.
    #[error("{why} {}", if *running { "while the request ran together with others" } else { "while the request waited in the queue" })]
    Interrupted {
        /// Which limit.
        why: Interrupted,
        /// Whether it ran together with others, which went on; else it waited.
        running: bool,
    },
    /// An operator panicked: a defect of plutino, or of an operator that somebody else wrote.
    #[error("an operator panicked: {}", quote(what))]
    Panicked {
        /// What it said.
        what: String,
    },
    /// The system starts no thread.
    #[error("no thread could be started: {what}")]
    Threads {
        /// What the system said.
        what: String,
    },
    /// Somebody has the result already: it was polled, or taken, before.
    #[error("the result of the request was taken before")]
    Taken,
}

impl QueueError {
    /// Whether a limit that the caller can move ended the work: cancellation, deadline, memory
    /// budget, how large plans may be, or how many requests may wait.
    pub fn is_limit(&self) -> bool {
        match self {
            Self::Session(error) => error.is_limit(),
            Self::Full { .. } | Self::Interrupted { .. } => true,
            _ => false,
        }
    }
}

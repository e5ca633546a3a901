//! What is said to a worker and what it answers: lines of JSON, as `xtask/python/peers/worker.py`
//! describes.

use serde::{Deserialize, Serialize};

/// A command to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(super) enum Command {
    /// Load the model and run it once.
    Load,
    /// Run for a slice of time.
    Run {
        /// How long.
        seconds: f64,
    },
    /// Compare the outputs with PyTorch's.
    Check,
}

/// The answer of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub(super) enum Reply {
    /// It has started.
    Ready {
        /// Of the engine.
        version: String,
        /// Bytes that the process holds before the engine is there, inputs included.
        harness: Option<u64>,
    },
    /// The model is loaded.
    Loaded {
        /// From the files to the first result.
        ms: f64,
    },
    /// The slice is over.
    Ran {
        /// Of each run.
        ms: Vec<f64>,
        /// The most bytes that the process ever held.
        peak: Option<u64>,
    },
    /// The outputs are compared.
    Checked {
        /// The largest difference of an output over its largest value, the largest of all outputs.
        error: f64,
    },
    /// Something went wrong; no further command is taken.
    Failed {
        /// What.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_that_the_python_side_knows() {
        let command = serde_json::to_string(&Command::Run { seconds: 0.5 }).unwrap();
        assert_eq!(command, r#"{"do":"run","seconds":0.5}"#);
        assert_eq!(serde_json::to_string(&Command::Load).unwrap(), r#"{"do":"load"}"#);
        let reply = r#"{"reply": "ran", "ms": [1.5], "peak": null}"#;
        let reply: Reply = serde_json::from_str(reply).unwrap();
        assert_eq!(reply, Reply::Ran { ms: vec![1.5], peak: None });
    }
}

//! One run, in all detail: what is fed, what is fetched, what ends it early.

use plutino_ir::{CancelToken, Limits};
use plutino_tensor::Tensor;
use std::time::Instant;

/// A run in all detail. Any operand of the graph can be fed, and any can be fetched: only what lies
/// between them is computed.
#[derive(Debug, Clone, Default)]
pub struct Request<'a> {
    pub(crate) feeds: Vec<(&'a str, &'a Tensor)>,
    pub(crate) fetches: Vec<&'a str>,
    pub(crate) limits: Limits,
}

impl<'a> Request<'a> {
    /// A request without feeds, that fetches the model's outputs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Feeds an operand, by its name in the file, or by that of its `pnnx.Input` operator.
    #[must_use]
    pub fn feed(mut self, operand: &'a str, tensor: &'a Tensor) -> Self {
        self.feeds.push((operand, tensor));
        self
    }

    /// Fetches an operand, by its name in the file. Without any, the model's outputs are fetched.
    #[must_use]
    pub fn fetch(mut self, operand: &'a str) -> Self {
        self.fetches.push(operand);
        self
    }

    /// Ends planning and the run when the token is cancelled, within milliseconds: steps that take
    /// long look at it as well.
    #[must_use]
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.limits.cancel = Some(token.clone());
        self
    }

    /// Ends planning and the run at this time, or milliseconds later: steps that take long look at
    /// the clock as well.
    #[must_use]
    pub fn deadline(mut self, at: Instant) -> Self {
        self.limits.deadline = Some(at);
        self
    }
}

//! What is done to sums before they are stored.
//!
//! ```text
//! y = activation(conv(x) + bias + residual)        the residual before the activation
//! y = activation(conv(x) + bias) + residual        and after it
//! ```
//! With factors (squeeze and excite), `x` is multiplied by one number for each channel of each
//! image first.

use plutino_cpu::activation::Activation;

/// What a convolution does beside the convolution. All are part of the plan; the tensors come with
/// the run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PostOps {
    /// Applied to the sums.
    pub activation: Option<Activation>,
    /// Whether a tensor of the output's shape and layout is added, and when.
    pub residual: Option<ResidualOrder>,
    /// Whether the channels of the input are multiplied by factors, `(N, C, 1, 1)` in the input's
    /// layout.
    pub factors: bool,
}

/// When a residual is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResidualOrder {
    /// `activation(sum + residual)`: ResNet's basic block.
    BeforeActivation,
    /// `activation(sum) + residual`: YOLO's bottleneck.
    AfterActivation,
}

/// A residual in a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Residual<'a> {
    /// Laid out as the output is.
    pub(crate) data: &'a [f32],
    pub(crate) order: ResidualOrder,
}

impl Residual<'_> {
    /// The elements of a part of the output.
    #[inline]
    pub(crate) fn part(self, range: std::ops::Range<usize>) -> Self {
        Self { data: &self.data[range], ..self }
    }
}

//! What is done to sums before they are stored.
//!
//! ```text
//! y = activation(conv(x) + bias + residual)        the residual before the activation
//! y = activation(conv(x) + bias) + residual        and after it
//! ```
//! With factors (squeeze and excite), `x` is multiplied by one number for each channel of each
//! image first.

use crate::nchwc::format::Format;
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

/// Which of a convolution's tensors lie in blocks of bf16, twice as many channels as a vector has
/// lanes, where they would else lie in blocks of f32: `(N, ceil(C/2b), H, W, 2b)`.
///
/// As slices of f32 they are words of two numbers, the lower half of the bits the first. Where the
/// last block has no more than `b` channels, the upper half of its words is anything, as surplus
/// lanes are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Bf16Tensors {
    /// The images. Only where all channels are in whole blocks of f32.
    pub input: bool,
    /// The residual.
    pub residual: bool,
    /// The output: each number the nearest bf16, of two the even one.
    pub output: bool,
}

impl Bf16Tensors {
    /// None of them.
    pub const NONE: Self = Self { input: false, residual: false, output: false };

    /// Whether these are all among those.
    pub fn are_among(self, those: Self) -> bool {
        self.input <= those.input && self.residual <= those.residual && self.output <= those.output
    }
}

/// A residual in a run, or a part of one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Residual<'a> {
    /// Laid out as the output is, if that is of the same format.
    pub(crate) data: &'a [f32],
    pub(crate) order: ResidualOrder,
    pub(crate) format: Format,
}

impl Residual<'_> {
    /// The elements of a part of an output of the same format.
    #[inline]
    pub(crate) fn part(self, range: std::ops::Range<usize>) -> Self {
        Self { data: &self.data[range], ..self }
    }
}

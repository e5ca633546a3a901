//! What happens to a product before it is stored for good.

use plutino_cpu::activation::Activation;
use std::ops::Range;

/// A vector added to a product.
#[derive(Debug, Clone, Copy, Default)]
pub enum Bias<'a> {
    /// Nothing.
    #[default]
    None,
    /// One number a row (a convolution's output channels).
    Rows(&'a [f32]),
    /// One number a column (a linear layer's output features).
    Cols(&'a [f32]),
}

/// A matrix added to a product, in the same place and with the same strides as C.
#[derive(Debug, Clone, Copy, Default)]
pub enum Residual<'a> {
    /// Nothing.
    #[default]
    None,
    /// What the output holds already.
    Output,
    /// Another matrix, laid out as the whole output is.
    Other(&'a [f32]),
}

/// activation(product + bias + residual)
#[derive(Debug, Clone, Copy, Default)]
pub struct PostOps<'a> {
    /// Added to rows or columns.
    pub bias: Bias<'a>,
    /// Added element by element.
    pub residual: Residual<'a>,
    /// Applied to the sum.
    pub activation: Option<Activation>,
}

/// No limits.
pub(super) const UNLIMITED: (f32, f32) = (f32::NEG_INFINITY, f32::INFINITY);

impl<'a> PostOps<'a> {
    /// The post-ops of a part of the output.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        let residual = match self.residual {
            Residual::Other(other) => Residual::Other(&other[range]),
            same => same,
        };
        Self { residual, ..*self }
    }

    /// The activation as limits, which the register tile applies, and what is left to be done to
    /// the finished tile.
    pub(super) fn limits(&self) -> ((f32, f32), Option<Activation>) {
        match self.activation {
            None => (UNLIMITED, None),
            Some(Activation::Relu) => ((0.0, f32::INFINITY), None),
            Some(Activation::Relu6) => ((0.0, 6.0), None),
            Some(Activation::Clamp { lo, hi }) => ((lo as f32, hi as f32), None),
            other => (UNLIMITED, other),
        }
    }
}

//! What happens to a product before it is stored for good.

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
pub enum Summand<'a> {
    /// Nothing.
    #[default]
    None,
    /// What the output holds already.
    Output,
    /// Another matrix, laid out as the whole output is.
    Other(&'a [f32]),
}

/// activation(product + bias + summand)
#[derive(Debug, Clone, Copy)]
pub struct Epilogue<'a> {
    /// Added to rows or columns.
    pub bias: Bias<'a>,
    /// Added element by element.
    pub summand: Summand<'a>,
    /// Limits of the result (minus and plus infinity: none); ReLU is (0, infinity).
    pub clamp: (f32, f32),
}

impl Default for Epilogue<'_> {
    fn default() -> Self {
        Self { bias: Bias::None, summand: Summand::None, clamp: (f32::NEG_INFINITY, f32::INFINITY) }
    }
}

//! Convolutions, and the windows they read.

pub(crate) mod branches;
pub(crate) mod conv;
pub(crate) mod conv_transpose;
pub(crate) mod deform_conv;
pub(crate) mod kernel;
pub(crate) mod multiplier;
pub(crate) mod unfold;

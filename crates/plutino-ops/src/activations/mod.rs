//! Activation functions, gates and softmax.

pub(crate) mod activation;
pub(crate) mod glu;
pub(crate) mod softmax;

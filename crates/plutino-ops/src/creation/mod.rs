//! Tensors out of nothing: constants, sequences, random numbers.

pub(crate) mod create;
pub(crate) mod random;
pub(crate) mod sequence;

//! What pnnx itself writes: expressions, sizes, and facts about tensors.

pub(crate) mod expression;
pub(crate) mod facts;
pub(crate) mod size;

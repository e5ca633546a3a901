//! Models made of models: a part of one, one with less in it, several of one, one of several.

pub(crate) mod extract;
pub(crate) mod optimize;
pub(crate) mod partition;
pub(crate) mod program;

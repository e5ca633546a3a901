//! Shapes, views and their order: what moves elements and computes nothing.

pub(crate) mod broadcast;
pub(crate) mod cat;
pub(crate) mod combinations;
pub(crate) mod diagonal;
pub(crate) mod diagonals;
pub(crate) mod expand;
pub(crate) mod meshgrid;
pub(crate) mod pad;
mod pad_sequence;
pub(crate) mod permute;
pub(crate) mod slice;
pub(crate) mod sliding;
pub(crate) mod split;
pub(crate) mod stacks;
pub(crate) mod transposes;
pub(crate) mod triangle;
pub(crate) mod view;
mod view_dtype;

//! Reading and writing by index or mask.

pub(crate) mod embedding;
pub(crate) mod embedding_bag;
pub(crate) mod gather;
pub(crate) mod index;
pub(crate) mod index_add;
pub(crate) mod masked_select;
pub(crate) mod nonzero;
pub(crate) mod one_hot;
pub(crate) mod repeat_interleave;
pub(crate) mod scatter_reduce;
pub(crate) mod slice_scatter;
pub(crate) mod take;

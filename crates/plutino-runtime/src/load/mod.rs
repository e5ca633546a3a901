//! Loading: from a file to a [`Model`](crate::Model), whose operators are known.
//!
//! | module | what |
//! |---|---|
//! | [`model`] | the graph of a file with every operator decoded, or all that is wrong with it |
//! | [`dtypes`], [`tied`] | what pnnx leaves out: dtypes, weights that are shared |
//! | [`check`], [`suspects`] | whether it would run as recorded; what is likely wrong in the file |
//! | [`stand_ins`], [`shared`] | weights of zeros, weights of another model |

pub(crate) mod check;
pub(crate) mod dtypes;
pub(crate) mod model;
pub(crate) mod shared;
pub(crate) mod stand_ins;
pub(crate) mod suspects;
pub(crate) mod tied;

//! Normalisation of batches, groups, layers and vectors.

pub(crate) mod batch_norm;
pub(crate) mod group_norm;
pub(crate) mod layer_norm;
pub(crate) mod local_response_norm;
pub(crate) mod native_norm;
pub(crate) mod normalize;

//! Distances and similarities of vectors.

pub(crate) mod cdist;
pub(crate) mod cosine_similarity;
pub(crate) mod pairwise_distance;

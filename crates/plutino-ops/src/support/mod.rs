//! What operators have in common: assembling outputs, composites, promotion, weights and post-ops.

pub(crate) mod affine;
pub(crate) mod assemble;
pub(crate) mod composite;
pub(crate) mod halves;
pub(crate) mod in_dtype;
pub(crate) mod names;
pub(crate) mod promotion;
pub(crate) mod rearrange;
pub(crate) mod refused;
pub(crate) mod several;
pub(crate) mod steps;
pub(crate) mod weighted;
pub(crate) mod weights;

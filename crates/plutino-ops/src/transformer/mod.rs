//! Attention, and layers that are made of it.

pub(crate) mod attention;
pub(crate) mod encoder_layer;
pub(crate) mod multihead_attention;

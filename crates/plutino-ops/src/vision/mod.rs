//! Images: resizing, sampling, boxes.

pub(crate) mod grid_sample;
pub(crate) mod nms;
pub(crate) mod roi_align;
pub(crate) mod roi_pool;
pub(crate) mod upsample;

//! Images: resizing, sampling, boxes.

mod box_tree;
pub(crate) mod grid_sample;
pub(crate) mod nms;
pub(crate) mod roi_align;
pub(crate) mod roi_pool;
pub(crate) mod upsample;

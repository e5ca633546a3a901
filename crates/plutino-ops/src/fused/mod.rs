//! Operators that no file holds: what passes put in the place of several.

pub(crate) mod channel_map;
pub(crate) mod depthwise;
pub(crate) mod detect;
pub(crate) mod reorder;
pub(crate) mod rows;

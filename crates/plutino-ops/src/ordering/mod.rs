//! Sorting, searching, and what stands out.

pub(crate) mod search;
pub(crate) mod sort;
pub(crate) mod topk;
pub(crate) mod unique;

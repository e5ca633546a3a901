//! What `plutino profile` finds out: rows, a comparison with an older one, and a trace.

pub(crate) mod against;
pub(crate) mod report;
pub(crate) mod trace;

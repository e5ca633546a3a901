//! Normalisations.
//!
//! - [`normalize_rows`]: layer, group and instance norm, and RMS norm: statistics of each row;
//! - [`BlockedGroupNorm`]: group and instance norm in channel blocks;
//! - [`channel_affine`]: batch norm with fixed statistics is a scale and a shift for each channel;
//! - [`local_response`]: each element over a power of its neighbours' squares;
//! - [`unit_rows`]: each vector over its own norm.
//!
//! Every one has a body for f32, vectorised, and one for any float dtype (`..._any`) in f64.

mod affine;
mod blocks;
mod local_response;
mod rows;
mod unit;

pub use affine::{channel_affine, channel_affine_any, channel_affine_blocked};
pub use blocks::BlockedGroupNorm;
pub use local_response::{LocalResponse, local_response, local_response_any};
pub use rows::{RowNorm, normalize_rows, normalize_rows_any, normalize_rows_to_bf16};
pub use unit::{unit_rows, unit_rows_any};

/// Whether numbers deviate so little from their mean, by less than a thirtieth of it, that its
/// roundings, some units in the last place, would count beside that. Rows of networks seldom do;
/// rows of one number always, but for zeros, whose mean is exact.
#[inline(always)]
fn is_narrow(mean: f64, variance: f64) -> bool {
    mean != 0.0 && variance * 1024.0 <= mean * mean
}

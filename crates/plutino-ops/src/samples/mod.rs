//! Samples of functions and of random variables: differences, histograms, covariances.

pub(crate) mod gradient;
pub(crate) mod histogram;
pub(crate) mod statistics;

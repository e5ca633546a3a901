//! Estimates, by figures that are made up.

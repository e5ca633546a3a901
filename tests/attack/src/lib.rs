//! Damaged models, and what must become of them: a result or a typed error, within limits of time
//! and memory.
//!
//! - [`mutant`] damages fixtures: `cargo xtask mutants` runs a million of them in processes of
//!   their own, the test of this crate a few thousand.
//! - [`target`] holds the bodies of the fuzz targets in `fuzz/`, which the test of this crate feeds
//!   with seeds and damaged seeds as well.
//! - [`trial`] loads, plans and runs, and looks at what comes of it.
//!
//! The same numbers make the same damage everywhere.
#![forbid(unsafe_code)]

pub mod chance;
pub mod inputs;
pub mod mutant;
pub mod seeds;
pub mod target;
pub mod text;
pub mod trial;

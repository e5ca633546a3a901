//! Models that mean harm, one a row: each ends in a typed error that says what is wrong, or in the
//! right result, in a tenth of a second and within the memory budget.
//!
//! A row says what must come of it: `! word` is an error with that word in it, `= 1 2 3` are the
//! elements of the first result, `= [2,3]` is its shape.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests fail by panicking

mod expressions;
mod families;
mod files;
mod graphs;
mod harness;
mod sizes;

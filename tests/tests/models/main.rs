//! Whole models, end to end. One binary, so that the engine is linked once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests fail by panicking

mod batch;
mod cancel;
mod coverage;
mod determinism;
mod dtypes;
mod empty;
mod fixtures;
mod generate;
mod memory;
mod mutations;
mod narrow;
mod operators;
mod order;
mod passes;
mod precision;
mod programs;
mod random;
mod raw;
mod reduced;
mod requests;
mod shared;
mod sizes;
mod tokenizers;

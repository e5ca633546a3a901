//! Whole models, end to end. One binary, so that the engine is linked once.

mod determinism;
mod fixtures;
mod memory;
mod mutations;
mod operators;
mod passes;

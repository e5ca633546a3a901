//! One set of features for every build of the workspace.
//!
//! Cargo builds a crate once for each set of features that its dependencies are asked for, and each
//! selection of packages (`--workspace`, `-p plutino-ops`, `cargo xtask`) may ask for another one:
//! then the kernels, which take minutes, are built again. This crate is empty. Members depend on it
//! where they are built for development, so that they all ask for the same; published crates do
//! not. `cargo xtask tidy` compares the selections.

#![forbid(unsafe_code)]

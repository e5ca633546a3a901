//! Transforms against their definition, on every number of threads.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod fft;
mod stft;

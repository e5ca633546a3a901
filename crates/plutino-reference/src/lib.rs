//! The naive oracle of each kernel: plain loops that follow the formula, with sums in f64.
//!
//! Slow and obviously right. The tests of every kernel compare against these; [`testkit`] has what
//! they share.
#![forbid(unsafe_code)]

pub mod attention;
pub mod conv;
pub mod copy;
pub mod distance;
pub mod elementwise;
pub mod fft;
pub mod gemm;
pub mod norm;
pub mod pad;
pub mod pool;
pub mod recurrent;
pub mod reduce;
pub mod resize;
pub mod sample;
pub mod softmax;
pub mod testkit;

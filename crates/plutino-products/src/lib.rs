//! Matrix products, and what is made of them: attention and recurrent layers.

pub mod attention;
pub mod gemm;
pub mod recurrent;

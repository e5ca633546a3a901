//! Transcendental functions of f32 vectors, generic over [`Simd`].
//!
//! | function | largest error (ULP) | notes |
//! |---|---|---|
//! | [`exp`] | 1 | overflows to infinity, underflows gradually |
//! | [`exp_nonpositive`] | 2 | of what is at most 0; 0 below -87.3 |
//! | [`expm1`] | 1.5 | |
//! | [`exp2`] | 1.5 | |
//! | [`log`] | 1 | NaN below zero, -inf at zero |
//! | [`log2`], [`log10`] | 2 | as [`log`] |
//! | [`log1p`] | 1.5 | NaN below -1, -inf at -1 |
//! | [`sigmoid`] | 2.5 | keeps its relative accuracy down to the least denormal |
//! | [`silu`] | 3 | -0 below -88.72, or already below -88.376; NaN at -inf |
//! | [`tanh`] | 2.5 | |
//! | [`erf`] | 2 | |
//! | [`erfc`] | 5 | gradual underflow from 9.2 on |
//! | [`erfinv`] | 3.5 | |
//! | [`sin`], [`cos`] | 2 | any finite argument |
//! | [`tan`] | 3.5 | any finite argument |
//! | [`asin`], [`acos`] | 2.5 | |
//! | [`atan`], [`atan2`] | 2.5 | |
//! | [`sinh`], [`cosh`] | 2.5 | |
//! | [`asinh`], [`acosh`], [`atanh`] | 3.5 | |
//!
//! [`pairs`] has functions of two numbers that go through f64: within half an ULP and a little.
//! [`special`] functions are those of f64 numbers.
//!
//! Bounds are against the exact result, on every instruction set; where the result is denormal one
//! ULP is the least denormal. They are tested over a dense sample of all f32 and, on request
//! (`cargo test -p plutino-kernels --release -- --ignored every_f32`), over all 2^32. NaN gives
//! NaN.
//!
//! Polynomials are minimax fits (Remez exchange in 200-bit arithmetic, then rounded to f32) of our
//! own; range reductions are the textbook ones (Cody and Waite, *Software Manual for the Elementary
//! Functions*, 1980; Muller, *Elementary Functions*, 2016).

mod arc;
mod erf;
mod exp;
mod hyperbolic;
mod log;
pub mod pairs;
mod sigmoid;
pub mod special;
#[cfg(test)]
mod tests;
mod trig;

pub use arc::{acos, asin, atan, atan2};
pub use erf::{erf, erfc, erfinv, normal_cdf};
pub use exp::{exp, exp_nonpositive, exp2, expm1};
pub use hyperbolic::{acosh, asinh, atanh, cosh, sinh};
pub use log::{log, log1p, log2, log10};
pub use sigmoid::{sigmoid, silu, tanh};
pub use trig::{cos, sin, tan};

use crate::simd::Simd;

/// c\[0\] + c\[1\] x + c\[2\] x^2 + ..., by Horner's rule.
#[cfg_attr(not(unoptimised), inline(always))]
pub fn polynomial<S: Simd, const N: usize>(s: S, x: S::F32, c: [f32; N]) -> S::F32 {
    let mut y = s.splat(c[N - 1]);
    for k in 1..N {
        y = s.fma(y, x, s.splat(c[N - 1 - k]));
    }
    y
}

/// The magnitude of `x` with the sign of `sign`.
#[inline(always)]
pub fn copysign<S: Simd>(s: S, x: S::F32, sign: S::F32) -> S::F32 {
    let sign = s.and_i32(s.as_i32(sign), s.splat_i32(i32::MIN));
    s.as_f32(s.or_i32(s.as_i32(s.abs(x)), sign))
}

/// -x, the sign bit flipped (also of zero and NaN).
#[inline(always)]
pub fn neg<S: Simd>(s: S, x: S::F32) -> S::F32 {
    s.as_f32(s.xor_i32(s.as_i32(x), s.splat_i32(i32::MIN)))
}

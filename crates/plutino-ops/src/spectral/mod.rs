//! Fourier transforms.

pub(crate) mod fft;
pub(crate) mod fft_shift;
pub(crate) mod stft;

//! Fourier transforms: [`fft`] of tensors, [`stft`] of the frames of a signal.
pub mod fft;
pub mod stft;

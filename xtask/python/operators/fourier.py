"""Fourier transforms. Complex results are written as pairs of real numbers."""

import torch

from operators.calls import written
from operators.case import case, floats

X = (2, 6, 5)


def pairs(function, **options):
    return lambda x: torch.view_as_real(function(x, **options))


def parts(function, **options):
    """As pairs(), for results that are lazily conjugated."""

    def call(x):
        y = function(x, **options)
        return torch.stack((torch.real(y), torch.imag(y)), -1)

    return call


def of_pairs(function, **options):
    return lambda x: function(torch.view_as_complex(x), **options)


def stft(complex_: bool, **options):
    def call(x):
        y = torch.stft(x, return_complex=True, **options)
        return torch.view_as_real(y) if complex_ else y.abs()

    return call


def istft(**options):
    return lambda x: torch.istft(torch.view_as_complex(x), **options)


HANN = torch.hann_window(10)

# Sums of 60 terms below 2, in any order.
OPTIONS = {"rtol": 1e-5, "atol": 3e-5}

CASES = {
    "fft": case(pairs(torch.fft.fft), X, **OPTIONS),
    "fft_cropped": case(pairs(torch.fft.fft, n=4, dim=1, norm="ortho"), X, **OPTIONS),
    "fft_padded": case(pairs(torch.fft.fft, n=9, norm="forward"), X, **OPTIONS),
    "ifft": case(parts(torch.fft.ifft), X, **OPTIONS),
    "rfft": case(pairs(torch.fft.rfft, dim=1), X, **OPTIONS),
    "ihfft": case(parts(torch.fft.ihfft), X, **OPTIONS),
    "irfft": case(of_pairs(torch.fft.irfft), (3, 5, 2), **OPTIONS),
    "irfft_odd": case(of_pairs(torch.fft.irfft, n=7, dim=0), (4, 5, 2), **OPTIONS),
    "hfft": case(of_pairs(torch.fft.hfft, norm="ortho"), (3, 5, 2), **OPTIONS),
    "fft2": case(pairs(torch.fft.fft2, s=(4, 7)), X, **OPTIONS),
    "ifft2": case(pairs(torch.fft.ifft2, dim=(0, 2)), X, **OPTIONS),
    "rfft2": case(pairs(torch.fft.rfft2, norm="forward"), X, **OPTIONS),
    "irfft2": case(of_pairs(torch.fft.irfft2, s=(4, 7)), (3, 4, 5, 2), **OPTIONS),
    "hfft2": case(of_pairs(torch.fft.hfft2), (3, 4, 5, 2), rtol=1e-5, atol=1e-4),
    "ihfft2": case(pairs(torch.fft.ihfft2), X, **OPTIONS),
    "fftn": case(pairs(torch.fft.fftn), X, rtol=1e-5, atol=1e-4),
    "ifftn": case(pairs(torch.fft.ifftn, dim=(0, 1)), X, **OPTIONS),
    "rfftn": case(pairs(torch.fft.rfftn), X, rtol=1e-5, atol=1e-4),
    "irfftn": case(of_pairs(torch.fft.irfftn), (3, 4, 5, 2), **OPTIONS),
    "ihfftn": case(pairs(torch.fft.ihfftn), X, **OPTIONS),
    "hfftn": case(of_pairs(torch.fft.hfftn), (3, 4, 5, 2), rtol=1e-5, atol=1e-4),
    "stft": case(stft(True, n_fft=16, hop_length=5), (2, 60), **OPTIONS),
    "stft_window": case(stft(True, n_fft=16, win_length=10, window=HANN, normalized=True), (40,), **OPTIONS),
    "stft_two_sides": case(
        stft(True, n_fft=12, hop_length=4, onesided=False, center=False), (2, 40), **OPTIONS
    ),
    "stft_magnitude": case(stft(False, n_fft=16, pad_mode="constant"), (2, 40), **OPTIONS),
    "istft": case(istft(n_fft=16, hop_length=4), (2, 9, 7, 2), **OPTIONS),
    "istft_normalized": case(istft(n_fft=16, hop_length=4, normalized=True, length=20), (9, 7, 2), **OPTIONS),
    "spectrograms": written(
        """
        torchaudio.functional.spectrogram $waveform=a $window=b pad=2 n_fft=12 hop_length=4 win_length=10 power=2.0 normalized=False
        y = torchaudio.functional.spectrogram $waveform=a $window=b pad=0 n_fft=12 hop_length=4 win_length=10 power=None normalized=True
        torchaudio.functional.inverse_spectrogram $spectrogram=y $window=b length=40 pad=0 n_fft=12 hop_length=4 win_length=10 normalized=True
        """,
        (2, 40), floats(10, low=0.5, high=1.0), rtol=1e-4, atol=1e-4,
    ),
}

"""Sound from short-time spectra, and the quality of such sound."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import MissingExtra
from kreiss.preprocessing.sound import Wave, hann

RATE = 8000  # of the sounds of the task `frames`


def resynthesised(frames: NDArray[np.complex128], window: int, hop: int, length: int) -> Wave:
    """The sound whose spectrum is nearest to the frames: overlap-add, divided by the sum of squared windows."""
    pieces, taper = np.fft.irfft(frames, window), hann(window)
    size = hop * (len(frames) - 1) + window
    wave, weight = np.zeros(size), np.zeros(size)
    for place, piece in enumerate(pieces):
        wave[place * hop : place * hop + window] += piece * taper
        weight[place * hop : place * hop + window] += taper**2
    return (wave / np.maximum(weight, 1e-12))[window : window + length]


# ---------------------------------------------------------------- quality


def segmental_snr(reference: Wave, wave: Wave, segment: int = 256) -> float:
    """Mean over segments of 10 log₁₀(Σ s² / Σ (s − ŝ)²) in dB, each kept within [−10, 35]; silent ones do not count."""
    count = len(reference) // segment * segment
    signal, noise = (
        np.square(part[:count]).reshape(-1, segment).sum(1) for part in (reference, reference - wave[: len(reference)])
    )
    heard = signal > 1e-10
    ratio = 10 * np.log10(signal[heard] / np.maximum(noise[heard], 1e-20))
    return float(np.clip(ratio, -10, 35).mean()) if heard.any() else float("nan")


def quality(reference: Wave, wave: Wave) -> dict[str, float]:
    """SegSNR in dB, STOI and narrow-band PESQ of a sound at 8 kHz against its original.

    Measures for which the sound is too short or too silent are left out.
    """
    stoi, pesq = judges()
    measures = {"segsnr": segmental_snr, "stoi": stoi, "pesq": pesq}
    scores = {name: measure(reference, wave) for name, measure in measures.items()}
    return {name: value for name, value in scores.items() if np.isfinite(value)}


def judges() -> tuple[Any, Any]:
    """STOI and PESQ, each NaN for a sound that it cannot judge."""
    try:
        import pesq as pesq_package
        import pystoi
    except ImportError as error:
        raise MissingExtra("the quality of sounds", "audio", str(error.name)) from None

    def stoi(reference: Wave, wave: Wave) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # when less than 30 frames are heard
            try:
                return float(pystoi.stoi(reference, wave, RATE))
            except RuntimeWarning:
                return float("nan")

    def pesq(reference: Wave, wave: Wave) -> float:
        try:
            return float(pesq_package.pesq(RATE, reference, wave, "nb"))
        except pesq_package.PesqError:
            return float("nan")

    return stoi, pesq

"""Sound files, short-time spectra, and the quality of resynthesised sound."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import InputError, MissingExtra

Wave = NDArray[np.float64]

RATE = 8000  # of all sounds after reading
SLOWEST, FASTEST = 1000, 768_000  # rates of sound files; resampling from others takes long filters


# ---------------------------------------------------------------- reading


def read_sound(path: Path) -> tuple[int, Wave]:
    """Sampling rate and samples in [−1, 1) of a RIFF or NIST SPHERE file; several channels are averaged."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} must be readable; got {error.strerror}. Check the path.") from None
    if raw[:4] == b"RIFF" and raw[8:12] == b"WAVE":
        rate, wave = _riff(path, raw)
    elif raw[:8] == b"NIST_1A\n":
        rate, wave = _sphere(path, raw)
    else:
        raise InputError(
            f"{path} must be a RIFF or NIST SPHERE file; got one that starts {raw[:8]!r}. Convert it to WAV."
        )
    if not SLOWEST <= rate <= FASTEST or not np.isfinite(wave).all():
        raise _unusual(path, f"a rate of {rate} Hz" if np.isfinite(wave).all() else "samples that are not finite")
    return rate, wave


def _riff(path: Path, raw: bytes) -> tuple[int, Wave]:
    """Chunks of (name, length, content padded to even): `fmt ` and `data` are those that count."""
    chunks: dict[bytes, bytes] = {}
    place = 12
    while place + 8 <= len(raw):
        length = int.from_bytes(raw[place + 4 : place + 8], "little")
        chunks.setdefault(raw[place : place + 4], raw[place + 8 : place + 8 + length])
        place += 8 + length + length % 2
    layout = chunks.get(b"fmt ", b"")
    if len(layout) < 16 or b"data" not in chunks:
        raise _unusual(path, "no fmt or data chunk")
    coding, channels = np.frombuffer(layout[:4], "<u2").tolist()
    if coding == 0xFFFE and len(layout) >= 26:  # extensible: the coding follows
        coding = int.from_bytes(layout[24:26], "little")
    bits = int.from_bytes(layout[14:16], "little")
    rate = int.from_bytes(layout[4:8], "little")
    return rate, _samples(path, chunks[b"data"], {1: "pcm", 3: "float"}.get(coding, coding), bits, channels, "<")


def _sphere(path: Path, raw: bytes) -> tuple[int, Wave]:
    """A header of text, lines `name -type value`, whose size its second line tells; then the samples."""
    try:
        size = int(raw[8:16])
        lines = [line.split(None, 2) for line in raw[16:size].decode("ascii").split("end_head")[0].splitlines()]
        fields = {line[0]: line[2] for line in lines if len(line) == 3 and line[1].startswith("-")}
        rate, channels = int(fields["sample_rate"]), int(fields.get("channel_count", 1))
        bits = 8 * int(fields["sample_n_bytes"])
        count = int(fields["sample_count"]) * channels * bits // 8
    except (ValueError, KeyError) as error:
        raise _unusual(path, f"a SPHERE header without {error}") from None
    order = ">" if fields.get("sample_byte_format", "01") == "10" else "<"
    return rate, _samples(path, raw[size : size + count], fields.get("sample_coding", "pcm"), bits, channels, order)


def _samples(path: Path, content: bytes, coding: object, bits: int, channels: int, order: str) -> Wave:
    """Samples in [−1, 1) from the bytes of a file."""
    if not ((coding == "pcm" and bits in (8, 16, 24, 32)) or (coding == "float" and bits in (32, 64))) or channels < 1:
        raise _unusual(path, f"coding {coding}, {bits} bits, {channels} channels")
    width = bits // 8
    content = content[: len(content) // (width * channels) * (width * channels)]
    if coding == "float":
        wave = np.frombuffer(content, f"{order}f{width}").astype(np.float64)
    elif bits == 8:
        wave = (np.frombuffer(content, np.uint8).astype(np.float64) - 128) / 128
    elif bits == 24:
        parts = np.frombuffer(content, np.uint8).reshape(-1, 3)[:, :: 1 if order == "<" else -1]
        whole = np.pad(parts, ((0, 0), (1, 0))).copy().view("<i4")[:, 0]  # as the upper three bytes of four
        wave = whole / 2.0**31
    else:
        wave = np.frombuffer(content, f"{order}i{width}") / 2.0 ** (bits - 1)
    return wave.reshape(-1, channels).mean(1)


def _unusual(path: Path, what: str) -> InputError:
    return InputError(
        f"{path} must hold plain PCM of 8 to 32 bits or floats; got {what}. Convert it, for example with sox or ffmpeg."
    )


def resampled(rate: int, wave: Wave) -> Wave:
    """The sound at 8 kHz."""
    from scipy.signal import resample_poly

    common = np.gcd(rate, RATE)
    return wave if rate == RATE else resample_poly(wave, RATE // common, rate // common)


# ---------------------------------------------------------------- spectra


def spectrum(wave: Wave, window: int, hop: int) -> NDArray[np.complex128]:
    """Short-time Fourier transform (frames, window/2 + 1) with a periodic Hann window; the ends are padded."""
    padded = np.pad(wave, (window, window + -len(wave) % hop))
    frames = np.lib.stride_tricks.sliding_window_view(padded, window)[::hop]
    return np.fft.rfft(frames * _hann(window))


def resynthesised(frames: NDArray[np.complex128], window: int, hop: int, length: int) -> Wave:
    """The sound whose spectrum is nearest to the frames: overlap-add, divided by the sum of squared windows."""
    pieces, hann = np.fft.irfft(frames, window), _hann(window)
    size = hop * (len(frames) - 1) + window
    wave, weight = np.zeros(size), np.zeros(size)
    for place, piece in enumerate(pieces):
        wave[place * hop : place * hop + window] += piece * hann
        weight[place * hop : place * hop + window] += hann**2
    return (wave / np.maximum(weight, 1e-12))[window : window + length]


def _hann(window: int) -> Wave:
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)


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

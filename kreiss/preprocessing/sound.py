"""Sound files, and the features of a sound that a network reads."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import InputError, MissingExtra, check_name, check_size

Wave = NDArray[np.float64]

SLOWEST, FASTEST = 1000, 768_000  # rates of sound files; resampling from others takes long filters
COMPRESSED = (b"fLaC", b"OggS", b"FORM")  # how FLAC, Ogg and AIFF begin
FEATURES = ("mel", "spectrum", "samples")


# ---------------------------------------------------------------- reading


def read_sound(path: Path) -> tuple[int, Wave]:
    """Sampling rate and samples in [−1, 1) of a file; several channels are averaged.

    RIFF and NIST SPHERE are read here; FLAC, Ogg and AIFF need the package soundfile (extra `audio`).
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} must be readable; got {error.strerror}. Check the path.") from None
    if raw[:4] == b"RIFF" and raw[8:12] == b"WAVE":
        rate, wave = _riff(path, raw)
    elif raw[:8] == b"NIST_1A\n":
        rate, wave = _sphere(path, raw)
    elif raw[:4] in COMPRESSED:
        rate, wave = _decoded(path, raw)
    else:
        raise InputError(
            f"{path} must be a RIFF (WAV), FLAC, Ogg, AIFF or NIST SPHERE file; got one that starts {raw[:8]!r}. "
            "Convert it to WAV."
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


def _decoded(path: Path, raw: bytes) -> tuple[int, Wave]:
    try:
        import soundfile
    except ImportError:
        raise MissingExtra(f"reading {path.suffix or 'such'} files", "audio", "soundfile") from None
    try:
        wave, rate = soundfile.read(io.BytesIO(raw), always_2d=True)
    except soundfile.LibsndfileError as error:
        raise _unusual(path, str(error).rstrip(".")) from None
    return int(rate), wave.mean(1)


def resampled(rate: int, wave: Wave, to: int) -> Wave:
    """The sound at another rate."""
    from scipy.signal import resample_poly

    common = np.gcd(rate, to)
    return wave if rate == to else resample_poly(wave, to // common, rate // common)


# ---------------------------------------------------------------- features


def hann(window: int) -> Wave:
    """The periodic Hann window."""
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)


def spectrum(wave: Wave, window: int, hop: int) -> NDArray[np.complex128]:
    """Short-time Fourier transform (frames, window/2 + 1) with a periodic Hann window; the ends are padded."""
    padded = np.pad(wave, (window, window + -len(wave) % hop))
    frames = np.lib.stride_tricks.sliding_window_view(padded, window)[::hop]
    return np.fft.rfft(frames * hann(window))


def mel_filters(count: int, window: int, rate: int) -> NDArray[np.float64]:
    """Triangles (window/2 + 1, count) over the frequencies of a spectrum, equally wide in mel, 2595 log₁₀(1 + f/700).

    A filter is 1 at its centre; the centres of its neighbours are where it ends.
    """
    frequencies = np.fft.rfftfreq(window, 1 / rate)
    mel = np.linspace(0, 2595 * math.log10(1 + rate / 2 / 700), count + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    rising = (frequencies[:, None] - edges[:-2]) / np.diff(edges)[:-1]
    falling = (edges[2:] - frequencies[:, None]) / np.diff(edges)[1:]
    return np.maximum(np.minimum(rising, falling), 0)


@dataclass(frozen=True)
class Sound:
    """How a sound becomes a sequence of vectors.

    Args:
        rate: samples per second; sounds of another rate are resampled.
        window: samples in a frame.
        hop: samples from frame to frame.
        features: "mel", ln of the power in mel bands; "spectrum", ln of the magnitudes; "samples", the frame itself.
        bands: number of mel bands.
        floor: smallest magnitude whose logarithm is taken.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}  # of files that are read

    rate: int
    window: int
    hop: int
    features: Literal["mel", "spectrum", "samples"] = "spectrum"
    bands: int = 40
    floor: float = 1e-4

    def __post_init__(self) -> None:
        check_name("features", self.features, FEATURES)
        check_size("hop", self.hop)
        check_size("bands", self.bands)
        if not SLOWEST <= self.rate <= FASTEST:
            raise InputError(f"`rate` must be from {SLOWEST} to {FASTEST} Hz; got rate={self.rate}. Pass another.")
        if check_size("window", self.window, minimum=2) % 2 or self.hop > self.window:
            raise InputError(
                f"a frame must have an even number of samples, at least those of `hop`; got {self.window} samples "
                f"and a hop of {self.hop}. Choose another window."
            )
        if not 0 < self.floor < math.inf:
            raise InputError(f"`floor` must be positive; got floor={self.floor}. Pass a small magnitude such as 1e-4.")
        if self.features == "mel" and not mel_filters(self.bands, self.window, self.rate).any(0).all():
            raise InputError(
                f"every mel band must hold a frequency; got bands={self.bands} for frames of {self.window} samples. "
                "Pass fewer bands or a longer window."
            )

    @property
    def size(self) -> int:
        """Number of features."""
        return {"mel": self.bands, "spectrum": self.window // 2 + 1, "samples": self.window}[self.features]

    def frames(self, rate: int, wave: Wave) -> NDArray[np.float32]:
        """Features (T, size) of a sound."""
        wave = resampled(rate, wave, self.rate)
        if self.features == "samples":
            padded = np.pad(wave, (0, max(-(len(wave) - self.window) % self.hop, self.window - len(wave), 0)))
            found = np.lib.stride_tricks.sliding_window_view(padded, self.window)[:: self.hop]
            return found.astype(np.float32)
        magnitudes = np.abs(spectrum(wave, self.window, self.hop))
        if self.features == "mel":
            power = magnitudes**2 @ mel_filters(self.bands, self.window, self.rate)
            return np.log(np.maximum(power, self.floor**2)).astype(np.float32)
        return np.log(np.maximum(magnitudes, self.floor)).astype(np.float32)

    def read(self, source: Any) -> NDArray[np.float32]:
        """Features of a file, or of (rate, samples)."""
        if isinstance(source, str | Path):
            return self.frames(*read_sound(Path(source)))
        if not (isinstance(source, tuple) and len(source) == 2 and np.ndim(source[0]) == 0 and np.ndim(source[1]) == 1):
            raise InputError(
                f"a sound must be the path of a file, or (rate, samples); got {type(source).__name__}. Pass one."
            )
        rate, wave = check_size("rate", source[0]), np.asarray(source[1], np.float64)
        if not SLOWEST <= rate <= FASTEST or not len(wave) or not np.isfinite(wave).all():
            raise InputError(
                f"a sound must be finite samples at {SLOWEST} to {FASTEST} Hz; got {len(wave)} samples at {rate} Hz."
                " Correct them."
            )
        return self.frames(rate, wave)

"""Sound files made up for tests."""

from __future__ import annotations

import numpy as np


def speech(length: int, seed: int = 0) -> np.ndarray:
    """Something that swells and buzzes as a voice does, in [−0.5, 0.5]."""
    source, time = np.random.RandomState(seed), np.arange(length)
    pitch = 2 * np.pi * (0.015 + 0.002 * np.sin(time / 900 + seed))
    voice = sum(np.sin(k * np.cumsum(pitch)) / k for k in range(1, 12))
    return 0.2 * (voice * np.square(np.sin(time / 700)) + 0.05 * source.randn(length)).clip(-2.5, 2.5)


def riff(wave: np.ndarray, rate: int = 8000, bits: int = 16, channels: int = 1, extra: bytes = b"") -> bytes:
    """A RIFF file of PCM, with `extra` chunks before the samples."""
    width = bits // 8
    body = samples(np.repeat(wave, channels), bits, "<")
    layout = b"".join(
        number.to_bytes(size, "little")
        for number, size in (
            (1, 2),
            (channels, 2),
            (rate, 4),
            (rate * width * channels, 4),
            (width * channels, 2),
            (bits, 2),
        )
    )
    chunks = chunk(b"fmt ", layout) + extra + chunk(b"data", body)
    return b"RIFF" + (4 + len(chunks)).to_bytes(4, "little") + b"WAVE" + chunks


def chunk(name: bytes, body: bytes) -> bytes:
    return name + len(body).to_bytes(4, "little") + body + b"\0" * (len(body) % 2)


def sphere(wave: np.ndarray, rate: int = 16_000, order: str = "01", coding: str = "pcm") -> bytes:
    """A NIST SPHERE file of 16 bits, as TIMIT's."""
    fields = [
        "database_id -s5 TIMIT",
        f"sample_count -i {len(wave)}",
        "sample_n_bytes -i 2",
        "channel_count -i 1",
        f"sample_byte_format -s2 {order}",
        f"sample_rate -i {rate}",
        f"sample_coding -s{len(coding)} {coding}",
        "end_head",
    ]
    header = ("NIST_1A\n   1024\n" + "\n".join(fields) + "\n").encode().ljust(1024)
    return header + samples(wave, 16, "<" if order == "01" else ">")


def samples(wave: np.ndarray, bits: int, order: str) -> bytes:
    whole = np.round(wave * 2 ** (bits - 1)).astype(np.int64)
    if bits == 8:
        return (whole + 128).astype(np.uint8).tobytes()
    if bits == 24:
        return whole.astype("<i4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    return whole.astype(f"{order}i{bits // 8}").tobytes()

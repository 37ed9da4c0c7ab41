"""How the memory of a training pass grows with the length of the sequence.

Example:
    >>> import kreiss
    >>> from kreiss.bench.growth import memory_by_length
    >>> found = memory_by_length(kreiss.RNN(3, 8), lengths=(20, 40), batch=2)
    >>> 0.5 < found.exponent < 1.5
    True
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kreiss.bench.allocation import peak_bytes
from kreiss.errors import InputError, check_size

LENGTHS = (100, 200, 400)


@dataclass(frozen=True)
class MemoryGrowth:
    """Peak memory of a forward and backward pass against the length of the sequence.

    Attributes:
        lengths: T.
        peaks: bytes beyond those in use before the pass.
        resident: whether it is the resident size of a fresh process, or what torch allocated.
    """

    lengths: tuple[int, ...]
    peaks: tuple[int, ...]
    resident: bool

    @property
    def exponent(self) -> float:
        """The power of T with which memory grows between the two longest lengths: 1 is linear, 2 quadratic."""
        (short, long), (few, many) = self.lengths[-2:], self.peaks[-2:]
        return math.log(many / few) / math.log(long / short) if few > 0 and many > 0 else float("nan")


def training_pass(layer: Any, steps: int, batch: int) -> Callable[[], None]:
    """Forward and backward of one batch of random sequences."""
    x = torch.randn(steps, batch, layer.input_size, generator=torch.Generator().manual_seed(0))
    like = next(layer.parameters())
    x = x.to(device=like.device, dtype=like.dtype)

    def work() -> None:
        layer(x)[0].square().sum().backward()

    return work


def memory_by_length(
    layer: nn.Module, lengths: Sequence[int] = LENGTHS, batch: int = 10, *, resident: bool = False
) -> MemoryGrowth:
    """Peak memory of a training pass of `layer` at several lengths.

    Args:
        layer: a recurrent layer of this package or of torch, time first.
        lengths: T, in increasing order.
        batch: sequences.
        resident: measure the resident size of a fresh process for each length (Linux only), which includes what
            libraries allocate; by default the allocations of torch are counted, to the byte.

    Reference: the thesis, 4.7, Fig. 2 centre.
    """
    if not hasattr(layer, "input_size") or getattr(layer, "batch_first", False):
        got = "batch_first=True" if hasattr(layer, "input_size") else type(layer).__name__
        raise InputError(
            f"`layer` must be a recurrent layer with time first; got {got}. Pass the layer itself, made without "
            "batch_first."
        )
    lengths = [lengths] if isinstance(lengths, int) else lengths
    if len(lengths) < 2 or list(lengths) != sorted(set(lengths)):
        raise InputError(f"`lengths` must be at least two increasing numbers; got {list(lengths)}. Pass (100, 200).")
    for length in lengths:
        check_size("length", length)
    measure = _resident if resident else _counted
    return MemoryGrowth(tuple(lengths), tuple(measure(layer, length, batch) for length in lengths), resident)


def _counted(layer: nn.Module, steps: int, batch: int) -> int:
    training_pass(layer, 2, batch)()  # makes the gradients of the parameters
    peak = peak_bytes(training_pass(layer, steps, batch))
    layer.zero_grad(set_to_none=True)
    return peak


def _resident(layer: nn.Module, steps: int, batch: int) -> int:
    if not Path("/proc/self/clear_refs").exists():
        raise InputError(
            f"`resident` must be False outside Linux; got resident=True on {sys.platform}. Count allocations instead."
        )
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "layer.pt"
        torch.save(layer, path)
        words = [sys.executable, "-m", __name__, str(path), str(steps), str(batch)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout.splitlines()[-1]))


def weigh(path: str, steps: int, batch: int) -> int:
    """Bytes by which the resident size of this process, which does nothing else, grew during one pass."""
    layer = torch.load(path, weights_only=False)  # written by `_resident` a moment ago
    for _ in range(2):
        training_pass(layer, 2, batch)()  # loads libraries and makes gradients; short, so nothing is left over
    work = training_pass(layer, steps, batch)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # starts the high-water mark anew
    work()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    """Bytes in a field of this process's status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


if __name__ == "__main__":
    print(json.dumps(weigh(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))

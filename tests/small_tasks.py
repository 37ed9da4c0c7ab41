"""One small instance of every task, the list that enrols it in every test of the contract, and how to compare."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from kreiss.tasks import Adding, Audio, Batch, Characters, Copy, Denoise, Frames, Pixels, SelectiveCopy, Sequence, Task
from sounds import riff, speech

DATA = Path(os.environ.get("KREISS_DATA", "")) if os.environ.get("KREISS_DATA") else None


def real(folder: str) -> pytest.MarkDecorator:
    """For tests that need a data set which the package does not hold."""
    there = DATA is not None and (DATA / folder).is_dir()
    return pytest.mark.skipif(not there, reason=f"needs the data set {folder} in the folder that KREISS_DATA names")


def write_files(folder: Path) -> Path:
    """Small files of every kind that tasks read."""
    source = np.random.RandomState(0)
    lengths = source.randint(2, 6, size=30)
    inputs = source.randn(30, 6, 3)
    np.savez(folder / "steps.npz", inputs=inputs, targets=inputs.cumsum(1), lengths=lengths)
    np.savez(folder / "end.npz", inputs=inputs, targets=(inputs.sum((1, 2)) > 0).astype(int))
    rows = [(g, t, source.randn(), "odd" if t % 2 else "even") for g in range(12) for t in range(2 + g % 3)]
    text = "\n".join(["who,x,y,target", *(f"{g},{x},{t},{label}" for g, t, x, label in rows)])
    (folder / "table.csv").write_text(text + "\n")
    (folder / "fsdd").mkdir()
    for digit in range(2):
        for index in (*range(12), 30):
            wave = speech(600 + 37 * index, seed=13 * index + digit)
            (folder / "fsdd" / f"{digit}_me_{index}.wav").write_bytes(riff(wave))
    for index in range(24):
        place = folder / "sounds" / ("high" if index % 2 else "low")
        place.mkdir(parents=True, exist_ok=True)
        wave = 0.3 * np.sin((0.9 if index % 2 else 0.3) * np.arange(900 + 50 * index)) + 0.1 * speech(
            900 + 50 * index, index
        )
        (place / f"{index}.wav").write_bytes(riff(wave))
    return folder


# name → the task, small; all options plain values
SMALL: dict[str, Callable[[Path], Task]] = {
    "copy": lambda _: Copy(5, valid_sequences=7, test_sequences=9),
    "copy-enrnn": lambda _: Copy(5, convention="enrnn-text", valid_sequences=7, test_sequences=9),
    "copy-fixed": lambda _: Copy(5, sequences=11, valid_sequences=7, test_sequences=9),
    "copy-transfer": lambda _: Copy(5, test_delays="8,13", valid_sequences=7, test_sequences=9),
    "denoise": lambda _: Denoise(5, valid_sequences=7, test_sequences=9),
    "denoise-mixed": lambda _: Denoise(9, shortest=3, valid_sequences=7, test_sequences=9),
    "denoise-transfer": lambda _: Denoise(5, test_delays="8,13", valid_sequences=7, test_sequences=9),
    "selectivecopy": lambda _: SelectiveCopy(24, tokens=6, vocabulary=8, valid_sequences=7, test_sequences=9),
    "selectivecopy-fixed": lambda _: SelectiveCopy(24, sequences=11, tokens=6, valid_sequences=7, test_sequences=9),
    "adding": lambda _: Adding(6, sequences=11, valid_sequences=7, test_sequences=9),
    "adding-fresh": lambda _: Adding(6, sequences=0, valid_sequences=7, test_sequences=9),
    "audio": lambda files: Audio(files / "sounds", bands=8),
    "pixels": lambda _: Pixels(),
    "pixels-permuted": lambda _: Pixels(permutation=3),
    "characters": lambda _: Characters(chunk=4000),
    "characters-one-stream": lambda _: Characters(chunk=40_000, streams=1),
    "frames": lambda files: Frames("fsdd", path=files / "fsdd", window=32, hop=16),
    "sequence-steps": lambda files: Sequence(files / "steps.npz"),
    "sequence-end": lambda files: Sequence(files / "end.npz", answers="last"),
    "sequence-table": lambda files: Sequence(files / "table.csv", group="who"),
    "sequence-windows": lambda files: Sequence(files / "table.csv", window=4, kind="classification"),
}


def same(one: Batch, two: Batch) -> bool:
    pairs = [(getattr(one, field.name), getattr(two, field.name)) for field in dataclasses.fields(one)]
    return type(one) is type(two) and all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)


def answers(task: Task, batch: Batch) -> Tensor:
    """What a fixed function of each step's own input would answer: no memory, no batch, any length."""
    weight = torch.randn(task.input_size, task.output_size, generator=torch.Generator().manual_seed(1)).double()
    steps = weight[batch.inputs] if task.symbols else batch.inputs.double() @ weight
    if task.answers == "every":
        return steps
    last = (torch.full((steps.shape[1],), len(steps)) if batch.lengths is None else batch.lengths) - 1
    return steps[last, torch.arange(steps.shape[1])]


def metrics(task: Task, split: str, batch: int) -> dict[str, float]:
    """Metrics of that function on a held-out set."""
    totals: dict[str, tuple[float, float]] = {}
    for piece in task.held_out(split, batch):
        for name, (total, count) in task.totals(answers(task, piece), piece).items():
            before = totals.get(name, (0.0, 0))
            totals[name] = (before[0] + total, before[1] + count)
    return task.metrics(totals)

"""The comparison behind `kreiss demo`: four networks on the copy task, live, then a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor, nn

from kreiss.layers import REGISTRY
from kreiss.tasks import Copy
from kreiss.training.groups import param_groups
from kreiss.training.loop import Readout, evaluate, train


@dataclass(frozen=True)
class Entry:
    """One network of the comparison, with the copy-task settings of Kerg et al. (2019), Table 2."""

    name: str
    lr: float
    orthogonal_lr: float | None = None
    alpha: float = 0.99
    radius: float = 0.0
    coupling_decay: float = 0.0


ENTRIES = (
    Entry("nnrnn", lr=5e-4, orthogonal_lr=1e-6, radius=1e-4, coupling_decay=1e-6),
    Entry("exprnn", lr=1e-3, orthogonal_lr=1e-4),
    Entry("rnn", lr=1e-3, alpha=0.9),
    Entry("lstm", lr=5e-4),
)


def run(*, delay: int, hidden: int, steps: int, seed: int, console: Console | None = None) -> int:
    """Train every entry, print the table; 0 if all losses stayed finite."""
    console = console or Console()
    task = Copy(delay)
    console.print(
        f"Copy task: 10 symbols, delay {delay}, {hidden} hidden units, {steps} updates of 10 sequences, seed {seed}."
        f" A network without memory reaches loss {task.baseline()['loss']:.4f}."
    )
    with _progress(console) as progress:
        rows = [_train_entry(entry, task, hidden, steps, seed, progress) for entry in ENTRIES]
    console.print(_table(rows, task))
    return 0


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:>7}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def _train_entry(entry: Entry, task: Copy, hidden: int, steps: int, seed: int, progress: Progress) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    layer = REGISTRY[entry.name](task.input_size, hidden, generator=generator)
    model = Readout(layer, task.output_size, generator=generator)
    groups = param_groups(model, entry.lr, entry.orthogonal_lr, entry.coupling_decay)
    optimizer = torch.optim.RMSprop(groups, lr=entry.lr, alpha=entry.alpha)
    bar = progress.add_task(type(layer).__name__, total=steps, loss=math.nan)
    for record in train(model, task, optimizer, steps=steps, radius=entry.radius, generator=generator):
        progress.update(bar, advance=1, loss=record["loss"])
        if progress.disable and record["step"] % max(steps // 4, 1) == 0:
            progress.console.print(f"{type(layer).__name__} update {record['step']} loss {record['loss']:.4f}")
    return {"name": type(layer).__name__, "layer": layer, "model": model, **evaluate(model, task)}


def _table(rows: list[dict[str, Any]], task: Copy) -> Table:
    table = Table(title=f"After training (500 held-out sequences; memoryless loss {task.baseline()['loss']:.4f})")
    for heading in ("network", "parameters", "test loss", "accuracy", "min |λ|", "mean |λ|", "max |λ|"):
        table.add_column(heading, justify="left" if heading == "network" else "right")
    for row in rows:
        parameters = sum(parameter.numel() for parameter in row["model"].parameters())
        table.add_row(
            row["name"], f"{parameters:,}", f"{row['loss']:.4f}", f"{row['accuracy']:.3f}", *_moduli(row["layer"])
        )
    return table


def _moduli(layer: nn.Module) -> list[str]:
    """Smallest, mean and largest |λ| of the recurrent matrix; gated networks have no single one."""
    matrix = layer.weight_hh_l0
    assert isinstance(matrix, Tensor)
    if matrix.shape[0] != matrix.shape[1]:
        return ["–"] * 3
    moduli = torch.linalg.eigvals(matrix.detach()).abs()
    return [f"{float(value):.4f}" for value in (moduli.min(), moduli.mean(), moduli.max())]

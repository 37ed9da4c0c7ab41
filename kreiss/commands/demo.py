"""The comparison behind `kreiss demo`: four networks on the copy task, then a table and a plot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kreiss.errors import MissingExtra

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from kreiss.training.session import Run

# network → row of 001/fig2-copy whose settings it has
ROWS = {"nnrnn": "nnrnn-exact", "exprnn": "exprnn", "rnn": "rnn", "lstm": "lstm"}


def run(
    *, delay: int, hidden: int, steps: int, seed: int, out: Path, show: str = "brief", console: Console | None = None
) -> int:
    """Train every network of the comparison, print the table, save the plot; returns 130 if interrupted."""
    from rich.console import Console

    from kreiss.training import fitting, planning
    from kreiss.training.config import resolved
    from kreiss.training.presets import preset_named

    console = console or Console()
    console.print(
        f"Copy task: 10 symbols, delay {delay}, {hidden} hidden units, {steps} updates of 10 sequences, seed {seed}."
    )
    runs: dict[str, Run] = {}
    for name, row in ROWS.items():
        console.print(f"{name}:")
        settings = {"task.delay": delay, "hidden": hidden, "steps": steps, "seed": seed}
        config = resolved(preset_named(f"001/fig2-copy/{row}"), settings)
        task = planning.make_task(config)
        runs[name] = fitting.run(config, out / name, planning.make_network(config, task), task, show=show)
        if runs[name].state == "interrupted":
            return 130
    without = task.baseline()
    console.print(_table(runs, without["loss"]))
    _picture({name: run.records for name, run in runs.items()}, without["loss"], out, console)
    return 0


def _picture(records: dict[str, list[dict[str, Any]]], without: float, out: Path, console: Console) -> None:
    from kreiss.report import style
    from kreiss.report.plots import comparison

    try:
        _, path = style.save(comparison(records, without), out / "comparison")
        console.print(f"plot: {path}", soft_wrap=True)
    except MissingExtra as error:
        console.print(f"no plot: {error}", soft_wrap=True, markup=False)


def _table(runs: dict[str, Run], without: float) -> Table:
    from rich.table import Table

    table = Table(title=f"After training, at the best validation (loss without memory {without:.4f})")
    for heading in ("network", "parameters", "test loss", "accuracy", "min |λ|", "mean |λ|", "max |λ|"):
        table.add_column(heading, justify="left" if heading == "network" else "right")
    for name, run in runs.items():
        parameters = sum(parameter.numel() for parameter in run.model.parameters())
        table.add_row(
            name, f"{parameters:,}", f"{run.metrics['loss']:.4f}", f"{run.metrics['accuracy']:.3f}", *_moduli(run)
        )
    return table


def _moduli(run: Run) -> list[str]:
    """Smallest, mean and largest |λ| of the recurrent matrix; gated networks have no single one."""
    last = run.records[-1]
    names = ("modulus_min", "modulus_mean", "modulus_max")
    return [f"{last[name]:.4f}" if name in last else "–" for name in names]

"""Speed on this machine: our layers against torch's, interleaved in one process, medians with spread.

Every contender does the same work in turn, in an order shuffled each round, so that a noisy machine is noisy for all.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from kreiss.layers import NNRNN
from kreiss.recurrence import kernel, reference_only
from kreiss.training.groups import param_groups, penalty


@dataclass(frozen=True)
class Work:
    """One size of problem: batch, time steps, hidden units, input features or symbols."""

    name: str
    batch: int
    steps: int
    hidden: int
    inputs: int
    symbols: bool = False
    rounds: int = 8


WORKS = (
    Work("copy", 10, 220, 128, 10, rounds=40),
    Work("psMNIST", 100, 784, 512, 1, rounds=4),
    Work("PTB", 128, 150, 1024, 50, symbols=True, rounds=5),
    Work("streaming", 1, 1000, 64, 1, rounds=40),
)

LARGE = 512  # hidden units


def contenders(work: Work) -> dict[str, Callable[[], None]]:
    """Forward and backward of one sequence batch by each layer; and whole updates of NNRNN and LSTM."""
    g = torch.Generator().manual_seed(0)
    symbols = torch.randint(work.inputs, (work.steps, work.batch), generator=g)
    x = nn.functional.one_hot(symbols, work.inputs).float() if work.symbols else torch.randn(
        work.steps, work.batch, work.inputs, generator=g
    )  # fmt: skip
    ours = symbols if work.symbols else x
    grad = torch.randn(work.steps, work.batch, work.hidden, generator=g)
    size = (work.inputs, work.hidden)
    constrained = NNRNN(*size, generator=g)
    given = constrained.freeze().requires_grad_(True)
    lstm, gru, rnn = nn.LSTM(*size), nn.GRU(*size), nn.RNN(*size, nonlinearity="relu")
    return {
        "kreiss, V given": _pass(given, ours, grad),
        "nn.LSTM": _pass(lstm, x, grad),
        "nn.GRU": _pass(gru, x, grad),
        "nn.RNN relu": _pass(rnn, x, grad),
        "plain loop": _plain(given, ours, grad),
        "loop of products": _products(given.weight_hh_l0.detach(), work),
        "NNRNN update": _update(NNRNN(*size, generator=g), ours, grad),
        "nn.LSTM update": _update(nn.LSTM(*size), x, grad),
    }


def _pass(layer: nn.Module, x: Tensor, grad: Tensor) -> Callable[[], None]:
    def work() -> None:
        layer(x)[0].backward(grad)

    return work


def _plain(layer: nn.Module, x: Tensor, grad: Tensor) -> Callable[[], None]:
    def work() -> None:
        with reference_only():
            layer(x)[0].backward(grad)

    return work


def _products(matrix: Tensor, work: Work) -> Callable[[], None]:
    """The matrix products alone: one per step each way, one for the gradient of V."""
    states = torch.empty(work.steps, work.batch, work.hidden)

    def products() -> None:
        for _ in range(2):
            h = states[-1].zero_()
            for t in range(work.steps):
                h = torch.mm(h, matrix, out=states[t])
        torch.mm(states.flatten(0, 1).mT, states.flatten(0, 1))

    return products


def _update(layer: nn.Module, x: Tensor, grad: Tensor) -> Callable[[], None]:
    """Everything of one training step: constraint, penalty, gradients, optimiser."""
    optimizer = torch.optim.RMSprop(param_groups(layer, 1e-4, 1e-5, 1e-6), lr=1e-4)

    def work() -> None:
        optimizer.zero_grad(set_to_none=True)
        output = layer(x)[0]
        torch.autograd.backward([output, penalty(layer, 1e-4).requires_grad_()], [grad, None])
        optimizer.step()

    return work


def measure(work: Work, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of each contender: quartiles, after one round to warm up."""
    runs = list(contenders(work).items())
    times: dict[str, list[float]] = {name: [] for name, _ in runs}
    for turn in track(range(rounds + 1), f"{work.name:>9}", transient=True):
        random.Random(turn).shuffle(runs)
        for name, run in runs:
            start = time.perf_counter()
            run()
            if turn:
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: _spread(values) for name, values in times.items()}


def _spread(values: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return {"ms": middle, "low": low, "high": high}


def gflops(size: int = 2048, rounds: int = 5) -> float:
    """What this machine reaches in one large product: the roof over everything here."""
    a, out = torch.randn(size, size), torch.empty(size, size)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        torch.mm(a, a, out=out)
        times.append(time.perf_counter() - start)
    return 2e-9 * size**3 / statistics.median(times)


def run(*, quick: bool, names: list[str] | None = None, console: Console | None = None) -> dict[str, Any]:
    """Measure every work, print tables, return all numbers."""
    console = console or Console()
    roof = gflops()
    console.print(f"{kernel.status()}; torch {torch.__version__}; a product of 2048² runs at {roof:.0f} GFLOP/s")
    found: dict[str, Any] = {"gflops": roof, "threads": torch.get_num_threads(), "works": {}}
    for work in WORKS:
        if names and work.name not in names:
            continue
        if quick:  # fewer rounds, and shorter sequences where a round takes seconds; the tables say how long
            steps = work.steps if work.hidden < LARGE else work.steps // 4
            work = replace(work, steps=steps, rounds=max(2, work.rounds // 4))
        times = measure(work, work.rounds)
        found["works"][work.name] = times
        console.print(_table(work, times, roof))
    return found


def _table(work: Work, times: dict[str, dict[str, float]], roof: float) -> Table:
    ours = times["kreiss, V given"]["ms"]
    table = Table(title=f"{work.name}: batch {work.batch}, {work.steps} steps, {work.hidden} units, forward + backward")
    for heading in ("contender", "ms", "quartiles", "kreiss / it", "of the roof"):
        table.add_column(heading, justify="left" if heading == "contender" else "right")
    flops = 6 * work.steps * work.batch * work.hidden**2
    for name, entry in times.items():
        update = name.endswith("update")
        ratio = (times["NNRNN update"]["ms"] if update else ours) / entry["ms"]
        share = f"{1e-6 * flops / entry['ms'] / roof:.0%}" if name in ("kreiss, V given", "loop of products") else ""
        table.add_row(name, f"{entry['ms']:.2f}", f"{entry['low']:.2f}–{entry['high']:.2f}", f"{ratio:.3f}", share)
    return table

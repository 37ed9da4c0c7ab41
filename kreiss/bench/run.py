"""Speed and memory on this machine: our layers against torch's, interleaved in one process, medians with spread.

Every contender does the same work in turn, in an order shuffled each round, so that noise of the machine affects all.
A ratio is the median over rounds of our time divided by theirs in the same round.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from kreiss import native
from kreiss.bench import roofline
from kreiss.bench.allocation import peak_bytes
from kreiss.bench.contenders import (
    COUNTERPART,
    EXP_UPDATE,
    GATED,
    GEOTORCH,
    LAYER,
    MEMORY,
    MEMORY_LOOP,
    UPDATE,
    WORKS,
    Work,
    contenders,
)

LARGE = 512  # hidden units
QUICKLY_WEIGHED = (LAYER, "nn.LSTM")  # whose memory is measured in a quick run too

# what the last table shows: its name, ours, theirs
SUMMARY = (
    ("layer / nn.LSTM", LAYER, "nn.LSTM"),
    ("layer / loop of products", LAYER, "loop of products"),
    ("update / nn.LSTM update", UPDATE, "nn.LSTM update"),
    ("ExpRNN update / nn.LSTM update", EXP_UPDATE, "nn.LSTM update"),
    *((f"{ours} / {theirs}", ours, theirs) for ours in GATED for theirs in ("nn.LSTM", "nn.GRU")),
    *((f"{ours} / nn.LSTM", ours, "nn.LSTM") for ours in MEMORY),
    ("RelRNN / its plain loop", "RelRNN", MEMORY_LOOP),
)


def run(
    *,
    quick: bool,
    names: list[str] | None = None,
    plot: Path | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Measure every workload, print tables, draw the roofline to `plot`, return all numbers."""
    if plot is not None:
        roofline.check_plot(plot)  # before minutes of measuring
    console = console or Console()
    roof = gflops()
    console.print(f"{native.status()}; torch {torch.__version__}; a product of 2048² runs at {roof:.0f} GFLOP/s")
    results: dict[str, Any] = {"machine": machine(), "quick": quick, "gflops": roof, "works": {}}
    for work in WORKS:
        if names and work.name not in names:
            continue
        if quick:  # fewer rounds, and shorter sequences where a round takes seconds; the tables say how long
            steps = work.steps if work.hidden < LARGE else work.steps // 6
            work = replace(work, steps=steps, rounds=max(2, work.rounds // 4), repeats=min(work.repeats, 2))
        measured = measure(work, weigh=QUICKLY_WEIGHED if quick else None)
        results["works"][work.name] = {
            "shape": asdict(work), "state_bytes": work.state_bytes, "contenders": measured, "ratios": _ratios(measured),
        }  # fmt: skip
        console.print(_table(work, measured, roof))
    console.print(_summary(results["works"]))
    if plot is not None:
        roofline.draw(results, plot)
        console.print(f"wrote {plot}")
    return results


# ---------------------------------------------------------------- measuring


def measure(work: Work, weigh: tuple[str, ...] | None = None) -> dict[str, dict[str, Any]]:
    """For each contender: quartiles and all times in milliseconds after one warm-up round, and the peak memory.

    Args:
        weigh: contenders whose memory is measured; all by default.
    """
    runs = list(contenders(work).items())
    names = [name for name, _ in runs]
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in track(range(work.rounds + 1), f"{work.name:>9}", transient=True):
        random.Random(turn).shuffle(runs)
        for name, run in runs:
            ms = _turn(run, work.repeats)
            if turn:
                times[name].append(ms)
    weighed = {name: peak_bytes(run) for name, run in runs if weigh is None or name in weigh}
    return {name: {**_spread(times[name]), "all": times[name], "peak_bytes": weighed.get(name)} for name in names}


def _turn(run: Callable[[], None], repeats: int) -> float:
    """Milliseconds of a pass, on average over a turn."""
    if repeats > 1:
        run()
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return 1e3 * (time.perf_counter() - start) / repeats


def _spread(values: list[float]) -> dict[str, float]:
    # "inclusive": two or three rounds have no quartiles outside of themselves
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return {"ms": middle, "low": low, "high": high}


def _ratio(measured: dict[str, dict[str, Any]], ours: str, theirs: str) -> dict[str, float]:
    """Quartiles of our time divided by theirs, round by round."""
    pairs = zip(measured[ours]["all"], measured[theirs]["all"], strict=True)
    spread = _spread([one / other for one, other in pairs])
    return {"ratio": spread["ms"], "low": spread["low"], "high": spread["high"]}


def _ratios(measured: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    return {
        name: _ratio(measured, ours, theirs)
        for name, ours, theirs in SUMMARY
        if ours in measured and theirs in measured
    }


def gflops(size: int = 2048, rounds: int = 5) -> float:
    """GFLOP/s of this machine in one large product: the roof of all rates here."""
    a, out = torch.randn(size, size), torch.empty(size, size)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        torch.mm(a, a, out=out)
        times.append(time.perf_counter() - start)
    return 2e-9 * size**3 / min(times)  # a roof is the best that is met


def machine() -> dict[str, Any]:
    """What the numbers depend on besides the workload: processor, threads, versions."""
    versions = {name: _version(name) for name in ("kreiss", "torch", "numpy", "geotorch")}
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
        "kernel": native.status(),
        "versions": {"python": platform.python_version(), **versions},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """The processor's name from Linux, else from Python."""
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


# ---------------------------------------------------------------- showing


def _table(work: Work, measured: dict[str, dict[str, Any]], roof: float) -> Table:
    table = _columns(
        f"{work.name}: batch {work.batch}, {work.steps} steps, {work.hidden} units, forward + backward",
        ("contender", "ms", "quartiles", "kreiss / it", "of roof", "memory"),
    )
    table.caption = "memory: the peak of a pass, as a multiple of its states (T·B·N)"
    for name, entry in measured.items():
        ours = COUNTERPART.get(name, LAYER)
        ratio = f"{_ratio(measured, ours, name)['ratio']:.3f}" if ours in measured else ""
        share = roofline.reached(work, name, entry["ms"])
        peak = entry["peak_bytes"]
        table.add_row(
            name,
            _short(entry["ms"]),
            f"{_short(entry['low'])}–{_short(entry['high'])}",
            ratio,
            "" if share is None else f"{share / roof:.0%}",
            "" if peak is None else f"{peak / work.state_bytes:.2f}×",
        )
    if GEOTORCH not in measured and not work.memory:
        table.add_row(GEOTORCH, "not installed", "", "", "", "")
    return table


def _short(ms: float) -> str:
    """Three digits, and no exponent."""
    return f"{ms:.3g}" if ms < 1000 else f"{ms:.0f}"


def _summary(works: dict[str, Any]) -> Table:
    """One row per comparison, one column per workload: our time divided by theirs, with quartiles."""
    table = _columns("time of kreiss by theirs: median of rounds, quartiles", ("", *works))
    for name, _, _ in SUMMARY:
        ratios = [work["ratios"].get(name) for work in works.values()]
        if any(ratios):
            table.add_row(name, *(f"{r['ratio']:.3f}\n{r['low']:.2f}–{r['high']:.2f}" if r else "" for r in ratios))
    return table


def _columns(title: str, headings: tuple[str, ...]) -> Table:
    table = Table(title=title)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="left" if i == 0 else "right", no_wrap=i > 0)
    return table

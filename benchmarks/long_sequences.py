"""What happens as sequences grow: time, memory, states kept or computed again, and compiling.

    python benchmarks/long_sequences.py time        # ms per step from 100 to 10,000 steps, lengths taking turns
    python benchmarks/long_sequences.py memory      # peak of a training pass by length, and the psMNIST pass
    python benchmarks/long_sequences.py recompute   # every √T-th state kept: time and memory against all kept
    python benchmarks/long_sequences.py compile     # first torch.compile at 2,000 steps against 20
    python benchmarks/long_sequences.py table       # docs/performance_measured.md from the recorded results
    python benchmarks/long_sequences.py keep        # the ratios of results/bench.json beside those of other runs
    python benchmarks/long_sequences.py             # all of these but `keep`

Results are kept in results/long_sequences.json. The table also shows what `kreiss bench --json results/bench.json`
recorded, and the ratios of other runs and processors, which `keep` collects in results/bench_runs.json under the name
that --label gives. Nothing else should run on the machine. --lengths, --widths, --rounds, --compiled-at and --backend
ask for less, to try the program.
"""

from __future__ import annotations

import os

os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # before torch: every compile is a first one

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import nn

import kreiss
from kreiss.bench.allocation import peak_bytes
from kreiss.bench.contenders import MEMORY, MEMORY_LOOP, WORKS
from kreiss.bench.run import machine

ROOT = Path(__file__).resolve().parent.parent
RESULTS, BENCH = ROOT / "results" / "long_sequences.json", ROOT / "results" / "bench.json"
KEPT = ROOT / "results" / "bench_runs.json"
TABLE = ROOT / "docs" / "performance_measured.md"

LENGTHS = (100, 300, 1_000, 3_000, 10_000)
BATCH, HIDDEN, INPUTS = 20, 128, 10
WIDE = 512
COMPILED_AT = (20, 2_000)
RECOMPUTED_AT = (1_000, 10_000)
PARTS = ("time", "memory", "recompute", "compile", "table", "keep")
PS_MNIST = next(work for work in WORKS if work.name == "psMNIST")


def training_pass(layer: nn.Module, steps: int, batch: int = BATCH) -> Callable[[], None]:
    """Forward and backward over `steps` steps, with a gradient at every one that takes no memory of its own."""
    x = torch.randn(steps, batch, layer.input_size)
    grad = torch.randn(1, batch, layer.hidden_size).expand(steps, -1, -1)

    def work() -> None:
        layer(x)[0].backward(grad)

    return work


def last_state_pass(layer: nn.Module, steps: int, few: bool) -> Callable[[], None]:
    """Forward and backward for the last state alone, with all states kept or every √T-th."""
    x, grad = torch.randn(steps, BATCH, layer.input_size), torch.randn(1, BATCH, layer.hidden_size)

    def work() -> None:
        last = layer.final_state(x) if few else layer(x)[1]
        last.backward(grad)

    return work


def with_given_matrix(inputs: int, hidden: int) -> nn.Module:
    """An NNRNN with its matrix given, so that the recurrence alone is measured."""
    layer = kreiss.NNRNN(inputs, hidden, generator=torch.Generator().manual_seed(0))
    return layer.freeze().requires_grad_(True)


def take_turns(works: dict[str, Callable[[], None]], rounds: int, label: str) -> dict[str, list[float]]:
    """Milliseconds of each work, in an order shuffled each round, after one round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in works}
    order = list(works.items())
    for turn in track(range(rounds + 1), label):
        random.Random(turn).shuffle(order)
        for name, work in order:
            start = time.perf_counter()
            work()
            if turn:
                times[name].append(1e3 * (time.perf_counter() - start))
    return times


# ---------------------------------------------------------------- time


def measure_time(
    lengths: Sequence[int] = LENGTHS, rounds: int = 7, widths: Sequence[int] = (HIDDEN, WIDE)
) -> dict[str, Any]:
    """How time grows with length, for a small layer, where a short pass is mostly calls, and for a wide one."""
    return {"batch": BATCH, "rounds": rounds, "widths": {str(n): _time_of(n, lengths, rounds) for n in widths}}


def _time_of(hidden: int, lengths: Sequence[int], rounds: int) -> dict[str, Any]:
    """Milliseconds per step at each length; the largest by the smallest of the medians is how far from linear."""
    layer = with_given_matrix(INPUTS, hidden)
    # a short pass is repeated until all take equally many steps, or its few milliseconds would measure the clock
    works = {str(steps): _repeated(training_pass(layer, steps), max(lengths) // steps) for steps in lengths}
    times = take_turns(works, rounds, f"time, {hidden} units")
    per_step = {
        name: [ms / (int(name) * (max(lengths) // int(name))) for ms in values] for name, values in times.items()
    }
    medians = {name: statistics.median(values) for name, values in per_step.items()}
    by_round = [max(row) / min(row) for row in zip(*per_step.values(), strict=True)]
    return {
        "ms_per_step": medians, "all": per_step,
        "ratio": max(medians.values()) / min(medians.values()), "ratio_by_round": statistics.median(by_round),
    }  # fmt: skip


def _repeated(work: Callable[[], None], times: int) -> Callable[[], None]:
    def repeated() -> None:
        for _ in range(times):
            work()

    return repeated


# ---------------------------------------------------------------- memory


def measure_memory(lengths: Sequence[int] = LENGTHS) -> dict[str, Any]:
    """Peak bytes by length, and of the psMNIST pass: torch's own count, and the resident size of a fresh process."""
    layer = with_given_matrix(INPUTS, HIDDEN)
    peaks = {}
    for steps in lengths:
        work = training_pass(layer, steps)
        work()
        peaks[str(steps)] = peak_bytes(work) / (4 * steps * BATCH * HIDDEN)
    passes = {name: _ps_mnist(name) for name in ("kreiss", "nn.LSTM")}
    return {"batch": BATCH, "hidden": HIDDEN, "peak_by_states": peaks, "psMNIST": passes}


def _ps_mnist(name: str) -> dict[str, float]:
    counted, resident = (json.loads(_child("weigh", how, name)) for how in ("counted", "resident"))
    return {"counted": counted / PS_MNIST.state_bytes, "resident": resident / PS_MNIST.state_bytes}


def _child(*arguments: str) -> str:
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def weigh(how: str, name: str) -> int:
    """Peak bytes of one psMNIST pass in this process, counted by torch or resident; the process does nothing else."""
    layer = with_given_matrix(1, PS_MNIST.hidden) if name == "kreiss" else nn.LSTM(1, PS_MNIST.hidden)
    for _ in range(2):
        training_pass(layer, 2, PS_MNIST.batch)()  # loads libraries and makes gradients; short, so nothing is left over
    work = training_pass(layer, PS_MNIST.steps, PS_MNIST.batch)
    if how == "counted":
        return peak_bytes(work)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # Linux: starts the high-water mark anew
    work()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    """Bytes in a field of this process's status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


# ---------------------------------------------------------------- states computed again


def measure_recompute(rounds: int = 9, lengths: Sequence[int] = RECOMPUTED_AT) -> dict[str, Any]:
    """Time and peak memory of `final_state`, which keeps every √T-th state or fewer, against all kept."""
    layer, measured = with_given_matrix(INPUTS, HIDDEN), {}
    for steps in lengths:
        works = {name: last_state_pass(layer, steps, name == "few") for name in ("all", "few")}
        times = take_turns(works, rounds, f"recompute, {steps} steps")
        ratios = [few / every for few, every in zip(times["few"], times["all"], strict=True)]
        peaks = {name: peak_bytes(work) / (4 * steps * BATCH * HIDDEN) for name, work in works.items()}
        measured[str(steps)] = {"time_ratio": statistics.median(ratios), "peak_by_states": peaks}
    return {"batch": BATCH, "hidden": HIDDEN, "rounds": rounds, "lengths": measured}


# ---------------------------------------------------------------- compiling


def measure_compile(rounds: int = 5, lengths: Sequence[int] = COMPILED_AT, backend: str = "inductor") -> dict[str, Any]:
    """Seconds that the first compiled pass takes longer than the next one, forward and backward, lengths in turns."""
    seconds: dict[str, list[float]] = {str(steps): [] for steps in lengths}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="dynamo_pgo force disabled")  # as asked for above
        for turn in track(range(rounds + 1), "compile"):
            for steps in lengths if turn % 2 else reversed(lengths):
                longer = _compiling(steps, backend)
                if turn:
                    seconds[str(steps)].append(longer)
    short, long = (seconds[str(steps)] for steps in lengths)
    ratios = [b / a for a, b in zip(short, long, strict=True)]
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {"rounds": rounds, "seconds": medians, "all": seconds, "ratio": statistics.median(ratios)}


def _compiling(steps: int, backend: str) -> float:
    """Seconds that the first of two compiled passes takes longer."""
    torch._dynamo.reset()
    layer = kreiss.NNRNN(INPUTS, HIDDEN, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    x = torch.randn(steps, BATCH, INPUTS)
    first, second = (_seconds(lambda: compiled(x)[0].sum().backward()) for _ in range(2))
    return first - second


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


# ---------------------------------------------------------------- the page


def table(results: dict[str, Any], bench: dict[str, Any], kept: Sequence[dict[str, Any]] = ()) -> str:
    """The Markdown that docs/performance.md includes."""
    parts = [
        "<!-- generated by benchmarks/long_sequences.py table; do not edit -->",
        _bench_part(bench),
        *([_kept_part(kept)] if kept else []),
        _time_part(results),
        _memory_part(results),
        _recompute_part(results),
        _compile_part(results),
    ]
    return "\n\n".join(parts) + "\n"


def _rows(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _where(measured: dict[str, Any]) -> str:
    at = measured["machine"]
    return f"{at['processor']}, {at['threads']} threads, torch {at['versions']['torch']}"


def _bench_part(bench: dict[str, Any]) -> str:
    title = "### Against torch\n\n"
    if not bench:
        return title + "not run"
    works = bench["works"]
    names = sorted(dict.fromkeys(name for work in works.values() for name in work["contenders"]), key=_order(works))
    rows = [[name, *(_bench_cell(work, name) for work in works.values())] for name in names]
    compared = dict.fromkeys(name for work in works.values() for name in work["ratios"])
    ratios = [[name, *(_ratio_cell(work, name) for work in works.values())] for name in compared]
    shapes = [work["shape"] for work in works.values()]
    headings = ["", *(f"{s['name']} ({s['batch']}, {s['steps']}, {s['hidden']}, {s['inputs']})" for s in shapes)]
    note = f"{_where(bench)}; a product of 2048² runs at {bench['gflops']:.0f} GFLOP/s."
    if bench["quick"]:
        note += " A quick run: fewer rounds and shorter sequences."
    times = _rows(["ms (memory / states)", *headings[1:]], rows)
    return f"{title}{times}\n\n{_rows(['time of ours by theirs', *works], ratios)}\n\n{note}"


COMPARED = ("layer / nn.LSTM", "update / nn.LSTM update", "ExpRNN update / nn.LSTM update")


def _kept_part(kept: Sequence[dict[str, Any]]) -> str:
    """Ratios of every run, those of one processor side by side."""
    machines = list(dict.fromkeys(run["machine"] for run in kept))
    rows = []
    for work in kept[0]["ratios"]:
        for name in COMPARED:
            if name in kept[0]["ratios"][work]:
                cells = [
                    ", ".join(f"{run['ratios'][work][name]:.3f}" for run in kept if run["machine"] == machine)
                    for machine in machines
                ]
                rows.append([f"{work}: {name}", *cells])
    return "### On other processors, and in other runs\n\n" + _rows(["time of ours by theirs", *machines], rows)


def shortened(bench: dict[str, Any], label: str) -> dict[str, Any]:
    """What `keep` keeps of a run of `kreiss bench`."""
    works = bench["works"].items()
    ratios = {name: {key: of["ratio"] for key, of in work["ratios"].items()} for name, work in works}
    return {"machine": label, "ratios": ratios}


def _ratio_cell(work: dict[str, Any], name: str) -> str:
    ratio = work["ratios"].get(name)
    return "" if ratio is None else f"{ratio['ratio']:.3f}"


def _order(works: dict[str, Any]) -> Callable[[str], int]:
    names = list(next(iter(works.values()))["contenders"])
    return lambda name: names.index(name) if name in names else len(names)


def _bench_cell(work: dict[str, Any], name: str) -> str:
    entry = work["contenders"].get(name)
    if entry is None:  # layers with memory have a workload of their own
        return "" if name in MEMORY or name == MEMORY_LOOP or work["shape"].get("memory") else "not run"
    peak = entry["peak_bytes"]
    return f"{entry['ms']:.3g}" + ("" if peak is None else f" ({peak / work['state_bytes']:.2f}×)")


def _time_part(results: dict[str, Any]) -> str:
    measured, title = results.get("time"), "### Time by length\n\n"
    if not measured:
        return title + "not run"
    rows = [
        [f"{n} units, µs per step", *(f"{1e3 * ms:.3g}" for ms in of["ms_per_step"].values()), f"{of['ratio']:.2f}"]
        for n, of in measured["widths"].items()
    ]
    lengths = next(iter(measured["widths"].values()))["ms_per_step"]
    page = _rows(["steps", *lengths, "slowest by fastest"], rows)
    return (
        f"{title}{page}\n\nBatch {measured['batch']}; {_where(measured)}. A call costs a few tenths of a millisecond."
    )


def _memory_part(results: dict[str, Any]) -> str:
    measured, title = results.get("memory"), "### Memory by length\n\n"
    if not measured:
        return title + "not run"
    peaks, passes = measured["peak_by_states"], measured["psMNIST"]
    by_length = _rows(["steps", *peaks], [["peak / states", *(f"{value:.2f}×" for value in peaks.values())]])
    rows = [[name, f"{entry['counted']:.2f}×", f"{entry['resident']:.2f}×"] for name, entry in passes.items()]
    whole = _rows(["psMNIST pass", "counted by torch / states", "resident size / states"], rows)
    return f"{title}{by_length}\n\n{whole}"


def _recompute_part(results: dict[str, Any]) -> str:
    measured, title = results.get("recompute"), "### Few states kept\n\n"
    if not measured:
        return title + "not run"
    rows = [
        [steps, f"{entry['time_ratio']:.2f}", *(f"{entry['peak_by_states'][kept]:.2f}×" for kept in ("all", "few"))]
        for steps, entry in measured["lengths"].items()
    ]
    return title + _rows(["steps", "time, few by all", "peak / states, all kept", "peak / states, few kept"], rows)


def _compile_part(results: dict[str, Any]) -> str:
    measured, title = results.get("compile"), "### First compile\n\n"
    if not measured:
        return title + "not run"
    row = ["seconds", *(f"{value:.1f}" for value in measured["seconds"].values())]
    return (
        title
        + _rows(["steps", *measured["seconds"]], [row])
        + f"\n\nThe longer by the shorter: {measured['ratio']:.2f}."
    )


# ---------------------------------------------------------------- the command line


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; by default all")
    parser.add_argument("--lengths", type=int, nargs="+", help="steps of time, memory and recompute")
    parser.add_argument("--widths", type=int, nargs="+", default=(HIDDEN, WIDE), help="units of time")
    parser.add_argument("--rounds", type=int, help="by default 7 of time, 9 of recompute, 5 of compile")
    parser.add_argument("--compiled-at", type=int, nargs=2, default=COMPILED_AT, help="steps of compile")
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file that keeps the numbers")
    parser.add_argument("--bench", type=Path, default=BENCH, help="file that `kreiss bench --json` wrote")
    parser.add_argument("--label", default="this machine", help="what `keep` calls the machine")
    parser.add_argument("--kept", type=Path, default=KEPT, help="file of the ratios of several runs")
    parser.add_argument("--table", type=Path, default=TABLE, help="file of the Markdown page")
    options = parser.parse_args(words)
    if unknown := set(options.parts) - {*PARTS}:
        parser.error(f"unknown part {sorted(unknown)}; choose from {PARTS}")
    return options


def measurements(options: argparse.Namespace) -> dict[str, Callable[[], dict[str, Any]]]:
    """The parts that measure something, by name."""
    lengths, rounds = options.lengths, options.rounds
    return {
        "time": lambda: measure_time(lengths or LENGTHS, rounds or 7, options.widths),
        "memory": lambda: measure_memory(lengths or LENGTHS),
        "recompute": lambda: measure_recompute(rounds or 9, lengths or RECOMPUTED_AT),
        "compile": lambda: measure_compile(rounds or 5, options.compiled_at, options.backend),
    }


def read(path: Path) -> dict[str, Any]:
    """What a file of results holds; nothing if there is none."""
    return json.loads(path.read_text()) if path.exists() else {}


def runs_in(path: Path) -> list[dict[str, Any]]:
    """The runs that `keep` kept in a file."""
    return json.loads(path.read_text()) if path.exists() else []


def main(words: Sequence[str] | None = None) -> None:
    """Measure what is asked for, keep it, and write the page."""
    words = sys.argv[1:] if words is None else words
    if words[:1] == ["weigh"]:  # a process that `memory` started
        print(weigh(*words[1:]))
        return
    options = arguments(words)
    results = read(options.results)
    for part, measure in measurements(options).items():
        if part in (options.parts or PARTS):
            results[part] = {**measure(), "machine": machine()}
            options.results.write_text(json.dumps(results, indent=1) + "\n")
    kept = runs_in(options.kept)
    if "keep" in options.parts:
        kept.append(shortened(read(options.bench), options.label))
        options.kept.write_text(json.dumps(kept, indent=1) + "\n")
    options.table.write_text(table(results, read(options.bench), kept))
    print(f"wrote {options.table}")


if __name__ == "__main__":
    main()

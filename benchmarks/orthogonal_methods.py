"""Which way to hold P should be the default? Speed, accuracy and training quality of each.

    python benchmarks/orthogonal_methods.py speed      # interleaved medians, one process; needs a quiet machine
    python benchmarks/orthogonal_methods.py accuracy   # orthogonality after 10,000 float32 optimiser steps
    python benchmarks/orthogonal_methods.py training   # copy task, three seeds, rebased or not
    python benchmarks/orthogonal_methods.py table      # docs/orthogonal_measured.md from the recorded results
    python benchmarks/orthogonal_methods.py            # all of these

Results are kept in results/orthogonal_methods.json; the table in the docs is generated from it. The optimiser steps of
`accuracy` train no network: they move P, and the rounding error of P is what is measured.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.progress import track

import kreiss
from kreiss.networks import RecurrentNetwork
from kreiss.sets import initial
from kreiss.tasks import Copy

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "orthogonal_methods.json"
TABLE = ROOT / "docs" / "orthogonal_measured.md"

# name → (method, options, rebase every K steps or never)
VARIANTS: dict[str, tuple[str, dict[str, Any], int]] = {
    "trivialization, Cayley": ("trivialization", {"retraction": "cayley"}, 0),
    "trivialization, exp": ("trivialization", {"retraction": "exp"}, 0),
    "trivialization, Cayley, rebased each step": ("trivialization", {"retraction": "cayley"}, 1),
    "trivialization, Cayley, rebased each 100": ("trivialization", {"retraction": "cayley"}, 100),
    "expm": ("expm", {}, 0),
    "cayley": ("cayley", {}, 0),
    "scaled_cayley": ("scaled_cayley", {}, 0),
    "householder": ("householder", {}, 0),
    "givens": ("givens", {}, 0),
}
DEFAULT = "trivialization, Cayley"
SIZES = (64, 128, 512, 1024)
GIVENS_LARGEST = 128  # its n layers keep n matrices for the backward pass
PARTS = ("speed", "accuracy", "training", "table")


def speed(sizes: Sequence[int] = SIZES, rounds: int | None = None) -> dict[str, Any]:
    """Milliseconds of V = P(Λ+T)Pᵀ forward and backward, methods taking turns; medians and ratios."""
    measured: dict[str, Any] = {}
    for n in sizes:
        works = {name: _work(name, n) for name in VARIANTS if name != "givens" or n <= GIVENS_LARGEST}
        times: dict[str, list[float]] = {name: [] for name in works}
        order = list(works.items())
        for turn in track(range((rounds or _rounds(n)) + 1), f"speed at n = {n}"):
            random.Random(turn).shuffle(order)  # no method always runs in the wake of the same other
            for name, work in order:
                start = time.perf_counter()
                work()
                if turn:  # the first round warms up
                    times[name].append(1e3 * (time.perf_counter() - start))
        measured[str(n)] = {name: _summary(values, times[DEFAULT]) for name, values in times.items()}
    return measured


def _rounds(n: int) -> int:
    return 60 if n <= 128 else 12 if n <= 512 else 6


def _work(name: str, n: int) -> Callable[[], None]:
    method, options, every = VARIANTS[name]
    schur = kreiss.Schur(n, orthogonal=method, **options)
    free = [tensor.requires_grad_() for tensor in schur.initial("henaff", generator=torch.Generator().manual_seed(0))]
    grad = torch.randn(n, n)
    step = 1e-4 * torch.randn(free[0].shape)
    count = 0

    def work() -> None:
        nonlocal count
        with torch.no_grad():
            free[0].add_(step)  # what an optimiser does: a trivialization at its base point would be too easy
        schur(*free).backward(grad)
        count += 1
        if every and count % every == 0:
            schur.rebase(*free)

    return work


def _summary(values: list[float], reference: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    ratios = [value / base for value, base in zip(values, reference, strict=True)]
    return {"ms": middle, "ms_low": low, "ms_high": high, "ratio_to_default": statistics.median(ratios)}


def accuracy(n: int = 128, steps: int = 10_000) -> dict[str, Any]:
    """max|PᵀP − I| in float32 after learning an orthogonal matrix from noisy examples by RMSprop."""
    errors = {}
    for name, (method, options, every) in VARIANTS.items():
        g = torch.Generator().manual_seed(0)
        orthogonal = kreiss.Orthogonal(n, method, **options)
        (free,) = orthogonal.initial("henaff", generator=g)
        free.requires_grad_()
        target = initial.random(n, generator=g).float()
        optimizer = torch.optim.RMSprop([free], lr=1e-3)
        worst = 0.0
        for step in track(range(1, steps + 1), f"accuracy, {name}"):
            x = torch.randn(n, 16, generator=g)
            optimizer.zero_grad()
            ((orthogonal(free) @ x - target @ x) ** 2).mean().backward()
            optimizer.step()
            if every and step % every == 0:
                orthogonal.rebase(free)
            if step % 500 == 0 or step == steps:
                worst = max(worst, orthogonal.error(free))
        errors[name] = {"n": n, "steps": steps, "worst_error": worst, "last_error": orthogonal.error(free)}
    return errors


def training(delay: int = 100, hidden: int = 64, steps: int = 600, seeds: int = 3) -> dict[str, Any]:
    """Test loss of ExpRNN on the copy task (lr 1e-3, orthogonal lr 1e-4, RMSprop 0.99), per seed."""
    task, runs = Copy(delay), {}
    for name in VARIANTS:
        tests = [_trained(name, task, hidden, steps, seed) for seed in range(seeds)]
        metrics = {metric: [test[metric] for test in tests] for metric in ("loss", "accuracy")}
        runs[name] = {"delay": delay, "hidden": hidden, "steps": steps, **metrics}
    return {"baseline": task.baseline()["loss"], "runs": runs}


def _trained(name: str, task: Copy, hidden: int, steps: int, seed: int) -> dict[str, float]:
    """Test metrics of one run."""
    method, options, every = VARIANTS[name]
    g = torch.Generator().manual_seed(seed)
    layer = kreiss.ExpRNN(task.input_size, hidden, orthogonal=method, generator=g)
    if options.get("retraction"):
        layer.sets["l0"].map.retraction = options["retraction"]
    model = RecurrentNetwork(layer, task.output_size, symbols=task.input_size, generator=g)
    settings = {"steps": steps, "eval_every": steps, "optimiser.rebase_every": every, "seed": seed}
    print(f"training, {name}, seed {seed}")
    run = kreiss.fit(model, task, settings, lr=1e-3, orthogonal_lr=1e-4)
    if run.state == "interrupted":
        sys.exit("interrupted; this part is not recorded")
    return run.metrics


def table(results: dict[str, Any]) -> str:
    """The Markdown table that docs/orthogonal.md includes."""
    speeds, errors = results.get("speed", {}), results.get("accuracy", {})
    runs = results.get("training", {}).get("runs", {})
    sizes, steps = list(speeds) or SIZES, next((entry["steps"] for entry in errors.values()), 10_000)
    lines = [
        "<!-- generated by benchmarks/orthogonal_methods.py table; do not edit -->",
        "",
        "| method | " + " | ".join(f"time at n = {n}" for n in sizes) + f" | error after {steps:,} steps | copy loss |",
        "|---" * (len(sizes) + 3) + "|",
    ]
    for name in VARIANTS:
        cells = [_time_cell(speeds.get(str(n), {}).get(name)) for n in sizes]
        cells.append(f"{errors[name]['worst_error']:.1e}" if name in errors else "not run")
        cells.append(_mean(runs[name]["loss"]) if name in runs else "not run")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    machine = results.get("machine", {}).get("speed", {})
    lines += [
        "",
        f"Times measured with torch {machine.get('torch', '?')}, {machine.get('threads', '?')} threads, "
        f"{machine.get('processor', '?')}.",
    ]
    return "\n".join(lines) + "\n"


def _time_cell(entry: dict[str, float] | None) -> str:
    return f"{entry['ms']:.3g} ms ({entry['ratio_to_default']:.2f}×)" if entry else "not run"


def _mean(values: list[float]) -> str:
    """The mean, with its standard error where there is one."""
    mean = f"{statistics.mean(values):.4f}"
    return f"{mean} ± {statistics.stdev(values) / len(values) ** 0.5:.4f}" if len(values) > 1 else mean


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; by default all")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="n of speed")
    parser.add_argument("--rounds", type=int, help="of speed, at least 2; by default 6 to 60, fewer for larger n")
    parser.add_argument("--size", type=int, default=128, help="n of accuracy")
    parser.add_argument("--steps", type=int, default=10_000, help="of the optimiser in accuracy")
    parser.add_argument("--delay", type=int, default=100, help="T of training")
    parser.add_argument("--hidden", type=int, default=64, help="units of training")
    parser.add_argument("--updates", type=int, default=600, help="of a run of training")
    parser.add_argument("--seeds", type=int, default=3, help="runs of every method in training, with seeds from 0")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file that keeps the numbers")
    parser.add_argument("--table", type=Path, default=TABLE, help="file of the Markdown table")
    options = parser.parse_args(words)
    if unknown := set(options.parts) - {*PARTS}:
        parser.error(f"unknown part {sorted(unknown)}; choose from {PARTS}")
    return options


def main(words: Sequence[str] | None = None) -> None:
    """Measure what is asked for, keep it, and write the table."""
    options = arguments(words)
    measurements: dict[str, Callable[[], dict[str, Any]]] = {
        "speed": lambda: speed(options.sizes, options.rounds),
        "accuracy": lambda: accuracy(options.size, options.steps),
        "training": lambda: training(options.delay, options.hidden, options.updates, options.seeds),
    }
    results = json.loads(options.results.read_text()) if options.results.exists() else {}
    for part in (part for part in measurements if part in (options.parts or PARTS)):
        results[part] = measurements[part]()
        results.setdefault("machine", {})[part] = {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "processor": platform.processor() or platform.machine(),
        }
        options.results.write_text(json.dumps(results, indent=1) + "\n")
    options.table.write_text(table(results))
    print(f"wrote {options.table}")


if __name__ == "__main__":
    main()

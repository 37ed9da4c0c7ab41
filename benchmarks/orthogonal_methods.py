"""Which way to hold P should be the default? Speed, accuracy and training quality of each.

    python benchmarks/orthogonal_methods.py speed      # interleaved medians, one process; needs a quiet machine
    python benchmarks/orthogonal_methods.py accuracy   # orthogonality after 10,000 float32 optimiser steps
    python benchmarks/orthogonal_methods.py training   # copy task, three seeds, rebased or not
    python benchmarks/orthogonal_methods.py table      # docs/orthogonal_measured.md from the recorded results
    python benchmarks/orthogonal_methods.py            # all of these

Results are kept in results/orthogonal_methods.json; the table in the docs is generated from it.
"""

from __future__ import annotations

import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.progress import track

import kreiss
from kreiss.sets import initial
from kreiss.tasks import Copy
from kreiss.training import Network

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


def speed() -> dict[str, Any]:
    """Milliseconds of V = P(Λ+T)Pᵀ forward and backward, methods taking turns; medians and ratios."""
    found: dict[str, Any] = {}
    for n in SIZES:
        works = {name: _work(name, n) for name in VARIANTS if name != "givens" or n <= GIVENS_LARGEST}
        rounds = {64: 60, 128: 60, 512: 12, 1024: 6}[n]
        times: dict[str, list[float]] = {name: [] for name in works}
        order = list(works.items())
        for turn in track(range(rounds + 1), f"speed at n = {n}"):
            random.Random(turn).shuffle(order)  # no method always runs in the wake of the same other
            for name, work in order:
                start = time.perf_counter()
                work()
                if turn:  # the first round warms up
                    times[name].append(1e3 * (time.perf_counter() - start))
        found[str(n)] = {name: _summary(values, times[DEFAULT]) for name, values in times.items()}
    return found


def _work(name: str, n: int) -> Callable[[], None]:
    method, options, every = VARIANTS[name]
    made = kreiss.Schur(n, orthogonal=method, **options)
    free = [tensor.requires_grad_() for tensor in made.initial("henaff", generator=torch.Generator().manual_seed(0))]
    grad = torch.randn(n, n)
    step = 1e-4 * torch.randn(free[0].shape)
    count = 0

    def work() -> None:
        nonlocal count
        with torch.no_grad():
            free[0].add_(step)  # what an optimiser does: a trivialization at its base point would be too easy
        made(*free).backward(grad)
        count += 1
        if every and count % every == 0:
            made.rebase(*free)

    return work


def _summary(values: list[float], reference: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    ratios = [value / base for value, base in zip(values, reference, strict=True)]
    return {"ms": middle, "ms_low": low, "ms_high": high, "ratio_to_default": statistics.median(ratios)}


def accuracy(n: int = 128, steps: int = 10_000) -> dict[str, Any]:
    """max|PᵀP − I| in float32 after learning an orthogonal matrix from noisy examples by RMSprop."""
    found = {}
    for name, (method, options, every) in VARIANTS.items():
        g = torch.Generator().manual_seed(0)
        made = kreiss.Orthogonal(n, method, **options)
        (free,) = made.initial("henaff", generator=g)
        free.requires_grad_()
        target = initial.random(n, generator=g).float()
        optimizer = torch.optim.RMSprop([free], lr=1e-3)
        worst = 0.0
        for step in track(range(1, steps + 1), f"accuracy, {name}"):
            x = torch.randn(n, 16, generator=g)
            optimizer.zero_grad()
            ((made(free) @ x - target @ x) ** 2).mean().backward()
            optimizer.step()
            if every and step % every == 0:
                made.rebase(free)
            if step % 500 == 0:
                worst = max(worst, made.error(free))
        found[name] = {"n": n, "steps": steps, "worst_error": worst, "last_error": made.error(free)}
    return found


def training(delay: int = 100, hidden: int = 64, steps: int = 600) -> dict[str, Any]:
    """Test loss of ExpRNN on the copy task (lr 1e-3, orthogonal lr 1e-4, RMSprop 0.99), per seed."""
    task = Copy(delay)
    found = {}
    for name, (method, options, every) in VARIANTS.items():
        losses, accuracies = [], []
        for seed in range(3):
            g = torch.Generator().manual_seed(seed)
            layer = kreiss.ExpRNN(task.input_size, hidden, orthogonal=method, generator=g)
            if options.get("retraction"):
                layer.sets["l0"].map.retraction = options["retraction"]
            model = Network(layer, task.output_size, symbols=task.input_size, generator=g)
            settings = {"steps": steps, "eval_every": steps, "optimiser.rebase_every": every or 0, "seed": seed}
            print(f"training, {name}, seed {seed}")
            run = kreiss.fit(model, task, settings, lr=1e-3, orthogonal_lr=1e-4)
            losses.append(run.metrics["loss"])
            accuracies.append(run.metrics["accuracy"])
        found[name] = {"delay": delay, "hidden": hidden, "steps": steps, "loss": losses, "accuracy": accuracies}
    return {"baseline": task.baseline()["loss"], "runs": found}


def table() -> None:
    """Write the Markdown table that docs/orthogonal.md includes."""
    results = json.loads(RESULTS.read_text())
    lines = [
        "<!-- generated by benchmarks/orthogonal_methods.py table; do not edit -->",
        "",
        "| method | " + " | ".join(f"time at n = {n}" for n in SIZES) + " | error after 10,000 steps | copy loss |",
        "|---" * (len(SIZES) + 3) + "|",
    ]
    for name in VARIANTS:
        cells = [_time_cell(results.get("speed", {}).get(str(n), {}).get(name)) for n in SIZES]
        error = results.get("accuracy", {}).get(name)
        cells.append(f"{error['worst_error']:.1e}" if error else "not run")
        run = results.get("training", {}).get("runs", {}).get(name)
        cells.append(f"{statistics.mean(run['loss']):.4f} ± {_standard_error(run['loss']):.4f}" if run else "not run")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    machine = results.get("machine", {}).get("speed", {})
    lines += [
        "",
        f"Times measured with torch {machine.get('torch', '?')}, {machine.get('threads', '?')} threads, "
        f"{machine.get('processor', '?')}.",
    ]
    TABLE.write_text("\n".join(lines) + "\n")
    print(f"wrote {TABLE.relative_to(ROOT)}")


def _time_cell(entry: dict[str, float] | None) -> str:
    return f"{entry['ms']:.3g} ms ({entry['ratio_to_default']:.2f}×)" if entry else "not run"


def _standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5


def main(parts: list[str]) -> None:
    known: dict[str, Callable[[], dict[str, Any]]] = {"speed": speed, "accuracy": accuracy, "training": training}
    if unknown := set(parts) - {*known, "table"}:
        sys.exit(f"unknown part {sorted(unknown)}; choose from {[*known, 'table']}")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for part in parts or known:
        if part in known:
            results[part] = known[part]()
            results.setdefault("machine", {})[part] = {
                "torch": torch.__version__,
                "threads": torch.get_num_threads(),
                "processor": platform.processor() or platform.machine(),
            }
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    table()


if __name__ == "__main__":
    main(sys.argv[1:])

"""Pseudospectra: our grid against one singular value decomposition per point, taking turns in one process.

    python benchmarks/pseudospectra.py [--size 200] [--side 200] [--sample 60] [--rounds 3]

The plain grid is timed on a sample of its points and scaled up, because all of it takes minutes. Times are those of the
processor (set OMP_NUM_THREADS=1), so that other work on the machine counts less; the error is the largest difference on
the sample. Results go to results/pseudospectra.json and to docs/pseudospectra_measured.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kreiss import analysis

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "pseudospectra.json"
TABLE = ROOT / "docs" / "pseudospectra_measured.md"

# name → (matrix of a given size, left, right, top of the grid)
MATRICES = {
    "Grcar": (analysis.grcar, -1.0, 3.5, 3.5),
    "Jordan": (analysis.jordan, -1.5, 1.5, 1.5),
    "Gaussian": (lambda n: analysis.random_gaussian(n, seed=1), -1.5, 1.5, 1.5),
    "nnRNN": (lambda n: analysis.random_schur(n, 1.0, 0.02, 1), -1.5, 1.5, 1.5),
    "orthogonal": (lambda n: analysis.random_orthogonal(n, 1), -1.5, 1.5, 1.5),
}


def direct(v: np.ndarray, points: np.ndarray) -> np.ndarray:
    """σ_min(zI − V) by one decomposition per point."""
    eye = np.eye(len(v))
    return np.array([np.linalg.svd(z * eye - v, compute_uv=False)[-1] for z in points])


def measure(name: str, size: int, side: int, sample: int, rounds: int) -> dict[str, float]:
    """Processor seconds of either way for the whole grid, medians over rounds in which they take turns."""
    make, left, right, top = MATRICES[name]
    v = make(size)
    axes = (np.linspace(left, right, side), np.linspace(-top, top, side))
    chosen = np.random.default_rng(0).choice(side * side, sample, replace=False)
    ours, plain, error = [], [], 0.0
    for _ in range(rounds):
        start = time.process_time()
        grid = analysis.pseudospectrum(v, axes)
        ours.append(time.process_time() - start)
        points = grid.points.ravel()[chosen]
        start = time.process_time()
        exact = direct(v, points)
        plain.append((time.process_time() - start) * side * side / sample)
        error = max(error, float(np.abs(grid.smallest.ravel()[chosen] - exact).max()))
    ratios = [slow / fast for slow, fast in zip(plain, ours, strict=True)]
    return {
        "ours_s": statistics.median(ours),
        "plain_s": statistics.median(plain),
        "ratio": statistics.median(ratios),
        "lowest_ratio": min(ratios),
        "largest_error": error,
    }


def table(results: dict[str, Any]) -> str:
    """The Markdown table that docs/analysis.md includes."""
    lines = ["| matrix | ours, s | plain, s | ratio | lowest ratio | largest error |", "|---" * 6 + "|"]
    lines += [
        f"| {name} | {row['ours_s']:.1f} | {row['plain_s']:.0f} | {row['ratio']:.0f} | {row['lowest_ratio']:.0f} "
        f"| {row['largest_error']:.0e} |"
        for name, row in results["matrices"].items()
    ]
    return "\n".join(lines) + "\n"


def main(words: Sequence[str] | None = None) -> None:
    """Measure every matrix, print a table, write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=200, help="of the matrices")
    parser.add_argument("--side", type=int, default=200, help="points along a side of the grid")
    parser.add_argument("--sample", type=int, default=60, help="points at which the plain way is timed")
    parser.add_argument("--rounds", type=int, default=3, help="in which both take turns")
    parser.add_argument("--matrix", choices=MATRICES, nargs="*", default=list(MATRICES), help="to measure")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file that keeps the numbers")
    parser.add_argument("--table", type=Path, default=TABLE, help="file of the Markdown table")
    options = parser.parse_args(words)
    matrices = {
        name: measure(name, options.size, options.side, options.sample, options.rounds) for name in options.matrix
    }
    print(f"{'matrix':>11} {'ours, s':>9} {'plain, s':>9} {'ratio':>7} {'lowest':>7} {'error':>9}")
    for name, row in matrices.items():
        print(
            f"{name:>11} {row['ours_s']:9.2f} {row['plain_s']:9.0f} {row['ratio']:7.0f} {row['lowest_ratio']:7.0f} "
            f"{row['largest_error']:9.1e}"
        )
    setting = {"size": options.size, "side": options.side, "threads": os.environ.get("OMP_NUM_THREADS", "all")}
    versions = {"numpy": np.__version__, "machine": platform.machine()}
    results = {**setting, **versions, "matrices": matrices}
    options.results.write_text(json.dumps(results, indent=1) + "\n")
    options.table.write_text(table(results))


if __name__ == "__main__":
    main()

"""Time of one step of a stream: a frozen NNRNN against a step written in NumPy, nn.LSTMCell and onnxruntime.

    python benchmarks/stream_step.py [--sizes 64 128 256] [--rounds 20] [--steps 2000]

One sequence, ten features, one thread. All take turns in one process, in an order shuffled every round; a turn is many
steps. NumPy and onnxruntime compute the same step as the stream, onnxruntime from `kreiss.export(layer, step=True)`.
Writes results/stream_step.json and docs/stream_measured.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import kreiss
from kreiss.bench.run import machine

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "stream_step.json"
TABLE = ROOT / "docs" / "stream_measured.md"
INPUTS = 10
OURS = "kreiss.Stream"
RIVALS = ("NumPy", "nn.LSTMCell", "onnxruntime")

Work = Callable[[], Any]


def numpy_step(layer: Any, x: np.ndarray) -> Work:
    """z = V h + U x, h = sign(z)·max(|z| + b, 0), in buffers made before."""
    tensors = (layer.weight_hh_l0, layer.weight_ih_l0, layer._bias("l0"))
    matrix, weight, bias = (tensor.detach().numpy() for tensor in tensors)
    h, z, u = (np.zeros(len(matrix), np.float32) for _ in range(3))

    def step() -> np.ndarray:
        np.dot(matrix, h, out=z)
        np.dot(weight, x, out=u)
        np.add(z, u, out=z)
        np.abs(z, out=u)
        np.add(u, bias, out=u)
        np.maximum(u, 0, out=u)
        return np.copysign(u, z, out=h)

    return step


def lstm_step(hidden: int, x: torch.Tensor) -> Work:
    """nn.LSTMCell without gradients."""
    cell, row = nn.LSTMCell(INPUTS, hidden).requires_grad_(False), x[None]
    state = (torch.zeros(1, hidden), torch.zeros(1, hidden))

    def step() -> torch.Tensor:
        nonlocal state
        state = cell(row, state)
        return state[0]

    return step


def onnx_step(layer: Any, x: np.ndarray) -> Work:
    """The exported step in onnxruntime, with one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.onnx"
        kreiss.export(layer, path, step=True)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = {"input": x[None], "state": np.zeros((1, 1, layer.hidden_size), np.float32)}

    def step() -> np.ndarray:
        output, given["state"] = session.run(None, given)
        return output[0]

    return step


def contenders(hidden: int) -> dict[str, Work]:
    """One step of each on the same input; those of the same network must agree."""
    g = torch.Generator().manual_seed(0)
    layer = kreiss.NNRNN(INPUTS, hidden, generator=g).freeze()
    x = torch.randn(INPUTS, generator=g)
    works = {"NumPy": numpy_step(layer, x.numpy())}
    if all(importlib.util.find_spec(name) for name in ("onnxruntime", "onnx", "onnxscript")):
        works["onnxruntime"] = onnx_step(layer, x.numpy())
    stream = kreiss.Stream(layer)
    first = stream.step(x).numpy()
    for work in works.values():
        np.testing.assert_allclose(work(), first, rtol=1e-4, atol=1e-5)
    return {OURS: lambda: stream.step(x), "nn.LSTMCell": lstm_step(hidden, x), **works}


def measure(hidden: int, rounds: int, steps: int) -> dict[str, Any]:
    """Medians of µs a step, and our time by that of the fastest rival within a round."""
    works = contenders(hidden)
    times: dict[str, list[float]] = {name: [] for name in works}
    order = list(works.items())
    for turn in range(rounds + 1):  # the first warms up
        random.Random(turn).shuffle(order)
        for name, work in order:
            start = time.perf_counter()
            for _ in range(steps):
                work()
            if turn:
                times[name].append(1e6 * (time.perf_counter() - start) / steps)
    medians = {name: statistics.median(values) for name, values in times.items()}
    fastest = min((name for name in medians if name != OURS), key=medians.__getitem__)
    ratios = [ours / theirs for ours, theirs in zip(times[OURS], times[fastest], strict=True)]
    return {"us": medians, "fastest_rival": fastest, "ratio": statistics.median(ratios)}


def table(results: dict[str, Any]) -> str:
    """The Markdown table that docs/performance.md includes."""
    sizes = results["sizes"]
    rows = [
        [name, *(f"{entry['us'][name]:.2f}" for entry in sizes.values())]
        for name in (OURS, *RIVALS)
        if all(name in entry["us"] for entry in sizes.values())
    ]
    ratios = ["ours / the fastest other", *(f"{entry['ratio']:.2f}" for entry in sizes.values())]
    lines = [["µs a step, N =", *sizes], ["---"] * (len(sizes) + 1), *rows, ratios]
    where, shown = results["machine"], [row[0] for row in rows]
    said = f"One sequence of {INPUTS} features, one thread; {where['processor']}, torch {where['versions']['torch']}."
    if "onnxruntime" not in shown:
        said += " onnxruntime was not installed and did not run."
    head = "<!-- generated by benchmarks/stream_step.py; do not edit -->"
    return "\n".join([head, "", *(f"| {' | '.join(line)} |" for line in lines), "", said]) + "\n"


def main(words: Sequence[str] | None = None) -> None:
    """Measure every size and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=(64, 128, 256), help="N, hidden units")
    parser.add_argument("--rounds", type=int, default=20, help="in which all take turns")
    parser.add_argument("--steps", type=int, default=2000, help="of a turn")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file that keeps the numbers")
    parser.add_argument("--table", type=Path, default=TABLE, help="file of the Markdown table")
    options = parser.parse_args(words)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        sizes = {str(n): measure(n, options.rounds, options.steps) for n in options.sizes}
        results = {"rounds": options.rounds, "steps": options.steps, "sizes": sizes, "machine": machine()}
    finally:
        torch.set_num_threads(threads)
    options.results.write_text(json.dumps(results, indent=1) + "\n")
    options.table.write_text(table(results))
    print(table(results))


if __name__ == "__main__":
    main()

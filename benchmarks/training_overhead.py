"""What `kreiss train` costs beyond the bare loop around the same layer, at the size of the copy task.

    python benchmarks/training_overhead.py [--rounds 5] [--steps 1500]

T = 200, N = 128, batch 10, the settings of Kerg et al. (2019), Table 2. Both take turns in one process: whole updates
by a hand-written forward, backward and optimiser step on one batch that was made before, and a run of as many updates
with data generation, records, validations, checkpoints, display and the closing test. Prints the ratio of wall times,
and that of processor times, which other work on the machine disturbs less; --write keeps them in
results/training_overhead.json, or in the file that --results names.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

import kreiss
from kreiss.settings import Config
from kreiss.training.config import resolved
from kreiss.training.fitting import run
from kreiss.training.planning import make_network, make_task
from kreiss.training.presets import preset_named

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "training_overhead.json"


class Times(NamedTuple):
    """Seconds by the clock on the wall and by that of the processor."""

    wall: float
    processor: float


def clock() -> Times:
    """What both clocks show."""
    return Times(time.perf_counter(), time.process_time())


def since(start: Times) -> Times:
    """Seconds since both clocks showed `start`."""
    now = clock()
    return Times(now.wall - start.wall, now.processor - start.processor)


def settings(delay: int, hidden: int, steps: int) -> Config:
    """The copy task of the paper, with ten validations as `kreiss train` makes them."""
    sizes = {"task.delay": delay, "hidden": hidden, "steps": steps}
    return resolved(preset_named("000/table2/nnrnn-128"), {"model.blocks": "exact", "checkpoint_every": 100, **sizes})


def bare(config: Config) -> Times:
    """Seconds of the loop that does nothing but train."""
    assert config.steps is not None
    task = make_task(config)
    model = make_network(config, task)
    batch = task.train(0, config.batch, config.seed)
    groups = kreiss.param_groups(model, 5e-4, orthogonal_lr=1e-6, coupling_decay=1e-6)
    optimizer = kreiss.optim.RMSprop(groups, alpha=0.99)
    start = clock()
    for _ in range(config.steps):
        optimizer.zero_grad(set_to_none=True)
        loss = task.loss(model(batch.inputs)[0], batch) + kreiss.radius_penalty(model, 1e-4)
        loss.backward()
        optimizer.step()
    return since(start)


def whole(config: Config, show: str) -> Times:
    """Seconds of a run, from settings to tested result."""
    with tempfile.TemporaryDirectory() as folder:
        start = clock()
        task = make_task(config)
        run(config, Path(folder) / "run", make_network(config, task), task, show=show)
        return since(start)


def compare(config: Config, rounds: int, show: str) -> dict[str, object]:
    """Ratios of the times of a run to those of the bare loop, in rounds in which both take turns."""
    wall, processor = [], []
    for turn in range(rounds):
        own, full = bare(config), whole(config, show)
        wall.append(full.wall / own.wall)
        processor.append(full.processor / own.processor)
        print(
            f"round {turn}: bare {own.wall:.2f} s, kreiss train {full.wall:.2f} s, ratio {wall[-1]:.3f}, "
            f"of processor times {processor[-1]:.3f}",
            file=sys.stderr,
        )
    return {
        "steps": config.steps, "ratio": statistics.median(wall), "ratios": wall,
        "processor_ratio": statistics.median(processor), "display": show,
        "torch": torch.__version__, "threads": torch.get_num_threads(),
    }  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    """Warm up, compare, print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="in which both take turns")
    parser.add_argument("--steps", type=int, default=1500, help="updates of either")
    parser.add_argument("--delay", type=int, default=200, help="T; sequences have T + 20 steps")
    parser.add_argument("--hidden", type=int, default=128, help="N, hidden units")
    parser.add_argument("--show", default="live", choices=("live", "plain", "quiet"), help="display of the run")
    parser.add_argument("--write", action="store_true", help="keep the numbers")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file that keeps them")
    options = parser.parse_args(words)
    short = settings(options.delay, options.hidden, 20)
    bare(short), whole(short, "quiet")
    results = compare(settings(options.delay, options.hidden, options.steps), options.rounds, options.show)
    print(f"median ratio {results['ratio']:.3f}, of processor times {results['processor_ratio']:.3f}", file=sys.stderr)
    if options.write:
        options.results.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What `kreiss train` costs beyond the bare loop around the same layer, at the size of the copy task.

    python benchmarks/training_overhead.py [--rounds 5] [--steps 300]

T = 200, N = 128, batch 10, the settings of Kerg et al. (2019), Table 2. Both take turns in one process: whole updates
by a hand-written forward, backward and optimiser step on one batch that was made before, and a run of as many updates
with data generation, records, validations, checkpoints, display and the closing test. Prints the ratio of wall times,
and that of processor times, which other work on the machine disturbs less; --write keeps them in
results/training_overhead.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

import kreiss
from kreiss.training.building import make_network, make_task
from kreiss.training.config import Config, resolved
from kreiss.training.fitting import run
from kreiss.training.presets import preset_named

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "training_overhead.json"


def settings(steps: int) -> Config:
    """The copy task of the paper, with ten validations as `kreiss train` makes them."""
    changes = {"model.blocks": "exact", "steps": steps, "checkpoint_every": 100}
    return resolved(preset_named("000/table2/nnrnn-128"), changes)


Times = tuple[float, float]  # wall and processor seconds


def clock() -> Times:
    return time.perf_counter(), time.process_time()


def since(start: Times) -> Times:
    now = clock()
    return now[0] - start[0], now[1] - start[1]


def bare(steps: int) -> Times:
    """Seconds of the loop that does nothing but train."""
    config = settings(steps)
    task = make_task(config)
    model = make_network(config, task)
    batch = task.train(0, config.batch, config.seed)
    groups = kreiss.param_groups(model, 5e-4, orthogonal_lr=1e-6, coupling_decay=1e-6)
    optimizer = torch.optim.RMSprop(groups, alpha=0.99)
    start = clock()
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = task.loss(model(batch.inputs)[0], batch) + kreiss.penalty(model, 1e-4)
        loss.backward()
        optimizer.step()
    return since(start)


def whole(steps: int, show: str) -> Times:
    """Seconds of a run, from settings to tested result."""
    with tempfile.TemporaryDirectory() as folder:
        config = settings(steps)
        start = clock()
        task = make_task(config)
        run(config, Path(folder) / "run", make_network(config, task), task, show=show)
        return since(start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--show", default="live", choices=("live", "plain", "quiet"))
    parser.add_argument("--write", action="store_true", help="keep the numbers in results/")
    arguments = parser.parse_args()
    bare(20), whole(20, "quiet")
    ratios, processor = [], []
    for turn in range(arguments.rounds):
        own, full = bare(arguments.steps), whole(arguments.steps, arguments.show)
        ratios.append(full[0] / own[0])
        processor.append(full[1] / own[1])
        print(
            f"round {turn}: bare {own[0]:.2f} s, kreiss train {full[0]:.2f} s, ratio {ratios[-1]:.3f}, "
            f"of processor times {processor[-1]:.3f}",
            file=sys.stderr,
        )
    found = {
        "steps": arguments.steps, "ratio": statistics.median(ratios), "ratios": ratios,
        "processor_ratio": statistics.median(processor), "display": arguments.show,
        "torch": torch.__version__, "threads": torch.get_num_threads(),
    }  # fmt: skip
    print(f"median ratio {found['ratio']:.3f}, of processor times {found['processor_ratio']:.3f}", file=sys.stderr)
    if arguments.write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

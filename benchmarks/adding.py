"""ENRNN on the adding problem: 96 units that remember, 64 that forget, as in the ENRNN paper, §5.1.

    python benchmarks/adding.py [--length 200] [--updates 4000] [--seeds 1]
    python benchmarks/adding.py --length 750 --updates 20000 --target 0.0167 --checkpoint adding.pt

Two inputs per step: a number from U[0, 1) and a marker, 1 at one step of each half of the sequence. The target is
the sum of the two marked numbers, read from the last state. Batch 50, Adam, learning rate 1e-3 for everything, gradient
norm clipped at 1. Records every 100 updates the mean squared error on 2,000 fixed held-out sequences in
results/adding.json, and stops at the target. A network without memory has 0.167. With --checkpoint a run that was
stopped goes on from its last measurement; --minutes ends it after so much processor time.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import kreiss

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "adding.json"
TABLE = ROOT / "docs" / "adding_measured.md"


def sample(length: int, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs (T, B, 2) and sums (B,)."""
    x = torch.zeros(length, batch, 2)
    x[..., 0] = torch.rand(length, batch, generator=generator)
    half, rows = length // 2, torch.arange(batch)
    first = torch.randint(half, (batch,), generator=generator)
    second = torch.randint(half, length, (batch,), generator=generator)
    x[first, rows, 1] = x[second, rows, 1] = 1.0
    return x, x[first, rows, 0] + x[second, rows, 0]


class Sum(nn.Module):
    """A number from the last state."""

    def __init__(self, layer: nn.Module, size: int, generator: torch.Generator) -> None:
        super().__init__()
        self.layer, self.readout = layer, nn.Linear(size, 1)
        nn.init.xavier_normal_(self.readout.weight, generator=generator)
        nn.init.zeros_(self.readout.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.layer(x)[1][-1]).squeeze(-1)


class Run:
    """A training run that can be left and taken up again."""

    def __init__(self, arguments: argparse.Namespace, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.layer = kreiss.ENRNN(
            2, 160, short=64, epsilon=arguments.epsilon, negative=arguments.negative, generator=self.generator
        )
        self.model = Sum(self.layer, 160, self.generator)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.length, self.seed, self.checkpoint = arguments.length, seed, arguments.checkpoint
        self.held_out = sample(self.length, 2000, torch.Generator().manual_seed(1_000_003))
        self.curve: list[dict[str, float]] = []
        self.seconds = 0.0  # of processor time, in what was run before
        if self.checkpoint and self.checkpoint.exists():
            self._take_up(torch.load(self.checkpoint))

    def update(self) -> None:
        """One step of Adam on a fresh batch."""
        x, y = sample(self.length, 50, self.generator)
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.model(x), y).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def measure(self, update: int) -> float:
        """The held-out error, noted in the curve."""
        with torch.no_grad():
            error = float(nn.functional.mse_loss(self.model(self.held_out[0]), self.held_out[1]))
        self.curve.append({"update": update, "mse": error})
        print(f"T={self.length} seed={self.seed} update {update}: {error:.5f}", flush=True)
        return error

    def leave(self) -> None:
        """Write all that decides how this goes on."""
        if self.checkpoint:
            held = {
                "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "curve": self.curve,
                "generator": self.generator.get_state(), "seconds": self.seconds + time.process_time(),
            }  # fmt: skip
            torch.save(held, self.checkpoint)

    def _take_up(self, held: dict[str, Any]) -> None:
        self.model.load_state_dict(held["model"])
        self.optimizer.load_state_dict(held["optimizer"])
        self.generator.set_state(held["generator"])
        self.curve, self.seconds = held["curve"], held["seconds"]


def run(arguments: argparse.Namespace, seed: int) -> dict[str, object]:
    """One training run; stops when the held-out error is at most the target."""
    made, target = Run(arguments, seed), arguments.target
    start = made.curve[-1]["update"] if made.curve else 0
    for update in range(int(start) + 1, arguments.updates + 1):
        made.update()
        if update % 100 == 0:
            error = made.measure(update)
            made.leave()
            if error <= target or made.seconds + time.process_time() > 60 * arguments.minutes:
                break
    curve, seconds = made.curve, made.seconds + time.process_time()
    disc = made.layer.weight_hh_l0[96:, 96:].detach().double()
    return {
        "length": arguments.length,
        "seed": seed,
        "epsilon": arguments.epsilon,
        "negative": arguments.negative,
        "parameters": sum(p.numel() for p in made.model.parameters()),
        "updates": curve[-1]["update"],
        "mse": curve[-1]["mse"],
        "reached": curve[-1]["mse"] <= target,
        "target": target,
        "radius_of_the_short_part": float(torch.linalg.eigvals(disc).abs().max()),
        "processor_seconds": round(seconds, 1),
        "curve": curve,
    }


def table() -> None:
    lines = [
        "<!-- generated by benchmarks/adding.py; do not edit -->",
        "",
        "| T | seed | ε | −1s | parameters | target MSE | test MSE | updates | radius of W_S |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for entry in json.loads(RESULTS.read_text())["runs"]:
        reached = f"{entry['updates']:,}" if entry["reached"] else f"not within {entry['updates']:,}"
        lines.append(
            f"| {entry['length']} | {entry['seed']} | {entry['epsilon']} | {entry['negative']} | "
            f"{entry['parameters']:,} | {entry['target']} | {entry['mse']:.5f} | {reached} | "
            f"{entry['radius_of_the_short_part']:.4f} |"
        )
    TABLE.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=200)
    parser.add_argument("--updates", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--target", type=float, default=0.01)
    parser.add_argument("--epsilon", type=float, default=1e-3)
    parser.add_argument("--negative", type=int, default=0, help="−1s in the scaled Cayley transform")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="of processor time, for one run")
    parser.add_argument("--checkpoint", type=Path, help="file to leave a run in and take it up from; for one seed")
    arguments = parser.parse_args()
    if arguments.checkpoint and arguments.seeds > 1:
        parser.error("--checkpoint holds one run; give it with --seeds 1")
    for seed in range(arguments.seeds):
        made = run(arguments, seed)
        same = ("length", "seed", "epsilon", "negative")
        kept = json.loads(RESULTS.read_text())["runs"] if RESULTS.exists() else []
        kept = [entry for entry in kept if any(entry[key] != made[key] for key in same)]
        kept = sorted([*kept, made], key=lambda entry: [entry[key] for key in same])
        RESULTS.write_text(json.dumps({"baseline": 1 / 6, "runs": kept}, indent=1) + "\n")
        table()


if __name__ == "__main__":
    main()

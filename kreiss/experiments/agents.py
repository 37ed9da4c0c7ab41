"""Kerg's thesis (2022), App. B.2 (004): agents trained in small worlds and tested in larger ones; T-mazes. Data only.

Table B.1 prints rewards, 5,000,000 frames, and ν = ρ = 5. All other settings are those of the authors' public code.
That code cleared its attention memory at every step of acting, so its numbers may be those of networks without it.
"""

from __future__ import annotations

from typing import Any

from kreiss.experiments.parts import PAPER, Experiment, Published, Row, Scale

THESIS, BAKKER = "kerg2022", "bakker2002"
FRAMES = 16 * 128  # of an update

# world to train in → world to test in; rewards of MemLSTM in both, and of RelLSTM (Table B.1)
PAIRS: dict[str, tuple[str, str, tuple[float, float], tuple[float, float]]] = {
    "redbluedoors": ("RedBlueDoors-6x6", "RedBlueDoors-8x8", (0.97, 0.95), (0.97, 0.95)),
    "gotoobject": ("GoToObject-6x6-N2", "GoToObject-8x8-N2", (0.85, 0.66), (0.84, 0.74)),
    "memory": ("MemoryS7", "MemoryS13", (0.4, 0.24), (0.94, 0.30)),
    "gotodoor": ("GoToDoor-5x5", "GoToDoor-8x8", (0.17, 0.11), (0.25, 0.15)),
    "fetch": ("Fetch-5x5-N2", "Fetch-8x8-N3", (0.42, 0.44), (0.5, 0.45)),
    "doorkey": ("DoorKey-5x5", "DoorKey-16x16", (0.94, 0.31), (0.93, 0.44)),
}
# name → label, settings beyond its name
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "memlstm": ("MemLSTM", {}),
    "rellstm": ("RelLSTM", {"model.short": 5, "model.relevant": 5}),
    "lstm": ("LSTM", {}),
    "nnrnn": ("nnRNN", {"orthogonal_lr": 1e-4}),
    "exprnn": ("expRNN", {"orthogonal_lr": 1e-4}),
}
SMOKE = {
    "steps": 2, "eval_every": 2, "hidden": 8, "batch": 2, "ppo.frames": 8, "ppo.recurrence": 4, "ppo.minibatch": 8,
    "task.valid_episodes": 1, "task.test_episodes": 1,
}  # fmt: skip


def _named(name: str) -> str:
    return f"MiniGrid-{name}-v0"


def _pair(pair: str, network: str) -> Row:
    small, large, full, screened = PAIRS[pair]
    label, own = NETWORKS[network]
    settings = {
        "task": "minigrid", "task.env": _named(small), "task.test_env": _named(large), "model": network, "hidden": 64,
        "steps": 5_000_000 // FRAMES, "eval_every": 50, **own,
    }  # fmt: skip
    rewards = {"memlstm": full, "rellstm": screened}.get(network, ())
    metrics = ("reward", f"reward@{_named(large)}")
    published = tuple(Published(metric, value) for metric, value in zip(metrics, rewards, strict=False))
    counted = {"lstm": 52_664, "memlstm": 60_664, "rellstm": 60_664}.get(network)
    return Row(
        f"{network}-{pair}", label, settings, (f"{small} → {large}",), published, ours=not rewards, counted=counted
    )


SCALES = {
    "paper": PAPER,
    "laptop": Scale(
        "as published: networks, worlds, PPO; at most 200 updates, 409,600 frames for 5,000,000, stopped when a "
        "validation of 20 episodes has a reward of 0.9",
        {"steps": 200, "eval_every": 10, "stop_at": 0.9},
    ),
    "million": Scale(
        "as published: networks, worlds, PPO; at most 500 updates, 1,024,000 frames for 5,000,000, stopped when a "
        "validation of 20 episodes has a reward of 0.9",
        {"steps": 500, "eval_every": 10, "stop_at": 0.9},
    ),
    "short": Scale(
        "as published: networks, worlds, PPO; at most 100 updates, 204,800 frames for 5,000,000, stopped when a "
        "validation of 20 episodes has a reward of 0.9",
        {"steps": 100, "eval_every": 10, "stop_at": 0.9},
    ),
    "smoke": Scale("seconds: 8 units, 2 updates of 16 frames, episodes of 8 steps", {**SMOKE, "task.limit": 8}),
}

# ---------------------------------------------------------------- T-mazes

LENGTHS = (10, 100, 1000)


def _maze(length: int, network: str) -> Row:
    label, own = NETWORKS[network]
    frames = max(128, 2 * (length + 1))
    settings = {
        "task": "tmaze", "task.length": length, "model": network, "hidden": 64, "steps": 1000, "eval_every": 10,
        "ppo.frames": frames, "ppo.recurrence": frames, "ppo.minibatch": 4 * frames, **own,
    }  # fmt: skip
    return Row(f"{network}-{length}", label, settings, (f"length {length}",), ours=True)


MAZE_SCALES = {
    "paper": Scale("1,000 updates", {}),
    "laptop": Scale(
        "at most 200 updates, stopped when 98 % of the episodes of a validation succeed",
        {"steps": 200, "eval_every": 5, "stop_at": 0.98, "stop_metric": "success"},
    ),
    "smoke": Scale("seconds: length 3, 8 units, 2 updates of 16 frames", {**SMOKE, "task.length": 3}),
}

EXPERIMENTS = (
    Experiment(
        "004/tableB.1", THESIS, "App. B, Table 1", "MiniGrid: trained in small worlds, tested in larger ones", "reward",
        tuple(_pair(pair, network) for pair in PAIRS for network in NETWORKS), SCALES, seeds=3,
        claim="RelLSTM transfers to larger worlds better than MemLSTM.",
        note="The number of runs is not printed; 3 is ours. How many objects GoToObject and Fetch have is not printed; "
        "those of the smallest worlds are taken. Time limits count as such: the value of the last observation is "
        "added, which the public code does not do.",
    ),
    Experiment(
        "bakker/tmaze", BAKKER, "after Fig. 2", "T-maze: a sign to be remembered until the junction", "success",
        tuple(_maze(length, network) for length in LENGTHS for network in NETWORKS), MAZE_SCALES, seeds=3,
        note="Networks, rewards and training are ours, not those of the paper, which has an LSTM solve mazes of up to "
        "70 steps by advantage learning.",
    ),
)  # fmt: skip

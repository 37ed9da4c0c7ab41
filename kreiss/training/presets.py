"""Settings that were published for a task and a network, by name."""

from __future__ import annotations

from typing import Any

from kreiss.errors import check_name

# Kerg et al. (2019), supplement, Table 2: copy task, RMSprop
PRESETS: dict[str, dict[str, Any]] = {
    "copy/nnrnn": {
        "task": "copy", "model": "nnrnn", "optimiser": "rmsprop", "lr": 5e-4, "orthogonal_lr": 1e-6,
        "optimiser.alpha": 0.99, "optimiser.radius": 1e-4, "optimiser.coupling_decay": 1e-6,
    },
    "copy/exprnn": {
        "task": "copy", "model": "exprnn", "optimiser": "rmsprop", "lr": 1e-3, "orthogonal_lr": 1e-4,
        "optimiser.alpha": 0.99,
    },
    "copy/rnn": {"task": "copy", "model": "rnn", "optimiser": "rmsprop", "lr": 1e-3, "optimiser.alpha": 0.9},
    "copy/lstm": {"task": "copy", "model": "lstm", "optimiser": "rmsprop", "lr": 5e-4, "optimiser.alpha": 0.99},
}  # fmt: skip


def preset_named(name: str) -> dict[str, Any]:
    """The settings of a preset."""
    check_name("preset", name, PRESETS)
    return PRESETS[name]

"""Grids for searches of settings, by name; data only.

Those of the papers: Kerg et al. (2019), supplement A.4, and Helfrich & Ye (2020), §5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Grid:
    """Choices by setting.

    Args:
        about: where it is from.
        choices: setting → values.
        shares: setting → values as shares of the hidden size, rounded.
        only: setting → models that have it.
        follows: setting → (other setting, factor): a fixed share of the other.
    """

    about: str
    choices: dict[str, tuple[Any, ...]]
    shares: dict[str, tuple[float, ...]] = field(default_factory=dict)
    only: dict[str, tuple[str, ...]] = field(default_factory=dict)
    follows: dict[str, tuple[str, float]] = field(default_factory=dict)

    def choices_for(self, model: str, hidden: int) -> dict[str, tuple[Any, ...]]:
        """Values by setting, of those that the model has at a hidden size."""
        sizes = {name: tuple(round(share * hidden) for share in shares) for name, shares in self.shares.items()}
        both = {**self.choices, **sizes}
        return {name: values for name, values in both.items() if model in self.only.get(name, (model,))}


GRIDS: dict[str, Grid] = {
    "nnrnn": Grid(
        "supplement A.4: rates from 1e-4 to 1e-2, a tenth of them for orthogonal factors, RMSprop; we take five rates",
        {
            "optimiser.lr": (1e-4, 2e-4, 1e-3, 2e-3, 1e-2),
            "optimiser.alpha": (0.5, 0.9, 0.99),
            "optimiser.radius_penalty": (0.0, 1e-4, 1e-3, 1e-2, 0.1, 0.15, 1.0, 10.0),
            "optimiser.coupling_decay": (0.0, 1e-6, 1e-5, 1e-4),
            "model.init": ("random", "cayley", "henaff"),
        },
        only={
            "optimiser.radius_penalty": ("nnrnn",),
            "optimiser.coupling_decay": ("nnrnn",),
            "model.init": ("nnrnn", "exprnn", "orthrnn"),
        },
        follows={"optimiser.orthogonal_lr": ("optimiser.lr", 0.1)},
    ),
    "enrnn": Grid(
        "§5: optimisers and rates; forget bias and clipping of LSTM; in tenths of the hidden size the −1s of scoRNN, "
        "and the short-term state of ENRNN up to six",
        {
            "optimiser.name": ("adam", "rmsprop", "adagrad"),
            "optimiser.lr": (1e-3, 1e-4, 1e-5),
            "model.forget_bias": tuple(float(bias) for bias in range(-4, 5)),
            "optimiser.clip_norm": tuple(float(norm) for norm in range(1, 11)),
        },
        {
            "model.negative": tuple(tenth / 10 for tenth in range(11)),
            "model.short": tuple(tenth / 10 for tenth in range(1, 7)),
        },
        {
            "model.forget_bias": ("lstm",),
            "optimiser.clip_norm": ("lstm",),
            "model.negative": ("scornn",),
            "model.short": ("enrnn",),
        },
    ),
    "rates": Grid(
        "seven rates, a tenth of them for orthogonal factors: the same for every network",
        {"optimiser.lr": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)},
        follows={"optimiser.orthogonal_lr": ("optimiser.lr", 0.1)},
    ),
}

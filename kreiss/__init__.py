"""Recurrent networks whose dynamics you set: eigenvalues, non-normal transients, long memory.

Names are imported on first use, so that help texts and torch-free parts do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kreiss.version import __version__

if TYPE_CHECKING:
    from kreiss.errors import InputError
    from kreiss.layers import (
        EURNN,
        GRU,
        IRNN,
        LSTM,
        NNRNN,
        RNN,
        URNN,
        ComplexNNRNN,
        ExpRNN,
        FullURNN,
        OrthRNN,
        RecurrentLayer,
        ScoRNN,
        ScuRNN,
        Stream,
    )
    from kreiss.sets import ComplexSchur, Free, Orthogonal, Schur, Set, Stacked, Unitary, constrain
    from kreiss.training import param_groups, penalty, rebase, roles

_HOME = {
    "EURNN": "layers",
    "GRU": "layers",
    "IRNN": "layers",
    "LSTM": "layers",
    "NNRNN": "layers",
    "RNN": "layers",
    "URNN": "layers",
    "ComplexNNRNN": "layers",
    "ComplexSchur": "sets",
    "ExpRNN": "layers",
    "Free": "sets",
    "FullURNN": "layers",
    "InputError": "errors",
    "OrthRNN": "layers",
    "Orthogonal": "sets",
    "RecurrentLayer": "layers",
    "Schur": "sets",
    "ScoRNN": "layers",
    "ScuRNN": "layers",
    "Set": "sets",
    "Stacked": "sets",
    "Stream": "layers",
    "Unitary": "sets",
    "constrain": "sets",
    "param_groups": "training",
    "penalty": "training",
    "rebase": "training",
    "roles": "training",
}
_ROOMS = ("errors", "layers", "linalg", "optim", "recurrence", "sets", "tasks", "training")

__all__ = [
    "EURNN",
    "GRU",
    "IRNN",
    "LSTM",
    "NNRNN",
    "RNN",
    "URNN",
    "ComplexNNRNN",
    "ComplexSchur",
    "ExpRNN",
    "Free",
    "FullURNN",
    "InputError",
    "OrthRNN",
    "Orthogonal",
    "RecurrentLayer",
    "Schur",
    "ScoRNN",
    "ScuRNN",
    "Set",
    "Stacked",
    "Stream",
    "Unitary",
    "__version__",
    "constrain",
    "param_groups",
    "penalty",
    "rebase",
    "roles",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"kreiss.{name}")
    if name in _HOME:
        value = getattr(import_module(f"kreiss.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'kreiss' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])

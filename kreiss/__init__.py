"""Recurrent networks whose dynamics you set: eigenvalues, non-normal transients, long memory.

Names are imported on first use, so that help texts and torch-free parts do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kreiss.version import __version__

if TYPE_CHECKING:
    from kreiss.errors import InputError
    from kreiss.layers import GRU, IRNN, LSTM, NNRNN, RNN, ExpRNN, OrthRNN, RecurrentLayer, ScoRNN
    from kreiss.sets import Free, Orthogonal, Schur, Set, Stacked, constrain
    from kreiss.training import param_groups, penalty, rebase, roles

_HOME = {
    "GRU": "layers",
    "IRNN": "layers",
    "LSTM": "layers",
    "NNRNN": "layers",
    "RNN": "layers",
    "ExpRNN": "layers",
    "Free": "sets",
    "InputError": "errors",
    "OrthRNN": "layers",
    "Orthogonal": "sets",
    "RecurrentLayer": "layers",
    "Schur": "sets",
    "ScoRNN": "layers",
    "Set": "sets",
    "Stacked": "sets",
    "constrain": "sets",
    "param_groups": "training",
    "penalty": "training",
    "rebase": "training",
    "roles": "training",
}
_ROOMS = ("analysis", "errors", "layers", "linalg", "recurrence", "report", "sets", "tasks", "training")

__all__ = [
    "GRU",
    "IRNN",
    "LSTM",
    "NNRNN",
    "RNN",
    "ExpRNN",
    "Free",
    "InputError",
    "OrthRNN",
    "Orthogonal",
    "RecurrentLayer",
    "Schur",
    "ScoRNN",
    "Set",
    "Stacked",
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

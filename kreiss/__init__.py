"""Recurrent networks whose dynamics you set: eigenvalues, non-normal transients, long memory.

Names are imported on first use, so that help texts and torch-free parts do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kreiss.version import __version__

if TYPE_CHECKING:
    from kreiss.errors import InputError, MissingExtra
    from kreiss.layers import (
        ENRNN,
        EURNN,
        GORU,
        GRU,
        IRNN,
        LSTM,
        NNRNN,
        ORNN,
        RNN,
        SVDRNN,
        URNN,
        ComplexNNRNN,
        ExpRNN,
        FullURNN,
        GatedNNRNN,
        Henaff,
        OrthRNN,
        RecurrentLayer,
        ScoRNN,
        ScuRNN,
        SpectralRNN,
        Stream,
        match,
    )
    from kreiss.sets import (
        Band,
        ComplexSchur,
        Free,
        LongShort,
        Orthogonal,
        Schur,
        Set,
        Stacked,
        Unitary,
        UnitDisc,
        constrain,
    )
    from kreiss.training import (
        fit,
        load,
        param_groups,
        penalty,
        rebase,
        rebase_every,
        roles,
        save,
        soft_orthogonality,
    )
    from kreiss.training.export import export

_HOME = {
    "ENRNN": "layers",
    "EURNN": "layers",
    "GORU": "layers",
    "GRU": "layers",
    "IRNN": "layers",
    "LSTM": "layers",
    "NNRNN": "layers",
    "ORNN": "layers",
    "RNN": "layers",
    "SVDRNN": "layers",
    "URNN": "layers",
    "Band": "sets",
    "ComplexNNRNN": "layers",
    "ComplexSchur": "sets",
    "ExpRNN": "layers",
    "Free": "sets",
    "FullURNN": "layers",
    "GatedNNRNN": "layers",
    "Henaff": "layers",
    "InputError": "errors",
    "MissingExtra": "errors",
    "LongShort": "sets",
    "OrthRNN": "layers",
    "Orthogonal": "sets",
    "RecurrentLayer": "layers",
    "Schur": "sets",
    "ScoRNN": "layers",
    "ScuRNN": "layers",
    "Set": "sets",
    "SpectralRNN": "layers",
    "Stacked": "sets",
    "Stream": "layers",
    "constrain": "sets",
    "export": "training",
    "fit": "training",
    "load": "training",
    "UnitDisc": "sets",
    "Unitary": "sets",
    "match": "layers",
    "param_groups": "training",
    "penalty": "training",
    "rebase": "training",
    "rebase_every": "training",
    "roles": "training",
    "save": "training",
    "soft_orthogonality": "training",
}
_ROOMS = (
    "analysis",
    "catalogue",
    "errors",
    "experiments",
    "layers",
    "linalg",
    "optim",
    "recurrence",
    "report",
    "sets",
    "studies",
    "tasks",
    "training",
)

__all__ = [
    "ENRNN",
    "EURNN",
    "GORU",
    "GRU",
    "IRNN",
    "LSTM",
    "NNRNN",
    "ORNN",
    "RNN",
    "SVDRNN",
    "URNN",
    "Band",
    "ComplexNNRNN",
    "ComplexSchur",
    "ExpRNN",
    "Free",
    "FullURNN",
    "GatedNNRNN",
    "Henaff",
    "InputError",
    "LongShort",
    "MissingExtra",
    "OrthRNN",
    "Orthogonal",
    "RecurrentLayer",
    "Schur",
    "ScoRNN",
    "ScuRNN",
    "Set",
    "SpectralRNN",
    "Stacked",
    "Stream",
    "UnitDisc",
    "Unitary",
    "__version__",
    "constrain",
    "export",
    "fit",
    "load",
    "match",
    "param_groups",
    "penalty",
    "rebase",
    "rebase_every",
    "roles",
    "save",
    "soft_orthogonality",
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

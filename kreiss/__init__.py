"""Recurrent networks whose dynamics you set: eigenvalues, non-normal transients, long memory.

Names are imported on first use, so that help texts and torch-free parts do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kreiss.version import __version__ as __version__

if TYPE_CHECKING:
    from kreiss import analysis as analysis
    from kreiss import bench as bench
    from kreiss import catalogue as catalogue
    from kreiss import contracts as contracts
    from kreiss import errors as errors
    from kreiss import experiments as experiments
    from kreiss import layers as layers
    from kreiss import linalg as linalg
    from kreiss import memory as memory
    from kreiss import networks as networks
    from kreiss import optim as optim
    from kreiss import pooled as pooled
    from kreiss import prediction as prediction
    from kreiss import preprocessing as preprocessing
    from kreiss import recurrence as recurrence
    from kreiss import relational as relational
    from kreiss import report as report
    from kreiss import rl as rl
    from kreiss import sets as sets
    from kreiss import storage as storage
    from kreiss import studies as studies
    from kreiss import tasks as tasks
    from kreiss import training as training
    from kreiss.errors import InputError as InputError
    from kreiss.errors import MissingExtra as MissingExtra
    from kreiss.layers import *  # noqa: F403
    from kreiss.memory import *  # noqa: F403
    from kreiss.networks import *  # noqa: F403
    from kreiss.optim import *  # noqa: F403
    from kreiss.sets import *  # noqa: F403
    from kreiss.training import fit as fit
    from kreiss.training import from_pretrained as from_pretrained
    from kreiss.training import push_to_hub as push_to_hub
    from kreiss.training import register as register

# room → the public names that live in it
_NAMES = {
    "errors": ["InputError", "MissingExtra"],
    "layers": [
        "ENRNN", "EURNN", "GORU", "GRU", "IRNN", "LSTM", "NNRNN", "ORNN", "RNN", "SVDRNN", "URNN",
        "ComplexNNRNN", "ExpRNN", "FullURNN", "GatedNNRNN", "Henaff", "OrthRNN", "RecurrentLayer", "ScoRNN", "ScuRNN",
        "SpectralRNN", "Stream",
    ],
    "memory": ["SAB", "HDetach", "MemLSTM", "MemRNN", "RelLSTM", "RelRNN"],
    "networks": [
        "LAYERS", "NETWORKS", "Agent", "Network", "RecurrentNetwork", "export", "hidden_size_for", "load", "save",
    ],
    "optim": [
        "Adam", "AdamW", "RMSprop", "Stiefel", "param_groups", "radius_penalty", "rebase", "rebase_every", "roles",
        "soft_orthogonality",
    ],
    "sets": [
        "SETS", "Band", "ComplexSchur", "Free", "LongShort", "Orthogonal", "Schur", "Set", "Stacked", "UnitDisc",
        "Unitary", "constrain",
    ],
    "training": ["fit", "from_pretrained", "push_to_hub", "register"],
}  # fmt: skip
_HOME = {name: room for room, names in _NAMES.items() for name in names}
_ROOMS = (
    "analysis", "bench", "catalogue", "contracts", "errors", "experiments", "layers", "linalg", "memory", "networks",
    "optim", "pooled", "prediction", "preprocessing", "recurrence", "relational", "report", "rl", "sets", "storage",
    "studies", "tasks", "training",
)  # fmt: skip

if not TYPE_CHECKING:  # type checkers see the imports above
    __all__ = ["__version__", *_HOME]

    def __getattr__(name: str) -> Any:
        if name in _ROOMS:
            return import_module(f"kreiss.{name}")
        if name in _HOME:
            value = globals()[name] = getattr(import_module(f"kreiss.{_HOME[name]}"), name)
            return value
        raise AttributeError(f"module 'kreiss' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted([*__all__, *_ROOMS])

"""Training: optimiser groups from roles, and the loop."""

from kreiss.training.groups import param_groups, penalty, rebase, roles
from kreiss.training.loop import Readout, evaluate, train
from kreiss.training.upkeep import rebase_every, soft_orthogonality

__all__ = [
    "Readout",
    "evaluate",
    "param_groups",
    "penalty",
    "rebase",
    "rebase_every",
    "roles",
    "soft_orthogonality",
    "train",
]

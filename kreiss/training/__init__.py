"""Training: optimiser groups from roles, and the loop."""

from kreiss.training.export import export
from kreiss.training.groups import param_groups, penalty, rebase, roles
from kreiss.training.loop import Readout, evaluate, train

__all__ = ["Readout", "evaluate", "export", "param_groups", "penalty", "rebase", "roles", "train"]

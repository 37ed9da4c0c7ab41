"""Training: optimiser groups from roles, and the loop."""

from kreiss.training.groups import param_groups, penalty, rebase, roles
from kreiss.training.loop import Readout, evaluate, train

__all__ = ["Readout", "evaluate", "param_groups", "penalty", "rebase", "roles", "train"]

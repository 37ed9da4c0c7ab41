"""Training: optimiser groups from roles, and the loop."""

from kreiss.training.groups import param_groups, penalty, rebase, roles
from kreiss.training.loop import Readout, evaluate, train
from kreiss.training.model import Network
from kreiss.training.saving import load, save

__all__ = ["Network", "Readout", "evaluate", "load", "param_groups", "penalty", "rebase", "roles", "save", "train"]

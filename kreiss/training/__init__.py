"""Training: settings, the loop, checkpoints and run folders; optimiser groups from roles."""

from kreiss.training.export import export
from kreiss.training.fitting import fit, resume
from kreiss.training.groups import param_groups, penalty, rebase, roles
from kreiss.training.loop import evaluate
from kreiss.training.model import Network
from kreiss.training.record import read_records
from kreiss.training.saving import load, save
from kreiss.training.session import Run
from kreiss.training.solutions import adding_solution, copy_solution
from kreiss.training.upkeep import rebase_every, soft_orthogonality

__all__ = [
    "Network",
    "Run",
    "adding_solution",
    "copy_solution",
    "evaluate",
    "export",
    "fit",
    "load",
    "param_groups",
    "penalty",
    "read_records",
    "rebase",
    "rebase_every",
    "resume",
    "roles",
    "save",
    "soft_orthogonality",
]

"""Training: settings, the loop, checkpoints and run folders."""

from kreiss.training.fitting import fit as fit
from kreiss.training.fitting import resume as resume
from kreiss.training.learner import Learner as Learner
from kreiss.training.loop import evaluate as evaluate
from kreiss.training.record import read_records as read_records
from kreiss.training.registering import register as register
from kreiss.training.session import Run as Run
from kreiss.training.sharing import from_pretrained as from_pretrained
from kreiss.training.sharing import push_to_hub as push_to_hub
from kreiss.training.solutions import adding_solution as adding_solution
from kreiss.training.solutions import copy_solution as copy_solution

__all__ = [
    "Learner", "Run", "adding_solution", "copy_solution", "evaluate", "fit", "from_pretrained", "push_to_hub",
    "read_records", "register", "resume",
]  # fmt: skip

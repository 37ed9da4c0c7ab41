"""Tasks: batches by number, loss, metrics, memoryless baseline; independent of models."""

from kreiss.errors import InputError, check_name
from kreiss.own import is_own, trusted
from kreiss.tasks.adding import Adding
from kreiss.tasks.audio import Audio
from kreiss.tasks.base import Batch, Problem, Task
from kreiss.tasks.characters import Characters
from kreiss.tasks.copy import Copy
from kreiss.tasks.denoise import Denoise
from kreiss.tasks.frames import Frames
from kreiss.tasks.pixels import Pixels
from kreiss.tasks.relational.comparison import Comparison
from kreiss.tasks.relational.distribution import Distribution, DistributionOfThree
from kreiss.tasks.relational.games import Game
from kreiss.tasks.relational.identity import IdentityRules, IdentityRules4
from kreiss.tasks.relational.matching import MatchToSample, MatchToSample3
from kreiss.tasks.relational.samedifferent import SameDifferent, SameDifferent6
from kreiss.tasks.relational.separated import Separated
from kreiss.tasks.selectivecopy import SelectiveCopy
from kreiss.tasks.sequence import Sequence
from kreiss.tasks.worlds import Gym, MiniGrid, TMaze, World

# names of tasks in settings and on the command line
TASKS: dict[str, type[Problem]] = {
    "adding": Adding,
    "audio": Audio,
    "characters": Characters,
    "copy": Copy,
    "denoise": Denoise,
    "frames": Frames,
    "pixels": Pixels,
    "selectivecopy": SelectiveCopy,
    "sequence": Sequence,
    # relations between objects
    "samedifferent": SameDifferent,
    "rmts": MatchToSample,
    "dist3": DistributionOfThree,
    "identityrules": IdentityRules,
    "samedifferent6": SameDifferent6,
    "rmts3": MatchToSample3,
    "identityrules4": IdentityRules4,
    "distn": Distribution,
    "separated": Separated,
    "comparison": Comparison,
    "game": Game,
    # worlds to act in
    "gym": Gym,
    "minigrid": MiniGrid,
    "tmaze": TMaze,
}


def task_named(name: str) -> type[Problem]:
    """The task of that name; `package.module:Class` of a trusted module is registered on first use."""
    if name not in TASKS and is_own(name):
        register_task(name, trusted("task", name))
    check_name("task", name, TASKS)
    return TASKS[name]


def register_task(name: str, cls: type[Problem]) -> None:
    """Make a task or a world known under a name."""
    if not issubclass(cls, Problem):
        raise InputError(f"`{name}` must be a kreiss.tasks.Task; got another class. Derive it from kreiss.tasks.Task.")
    TASKS[name] = cls


__all__ = [
    "TASKS",
    "Adding",
    "Audio",
    "Batch",
    "Characters",
    "Comparison",
    "Copy",
    "Denoise",
    "Distribution",
    "DistributionOfThree",
    "Frames",
    "Game",
    "Gym",
    "IdentityRules",
    "IdentityRules4",
    "MatchToSample",
    "MatchToSample3",
    "MiniGrid",
    "Pixels",
    "Problem",
    "SameDifferent",
    "SameDifferent6",
    "SelectiveCopy",
    "Separated",
    "Sequence",
    "TMaze",
    "Task",
    "World",
    "task_named",
]

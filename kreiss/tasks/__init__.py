"""Tasks: batches by number, loss, metrics, memoryless baseline; independent of models."""

from kreiss.tasks.adding import Adding
from kreiss.tasks.base import Batch, Task
from kreiss.tasks.characters import Characters
from kreiss.tasks.copy import Copy
from kreiss.tasks.denoise import Denoise
from kreiss.tasks.frames import Frames
from kreiss.tasks.pixels import Pixels
from kreiss.tasks.selectivecopy import SelectiveCopy
from kreiss.tasks.sequence import Sequence

# names of tasks in settings and on the command line
TASKS: dict[str, type[Task]] = {
    "adding": Adding,
    "characters": Characters,
    "copy": Copy,
    "denoise": Denoise,
    "frames": Frames,
    "pixels": Pixels,
    "selectivecopy": SelectiveCopy,
    "sequence": Sequence,
}

__all__ = [
    "TASKS",
    "Adding",
    "Batch",
    "Characters",
    "Copy",
    "Denoise",
    "Frames",
    "Pixels",
    "SelectiveCopy",
    "Sequence",
    "Task",
]

"""Tasks: sample, loss, metrics, memoryless baseline; they know no models."""

from kreiss.tasks.base import Batch, Task
from kreiss.tasks.copy import Copy

TASKS: dict[str, type[Task]] = {"copy": Copy}

__all__ = ["TASKS", "Batch", "Copy", "Task"]

"""Tasks: sample, loss, metrics, memoryless baseline; they know no models."""

from kreiss.tasks.copy import Copy

__all__ = ["Copy"]

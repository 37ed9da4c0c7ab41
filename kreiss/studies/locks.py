"""One process at a time: file locks that the system releases whatever happens to the process that holds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the lock file `path`; others wait for it."""
    with open(path, "a") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class JournalLock:
    """A lock for Optuna, whose own locks outlive a process that is killed while holding them.

    Args:
        path: the lock file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.held = path, ExitStack()

    def acquire(self) -> bool:
        self.held.enter_context(alone(self.path))
        return True

    def release(self) -> None:
        self.held.close()


def journal_lock(path: Path) -> Any:
    """A lock for Optuna; None if it has to use its own."""
    return None if fcntl is None else JournalLock(path)

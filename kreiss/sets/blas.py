"""One thread for the matrix library of NumPy and SciPy, where its threads would compete with those of torch.

OpenBLAS starts threads of its own, also for matrices of a few hundred rows. Within a training pass torch's threads are
still waiting actively for more work, so both sets share the cores and every small product waits for a time slice.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Control = tuple[Callable[[], int], Callable[[int], None]]


@contextmanager
def one_thread() -> Iterator[None]:
    """Context in which every OpenBLAS of this process uses one thread; without OpenBLAS nothing happens."""
    before = [(number(), choose) for number, choose in controls()]
    try:
        for _, choose in before:
            choose(1)
        yield
    finally:
        for threads, choose in before:
            choose(threads)


@functools.cache
def controls() -> tuple[Control, ...]:
    """The functions of each loaded OpenBLAS that return and set its number of threads."""
    import scipy.linalg  # noqa: F401  (loads the libraries)

    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return ()
    paths = sorted(set(re.findall(r"(/\S*openblas\S*\.so\S*)", maps)))
    return tuple(control for path in paths if (control := _control(path)) is not None)


def _control(path: str) -> Control | None:
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None
    for prefix in ("scipy_", ""):  # NumPy and SciPy rename the functions of theirs
        for suffix in ("64_", ""):
            names = [f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set")]
            if all(hasattr(library, name) for name in names):
                number, choose = (getattr(library, name) for name in names)
                choose.restype = None
                return number, choose
    return None

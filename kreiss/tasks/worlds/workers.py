"""Copies of an environment in processes of their own."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from kreiss.errors import RunError
from kreiss.tasks.worlds.base import Array, Environments, Outcome, World


class Workers(Environments):
    """Environments in processes, each with its share of the copies; the same episodes as in one process.

    Args:
        world: with the number of `workers`.
        count: how many copies.
        key: of their seeds.
    """

    def __init__(self, world: World, count: int, key: tuple[int, ...]) -> None:
        super().__init__(count, key)
        shares = np.array_split(np.arange(count), min(world.workers, count))
        self.owner = np.repeat(np.arange(len(shares)), [len(share) for share in shares])
        self.firsts = np.array([share[0] for share in shares])
        context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
        self.pipes: list[Connection] = []
        self.processes = []
        for share in shares:
            here, there = context.Pipe()
            arguments = (there, type(world), {**world.config, "workers": 0}, len(share), key)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            with _ignored_by_children(signal.SIGINT):  # Ctrl-C is for the process that trains
                process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)

    def begin(self, which: Array, seeds: list[int]) -> Array:
        parts = self._asked("begin", which, np.asarray(seeds))
        return np.concatenate(parts)

    def act(self, which: Array, actions: Array) -> Outcome:
        parts = self._asked("act", which, actions)
        return Outcome(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))

    def _asked(self, what: str, which: Array, numbers: Array) -> list[Any]:
        """Ask every worker for its share of `which`, which is sorted; the answers in order."""
        owners = self.owner[which]
        busy = np.unique(owners)
        for owner in busy:
            own = owners == owner
            self._send(owner, (what, which[own] - self.firsts[owner], numbers[own]))
        answers = [self._received(owner) for owner in busy]
        if errors := [answer for answer in answers if isinstance(answer, str)]:
            raise RunError(errors[0])
        return answers

    def _send(self, owner: int, message: Any) -> None:
        try:
            self.pipes[owner].send(message)
        except OSError as error:
            raise self._gone(owner) from error

    def _received(self, owner: int) -> Any:
        try:
            return self.pipes[owner].recv()
        except (EOFError, OSError) as error:
            raise self._gone(owner) from error

    def _gone(self, owner: int) -> RunError:
        self.processes[owner].join(1)  # until its code is known
        return RunError(
            f"a worker of the environments must stay alive; got one that ended with code "
            f"{self.processes[owner].exitcode}. Resume the run, with --task.workers 0 if it happens again."
        )

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()  # which a worker takes as the end
        for process in self.processes:
            process.join(5)
            process.terminate()


@contextmanager
def _ignored_by_children(number: signal.Signals) -> Iterator[None]:
    """Processes started meanwhile ignore a signal; a process takes over what its parent ignores."""
    if threading.current_thread() is not threading.main_thread():  # others may not handle signals
        yield
        return
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


def _serve(pipe: Connection, kind: type[World], options: dict[str, Any], count: int, key: tuple[int, ...]) -> None:
    """The work of one process: begin and act until the other end is closed."""
    environments = kind(**options).copies(count, key)
    while True:
        try:
            what, which, numbers = pipe.recv()
        except EOFError:
            break
        try:
            answer: Any = (
                environments.begin(which, numbers.tolist()) if what == "begin" else environments.act(which, numbers)
            )
        except RunError as error:
            answer = str(error)
        except Exception as error:  # the user's code may raise anything
            answer = (
                f"a world must step without errors; got {type(error).__name__}: {error}. Mend it and resume the run."
            )
        pipe.send(answer)
    environments.close()

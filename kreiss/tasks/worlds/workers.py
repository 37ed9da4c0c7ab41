"""Copies of an environment in processes of their own."""

from __future__ import annotations

import multiprocessing
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


def _serve(pipe: Connection, kind: type[World], options: dict[str, Any], count: int, key: tuple[int, ...]) -> None:
    """The work of one process: begin and act until the other end is closed."""
    environments = kind(**options).copies(count, key)
    while True:
        try:
            what, which, numbers = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            break
        try:
            answer: Any = (
                environments.begin(which, numbers.tolist()) if what == "begin" else environments.act(which, numbers)
            )
        except RunError as error:
            answer = str(error)
        pipe.send(answer)
    environments.close()

"""Where runs are executed: on this machine or a Ray cluster, each in a process of its own, by default of one thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Protocol

import torch

from kreiss.errors import MissingExtra, RunError
from kreiss.storage.files import write_whole
from kreiss.studies import worker
from kreiss.studies.jobs import Job
from kreiss.studies.results import Record
from kreiss.training.config import written
from kreiss.training.registering import classes_of, take_over

LOOK = 1.0  # seconds between looks at active runs
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
MISHAPS = (OSError, ValueError, RuntimeError, MemoryError)  # that leave a run unfinished; divergence does not

Made = Generator[tuple[Job, Record | RunError], None, None]


class Place(Protocol):
    """Executes runs, as many at a time as it can."""

    def made(self, jobs: list[Job], runs: Path, look: Callable[[], None]) -> Made:
        """Every job with its outcome, in the order they end; `look` is called now and then.

        Closed early, it ends the active runs.
        """


def environment(threads: int = 1) -> dict[str, str]:
    """Of a process with so many threads, which imports modules from where this one does."""
    limits = dict.fromkeys(THREADS, str(threads))
    return {**os.environ, **limits, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def unfinished(why: object) -> RunError:
    """The error for an unfinished run."""
    return RunError(f"not finished: {why}")


def made_in_this_process(
    job: Job, runs: Path, classes: Mapping[str, str] | None = None, path: Sequence[str] = ()
) -> Record:
    """Execute or resume a run in this process, with one thread."""
    torch.set_num_threads(1)
    try:
        sys.path += [place for place in path if place not in sys.path]
        take_over(classes or {})
        state = worker.work(runs / job.key, job.config)
    except MISHAPS as error:
        raise unfinished(error) from error
    if state not in worker.ENDED:
        raise unfinished("it was interrupted")
    return worker.record_of(runs / job.key)


class Here:
    """Processes on this machine.

    Args:
        count: how many at a time.
        threads: of each.
    """

    def __init__(self, count: int, threads: int = 1) -> None:
        self.count = count
        self.threads = threads
        self.processes: set[subprocess.Popen[bytes]] = set()
        self.ending = threading.Event()

    def made(self, jobs: list[Job], runs: Path, look: Callable[[], None]) -> Made:
        self.ending.clear()
        with ThreadPoolExecutor(self.count) as pool:
            waiting: dict[Future[Record], Job] = {pool.submit(self._made, job, runs): job for job in jobs}
            try:
                while waiting:
                    done, _ = wait(waiting, timeout=LOOK, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield waiting.pop(future), _outcome(future)
                    look()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                self._end()

    def _made(self, job: Job, runs: Path) -> Record:
        """Execute or resume a run in its own process, which ends when this one does."""
        folder, settings = runs / job.key, runs / f"{job.key}.yaml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        write_whole(settings, written(job.config).encode())
        command = [
            sys.executable,
            "-m",
            "kreiss.studies.worker",
            str(folder),
            str(settings),
            json.dumps(classes_of(job.config)),
        ]
        code, errors = self._ran(command)
        if code:
            why = errors.splitlines()[-1].removeprefix("error: ") if errors else f"its process ended with code {code}"
            raise unfinished(why)
        return worker.record_of(folder)

    def _ran(self, command: list[str]) -> tuple[int, str]:
        """Exit code and standard error of a process; it sees by its standard input that this one is gone."""
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(self.threads),
            start_new_session=True,  # Ctrl-C reaches this process alone, which stops the others
        ) as process:  # fmt: skip
            assert process.stderr is not None
            self.processes.add(process)
            if self.ending.is_set():
                process.terminate()
            errors = process.stderr.read().decode(errors="replace").strip()  # ends when the process does
            code = process.wait()
            self.processes.discard(process)
        return code, errors

    def _end(self) -> None:
        """Ask all processes to stop; each ends its update and writes a checkpoint."""
        self.ending.set()
        for process in list(self.processes):
            process.terminate()


def _outcome(future: Future[Record]) -> Record | RunError:
    """The outcome of a run, or why it is unfinished."""
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, MISHAPS):
        raise error
    return error if isinstance(error, RunError) else unfinished(error)


class OnRay:
    """A Ray cluster, one processor and one process for each run; Ray alone decides what runs where.

    Args:
        address: of a cluster; "local" starts one on this machine, "auto" finds the one that this machine belongs to.
    """

    def __init__(self, address: str) -> None:
        self.ray = ray_at(address)

    def made(self, jobs: list[Job], runs: Path, look: Callable[[], None]) -> Made:
        make = self.ray.remote(num_cpus=1, max_retries=3)(made_in_this_process)
        path = [os.path.abspath(place) for place in sys.path]
        waiting = {make.remote(job, runs.resolve(), classes_of(job.config), path): job for job in jobs}
        while waiting:
            done, _ = self.ray.wait(list(waiting), num_returns=1, timeout=LOOK)
            for reference in done:
                job = waiting.pop(reference)
                try:
                    yield job, self.ray.get(reference)
                except self.ray.exceptions.RayError as error:  # also a worker that was killed
                    cause = getattr(error, "cause", None)
                    yield job, cause if isinstance(cause, RunError) else unfinished(cause or error)
            look()


def ray_at(address: str) -> Any:
    """Ray, connected; an existing connection is kept."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtra("a Ray cluster", "ray", "ray") from error
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a local cluster sends no statistics
        ray.init(address=address, log_to_driver=False)
    return ray

"""Where runs are made: processes on this machine, or a Ray cluster. Both give each run a process with one thread."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Protocol

import torch

from kreiss.errors import MissingExtra, RunError
from kreiss.studies import worker
from kreiss.studies.jobs import Job
from kreiss.studies.results import Record
from kreiss.training.config import written
from kreiss.training.storage import write_whole

LOOK = 1.0  # seconds between looks at runs that go on
SINGLE = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Place(Protocol):
    """Makes runs, as many at a time as it can."""

    def made(self, jobs: list[Job], runs: Path, look: Callable[[], None]) -> Iterator[tuple[Job, Record | RunError]]:
        """Every job with what it came to, in the order they end; `look` is called now and then."""


def made_in_a_process(job: Job, runs: Path) -> Record:
    """Make or finish a run in a process of its own, which ends when this one does."""
    folder, settings = runs / job.key, runs / f"{job.key}.yaml"
    runs.mkdir(parents=True, exist_ok=True)
    write_whole(settings, written(job.config).encode())
    command = [sys.executable, "-m", "kreiss.studies.worker", str(folder), str(settings)]
    environment = {**os.environ, **dict.fromkeys(SINGLE, "1")}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert process.stdin is not None
    assert process.stderr is not None
    said = process.stderr.read().decode(errors="replace").strip()  # ends when the process does
    code = process.wait()
    process.stdin.close()
    process.stderr.close()
    if code:
        why = said.splitlines()[-1].removeprefix("error: ") if said else f"its process ended with code {code}"
        raise RunError(f"{job.row} with seed {job.seed} was not finished: {why}")
    return worker.record_of(folder, job.config)


def made_in_this_process(job: Job, runs: Path) -> Record:
    """Make or finish a run right here, with one thread."""
    torch.set_num_threads(1)
    state = worker.work(runs / job.key, job.config)
    if state not in worker.ENDED:
        raise RunError(f"{job.row} with seed {job.seed} was not finished: someone stopped it")
    return worker.record_of(runs / job.key, job.config)


class Here:
    """Processes on this machine.

    Args:
        count: how many at a time.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def made(self, jobs: list[Job], runs: Path, look: Callable[[], None]) -> Iterator[tuple[Job, Record | RunError]]:
        with ThreadPoolExecutor(self.count) as pool:
            waiting: dict[Future[Record], Job] = {pool.submit(made_in_a_process, job, runs): job for job in jobs}
            try:
                while waiting:
                    done, _ = wait(waiting, timeout=LOOK, return_when=FIRST_COMPLETED)
                    for future in done:
                        job, error = waiting.pop(future), future.exception()
                        if error is not None and not isinstance(error, RunError):
                            raise error
                        yield job, error if isinstance(error, RunError) else future.result()
                    look()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


class OnRay:
    """A Ray cluster, one processor and one process for each run; Ray alone decides what runs where.

    Args:
        address: of a cluster; "local" starts one on this machine, "auto" finds the one that this machine belongs to.
    """

    def __init__(self, address: str) -> None:
        self.ray = ray_at(address)

    def made(self, jobs: list[Job], runs: Path, look: Callable[[], None]) -> Iterator[tuple[Job, Record | RunError]]:
        make = self.ray.remote(num_cpus=1, max_retries=3)(made_in_this_process)
        waiting = {make.remote(job, runs.resolve()): job for job in jobs}
        while waiting:
            done, _ = self.ray.wait(list(waiting), num_returns=1, timeout=LOOK)
            for reference in done:
                job = waiting.pop(reference)
                try:
                    yield job, self.ray.get(reference)
                except self.ray.exceptions.RayTaskError as error:
                    if not isinstance(error.cause, RunError):
                        raise
                    yield job, error.cause
            look()


def ray_at(address: str) -> Any:
    """Ray, connected; what is connected already stays."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtra("a Ray cluster", "ray", "ray") from error
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a local cluster tells nobody about itself
        ray.init(address=address, log_to_driver=False)
    return ray

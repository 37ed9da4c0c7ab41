"""The folder of a run: what it was told, where it ran, what it measured, how it stands.

    config.yaml      every setting, as resolved
    run.json         versions, git state, seed, hardware, command, checksum of the user's data
    metrics.jsonl    one record a line, only ever appended to
    spectra.jsonl    eigenvalues of the recurrent matrix at the start and at every validation, where there is one
    status.json      state, update, message
    last.safetensors, previous.safetensors, best.safetensors

A run that is taken up again says so in its metrics; records of updates that are then made a second time are left out
when they are read, so the records are those of a run that was never interrupted.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import torch

from kreiss.errors import InputError, RunError
from kreiss.training import storage
from kreiss.training.checkpoint import sweep
from kreiss.training.config import Config, read_settings, resolved, written
from kreiss.version import __version__

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

Record = dict[str, Any]


class RunFolder:
    """A run's folder, open for writing by one process.

    Args:
        path: the folder; `create` makes a new one, `reopen` takes one up again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None
        self._metrics: IO[str] | None = None

    @classmethod
    def create(cls, path: Path, config: Config, data: str | None = None) -> RunFolder:
        """A new folder with the settings and the surroundings of the run, and the checksum of the user's data."""
        if (path / "config.yaml").exists():
            raise InputError(
                f"`out` must be a new folder; got {path}, which holds a run. Resume it with `kreiss resume {path}`, "
                f"remove it with `kreiss runs rm {path}`, or choose another name."
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"the run folder `{path}` could not be made: {error.strerror}. Choose another with --out."
            ) from error
        folder = cls(path)
        with folder._opened():
            storage.write_whole(path / "run.json", _json({**surroundings(config.seed), "data": data}))
            storage.write_whole(path / "config.yaml", written(config).encode())
            folder.set_status("running", 0)
        return folder

    @classmethod
    def reopen(cls, path: Path, updates: int, config: Config) -> RunFolder:
        """A folder whose run goes on after `updates` updates."""
        folder = cls(path)
        with folder._opened():
            sweep(path)
            storage.write_whole(path / "config.yaml", written(config).encode())
            folder.append({"event": "resumed", "update": updates})
            folder.set_status("running", updates)
        return folder

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """The folder open; closed again if something goes wrong."""
        try:
            self._open()
            yield
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        try:
            self._lock = open(self.path / ".lock", "w")  # noqa: SIM115
            self._metrics = open(self.path / "metrics.jsonl", "a+")  # noqa: SIM115
        except OSError as error:
            raise RunError(
                f"the run folder `{self.path}` must be writable; got {error.strerror}. Choose another with --out."
            ) from error
        if fcntl is not None:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the system lets go of it whatever happens
            except OSError as error:
                raise RunError(
                    f"only one process may train in `{self.path}`; got another that does. Wait for it, or end it first."
                ) from error
        self._end_torn_line()

    def _end_torn_line(self) -> None:
        """A killed process may have left half a line; what follows starts on its own."""
        assert self._metrics is not None
        path = self.path / "metrics.jsonl"
        if path.stat().st_size and path.read_bytes()[-1:] != b"\n":
            self._metrics.write("\n")

    def append(self, record: Record) -> None:
        """Add one record to the metrics."""
        assert self._metrics is not None
        try:
            self._metrics.write(json.dumps(record) + "\n")
            self._metrics.flush()
        except OSError as error:
            raise RunError(
                f"`{self.path / 'metrics.jsonl'}` could not be written: {error.strerror}. What is in it is whole; make "
                f"room and go on with `kreiss resume {self.path}`."
            ) from error

    def sync(self) -> None:
        """Make the records outlast a power cut; before the checkpoint that comes after them."""
        assert self._metrics is not None
        os.fsync(self._metrics.fileno())

    def set_status(self, state: str, update: int, message: str = "", cause: str = "") -> None:
        """Say how the run stands: running, finished, interrupted, or failed because it "diverged" or of an "error"."""
        content = {
            "state": state, "update": update, "message": message, "cause": cause,
            "time": time.time(), "pid": os.getpid(),
        }  # fmt: skip
        storage.write_whole(self.path / "status.json", _json(content))

    def close(self) -> None:
        """Let another process have the folder."""
        for file in (self._metrics, self._lock):
            if file is not None:
                with suppress(OSError):  # a full disk: what could not be written was already said
                    file.close()


# ---------------------------------------------------------------- reading


def read_records(path: Path, until: int | None = None) -> list[Record]:
    """The records of a run as if it had never been interrupted; lines that are not whole are left out.

    Args:
        path: the folder.
        until: leave out what comes after this update, as for a run that is taken up there.
    """
    found: list[Record] = []
    try:
        lines = (path / "metrics.jsonl").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if not isinstance(record, dict):
            continue
        if record.get("event") == "resumed":
            found = _before(found, record["update"])
        else:
            found.append(record)
    return found if until is None else _before(found, until)


def _before(records: list[Record], update: int) -> list[Record]:
    """What stays when a run is taken up after `update`; the test is made again."""
    return [record for record in records if record["update"] <= update and record.get("split") != "test"]


def read_status(path: Path) -> dict[str, Any]:
    """How a run stands; a run whose process is gone without a word was killed."""
    try:
        found: dict[str, Any] = json.loads((path / "status.json").read_text())
    except (OSError, ValueError):
        return {"state": "unknown", "update": 0, "message": ""}
    if found["state"] == "running" and not _is_locked(path):
        found["state"] = "killed"
    return found


def _is_locked(path: Path) -> bool:
    """Whether a process holds the folder."""
    if fcntl is None:
        return True
    try:
        with open(path / ".lock", "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def read_config(path: Path) -> Config:
    """The settings of a run."""
    if not (path / "config.yaml").exists():
        raise InputError(
            f"`{path}` must be the folder of a run; got one without config.yaml. `kreiss runs ls` lists runs."
        )
    return resolved(read_settings(path / "config.yaml"))


def remove(path: Path) -> None:
    """Remove the folder of a run that no process trains in, at once: whoever looks for it then finds nothing."""
    folder = RunFolder(path)
    with folder._opened():
        aside = path.rename(path.with_name(f".{path.name}.{os.getpid()}.removed"))
    folder.close()
    shutil.rmtree(aside)


def is_run(path: Path) -> bool:
    """Whether a folder holds a run."""
    return (path / "config.yaml").exists() and (path / "run.json").exists()


# ---------------------------------------------------------------- surroundings


def surroundings(seed: int) -> dict[str, Any]:
    """What else a result depends on: versions, git state, hardware, the command."""
    return {
        "kreiss": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "git": _git(),
        "seed": seed,
        "command": sys.argv,
        "started": time.time(),
    }


def _git() -> dict[str, Any] | None:
    """Commit of the working folder and whether it has changes; None outside a repository."""
    try:
        commit = _asked("rev-parse", "HEAD")
        return {"commit": commit, "changed": bool(_asked("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _asked(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()

"""The folder of a run: its settings, environment, records, state and checkpoints.

    config.yaml      every setting, as resolved
    run.json         identity, versions, git state, seed, hardware, command, checksum of the user's data
    metrics.jsonl    one record a line, append-only
    spectra.jsonl    eigenvalues of the recurrent matrix at the start and at every validation, where there is one
    status.json      state, update, message
    last.safetensors, previous.safetensors, best.safetensors

All of them carry the identity of the run and a checksum. A resumed run says so in its metrics; earlier
records of updates that are repeated are left out in reading, so the records are those of a run that was never
interrupted.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from kreiss.errors import InputError, RunError
from kreiss.settings import Config
from kreiss.storage import files
from kreiss.storage.identity import ABOUT, ANY, document, identity, known_identity, new_identity, read_document
from kreiss.storage.seals import NOBODY, comment_of, commented
from kreiss.training.checkpoint import Checkpoints, return_to_previous, sweep
from kreiss.training.config import plain, read_settings, resolved
from kreiss.training.journal import Found, Journal, Record, Tally, before, read_journal
from kreiss.version import __version__

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

SETTINGS, METRICS, SPECTRA, STATUS, LOCK = "config.yaml", "metrics.jsonl", "spectra.jsonl", "status.json", ".lock"
ENDED = ("finished", "interrupted", "failed")


class RunFolder:
    """A run's folder, open for writing by one process.

    Args:
        path: the folder; `create` makes a new one, `reopen` opens one again.
        run: identity of the run.
    """

    def __init__(self, path: Path, run: str | None = None) -> None:
        self.path, self.run = path, run
        self.metrics, self.spectra = Journal(path / METRICS, run), Journal(path / SPECTRA, run)
        self.checkpoints = Checkpoints(path)
        self.about: dict[str, Any] = {"run": run}  # content of run.json
        self._lock: int | None = None
        self._settings: dict[str, Any] = {}  # as in the file

    @classmethod
    def create(cls, path: Path, config: Config, data: str | None = None) -> RunFolder:
        """A new folder with the settings and the environment of the run, and the checksum of the user's data."""
        if (path / SETTINGS).exists():
            raise InputError(
                f"`out` must be a new folder; got {path}, which holds a run. Resume it with `kreiss resume {path}`, "
                f"remove it with `kreiss runs rm {path}`, or choose another name."
            )
        try:
            files.make_folder(path)
        except OSError as error:
            raise RunError(
                f"the run folder `{path}` could not be made: {error.strerror}. Choose another with --out."
            ) from error
        folder = cls(path, new_identity())
        with folder._opened():
            folder.write_about({"run": folder.run, **surroundings(config.seed), "data": data})
            folder.metrics.start()
            folder.set_status("running", 0)
            folder.write_settings(plain(config))  # last: a folder with settings holds a run that can be resumed
        return folder

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """The folder open; closed again on an error."""
        try:
            self._open()
            yield
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        try:
            self._lock = files.open_plain(self.path / LOCK, os.O_RDWR | os.O_CREAT)
            self._hold()
            self.metrics.open()
        except OSError as error:
            raise RunError(
                f"the run folder `{self.path}` must be writable; got {error.strerror}. Choose another with --out."
            ) from error
        sweep(self.path)

    def _hold(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._lock or 0, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the system releases it whatever happens
        except OSError as error:
            raise RunError(
                f"only one process may train in `{self.path}`; got another that does. Wait for it, or stop it first."
            ) from error

    def reopen(self, about: dict[str, Any], update: int | None, metrics: Found, spectra: Found, which: str) -> None:
        """Resume after `update` with the remaining records, or start again if it is None."""
        self.about = about
        with self._opened():
            if which == "previous":
                return_to_previous(self.path)
            self.checkpoints = Checkpoints(self.path, update)
            self.set_status("running", update or 0)  # before the records change, for which the old status vouches
            for journal, past in ((self.metrics, metrics), (self.spectra, spectra)):
                if update is not None and journal.path.exists():
                    journal.resume(update, past.records, past.damage)
            if update is None:
                self.metrics.start()

    # ------------------------------------------------------------ writing

    def write_about(self, about: dict[str, Any]) -> None:
        """Write the identity of the run, and what its results depend on besides the settings."""
        self.about = about
        files.write_whole(self.path / ABOUT, document(about))

    def write_settings(self, settings: dict[str, Any]) -> None:
        """Write every setting, unless this process has written the same."""
        if settings != self._settings:
            text = commented(yaml.safe_dump(settings, sort_keys=False), self.run)
            files.write_whole(self.path / SETTINGS, text.encode())
            self._settings = settings

    def keep_spectrum(self, record: Record) -> None:
        """Add eigenvalues to the spectra; the first ones start the file."""
        if not self.spectra.tally.count:
            self.spectra.start()
        self.spectra.append(record)

    def keep(self, tensors: dict[str, Tensor], content: dict[str, Any], config: Config) -> None:
        """Write a checkpoint, which vouches for the other files of the run."""
        self.metrics.sync()
        self.spectra.sync()
        vouched = {"run": self.run, "about": self.about, "settings": plain(config), "records": self._tallies()}
        self.checkpoints.write(tensors, {**content, **vouched})
        self.write_settings(plain(config))
        self.set_status("running", content["updates"])

    def _tallies(self) -> dict[str, Any]:
        return {journal.path.name: journal.tally.said() for journal in (self.metrics, self.spectra)}

    def set_status(self, state: str, update: int, message: str = "", cause: str = "") -> None:
        """Write the state of the run: running, interrupted, finished or failed.

        A finished run has cause "solved" if a good validation ended it, a failed one "diverged" or "error".
        """
        content = {
            "run": self.run, "state": state, "update": update, "message": message, "cause": cause,
            "records": self._tallies(), "checkpoint": self.checkpoints.update, "time": time.time(), "pid": os.getpid(),
        }  # fmt: skip
        files.write_whole(self.path / STATUS, document(content))

    def close(self) -> None:
        """Release the folder to other processes."""
        self.metrics.close()
        self.spectra.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


# ---------------------------------------------------------------- reading


def read_records(path: Path, until: int | None = None) -> list[Record]:
    """The records of a run as if it had never been interrupted; an error if any of them is damaged.

    Args:
        path: the folder.
        until: omit records after this update, as if the run were resumed there.
    """
    records = checked(path, METRICS).records
    return records if until is None else before(records, until)


def checked(path: Path, name: str) -> Found:
    """The records of one file of a run; an error if any of them is damaged."""
    journal = history(path, name)
    if journal.damage:
        raise damaged_records(path / name, journal)
    return journal


def history(path: Path, name: str) -> Found:
    """The records that one file of a run still holds, and its damage."""
    status, journal = read_status(path), read_journal(path / name, known_identity(path))  # an end is written last
    vouched = status.get("records", {}).get(name) if status["state"] in ENDED else None
    if vouched is not None and not journal.damage and Tally(journal.records).said() != vouched:
        journal.damage.append(f"of {vouched['count']} records {len(journal.records)} are left")
    return journal


def damaged_records(path: Path, found: Found) -> RunError:
    """The error for records that are not as they were written."""
    return RunError(
        f"`{path}` must be as it was written; got damage: {'; '.join(found.damage)}. {len(found.records)} records can "
        f"still be read: `kreiss resume {path.parent} --repair` keeps them and drops the others."
    )


def read_status(path: Path) -> dict[str, Any]:
    """The state of a run; if its process is gone without recording an end, it was killed."""
    status: dict[str, Any] = {"state": "unknown", "update": 0, "message": ""}
    if (path / STATUS).exists():
        try:
            status = _checked_status(path / STATUS)
        except RunError as error:
            status = {"state": "damaged", "update": 0, "message": str(error)}
    if status["state"] in ("running", "damaged") and is_locked(path):
        status["state"] = "running"
    elif status["state"] == "running":
        status["state"] = "killed"
    return status


def _checked_status(path: Path) -> dict[str, Any]:
    status = read_document(path)
    kinds = {"state": str, "update": int, "message": str}
    if any(not isinstance(status.get(name), kind) for name, kind in kinds.items()):
        raise files.damaged(path, "no state, update and message")
    return status


def is_locked(path: Path) -> bool:
    """Whether a process holds the folder."""
    if fcntl is None:
        return True
    try:
        file = files.open_plain(path / LOCK, os.O_RDWR)
    except (FileNotFoundError, RunError):  # missing, or not a lock file
        return False
    except OSError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def read_config(path: Path) -> Config:
    """The settings of a run."""
    return resolved(settings_of(path))


def settings_of(path: Path) -> dict[str, Any]:
    """The settings of a run by name; an error if they are not what was written."""
    if not (path / SETTINGS).exists():
        raise InputError(
            f"`{path}` must be the folder of a run; got one without config.yaml. `kreiss runs ls` lists runs."
        )
    check_settings(path)
    return read_settings(path / SETTINGS)


def check_settings(path: Path) -> None:
    """Raise if the settings of a run are not what was written, or are those of another run."""
    run = known_identity(path)
    try:
        owner = comment_of(files.read_plain(path / SETTINGS).decode())
    except (OSError, ValueError) as error:
        raise _changed_settings(path, "a file that was changed or damaged") from error
    if owner is None and run not in (None, ANY):
        raise _changed_settings(path, "a file that was changed or damaged")
    if owner is not None and run not in (ANY, None if owner == NOBODY else owner):
        raise _changed_settings(path, "the settings of another run")


def _changed_settings(path: Path, what: str) -> RunError:
    return RunError(
        f"`{path / SETTINGS}` must be as it was written; got {what}. `kreiss resume {path} --repair` restores the "
        "settings of the checkpoint; pass new settings to `kreiss resume` as --name value."
    )


def remove(path: Path) -> None:
    """Remove the folder of a run that no process trains in; it is renamed first, so it disappears at once."""
    folder = RunFolder(path)
    with folder._opened():
        aside = path.rename(path.with_name(f".{path.name}.{os.getpid()}.removed"))
    folder.close()
    shutil.rmtree(aside)


def is_run(path: Path) -> bool:
    """Whether a folder holds a run."""
    return (path / SETTINGS).exists() and (path / ABOUT).exists()


def damage(path: Path) -> list[str]:
    """One sentence for every damaged file of a run, tensors excepted."""
    sentences = []
    for look in (identity, settings_of, lambda path: checked(path, METRICS), lambda path: checked(path, SPECTRA)):
        try:
            look(path)
        except (RunError, InputError) as error:
            sentences.append(str(error))
    status = read_status(path)
    return [*sentences, status["message"]] if status["state"] == "damaged" else sentences


# ---------------------------------------------------------------- environment


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

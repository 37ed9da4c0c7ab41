"""What a run is resumed from: everything in its folder, checked before anything is written.

The checkpoint vouches for the rest: it holds the settings, the identity of the run and a checksum of the records up to
its update. What contradicts it is an error, or is restored from it if `repair` is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from kreiss.errors import InputError, RunError
from kreiss.settings import Config
from kreiss.storage.identity import ABOUT, known_identity, read_document
from kreiss.training.checkpoint import LAST, PREVIOUS, read_checkpoint
from kreiss.training.config import dotted, plain, up_to_date
from kreiss.training.journal import Found, Tally, before, read_journal
from kreiss.training.record import METRICS, SETTINGS, SPECTRA, RunFolder, damaged_records, read_status, settings_of


@dataclass
class Resumption:
    """What a run is resumed from.

    Attributes:
        folder: of the run.
        run: its identity.
        about: content of `run.json`.
        which: the "last" checkpoint or the "previous" one.
        settings: by name.
        tensors: of the checkpoint.
        content: its JSON; None if the run was killed before its first checkpoint and starts again.
        metrics: records up to the checkpoint.
        spectra: the same for eigenvalues.
        repair: whether damage is to be repaired.
    """

    folder: Path
    run: str | None
    about: dict[str, Any]
    which: str
    settings: dict[str, Any]
    tensors: dict[str, Tensor]
    content: dict[str, Any] | None
    metrics: Found
    spectra: Found
    repair: bool

    @property
    def update(self) -> int | None:
        """The update after which it resumes; None if it starts again."""
        return None if self.content is None else int(self.content["updates"])


def resumption(folder: Path, which: str = "last", repair: bool = False) -> Resumption:
    """What the run in `folder` is resumed from.

    Args:
        folder: of the run.
        which: the "last" checkpoint or the "previous" one.
        repair: drop damaged records, and restore other damage from the checkpoint.
    """
    files = [folder / name for name in (LAST, PREVIOUS)]
    if not (folder / SETTINGS).exists() and not any(path.exists() for path in files):
        settings_of(folder)  # raises: there is no run
    if any(path.exists() for path in files):
        tensors, content = read_checkpoint(folder, which, known_identity(folder))
    else:
        tensors, content = {}, None
        _check_that_none_is_lost(folder)
    about, settings = _about(folder, content, repair), _settings(folder, content, repair)
    run = about.get("run")
    metrics, spectra = (_records(folder / name, run, content, repair) for name in (METRICS, SPECTRA))
    return Resumption(folder, run, about, which, settings, tensors, content, metrics, spectra, repair)


def _check_that_none_is_lost(folder: Path) -> None:
    """A run may start again if it never wrote a checkpoint."""
    status = read_status(folder)
    if status.get("checkpoint", status["update"] or None) is not None:
        raise RunError(
            f"`{folder}` must hold {LAST} or {PREVIOUS} to be resumed; got neither, although the "
            "run wrote them. Restore one, or start a new run."
        )


def _about(folder: Path, content: dict[str, Any] | None, repair: bool) -> dict[str, Any]:
    """Identity and environment of the run."""
    try:
        return read_document(folder / ABOUT)
    except RunError as error:
        recorded: dict[str, Any] | None = None if content is None else content.get("about")
        if content is None or recorded is None:
            raise RunError(f"{error} No checkpoint holds its content: start a new run.") from error
        if not repair:
            raise _repairable(error, folder, content, "restores it") from error
        return recorded


def _settings(folder: Path, content: dict[str, Any] | None, repair: bool) -> dict[str, Any]:
    """The settings of the checkpoint, if its version stored them; the file must be intact too."""
    recorded: dict[str, Any] | None = None if content is None else content.get("settings")
    if recorded is None:
        return settings_of(folder)
    if not repair:
        if not (folder / SETTINGS).exists():
            raise RunError(
                f"`{folder / SETTINGS}` must be there; got no such file. `kreiss resume {folder} --repair` writes the "
                "settings of the checkpoint."
            )
        settings_of(folder)
    return up_to_date(recorded)


def _records(path: Path, run: str | None, content: dict[str, Any] | None, repair: bool) -> Found:
    """The records up to the checkpoint, which must be those that it vouches for; none if the run starts again."""
    if content is None:
        return Found()
    journal = read_journal(path, run)
    journal.records = before(journal.records, content["updates"])
    vouched = content.get("records", {}).get(path.name)
    if vouched in (None, Tally(journal.records).said()):
        return Found(journal.records)
    journal.damage = journal.damage or [f"of {vouched['count']} records {len(journal.records)} are left"]
    if not repair:
        raise _repairable(damaged_records(path, journal), path.parent, content)
    return journal


def _repairable(error: RunError, folder: Path, content: dict[str, Any], does: str = "") -> RunError:
    offer = f" `kreiss resume {folder} --repair` {does}." if does else ""
    return RunError(f"{error} The checkpoint is good (update {content['updates']}).{offer}")


def reopened(found: Resumption) -> RunFolder:
    """The folder of a resumed run, open for writing, and repaired if `repair` is set."""
    folder = RunFolder(found.folder, found.run)
    folder.reopen(found.about, found.update, found.metrics, found.spectra, found.which)
    if found.repair:
        folder.write_about(found.about)
        folder.write_settings(found.settings)
    return folder


# ---------------------------------------------------------------- settings that may change

# besides the task and the model; batches are a function of seed, size and the number of the update
STAY = ("seed", "batch", "optimiser.name")
MAY_CHANGE = (
    "Start a new run; what may change is steps, rates and penalties, clipping, schedule, patience, stop_at, "
    "stop_metric, eval_every, eval_batch, log_every, checkpoint_every, accumulate, precision, device, on_nan and track."
)


def check_changes(settings: dict[str, Any], config: Config) -> None:
    """Raise for a setting that must stay as it is when a run is resumed."""
    was, now = dotted(settings), dotted(plain(config))
    for name in STAY:
        if was.get(name, now[name]) != now[name]:
            raise InputError(f"`{name}` of a run must stay {was[name]!r}; got {now[name]!r}. {MAY_CHANGE}")
    had, has = was.get("optimiser.momentum", 0), now["optimiser.momentum"]
    if bool(had) != bool(has):
        raise InputError(
            f"`optimiser.momentum` of a run must stay {'above' if had else 'at'} 0; got {has}. {MAY_CHANGE}"
        )

"""`kreiss runs ls`, `show` and `rm`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter

from kreiss.commands.words import Flag, print_table
from kreiss.errors import InputError, RunError

app = cyclopts.App(name="runs", help="List, show and remove runs.")


@app.command
def ls(folder: Path | None = None, *, json: Flag = False) -> int:
    """List runs: those of a folder, or those in runs/ and wherever `kreiss train --out` has put some.

    Parameters
    ----------
    folder
        Folder to search, with its subfolders.
    json
        Print JSON lines.
    """
    from json import dumps

    from kreiss.commands.words import remembered
    from kreiss.training.record import damage

    places = [folder] if folder is not None else [Path("runs"), *remembered()]
    paths = list(dict.fromkeys(path for place in places for path in _runs(place)))
    rows, damaged = [_row(path) for path in paths], [damage(path) for path in paths]
    if json:
        for row, sentences in zip(rows, damaged, strict=True):
            print(dumps({**row, "damage": sentences} if sentences else row))
        return 0
    if not rows:
        print(f"no runs in {folder or 'runs'}")
        return 0
    print_table(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows], right=NUMBERS)
    for sentence in (sentence for sentences in damaged for sentence in sentences):
        print(f"damaged: {sentence}")
    return 0


def _runs(folder: Path) -> list[Path]:
    from kreiss.training.record import is_run

    return sorted((path.parent for path in folder.rglob("config.yaml") if is_run(path.parent)), key=str)


def _row(path: Path) -> dict[str, Any]:
    from kreiss.training.record import METRICS, history, read_status

    settings, status = _settings(path), read_status(path)
    state = "solved" if status.get("cause") == "solved" else status["state"]
    row: dict[str, Any] = {
        "run": str(path), "task": settings.get("task.name"), "model": settings.get("model.name"),
        "state": state, "update": f"{status['update']}/{settings.get('steps', '?')}",
    }  # fmt: skip
    for split in ("valid", "test"):
        last = [record for record in history(path, METRICS).records if record.get("split") == split]
        row[split] = next((value for name, value in last[-1].items() if name not in SAID), None) if last else None
    return row


def _settings(path: Path) -> dict[str, Any]:
    """Settings by dotted name; empty if damaged."""
    from kreiss.training.config import dotted
    from kreiss.training.record import settings_of

    try:
        return dotted(settings_of(path))
    except (RunError, InputError):
        return {}


NUMBERS = ("update", "valid", "test")
SAID = ("update", "split")  # the first number of an evaluation after these is the task's loss


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


@app.command
def show(run: Path) -> int:
    """Show settings, environment, state and results of a run.

    Parameters
    ----------
    run
        Folder of the run.
    """
    from kreiss.training.record import METRICS, damage, history, read_status

    _check(run)
    print((run / "config.yaml").read_text(errors="replace").rstrip())
    for name, value in {**_about(run), **read_status(run)}.items():
        print(f"{name}: {value}")
    for record in history(run, METRICS).records:
        if "split" in record:
            print("  ".join(f"{name} {_cell(value)}" for name, value in record.items()))
    for sentence in damage(run):
        print(f"damaged: {sentence}")
    return 0


def _about(run: Path) -> dict[str, Any]:
    """Identity and environment of a run; empty if damaged."""
    from kreiss.storage.identity import ABOUT, read_document

    try:
        return read_document(run / ABOUT)
    except RunError:
        return {}


@app.command
def rm(*run: Path, yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative=())] = False) -> int:
    """Remove runs, after asking.

    Parameters
    ----------
    run
        Folders of the runs.
    yes
        Remove without asking.
    """
    from kreiss.training.record import read_status, remove

    for path in run:
        _check(path)
        if read_status(path)["state"] == "running":
            raise InputError(f"a run must have ended to be removed; got {path}, which is running. Stop it first.")
    for path in run:
        if yes or input(f"remove {path}? [y/N] ").strip().lower() in ("y", "yes"):
            remove(path)
            print(f"removed {path}")
    return 0


def _check(path: Path) -> None:
    from kreiss.training.record import is_run

    if not is_run(path):
        raise InputError(f"`{path}` must be the folder of a run; got one that is not. `kreiss runs ls` lists runs.")

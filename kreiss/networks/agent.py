"""The agent: a recurrent layer between an encoder of observations and two readouts, an actor and a critic."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, Self, cast

import torch
from torch import Tensor, nn

from kreiss.contracts import Network, Sizes
from kreiss.errors import InputError, check_size
from kreiss.networks.recurrent import RecurrentNetwork
from kreiss.networks.registry import LAYERS
from kreiss.options import Option
from kreiss.relational.parts import drawn_from
from kreiss.settings import NetworkSettings, RecurrentSettings

UNITS = 64  # of encoders, actor and critic
LARGE = 36  # pixels from which an image is encoded by the strided convolutions of Mnih et al. (2015)
ENCODED = 256  # units behind those


class Surroundings(Sizes, Protocol):
    """What an agent needs to know about its world."""

    actions: int
    layout: Any  # image, (channels, height, width) or None, and how many others there are


class Agent(Network):
    """Chooses actions: scores of all actions and the value of the state, read from a recurrent layer.

    f_t = (encoded image, other numbers), h_t from `layer`, outputs = (actor(h_t), critic(h_t)).

    Small images go through convolutions of 2 × 2 with 16, 32 and 64 kernels, after the first of which the largest of
    2 × 2 is taken; images from 36 pixels on through those of Mnih et al. (2015); without an image the numbers go
    through 64 units with tanh. Actor and critic have 64 units with tanh. Rows of their weights start with norm 1,
    biases at 0, as in the public code of the thesis: 52,664 parameters with an LSTM of 64 units on MiniGrid.

    Args:
        layer: any layer of one direction, time first.
        actions: how many there are.
        image: (channels, height, width) of the image that comes first in an observation, or None.
        others: how many numbers come after it.
        generator: for the initial values of all but the layer.

    Example:
        >>> import kreiss, torch
        >>> from kreiss.networks import Agent
        >>> agent = Agent(kreiss.GRU(64, 16), actions=4, others=3)
        >>> outputs, state = agent(torch.zeros(7, 5, 3))
        >>> outputs.shape
        torch.Size([7, 5, 5])
    """

    Settings: ClassVar[type[NetworkSettings]] = RecurrentSettings
    layer: Any

    @classmethod
    def options(cls, name: str) -> dict[str, Option]:
        """Options of the layer called `name`."""
        return RecurrentNetwork.options(name)

    @classmethod
    def build(cls, settings: NetworkSettings, task: Sizes, generator: torch.Generator) -> Self:
        """The layer called `settings.name`, between encoder, actor and critic."""
        world = cast(Surroundings, task)
        if settings.name not in LAYERS or not isinstance(settings, RecurrentSettings):
            raise InputError(
                f"an agent must be built around a recurrent layer; got model {settings.name!r}. `kreiss list models` "
                "shows the layers."
            )
        for name in ("bidirectional", "embedding", "dropout"):
            if getattr(settings, name):
                raise InputError(f"an agent has no `{name}`; got {name}={getattr(settings, name)}. Leave it out.")
        sizes = {"image": world.layout.image, "others": world.layout.others}
        layer = LAYERS[settings.name](
            features(**sizes), settings.hidden, settings.layers, generator=generator,
            dtype=getattr(torch, settings.dtype), **(settings.model_extra or {}),
        )  # fmt: skip
        return cls(layer, world.actions, generator=generator, **sizes)

    def __init__(
        self,
        layer: nn.Module,
        actions: int,
        *,
        image: tuple[int, int, int] | None = None,
        others: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.actions = check_size("actions", actions)
        self.image = None if image is None else (image[0], image[1], image[2])
        self.others = check_size("others", others, 0)
        like = next(layer.parameters())
        self.layer = layer
        self._check_layer()
        width = int(getattr(layer, "output_size", layer.hidden_size))  # type: ignore[arg-type]
        with drawn_from(generator):
            self.encoder = _encoder(self.image, self.others)
            self.actor = nn.Sequential(nn.Linear(width, UNITS), nn.Tanh(), nn.Linear(UNITS, actions))
            self.critic = nn.Sequential(nn.Linear(width, UNITS), nn.Tanh(), nn.Linear(UNITS, 1))
            self._reset_readouts()
        self.to(device=like.device, dtype=like.dtype)

    def _check_layer(self) -> None:
        size = features(self.image, self.others)
        if self.layer.input_size != size or self.layer.batch_first or self.layer.bidirectional:
            raise InputError(
                f"`layer` must take {size} features of an observation, time first, in one direction; got "
                f"input_size={self.layer.input_size}, batch_first={self.layer.batch_first}, "
                f"bidirectional={self.layer.bidirectional}. Make it with input_size={size}."
            )

    @torch.no_grad()
    def _reset_readouts(self) -> None:
        for part in (*self.actor, *self.critic):
            if isinstance(part, nn.Linear):
                part.weight.normal_()
                part.weight /= part.weight.norm(dim=1, keepdim=True)
                part.bias.zero_()

    # ------------------------------------------------------------ running

    def forward(self, inputs: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """Scores of the actions and, last, the value (T, B, actions + 1), and the state at the end.

        Args:
            inputs: observations (T, B, D).
            state: what an earlier call returned; that of a new episode by default.
            lengths: not used: what comes after the end of an episode does not change what was before.
        """
        hidden, state = self.layer(self.encode(inputs), state)
        return self.read(hidden), state

    def step(self, observations: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Outputs (B, actions + 1) for one observation each (B, D), and the next state."""
        hidden, state = self.layer.step(self.encode(observations), state)
        return self.read(hidden), state

    def encode(self, observations: Tensor) -> Tensor:
        """Features of observations (…, D), as the layer takes them."""
        size = self.others + (0 if self.image is None else torch.Size(self.image).numel())
        if observations.shape[-1] != size:
            raise InputError(
                f"an observation must have {size} numbers; got shape {tuple(observations.shape)}. Use the world that "
                "the agent was made for, or one with the same observations."
            )
        if self.image is None:
            return self.encoder(observations)
        images, others = observations.split([size - self.others, self.others], -1)
        encoded = self.encoder(images.reshape(-1, *self.image))
        return torch.cat([encoded.view(*observations.shape[:-1], -1), others], -1)

    def read(self, hidden: Tensor) -> Tensor:
        """Scores of the actions and the value, from the layer's outputs."""
        return torch.cat([self.actor(hidden), self.critic(hidden)], -1)

    @property
    def width(self) -> int:
        """The larger of the layer's input and state."""
        return max(self.layer.input_size, self.layer.hidden_size)

    def init_state(self, batch_size: int | None = None) -> Any:
        """The state at the start of an episode."""
        return self.layer.init_state(batch_size)

    def carried(self, state: Any) -> Any:
        """The state itself: an episode goes on."""
        return state

    def freeze(self) -> Self:
        """A copy for acting: recurrent matrices computed once, no gradients."""
        frozen = super().freeze()
        frozen.layer = self.layer.freeze()
        return frozen


# ---------------------------------------------------------------- encoders


def features(image: tuple[int, int, int] | None, others: int) -> int:
    """What an encoder makes of an observation: the input size of the layer."""
    if image is None:
        return UNITS
    with torch.device("meta"):
        encoded = _encoder(image, others)(torch.empty(1, *image))
    return encoded.shape[1] + others


def _encoder(image: tuple[int, int, int] | None, others: int) -> nn.Sequential:
    if image is None:
        return nn.Sequential(nn.Linear(others, UNITS), nn.Tanh())
    channels, height, width = image
    if min(height, width) < 7:
        raise InputError(f"an image must have at least 7 × 7 pixels; got {height} × {width}. Wrap the environment.")
    if min(height, width) < LARGE:
        return nn.Sequential(
            nn.Conv2d(channels, 16, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 2), nn.ReLU(),
            nn.Conv2d(32, UNITS, 2), nn.ReLU(), nn.Flatten(),
        )  # fmt: skip
    strided = nn.Sequential(
        nn.Conv2d(channels, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(),
        nn.Flatten(),
    )  # fmt: skip
    size = 64 * _strided_size(height) * _strided_size(width)
    return nn.Sequential(*strided, nn.Linear(size, ENCODED), nn.ReLU())


def _strided_size(pixels: int) -> int:
    """Pixels on a side behind the strided convolutions."""
    return ((pixels - 8) // 4 + 1 - 4) // 2 + 1 - 2

"""The recurrent network: embedding of symbols, recurrent layers, dropout, readout."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from kreiss import derivatives, own
from kreiss.contracts import Network, Sizes
from kreiss.errors import InputError, check_name, check_size, check_tensor
from kreiss.layers import RecurrentLayer
from kreiss.layers.contract.checks import check_tensors_fit, checked_share
from kreiss.networks.registry import LAYERS
from kreiss.options import Option, options_of
from kreiss.relational.base import ImageFront
from kreiss.relational.parts import FEATURES, drawn_from
from kreiss.settings import NetworkSettings, RecurrentSettings

STARTS = ("glorot", "release")
RANGE = 0.1  # of initial embedding and readout in the nnRNN release

# layer arguments that are settings under other names, or that the network sets
SET_BY_NETWORK = ("input_size", "hidden_size", "num_layers", "batch_first", "dropout", "bidirectional")


class RecurrentNetwork(Network):
    """A recurrent layer between an optional embedding and a linear readout: y_t = W h_t + c (nnRNN paper, eq. 1).

    Symbols: W `readout.weight`, c `readout.bias`, h_t the output of `layer`.

    Args:
        layer: any layer of `kreiss.layers`, time first.
        output_size: size of y.
        answers: "every" for one y per step, "last" for one per sequence, read where each sequence ends.
        symbols: number of symbols, if inputs are integers; 0 if they are vectors.
        embedding: size of the trained embedding of symbols; 0 leaves them one-hot.
        dropout: probability of dropping an entry of h before the readout.
        image: (channels, height, width), if inputs are images: they are encoded, each distinct one once, and normalised
            over the sequence, as in `kreiss.relational`, and the layer takes 128 inputs.
        encoder: of images: "learned", or "random" for one that stays as it was drawn.
        normalisation: of encoded images: "context" or "none".
        start: "glorot" draws the embedding from a standard normal and the readout Glorot normal; "release" draws both
            from U(−0.1, 0.1) and the layer's input weights Kaiming normal, as the nnRNN release does for characters.
        generator: for the initial values of embedding and readout.

    Example:
        >>> import kreiss, torch
        >>> from kreiss.networks import RecurrentNetwork
        >>> network = RecurrentNetwork(kreiss.NNRNN(3, 8), output_size=2)
        >>> output, state = network(torch.zeros(7, 5, 3))
        >>> output.shape, state.shape
        (torch.Size([7, 5, 2]), torch.Size([1, 5, 8]))
    """

    Settings: ClassVar[type[NetworkSettings]] = RecurrentSettings
    layer: Any

    @classmethod
    def options(cls, name: str) -> dict[str, Option]:
        """Options of the layer called `name`."""
        return options_of(LAYERS[name], without=SET_BY_NETWORK)

    @classmethod
    def build(cls, settings: NetworkSettings, task: Sizes, generator: torch.Generator) -> Self:
        """The layer called `settings.name`, with embedding, dropout and readout."""
        assert isinstance(settings, RecurrentSettings)
        symbols = task.input_size if task.symbols else 0
        image = _image(task)
        front: Any = {} if image is None else {
            "image": image, "encoder": settings.encoder, "normalisation": settings.normalisation,
        }  # fmt: skip
        if settings.embedding and not symbols:
            raise InputError(
                f"an embedding needs symbols; got embedding={settings.embedding} for a task whose inputs are vectors. "
                "Leave it out."
            )
        options: dict[str, Any] = {"bidirectional": settings.bidirectional, "dtype": getattr(torch, settings.dtype)}
        if settings.layers > 1:
            options["dropout"] = settings.dropout
        inputs = FEATURES if image else settings.embedding or task.input_size
        layer = _layer(settings, inputs, generator=generator, **options, **(settings.model_extra or {}))
        return cls(
            layer, task.output_size, answers=task.answers, symbols=symbols, embedding=settings.embedding,
            dropout=settings.dropout, start=settings.start, generator=generator, **front,
        )  # fmt: skip

    def __init__(
        self,
        layer: nn.Module,
        output_size: int,
        *,
        answers: Literal["every", "last"] = "every",
        symbols: int = 0,
        embedding: int = 0,
        dropout: float = 0.0,
        start: str = "glorot",
        image: tuple[int, int, int] | None = None,
        encoder: str = "learned",
        normalisation: str = "context",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_name("answers", answers, ("every", "last"))
        check_name("start", start, STARTS)
        self.start = start
        self.output_size = check_size("output_size", output_size)
        self.symbols = check_size("symbols", symbols, 0)
        self.answers = answers
        like = next(layer.parameters())
        place: Any = {"device": like.device, "dtype": like.dtype}
        check_tensors_fit([(self.symbols, check_size("embedding", embedding, 0))], **place)
        self.embedding = nn.Embedding(symbols, embedding, **place) if embedding else None
        self.front: ImageFront | None = None
        if image is not None:
            with drawn_from(generator):
                self.front = ImageFront(0, image, encoder, normalisation).to(**place)
        self.layer = layer
        self._check_layer()
        check_tensors_fit([(self.output_size, self._width())], **place)
        self.dropout = nn.Dropout(checked_share(dropout))
        self.readout = nn.Linear(self._width(), output_size, **place)
        self.reset_ends(generator)

    def _check_layer(self) -> None:
        size = self.embedding.embedding_dim if self.embedding is not None else self.symbols or self.layer.input_size
        size = size if self.front is None else FEATURES
        if self.layer.input_size != size:
            raise InputError(
                f"`layer` must take inputs of size {size}, that of the embedding, symbols or encoded images; got "
                f"input_size={self.layer.input_size}. Make the layer with input_size={size}."
            )
        if self.layer.batch_first:
            raise InputError("`layer` must run time first; got batch_first=True. Make the layer without it.")

    def _width(self) -> int:
        """Number of output features of the layer."""
        per_direction = getattr(self.layer, "output_size", self.layer.hidden_size)  # torch's layers have none
        return int(per_direction) * (2 if self.layer.bidirectional else 1)

    @torch.no_grad()
    def reset_ends(self, generator: torch.Generator | None = None) -> None:
        """Reinitialise embedding and readout (c = 0), and with `start="release"` the layer's input weights."""
        if self.readout.weight.is_meta:
            return
        nn.init.zeros_(self.readout.bias)
        embedding = [] if self.embedding is None else [self.embedding.weight]
        if self.start == "release":
            for weight in (*embedding, self.readout.weight):
                weight.uniform_(-RANGE, RANGE, generator=generator)
            for weight in self._input_weights():
                nn.init.kaiming_normal_(weight, generator=generator)
            return
        for weight in embedding:
            weight.normal_(generator=generator)
        nn.init.xavier_normal_(self.readout.weight, generator=generator)

    def _input_weights(self) -> list[nn.Parameter]:
        """U of the first layer if it is trained; gated layers keep their own initial values, as in the release."""
        if isinstance(self.layer, nn.RNNBase):
            return []
        first = ("weight_ih_l0", "weight_ih_l0_reverse")
        return [weight for name, weight in self.layer.named_parameters() if name in first and weight.requires_grad]

    def forward(self, inputs: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """Outputs (T, B, output_size), or (B, output_size) for `answers="last"`, and the state at the end.

        Args:
            inputs: (T, B, features), or integers (T, B).
            state: what an earlier call returned; zero by default.
            lengths: valid steps of each sequence (B,), at least one; all by default. The state is that after all T.
        """
        entering = self.enter(inputs)
        check_lengths(lengths, entering)
        hidden, state = self._hidden(entering, state, lengths)
        return self.read(hidden, lengths), state

    def read(self, hidden: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The readout of the layer's outputs (T, B, features)."""
        if self.answers == "last":
            hidden = self._at_the_end(hidden, lengths)
        output: Tensor = self.readout(self.dropout(hidden))
        return output

    def enter(self, inputs: Tensor) -> Tensor:
        """Input of the layer: vectors, encoded images, or the symbols themselves if it looks up their columns."""
        if self.front is not None:
            images: Tensor = self.front(inputs)
            return images
        check_tensor("inputs", inputs)
        if inputs.is_floating_point() or not self.symbols:
            return inputs
        if self.embedding is not None:
            return self.embedding(inputs)
        if isinstance(self.layer, RecurrentLayer):
            return inputs
        return F.one_hot(inputs, self.symbols).to(self.readout.weight.dtype)

    def _hidden(self, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """The layer's outputs; packed only for a backward direction, which starts at the end of each sequence."""
        with self._precision(x.device):
            if lengths is None or not self.layer.bidirectional:
                return self.layer(x, state)
            packed, state = self.layer(pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False), state)
            return pad_packed_sequence(packed, total_length=len(x))[0], state

    def _precision(self, device: torch.device) -> AbstractContextManager[Any]:
        """torch's LSTM and GRU lack half precision on some CPUs, so they run in single precision on all of them."""
        on_cpu = isinstance(self.layer, nn.RNNBase) and device.type == "cpu"
        return torch.autocast("cpu", enabled=False) if on_cpu else nullcontext()

    def _at_the_end(self, hidden: Tensor, lengths: Tensor | None) -> Tensor:
        """(B, features): the forward direction at the last valid step, the backward one at the first."""
        if lengths is None:
            last = hidden[-1]
        else:
            last = hidden[lengths.to(hidden.device) - 1, torch.arange(hidden.shape[1], device=hidden.device)]
        if not self.layer.bidirectional:
            return last
        half = hidden.shape[-1] // 2
        return torch.cat((last[:, :half], hidden[0, :, half:]), -1)

    @property
    def width(self) -> int:
        """The larger of the layer's input and state."""
        return max(self.layer.input_size, self.layer.hidden_size)

    def init_state(self, batch_size: int | None = None) -> Any:
        """The zero state of the layer."""
        return self.layer.init_state(batch_size)

    def carried(self, state: Any) -> Any:
        """What the next window of a long sequence starts from: the layer may clear its memory."""
        return self.layer.carried(state) if hasattr(self.layer, "carried") else state

    def freeze(self) -> Self:
        """A copy for inference and export: recurrent matrices computed once, no gradients."""
        frozen = super().freeze()
        if hasattr(self.layer, "freeze"):  # torch's layers have none, and nothing to compute
            frozen.layer = self.layer.freeze()
        return frozen


def check_lengths(lengths: Tensor | None, inputs: Tensor) -> None:
    """Raise unless every sequence has from one to all of its steps."""
    if lengths is None or torch.compiler.is_compiling() or not derivatives.ordinary() or inputs.is_meta:
        return
    steps, batch = inputs.shape[:2]
    if lengths.shape != (batch,):
        raise InputError(
            f"`lengths` must have a number for each of the {batch} sequences; got shape {tuple(lengths.shape)}. "
            "Pass a tensor of shape (B,)."
        )
    if batch and (int(lengths.min()) < 1 or int(lengths.max()) > steps):
        raise InputError(
            f"`lengths` must be from 1 to the {steps} steps of the inputs; got {int(lengths.min())} to "
            f"{int(lengths.max())}. Leave out sequences without steps."
        )


def _layer(settings: RecurrentSettings, inputs: int, **options: Any) -> nn.Module:
    make = LAYERS[settings.name]
    try:
        return make(inputs, settings.hidden, settings.layers, **options)
    except TypeError as error:
        if own.is_ours(make):
            raise
        raise InputError(
            f"the constructor of {settings.name} must be called as that of kreiss.RecurrentLayer, with (input_size, "
            f"hidden_size, num_layers, **options); got {error}. Hand **options on to the base class."
        ) from error


def _image(task: Sizes) -> tuple[int, int, int] | None:
    """The shape of the task's images; None for vectors and symbols."""
    if len(task.input_shape) < 2:
        return None
    if len(task.input_shape) != 3:
        raise InputError(
            f"a recurrent layer must be given vectors, symbols or images (channels, height, width); got a task whose "
            f"inputs are of shape {task.input_shape}. Choose a network for such inputs."
        )
    channels, height, width = task.input_shape
    return channels, height, width

"""All settings of a run: names, types, defaults and descriptions. No torch: help texts are made from this.

Every setting has a dotted name, `optimiser.lr`; common ones have a short name too, `lr`. Options of one model or task
are in its section: `model.blocks`, `task.delay`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from kreiss.errors import LARGEST_SIZE

Share = Annotated[float, Field(ge=0, le=1)]
PositiveInt = Annotated[int, Field(gt=0, le=LARGEST_SIZE)]
NonNegativeInt = Annotated[int, Field(ge=0, le=LARGEST_SIZE)]
Decay = Annotated[float, Field(ge=0, lt=1)]


def _held_by_float32(value: float) -> float:
    if value > 1e38:
        raise ValueError("must be at most 1e38 to fit in float32")
    return value


Amount = Annotated[float, Field(ge=0, allow_inf_nan=False), AfterValidator(_held_by_float32)]


def _listed(value: Any) -> Any:
    """ "0, 0.9" as a list, for the command line."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class Section(BaseModel):
    """A group of settings; an unknown name is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskSection(Section):
    """The task and its own options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str = Field("copy", description="task, from `kreiss list tasks`")


class NetworkSettings(Section):
    """The network and its own options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str
    dtype: Literal["float32", "float64"] = Field("float32", description="data type of the parameters")


class SizedSettings(NetworkSettings):
    """A network of the user's own whose constructor takes a hidden size."""

    hidden: PositiveInt = Field(128, description="size of the hidden state")


def _or_none(value: Any) -> Any:
    """The word none of a command line, which is read as nothing, as that word."""
    return "none" if value is None else value


class RecurrentSettings(NetworkSettings):
    """The network: a layer with its own options, an embedding of symbols, dropout, a readout."""

    name: str = Field("nnrnn", description="model, from `kreiss list models`")
    hidden: PositiveInt = Field(128, description="size of the hidden state")
    layers: PositiveInt = Field(1, description="number of stacked layers")
    bidirectional: bool = Field(False, description="run a second direction from the end of the sequence")
    embedding: NonNegativeInt = Field(0, description="size of the embedding of symbols; 0 leaves them one-hot")
    dropout: Share = Field(0.0, description="dropout probability between layers and before the readout")
    start: Literal["glorot", "release"] = Field(
        "glorot", description="initial values of embedding, readout and input weights"
    )

    encoder: Literal["learned", "random"] = Field(
        "learned", description="encoder of images, if inputs are images: trained, or as it was drawn"
    )
    normalisation: Annotated[Literal["context", "none"], BeforeValidator(_or_none)] = Field(
        "context", description="normalisation of encoded images over the sequence"
    )

    @model_serializer(mode="wrap")
    def _without_later_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Settings added later are omitted at their defaults, so that runs recorded before keep their keys."""
        written: dict[str, Any] = write(self)
        later = {"start": "glorot", "encoder": "learned", "normalisation": "context"}
        return {name: value for name, value in written.items() if later.get(name, NotImplemented) != value}


class GivenModel(NetworkSettings):
    """Settings of a model passed as an object; unknown settings have no default."""

    @model_serializer(mode="wrap")
    def _what_is_known(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        known: dict[str, Any] = write(self)
        return {name: value for name, value in known.items() if name in self.model_fields_set}


class OptimiserSection(Section):
    """The optimiser, its groups, penalties and clipping."""

    name: Literal["rmsprop", "adam", "adamw", "adagrad", "sgd"] = Field("rmsprop", description="optimiser")
    lr: Amount = Field(1e-3, description="learning rate")
    orthogonal_lr: Amount | None = Field(None, description="learning rate of orthogonal factors; default: lr")
    coupling_decay: Amount = Field(0.0, description="weight decay of couplings T")
    weight_decay: Amount = Field(0.0, description="weight decay of all other parameters")
    alpha: Share = Field(0.99, description="smoothing constant of RMSprop")
    betas: Annotated[tuple[Decay, Decay], BeforeValidator(_listed)] = Field(
        (0.9, 0.999), description="smoothing constants of Adam"
    )
    momentum: Amount = Field(0.0, description="momentum of SGD and RMSprop")
    eps: Amount = Field(1e-8, description="term added to the denominator in RMSprop, Adam and Adagrad")
    radius_penalty: Amount = Field(0.0, description="δ of the penalty δ‖1 − γ‖² on eigenvalue moduli")
    reduction: Literal["sum", "mean"] = Field(
        "sum", description="reduction of that penalty over the blocks of a matrix"
    )
    clip_norm: Amount | None = Field(None, description="maximum norm of all gradients together")
    clip_value: Amount | None = Field(None, description="maximum absolute value of each gradient entry")
    rebase_every: NonNegativeInt = Field(
        0, description="updates between moves of the base points of trivializations; 0 for none"
    )


class ScheduleSection(Section):
    """The schedule of the learning rates: constant, reduced after evaluations without improvement, or a cosine."""

    name: Literal["constant", "plateau", "cosine"] = Field("constant", description="learning-rate schedule")
    factor: Share = Field(0.5, description="plateau: factor by which the rates are reduced")
    patience: NonNegativeInt = Field(
        0, description="plateau: evaluations without improvement before the rates are reduced"
    )
    warmup: NonNegativeInt = Field(0, description="updates over which the rates rise linearly from 0")
    minimum: Share = Field(0.0, description="cosine: share of the rates left at the end")


class PPOSection(Section):
    """Proximal policy optimisation, for tasks that are worlds to act in; `batch` is the number of environments."""

    frames: PositiveInt | None = Field(
        None, description="frames of each environment per update; default 128, or the longest episode of a T-maze"
    )
    recurrence: PositiveInt | None = Field(
        None, description="frames through which gradients flow; default 16, or all of them in a T-maze"
    )
    epochs: PositiveInt = Field(4, description="passes through the frames of an update")
    minibatch: PositiveInt = Field(256, description="frames per step of the optimiser")
    discount: Share = Field(0.99, description="γ, by which later rewards count less")
    gae: Share = Field(0.95, description="λ of generalised advantage estimates")
    clip: Amount = Field(0.2, description="ε, how far probabilities and values may move in an update")
    clip_value: bool = Field(True, description="whether values may move by ε alone")
    entropy: Amount = Field(0.01, description="weight of the entropy of the policy")
    value: Amount = Field(0.5, description="weight of the error of values")
    normalise: bool = Field(False, description="whether advantages of an update get mean 0 and variance 1")
    truncation: Literal["value", "end"] = Field(
        "value", description="an episode cut off by a time limit goes on in its value, or ends there"
    )


class Config(Section):
    """All settings of a run."""

    task: TaskSection = Field(default_factory=TaskSection)
    model: SerializeAsAny[NetworkSettings] = Field(default_factory=RecurrentSettings)
    optimiser: OptimiserSection = Field(default_factory=OptimiserSection)
    schedule: ScheduleSection = Field(default_factory=ScheduleSection)
    ppo: PPOSection = Field(default_factory=PPOSection)
    steps: PositiveInt | None = Field(None, description="number of updates; default 1,500 for tasks without epochs")
    epochs: PositiveInt | None = Field(
        None, description="number of epochs, instead of steps, for tasks with a training set of fixed size; default 10"
    )
    batch: PositiveInt = Field(10, description="sequences per update")
    accumulate: PositiveInt = Field(1, description="number of pieces each batch is split into to save memory")
    eval_batch: PositiveInt = Field(100, description="batch size in evaluations")
    eval_every: PositiveInt | None = Field(
        None, description="updates between validations; default one epoch, or a tenth of all updates"
    )
    checkpoint_every: PositiveInt | None = Field(
        None, description="updates between checkpoints; default one a minute and one per validation"
    )
    log_every: PositiveInt = Field(10, description="updates between records of the training loss")
    patience: PositiveInt | None = Field(None, description="stop after this many validations without improvement")
    stop_at: float | None = Field(
        None, allow_inf_nan=False, description="stop when a validation is this good: solved; default: do not"
    )
    stop_metric: str | None = Field(
        None, description="metric that `stop_at` is compared with; default: the one that chooses the best checkpoint"
    )
    precision: Literal["float32", "bf16", "fp16"] = Field(
        "float32", description="precision of autocast; constraints stay in float32"
    )
    device: str = Field("auto", description="device: cpu, cuda, cuda:1 or auto")
    seed: int = Field(0, ge=-(2**63), lt=2**64, description="seed of initial values, training data and dropout")
    on_nan: Literal["stop", "skip"] = Field(
        "stop", description="stop, or skip the update, when a loss or gradient is not finite"
    )
    track: Annotated[tuple[Literal["tensorboard", "wandb", "mlflow", "trackio"], ...], BeforeValidator(_listed)] = (
        Field((), description="experiment trackers that also receive the records")
    )

    @model_serializer(mode="wrap")
    def _without_what_is_not_used(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Nothing of an early stop or of PPO where there is none, so that runs recorded before keep their keys."""
        written: dict[str, Any] = write(self)
        if self.ppo == PPOSection():
            written.pop("ppo", None)
        return {name: value for name, value in written.items() if value is not None or not name.startswith("stop_")}


# short name → dotted name, for common settings
SHORT = {
    "task": "task.name",
    "model": "model.name",
    "hidden": "model.hidden",
    "layers": "model.layers",
    "bidirectional": "model.bidirectional",
    "embedding": "model.embedding",
    "dropout": "model.dropout",
    "optimiser": "optimiser.name",
    "lr": "optimiser.lr",
    "orthogonal_lr": "optimiser.orthogonal_lr",
    "clip_norm": "optimiser.clip_norm",
    "schedule": "schedule.name",
    "env": "task.env",
}
SECTIONS = ("task", "model", "optimiser", "schedule", "ppo")

"""Everything a run is told: one tree of settings, from presets, YAML or TOML files, and the command line.

Every setting has a dotted name, `optimiser.lr`; what everybody sets has a short one too, `lr`. Options of the model and
of the task, which differ from one to the next, stand in their sections: `model.blocks`, `task.delay`.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from kreiss.errors import LARGEST_SIZE, InputError, check_name, in_bytes
from kreiss.layers import REGISTRY
from kreiss.tasks import TASKS
from kreiss.training.options import options_of, sentence, typed_options

Share = Annotated[float, Field(ge=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]


def _held_by_float32(value: float) -> float:
    if value > 1e38:
        raise ValueError("must be at most 1e38, which float32 holds")
    return value


Amount = Annotated[float, Field(ge=0, allow_inf_nan=False), AfterValidator(_held_by_float32)]
PositiveInt = Annotated[int, Field(gt=0, le=LARGEST_SIZE)]
NonNegativeInt = Annotated[int, Field(ge=0, le=LARGEST_SIZE)]

LARGEST_FILE = 10**6  # bytes of a file of settings
DEEPEST, MOST = 20, 10_000  # levels and values in it, aliases written out


def _listed(value: Any) -> Any:
    """ "0, 0.9" as a list, for the command line."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class Section(BaseModel):
    """Settings that belong together; a name that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskSection(Section):
    """The task and its own options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str = "copy"


class ModelSection(Section):
    """The network: a layer of the registry with its own options, an embedding of symbols, dropout, a readout."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str = "nnrnn"
    hidden: PositiveInt = Field(128, description="size of the hidden state")
    layers: PositiveInt = Field(1, description="layers on top of one another")
    bidirectional: bool = Field(False, description="whether a second direction runs from the end")
    embedding: NonNegativeInt = Field(0, description="size of trained vectors for symbols; 0 leaves them one-hot")
    dropout: Share = Field(0.0, description="between layers and before the readout")
    start: Literal["glorot", "release"] = Field("glorot", description="of embedding, readout and input weights")
    dtype: Literal["float32", "float64"] = Field("float32", description="of the parameters")

    @model_serializer(mode="wrap")
    def _without_default_start(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """`start` is left out at its default: runs made before it existed keep their keys."""
        said: dict[str, Any] = write(self)
        return {name: value for name, value in said.items() if (name, value) != ("start", "glorot")}


class GivenModel(Section):
    """What is known of a model that was given as an object; what is not known has no default."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str


class OptimiserSection(Section):
    """The optimiser, its groups, penalties and clipping."""

    name: Literal["rmsprop", "adam", "adamw", "adagrad", "sgd"] = "rmsprop"
    lr: Amount = Field(1e-3, description="learning rate")
    orthogonal_lr: Amount | None = Field(None, description="of orthogonal factors; by default as `lr`")
    coupling_decay: Amount = Field(0.0, description="weight decay of couplings T")
    weight_decay: Amount = Field(0.0, description="of all else")
    alpha: Share = Field(0.99, description="smoothing of RMSprop")
    betas: Annotated[tuple[Decay, Decay], BeforeValidator(_listed)] = Field((0.9, 0.999), description="of Adam")
    momentum: Amount = Field(0.0, description="of SGD and RMSprop")
    eps: Amount = Field(1e-8, description="of RMSprop, Adam and Adagrad")
    radius: Amount = Field(0.0, description="δ of the penalty δ‖1 − γ‖² on eigenvalue moduli")
    reduction: Literal["sum", "mean"] = Field("sum", description="of that penalty over the blocks of a matrix")
    clip_norm: Amount | None = Field(None, description="largest norm of all gradients together")
    clip_value: Amount | None = Field(None, description="largest entry of any gradient")
    rebase_every: NonNegativeInt = Field(0, description="updates between moves of trivialization bases; 0 for none")


class ScheduleSection(Section):
    """How the learning rates change: not at all, down after an evaluation without improvement, or along a cosine."""

    name: Literal["constant", "plateau", "cosine"] = "constant"
    factor: Share = Field(0.5, description="of plateau: what the rates are multiplied by")
    patience: NonNegativeInt = Field(0, description="of plateau: evaluations without improvement that are let pass")
    warmup: NonNegativeInt = Field(0, description="updates over which the rates rise from 0")
    minimum: Share = Field(0.0, description="of cosine: share of the rates that is left at the end")


class Config(Section):
    """All settings of a run."""

    task: TaskSection = Field(default_factory=TaskSection)
    model: SerializeAsAny[ModelSection] = Field(default_factory=ModelSection)
    optimiser: OptimiserSection = Field(default_factory=OptimiserSection)
    schedule: ScheduleSection = Field(default_factory=ScheduleSection)
    steps: PositiveInt | None = Field(None, description="updates; 1,500 by default where the task has no epochs")
    epochs: PositiveInt | None = Field(None, description="instead of steps, where the task has epochs; 10 by default")
    batch: PositiveInt = Field(10, description="sequences of an update")
    accumulate: PositiveInt = Field(1, description="pieces that a batch is worked through in, to save memory")
    eval_batch: PositiveInt = Field(100, description="sequences at a time in evaluations")
    eval_every: PositiveInt | None = Field(None, description="updates between evaluations; an epoch, or a tenth of all")
    checkpoint_every: PositiveInt | None = Field(None, description="updates between checkpoints; by default a minute")
    log_every: PositiveInt = Field(10, description="updates between records of the training loss")
    patience: PositiveInt | None = Field(None, description="stop after so many evaluations without improvement")
    precision: Literal["float32", "bf16", "fp16"] = Field("float32", description="of autocast")
    device: str = Field("auto", description="cpu, cuda, cuda:1, or auto")
    seed: int = Field(0, ge=-(2**63), lt=2**64, description="of initial values, training data and dropout")
    on_nan: Literal["stop", "skip"] = Field("stop", description="what to do when a number is not finite")
    track: Annotated[tuple[Literal["tensorboard", "wandb", "mlflow", "trackio"], ...], BeforeValidator(_listed)] = (
        Field((), description="other programs that get the records too")
    )


# short name → dotted name, for what everybody sets
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
}
SECTIONS = ("task", "model", "optimiser", "schedule")

# arguments of layers that are settings under other names, or that the network decides
LAYER_OWN = ("input_size", "hidden_size", "num_layers", "batch_first", "dropout", "bidirectional")


# ---------------------------------------------------------------- from names and values to a Config


def resolved(*sources: Mapping[str, Any], given: Mapping[str, dict[str, Any]] | None = None) -> Config:
    """The settings of several sources, each stronger than those before it.

    Args:
        sources: settings by nested, dotted or short names.
        given: what is known of an object of the user's, by "task" or "model", instead of what the sources say of it;
            it need not be buildable.
    """
    names: dict[str, Any] = {}
    for source in sources:
        names.update(dotted(source))
    _check_names(names)
    tree: dict[str, Any] = {}
    for name, value in names.items():
        section, _, rest = name.rpartition(".")
        (tree.setdefault(section, {}) if section else tree)[rest] = value
    given = given or {}
    _check_choices(tree, tuple(given))
    try:
        config = Config.model_validate({**tree, **given})
    except ValidationError as error:
        raise sentence(error) from error
    if "model" in given and not ModelSection.model_fields.keys() <= given["model"].keys():
        config = config.model_copy(update={"model": GivenModel(**given["model"])})
    if config.steps and config.epochs:
        raise InputError(
            f"either `steps` or `epochs` must be given; got steps={config.steps} and epochs={config.epochs}. "
            "Leave one out."
        )
    if config.accumulate > config.batch:
        raise InputError(
            f"`accumulate` must be at most `batch`, a sequence for each piece; got accumulate={config.accumulate} and "
            f"batch={config.batch}. Lower it."
        )
    if config.optimiser.clip_norm is not None and config.optimiser.clip_value is not None:
        raise InputError(
            f"gradients must be clipped by norm or by value; got clip_norm={config.optimiser.clip_norm} and "
            f"clip_value={config.optimiser.clip_value}. Leave one out."
        )
    return config


def dotted(source: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested, dotted and short names as dotted ones; dashes as underscores."""
    found: dict[str, Any] = {}
    for key, value in source.items():
        name = prefix + str(key).replace("-", "_")
        if isinstance(value, Mapping):
            found.update(dotted(value, f"{name}."))
        else:
            found[SHORT.get(name, name)] = value
    return found


def _check_names(names: Mapping[str, Any]) -> None:
    """Raise for a name that no section knows, with the nearest one that is known."""
    known = [name for name in Config.model_fields if name not in SECTIONS] + [*SHORT]
    for section in SECTIONS:
        known += [f"{section}.{name}" for name in _section(section).model_fields]
    for name in names:
        if name not in known and name.rpartition(".")[0] not in ("task", "model"):  # whose options their class checks
            raise _unknown(name, known)


def _unknown(name: str, known: list[str]) -> InputError:
    section, _, key = name.partition(".")
    own = [] if section in SECTIONS else [f"task.{key}", f"model.{key}"]  # options that only their class knows
    close = difflib.get_close_matches(name, known + own, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return InputError(f"unknown setting {name!r}.{hint} `kreiss show config` lists all of them.")


def _section(name: str) -> type[Section]:
    found = Config.model_fields[name].annotation
    assert isinstance(found, type)
    assert issubclass(found, Section)
    return found


def _check_choices(tree: dict[str, Any], given_sections: tuple[str, ...]) -> None:
    """Check the names of task and model, and put their own options into their types."""
    choices: tuple[tuple[str, Mapping[str, type], tuple[str, ...]], ...]
    choices = (("task", TASKS, ()), ("model", REGISTRY, LAYER_OWN))
    for section, registry, own in choices:
        if section in given_sections:
            continue
        given = tree.setdefault(section, {})
        fields = _section(section).model_fields
        name = given.setdefault("name", fields["name"].default)
        check_name(section, name, registry)
        known = options_of(registry[name], without=own)
        for key in given:
            if key not in known and key not in fields:
                raise _unknown(f"{section}.{key}", [f"{section}.{other}" for other in (*known, *fields)])
        common = {key: value for key, value in given.items() if key in fields}
        special = {key: value for key, value in given.items() if key not in fields}
        tree[section] = {**common, **typed_options(section, special, known)}


def own_options(section: TaskSection | ModelSection) -> dict[str, Any]:
    """The options of a section that belong to the chosen task or layer alone."""
    return dict(section.model_extra or {})


# ---------------------------------------------------------------- files and words


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a YAML or TOML file; neither can run code."""
    text = _text(path)
    try:
        found = _toml(path, text) if path.suffix == ".toml" else _yaml(path, text)
    except InputError:
        raise
    except RecursionError:  # of a parser
        raise _too_much(path) from None
    except (ValueError, yaml.YAMLError) as error:
        kind = "TOML" if path.suffix == ".toml" else "YAML"
        plain = not isinstance(error, (tomllib.TOMLDecodeError, yaml.YAMLError))
        where = "a number or date is out of range" if plain else " ".join(str(error).split())
        raise InputError(f"`{path}` must be {kind}; got a file that is not: {where}. Correct it.") from error
    if found is not None and not isinstance(found, dict):
        raise InputError(
            f"`{path}` must hold names and values; got a {type(found).__name__}. Write `name: value` lines."
        )
    return found or {}


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(
                f"`{path}` must be a file of settings of at most {in_bytes(LARGEST_FILE)}; got "
                f"{in_bytes(path.stat().st_size)}. Check the name."
            )
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"`{path}` must be a readable text file; got {_why(error)}. Check the name.") from error


def _toml(path: Path, text: str) -> Any:
    found = tomllib.loads(text)
    _check_amount(path, found)
    return found


def _yaml(path: Path, text: str) -> Any:
    loader = yaml.SafeLoader(text)
    node = loader.get_single_node()
    _check_amount(path, node)  # before its aliases are written out
    return None if node is None else loader.construct_document(node)


def _check_amount(path: Path, found: Any) -> None:
    """Raise for settings nested too deeply or too many; aliases of YAML can make either of a few lines."""
    waiting, count = [(found, 0)], 0
    while waiting:
        value, depth = waiting.pop()
        inside = _parts(value)
        count += len(inside)
        if depth > DEEPEST or count > MOST:
            raise _too_much(path)
        waiting += [(part, depth + 1) for part in inside]


def _parts(value: Any) -> list[Any]:
    """What a mapping or list of TOML, or a node of YAML, holds."""
    if isinstance(value, yaml.MappingNode):
        return [part for pair in value.value for part in pair]
    if isinstance(value, (dict, yaml.SequenceNode)):
        return list(value.values() if isinstance(value, dict) else value.value)
    return value if isinstance(value, list) else []


def _too_much(path: Path) -> InputError:
    return InputError(
        f"`{path}` must hold at most {MOST} settings in {DEEPEST} levels; got more, or a part that contains itself. "
        "Write plain `name: value` lines."
    )


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def plain(config: Config) -> dict[str, Any]:
    """All settings as plain values."""
    found: dict[str, Any] = json.loads(config.model_dump_json())
    return found


def written(config: Config) -> str:
    """All settings as YAML, which `read_settings` reads back to the same."""
    return yaml.safe_dump(plain(config), sort_keys=False)


def words(tokens: tuple[str, ...]) -> tuple[list[str], dict[str, Any]]:
    """Plain words of a command line, and what stands behind `--name value`, `--name=value` and bare `--name`."""
    plain: list[str] = []
    settings: dict[str, Any] = {}
    rest = list(tokens)
    while rest:
        token = rest.pop(0)
        if not token.startswith("--"):
            plain.append(token)
            continue
        name, equals, value = token.removeprefix("--").partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        settings[name] = scalar(value)
    return plain, settings


def scalar(text: str) -> Any:
    """A word of the command line as number, truth value, nothing, list, or itself."""
    try:
        return {"true": True, "false": False, "null": None, "none": None}[text.lower()]
    except KeyError:
        pass
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    try:
        return json.loads(text) if text.startswith("[") else text
    except ValueError:
        return text

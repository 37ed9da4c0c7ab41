"""`kreiss train`, `resume` and `eval`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, validators

Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]
Words = Annotated[str, Parameter(name="TASK", allow_leading_hyphen=True, negative=())]
Changes = Annotated[str, Parameter(name="SETTINGS", allow_leading_hyphen=True, negative=())]
Flag = Annotated[bool, Parameter(negative=())]


def train(
    *words: Words,
    model: str | None = None,
    hidden: Positive | None = None,
    layers: Positive | None = None,
    embedding: int | None = None,
    dropout: float | None = None,
    steps: Positive | None = None,
    epochs: Positive | None = None,
    batch: Positive | None = None,
    optimiser: Literal["rmsprop", "adam", "adamw", "sgd"] | None = None,
    lr: float | None = None,
    orthogonal_lr: float | None = None,
    clip_norm: float | None = None,
    schedule: Literal["constant", "plateau", "cosine"] | None = None,
    eval_every: Positive | None = None,
    checkpoint_every: Positive | None = None,
    patience: Positive | None = None,
    precision: Literal["float32", "bf16", "fp16"] | None = None,
    device: str | None = None,
    seed: int | None = None,
    on_nan: Literal["stop", "skip"] | None = None,
    track: list[Literal["tensorboard", "wandb", "mlflow", "trackio"]] | None = None,
    preset: str | None = None,
    config: Path | None = None,
    out: Path | None = None,
    resume: Path | None = None,
    quiet: Flag = False,
    json: Flag = False,
) -> int:
    """Train a network on a task and test it once, at its best validation.

    kreiss train copy --model nnrnn --hidden 128 --model.blocks exact --task.delay 200 --steps 1500 --out RUN

    Every other setting has a dotted name: --optimiser.radius 1e-4, --schedule.factor 0.5; `kreiss show config` lists
    them, `kreiss show nnrnn` and `kreiss show copy` those of a model and of a task. A run that was interrupted or
    killed goes on with `kreiss resume RUN`. With `torchrun --nproc-per-node 2 -m kreiss train ...` several processes
    share each batch.

    Parameters
    ----------
    words
        The task, and settings by dotted name.
    model
        A network of `kreiss list models`.
    hidden
        Size of the hidden state.
    layers
        Layers on top of one another.
    embedding
        Size of trained vectors for symbols.
    dropout
        Between layers and before the readout.
    steps
        Updates.
    epochs
        Instead of steps, where the task has a training set of fixed size.
    batch
        Sequences of an update.
    optimiser
        Its name.
    lr
        Learning rate.
    orthogonal_lr
        Learning rate of orthogonal factors.
    clip_norm
        Largest norm of all gradients together.
    schedule
        How the learning rates change.
    eval_every
        Updates between validations.
    checkpoint_every
        Updates between checkpoints; by default one a minute and with every validation.
    patience
        Stop after so many validations without improvement.
    precision
        Of autocast; constraints are kept in float32.
    device
        cpu, cuda, cuda:1.
    seed
        Of initial values, training data and dropout.
    on_nan
        Stop, or skip the update, when a loss or gradient is not finite.
    track
        Other programs that get the records too.
    preset
        Settings of `kreiss list presets` to start from.
    config
        A YAML or TOML file of settings with the same names.
    out
        Folder of the run; by default a new one in runs/.
    resume
        Folder of a run to go on with, instead of a task.
    quiet
        Say nothing.
    json
        Say everything as JSON lines.
    """
    settings: dict[str, Any] = {
        "model": model, "hidden": hidden, "layers": layers, "embedding": embedding, "dropout": dropout, "steps": steps,
        "epochs": epochs, "batch": batch, "optimiser": optimiser, "lr": lr, "orthogonal_lr": orthogonal_lr,
        "clip_norm": clip_norm, "schedule": schedule, "eval_every": eval_every, "checkpoint_every": checkpoint_every,
        "patience": patience, "precision": precision, "device": device, "seed": seed, "on_nan": on_nan, "track": track,
    }  # fmt: skip
    return _train(words, settings, preset, config, out, resume, _show(quiet, json))


def _train(
    words: tuple[str, ...],
    settings: dict[str, Any],
    preset: str | None,
    file: Path | None,
    out: Path | None,
    taken_up: Path | None,
    show: str,
) -> int:
    from kreiss.training import config as settings_of
    from kreiss.training import fitting
    from kreiss.training.building import make_network, make_task
    from kreiss.training.presets import preset_named

    named, dotted = settings_of.words(words)
    given = {**{name: value for name, value in settings.items() if value is not None}, **dotted}
    if taken_up is not None:
        return _ended(fitting.resume(taken_up, given, show=show))
    sources = [preset_named(preset, given)] if preset else []
    sources += [settings_of.read_settings(file)] if file else []
    config = settings_of.resolved(*sources, {"task": _only(named)} if named else {}, given)
    task = make_task(config)
    network = make_network(config, task)
    return _ended(fitting.run(config, out or new_folder(config.task.name, config.model.name), network, task, show=show))


def resume(
    run: Path,
    *words: Changes,
    checkpoint: Literal["last", "previous"] = "last",
    repair: Flag = False,
    quiet: Flag = False,
    json: Flag = False,
) -> int:
    """Continue a run that was interrupted or killed, as if nothing had happened.

    A run that was killed before its first checkpoint starts again. Task, model, seed, batch and the optimiser's name
    stay as they are.

    Parameters
    ----------
    run
        Its folder.
    words
        Settings that are to be different from now on, such as --steps 3000 or --lr 1e-4.
    checkpoint
        The one to continue from.
    repair
        Leave out records that are damaged, and take settings that are from the checkpoint.
    quiet
        Say nothing.
    json
        Say everything as JSON lines.
    """
    from kreiss.training import config as settings_of
    from kreiss.training import fitting

    named, given = settings_of.words(words)
    if named:
        from kreiss.errors import InputError

        raise InputError(f"`kreiss resume` takes one run; got {named[0]!r} too. Write settings as --name value.")
    return _ended(fitting.resume(run, given, which=checkpoint, repair=repair, show=_show(quiet, json)))


def evaluate(
    model: Path,
    *words: Words,
    split: Literal["valid", "test"] = "test",
    batch: Positive = 100,
    json: Flag = False,
) -> int:
    """Measure a trained network on held-out data.

    kreiss eval RUN
    kreiss eval RUN --task.delay 400
    kreiss eval model.safetensors copy --task.delay 200

    Parameters
    ----------
    model
        The folder of a run, whose best validation is taken, or a file of `kreiss.save`.
    words
        The task and its options; by default those of the run.
    split
        The held-out set.
    batch
        Sequences at a time; the result does not depend on it.
    json
        Print JSON.
    """
    from json import dumps

    from kreiss.training import config as settings_of
    from kreiss.training import evaluate as measured
    from kreiss.training import provenance
    from kreiss.training.building import make_task
    from kreiss.training.record import is_run
    from kreiss.training.record import settings_of as settings_of_run
    from kreiss.training.saving import load

    named, given = settings_of.words(words)
    network = load(model)
    sources = [settings_of_run(model)] if is_run(model) else []
    config = settings_of.resolved(*sources, {"task": _only(named)} if named else {}, given)
    if is_run(model):
        provenance.check_there(model, config)
    task = make_task(config)
    if is_run(model):
        _check_data(model, task, chosen={"task.name": named, **settings_of.dotted(given)})
    metrics, without = measured(network, task, split, batch=batch), task.baseline()
    if json:
        print(dumps({"split": split, **metrics}))
        return 0
    for name, value in metrics.items():
        print(f"{split} {name} {value:.6g}" + (f"  (without memory {without[name]:.6g})" if name in without else ""))
    return 0


# ---------------------------------------------------------------- parts


def _check_data(run: Path, task: Any, chosen: dict[str, Any]) -> None:
    """Data must be those of the run, unless others were named; then a line says that they are others."""
    from kreiss.training import provenance
    from kreiss.training.identity import ABOUT, read_document

    about = read_document(run / ABOUT)
    if any(chosen.get(f"task.{name}") for name in ("name", *task.paths)):
        if differs := provenance.has_other_data(about, task):
            print(f"these are not the data that {run} was trained on: {differs}", file=sys.stderr)
    else:
        provenance.check_same(run, task, about)


def _show(quiet: bool, json: bool) -> str:
    return "json" if json else "quiet" if quiet else "auto"


def _only(named: list[str]) -> str:
    from kreiss.errors import InputError

    if len(named) > 1:
        raise InputError(f"there must be one task; got {' '.join(named)!r}. Write settings as --name value.")
    return named[0]


def new_folder(*parts: str) -> Path:
    """A folder in runs/ that is not there yet."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from kreiss.errors import InputError

        raise InputError("several processes must write to one folder; got none. Name it with --out.")
    stem = "-".join([*parts, time.strftime("%Y%m%d-%H%M%S")])
    names = [stem, *(f"{stem}-{number}" for number in range(2, 1000))]
    return next(path for path in (Path("runs") / name for name in names) if not path.exists())


def _ended(run: Any) -> int:
    return 130 if run.state == "interrupted" else 0

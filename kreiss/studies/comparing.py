"""`kreiss compare` and `kreiss train --seeds`: networks on one task, tuned alike, several seeds of each side by side.

Every run has a folder of its own, which is all that a report needs. Runs that are there are kept, interrupted ones
resumed; the same command with more seeds or models adds what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from kreiss import own
from kreiss.errors import InputError, RunError, check_name
from kreiss.networks.building import class_named, make_network, network_named
from kreiss.networks.sizing import closest
from kreiss.settings import Config
from kreiss.studies.jobs import Job, key_of
from kreiss.studies.places import Place, ray_at
from kreiss.studies.reproducing import make
from kreiss.studies.results import is_result
from kreiss.studies.searching import choices
from kreiss.studies.sweeping import Sweep, sweep_here, sweep_on_ray
from kreiss.tasks import Problem
from kreiss.training.config import current_name, dotted, plain, resolved, written
from kreiss.training.planning import make_network as make_checked
from kreiss.training.planning import make_task, planned
from kreiss.training.record import is_run, read_config, read_status

EQUAL = ("units", "parameters")
SEARCH_SEED = 10_000  # of the trials of a search: not one of the seeds that are compared
TOO_LARGE = 1.25  # times the parameters of the first network; a smallest size above this is no match


def candidates(models: Sequence[str], settings: Mapping[str, Any], equal: str = "units") -> dict[str, Config]:
    """The settings of every network by name.

    Args:
        models: names of networks; the first sets the number of parameters.
        settings: of all; those of a model apply to the networks that have them.
        equal: "units", the same hidden size, or "parameters", the hidden size closest to the first in parameters.
    """
    check_name("equal", equal, EQUAL)
    if not models or "" in models or len(set(models)) < len(models):
        raise InputError(
            f"models must be different names; got {', '.join(models) or 'none'}. Write --models nnrnn,exprnn,lstm."
        )
    chosen = dotted(settings)
    chosen.pop("model.name", None)
    check_had([name for name in chosen if name.startswith("model.")], models)
    configs = {}
    for model in models:
        mine = {name: value for name, value in chosen.items() if has(model, name)}
        configs[model] = resolved(mine, {"model": model})
    task = make_task(configs[models[0]])
    if equal == "parameters":
        configs = matched(configs, task)
    for config in configs.values():
        make_checked(config, task)  # raises for a model that does not fit the task
    return {model: planned(config, task) for model, config in configs.items()}


def has(model: str, name: str) -> bool:
    """Whether a model has a setting; all have those that are not of a model."""
    network = network_named(model)
    section, _, key = name.partition(".")
    return section != "model" or key in network.Settings.model_fields or key in network.options(model)


def check_had(names: Sequence[str], models: Sequence[str]) -> None:
    """Raise for a setting of models that none of them has."""
    for name in names:
        if not any(has(model, name) for model in models):
            raise InputError(
                f"`{name}` must be a setting of at least one of the models; got {', '.join(models)}, none of which has "
                f"it. `kreiss show {models[0]}` lists those of the first."
            )


# ---------------------------------------------------------------- equal parameters


def parameters(config: Config, task: Problem) -> int:
    """The number of trained parameters of a network."""
    place = "meta" if own.is_ours(class_named(config.model.name)) else "cpu"
    with torch.device(place):
        network = make_network(config.model, task, 0)
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


def matched(configs: dict[str, Config], task: Problem) -> dict[str, Config]:
    """The settings with the hidden sizes at which all networks have about as many parameters as the first."""
    budget = parameters(next(iter(configs.values())), task)
    return {name: _matched(name, config, budget, task) for name, config in configs.items()}


def _matched(name: str, config: Config, budget: int, task: Problem) -> Config:
    if "hidden" not in type(config.model).model_fields:
        raise InputError(
            f"a network must have a hidden size to be matched in parameters; got {name}, which has none. Leave it out, "
            "or compare at --equal units."
        )

    def sized(hidden: int) -> Config:
        return config.model_copy(update={"model": config.model.model_copy(update={"hidden": hidden})})

    found = sized(closest(lambda hidden: parameters(sized(hidden), task), budget))
    if (count := parameters(found, task)) > TOO_LARGE * budget:
        raise InputError(
            f"a network must have a size with about the {budget:,} parameters of the first; got {name}, which has at "
            f"least {count:,}. Raise --hidden, or leave it out."
        )
    return found


# ---------------------------------------------------------------- tuning


def check_free(words: Sequence[str], equal: str) -> None:
    """Raise if a search would change the hidden sizes that were made equal, or the networks and seeds themselves."""
    searched = choices(words)
    for name in ("model.name", "task.name", "seed"):
        if name in searched:
            raise InputError(
                f"`{name}` must be the same in all trials of a network; got a search for it. Leave it out."
            )
    if "model.hidden" in searched and equal == "parameters":
        raise InputError(
            "`hidden` must follow from the parameters where these are made equal; got a search for it. Leave out one."
        )


def searches(configs: Mapping[str, Config], words: Sequence[str], folder: Path) -> dict[str, Sweep]:
    """A search for every network, over those settings in `words` that it has; all start alike."""
    names = {word: next(iter(choices([word]))) for word in words}
    choices(words)  # raises for a setting that is there twice
    check_had(list(names.values()), list(configs))
    found = {}
    for model, config in configs.items():
        settings = {**dotted(plain(config)), "seed": SEARCH_SEED}
        mine = tuple(word for word, name in names.items() if has(model, name))
        if mine:
            found[model] = Sweep("", "", "", settings, folder / folder_name(model), mine)
            found[model].check()
    return found


def tuned(
    configs: Mapping[str, Config], searches: Mapping[str, Sweep], trials: int, jobs: int, ray: str | None, say: Console
) -> dict[str, Config]:
    """The settings with the best of each search; every network has as many trials as any other."""

    def search(item: tuple[str, Sweep]) -> tuple[str, Config]:
        name, sweep = item
        study = sweep_here(sweep, trials, 1) if ray is None else sweep_on_ray(sweep, trials, 1, ray)
        if not any(trial.state.name == "COMPLETE" for trial in study.trials):
            raise RunError(f"at least one trial of {name} must be complete; got none. Raise --trials.")
        best = sweep.config(study.best_params).model_copy(update={"seed": configs[name].seed})
        (sweep.folder / "best.yaml").write_text(written(best))
        values = ", ".join(f"{current_name(key)} {_shown(value)}" for key, value in study.best_params.items())
        say.print(f"{name}: best of {trials} trials {study.best_value:.4g} with {values}", markup=False)
        return name, best

    if ray is not None:
        ray_at(ray)  # before threads, each of which would start a cluster
    with ThreadPoolExecutor(jobs) as pool:
        found = dict(pool.map(search, searches.items()))
    return {name: found.get(name, config) for name, config in configs.items()}


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------- runs


def folder_name(model: str) -> str:
    """A model's name as that of a folder."""
    return model.replace(":", "-")


def seeded(configs: Mapping[str, Config], seeds: int, *, apart: bool = True) -> list[Job]:
    """Runs of every network with seeds from that of its settings on, seed by seed, so that all have results early.

    Args:
        configs: settings by name.
        seeds: how many.
        apart: whether the folders seed-N of each network are in one of its own.
    """
    return [
        Job(
            name,
            config.model_copy(update={"seed": seed}),
            f"{folder_name(name)}/seed-{seed}" if apart else f"seed-{seed}",
        )
        for number in range(seeds)
        for name, config in configs.items()
        for seed in [config.seed + number]
    ]


def make_seeds(jobs: list[Job], place: Place, runs: Path, metric: str, console: Console) -> list[Path]:
    """Execute runs, resume interrupted ones, keep finished ones; returns their folders."""
    for job in jobs:
        if is_run(runs / job.key) and key_of(read_config(runs / job.key)) != key_of(job.config):
            raise InputError(
                f"`out` must be a new folder or that of the same command; got {runs / job.key}, a run with other "
                "settings. Choose another folder."
            )
    missing = [job for job in jobs if not is_result(read_status(runs / job.key))]
    done = len(jobs) - len(missing)
    console.print(f"{len(jobs)} runs, {done} done, {len(missing)} to make", markup=False)
    make(missing, place, runs, str(runs), metric, console)
    return [runs / job.key for job in jobs]

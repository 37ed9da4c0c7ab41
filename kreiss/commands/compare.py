"""`kreiss compare`, and several seeds of `kreiss train`: networks side by side, one table, one figure, one page."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from kreiss.commands.words import Flag, Positive, Search, Trust, Words, may_import, new_folder, only_task, remember


def compare(
    *words: Words,
    models: str,
    seeds: Positive = 5,
    equal: str = "units",
    search: Search = None,
    trials: Positive = 8,
    jobs: Positive | None = None,
    ray: str | None = None,
    preset: str | None = None,
    config: Path | None = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    trust: Trust = None,
    quiet: Flag = False,
) -> int:
    """Compare networks on a task: the same tuning for each, several seeds, one table, one figure, one page.

    kreiss compare copy --models nnrnn,exprnn,lstm,my.module:Net --seeds 5 --equal parameters --task.delay 100

    kreiss compare copy --models nnrnn,lstm --search lr=1e-4..1e-1 --trials 8 --out COMPARISON

    Settings are those of `kreiss train` and apply to all networks; one that only some have, such as --model.blocks,
    applies to those. Rerun the command with the same --out to resume it, or with more seeds or models to add them.

    Parameters
    ----------
    words
        Task, and settings by name.
    models
        Networks, with commas between them: names from `kreiss list models`, or package.module:Class of your own.
    seeds
        Runs of every network.
    equal
        units: the same hidden size for all; parameters: the hidden size closest to the first in trained parameters.
    search
        Settings to tune before, for each network as many trials: lr=1e-4..1e-1 hidden=64,128,256.
    trials
        Trials of every network.
    jobs
        Runs at a time, each in a process with one thread; by default one per core.
    ray
        Address of a Ray cluster to run on ("local" starts one here; extra `ray`).
    preset
        Published settings to start from; `kreiss list presets` lists them.
    config
        YAML or TOML file of settings.
    out
        Folder of the comparison; by default a new one in runs/.
    trust
        Module of your own that a file of settings names.
    quiet
        Print the table alone.
    """
    from rich.console import Console

    from kreiss import own
    from kreiss.studies import comparing
    from kreiss.tasks import task_named
    from kreiss.training import config as configuration

    named, chosen = configuration.words(words)
    names = [name.strip() for name in models.split(",")]
    may_import([*(trust or []), *(name for name in names if own.is_own(name))], only_task(named), chosen)
    settings: dict[str, Any] = {}
    for source in (*sources(preset, config, chosen), only_task(named), chosen):
        settings.update(configuration.dotted(source))
    configs = comparing.candidates(names, settings, equal)
    comparing.check_free(search or [], equal)
    task = next(iter(configs.values())).task.name
    folder = out or new_folder("compare", task)
    if out is not None:
        remember(out)
    searches = comparing.searches(configs, search or [], folder / "search")
    say = Console(soft_wrap=True, highlight=False, quiet=quiet)
    say.print(f"{folder}: rerun the command with --out {folder} to resume", markup=False)
    if searches:
        configs = comparing.tuned(configs, searches, trials, jobs or cores(), ray, say)
    runs = comparing.make_seeds(
        comparing.seeded(configs, seeds), place(jobs, ray), folder / "runs", task_named(task).metric, say
    )
    return show(runs, folder)


def train_seeds(config: Any, seeds: int, jobs: int | None, folder: Path, quiet: bool) -> int:
    """Several seeds of one network, each a run in `folder`."""
    from rich.console import Console

    from kreiss.studies import comparing
    from kreiss.tasks import task_named

    say = Console(soft_wrap=True, highlight=False, quiet=quiet)
    runs = comparing.seeded({config.model.name: config}, seeds, apart=False)
    folders = comparing.make_seeds(runs, place(jobs, None), folder, task_named(config.task.name).metric, say)
    if not quiet:
        return show(folders, folder)
    return 0


def show(runs: list[Path], folder: Path) -> int:
    """Print the table of runs, and write it, the curves and a page into a folder."""
    from kreiss.errors import MissingExtra
    from kreiss.report import own
    from kreiss.report.experiments import curves, write
    from kreiss.report.style import save
    from kreiss.storage.files import write_whole

    (comparison,) = own.compare_runs(runs)
    write_whole(folder / "table.md", own.markdown(comparison).encode())
    write_whole(folder / "table.tex", own.latex(comparison).encode())
    print(own.markdown(comparison))
    try:
        save(curves(comparison, own.drawn(comparison)), folder / "curves")
        page = write([comparison], folder / "index.html", folder)
        print(f"{folder}: table.md, table.tex, curves.svg, curves.png, {page.name}")
    except MissingExtra as error:
        print(f"{folder}: table.md, table.tex; no figure: {error}")
    return 0


# ---------------------------------------------------------------- parts


def sources(preset: str | None, config: Path | None, chosen: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The settings of a preset and of a file."""
    from kreiss.training.config import read_settings
    from kreiss.training.presets import preset_named

    found: list[Mapping[str, Any]] = [preset_named(preset, chosen)] if preset else []
    return [*found, read_settings(config)] if config else found


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def place(jobs: int | None, ray: str | None) -> Any:
    """Where runs are executed: on all cores, or on a cluster."""
    from kreiss.studies.places import Here, OnRay

    return Here(jobs or cores()) if ray is None else OnRay(ray)

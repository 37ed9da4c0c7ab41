"""`kreiss reproduce`, `kreiss report` and `kreiss sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from kreiss.commands.words import Changes, Flag, Positive
from kreiss.errors import InputError, MissingExtra, RunError, check_name


def reproduce(
    name: str,
    *words: Changes,
    scale: str = "laptop",
    only: list[str] | None = None,
    seeds: Positive | None = None,
    jobs: Positive = 1,
    ray: str | None = None,
    again: Flag = False,
    results: Path = Path("results/experiments"),
    runs: Path = Path("runs/experiments"),
) -> int:
    """Run what is missing of a table or figure; what is done stays, what was interrupted or killed goes on.

    kreiss reproduce 001/table1 --scale laptop --only "nnrnn*" --only "exprnn*" --seeds 3 --jobs 2

    Results are keyed by the settings of each run, so a changed setting is a new run. `kreiss report` shows them.

    Parameters
    ----------
    name
        An experiment of `kreiss list presets`, or one of its rows.
    words
        Settings that are to be different, such as --task.path FOLDER.
    scale
        paper, laptop, smoke, or another of the experiment's: a named difference from the published set-up.
    only
        Names or patterns of rows; all by default.
    seeds
        Runs of every row; 3 by default, and as many as in the paper at its scale.
    jobs
        Runs at a time, each a process with one thread.
    ray
        Address of a Ray cluster to run on instead ("local" starts one here; extra `ray`).
    again
        Make runs again that diverged.
    results
        Folder of results, one small file for each experiment.
    runs
        Folder of the runs with their checkpoints.
    """
    from kreiss.experiments import EXPERIMENTS, experiment
    from kreiss.studies.places import Here, OnRay, Place
    from kreiss.studies.reproducing import reproduce as all_of
    from kreiss.training import config as settings_of

    if name not in EXPERIMENTS and name.rpartition("/")[0] in EXPERIMENTS:
        name, _, row = name.rpartition("/")
        only = [row]
    made = experiment(name)
    named, changes = settings_of.words(words)
    if named:
        raise InputError(
            f"`kreiss reproduce` takes one experiment; got {named[0]!r} too. Write settings as --name value."
        )
    place: Place = Here(jobs) if ray is None else OnRay(ray)
    count = seeds or (made.seeds if scale == "paper" else 3)
    all_of(
        made, scale, place, seeds=count, only=tuple(only or ()), changes=changes, folder=results, runs=runs, again=again
    )
    return 0


def report(
    *names: str,
    scale: str | None = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    markdown: Flag = False,
    fill: list[Path] | None = None,
    results: Path = Path("results/experiments"),
    runs: Path = Path("runs/experiments"),
) -> int:
    """Show what was reproduced beside the papers: one HTML file, Markdown tables, or tables inside a page.

    kreiss report 001/table1 -o report.html

    Parameters
    ----------
    names
        Experiments, or folders of runs; by default every experiment of which something was run.
    scale
        Only this scale; by default each at which something was run.
    output
        The HTML file; report.html by default. It needs nothing beside it.
    markdown
        Print Markdown tables instead.
    fill
        Rewrite the tables between the marks of these pages: <!-- kreiss report 001/table1 laptop --> up to
        <!-- end of report -->; `summary` makes one table over all, `of nnrnn` one of all that a model was run on.
    results
        Folder of results.
    runs
        Folder of the runs, from which learned structure is drawn.
    """
    from kreiss.report import tables
    from kreiss.studies.results import read_all

    known = read_all(results)
    if fill:
        for path in fill:
            tables.fill(path, lambda words: between_marks(words, known))
            print(path)
        return 0
    found = _comparisons(names, scale, known)
    if markdown:
        print("\n".join(tables.table(one) for one in found))
        return 0
    from kreiss.report import experiments

    print(experiments.write(found, output or Path("report.html"), runs))
    return 0


def between_marks(words: Any, known: dict[str, Any]) -> str:
    """What stands in a page for the words of a mark: `summary`, `of` and models, or an experiment and a scale."""
    from kreiss.experiments import experiment
    from kreiss.report.comparison import compare
    from kreiss.report.summary import of_models, summary
    from kreiss.report.tables import table

    name, *rest = words
    if name == "summary":
        return summary(known)
    return of_models(rest, known) if name == "of" else table(compare(experiment(name), (*rest, "laptop")[0], known))


def _comparisons(names: tuple[str, ...], scale: str | None, known: dict[str, Any]) -> list[Any]:
    """Experiments at scales at which something was run, or at the one asked for; and runs by their folders."""
    from kreiss.experiments import EXPERIMENTS, experiment
    from kreiss.report.comparison import compare, compare_runs

    folders = [Path(name) for name in names if name not in EXPERIMENTS and Path(name).is_dir()]
    chosen = [name for name in names if Path(name) not in folders] or ([] if folders else list(EXPERIMENTS))
    found = [compare_runs(folders)] if folders else []
    for name in chosen:
        made = experiment(name)
        if scale is not None and names:
            check_name("scale", scale, made.scales)
        at = [compare(made, one, known) for one in made.scales if scale in (None, one)]
        some = {one.keys: one for one in reversed(at) if one.run}  # once, where two scales are the same set-up
        found += reversed(some.values()) if some else [at[0]] if names else []
    if not found:
        raise InputError("there must be results to report; got none. Make some with `kreiss reproduce`.")
    return found


def sweep(
    preset: str,
    *words: Changes,
    out: Path,
    scale: str = "laptop",
    grid: str = "nnrnn",
    trials: Positive = 30,
    workers: Positive = 1,
    ray: str | None = None,
) -> int:
    """Search settings of a row of an experiment (extra `sweep`); killed, the same command goes on.

    kreiss sweep 001/table1/nnrnn-150 --grid nnrnn --trials 40 --workers 2 --out SWEEP

    Trials that fall behind the median of the others at a validation are given up. The folder gets a journal, the best
    settings as best.yaml, and a picture of all trials.

    Parameters
    ----------
    preset
        A row of `kreiss list presets`.
    words
        Settings that are to be different in all trials, such as --steps 200.
    out
        Folder of the search.
    scale
        At which the row is run.
    grid
        What may be chosen: nnrnn or enrnn, the grids of the papers; rates, seven learning rates.
    trials
        How many, those before included.
    workers
        At a time, each a process with one thread.
    ray
        Address of a Ray cluster to run on instead ("local" starts one here; extra `ray`).
    """
    from kreiss.studies import sweeping
    from kreiss.training import config as settings_of

    _, changes = settings_of.words(words)
    search = sweeping.Sweep(preset, scale, grid, settings_of.dotted(changes), out)
    if ray is None:
        study = sweeping.sweep_here(search, trials, workers)
    else:
        study = sweeping.sweep_on_ray(search, trials, workers, ray)
    return _searched(study, search)


def _searched(study: Any, search: Any) -> int:
    from kreiss.report.sweeps import parallel_coordinates
    from kreiss.training.config import written

    states = [trial.state.name.lower() for trial in study.trials]
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    if "complete" not in states:
        raise RunError(f"a trial must be completed for there to be a best; got {counted}. Ask for more --trials.")
    (search.folder / "best.yaml").write_text(written(search.config(study.best_params)))
    print(f"{counted}; best {study.best_value:.6g}")
    for name, value in study.best_params.items():
        print(f"  --{name.replace('_', '-')} {value}")
    try:
        print(parallel_coordinates(study.trials, search.folder / "trials"))
    except MissingExtra as error:
        print(f"no picture: {error}")
    return 0

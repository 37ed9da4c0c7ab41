"""`kreiss reproduce`, `kreiss report` and `kreiss sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from kreiss.commands.words import (
    Changes,
    Flag,
    Positive,
    RareFolder,
    RareText,
    Search,
    Trust,
    TrustAny,
    may_import,
)
from kreiss.errors import InputError, MissingExtra, RunError, check_name


def reproduce(
    name: str,
    *words: Changes,
    scale: str = "laptop",
    only: list[str] | None = None,
    seeds: Positive | None = None,
    jobs: Positive = 1,
    threads: Positive = 1,
    ray: RareText = None,
    again: Flag = False,
    trust: Trust = None,
    results: RareFolder = Path("results/experiments"),
    runs: RareFolder = Path("runs/experiments"),
) -> int:
    """Run what is missing of a table or figure; interrupted and killed runs are resumed.

    kreiss reproduce 001/table1 --scale laptop --only "nnrnn*" --only "exprnn*" --seeds 3 --jobs 2

    Results are keyed by the settings of each run, so a changed setting is a new run. `kreiss report` shows them.

    Parameters
    ----------
    name
        Experiment from `kreiss list presets`, or one of its rows.
    words
        Settings to change, such as --task.path FOLDER.
    scale
        Scale of the experiment: paper, the published set-up; laptop, smoke or another, a named difference from it.
    only
        Names or patterns of rows to run; all by default.
    seeds
        Runs per row; default 3, at scale paper as many as in the paper.
    jobs
        Runs at a time, each in a process of its own.
    threads
        Threads of each run. Many small runs are faster with one; a single large one is not.
    ray
        Address of a Ray cluster to run on ("local" starts one here; extra `ray`), with one thread for each run.
    again
        Rerun runs that diverged.
    trust
        Module of your own that changed settings name; --model and --task may themselves be package.module:Class.
    results
        Folder of results, one small file per experiment.
    runs
        Folder of the runs and their checkpoints.
    """
    from kreiss.experiments import EXPERIMENTS
    from kreiss.experiments import experiment as experiment_named
    from kreiss.studies.places import Here, OnRay, Place
    from kreiss.studies.reproducing import reproduce as all_of
    from kreiss.training import config as settings_of

    if name not in EXPERIMENTS and name.rpartition("/")[0] in EXPERIMENTS:
        name, _, row = name.rpartition("/")
        only = [row]
    experiment = experiment_named(name)
    named, changes = settings_of.words(words)
    if named:
        raise InputError(
            f"`kreiss reproduce` takes one experiment; got {named[0]!r} too. Write settings as --name value."
        )
    may_import(trust, changes)
    if ray is not None and threads > 1:
        raise InputError(
            f"`threads` must be 1 on a Ray cluster, which gives each run one processor; got {threads}. Leave it out."
        )
    place: Place = Here(jobs, threads) if ray is None else OnRay(ray)
    count = seeds or (experiment.seeds if scale == "paper" else 3)
    all_of(
        experiment, scale, place,
        seeds=count, only=tuple(only or ()), changes=changes, folder=results, runs=runs, again=again,
    )  # fmt: skip
    return 0


def report(
    *names: str,
    scale: str | None = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    markdown: Flag = False,
    latex: Flag = False,
    fill: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    trust: TrustAny = None,
    results: RareFolder = Path("results/experiments"),
    runs: RareFolder = Path("runs/experiments"),
) -> int:
    """Compare results with those of the papers, or your own runs: one HTML file, Markdown or LaTeX tables.

    kreiss report 001/table1 -o report.html

    kreiss report runs/mine runs/theirs -o report.html

    Parameters
    ----------
    names
        Experiments, or runs and folders of runs, whose seeds are put together; by default every experiment with
        results.
    scale
        Scale to report; by default every scale with results.
    output
        Self-contained HTML file to write; default report.html.
    markdown
        Print Markdown tables instead.
    latex
        Print LaTeX tables of your own runs instead.
    fill
        Rewrite the tables of these pages, each between `<!-- kreiss report 001/table1 laptop -->` and
        `<!-- end of report -->`; `summary` gives one table of all experiments, `of nnrnn` one of all runs of a model,
        `headline` the numbers of the README's first screen.
    trust
        Module of your own that networks are from, for plots of learned structure; tables and curves need none.
    results
        Folder of results.
    runs
        Folder of the runs, for plots of learned structure.
    """
    from kreiss.report import tables
    from kreiss.studies.results import read_all

    may_import(trust)
    known = read_all(results)
    if fill:
        for path in fill:
            tables.fill(path, lambda words: between_marks(words, known))
            print(path)
        return 0
    comparisons = _comparisons(names, scale, known)
    if latex or markdown:
        print("\n".join(_text(comparison, latex) for comparison in comparisons))
        return 0
    from kreiss.report import experiments

    print(experiments.write(comparisons, output or Path("report.html"), runs))
    return 0


def _text(comparison: Any, latex: bool) -> str:
    """A comparison as a table in LaTeX or Markdown."""
    from kreiss.report import own, tables

    if comparison.scale == own.OWN:
        return own.latex(comparison) if latex else own.markdown(comparison)
    if latex:
        raise InputError(
            f"`latex` must be asked of your own runs; got the experiment {comparison.made.name}. Use --markdown for it."
        )
    return tables.table(comparison)


def between_marks(words: Any, known: dict[str, Any]) -> str:
    """What stands at a marker: `headline`, `summary`, `of` and models, or an experiment and a scale."""
    from kreiss.experiments import experiment
    from kreiss.report.comparison import compare
    from kreiss.report.summary import headline, of_models, summary
    from kreiss.report.tables import table

    name, *rest = words
    if name == "headline":
        return headline(known)
    if name == "summary":
        return summary(known)
    return of_models(rest, known) if name == "of" else table(compare(experiment(name), (*rest, "laptop")[0], known))


def _comparisons(names: tuple[str, ...], scale: str | None, known: dict[str, Any]) -> list[Any]:
    """Comparisons of experiments at every scale with results, or at `scale`, and of runs by folder."""
    from kreiss.experiments import EXPERIMENTS
    from kreiss.experiments import experiment as experiment_named
    from kreiss.report.comparison import compare
    from kreiss.report.own import compare_runs

    folders = [Path(name) for name in names if name not in EXPERIMENTS and Path(name).is_dir()]
    chosen = [name for name in names if Path(name) not in folders] or ([] if folders else list(EXPERIMENTS))
    comparisons = compare_runs(folders) if folders else []
    for name in chosen:
        experiment = experiment_named(name)
        if scale is not None and names:
            check_name("scale", scale, experiment.scales)
        at = [compare(experiment, level, known) for level in experiment.scales if scale in (None, level)]
        some = {result.keys: result for result in reversed(at) if result.run}  # equal scales once
        comparisons += reversed(some.values()) if some else [at[0]] if names else []
    if not comparisons:
        raise InputError("there must be results to report; got none. Run `kreiss reproduce` first.")
    return comparisons


def sweep(
    name: str,
    *words: Changes,
    out: Path,
    search: Search = None,
    scale: str = "laptop",
    grid: str | None = None,
    trials: Positive = 30,
    workers: Positive = 1,
    ray: RareText = None,
    trust: Trust = None,
) -> int:
    """Search settings of any network on any task (extra `sweep`); rerun the command to resume.

    kreiss sweep copy --model nnrnn --search lr=1e-4..1e-1 hidden=64,128,256 --trials 40 --workers 2 --out SWEEP

    kreiss sweep 001/table1/nnrnn-150 --grid nnrnn --trials 40 --workers 2 --out SWEEP

    Trials that fall behind the median of the others at a validation are pruned. The folder holds a journal, the best
    settings as best.yaml, and a plot of all trials.

    Parameters
    ----------
    name
        Task from `kreiss list tasks` or package.module:Class of your own; or a row from `kreiss list presets`.
    words
        Settings of all trials, such as --model lstm or --steps 200.
    out
        Folder of the search.
    search
        Values to try: a range lr=1e-4..1e-1, logarithmic where it is positive, or a list hidden=64,128,256.
    scale
        Scale at which a row is run.
    grid
        Values to try besides: nnrnn or enrnn, the grids of the papers; rates, seven learning rates. Default for a row
        without --search: nnrnn.
    trials
        Number of trials, including those already in the folder.
    workers
        Trials at a time, each in a process with one thread.
    ray
        Address of a Ray cluster to run on ("local" starts one here; extra `ray`).
    trust
        Module of your own that --model or the task is from, if neither names it.
    """
    from kreiss.studies import sweeping
    from kreiss.training import config as settings_of

    named, changes = settings_of.words(words)
    if named:
        raise InputError(f"`kreiss sweep` takes one task; got {named[0]!r} too. Write settings as --name value.")
    row = _is_row(name)
    start = {} if row else {"task": name}
    may_import(trust, start, changes)
    changes = settings_of.dotted({**start, **changes})
    values = grid if grid is not None else "nnrnn" if row and not search else ""
    chosen = sweeping.Sweep(name if row else "", scale if row else "", values, changes, out, tuple(search or ()))
    if ray is None:
        study = sweeping.sweep_here(chosen, trials, workers)
    else:
        study = sweeping.sweep_on_ray(chosen, trials, workers, ray)
    return _searched(study, chosen)


def _is_row(name: str) -> bool:
    """Whether a name is of a row, and not of a task; an error with the closest of either if it is neither."""
    from kreiss import own
    from kreiss.experiments import names
    from kreiss.tasks import TASKS

    if name in TASKS or own.is_own(name):
        return False
    check_name("task", name, TASKS if "/" not in name else names())
    return True


def _searched(study: Any, search: Any) -> int:
    from kreiss.report.sweeps import parallel_coordinates
    from kreiss.training.config import current_name, written

    states = [trial.state.name.lower() for trial in study.trials]
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    if "complete" not in states:
        raise RunError(f"at least one trial must be complete; got {counted}. Raise --trials.")
    (search.folder / "best.yaml").write_text(written(search.config(study.best_params)))
    print(f"{counted}; best {study.best_value:.6g}")
    for name, value in study.best_params.items():
        print(f"  --{current_name(name).replace('_', '-')} {value}")
    try:
        print(parallel_coordinates(study.trials, search.folder / "trials"))
    except MissingExtra as error:
        print(f"no plot: {error}")
    return 0

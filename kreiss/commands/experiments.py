"""`kreiss reproduce`."""

from __future__ import annotations

from pathlib import Path


from kreiss.commands.train import Changes, Flag, Positive


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
        Make runs again that failed.
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
        from kreiss.errors import InputError

        raise InputError(
            f"`kreiss reproduce` takes one experiment; got {named[0]!r} too. Write settings as --name value."
        )
    place: Place = Here(jobs) if ray is None else OnRay(ray)
    count = seeds or (made.seeds if scale == "paper" else 3)
    all_of(
        made, scale, place, seeds=count, only=tuple(only or ()), changes=changes, folder=results, runs=runs, again=again
    )
    return 0

"""`kreiss sweep`: search of settings with Optuna, by several workers, in a journal that survives their being killed."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kreiss.errors import Diverged, InputError, MissingExtra, check_name
from kreiss.experiments import row as named
from kreiss.settings import Config
from kreiss.studies.grids import GRIDS
from kreiss.studies.locks import alone, journal_lock
from kreiss.studies.places import environment, ray_at
from kreiss.studies.searching import Choice, choices, ends, suggested
from kreiss.tasks import task_named
from kreiss.training.config import current_name, first_name, resolved
from kreiss.training.distributed import Processes
from kreiss.training.guard import Interruption
from kreiss.training.planning import make_network, make_task, planned
from kreiss.training.presets import without_other_length
from kreiss.training.registering import classes_of, take_over

JOURNAL, LOCK = "journal.log", "journal.lock"


@dataclass(frozen=True)
class Sweep:
    """A search.

    Args:
        preset: row of an experiment whose settings are the start; empty if `changes` are all settings.
        scale: of the experiment.
        grid: a name of `GRIDS`, or empty.
        changes: settings to change for all trials.
        folder: of the journal.
        search: settings and values that are tried beside those of the grid: ("lr=1e-4..1e-1", "hidden=64,128").
    """

    preset: str
    scale: str
    grid: str
    changes: dict[str, Any]
    folder: Path
    search: tuple[str, ...] = ()

    def settings(self) -> dict[str, Any]:
        """What all trials share."""
        if not self.preset:
            return self.changes
        experiment, row = named(self.preset)
        check_name("scale", self.scale, experiment.scales)
        return {**without_other_length(experiment.settings(row, self.scale), self.changes), **self.changes}

    def choices(self) -> dict[str, Choice]:
        """Values by setting, of those that the model has."""
        found: dict[str, Choice] = {}
        if self.grid:
            check_name("grid", self.grid, GRIDS)
            model = resolved(self.settings()).model
            found.update(GRIDS[self.grid].choices_for(model.name, model.model_dump().get("hidden", 0)))
        return {**found, **choices(self.search)}

    def config(self, chosen: dict[str, Any]) -> Config:
        """The settings of a trial, from what was chosen under today's names or those in the journal."""
        chosen = {current_name(name): value for name, value in chosen.items()}
        follows = GRIDS[self.grid].follows if self.grid else {}
        return resolved(
            self.settings(), chosen, {name: chosen[other] * share for name, (other, share) in follows.items()}
        )

    def check(self) -> Config:
        """Raise, before anything is written, for a value that a run would refuse; returns the settings of a trial."""
        tried = {name: ends(choice) for name, choice in self.choices().items()}
        if not tried:
            raise InputError("a search must try something; got no setting. Give --search lr=1e-4..1e-1, or --grid.")
        first = {name: values[0] for name, values in tried.items()}
        config = self.config(first)
        task = make_task(config)
        make_network(config, task)
        for name, values in tried.items():
            for other in (self.config({**first, name: value}) for value in values[1:]):
                if name.startswith(("task.", "model.")):  # whose values their classes check
                    make_network(other, make_task(other) if name.startswith("task.") else task)
        return config

    def described(self) -> dict[str, Any]:
        """What makes two searches the same, in JSON."""
        fields = {**asdict(self), "folder": "", "search": list(self.search)}
        return fields if self.search else {name: value for name, value in fields.items() if name != "search"}


def optuna_here() -> Any:
    """Optuna, or an error that says how to install it."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise MissingExtra("a sweep", "sweep", "optuna") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def storage_of(folder: Path) -> Any:
    """The journal in a folder, as Optuna opens it."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    folder = folder.resolve()  # Optuna's own lock cannot be freed below a relative path
    return JournalStorage(JournalFileBackend(str(folder / JOURNAL), journal_lock(folder / LOCK)))


def study_of(sweep: Sweep) -> Any:
    """The study in the journal of a sweep, created if missing; another sweep in the same folder is an error."""
    optuna = optuna_here()
    task = task_named(resolved(sweep.settings()).task.name)
    sweep.folder.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name="kreiss", storage=storage_of(sweep.folder), load_if_exists=True,
        direction="maximize" if task.higher_is_better else "minimize",
        sampler=optuna.samplers.TPESampler(constant_liar=True, n_startup_trials=5),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1),
    )  # fmt: skip
    described = sweep.described()
    if study.user_attrs.get("sweep", described) != described:
        raise InputError(
            f"`out` must be a new folder or that of the same sweep; got {sweep.folder}, which holds another. "
            "Choose another."
        )
    study.set_user_attr("sweep", described)
    return study


# ---------------------------------------------------------------- trials


def work(sweep: Sweep, trials: int) -> None:
    """Run trials until this many in the journal have ended; several workers do this at once."""
    optuna = optuna_here()
    study = study_of(sweep)
    if ended(study) >= trials:
        return
    callback = optuna.study.MaxTrialsCallback(trials, states=_ends())
    study.optimize(lambda trial: _trial(sweep, trial), callbacks=[callback], catch=())


def _ends() -> tuple[Any, Any]:
    states = optuna_here().trial.TrialState
    return states.COMPLETE, states.PRUNED


def ended(study: Any) -> int:
    """How many trials have ended."""
    return len(study.get_trials(deepcopy=False, states=_ends()))


def _give_up_lost(study: Any) -> None:
    """Trials of killed workers stay open in the journal: fail them, and queue their settings again."""
    optuna = optuna_here()
    lost = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
    for trial in lost:
        if "worker" in trial.user_attrs and not _alive(*trial.user_attrs["worker"]):
            study.enqueue_trial(trial.params)
            with contextlib.suppress(Exception):  # another worker was first
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)


def _alive(machine: str, process: int) -> bool:
    """Whether the worker of a trial may still be running; on other machines this is not known."""
    if machine != platform.node():
        return True
    try:
        os.kill(process, 0)  # signal 0 only checks
    except OSError:
        return False
    return True


def _trial(sweep: Sweep, trial: Any) -> float:
    """Train with the settings of a trial; reported at every validation, and pruned when it falls behind."""
    optuna = optuna_here()
    trial.set_user_attr("worker", (platform.node(), os.getpid()))
    chosen = {name: suggested(trial, first_name(name), choice) for name, choice in sweep.choices().items()}
    better = max if trial.study.direction == optuna.study.StudyDirection.MAXIMIZE else min
    values: list[float] = []
    for number, value in enumerate(validations(sweep.config(chosen))):
        if not math.isfinite(value):
            raise optuna.TrialPruned
        values.append(value)
        trial.report(better(values), number)
        if trial.should_prune():
            raise optuna.TrialPruned
    return better(values)


def validations(config: Config) -> Iterator[float]:
    """The metric of each validation of a run without a folder; nan once numbers are not finite."""
    import torch

    from kreiss.training.checkpoint import own_generators
    from kreiss.training.fitting import learner_for

    task = make_task(config)
    config = planned(config, task)
    device = torch.device(config.device)
    assert config.eval_every is not None
    with own_generators(config.seed, device), Interruption() as interruption:
        training = learner_for(make_network(config, task).to(device), task, config, Processes(device))
        while not training.done:
            try:
                training.update()
            except Diverged:
                yield math.nan
                return
            if interruption.asked:
                raise KeyboardInterrupt
            if training.updates % config.eval_every == 0 or training.done:
                metrics = training.evaluate("valid")
                training.observe(metrics)
                yield metrics[task.metric]


# ---------------------------------------------------------------- workers


def sweep_here(sweep: Sweep, trials: int, workers: int) -> Any:
    """The search by several processes with one thread each; returns the study."""
    classes = classes_of(sweep.check())
    take_up(sweep)
    if ended(study := study_of(sweep)) >= trials:
        return study
    described = json.dumps({**asdict(sweep), "folder": str(sweep.folder)})
    command = [sys.executable, "-m", "kreiss.studies.sweeping", described, str(trials), json.dumps(classes)]
    processes = [subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE) for _ in range(workers)]
    codes = [process.wait() for process in processes]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    if any(codes):
        raise InputError(f"{sum(map(bool, codes))} of {workers} workers ended early. Rerun the command to resume.")
    return study_of(sweep)


def take_up(sweep: Sweep) -> None:
    """Prepare the journal before the first worker starts, whatever happened to earlier ones."""
    sweep.folder.mkdir(parents=True, exist_ok=True)
    with alone(sweep.folder / LOCK):
        end_torn_line(sweep.folder / JOURNAL)
    _give_up_lost(study_of(sweep))


def end_torn_line(path: Path) -> None:
    """Remove a partial last line that a killed worker left; the caller holds the lock."""
    if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)


def sweep_on_ray(sweep: Sweep, trials: int, workers: int, address: str) -> Any:
    """The same search on a Ray cluster, whose machines share the folder; Ray decides what runs where."""
    classes = classes_of(sweep.check())
    ray = ray_at(address)
    take_up(sweep)
    if ended(study := study_of(sweep)) >= trials:
        return study
    make = ray.remote(num_cpus=1)(work_elsewhere)
    path = [os.path.abspath(place) for place in sys.path]
    ray.get([make.remote(sweep, trials, classes, path) for _ in range(workers)])
    return study_of(sweep)


def work_elsewhere(sweep: Sweep, trials: int, classes: dict[str, str], path: list[str]) -> None:
    """`work` in a process that knows neither the classes of the user's own nor where they are."""
    sys.path += [place for place in path if place not in sys.path]
    take_over(classes)
    work(sweep, trials)


def main() -> None:
    """One worker, which ends when the process that started it does."""
    import torch

    from kreiss.studies.worker import end_with_the_parent

    threading.Thread(target=end_with_the_parent, daemon=True).start()
    torch.set_num_threads(1)
    described = json.loads(sys.argv[1])
    take_over(json.loads(sys.argv[3]))
    search = tuple(described["search"])
    work(Sweep(**{**described, "folder": Path(described["folder"]), "search": search}), int(sys.argv[2]))


if __name__ == "__main__":
    main()

"""One process's work on a run, from opening its folder to the test of its best checkpoint."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from kreiss.errors import Diverged, InputError, RunError
from kreiss.networks import saving
from kreiss.settings import Config
from kreiss.storage import files
from kreiss.training import checkpoint, display
from kreiss.training.distributed import Processes
from kreiss.training.guard import Interruption
from kreiss.training.learner import Learner, Now
from kreiss.training.record import RunFolder
from kreiss.training.resuming import Resumption, reopened
from kreiss.training.spectrum import eigenvalues, glance, spectrum_record
from kreiss.training.trackers import Tracker, open_trackers

MINUTE = 60.0  # between checkpoints, unless a number of updates is given


@dataclass
class Run:
    """The outcome of a run.

    Attributes:
        model: with the weights of the best validation.
        config: all settings, as resolved.
        state: "finished" or "interrupted".
        metrics: on the test set, of the best validation; empty if the run was interrupted.
        records: everything that was measured.
        folder: of the run, if it has one.
    """

    model: nn.Module
    config: Config
    state: str
    metrics: dict[str, float] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    folder: Path | None = None


class Best(NamedTuple):
    """The model at its best validation so far."""

    update: int
    metrics: dict[str, float]
    tensors: dict[str, torch.Tensor]


class Session:
    """One process's work on a run: from opening its folder to closing it.

    Args:
        found: what to resume from, or None to start.
        others: as in `run`.
    """

    def __init__(
        self,
        config: Config,
        out: Path | None,
        learner: Learner,
        processes: Processes,
        show: str,
        found: Resumption | None,
    ) -> None:
        self.config, self.out, self.learner, self.processes = config, out, learner, processes
        self.model = learner.model
        self.records: list[dict[str, Any]] = []
        self.best: Best | None = None
        self.folder: RunFolder | None = None
        if found is not None and found.content is not None:
            self._restore(found, found.content)
            self._check_steps()
        self.trackers: list[Tracker] = []
        self.display = display.Display(0, learner.metric, None, dict)
        self.show, self.found = show, found
        self.saved = time.monotonic()

    def _restore(self, found: Resumption, content: dict[str, Any]) -> None:
        if (kind := content.get("learner", "supervised")) != self.learner.kind:
            raise InputError(
                f"the learner of a run must stay {kind!r}; got {self.learner.kind!r}. Resume it as it was started."
            )
        checkpoint.check_model(self.model, self._described(), found.tensors, content)
        self.model.load_state_dict(saving.part(found.tensors, saving.MODEL))
        self.learner.restore(found.tensors, content)
        self.records = found.metrics.records
        self._restore_best(found, content)

    def _restore_best(self, found: Resumption, content: dict[str, Any]) -> None:
        tensors, at = saving.best_of(found.tensors, content), content.get("best_at")
        if tensors is None and content.get("best") is not None:  # a checkpoint of an earlier version
            tensors, at = checkpoint.earlier_best(found.folder, content, self.learner.metric)
        if tensors is not None and at is not None:
            self.best = Best(at["update"], at["metrics"], tensors)

    def _check_steps(self) -> None:
        """Raise if the run has made more updates than `steps`."""
        updates, steps = self.learner.updates, self.config.steps
        assert steps is not None
        if updates > steps:
            raise InputError(
                f"`steps` must be at least the {updates} updates that the run has made; got steps={steps}. "
                f"For {steps} more pass steps={updates + steps}."
            )

    def _open(self, show: str, found: Resumption | None) -> None:
        """Open the folder, the trackers and the display."""
        assert self.config.steps is not None
        done = self.learner.updates
        if self.out is not None:
            self.folder = (
                RunFolder.create(self.out, self.config, self.learner.checksum()) if found is None else reopened(found)
            )
            self.folder.write_about({**self.folder.about, **self.learner.facts()})
            self.learner.last_good = self.folder.checkpoints.words
            self._put_back_best()
        if found is None or found.content is None:
            self._keep_spectrum(eigenvalues(self.model))
        self.trackers = open_trackers(self.config, self.out, done)
        baseline = self.learner.baseline().get(self.learner.metric)
        self.display = display.opened(
            show, self.config.steps, self.learner.metric, baseline, lambda: glance(self.model)
        )
        self.display.naive = self.learner.facts().get("naive", self.display.naive)
        self._show_best()
        self.display.start(self.config, str(self.out or "not saved"), done)

    # ------------------------------------------------------------ updates

    def go(self, interruption: Interruption) -> Run:
        """Make the remaining updates, then test; the status of the run records how it ended."""
        try:
            if self.processes.first:
                self._open(self.show, self.found)
            interrupted = self._updates(interruption)
            metrics = {} if interrupted else self._test()
            self._end("interrupted" if interrupted else "finished")
            self.processes.wait()  # a group whose members leave one long after another may hang
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._close()
        state = "interrupted" if interrupted else "finished"
        return Run(self.model, self.config, state, metrics, self.records, self.out)

    def _updates(self, interruption: Interruption) -> bool:
        """Make updates; returns whether they were interrupted."""
        learner, config = self.learner, self.config
        assert config.eval_every is not None
        clock = time.monotonic()
        if not learner.updates:
            self.save()  # there is something to return to from the beginning
        while not learner.done:
            now = learner.update()
            self._note_good()
            self.display.show(now)
            if now.update % config.log_every == 0 or learner.done:
                self._log(now)
            evaluated = now.update % config.eval_every == 0 or learner.done
            if evaluated:
                self._validate()
            asked = self.processes.any(interruption.asked)
            clock, learner.seconds = time.monotonic(), learner.seconds + time.monotonic() - clock
            if asked or learner.done or self._due(evaluated):
                self.save()
            if asked and not learner.done:
                return True
        return False

    def _log(self, now: Now) -> None:
        self._record({"update": now.update, **self.learner.log(now)})

    def _validate(self) -> None:
        metrics = self.learner.evaluate("valid")
        improved = self.learner.observe(metrics)
        if improved:
            self._keep_best(metrics)
        values = eigenvalues(self.model)
        self._record({"update": self.learner.updates, "split": "valid", **metrics, **glance(self.model, values)})
        self._keep_spectrum(values)

    def _keep_spectrum(self, values: torch.Tensor | None) -> None:
        if self.folder is not None and values is not None:
            self.folder.keep_spectrum(spectrum_record(self.learner.updates, values))

    def _keep_best(self, metrics: dict[str, float]) -> None:
        tensors = {name: tensor.detach().cpu().clone() for name, tensor in self.model.state_dict().items()}
        self.best = Best(self.learner.updates, metrics, tensors)
        self._show_best()
        if self.folder is not None:
            self._write_best(self.folder, self.best)

    def _show_best(self) -> None:
        if self.best is not None:
            self.display.best = self.best.metrics.get(self.learner.metric)

    def _write_best(self, folder: RunFolder, best: Best) -> None:
        content = {**self._described(), "update": best.update, "metrics": best.metrics, "run": folder.run}
        files.write_tensors(folder.path / saving.BEST, best.tensors, content)

    def _put_back_best(self) -> None:
        """Restore the best so far in the folder of a resumed run, not one of updates that are repeated."""
        assert self.folder is not None
        if self.best is not None:
            self._write_best(self.folder, self.best)
        else:
            (self.folder.path / saving.BEST).unlink(missing_ok=True)

    def _described(self) -> dict[str, Any]:
        """The JSON that rebuilds the model, if kreiss can."""
        try:
            return saving.content_of(self.model)
        except InputError:
            return {"format": 1}

    def _due(self, evaluated: bool) -> bool:
        """Whether it is time for a checkpoint; the first process's clock decides for all."""
        if not self.learner.healthy:
            return False  # weights with a non-finite loss are not saved
        every = self.config.checkpoint_every
        if every is not None:
            return self.learner.updates % every == 0
        late = evaluated or time.monotonic() - self.saved >= MINUTE
        return bool(self.processes.of_first(float(late)))

    def save(self) -> None:
        """Write a checkpoint; all processes take part, the first one writes."""
        self.learner.check_finite()
        if self.out is None:
            return
        tensors, content = self.learner.kept()
        self.saved = time.monotonic()
        if self.folder is not None:
            best, at = self._best_kept()
            self.folder.keep(
                tensors | best,
                {**self._described(), **content, "learner": self.learner.kind, "best_at": at},
                self.config,
            )

    def _best_kept(self) -> tuple[dict[str, torch.Tensor], dict[str, Any] | None]:
        """The best so far for a checkpoint; its tensors only if they are not those of this update."""
        if self.best is None:
            return {}, None
        at = {"update": self.best.update, "metrics": self.best.metrics}
        if self.best.update == self.learner.updates:
            return {}, at
        return {saving.BEST_MODEL + name: tensor for name, tensor in self.best.tensors.items()}, at

    def _note_good(self) -> None:
        if self.folder is not None and self.learner.healthy:
            self.folder.checkpoints.proven()

    def _test(self) -> dict[str, float]:
        """Test metrics of the best validation; called once."""
        if self.best is not None:
            self.model.load_state_dict(self.best.tensors)
        metrics = self.learner.evaluate("test")
        self._record({"update": self.learner.updates, "split": "test", **metrics, **glance(self.model)})
        return metrics

    # ------------------------------------------------------------ records and the end

    def _record(self, record: dict[str, Any]) -> None:
        record = {**record, "seconds": round(self.learner.seconds, 3)}
        self.records.append(record)
        if self.folder is not None:
            self.folder.metrics.append(record)
        numbers = {key: value for key, value in record.items() if key not in ("update", "split")}
        prefix = f"{record['split']}/" if "split" in record else "train/"
        for tracker in self.trackers:
            tracker.log(record["update"], {prefix + key: value for key, value in numbers.items()})
        self.display.record(record)

    def _end(self, state: str) -> None:
        solved = state == "finished" and self.learner.solved
        if self.folder is not None:
            self.folder.set_status(state, self.learner.updates, cause="solved" if solved else "")
        if solved:
            self.display.say(f"solved at update {self.learner.updates}")
        if state == "finished" and self.folder is not None:
            self.display.finished(str(self.out))
        if state == "interrupted" and self.folder is not None:
            self.display.say(f"interrupted at update {self.learner.updates}; resume with: kreiss resume {self.out}")

    def _fail(self, error: BaseException) -> None:
        if self.folder is None:
            return
        ours = isinstance(error, (InputError, RunError))
        message = str(error) if ours else f"{type(error).__name__}: {error}".removesuffix(": ")
        stopped = isinstance(error, (KeyboardInterrupt, BrokenPipeError, SystemExit))  # a second Ctrl-C, or `| head`
        cause = "diverged" if isinstance(error, Diverged) else "" if stopped else "error"
        with suppress(RunError):  # the disk is full: the error itself is being raised
            self.folder.set_status("interrupted" if stopped else "failed", self.learner.updates, message, cause)

    def _close(self) -> None:
        self.learner.close()
        self.display.close()
        for tracker in self.trackers:
            tracker.close()
        if self.folder is not None:
            self.folder.close()

"""What learners share that move one model with one optimiser and are scored by validations."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_value_, clip_grads_with_norm_, get_total_norm

from kreiss.errors import InputError
from kreiss.optim.native import OneCall
from kreiss.settings import Config
from kreiss.tasks import Problem
from kreiss.training import checkpoint
from kreiss.training.distributed import Processes
from kreiss.training.guard import Guard, check_finite
from kreiss.training.learner import Learner, Now
from kreiss.training.optimisers import Schedule, make_optimiser
from kreiss.training.provenance import checksum


class Scored(Learner):
    """A model, its optimiser and schedule, a guard against numbers that are not finite, and the best validation.

    Args:
        model: what is trained.
        task: whose metric is compared.
        config: all settings, with `steps` set.
        processes: that train together.
    """

    def __init__(self, model: nn.Module, task: Problem, config: Config, processes: Processes) -> None:
        assert config.steps is not None
        self.model, self.config, self.processes = model, config, processes
        self.scored_by = task
        self.metric = task.metric
        self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.optimiser = make_optimiser(model, config.optimiser)
        self.stepped_by: list[list[Any]] = [
            [0, _stepper(self.optimiser)]
        ]  # whose code moves the parameters, from which update on
        self.schedule = Schedule(config.schedule, self.optimiser, config.steps)
        self.guard = Guard(config.on_nan)
        self.best: float | None = None
        self.stale = 0  # evaluations since the best one
        self.latest: dict[str, float] = {}  # the metric that may stop the run, at the last validation
        self.window: list[float] = [0.0, 0]  # sum and number of losses since the last record

    def _may_step(self, loss: float, norm: float, scaled: bool = False) -> bool:
        return self.guard.lets_pass(self.updates + 1, loss, norm, self.model, self.last_good, scaled=scaled)

    def _gradient_norm(self) -> Tensor | float:
        if isinstance(self.optimiser, OneCall) and self.stepped_by[-1][1] == "kreiss":
            return self.optimiser.gradient_norm()
        return get_total_norm([weight.grad for weight in self.trained if weight.grad is not None])

    def _clip(self, norm: Tensor | float) -> None:
        """Clip the gradients, unless the step of the optimiser does."""
        if self.config.optimiser.clip_norm is not None and not isinstance(self.optimiser, OneCall):
            clip_grads_with_norm_(self.trained, self.config.optimiser.clip_norm, torch.as_tensor(norm))
        if self.config.optimiser.clip_value is not None:
            clip_grad_value_(self.trained, self.config.optimiser.clip_value)

    def log(self, now: Now) -> dict[str, Any]:
        """Mean loss since the last record (none if all updates were skipped), gradient norm, rate, skipped updates."""
        total, count = self.window
        self.window = [0.0, 0]
        record: dict[str, Any] = {"loss": total / count} if count else {}
        record |= {"gradient_norm": now.norm, "lr": self.optimiser.param_groups[-1]["lr"]}
        return {**record, "skipped": self.guard.skipped} if self.guard.skipped else record

    @property
    def healthy(self) -> bool:
        """Whether the last update was finite."""
        return not self.guard.in_a_row

    def baseline(self) -> dict[str, float]:
        """The baseline of the task."""
        return self.scored_by.baseline()

    def facts(self) -> dict[str, Any]:
        """Trained parameters, the baseline, how the metric of the task is read, and whose code takes the steps."""
        count, task = sum(parameter.numel() for parameter in self.trained), self.scored_by
        return {
            "parameters": count, "baseline": self.baseline(), "metric": task.metric, "higher": task.higher_is_better,
            "naive": task.naive, "stepped_by": self.stepped_by,
        }  # fmt: skip

    def checksum(self) -> str | None:
        """Checksum of the task's files."""
        return checksum(self.scored_by)

    # ------------------------------------------------------------ validations

    def observe(self, metrics: dict[str, float]) -> bool:
        """Record a validation; returns whether it is the best so far."""
        value = self.processes.of_first(metrics[self.metric])
        better = self.best is None or (value > self.best if self.scored_by.higher_is_better else value < self.best)
        improved = better and not math.isnan(value)
        if improved:
            self.best, self.stale = value, 0
        else:
            self.stale += 1
        self.schedule.observe(improved)
        if self.config.stop_at is not None:
            self._note(metrics)
        return improved

    def _note(self, metrics: dict[str, float]) -> None:
        """Keep the metric that may stop the run; all processes see that of the first."""
        name = self.config.stop_metric or self.metric
        if name not in metrics:
            raise InputError(
                f"`stop_metric` must be a metric of a validation; got {name!r}. Choose one of {', '.join(metrics)}."
            )
        value = self.processes.of_first(metrics[name])
        self.latest = {} if math.isnan(value) else {name: value}

    @property
    def solved(self) -> bool:
        """Whether the last validation has reached `stop_at`."""
        name, wanted = self.config.stop_metric or self.metric, self.config.stop_at
        if wanted is None or name not in self.latest:
            return False
        value = self.latest[name]
        return value >= wanted if self.scored_by.is_higher_better(name) else value <= wanted

    @property
    def done(self) -> bool:
        """Whether all updates are made, a validation was good enough, or patience has run out."""
        assert self.config.steps is not None
        impatient = self.config.patience is not None and self.stale >= self.config.patience
        return self.updates >= self.config.steps or self.solved or impatient

    # ------------------------------------------------------------ state to resume from

    def check_finite(self) -> None:
        """Raise if a trained weight or a moment of the optimiser is not finite."""
        weights = ((name, weight) for name, weight in self.model.named_parameters() if weight.requires_grad)
        moments = checkpoint.optimiser_state(self.optimiser)[0].items()
        check_finite([*weights, *moments], self.updates, self.last_good)

    def kept(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The model, the optimiser, the schedule, generators and counters."""
        moments, numbers = checkpoint.optimiser_state(self.optimiser)
        random_tensors, random_numbers = checkpoint.generators(self.processes.gathered)
        content = {
            "updates": self.updates, "best": self.best, "stale": self.stale, "latest": self.latest,
            "window": self.window, "seconds": self.seconds, "schedule": self.schedule.state(), "optimiser": numbers,
            "stepped_by": self.stepped_by, "random": random_numbers, "in_a_row": self.guard.in_a_row,
            "skipped": self.guard.skipped,
        }  # fmt: skip
        return checkpoint.model_tensors(self.model.state_dict()) | moments | random_tensors, content

    def restore(self, tensors: dict[str, Tensor], content: dict[str, Any]) -> None:
        """Resume from what `kept` returned; the model already has its tensors."""
        checkpoint.restore_optimiser(self.optimiser, tensors, content["optimiser"])
        checkpoint.restore_generators(tensors, content["random"], self.processes.rank)
        self.schedule.restore(content["schedule"])
        self._note_stepper(content)
        self.updates, self.best, self.stale = content["updates"], content["best"], content["stale"]
        self.latest = content.get("latest", {})  # earlier versions had none
        self.window, self.seconds = content["window"], content["seconds"]
        self.guard.in_a_row, self.guard.skipped = content["in_a_row"], content["skipped"]

    def _note_stepper(self, content: dict[str, Any]) -> None:
        """Take up whose steps were taken, all by torch in earlier versions; a change is recorded."""
        past = content.get("stepped_by", [[0, "torch"]])
        now = _stepper(self.optimiser)
        self.stepped_by = past if past[-1][1] == now else [*past, [content["updates"], now]]


def _stepper(optimiser: torch.optim.Optimizer) -> str:
    """Whose code moves the parameters: "kreiss", in one native call, or "torch"."""
    return "kreiss" if isinstance(optimiser, OneCall) and optimiser.is_native else "torch"

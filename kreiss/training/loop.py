"""Supervised learning: updates on the batches of a task, evaluations, and the state needed to resume."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_value_, clip_grads_with_norm_, get_total_norm
from torch.utils._pytree import tree_leaves, tree_map, tree_structure, tree_unflatten

from kreiss.contracts import Network
from kreiss.errors import InputError, check_name, check_size
from kreiss.optim import radius_penalty, rebase
from kreiss.settings import Config
from kreiss.tasks import Batch, Task
from kreiss.training import checkpoint
from kreiss.training.distributed import Processes, detached, on_device, pieces, terms
from kreiss.training.guard import Guard, check_finite, computable
from kreiss.training.learner import Learner, Now
from kreiss.training.optimisers import Schedule, make_optimiser
from kreiss.training.provenance import checksum

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Supervised(Learner):
    """Trains a model on the batches of a task.

    Args:
        model: called as `model(inputs, state, lengths)`, returns output and state.
        task: gives batches and loss.
        config: all settings, with `steps` set.
        processes: that train together.
    """

    kind = "supervised"

    def __init__(self, model: nn.Module, task: Task, config: Config, processes: Processes) -> None:
        assert config.steps is not None
        self.model, self.task, self.config, self.processes = model, task, config, processes
        self.metric = task.metric
        self.module = processes.wrapped(model)
        self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.optimiser = make_optimiser(model, config.optimiser)
        self.schedule = Schedule(config.schedule, self.optimiser, config.steps)
        self.guard = Guard(config.on_nan)
        self.scaler = torch.amp.GradScaler(processes.device.type) if config.precision == "fp16" else None
        self.states: list[Any] = [None] * config.accumulate  # carried to the next batch, one for each piece
        self.best: float | None = None
        self.stale = 0  # evaluations since the best one
        self.latest: dict[str, float] = {}  # the metric that may stop the run, at the last validation
        self.window: list[float] = [0.0, 0]  # sum and number of losses since the last record

    # ------------------------------------------------------------ updates

    def update(self) -> Now:
        """Make one update."""
        self.schedule.apply(self.updates)
        self.optimiser.zero_grad(set_to_none=True)
        with computable(self.updates + 1, self.last_good):
            loss = self._backward(self.task.train(self.updates, self.config.batch, self.config.seed))
        if self.scaler is not None:
            self.scaler.unscale_(self.optimiser)
        gradients = [parameter.grad for parameter in self.trained if parameter.grad is not None]
        norm = get_total_norm(gradients)
        shown, total = self.processes.sum(loss, norm / self.processes.count)
        if self._may_step(shown, total):
            self._clip(norm)
            self._step()
            self.window[0] += shown
            self.window[1] += 1
        else:
            self.states = [None] * len(self.states)  # states from such numbers are not carried on
        self.updates += 1
        if self.config.optimiser.rebase_every and self.updates % self.config.optimiser.rebase_every == 0:
            rebase(self.model)
        return Now(self.updates, shown, total)

    def _may_step(self, loss: float, norm: float) -> bool:
        return self.guard.lets_pass(
            self.updates + 1, loss, norm, self.model, self.last_good, scaled=self.scaler is not None
        )

    def _backward(self, batch: Batch) -> Tensor:
        """Gradients of the mean loss of this process's part of the batch, piece by piece; returns that loss."""
        own, count = self.config.accumulate, self.config.accumulate * self.processes.count
        parts = pieces(batch, count, self.task.answers)[self.processes.rank * own :][:own]
        whole = terms(batch, self.task.answers) if count > 1 else 1
        total = torch.zeros((), device=self.processes.device)
        for index, piece in enumerate(parts):
            with self._quiet_until(index == own - 1):
                output, state = self._run(piece, self.states[index] if piece.carries else None)
                loss = self.task.loss(output, piece)
                if count > 1:
                    loss = loss * (terms(piece, self.task.answers) / whole)
                total = total + loss.detach()
                self._objective(loss, last=index == own - 1).backward()
            self.states[index] = detached(_carried(self.model, state))
        return total

    def _run(self, piece: Batch, state: Any) -> tuple[Tensor, Any]:
        with _autocast(self.config.precision, self.processes.device):
            return _called(self.module, on_device(piece, self.processes.device), state)

    def _objective(self, loss: Tensor, last: bool) -> Tensor:
        """What is differentiated: the loss, summed over processes although gradients are averaged, and the penalty."""
        objective = loss * self.processes.count if self.processes.count > 1 else loss
        for penalty in self._penalties() if last else ():
            objective = objective + penalty
        return objective if self.scaler is None else self.scaler.scale(objective)

    def _penalties(self) -> Iterator[Tensor]:
        """The penalty of the settings, and the network's own."""
        chosen = self.config.optimiser
        if chosen.radius_penalty:
            yield radius_penalty(self.model, chosen.radius_penalty, reduction=chosen.reduction)
        own = self.model.penalty() if isinstance(self.model, Network) else None
        if own is not None:
            yield own

    def _quiet_until(self, last: bool) -> AbstractContextManager[Any]:
        """Processes exchange gradients once per update, with the last piece."""
        return self.module.no_sync() if isinstance(self.module, DistributedDataParallel) and not last else nullcontext()

    def _clip(self, norm: Tensor) -> None:
        if self.config.optimiser.clip_norm is not None:
            clip_grads_with_norm_(self.trained, self.config.optimiser.clip_norm, norm)
        if self.config.optimiser.clip_value is not None:
            clip_grad_value_(self.trained, self.config.optimiser.clip_value)

    def _step(self) -> None:
        if self.scaler is None:
            self.optimiser.step()
        else:
            self.scaler.step(self.optimiser)
            self.scaler.update()

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
        return self.task.baseline()

    def facts(self) -> dict[str, Any]:
        """Trained parameters, the baseline, and how the metric of the task is read."""
        count = sum(parameter.numel() for parameter in self.trained)
        task = self.task
        return {
            "parameters": count, "baseline": self.baseline(), "metric": task.metric, "higher": task.higher_is_better,
            "naive": task.naive,
        }  # fmt: skip

    def checksum(self) -> str | None:
        """Checksum of the task's files."""
        return checksum(self.task)

    # ------------------------------------------------------------ evaluations

    def evaluate(self, split: Literal["valid", "test"]) -> dict[str, float]:
        """Metrics on held-out data, the same in every process."""
        chosen = self.config
        with computable(self.updates, self.last_good):
            return evaluate(self.model, self.task, split, batch=chosen.eval_batch, precision=chosen.precision)

    def observe(self, metrics: dict[str, float]) -> bool:
        """Record a validation; returns whether it is the best so far."""
        value = self.processes.of_first(metrics[self.task.metric])
        better = self.best is None or (value > self.best if self.task.higher_is_better else value < self.best)
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
        return value >= wanted if self.task.is_higher_better(name) else value <= wanted

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
        """The model, the optimiser, the schedule, generators, the carried state and counters."""
        moments, numbers = checkpoint.optimiser_state(self.optimiser)
        random_tensors, random_numbers = checkpoint.generators(self.processes.gathered)
        states: dict[str, Tensor] = {}
        shape = checkpoint.flat_state(self._whole_state(), states)
        content = {
            "updates": self.updates, "best": self.best, "stale": self.stale, "latest": self.latest,
            "window": self.window, "seconds": self.seconds, "schedule": self.schedule.state(), "optimiser": numbers,
            "random": random_numbers, "state": shape, "in_a_row": self.guard.in_a_row, "skipped": self.guard.skipped,
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
        }  # fmt: skip
        return checkpoint.model_tensors(self.model.state_dict()) | moments | random_tensors | states, content

    def restore(self, tensors: dict[str, Tensor], content: dict[str, Any]) -> None:
        """Resume from what `kept` returned; the model already has its tensors."""
        checkpoint.restore_optimiser(self.optimiser, tensors, content["optimiser"])
        checkpoint.restore_generators(tensors, content["random"], self.processes.rank)
        self.schedule.restore(content["schedule"])
        self._share_state(_as_made(self.model, checkpoint.full_state(content["state"], tensors)))
        self.updates, self.best, self.stale = content["updates"], content["best"], content["stale"]
        self.latest = content.get("latest", {})  # earlier versions had none
        self.window, self.seconds = content["window"], content["seconds"]
        self.guard.in_a_row, self.guard.skipped = content["in_a_row"], content["skipped"]
        if self.scaler is not None and content["scaler"] is not None:
            self.scaler.load_state_dict(content["scaler"])

    def _whole_state(self) -> Any:
        """The carried state of the whole batch, from all pieces and processes; sequences are its second dimension."""
        if self.states[0] is None or self.config.accumulate * self.processes.count == 1:
            return self.states[0]
        own = tree_map(lambda *parts: torch.cat(parts, 1), *self.states)
        return tree_map(lambda tensor: torch.cat(self.processes.gathered(tensor), 1), own)

    def _share_state(self, whole: Any) -> None:
        count = self.config.accumulate * self.processes.count
        own = range(self.processes.rank * self.config.accumulate, (self.processes.rank + 1) * self.config.accumulate)
        device = self.processes.device

        def part(tensor: Tensor, index: int) -> Tensor:
            if count == 1:
                return tensor.to(device)
            edges = [tensor.shape[1] * k // count for k in (index, index + 1)]
            return tensor[:, edges[0] : edges[1]].to(device).contiguous()

        self.states = [None if whole is None else tree_map(lambda t, i=i: part(t, i), whole) for i in own]


# ---------------------------------------------------------------- running a model


def _autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Half precision if it is set; layers keep their constraints in float32."""
    return nullcontext() if precision == "float32" else torch.autocast(device.type, HALF[precision])


def _called(model: nn.Module, batch: Batch, state: Any) -> tuple[Tensor, Any]:
    """Output in at least float32, and state."""
    inputs = batch.inputs
    if inputs.is_floating_point():
        inputs = inputs.to(next(model.parameters()).dtype)
    output, state = model(inputs, state, batch.lengths)
    return output.float() if output.dtype in HALF.values() else output, state


def _carried(model: nn.Module, state: Any) -> Any:
    """The state that the next window starts from."""
    return model.carried(state) if isinstance(model, Network) else state


def _as_made(model: nn.Module, state: Any) -> Any:
    """A state from a checkpoint, where tuples have no names, in the form that the model gives it."""
    if state is None or not callable(init := getattr(model, "init_state", None)):
        return state
    form, leaves = tree_structure(init(1)), tree_leaves(state)
    return tree_unflatten(leaves, form) if form.num_leaves == len(leaves) else state


@torch.no_grad()
def evaluate(
    model: nn.Module,
    task: Task,
    split: Literal["valid", "test"] = "test",
    *,
    batch: int = 100,
    precision: str = "float32",
) -> dict[str, float]:
    """Metrics on a fixed held-out set, the same for every model; they do not depend on `batch`.

    Args:
        model: as `kreiss.fit` takes it.
        task: gives the held-out set.
        split: "valid" or "test".
        batch: batch size.
        precision: "float32", "bf16" or "fp16" (autocast).
    """
    check_size("batch", batch)
    check_name("split", split, ("valid", "test"))
    device = next(model.parameters()).device
    totals: dict[str, tuple[float, float]] = {}
    state = None
    with _resting(model) as resting, _autocast(precision, device):
        for piece in task.held_out(split, batch):
            output, state = _called(resting, on_device(piece, device), state if piece.carries else None)
            state = _carried(resting, state)
            for name, (total, count) in task.totals(output, on_device(piece, device)).items():
                before = totals.get(name, (0.0, 0.0))
                totals[name] = (before[0] + total, before[1] + count)
    return task.metrics(totals)


@contextmanager
def _resting(model: nn.Module) -> Iterator[nn.Module]:
    """The model for evaluation: recurrent matrices computed once if it can freeze; modes are restored afterwards."""
    freeze = getattr(model, "freeze", None)
    if callable(freeze):
        yield freeze()
        return
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield model
    finally:
        for module, training in modes.items():
            module.training = training

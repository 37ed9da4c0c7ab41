"""Supervised learning: updates on the batches of a task, evaluations, and the state needed to resume."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves, tree_map, tree_structure, tree_unflatten

from kreiss import rl
from kreiss.contracts import Network
from kreiss.errors import check_name, check_size
from kreiss.optim import radius_penalty, rebase
from kreiss.settings import Config
from kreiss.tasks import Batch, Problem, Task, World
from kreiss.training import checkpoint
from kreiss.training.distributed import Processes, detached, on_device, pieces, terms
from kreiss.training.guard import computable
from kreiss.training.learner import Now
from kreiss.training.scored import Scored

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Supervised(Scored):
    """Trains a model on the batches of a task.

    Args:
        model: called as `model(inputs, state, lengths)`, returns output and state.
        task: gives batches and loss.
        config: all settings, with `steps` set.
        processes: that train together.
    """

    kind = "supervised"

    def __init__(self, model: nn.Module, task: Task, config: Config, processes: Processes) -> None:
        super().__init__(model, task, config, processes)
        self.task = task
        self.module = processes.wrapped(model)
        self.scaler = torch.amp.GradScaler(processes.device.type) if config.precision == "fp16" else None
        self.states: list[Any] = [None] * config.accumulate  # carried to the next batch, one for each piece

    # ------------------------------------------------------------ updates

    def update(self) -> Now:
        """Make one update."""
        self.schedule.apply(self.updates)
        self.optimiser.zero_grad(set_to_none=True)
        with computable(self.updates + 1, self.last_good):
            loss = self._backward(self.task.train(self.updates, self.config.batch, self.config.seed))
        if self.scaler is not None:
            self.scaler.unscale_(self.optimiser)
        norm = self._gradient_norm()
        shown, total = self.processes.sum(loss, norm / self.processes.count)
        if self._may_step(shown, total, scaled=self.scaler is not None):
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

    def _step(self) -> None:
        if self.scaler is None:
            self.optimiser.step()
        else:
            self.scaler.step(self.optimiser)
            self.scaler.update()

    # ------------------------------------------------------------ evaluations

    def evaluate(self, split: Literal["valid", "test"]) -> dict[str, float]:
        """Metrics on held-out data, the same in every process."""
        chosen = self.config
        with computable(self.updates, self.last_good):
            return evaluate(self.model, self.task, split, batch=chosen.eval_batch, precision=chosen.precision)

    # ------------------------------------------------------------ state to resume from

    def kept(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """As every learner, and the carried state and the loss scale."""
        tensors, content = super().kept()
        states: dict[str, Tensor] = {}
        shape = checkpoint.flat_state(self._whole_state(), states)
        scale = None if self.scaler is None else self.scaler.state_dict()
        return tensors | states, {**content, "state": shape, "scaler": scale}

    def restore(self, tensors: dict[str, Tensor], content: dict[str, Any]) -> None:
        """Resume from what `kept` returned; the model already has its tensors."""
        super().restore(tensors, content)
        self._share_state(as_made(self.model, checkpoint.full_state(content["state"], tensors)))
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


def as_made(model: nn.Module, state: Any) -> Any:
    """A state from a checkpoint, where tuples have no names, in the form that the model gives it."""
    if state is None or not callable(init := getattr(model, "init_state", None)):
        return state
    form, leaves = tree_structure(init(1)), tree_leaves(state)
    return tree_unflatten(leaves, form) if form.num_leaves == len(leaves) else state


@torch.no_grad()
def evaluate(
    model: nn.Module,
    task: Problem,
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
    if isinstance(task, World):
        return rl.evaluate(rl.checked_agent(model), task, split, batch)
    assert isinstance(task, Task)
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

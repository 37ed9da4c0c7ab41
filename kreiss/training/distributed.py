"""Training by several processes (`torchrun`): each works on its sequences of the same batch."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map

from kreiss.errors import InputError
from kreiss.tasks import Batch
from kreiss.tasks.losses import NO_TARGET


class Processes:
    """This process among those that train together; alone unless `torchrun` started several.

    Args:
        device: where this process computes; decides between gloo and nccl.
    """

    def __init__(self, device: torch.device) -> None:
        self.count = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0")) if self.count > 1 else 0
        self.device = device
        self.started = False
        if self.count > 1 and not distributed.is_initialized():
            distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
            self.started = True

    @property
    def first(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def wrapped(self, model: nn.Module) -> nn.Module:
        """The model whose backward pass averages gradients over processes."""
        if self.count == 1:
            return model
        places = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=places, broadcast_buffers=False)

    def sum(self, *values: Tensor | float) -> list[float]:
        """Sums of numbers over processes, in one message and one synchronisation of the device."""
        if self.count == 1 and self.device.type == "cpu":
            return [float(value.detach() if isinstance(value, Tensor) else value) for value in values]
        packed = torch.stack([torch.as_tensor(v, dtype=torch.float64, device=self.device).detach() for v in values])
        if self.count > 1:
            distributed.all_reduce(packed)
        return packed.tolist()

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return flag if self.count == 1 else bool(self.sum(float(flag))[0])

    def of_first(self, value: float) -> float:
        """The number that the first process has, so that all decide alike."""
        if self.count == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        distributed.broadcast(shared, 0)
        return float(shared)

    def gathered(self, tensor: Tensor) -> list[Tensor]:
        """This tensor of every process; all have the same shape."""
        if self.count == 1:
            return [tensor]
        here = tensor.to(self.device).contiguous()
        copies = [torch.empty_like(here) for _ in range(self.count)]
        distributed.all_gather(copies, here)
        return copies

    def wait(self) -> None:
        """Wait for all processes."""
        if self.count > 1:
            distributed.barrier()

    def close(self) -> None:
        """Leave the group that this object started."""
        if self.started:
            distributed.destroy_process_group()


# ---------------------------------------------------------------- pieces of a batch


def pieces(batch: Batch, count: int, answers: str) -> list[Batch]:
    """A batch cut along its sequences into `count` batches."""
    if count == 1:
        return [batch]
    sequences = batch.inputs.shape[1]
    if sequences < count:
        raise InputError(
            f"a batch must have a sequence for each of its pieces; got {sequences} sequences and {count} pieces "
            "(processes × accumulate). Raise the batch size."
        )
    edges = [sequences * k // count for k in range(count + 1)]
    along = 1 if answers == "every" else 0
    return [
        replace(
            batch,
            inputs=batch.inputs[:, low:high].contiguous(),
            targets=batch.targets.narrow(along, low, high - low).contiguous(),
            lengths=None if batch.lengths is None else batch.lengths[low:high],
        )
        for low, high in pairwise(edges)
    ]


def terms(batch: Batch, answers: str) -> int:
    """How many terms the mean loss of a batch has, so that means of pieces can be combined."""
    targets = batch.targets
    there = ~targets.isnan() if targets.is_floating_point() else targets != NO_TARGET
    if batch.lengths is not None and answers == "every":
        valid = torch.arange(len(targets))[:, None] < batch.lengths.cpu()
        there = there & valid.view(*valid.shape, *[1] * (targets.dim() - 2)).to(targets.device)
    return int(there.sum())


def on_device(batch: Batch, device: torch.device) -> Batch:
    """The batch on `device`."""
    if batch.inputs.device == device:
        return batch
    lengths = None if batch.lengths is None else batch.lengths.to(device)
    return replace(batch, inputs=batch.inputs.to(device), targets=batch.targets.to(device), lengths=lengths)


def detached(state: Any) -> Any:
    """A state that no gradient flows through."""
    return tree_map(lambda tensor: tensor.detach() if isinstance(tensor, Tensor) else tensor, state)

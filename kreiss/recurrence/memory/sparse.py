"""Sparse attentive backtracking by the fastest path that applies.

In eager code the backward pass is hand-written. The scores of memories never change, so the `top` best are kept as a
list, to which every new memory is compared: a step costs the same however long the sequence is. Beyond `top` memories
the read r does not change between two stores, and neither it nor its gradient is computed more often.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from kreiss.recurrence.lstm import activated, by_gate, gradients_again, inner_drive, inner_rows, slopes, takes
from kreiss.recurrence.memory.reference import Reads
from kreiss.recurrence.memory.sparse_reference import EPSILON, Schedule, SparseState, run
from kreiss.recurrence.unroll import unroll


class SparseWeights(NamedTuple):
    """The tensors of one cell, rows of gates in torch's order."""

    inputs: Tensor  # U (4N, I)
    recurrent: Tensor  # V (4N, N)
    bias: Tensor | None  # b (4N,)
    score: Tensor  # w (2N,), of ĥ and then of the memories


def run_sparse(
    x: Tensor,
    weights: SparseWeights,
    state: SparseState,
    schedule: Schedule,
    lengths: Tensor | None = None,
    *,
    seen: int | None = None,
    keep: bool = False,
) -> tuple[Tensor, Tensor, SparseState, Reads | None]:
    """States h and reads r (T, B, N), the last state, and with `keep` the weight of every memory at every step.

    Args: see `kreiss.recurrence.memory.sparse_reference.run`.
    """
    u, matrix = inner_drive(x, weights.inputs, weights.bias), inner_rows(weights.recurrent)
    if torch.compiler.is_exporting():  # without gradients: those of a scan are unreliable
        u, matrix = u.detach(), matrix.detach()
        weights = weights._replace(score=weights.score.detach())
        state = SparseState(*(part.detach() for part in state))
    state = state._replace(h=state.h.to(u.dtype), c=state.c.to(u.dtype), memory=state.memory.to(u.dtype))
    score = weights.score.to(u.dtype)
    if lengths is None and not keep and takes(u, matrix, state.memory, score) and _together(state):
        return _run_fast(u, matrix, score, state, schedule)
    return run(u, matrix, score, state, schedule, lengths, seen=seen, keep=keep)


def _together(state: SparseState) -> bool:
    """Whether all sequences have seen equally many steps, so that they store and truncate at the same ones."""
    return bool((state.steps == state.steps[:1]).all()) and bool((state.times >= 0).all())


def _run_fast(
    u: Tensor, matrix: Tensor, score: Tensor, state: SparseState, schedule: Schedule
) -> tuple[Tensor, Tensor, SparseState, None]:
    seen = int(state.steps[0]) if len(state.steps) else 0
    out, read, c, memory = SparseRecurrence.apply(u, matrix, score, state.h, state.c, state.memory, seen, schedule)
    new = torch.arange(seen // schedule.every + 1, (seen + len(u)) // schedule.every + 1, device=u.device)
    times = torch.cat([state.times, (new * schedule.every).expand(len(state.times), -1)], 1)
    return out, read, SparseState(out[-1].clone(), c, memory, times, state.steps + len(u)), None


# ---------------------------------------------------------------- with a hand-written backward pass


class Choice(NamedTuple):
    """What is read from more than `top` memories, until the next one is stored."""

    slots: Tensor  # (B, top), of the best scores, the largest first
    weight: Tensor  # (B, top), how far each is above the bar, divided by `total`; 0 for the others
    total: Tensor  # (B, 1), the sum of these distances, and ε
    read: Tensor  # r (B, N)


class _Memory:
    """The memory of a forward pass: states, the second term of their scores, and the list of the best."""

    def __init__(self, memory: Tensor, score: Tensor, slots: int, top: int) -> None:
        batch, self.count, n = memory.shape
        self.states = memory.new_empty(batch, slots, n)
        self.scores = memory.new_empty(batch, slots)
        self.score, self.top = score[n:], top
        self.states[:, : self.count] = memory
        self.scores[:, : self.count] = memory.tanh() @ self.score
        self.best: tuple[Tensor, Tensor] | None = None
        self.choice: Choice | None = None
        self.choices: list[Choice] = []

    def store(self, h: Tensor) -> None:
        at = self.count
        self.states[:, at] = h
        self.scores[:, at] = h.tanh() @ self.score
        self.count, self.choice = at + 1, None

    def chosen(self) -> Choice:
        """The choice among more than `top` memories."""
        if self.choice is None:
            values, slots = self._compared()
            above = (values - (values[:, -1:] + EPSILON)).relu_()
            total = above.sum(-1, keepdim=True) + EPSILON
            rows = self.states.gather(1, slots.unsqueeze(-1).expand(-1, -1, self.states.shape[-1]))
            weight = above.div_(total)
            read = torch.bmm(weight.unsqueeze(1), rows).squeeze(1)
            self.choice = Choice(slots, weight, total, read)
            self.choices.append(self.choice)
        return self.choice

    def _compared(self) -> tuple[Tensor, Tensor]:
        """The `top` best scores and their slots: of all, or of the best so far and the newest."""
        if self.best is None:
            values, slots = self.scores[:, : self.count].topk(self.top, -1)
        else:
            newest = self.count - 1
            values = torch.cat([self.best[0], self.scores[:, newest : self.count]], -1)
            slots = F.pad(self.best[1], (0, 1), value=newest)
            values, order = values.topk(self.top, -1)
            slots = slots.gather(1, order)
        self.best = values, slots
        return self.best


@torch.no_grad()
def _forward(
    u: Tensor, matrix: Tensor, score: Tensor, h0: Tensor, c0: Tensor, memory: Tensor, seen: int, schedule: Schedule
) -> tuple[Tensor, Tensor, Tensor, Tensor, _Memory]:
    """h, r, c (T, B, N) and gates (T, B, 4N) of every step, and the memory."""
    n, transposed = h0.shape[-1], matrix.mT.contiguous()
    z, cells = torch.empty_like(u, memory_format=torch.contiguous_format), u.new_empty(*u.shape[:2], n)
    kept = _Memory(memory, score, schedule.memories(memory.shape[1], seen, len(u)), schedule.top)

    def step(now: tuple[Tensor, ...], carry: tuple[Tensor, Tensor, int]) -> tuple[Any, tuple[Tensor, Tensor, int]]:
        u, z, sigmoids, tanh, o, i, f, g, new = now
        h, c, steps = carry
        torch.addmm(u, h, transposed, out=z)
        sigmoids.sigmoid_()
        tanh.tanh_()
        torch.mul(f, c, out=new).addcmul_(i, g)
        h = new.tanh().mul_(o)
        read = kept.chosen().read if kept.count > schedule.top else _read_all(h, kept, score[:n])
        h = h.add_(read)
        if steps % schedule.every == 0:
            kept.store(h)
        return (h, read), (h, new, steps + 1)

    (h, read), _ = unroll(step, (u, z, *activated(z, n), *by_gate(z), cells), (h0, c0, seen + 1))
    return h, read, cells, z, kept


def _read_all(made: Tensor, kept: _Memory, score: Tensor) -> Tensor:
    """r (B, N) from at most `top` memories."""
    weight = (made.tanh() @ score).unsqueeze(-1) + kept.scores[:, : kept.count]
    return torch.bmm(weight.unsqueeze(1), kept.states[:, : kept.count]).squeeze(1)


class _Back:
    """Gradients of memories and scores, collected from the last step to the first."""

    def __init__(self, memory: Tensor, scores: Tensor, grad: Tensor | None, score: Tensor) -> None:
        self.memory, self.scores = memory, scores
        n = memory.shape[-1]
        self.first = score[:n]  # w₁
        self.reached = memory.tanh()
        self.slopes = score[n:] * (1 - self.reached.square())  # of the second term of scores, for all memories at once
        self.grad = torch.zeros_like(memory) if grad is None else grad.clone(memory_format=torch.contiguous_format)
        self.grad_scores = torch.zeros_like(scores)
        self.grad_first = torch.zeros_like(self.first)

    def of_stored(self, slot: int) -> Tensor:
        """The gradient of h (B, N) that was stored in `slot`."""
        return torch.addcmul(self.grad[:, slot], self.grad_scores[:, slot, None], self.slopes[:, slot])

    def of_first(self, count: int) -> Tensor:
        """The gradient of the memories that were there before the first step."""
        return torch.addcmul(self.grad[:, :count], self.grad_scores[:, :count, None], self.slopes[:, :count])

    def through_all(self, dr: Tensor, made: Tensor, count: int) -> Tensor:
        """The gradient of ĥ (B, N) through the scores of at most `top` memories; dr is that of r."""
        reached, states = made.tanh(), self.memory[:, :count]
        weight = (reached @ self.first).unsqueeze(-1) + self.scores[:, :count]
        da = torch.bmm(states, dr.unsqueeze(-1)).squeeze(-1)
        self.grad[:, :count].baddbmm_(weight.unsqueeze(-1), dr.unsqueeze(1))
        self.grad_scores[:, :count] += da
        total = da.sum(-1)
        self.grad_first += total @ reached
        return total.unsqueeze(-1) * self.first * (1 - reached.square())

    def through_choice(self, dr: Tensor, choice: Choice) -> None:
        """dr (B, N) is the sum of the gradients of r over the steps that made this choice."""
        wide = choice.slots.unsqueeze(-1).expand(-1, -1, dr.shape[-1])
        weight = choice.weight
        da = torch.bmm(self.memory.gather(1, wide), dr.unsqueeze(-1)).squeeze(-1)
        dv = (da - (da * weight).sum(-1, keepdim=True)).div_(choice.total).mul_(weight > 0)
        dv[:, -1] -= dv.sum(-1)  # the bar is the last of them
        self.grad.scatter_add_(1, wide, weight.unsqueeze(-1) * dr.unsqueeze(1))
        self.grad_scores.scatter_add_(1, choice.slots, dv)

    def of_score(self) -> Tensor:
        """The gradient of w (2N,)."""
        return torch.cat([self.grad_first, (self.grad_scores.unsqueeze(1) @ self.reached).sum((0, 1))])


def _backward(
    grads: tuple[Tensor | None, ...], saved: tuple[Tensor, ...], choices: list[Choice], seen: int, schedule: Schedule
) -> tuple[Tensor, ...]:
    """Gradients of u, V, w, h_0, c_0 and the first memories."""
    grad, grad_read, grad_c, grad_memory = grads
    matrix, score, h0, c0, h, read, c, z, memory, scores = saved
    through, by_gates = slopes(z, c, c0)
    dz, back, left = torch.empty_like(by_gates), _Back(memory, scores, grad_memory, score), list(choices)
    nothing, already = torch.zeros_like(h0), memory.shape[1] - schedule.memories(0, seen, len(h))
    grad = torch.zeros_like(h) if grad is None else grad
    extra = () if grad_read is None else (grad_read,)

    def step_back(now: tuple[Tensor, ...], carry: tuple[Tensor, Tensor, Tensor, int]) -> tuple[tuple[()], Any]:
        grad, through, to_o, to_rest, f, row, d_o, d_rest, h, read, *also = now
        dh, dc, waiting, t = carry
        steps, count = seen + t + 1, schedule.memories(already, seen, t)
        dh = grad + dh
        if steps % schedule.every == 0:
            dh += back.of_stored(count)
        dr = dh + also[0] if also else dh
        if count <= schedule.top:
            dh = dh + back.through_all(dr, h - read, count)
        else:
            waiting = waiting + dr
            if t == 0 or (steps - 1) % schedule.every == 0:  # the first step of this choice
                back.through_choice(waiting, left.pop())
                waiting = nothing
        dc = torch.addcmul(dc, dh, through)
        torch.mul(to_o, dh, out=d_o)
        torch.mul(to_rest, dc.unsqueeze(1), out=d_rest)
        cut = steps % schedule.truncate == 0
        return (), (nothing if cut else row @ matrix, nothing if cut else dc * f, waiting, t - 1)

    rows, f = dz.flatten(2), by_gate(z)[2]
    inputs = (
        grad, through, by_gates[:, :, 0], by_gates[:, :, 1:], f, rows, dz[:, :, 0], dz[:, :, 1:], h, read, *extra
    )  # fmt: skip
    first = nothing, nothing if grad_c is None else grad_c, nothing, len(h) - 1
    _, (grad_h0, grad_c0, *_) = unroll(step_back, inputs, first, reverse=True)
    before = torch.cat([h0[None], h[:-1]])
    return rows, rows.flatten(0, 1).mT @ before.flatten(0, 1), back.of_score(), grad_h0, grad_c0, back.of_first(already)


class SparseRecurrence(torch.autograd.Function):
    """h, r, the last c and the memory for eager code; second derivatives use the plain loop."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        h, read, c, z, kept = _forward(*inputs)
        ctx.save_for_backward(*inputs[:6], h, read, c, z, kept.states, kept.scores)
        ctx.choices, (ctx.seen, ctx.schedule) = kept.choices, inputs[6:]
        ctx.set_materialize_grads(False)
        return h, read, c[-1].clone(), kept.states

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        u, matrix, score, h0, c0, memory, *rest = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            inputs = (u, matrix, score, h0, c0, memory)
            return *gradients_again(ctx, _run_plain, inputs, (ctx.seen, ctx.schedule), grads), None, None
        saved = (matrix, score, h0, c0, *rest)
        return *_backward(grads, saved, ctx.choices, ctx.seen, ctx.schedule), None, None


def _run_plain(
    u: Tensor, matrix: Tensor, score: Tensor, h0: Tensor, c0: Tensor, memory: Tensor, seen: int, schedule: Schedule
) -> tuple[Tensor, ...]:
    """The outputs of `SparseRecurrence` by the plain loop."""
    counts = torch.zeros(memory.shape[:2], dtype=torch.int64, device=memory.device)
    state = SparseState(h0, c0, memory, counts, counts.new_full((len(memory),), seen))
    out, read, last, _ = run(u, matrix, score, state, schedule)
    return out, read, last.c, last.memory

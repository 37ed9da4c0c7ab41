"""The backward pass of recurrences with memory, a few sequences of the batch at a time.

So its own buffers stay small: gradients of h and of U_a h of every step, U_a h, and V_a q. Products over all steps are
left to torch, one sequence at a time, because a sequence of a time-major tensor is a matrix without a copy.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kreiss.recurrence import products
from kreiss.recurrence.library import readable_or_none
from kreiss.recurrence.memory.kernel import Memory

SHARE = 5  # the backward pass takes at most one sequence in five at a time
MOST = 6  # sequences that a thread takes together


class Gradients:
    """All gradients of one pass.

    Args:
        memory: the pass.
        x: inputs (T, B, I), or symbols (T, B).
        weight: U.
        wants_x: whether x is differentiated.
    """

    def __init__(self, memory: Memory, x: Tensor, weight: Tensor, wants_x: bool) -> None:
        self.memory, self.x, self.weight, self.wants_x = memory, x, weight, wants_x
        self.states, self.macro, self.past = memory.states, memory.macro, memory.past
        weights, kind, new = memory.weights, memory.kind, self.states.new_zeros
        _, batch, n = self.states.shape
        self.recurrent, self.query, self.key = map(torch.zeros_like, weights[:3])
        self.input_weight = torch.zeros_like(weight)
        self.inputs = torch.empty_like(x) if wants_x else None
        self.score, self.threshold, self.gate, self.bias = new(n), new(n), new(n), new(kind.gates * n)
        self.h, self.c, self.query_before = new(batch, n), new(batch, n), new(batch, n)
        self.before, self.scores = new(batch, self.past, n), new(batch, self.past)

    def all(
        self, grad: Tensor | None, grad_cell: Tensor | None, grad_query: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Gradients of x, U, b, the weights, and h, c, query, short-term memory, relevant set and scores before."""
        batch, threads = self.states.shape[1], torch.get_num_threads()
        rows = min(MOST * threads, max(threads, batch // SHARE // threads * threads))
        for first in range(0, batch, rows):
            self._some(slice(first, min(first + rows, batch)), grad, grad_cell, readable_or_none(grad_query))
        relevant = self.memory.slots[1] if self.past else 0
        return (
            self.inputs, self.input_weight, self.bias, self.recurrent, self.query, self.key, self.score,
            self.threshold, self.gate, self.h, self.c, self.query_before, self.before[:, relevant:],
            self.before[:, :relevant], self.scores[:, :relevant],
        )  # fmt: skip

    def _some(self, now: slice, grad: Tensor | None, grad_cell: Tensor | None, grad_query: Tensor | None) -> None:
        """Add the gradients of some sequences."""
        rows, memory, past = now.stop - now.start, self.memory, self.past
        room = self._room(rows)
        room["grad_states"][:, :past] = 0
        room["grad_states"][:, past:] = 0 if grad is None else grad[:, now].transpose(0, 1)
        if grad_cell is not None:
            room["grad_c"].copy_(grad_cell[now])
        self._project(room, now)
        self.score += memory.backward(now.start, rows, {**room, "grad_query_after": grad_query})
        if past:
            self.before[now] = room["grad_states"][:, :past] + room["grad_keys"][:, :past] @ memory.weights.key
        for r in range(rows):
            self._sum({name: tensor[r] for name, tensor in room.items()}, now.start + r)
        self.h[now], self.c[now], self.query_before[now] = room["grad_h"], room["grad_c"], room["grad_query"]

    def _room(self, rows: int) -> dict[str, Tensor]:
        """The buffers of the kernel, by its names; sequences first."""
        steps, _, n = self.states.shape
        keys, kind, empty, zeros = self.past + steps, self.memory.kind, self.states.new_empty, self.states.new_zeros
        room = {
            "grad_states": empty(rows, keys, n), "grad_keys": zeros(rows, keys, n), "keys": empty(rows, keys, n),
            "queries": empty(rows, steps, n), "grad_h": zeros(rows, n), "grad_query": zeros(rows, n),
            "grad_c": zeros(rows, n),
        }  # fmt: skip
        if kind.lstm:
            room["inner"] = empty(rows, steps, 4 * n)
        if self.memory.learned:
            room["grad_scores"] = zeros(rows, keys)
        return room

    def _project(self, room: dict[str, Tensor], now: slice) -> None:
        """U_a of every key and V_a of every query."""
        to_query, to_key = self.memory.weights.query.mT, self.memory.weights.key.mT
        keys, queries = room["keys"], room["queries"]
        for r, row in enumerate(range(now.start, now.stop)):
            products.write(keys[r, self.past :], self.states[:, row], to_key)
            products.write(queries[r, 1:], self.macro[:-1, row], to_query)
        before = self.memory.kept["query_before"]
        queries[:, 0] = 0 if before is None else before[now] @ to_query
        if self.past:
            keys[:, : self.past] = self.memory.stored_before(now) @ to_key

    # ------------------------------------------------------------ sums over the steps of one sequence

    def _sum(self, room: dict[str, Tensor], row: int) -> None:
        """Add what one sequence gives to the gradients of the weights."""
        memory, past, macro = self.memory, self.past, self.macro[:, row]
        dz = room["inner"] if memory.kind.lstm else room["grad_states"][past:]
        dq, dk = room["queries"], room["grad_keys"]
        products.add(self.recurrent, dz.mT, macro)
        products.add(self.query, dq[1:].mT, macro[:-1])
        if (before := memory.kept["query_before"]) is not None:
            self.query.addr_(dq[0], before[row])
        products.add(self.key, dk[past:].mT, self.states[:, row])
        if past:
            self.key.addmm_(dk[:past].mT, memory.stored_before(slice(row, row + 1))[0])
        self._sum_inputs(dz, row)
        if memory.kind.nonlinearity == "modrelu":  # a threshold acts along sign(z) = sign(h)
            self.threshold += (dz * self.states[:, row].sign()).sum(0)
        if memory.learned:
            self._sum_gate(room["grad_scores"], row)

    def _sum_inputs(self, dz: Tensor, row: int) -> None:
        x = self.x[:, row]
        if x.is_floating_point():
            products.add(self.input_weight, dz.mT, x)
        else:
            self.input_weight.mT.index_add_(0, x, dz)
        if self.inputs is not None:
            products.write(self.inputs[:, row], dz, self.weight)
        self.bias += dz.sum(0)

    def _sum_gate(self, scores: Tensor, row: int) -> None:
        """The gradient of w, from those of the scores w·h of states that were screened in this pass."""
        past = self.past
        self.gate += scores[past:] @ self.states[:, row]
        if past:
            relevant = self.memory.slots[1]  # members before the pass came with their scores
            self.gate += scores[relevant:past] @ self.memory.stored_before(slice(row, row + 1))[0, relevant:]
            self.scores[row] = scores[:past]

"""The kernel of recurrences with memory equals the plain loop, in every configuration."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence

import kreiss
from kreiss import native as compiled
from kreiss.memory.screening import RULES
from kreiss.recurrence import reference_only
from kreiss.recurrence.memory import fused, kernel

F64 = torch.float64
DIFFERENTIABLE = ("h", "c", "query", "short", "memory", "relevant")


@pytest.fixture(autouse=True, scope="module")
def _kernel_is_built():
    assert compiled.library() is not None, "the package was installed without its kernel; is there a C++ compiler?"


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


# ---------------------------------------------------------------- problems


class Problem:
    """A layer with random options, inputs and, perhaps, lengths and a state to start from."""

    def __init__(self, seed: int, dtype: torch.dtype = F64, **changes: Any) -> None:
        draw = random.Random(seed)
        torch.manual_seed(seed)
        name = changes.pop("name", draw.choice(["MemRNN", "MemLSTM", "RelRNN", "RelLSTM"]))
        options: dict[str, Any] = {"mixing": draw.choice([0.5, 1.0, 0.3]), "bias": draw.random() < 0.8}
        if name.startswith("Rel"):
            options |= {
                "short": draw.randint(1, 5), "relevant": draw.randint(1, 4), "screening": draw.choice(list(RULES))
            }  # fmt: skip
        if name.endswith("RNN"):
            options["nonlinearity"] = draw.choice(["tanh", "relu", "modrelu", "identity"])
        options |= changes
        inputs, n = draw.choice([1, 3, 12]), draw.choice([1, 2, 5, 8, 17, 20, 33, 40])
        steps, batch = draw.randint(1, 14), draw.randint(1, 9)
        self.layer = getattr(kreiss, name)(inputs, n, dtype=dtype, **options)
        with torch.no_grad():  # states without a bound would grow by orders of magnitude
            for parameter in self.layer.parameters():
                parameter.mul_(draw.choice([0.5, 1.0, 1.5 if self.layer.nonlinearity == "tanh" else 1.0]))
        self.seed, self.symbols, self.inputs, self.dtype = seed, draw.random() < 0.3, inputs, dtype
        self.x = self._input(steps, batch)
        self.state = self._earlier(draw, batch) if draw.random() < 0.5 else None
        self.lengths = self._lengths(draw, steps, batch) if draw.random() < 0.4 else None

    def _input(self, steps: int, batch: int) -> Tensor:
        if self.symbols:
            return torch.randint(self.inputs, (steps, batch))
        return torch.randn(steps, batch, self.inputs, dtype=self.dtype)

    @staticmethod
    def _lengths(draw: random.Random, steps: int, batch: int) -> Tensor:
        return torch.tensor([steps] + [draw.randint(1, steps) for _ in range(batch - 1)])

    def _earlier(self, draw: random.Random, batch: int) -> Any:
        """The state after some steps, of different numbers perhaps."""
        steps = draw.randint(1, 9)
        x = self._input(steps, batch)
        packed = pack_padded_sequence(x, self._lengths(draw, steps, batch), enforce_sorted=False)
        with reference_only(), torch.no_grad():
            return self.layer(packed if draw.random() < 0.5 else x)[1]

    def results(self) -> list[Tensor]:
        """Outputs, the last state, and the gradients of all parameters, inputs and parts of the first state."""
        x, state = self.x, self.state
        wanted = list(self.layer.parameters())
        if x.is_floating_point():
            x = x.clone().requires_grad_()
            wanted.append(x)
        if state is not None:
            parts = {name: part.clone() for name, part in zip(state._fields, state, strict=True)}
            wanted += [parts[name].requires_grad_() for name in DIFFERENTIABLE if name in parts]
            state = type(state)(**parts)
        packed = x if self.lengths is None else pack_padded_sequence(x, self.lengths, enforce_sorted=False)
        out, last = self.layer(packed, state)
        out = out if self.lengths is None else out.data
        gradients = torch.autograd.grad(self._loss(out, last), wanted, allow_unused=True)
        zeros = [torch.zeros_like(w) if g is None else g for g, w in zip(gradients, wanted, strict=True)]
        return [part.detach() for part in (out, *last, *zeros)]

    def _loss(self, out: Tensor, last: Any) -> Tensor:
        g = torch.Generator().manual_seed(self.seed)
        parts = [out] + [getattr(last, name) for name in DIFFERENTIABLE if name in last._fields]
        loss = sum((part * torch.randn(part.shape[-1], generator=g, dtype=part.dtype)).sum() for part in parts)
        if self.layer.rule is not None and self.layer.rule.learned:
            loss = loss + last.scores.where(last.times >= 0, 0.0).sum()
        return loss


def assert_paths_agree(problem: Problem, tolerance: float) -> None:
    ours = problem.results()
    with reference_only():
        expected = problem.results()
    # rounding goes with the largest numbers: a gradient that cancels is as exact as what it is the difference of
    numbers = [part[part.isfinite()].abs() for part in expected if part.is_floating_point()]
    scale = max(1.0, *(float(part.max()) for part in numbers if part.numel()))
    for mine, its in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=tolerance * scale, equal_nan=True)


# ---------------------------------------------------------------- the same as the plain loop


@pytest.mark.parametrize("first", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(100, 5000, 100))])
def test_the_kernel_equals_the_plain_loop(first, threads):
    for seed in range(first, first + 100):
        threads(3 if seed % 10 == 0 else 1)
        assert_paths_agree(Problem(seed), 1e-12)


def test_the_kernel_equals_the_plain_loop_in_single_precision():
    for seed in range(40):
        assert_paths_agree(Problem(seed, torch.float32, screening="oldest", name="RelRNN", short=2, relevant=3), 3e-3)
        assert_paths_agree(Problem(seed, torch.float32, name="MemRNN", nonlinearity="tanh"), 3e-3)


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_every_instruction_set_of_this_machine_gives_the_same(vector_bytes):
    library = compiled.library()
    best = {"generic": 16, "neon": 16, "avx2": 32, "avx512": 64}[library.kreiss_isa().decode()]
    library.kreiss_use_isa(min(vector_bytes, best))
    try:
        for seed in range(20):
            assert_paths_agree(Problem(seed), 1e-12)
    finally:
        library.kreiss_use_isa(best)


def test_threads_share_sequences_and_change_nothing(threads):
    for seed in range(12):
        problem = Problem(seed, name="RelLSTM", short=2, relevant=2)
        found = []
        for count in (1, 2, 3):
            threads(count)
            found.append(problem.results())
        for mine, its in zip(found[0], found[2], strict=True):
            torch.testing.assert_close(mine, its, rtol=1e-12, atol=1e-12)


def test_without_a_team_of_torchs_threads_plain_ones_do_the_same(threads):
    problem = Problem(3, name="RelRNN", short=2, relevant=2)
    threads(3)
    shared = problem.results()
    library = compiled.library()
    library.kreiss_use_team(None, None, None)
    try:
        own = problem.results()
    finally:
        compiled._share_threads_of_torch(library)
    assert all(torch.equal(mine, its) for mine, its in zip(shared, own, strict=True))


# ---------------------------------------------------------------- hostile numbers


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["MemRNN", "RelLSTM"])
def test_a_number_that_is_none_reaches_the_same_outputs_as_in_the_plain_loop(name, bad):
    layer = getattr(kreiss, name)(3, 5, dtype=F64, **({"short": 2, "relevant": 2} if name == "RelLSTM" else {}))
    x = torch.randn(8, 3, 3, dtype=F64)
    x[4, 1] = bad
    out, last = layer(x)
    with reference_only():
        expected, after = layer(x)
    torch.testing.assert_close(out, expected, equal_nan=True)
    assert torch.equal(last.times, after.times)
    assert torch.isfinite(out[:, [0, 2]]).all()  # other sequences know nothing of it


@pytest.mark.parametrize(
    "size", [3.0, 30.0, 150.0, 600.0]
)  # e^2x of the last is no number, the products of others are none
@pytest.mark.parametrize("name", ["MemRNN", "RelRNN"])
def test_large_queries_and_keys_are_compared_as_in_the_plain_loop(name, size):
    for seed in range(4):
        problem = Problem(seed, name=name, nonlinearity="tanh")
        with torch.no_grad():
            problem.layer.attention_query_l0.normal_(std=size)
            problem.layer.attention_key_l0.copy_(-problem.layer.attention_query_l0)  # large sums and small ones
            problem.layer.attention_score_l0.normal_()
        assert_paths_agree(problem, 1e-12 * size)


def test_arguments_in_disguise_are_what_they_represent():
    layer = kreiss.RelRNN(4, 6, dtype=F64, short=2, relevant=2)
    z = torch.randn(9, 3, 4, dtype=torch.complex128)
    strided = torch.randn(4, 3, 9, dtype=F64).permute(2, 1, 0)
    for x in (z.conj().imag, strided, torch.randn(18, 3, 4, dtype=F64)[::2]):
        with reference_only():
            expected = layer(x.clone())[0]
        torch.testing.assert_close(layer(x)[0], expected)


def test_second_derivatives_are_those_of_the_plain_loop():
    layer = kreiss.RelRNN(3, 5, dtype=F64, short=2, relevant=2, nonlinearity="modrelu")
    x = torch.randn(7, 2, 3, dtype=F64)
    state = layer(torch.randn(4, 2, 3, dtype=F64))[1]
    state = type(state)(*(part.detach() for part in state))

    def twice() -> list[Tensor]:
        out, last = layer(x, state)
        first = torch.autograd.grad(out.square().sum() + last.query.sum(), list(layer.parameters()), create_graph=True)
        return list(torch.autograd.grad(sum(g.square().sum() for g in first), list(layer.parameters())))

    ours = twice()
    with reference_only():
        expected = twice()
    for mine, its in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-9, atol=1e-9)


def test_a_pass_keeps_no_graph_alive():
    import gc
    import weakref

    layer = kreiss.RelRNN(3, 5)
    gc.collect()
    gc.disable()
    try:
        out, _ = layer(torch.randn(6, 2, 3))
        gone = weakref.ref(out)
        del out, _
        assert gone() is None, "outputs are kept by a cycle of references"
    finally:
        gc.enable()


# ---------------------------------------------------------------- compiled code


@pytest.mark.parametrize("name", ["MemRNN", "RelLSTM"])
def test_compiled_code_calls_one_operator_whatever_the_length(name):
    torch._dynamo.reset()
    layer = getattr(kreiss, name)(3, 5, **({"short": 2, "relevant": 2} if name == "RelLSTM" else {}))
    graphs: list[Any] = []

    def counting(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(sum("kreiss.memory" in str(node.target) for node in graph.graph.nodes))
        return graph.forward

    for steps in (5, 40):
        x = torch.randn(steps, 2, 3)
        out, last = torch.compile(layer, fullgraph=True, backend=counting)(x)
        expected, after = layer(x)
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(last.query, after.query)
    assert set(graphs) == {1}


def test_gradients_of_compiled_code_are_those_of_eager_code():
    torch._dynamo.reset()
    layer = kreiss.RelRNN(3, 5, short=2, relevant=2, screening="learned")
    x = torch.randn(9, 2, 3, requires_grad=True)
    state = type(layer(x)[1])(*(part.detach() for part in layer(x)[1]))

    def gradients(run: Any) -> list[Tensor]:
        out, last = run(x, state)
        return list(torch.autograd.grad((out.square().sum() + last.query.sum()), [x, *layer.parameters()]))

    compiled_layer = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for mine, its in zip(gradients(compiled_layer), gradients(layer), strict=True):
        torch.testing.assert_close(mine, its)


# ---------------------------------------------------------------- what belongs together


def test_the_struct_is_the_one_of_the_header():
    header = (Path(compiled.__file__).parent / "recurrence" / "csrc" / "kernel.h").read_text()
    body = header.split("struct kreiss_memory_pass {")[1].split("};")[0]
    names = []
    for line in body.splitlines():
        code = line.split("//")[0].strip().rstrip(";")
        if code:
            names += [part.split()[-1].lstrip("*") for part in code.split(",")]
    assert names == [field[0] for field in kernel.Pass._fields_]
    assert ctypes.sizeof(kernel.Pass) == 9 * 8 + 8 + 6 * 4 + len(kernel.POINTERS) * 8


def test_the_reference_path_is_taken_where_the_kernel_cannot_go(monkeypatch):
    monkeypatch.setattr(fused.Recurrence, "apply", None)  # would fail
    layer = kreiss.RelRNN(3, 5)
    x = torch.randn(4, 2, 3)
    with reference_only():
        layer(x)
    torch.func.vmap(lambda part: layer(part)[0], in_dims=1)(x)
    layer.half()(x.half())

    class Own(kreiss.memory.Screening):
        def score(self, candidate):
            return candidate.reads

    kreiss.RelRNN(3, 5, screening=Own())(x)

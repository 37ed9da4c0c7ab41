"""The compiled kernel against the plain loop: values, gradients, every way to give inputs, every instruction set."""

from __future__ import annotations

import copy
import ctypes
import multiprocessing
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._pytree import tree_leaves

import kreiss
from catalogue import GATED, OURS, PLAIN_STATE, STRUCTURED
from kreiss import native as compiled
from kreiss.recurrence import NONLINEARITIES, reference_only, run_plain
from kreiss.recurrence.plain import fused, kernel, reference

F64 = torch.float64
TOLERANCE = {F64: 1e-11, torch.float32: 2e-4}


@pytest.fixture(autouse=True)
def _kernel_is_built():
    assert compiled.library() is not None, "the package was installed without its kernel; is there a C++ compiler?"


def problem(steps: int, batch: int, n: int, inputs: int, dtype: torch.dtype, seed: int = 0) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(shape, generator=g, dtype=F64)  # noqa: E731
    made = {
        "x": draw(steps, batch, inputs),
        "weight": draw(n, inputs) / inputs**0.5,
        "bias": 0.3 * draw(n),
        "matrix": draw(n, n) / n**0.5,
        "h0": draw(batch, n),
    }
    return {name: tensor.to(dtype).requires_grad_() for name, tensor in made.items()}


def results(tensors: dict[str, Tensor], **options) -> list[Tensor]:
    """States, last state, and the gradients of a sum over both, weighted at random."""
    tensors = {name: t.detach().clone().requires_grad_(t.is_floating_point()) for name, t in tensors.items()}
    states, last = run_plain(**tensors, **options)
    g = torch.Generator().manual_seed(1)
    loss = (states * torch.randn(states.shape, generator=g, dtype=F64).to(states.dtype)).sum()
    loss = loss + (last * torch.randn(last.shape, generator=g, dtype=F64).to(last.dtype)).sum()
    wanted = [t for t in tensors.values() if t.requires_grad]
    return [states, last, *torch.autograd.grad(loss, wanted)]


def assert_paths_agree(tensors: dict[str, Tensor], tol: float, **options) -> None:
    assert fused.usable(tensors["x"], tensors["weight"], tensors["matrix"], tensors["h0"])
    found = results(tensors, **options)
    with reference_only():
        expected = results(tensors, **options)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() <= tol * (1 + other.abs().max())


@settings(max_examples=60)
@given(
    steps=st.integers(1, 12),
    batch=st.integers(1, 9),
    n=st.integers(1, 70),
    inputs=st.sampled_from([1, 3, 33]),
    nonlinearity=st.sampled_from(NONLINEARITIES),
    dtype=st.sampled_from([F64, torch.float32]),
    reverse=st.booleans(),
    ragged=st.booleans(),
    threads=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
def test_the_kernel_equals_the_plain_loop(steps, batch, n, inputs, nonlinearity, dtype, reverse, ragged, threads, seed):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        lengths = torch.randint(1, steps + 1, (batch,)) if ragged else None
        tensors = problem(steps, batch, n + n % 2 * (nonlinearity == "cmodrelu"), inputs, dtype, seed)
        # modReLU and relu turn on rounding at z = 0; float64 keeps both paths on the same side
        tol = TOLERANCE[dtype] if dtype == F64 or nonlinearity in ("tanh", "identity") else 1e-3
        assert_paths_agree(tensors, tol, nonlinearity=nonlinearity, lengths=lengths, reverse=reverse)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("n", [600, 1030])
def test_sums_over_several_blocks_of_depth_are_whole(n):
    assert_paths_agree(problem(3, 7, n, 5, F64), 1e-11, nonlinearity="tanh")


@pytest.mark.parametrize("rows", [(1, 1), (3, 700), (5000, 1), (250, 20)])
def test_pieces_of_the_backward_pass_join_without_a_seam(rows):
    steps, batch = rows
    for reverse in (False, True):
        assert_paths_agree(problem(steps, batch, 6, 3, F64), 1e-10, nonlinearity="tanh", reverse=reverse)


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_symbols_are_one_hot_vectors(nonlinearity, dtype):
    tensors = problem(7, 5, 14, 4, F64)
    symbols = torch.randint(4, (7, 5), dtype=dtype)
    one_hot = torch.nn.functional.one_hot(symbols.long(), 4).to(F64)
    found = results({**tensors, "x": symbols}, nonlinearity=nonlinearity)
    expected = results({**tensors, "x": one_hot}, nonlinearity=nonlinearity)
    del expected[2]  # the gradient of the one-hot vectors themselves
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-11)
    assert_paths_agree({**tensors, "x": symbols}, 1e-11, nonlinearity=nonlinearity)


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_every_instruction_set_of_this_machine_gives_the_same(vector_bytes):
    library = compiled.library()
    best = {"generic": 16, "avx2": 32, "avx512": 64}[library.kreiss_isa().decode()]
    try:
        if vector_bytes > best:
            assert library.kreiss_use_isa(vector_bytes) == 0  # refused, and the choice stays
            assert library.kreiss_isa().decode() in ("generic", "avx2")
        else:
            assert library.kreiss_use_isa(vector_bytes) == 1
        for nonlinearity in NONLINEARITIES:
            assert_paths_agree(problem(4, 5, 38, 3, F64), 1e-11, nonlinearity=nonlinearity)
            assert_paths_agree(problem(4, 5, 38, 3, torch.float32), 1e-3, nonlinearity=nonlinearity)
    finally:
        assert library.kreiss_use_isa(best) == 1


@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 4e-7), (F64, 1e-15)])
def test_tanh_has_full_relative_accuracy(dtype, tol):
    z = torch.cat([torch.linspace(-25, 25, 4001, dtype=F64), torch.logspace(-30, 0, 500, dtype=F64)]).to(dtype)
    states = z.reshape(1, 1, -1).clone()
    n = len(z)
    kernel.Forward(torch.zeros(n, n, dtype=dtype), None, None, "tanh", False).piece(0, None, states)
    exact = torch.tanh(z.double())
    error = (states.flatten().double() - exact).abs() / exact.abs()
    assert error[exact != 0].max() <= tol


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
def test_one_step_in_single_precision_is_right_to_rounding(nonlinearity):
    tensors = problem(1, 8, 100, 3, torch.float32)
    with torch.no_grad():
        found, _ = run_plain(**tensors, nonlinearity=nonlinearity)
        with reference_only():
            exact, _ = run_plain(**{name: t.double() for name, t in tensors.items()}, nonlinearity=nonlinearity)
    assert (found - exact).abs().max() <= 1e-6 * (1 + exact.abs().max())


@pytest.mark.parametrize("nonlinearity", ["modrelu", "cmodrelu"])
def test_zero_stays_zero_under_modrelu_even_with_a_positive_threshold(nonlinearity):
    states = torch.zeros(2, 1, 6)
    kernel.Forward(torch.eye(6), torch.ones(6), None, nonlinearity, False).piece(0, None, states)
    assert not states.any()


@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_gradients_of_the_complex_modrelu_are_finite_where_its_slope_is_steep(dtype):
    tensors = problem(1, 4, 6, 2, dtype)
    with torch.no_grad():
        tensors["h0"].zero_()
        tensors["bias"].fill_(1.0)
        tensors["x"] *= torch.tensor([0.0, 1e-30, 1e-12, 1e-6]).to(dtype)[None, :, None]
    for gradient in results(tensors, nonlinearity="cmodrelu"):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["x", "matrix", "h0", "bias"])
def test_nan_and_infinity_travel_as_in_the_plain_loop(nonlinearity, value, where):
    tensors = problem(3, 4, 10, 2, F64)
    with torch.no_grad():
        tensors[where].view(-1)[1] = value
        found = run_plain(**tensors, nonlinearity=nonlinearity)[0]
        with reference_only():
            expected = run_plain(**tensors, nonlinearity=nonlinearity)[0]
    assert torch.equal(found.isfinite(), expected.isfinite())
    assert torch.allclose(found[found.isfinite()], expected[expected.isfinite()], atol=1e-11)


def test_the_same_inputs_give_the_same_bits():
    tensors = problem(20, 9, 33, 3, torch.float32)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, second = (results(tensors, nonlinearity="modrelu") for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    finally:
        torch.set_num_threads(before)


def test_denormal_numbers_are_flushed_inside_and_the_state_of_the_processor_is_restored():
    tiny = torch.full((1, 1, 4), 1e-40)
    states = tiny.clone()
    kernel.Forward(torch.zeros(4, 4), None, None, "identity", False).piece(0, None, states)
    assert not states.any()
    assert (tiny * 0.5).any()  # torch still computes with them


def test_second_derivatives_are_right():
    tensors = problem(3, 2, 4, 2, F64)
    names = list(tensors)

    def call(*values):
        return run_plain(**dict(zip(names, values, strict=True)), nonlinearity="tanh")

    assert torch.autograd.gradgradcheck(call, tuple(tensors.values()))


def test_only_the_gradients_that_are_asked_for_are_made():
    tensors = problem(5, 3, 6, 2, F64)
    for name in tensors:
        only = {key: t.detach().requires_grad_(key == name) for key, t in tensors.items()}
        run_plain(**only, nonlinearity="tanh")[1].sum().backward()
        with reference_only():
            other = {key: t.detach().clone().requires_grad_(key == name) for key, t in tensors.items()}
            run_plain(**other, nonlinearity="tanh")[1].sum().backward()
        assert torch.allclose(only[name].grad, other[name].grad, atol=1e-12)


def test_inputs_need_not_be_contiguous():
    tensors = problem(5, 3, 6, 4, F64)
    odd = {
        "x": tensors["x"].detach().transpose(0, 1).contiguous().transpose(0, 1),
        "weight": tensors["weight"].detach().mT.contiguous().mT,
        "bias": tensors["bias"].detach().repeat_interleave(2)[::2],
        "matrix": tensors["matrix"].detach().mT.contiguous().mT,
        "h0": tensors["h0"].detach().mT.contiguous().mT,
    }
    assert not any(t.is_contiguous() for t in odd.values())
    for one, other in zip(results(odd, nonlinearity="relu"), results(tensors, nonlinearity="relu"), strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_a_misaligned_buffer_is_read_right():
    tensors = problem(3, 2, 17, 3, torch.float32)
    shifted = {}
    for name, tensor in tensors.items():
        room = torch.empty(tensor.numel() + 1)
        shifted[name] = room[1:].view(tensor.shape).copy_(tensor.detach())
    for one, other in zip(results(shifted, nonlinearity="relu"), results(tensors, nonlinearity="relu"), strict=True):
        assert torch.equal(one, other)


def test_an_output_changed_in_place_is_noticed_in_backward():
    tensors = problem(3, 2, 4, 2, F64)
    states, _ = run_plain(**tensors, nonlinearity="tanh")
    states.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        states.sum().backward()


@pytest.mark.parametrize("threads", [1, 2])  # one as in DataLoader workers; two must not wait for the parent's team
def test_the_kernel_works_in_a_forked_child(threads):
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    tensors = {name: t.detach() for name, t in problem(5, 4, 8, 3, torch.float32).items()}
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = run_plain(**tensors, nonlinearity="tanh")[1]

        def work() -> None:
            torch.set_num_threads(threads)
            queue.put(run_plain(**tensors, nonlinearity="tanh")[1].tolist())

        child = context.Process(target=work)
        child.start()
        child.join(timeout=60)
        assert child.exitcode == 0
        assert torch.equal(torch.tensor(queue.get()), expected)
    finally:
        torch.set_num_threads(before)


def test_without_a_team_of_torchs_threads_plain_ones_do_the_same():
    library = compiled.library()
    tensors = problem(6, 5, 20, 3, F64)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        shared = results(tensors, nonlinearity="tanh")
        library.kreiss_use_team(None, None, None)
        own = results(tensors, nonlinearity="tanh")
    finally:
        compiled._share_threads_of_torch(library)
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(shared, own, strict=True))


# ---------------------------------------------------------------- layers on it


@pytest.mark.parametrize("name", [name for name in PLAIN_STATE if name not in GATED and name not in STRUCTURED])
def test_every_layer_runs_on_the_kernel_and_equals_its_reference(name, monkeypatch):
    layer = OURS[name](3, 10, 2, bidirectional=True, dtype=F64)
    calls = []
    run = kernel._run
    monkeypatch.setattr(kernel, "_run", lambda *a, **k: (calls.append(1), run(*a, **k))[1])
    x = torch.randn(6, 4, 3, dtype=F64)
    found, last = layer(x)
    assert len(calls) == 4  # one pass per layer and direction
    with reference_only():
        expected, last_expected = layer(x)
    assert torch.allclose(found, expected, atol=1e-12)
    assert torch.allclose(last, last_expected, atol=1e-12)


@pytest.mark.parametrize("name", OURS)
def test_a_layer_takes_symbols_batched_or_not_batch_first_or_not(name):
    layer = OURS[name](5, 8, dtype=F64)
    first = copy.deepcopy(layer)
    first.batch_first = True
    symbols = torch.randint(5, (6, 3))
    expected, last = layer(torch.nn.functional.one_hot(symbols, 5).to(F64))
    for found, h in (layer(symbols), tuple(t.transpose(0, 1) if i == 0 else t for i, t in enumerate(first(symbols.T)))):
        assert torch.allclose(found, expected, atol=1e-12)
        torch.testing.assert_close(tree_leaves(h), tree_leaves(last), rtol=0, atol=1e-12)
    alone, h = layer(symbols[:, 1])
    assert torch.allclose(alone, expected[:, 1], atol=1e-12)
    torch.testing.assert_close(tree_leaves(h), [part[:, 1] for part in tree_leaves(last)], rtol=0, atol=1e-12)


def test_symbols_outside_the_alphabet_are_refused():
    layer = kreiss.NNRNN(5, 8)
    for bad in (torch.tensor([[0], [5]]), torch.tensor([[-1], [2]])):
        with pytest.raises(kreiss.InputError, match=r"symbols in `input` must be in \[0, input_size=5\); got"):
            layer(bad)


def test_the_struct_is_the_one_of_the_header():
    header = (Path(compiled.__file__).parent / "recurrence" / "csrc" / "kernel.h").read_text()
    body = header.split("struct kreiss_pass {")[1].split("};")[0]
    names = []
    for line in body.splitlines():
        code = line.split("//")[0].strip().rstrip(";")
        if code:
            names += [part.split()[-1].lstrip("*") for part in code.split(",")]
    assert names == [field[0] for field in kernel.Pass._fields_]
    assert ctypes.sizeof(kernel.Pass) == 5 * 8 + 8 * 4 + 18 * 8


def test_the_reference_path_is_taken_where_the_kernel_cannot_go():
    ones = torch.ones(2, 2)
    assert not fused.usable(ones.half(), ones.half(), ones.half(), ones.half())
    assert not fused.usable(ones, ones.double(), ones, ones)
    assert not fused.usable(ones.to("meta"), ones, ones, ones)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not fused.usable(ones, ones, ones, ones)
    assert reference.drive(ones[None], ones).shape == (1, 2, 2)


# ---------------------------------------------------------------- what people see


def test_the_doctor_says_whether_the_kernel_runs_and_what_else_is_there(monkeypatch, tmp_path, capsys):
    from kreiss.commands.doctor import doctor

    assert doctor() == 0
    said = capsys.readouterr().out
    assert said.splitlines()[1].startswith("kernel: built, using ")
    assert f"threads: {torch.get_num_threads()}" in said
    for part in (torch.__version__, "matplotlib", "pip install 'kreiss[wandb]'", "shakespeare"):
        assert part in said  # versions, extras and how to get them, data
    monkeypatch.setattr(compiled, "LIBRARY", tmp_path / "missing.so")
    compiled.library.cache_clear()
    try:
        assert "not built" in compiled.status()
        assert "install a C++ compiler" in compiled.status()
        layer = kreiss.NNRNN(3, 4)
        layer(torch.zeros(2, 1, 3))[0].sum().backward()  # works all the same
    finally:
        monkeypatch.undo()
        compiled.library.cache_clear()


def test_a_library_built_for_another_version_is_not_used(monkeypatch):
    other = next(Path(torch.__file__).parent.glob("lib/libc10.so"))  # a library, but not this version's kernel
    monkeypatch.setattr(compiled, "LIBRARY", other)
    compiled.library.cache_clear()
    try:
        assert compiled.library() is None
        assert "built for another version" in compiled.status()
        layer = kreiss.NNRNN(3, 4)
        layer(torch.zeros(2, 1, 3))[0].sum().backward()
    finally:
        monkeypatch.undo()
        compiled.library.cache_clear()

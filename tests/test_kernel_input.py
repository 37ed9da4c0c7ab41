"""Odd tensors given to the kernel: it computes what the plain loop computes, or the error is torch's own. No crash."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import kreiss
from catalogue import OURS, VARIANTS, width
from kreiss.recurrence import NONLINEARITIES, reference_only, run_plain
from kreiss.recurrence import library as compiled
from kreiss.recurrence.plain import fused
from test_kernel import F64, problem, results

NAN, INF = float("nan"), float("inf")


def size(n: int, nonlinearity: str) -> int:
    """n, or the next even number where entries are parts of complex numbers."""
    return n + n % 2 if nonlinearity == "cmodrelu" else n


NAMES = ("x", "weight", "bias", "matrix", "h0")
every_nonlinearity = pytest.mark.parametrize("nonlinearity", NONLINEARITIES)


@pytest.fixture(autouse=True)
def _kernel_is_built():
    assert compiled.library() is not None, "the package was installed without its kernel; is there a C++ compiler?"


# ---------------------------------------------------------------- layouts of memory


def from_odd_bytes(tensor: Tensor) -> Tensor:
    """The same numbers at an address that is no multiple of anything."""
    room = bytearray(tensor.numel() * tensor.element_size() + 1)
    flat = torch.frombuffer(room, dtype=tensor.dtype, count=tensor.numel(), offset=1)
    assert flat.data_ptr() % 2 == 1
    return flat.view(tensor.shape).copy_(tensor)


def spread_out(tensor: Tensor) -> Tensor:
    """The same numbers with others between them."""
    room = torch.full((*tensor.shape[:-1], 3 * tensor.shape[-1]), NAN, dtype=tensor.dtype)
    return room[..., ::3].copy_(tensor)


def turned(tensor: Tensor) -> Tensor:
    """The same numbers, stored the other way round."""
    order = tuple(reversed(range(tensor.dim())))
    return tensor.permute(order).contiguous().permute(order)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda tensor: tensor,
    "odd bytes": from_odd_bytes,
    "spread out": spread_out,
    "turned": turned,
}


@given(
    layouts=st.fixed_dictionaries({name: st.sampled_from(list(LAYOUTS)) for name in NAMES}),
    grad_layout=st.sampled_from(list(LAYOUTS)),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 7), st.integers(1, 40)),
    inputs_and_dtype=st.sampled_from([(1, torch.float32), (3, torch.float32), (1, F64), (3, F64), (33, F64)]),
    nonlinearity=st.sampled_from(NONLINEARITIES),
)
def test_the_layout_of_a_tensor_in_memory_does_not_matter(layouts, grad_layout, shape, inputs_and_dtype, nonlinearity):
    inputs, dtype = inputs_and_dtype
    shape = (*shape[:2], size(shape[2], nonlinearity))
    tensors = {name: tensor.detach() for name, tensor in problem(*shape, inputs, dtype).items()}
    grad, found = torch.randn(shape, dtype=dtype), []
    for placed in (tensors, {name: LAYOUTS[layouts[name]](tensor) for name, tensor in tensors.items()}):
        leaves = {name: tensor.requires_grad_() for name, tensor in placed.items()}
        states, _ = run_plain(**leaves, nonlinearity=nonlinearity)
        given_grad = grad if placed is tensors else LAYOUTS[grad_layout](grad)
        found.append([states, *torch.autograd.grad(states, list(leaves.values()), given_grad)])
    if inputs <= fused.WIDEST_INPUT:  # the kernel alone; wider inputs are torch's product, whose sums see the layout
        assert torch.equal(found[0][0], found[1][0])
    for one, other in zip(*found, strict=True):
        assert (one - other).abs().max() <= 1e3 * torch.finfo(dtype).eps * (1 + other.abs().max())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_symbols_may_lie_in_memory_in_any_way(layout, dtype):
    tensors, symbols = problem(6, 4, 9, 5, F64), torch.randint(5, (6, 4), dtype=dtype)
    placed = symbols if layout == "spread out" else LAYOUTS[layout](symbols)
    if layout == "spread out":  # between the symbols stand numbers that are none
        placed = torch.full((6, 12), -(2**30), dtype=dtype)[:, ::3].copy_(symbols)
    for one, other in zip(
        results({**tensors, "x": placed}, nonlinearity="tanh"),
        results({**tensors, "x": symbols.clone()}, nonlinearity="tanh"),
        strict=True,
    ):
        assert torch.equal(one, other)


def overlapping() -> dict[str, Tensor]:
    """Tensors of which many elements are one number in memory."""
    return {
        "x": torch.randn(1, 1, 3, dtype=F64).expand(6, 4, 3),
        "weight": torch.randn(12, dtype=F64).as_strided((10, 3), (1, 1)),
        "bias": torch.randn(1, dtype=F64).expand(10),
        "matrix": (torch.randn(28, dtype=F64) / 3).as_strided((10, 10), (2, 1)),
        "h0": torch.randn(10, dtype=F64).expand(4, 10),
    }


@every_nonlinearity
def test_tensors_that_overlap_in_memory_are_read_as_if_they_did_not(nonlinearity):
    tensors = overlapping()
    assert all(tensor.untyped_storage().nbytes() < 8 * tensor.numel() for tensor in tensors.values())
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    found, expected = run_plain(**tensors, nonlinearity=nonlinearity), run_plain(**copies, nonlinearity=nonlinearity)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@every_nonlinearity
def test_an_incoming_gradient_that_overlaps_in_memory_is_read_as_if_it_did_not(nonlinearity):
    tensors = problem(6, 4, 10, 3, F64)
    leaves, row = list(tensors.values()), torch.randn(1, 1, 10, dtype=F64)
    grads = (row.expand(6, 4, 10), row.expand(6, 4, 10).clone())
    found, expected = (
        torch.autograd.grad(run_plain(**tensors, nonlinearity=nonlinearity)[0], leaves, grad) for grad in grads
    )
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_what_is_given_is_never_written_to():
    tensors = {name: tensor.detach() for name, tensor in problem(6, 4, 9, 3, F64).items()}
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    grad = torch.randn(6, 4, 9, dtype=F64)
    grad_before = grad.clone()
    leaves = {name: tensor.requires_grad_() for name, tensor in tensors.items()}
    states, last = run_plain(**leaves, nonlinearity="tanh")
    torch.autograd.backward([states, last], [grad, grad[0]])
    assert torch.equal(grad, grad_before)
    assert all(torch.equal(leaves[name].detach(), before[name]) for name in before)


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize("name", VARIANTS)
def test_no_steps_are_refused_and_no_sequences_are_allowed(name):
    layer = VARIANTS[name](3, 8)
    with pytest.raises(RuntimeError):  # ours is one too; torch's own layers raise it themselves
        layer(torch.zeros(0, 2, 3))
    output, _ = layer(torch.zeros(5, 0, 3))
    assert output.shape == (5, 0, width(name, 8))
    output.sum().backward()
    assert all(not parameter.grad.any() for parameter in layer.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("name", OURS)
def test_no_sequences_of_symbols_are_allowed(name):
    assert OURS[name](3, 8)(torch.zeros(5, 0, dtype=torch.int64))[0].shape == (5, 0, width(name, 8))


def test_the_recurrence_of_no_steps_is_an_error_and_of_no_sequences_is_empty():
    tensors = problem(3, 2, 5, 2, F64)
    with pytest.raises((RuntimeError, IndexError)):
        run_plain(**{**tensors, "x": torch.zeros(0, 2, 2, dtype=F64)}, nonlinearity="tanh")
    empty = {**tensors, "x": torch.zeros(3, 0, 2, dtype=F64), "h0": torch.zeros(0, 5, dtype=F64)}
    states, last = run_plain(**empty, nonlinearity="tanh")
    assert states.shape == (3, 0, 5)
    assert last.shape == (0, 5)


@pytest.mark.parametrize("steps", [2**45, 2**58], ids=["more than there is", "more than can be counted"])
def test_a_sequence_too_long_for_memory_is_torchs_own_error(steps):
    layer = kreiss.NNRNN(3, 64)
    with pytest.raises(RuntimeError, match=r"can't allocate memory|overflow|Invalid|numel"):
        layer(torch.zeros(1, 1, 3).expand(steps, 2, 3))
    assert layer(torch.zeros(2, 2, 3))[0].shape == (2, 2, 64)  # and it goes on working


@pytest.mark.parametrize("batch", [2**44, 2**57], ids=["more than there is", "more than can be counted"])
def test_a_batch_too_large_for_memory_is_torchs_own_error(batch):
    with pytest.raises(RuntimeError, match=r"can't allocate memory|overflow|Invalid|numel"):
        kreiss.NNRNN(3, 64)(torch.zeros(1, 1, 3).expand(2, batch, 3))


# ---------------------------------------------------------------- dtypes


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.complex64, torch.uint8, torch.bool, torch.int16]
)
@pytest.mark.parametrize("name", OURS)
def test_a_layer_refuses_inputs_of_another_dtype(name, dtype):
    layer = OURS[name](3, 8)
    with pytest.raises(kreiss.InputError, match=r"`input` must be"):
        layer(torch.zeros(4, 2, 3).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES[:2] + NAMES[3:])
def test_mixed_dtypes_never_reach_the_kernel(name, dtype):
    tensors = {key: tensor.detach() for key, tensor in problem(3, 2, 5, 2, torch.float32).items()}
    tensors[name] = tensors[name].to(dtype)
    assert not fused.usable(tensors["x"], tensors["weight"], tensors["matrix"], tensors["h0"])


# ---------------------------------------------------------------- numbers that are none


def finite_where_the_loop_is(found: Tensor, expected: Tensor) -> bool:
    return torch.equal(found.isfinite(), expected.isfinite()) and torch.allclose(
        found[found.isfinite()], expected[expected.isfinite()], atol=1e-10
    )


@every_nonlinearity
@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("where", NAMES)
def test_nan_and_infinity_anywhere_reach_the_states_that_they_reach_in_the_plain_loop(where, value, nonlinearity):
    for position, reverse, ragged in itertools.product((0, -1), (False, True), (False, True)):
        tensors = {name: tensor.detach() for name, tensor in problem(3, 4, 10, 2, F64).items()}
        tensors[where].view(-1)[position] = value
        options = {"nonlinearity": nonlinearity, "reverse": reverse}
        options["lengths"] = torch.tensor([3, 1, 2, 3]) if ragged else None
        found = run_plain(**tensors, **options)
        with reference_only():
            expected = run_plain(**tensors, **options)
        assert all(finite_where_the_loop_is(one, other) for one, other in zip(found, expected, strict=True))


def test_nan_in_one_sequence_does_not_reach_another():
    tensors = problem(6, 5, 20, 3, torch.float32)
    clean = results(tensors, nonlinearity="modrelu")[0]
    with torch.no_grad():
        tensors["x"][0, 2, 1] = NAN
    states = run_plain(**tensors, nonlinearity="modrelu")[0]
    assert states[:, 2].isnan().any()
    others = [0, 1, 3, 4]
    assert torch.equal(states[:, others], clean[:, others])


@every_nonlinearity
@pytest.mark.parametrize("value", [NAN, INF])
def test_nan_and_infinity_in_gradients_crash_nothing_and_are_not_lost(value, nonlinearity):
    tensors = problem(5, 4, 10, 2, F64)
    states, _ = run_plain(**tensors, nonlinearity=nonlinearity)
    grad = torch.ones_like(states)
    on = states[4, 1].ne(0).nonzero()[0]  # a unit that is not switched off
    grad[4, 1, on] = value
    for name, found in zip(tensors, torch.autograd.grad(states, list(tensors.values()), grad), strict=True):
        assert not found.isfinite().all(), name


def gradients(tensors: dict[str, Tensor], grad: Tensor, **options) -> tuple[Tensor, ...]:
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in tensors.items()}
    return torch.autograd.grad(run_plain(**leaves, **options)[0], list(leaves.values()), grad)


def test_nan_and_infinity_anywhere_reach_the_gradients_that_they_reach_in_the_plain_loop():
    grad = torch.randn(3, 4, 10, dtype=F64)
    for nonlinearity, value, where in itertools.product(NONLINEARITIES, (NAN, INF, -INF), NAMES):
        if (nonlinearity, where) == ("modrelu", "bias"):
            continue  # from h = NaN alone one cannot tell a threshold that is NaN, which torch's gradient passes by
        tensors = {name: tensor.detach() for name, tensor in problem(3, 4, 10, 2, F64).items()}
        tensors[where].view(-1)[1] = value
        found = gradients(tensors, grad, nonlinearity=nonlinearity)
        with reference_only():
            expected = gradients(tensors, grad, nonlinearity=nonlinearity)
        for name, one, other in zip(NAMES, found, expected, strict=True):
            assert finite_where_the_loop_is(one, other), (nonlinearity, value, where, name)


def test_nan_in_an_incoming_gradient_reaches_what_it_reaches_in_the_plain_loop():
    for nonlinearity, step, first in itertools.product(NONLINEARITIES, (0, 1, 2), (0.0, 1.0)):
        tensors = {name: tensor.detach() for name, tensor in problem(3, 4, 10, 2, F64).items()}
        tensors["h0"] *= first
        grad = torch.ones(3, 4, 10, dtype=F64)
        grad[step, 1, 2] = NAN
        found = gradients(tensors, grad, nonlinearity=nonlinearity)
        with reference_only():
            expected = gradients(tensors, grad, nonlinearity=nonlinearity)
        for name, one, other in zip(tensors, found, expected, strict=True):
            assert finite_where_the_loop_is(one, other), (nonlinearity, step, first, name)


# ---------------------------------------------------------------- arguments of `cell` that do not fit one another


def refused_or_as_the_loop(tensors: dict[str, Tensor], **options) -> bool:
    """Whether the kernel's path raises, or computes what the plain loop computes and raises where that does."""
    try:
        found = run_plain(**tensors, nonlinearity="tanh", **options)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return True
    try:
        with reference_only():
            expected = run_plain(**tensors, nonlinearity="tanh", **options)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    return all(torch.allclose(one, other, atol=1e-5) for one, other in zip(found, expected, strict=True))


# what is given instead of a fitting argument; each larger than needed, so that nothing is read outside of it
UNFIT: dict[str, dict[str, Tensor]] = {
    "bias of another dtype": {"bias": torch.randn(5, dtype=F64)},
    "bias too long": {"bias": torch.randn(9)},
    "lengths of another dtype": {"lengths": torch.tensor([3.0, 1.0], dtype=F64)},
    "lengths of more sequences": {"lengths": torch.tensor([3, 1, 2])},
    "features that the weight does not take": {"x": torch.randn(3, 2, 4)},
    "a first state for more sequences": {"h0": torch.randn(4, 5)},
    "no features": {"x": torch.zeros(3, 2, 0), "weight": torch.zeros(5, 0)},
    "symbols that are truth values": {"x": torch.zeros(3, 2, dtype=torch.bool)},
}


@pytest.mark.parametrize("case", UNFIT)
def test_arguments_that_do_not_fit_are_refused_or_mean_what_they_mean_in_the_plain_loop(case):
    tensors = {name: tensor.detach() for name, tensor in problem(3, 2, 5, 2, torch.float32).items()}
    assert refused_or_as_the_loop({**tensors, **UNFIT[case]})


def test_half_a_complex_number_is_refused_by_every_path():
    tensors = problem(3, 2, 5, 2, F64)
    for context in (nullcontext(), reference_only()):
        with context, pytest.raises(kreiss.InputError, match=r"an even number of entries; got 5\. Pass pairs"):
            run_plain(**tensors, nonlinearity="cmodrelu")


def test_a_bias_of_another_dtype_put_into_a_layer_is_refused_or_right():
    layer, x = kreiss.NNRNN(3, 8), torch.randn(4, 2, 3)
    given = {"bias_l0": layer.bias_l0.detach().double()}
    expected = layer(x)[0]
    assert torch.allclose(torch.func.functional_call(layer, given, (x,))[0], expected, atol=1e-5)


# ---------------------------------------------------------------- accuracy


def back_through(nonlinearity: str, grad: Tensor, h: Tensor, bias: Tensor) -> Tensor:
    """The gradient to z from that to h = φ(z)."""
    if nonlinearity == "cmodrelu":  # along h as it is, across h by |h|/|z|, with |z| = |h| − b
        c, g = (torch.view_as_complex(part.unflatten(-1, (-1, 2)).contiguous()) for part in (h, grad))
        modulus, threshold = c.abs(), bias.unflatten(-1, (-1, 2)).mean(-1)
        unit = c / modulus.clamp_min(1e-300)
        along, across = (g * unit.conj()).real, (g * unit.conj()).imag
        return torch.view_as_real(unit * torch.complex(along, across * modulus / (modulus - threshold))).flatten(-2)
    return grad * {"identity": torch.ones_like(h), "tanh": 1 - h**2, "relu": h > 0, "modrelu": h != 0}[nonlinearity]


def along_bias(nonlinearity: str, grad_u: Tensor, h: Tensor) -> Tensor:
    """What each state adds to the gradient of the bias."""
    if nonlinearity == "cmodrelu":
        c, g = (torch.view_as_complex(part.unflatten(-1, (-1, 2)).contiguous()) for part in (h, grad_u))
        return ((g * c.conj()).real / c.abs().clamp_min(1e-300) / 2).repeat_interleave(2, -1)
    return grad_u * h.sign() if nonlinearity == "modrelu" else grad_u


def one_step_back(
    grad: Tensor, states: Tensor, before: Tensor, matrix: Tensor, bias: Tensor, nonlinearity: str
) -> list[Tensor]:
    """Gradients of u, V and h0 for given states, one by one in double precision: a transcription without autograd."""
    grad, states, before, matrix, bias = (tensor.double() for tensor in (grad, states, before, matrix, bias))
    carry, grad_matrix, grad_u = torch.zeros_like(before), torch.zeros_like(matrix), torch.zeros_like(states)
    for t in reversed(range(len(states))):
        grad_u[t] = back_through(nonlinearity, grad[t] + carry, states[t], bias)
        grad_matrix += grad_u[t].T @ (states[t - 1] if t else before)
        carry = grad_u[t] @ matrix
    return [grad_u, grad_matrix, carry]


@given(
    steps=st.integers(1, 40),
    batch=st.integers(1, 9),
    n=st.integers(1, 150),
    nonlinearity=st.sampled_from(NONLINEARITIES),
    seed=st.integers(0, 1000),
)
def test_single_precision_gradients_are_right_to_1e5_on_the_same_states(steps, batch, n, nonlinearity, seed):
    tensors = problem(steps, batch, size(n, nonlinearity), 3, torch.float32, seed)
    states, _ = run_plain(**tensors, nonlinearity=nonlinearity)
    grad = torch.randn(states.shape, generator=torch.Generator().manual_seed(seed))
    found = dict(zip(tensors, torch.autograd.grad(states, list(tensors.values()), grad), strict=True))
    with torch.no_grad():
        given_ = (tensors[name] for name in ("h0", "matrix", "bias"))
        grad_u, grad_matrix, grad_h0 = one_step_back(grad, states, *given_, nonlinearity)
        exact = {
            "x": grad_u @ tensors["weight"].double(),
            "weight": torch.einsum("tbn,tbi->ni", grad_u, tensors["x"].double()),
            "bias": along_bias(nonlinearity, grad_u, states.double()).sum((0, 1)),
            "matrix": grad_matrix,
            "h0": grad_h0,
        }
    for name, wanted in exact.items():
        assert (found[name] - wanted).norm() <= 1e-5 * wanted.norm(), name


@given(
    batch=st.integers(1, 9),
    n=st.integers(1, 300),
    inputs=st.sampled_from([1, 3, 33]),
    nonlinearity=st.sampled_from(NONLINEARITIES),
    seed=st.integers(0, 1000),
)
def test_one_step_in_single_precision_errs_by_at_most_1e6(batch, n, inputs, nonlinearity, seed):
    made = problem(1, batch, size(n, nonlinearity), inputs, torch.float32, seed)
    tensors = {name: tensor.detach() for name, tensor in made.items()}
    found, _ = run_plain(**tensors, nonlinearity=nonlinearity)
    with reference_only():
        exact, _ = run_plain(**{name: tensor.double() for name, tensor in tensors.items()}, nonlinearity=nonlinearity)
        # modReLU jumps at z = 0, so its error is counted where rounding does not decide the side
        z, _ = run_plain(**{**{name: t.double() for name, t in tensors.items()}, "bias": None}, nonlinearity="identity")
    clear = z.abs() > 1e-5
    assert ((found - exact).abs() * clear).max() <= 1e-6 * (1 + exact.abs().max())


@every_nonlinearity
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_nothing_in_gives_nothing_out(nonlinearity, dtype):
    tensors = {name: tensor.detach() for name, tensor in problem(4, 3, 20, 2, dtype).items()}
    tensors["x"], tensors["h0"] = torch.zeros(4, 3, 2, dtype=dtype), torch.zeros(3, 20, dtype=dtype)
    bias = (
        tensors["bias"].abs() if nonlinearity.endswith("modrelu") else None
    )  # an open threshold, and z = 0 gives 0 still
    states, last = run_plain(**{**tensors, "bias": bias}, nonlinearity=nonlinearity)
    assert not states.any()
    assert not last.any()

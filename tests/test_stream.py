"""A stream gives what the whole sequence gives; the last state alone is the last state."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import kreiss
from catalogue import ONE_WAY, OURS, VARIANTS, a_state, hidden_of, mostly_slow
from kreiss.networks import RecurrentNetwork
from kreiss.recurrence import library as compiled
from kreiss.recurrence import reference_only
from kreiss.recurrence.plain import fused

by_layer = pytest.mark.parametrize("name", VARIANTS)


def made(name, **options):
    return VARIANTS[name](3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1), **options)


@pytest.fixture(autouse=True, scope="module")
def short_pieces():
    """So that sequences as short as those here are cut into several pieces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "PIECE_ROWS", 2)
        yield


# ---------------------------------------------------------------- streams


def of_images():
    return RecurrentNetwork(kreiss.RNN(128, 4), 2, image=(1, 32, 32))


def of_symbols():
    return RecurrentNetwork(kreiss.RNN(3, 4), 2, symbols=5, embedding=3)


@by_layer
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("batch", [None, 4])
def test_steps_and_chunks_join_to_the_whole_sequence(name, num_layers, batch):
    layer = made(name, num_layers=num_layers)
    x = torch.randn(9, *([] if batch is None else [batch]), 3, dtype=torch.float64)
    whole, last = layer(x)
    stream = kreiss.Stream(layer, batch)
    parts = [stream.feed(x[:2]), stream.step(x[2])[None].clone(), stream.step(x[3])[None].clone(), stream.feed(x[4:])]
    torch.testing.assert_close(torch.cat(parts), whole.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(tree_leaves(stream.state), tree_leaves(last), rtol=1e-12, atol=1e-12)
    stream.reset()
    torch.testing.assert_close(stream.step(x[0]), whole[0].detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["relrnn", "rellstm"])
@pytest.mark.parametrize("steps", mostly_slow([500, 10_000], 500))
@torch.no_grad()
def test_a_long_stream_with_memory_equals_forward_and_its_state_does_not_grow(name, steps):
    layer, x = made(name), torch.randn(steps, 3, dtype=torch.float64)
    whole, last = layer(x)
    stream = kreiss.Stream(layer)
    sizes = [part.shape for part in stream.state]
    found = torch.stack([stream.step(x_t) for x_t in x])
    torch.testing.assert_close(found, whole, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(list(stream.state), list(last), rtol=1e-9, atol=1e-9)
    assert [part.shape for part in stream.state] == sizes


def test_a_stream_is_batch_first_where_its_layer_is():
    layer = kreiss.NNRNN(3, 6, batch_first=True)
    x = torch.randn(4, 7, 3)
    stream = kreiss.Stream(layer, 4)
    joined = torch.cat([stream.feed(x[:, :3]), stream.feed(x[:, 3:])], 1)
    torch.testing.assert_close(joined, layer(x)[0].detach())


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_a_stream_takes_symbols(batch, dtype):
    layer = kreiss.RNN(5, 6)
    x = torch.randint(5, (7,) if batch is None else (7, batch)).to(dtype)
    stream = kreiss.Stream(layer, batch)
    stepped = torch.stack([stream.step(symbol).clone() for symbol in x])
    torch.testing.assert_close(stepped, layer(x)[0].detach())


def test_a_step_inside_autocast_takes_numbers_of_another_precision():
    stream, x = kreiss.Stream(kreiss.RNN(3, 6)), torch.randn(3).bfloat16()
    expected = stream.step(x.float()).clone()
    stream.reset()
    with torch.autocast("cpu"):
        torch.testing.assert_close(stream.step(x), expected)


@pytest.mark.parametrize("batch", [None, 3])
def test_steps_read_in_place_equal_those_that_are_looked_at_closer(batch):
    layer = kreiss.RNN(3, 6, 2)
    stream, other = kreiss.Stream(layer, batch), kreiss.Stream(layer, batch)
    for x in torch.randn(5, *([] if batch is None else [batch]), 3):
        apart = torch.stack([x, x], -1)[..., 0]
        assert not apart.is_contiguous()
        assert torch.equal(stream.step(x), other.step(apart))
    assert torch.equal(stream.state, other.state)


def test_a_step_takes_a_part_of_zeros_that_are_not_in_memory():
    stream = kreiss.Stream(kreiss.RNN(3, 6))
    expected = stream.step(torch.zeros(3)).clone()
    stream.reset()
    assert torch.equal(stream.step(torch._efficientzerotensor(5)[2:]), expected)


def test_training_a_layer_does_not_change_its_stream():
    layer = kreiss.NNRNN(3, 6)
    stream, x = kreiss.Stream(layer), torch.randn(3)
    before = stream.step(x).clone()
    with torch.no_grad():
        layer.angle_l0.add_(1.0)
    stream.reset()
    assert torch.equal(stream.step(x), before)


def test_a_state_can_be_set_and_is_not_shared():
    layer = kreiss.NNRNN(3, 6)
    x = torch.randn(8, 2, 3)
    middle = layer(x[:5])[1].detach()
    stream = kreiss.Stream(layer, 2)
    stream.state = middle
    torch.testing.assert_close(stream.feed(x[5:]), layer(x)[0][5:].detach(), rtol=1e-5, atol=1e-6)
    kept = middle.clone()
    stream.step(x[0])
    assert torch.equal(middle, kept)


class Operations(TorchDispatchMode):
    """The torch operations that run inside."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.seen.append(str(function))
        return function(*arguments, **(options or {}))


@pytest.mark.skipif(compiled.library() is None, reason="the kernel is not built here")
@pytest.mark.parametrize("batch", [1, 4])
def test_a_step_on_the_kernel_runs_no_torch_operation_and_so_allocates_nothing(batch):
    stream = kreiss.Stream(kreiss.NNRNN(3, 6, 2), batch)
    x = torch.randn(batch, 3)
    places = {stream.step(x).data_ptr() for _ in range(6)}
    assert len(places) == 2
    with Operations() as operations:
        stream.step(x)
    assert operations.seen == []


@by_layer
@pytest.mark.parametrize("options", [{}, {"answers": "last"}, {"symbols": 4, "embedding": 3}, {"symbols": 3}])
@torch.no_grad()
def test_a_network_streams_its_outputs_and_the_answer_so_far(name, options):
    network = RecurrentNetwork(made(name), 2, generator=torch.Generator().manual_seed(0), **options)
    symbols = options.get("symbols")
    x = torch.randint(symbols, (7, 4)) if symbols else torch.randn(7, 4, 3, dtype=torch.float64)
    so_far = [network(x[: end + 1])[0] for end in range(7)]
    whole = torch.stack([out if out.dim() == 2 else out[-1] for out in so_far])
    stream = kreiss.Stream(network, 4)
    parts = [stream.feed(x[:3]), stream.step(x[3])[None], stream.feed(x[4:])]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-9, atol=1e-9)
    alone = kreiss.Stream(network)
    stepped = torch.stack([alone.step(x_t[1]).clone() for x_t in x])
    torch.testing.assert_close(stepped, whole[:, 1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: kreiss.Stream(torch.nn.Linear(2, 2)),
            TypeError,
            "must be a recurrent layer of kreiss, or a network around one; got Linear",
        ),
        (lambda: kreiss.Stream(kreiss.NNRNN(3, 4, bidirectional=True)), ValueError, "needs a unidirectional layer"),
        (lambda: kreiss.Stream(kreiss.NNRNN(3, 4), 0), ValueError, "batch_size"),
        (lambda: kreiss.Stream(of_images()), ValueError, "a stream needs vectors or symbols; got a network of images"),
        (lambda: kreiss.Stream(of_symbols()).step(torch.tensor(5)), ValueError, r"in \[0, input_size=5\); got 5 to 5"),
        (lambda: kreiss.Stream(kreiss.NNRNN(3, 4)).step(torch.randn(2, 3)), ValueError, "must be one step, 1-D"),
        (lambda: kreiss.Stream(kreiss.NNRNN(3, 4), 2).step(torch.randn(3, 3)), ValueError, "must be one step, 2-D"),
        (lambda: kreiss.Stream(kreiss.NNRNN(3, 4)).step(torch.randn(4)), ValueError, "must be input_size=3; got 4"),
        (lambda: kreiss.Stream(kreiss.NNRNN(3, 4)).step(torch.randn(3).double()), ValueError, "must be torch.float32"),
        (lambda: kreiss.Stream(kreiss.NNRNN(3, 4)).step(torch.tensor(3)), ValueError, "symbols in `input` must be in"),
        (lambda: setattr(kreiss.Stream(kreiss.NNRNN(3, 4)), "state", torch.zeros(4)), ValueError, r"shape \(1, 4\)"),
    ],
)
def test_what_a_stream_cannot_use_is_refused_in_a_sentence(make, error, message):
    with pytest.raises(error, match=message):
        make()


# ---------------------------------------------------------------- the last state alone


@pytest.mark.parametrize(
    ("name", "bidirectional"),
    [(name, both) for name in OURS for both in ([False] if name in ONE_WAY else [False, True])],
)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_final_state_and_its_gradients_are_those_of_forward(name, bidirectional, num_layers):
    layer = made(name, num_layers=num_layers, bidirectional=bidirectional)
    x = torch.randn(23, 4, 3, dtype=torch.float64, requires_grad=True)
    h0 = tree_map(lambda part: 0.1 * part if part.is_floating_point() else part, a_state(layer, 4))
    start = hidden_of(h0)[0].requires_grad_()
    inputs = [x, start, *layer.parameters()]
    weight = torch.randn_like(start)
    torch.manual_seed(5)
    found = layer.final_state(x, h0)
    torch.manual_seed(5)
    wanted = layer(x, h0)[1]
    torch.testing.assert_close(tree_leaves(found), tree_leaves(wanted), rtol=1e-12, atol=1e-12)
    pulled = [
        torch.autograd.grad((hidden_of(state)[0] * weight).sum(), inputs, materialize_grads=True)
        for state in (found, wanted)
    ]
    for one, other in zip(*pulled, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@by_layer
def test_the_final_state_of_packed_unbatched_and_symbol_input_is_that_of_forward(name):
    layer = made(name)
    packed = pack_sequence([torch.randn(n, 3, dtype=torch.float64) for n in (4, 11, 7)], enforce_sorted=False)
    for x in (packed, torch.randn(10, 3, dtype=torch.float64)):
        torch.testing.assert_close(tree_leaves(layer.final_state(x)), tree_leaves(layer(x)[1]), rtol=1e-12, atol=1e-12)
    if name in OURS:
        symbols = torch.randint(3, (12, 2))
        found, wanted = tree_leaves(layer.final_state(symbols)), tree_leaves(layer(symbols)[1])
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.integers(1, 40),
    batch=st.integers(1, 5),
    n=st.integers(1, 20),
    inputs=st.sampled_from([1, 3, 40]),
    nonlinearity=st.sampled_from(["identity", "tanh", "relu", "modrelu"]),
    ragged=st.booleans(),
    reverse=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_last_state_of_any_shape_is_that_of_the_plain_loop(
    steps, batch, n, inputs, nonlinearity, ragged, reverse, seed
):
    g = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(shape, generator=g, dtype=torch.float64)  # noqa: E731
    x, weight, matrix, h0, bias = (
        draw(steps, batch, inputs), draw(n, inputs), draw(n, n) / n**0.5, draw(batch, n), draw(n) / 10,
    )  # fmt: skip
    leaves = [tensor.requires_grad_() for tensor in (x, weight, matrix, h0, bias)]
    lengths = torch.randint(1, steps + 1, (batch,), generator=g) if ragged else None
    options = {"nonlinearity": nonlinearity, "bias": bias, "lengths": lengths, "reverse": reverse}
    found = kreiss.recurrence.last_state(x, weight, matrix, h0, **options)
    with reference_only():
        wanted = kreiss.recurrence.last_state(x, weight, matrix, h0, **options)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    outer = draw(batch, n)
    for one, other in zip(
        torch.autograd.grad(found, leaves, outer), torch.autograd.grad(wanted, leaves, outer), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7 * max(1.0, float(other.abs().max())))


def test_second_derivatives_of_the_final_state_are_right():
    layer = kreiss.RNN(2, 3, dtype=torch.float64)
    x = torch.randn(5, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(layer.final_state, (x,))


@pytest.mark.skipif(compiled.library() is None, reason="the kernel is not built")
def test_going_back_twice_through_the_final_state_gives_the_same_gradients():
    layer = made("nnrnn")
    x = torch.randn(50, 4, 3, dtype=torch.float64, requires_grad=True)
    last = layer.final_state(x).sum()
    once = torch.autograd.grad(last, [x, *layer.parameters()], retain_graph=True)
    for one, other in zip(once, torch.autograd.grad(last, [x, *layer.parameters()]), strict=True):
        assert torch.equal(one, other)

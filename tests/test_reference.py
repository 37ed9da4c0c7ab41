"""Layers against torch.nn, against a naive NumPy transcription, and the fast paths against the plain one."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import kreiss
from catalogue import COMPLEX, ELMAN, state_of
from kreiss.networks import LAYERS
from kreiss.recurrence import NONLINEARITIES, REAL_NONLINEARITIES, recur
from kreiss.recurrence.plain import operator, reference

exactly = partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
double = {"dtype": torch.float64}
GATED = {"lstm": nn.LSTM, "gru": nn.GRU}


def moved(layer: nn.Module) -> nn.Module:
    """The layer with every parameter off its start, where many are zero and would hide a fault."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return layer


def outputs(layer: nn.Module, *inputs: torch.Tensor | PackedSequence) -> list[torch.Tensor]:
    """Output and state as a flat list of tensors."""
    out, state = layer(*inputs)
    return [out.data if isinstance(out, PackedSequence) else out, *state_of(layer, state)]


def assert_same_outputs(
    layer: nn.Module, other: nn.Module, *, tol: float = 1e-12, x: torch.Tensor | None = None
) -> None:
    if x is None:
        x = torch.randn(5, 4, layer.input_size, **double)
    torch.testing.assert_close(outputs(layer, x), outputs(other, x), rtol=tol, atol=tol)


# ---------------------------------------------------------------- torch.nn.RNN, every option


def results(layer: nn.Module, form: str, with_state: bool) -> dict[str, torch.Tensor]:
    """Output, h_n and every gradient of a random function of both; the same numbers for every layer."""
    torch.manual_seed(1)
    lengths = {"packed": [2, 5, 1, 4], "packed-sorted": [5, 4, 2, 1]}.get(form, [5] * 4)
    sequences = [torch.randn(length, 3, dtype=torch.float64, requires_grad=True) for length in lengths]
    cells = layer.num_layers * (2 if layer.bidirectional else 1)
    hx = torch.randn(cells, 4, 2, dtype=torch.float64, requires_grad=True)
    if form == "unbatched":
        args = [sequences[0], hx[:, 0]]
    elif form == "batched":
        args = [torch.stack(sequences, 0 if layer.batch_first else 1), hx]
    else:
        args = [pack_sequence(sequences, enforce_sorted=form == "packed-sorted"), hx]
    out, h_n = outputs(layer, *args[: 1 + with_state])
    sources = {**{f"x{i}": x for i, x in enumerate(sequences)}, "hx": hx, **dict(layer.named_parameters())}
    value = (out * torch.randn_like(out)).sum() + (h_n * torch.randn_like(h_n)).sum()
    grads = torch.autograd.grad(value, list(sources.values()), allow_unused=True)
    return {
        "out": out,
        "h_n": h_n,
        **{name: grad for name, grad in zip(sources, grads, strict=True) if grad is not None},
    }


@pytest.mark.parametrize("with_state", [False, True], ids=["zero", "hx"])
@pytest.mark.parametrize("form", ["batched", "unbatched", "packed", "packed-sorted"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize("batch_first", [False, True], ids=["time", "batch"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one", "both"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_output_state_and_every_gradient_equal_torch_rnn(
    nonlinearity, num_layers, bidirectional, batch_first, bias, form, with_state
):
    options = {"nonlinearity": nonlinearity, "bias": bias, "batch_first": batch_first, "bidirectional": bidirectional}
    theirs = nn.RNN(3, 2, num_layers, **options, **double)
    ours = kreiss.RNN(3, 2, num_layers, **options, **double)
    ours.load_state_dict(theirs.state_dict())
    expected = results(theirs, form, with_state)
    assert len(expected) >= 2 + 1 + len(list(theirs.parameters()))  # no gradient is missing on both sides
    assert ("hx" in expected) == with_state
    exactly(results(ours, form, with_state), expected)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_state_dict_of_torch_rnn_loads_and_loads_back(bidirectional, bias):
    theirs = nn.RNN(3, 4, 2, bidirectional=bidirectional, bias=bias, **double)
    ours = kreiss.RNN(3, 4, 2, bidirectional=bidirectional, bias=bias, **double)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    again = nn.RNN(3, 4, 2, bidirectional=bidirectional, bias=bias, **double)
    again.load_state_dict(ours.state_dict())
    assert_same_outputs(ours, theirs)
    assert_same_outputs(again, theirs)


# ---------------------------------------------------------------- a naive transcription

PHI = {
    "identity": lambda z, b: z + b,
    "tanh": lambda z, b: np.tanh(z + b),
    "relu": lambda z, b: np.maximum(z + b, 0),
    "modrelu": lambda z, b: np.sign(z) * np.maximum(np.abs(z) + b, 0),
    "cmodrelu": lambda z, b: as_pairs([w * max(abs(w) + c, 0) / abs(w) for w, c in zip(as_complex(z), b, strict=True)]),
}


def as_complex(z: np.ndarray) -> np.ndarray:
    return z[0::2] + 1j * z[1::2]


def as_pairs(w: list[complex]) -> np.ndarray:
    return np.array([part for number in w for part in (number.real, number.imag)])


def transcription(layer: kreiss.RecurrentLayer, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """h_t = φ(V h_{t−1} + U x_t; b), one sequence and one time step after the other."""
    number = lambda name: getattr(layer, name).detach().numpy()  # noqa: E731
    V, U = number("weight_hh_l0"), number("weight_ih_l0")
    size = layer.hidden_size if layer.nonlinearity == "cmodrelu" else len(V)
    b = sum((number(name) for name, _ in layer.named_parameters() if name.startswith("bias")), np.zeros(size))
    states = np.zeros((*x.shape[:2], len(V)))
    for i in range(x.shape[1]):
        last = h[i]
        for t in range(len(x)):
            last = states[t, i] = PHI[layer.nonlinearity](V @ last + U @ x[t, i], b)
    return states


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize(
    ("name", "nonlinearity"),
    [(name, phi) for name in ELMAN for phi in (NONLINEARITIES if name in COMPLEX else REAL_NONLINEARITIES)],
)
def test_every_layer_equals_its_numpy_transcription(name, nonlinearity, bias):
    layer = moved(ELMAN[name](3, 5, nonlinearity=nonlinearity, bias=bias, **double))
    x, h = torch.randn(6, 2, 3, **double), torch.randn(1, 2, layer.state_size, **double)
    expected = transcription(layer, x.numpy(), h[0].numpy())
    out, h_n = layer(x, h)
    exactly(out.detach().numpy(), expected)
    exactly(h_n[0].detach().numpy(), expected[-1])


def test_modrelu_leaves_zero_where_the_state_is_zero_even_with_a_positive_threshold():
    layer = kreiss.OrthRNN(2, 3, **double)
    with torch.no_grad():
        layer.bias_l0.fill_(1.0)
    out, _ = layer(torch.zeros(4, 1, 2, **double))
    assert not out.any()  # and not the threshold, as relu(|z| + b) alone would give


# ---------------------------------------------------------------- from and to torch

SHAPES = [(1, False), (2, False), (2, True)]


def torch_rnn(num_layers: int, bidirectional: bool, **options: object) -> nn.RNN:
    return nn.RNN(3, 5, num_layers, bidirectional=bidirectional, **options, **double)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize(("num_layers", "bidirectional"), SHAPES)
@pytest.mark.parametrize("cls", [kreiss.RNN, kreiss.IRNN, kreiss.OrthRNN, kreiss.NNRNN])
def test_from_torch_of_any_rnn_computes_the_same(cls, num_layers, bidirectional, nonlinearity, bias):
    rnn = torch_rnn(num_layers, bidirectional, nonlinearity=nonlinearity, bias=bias, batch_first=True)
    layer = cls.from_torch(rnn)
    assert type(layer) is cls
    assert_same_outputs(layer, rnn, tol=1e-9 if cls is kreiss.NNRNN else 1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_nnrnn_holds_any_matrix_whatever_its_real_eigenvalues(seed):
    torch.manual_seed(seed)
    rnn = nn.RNN(3, 5, **double)
    assert_same_outputs(kreiss.NNRNN.from_torch(rnn), rnn, tol=1e-9)


def test_nnrnn_in_the_form_of_the_paper_holds_any_matrix_too():
    rnn = torch_rnn(2, True)
    assert_same_outputs(kreiss.NNRNN.from_torch(rnn, blocks="paper"), rnn, tol=1e-9)


@pytest.mark.parametrize(("num_layers", "bidirectional"), SHAPES)
def test_exprnn_takes_orthogonal_recurrent_matrices_from_torch(num_layers, bidirectional):
    rnn = torch_rnn(num_layers, bidirectional)
    for name, weight in rnn.named_parameters():
        if name.startswith("weight_hh"):
            nn.init.orthogonal_(weight)
    layer = kreiss.ExpRNN.from_torch(rnn)
    assert_same_outputs(layer, rnn, tol=1e-9)
    assert layer.constraint_error() < 1e-12


@pytest.mark.parametrize("cls", [kreiss.ExpRNN, kreiss.ScoRNN])
def test_orthogonal_layers_refuse_other_matrices_from_torch(cls):
    with pytest.raises(kreiss.InputError, match="must be orthogonal to 1e-09"):
        cls.from_torch(torch_rnn(1, False))


@pytest.mark.parametrize(("num_layers", "bidirectional"), SHAPES)
@pytest.mark.parametrize("name", ELMAN)
def test_to_torch_of_a_tanh_layer_computes_the_same(name, num_layers, bidirectional):
    layer = moved(ELMAN[name](3, 5, num_layers, bidirectional=bidirectional, nonlinearity="tanh", **double))
    rnn = layer.to_torch()
    assert type(rnn) is nn.RNN
    assert_same_outputs(rnn, layer)
    assert_same_outputs(layer.freeze().to_torch(), layer)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize("name", [name for name in LAYERS if name in ELMAN])
def test_to_torch_and_from_torch_undo_each_other(name, bias):
    layer = moved(LAYERS[name](3, 5, 2, nonlinearity="relu", bias=bias, batch_first=True, **double))
    assert_same_outputs(LAYERS[name].from_torch(layer.to_torch()), layer, tol=1e-9)


@pytest.mark.parametrize("name", ELMAN)
def test_options_and_mode_survive_the_way_to_torch_and_back(name):
    options = {"batch_first": True, "bidirectional": True, "dropout": 0.5, "bias": False}
    layer = ELMAN[name](3, 4, 2, nonlinearity="relu", **options, **double).eval()
    rnn = layer.to_torch()
    free = kreiss.RNN.from_torch(rnn)
    for other in (rnn, free):
        assert {key: getattr(other, key) for key in options} == options
        assert (other.nonlinearity, other.num_layers, other.training) == ("relu", 2, False)
    assert rnn.weight_ih_l0.dtype == free.weight_ih_l0.dtype == torch.float64


@pytest.mark.parametrize("nonlinearity", ["modrelu", "identity"])
def test_to_torch_refuses_what_torch_rnn_does_not_know(nonlinearity):
    with pytest.raises(kreiss.InputError, match=r"torch\.nn\.RNN supports tanh and relu"):
        kreiss.NNRNN(3, 4, nonlinearity=nonlinearity).to_torch()


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize(("num_layers", "bidirectional"), SHAPES)
@pytest.mark.parametrize("name", GATED)
def test_gated_layers_are_torchs_both_ways(name, num_layers, bidirectional, bias):
    theirs = GATED[name](3, 5, num_layers, bidirectional=bidirectional, bias=bias, batch_first=True, **double).eval()
    ours = LAYERS[name].from_torch(theirs)
    back = ours.to_torch()
    assert type(back) is GATED[name]
    assert not back.training
    assert_same_outputs(ours, theirs)
    assert_same_outputs(back, theirs)


@pytest.mark.parametrize("name", LAYERS)
def test_from_torch_refuses_a_layer_of_another_kind(name):
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.\w+; got Linear"):
        LAYERS[name].from_torch(nn.Linear(3, 3))


# ---------------------------------------------------------------- ragged batches


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    padding=st.integers(0, 2),
    n=st.integers(1, 4),
    nonlinearity=st.sampled_from(NONLINEARITIES),
    with_bias=st.booleans(),
    reverse=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_padded_batch_equals_each_sequence_run_by_itself(lengths, padding, n, nonlinearity, with_bias, reverse, seed):
    torch.manual_seed(seed)
    n *= 2 if nonlinearity == "cmodrelu" else 1
    total = max(lengths) + padding
    u, h0 = torch.randn(total, len(lengths), n, **double), torch.randn(len(lengths), n, **double)
    matrix, bias = torch.randn(n, n, **double), torch.randn(n, **double) if with_bias else None
    run = partial(recur, matrix=matrix, nonlinearity=nonlinearity, bias=bias, reverse=reverse)
    states, last = run(u, h0=h0, lengths=torch.tensor(lengths))
    for i, length in enumerate(lengths):
        alone, alone_last = run(u[:length, i : i + 1], h0=h0[i : i + 1])
        exactly(states[:length, i], alone[:, 0])
        exactly(last[i], alone_last[0])
        stays = h0[i] if reverse else alone_last[0]  # behind the end the state stays what it was
        exactly(states[length:, i], stays.expand(total - length, n))


# ---------------------------------------------------------------- the operator against the reference path

CASES = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
LENGTHS = pytest.mark.parametrize("lengths", [None, [3, 5, 1]], ids=["full", "ragged"])
PHIS = pytest.mark.parametrize("nonlinearity", NONLINEARITIES)


def operands(nonlinearity: str, lengths: list[int] | None, reverse: bool, with_bias: bool = True) -> tuple:
    leaf = lambda *shape: torch.randn(*shape, dtype=torch.float64, requires_grad=True)  # noqa: E731
    bias = leaf(4) if with_bias else None
    ends = None if lengths is None else torch.tensor(lengths)
    return leaf(5, 3, 4), leaf(4, 4), leaf(3, 4), bias, ends, nonlinearity, reverse


@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no-bias"])
@CASES
@LENGTHS
@PHIS
def test_the_operator_equals_the_reference_in_value_and_all_gradients(nonlinearity, lengths, reverse, with_bias):
    args = operands(nonlinearity, lengths, reverse, with_bias)
    leaves = [leaf for leaf in args[:4] if leaf is not None]
    weights = torch.randn(5, 3, 4, **double)
    found, expected = ([], [])
    for run, into in ((operator.states, found), (reference.states, expected)):
        states = run(*args)
        into += [states, *torch.autograd.grad((states * weights).sum(), leaves)]
    exactly(found, expected)


@CASES
@LENGTHS
@PHIS
def test_the_operator_passes_the_checks_of_torch_library(nonlinearity, lengths, reverse):
    torch.library.opcheck(operator.recur_op, operands(nonlinearity, lengths, reverse))


@CASES
@LENGTHS
def test_the_backward_operator_passes_the_checks_of_torch_library(lengths, reverse):
    u, matrix, h0, bias, ends, _, _ = operands("tanh", lengths, reverse)
    for nonlinearity in ("tanh", "cmodrelu"):
        with torch.no_grad():
            kept = operator.recur_op(u, matrix, h0, bias, ends, nonlinearity, reverse)
            args = (torch.randn_like(u), *kept, matrix.clone(), h0.clone(), ends, nonlinearity, reverse)
        torch.library.opcheck(operator.recur_backward_op, args)


@PHIS
@pytest.mark.parametrize("which", range(4), ids=["u", "matrix", "h0", "bias"])
def test_a_second_derivative_through_the_operator_is_refused(nonlinearity, which):
    args = operands(nonlinearity, None, False)
    states = operator.states(*args)
    (grad,) = torch.autograd.grad(states.square().sum(), args[which], create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        grad.sum().backward()

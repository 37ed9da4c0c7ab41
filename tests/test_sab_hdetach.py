"""Sparse attentive backtracking and h-detach: against transcriptions of their equations, one example at a time."""

from __future__ import annotations

import copy
import io
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

import kreiss
from kreiss.recurrence import lstm
from kreiss.recurrence.memory import sparse
from kreiss.recurrence.memory.sparse_reference import attention

exactly = partial(torch.testing.assert_close, rtol=1e-11, atol=1e-11)
double = {"dtype": torch.float64}
IN, N = 2, 4


@pytest.fixture(params=["fast", "plain"])
def path(request, monkeypatch):
    """Both paths: the hand-written backward pass, and the plain loop."""
    if request.param == "plain":
        for module in (lstm, sparse):
            monkeypatch.setattr(module, "takes", lambda *tensors: False)
    return request.param


def sab(num_layers: int = 1, **options: Any) -> kreiss.SAB:
    """Scores large enough for choices to differ, and to matter."""
    options = {"attend_every": 2, "top": 3, "truncate": 5, **options}
    layer = kreiss.SAB(IN, N, num_layers, **options, **double)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return layer


def hdetach(num_layers: int = 1, **options: Any) -> kreiss.HDetach:
    return kreiss.HDetach(IN, N, num_layers, **{**double, **options})


def sequence(*shape: int) -> Tensor:
    return torch.randn(*shape, IN, **double)


def gradients(loss: Tensor, layer: nn.Module, *others: Tensor) -> list[Tensor]:
    return [*torch.autograd.grad(loss, [*layer.parameters(), *others], materialize_grads=True)]


# ---------------------------------------------------------------- SAB, transcribed


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def cell_of(weights: dict[str, np.ndarray], x: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, ...]:
    """torch.nn.LSTMCell."""
    z = weights["weight_ih_l0"] @ x + weights["bias_ih_l0"] + weights["weight_hh_l0"] @ h + weights["bias_hh_l0"]
    i, f, g, o = np.split(z, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def transcribed(layer: kreiss.SAB, weights: dict[str, np.ndarray], x: np.ndarray, cuts: Any = None) -> Any:
    """h, r, weights by step, and the h and c that enter truncated steps, which `cuts` replaces; x is (T, I)."""
    h, c, memory, stored = np.zeros(N), np.zeros(N), [np.zeros(N)], [-1]
    outs, reads, chosen, entered = [], [], [], {}
    for i, now in enumerate(x):
        if (i + 1) % layer.truncate == 0:
            entered[i] = h, c
            h, c = (h, c) if cuts is None else cuts[i]
        made, c = cell_of(weights, now, h, c)
        a = np.array([weights["attention_score_l0"] @ np.tanh(np.concatenate([made, m])) for m in memory])
        if len(memory) > layer.top:
            a = np.maximum(a - (np.sort(a)[-layer.top] + 1e-7), 0)
            a = a / (a.sum() + 1e-7)
        read = sum(weight * m for weight, m in zip(a, memory, strict=True))
        h = made + read
        chosen.append(dict(zip(stored, a, strict=True)))
        if (i + 1) % layer.attend_every == 0:
            memory.append(h)
            stored.append(i)
        outs.append(h)
        reads.append(read)
    return np.stack(outs), np.stack(reads), chosen, entered


def as_numpy(layer: nn.Module) -> dict[str, np.ndarray]:
    return {name: parameter.detach().numpy().copy() for name, parameter in layer.named_parameters()}


@pytest.mark.parametrize("options", [{}, {"attend_every": 1, "truncate": 100}, {"attend_every": 3, "top": 1}])
def test_sab_is_its_transcription_in_outputs_reads_and_choices(path, options):
    layer, x = sab(read_output=True, **options), sequence(17, 3)
    out, state = layer(x)
    record = layer.attention(x)
    for b in range(3):
        outs, reads, chosen, _ = transcribed(layer, as_numpy(layer), x[:, b].numpy())
        exactly(out[:, b, :N], torch.from_numpy(outs))
        exactly(out[:, b, N:], torch.from_numpy(reads))
        for weight, past, expected in zip(record.weight[:, b], record.past[:, b], chosen, strict=True):
            filled = len(expected)
            assert past[:filled].tolist() == list(expected)
            exactly(weight[:filled], torch.tensor(list(expected.values()), **double))
            assert not weight[filled:].any()
    stored = [0, *range(layer.attend_every, 18, layer.attend_every)]
    assert state.times[0].tolist() == [stored] * 3
    exactly(state.memory[0, :, 1:], out[[i - 1 for i in stored[1:]], :, :N].transpose(0, 1))


def test_the_gradient_of_sab_is_that_of_finite_differences(path):
    """The truncated gradient: of a network in which the h and c that enter truncated steps are constants."""
    layer, x = sab(), sequence(14, 1)
    factors = torch.randn(14, N, **double)
    x.requires_grad_()
    found = gradients((layer(x)[0][:, 0] * factors).sum(), layer, x)
    weights, inputs = as_numpy(layer), x.detach()[:, 0].numpy().copy()
    _, _, chosen, entered = transcribed(layer, weights, inputs)
    cuts, support = entered, [[i for i, a in step.items() if a != 0] for step in chosen]

    def loss() -> float:
        outs, _, chosen, _ = transcribed(layer, weights, inputs, cuts)
        assert [[i for i, a in step.items() if a != 0] for step in chosen] == support  # choices did not change
        return float((outs * factors.numpy()).sum())

    for array, gradient in zip([*weights.values(), inputs], found, strict=True):
        expected = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            value, ends = array[place], []
            for step in (1e-6, -1e-6):
                array[place] = value + step
                ends.append(loss())
            array[place] = value
            expected[place] = (ends[0] - ends[1]) / 2e-6
        torch.testing.assert_close(gradient.view(expected.shape), torch.from_numpy(expected), rtol=1e-5, atol=1e-6)


def test_beyond_top_memories_at_most_top_minus_one_have_a_weight_and_they_sum_to_one(path):
    layer = sab(top=4, attend_every=1)
    weight = layer.attention(sequence(20, 5)).weight
    for t in range(20):
        nonzero = (weight[t] != 0).sum(-1)
        assert (nonzero <= 3).all() if t + 1 > 4 else (nonzero == t + 1).all()
    exactly(weight[6:].sum(-1), torch.ones(14, 5, **double), atol=1e-4, rtol=0)


def test_up_to_top_memories_scores_are_used_as_they_are():
    first, second = torch.randn(3), torch.randn(3, 4)
    everything = torch.ones(3, 4, dtype=torch.bool)
    assert torch.equal(attention(first, second, everything, 4), first[:, None] + second)
    assert (attention(first, second, everything, 3) >= 0).all()
    few = torch.tensor([[True, True, False, False]]).expand(3, -1)
    assert torch.equal(attention(first, second, few, 3)[:, :2], (first[:, None] + second)[:, :2])
    assert not attention(first, second, few, 3)[:, 2:].any()


def test_truncation_stops_the_gradient_of_h_and_c_but_not_that_of_memories(path):
    x = sequence(8, 2).requires_grad_()
    cut = sab(truncate=4, attend_every=3, top=5)  # stores steps 2 and 5; steps 3 and 7 are cut
    (grad,) = torch.autograd.grad(cut(x)[0][5].sum(), x)
    assert (grad[:3] != 0).any(-1).all()  # through the memory of step 2
    blind = copy.deepcopy(cut)
    blind.attend_every = 100
    (grad,) = torch.autograd.grad(blind(x)[0][5].sum(), x)
    assert not grad[:3].any()
    assert (grad[3:6] != 0).any()
    blind.truncate = 100
    (grad,) = torch.autograd.grad(blind(x)[0][5].sum(), x)
    assert (grad[:6] != 0).any(-1).all()


def test_an_lstm_remains_without_scores_and_truncation(path):
    layer, x = sab(truncate=1000), sequence(9, 2)
    with torch.no_grad():
        layer.attention_score_l0.zero_()
    torch_lstm = nn.LSTM(IN, N, **double)
    torch_lstm.load_state_dict({k: v for k, v in layer.state_dict().items() if k in torch_lstm.state_dict()})
    layer.top = 100
    exactly(layer(x)[0], torch_lstm(x)[0])


# ---------------------------------------------------------------- h-detach


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_h_detach_does_not_change_the_forward_pass(path, probability):
    layer, x = hdetach(2, probability=probability), sequence(9, 3)
    out, (h, c) = layer(x)
    expected, (h_n, c_n) = layer.to_torch()(x)
    exactly([out, h, c], [expected, h_n, c_n])


def test_without_detaching_the_gradient_is_that_of_torch(path):
    x, state = sequence(9, 3).requires_grad_(), tuple(torch.randn(2, 3, N, **double).requires_grad_() for _ in "hc")
    for layer in (hdetach(2, probability=0.0), hdetach(2, probability=1.0).eval()):
        found = []
        for network in (layer, layer.to_torch()):
            out, (h, c) = network(x, state)
            found.append(gradients((out**2).sum() + h.sum() + (c**3).sum(), network, x, *state))
        exactly(*found)


@pytest.mark.parametrize("probability", [0.4, 1.0])
def test_the_gradient_is_that_of_a_loop_that_detaches_h_at_the_drawn_steps(path, probability):
    layer, x = hdetach(probability=probability), sequence(12, 3).requires_grad_()
    h0, c0 = (torch.randn(1, 3, N, **double).requires_grad_() for _ in "hc")
    torch.manual_seed(5)
    out, (_, last) = layer(x, (h0, c0))
    torch.manual_seed(5)
    cut = torch.rand(12) < probability
    h, c, outs = h0[0], c0[0], []
    for t in range(12):
        h = h.detach() if cut[t] else h
        h, c = torch.lstm_cell(x[t], (h, c), layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0)
        outs.append(h)
    assert cut.any()
    ours = gradients((out**2).sum() + last.sum(), layer, x, h0, c0)
    exactly(ours, gradients((torch.stack(outs) ** 2).sum() + c.sum(), layer, x, h0, c0))


def test_every_step_is_drawn_once_for_the_batch_and_runs_repeat(path):
    layer, x = hdetach(probability=0.5), sequence(20, 3)

    def one() -> list[Tensor]:
        return gradients(layer(x)[0].square().sum(), layer)

    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, second = one(), one()
    torch.set_rng_state(state)
    exactly(one(), first)
    assert not torch.allclose(first[1], second[1])
    before = torch.get_rng_state()
    layer.probability = 0.0
    exactly(one(), one())
    layer.probability = 1.0
    layer.eval()
    exactly(one(), one())
    assert torch.equal(torch.get_rng_state(), before)  # nothing is drawn where nothing is detached


def test_h_detach_converts_from_torch():
    torch_lstm = nn.LSTM(IN, N, 2, batch_first=True, **double)
    layer, x = kreiss.HDetach.from_torch(torch_lstm, probability=0.25), sequence(3, 7)
    exactly(layer(x)[0], torch_lstm(x)[0])
    assert layer.probability == 0.25
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.LSTM"):
        kreiss.HDetach.from_torch(nn.GRU(IN, N))
    with pytest.raises(ValueError, match="no projection"):
        kreiss.HDetach.from_torch(nn.LSTM(IN, N, proj_size=2))


# ---------------------------------------------------------------- both

both = pytest.mark.parametrize("make", [sab, partial(sab, read_output=True), hdetach], ids=["sab", "reads", "hdetach"])


def test_parameter_counts_are_those_published():
    from kreiss.networks import RecurrentNetwork

    def count(layer: nn.Module, outputs: int) -> int:
        return sum(parameter.numel() for parameter in RecurrentNetwork(layer, outputs).parameters())

    assert count(kreiss.SAB(1, 128, read_output=True), 10) == 69_898
    assert count(kreiss.HDetach(1, 128), 9) == 68_233
    assert kreiss.hidden_size_for(kreiss.SAB, 69_898, input_size=1, output_size=10, read_output=True) == 128


@both
def test_a_sequence_in_pieces_or_in_steps_is_the_whole(path, make):
    layer, x = make(2), sequence(13, 3)
    out, last = layer(x)
    first, state = layer(x[:5])
    rest, state = layer(x[5:], state)
    exactly([torch.cat([first, rest]), *state], [out, *last])
    state, outs = layer.init_state(3), []
    for now in x:
        one, state = layer.step(now, state)
        outs.append(one)
    exactly([torch.stack(outs), *state], [out, *last])
    alone, state = layer(x[:, 0])
    exactly([alone, *state], [out[:, 0], *(part[:, 0] for part in last)])


@both
def test_packed_sequences_run_as_if_alone(path, make):
    layer, lengths = make(2), [4, 11, 7]
    xs = [sequence(length) for length in lengths]
    packed, state = layer(pack_sequence(xs, enforce_sorted=False))
    out = pad_packed_sequence(packed)[0]
    more = sequence(6, 3)
    later, end = layer(more, state)  # sequences that have seen different numbers of steps
    for b, x in enumerate(xs):
        alone, own = layer(x)
        exactly(out[: len(x), b], alone)
        whole, own_end = layer(torch.cat([x, more[:, b]]))
        exactly(later[:, b], whole[len(x) :])
        for ended, expected in ((state, own), (end, own_end)):
            for part, other in zip(ended, expected, strict=True):
                part = part[:, b] if part[:, b].shape == other.shape else part[:, b, : other.shape[1]]
                exactly(part, other)


def test_gradients_of_packed_sequences_are_those_of_each_alone(path):
    layer, xs = sab(), [sequence(4), sequence(11)]
    packed, _ = layer(pack_sequence(xs, enforce_sorted=False))
    together = gradients((packed.data**2).sum(), layer)
    exactly(together, gradients(sum((layer(x)[0] ** 2).sum() for x in xs), layer))


@both
def test_second_derivatives_pass_gradgradcheck(make):
    layer, x = make(), sequence(5, 1).requires_grad_()
    layer.probability = 0.0  # finite differences cannot be told to detach
    if isinstance(layer, kreiss.SAB):
        layer.truncate = 100
    assert torch.autograd.gradgradcheck(lambda x: layer(x)[0], x)


@both
def test_the_paths_agree_in_single_precision(make, monkeypatch):
    layer, x = make(dtype=torch.float32) if make is hdetach else make().float(), torch.randn(30, 4, IN)
    torch.manual_seed(0)
    ours = gradients(layer(x)[0].square().sum(), layer)
    for module in (lstm, sparse):
        monkeypatch.setattr(module, "takes", lambda *tensors: False)
    torch.manual_seed(0)
    torch.testing.assert_close(ours, gradients(layer(x)[0].square().sum(), layer), rtol=1e-3, atol=1e-3)


@both
def test_layers_are_saved_and_frozen_and_take_symbols(make):
    layer, x = make(2), sequence(7, 3)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = make(2)
    other.load_state_dict(torch.load(file))
    exactly(other(x)[0], layer(x)[0])
    rebuilt = type(layer)(**layer.config, **double)
    rebuilt.load_state_dict(layer.state_dict())
    exactly(rebuilt(x)[0], layer(x)[0])
    exactly(layer.freeze()(x)[0], layer(x)[0])
    symbols = torch.randint(0, IN, (7, 3))
    exactly(layer(symbols)[0], layer(nn.functional.one_hot(symbols, IN).double())[0])
    exactly(layer.final_state(x)[0], layer(x)[1][0])


@both
def test_layers_are_made_on_the_meta_device_and_from_a_generator(make):
    layer = make(2)
    on_meta = type(layer)(**layer.config, device="meta")
    assert on_meta(torch.empty(5, 3, IN, device="meta"))[0].shape == (5, 3, layer.output_size)
    one, two = (
        type(layer)(**layer.config, generator=torch.Generator().manual_seed(3)) for _ in range(2)
    )  # fmt: skip
    exactly([*one.parameters()], [*two.parameters()])
    assert one.weight_ih_l1.shape == (4 * N, layer.output_size)


def test_initial_values_are_those_published():
    layer = kreiss.SAB(1, 256)
    assert abs(float(layer.attention_score_l0.detach().std()) - 0.01) < 0.002
    for name in ("weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        largest = float(getattr(layer, name).detach().abs().max())
        assert 0.9 / 16 < largest <= 1 / 16


def test_a_cleared_memory_starts_with_a_zero_vector():
    layer = sab()
    _, state = layer(sequence(9, 3))
    empty = layer.carried(state)
    exactly([empty.h, empty.c], [state.h, state.c])
    assert empty.memory.shape == (1, 3, 1, N)
    assert not empty.memory.any()
    assert not empty.steps.any()
    assert sab(carry_memory=True).carried(state) is state


def test_the_attention_map_leaves_the_zero_vector_out():
    layer, x = sab(attend_every=1), sequence(6, 2)
    dense = layer.attention(x).dense(1)
    assert dense.shape == (6, 6)
    assert not dense.triu().any()
    _, state = layer(x[:4])
    exactly(layer.attention(x[4:], state).dense(1), dense[4:])


@both
def test_one_direction_only(make):
    with pytest.raises(ValueError, match=r"must run in one direction; got bidirectional=True"):
        make(bidirectional=True)


@both
@pytest.mark.parametrize("option", ["init", "nonlinearity"])
def test_options_of_other_layers_are_refused(make, option):
    with pytest.raises(TypeError, match=option):
        make(**{option: "tanh"})


@pytest.mark.parametrize("name", ["attend_every", "top", "truncate"])
@pytest.mark.parametrize("value", [0, -1])
def test_counts_must_be_positive(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be at least 1; got {name}={value}"):
        sab(**{name: value})


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "half", True, None])
def test_a_probability_is_in_the_unit_interval(value):
    with pytest.raises(ValueError, match=r"`probability` must be in \[0, 1\]; got"):
        hdetach(probability=value)
    layer = hdetach()
    layer.probability = value
    with pytest.raises(ValueError, match=r"`probability` must be in \[0, 1\]; got"):
        layer(sequence(3, 2))


def test_wrong_states_are_refused():
    layer, x = sab(), sequence(3, 2)
    good = layer.init_state(2)
    with pytest.raises(TypeError, match=r"`hx` must be a SparseState.*got Tensor"):
        layer(x, torch.zeros(1, 2, N, **double))
    with pytest.raises(ValueError, match=r"`hx.h` must be of shape \(1, 2, 4\).*got \(1, 3, 4\)"):
        layer(x, layer.init_state(3))
    with pytest.raises(ValueError, match=r"`hx.c` must be torch.float64; got torch.float32"):
        layer(x, good._replace(c=good.c.float()))
    with pytest.raises(ValueError, match=r"`hx.memory` must be of shape \(1, 2, 2, 4\).*got \(1, 2, 1, 4\)"):
        layer(x, good._replace(times=torch.zeros(1, 2, 2, dtype=torch.int64)))
    detaching = hdetach()
    with pytest.raises(TypeError, match=r"`hx` must be a pair of Tensors"):
        detaching(x, torch.zeros(1, 2, N, **double))
    with pytest.raises(ValueError, match=r"`hx.h` must be of shape \(1, 2, 4\)"):
        detaching(x, detaching.init_state(3))

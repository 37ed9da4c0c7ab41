"""Layers with memory: against Algorithm 1 written out for one sequence, and what follows from it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import kreiss
from kreiss import InputError
from kreiss.memory.screening import RULES

F64 = {"dtype": torch.float64}
LAYERS = {"memrnn": kreiss.MemRNN, "memlstm": kreiss.MemLSTM, "relrnn": kreiss.RelRNN, "rellstm": kreiss.RelLSTM}
every_layer = pytest.mark.parametrize("name", LAYERS)
screened = pytest.mark.parametrize("name", ["relrnn", "rellstm"])


def small(name: str, *sizes: int, **options: Any) -> Any:
    """A float64 layer with little memory and weights large enough to attend unevenly."""
    if name.startswith("rel"):
        options = {"short": 3, "relevant": 2, **options}
    layer = LAYERS[name](*(sizes or (2, 3)), **{**F64, **options})
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, 0.8)
    return layer


# ---------------------------------------------------------------- Algorithm 1 for one sequence, in NumPy


def hashed(step: int, row: int) -> float:
    """The score of the random rule."""
    mask = 2**32 - 1
    x = (step * 0x9E3779B1 + row * 0x85EBCA77) & mask
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & mask
    x = ((x ^ (x >> 15)) * 0x46CA68B) & mask
    return ((x ^ (x >> 16)) >> 8) / 2**24


PHI = {
    "tanh": lambda z, b: np.tanh(z + b),
    "relu": lambda z, b: np.maximum(z + b, 0),
    "identity": lambda z, b: z + b,
    "modrelu": lambda z, b: np.sign(z) * np.maximum(np.abs(z) + b, 0),
}


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


class Naive:
    """One sequence through one cell, state by state, with lists for S and R.

    Args:
        weights: V, U, b, V_a, U_a, v, and w of a learned rule.
        short, relevant: ν and ρ; ν None attends to all.
        rule: the name of the screening rule.
        row: place in the batch, for the random rule.
        fixed: an earlier pass: its choices and the states it scored are taken.
    """

    def __init__(self, weights, *, short, relevant, rule, nonlinearity, lstm, mixing=0.5, row=0, fixed=None):
        self.w, self.short, self.relevant, self.rule = weights, short, relevant, rule
        self.phi, self.lstm, self.mixing, self.row, self.fixed = nonlinearity, lstm, mixing, row, fixed
        self.kept: list[list[tuple[int, float]]] = []  # (step, score) in R when each step reads
        self.alphas: list[dict[int, float]] = []
        self.counts: dict[int, int] = {}  # reads of every state in S

    def run(self, x: np.ndarray) -> np.ndarray:
        n = self.w["v"].size
        h, c, query = np.zeros(n), np.zeros(n), np.zeros(n)
        past = self.past = []  # all states; S and R are lists of steps
        beta: list[float] = []
        surprise: list[float] = []
        self.R: list[tuple[int, float]] = []
        for t, x_t in enumerate(x):
            S = list(range(len(past))) if self.short is None else list(range(max(0, t - self.short), t))
            self.kept.append(list(self.R))
            read = [step for step, _ in self.R] + S
            alpha = self.attention(query, [past[i] for i in read], t)
            self.alphas.append(dict(zip(read, alpha, strict=True)))
            for i in S:
                beta[i] += self.alphas[t][i]
                self.counts[i] = self.counts.get(i, 0) + 1
            mean = sum((a * past[i] for a, i in zip(alpha, read, strict=True)), np.zeros(n))
            s = h if t == 0 else self.mixing * (h + mean)
            expected = h if t == 0 else (h + mean) / 2
            h, c, pre = self.cell(x_t, s, c)
            query = self.query = pre if t == 0 and not self.lstm else s
            if self.short is not None and t >= self.short:
                self.screen(t - self.short, past, beta, surprise, t)
            past.append(h)
            beta.append(0.0)
            surprise.append(float(((h - expected) ** 2).sum()))
        return np.stack(past)

    def attention(self, query, states, t):
        if not states:
            return np.zeros(0)
        e = np.array([self.w["v"] @ np.tanh(self.w["Va"] @ query + self.w["Ua"] @ m) for m in states])
        if self.rule == "learned" and self.fixed is not None:  # straight-through: the score of R, minus its value
            for k, ((step, _), (_, value)) in enumerate(zip(self.R, self.fixed.kept[t], strict=True)):
                e[k] += self.scores[step] - value
        e = np.exp(e - e.max())
        return e / e.sum()

    def cell(self, x, s, c):
        z = self.w["U"] @ x + self.w["V"] @ s
        if not self.lstm:
            return PHI[self.phi](z, self.w["b"]), c, z if self.phi == "modrelu" else z + self.w["b"]
        i, f, g, o = np.split(z + self.w["b"], 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c, None

    def screen(self, i, past, beta, surprise, t):
        scored = (past if self.fixed is None else self.fixed.past)[i]  # the gradient of a learned score is that of w
        score = {
            "relevance": lambda: beta[i],
            "oldest": lambda: -float(i),
            "none": lambda: -np.inf,
            "random": lambda: hashed(i, self.row),
            "surprise": lambda: surprise[i],
            "learned": lambda: float(self.w["w"] @ scored),
        }[self.rule]()
        self.scores = {**getattr(self, "scores", {}), i: score}
        if self.fixed is not None:  # the same choices as before
            self.R = self.fixed.kept[t + 1] if t + 1 < len(self.fixed.kept) else self.R
        elif len(self.R) < self.relevant:
            self.R = [*self.R, (i, score)] if score != -np.inf else self.R
        else:
            lowest = min(range(len(self.R)), key=lambda k: self.R[k][1])
            if score > self.R[lowest][1]:
                self.R = [entry if k != lowest else (i, score) for k, entry in enumerate(self.R)]


def weights_of(layer: Any) -> dict[str, np.ndarray]:
    names = {"V": "weight_hh", "U": "weight_ih", "b": "bias", "Va": "attention_query", "Ua": "attention_key",
             "v": "attention_score", "w": "screening"}  # fmt: skip
    found = {key: getattr(layer, f"{name}_l0", None) for key, name in names.items()}
    found["b"] = torch.zeros(layer.blocks * layer.hidden_size) if found["b"] is None else found["b"]
    return {key: tensor.detach().double().numpy().copy() for key, tensor in found.items() if tensor is not None}


def naive(layer: Any, row: int = 0, **other: Any) -> Naive:
    rule = {cls: name for name, cls in RULES.items()}.get(type(layer.rule))
    return Naive(
        other.pop("weights", None) or weights_of(layer), short=layer.short, relevant=layer.relevant, rule=rule,
        nonlinearity=layer.nonlinearity, lstm=layer.lstm, mixing=layer.mixing, row=row, **other,
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(list(LAYERS)),
    rule=st.sampled_from(list(RULES)),
    nonlinearity=st.sampled_from(list(PHI)),
    short=st.integers(1, 5),
    relevant=st.integers(1, 4),
    mixing=st.sampled_from([0.5, 1.0]),
    bias=st.booleans(),
    steps=st.integers(1, 12),
    seed=st.integers(0, 10_000),
)
def test_outputs_and_choices_are_those_of_the_algorithm(
    name, rule, nonlinearity, short, relevant, mixing, bias, steps, seed
):
    torch.manual_seed(seed)
    options = {"short": short, "relevant": relevant, "screening": rule} if name.startswith("rel") else {}
    if name.endswith("rnn"):
        options["nonlinearity"] = nonlinearity
    layer = small(name, mixing=mixing, bias=bias, **options)
    lengths = torch.randint(1, steps + 1, (3,)).sort(descending=True).values
    x = torch.randn(int(lengths[0]), 3, 2, **F64)
    out, state = layer(pack_padded_sequence(x, lengths))
    out, record = pad_packed_sequence(out)[0], layer.attention(x)
    for b, length in enumerate(lengths.tolist()):
        plain = naive(layer, b)
        expected = plain.run(x[:length, b].numpy())
        np.testing.assert_allclose(out[:length, b].detach(), expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(state.h[0, b].detach(), expected[-1], rtol=1e-9, atol=1e-9)
        if length > 1:  # the first query of the public code, V s + U x, reads one state and so has no effect
            np.testing.assert_allclose(state.query[0, b].detach(), plain.query, rtol=1e-9, atol=1e-9)
        kept = [sorted(int(i) for i in slots if i >= 0) for slots in record.kept()[:length, b]]
        assert kept == [sorted(step for step, _ in entries) for entries in plain.kept]
        for row, alpha in zip(record.dense(b)[:length], plain.alphas, strict=True):
            np.testing.assert_allclose(row[list(alpha)], list(alpha.values()), rtol=1e-9, atol=1e-12)
            assert float(row.sum()) == pytest.approx(sum(alpha.values()))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["relrnn", "rellstm"])
def test_gradients_are_differences_with_the_choices_held(name, rule):
    torch.manual_seed(3)
    layer, x = small(name, 2, 2, screening=rule), torch.randn(9, 1, 2, **F64)
    weighting = torch.randn(9, 2, **F64)
    (layer(x)[0][:, 0] * weighting).sum().backward()
    base = naive(layer)
    base.run(x[:, 0].numpy())
    keys = {"V": "weight_hh", "U": "weight_ih", "b": "bias", "Va": "attention_query", "Ua": "attention_key",
            "v": "attention_score", **({"w": "screening"} if rule == "learned" else {})}  # fmt: skip

    def value(weights: dict[str, np.ndarray]) -> float:
        return float((naive(layer, weights=weights, fixed=base).run(x[:, 0].numpy()) * weighting.numpy()).sum())

    for key, parameter in keys.items():
        found, step = getattr(layer, f"{parameter}_l0").grad.numpy().ravel(), 1e-6
        assert found.any()
        for place in range(found.size):
            ends = []
            for sign in (1, -1):
                moved = {k: array.copy() for k, array in weights_of(layer).items()}
                moved[key].ravel()[place] += sign * step
                ends.append(value(moved))
            assert found[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-7), (key, place)


# ---------------------------------------------------------------- what follows from the algorithm


@pytest.mark.parametrize(("rel", "mem"), [("relrnn", "memrnn"), ("rellstm", "memlstm")])
def test_a_short_term_memory_as_long_as_the_sequence_is_attention_over_all(rel, mem):
    full, x = small(mem), torch.randn(9, 4, 2, **F64)
    for short in (9, 30):
        layer = small(rel, short=short)
        layer.load_state_dict(full.state_dict())
        torch.testing.assert_close(layer(x)[0], full(x)[0], rtol=1e-12, atol=1e-12)


@screened
def test_every_screened_state_had_exactly_as_many_reads_as_the_short_term_memory_is_long(name):
    layer, x = small(name), torch.randn(20, 1, 2, **F64)
    plain = naive(layer)
    plain.run(x[:, 0].numpy())
    record = layer.attention(x)
    for step, count in plain.counts.items():
        assert count == min(3, 19 - step)
    in_short = record.past[:, 0, layer.relevant :]
    assert all(int((in_short == step).sum()) == 3 for step in range(17))
    assert all(stay.entered == stay.past + 4 for stay in layer.memory_trace(x))  # ν reads, then R from the next step


@screened
def test_memory_is_bounded_and_scores_never_change_once_entered(name):
    layer, x = small(name), torch.randn(25, 2, 2, **F64)
    state, seen = layer.init_state(2), {}
    for t, x_t in enumerate(x):
        _, state = layer.step(x_t, state)
        assert state.short.shape[2] + state.relevant.shape[2] == 5
        for b in range(2):
            for step, score in zip(state.times[0, b].tolist(), state.scores[0, b].tolist(), strict=True):
                assert (score == -math.inf) == (step < 0)
                assert seen.setdefault((b, step), score) == score or step < 0
        assert int(state.steps[0, 0]) == t + 1
    record = layer.attention(x)
    assert int((record.past >= 0).sum(-1).max()) <= 5


def test_stays_say_when_a_state_came_and_went():
    layer, x = small("relrnn", short=2, relevant=1, screening="surprise"), torch.randn(30, 2, 2, **F64)
    stays = layer.memory_trace(x)
    kept = layer.attention(x).kept()[..., 0]
    for sequence in range(2):
        own = [stay for stay in stays if stay.sequence == sequence]
        assert own[-1].left is None
        assert [stay.left for stay in own[:-1]] == [stay.entered for stay in own[1:]]
        for stay in own:
            assert (kept[stay.entered : stay.left, sequence] == stay.past).all()


@every_layer
def test_looking_at_attention_changes_nothing(name):
    layer, x = small(name, 2, 3, 2), torch.randn(9, 2, 2, **F64)
    expected = torch.autograd.grad(layer(x)[0].square().sum(), list(layer.parameters()))
    torch.manual_seed(7)
    before = torch.get_rng_state()
    records = [layer.attention(x, layer=k) for k in (0, 1)]
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(record.weight.requires_grad for record in records)
    found = torch.autograd.grad(layer(x)[0].square().sum(), list(layer.parameters()))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@screened
def test_attention_of_the_second_half_is_that_of_the_whole(name):
    layer, x = small(name), torch.randn(12, 2, 2, **F64)
    whole, second = layer.attention(x), layer.attention(x[7:], layer(x[:7])[1])
    torch.testing.assert_close(second.dense(1), whole.dense(1)[7:], rtol=1e-12, atol=1e-12)
    assert torch.equal(second.start, torch.tensor([7, 7]))


# ---------------------------------------------------------------- what cannot be is refused


@pytest.mark.parametrize("make", [*LAYERS.values(), kreiss.SAB, kreiss.HDetach, kreiss.LSTM, kreiss.RNN])
def test_outputs_that_are_changed_in_place_leave_the_state_alone(make):
    torch.manual_seed(0)
    layer, x, y = make(3, 8), torch.randn(20, 4, 3), torch.randn(5, 4, 3)
    for context in (torch.enable_grad, torch.no_grad):
        with context():
            expected, (out, state) = layer(y, layer(x)[1])[0], layer(x)
            out.zero_()
            assert torch.equal(layer(y, state)[0], expected)


@pytest.mark.parametrize("make", [*LAYERS.values(), kreiss.SAB])
def test_a_state_that_holds_more_than_it_can_have_seen_is_refused(make):
    layer, x = make(3, 8), torch.randn(40, 4, 3)
    _, state = layer(x)
    none = type(state)(*(torch.zeros_like(part) for part in state))
    one = type(state)(*(torch.cat([part[:, :3], zero[:, 3:]], 1) for part, zero in zip(state, none, strict=True)))
    for wrong in (none, one, state._replace(steps=-7 - state.steps)):
        with pytest.raises(InputError, match=r"^`hx` must hold no more states than the steps it has seen allow; got "):
            layer(x, wrong)
    layer(x, layer.cleared(state))
    layer(x, layer.init_state(4))


def test_a_rule_that_was_taken_away_or_has_no_weights_is_refused():
    layer, x = kreiss.RelRNN(3, 8, short=2, relevant=2), torch.randn(9, 4, 3)
    for rule, got in ((None, "None"), (RULES["learned"](), "Learned, which has weights that are not there")):
        layer.rule = rule
        with pytest.raises(InputError, match=f"^`rule` must be a screening rule that the layer .*; got {got}"):
            layer(x)


@pytest.mark.parametrize(
    ("make", "needed"),
    [
        (lambda: kreiss.RelRNN(1, 64, short=10_000), "the memory of RelRNN, 10010 states of each sequence"),
        (lambda: kreiss.MemLSTM(1, 64), "the memory of MemLSTM, 3000 states of each sequence in a batch of 4"),
        (lambda: kreiss.SAB(1, 64, attend_every=1), "the memory of SAB, 3001 states of each sequence"),
    ],
    ids=["relrnn", "memlstm", "sab"],
)
def test_a_memory_that_does_not_fit_says_how_much_it_would_take(make, needed, monkeypatch):
    layer = make()
    monkeypatch.setattr("kreiss.errors.machine_memory", lambda: 2**20)
    with pytest.raises(InputError, match=f"^{needed}.* must fit in memory, 1.05 MB .*; got sizes that take at least"):
        layer(torch.zeros(3000, 4, 1))


def test_a_record_of_attention_that_does_not_fit_says_how_much_it_would_take(monkeypatch):
    monkeypatch.setattr("kreiss.errors.machine_memory", lambda: 2**20)
    with pytest.raises(InputError, match=r"^what 900 steps of a batch of 9 read from 900 states must fit in memory"):
        kreiss.MemRNN(1, 4).attention(torch.zeros(900, 9, 1))


def test_mistakes_in_a_rule_of_ones_own_are_said():
    class Wide(kreiss.memory.Screening):
        def score(self, candidate: Any) -> Any:
            return candidate.state.norm(dim=-1, keepdim=True)

    class Gated(kreiss.memory.Screening):
        def score(self, candidate: Any) -> Any:
            return candidate.gate

    class Unfinished(kreiss.memory.Screening):
        pass

    x = torch.randn(9, 4, 3)
    with pytest.raises(
        InputError, match=r"^`score` of Wide must return .* each of the 4 sequences; got shape \(4, 1\)"
    ):
        kreiss.RelRNN(3, 8, short=2, relevant=2, screening=Wide())(x)
    with pytest.raises(InputError, match=r"got a NoneType\. .* `candidate.gate` is there for a rule with `learned"):
        kreiss.RelRNN(3, 8, short=2, relevant=2, screening=Gated())(x)
    with pytest.raises(TypeError, match="abstract"):
        Unfinished()
    with pytest.raises(TypeError, match=r"^`screening` must be .*; got the class Wide\. Make an object of it"):
        kreiss.RelRNN(3, 8, screening=Wide)


def test_options_that_a_layer_does_not_have_are_refused_by_its_own_name():
    with pytest.raises(TypeError, match=r"^RelLSTM must be given options that it has; got recurrent\."):
        kreiss.RelLSTM(3, 8, recurrent=kreiss.Schur(8))
    with pytest.raises(TypeError, match=r"^MemLSTM must be given options that it has; got short\."):
        kreiss.MemLSTM(3, 8, short=3)
    for make in (kreiss.RelRNN, kreiss.RelLSTM):
        with pytest.raises(TypeError, match=r"^`short` must be"):
            make(3, 8, short=None)


def test_a_layer_shows_the_sizes_of_its_memory():
    shown = repr(kreiss.RelRNN(3, 8, short=3, relevant=2, screening="oldest", recurrent="schur"))
    assert "short=3, relevant=2, screening=Oldest, recurrent=Schur, mixing=0.5, carry_memory=True" in shown
    assert "short" not in repr(kreiss.MemRNN(3, 8))


# ---------------------------------------------------------------- windows of a long sequence


@every_layer
def test_a_cleared_state_keeps_h_and_c_and_forgets_the_rest(name):
    layer, x = small(name), torch.randn(9, 2, 2, **F64)
    _, state = layer(x)
    cleared, fresh = layer.cleared(state), layer.init_state(2)
    for part, found in zip(cleared._fields, cleared, strict=True):
        assert torch.equal(found, getattr(state if part in ("h", "c") else fresh, part))


@pytest.mark.parametrize("carry", [True, False])
@every_layer
def test_training_carries_the_memory_or_clears_it_as_asked(name, carry):
    layer, x = small(name, carry_memory=carry), torch.randn(9, 2, 2, **F64)
    network = kreiss.RecurrentNetwork(layer, 2)
    _, state = network(x)
    expected = state if carry else layer.cleared(state)
    assert all(torch.equal(one, other) for one, other in zip(network.carried(state), expected, strict=True))
    assert network.carried(state).steps.any() == carry


# ---------------------------------------------------------------- numbers of parameters (thesis, chapter 4)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


# task → inputs, hidden, outputs; RNN tanh, Mem/RelRNN, LSTM, Mem/RelLSTM
SIZES = {
    "copy": (10, 128, 9, 18_953, 51_849, 72_329, 105_225),
    "denoise": (11, 128, 10, 19_210, 52_106, 72_970, 105_866),
    "permuted mnist": (1, 100, 10, 11_210, 31_310, 41_810, 61_910),
}


@pytest.mark.parametrize("task", SIZES)
def test_networks_have_as_many_parameters_as_those_of_the_thesis(task):
    inputs, n, outputs, rnn, with_memory, lstm, lstm_with_memory = SIZES[task]
    readout = n * outputs + outputs
    for name, expected in zip(LAYERS, (with_memory, lstm_with_memory) * 2, strict=True):
        assert count(LAYERS[name](inputs, n, device="meta")) + readout == expected
    # torch's layers have two biases where the thesis counts one: N more, 4N for the gates of an LSTM
    assert count(kreiss.RNN(inputs, n, device="meta")) - n + readout == rnn
    assert count(kreiss.LSTM(inputs, n, device="meta")) - 4 * n + readout == lstm
    if task != "permuted mnist":
        assert count(kreiss.GORU(inputs, n, device="meta")) + readout == {"copy": 38_601, "denoise": 39_114}[task]


@pytest.mark.parametrize(
    ("make", "expected"),
    [(nn.LSTM, 52_664), (kreiss.LSTM, 52_664), (kreiss.MemLSTM, 60_664), (kreiss.RelLSTM, 60_664)],
)
def test_the_agents_of_the_thesis_have_their_size(make, expected):
    conv = [nn.Conv2d(3, 16, 2), nn.Conv2d(16, 32, 2), nn.Conv2d(32, 64, 2)]
    actor, critic = ([nn.Linear(64, 64), nn.Linear(64, outputs)] for outputs in (7, 1))
    assert sum(count(module) for module in (*conv, *actor, *critic, make(64, 64))) == expected


# ---------------------------------------------------------------- what cannot be used


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: kreiss.RelRNN(2, 3, short=0), r"`short` must be at least 1; got short=0\. Pass"),
        (lambda: kreiss.RelLSTM(2, 3, relevant=-1), r"`relevant` must be at least 1; got relevant=-1\. Pass"),
        (lambda: kreiss.MemRNN(2, 3, mixing=0), r"`mixing` must be positive; got mixing=0\. Pass 0\.5"),
        (lambda: kreiss.RelRNN(2, 3, mixing=-1.0), r"`mixing` must be positive; got mixing=-1\.0\."),
        (lambda: kreiss.MemLSTM(2, 3, mixing=math.nan), r"`mixing` must be a finite number; got mixing=nan\."),
        (lambda: kreiss.RelRNN(2, 3, screening="olddest"), r"unknown screening rule 'olddest'\. Did you mean 'oldest'"),
        (lambda: kreiss.RelRNN(2, 3, recurrent="shcur"), r"unknown set of matrices 'shcur'\. Did you mean 'schur'"),
        (lambda: kreiss.RelRNN(2, 4, recurrent="complexschur"), r"unknown set of matrices 'complexschur'"),
        (lambda: kreiss.MemRNN(2, 4, recurrent=kreiss.ComplexSchur(2)), r"set of real matrices; got ComplexSchur\."),
        (lambda: kreiss.MemRNN(2, 4, recurrent=kreiss.Schur(3)), r"must hold 4×4 matrices.*; got 3×3\. Make the set"),
        (lambda: kreiss.RelRNN(2, 3, short=2**50).init_state(2**20), r"the state must fit in memory, .*; got sizes"),
        (
            lambda: kreiss.MemRNN(2, 64)(torch.zeros(1, 1, 2).expand(2**40, 2, 2)),
            r"the memory of MemRNN, .* must fit in memory, .* on this machine; got .* at least 1\.13 PB\. .*RelRNN",
        ),
        (lambda: kreiss.RelRNN(2, 3).attention(torch.zeros(4, 2), layer=1), r"`layer` must be below num_layers=1; got"),
        (lambda: kreiss.RelRNN(2, 3, bidirectional=True).attention(torch.zeros(4, 2)), r"needs a unidirectional layer"),
        (lambda: kreiss.RelRNN(2, 3)(torch.zeros(0, 1, 2)), r"at least one step; got length 0\. Leave"),
    ],
)  # fmt: skip
def test_what_a_layer_with_memory_cannot_use_is_refused_in_a_sentence(make, said):
    with pytest.raises(InputError, match=said):
        make()


def test_a_sequence_of_no_steps_in_a_batch_is_torchs_own_error():
    with pytest.raises(RuntimeError, match="Length of all samples has to be greater than 0"):
        pack_padded_sequence(torch.zeros(3, 2, 2), [3, 0])


def test_a_memory_longer_than_the_sequence_is_allowed():
    layer = small("relrnn", short=50, relevant=50)
    assert layer(torch.zeros(4, 2, 2, **F64))[0].shape == (4, 2, 3)
    assert layer.memory_trace(torch.zeros(4, 2, 2, **F64)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda state: small("rellstm").init_state(2), r"`hx` must be a ScreenedState.*; got ScreenedLSTMState\. Pass"),
        (lambda state: small("memrnn").init_state(2), r"`hx` must be a ScreenedState.*; got FullState\. Pass"),
        (lambda state: state.h, r"`hx` must be a ScreenedState.*; got Tensor\. Pass the state of an earlier call"),
        (lambda state: tuple(state), r"`hx` must be a ScreenedState.*; got tuple\. Pass"),
        (lambda state: small("relrnn", short=4).init_state(2), r"`hx\.short` must be .*\(1, 2, 3, 3\).*; got \(1, 2, "),
        (lambda state: small("relrnn", relevant=1).init_state(2), r"`hx\.relevant` must be of shape .*; got \(1, 2, 1"),
        (lambda state: small("relrnn").init_state(3), r"`hx\.h` must be of shape \(1, 2, 3\).*; got \(1, 3, 3\)\."),
        (lambda state: small("relrnn").init_state(), r"`hx\.h` must be of shape \(1, 2, 3\) .*; got \(1, 3\)\. Pass"),
        (lambda state: state._replace(h=None), r"`hx\.h` must be of shape \(1, 2, 3\) .*; got NoneType\. Pass"),
        (lambda state: state._replace(h=state.h.float()), r"`hx\.h` must be torch.float64; got torch.float32\. Conv"),
        (lambda state: state._replace(steps=state.steps.double()), r"`hx\.steps` must be torch.int64; got torch.float"),
        (lambda state: state._replace(h=state.h.to("meta")), r"`hx\.h` must be on cpu; got meta\. Move it with"),
    ],
)  # fmt: skip
def test_a_state_of_another_configuration_is_refused(change, said):
    layer = small("relrnn")
    with pytest.raises((InputError, TypeError), match=said):
        layer(torch.zeros(4, 2, 2, **F64), change(layer.init_state(2)))


def test_a_full_memory_whose_parts_differ_in_length_is_refused():
    layer = small("memrnn")
    _, state = layer(torch.zeros(4, 2, 2, **F64))
    with pytest.raises(InputError, match=r"`hx\.memory` must be of shape \(1, 2, 3, 3\) .*; got \(1, 2, 4, 3\)\."):
        layer(torch.zeros(4, 2, 2, **F64), state._replace(times=state.times[..., :3]))


# ---------------------------------------------------------------- sets of V, and files


@pytest.mark.parametrize(
    "made", [kreiss.Schur(4, "paper"), kreiss.Orthogonal(4, "householder"), kreiss.LongShort(4, 1)]
)
@pytest.mark.parametrize("name", ["memrnn", "relrnn"])
def test_a_layer_with_a_set_of_matrices_is_saved_with_it(name, made, tmp_path):
    layer = small(name, 2, 4, 2, recurrent=made)
    kreiss.save(layer, tmp_path / "layer.safetensors")
    again, x = kreiss.load(tmp_path / "layer.safetensors"), torch.randn(7, 2, 2, **F64)
    assert torch.equal(again(x)[0], layer(x)[0])
    assert again.sets["l1"].config == layer.sets["l1"].config
    assert layer.constraint_error() < 1e-12


def test_a_rule_of_ones_own_runs_and_is_not_saved(tmp_path):
    class Largest(kreiss.memory.Screening):
        def score(self, candidate):
            return candidate.state.norm(dim=-1)

    layer, x = small("relrnn", screening=Largest()), torch.randn(12, 1, 2, **F64)
    out, state = layer(x)
    norms = out[:9, 0].norm(dim=-1)  # of those that have left the short-term memory
    assert set(state.times[0, 0].tolist()) == set(norms.topk(2).indices.tolist())
    with pytest.raises(InputError, match="Save its state_dict"):
        kreiss.save(layer, tmp_path / "layer.safetensors")


def test_of_equal_scores_the_earlier_stays():
    class Equal(kreiss.memory.Screening):
        def score(self, candidate):
            return torch.ones_like(candidate.reads)

    _, state = small("relrnn", screening=Equal())(torch.randn(12, 2, 2, **F64))
    assert state.times.tolist() == [[[0, 1], [0, 1]]]

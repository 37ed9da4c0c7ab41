"""Networks with memory: gradients of their states, sparsity, depth, what the theorems say, memory against length."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

import kreiss
from kreiss import analysis
from kreiss.analysis.network.attentive import run_attentive
from kreiss.bench.growth import memory_by_length
from kreiss.commands import figures as figure_verb
from kreiss.commands import memory_figures
from kreiss.commands.sources import source
from kreiss.errors import InputError
from kreiss.memory import AttentionRecord
from kreiss.networks import RecurrentNetwork
from kreiss.recurrence.memory import empty_state, reference
from kreiss.report import plots
from kreiss.report.analyses import described, of_network
from kreiss.report.attention_findings import symbol_names
from kreiss.report.figures import FIGURES
from kreiss.report.network_findings import Drive
from kreiss.report.plots.attention import shown_places
from kreiss.tasks import Denoise

DOUBLE = {"dtype": torch.float64}
MEMORY = {
    "memrnn": lambda **options: kreiss.MemRNN(3, 5, **options, **DOUBLE),
    "memlstm": lambda **options: kreiss.MemLSTM(3, 5, **options, **DOUBLE),
    "relrnn": lambda **options: kreiss.RelRNN(3, 5, short=3, relevant=2, **options, **DOUBLE),
    "rellstm": lambda **options: kreiss.RelLSTM(3, 5, short=3, relevant=2, **options, **DOUBLE),
    "learned": lambda **options: kreiss.RelRNN(3, 5, short=3, relevant=2, screening="learned", **options, **DOUBLE),
    "short only": lambda **options: kreiss.RelRNN(3, 5, short=3, screening="none", **options, **DOUBLE),
}
STEPS, BATCH = 9, 2


def driven(steps: int = STEPS, batch: int = BATCH) -> torch.Tensor:
    return torch.randn(steps, batch, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def weighted(outputs: torch.Tensor) -> torch.Tensor:
    """A loss of all outputs."""
    weights = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return (weights * outputs.square()).sum()


def disturbed(layer, x: torch.Tensor, change: torch.Tensor, monkeypatch) -> torch.Tensor:
    """Outputs where the recurrence itself adds change[t] to the state that step t makes."""
    cell, steps = reference._cell, itertools.count()

    def with_change(*arguments):
        new = cell(*arguments)
        return {**new, "h": new["h"] + change[next(steps)]}

    with monkeypatch.context() as patch:
        patch.setattr(reference, "_cell", with_change)
        u = x @ layer.weight_ih_l0.T + layer.bias_l0
        state = empty_state(x, (x.shape[1],), layer.hidden_size, layer.lstm, layer.short, layer.relevant)
        return reference.run(u, layer._weights("l0"), state, layer._kind())[0]


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("name", MEMORY)
def test_gradients_are_those_of_a_change_that_the_recurrence_adds(name, monkeypatch):
    torch.manual_seed(0)
    layer, x = MEMORY[name](), driven()
    change = torch.zeros(STEPS, BATCH, 5, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(weighted(disturbed(layer, x, change, monkeypatch)), change)
    found = analysis.gradient_flow(layer, x, weighted)
    assert found.norms.shape == (STEPS + 1, BATCH)
    assert torch.allclose(found.norms[1:], expected.norm(dim=-1), rtol=1e-9)
    assert torch.allclose(found.total[1:], expected.flatten(1).norm(dim=1), rtol=1e-9)


@pytest.mark.parametrize("name", [name for name in MEMORY if name != "learned"])  # straight-through: no derivative
def test_gradients_agree_with_finite_differences(name, monkeypatch):
    torch.manual_seed(0)
    layer, x, size = MEMORY[name](), driven(), 1e-5
    changes, outputs = run_attentive(layer, x)
    gradients = torch.autograd.grad(weighted(outputs), changes)
    for t in (0, 2, 4):
        direction = torch.zeros(STEPS, BATCH, 5, dtype=torch.float64)
        direction[t] = torch.randn(BATCH, 5, generator=torch.Generator().manual_seed(t), dtype=torch.float64)
        with torch.no_grad():
            up, down = (weighted(disturbed(layer, x, s * size * direction, monkeypatch)) for s in (1, -1))
        found = float((gradients[t + 1][0] * direction[t]).sum())
        assert found == pytest.approx(float(up - down) / (2 * size), rel=1e-6)


def test_a_change_of_nothing_leaves_the_outputs_of_the_layer():
    for make in MEMORY.values():
        layer = make(batch_first=True)
        x = driven().transpose(0, 1)
        assert torch.allclose(run_attentive(layer, x)[1], layer(x)[0], rtol=1e-10)


def sab_outputs(layer, x: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    """[h_t; r_t] of SAB as its equations say, for few memories, with change[t] added to h_t."""
    h = c = x.new_zeros(x.shape[1], layer.hidden_size)
    memory, outputs = [h], []
    w_state, w_memory = layer.attention_score_l0.chunk(2)
    for step, (now, e) in enumerate(zip(x, change, strict=True), 1):
        z = now @ layer.weight_ih_l0.T + h @ layer.weight_hh_l0.T + layer.bias_ih_l0 + layer.bias_hh_l0
        i, f, g, o = z.chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        own = o.sigmoid() * c.tanh()
        scores = [own.tanh() @ w_state + m.tanh() @ w_memory for m in memory]
        read = sum(score[:, None] * m for score, m in zip(scores, memory, strict=True))
        h = own + read + e
        memory += [h] if step % layer.attend_every == 0 else []
        outputs.append(torch.cat([h, read], -1))
    return torch.stack(outputs)


def test_gradients_of_sab_are_those_of_its_equations():
    torch.manual_seed(0)
    layer, x = kreiss.SAB(3, 5, top=50, truncate=50, read_output=True, **DOUBLE), driven()
    nn.init.normal_(layer.attention_score_l0)
    change = torch.zeros(STEPS, BATCH, 5, dtype=torch.float64, requires_grad=True)
    outputs = sab_outputs(layer, x, change)
    assert torch.allclose(outputs, layer(x)[0])
    (expected,) = torch.autograd.grad(weighted(outputs), change)
    found = analysis.gradient_flow(layer, x, weighted)
    assert torch.allclose(found.norms[1:], expected.norm(dim=-1), rtol=1e-9)
    truncated = analysis.gradient_flow(kreiss.SAB(3, 5, truncate=4, **DOUBLE), x, lambda y: y[4].sum())
    assert float(truncated.norms[3].sum()) == 0  # h is cut off from its past at every fourth step


def test_the_weights_of_sab_are_signed_and_its_first_memory_is_no_state():
    layer = kreiss.SAB(3, 5, top=3, attend_every=1)
    found = analysis.sparsity(layer.attention(driven().float()))
    assert found.counts[0, 0] == 0  # only the zero vector
    assert found.largest <= 2  # k − 1, once there are more than k memories
    assert analysis.dependency_depth(layer.attention(driven().float())).largest <= STEPS - 1


def test_gradients_of_a_layer_inside_a_network_and_of_symbols():
    network = RecurrentNetwork(kreiss.RelRNN(11, 8, short=4, relevant=2), 10, symbols=11)
    batch = Denoise(5).train(update=0, batch=3, seed=0)
    loss = analysis.recall_loss(network.readout, batch.targets)
    found = analysis.gradient_flow(network, batch.inputs, loss)
    assert found.norms.shape == (26, 3)
    assert (found.norms[1:] > 0).all()


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_the_output_part_of_a_gradient_is_that_of_h(kind):
    torch.manual_seed(0)
    layer, x = kind(3, 5, **DOUBLE), driven()
    change = torch.zeros(STEPS, BATCH, 5, dtype=torch.float64, requires_grad=True)
    state, outputs = None, []
    for now, e in zip(x, change, strict=True):
        _, state = layer(now[None], state)
        pair = state if kind is nn.LSTM else (state,)
        pair = (pair[0] + e, *pair[1:])
        outputs.append(pair[0][0])
        state = pair if kind is nn.LSTM else pair[0]
    (expected,) = torch.autograd.grad(weighted(torch.stack(outputs)), change)
    found = analysis.gradient_flow(layer, x, weighted, of="output")
    assert torch.allclose(found.norms[1:], expected.norm(dim=-1), rtol=1e-9)
    whole = analysis.gradient_flow(layer, x, weighted)
    assert (whole.norms >= found.norms - 1e-12).all()


def test_the_loss_of_the_gradient_curves_is_the_cross_entropy_of_the_last_steps():
    torch.manual_seed(0)
    readout, outputs = nn.Linear(4, 6), torch.randn(30, 3, 4)
    targets = torch.randint(6, (30, 3))
    each = nn.functional.cross_entropy(readout(outputs).flatten(0, 1), targets.flatten(), reduction="none").view(30, 3)
    found = analysis.recall_loss(readout, targets)(outputs)
    assert torch.allclose(found, each[-10:].mean(1).sum() / 30)


def test_what_gradients_refuse():
    with pytest.raises(InputError, match="one direction"):
        analysis.gradient_flow(kreiss.MemRNN(3, 5, bidirectional=True), driven(), weighted)
    with pytest.raises(InputError, match="fixed number of reals"):
        analysis.dynamics(kreiss.MemRNN(3, 5))
    with pytest.raises(InputError, match="`last`"):
        analysis.recall_loss(nn.Identity(), torch.zeros(5, 2, dtype=torch.long))
    with pytest.raises(InputError, match="of"):
        analysis.gradient_flow(nn.RNN(3, 5), driven(), weighted, of="memory")


# ---------------------------------------------------------------- sparsity and depth


def record(reads: dict[int, dict[int, float]], steps: int) -> AttentionRecord:
    """One sequence, in which step τ reads the given states."""
    slots = max(map(len, reads.values()), default=1)
    past, weight = torch.full((steps, 1, slots), -1), torch.zeros(steps, 1, slots)
    for step, states in reads.items():
        for slot, (state, value) in enumerate(states.items()):
            past[step, 0, slot], weight[step, 0, slot] = state, value
    return AttentionRecord(past, weight)


def test_depth_without_attention_is_the_distance_to_the_end():
    found = analysis.dependency_depth(record({}, 6))
    assert found.depth[:, 0].tolist() == [5, 4, 3, 2, 1, 0]
    assert found.largest == 5
    assert (found.strength == 1).all()


def test_depth_counts_the_links_of_the_shortest_chain():
    made = record({3: {0: 0.6, 1: 0.4}, 7: {3: 0.3, 2: 0.7}, 8: {3: 0.2, 7: 0.8}}, 10)
    found = analysis.dependency_depth(made, 0.1)
    #                             0 → 3 → 8 → 9; 2 → 3 → 8 → 9 and 2 → 7 → 8 → 9
    assert found.depth[:, 0].tolist() == [3, 3, 3, 2, 5, 4, 3, 2, 1, 0]
    assert found.strength[:4, 0] == pytest.approx([0.6 * 0.2, 0.4 * 0.2, 0.7, 0.2])
    assert analysis.dependency_depth(made, 0.1, ends=3).depth[:, 0].tolist() == [2, 2, 1, 1, 3, 2, 1, 0, 0, 0]
    assert analysis.dependency_depth(made, 0.5).depth[0, 0] == 5  # 0 → 1 → 2 → 7 → 8 → 9: 3 → 8 is too weak
    assert analysis.dependency_depth(made).depth[0, 0] == 5  # by default: at least 1/2 where two are read


def test_depth_agrees_with_a_search_over_all_chains():
    rng = np.random.default_rng(0)
    steps = 12
    reads = {
        t: {int(i): float(rng.random()) for i in rng.choice(t, size=min(t, 2), replace=False)} for t in range(1, 12)
    }
    found = analysis.dependency_depth(record(reads, steps), 0.5)
    links = {(i, t): w for t, states in reads.items() for i, w in states.items() if w >= 0.5}
    links |= {(t - 1, t): 1.0 for t in range(1, steps)}

    def shortest(i: int) -> tuple[int, float]:
        if i == steps - 1:
            return 0, -1.0
        ways = [(1 + shortest(t)[0], shortest(t)[1] * w) for (j, t), w in links.items() if j == i]
        return min(ways)

    assert [(int(d), -float(s)) for d, s in zip(found.depth[:, 0], found.strength[:, 0], strict=True)] == [
        pytest.approx(shortest(i)) for i in range(steps)
    ]


def test_sparsity_is_what_screening_leaves():
    x = driven(30)
    found = analysis.sparsity(MEMORY["relrnn"]().attention(x), 0.5)
    assert found.largest == 5  # ν + ρ
    assert found.counts[:6, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert found.effective <= 2  # weights of at least a half
    assert analysis.sparsity(MEMORY["memrnn"]().attention(x)).largest == 29
    assert analysis.sparsity(MEMORY["short only"]().attention(x)).largest == 3
    with pytest.raises(InputError, match="threshold"):
        analysis.sparsity(MEMORY["memrnn"]().attention(x), 0.0)


# ---------------------------------------------------------------- the theorems


def linear(make, v: torch.Tensor, **options) -> nn.Module:
    """A linear layer with this V and uniform attention: with a score vector of zeros all scores are equal."""
    layer = make(3, len(v), nonlinearity="identity", **options, **DOUBLE)
    with torch.no_grad():
        layer.weight_hh_l0.copy_(v)
        if hasattr(layer, "attention_score_l0"):
            layer.attention_score_l0.zero_()
    return layer


def first_gradients(layer: nn.Module, length: int) -> torch.Tensor:
    """‖∂(w·h_T)/∂h_t‖ for t = 1 … T, in one sequence, with a fixed w."""
    w = torch.linspace(1, 2, layer.hidden_size, dtype=torch.float64)
    return analysis.gradient_flow(layer, driven(length, 1), lambda y: (y[-1] * w).sum()).norms[1:, 0]


def slope(layer: nn.Module, lengths=(128, 256)) -> float:
    """The power of T with which the gradient of the first state goes."""
    low, high = (float(first_gradients(layer, length)[0]) for length in lengths)
    return math.log(high / low) / math.log(lengths[1] / lengths[0])


ROTATION = [[0.0, -0.8], [0.8, 0.0]]
POWERS = {"0.8": [[0.8]], "one positive": [[0.5, 0.0], [0.0, -0.9]], "rotation": ROTATION, "-0.8": [[-0.8]]}


@pytest.mark.parametrize("name", POWERS)
def test_under_uniform_attention_gradients_go_with_the_corrected_power_of_the_length(name):
    v = torch.tensor(POWERS[name], dtype=torch.float64)
    found, expected = slope(linear(kreiss.MemRNN, v)), analysis.uniform_exponent(v, mixing=0.5)
    assert found == pytest.approx(expected, abs=0.03)
    assert (expected >= -1) == (name in ("0.8", "one positive"))  # so Theorem 4.4.2 needs more than a normal V


def test_the_printed_power_is_wrong_for_the_printed_mixing():
    v = torch.tensor([[0.25]], dtype=torch.float64)
    found = slope(linear(kreiss.MemRNN, v, mixing=1.0))
    assert found == pytest.approx(0.25 / 0.75 - 1, abs=0.01)
    assert abs(found - (0.25 - 1)) > 0.05  # Prop. B.1.33


def test_without_attention_the_same_gradients_vanish_exponentially():
    v = torch.tensor([[0.8]], dtype=torch.float64)
    plain = first_gradients(linear(kreiss.RNN, v, bias=False), 65)
    assert float(plain[0]) == pytest.approx(0.8**64, rel=1e-6)
    assert float(first_gradients(linear(kreiss.MemRNN, v), 65)[0]) > 0.4 / 65


@pytest.mark.parametrize(("short", "relevant"), [(2, 1), (3, 2), (5, 4)])
def test_under_sparse_attention_gradients_stay_above_the_bound_by_depth(short, relevant):
    v = torch.diag(torch.tensor([0.9, -0.7], dtype=torch.float64))  # normal, one positive eigenvalue
    layer = linear(kreiss.RelRNN, v, short=short, relevant=relevant, screening="oldest")
    attention = layer.attention(driven(80, 1))
    kappa = analysis.sparsity(attention).largest
    assert kappa == short + relevant
    depth = analysis.dependency_depth(attention).depth[:, 0]
    assert (depth[:relevant] == 1).all()  # kept from the start, so that the end reads them
    bound = analysis.sparse_bound(v, kappa, depth, mixing=0.5)
    found = first_gradients(layer, 80).numpy()
    assert (found >= bound * (1 - 1e-9)).all()
    longer = first_gradients(layer, 160).numpy()
    assert longer[0] == pytest.approx(found[0], rel=0.2)  # a kept state's gradient does not vanish with T,
    assert longer[relevant + 1] < 1e-2 * longer[0] or short > 3  # one that was not kept has a deep chain


def test_what_theory_refuses():
    with pytest.raises(InputError, match="spectral radius below 1"):
        analysis.uniform_exponent([[1.0]])
    assert analysis.sparse_bound([[-0.5]], 3, 2) == 0


# ---------------------------------------------------------------- memory against length


def test_with_screening_memory_grows_linearly_with_the_length():
    found = memory_by_length(kreiss.RelRNN(3, 8, short=3, relevant=3), (400, 800), 2)
    assert found.exponent == pytest.approx(1, abs=0.2)
    full = memory_by_length(kreiss.MemRNN(3, 8), (400, 800), 2)
    assert full.exponent > 0.8  # how much more depends on the path that runs it
    with pytest.raises(InputError, match="increasing"):
        memory_by_length(kreiss.MemRNN(3, 8), (120, 60))
    with pytest.raises(InputError, match=r"increasing numbers; got \[5\]"):
        memory_by_length(kreiss.MemRNN(3, 8), 5)
    with pytest.raises(InputError, match=r"^`layer` must be .* with time first; got batch_first=True\."):
        memory_by_length(kreiss.MemRNN(3, 8, batch_first=True), (60, 120))
    with pytest.raises(InputError, match=r"^`layer` must be .* with time first; got RecurrentNetwork\."):
        memory_by_length(kreiss.RecurrentNetwork(kreiss.MemRNN(3, 8), 2), (60, 120))


def test_gradients_of_a_network_with_memory_start_from_an_empty_one():
    with pytest.raises(InputError, match=r"^`state` must be left out for a network with memory"):
        analysis.gradient_flow(kreiss.MemRNN(3, 8), torch.randn(5, 4, 3), lambda y: y.sum(), state=torch.ones(4, 8))


@pytest.mark.slow
def test_resident_memory_is_that_of_a_fresh_process():
    found = memory_by_length(kreiss.RNN(16, 64), (2000, 8000), 32, resident=True)
    states = 4 * 8000 * 32 * 64
    assert 0.5 * states < found.peaks[1] < 10 * states


# ---------------------------------------------------------------- what is shown


def denoising(layer: nn.Module) -> tuple[nn.Module, Drive]:
    """A network on a small denoise task, with its input and loss."""
    task = Denoise(5)
    network, batch = RecurrentNetwork(layer, 10, symbols=11), task.train(update=0, batch=2, seed=0)

    def loss(hidden: torch.Tensor) -> torch.Tensor:
        return task.loss(network.read(hidden), batch) * 2

    return network, Drive(batch.inputs, "sequences of denoise", loss, batch.inputs)


def test_weights_with_signs_are_drawn_by_their_size():
    torch.manual_seed(0)
    record = kreiss.SAB(3, 5, attend_every=2, top=10).attention(torch.randn(9, 1, 3))
    assert (record.dense(0) < 0).any()
    axes = plots.attention_map(record)
    shown = np.ma.filled(axes.images[0].get_array(), np.nan)
    np.testing.assert_array_equal(np.nan_to_num(shown), record.dense(0).abs().numpy())
    assert np.isnan(shown).any()
    assert axes.figure.axes[1].get_ylabel() == "size of the weight"


def test_attention_of_stacked_layers_is_that_of_the_last_and_says_so():
    layer = kreiss.RelRNN(3, 6, 2, short=4, relevant=3)
    sentence = next(of_network(layer, "attention")).sentence
    assert sentence.startswith("In the last of 2 layers, under random input, a step reads")


@pytest.mark.parametrize("kind", [kreiss.MemRNN, kreiss.MemLSTM, kreiss.RelRNN, kreiss.RelLSTM])
def test_an_attentive_network_has_findings_with_pictures(kind):
    torch.manual_seed(0)
    options = {"short": 4, "relevant": 3} if kind in (kreiss.RelRNN, kreiss.RelLSTM) else {}
    network, drive = denoising(kind(11, 6, **options))
    found = {one.key: one for part in ("attention", "gradients") for one in of_network(network, part, drive)}
    assert list(found) == ["attention", "gradients"]
    kappa = 7 if options else 24
    assert f"at most {kappa} states (κ)" in found["attention"].sentence
    kept = "has room for 3" if options else "It keeps every state."
    assert kept in found["attention"].sentence
    assert "gradient of the loss" in found["gradients"].sentence
    titles = [axes.get_title() for axes in found["attention"].draw().axes]
    assert titles[0] == "attention"
    assert ("what was kept" in titles) == bool(options)
    assert found["gradients"].draw().axes
    labels = [text.get_text() for text in found["attention"].draw().axes[0].get_xticklabels()]
    assert labels == symbol_names(drive.symbols[:, 0])
    assert "10" in labels
    assert "·" in labels
    assert "attention and gradients are those of the whole" in described(network)


def test_random_input_drives_an_attentive_layer_without_a_task():
    found = {one.key: one.sentence for one in of_network(kreiss.RelRNN(3, 6, short=4, relevant=3), "all")}
    assert list(found)[-2:] == ["attention", "gradients"]
    assert "fixed-points" not in found
    assert "Under random input" in found["attention"]
    batch_first = list(of_network(kreiss.RelRNN(3, 6, batch_first=True), "gradients"))
    assert len(batch_first[0].numbers["norms"]) == 101


@pytest.mark.parametrize(("model", "kept"), [("relrnn", "has room for 10"), ("sab", "past states are in memory")])
def test_analyze_shows_what_a_run_reads_and_keeps(model, kept, tmp_path):
    run = tmp_path / "run"
    settings = {"hidden": 6, "steps": 2, "batch": 2, "task.delay": 3, "task.valid_sequences": 4}
    kreiss.fit(model, "denoise", {**settings, "task.test_sequences": 4}, out=run, show="quiet")
    found = {one.key: one for part in ("attention", "gradients") for one in source(run, part).findings}
    assert found["attention"].sentence.startswith("Under sequences of denoise, a step reads at most")
    assert kept in found["attention"].sentence
    assert "10" in found["attention"].numbers["symbols"]
    assert "gradient of the loss" in found["gradients"].sentence
    assert all(one.draw().axes for one in found.values())


def test_parts_that_a_network_does_not_have_are_refused():
    with pytest.raises(InputError, match="fixed-points must be asked of a network without memory"):
        list(of_network(kreiss.MemRNN(3, 6), "fixed-points"))
    with pytest.raises(InputError, match="attention must be asked of a network that attends"):
        list(of_network(kreiss.RNN(3, 6), "attention"))


def test_of_many_symbols_only_the_rare_ones_are_written():
    symbols = ["·"] * 100
    symbols[7] = symbols[50] = "3"
    assert shown_places(symbols) == [7, 50]
    assert shown_places(["a", "b"] * 10) == list(range(20))
    assert len(shown_places(list("abcdef") * 50)) <= 45


@pytest.fixture
def tiny(monkeypatch):
    """Networks of a few units: what is tested is that every figure can be drawn."""
    for name, value in (("HIDDEN", 4), ("BATCH", 2)):
        monkeypatch.setattr(memory_figures, name, value)
    monkeypatch.setattr("kreiss.report.memory_figures.SIZES", (3,))


@pytest.mark.parametrize("name", [name for name in memory_figures.NAMES if name != "thesis/figB.5"])
def test_every_figure_of_memory_is_drawn_from_short_runs(name, tiny, tmp_path, capsys):
    assert name in FIGURES
    assert figure_verb.make(name, (), tmp_path, train=True, steps=1, delay=2) == 0
    assert len(list(tmp_path.glob(f"{name.replace('/', '-')}.*"))) == 2


@pytest.mark.slow
def test_the_figure_of_characters_is_drawn(tiny, tmp_path):
    assert figure_verb.make("thesis/figB.5", (), tmp_path, train=True, steps=1) == 0


def test_a_figure_of_memory_takes_a_run(tmp_path):
    run = tmp_path / "run"
    task = Denoise(2, valid_sequences=2, test_sequences=2)
    kreiss.fit(kreiss.RNN(11, 4), task, steps=1, batch=2, out=run, show="quiet")
    assert figure_verb.make("thesis/fig4.2", (f"RNN={run}",), tmp_path) == 0
    with pytest.raises(InputError, match="attends to its past"):
        figure_verb.make("thesis/figB.9", (f"denoise={run}",), tmp_path)
    with pytest.raises(InputError, match="--steps"):
        figure_verb.make("001/fig1c", (), tmp_path, steps=5)

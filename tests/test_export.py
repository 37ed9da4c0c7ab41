"""Compiling and exporting: the same numbers, and graphs that do not grow with time."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import fx, nn
from torch.export import Dim
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence
from torch.utils._pytree import tree_leaves

import kreiss
from catalogue import MEMORY, PLAIN_STATE, VARIANTS, mostly_slow, moved
from kreiss import InputError, cli
from kreiss.commands.export import export as export_command
from kreiss.commands.sources import held_out_inputs
from kreiss.networks import LAYERS, Agent, RecurrentNetwork
from kreiss.networks.export import CHECKED_AT, export_saved
from kreiss.networks.export.formats import described
from kreiss.networks.export.states import state_form
from kreiss.networks.scanned import Scanned
from kreiss.recurrence.memory.sparse_reference import _bar, _bar_by_comparison
from kreiss.relational.parts import ContextNorm
from kreiss.tasks import TASKS

exactly = partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
double = {"dtype": torch.float64}
# One of each way to make a matrix and to run it; the others are traced under the marker `slow`.
WAYS = ("rnn", "exprnn", "exprnn-expm", "nnrnn", "enrnn", "svdrnn", "goru", "scurnn", "eurnn", "complexnnrnn")
# Layers with memory are not compiled as one operator yet: their graph grows with time.
every_way = pytest.mark.parametrize("name", mostly_slow(PLAIN_STATE, *WAYS))
three_ways = pytest.mark.parametrize("name", mostly_slow(PLAIN_STATE, "nnrnn", "goru", "scurnn"))
IN, HIDDEN = 3, 4
SIZES = [(1, 1), (2, 3), (9, 1), (17, 4)]  # (T, B) to run an exported layer at, none of them special to it

# What torch itself warns of while it traces, scripts its decompositions, or lowers to ONNX.
pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.compile is ignored when called inside torch.export region"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning"),
]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch.compiler.reset()


def build(name: str, num_layers: int = 1, **options: object) -> nn.Module:
    return moved(PLAIN_STATE[name](IN, HIDDEN, num_layers, **options))


def results(layer: nn.Module, call: object, x: torch.Tensor, hx: torch.Tensor) -> list[torch.Tensor]:
    """Output, state and every gradient."""
    torch.manual_seed(1)
    leaves = [x.clone().requires_grad_(), hx.clone().requires_grad_(), *layer.parameters()]
    out, h_n = call(*leaves[:2])
    value = (out * torch.randn_like(out)).sum() + (h_n * torch.randn_like(h_n)).sum()
    return [out, h_n, *torch.autograd.grad(value, leaves)]


def assert_compiled_equals_eager(layer: nn.Module, backend: str) -> None:
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    x, hx = torch.randn(5, 2, IN, **double), torch.randn_like(layer.init_state(2))
    exactly(results(layer, compiled, x, hx), results(layer, layer, x, hx))


# ---------------------------------------------------------------- torch.compile


@every_way
def test_a_compiled_layer_equals_the_eager_one_in_output_and_gradients(name):
    assert_compiled_equals_eager(build(name, bidirectional=True, **double), "aot_eager")


@pytest.mark.slow
def test_a_compiled_layer_of_three_layers_equals_the_eager_one_in_output_and_gradients():
    assert_compiled_equals_eager(build("exprnn", 3, bidirectional=True, **double), "aot_eager")


@pytest.mark.parametrize(
    ("nonlinearity", "bias"), [("identity", True), ("tanh", True), ("relu", True), ("modrelu", True), ("tanh", False)]
)
def test_a_compiled_layer_equals_the_eager_one_for_every_nonlinearity(nonlinearity, bias):
    assert_compiled_equals_eager(build("exprnn", nonlinearity=nonlinearity, bias=bias, **double), "aot_eager")


def test_a_layer_compiled_by_inductor_equals_the_eager_one():
    assert_compiled_equals_eager(build("nnrnn", **double), "inductor")


def test_a_compiled_step_equals_forward():
    layer, x = build("nnrnn", **double).freeze(), torch.randn(5, 2, IN, **double)
    step, state = torch.compile(layer.step, fullgraph=True, backend="aot_eager"), layer.init_state(2)
    for x_t, expected in zip(x, layer(x)[0], strict=True):
        y, state = step(x_t, state)
        exactly(y, expected)


@three_ways
def test_a_compiled_layer_works_under_autocast(name):
    layer, x = build(name), torch.randn(5, 2, IN)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, found = layer(x)[0], compiled(x)[0]
    assert found.dtype == torch.bfloat16
    assert (found - expected).norm() < 0.1 * expected.norm()
    found.float().sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in layer.parameters())


@three_ways
def test_the_compiled_graph_does_not_grow_with_time(name):
    layer, sizes = build(name), []

    def count(graph: fx.GraphModule, _: list[torch.Tensor]) -> object:
        sizes.append(sum(len(module.graph.nodes) for module in graph.modules() if isinstance(module, fx.GraphModule)))
        return graph.forward

    for length in (3, 7, 200):
        torch.compiler.reset()  # so that each length is compiled by itself, as a constant
        torch.compile(layer, fullgraph=True, backend=count)(torch.randn(length, 2, IN))
    assert len(sizes) == 3
    assert len(set(sizes)) == 1


def test_one_dynamic_graph_serves_every_length_and_batch():
    graphs = []

    def keep(graph: fx.GraphModule, _: list[torch.Tensor]) -> object:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(build("nnrnn"), fullgraph=True, backend=keep, dynamic=True)
    for length, batch in ((5, 2), (7, 3), (200, 9)):
        compiled(torch.randn(length, batch, IN))
    assert len(graphs) == 1


def test_a_second_derivative_of_a_compiled_layer_is_refused():
    layer, x = build("nnrnn", **double), torch.randn(5, 2, IN, requires_grad=True, **double)
    out, _ = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
    (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        grad.sum().backward()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_forward_derivative_inside_a_compiled_function_is_not_lost(backend):
    layer, x = build("nnrnn", **double), torch.randn(5, 2, IN, **double)
    slope = lambda x, v: torch.func.jvp(lambda x: layer(x)[0], (x,), (v,))[1]  # noqa: E731
    v = torch.randn_like(x)
    exactly(torch.compile(slope, backend=backend)(x, v), slope(x, v))


@pytest.mark.parametrize("enforce_sorted", [False, True])
def test_a_compiled_layer_takes_packed_sequences(enforce_sorted):
    # not in one graph: Dynamo does not trace torch's own pad_packed_sequence
    layer = build("nnrnn", bidirectional=True, **double)
    x = pack_sequence([torch.randn(n, IN, **double) for n in (5, 3, 2)], enforce_sorted=enforce_sorted)
    (found, last), (expected, last_expected) = torch.compile(layer, backend="aot_eager")(x), layer(x)
    exactly([found.data, last], [expected.data, last_expected])


# ---------------------------------------------------------------- torch.export

DYNAMIC = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
non_strict = pytest.param(False, id="non-strict")
stricts = pytest.mark.parametrize("strict", [pytest.param(True, id="strict", marks=pytest.mark.slow), non_strict])


@torch.no_grad()  # an exported layer is for inference, and torch's scan traces a backward graph at every call else
def assert_exported_equals_eager(program: torch.export.ExportedProgram, layer: nn.Module) -> None:
    module = program.module()
    for length, batch in SIZES:
        x = torch.randn((batch, length, IN) if layer.batch_first else (length, batch, IN))
        torch.testing.assert_close(module(x), layer(x), rtol=1e-5, atol=1e-5)


@stricts
@every_way
def test_an_exported_layer_equals_the_eager_one_at_any_time_and_batch(name, strict):
    layer = build(name)
    program = torch.export.export(layer, (torch.randn(6, 7, IN),), dynamic_shapes=(DYNAMIC,), strict=strict)
    assert_exported_equals_eager(program, layer)


@stricts
def test_an_exported_layer_of_two_layers_and_directions_equals_the_eager_one(strict):
    layer = build("nnrnn", 2, bidirectional=True, batch_first=True)
    program = torch.export.export(layer, (torch.randn(6, 7, IN),), dynamic_shapes=(DYNAMIC,), strict=strict)
    assert_exported_equals_eager(program, layer)


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "non-strict"])
@torch.no_grad()
def test_an_exported_layer_takes_a_state(strict):
    layer = build("exprnn")
    example = (torch.randn(6, 7, IN), torch.randn(1, 7, HIDDEN))
    program = torch.export.export(layer, example, dynamic_shapes=(DYNAMIC, {1: Dim.DYNAMIC}), strict=strict)
    for length, batch in SIZES:
        x, hx = torch.randn(length, batch, IN), torch.randn(1, batch, HIDDEN)
        torch.testing.assert_close(program.module()(x, hx), layer(x, hx), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_an_exported_layer_takes_unbatched_input_of_any_length():
    layer = build("nnrnn")
    program = torch.export.export(layer, (torch.randn(6, IN),), dynamic_shapes=({0: Dim.DYNAMIC},))
    for length, _ in SIZES:
        x = torch.randn(length, IN)
        torch.testing.assert_close(program.module()(x), layer(x), rtol=1e-5, atol=1e-5)


def test_an_exported_layer_is_saved_and_loaded():
    layer, file = build("nnrnn"), io.BytesIO()
    torch.export.save(torch.export.export(layer, (torch.randn(6, 7, IN),), dynamic_shapes=(DYNAMIC,)), file)
    file.seek(0)
    assert_exported_equals_eager(torch.export.load(file), layer)


class Packing(nn.Module):
    """A model that packs its input itself."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.layer(pack_padded_sequence(x, lengths, enforce_sorted=False))[1]


REFUSED = "a packed sequence cannot be exported; got PackedSequence input. Export with padded tensors instead"


@pytest.mark.parametrize("packs_itself", [False, True], ids=["given", "inside"])
def test_exporting_a_packed_sequence_is_refused_with_the_remedy(packs_itself):
    layer, x = build("nnrnn"), torch.randn(5, 2, IN)
    model, args = layer, (pack_sequence([torch.randn(5, IN), torch.randn(3, IN)]),)
    if packs_itself:
        model, args = Packing(layer), (x, torch.tensor([3, 5]))
    with pytest.raises(kreiss.InputError, match=REFUSED):
        torch.export.export(model, args)


def test_exporting_a_packed_sequence_in_strict_mode_names_the_remedy_too():
    args = (pack_sequence([torch.randn(5, IN), torch.randn(3, IN)]),)
    with pytest.raises(RuntimeError, match=REFUSED):  # Dynamo wraps what the traced code raises
        torch.export.export(build("nnrnn"), args, strict=True)


# ---------------------------------------------------------------- ONNX


def to_onnx(layer: nn.Module, path: Path) -> onnxruntime.InferenceSession:
    program = torch.onnx.export(
        layer.freeze(), (torch.randn(6, 7, IN),), dynamo=True, dynamic_shapes=(DYNAMIC,), verbose=False
    )
    program.save(path)
    return onnxruntime.InferenceSession(path)


DEEP = {"num_layers": 2, "bidirectional": True, "batch_first": True}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("exprnn-expm", {"nonlinearity": "relu", "bias": False}, id="expm-relu"),
        pytest.param("scornn", {"nonlinearity": "identity"}, id="scornn-identity"),
        pytest.param("henaff", {"nonlinearity": "modrelu"}, id="henaff"),
        pytest.param("nnrnn", DEEP, id="nnrnn-deep", marks=pytest.mark.slow),
        pytest.param("scurnn", DEEP, id="scurnn-deep", marks=pytest.mark.slow),
    ],
)
def test_onnx_runtime_equals_the_eager_layer_at_any_time_and_batch(name, options, tmp_path):
    layer = build(name, **options)
    session = to_onnx(layer, tmp_path / "layer.onnx")
    for length, batch in SIZES:
        x = torch.randn((batch, length, IN) if layer.batch_first else (length, batch, IN))
        found = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        for tensor, expected in zip(found, layer(x), strict=True):
            np.testing.assert_allclose(tensor, expected.detach().numpy(), rtol=1e-4, atol=1e-4)


def test_the_onnx_graph_scans_over_time_and_keeps_both_dimensions_open(tmp_path):
    to_onnx(build("nnrnn"), tmp_path / "layer.onnx")
    graph = onnx.load(tmp_path / "layer.onnx").graph
    assert [node.op_type for node in graph.node].count("Scan") == 1
    time, batch, features = graph.input[0].type.tensor_type.shape.dim
    assert time.dim_param
    assert batch.dim_param
    assert features.dim_value == IN


# ---------------------------------------------------------------- kreiss.export

FORMATS = {"onnx": "model.onnx", "torch": "model.pt2"}


def named_formats(*quick: tuple[str, str], names: Iterable[str]) -> pytest.MarkDecorator:
    """Every layer in every format; all but some under the marker `slow`."""
    both = [(name, to) for name in names for to in FORMATS]
    marked = [pytest.param(*pair, id="-".join(pair), marks=() if pair in quick else pytest.mark.slow) for pair in both]
    return pytest.mark.parametrize(("name", "to"), marked)


class Reader(nn.Module):
    """A network around a layer, of the kind people write themselves."""

    def __init__(self, layer: nn.Module, embedding: nn.Module | None = None) -> None:
        super().__init__()
        self.embedding, self.layer, self.readout = embedding, layer, nn.Linear(HIDDEN, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.readout(self.layer(x if self.embedding is None else self.embedding(x))[0])


def opened(path: Path) -> Callable[..., list[torch.Tensor]]:
    """An exported file as a function of its inputs, opened as anyone would."""
    if path.suffix == ".pt2":
        module = torch.export.load(path).module()
        return torch.no_grad()(lambda *inputs: tree_leaves(module(*inputs)))
    session = onnxruntime.InferenceSession(path)
    names = [place.name for place in session.get_inputs()]

    def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
        given = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
        return [torch.as_tensor(array) for array in session.run(None, given)]

    return run


def run_file(path: Path, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """The outputs of an exported file."""
    return opened(path)(*inputs)


def assert_file_equals(path: Path, model: nn.Module, *inputs: torch.Tensor, state: bool = False) -> None:
    """The same outputs; of a file with a state from the start of each sequence."""
    for x in inputs:
        first = tree_leaves(model.init_state(x.shape[1])) if state else []
        expected = [tensor.detach() for tensor in tree_leaves(model(x))]
        torch.testing.assert_close(run_file(path, x, *first), expected, rtol=1e-4, atol=1e-4)


def in_pieces(run: Callable[..., list[torch.Tensor]], pieces: list[torch.Tensor], state: Any) -> list[torch.Tensor]:
    """Outputs of a file that is fed one piece after the other, one below the other, and the last state."""
    outs = []
    for piece in pieces:
        out, *state = run(piece, *state)
        outs.append(out if out.dim() == 3 else out[None])
    return [torch.cat(outs), *state]


def assert_equal_to_a_millionth(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Relative to the largest number of each tensor, or to 1."""
    for one, other in zip(found, expected, strict=True):
        numbers = other[other.isfinite()].abs()
        scale = max(1.0, float(numbers.max())) if numbers.numel() else 1.0
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6 * scale)


def operators(graph: onnx.GraphProto) -> set[str]:
    """Of a graph and those inside of it."""
    inner = [part.g for node in graph.node for part in node.attribute if part.type == onnx.AttributeProto.GRAPH]
    return {node.op_type for node in graph.node}.union(*map(operators, inner))


# What a step may consist of: products, element-wise operations, reductions, and moving numbers about.
PLAIN_OPERATORS = """
    MatMul Gemm Add Sub Mul Div Mod Pow Sqrt Abs Sign Max Relu Tanh Sigmoid Softmax And Or Not Equal Less Greater
    GreaterOrEqual Where Cast ReduceMin ReduceMax ReduceSum ArgMin Concat Split Slice Gather Pad Expand Reshape Squeeze
    Unsqueeze Shape Range ConstantOfShape Transpose Identity
"""
TO_ONNX = ("nnrnn", "goru", "scurnn", "memrnn", "relrnn")  # one of each sort; LSTM and GRU below


# every architecture once, in one of the formats
@named_formats(
    *((name, "torch") for name in LAYERS if name not in (*TO_ONNX, "memlstm", "rellstm")),  # as memrnn, relrnn
    *((name, "onnx") for name in TO_ONNX),
    names=VARIANTS,
)
@torch.no_grad()
def test_every_layer_becomes_a_file_that_streams_in_chunks_and_in_steps(name, to, tmp_path):
    model, x = moved(VARIANTS[name](IN, HIDDEN)), torch.randn(11, 3, IN)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    done = kreiss.export(model, tmp_path / FORMATS[to], to=to, verify=True)
    assert done.checked_at == CHECKED_AT
    assert len({length for length, _ in CHECKED_AT}) > 2
    assert len({batch for _, batch in CHECKED_AT}) > 2
    assert done.largest_difference >= 0  # beyond rounding it is refused
    run, first = opened(done.path), tree_leaves(model.init_state(3))
    whole = run(x, *first)
    torch.testing.assert_close(whole, tree_leaves(model(x)), rtol=1e-4, atol=1e-4)
    assert_equal_to_a_millionth(in_pieces(run, [x[:4], x[4:5], x[5:]], first), whole)
    step = kreiss.export(model, tmp_path / f"step{done.path.suffix}", to=to, step=True)
    assert step.state == done.state
    assert_equal_to_a_millionth(in_pieces(opened(step.path), list(x), first), whole)
    if to == "onnx":
        assert operators(onnx.load(step.path).graph) <= set(PLAIN_OPERATORS.split())
    assert model.training  # the model itself is as it was
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_comparisons_find_the_kth_largest_score_also_among_equal_ones():
    scores = torch.randint(-3, 3, (50, 12)).float()
    for top in (1, 5, 12):
        exactly(_bar_by_comparison(scores, top), _bar(scores, top))


@named_formats(("nnrnn", "onnx"), ("lstm", "torch"), names=["nnrnn", "lstm", "gru"])
def test_layers_on_one_another_in_both_directions_batch_first_are_exported(name, to, tmp_path):
    model = moved(VARIANTS[name](IN, HIDDEN, 2, bidirectional=True, batch_first=True, dropout=0.5))
    path = kreiss.export(model, tmp_path / FORMATS[to], to=to).path
    assert_file_equals(path, model.eval(), *(torch.randn(*sizes, IN) for sizes in SIZES))


@named_formats(("nnrnn", "torch"), ("lstm", "onnx"), names=["nnrnn", "lstm"])
def test_a_whole_network_is_exported(name, to, tmp_path):
    model = moved(Reader(VARIANTS[name](IN, HIDDEN)))
    done = kreiss.export(model, tmp_path / FORMATS[to], to=to, verify=True)
    assert_file_equals(done.path, model, *(torch.randn(*sizes, IN) for sizes in SIZES))
    assert isinstance(model.layer, type(VARIANTS[name](IN, HIDDEN)))


@pytest.mark.parametrize("to", mostly_slow(FORMATS, "onnx"))
def test_symbols_are_exported_as_integers_by_a_layer_or_through_an_embedding(to, tmp_path):
    symbols = [torch.randint(IN, sizes) for sizes in SIZES]
    layer = moved(kreiss.NNRNN(IN, HIDDEN))
    path = kreiss.export(layer, tmp_path / FORMATS[to], to=to, symbols=True, verify=True).path
    assert_file_equals(path, layer, *symbols, state=True)
    model = moved(Reader(kreiss.LSTM(5, HIDDEN), nn.Embedding(IN, 5)))
    assert_file_equals(kreiss.export(model, tmp_path / FORMATS[to], to=to, verify=True).path, model, *symbols)


def test_an_example_says_what_a_model_takes_where_its_sizes_do_not(tmp_path):
    model = nn.Sequential(nn.Linear(5, IN), kreiss.NNRNN(IN, HIDDEN))
    with pytest.raises(InputError, match=r"could not trace with an input of shape \(6, 7, 3\).*Pass an `example`"):
        kreiss.export(model, tmp_path / "model.pt2", to="torch")
    path = kreiss.export(model, tmp_path / "model.pt2", to="torch", example=torch.randn(2, 2, 5), verify=True).path
    assert_file_equals(path, model, torch.randn(4, 3, 5))


def test_constrained_matrices_of_torchs_own_modules_are_exported_and_stay_constrained(tmp_path):
    model = nn.Sequential(nn.LSTM(IN, HIDDEN))
    kreiss.constrain(model[0], "weight_hh_l0", kreiss.Orthogonal(HIDDEN))
    model[0](torch.randn(5, 2, IN))[0].sum().backward()  # leaves behind tensors that cannot be copied
    assert_file_equals(kreiss.export(model, tmp_path / "model.onnx", verify=True).path, model, torch.randn(5, 2, IN))
    assert torch.nn.utils.parametrize.is_parametrized(model[0], "weight_hh_l0")
    reader = Reader(kreiss.NNRNN(IN, HIDDEN))
    reader.readout = kreiss.constrain(nn.Linear(HIDDEN, HIDDEN), "weight", kreiss.Schur(HIDDEN))
    path = kreiss.export(reader, tmp_path / "model.pt2", to="torch", verify=True).path
    assert_file_equals(path, reader, torch.randn(5, 2, IN))
    assert torch.nn.utils.parametrize.is_parametrized(reader.readout, "weight")


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": False}])
@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN, partial(nn.RNN, nonlinearity="relu")])
@torch.no_grad()
def test_a_scan_computes_what_torchs_own_layers_compute(make, options):
    layer, x = make(IN, HIDDEN, **options, **double), torch.randn(5, 2, IN, **double)
    exactly(Scanned(layer)(x), layer(x))
    _, state = layer(torch.randn_like(x))
    exactly(Scanned(layer)(x, state), layer(x, state))


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@torch.no_grad()
def test_a_scan_computes_the_projection_of_an_lstm():
    layer, x = nn.LSTM(IN, HIDDEN, proj_size=2, **double), torch.randn(5, 2, IN, **double)
    exactly(Scanned(layer)(x), layer(x))


def test_an_onnx_file_names_its_inputs_and_outputs_and_their_open_dimensions(tmp_path):
    layer = kreiss.LSTM(IN, HIDDEN, batch_first=True)
    path = kreiss.export(layer, tmp_path / "model.onnx", metadata={"unit": "millivolt"}).path
    session = onnxruntime.InferenceSession(path)
    state = [1, "batch", HIDDEN]
    assert {place.name: place.shape for place in session.get_inputs()} == {
        "input": ["batch", "time", IN], "state_h": state, "state_c": state,
    }  # fmt: skip
    assert {place.name: place.shape for place in session.get_outputs()} == {
        "output": ["batch", "time", HIDDEN], "next_state_h": state, "next_state_c": state,
    }  # fmt: skip
    said = session.get_modelmeta().custom_metadata_map
    assert said["unit"] == "millivolt"
    assert [part["name"] for part in json.loads(said["kreiss.state"])] == ["state_h", "state_c"]
    assert b".py" not in path.read_bytes()  # no stack traces of this machine


@pytest.mark.parametrize("name", ["nnrnn", "lstm", *MEMORY])
def test_the_description_of_a_state_is_enough_to_start_from(name):
    layer = VARIANTS[name](IN, HIDDEN, 2)
    form = state_form(layer, None, step=False)
    made = []
    for part in json.loads(described(form.parts, {})["kreiss.state"]):
        sizes = {"batch": 3, "memory": part.get("memory")}
        shape = [sizes.get(size, size) for size in part["shape"]]
        made.append(np.full(shape, float(part["initial"]), part["dtype"]))
    for array, tensor in zip(made, tree_leaves(layer.init_state(3)), strict=True):
        assert array.dtype == tensor.numpy().dtype
        np.testing.assert_array_equal(array, tensor.numpy())


class Learned(kreiss.RNN):
    """A layer whose first state is not one number."""

    def init_state(self, batch_size: int | None = None) -> torch.Tensor:
        return torch.arange(4.0).expand(1, batch_size, 4).clone()


def test_a_first_state_of_different_numbers_is_described_in_full():
    (part,) = state_form(Learned(IN, 4), None, step=False).parts
    assert part.described()["initial"] == [[0.0, 1.0, 2.0, 3.0]]
    assert str(part) == "state [1, batch, 4] starts as the metadata say"


@torch.no_grad()
def test_a_network_with_embedding_and_one_answer_streams_in_steps(tmp_path):
    layer = kreiss.GRU(5, HIDDEN, 2)
    model = moved(RecurrentNetwork(layer, 2, symbols=IN, embedding=5, answers="last"))
    x, state = torch.randint(IN, (6, 3)), tree_leaves(model.init_state(3))
    run = opened(kreiss.export(model, tmp_path / "model.onnx", step=True, verify=True).path)
    for t, x_t in enumerate(x):
        out, *state = run(x_t, *state)
        assert_equal_to_a_millionth([out], [model(x[: t + 1])[0]])


class Images(nn.Module):
    """A network that normalises over the whole sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = ContextNorm(()), kreiss.RNN(IN, HIDDEN)
        self.init_state = self.layer.init_state


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        (Reader(kreiss.RNN(IN, HIDDEN)), {"state": True}, r"step by step .*; got Reader, which has no init_state"),
        (kreiss.RNN(IN, HIDDEN, bidirectional=True), {"step": True}, "whose backward direction needs the whole seq"),
        (Images(), {"state": True}, "which normalises images over the whole sequence. Leave `state` and `step` out"),
        (kreiss.RNN(IN, HIDDEN), {"step": True, "state": False}, "a step must take and return a state; got step=True"),
    ],
    ids=["no state", "two directions", "normalised", "contradiction"],
)
def test_what_has_no_state_is_refused_where_one_is_asked_for(model, options, said, tmp_path):
    with pytest.raises(InputError, match=said):
        kreiss.export(model, tmp_path / "model.onnx", example=torch.randn(2, 2, IN), **options)


@torch.no_grad()
def test_weights_become_integers_and_the_error_is_that_of_the_outputs(tmp_path):
    model, x = kreiss.LSTM(IN, 32), torch.randn(9, 2, IN)
    unit = {"unit": "millivolt"}
    whole = kreiss.export(model, tmp_path / "whole.onnx", metadata=unit).path
    done = kreiss.export(model, tmp_path / "model.onnx", int8=True, example=x, metadata=unit)
    file = onnx.load(done.path)
    matrices = [tensor for tensor in file.graph.initializer if len(tensor.dims) == 2]
    assert sorted(tuple(tensor.dims) for tensor in matrices) == [(IN, 4 * 32), (32, 4 * 32)]
    assert {tensor.data_type for tensor in matrices} == {onnx.TensorProto.INT8}
    assert "Scan" in operators(file.graph)
    assert {entry.key for entry in file.metadata_props} == {"kreiss.state", "kreiss.version", "unit"}
    first = tree_leaves(model.init_state(2))
    found, expected = (run_file(path, x, *first)[0] for path in (done.path, whole))
    assert done.int8.largest == pytest.approx(float((found - expected).abs().max()))
    assert done.int8.relative == pytest.approx(float((found - expected).norm() / expected.norm()))
    assert 0 < done.int8.largest < 0.01
    assert done.int8.bytes == done.path.stat().st_size < whole.stat().st_size == done.int8.float_bytes
    assert "on the given inputs outputs differ from float by at most" in str(done)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "whole.onnx"]


def test_a_readout_at_the_end_becomes_integers_too(tmp_path):  # as Gemm, whose weight the quantiser transposes
    model = kreiss.RecurrentNetwork(kreiss.RNN(IN, HIDDEN), output_size=2, answers="last")
    done = kreiss.export(model, tmp_path / "model.onnx", int8=True)
    assert run_file(done.path, torch.randn(4, 3, IN), torch.zeros(1, 3, HIDDEN))[0].shape == (3, 2)


def test_a_network_around_a_layer_of_torch_is_frozen_and_exported(tmp_path):
    network = kreiss.RecurrentNetwork(torch.nn.GRU(IN, HIDDEN), output_size=2)
    x = torch.randn(4, 3, IN)
    assert torch.equal(network.freeze()(x)[0], network(x)[0])
    assert kreiss.export(network, tmp_path / "model.onnx", verify=True).largest_difference < 1e-5
    with pytest.raises(TypeError, match="a recurrent layer of kreiss, or a network around one; got GRU"):
        kreiss.Stream(network)


def test_an_agent_is_exported_without_an_example_and_images_are_refused(tmp_path):
    agent = Agent(kreiss.GRU(64, HIDDEN), actions=4, others=3)
    assert kreiss.export(agent, tmp_path / "agent.pt2", to="torch", verify=True).largest_difference < 1e-5
    images = kreiss.RecurrentNetwork(kreiss.RNN(128, HIDDEN), 2, image=(3, 32, 32))
    with pytest.raises(InputError, match="must read vectors or symbols to be exported; got RecurrentNetwork"):
        kreiss.export(images, tmp_path / "images.onnx")


def test_a_file_that_computes_something_else_is_not_kept(tmp_path, monkeypatch):
    path = tmp_path / "model.pt2"
    honest = VARIANTS["nnrnn"](IN, HIDDEN)
    # the module; the package's attribute of that name is the function
    monkeypatch.setattr(sys.modules["kreiss.networks.export"], "plain", lambda model: moved(model.freeze()))
    with pytest.raises(InputError, match=r"must compute what the model does; got a difference of .* beyond"):
        kreiss.export(honest, path, to="torch", verify=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("model", "name", "options", "said"),
    [
        (kreiss.RNN(IN, HIDDEN), "missing/model.onnx", {}, "the folder of `path` must exist"),
        (kreiss.RNN(IN, HIDDEN), "model.pt", {"to": "torch"}, r"`path` must end in '\.pt2' for to='torch'"),
        (kreiss.RNN(IN, HIDDEN), "model.onnx", {"to": "onx"}, "unknown format 'onx'. Did you mean 'onnx'"),
        (kreiss.RNN(IN, HIDDEN), "model.pt2", {"to": "torch", "int8": True}, "`int8` must be used with to='onnx'"),
        (nn.Linear(IN, 2), "model.onnx", {}, "`model` must contain a recurrent layer; got Linear without one"),
        (nn.Linear(IN, 2), "model.onnx", {"example": torch.zeros(3)}, "`example` must be a batch of sequences"),
    ],
    ids=["folder", "suffix", "format", "int8", "no layer", "example"],
)
def test_what_cannot_be_exported_is_refused_with_a_sentence(model, name, options, said, tmp_path):
    with pytest.raises(InputError, match=said):
        kreiss.export(model, tmp_path / name, **options)


def test_what_is_not_a_module_cannot_be_exported(tmp_path):
    with pytest.raises(TypeError, match=r"`model` must be a torch\.nn\.Module; got str"):
        kreiss.export("model", tmp_path / "model.onnx")


# ---------------------------------------------------------------- kreiss export


@pytest.fixture
def _saved(monkeypatch):
    """`kreiss.load` gives one layer, whatever it is asked for."""
    layer = kreiss.NNRNN(IN, HIDDEN)
    monkeypatch.setattr(sys.modules["kreiss.networks.export"], "load", lambda source: layer)


@pytest.mark.usefixtures("_saved")
def test_the_command_writes_next_to_its_source_and_prints_the_largest_difference(tmp_path, capsys):
    source = tmp_path / "net.safetensors"
    source.touch()
    assert export_command(str(source), verify=True) == 0
    assert (tmp_path / "net.onnx").exists()
    said = capsys.readouterr().out
    assert "net.onnx; largest difference from the model " in said
    assert "33×4" in said
    assert f"state [1, batch, {HIDDEN}] starts 0" in said
    assert export_saved(str(tmp_path), to="torch", step=True).path == tmp_path / "model-step.pt2"  # a run folder
    assert export_saved(str(source), tmp_path / "other.onnx", symbols=True, state=False).path.exists()
    assert run_file(tmp_path / "other.onnx", torch.randint(IN, (4, 2)))[0].shape == (4, 2, HIDDEN)


def test_the_command_measures_integers_on_validation_inputs_of_a_run(tmp_path, capsys):
    kreiss.fit("rnn", TASKS["copy"](delay=3), hidden=6, steps=2, batch=4, out=tmp_path / "run", show="quiet")
    assert export_command(str(tmp_path / "run"), int8=True, step=True) == 0
    said = capsys.readouterr().out
    assert f"wrote {tmp_path / 'run' / 'model-step-int8.onnx'}\n" in said
    assert "the given inputs are 4 validation sequences of the run's task" in said
    kreiss.save(kreiss.load(tmp_path / "run"), tmp_path / "model.safetensors")
    assert held_out_inputs(tmp_path / "model.safetensors") is None


@pytest.mark.parametrize(
    ("missing", "code", "said"),
    [
        (None, 2, "error: `source` must be a run folder or a model's file; got 'nowhere'"),
        ("onnxruntime", 3, "pip install 'kreiss[onnx]'"),
        ("onnxscript", 3, "pip install 'kreiss[onnx]'"),
    ],
)
@pytest.mark.usefixtures("_saved")
def test_the_command_ends_in_one_line_without_its_source_or_extra(missing, code, said, tmp_path, monkeypatch, capsys):
    source = "nowhere" if missing is None else str(tmp_path)
    monkeypatch.setattr(sys, "argv", ["kreiss", "export", source, "--verify"])
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == missing else find(name, *rest))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert said in shown

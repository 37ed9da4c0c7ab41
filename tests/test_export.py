"""Compiling and exporting: the same numbers, and graphs that do not grow with time."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import fx, nn
from torch.export import Dim
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

import kreiss
from catalogue import OURS

exactly = partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
double = {"dtype": torch.float64}
our_layer = pytest.mark.parametrize("name", OURS)
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
    """A layer with every parameter off its start, where many are zero and would hide a fault."""
    layer = OURS[name](IN, HIDDEN, num_layers, **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return layer


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


@pytest.mark.parametrize("bidirectional", [False, True], ids=["one", "both"])
@our_layer
def test_a_compiled_layer_equals_the_eager_one_in_output_and_gradients(name, bidirectional):
    assert_compiled_equals_eager(build(name, bidirectional=bidirectional, **double), "aot_eager")


def test_a_compiled_layer_of_three_layers_equals_the_eager_one_in_output_and_gradients():
    assert_compiled_equals_eager(build("exprnn", 3, bidirectional=True, **double), "aot_eager")


@pytest.mark.parametrize("nonlinearity", ["identity", "tanh", "relu", "modrelu"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
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


@our_layer
def test_a_compiled_layer_works_under_autocast(name):
    layer, x = build(name), torch.randn(5, 2, IN)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, found = layer(x)[0], compiled(x)[0]
    assert found.dtype == torch.bfloat16
    assert (found - expected).norm() < 0.1 * expected.norm()
    found.float().sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in layer.parameters())


@our_layer
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
stricts = pytest.mark.parametrize("strict", [True, False], ids=["strict", "non-strict"])


@torch.no_grad()  # an exported layer is for inference, and torch's scan traces a backward graph at every call else
def assert_exported_equals_eager(program: torch.export.ExportedProgram, layer: nn.Module) -> None:
    module = program.module()
    for length, batch in SIZES:
        x = torch.randn((batch, length, IN) if layer.batch_first else (length, batch, IN))
        torch.testing.assert_close(module(x), layer(x), rtol=1e-5, atol=1e-5)


@stricts
@our_layer
def test_an_exported_layer_equals_the_eager_one_at_any_time_and_batch(name, strict):
    layer = build(name)
    program = torch.export.export(layer, (torch.randn(6, 7, IN),), dynamic_shapes=(DYNAMIC,), strict=strict)
    assert_exported_equals_eager(program, layer)


@stricts
def test_an_exported_layer_of_two_layers_and_directions_equals_the_eager_one(strict):
    layer = build("nnrnn", 2, bidirectional=True, batch_first=True)
    program = torch.export.export(layer, (torch.randn(6, 7, IN),), dynamic_shapes=(DYNAMIC,), strict=strict)
    assert_exported_equals_eager(program, layer)


@stricts
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


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rnn", {}),
        ("nnrnn", {}),
        ("exprnn", {}),
        ("exprnn-expm", {"nonlinearity": "relu", "bias": False}),
        ("scornn", {"nonlinearity": "identity"}),
        ("enrnn", {}),
        ("goru", {}),
        ("henaff", {"nonlinearity": "modrelu"}),
        ("nnrnn", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    ],
    ids=["rnn", "nnrnn", "exprnn", "expm-relu", "scornn-identity", "enrnn", "goru", "henaff", "nnrnn-deep"],
)
def test_onnx_runtime_equals_the_eager_layer_at_any_time_and_batch(name, options, tmp_path):
    layer = build(name, **options)
    assert options or layer.nonlinearity == {"rnn": "tanh"}.get(name, "modrelu")
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

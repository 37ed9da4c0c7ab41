"""What `torch.nn.RNN` promises its users, for every layer; and what torch's own parametrization breaks."""

from __future__ import annotations

import copy
import io
import pickle
from functools import partial

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.func import functional_call, grad, jvp, stack_module_state, vmap
from torch.nn.utils import prune
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils._pytree import tree_leaves, tree_map

import kreiss
from catalogue import (
    ELMAN,
    FREE,
    ONE_START,
    OURS,
    TWO_WAY,
    VARIANTS,
    a_state,
    filled,
    hidden_of,
    in_shapes,
    mostly_slow,
    state_of,
    width,
)  # fmt: skip

exactly = partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
double = {"dtype": torch.float64}
every_layer = pytest.mark.parametrize("name", VARIANTS)
our_layer = pytest.mark.parametrize("name", OURS)
two_way_layer = pytest.mark.parametrize("name", TWO_WAY)
every_shape, our_shape = in_shapes(VARIANTS), in_shapes(OURS)
batch_firsts = pytest.mark.parametrize("batch_first", [False, True], ids=["time", "batch"])
# torch scripts its decompositions on the first forward-mode derivative or export of a process
decompositions = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

HELD = [name for name in OURS if name not in FREE]
IN, HIDDEN = 3, 4


def build(name: str, num_layers: int = 1, **options: object) -> nn.Module:
    """A float64 layer with every parameter off its start, where many are zero and would hide a fault."""
    layer = VARIANTS[name](IN, HIDDEN, num_layers, **{**double, **options})
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return layer


def sequence(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, IN, **double)


def outputs(layer: nn.Module, *args: object) -> list[torch.Tensor]:
    """Output and state as a flat list of tensors."""
    out, state = layer(*args)
    return [out.data if isinstance(out, PackedSequence) else out, *state_of(layer, state)]


def reals(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Those that are not counters of steps."""
    return [tensor for tensor in tensors if tensor.is_floating_point()]


def assert_same_outputs(layer: nn.Module, other: nn.Module) -> None:
    x = torch.randn(5, 2, IN, dtype=layer.weight_ih_l0.dtype)
    exactly(outputs(layer, x), outputs(other, x))


def numbers(layer: nn.Module) -> dict[str, torch.Tensor]:
    """The real tensors of the state_dict; what else is in there says of what kind the layer is."""
    return {key: tensor for key, tensor in layer.state_dict().items() if tensor.is_floating_point()}


def spoil(layer: nn.Module) -> nn.Module:
    """What uninitialised memory may hold."""
    for tensor in numbers(layer).values():
        tensor.fill_(float("nan"))
    return layer


# ---------------------------------------------------------------- shapes


@batch_firsts
@every_shape
def test_shapes_of_output_and_state_are_those_of_torch_rnn(name, num_layers, bidirectional, batch_first):
    layer = build(name, num_layers, bidirectional=bidirectional, batch_first=batch_first)
    rnn = nn.RNN(IN, width(name, HIDDEN), num_layers, bidirectional=bidirectional, batch_first=batch_first, **double)
    for x in (sequence(5, 2), sequence(5, 1), sequence(1, 2), sequence(7)):
        out, state = layer(x)
        expected, h_n = rnn(x)
        assert out.shape == expected.shape
        assert {tensor.shape for tensor in hidden_of(state)} == {h_n.shape}


@every_shape
def test_unbatched_input_equals_a_batch_of_one(name, num_layers, bidirectional):
    layer = build(name, num_layers, bidirectional=bidirectional)
    x, state = sequence(5), a_state(layer)
    one = tree_map(lambda part: part.unsqueeze(1), state)
    exactly(outputs(layer, x, state), [tensor.squeeze(1) for tensor in outputs(layer, x.unsqueeze(1), one)])


@every_shape
def test_batch_first_turns_input_and_output_and_never_the_state(name, num_layers, bidirectional):
    layer = build(name, num_layers, bidirectional=bidirectional)
    turned = VARIANTS[name](IN, HIDDEN, num_layers, bidirectional=bidirectional, batch_first=True, **double)
    turned.load_state_dict(layer.state_dict())
    x, state = sequence(5, 2), a_state(layer, 2)
    out, *last = outputs(turned, x.transpose(0, 1), state)
    exactly([out.transpose(0, 1), *last], outputs(layer, x, state))


@every_layer
def test_a_state_given_batch_first_is_refused(name):
    layer = build(name, batch_first=True)
    state = tree_map(lambda part: part.transpose(0, 1), a_state(layer, 2))
    size = width(name, HIDDEN)
    with pytest.raises(RuntimeError, match=rf"\(1, 2, {size}\).*got.*2, 1, {size}"):
        layer(sequence(2, 5), state)


@batch_firsts
@every_shape
def test_an_empty_batch_is_allowed(name, num_layers, bidirectional, batch_first):
    layer = build(name, num_layers, bidirectional=bidirectional, batch_first=batch_first)
    out, state = layer(sequence(0, 5) if batch_first else sequence(5, 0))
    directions, size = 2 if bidirectional else 1, width(name, HIDDEN)
    assert out.shape == ((0, 5, directions * size) if batch_first else (5, 0, directions * size))
    assert {tensor.shape for tensor in hidden_of(state)} == {(num_layers * directions, 0, size)}


@pytest.mark.parametrize("shape", [(0, 2), (0,)], ids=["batched", "unbatched"])
@every_layer
def test_an_empty_sequence_is_refused(name, shape):
    with pytest.raises(RuntimeError, match="sequence"):
        build(name)(sequence(*shape))


@every_layer
def test_an_empty_sequence_is_refused_batch_first(name):
    with pytest.raises(RuntimeError, match="sequence"):
        build(name, batch_first=True)(sequence(2, 0))


@every_layer
def test_init_state_is_the_state_that_forward_starts_from(name):
    layer = build(name, 2, bidirectional=name in TWO_WAY)
    for x, batch_size in ((sequence(5, 3), 3), (sequence(5), None)):
        state = layer.init_state(batch_size)
        assert all(s.dtype == torch.float64 and not s.any() for s in hidden_of(state))
        exactly(outputs(layer, x, state), outputs(layer, x))


# ---------------------------------------------------------------- packed sequences

LENGTHS = [2, 5, 1, 4]


def packed(lengths: list[int]) -> tuple[list[torch.Tensor], PackedSequence]:
    sequences = [sequence(length) for length in lengths]
    return sequences, pack_sequence(sequences, enforce_sorted=lengths == sorted(lengths, reverse=True))


@batch_firsts
@pytest.mark.parametrize("lengths", [LENGTHS, sorted(LENGTHS, reverse=True)], ids=["unsorted", "sorted"])
@every_layer
def test_packed_input_gives_output_in_the_same_packing(name, lengths, batch_first):
    _, x = packed(lengths)
    out, _ = build(name, batch_first=batch_first)(x)
    assert isinstance(out, PackedSequence)
    assert out.data.shape == (sum(lengths), width(name, HIDDEN))
    for found, given in zip(out[1:], x[1:], strict=True):
        assert given is found is None or torch.equal(found, given)


@pytest.mark.parametrize("lengths", [LENGTHS, sorted(LENGTHS, reverse=True)], ids=["unsorted", "sorted"])
@every_shape
def test_each_packed_sequence_runs_as_if_alone_and_its_state_is_in_the_callers_order(
    name, num_layers, bidirectional, lengths
):
    layer = build(name, num_layers, bidirectional=bidirectional)
    sequences, x = packed(lengths)
    state = a_state(layer, len(lengths))
    out, last = layer(x, state)
    unpacked = nn.utils.rnn.unpack_sequence(out)
    for i, alone in enumerate(sequences):
        own, found = (tree_map(lambda part, i=i: part[:, i], given) for given in (state, last))
        expected, own = layer(alone, own)
        exactly([unpacked[i], *tree_leaves(filled(found))], [expected, *tree_leaves(filled(own))])


@two_way_layer
def test_the_reverse_direction_starts_at_each_sequences_own_end(name):
    layer = build(name, bidirectional=True)
    backwards = VARIANTS[name](IN, HIDDEN, **double)  # one direction, with the parameters of the second
    theirs = layer.state_dict()
    backwards.load_state_dict({key: theirs[key.replace("l0", "l0_reverse")] for key in backwards.state_dict()})
    sequences, x = packed(LENGTHS)
    for alone, out in zip(sequences, nn.utils.rnn.unpack_sequence(layer(x)[0]), strict=True):
        exactly(out[:, width(name, HIDDEN) :].flip(0), backwards(alone.flip(0))[0])


# ---------------------------------------------------------------- dropout


@every_layer
def test_dropout_acts_between_layers_and_not_on_the_output(name):
    layer = build(name, 2, dropout=1.0)
    x, other, state = sequence(5, 2), sequence(5, 2), a_state(layer, 2)
    out, *last = outputs(layer, x, state)
    exactly(out, outputs(layer, other, state)[0])  # the second layer is fed zeros
    assert out.any()  # and what it puts out is kept
    exactly([s[0] for s in last], [s[0] for s in outputs(layer.eval(), x, state)[1:]])  # as is the first layer's state


@every_layer
def test_dropout_acts_in_training_only(name):
    layer = build(name, 2, dropout=0.5)
    plain = build(name, 2)
    plain.load_state_dict(layer.state_dict())
    x = sequence(5, 2)
    assert not torch.equal(layer(x)[0], plain(x)[0])
    exactly(outputs(layer.eval(), x), outputs(plain, x))


@every_layer
def test_dropout_on_a_single_layer_does_nothing_and_says_so(name):
    with pytest.warns(UserWarning, match="dropout.*num_layers=1"):
        layer = VARIANTS[name](IN, HIDDEN, dropout=0.5)
    x = torch.randn(5, 2, IN)
    assert torch.equal(layer.train()(x)[0], layer.eval()(x)[0])


# ---------------------------------------------------------------- step, freeze


@batch_firsts
@pytest.mark.parametrize("num_layers", [1, 2])
@every_layer
def test_step_equals_forward(name, num_layers, batch_first):
    layer = build(name, num_layers, batch_first=batch_first)
    for x, state in ((sequence(5, 2), a_state(layer, 2)), (sequence(5), a_state(layer))):
        batched = x.dim() == 3
        out, *last = outputs(layer, x.transpose(0, 1) if batched and batch_first else x, state)
        steps = []
        for x_t in x:
            y, state = layer.step(x_t, state)
            steps.append(y)
        exactly(torch.stack(steps, 1 if batched and batch_first else 0), out)
        exactly(state_of(layer, state), last)


@every_layer
def test_step_starts_from_zero_without_a_state(name):
    layer = build(name)
    x = sequence(2)
    exactly(layer.step(x)[0], layer.step(x, layer.init_state(2))[0])


@two_way_layer
def test_step_refuses_two_directions(name):
    with pytest.raises(kreiss.InputError, match="must be called on a unidirectional layer"):
        build(name, bidirectional=True).step(sequence(2))


@every_layer
def test_step_refuses_whole_sequences(name):
    with pytest.raises(kreiss.InputError, match="must be 1-D or 2-D, one time step"):
        build(name).step(sequence(5, 2))


@every_shape
def test_a_frozen_layer_computes_the_same_from_plain_matrices_without_gradients(name, num_layers, bidirectional):
    layer = build(name, num_layers, bidirectional=bidirectional)
    frozen = layer.freeze()
    assert type(frozen) is type(layer)
    assert_same_outputs(frozen, layer)
    assert not frozen.training
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    names = {name.replace("ih", "hh") for name, _ in layer.named_parameters() if name.startswith("weight_ih")}
    plain = dict(frozen.named_parameters())
    assert all(torch.equal(plain[name], getattr(layer, name)) for name in names)


@every_layer
def test_freezing_leaves_the_layer_itself_as_it_was(name):
    layer = build(name)
    before = copy.deepcopy(layer.state_dict())
    frozen = layer.freeze()
    kept = frozen.weight_hh_l0.clone()
    assert layer.training
    assert all(parameter.requires_grad for parameter in layer.parameters())
    exactly(layer.state_dict(), before)
    spoil(layer)
    exactly(frozen.weight_hh_l0, kept)  # nothing is shared


@every_layer
def test_a_frozen_layer_freezes_and_copies_again(name):
    frozen = build(name, 2).freeze()
    assert_same_outputs(frozen.freeze(), frozen)
    assert_same_outputs(pickle.loads(pickle.dumps(frozen)), frozen)


# ---------------------------------------------------------------- the recurrent matrix


@every_layer
def test_constraint_error_is_rounding_alone_after_training(name):
    layer = build(name, 2, bidirectional=name in TWO_WAY)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.01)
    for _ in range(3):
        optimiser.zero_grad()
        layer(sequence(5, 2))[0].square().mean().backward()
        optimiser.step()
    assert layer.constraint_error() < 1e-12
    assert layer.float().constraint_error() < 1e-5


@pytest.mark.parametrize("name", ["exprnn", "nnrnn"])
def test_constraint_error_sees_a_matrix_that_left_the_set(name):
    layer = build(name, 2)
    with torch.no_grad():
        dict(layer.named_buffers())["sets.l1.map.base" if name == "exprnn" else "sets.l1.orthogonal.map.base"].mul_(1.1)
    assert layer.constraint_error() == pytest.approx(0.21, abs=1e-9)  # 1.1² − 1


@our_shape
def test_the_recurrent_matrix_is_readable_and_its_gradient_reaches_the_free_parameters(name, num_layers, bidirectional):
    layer = build(name, num_layers, bidirectional=bidirectional)
    reached = 0
    for key in [key for key, _ in layer.named_parameters() if key.startswith("weight_ih")]:
        suffix = key.removeprefix("weight_ih_")
        matrix = getattr(layer, f"weight_hh_{suffix}")
        assert matrix.shape == (layer.blocks * width(name, HIDDEN), width(name, HIDDEN))
        exactly(matrix, layer.recurrent_matrix(suffix))
        own = [p for n, p in layer.named_parameters() if n in layer.free_roles() and n.endswith(f"_{suffix}")]
        grads = torch.autograd.grad((matrix * torch.randn_like(matrix)).sum(), own)
        assert all(g.any() for g in grads)
        reached += len(own)
    assert reached == len(layer.free_roles())


@our_layer
def test_an_unknown_recurrent_matrix_is_an_attribute_error(name):
    layer = build(name)
    for attribute in ("weight_hh_l1", "weight_hh_l0_reverse", "weight_hh_lx"):
        assert not hasattr(layer, attribute)


@our_layer
def test_a_recurrent_matrix_can_be_assigned(name):
    layer, other = build(name, 2, bidirectional=name in TWO_WAY), build(name, 2, bidirectional=name in TWO_WAY)
    others = ("weight_hh_l0", "weight_hh_l1_reverse") if name in TWO_WAY else ("weight_hh_l0",)
    before = {key: getattr(layer, key).detach().clone() for key in others}
    matrix = other.weight_hh_l1.detach()
    layer.weight_hh_l1 = matrix
    torch.testing.assert_close(layer.weight_hh_l1, matrix, rtol=0, atol=1e-9)
    exactly({key: getattr(layer, key) for key in before}, before)
    assert set(layer.free_roles()) <= {key for key, _ in layer.named_parameters()}  # still trained by the same names
    layer(sequence(5, 2))[0].sum().backward()


@our_layer
def test_assignment_copies_and_keeps_the_dtype_of_the_layer(name):
    layer = build(name, dtype=torch.float32)
    matrix = build(name, dtype=torch.float32).weight_hh_l0.detach()
    kept = matrix.clone()
    layer.weight_hh_l0 = matrix
    matrix.zero_()
    torch.testing.assert_close(layer.weight_hh_l0, kept, rtol=0, atol=1e-5)
    assert {tensor.dtype for tensor in numbers(layer).values()} == {torch.float32}


@our_layer
def test_an_assigned_parameter_is_the_matrix_that_forward_uses(name):
    layer, matrix = build(name), build(name).weight_hh_l0.detach()
    keys = set(layer.state_dict())
    layer.weight_hh_l0 = nn.Parameter(matrix.clone())
    torch.testing.assert_close(layer.recurrent_matrix("l0"), matrix, rtol=0, atol=1e-9)
    assert set(layer.state_dict()) == keys  # and not one more parameter, which nothing reads


def test_a_free_matrix_can_be_pruned_as_that_of_torchs_rnn():
    layer = prune.l1_unstructured(kreiss.RNN(IN, HIDDEN), "weight_hh_l0", 0.5)
    assert (layer.weight_hh_l0 == 0).sum() == HIDDEN * HIDDEN // 2
    layer(torch.zeros(2, 1, IN))


def test_assignment_under_torchs_parametrize_reaches_the_parametrization():
    layer = kreiss.constrain(kreiss.RNN(IN, HIDDEN, **double), "weight_hh_l0", kreiss.Orthogonal(HIDDEN))
    matrix = build("exprnn").weight_hh_l0.detach()
    layer.weight_hh_l0 = matrix
    exactly(layer.weight_hh_l0, matrix)


@pytest.mark.parametrize("name", ["exprnn", "scornn"])
def test_assigning_a_matrix_outside_the_set_is_refused_and_changes_nothing(name):
    layer = build(name)
    before = layer.weight_hh_l0.detach().clone()
    with pytest.raises(kreiss.InputError, match="must be orthogonal"):
        layer.weight_hh_l0 = torch.ones(HIDDEN, HIDDEN, **double)
    exactly(layer.weight_hh_l0, before)


# ---------------------------------------------------------------- initial values


@every_shape
def test_one_seed_gives_one_layer(name, num_layers, bidirectional):
    seeded = lambda seed, **options: VARIANTS[name](  # noqa: E731
        IN,
        HIDDEN,
        num_layers,
        bidirectional=bidirectional,
        generator=torch.Generator().manual_seed(seed),
        **options,
    )
    first, again, other = (seeded(seed).state_dict() for seed in (5, 5, 6))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@our_layer
def test_one_seed_gives_one_layer_whatever_its_dtype(name):
    layers = [
        OURS[name](IN, HIDDEN, generator=torch.Generator().manual_seed(5), dtype=dtype)
        for dtype in (torch.float32, torch.float64)
    ]
    exactly({key: value.float() for key, value in numbers(layers[1]).items()}, numbers(layers[0]))


@every_layer
def test_reset_parameters_draws_a_new_layer(name):
    layer, fresh = build(name, 2), VARIANTS[name](IN, HIDDEN, 2, generator=torch.Generator().manual_seed(5), **double)
    layer.reset_parameters(torch.Generator().manual_seed(5))
    exactly(layer.state_dict(), fresh.state_dict())


@pytest.fixture
def _memory_full_of_nan():
    """Memory that was used before may hold anything; in this mode torch fills it with NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_memory_full_of_nan")
@every_layer
def test_initial_values_never_come_from_uninitialised_memory(name):
    assert torch.empty(3).isnan().all()
    layer = VARIANTS[name](IN, HIDDEN, 2, bidirectional=name in TWO_WAY)
    assert all(tensor.isfinite().all() for tensor in layer.state_dict().values())


# ---------------------------------------------------------------- the meta device


@every_layer
def test_a_layer_is_built_on_meta_and_gets_its_values_later(name):
    options = {"num_layers": 2, "bidirectional": name in TWO_WAY, **double}
    layer = VARIANTS[name](IN, HIDDEN, **options, device="meta")
    assert {tensor.device.type for tensor in layer.state_dict().values()} == {"meta"}
    layer = spoil(layer.to_empty(device="cpu"))
    layer.reset_parameters(torch.Generator().manual_seed(5))
    fresh = VARIANTS[name](IN, HIDDEN, **options, generator=torch.Generator().manual_seed(5))
    exactly(layer.state_dict(), fresh.state_dict())
    assert_same_outputs(layer, fresh)


@every_layer
def test_a_layer_is_built_under_the_meta_device_context(name):
    with torch.device("meta"):
        layer = VARIANTS[name](IN, HIDDEN, **double)
    layer = spoil(layer.to_empty(device="cpu"))
    trained = build(name)
    layer.load_state_dict(trained.state_dict())
    assert_same_outputs(layer, trained)


@every_layer
def test_a_layer_on_meta_takes_the_tensors_of_a_state_dict_themselves(name):
    trained = build(name, 2)
    layer = VARIANTS[name](IN, HIDDEN, 2, device="meta", **double)
    layer.load_state_dict(trained.state_dict(), assign=True)
    assert_same_outputs(layer, trained)


@every_layer
def test_a_layer_on_meta_says_the_shapes_of_its_outputs(name):
    directions = 2 if name in TWO_WAY else 1
    layer = VARIANTS[name](IN, HIDDEN, 2, bidirectional=directions == 2, device="meta")
    out, state = layer(torch.empty(5, 2, IN, device="meta"))
    assert (out.shape, out.device.type) == ((5, 2, directions * width(name, HIDDEN)), "meta")
    assert {tensor.shape for tensor in hidden_of(state)} == {(2 * directions, 2, width(name, HIDDEN))}


# ---------------------------------------------------------------- copies and files


@every_layer
def test_a_deep_copy_is_the_same_layer_and_shares_nothing(name):
    layer = build(name, 2)
    other = copy.deepcopy(layer)
    assert_same_outputs(other, layer)
    before = copy.deepcopy(layer.state_dict())
    spoil(other)
    exactly(layer.state_dict(), before)


@every_layer
def test_a_layer_pickles(name):
    layer = build(name, 2, bidirectional=name in TWO_WAY).eval()
    other = pickle.loads(pickle.dumps(layer))
    assert not other.training
    assert_same_outputs(other, layer)


@every_layer
def test_a_whole_layer_goes_through_torch_save(name):
    layer, file = build(name), io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    assert_same_outputs(torch.load(file, weights_only=False), layer)


@every_shape
def test_a_state_dict_goes_through_torch_save_weights_only(name, num_layers, bidirectional):
    layer, file = build(name, num_layers, bidirectional=bidirectional), io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = build(name, num_layers, bidirectional=bidirectional)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert_same_outputs(other, layer)


@every_shape
def test_a_state_dict_goes_through_safetensors(name, num_layers, bidirectional, tmp_path):
    layer = build(name, num_layers, bidirectional=bidirectional)
    safetensors.torch.save_file(layer.state_dict(), tmp_path / "layer.safetensors")
    other = build(name, num_layers, bidirectional=bidirectional)
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "layer.safetensors"))
    assert_same_outputs(other, layer)


@pytest.mark.parametrize("name", [name for name in OURS if name not in ONE_START])
def test_safetensors_takes_a_layer_of_any_initialiser(name):
    for init in build(name).sets["l0"].initialisers:
        layer, other = OURS[name](IN, HIDDEN, init=init, **double), build(name, init=init)
        other.load_state_dict(safetensors.torch.load(safetensors.torch.save(layer.state_dict())))
        assert_same_outputs(other, layer)


@our_layer
def test_safetensors_takes_a_layer_after_assignment_and_rebase(name):
    layer, other = build(name), build(name)
    layer.weight_hh_l0 = other.weight_hh_l0.detach().mT.contiguous().mT  # a column-major matrix
    layer.rebase()
    other.load_state_dict(safetensors.torch.load(safetensors.torch.save(layer.state_dict())))
    assert_same_outputs(other, layer)


@every_layer
def test_a_layer_inside_a_model_loads_by_its_prefix(name):
    model = nn.ModuleDict({"core": build(name, 2), "readout": nn.Linear(HIDDEN, 1)})
    other = nn.ModuleDict({"core": build(name, 2), "readout": nn.Linear(HIDDEN, 1)})
    other.load_state_dict(model.state_dict())
    assert_same_outputs(other["core"], model["core"])


@every_layer
def test_training_resumes_exactly_from_the_state_dict(name):
    layer, batches = build(name, 2), [sequence(5, 2) for _ in range(4)]
    other = build(name, 2)

    def train(layer: nn.Module, batches: list[torch.Tensor]) -> None:
        torch.manual_seed(5)
        for x in batches:
            layer.zero_grad()
            layer(x)[0].square().mean().backward()
            with torch.no_grad():
                for parameter in layer.parameters():
                    parameter.sub_(0.1 * parameter.grad)

    train(layer, batches[:2])
    layer.rebase()
    other.load_state_dict(copy.deepcopy(layer.state_dict()))
    train(layer, batches[2:])
    train(other, batches[2:])
    exactly(other.state_dict(), layer.state_dict())


@our_layer
def test_a_foreign_state_dict_is_refused_and_changes_nothing(name):
    layer = build(name)
    before = copy.deepcopy(layer.state_dict())
    wrong = {key: torch.zeros_like(value) for key, value in before.items()}
    wrong["stranger"] = torch.zeros(2)
    missing = {key: torch.zeros_like(value) for key, value in list(before.items())[1:]}
    larger = VARIANTS[name](IN, HIDDEN + 1, **double).state_dict()
    for state_dict in (wrong, missing, larger):
        with pytest.raises(kreiss.InputError, match="the layer was left unchanged"):
            layer.load_state_dict(state_dict)
        exactly(layer.state_dict(), before)


# ---------------------------------------------------------------- dtypes


def relative_error(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """In the norm: modReLU jumps at 0, so single entries may well differ in half precision."""
    pairs = zip(found, expected, strict=True)
    return max(float((f.detach() - e.detach()).norm() / e.detach().norm()) for f, e in pairs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_layer
def test_output_state_and_gradients_have_the_dtype_of_the_layer(name, dtype):
    layer = VARIANTS[name](IN, HIDDEN, 2, dtype=dtype)
    found = reals(outputs(layer, torch.randn(5, 2, IN, dtype=dtype)))
    found[0].sum().backward()
    tensors = (*found, *layer.parameters(), *(parameter.grad for parameter in layer.parameters()))
    assert {tensor.dtype for tensor in tensors} == {dtype}


@every_layer
def test_a_layer_follows_dtype_conversions_in_place(name):
    layer = build(name, 2, bidirectional=name in TWO_WAY)
    x = sequence(5, 2)
    expected = outputs(layer, x)
    in_single = [t.float() if t.is_floating_point() else t for t in expected]
    torch.testing.assert_close(outputs(layer.float(), x.float()), in_single, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(outputs(layer.double(), x), expected, rtol=1e-4, atol=1e-4)


@our_layer
def test_a_bfloat16_layer_runs_and_trains_near_the_float32_one(name):
    layer = build(name, 2, bidirectional=name in TWO_WAY, dtype=torch.float32)
    x = torch.randn(5, 2, IN)
    half = copy.deepcopy(layer).to(torch.bfloat16)
    found, state = half(x.bfloat16())
    assert {tensor.dtype for tensor in reals([found, *state_of(half, state)])} == {torch.bfloat16}
    expected, last = layer(x)
    assert relative_error([found, *hidden_of(state)], [expected, *hidden_of(last)]) < 0.1
    found.float().square().sum().backward()
    assert {p.grad.dtype for p in half.parameters()} == {torch.bfloat16}
    assert all(p.grad.isfinite().all() for p in half.parameters())
    assert {tensor.dtype for tensor in reals(outputs(half.freeze(), x.bfloat16()))} == {torch.bfloat16}


@our_layer
def test_a_bfloat16_layer_keeps_its_constraint_in_float32(name):
    layer = build(name, dtype=torch.float32).to(torch.bfloat16)
    before = layer.weight_hh_l0.detach()
    assert layer.constraint_error() < 1e-5
    layer.rebase()
    assert layer.constraint_error() < 1e-5
    torch.testing.assert_close(layer.weight_hh_l0, before, rtol=0, atol=2**-7)  # one unit in the last place


@pytest.mark.parametrize("with_state", [False, True], ids=["zero", "hx"])
@our_layer
def test_autocast_gives_bfloat16_as_torch_rnn_does(name, with_state):
    layer, rnn = build(name, 2, dtype=torch.float32), nn.RNN(IN, width(name, HIDDEN), 2)
    x, zeros = torch.randn(5, 2, IN), torch.zeros(2, 2, width(name, HIDDEN))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = outputs(rnn, x, zeros) if with_state else outputs(rnn, x)
        found, state = layer(x, layer.init_state(2)) if with_state else layer(x)
        found.float().sum().backward()
    assert {tensor.dtype for tensor in (found, hidden_of(state)[0], *expected)} == {torch.bfloat16}
    wanted, last = layer(x)
    assert relative_error([found, *hidden_of(state)], [wanted, *hidden_of(last)]) < 0.1
    assert {parameter.grad.dtype for parameter in layer.parameters()} == {torch.float32}


@our_layer
def test_the_recurrent_matrix_stays_exact_under_autocast(name):
    layer = build(name, dtype=torch.float32)
    expected, error = layer.weight_hh_l0.detach(), layer.constraint_error()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer.weight_hh_l0, expected)
        assert layer.weight_hh_l0.dtype == torch.float32
        assert torch.equal(layer.freeze().weight_hh_l0, expected)
        assert layer.constraint_error() == error < 1e-5
        layer.rebase()
        torch.testing.assert_close(layer.weight_hh_l0, expected, rtol=0, atol=1e-6)


# ---------------------------------------------------------------- derivatives


FIXED = ("reads", "surprise", "scores", "times", "steps")  # parts of a memory that no gradient flows through


def smooth(state: object) -> list[torch.Tensor]:
    """The tensors of a state that derivatives are taken of."""
    if hasattr(state, "_fields"):
        return [part for name, part in zip(state._fields, state, strict=True) if name not in FIXED]
    return tree_leaves(state)


def with_smooth(state: object, values: tuple[torch.Tensor, ...]) -> object:
    """The state with these in place of its smooth tensors."""
    names = [name for name in getattr(state, "_fields", ()) if name not in FIXED]
    if names:
        return state._replace(**dict(zip(names, values, strict=True)))
    return values if isinstance(state, tuple) else values[0]


def as_function(layer: nn.Module) -> tuple:
    """The layer as a function of input, state and all its parameters; and where to take it."""
    names, first = [name for name, _ in layer.named_parameters()], a_state(layer, 2)
    parts = len(smooth(first))

    def call(x: torch.Tensor, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(5)
        parameters, hx = dict(zip(names, values[parts:], strict=True)), with_smooth(first, values[:parts])
        out, state = functional_call(layer, parameters, (x, hx))
        return out, *smooth(state)

    point = (torch.randn(3, 2, layer.input_size, **double), *smooth(first), *layer.parameters())
    return call, tuple(tensor.detach().requires_grad_() for tensor in point)


# one of each way to make a matrix and to run it; the others are differentiated under the marker `slow`
DIFFERENTIATED = (
    *("rnn", "exprnn", "exprnn-expm", "ornn", "scornn", "nnrnn", "enrnn", "svdrnn", "henaff", "goru"),
    *("scurnn", "urnn", "eurnn-structured", "complexnnrnn"),
    *("memrnn", "relrnn", "rellstm", "sab", "hdetach"),
)
# the gradient of a learned choice is straight-through, not the derivative: see test_memory_layers.py
SMOOTH = [name for name in OURS if name != "relrnn-learned"]
by_derivative = pytest.mark.parametrize("name", mostly_slow(SMOOTH, *DIFFERENTIATED))
BOTH_DIRECTIONS = ("rnn", "nnrnn", "goru", "scurnn")  # one of each recurrence; the derivatives of the others in one


def tiny(name: str) -> nn.Module:
    layer = OURS[name](2, 3, bidirectional=name in BOTH_DIRECTIONS, **double)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return layer.eval() if name == "hdetach" else layer  # in training its gradient is not the derivative


@decompositions
@by_derivative
def test_first_derivatives_pass_gradcheck_backward_and_forward(name):
    assert torch.autograd.gradcheck(*as_function(tiny(name)), check_forward_ad=True)


@by_derivative
def test_second_derivatives_pass_gradgradcheck_on_the_eager_path(name):
    assert torch.autograd.gradgradcheck(*as_function(tiny(name)))


@decompositions
@our_layer
def test_forward_mode_agrees_with_reverse_mode(name):
    call, point = as_function(build(name, 2))
    tangents = tuple(torch.randn_like(tensor) for tensor in point)
    (out, *_), (tangent, *_) = jvp(call, point, tangents)
    weights = torch.randn_like(out)
    pulled = torch.autograd.grad((call(*point)[0] * weights).sum(), point, materialize_grads=True)
    exactly((tangent * weights).sum(), sum((g * t).sum() for g, t in zip(pulled, tangents, strict=True)))


@pytest.mark.parametrize("skeleton", mostly_slow(["cpu", "meta"], "meta"))
@our_shape
def test_an_ensemble_under_vmap_equals_its_members(name, num_layers, bidirectional, skeleton):
    members = [build(name, num_layers, bidirectional=bidirectional) for _ in range(3)]
    values = stack_module_state(members)
    stateless = copy.deepcopy(members[0]).to(skeleton)  # torch's tutorial takes a skeleton on meta
    x = sequence(5, 2)
    found = vmap(lambda *state: functional_call(stateless, state, (x,)), randomness="same")(*values)
    exactly(tree_leaves(found), [torch.stack(parts) for parts in zip(*(outputs(m, x) for m in members), strict=True)])


@our_shape
def test_per_sample_gradients_equal_those_of_each_sample_alone(name, num_layers, bidirectional):
    layer = build(name, num_layers, bidirectional=bidirectional)
    values, x = dict(layer.named_parameters()), sequence(5, 3)
    loss = lambda values, x: functional_call(layer, values, (x,))[0].square().sum()  # noqa: E731
    torch.manual_seed(5)
    found = vmap(grad(loss), in_dims=(None, 1), randomness="same")(values, x)
    for i in range(3):
        torch.manual_seed(5)
        alone = torch.autograd.grad(layer(x[:, i])[0].square().sum(), list(values.values()))
        exactly([g[i] for g in found.values()], list(alone))


# ---------------------------------------------------------------- several processes


def ddp_worker(rank: int, folder: str) -> None:
    """One of two processes: its half of the batch, gradients averaged by torch."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    given = torch.load(f"{folder}/given.pt", weights_only=True)
    layers = {name: OURS[name](IN, HIDDEN, 2, bidirectional=name in TWO_WAY, **double) for name in OURS}
    found = {}
    for name, layer in layers.items():
        if rank == 0:  # the other process keeps its own start: DDP must send all it needs
            layer.load_state_dict(given["layers"][name])
        parallel = nn.parallel.DistributedDataParallel(layer)
        torch.manual_seed(5)
        parallel(given["x"][:, 2 * rank : 2 * rank + 2])[0].square().mean().backward()
        found[name] = {key: parameter.grad for key, parameter in layer.named_parameters()}
    torch.save(found, f"{folder}/found{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_ddp_processes_give_the_gradients_of_one_on_the_whole_batch(tmp_path):
    layers, x = {name: build(name, 2, bidirectional=name in TWO_WAY) for name in OURS}, sequence(5, 4)
    torch.save({"x": x, "layers": {name: layer.state_dict() for name, layer in layers.items()}}, tmp_path / "given.pt")
    torch.multiprocessing.spawn(ddp_worker, (str(tmp_path),), nprocs=2)
    found = [torch.load(tmp_path / f"found{rank}.pt", weights_only=True) for rank in range(2)]
    for name, layer in layers.items():
        torch.manual_seed(5)
        layer(x)[0].square().mean().backward()
        expected = {key: parameter.grad for key, parameter in layer.named_parameters()}
        exactly(found[0][name], expected)
        exactly(found[1][name], expected)


# ---------------------------------------------------------------- five faults of torch's parametrizations.orthogonal

held_layer = pytest.mark.parametrize("name", HELD)


@held_layer
def test_unlike_torchs_orthogonal_it_works_on_meta(name):
    layer = spoil(VARIANTS[name](IN, HIDDEN, device="meta", **double).to_empty(device="cpu"))
    layer.reset_parameters()
    assert layer.constraint_error() < 1e-12
    assert layer(sequence(5, 2))[0].isfinite().all()


@held_layer
def test_unlike_torchs_orthogonal_it_pickles(name):
    layer = build(name)
    other = pickle.loads(pickle.dumps(layer))
    exactly(other.weight_hh_l0, layer.weight_hh_l0)
    assert other.constraint_error() < 1e-12


@pytest.mark.parametrize("name", [name for name in HELD if name in ELMAN])
def test_unlike_torchs_orthogonal_it_loads_plain_names_and_takes_plain_weights(name):
    layer, other = build(name, nonlinearity="tanh"), build(name, nonlinearity="tanh")
    assert not any("parametrizations" in key or "original" in key for key in layer.state_dict())
    rnn = layer.to_torch().state_dict()
    free = kreiss.RNN(IN, width(name, HIDDEN), **double)
    free.load_state_dict(rnn)
    other.load_state_dict({**layer.state_dict(), "weight_ih_l0": rnn["weight_ih_l0"]})
    other.weight_hh_l0 = rnn["weight_hh_l0"]
    x = sequence(5, 2)
    torch.testing.assert_close(outputs(other, x), outputs(free, x), rtol=1e-9, atol=1e-9)


@held_layer
def test_unlike_torchs_orthogonal_it_works_inside_autocast(name):
    layer, x = build(name, dtype=torch.float32), torch.randn(5, 2, IN)
    expected = layer.weight_hh_l0.detach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(x)[0]
        out.float().sum().backward()
        exactly(layer.weight_hh_l0.detach(), expected)  # in float32, not rounded on the way
    assert layer.constraint_error() < 1e-5
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


def linear_algebra(layer: nn.Module) -> list[str]:
    """The decompositions, inverses and solves in the exported graph, subgraphs included."""
    program = torch.export.export(layer, (sequence(5, 2),))
    graphs = [module.graph for module in program.graph_module.modules() if hasattr(module, "graph")]
    targets = [str(node.target) for graph in graphs for node in graph.nodes if node.op == "call_function"]
    return [target for target in targets if "linalg" in target or "matrix_exp" in target]


@pytest.mark.filterwarnings("ignore:torch.compile is ignored when called inside torch.export region")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@decompositions
@pytest.mark.parametrize(  # one of each way to run a matrix: tracing takes seconds
    "name",
    mostly_slow(
        ["exprnn", "scornn", "nnrnn", "enrnn", "svdrnn", "goru", "scurnn", "eurnn", "urnn", "complexnnrnn"],
        "nnrnn",
        "svdrnn",
    ),
)
def test_unlike_torchs_orthogonal_an_exported_graph_computes_each_matrix_once(name):
    layer = build(name, 2)
    per_layer = {"band": 2, "butterfly": 0, "mesh": 0, "fourier": 0}  # two orthogonal factors; no inverse in products
    kind = bytes(layer.sets["l0"].kind.tolist()).decode().lower()
    expected = next((count for word, count in per_layer.items() if word in kind), 1)
    assert len(linear_algebra(layer)) == 2 * expected
    assert linear_algebra(layer.freeze()) == []

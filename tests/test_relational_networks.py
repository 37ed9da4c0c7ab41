"""Networks over sequences of objects: counts of the papers, equations against NumPy, and the contract of a network."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import kreiss
import relational_numpy as naive
from kreiss.catalogue import RELATIONAL_MODELS
from kreiss.errors import InputError
from kreiss.networks.building import make_network
from kreiss.pooled import Pooled
from kreiss.relational import ESBN, MNM, NTM, RELATIONAL, RN, CoRelNet, CoRelNetT, PrediNet, RelConvNet, Transformer
from kreiss.settings import NetworkSettings
from kreiss.tasks import TASKS

CELL = (3, 12, 12)  # an image of the relational games


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def shaken(kind: type[Any], length: int = 5, classes: int = 3, **options: Any) -> Any:
    """A network in float64 of whose parameters none is zero, one or equal to another, so that each one matters."""
    network = kind(length, classes, image=CELL, generator=torch.Generator().manual_seed(1), **options).double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return network


def objects(length: int = 5, batch: int = 2) -> Tensor:
    """Encoded objects (T, B, 128)."""
    return torch.randn(length, batch, 128, dtype=torch.float64).relu()


def values(network: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}


def by_sequence(function: Any, network: nn.Module, encoded: Tensor, *options: Any) -> list[Any]:
    p = values(network)
    return [function(p, encoded[:, b].numpy(), *options) for b in range(encoded.shape[1])]


def assert_equal(found: Tensor, expected: Any) -> None:
    np.testing.assert_allclose(found.detach().numpy(), np.asarray(expected), rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------- numbers of parameters


@pytest.mark.parametrize(
    ("task", "corelnet", "hidden", "wide", "esbn"),
    [
        ("samedifferent", 200_418, 285_313, 1_910_760, 1_910_757),
        ("rmts", 205_026, 71_328, 1_910_754, 1_910_757),
        ("dist3", 211_684, 34_258, 1_911_784, 1_911_783),
        ("identityrules", 211_684, 34_258, 1_911_784, 1_911_783),
        ("samedifferent6", 205_026, 71_328, 1_910_754, 1_910_757),  # the thesis has 1,910,760: see the next test
        ("rmts3", 211_170, 35_664, 1_910_754, 1_910_757),
        ("identityrules4", 223_974, 17_489, 1_912_808, 1_912_809),
    ],
)
def test_the_parameters_are_those_of_table_3_of_the_thesis(task, corelnet, hidden, wide, esbn):
    made = TASKS[task]()
    length, classes = made.objects, made.output_size
    assert count(CoRelNet(length, classes)) == corelnet
    assert count(CoRelNet(length, classes, hidden=hidden)) == wide
    assert count(ESBN(length, classes)) == esbn


def test_no_hidden_size_has_the_count_that_the_thesis_gives_for_same_different_6():
    per_unit = count(CoRelNet(6, 2, hidden=2)) - count(CoRelNet(6, 2, hidden=1))
    fixed = count(CoRelNet(6, 2, hidden=1)) - per_unit
    assert (1_910_760 - fixed) % per_unit  # 1,910,760 is its count for same/different
    assert (1_910_760 - fixed) // per_unit == 71_328


COUNTS = [  # same/different (T = 2, two answers) and distribution of three (9, four)
    (CoRelNet, {"relation": "asymmetric"}, 233_442, 244_708),
    (CoRelNet, {"l1": 1.0}, 216_930, 228_196),
    (CoRelNet, {"cat": True}, 265_954, 506_596),
    (CoRelNetT, {}, 221_866, 222_436),
    (ESBN, {"cat": True}, 2_172_901, 2_173_927),
    (ESBN, {"asymmetric": True}, 1_910_757 + 33_024, 1_911_783 + 33_024),
    (ESBN, {"l1": 1.0}, 1_910_757 + 16_512, 1_911_783 + 16_512),
    (Transformer, {}, 430_946, 431_460),
    (Transformer, {"symmetric": True}, 430_946 - 16_512, 431_460 - 16_512),
    (PrediNet, {}, 471_834, 1_396_524),
    (RN, {}, 529_122, 529_636),
    (NTM, {}, 2_573_038, 2_574_064),
    (MNM, {"norm_heads": True, "features": True}, 579_299, 579_557),
    (MNM, {}, 579_299 - 33_920, 579_557 - 33_920),  # without what the public code registers and does not use
]


@pytest.mark.parametrize(("kind", "options", "same", "three"), COUNTS)
def test_the_parameters_are_those_of_the_public_code(kind, options, same, three):
    assert count(kind(2, 2, **options)) == same
    assert count(kind(9, 4, **options)) == three


@pytest.mark.parametrize(
    ("kind", "expected"), [(CoRelNet, 88_290), (ESBN, 1_787_877), (Transformer, 308_066), (PrediNet, 1_273_626)]
)
def test_the_parameters_are_those_of_the_relational_games(kind, expected):
    assert count(kind(9, 2, image=CELL)) == expected


def test_distribution_of_ten_has_321003_parameters():
    assert count(CoRelNet(30, 11)) == 321_003


@pytest.mark.parametrize("name", RELATIONAL)
@pytest.mark.parametrize(("T", "y", "image", "E"), [(3, 2, CELL, 76_000), (9, 4, (3, 32, 32), 198_880)])
def test_the_formula_of_the_catalogue_counts_the_parameters(name, T, y, image, E):
    formula = eval(RELATIONAL_MODELS[name].parameters, {"E": E, "T": T, "y": y, "n": 256})
    assert formula == count(RELATIONAL[name](T, y, image=image))


@pytest.mark.parametrize("name", RELATIONAL)
def test_a_random_encoder_stays_as_it_was_drawn_and_all_else_is_trained(name):
    network = RELATIONAL[name](3, 2, image=CELL, encoder="random")
    fixed = {key for key, parameter in network.named_parameters() if not parameter.requires_grad}
    assert fixed == {f"front.encoder.{key}" for key, _ in network.front.encoder.named_parameters()}


# ---------------------------------------------------------------- initial values


def spread(weight: Tensor) -> float:
    return float(weight.detach().std())


def test_initial_weights_have_the_variance_of_xavier_or_kaiming_and_biases_are_zero():
    esbn, ntm, transformer = ESBN(4, 2), NTM(4, 2), Transformer(4, 2)
    near = lambda value: pytest.approx(value, rel=0.05)  # noqa: E731
    gates, cell, out = esbn.controller.weight_ih.split([1024, 512, 512])
    assert spread(gates) == near(math.sqrt(2 / (257 + 1024)))
    assert spread(cell) == near(5 / 3 * math.sqrt(2 / (257 + 512)))
    assert spread(out) == near(math.sqrt(2 / (257 + 512)))
    assert spread(esbn.key.weight) == near(math.sqrt(2 / 512))
    assert spread(ntm.memory) == near(math.sqrt(2 / (10 + 256)))
    assert spread(ntm.add.weight) == near(5 / 3 * math.sqrt(2 / (512 + 256)))
    assert spread(transformer.attention.value.weight) == near(math.sqrt(2 / (128 + 384)))
    assert spread(transformer.attention.feedforward[0].weight) == near(math.sqrt(2 / 128))
    for network in (esbn, ntm, transformer, RN(4, 2), PrediNet(4, 2)):
        assert not [key for key, value in network.named_parameters() if "bias" in key and value.any()]


def test_what_is_drawn_normal_has_variance_one_or_that_of_small_filters():
    network = CoRelNetT(60, 2, image=CELL)
    assert spread(network.places) == pytest.approx(1, rel=0.15)
    assert 0.1 < spread(network.reader) < 3
    assert spread(RelConvNet(4, 2, image=CELL).filters) == pytest.approx(0.05, rel=0.1)


# ---------------------------------------------------------------- equations


@pytest.mark.parametrize("options", [{}, {"relation": "asymmetric"}, {"cat": True}, {"l1": 0.5}])
def test_corelnet_is_its_equation(options):
    network, encoded = shaken(CoRelNet, hidden=32, **options), objects()
    expected = by_sequence(naive.corelnet, network, encoded, options.get("cat", False))
    assert_equal(network.decide(encoded), expected)


def test_context_normalisation_triangle_and_softmax_are_those_of_numpy():
    network, images = shaken(CoRelNet), torch.rand(5, 3, *CELL, dtype=torch.float64)
    encoded = network.front.encode(images).detach()
    assert_equal(network.front(images), np.stack(by_sequence(naive.normalised, network, encoded), 1))
    R = network.relations(images)
    assert_equal(R, by_sequence(naive.similarities, network, encoded))
    assert_equal(R.sum(-1), np.ones((3, 5)))
    assert_equal(R[:, 0, 0], np.ones(3))
    assert torch.equal(R, R.tril())


def test_corelnet_diff_decides_from_an_antisymmetric_matrix():
    network, encoded = shaken(CoRelNet, relation="difference", hidden=32), objects()
    p = values(network)
    for b, logits in enumerate(network.decide(encoded)):
        scaled = naive.normalised(p, encoded[:, b].numpy()) @ p["scale.weight"][0]
        D = np.array([[one - other for other in scaled] for one in scaled])
        assert_equal(logits, naive.mlp(p, "decoder", D.ravel()))


def test_segments_are_normalised_by_themselves():
    network, encoded = shaken(CoRelNet, length=6, segments="2,4"), objects(6)
    found = network.front.norm(encoded)
    for first, last in ((0, 2), (2, 6)):
        assert_equal(found[first:last], np.stack(by_sequence(naive.normalised, network, encoded[first:last]), 1))


@pytest.mark.parametrize("options", [{}, {"relation": "asymmetric"}, {"l1": 0.5}])
def test_corelnet_t_is_its_equation(options):
    network, encoded = shaken(CoRelNetT, **options), objects()
    assert_equal(network.decide(encoded), by_sequence(naive.corelnet_t, network, encoded))


@pytest.mark.parametrize("options", [{}, {"asymmetric": True}, {"cat": True}, {"l1": 0.5}, {"asymmetric": 1, "cat": 1}])
def test_esbn_is_its_equation(options):
    network, encoded = shaken(ESBN, **options), objects()
    expected = by_sequence(naive.esbn, network, encoded, bool(options.get("cat", False)))
    assert_equal(network.decide(encoded), [logits for logits, _ in expected])


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_transformer_is_its_equation(symmetric):
    network, encoded = shaken(Transformer, symmetric=symmetric), objects()
    expected = by_sequence(naive.transformer, network, encoded, "query" if symmetric else "key")
    assert_equal(network.decide(encoded), [logits for logits, _ in expected])


@pytest.mark.parametrize(("kind", "equation"), [(PrediNet, naive.predinet), (RN, naive.rn), (NTM, naive.ntm)])
@pytest.mark.parametrize("length", [2, 5])
def test_predinet_rn_and_ntm_are_their_equations(kind, equation, length):
    network, encoded = shaken(kind, length), objects(length)
    assert_equal(network.decide(encoded), by_sequence(equation, network, encoded))


@pytest.mark.parametrize("options", [{}, {"norm_heads": True}, {"features": True}])
def test_mnm_is_its_equation_and_its_penalty_the_error_of_what_it_wrote(options):
    network, encoded = shaken(MNM, **options), objects(batch=3)
    expected = by_sequence(naive.mnm, network, encoded)
    assert_equal(network.decide(encoded), [logits for logits, _ in expected])
    assert_equal(network.penalty(), np.mean([errors for _, errors in expected]))


@pytest.mark.parametrize(("length", "options"), [(5, {}), (2, {}), (5, {"symmetric": False, "group": 2})])
def test_relconvnet_is_its_equation(length, options):
    network, encoded = shaken(RelConvNet, length, relations=3, filters=2, **options), objects(length)
    group = options.get("group", min(3, length))
    assert_equal(network.decide(encoded), by_sequence(naive.relconvnet, network, encoded, group))


@pytest.mark.parametrize("name", RELATIONAL)
def test_without_normalisation_objects_are_compared_as_they_are(name):
    options = {"image": CELL, "generator": torch.Generator().manual_seed(0)}
    plain = RELATIONAL[name](4, 2, normalisation="none", **options)
    assert not [key for key, _ in plain.named_parameters() if "norm.gain" in key]
    assert not torch.equal(plain.decide(one := torch.rand(4, 2, 128)), plain.decide(2 * one + 1))


# ---------------------------------------------------------------- relations


def test_relations_of_every_network_that_has_them_are_those_of_its_equation():
    images = torch.rand(5, 2, *CELL, dtype=torch.float64)
    for kind, options, equation in (
        (CoRelNetT, {"relation": "asymmetric"}, naive.similarities),
        (ESBN, {"asymmetric": True}, lambda p, e: naive.esbn(p, e)[1]),
        (Transformer, {}, lambda p, e: naive.transformer(p, e)[1]),
    ):
        network = shaken(kind, **options)
        found = network.relations(images)
        assert not found.requires_grad
        assert_equal(found, by_sequence(equation, network, network.front.encode(images).detach()))


class FirstPixels(nn.Module):
    """An encoder whose features are the first 128 pixels."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :128]


@pytest.mark.parametrize("differing", [0, 1, 3, 8])
def test_two_objects_leave_the_number_of_differing_features_and_nothing_else(differing):
    network = CoRelNet(2, 2).double()
    network.front.encoder = FirstPixels()
    images = torch.randint(10, (3, 32, 32)).double().repeat(2, 1, 1, 1, 1)
    images[1, 0].view(-1)[torch.randperm(128)[:differing]] += torch.randint(1, 9, (differing,))
    R = network.relations(images)[0]
    smaller = 1 / (1 + math.exp(differing))
    np.testing.assert_allclose(R.numpy(), [[1, 0], [smaller, 1 - smaller]], atol=1e-7)


def test_an_untrained_corelnet_separates_same_from_different():
    task = TASKS["samedifferent"](held_out=0)
    batch = task.train(0, 96, 0)
    R = CoRelNet(2, 2, generator=torch.Generator().manual_seed(0)).relations(batch.inputs)
    assert torch.equal(R[:, 1, 0] > 0.49, batch.targets == 0)
    assert set(batch.targets.tolist()) == {0, 1}


# ---------------------------------------------------------------- the contract


@pytest.mark.parametrize("name", RELATIONAL)
def test_images_encoded_once_give_the_outputs_and_gradients_of_images_encoded_everywhere(name):
    network = shaken(RELATIONAL[name], 4)
    index = torch.tensor([[0, 1, 2], [0, 3, 3], [4, 1, 2], [1, 1, 0]])
    inputs = Pooled(torch.rand(5, *CELL, dtype=torch.float64), index)
    found = []
    for given in (inputs, inputs.expanded()):
        logits, state = network(given)
        assert state is None
        loss = logits.square().sum()
        penalty = network.penalty()
        parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        found.append((logits, torch.autograd.grad(loss if penalty is None else loss + penalty, parameters)))
    (pooled, gradients), (expanded, others) = found
    torch.testing.assert_close(pooled, expanded, rtol=1e-12, atol=1e-12)
    for one, other in zip(gradients, others, strict=True):  # none is None: every parameter is used
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12 * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("name", RELATIONAL)
def test_a_saved_network_is_loaded_as_it_was(name, tmp_path):
    network = RELATIONAL[name](4, 3, image=CELL, segments="2,2", encoder="random")
    kreiss.save(network, tmp_path / "network.safetensors")
    loaded = kreiss.load(tmp_path / "network.safetensors")
    assert type(loaded) is RELATIONAL[name]
    assert loaded.config == {**network.config, "image": list(CELL)}
    x = torch.rand(4, 2, *CELL)
    assert torch.equal(loaded(x)[0], network(x)[0])


@pytest.mark.parametrize("name", RELATIONAL)
def test_the_same_seed_makes_the_same_network_and_another_seed_another(name):
    task = TASKS["samedifferent"]()
    before = torch.get_rng_state()
    one, same, other = (make_network(NetworkSettings(name=name), task, seed).state_dict() for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[key], same[key]) for key in one)
    drawn = [key for key in one if one[key].unique().numel() > 1]
    assert all(not torch.equal(one[key], other[key]) for key in drawn)
    assert any("front" not in key for key in drawn)


@pytest.mark.parametrize("name", RELATIONAL)
def test_a_network_is_copied_pickled_and_loaded_after_a_pass_in_training(name):
    network, x = RELATIONAL[name](3, 2, image=CELL), torch.rand(3, 2, *CELL)
    logits, _ = network(x)
    fresh = RELATIONAL[name](3, 2, image=CELL)
    fresh.load_state_dict(network.state_dict())
    for again in (copy.deepcopy(network), pickle.loads(pickle.dumps(network)), fresh):
        assert torch.equal(again(x)[0], logits)
        assert again.config == network.config
    copied = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.zero_()
    assert torch.equal(network(x)[0], logits)


@pytest.mark.parametrize("name", RELATIONAL)
def test_nothing_is_random_after_the_network_was_made(name):
    network, x = RELATIONAL[name](3, 2, image=CELL), torch.rand(3, 2, *CELL)
    trained = network(x)[0]
    torch.manual_seed(9)
    assert torch.equal(network(x)[0], trained)
    assert torch.equal(network.eval()(x)[0], trained)


def test_the_penalty_of_mnm_is_there_in_training_only_and_trains_what_writes():
    network, x = MNM(3, 2, image=CELL), torch.rand(3, 2, *CELL)
    assert network.penalty() is None
    network(x)
    network.penalty().backward()
    assert float(network.memory.targets.weight.grad.abs().sum()) > 0
    assert copy.deepcopy(network).penalty() is None
    network.eval()(x)
    assert network.penalty() is None


@pytest.mark.parametrize("kind", [CoRelNet, CoRelNetT, ESBN])
def test_the_l1_penalty_is_that_of_one_layer(kind):
    network = kind(3, 2, image=CELL, l1=0.5)
    layer = network.views.linear
    expected = 0.5 * (np.abs(layer.weight.detach().numpy()).sum() + np.abs(layer.bias.detach().numpy()).sum())
    assert network.penalty().item() == pytest.approx(expected, rel=1e-5)
    assert kind(3, 2, image=CELL).penalty() is None


@pytest.mark.parametrize("name", RELATIONAL)
def test_a_network_learns_by_its_name(name, tmp_path):
    task = {"task.held_out": 90, "task.valid_sequences": 8, "task.test_sequences": 8}
    kreiss.fit(name, "dist3", task, steps=2, batch=4, out=tmp_path / "run", show="quiet")
    assert type(kreiss.load(tmp_path / "run")) is RELATIONAL[name]


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (CoRelNet, {"hidden": -3}, r"`hidden` must be at least 1; got hidden=-3\."),
        (CoRelNetT, {"hidden": 0}, r"`hidden` must be at least 1; got hidden=0\."),
        (CoRelNet, {"relation": "dots"}, r"unknown relation 'dots'\. Did you mean 'dot'\?"),
        (CoRelNetT, {"relation": "mix"}, r"unknown relation 'mix'\..* Choose one of: asymmetric, dot\."),
        (CoRelNet, {"temperature": 0.0}, r"`temperature` must be positive and finite; got 0\.0\."),
        (ESBN, {"l1": -1.0}, r"`l1` must be a finite number of at least 0; got -1\.0\."),
        (Transformer, {"encoder": "fixed"}, r"unknown encoder 'fixed'\..* Choose one of: learned, random\."),
        (RN, {"normalisation": "batch"}, r"unknown normalisation 'batch'\."),
        (NTM, {"segments": "2,1"}, r"`segments` must be lengths of at least 2 that add up to the 4 objects"),
        (NTM, {"segments": "two"}, r"`segments` must be lengths .*got 'two'\. Pass for example 2,2\."),
        (MNM, {"segments": "2,2", "normalisation": "none"}, r"`segments` need context normalisation; got"),
        (PrediNet, {"image": (3, 7, 12)}, r"`height` of an image must be at least 8 for the encoder; got 7\."),
        (PrediNet, {"image": (3, 12)}, r"`image` must be \(channels, height, width\); got \(3, 12\)\."),
        (RelConvNet, {"group": 5}, r"`group` must be at most the 4 objects of a sequence; got group=5\."),
        (RelConvNet, {"filters": 0}, r"`filters` must be at least 1; got filters=0\."),
        (RelConvNet, {"hidden": 2**50}, r"the decoder of all groups must fit in memory"),
    ],
)
def test_bad_options_are_one_sentence(kind, options, message):
    with pytest.raises(InputError, match=message):
        kind(4, 2, **options)


@pytest.mark.parametrize("name", RELATIONAL)
def test_bad_sizes_are_one_sentence(name):
    with pytest.raises(InputError, match=r"`length` must be at least 2; got length=1\."):
        RELATIONAL[name](1, 2)
    with pytest.raises(InputError, match=r"`classes` must be at least 1; got classes=0\."):
        RELATIONAL[name](2, 0)
    network = RELATIONAL[name](4, 2, image=CELL)
    with pytest.raises(InputError, match=r"`inputs` must be sequences of 4 images; got 3\."):
        network(torch.rand(3, 2, *CELL))
    with pytest.raises(InputError, match=r"`inputs` must be images .* \(3, 12, 12\); got shape \(4, 2, 128\)"):
        network(torch.rand(4, 2, 128))
    with pytest.raises(InputError, match=r"`inputs` must be images in floating point.* torch\.uint8\. Scale bytes"):
        network(torch.zeros(4, 2, *CELL, dtype=torch.uint8))
    with pytest.raises(InputError, match=r"`lengths` must be 4 for each of 2 sequences, their objects; got \["):
        network(torch.rand(4, 2, *CELL), lengths=torch.tensor([4, 3]))
    network(torch.rand(4, 2, *CELL), lengths=torch.tensor([4, 4]))


def test_relations_refuse_images_of_another_size():
    for kind in (CoRelNet, CoRelNetT, ESBN, Transformer):
        with pytest.raises(InputError, match=r"`inputs` must be images .* got shape \(4, 2, 3, 32, 32\)"):
            kind(4, 2, image=CELL).relations(torch.rand(4, 2, 3, 32, 32))


@pytest.mark.parametrize("name", RELATIONAL)
def test_a_task_without_images_is_refused_with_a_sentence(name):
    with pytest.raises(InputError, match=rf"{name} must be given sequences of images; got a task whose inputs are"):
        make_network(NetworkSettings(name=name), TASKS["copy"](), 0)

"""Bad input is answered by one sentence: the condition, what was received, what to do. Nothing changes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import kreiss
from catalogue import ELMAN, FREE, OURS, PLAIN_STATE, SETS, TWO_WAY, VARIANTS, units
from kreiss import Free, InputError, Orthogonal, Schur, Stacked, cli
from kreiss.networks import RecurrentNetwork
from kreiss.tasks import Copy
from kreiss.training import evaluate

NAN, INF = float("nan"), float("inf")
# those whose recurrent matrix is computed, so that assigning to it goes through the set
COMPUTED = [name for name in OURS if name not in FREE]


def saved(module: nn.Module) -> dict[str, Tensor]:
    """A copy of every parameter and buffer."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def assert_same(module: nn.Module, before: dict[str, Tensor]) -> None:
    after = module.state_dict()
    assert list(after) == list(before)
    for name, tensor in before.items():
        assert after[name].dtype == tensor.dtype, name
        assert torch.equal(after[name], tensor), name


@contextmanager
def refused(match: str, keeps: nn.Module | None = None, kind: type[Exception] = InputError) -> Iterator[None]:
    """The block raises one readable line that matches, and leaves `keeps` bit for bit as it was."""
    before = saved(keeps) if keeps is not None else {}
    with pytest.raises(kind, match=match) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    if keeps is not None:
        assert_same(keeps, before)


def test_input_error_is_caught_as_either_of_the_errors_that_torch_raises():
    assert issubclass(InputError, ValueError)
    assert issubclass(InputError, RuntimeError)
    with pytest.raises(ValueError, match="input_size"):
        kreiss.RNN(3, 4)(torch.zeros(5, 2, 7))
    with pytest.raises(RuntimeError, match="input_size"):
        kreiss.RNN(3, 4)(torch.zeros(5, 2, 7))


# ---------------------------------------------------------------- sizes

# argument → (smallest allowed, what takes it)
SIZES = {
    "n of Free": ("n", 1, Free),
    "n of Orthogonal": ("n", 1, Orthogonal),
    "n of Schur": ("n", 1, Schur),
    "reflections": ("reflections", 1, lambda v: Orthogonal(4, "householder", reflections=v)),
    "layers": ("layers", 1, lambda v: Orthogonal(4, "givens", layers=v)),
    "negative": ("negative", 0, lambda v: Orthogonal(4, "scaled_cayley", negative=v)),
    "negative of ScoRNN": ("negative", 0, lambda v: kreiss.ScoRNN(3, 4, negative=v)),
    "first of real": ("real", 0, lambda v: Schur(4, real=(v, 0))),
    "second of real": ("real", 0, lambda v: Schur(4, real=(0, v))),
    "delay": ("delay", 1, Copy),
    "batch": ("batch", 1, lambda v: Copy(3).sample(v)),
}


@pytest.mark.parametrize("case", SIZES)
@pytest.mark.parametrize("below", [1, 4])
def test_a_size_that_is_too_small_is_refused(case, below):
    name, smallest, make = SIZES[case]
    with refused(rf"^`{name}` must be at least {smallest}; got {name}={smallest - below}\. Pass a larger"):
        make(smallest - below)


@pytest.mark.parametrize("case", SIZES)
@pytest.mark.parametrize("value", [2.0, 2.5, "4", True, [4]], ids=repr)
def test_a_size_that_is_not_a_whole_number_is_refused(case, value):
    name, _, make = SIZES[case]
    kind = type(value).__name__
    with refused(rf"^`{name}` must be an int; got {name}=.* of type {kind}\. Pass a whole number", kind=TypeError):
        make(value)


def test_a_size_that_is_a_tensor_of_a_fraction_is_refused():
    with refused(r"^`n` must be an int; got n=tensor\(2\.5", kind=TypeError):
        Free(torch.tensor(2.5))


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(("n", "kind"), [(0, InputError), (-3, InputError), (2.5, TypeError)])
def test_every_set_refuses_an_impossible_size(name, n, kind):
    with refused(rf"^`n` must be .*; got n={n}|^`units` must be .*; got units=", kind=kind):
        SETS[name](n)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("argument", ["input_size", "hidden_size", "num_layers"])
@pytest.mark.parametrize(("size", "kind"), [(0, InputError), (-3, InputError), (2.5, TypeError), ("4", TypeError)])
def test_every_layer_refuses_an_impossible_size(name, argument, size, kind):
    sizes = {"input_size": 3, "hidden_size": 4, "num_layers": 1, argument: size}
    with refused(rf"^`{argument}` must be .*; got {argument}={size!r}.*\. Pass", kind=kind):
        VARIANTS[name](*sizes.values())


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(("size", "kind"), [(-1, InputError), (2.5, TypeError)])
def test_a_state_for_an_impossible_batch_is_refused(name, size, kind):
    with refused(rf"^`batch_size` must be .*; got batch_size={size}", kind=kind):
        VARIANTS[name](3, 4).init_state(size)


def test_more_reflections_than_add_anything_are_refused():
    with refused(r"^`reflections` must be at most n − 1 = 3; got reflections=4\."):
        Orthogonal(4, "householder", reflections=4)


def test_more_negative_signs_than_rows_are_refused():
    with refused(r"^`negative` must be at most n=4; got negative=5\. Pass a smaller"):
        Orthogonal(4, "scaled_cayley", negative=5)


@pytest.mark.parametrize("real", [(1, 0), (0, 3), (2, 1), (4, 2), (6, 0)])
def test_counts_of_real_eigenvalues_that_do_not_fit_are_refused(real):
    p, q = real
    with refused(rf"^`real` must leave an even number of the n=4 eigenvalues .*; got real=\({p}, {q}\)\. Change"):
        Schur(4, real=real)


@pytest.mark.parametrize("real", [(1,), (1, 0, 1), (), 2])
def test_real_that_is_not_a_pair_of_counts_is_refused(real):
    with pytest.raises((InputError, TypeError), match=r"^`real` must be .*; got real="):
        Schur(4, real=real)


def test_an_option_of_another_method_is_refused():
    with refused(r"^method 'expm' does not take these options; got \['negative'\]\. See help", kind=TypeError):
        Orthogonal(4, "expm", negative=1)


@pytest.mark.parametrize("sets", [(), (Free(2), Free(3))], ids=["none", "two sizes"])
def test_stacked_sets_of_unlike_sizes_are_refused(sets):
    with refused(r"^`Stacked` takes one or more sets of the same size; got sizes \[.*\]\. Pass one set per block"):
        Stacked(*sets)


def test_stacking_what_is_not_a_set_is_refused():
    with refused(r"`Stacked` takes .*sets.*; got .*int", kind=TypeError):
        Stacked(4, 4)


# ---------------------------------------------------------------- names

# a misspelt name → (the kind of name, what the sentence suggests, who takes it)
NAMES = {
    "caley": ("orthogonal method", "cayley", lambda v: Orthogonal(4, v)),
    "house_holder": ("orthogonal method", "householder", lambda v: kreiss.ExpRNN(3, 4, orthogonal=v)),
    "expn": ("orthogonal method", "expm", lambda v: Schur(4, orthogonal=v)),
    "givns": ("orthogonal method", "givens", lambda v: kreiss.NNRNN(3, 4, orthogonal=v)),
    "exakt": ("form of blocks", "exact", lambda v: Schur(4, v)),
    "papr": ("form of blocks", "paper", lambda v: kreiss.NNRNN(3, 4, blocks=v)),
    "henaf": ("initialiser of Orthogonal", "henaff", lambda v: kreiss.ExpRNN(3, 4, init=v)),
    "chains": ("initialiser of Schur", "chain", lambda v: kreiss.NNRNN(3, 4, init=v)),
    "glorott": ("initialiser of Free", "glorot", lambda v: kreiss.RNN(3, 4, init=v)),
    "modrelo": ("nonlinearity", "modrelu", lambda v: kreiss.RNN(3, 4, nonlinearity=v)),
    "Cayley": ("retraction", "cayley", lambda v: Orthogonal(4, retraction=v)),
    "men": ("reduction", "mean", lambda v: kreiss.radius_penalty(kreiss.NNRNN(3, 4), 1.0, reduction=v)),
    "fre": ("radius", "free", lambda v: Schur(4, radius=v)),
}


@pytest.mark.parametrize("misspelt", NAMES)
def test_an_unknown_name_is_refused_with_the_closest_known_one(misspelt):
    kind, meant, make = NAMES[misspelt]
    with refused(rf"^unknown {kind} '{misspelt}'\. Did you mean '{meant}'\? Choose one of: .*{meant}"):
        make(misspelt)


def test_a_name_like_no_other_is_refused_with_the_list_alone():
    with refused(r"^unknown orthogonal method 'zzz'\. Choose one of: butterfly, cayley, expm, givens, householder, "):
        Orthogonal(4, "zzz")


@pytest.mark.parametrize("name", SETS)
def test_every_set_names_its_closest_initialiser_and_stays_as_it_was(name):
    constraint = SETS[name](4)
    known = constraint.initialisers[-1]
    with refused(rf"^unknown initialiser of \w+ '{known}y'\. Did you mean '{known}'\?", keeps=constraint):
        constraint.initial(f"{known}y")


@pytest.mark.parametrize("name", COMPUTED)
def test_a_recurrent_matrix_of_a_layer_that_is_not_there_is_refused(name):
    layer = OURS[name](3, 4)
    with refused(r"^unknown recurrent matrix 'weight_hh_l1'\. Did you mean 'weight_hh_l0'\?", keeps=layer):
        layer.weight_hh_l1 = torch.eye(4)


# ---------------------------------------------------------------- radius, dropout, device, dtype


@pytest.mark.parametrize("make", [lambda r: Schur(4, radius=r), lambda r: kreiss.NNRNN(3, 4, radius=r)])
@pytest.mark.parametrize("radius", [0, 0.0, -1.0, NAN, INF, -INF])
def test_a_radius_that_is_not_positive_and_finite_is_refused(make, radius):
    with refused(rf"^`radius` must be positive and finite; got radius={radius}\. Pass the modulus"):
        make(radius)


@pytest.mark.parametrize("make", [kreiss.NNRNN, kreiss.GatedNNRNN, kreiss.ComplexNNRNN])
@pytest.mark.parametrize("strength", [NAN, INF, True, "strong"])
def test_a_strength_that_is_not_a_finite_number_is_refused(make, strength):
    with refused(rf"^`strength` must be a finite number; got strength={strength!r}\. Pass, for example, 0\.5\."):
        make(3, 4, strength=strength)


@pytest.mark.parametrize("radius", [None, [0.9], True, torch.tensor(0.9)], ids=repr)
def test_a_radius_that_is_not_a_number_is_refused(radius):
    with refused(r'^`radius` must be "free" or a number; got .* of type \w+\.', kind=TypeError):
        Schur(4, radius=radius)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("dropout", [-0.1, 1.5, NAN, "0.5", True, None], ids=repr)
def test_a_dropout_that_is_not_a_probability_is_refused(name, dropout):
    with refused(r"^`dropout` must be a probability in \[0, 1\]; got dropout=.*\. Pass"):
        OURS[name](3, 4, 2, dropout=dropout)


@pytest.mark.parametrize("name", OURS)
def test_a_device_that_does_not_exist_is_refused(name):
    with refused(r"^`device` must name a device; got device='nonsense'\. Pass"):
        OURS[name](3, 4, device="nonsense")


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, "float32"], ids=str)
def test_a_dtype_that_is_not_real_floating_point_is_refused(name, dtype):
    with refused(rf"^`dtype` must be a real floating-point dtype; got dtype={dtype}\. Pass"):
        OURS[name](3, 4, dtype=dtype)


# ---------------------------------------------------------------- input and state of a layer

# what is wrong → (the input, the sentence, its kind)
INPUTS = {
    "features": (torch.zeros(5, 2, 4), r"last dimension of `input` must be input_size=3; got 4\. Check", InputError),
    "rank 1": (torch.zeros(3), r"^`input` must be 2-D \(time, feature\) or 3-D .*; got 1-D\. Add or", InputError),
    "rank 4": (torch.zeros(5, 2, 1, 3), r"^`input` must be 2-D .* or 3-D .*; got 4-D\. Add or", InputError),
    "length 0": (torch.zeros(0, 2, 3), r"must have at least one step; got length 0\. Leave empty", InputError),
    "float64": (
        torch.zeros(5, 2, 3, dtype=torch.float64),
        r"^`input` must be torch.float32, .*; got torch.float64\. Convert it with input.to\(torch.float32\)",
        InputError,
    ),
    "integer": (
        torch.zeros(5, 2, 3, dtype=torch.int64),
        r"^`input` must be torch.float32, .*; got torch.int64\. Convert",
        InputError,
    ),
    "complex": (
        torch.zeros(5, 2, 3, dtype=torch.complex64),
        r"^`input` must be torch.float32, .*; got torch.complex64\. Convert",
        InputError,
    ),
    "meta": (
        torch.zeros(5, 2, 3, device="meta"),
        r"^`input` must be on cpu, .*; got meta\. Move it with input.to\('cpu'\)",
        InputError,
    ),
    "numpy": (
        np.zeros((5, 2, 3), np.float32),
        r"^`input` must be a Tensor or a PackedSequence; got ndarray\. Convert it with torch.as_tensor",
        TypeError,
    ),
}


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("case", INPUTS)
def test_input_that_does_not_fit_is_refused(name, case):
    layer = OURS[name](3, 4)
    x, sentence, kind = INPUTS[case]
    with refused(sentence, keeps=layer, kind=kind):
        layer(x)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (torch.zeros(5, 2, 4), r"input_size=3; got 4\. Check"),
        (torch.zeros(5, 2, 3, dtype=torch.float64), r"must be torch.float32, .*; got torch.float64\. Convert"),
    ],
    ids=["features", "float64"],
)
def test_packed_input_that_does_not_fit_is_refused(name, x, sentence):
    layer = OURS[name](3, 4)
    with refused(sentence, keeps=layer):
        layer(pack_padded_sequence(x, [5, 3]))


# what is wrong → (hx, the sentence); the layer has two layers of 4 units, the input a batch of 3
STATES = {
    "rank 2": (torch.zeros(2, 4), r"^`hx` must be 3-D for batched 3-D input; got 2-D\. Its shape is \(2, 3, 4\)"),
    "layers": (torch.zeros(1, 3, 4), r"^`hx` must be of shape \(2, 3, 4\) .*; got \(1, 3, 4\)\. It is never"),
    "batch": (torch.zeros(2, 1, 4), r"^`hx` must be of shape \(2, 3, 4\) .*; got \(2, 1, 4\)\. .*init_state"),
    "hidden": (torch.zeros(2, 3, 5), r"^`hx` must be of shape \(2, 3, 4\) .*; got \(2, 3, 5\)\. "),
    "batch first": (torch.zeros(3, 2, 4), r"^`hx` must be of shape .*; got \(3, 2, 4\)\. It is never batch-first"),
    "float64": (
        torch.zeros(2, 3, 4, dtype=torch.float64),
        r"^`hx` must be torch.float32, as the input is; got torch.float64\. Convert it with hx.to",
    ),
    "integer": (torch.zeros(2, 3, 4).long(), r"^`hx` must be torch.float32, .*; got torch.int64\. Convert"),
    "meta": (torch.zeros(2, 3, 4, device="meta"), r"^`hx` must be on cpu, .*; got meta\. Move it with hx.to"),
}


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("name", PLAIN_STATE)  # other states are in test_memory_layers.py
@pytest.mark.parametrize("case", STATES)
def test_a_state_that_does_not_fit_is_refused(name, case, batch_first):
    layer = OURS[name](3, units(name, 4), 2, batch_first=batch_first)
    hx, sentence = STATES[case]
    with refused(sentence, keeps=layer):
        layer(torch.zeros((3, 5, 3) if batch_first else (5, 3, 3)), hx)


@pytest.mark.parametrize("name", PLAIN_STATE)
def test_a_batched_state_for_an_unbatched_sequence_is_refused(name):
    layer = OURS[name](3, units(name, 4))
    with refused(r"^`hx` must be 2-D for unbatched 2-D input; got 3-D\. Its shape is \(1, 4\)", keeps=layer):
        layer(torch.zeros(5, 3), torch.zeros(1, 1, 4))


@pytest.mark.parametrize("name", PLAIN_STATE)
def test_the_pair_of_an_lstm_as_state_of_a_plain_layer_is_refused(name):
    # the mistake made when one layer is exchanged for another
    layer = OURS[name](3, 4)
    with refused(r"^`hx` must be a Tensor.*; got tuple", keeps=layer, kind=TypeError):
        layer(torch.zeros(5, 2, 3), kreiss.LSTM(3, 4).init_state(2))


@pytest.mark.parametrize("name", TWO_WAY)
def test_a_step_of_a_bidirectional_layer_is_refused(name):
    layer = VARIANTS[name](3, 4, bidirectional=True)
    with refused(r"^`step` .* unidirectional layer; got bidirectional=True, .*\. Use forward\(\)", keeps=layer):
        layer.step(torch.zeros(2, 3))


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("rank", [0, 3])
def test_a_step_of_a_whole_sequence_is_refused(name, rank):
    layer = VARIANTS[name](3, 4)
    with refused(rf"^`x` must be 1-D or 2-D, one time step; got {rank}-D\. Use forward\(\)", keeps=layer):
        layer.step(torch.zeros((5, 2, 3)[:rank]))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_step_of_what_is_not_a_tensor_is_refused(name):
    layer = VARIANTS[name](3, 4)
    with refused(r"^`x` must be a .*Tensor; got ndarray\.", keeps=layer, kind=TypeError):
        layer.step(np.zeros((2, 3), np.float32))


# ---------------------------------------------------------------- matrices given to a set

# what is wrong → (matrix of size 4, the sentence, its kind)
MATRICES = {
    "NaN": (
        torch.eye(4).index_fill(0, torch.tensor(1), NAN),
        r"must be finite; got 4 NaN or Inf entries\.",
        InputError,
    ),
    "Inf": (torch.full((4, 4), INF), r"must be finite; got 16 NaN or Inf entries\. Remove", InputError),
    "size": (torch.eye(3), r"must be of shape \(4, 4\); got shape \(3, 3\)\. Pass", InputError),
    "not square": (torch.ones(4, 3), r"must be of shape \(4, 4\); got shape \(4, 3\)\. Pass", InputError),
    "vector": (torch.ones(4), r"must be of shape \(4, 4\); got shape \(4,\)\. Pass", InputError),
    "batch": (torch.ones(2, 4, 4), r"must be of shape \(4, 4\); got shape \(2, 4, 4\)\. Pass", InputError),
    "integer": (torch.eye(4).long(), r"must be of a real floating-point dtype; got torch.int64\. Convert", InputError),
    "complex": (
        torch.eye(4) + 0j,
        r"must be of a real floating-point dtype; got torch.complex64\. Convert",
        InputError,
    ),
    "meta": (torch.empty(4, 4, device="meta"), r"must .*; got .*meta", InputError),
    "numpy": (np.eye(4), r"must be a torch.Tensor; got ndarray\. Convert it with torch.as_tensor", TypeError),
    "list": ([[1.0]], r"must be a torch.Tensor; got list\. Convert it with torch.as_tensor", TypeError),
}


# a free matrix is its own free tensor, so there is nothing to compute and meta will do
EVERY_MATRIX = [(name, case) for name in SETS for case in MATRICES if (name, case) != ("free", "meta")]


@pytest.mark.parametrize(("name", "case"), EVERY_MATRIX)
def test_a_matrix_that_no_set_holds_is_refused(name, case):
    constraint = SETS[name](4)
    matrix, sentence, kind = MATRICES[case]
    with refused(r"^`matrix` " + sentence, keeps=constraint, kind=kind):
        constraint.right_inverse(matrix)


@pytest.mark.parametrize("case", [case for case in MATRICES if case != "size"])
def test_from_dense_refuses_what_is_not_a_finite_real_square_matrix(case):
    matrix, sentence, kind = MATRICES[case]
    with refused(r"^`matrix` " + sentence.replace(r"of shape \(4, 4\)", "a square matrix"), kind=kind):
        Schur.from_dense(matrix)


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.parametrize("case", MATRICES)
def test_a_recurrent_matrix_that_no_set_holds_is_refused(name, case):
    layer = OURS[name](3, units(name, 4))
    matrix, sentence, kind = MATRICES[case]
    with refused(r"^`matrix` " + sentence, keeps=layer, kind=kind):
        layer.weight_hh_l0 = matrix
    assert isinstance(layer.weight_hh_l0, Tensor)  # and not a plain attribute that hides the matrix


def rotation(n: int = 4) -> Tensor:
    return Orthogonal(n, "expm")(torch.linspace(0.3, 1.1, n * (n - 1) // 2, dtype=torch.float64))


# why a matrix is not in the set → (set, matrix, the sentence)
OUTSIDE = {
    **{
        f"not orthogonal, {name}": (
            name,
            2 * rotation(),
            r"^`matrix` must be orthogonal to 1e-09; got max\|PᵀP − I\| = 3\. Orthogonalise it first",
        )
        for name in SETS
        if name.startswith("orthogonal")
    },
    "determinant −1": (
        "orthogonal-expm",
        torch.diag(torch.tensor([-1.0, 1, 1, 1])),
        r"determinant −1 and this method holds rotations only .*\. Use method=\"trivialization\"",
    ),
    "eigenvalue −1": (
        "orthogonal-cayley",
        torch.diag(torch.tensor([-1.0, -1, 1, 1])),
        r"eigenvalue at −1 .* Cayley map does not reach\. Use method=\"trivialization\"",
    ),
    "eigenvalue −1 behind the signs": (
        "orthogonal-scaled_cayley",
        torch.eye(4),
        r"eigenvalue at −1 .* another number of negative signs with \"scaled_cayley\"",
    ),
    "too few reflections": (
        "orthogonal-few-reflections",
        rotation(),
        r"not a product of reflections=2 reflections .*\. Use reflections=3, which holds any",
    ),
    "too few layers": (
        "orthogonal-few-layers",
        rotation(),
        r"needs more than layers=2 layers of rotations\. Use layers=4, which holds any",
    ),
    "real eigenvalues": (
        "schur-exact",
        torch.diag(torch.tensor([1.0, 2, 3, -4])),
        r"^`matrix` must have 0 real eigenvalues ≥ 0 and 0 < 0, .*; got 3 and 1\. Use Schur.from_dense",
    ),
    "no real eigenvalues": (
        "schur-real",
        rotation(),
        r"^`matrix` must have 2 real eigenvalues ≥ 0 and 2 < 0, .*; got 0 and 0\. Use Schur.from_dense",
    ),
    "radius": (
        "schur-clamped",
        rotation(),
        r"^`matrix` must have every \|λ\| = 0\.9; got one that is off by 0\.1\. Use radius=\"free\", or scale",
    ),
    "sheared block": (
        "schur-rotation",
        torch.block_diag(torch.tensor([[0.0, -2.0], [0.5, 0.0]]), torch.tensor([[0.0, -3.0], [3.0, 0.0]])),
        r"^`matrix` must have normal 2×2 blocks .*; got a shear κ of 0\.693\. Use blocks=\"exact\"",
    ),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_a_matrix_outside_the_set_is_refused_with_what_does_not_fit(case):
    name, matrix, sentence = OUTSIDE[case]
    constraint = SETS[name](4)
    constraint.initial("random")  # so that base points and signs are not what they are by default
    with refused(sentence, keeps=constraint):
        constraint.right_inverse(matrix)
    assert not constraint.contains(matrix)


@pytest.mark.parametrize("case", [case for case in OUTSIDE if case.startswith("not orthogonal")])
def test_a_recurrent_matrix_outside_the_set_leaves_the_layer_as_it_was(case):
    name, matrix, sentence = OUTSIDE[case]
    if name.removeprefix("orthogonal-") in ("exp-retraction", "few-reflections", "few-layers"):
        method = "trivialization"  # what ExpRNN has no option for
    else:
        method = name.removeprefix("orthogonal-")
    layer = kreiss.ExpRNN(3, 4, orthogonal=method, dtype=torch.float64)
    with refused(sentence, keeps=layer):
        layer.weight_hh_l0 = matrix


@pytest.mark.parametrize(
    "options",
    [{"orthogonal": "householder", "reflections": 1}, {"orthogonal": "givens", "layers": 1}],
    ids=["few reflections", "few layers"],
)
def test_what_a_schur_set_contains_it_also_takes(options):
    # P may be outside of what a short orthogonal method holds, and then the matrix is outside of the set
    constraint, every = Schur(4, **options), Schur(4, orthogonal="expm")
    matrix = every(*every.initial("random", dtype=torch.float64))
    with refused(r"reflections=1|layers=1", keeps=constraint):
        constraint.right_inverse(matrix)
    assert not constraint.contains(matrix)


def test_a_stacked_matrix_with_one_bad_block_leaves_every_block_as_it_was():
    stacked = Stacked(Orthogonal(4), Orthogonal(4))
    with refused(r"^`matrix` must be orthogonal", keeps=stacked):
        stacked.right_inverse(torch.cat([rotation(), 2 * rotation()]))


def test_a_stacked_matrix_of_another_shape_is_refused():
    with refused(r"^`matrix` must be of shape \(8, 4\); got \(4, 4\)\. Stack the blocks vertically"):
        Stacked(Free(4), Free(4)).right_inverse(torch.eye(4))


# ---------------------------------------------------------------- free tensors given to a set


@pytest.mark.parametrize("name", SETS)
def test_one_free_tensor_too_many_is_refused(name):
    constraint = SETS[name](4)
    free = constraint.initial()
    with refused(rf"takes free tensors .*; got {len(free) + 1} of shapes .*\. Use the tuple", keeps=constraint):
        constraint(*free, torch.zeros(1))


@pytest.mark.parametrize("name", SETS)
def test_no_free_tensors_at_all_are_refused(name):
    constraint = SETS[name](4)
    with refused(r"takes free tensors .*; got 0 of shapes \(\)\. Use the tuple", keeps=constraint):
        constraint()


@pytest.mark.parametrize("name", SETS)
def test_a_free_tensor_of_another_shape_is_refused(name):
    constraint = SETS[name](4)
    free = constraint.initial()
    for i in range(len(free)):
        wrong = [*free[:i], torch.zeros(*free[i].shape, 2), *free[i + 1 :]]
        with refused(r"takes free tensors .* of shapes .*; got \d of shapes .*\. Use the tuple", keeps=constraint):
            constraint(*wrong)


# ---------------------------------------------------------------- state_dicts

# what is wrong → a layer whose state_dict does not fit VARIANTS[name](3, 4)
STRANGERS = {
    "another architecture": lambda name: (kreiss.ExpRNN if name.startswith("nnrnn") else kreiss.NNRNN)(3, 4),
    "gates": lambda name: (kreiss.GRU if name in ("lstm", "hdetach") else kreiss.LSTM)(3, 4),
    "input_size": lambda name: VARIANTS[name](5, 4),
    "hidden_size": lambda name: VARIANTS[name](3, 5),
    "more layers": lambda name: VARIANTS[name](3, 4, 2),
    "two directions": lambda name: VARIANTS[name](3, 4, bidirectional=True),
    "no bias": lambda name: VARIANTS[name](3, 4, bias=False),
}


@pytest.mark.parametrize("nested", [False, True], ids=["alone", "in a Sequential"])
@pytest.mark.parametrize(
    ("case", "name"),
    [(case, name) for case in STRANGERS for name in (TWO_WAY if case == "two directions" else VARIANTS)],
)
def test_a_state_dict_that_does_not_fit_changes_nothing(name, case, nested):
    layer, stranger = VARIANTS[name](3, 4), STRANGERS[case](name)
    if nested:
        layer, stranger = nn.Sequential(layer, nn.Linear(4, 2)), nn.Sequential(stranger, nn.Linear(4, 2))
    problem = "(missing keys|unexpected keys|other shapes for|another kind of set in)"
    with refused(rf"^the state_dict must fit \w+\(3, 4.*; got {problem} .*\. Load it into", keeps=layer):
        layer.load_state_dict(stranger.state_dict())


@pytest.mark.parametrize("name", VARIANTS)
def test_a_state_dict_of_other_sizes_is_refused_also_when_loaded_leniently(name):
    layer = VARIANTS[name](3, 4)
    with refused(r"other shapes for \['weight_ih_l0'.*\]\. Load", keeps=layer):
        layer.load_state_dict(VARIANTS[name](5, 4).state_dict(), strict=False)


@pytest.mark.parametrize("nested", [False, True], ids=["alone", "in a Sequential"])
@pytest.mark.parametrize("name", VARIANTS)
def test_a_state_dict_of_a_newer_version_changes_nothing(name, nested):
    layer, newer = VARIANTS[name](3, 4), VARIANTS[name](3, 4)
    if nested:
        layer, newer = nn.Sequential(layer, nn.Linear(4, 2)), nn.Sequential(newer, nn.Linear(4, 2))
    state = newer.state_dict()
    state._metadata["0" if nested else ""]["version"] = 99
    with refused(r"must be of layer version 1 or older; got version 99\. Update kreiss", keeps=layer):
        layer.load_state_dict(state)


def minus_one_real() -> nn.Module:
    """A layer whose set has one 1×1 block −γ, where a new one has +γ."""
    rnn = nn.RNN(3, 5)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(torch.block_diag(rotation().float(), torch.tensor([[-0.5]])))
    return kreiss.NNRNN.from_torch(rnn)


# same names and shapes, other matrix: (saved from, loaded into)
LOOKALIKES = {
    "cayley into expm": (
        lambda: kreiss.ExpRNN(3, 4, orthogonal="cayley"),
        lambda: kreiss.ExpRNN(3, 4, orthogonal="expm"),
    ),
    "householder into givens": (
        lambda: kreiss.ExpRNN(3, 4, orthogonal="householder"),
        lambda: kreiss.ExpRNN(3, 4, orthogonal="givens"),
    ),
    "radius 0.9 into radius 0.5": (
        lambda: kreiss.NNRNN(3, 4, radius=0.9),
        lambda: kreiss.NNRNN(3, 4, radius=0.5),
    ),
    "two negative signs into one": (
        lambda: kreiss.ScoRNN(3, 4, negative=2),
        lambda: kreiss.ScoRNN(3, 4, negative=1),
    ),
    "real eigenvalue < 0 into > 0": (minus_one_real, lambda: kreiss.NNRNN(3, 5, nonlinearity="tanh")),
}


@pytest.mark.parametrize("case", LOOKALIKES)
def test_a_state_dict_gives_the_matrix_it_was_saved_from_or_is_refused(case):
    # numbers that mean another matrix here must not be taken silently
    source, target = (make() for make in LOOKALIKES[case])
    before = saved(target)
    try:
        target.load_state_dict(source.state_dict())
    except InputError:
        assert_same(target, before)
    else:
        torch.testing.assert_close(target.weight_hh_l0, source.weight_hh_l0)


# ---------------------------------------------------------------- from and to torch


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("given", [None, nn.Linear(3, 4), "rnn"], ids=["None", "Linear", "str"])
def test_from_torch_refuses_what_is_not_a_recurrent_layer(name, given):
    wanted = {"lstm": "LSTM", "hdetach": "LSTM", "gru": "GRU"}.get(name, "RNN")
    make = type(VARIANTS[name](3, 4)).from_torch
    with refused(rf"must be a torch.nn.{wanted}; got {type(given).__name__}\. Pass the layer", kind=TypeError):
        make(given)


@pytest.mark.parametrize("name", OURS)
def test_from_torch_refuses_a_layer_with_other_gates(name):
    wanted, other = ("LSTM", nn.GRU) if name == "hdetach" else ("RNN", nn.LSTM)
    with refused(rf"^`rnn` must be a torch.nn.{wanted}; got {other.__name__}\. Pass", kind=TypeError):
        type(OURS[name](3, 4)).from_torch(other(3, 4))


@pytest.mark.parametrize("layer", [kreiss.ExpRNN, kreiss.ScoRNN])
def test_from_torch_refuses_a_matrix_outside_the_set(layer):
    rnn = nn.RNN(3, 4)
    with refused(r"^`matrix` must be orthogonal .*; got max\|PᵀP − I\| = .*\. Orthogonalise", keeps=rnn):
        layer.from_torch(rnn)


@pytest.mark.parametrize("name", ELMAN)
@pytest.mark.parametrize("nonlinearity", ["modrelu", "identity"])
def test_to_torch_refuses_a_nonlinearity_that_torch_lacks(name, nonlinearity):
    layer = OURS[name](3, 4, nonlinearity=nonlinearity)
    with refused(rf"supports tanh and relu; got nonlinearity='{nonlinearity}'\. Use freeze\(\)", keeps=layer):
        layer.to_torch()


# ---------------------------------------------------------------- constrain


def test_constrain_refuses_a_missing_name_and_lists_those_there_are():
    linear = nn.Linear(4, 4)
    with refused(r"^`name` must name a tensor of Linear; got name='weigth'\. .* are: weight, bias", keeps=linear):
        kreiss.constrain(linear, "weigth", Orthogonal(4))


@pytest.mark.parametrize(
    ("name", "constraint", "shape"),
    [
        ("weight", Orthogonal(3), r"\(8, 4\)"),
        ("weight", Orthogonal(5), r"\(8, 4\)"),
        ("bias", Orthogonal(8), r"\(8,\)"),
        ("weight", Stacked(Free(4), Free(4), Free(4)), r"\(8, 4\)"),
    ],
    ids=["smaller", "larger", "vector", "more blocks"],
)
def test_constrain_refuses_a_set_of_another_size(name, constraint, shape):
    linear = nn.Linear(4, 8)
    with refused(rf"^`{name}` must be of shape .*; got {shape}\. Pass a set of its size", keeps=linear):
        kreiss.constrain(linear, name, constraint)


def test_constrain_refuses_a_matrix_that_is_constrained_already():
    linear = kreiss.constrain(nn.Linear(4, 4), "weight", Orthogonal(4))
    with refused(r"^`weight` must not be constrained already; got .*\. Remove it first with", keeps=linear):
        kreiss.constrain(linear, "weight", Schur(4))


@pytest.mark.parametrize("given", ["orthogonal", Orthogonal, nn.Linear(4, 4), None], ids=["str", "class", "module", ""])
def test_constrain_refuses_what_is_not_a_set(given):
    linear = nn.Linear(4, 4)
    with refused(r"^`set` must be a kreiss set; got \w+\. Pass, for example,", keeps=linear, kind=TypeError):
        kreiss.constrain(linear, "weight", given)


def test_constrain_refuses_an_unknown_initialiser():
    linear = nn.Linear(4, 4)
    with refused(r"^unknown initialiser of Orthogonal 'henaf'\. Did you mean 'henaff'\?", keeps=linear):
        kreiss.constrain(linear, "weight", Orthogonal(4), init="henaf")


def test_constrain_refuses_what_is_not_a_module():
    with refused(r"^`module` must be a torch.nn.Module; got int\.", kind=TypeError):
        kreiss.constrain(4, "weight", Orthogonal(4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_constrain_takes_half_precision_or_refuses_it_with_a_sentence(dtype):
    linear = nn.Linear(4, 4, dtype=dtype)
    before = saved(linear)
    try:
        kreiss.constrain(linear, "weight", Orthogonal(4))
    except InputError as error:
        assert "float32" in str(error)  # noqa: PT017, the other branch is right too
        assert_same(linear, before)
    else:
        assert Orthogonal(4).contains(linear.weight.float(), tol=1e-2)


@pytest.mark.parametrize("name", [name for name in SETS if name != "free"])
def test_assigning_to_a_constrained_matrix_what_is_outside_the_set_changes_nothing(name):
    linear = kreiss.constrain(nn.Linear(4, 4), "weight", SETS[name](4))
    with refused(r"^`matrix` must be finite; got 16 NaN", keeps=linear):
        linear.weight = torch.full((4, 4), NAN)


# ---------------------------------------------------------------- training


@pytest.mark.parametrize("value", [-1e-3, NAN])
@pytest.mark.parametrize("argument", ["lr", "orthogonal_lr", "coupling_decay"])
def test_param_groups_refuses_negative_rates(argument, value):
    rates: dict[str, Any] = {"lr": 1e-3, argument: value}
    with refused(rf"^`{argument}` must be at least 0; got {argument}={value}\. Pass a number"):
        kreiss.param_groups(kreiss.NNRNN(3, 4), **rates)


@pytest.mark.parametrize("value", [-1e-3, NAN])
def test_penalty_refuses_a_negative_weight(value):
    layer = kreiss.NNRNN(3, 4)
    with refused(rf"^`weight` must be at least 0; got weight={value}\. Pass δ ≥ 0", keeps=layer):
        kreiss.radius_penalty(layer, value)


def test_evaluate_on_no_sequences_is_refused_and_leaves_the_mode_as_it_was():
    network = RecurrentNetwork(kreiss.RNN(10, 4), 9, symbols=10).train()
    with refused(r"`batch` must be at least 1; got batch=0\.", keeps=network):
        evaluate(network, Copy(3), batch=0)
    assert network.training


# ---------------------------------------------------------------- the command line


def kreiss_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "kreiss.cli", *arguments], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo", "--delay", "0"], "--delay"),
        (["demo", "--hidden", "-4"], "--hidden"),
        (["demo", "--steps", "many"], "--steps"),
        (["demo", "--nonsense", "3"], "--nonsense"),
        (["dmo"], '"demo"'),
    ],
    ids=" ".join,
)
def test_the_command_line_refuses_without_a_traceback(arguments, said):
    done = kreiss_cli(*arguments)
    assert done.returncode == 2
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["--version"]], ids=" ".join)
def test_help_is_shown_without_importing_torch(arguments):
    program = f"""
import sys
sys.argv = ["kreiss", *{arguments}]
from kreiss.cli import main
try:
    main()
except SystemExit as done:
    assert not done.code, done.code
sys.exit("torch was imported" if "torch" in sys.modules else 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (InputError("`x` must be small; got x=9."), 2, "error: `x` must be small; got x=9.\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=["bad input", "Ctrl-C"],
)
def test_the_command_line_ends_an_error_from_inside_with_one_line(monkeypatch, capsys, raised, code, said):
    def fail(words: list[str]) -> int:
        raise raised

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert said in shown

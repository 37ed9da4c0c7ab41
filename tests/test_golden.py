"""Numbers of a fixed seed stay what they were: same seed, same matrix, same output, same saved names."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from catalogue import SETS, VARIANTS
from kreiss.sets.initial import INITIALISERS
from make_golden import FOLDER, golden_initialisers, golden_layer, golden_set

REMEDY = "If that is meant, run `python tests/make_golden.py`, read the diff of tests/golden and commit it."


def kept(kind: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{kind}.json").read_text())


def assert_kept(kind: str, name: str, found: Any, golden: Any) -> None:
    """To 1e-9: the files carry ten digits, and other machines round the eleventh differently."""
    found, golden = torch.tensor(found, dtype=torch.float64), torch.tensor(golden, dtype=torch.float64)
    same = found.shape == golden.shape and torch.allclose(found, golden, rtol=1e-9, atol=1e-9)
    assert same, f"{kind} {name!r} no longer gives the numbers it gave for the same seed. {REMEDY}"


@pytest.mark.parametrize("name", SETS)
def test_a_set_makes_the_same_matrix_of_the_same_seed_and_free_numbers(name):
    assert_kept("set", name, golden_set(SETS[name](5)), kept("sets")[name])


@pytest.mark.parametrize("name", INITIALISERS)
def test_an_initialiser_draws_the_same_matrix_from_the_same_seed(name):
    assert_kept("initialiser", name, golden_initialisers()[name], kept("initialisers")[name])


@pytest.mark.parametrize("name", VARIANTS)
def test_a_layer_puts_out_the_same_numbers_for_the_same_seed(name):
    assert_kept("layer", name, golden_layer(VARIANTS[name])["output"], kept("layers")[name]["output"])


@pytest.mark.parametrize("name", VARIANTS)
def test_saved_names_and_shapes_stay_so_that_old_files_load(name):
    found, golden = golden_layer(VARIANTS[name])["state"], kept("layers")[name]["state"]
    assert found == golden, f"the state_dict of {name!r} changed, so files saved before do not load. {REMEDY}"


@pytest.mark.parametrize(("kind", "names"), [("sets", SETS), ("layers", VARIANTS), ("initialisers", INITIALISERS)])
def test_the_golden_files_have_exactly_what_the_catalogue_has(kind, names):
    assert sorted(kept(kind)) == sorted(names), f"tests/golden/{kind}.json is out of date. {REMEDY}"


def test_a_changed_number_is_noticed_with_a_sentence_that_says_how_to_regenerate():
    golden = kept("sets")["schur-exact"]
    golden[4][0] += 1e-8  # the entry that only T reaches
    with pytest.raises(AssertionError, match=r"set 'schur-exact' no longer gives .* run `python tests/make_golden.py`"):
        assert_kept("set", "schur-exact", golden_set(SETS["schur-exact"](5)), golden)

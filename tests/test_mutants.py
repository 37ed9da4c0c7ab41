"""The list of mutants does not rot: each edit still fits its file, and every room has some."""

from __future__ import annotations

import ast

import pytest

from house import PACKAGE, ROOT
from mutants import MUTANTS, Mutant, rooms

by_mutant = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)


@by_mutant
def test_an_edit_fits_its_file_once_and_leaves_python(mutant: Mutant):
    text = (PACKAGE / mutant.file).read_text()
    assert text.count(mutant.before) == 1
    assert "\n" not in mutant.before + mutant.after
    changed = text.replace(mutant.before, mutant.after)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))


@by_mutant
def test_the_tests_of_a_mutant_are_there(mutant: Mutant):
    files = [word for word in mutant.tests if word.endswith(".py")]
    assert files
    assert all((ROOT / file).is_file() for file in files)
    words = mutant.tests[mutant.tests.index("-k") + 1].split(" or ") if "-k" in mutant.tests else []
    text = "".join((ROOT / file).read_text() for file in files)
    assert [word for word in words if word not in text] == []


def test_there_are_forty_mutants_of_every_room():
    assert len(MUTANTS) == len({mutant.name for mutant in MUTANTS}) >= 40
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms() >= packages | {"linalg", "contracts"}

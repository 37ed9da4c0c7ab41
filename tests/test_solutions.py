"""Networks that solve their tasks as they are built."""

from __future__ import annotations

import pytest
import torch

from kreiss.tasks import Adding, Copy
from kreiss.training import adding_solution, copy_solution, evaluate


@pytest.mark.parametrize("convention", ["nnrnn", "enrnn"])
@pytest.mark.parametrize("delay", [1, 30])
def test_rotating_clocks_solve_the_copy_task_with_no_training(delay, convention):
    task = Copy(delay, convention=convention, test_sequences=100)
    found = evaluate(copy_solution(task), task)
    assert found["accuracy"] == 1.0
    assert found["loss"] < 1e-10


def test_all_clocks_are_back_after_t_plus_s_steps_and_not_before():
    v = copy_solution(Copy(6)).layer.weight_hh_l0.detach().double()
    eye = torch.eye(len(v), dtype=v.dtype)
    assert torch.allclose(torch.matrix_power(v, 16), eye, atol=1e-5)  # T + S = 6 + 10
    for steps in range(1, 16):
        assert not torch.allclose(torch.matrix_power(v, steps), eye, atol=0.1)
    angles = torch.linalg.eigvals(v).angle() * 16 / (2 * torch.pi)
    assert torch.allclose(angles, angles.round(), atol=1e-4)  # multiples of 2π/(T + S)


def test_drawn_clocks_solve_the_copy_task_where_there_are_many():
    task = Copy(10, test_sequences=50)
    few, many = (
        evaluate(copy_solution(task, clocks=clocks, generator=torch.Generator().manual_seed(0)), task)
        for clocks in (20, 400)
    )
    assert many["accuracy"] == 1.0
    assert many["loss"] < 1e-3 < few["loss"]


def test_a_longer_delay_than_it_was_built_for_is_not_solved():
    assert evaluate(copy_solution(Copy(10)), Copy(11, test_sequences=50))["accuracy"] < 0.5


def test_one_unit_solves_the_adding_problem_with_no_training():
    assert evaluate(adding_solution(), Adding(200, test_sequences=100))["loss"] < 1e-10

"""Experiments about objects: sizes and numbers as published, runs that are shared, settings that train."""

from __future__ import annotations

import math

import pytest
import torch

from kreiss.experiments import experiment, relational
from kreiss.studies.jobs import job_of, keys_of
from kreiss.training.config import resolved
from kreiss.training.distributed import Processes
from kreiss.training.loop import Supervised
from kreiss.training.planning import make_network, make_task

ROWS = [(made, one) for made in relational.EXPERIMENTS for one in made.rows]


def _kind(one, drop):
    return tuple(sorted((name, value) for name, value in one.settings.items() if not name.startswith(drop)))


# every network with its options once, and every task with its options once
NETWORKS = {_kind(one, "task"): (made, one) for made, one in ROWS if one.settings["task"] in ("dist3", "rmts", "game")}
TASKS = {_kind(one, "model"): (made, one) for made, one in ROWS if one.settings["model"] == "corelnet"}
SMALL = {**NETWORKS, **TASKS}.values()


@pytest.mark.parametrize(("made", "one"), SMALL, ids=[f"{made.name}/{one.name}" for made, one in SMALL])
def test_every_network_and_every_task_takes_two_steps_at_smoke_scale(made, one):
    config = job_of(made, one, "smoke", 0, {}).config
    task = make_task(config)
    training = Supervised(make_network(config, task), task, config, Processes(torch.device("cpu")))
    losses = [training.update().loss for _ in range(2)]
    assert training.done
    assert all(math.isfinite(loss) for loss in losses)


COUNTED = experiment("004/tableC.3").rows


@pytest.mark.parametrize("one", COUNTED, ids=[one.name for one in COUNTED])
def test_parameters_are_those_of_the_table(one):
    config = resolved(one.settings)
    network = make_network(config, make_task(config))
    counted = sum(parameter.numel() for parameter in network.parameters())
    assert counted == (one.counted or one.parameters)
    assert (one.counted is None) or one.name == "samedifferent6-nhid"


def test_published_accuracies_are_those_of_the_tables():
    def numbers(rule, network):
        return [(one.metric, one.value) for one in experiment(f"004/table5.1-{rule}").row(network).published]

    assert numbers("same", "corelnet") == [("accuracy@hexos", 0.947), ("accuracy@stripes", 0.904)]
    assert numbers("rowmatching", "transformer") == [("accuracy@hexos", 0.503), ("accuracy@stripes", 0.504)]
    assert numbers("xoccurs", "ntm") == [("accuracy@hexos", 0.842), ("accuracy@stripes", 0.817)]
    assert numbers("colourshape", "mnm") == [("accuracy@hexos", 0.757)]
    assert numbers("leftof", "rn") == [("accuracy@hexos", 0.51)]
    error = experiment("004/table5.1-same").row("esbn").published[0].error
    assert error == pytest.approx(0.18 / math.sqrt(10), abs=1e-5)
    printed = [one for made in relational.GAME_TABLES for row in made.rows for one in row.published]
    assert len(printed) == 9 * (5 * 2 + 2)


def test_settings_are_those_of_table_c1():
    settings = experiment("004/figC.6-dist3").row("corelnet-95").settings
    assert (settings["optimiser"], settings["lr"], settings["steps"], settings["batch"]) == ("adam", 5e-4, 5000, 96)
    assert experiment("004/table5.1-same").row("corelnet").settings["steps"] == 2500
    batches = {
        task: experiment(f"004/figC.10-{task}").rows[0].settings["batch"] for task in ("samedifferent6", "rmts3")
    }
    assert batches == {"samedifferent6": 384, "rmts3": 192}
    assert experiment("004/figC.3-rmts-colour").row("corelnet-l1-95").settings["model.l1"] == 5.0
    assert experiment("004/figC.3-dist3-colour").row("corelnet-l1-95").settings["model.l1"] == 1.0


def test_figures_that_show_the_same_network_share_its_runs():
    names = ("004/figC.6-dist3", "004/figC.7-dist3", "004/figC.8-dist3", "004/figC.9-dist3", "004/fig7.3-dist3")
    keys = [keys_of(made, made.row("corelnet-95"), "paper", 3) for made in map(experiment, names)]
    assert all(key == keys[0] for key in keys)


def test_the_published_scale_is_the_one_that_is_run():
    made = experiment("004/figC.6-dist3")
    assert made.seeds == 10
    assert made.settings(made.rows[0], "paper") == dict(made.rows[0].settings)

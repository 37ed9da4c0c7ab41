"""Every table and figure of the papers: builds as published, runs small, and its sizes are what they are said to be."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from kreiss.catalogue import REFERENCES
from kreiss.errors import InputError
from kreiss.experiments import COMPUTED, EXPERIMENTS, SCALES, agents, experiment, names, relational, row
from kreiss.experiments.nnrnn import RATES
from kreiss.experiments.parts import PARAMETERS, UNITS, Experiment, Row, Scale
from kreiss.experiments.thesis import updates
from kreiss.networks import LAYERS
from kreiss.networks.recurrent import RecurrentNetwork
from kreiss.report.figures import FIGURES
from kreiss.settings import Config
from kreiss.studies import sweeping
from kreiss.studies.jobs import differences, job_of, jobs_of
from kreiss.tasks import TASKS
from kreiss.training.config import own_options, resolved
from kreiss.training.distributed import Processes
from kreiss.training.loop import Supervised
from kreiss.training.planning import make_network, make_task
from kreiss.training.presets import preset_named
from scripts import script

ROWS = [
    (made, one)
    for made in EXPERIMENTS.values()
    for one in made.rows
    if one.settings.get("model") in LAYERS
    and made not in (*relational.EXPERIMENTS, *agents.EXPERIMENTS)  # these have tests of their own
]
by_row = pytest.mark.parametrize(("made", "one"), ROWS, ids=[f"{made.name}/{one.name}" for made, one in ROWS])
by_experiment = pytest.mark.parametrize("made", EXPERIMENTS.values(), ids=lambda made: made.name)

# published counts are rounded, and some leave out a bias or the readout
CLOSE = 0.035
ONLY = ("rnn", "nnrnn", "nnrnn-exact")
RATE_SEARCH = script("learning_rates")


class Sizes:
    """What a network has to know of a task whose data need not be there."""

    def __init__(self, config: Config) -> None:
        name, options = config.task.name, own_options(config.task)
        task = TASKS[name]
        frame = options.get("window", 256) // 2 + 1
        letters = 50 if options.get("text") == "ptb" else 0
        alike = {"characters": letters, "frames": frame, "selectivecopy": options.get("vocabulary", 16)}
        self.input_size = {**alike, "pixels": 1}.get(name) or task.input_size
        self.output_size = {**alike, "pixels": 10}.get(name) or task.output_size
        self.symbols, self.answers = task.symbols, task.answers


def count(config: Config) -> int:
    """Trained parameters, without a number in memory."""
    task, model = Sizes(config), config.model
    given = {"device": "meta", "dtype": torch.float32, **own_options(model)}
    layer = LAYERS[model.name](model.embedding or task.input_size, model.hidden, model.layers, **given)
    symbols = task.input_size if task.symbols else 0
    network = RecurrentNetwork(
        layer, task.output_size, answers=task.answers, symbols=symbols, embedding=model.embedding
    )
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


# ---------------------------------------------------------------- as published


@by_row
def test_every_row_builds_as_published_with_the_published_number_of_parameters(made, one):
    counted = count(resolved(made.settings(one, "paper")))
    if (
        one.counted is not None
    ):  # where the published sizes do not give the published count, the row says what they give
        assert counted == one.counted
    elif one.parameters is not None:
        assert counted == pytest.approx(one.parameters, rel=CLOSE)
    else:
        assert counted > 0


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("000/table2/nnrnn-128", 18_953),
        ("000/table2/exprnn-176", 18_929),
        ("000/table3/nnrnn-512", 268_298),
        ("000/table3/exprnn-722", 268_955),
        ("000/table5/nnrnn-1024-150", 1_315_650),
        ("003/fig1/enrnn", 15_441),
    ],
)
def test_counts_that_are_known_exactly(name, counted):
    made, one = row(name)
    assert count(resolved(made.settings(one, "paper"))) == counted


def test_numbers_stand_as_they_are_printed():
    published = {name: row(name)[1].published[0] for name in names() if row(name)[1].published}
    assert (published["001/table1/nnrnn-150"].value, published["001/table1/nnrnn-150"].error) == (1.47, 0.003)
    assert (published["001/table1/rnn-300"].value, published["001/table1/rnn-300"].error) == (2.90, 0.0016)
    assert published["001/table1/exprnn-300-parameters"].value == 1.52
    assert published["001/table1/eurnn-150"].value == 1.69
    assert published["000/table4/orthrnn-300"].value == 0.6553
    assert published["002/table1/nnrnn-1-300"].failed == 2
    assert [number.value for number in row("003/table1/enrnn")[1].published] == [0.13, 0.13, 4.84, 0.83, 2.75]
    assert published["003/table2/enrnn"].value == 1.475
    assert (published["release/ptb/nnrnn-150"].value, published["release/ptb/nnrnn-150"].error) == (1.40, 0.003)
    assert [number.value for number in row("release/ptb/nnrnn-300")[1].published] == [1.42, 0.6954]
    exprnn = [f"release/ptb/exprnn-{name}" for name in ("150-parameters", "300-parameters", "150", "300")]
    assert [published[name].value for name in exprnn] == [1.43, 1.44, 1.45, 1.48]


def test_the_tables_of_the_thesis_stand_as_they_are_printed():
    shares = {name: [number.value for number in row(name)[1].published] for name in names() if name.startswith("004")}
    assert shares["004/table4.1/orthrnn"] == [0.99, 0.04, 0.16, 0.1, 0.0]
    assert shares["004/table4.1/hdetach"] == [1.0, 0.91, 0.77, 0.51, 0.42]
    assert shares["004/table4.1/memrnn"] == [0.99, 0.99, 0.99, 0.92]
    assert shares["004/table4.2/goru-2000"] == [0.73]
    assert shares["004/table4.2/exprnn-300"] == [0.25]
    assert shares["004/table4.2/memrnn-2000"] == shares["004/tableB.2/memrnn-2000"] == []
    assert shares["004/tableB.2/orthrnn-1000"] == [0.8]
    assert shares["004/tableB.2/lstm-500"] == [0.12]
    assert shares["004/table4.3-ptb/relrnn"] == [1.43, 0.69]
    assert shares["004/table4.3-ptb/sab"] == [1.37]
    assert shares["004/table4.3-pmnist/rellstm"] == [0.943]
    assert len([name for name in shares if name.startswith("004/table4.2/")]) == 8 * 5 + 2 * 2 + 2
    assert len([name for name in shares if name.startswith("004/tableB.2/")]) == 7 * 6


def test_what_the_thesis_does_not_print_is_as_in_its_public_code():
    copying, denoising = experiment("004/table4.1").row("relrnn").settings, experiment("004/table4.2")
    assert (copying["hidden"], copying["batch"], copying["steps"], copying["clip_norm"]) == (128, 10, 200_000, 1.0)
    assert (copying["optimiser"], copying["lr"], copying["model.nonlinearity"]) == ("adam", 2e-4, "tanh")
    assert (copying["model.short"], copying["model.relevant"]) == (10, 10)
    denoised = denoising.row("relrnn-100").settings
    assert (denoised["optimiser"], denoised["optimiser.alpha"], denoised["lr"]) == ("rmsprop", 0.99, 2e-4)
    assert denoised["model.nonlinearity"] == "modrelu"
    assert denoising.row("goru-500").settings["lr"] == 1e-3
    assert own_options(as_published("004/table4.3-pmnist/lstm").task)["permutation"] == 100


def test_runs_of_the_thesis_end_when_they_are_solved_or_after_some_minutes():
    assert (updates("relrnn", 100, 10), updates("relrnn", 2000, 10), updates("sab", 100, 10)) == (40_000, 3500, 15_000)
    denoised = experiment("004/table4.2")
    assert denoised.settings(denoised.row("relrnn-2000"), "laptop")["steps"] == updates("relrnn", 2000, 20)
    for name in ("004/table4.2", "004/tableB.2", "004/screening"):
        made = experiment(name)
        for one in (one for one in made.rows if not one.quoted):
            settings = made.settings(one, "laptop")
            assert (settings["stop_at"], settings["stop_metric"]) == (0.995, "accuracy")
            assert settings["hidden"] == one.settings["hidden"] == 128
            assert settings["steps"] <= 40_000
            assert "stop_at" not in one.settings
    assert experiment("004/table4.1").settings(experiment("004/table4.1").row("lstm"), "laptop")["stop_at"] == 1e-4


def test_delays_are_mixed_at_the_scale_that_says_so_alone():
    made = experiment("004/table4.2")
    for one in (one for one in made.rows if not one.quoted):
        settings = made.settings(one, "mixed")
        assert (settings["task.shortest"], settings["steps"], settings["stop_at"]) == (30, 24_000, 0.995)
        assert settings["task.delay"] == one.settings["task.delay"]
        assert "task.shortest" not in {**one.settings, **made.settings(one, "laptop")}
    free, screened = (made.settings(made.row(name), "mixed") for name in ("relrnn-300", "relrnn-schur-300"))
    assert {**free, "model.recurrent": "schur", "orthogonal_lr": 1e-4} == screened


def test_curves_of_the_thesis_are_of_the_runs_of_its_tables():
    def keys(name, only):
        return {job.key for job in jobs_of(experiment(name), "laptop", 1, only)}

    for curves, table in (("004/figB.2-denoise", "004/table4.2"), ("004/figB.3", "004/table4.2")):
        assert keys(curves, ("lstm-300", "lstm-2000")) == keys(table, ("lstm-300", "lstm-2000"))
    assert keys("004/figB.4", ("goru-100",)) == keys("004/table4.2", ("goru-100",))
    assert keys("004/figB.2-copy", ("exprnn-*",)) == keys("004/tableB.2", ("exprnn-*",))


def test_a_row_that_is_quoted_is_listed_but_never_run():
    made = experiment("mamba/table1")
    assert [one.name for one in made.rows if one.quoted] == ["s4", "mamba"]
    assert made.row("mamba").published[0].value == 0.998
    jobs = jobs_of(made, "smoke", 1, ("lstm", "mamba", "gru"))
    assert [job.row for job in jobs] == ["mamba/table1/lstm", "mamba/table1/gru"]
    with pytest.raises(InputError, match=r"^`only` must match rows of mamba/table1; got s4\. Its rows are: relrnn"):
        jobs_of(made, "smoke", 1, ("s4",))
    with pytest.raises(InputError, match=r"^a row must have settings to be run; got mamba/table1/s4, which is quoted"):
        preset_named("mamba/table1/s4")


def as_published(name):
    made, one = row(name)
    return resolved(made.settings(one, "paper"))


def test_the_penalty_of_the_release_sums_over_blocks():
    config = as_published("release/ptb/nnrnn-150")
    assert (config.optimiser.radius_penalty, config.optimiser.reduction) == (1e-4, "sum")


def test_what_is_not_printed_is_as_in_the_releases():
    adding, copying = as_published("003/fig1/enrnn"), as_published("003/fig2/enrnn")
    assert own_options(adding.model)["negative"] == 29
    assert own_options(copying.model)["negative"] == 52
    assert (adding.optimiser.name, adding.optimiser.lr, adding.optimiser.orthogonal_lr) == ("rmsprop", 1e-4, 1e-4)
    assert (copying.optimiser.name, copying.optimiser.lr, copying.optimiser.orthogonal_lr) == ("rmsprop", 1e-3, 1e-5)
    assert adding.optimiser.clip_norm is copying.optimiser.clip_norm is None
    assert make_task(copying).steps == 2020
    assert own_options(as_published("001/fig2-psmnist/nnrnn").task)["permutation"] == 1234
    assert as_published("001/table1/nnrnn-150").model.start == "release"


def test_networks_on_characters_start_near_equal_chances():
    made, one = row("001/table1/nnrnn-150")
    config = job_of(made, one, "smoke", 0, {"hidden": 128, "embedding": 50}).config
    task = make_task(config)
    batch = task.train(0, 16, 0)
    bits = task.loss(make_network(config, task)(batch.inputs)[0], batch).item() / math.log(2)
    assert bits == pytest.approx(math.log2(task.output_size), abs=0.3)


@by_experiment
def test_every_experiment_says_where_it_stands_and_has_every_scale(made):
    assert set(SCALES) <= set(made.scales)
    assert made.paper in REFERENCES
    assert made.name == f"{made.name.split('/')[0]}/{made.name.split('/')[1]}"
    assert len({one.name for one in made.rows}) == len(made.rows)
    assert made.seeds >= 1


def test_what_is_computed_and_not_trained_is_named_beside_the_experiments():
    assert not set(COMPUTED) & set(EXPERIMENTS)
    drawn = {name for name, (_, _, command) in COMPUTED.items() if command.startswith(f"kreiss figure {name}")}
    assert drawn <= set(FIGURES)
    assert set(COMPUTED) - drawn == {"000/table6"}


# ---------------------------------------------------------------- scales


@by_row
def test_every_row_takes_two_steps_at_smoke_scale(made, one, files):
    path = {"task.path": str(files / "fsdd")} if one.settings["task"] == "frames" else {}
    config = job_of(made, one, "smoke", 0, path).config
    task = make_task(config)
    training = Supervised(make_network(config, task), task, config, Processes(torch.device("cpu")))
    losses = [training.update().loss for _ in range(2)]
    assert training.done
    assert all(loss == loss for loss in losses)


@by_experiment
@pytest.mark.parametrize("scale", ["laptop", "digits"])
def test_rows_that_are_compared_at_equal_parameters_still_are_at_a_smaller_scale(made, scale):
    if scale not in made.scales:
        assert scale != "laptop"
        return
    if not made.scales[scale].sizes:  # as published, and compared with the published counts above
        runnable = [one for one in made.rows if not one.quoted]
        assert all(made.settings(one, scale).get("hidden") == one.settings.get("hidden") for one in runnable)
        return
    compared = [one for one in made.rows if PARAMETERS in one.columns and one.settings.get("model") != "eurnn"]
    compared = [one for one in compared if one.settings.get("model") in LAYERS and one.counted is None]
    counts = [count(resolved(made.settings(one, scale))) for one in compared]
    assert all(counted == pytest.approx(counts[0], rel=CLOSE) for counted in counts)


@by_experiment
def test_rows_that_are_compared_at_equal_units_still_are_at_a_smaller_scale(made):
    for scale in set(made.scales) - {"smoke"}:
        units = {made.settings(one, scale)["hidden"] for one in made.rows if UNITS in one.columns}
        assert len(units) <= 1


@by_row
def test_the_difference_of_a_scale_is_all_that_differs(made, one):
    assert differences(made, one, "paper") == {}
    found = differences(made, one, "smoke")
    paper, smoke = (resolved(made.settings(one, scale)) for scale in ("paper", "smoke"))
    assert found["model.hidden"] == (paper.model.hidden, smoke.model.hidden)


@pytest.mark.parametrize("chunk", RATES)
@pytest.mark.parametrize("network", RATES[150])
def test_the_rate_of_a_network_is_the_best_of_the_recorded_search(network, chunk):
    search = RATE_SEARCH.Search()
    assert RATES[chunk][network] == search.best(network, chunk)
    assert set(search.bits(network, chunk)) == set(RATE_SEARCH.tried(network))


def test_the_page_of_rates_is_what_the_search_says():
    assert RATE_SEARCH.TABLE.read_text(encoding="utf-8") == RATE_SEARCH.table(RATE_SEARCH.Search())


# ---------------------------------------------------------------- names and keys


def test_equal_settings_have_equal_keys_and_a_changed_setting_another():
    made = experiment("001/fig2-copy")
    twice = {job.row: job.key for job in jobs_of(made, "laptop", 2, ONLY)}
    assert len({job.key for job in jobs_of(made, "laptop", 2, ONLY)}) == 2 * len(ONLY)
    other = experiment("000/fig4-copy")
    assert {job.row: job.key for job in jobs_of(other, "laptop", 2, ONLY)}["000/fig4-copy/rnn"] == twice[
        "001/fig2-copy/rnn"
    ]
    one = made.row("rnn")
    keys = [job_of(made, one, "laptop", 0, changes).key for changes in ({}, {"lr": 0.5}, {"device": "cpu"})]
    assert keys[0] == keys[2] != keys[1]


def test_a_name_that_is_not_there_is_an_error_with_the_nearest_one():
    with pytest.raises(InputError, match=r"unknown experiment '001/tabel1'\. Did you mean '001/table1'\?"):
        experiment("001/tabel1")
    with pytest.raises(InputError, match=r"Did you mean '001/table1/nnrnn-150'\?"):
        row("001/table1/nnrn-150")
    with pytest.raises(InputError, match=r"unknown scale 'desk'"):
        jobs_of(experiment("001/table1"), "desk", 1)
    with pytest.raises(InputError, match=r"`only` must match rows of 001/table1; got gru"):
        jobs_of(experiment("001/table1"), "laptop", 1, ("gru",))


def test_a_search_offers_what_the_enrnn_paper_searched(tmp_path):
    sizes = {
        name: sweeping.Sweep(f"003/fig1/{name}", "paper", "enrnn", {}, tmp_path) for name in ("enrnn", "scornn", "lstm")
    }
    assert sizes["enrnn"].choices()["model.short"] == (16, 32, 48, 64, 80, 96)
    assert sizes["scornn"].choices()["model.negative"] == tuple(range(0, 171, 17))
    assert "adagrad" in sizes["lstm"].choices()["optimiser.name"]
    assert not {"model.short", "model.negative"} & set(sizes["lstm"].choices())


def test_modules_of_papers_hold_data_alone():
    for path in (Path(__file__).parents[1] / "kreiss" / "experiments").glob("*.py"):
        assert "torch" not in [
            line.split()[1].split(".")[0] for line in path.read_text().splitlines() if line[:6] == "import"
        ]


def test_what_a_row_says_of_a_scale_goes_before_what_the_scale_says_of_all():
    small = Scale("small", {"hidden": 8, "lr": 0.1}, {64: 16}, drops=("epochs",))
    mine = Row("mine", "Mine", {"model": "rnn", "hidden": 64, "epochs": 3, "lr": 0.5}, scaled={"small": {"hidden": 4}})
    other = Row("other", "Other", {"model": "rnn", "hidden": 64})
    asked = Experiment("x/y", "", "", "", "loss", (mine, other), {"small": small})
    assert asked.settings(mine, "small") == {"model": "rnn", "hidden": 4, "lr": 0.1}
    assert asked.settings(other, "small") == {"model": "rnn", "hidden": 8, "lr": 0.1}

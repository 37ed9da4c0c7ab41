"""Settings: the same names in Python, in files and on the command line; what is wrong is named in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from catalogue import TWO_WAY
from kreiss.errors import InputError
from kreiss.networks import LAYERS
from kreiss.settings import Config
from kreiss.training.config import read_settings, resolved, scalar, words, written
from kreiss.training.planning import make_network, make_task, planned
from kreiss.training.presets import preset_named

# ---------------------------------------------------------------- names


def test_short_dotted_and_nested_names_mean_the_same():
    wanted = resolved({"model.hidden": 12, "optimiser.lr": 0.1, "task.delay": 7, "model.blocks": "paper"})
    assert resolved({"hidden": 12, "lr": 0.1, "task": {"delay": 7}, "model": {"blocks": "paper"}}) == wanted
    assert wanted.model.hidden == 12
    assert wanted.model.model_extra == {"blocks": "paper"}
    assert resolved({"checkpoint-every": 3}).checkpoint_every == 3


def test_later_sources_are_stronger():
    found = resolved({"lr": 1e-1, "hidden": 3}, {"lr": 1e-2}, {"optimiser.lr": 1e-3})
    assert (found.optimiser.lr, found.model.hidden) == (1e-3, 3)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("hiden", "hidden"),
        ("optimizer", "optimiser"),
        ("optimizer.lr", "optimiser.lr"),
        ("optimiser.learning_rate", None),
        ("model.block", "model.blocks"),
        ("model.hiden", "model.hidden"),
        ("task.dealy", "task.delay"),
        ("taks.delay", "task.delay"),
        ("stepz", "steps"),
        ("schedule.warm_up", "schedule.warmup"),
        ("qqqqqq", None),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest_one(name, near):
    with pytest.raises(InputError, match=rf"unknown setting '{name}'\.") as caught:
        resolved({name: 1})
    if near is not None:
        assert f"Did you mean '{near}'?" in str(caught.value)
    assert "kreiss show config" in str(caught.value)


def test_unknown_models_tasks_and_presets_are_errors_with_the_nearest_one():
    with pytest.raises(InputError, match=r"unknown model 'nrnn'\. Did you mean 'nnrnn'\?"):
        resolved({"model": "nrnn"})
    with pytest.raises(InputError, match=r"unknown task 'cpoy'\. Did you mean 'copy'\?"):
        resolved({"task": "cpoy"})
    with pytest.raises(InputError, match=r"unknown preset '001/fig2-copy/nrnn'\. Did you mean '001/fig2-copy/nnrnn'\?"):
        preset_named("001/fig2-copy/nrnn")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"lr": "fast"}, r"`optimiser\.lr` must be a valid number.*got 'fast'"),
        ({"lr": -1}, r"`optimiser\.lr` must be greater than or equal to 0; got -1"),
        ({"lr": float("nan")}, r"`optimiser\.lr` must be"),
        ({"hidden": 0}, r"`model\.hidden` must be greater than 0; got 0"),
        ({"hidden": 2.5}, r"`model\.hidden` must be a valid integer.*got 2\.5"),
        ({"hidden": [3]}, r"`model\.hidden` must be a valid integer; got \[3\]"),
        ({"model.dropout": 2}, r"`model\.dropout` must be less than or equal to 1; got 2"),
        ({"steps": "many"}, r"`steps` must be a valid integer.*got 'many'"),
        ({"on_nan": "pray"}, r"`on_nan` must be 'stop' or 'skip'; got 'pray'"),
        ({"optimiser": "lion"}, r"`optimiser\.name` must be .*got 'lion'"),
        ({"model.start": "warm"}, r"`model\.start` must be 'glorot' or 'release'; got 'warm'"),
        ({"optimiser.betas": "0.9"}, r"`optimiser\.betas.*` .*got"),
        ({"task.delay": "long"}, r"`task\.delay` must be a valid integer.*got 'long'"),
        ({"model.bias": "perhaps"}, r"`model\.bias` must be a valid boolean.*got 'perhaps'"),
        ({"steps": 5, "epochs": 2}, r"either `steps` or `epochs` must be given; got steps=5 and epochs=2"),
        (
            {"clip_norm": 1, "optimiser.clip_value": 1},
            r"clipped by norm or by value; got clip_norm=1\.0 and clip_value",
        ),
        ({"track": "paper"}, r"`track.*` must be 'tensorboard', 'wandb', 'mlflow' or 'trackio'; got 'paper'"),
    ],
)
def test_a_value_of_the_wrong_kind_is_one_sentence_that_names_it(settings, said):
    with pytest.raises(InputError, match=said) as caught:
        resolved(settings)
    assert "\n" not in str(caught.value)


def test_numbers_written_as_text_are_numbers():
    assert resolved({"lr": "1e-4", "model.radius": 0.5, "optimiser.betas": "0, 0.9"}).optimiser.betas == (0.0, 0.9)
    assert resolved({"lr": "1e-4"}).optimiser.lr == 1e-4


# ---------------------------------------------------------------- files and words


def test_a_yaml_and_a_toml_file_give_the_same(tmp_path):
    (tmp_path / "a.yaml").write_text("model: nnrnn\nhidden: 7\ntask:\n  delay: 5\noptimiser:\n  lr: 1e-3\n")
    (tmp_path / "a.toml").write_text('hidden = 7\n[model]\nname = "nnrnn"\n[task]\ndelay = 5\n[optimiser]\nlr = 1e-3\n')
    one, two = (resolved(read_settings(tmp_path / name)) for name in ("a.yaml", "a.toml"))
    assert one == two
    assert (one.model.hidden, one.optimiser.lr) == (7, 1e-3)


def test_what_is_written_is_read_back_to_the_same(tmp_path):
    for settings in (
        {},
        preset_named("003/fig1/enrnn"),
        preset_named("release/ptb/nnrnn-300"),
        {"model.blocks": "paper", "lr": 1 / 3, "optimiser.betas": [0, 0.9]},
    ):
        config = resolved(settings)
        (tmp_path / "config.yaml").write_text(written(config))
        assert resolved(read_settings(tmp_path / "config.yaml")) == config


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "hidden: [", r"a\.yaml` must be YAML; got a file that is not"),
        ("a.toml", "hidden = = 3", r"a\.toml` must be TOML; got a file that is not"),
        ("a.yaml", "- 1\n- 2\n", r"must hold names and values; got a list"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(name, text, said, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        read_settings(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_missing_or_binary_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.yaml` must be a readable text file; got No such file"):
        read_settings(tmp_path / "nothing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(InputError, match=r"binary\.yaml` must be a readable text file"):
        read_settings(tmp_path / "binary.yaml")


def test_a_settings_file_cannot_run_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("evil.yaml").write_text("hidden: !!python/object/apply:pathlib.Path.touch [ran]\n")
    with pytest.raises(InputError, match="must be YAML"):
        read_settings(Path("evil.yaml"))
    assert not Path("ran").exists()


def test_words_of_a_command_line_are_names_and_values():
    tokens = ("copy", "--task.delay", "200", "--model.blocks=exact", "--model.bias", "--optimiser.lr", "1e-3")
    plain, settings = words(tokens)
    assert plain == ["copy"]
    assert settings == {"task.delay": 200, "model.blocks": "exact", "model.bias": True, "optimiser.lr": 1e-3}


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("-3", -3), ("1e-3", 1e-3), ("true", True), ("False", False), ("none", None), ("[1, 2]", [1, 2]),
     ("[1", "[1"), ("text", "text"), ("1.2.3", "1.2.3")],
)  # fmt: skip
def test_a_word_is_read_as_what_it_looks_like(text, value):
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


# ---------------------------------------------------------------- what follows from settings


def test_a_length_that_is_given_takes_the_place_of_the_published_one():
    assert preset_named("001/table1/nnrnn-150")["epochs"] == 100
    assert resolved(preset_named("001/table1/nnrnn-150", {"steps": 7}), {"steps": 7}).epochs is None


@pytest.mark.parametrize("name", LAYERS)
def test_every_network_is_built_with_layers_directions_embedding_and_dropout(name):
    both = name in TWO_WAY
    shape = {"layers": 2, "bidirectional": both, "embedding": 3, "dropout": 0.5, "model.dtype": "float64", "hidden": 4}
    config = resolved({"model": name, **shape})
    task = make_task(config)
    network = make_network(config, task)
    assert network.layer.num_layers == 2
    assert network.layer.bidirectional is both
    assert network.layer.input_size == 3
    assert network.layer.dropout == network.dropout.p == 0.5
    assert network(task.train(0, 2, 0).inputs)[0].dtype.is_floating_point


def test_the_seed_fixes_the_initial_values():
    def first(seed: int) -> list[float]:
        config = resolved({"seed": seed, "hidden": 4, "embedding": 2})
        return [float(p.detach().sum()) for p in make_network(config, make_task(config)).parameters()]

    assert first(1) == first(1) != first(2)


def test_what_is_left_out_is_filled_in_from_the_task():
    config = resolved({})
    found = planned(config, make_task(config))
    assert (found.steps, found.eval_every, found.epochs) == (1500, 150, None)
    assert found.device in ("cpu", "cuda")
    with pytest.raises(InputError, match="`epochs` must be left out where data are generated without end"):
        planned(resolved({"epochs": 2}), make_task(config))


def test_every_setting_says_what_it_is():
    sections = [Config, *(Config.model_fields[name].annotation for name in ("model", "optimiser", "schedule", "ppo"))]
    undescribed = [
        name for section in sections for name, field in section.model_fields.items()
        if not field.description and name not in ("name", "task", "model", "optimiser", "schedule", "ppo")
    ]  # fmt: skip
    assert undescribed == []
    assert yaml.safe_load(written(resolved({})))["optimiser"]["name"] == "rmsprop"

"""What people see of agents: recordings of episodes, analyses, worlds in the terminal, reports."""

from __future__ import annotations

import base64
import builtins
import io
import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from PIL import Image

import kreiss
from kreiss import rl
from kreiss.commands.sources import drive_of, source
from kreiss.networks.agent import Agent, features
from kreiss.report import network_findings
from kreiss.report.recordings import Recording, episode, files, record
from kreiss.report.recordings.page import page
from kreiss.tasks import Copy, Gym, MiniGrid, TMaze
from kreiss.tasks.worlds.base import TEST, VALID

SETTINGS: dict[str, Any] = {"steps": 2, "eval_every": 1, "batch": 4, "ppo.frames": 16, "ppo.recurrence": 16}


def in_maze(folder: Path, layer: Any) -> Path:
    """A short run in a short T-maze."""
    maze = TMaze(4, valid_episodes=4, test_episodes=4)
    kreiss.fit(layer, maze, SETTINGS, out=folder, show="quiet")
    return folder


@pytest.fixture(scope="module")
def attentive(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    return in_maze(tmp_path_factory.mktemp("runs") / "rel", kreiss.RelLSTM(64, 6, short=2, relevant=2))


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    return in_maze(tmp_path_factory.mktemp("runs") / "nn", kreiss.NNRNN(64, 6))


@pytest.fixture(scope="module")
def recording(attentive) -> Recording:
    return record(kreiss.load(attentive), TMaze(4), 3, title="a < b")


# ---------------------------------------------------------------- recordings


def test_a_recording_is_an_episode_of_the_test_with_all_that_was_read(attentive, recording):
    agent = kreiss.load(attentive).freeze()
    played = rl.play(agent, TMaze(4).environments(5, (TEST,)))[3]
    assert recording.actions.tolist() == played.actions
    assert recording.rewards.tolist() == played.rewards
    assert recording.total == played.reward
    assert np.allclose(recording.values, played.values, atol=1e-6)
    assert np.allclose(recording.chances.sum(1), 1)
    assert len(recording.pictures) == recording.length + 1
    # the attention is that of the episode as it was played, one step at a time
    assert recording.attention is not None
    assert not recording.attention[0].any()
    assert np.allclose(recording.attention[1:].sum(1), 1, atol=1e-5)
    assert not np.triu(recording.attention).any()
    assert [look.past for look in recording.looks(1, 4)] == [0]
    assert recording.looks(recording.length - 1, 2) == sorted(recording.looks(recording.length - 1, 2))
    assert "Of all attention most went to steps" in recording.sentence()
    assert (
        record(agent, TMaze(4), 3, sampled=False).chances[0].argmax()
        == record(agent, TMaze(4), 3, sampled=False).actions[0]
    )


def test_the_picture_of_a_maze_shows_sign_goal_and_agent():
    maze = TMaze(2).visible(8, (0,))
    north = int(np.flatnonzero(maze.start()[:, 0] == 0)[0])
    south = int(np.flatnonzero(maze.goal != maze.goal[north])[0])  # type: ignore[attr-defined]
    assert np.array_equal(maze.picture(north)[::-1], maze.picture(south))
    start = maze.picture(north)
    for _ in range(2):
        maze.act(np.arange(8), np.full(8, 1))
    junction = maze.picture(north)
    maze.act(np.arange(8), np.full(8, 0))
    assert len({start.tobytes(), junction.tobytes(), maze.picture(north).tobytes()}) == 3
    long = TMaze(1000).visible(1, (0,))
    long.start()
    assert long.picture(0).shape[1] < 600


def test_a_page_of_an_episode_shows_every_step_without_scripts_and_needs_nothing_from_elsewhere(recording):
    text = page(recording).decode()
    assert "a &lt; b" in text
    still = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert still.count('<section class="step"') == recording.length + 1
    assert '<section class="step" hidden' not in still
    assert set(re.findall(r'<use href="#([^"]+)"', still)) <= set(re.findall(r'<image id="([^"]+)"', still))
    assert "http" not in text.replace("http://www.w3.org", "")
    encoded = re.findall(r'href="data:image/png;base64,([^"]+)"', still)
    first = np.asarray(Image.open(io.BytesIO(base64.b64decode(encoded[0]))))
    assert np.array_equal(first, recording.pictures[0])
    assert len(encoded) == len({picture.tobytes() for picture in recording.pictures})
    last = still.rpartition('aria-label="Step')[2]
    for look in recording.looks(recording.length - 1, 5):
        assert f"step {look.past}, {look.weight:.0%}" in last


def read(path: Path) -> Any:
    return Image.open(io.BytesIO(path.read_bytes()))


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


@pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome is installed to open the page with")
def test_in_a_browser_one_step_is_shown_at_a_time(recording, tmp_path):
    path = files.write(recording, tmp_path / "episode.html")
    done = subprocess.run(
        [
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--virtual-time-budget=2000",
            "--dump-dom", path.as_uri(),
        ],
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    opening = re.findall(r'<section class="step"[^>]*>', done.stdout)
    assert ["hidden" in tag for tag in opening] == [False] + [True] * recording.length
    assert "hidden" not in re.findall(r'<div class="player"[^>]*>', done.stdout)[0]


def test_kreiss_record_writes_what_the_name_of_the_file_says(attentive, plain, tmp_path, does, monkeypatch):
    monkeypatch.setattr(files, "COLUMNS", 2)
    code, said, _ = does("record", attentive, "--task.length", 6, "--episode", 2, "-o", tmp_path / "a.gif")
    assert code == 0
    steps = int(re.findall(r"after (\d+) steps", said)[0])
    assert read(tmp_path / "a.gif").n_frames == steps + 1
    assert does("record", attentive, "--greedy", "-o", tmp_path / "new" / "a.png")[0] == 0
    taller = read(tmp_path / "new" / "a.png").height
    assert does("record", plain, "-o", tmp_path / "b.png")[0] == 0  # without attention there is less to draw
    assert read(tmp_path / "b.png").height < taller
    code, said, _ = does("record", plain)
    assert code == 0
    assert "attention" not in said
    assert (plain.parent / "nn-episode-0.html").exists()


def test_a_long_episode_is_cut_and_says_so(attentive, monkeypatch):
    monkeypatch.setattr(episode, "MOST_STEPS", 3)
    cut = record(kreiss.load(attentive), TMaze(4), 3)
    assert (len(cut.pictures), len(cut.actions)) == (3, 3)
    assert "The first 3 steps are shown." in cut.sentence()
    assert b">End<" not in page(cut)


def test_a_world_of_minigrid_draws_itself_and_large_pictures_are_shrunk(monkeypatch):
    monkeypatch.setattr(episode, "MOST_PIXELS", 100)
    world = MiniGrid("MiniGrid-Empty-5x5-v0")
    assert world.action_names[:3] == ("left", "right", "forward")
    agent = Agent(kreiss.GRU(features(world.layout.image, 0), 4), world.actions, image=world.layout.image)
    found = record(agent, world)
    assert found.pictures[0].shape == (80, 80, 3)  # of 160
    assert len({picture.tobytes() for picture in found.pictures}) > 1


class Unseen(gymnasium.Env[Any, Any]):
    """An environment that does not draw, or fails to."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, **_: Any) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 1.0, True, False, {}

    def render(self) -> Any:
        raise ModuleNotFoundError("No module named 'brushes'")


class Clumsy(Unseen):
    """It says that it draws."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012


gymnasium.register("Unseen-v0", Unseen)
gymnasium.register("Clumsy-v0", Clumsy)


def test_what_cannot_be_recorded_is_one_sentence(attentive, tmp_path, does):
    code, _, error = does("record", attentive, "-o", tmp_path / "a.mp4")
    assert code == 2
    assert "`--out` must end in .html, .gif, .png; got" in error
    assert "must be the folder of a run" in does("record", tmp_path)[2]
    assert "takes one run; got 'copy' too" in does("record", attentive, "copy")[2]
    kreiss.fit("rnn", Copy(2), steps=1, out=tmp_path / "copy", show="quiet")
    assert "must be that of a run in a world, such as tmaze; got" in does("record", tmp_path / "copy")[2]
    agent = Agent(kreiss.GRU(64, 4), 2, others=2)
    with pytest.raises(kreiss.InputError, match="must be drawn by its environment; got Unseen-v0, which has no render"):
        record(agent, Gym("Unseen-v0"))
    with pytest.raises(kreiss.errors.RunError, match="draw itself without errors; got ModuleNotFoundError from Clumsy"):
        record(agent, Gym("Clumsy-v0"))
    with pytest.raises(kreiss.InputError, match="must have the actions of its world, 4; got one with 2"):
        record(agent, TMaze(3))


def test_without_pillow_a_gif_says_what_to_install(recording, monkeypatch):
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("PIL"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(kreiss.MissingExtra, match=r"a GIF needs the package PIL; .* pip install 'kreiss\[images\]'"):
        files.gif(recording)


def test_the_value_that_is_shown_is_trained_on_returns_also_where_advantages_are_normalised(monkeypatch):
    terms, advantages, found = rl.terms, rl.advantages, []

    def watched(*inputs: Any, returns: Any, **options: Any) -> Any:
        found.append((inputs[3], inputs[4], returns))  # values, advantages
        return terms(*inputs, returns=returns, **options)

    def estimated(*inputs: Any) -> Any:
        raw.append(advantages(*inputs))
        return raw[-1]

    raw: list[Any] = []
    monkeypatch.setattr(rl, "terms", watched)
    monkeypatch.setattr(rl, "advantages", estimated)
    kreiss.fit("gru", TMaze(4), {**SETTINGS, "steps": 1, "hidden": 4, "ppo.minibatch": 64}, show="quiet")
    values, gains, returns = found[0]
    assert torch.allclose(torch.stack([gains.mean(), gains.std()]), torch.tensor([0.0, 1.0]), atol=1e-5)
    assert torch.allclose((returns - values).sort().values, raw[0].flatten().sort().values, atol=1e-5)
    outputs = torch.cat([torch.zeros(64, 4), values[:, None]], 1)
    loss = terms(outputs, torch.zeros(64).long(), torch.zeros(64), values, gains, returns=returns, clip=0.2).value
    assert torch.allclose(loss, raw[0].square().mean(), atol=1e-5)


# ---------------------------------------------------------------- analyses and reports


def test_an_agent_is_analysed_along_its_own_episodes(plain):
    drive, remark = drive_of(kreiss.load(plain), plain)
    agent = kreiss.load(plain).freeze()
    played = rl.play(agent, TMaze(4).environments(16, (VALID,)))
    window, count, _ = drive.inputs.shape
    long = [one for one in played if len(one.actions) >= window]
    assert len(long) >= 8
    assert len([one for one in played if len(one.actions) > window]) < 8
    assert f"the first {count} with at least {window} steps" in remark
    seen = torch.from_numpy(np.stack(long[0].observations[:window]))
    assert torch.allclose(drive.inputs[:, 0], agent.encode(seen), atol=1e-6)
    assert drive.loss is None


def test_what_is_found_about_an_agent_is_said_of_its_episodes(plain, attentive, monkeypatch):
    monkeypatch.setattr(network_findings, "DESCENT", 5)
    found = {
        (run.name, finding.key): finding
        for run, part in ((plain, "spectrum"), (plain, "gradients"), (plain, "fixed-points"), (attentive, "attention"))
        for finding in source(run, part).findings
    }
    training = found["nn", "training"]
    assert re.search(r"the validation reward went from .*; without memory it is 0\.5", training.sentence)
    assert training.draw().axes[0].get_ylabel() == "reward"
    for key in (("nn", "gradients"), ("nn", "lyapunov"), ("nn", "fixed-points"), ("rel", "attention")):
        assert "nder episodes of" in found[key].sentence
    assert len(found["nn", "lyapunov"].numbers["exponents"]) == 6
    assert "cut to this length" in source(plain, "spectrum").about


def test_a_report_draws_the_reward_of_runs_in_worlds(attentive, tmp_path, does):
    assert does("report", attentive, "-o", tmp_path / "report.html")[0] == 0
    text = (tmp_path / "report.html").read_text()
    assert "Validation reward against updates" in text
    assert "<th scope='col'>reward</th>" in text


# ---------------------------------------------------------------- worlds


def test_kreiss_show_draws_first_observations_of_a_world(tmp_path, does, monkeypatch):
    code, said, _ = does("show", "tmaze", "--task.length", 3)
    assert code == 0
    assert "An observation is 3 numbers. Actions: north, east, south, west." in said
    assert re.search(r"start of episode 0, observed as (0 1 1|1 1 0)\n[█▓▒░ ]{36}\n", said)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in does("show", "minigrid", "--env", "MiniGrid-MemoryS9-v0")[1]
    monkeypatch.delenv("FORCE_COLOR")
    assert does("show", "tmaze", "-o", tmp_path / "maze.png")[0] == 0
    assert read(tmp_path / "maze.png").width > 1000
    assert "must end in .png or .svg" in does("show", "tmaze", "-o", tmp_path / "maze.gif")[2]
    assert "which has no render mode 'rgb_array'" in does("show", "gym", "--env", "Unseen-v0")[1]
    assert "needs a task about objects or a world" in does("show", "copy", "-o", tmp_path / "x.png")[2]


# ---------------------------------------------------------------- Stable-Baselines3


def test_the_recipe_for_stable_baselines3_trains_a_constrained_layer(tmp_path):
    text = (Path(__file__).parents[1] / "docs" / "agents.md").read_text()
    (recipe,) = re.findall(r"```py\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(textwrap.dedent(recipe), "agents.md", "exec"), names)
    layer = names["model"].policy.lstm_actor.layer
    assert layer.constraint_error() < 1e-4
    start = torch.manual_seed(0) and type(layer)(layer.input_size, layer.hidden_size)
    assert not torch.equal(start.weight_ih_l0, layer.weight_ih_l0)
    names["model"].save(tmp_path / "model.zip")
    again = type(names["model"]).load(tmp_path / "model.zip")
    assert torch.equal(again.policy.lstm_actor.layer.weight_hh_l0, layer.weight_hh_l0)

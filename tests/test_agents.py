"""Agents: playing and learning agree, nothing crosses the end of an episode, and what is learned is right."""

from __future__ import annotations

import builtins
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import kreiss
from kreiss import rl
from kreiss.errors import InputError, MissingExtra, RunError
from kreiss.experiments import experiment
from kreiss.networks import LAYERS, Agent
from kreiss.rl import episodes, states
from kreiss.rl.ppo import pieces, replayed
from kreiss.rl.rollout import Player
from kreiss.settings import PPOSection
from kreiss.tasks import Gym, MiniGrid, TMaze, World
from kreiss.tasks.worlds.base import Environments, Layout, Outcome
from kreiss.tasks.worlds.observations import flattened
from kreiss.training import evaluate, fitting, reinforcement
from kreiss.training.config import resolved
from kreiss.training.planning import make_network, make_task

SMALL = {"hidden": 16, "batch": 8}


def agent_in(world: World, name: str = "lstm", hidden: int = 6, dtype: str = "float64", **options: Any) -> Agent:
    config = resolved(
        {"task": "tmaze", "model": name, "hidden": hidden, "model.dtype": dtype},
        {f"model.{key}": value for key, value in options.items()},
    )
    return Agent.build(config.model, world, torch.Generator().manual_seed(0))


def trained(world: World, name: str = "lstm", out: Any = None, **settings: Any) -> Any:
    return kreiss.fit(name, world, {**SMALL, **settings}, out=out, show="quiet")


# ---------------------------------------------------------------- small worlds


class Steps(Environments):
    """Episodes of given lengths with drawn observations and rewards; every third is cut off by a time limit."""

    def __init__(self, count: int, key: tuple[int, ...]) -> None:
        super().__init__(count, key)
        self.source = [np.random.default_rng(0)] * count
        self.left = np.zeros(count, int)

    def begin(self, which: Any, seeds: list[int]) -> Any:
        for index, seed in zip(which, seeds, strict=True):
            self.source[index] = np.random.default_rng(seed)
            self.left[index] = self.source[index].integers(1, 7)
        return self._seen(which)

    def _seen(self, which: Any) -> Any:
        return np.stack([self.source[index].random(3, np.float32) for index in which])

    def act(self, which: Any, actions: Any) -> Outcome:
        self.left[which] -= 1
        over = self.left[which] == 0
        cut = over & (self.episodes[which] % 3 == 2)
        rewards = np.array([self.source[index].standard_normal() for index in which])
        return Outcome(self._seen(which), rewards, over & ~cut, cut)


class Endless(Steps):
    """Episodes that never end."""

    def act(self, which: Any, actions: Any) -> Outcome:
        never = np.zeros(len(which), bool)
        return Outcome(self._seen(which), np.zeros(len(which)), never, never)


class Drawn(World):
    """A world of `Steps`."""

    made: ClassVar[type[Environments]] = Steps

    def __init__(self, workers: int = 0) -> None:
        super().__init__(Layout(None, 3), 4, valid_episodes=7, test_episodes=9, workers=workers)

    def copies(self, count: int, key: tuple[int, ...]) -> Environments:
        return self.made(count, key)


class Arms(Environments):
    """A bandit: an episode is one action, and arm k pays 1 with probability (k + 1) / 5."""

    def begin(self, which: Any, seeds: list[int]) -> Any:
        self.luck = getattr(self, "luck", np.zeros(self.count))
        self.luck[which] = np.asarray(seeds) / 2**32
        return np.ones((len(which), 1), np.float32)

    def act(self, which: Any, actions: Any) -> Outcome:
        rewards = 1.0 * (self.luck[which] < (actions + 1) / 5)
        never = np.zeros(len(which), bool)
        return Outcome(np.ones((len(which), 1), np.float32), rewards, ~never, never)


class Echo(Arms):
    """An episode shows a bit and is one action; what pays is the bit of the episode before."""

    def begin(self, which: Any, seeds: list[int]) -> Any:
        if not hasattr(self, "bit"):
            self.bit = self.before = np.zeros(self.count, int)
        self.before, self.bit = self.before.copy(), self.bit.copy()
        self.before[which] = self.bit[which]
        self.bit[which] = np.asarray(seeds) & 1
        return self._shown(which)

    def _shown(self, which: Any) -> Any:
        return np.eye(2, dtype=np.float32)[self.bit[which]]

    def act(self, which: Any, actions: Any) -> Outcome:
        never = np.zeros(len(which), bool)
        return Outcome(self._shown(which), 1.0 * (actions == self.before[which]), ~never, never)


class Bandit(Drawn):
    made = Arms

    def __init__(self) -> None:
        World.__init__(self, Layout(None, 1), 4, valid_episodes=50, test_episodes=200, workers=0)


class Echoing(Drawn):
    made = Echo

    def __init__(self) -> None:
        World.__init__(self, Layout(None, 2), 2, valid_episodes=50, test_episodes=50, workers=0)


# ---------------------------------------------------------------- advantages, sequences, loss


def test_advantages_are_those_of_a_slow_transcription():
    source, frames, copies = np.random.default_rng(0), 23, 5
    rewards, values = source.normal(size=(2, frames, copies))
    last = source.normal(size=copies)
    over = source.random((frames, copies)) < 0.2
    cut = over & (source.random((frames, copies)) < 0.5)
    beyond = np.where(cut, source.normal(size=(frames, copies)), 0)
    expected = np.zeros((frames, copies))
    for b in range(copies):
        for t in range(frames):
            share = 1.0
            for k in range(t, frames):
                after = values[k + 1, b] if k + 1 < frames else last[b]
                after = beyond[k, b] if over[k, b] else after
                expected[t, b] += share * (rewards[k, b] + 0.9 * after - values[k, b])
                share *= 0.9 * 0.7
                if over[k, b]:
                    break
    arguments = [torch.from_numpy(part) for part in (rewards, values, last, 1.0 - over, beyond)]
    assert torch.allclose(rl.advantages(*arguments, 0.9, 0.7), torch.from_numpy(expected), atol=1e-12)


def test_returns_are_sums_of_discounted_rewards_at_lambda_1():
    rewards, values = torch.randn(6, 2).double(), torch.randn(6, 2).double()
    alive = torch.ones(6, 2).double()
    alive[3, 0] = alive[5] = 0
    gains = rl.advantages(rewards, values, torch.ones(2).double(), alive, torch.zeros(6, 2).double(), 0.5, 1.0)
    powers = 0.5 ** torch.arange(6).double()
    assert torch.allclose((gains + values)[0, 0], (rewards[:4, 0] * powers[:4]).sum())
    assert torch.allclose((gains + values)[0, 1], (rewards[:, 1] * powers).sum())


def test_sequences_hold_every_frame_once_and_never_cross_the_start_of_an_episode():
    source = torch.Generator().manual_seed(1)
    for frames, copies, recurrence in ((16, 3, 4), (10, 2, 4), (7, 1, 7), (9, 4, 1)):
        starts = torch.rand(frames, copies, generator=source) < 0.3
        of = pieces(starts, recurrence)
        count = torch.zeros(frames, copies)
        for begin, copy, length, chunk, fresh in zip(of.begin, of.copy, of.length, of.chunk, of.fresh, strict=True):
            inside = slice(int(begin), int(begin + length))
            count[inside, copy] += 1
            assert not starts[inside, copy][1:].any()
            assert bool(fresh) == bool(starts[begin, copy])
            assert fresh or begin % recurrence == 0
            assert chunk == begin // recurrence * copies + copy
            assert (begin + length - 1) // recurrence == begin // recurrence
        assert (count == 1).all()
        assert of.chunk.max() < of.count


def test_the_loss_is_that_of_a_slow_transcription():
    source = torch.Generator().manual_seed(0)
    outputs, gains, values = (torch.randn(size, generator=source).double() for size in ((9, 4), (9,), (9,)))
    scores = -3 * torch.rand(9, generator=source).double()
    actions = torch.randint(3, (9,), generator=source)
    for clip_value in (True, False):
        parts = rl.terms(outputs, actions, scores, values, gains, clip=0.2, clip_value=clip_value)
        policy = value = entropy = 0.0
        for row, action, score, old, gain in zip(outputs, actions, scores, values, gains, strict=True):
            chances = row[:3].exp() / row[:3].exp().sum()
            ratio = chances[action] / score.exp()
            policy -= min(ratio * gain, min(max(ratio, 0.8), 1.2) * gain) / 9
            target, moved = gain + old, old + min(max(row[3] - old, -0.2), 0.2)
            errors = [(row[3] - target) ** 2, (moved - target) ** 2]
            value += (max(errors) if clip_value else errors[0]) / 9
            entropy -= (chances * chances.log()).sum() / 9
        assert torch.allclose(torch.stack(parts), torch.stack([policy, value, entropy]))


# ---------------------------------------------------------------- playing and learning


@pytest.mark.parametrize("name", LAYERS)
def test_learning_replays_what_was_played(name):
    """Step by step with episodes ending, and all at once in sequences: the same, memories included."""
    agent = agent_in(Drawn(), name)
    player = Player(Drawn().environments(4, (0, 1)), agent)
    draws = torch.Generator().manual_seed(0)
    player.play(agent.freeze(), 5, 3, draws)
    rollout = player.play(agent.freeze(), 14, 5, draws)
    assert rollout.starts[1:].any()
    of = pieces(rollout.starts, 5)
    outputs, frame, copy = replayed(agent, rollout, of, torch.arange(of.count), agent.init_state(1))
    scores = outputs[:, :-1].log_softmax(-1).gather(1, rollout.actions[frame, copy].unsqueeze(1))[:, 0]
    assert len(frame) == 14 * 4
    assert torch.allclose(scores, rollout.scores[frame, copy], atol=1e-9)
    assert torch.allclose(outputs[:, -1], rollout.values[frame, copy], atol=1e-9)


@pytest.mark.parametrize("name", ["lstm", "memlstm", "rellstm", "sab"])
def test_an_episode_is_played_as_if_it_were_the_first(name):
    agent = agent_in(Drawn(), name, hidden=5).freeze()
    rollout = Player(Drawn().environments(3, (0, 1)), agent).play(agent, 30, 30, torch.Generator().manual_seed(0))
    begin = int(rollout.starts[:, 1].nonzero()[-3])
    end = begin + int(rollout.starts[begin + 1 :, 1].nonzero()[0]) + 1
    alone = agent(rollout.observations[begin:end, 1:2])[0]
    assert torch.allclose(alone[:, 0, -1], rollout.values[begin:end, 1], atol=1e-12)


def test_a_memory_is_no_longer_than_the_longest_episode():
    agent = agent_in(Drawn(), "memrnn").freeze()
    player = Player(Drawn().environments(3, (0, 1)), agent)
    player.play(agent, 60, 60, torch.Generator().manual_seed(0))
    assert player.state.times.shape[-1] <= 6


def test_where_a_time_limit_cuts_an_episode_off_its_last_observation_is_valued():
    agent = agent_in(Drawn()).freeze()
    environments = Drawn().environments(2, (0, 1))
    seen: list[Outcome] = []
    act = environments.act

    def watched(which: Any, actions: Any) -> Outcome:
        seen.append(act(which, actions))
        return seen[-1]

    environments.act = watched  # type: ignore[method-assign]
    rollout = Player(environments, agent).play(agent, 40, 40, torch.Generator().manual_seed(0))
    cut = torch.from_numpy(np.stack([outcome.truncated for outcome in seen]))
    assert cut.any()
    assert torch.equal(rollout.beyond != 0, cut)
    t, b = (int(part[0]) for part in cut.nonzero(as_tuple=True))
    begin = int(rollout.starts[: t + 1, b].nonzero()[-1])
    final = torch.from_numpy(seen[t].observations[b]).double()
    whole = torch.cat([rollout.observations[begin : t + 1, b], final[None]])
    assert torch.allclose(agent(whole[:, None])[0][-1, 0, -1], rollout.beyond[t, b], atol=1e-12)


def test_what_an_agent_would_know_from_the_episode_before_pays_nothing():
    """The bit of the episode before pays; where states were not cleared it would be found within these updates."""
    settings = {"steps": 20, "lr": 1e-2, "eval_every": 20, "ppo.frames": 32, "ppo.recurrence": 32}

    def paid() -> float:
        records = [record for record in trained(Echoing(), **settings).records if "split" not in record]
        return float(np.mean([record["reward"] for record in records[-4:]]))

    assert abs(paid() - 0.5) < 0.1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "begun_anew", lambda state, over, first: state)
        patch.setattr(reinforcement, "pieces", lambda starts, length: pieces(torch.zeros_like(starts), length))
        assert paid() > 0.95


def test_the_best_arm_of_a_bandit_is_found():
    metrics = trained(Bandit(), steps=15, lr=2e-2, eval_every=15, **{"ppo.frames": 16}).metrics
    assert metrics["reward"] > 0.7


def test_a_t_maze_is_solved_by_remembering_its_sign():
    settings = {"ppo.frames": 32, "ppo.recurrence": 32, "ppo.minibatch": 128, "eval_every": 10}
    maze = TMaze(4, valid_episodes=50, test_episodes=100)
    run = trained(maze, steps=40, lr=1e-2, stop_at=0.97, stop_metric="success", **settings)
    assert run.metrics["success"] > 0.95
    assert run.metrics["reward"] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("length", [10, 100])
def test_an_lstm_solves_a_t_maze(length):
    metrics = kreiss.fit("lstm", TMaze(length), steps=300, lr=2e-3, stop_at=0.98, eval_every=10, show="quiet").metrics
    assert metrics["success"] > 0.95


def test_an_evaluation_does_not_depend_on_the_batch():
    agent = agent_in(TMaze(4), "rellstm", dtype="float64")
    world = TMaze(4, test_lengths="7", test_episodes=23)
    whole, parts = evaluate(agent, world, batch=100), evaluate(agent, world, batch=5)
    assert whole == parts
    assert set(whole) == {"reward", "success", "steps", "reward@7", "success@7", "steps@7"}
    assert evaluate(agent, world, "valid") != {name: whole[name] for name in ("reward", "success", "steps")}


# ---------------------------------------------------------------- worlds


def test_a_t_maze_pays_for_the_turn_that_its_sign_shows():
    maze = TMaze(3).environments(50, (0,))
    north = maze.start()[:, 0] == 0
    assert 10 < north.sum() < 40
    for place in range(3):
        outcome, seen = maze.step(np.full(50, 1))
        assert (seen == ([0, 1, 0] if place == 2 else [1, 0, 1])).all()
        assert not outcome.rewards.any()
        assert not outcome.over.any()
    outcome, seen = maze.step(np.where(north, 0, 2))
    assert (outcome.rewards == 1).all()
    assert outcome.ended.all()
    assert (seen[:, 1] == 1).all()  # a new sign
    outcome, _ = maze.step(np.full(50, 3))
    assert (outcome.rewards == -0.1).all()
    for _ in range(7):
        outcome, _ = maze.step(np.full(50, 3))
    assert outcome.truncated.all()


@pytest.mark.parametrize(
    "world", [TMaze(3), Drawn(), MiniGrid("MiniGrid-MemoryS7-v0")], ids=["tmaze", "own", "minigrid"]
)
def test_environments_come_back_to_where_they_were(world):
    source = np.random.default_rng(0)
    one = world.environments(3, (0, 5))
    one.start()
    for _ in range(11):
        _, seen = one.step(source.integers(3, size=3))
    two = world.environments(3, (0, 5))
    again, lost = two.restore(one.kept())
    assert np.array_equal(again, seen)
    assert not lost.any()
    for _ in range(9):
        actions = source.integers(3, size=3)
        (before, after), (again, then) = one.step(actions), two.step(actions)
        assert all(np.array_equal(*pair) for pair in zip((*before, after), (*again, then), strict=True))


def test_workers_play_the_same_episodes():
    one, two = (MiniGrid("MiniGrid-DoorKey-5x5-v0", workers=count).environments(3, (0, 5)) for count in (0, 2))
    assert np.array_equal(one.start(), two.start())
    for action in (2, 1, 2):
        (before, seen), (again, also) = one.step(np.full(3, action)), two.step(np.full(3, action))
        assert all(np.array_equal(*pair) for pair in zip((*before, seen), (*again, also), strict=True))
    two.processes[0].kill()  # type: ignore[attr-defined]
    two.processes[0].join()  # type: ignore[attr-defined]
    with pytest.raises(RunError, match="a worker of the environments must stay alive; got one that ended with code -9"):
        two.step(np.full(3, 2))
    two.close()


def test_an_environment_that_does_not_come_back_begins_a_new_episode(capsys, tmp_path):
    class Fickle(Steps):
        drawn = np.random.default_rng(3)

        def _seen(self, which: Any) -> Any:
            return self.drawn.random((len(which), 3), np.float32)

    class Changing(Drawn):
        made = Fickle

    trained(Changing(), "gru", out=tmp_path / "run", steps=2, **{"ppo.frames": 8})
    run = kreiss.fit("gru", Changing(), {"steps": 4}, out=tmp_path / "run", resume=True, show="quiet")
    assert "8 of 8 environments did not come back to where they were and begin a new episode" in capsys.readouterr().err
    assert run.state == "finished"


@pytest.mark.parametrize("raises", [False, True])
def test_a_copy_whose_episode_ends_too_early_on_resuming_begins_a_new_one(raises):
    class Earlier(Steps):
        """The same observations in every step, so that only the end tells."""

        sooner = 0

        def _seen(self, which: Any) -> Any:
            return np.ones((len(which), 3), np.float32)

        def act(self, which: Any, actions: Any) -> Outcome:
            assert len(which), "none is left to act in"  # which copies of gymnasium's environments cannot do
            if raises and (self.left[which] <= self.sooner).any():
                raise RunError("a step after the end")
            outcome = super().act(which, actions)
            return outcome._replace(ended=self.left[which] <= self.sooner, truncated=np.zeros(len(which), bool))

    class Changing(Drawn):
        made = Earlier

    agent, world = agent_in(Drawn()).freeze(), Changing()
    one = Player(world.environments(4, (0, 1)), agent)
    one.play(agent, 9, 9, torch.Generator().manual_seed(0))
    assert max(map(len, one.environments.taken)) > 1
    environments = world.environments(4, (0, 1))
    two = Player(environments, agent)
    environments.sooner = 100  # type: ignore[attr-defined]  # over with the first action
    under_way = sum(len(taken) > 0 for taken in one.environments.taken)
    lost = two.restore(one.kept(), one.state)
    assert lost == under_way > 0
    environments.sooner = 0  # type: ignore[attr-defined]
    assert np.isfinite(two.play(agent, 5, 5, torch.Generator().manual_seed(0)).rewards.numpy()).all()


def test_agents_have_the_published_number_of_parameters():
    for name, count in {"lstm": 52_664, "memlstm": 60_664, "rellstm": 60_664}.items():
        config = resolved({"task": "minigrid", "model": name})
        assert sum(weight.numel() for weight in make_network(config, make_task(config)).parameters()) == count


def test_an_agent_is_saved_and_loaded(tmp_path):
    agent = agent_in(MiniGrid(), "rellstm", dtype="float32", short=2, relevant=2)
    kreiss.save(agent, tmp_path / "agent.safetensors")
    observations = torch.randint(10, (4, 3, 147)).float()
    assert torch.equal(kreiss.load(tmp_path / "agent.safetensors")(observations)[0], agent(observations)[0])


class Everything(gymnasium.Env[Any, Any]):
    """All kinds of observations that there are."""

    observation_space = spaces.Dict(
        {
            "view": spaces.Box(0, 255, (2, 9, 8), np.uint8),
            "place": spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(-1, 1, (2, 2)))),
            "words": spaces.Text(5),
            "flags": spaces.MultiBinary(2),
        }
    )
    action_space = spaces.Discrete(2, start=-1)
    broken = False

    def _observed(self) -> Any:
        view = np.arange(144, dtype=np.uint8).reshape(2, 9, 8)
        return {"view": view, "place": (2, np.eye(2)), "words": "abc", "flags": np.array([0, 1])}

    def reset(self, **_: Any) -> Any:
        return self._observed(), {}

    def step(self, action: Any) -> Any:
        assert action in (-1, 0)
        if self.broken:
            raise ZeroDivisionError("no luck")
        return self._observed(), 0.0, False, True, {}


gymnasium.register("Everything-v0", lambda **_: Everything(), max_episode_steps=3)


def broken(**_: Any) -> Any:
    raise OSError("no luck\nat all.")


gymnasium.register("Broken-v0", broken)


@pytest.mark.parametrize(
    ("value", "said"), [(np.full(2, np.nan), "entries that are NaN or infinite"), (np.zeros(3), "3 numbers .* space 2")]
)
def test_an_observation_that_is_not_of_its_space_is_one_sentence(value, said):
    _, flat = flattened(spaces.Box(-1, 1, (2,)), "x", scaled=True)
    with pytest.raises(ValueError, match=said):
        flat(value)


def test_observations_of_every_kind_become_numbers_with_the_image_first():
    world = Gym("Everything-v0")
    assert world.layout == Layout((2, 9, 8), 2 + 3 + 4)
    (seen,) = world.environments(1, (0,)).start()
    assert np.allclose(seen[:144], np.arange(144) / 255)
    assert seen[144:].tolist() == [0, 1, 0, 1, 0, 1, 0, 0, 1]  # flags, the number 2 one-hot, a matrix
    agent = agent_in(world, "gru", dtype="float32")
    assert evaluate(agent, Gym("Everything-v0", test_episodes=2)) == {"reward": 0.0, "steps": 1.0}


def test_images_with_channels_last_are_turned_and_large_ones_strided():
    space = spaces.Box(0, 255, (40, 44, 3), np.uint8)
    layout, flat = flattened(space, "x", scaled=True)
    image = np.arange(40 * 44 * 3, dtype=np.uint8).reshape(40, 44, 3)
    assert np.allclose(flat(image).reshape(3, 40, 44), image.transpose(2, 0, 1) / 255)
    agent = Agent(kreiss.GRU(256, 4), 3, image=layout.image)
    assert agent(torch.rand(2, 5, layout.size))[0].shape == (2, 5, 4)


# ---------------------------------------------------------------- bad input


def test_an_environment_that_raises_is_one_sentence_and_the_run_can_be_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(Everything, "broken", True)
    with pytest.raises(RunError, match=r"without errors; got ZeroDivisionError from Everything-v0: no luck\."):
        trained(Gym("Everything-v0"), "gru", out=tmp_path / "run", steps=3, **{"ppo.frames": 4})
    monkeypatch.setattr(Everything, "broken", False)
    assert fitting.resume(tmp_path / "run", show="quiet").state == "finished"


def test_an_episode_without_an_end_is_one_sentence(monkeypatch):
    monkeypatch.setattr(episodes, "LONGEST", 30)
    monkeypatch.setattr(Drawn, "made", Endless)
    with pytest.raises(RunError, match=r"must come to an end; got 30 steps without one\. Train with a limit"):
        evaluate(agent_in(Drawn()), Drawn(), "valid")


def test_bad_worlds_are_one_sentence(monkeypatch):
    with pytest.raises(InputError, match=r"must be an environment .* got 'CartPol-v1' .* Did you mean 'CartPole-v1'\?"):
        Gym("CartPol-v1")
    with pytest.raises(InputError, match=r"must have discrete actions; got Box\(.*\) of Pendulum-v1\."):
        Gym("Pendulum-v1")
    with pytest.raises(InputError, match="the observations and actions of CartPole-v1, 4 numbers and 2 actions"):
        Gym("CartPole-v1", test_env="Acrobot-v1")
    with pytest.raises(InputError, match=r"must be an image, a vector or numbers of fixed shape; got Sequence in x\."):
        flattened(spaces.Sequence(spaces.Discrete(2)), "x", scaled=True)
    with pytest.raises(InputError, match=r"an observation must have numbers; got Text"):
        flattened(spaces.Text(3), "x", scaled=True)
    with pytest.raises(InputError, match=r"of fixed shape; got NoneType in x\."):
        flattened(None, "x", scaled=True)
    with pytest.raises(InputError, match=r"an entry 'image'; got Box.* of CartPole-v1\. The task gym takes any"):
        MiniGrid("CartPole-v1")
    with pytest.raises(InputError, match=r"that can be made; got ModuleNotFoundError from 'nowhere:Foo-v0': No module"):
        Gym("nowhere:Foo-v0")
    with pytest.raises(InputError, match=r"that can be made; got OSError from 'Broken-v0': no luck at all\. Mend it"):
        Gym("Broken-v0")
    with pytest.raises(InputError, match="one image at most; got 2 in x"):
        flattened(spaces.Tuple([spaces.Box(0, 1, (9, 9, 3))] * 2), "x", scaled=True)
    with pytest.raises(InputError, match="`test_lengths` must be whole numbers separated by commas; got 'long'"):
        TMaze(test_lengths="long")
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name in ("gymnasium", "minigrid"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"needs the package gymnasium; .* pip install 'kreiss\[rl\]'"):
        MiniGrid()


def test_bad_settings_of_agents_are_one_sentence():
    def built(**settings: Any) -> Any:
        config = resolved({"task": "tmaze", **settings})
        task = make_task(config)
        return fitting.run(config, None, make_network(config, task), task, show="quiet")

    with pytest.raises(InputError, match="an agent must be built around a recurrent layer; got model 'corelnet'"):
        built(model="corelnet")
    with pytest.raises(InputError, match=r"an agent has no `dropout`; got dropout=0\.5\."):
        built(model="lstm", dropout=0.5)
    with pytest.raises(InputError, match=r"`ppo\.recurrence` must be at most the 8 frames of an update; got 9"):
        built(model="lstm", **{"ppo.frames": 8, "ppo.recurrence": 9})
    with pytest.raises(InputError, match="`accumulate` must be 1 for reinforcement learning; got 2"):
        built(model="lstm", accumulate=2)
    with pytest.raises(InputError, match=r"a world must be given an agent, or a recurrent layer .* got Linear"):
        kreiss.fit(torch.nn.Linear(3, 5), TMaze(3), show="quiet")
    with pytest.raises(InputError, match="`layer` must take 64 features of an observation"):
        kreiss.fit(kreiss.GRU(3, 5), TMaze(3), show="quiet")
    with pytest.raises(InputError, match=r"an observation must have 3 numbers; got shape \(2, 1, 4\)"):
        agent_in(TMaze(3))(torch.rand(2, 1, 4))
    with pytest.raises(InputError, match="an image must have at least 7 × 7 pixels; got 5 × 9"):
        Agent(kreiss.GRU(64, 5), 3, image=(3, 5, 9))


# ---------------------------------------------------------------- experiments


def test_the_table_of_the_thesis_stands_as_it_is_printed():
    made = experiment("004/tableB.1")
    printed = {row.name: [number.value for number in row.published] for row in made.rows if row.published}
    assert printed["memlstm-memory"] == [0.4, 0.24]
    assert printed["rellstm-memory"] == [0.94, 0.3]
    assert printed["memlstm-doorkey"] == [0.94, 0.31]
    assert printed["rellstm-doorkey"] == [0.93, 0.44]
    assert len(printed) == 12
    settings = resolved(made.settings(made.row("rellstm-doorkey"), "paper"))
    assert settings.steps * settings.batch * 128 == pytest.approx(5_000_000, rel=1e-3)
    assert settings.ppo == PPOSection()
    assert (settings.optimiser.lr, settings.optimiser.eps, settings.optimiser.clip_norm) == (1e-3, 1e-8, 0.5)


@pytest.mark.parametrize("name", ["004/tableB.1", "bakker/tmaze"])
def test_worlds_of_an_experiment_exist_and_every_network_takes_two_steps_in_one(name):
    made = experiment(name)
    assert all(make_task(resolved(made.settings(row, "paper"))).actions in (4, 7) for row in made.rows[::5])
    for row in made.rows[-5:]:
        config = resolved(made.settings(row, "smoke"))
        task = make_task(config)
        network = make_network(config, task)
        run = fitting.run(config, None, network, task, show="quiet")
        assert run.state == "finished"
        assert {number.metric for number in row.published} <= run.metrics.keys()
        published = make_network(resolved(made.settings(row, "paper")), task)
        assert row.counted in (None, sum(weight.numel() for weight in published.parameters()))

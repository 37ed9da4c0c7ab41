"""`kreiss record`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, validators

from kreiss.commands.words import Changes, Flag
from kreiss.errors import InputError


def record(
    run: Path,
    *words: Changes,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    episode: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0,
    greedy: Flag = False,
) -> int:
    """Play one episode of a trained agent and write what happens, with what it looks back at.

    kreiss record RUN -o episode.html

    kreiss record RUN --task.env MiniGrid-DoorKey-8x8-v0 --episode 3 -o episode.gif

    A page has a slider, the view, the chances of the actions, reward, value and, of a network that attends to its past,
    small pictures of the steps that it reads. A GIF (extra `images`) moves; a PNG (extra `plots`) shows some steps side
    by side with the attention under them.

    Parameters
    ----------
    run
        Folder of a run, whose best checkpoint is used.
    words
        Options of the world, by default those of the run: --env NAME, --task.length 20.
    out
        File to write: .html, .gif or .png; by default an .html beside the run, named after it.
    episode
        Number of the episode among those of the test.
    greedy
        Take the most likely action; by default actions are drawn, as in the test.
    """
    from kreiss.report.recordings import files
    from kreiss.report.recordings import record as played

    path = out or run.with_name(f"{run.resolve().name}-episode-{episode}.html")
    files.check_form(path)
    agent, world, title = opened(run, words)
    recording = played(agent, world, episode, sampled=not greedy, title=f"{title}, episode {episode}")
    print(recording.sentence())
    print(files.write(recording, path))
    return 0


def opened(run: Path, words: tuple[str, ...]) -> tuple[Any, Any, str]:
    """The agent of a run, its world or another one, and both in words."""
    from kreiss import rl
    from kreiss.networks.saving import load
    from kreiss.tasks import TASKS, World
    from kreiss.training import config as settings_of
    from kreiss.training.planning import make_task
    from kreiss.training.record import is_run
    from kreiss.training.record import settings_of as settings_of_run

    if not is_run(run):
        raise InputError(f"`{run}` must be the folder of a run; got one that is not. `kreiss runs ls` lists runs.")
    named, options = settings_of.words(words)
    if named:
        raise InputError(f"`kreiss record` takes one run; got {named[0]!r} too. Write settings as --name value.")
    config = settings_of.resolved(settings_of_run(run), options)
    if not issubclass(TASKS.get(config.task.name, object), World):
        raise InputError(
            f"an episode must be that of a run in a world, such as tmaze; got {run} on {config.task.name}. "
            "`kreiss analyze` shows other runs."
        )
    world: Any = make_task(config)
    where = getattr(world, "env", "") or config.task.name
    return rl.checked_agent(load(run)), world, f"{config.model.name} in {where}"

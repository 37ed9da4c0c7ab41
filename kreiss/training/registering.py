"""`kreiss.register`: layers, networks and tasks of the user's own by name, also in other processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from kreiss import own
from kreiss.errors import InputError
from kreiss.networks.building import NETWORKS, class_named, register_network
from kreiss.settings import Config
from kreiss.tasks import TASKS, Task, register_task, task_named


def register(name: str, cls: type[nn.Module] | type[Task]) -> None:
    """Make a class of your own known by a name, wherever names are taken: `fit`, `load`, the command line.

    Args:
        name: a new name, such as "mine". Without one, `package.module:Class` names any class.
        cls: a `kreiss.RecurrentLayer`, a `kreiss.Network`, a torch module with the contract of a network,
            `forward(inputs, state, lengths) -> (outputs, state)`, or a `kreiss.tasks.Task`.

    Example:
        >>> import kreiss
        >>> class Mine(kreiss.NNRNN):
        ...     "A layer of my own."
        >>> kreiss.register("mine", Mine)
        >>> run = kreiss.fit("mine", "copy", {"task.delay": 3}, hidden=8, steps=2, show="quiet")
        >>> type(run.model.layer).__name__
        'Mine'
        >>> del kreiss.NETWORKS["mine"], kreiss.LAYERS["mine"]  # forgotten again
    """
    if not isinstance(cls, type) or not issubclass(cls, (nn.Module, Task)):
        raise InputError(
            f"`cls` must be a class of layers, networks or tasks; got {cls!r}. Derive it from kreiss.RecurrentLayer, "
            "kreiss.Network, torch.nn.Module or kreiss.tasks.Task."
        )
    for kind, known in (("model", NETWORKS), ("task", TASKS)):
        if name in known and own.is_ours(class_named(name) if kind == "model" else TASKS[name]):
            raise InputError(f"`name` must be new; got {name!r}, a {kind} of kreiss. Choose another name.")
    if issubclass(cls, Task):
        register_task(name, cls)
    else:
        register_network(name, cls)


def classes_of(config: Config) -> dict[str, str]:
    """Name → `package.module:Class` of what is the user's own in the settings, for other processes."""
    found: list[tuple[str, Any]] = [
        (config.model.name, class_named(config.model.name)), (config.task.name, task_named(config.task.name)),
    ]  # fmt: skip
    return {name: own.home_of(cls) for name, cls in found if not own.is_ours(cls)}


def take_over(classes: Mapping[str, str]) -> None:
    """Register what `classes_of` gave in the process that started this one."""
    for name, home in classes.items():
        if home.startswith("__main__:") or "<locals>" in home:
            raise InputError(
                f"a class must be in a module that other processes can import; got {home}. Move it into a file."
            )
        register(name, own.imported(home))

"""Experiment trackers that also receive the records of a run: TensorBoard, wandb, mlflow, trackio."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from kreiss.errors import MissingExtra
from kreiss.settings import Config

# tracker → (extra, module)
PACKAGES = {
    "tensorboard": ("tb", "tensorboard"),
    "wandb": ("wandb", "wandb"),
    "mlflow": ("mlflow", "mlflow"),
    "trackio": ("trackio", "trackio"),
}


class Tracker(Protocol):
    """Receives numbers by name."""

    def log(self, update: int, numbers: dict[str, float]) -> None:
        """Numbers of one update."""

    def close(self) -> None:
        """The run has ended."""


def check_trackers(config: Config) -> None:
    """Raise if a tracker of the settings is not installed."""
    for kind in config.track:
        _module(kind)


def _module(kind: str) -> Any:
    extra, package = PACKAGES[kind]
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"track={kind}", extra, package) from error


def open_trackers(config: Config, folder: Path | None, updates: int) -> list[Tracker]:
    """The trackers of the settings.

    Args:
        config: all settings; passed to trackers that record them.
        folder: of the run.
        updates: made before, if a run is resumed.
    """
    name = folder.name if folder else f"{config.task.name}-{config.model.name}"
    return [_open(kind, config, folder or Path(name), name, updates) for kind in config.track]


def _open(kind: str, config: Config, folder: Path, name: str, updates: int) -> Tracker:
    module = _module(kind)
    settings = config.model_dump(mode="json")
    if kind == "tensorboard":
        return TensorBoard(folder, updates)
    if kind == "mlflow":
        return MLflow(module, name, settings)
    return Weights(module, name, settings)


class TensorBoard:
    """Event files in the run's own folder."""

    def __init__(self, folder: Path, updates: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # what a killed process wrote beyond its checkpoint is hidden
        self.writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=updates + 1 if updates else None)

    def log(self, update: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, update)

    def close(self) -> None:
        self.writer.close()


class Weights:
    """wandb, and trackio, which has the same interface."""

    def __init__(self, module: Any, name: str, settings: dict[str, Any]) -> None:
        self.module = module
        module.init(project="kreiss", name=name, config=settings)

    def log(self, update: int, numbers: dict[str, float]) -> None:
        self.module.log(numbers, step=update)

    def close(self) -> None:
        self.module.finish()


class MLflow:
    """mlflow."""

    def __init__(self, module: Any, name: str, settings: dict[str, Any]) -> None:
        self.module = module
        module.set_experiment("kreiss")
        module.start_run(run_name=name)
        module.log_params({key: str(value)[:500] for key, value in settings.items()})

    def log(self, update: int, numbers: dict[str, float]) -> None:
        self.module.log_metrics(numbers, step=update)

    def close(self) -> None:
        self.module.end_run()

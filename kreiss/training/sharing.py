"""Runs on the Hugging Face Hub: the model with a card that is written from the run."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import nn

from kreiss.networks import hub
from kreiss.networks.saving import load
from kreiss.storage.identity import ABOUT, read_document
from kreiss.training.display import command
from kreiss.training.record import is_run, read_config, read_records


def push_to_hub(source: nn.Module | str | Path, name: str, **options: Any) -> str:
    """Upload a model, or the best checkpoint of a run, to the Hugging Face Hub (extra `hub`).

    The repository, made if it does not exist, gets the model's file, its description and a model card. The card of a
    run says how it was trained and what it reached.

    Args:
        source: a model, the folder of a run, or a file of `kreiss.save`.
        name: user/name.
        options: of `push_to_hub` of huggingface_hub: private, branch, token, commit_message, ….

    Returns:
        The address of the commit.
    """
    if isinstance(source, nn.Module):
        return hub.push(source, name, **options)
    folder, model = Path(source), load(source)
    return hub.push(model, name, card_of(folder, model) if is_run(folder) else "", **options)


def from_pretrained(name: str, **options: Any) -> nn.Module:
    """The model of a repository on the Hugging Face Hub (extra `hub`).

    Args:
        name: user/name.
        options: of `from_pretrained` of huggingface_hub: revision, token, cache_dir, ….
    """
    return hub.pull(name, **options)


def card_of(folder: Path, model: nn.Module) -> str:
    """What a model card says of a run, in Markdown: network, results beside those without memory, command, versions."""
    from kreiss.training.planning import make_task

    config, records, about = read_config(folder), read_records(folder), read_document(folder / ABOUT)
    tested = [record for record in records if record.get("split") == "test"]
    valid = [record for record in records if record.get("split") == "valid"]
    results = (tested or valid)[-1:]
    without, naive = {}, str(about.get("naive", "without memory"))
    with suppress(ValueError, OSError):  # data that are not here
        without = make_task(config).baseline()
    rows = [
        f"| {name} | {value:.4g} | {f'{without[name]:.4g}' if name in without else '–'} |"
        for record in results
        for name, value in record.items()
        if name not in ("update", "split", "seconds")
    ]
    split = results[0]["split"] if results else ""
    table = [f"| {split} | this model | {naive} |", "|---|---|---|", *rows, ""] if rows else []
    return "\n".join([
        f"{hub.described(model).strip()} Trained on the task `{config.task.name}`, {config.steps} updates, seed "
        f"{config.seed}.",
        "", "## Results", "", *(table or ["The run has no evaluation yet.", ""]),
        "## Training", "", "```sh", command(config), "```", "",
        f"kreiss {about.get('kreiss')}, torch {about.get('torch')}, Python {about.get('python')}.", "",
    ])  # fmt: skip

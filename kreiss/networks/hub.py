"""Models on the Hugging Face Hub: `kreiss.save(model, "hf://user/name")` and `kreiss.load("hf://user/name")`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from kreiss.errors import InputError, MissingExtra

FILE = "model.safetensors"


def push(content: bytes, address: str) -> None:
    """Upload the bytes of a model file to a repository, created if it does not exist."""
    hub, name = _hub(), _name(address)
    hub.create_repo(name, exist_ok=True)
    hub.upload_file(path_or_fileobj=content, path_in_repo=FILE, repo_id=name)


def pull(address: str) -> Path:
    """A local copy of the model file of a repository."""
    return Path(_hub().hf_hub_download(_name(address), FILE))


def _name(address: str) -> str:
    name = address.removeprefix("hf://")
    if name.count("/") != 1 or not all(name.split("/")):
        raise InputError(f"`path` must be of the form hf://user/name; got {address!r}. Give user and name.")
    return name


def _hub() -> Any:
    try:
        return import_module("huggingface_hub")
    except ModuleNotFoundError as error:
        raise MissingExtra("the Hugging Face Hub", "hub", "huggingface_hub") from error

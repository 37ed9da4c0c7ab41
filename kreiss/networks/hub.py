"""Models on the Hugging Face Hub, by the mixin of huggingface_hub, which makes repositories, commits and a cache.

`kreiss.push_to_hub` and `kreiss.from_pretrained` are for users; `kreiss.save` and `kreiss.load` take `hf://user/name`.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from kreiss.errors import InputError, MissingExtra

FILE = "model.safetensors"
CARD = """---
library_name: kreiss
tags:
- recurrent-neural-network
- pytorch
- kreiss
---

# {name}

{said}
## Use

```python
import kreiss  # pip install 'kreiss[hub]'

model = kreiss.from_pretrained("{name}")
```
"""


def push(model: nn.Module, address: str, said: str = "", **options: Any) -> str:
    """Upload a model with its card; returns the address of the commit.

    Args:
        model: what `kreiss.save` takes.
        address: user/name, with or without hf://.
        said: what the card says of the model, in Markdown; by default its kind and size.
        options: those of `push_to_hub` of huggingface_hub: private, branch, token, commit_message, ….
    """
    name = repository(address)
    return str(_sharable()(model, CARD.format(name=name, said=said or described(model))).push_to_hub(name, **options))


def pull(address: str, **options: Any) -> nn.Module:
    """The model of a repository.

    Args:
        address: user/name, with or without hf://.
        options: those of `from_pretrained` of huggingface_hub: revision, token, cache_dir, ….
    """
    model: nn.Module = _sharable().from_pretrained(repository(address), **options).model
    return model


def described(model: nn.Module) -> str:
    """A model in one sentence of Markdown."""
    layer = getattr(model, "layer", model)
    count = sum(parameter.numel() for parameter in model.parameters())
    units = f" with {layer.hidden_size} hidden units" if hasattr(layer, "hidden_size") else ""
    return f"A {type(layer).__name__}{units} and {count:,} parameters.\n"


def repository(address: str) -> str:
    """user/name of an address."""
    name = address.removeprefix("hf://")
    if name.count("/") != 1 or not all(name.split("/")):
        raise InputError(f"`path` must be of the form hf://user/name; got {address!r}. Give user and name.")
    return name


def _sharable() -> Any:
    """The mixin around a model; made here because its package is an extra."""
    hub = _hub()

    class Sharable(hub.ModelHubMixin):  # type: ignore[misc, name-defined]
        """A model that can be saved to and loaded from a repository."""

        def __init__(self, model: nn.Module, card: str) -> None:
            self.model, self.card = model, card

        def _save_pretrained(self, save_directory: Path) -> None:
            from kreiss.networks.saving import description, save

            save(self.model, save_directory / FILE)
            (save_directory / "config.json").write_text(json.dumps(description(self.model), indent=1) + "\n")

        @classmethod
        def _from_pretrained(cls, *, model_id: str, **options: Any) -> Any:
            from kreiss.networks.saving import load

            return cls(load(hub.hf_hub_download(model_id, FILE, **options)), "")

        def generate_model_card(self, **_: Any) -> Any:
            return hub.ModelCard(self.card)

    return Sharable


def _hub() -> Any:
    try:
        return import_module("huggingface_hub")
    except ModuleNotFoundError as error:
        raise MissingExtra("the Hugging Face Hub", "hub", "huggingface_hub") from error

"""All-or-nothing loading of a state_dict."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from kreiss.errors import InputError


class CheckedLoading(nn.Module):
    """A module that rejects a state_dict that does not fit before anything is copied, and so stays unchanged.

    torch itself copies what fits and raises afterwards.
    """

    _version = 1

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        version = local_metadata.get("version")
        if version is not None and version > self._version:
            raise InputError(
                f"the state_dict must be of layer version {self._version} or older; got version {version}. "
                "Update kreiss, it was written by a newer one; the layer was left unchanged."
            )
        if problem := _misfit(self.state_dict(prefix=prefix), state_dict, prefix, strict):
            raise InputError(
                f"the state_dict must fit {type(self).__name__}({self.extra_repr()}); got {problem}. Load it into the "
                "architecture, options and sizes it was saved from; the layer was left unchanged."
            )
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


def _misfit(own: dict[str, Tensor], state_dict: dict[str, Any], prefix: str, strict: bool) -> str:
    """A description of what does not fit; empty if everything does."""
    loaded = {key: value for key, value in state_dict.items() if key.startswith(prefix)}
    common = [key for key in own if key in loaded]
    shapes = [key for key in common if own[key].shape != loaded[key].shape]
    # `kind` is the description of a set in bytes: equal shapes do not imply equal matrices
    kinds = [key for key in common if key.endswith(".kind") and not shapes and not _same_bytes(own[key], loaded[key])]
    numbers = [key for key in common if _sort(own[key]) != _sort(loaded[key])]
    problems = {"other shapes for": shapes, "numbers of another type in": numbers, "another kind of set in": kinds}
    if strict:
        problems["missing keys"] = [key for key in own if key not in loaded]
        problems["unexpected keys"] = [key for key in loaded if key not in own]
    return ", ".join(f"{what} {keys}" for what, keys in problems.items() if keys)


def _sort(tensor: Tensor) -> str:
    return "complex" if tensor.is_complex() else "real" if tensor.is_floating_point() else "whole"


def _same_bytes(own: Tensor, loaded: Tensor) -> bool:
    return own.is_meta or loaded.is_meta or torch.equal(own.cpu(), loaded.cpu())

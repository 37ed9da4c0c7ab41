"""Tasks on a user's own data: standardised inputs, numbers or classes to predict, at every step or at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kreiss.errors import InputError, check_name, check_size
from kreiss.preprocessing import Preprocessing
from kreiss.tasks.base import Batch, Totals
from kreiss.tasks.losses import NO_TARGET, classified, cross_entropy, squared
from kreiss.tasks.sources.sequences import Sequences
from kreiss.tasks.stored import Split, Stored, divided, in_order

SMALLEST, LARGEST = 1e-30, 1e30  # single precision ends at 1e-38 and 3e38; squares and sums need room


class Own(Stored):
    """A user's own sequences with numbers or classes to predict.

    Classification is scored by cross-entropy and accuracy, regression by the squared error, averaged over all answers
    that count. The baseline is measured on the test part: for regression the affine map from the inputs of a step (the
    last one, for `answers="last"`) that is best on the training part; for classification the shares of the classes in
    the training part.
    """

    group = ""

    def _take(
        self, found: Sequences, kind: str, valid: float, test: float, window: int, standardise: bool, fill: bool
    ) -> None:
        """Split the sequences, standardise inputs, number the classes."""
        check_name("kind", kind, ("auto", "regression", "classification"))
        self.valid, self.test, self.standardise = valid, test, standardise
        self.sequences, self.splits = _shared_out(found, check_size("window", window, minimum=0), valid, test)
        self._set_inputs(fill)
        self._set_asked(kind)

    def preprocessing(self) -> Preprocessing:
        return self.kept

    def _set_inputs(self, fill: bool) -> None:
        """Standardise the inputs, if set; missing ones become their mean."""
        found = self.sequences
        steps = np.concatenate([found.inputs[member] for member in self.splits["train"]]).astype(np.float64)
        self.input_size = steps.shape[1]
        self.mean: NDArray[Any] = np.zeros(self.input_size)
        self.scale: NDArray[Any] = np.ones(self.input_size)
        if fill and (empty := np.isnan(steps).all(0)).any():
            place = int(np.flatnonzero(empty)[0])
            raise InputError(
                "an input must have values in the training part for missing='mean'; got none for "
                f"{repr(found.columns[place]) if found.columns else f'input {place}'}. Leave it out with `ignore`."
            )
        means = _spread(steps)[0] if fill else ()
        if self.standardise:
            self.mean, self.scale = _spread(steps)
        mean, scale, filled = (tuple(float(x) for x in part) for part in (self.mean, self.scale, means))
        self.kept = Preprocessing(found.columns, mean, scale, fill=filled, group=self.group)
        self.encoded = [self.kept.standardised(part) for part in found.inputs]
        _check_range("inputs", self.encoded)

    def _set_asked(self, kind: str) -> None:
        """Classes become indices into `classes`; numbers stay as they are. Steps that do not count ask for nothing."""
        found, every = self.sequences, self.answers == "every"
        counted = found.masks or [np.ones(len(part), bool) for part in found.targets]
        joined = np.concatenate(
            [part[count] if every else part[None] for part, count in zip(found.targets, counted, strict=True)]
        )
        whole = joined.dtype.kind in "biuUSO"
        self.kind = kind if kind != "auto" else "classification" if whole else "regression"
        if self.kind == "classification":
            if joined.shape[1] != 1:
                raise InputError(
                    f"classification must have one target; got {joined.shape[1]}. Name one, or pass kind='regression'."
                )
            self.classes = np.unique(joined)
            self.output_size, self.metric, self.higher_is_better = len(self.classes), "accuracy", True
            self.asked = [np.searchsorted(self.classes, part[..., 0]) for part in found.targets]
            self.kept = replace(self.kept, classes=tuple(label.item() for label in self.classes))
        else:
            if joined.dtype.kind not in "biuf" or not np.isfinite(joined.astype(np.float64)).all():
                raise InputError(
                    "targets of a regression must be finite numbers; got others. "
                    "Correct them, or pass kind='classification'."
                )
            self.output_size = joined.shape[1]
            self.asked = [part.astype(np.float64) for part in found.targets]
            _check_range("targets of a regression", [joined.astype(np.float64)])
            self.kept = replace(self.kept, targets=found.names)
        if found.masks is not None:
            nothing = NO_TARGET if self.kind == "classification" else np.nan
            self.asked = [
                np.where(count if part.ndim == 1 else count[:, None], part, nothing)
                for part, count in zip(self.asked, found.masks, strict=True)
            ]

    def assemble(self, members: NDArray[Any]) -> Batch:
        lengths = torch.tensor([len(self.encoded[member]) for member in members])
        inputs = _padded([self.encoded[member] for member in members], 0.0)
        some = [self.asked[member] for member in members]
        padding = NO_TARGET if self.kind == "classification" else 0.0
        targets = _padded(some, padding) if self.answers == "every" else torch.as_tensor(np.stack(some))
        uneven = bool((lengths != lengths[0]).any())
        floating = torch.get_default_dtype() if targets.is_floating_point() else torch.long
        return Batch(inputs.to(torch.get_default_dtype()), targets.to(floating), lengths if uneven else None)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Mean cross-entropy, or mean squared error."""
        if self.kind == "classification":
            return cross_entropy(output, batch.targets)
        error, count = squared(output, batch)
        return error.sum() / count

    def totals(self, output: Tensor, batch: Batch) -> Totals:
        if self.kind == "classification":
            return classified(output, batch.targets)
        error, count = squared(output.double(), batch)
        return {"loss": (float(error.sum()), count)}

    def baseline(self) -> dict[str, float]:
        """Measured on the test part, see above."""
        (x, y), (x_test, y_test) = self._steps("train"), self._steps("test")
        if self.kind == "classification":
            shares = (np.bincount(y, minlength=self.output_size) + 1) / (len(y) + self.output_size)
            hits = shares.argmax() == y_test
            return {"loss": -float(np.log(shares[y_test]).mean()), "accuracy": float(hits.mean())}
        affine = np.linalg.lstsq(x, y, rcond=None)[0]
        return {"loss": float(np.square(x_test @ affine - y_test).mean())}

    def _steps(self, split: Split) -> tuple[NDArray[Any], NDArray[Any]]:
        """Inputs, with a one appended, and targets of all steps that are answered."""
        members, last = self.splits[split], slice(-1, None) if self.answers == "last" else slice(None)
        x = np.concatenate([self.encoded[member][last] for member in members])
        y = (np.stack if self.answers == "last" else np.concatenate)([self.asked[member] for member in members])
        counted = y != NO_TARGET if self.kind == "classification" else ~np.isnan(y).any(1)
        return np.pad(x[counted], ((0, 0), (0, 1)), constant_values=1.0), y[counted]


def _spread(steps: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean and deviation of each column, 1 for that of a constant; missing numbers do not count.

    Columns are first scaled to about 1 by a power of two, which is exact: squares of 1e300 overflow.
    """
    missing = bool(np.isnan(steps).any())
    largest, mean, std = (np.nanmax, np.nanmean, np.nanstd) if missing else (np.max, np.mean, np.std)
    unit = 2.0 ** (np.frexp(largest(np.abs(steps), 0))[1] - 1)
    deviation = std(steps / unit, 0)
    return mean(steps / unit, 0) * unit, np.where(deviation > 0, deviation * unit, 1.0)


def _check_range(what: str, parts: list[NDArray[Any]]) -> None:
    """Raise for numbers that become infinite, or a whole column that becomes zero, in single precision."""
    largest = np.max([np.abs(part).reshape(-1, part.shape[-1]).max(0) for part in parts], axis=0)
    for number, size in enumerate(largest):
        if size > LARGEST or 0 < size < SMALLEST:
            raise InputError(
                f"{what} must be between {SMALLEST:g} and {LARGEST:g} in size, which single precision holds; got "
                f"{size:g} in column {number + 1}. Use other units, or mark missing values otherwise."
            )


def _padded(parts: list[NDArray[Any]], value: float) -> Tensor:
    """Sequences side by side (T, B, …), short ones padded."""
    return torch.nn.utils.rnn.pad_sequence([torch.as_tensor(part) for part in parts], padding_value=value)


def _shared_out(
    sequences: Sequences, window: int, valid: float, test: float
) -> tuple[Sequences, dict[Split, NDArray[Any]]]:
    """Windows and their split; windows of one sequence stay together if there are three sequences or more."""
    if not (valid > 0 and test > 0 and valid + test < 1):
        raise InputError(
            f"`valid` and `test` must be positive shares with a sum below 1; got valid={valid}, test={test}. "
            "Pass for example valid=0.1, test=0.1."
        )
    if sequences.masks is not None:  # what no step of counts is left out
        sequences = sequences.part([(place, slice(None)) for place, mask in enumerate(sequences.masks) if mask.any()])
    count = len(sequences.inputs)
    if count < 3 and not window:
        raise InputError(
            f"fewer than three sequences must be cut in windows; got {count}. "
            "Pass window=…, or name the column that tells sequences apart with group=…."
        )
    if not window:
        return sequences, divided(count, valid, test)
    cut = [
        (owner, slice(start, start + window))
        for owner, part in enumerate(sequences.inputs)
        for start in range(0, len(part), window)
    ]
    cut = [(owner, steps) for owner, steps in cut if sequences.masks is None or sequences.masks[owner][steps].any()]
    windows = sequences.part(cut)
    if count < 3:
        return windows, in_order(np.arange(len(cut)), valid, test)
    owners = np.array([owner for owner, _ in cut])
    parts = divided(count, valid, test)
    return windows, {part: np.flatnonzero(np.isin(owners, members)) for part, members in parts.items()}

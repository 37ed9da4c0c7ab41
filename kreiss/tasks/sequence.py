"""A user's own sequences: regression or classification, at every step or at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kreiss.errors import InputError, check_name, check_size
from kreiss.tasks.base import Batch, Totals
from kreiss.tasks.losses import NO_TARGET, classified, cross_entropy, squared
from kreiss.tasks.sources.tables import Sequences, load
from kreiss.tasks.stored import Split, Stored, divided, in_order

SMALLEST, LARGEST = 1e-30, 1e30  # single precision ends at 1e-38 and 3e38; squares and sums need room


class Sequence(Stored):
    """Sequences of a file, with numbers or classes to predict.

    Formats:

    - `.npz` with `inputs` (N, T) or (N, T, D), `targets` (N, T), (N, T, K), (N,) or (N, K), optionally `lengths` (N,);
    - `.npy` with the inputs, and `targets` the path of another with the answers;
    - `.csv`, `.csv.gz` (first line: names) or `.parquet` (extra `parquet`): one row per step; `target` names the
      columns to predict, `group` the column that identifies the sequence of a row; all other columns are inputs.

    Sequences are split into training, validation and test by a fixed shuffle. Fewer than three sequences are cut into
    windows first, which are split in the order of time. Nothing is ever shuffled within a sequence.

    Classification is scored by cross-entropy and accuracy, regression by the squared error, averaged over all answers.
    The baseline is measured on the test part: for regression the affine map from the inputs of a step (the last one,
    for `answers="last"`) that is best on the training part; for classification the shares of the classes in the
    training part.

    Args:
        path: the file.
        targets: file of the answers, with a .npy file.
        target: columns to predict, separated by commas.
        group: column that identifies the sequence; without it a table is one sequence.
        kind: "regression" or "classification"; "auto" treats text and whole numbers as classes.
        answers: "every" step, or the "last" only (in a table, the value in a sequence's last row).
        window: cut sequences into consecutive windows of at most this many steps; 0 leaves them whole.
        valid: share of the sequences that is held out for validation.
        test: share of the sequences that is held out for the test.
        standardise: subtract the mean of each input and divide by its deviation, as measured in the training part.
    """

    paths: ClassVar = {"path": (), "targets": ()}

    def __init__(
        self,
        path: str | Path = "",
        *,
        targets: str | Path | None = None,
        target: str = "target",
        group: str = "",
        kind: str = "auto",
        answers: str = "every",
        window: int = 0,
        valid: float = 0.1,
        test: float = 0.1,
        standardise: bool = True,
    ) -> None:
        if not path:
            raise InputError("`path` must name a file of sequences; got none. Pass an .npz, .npy, .csv or .parquet.")
        check_name("kind", kind, ("auto", "regression", "classification"))
        check_name("answers", answers, ("every", "last"))
        self.answers = "last" if answers == "last" else "every"
        every = self.answers == "every"
        loaded = load(Path(path), Path(targets) if targets else None, target, group, every)
        if window and not every:
            raise InputError('`window` needs an answer at every step; got answers="last". Leave one of them out.')
        self.path, self.targets, self.target, self.group = path, targets, target, group
        self.window, self.valid, self.test, self.standardise = window, valid, test, standardise
        self.sequences, self.splits = _shared_out(loaded, check_size("window", window, minimum=0), valid, test)
        self._set_inputs()
        self._set_asked(kind)

    def data_files(self) -> list[Path]:
        return [Path(file) for file in (self.path, self.targets) if file]

    def _set_inputs(self) -> None:
        """Standardise the inputs, if set."""
        steps = np.concatenate([self.sequences.inputs[member] for member in self.splits["train"]]).astype(np.float64)
        self.input_size = steps.shape[1]
        self.mean: NDArray[Any] = np.zeros(self.input_size)
        self.scale: NDArray[Any] = np.ones(self.input_size)
        if self.standardise:
            self.mean, self.scale = _spread(steps)
        self.inputs = [(part - self.mean) / self.scale for part in self.sequences.inputs]
        _check_range("inputs", self.inputs)

    def _set_asked(self, kind: str) -> None:
        """Classes become indices into `classes`; numbers stay as they are."""
        joined = np.concatenate([np.atleast_2d(part) for part in self.sequences.targets])
        whole = joined.dtype.kind in "biuUSO"
        self.kind = kind if kind != "auto" else "classification" if whole else "regression"
        if self.kind == "classification":
            if joined.shape[1] != 1:
                raise InputError(
                    f"classification must have one target; got {joined.shape[1]}. Name one, or pass kind='regression'."
                )
            self.classes = np.unique(joined)
            self.output_size, self.metric, self.higher_is_better = len(self.classes), "accuracy", True
            self.asked = [np.searchsorted(self.classes, part[..., 0]) for part in self.sequences.targets]
        else:
            if joined.dtype.kind not in "biuf" or not np.isfinite(joined.astype(np.float64)).all():
                raise InputError(
                    "targets of a regression must be finite numbers; got others. "
                    "Correct them, or pass kind='classification'."
                )
            self.output_size = joined.shape[1]
            self.asked = [part.astype(np.float64) for part in self.sequences.targets]
            _check_range("targets of a regression", self.asked)

    def assemble(self, members: NDArray[Any]) -> Batch:
        lengths = torch.tensor([len(self.inputs[member]) for member in members])
        inputs = _padded([self.inputs[member] for member in members], 0.0)
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
        x = np.concatenate([self.inputs[member][last] for member in members])
        some = [self.asked[member] for member in members]
        return np.pad(x, ((0, 0), (0, 1)), constant_values=1.0), (
            np.stack if self.answers == "last" else np.concatenate
        )(some)


def _spread(steps: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean and deviation of each column, 1 for that of a constant.

    Columns are first scaled to about 1 by a power of two, which is exact: squares of 1e300 overflow.
    """
    unit = 2.0 ** (np.frexp(np.abs(steps).max(0))[1] - 1)
    deviation = (steps / unit).std(0)
    return (steps / unit).mean(0) * unit, np.where(deviation > 0, deviation * unit, 1.0)


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
    windows = Sequences(
        [sequences.inputs[owner][steps] for owner, steps in cut],
        [sequences.targets[owner][steps] for owner, steps in cut],
    )
    if count < 3:
        return windows, in_order(np.arange(len(cut)), valid, test)
    owners = np.array([owner for owner, _ in cut])
    parts = divided(count, valid, test)
    return windows, {part: np.flatnonzero(np.isin(owners, members)) for part, members in parts.items()}

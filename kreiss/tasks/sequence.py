"""A user's own sequences: regression or classification, at every step or at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from kreiss.errors import InputError, check_name
from kreiss.tasks.own import Own
from kreiss.tasks.sources.loading import load
from kreiss.tasks.sources.sequences import Choice


class Sequence(Own):
    """Sequences of a file or in memory, with numbers or classes to predict.

    Files:

    - `.npz` with `inputs` (N, T) or (N, T, D), `targets` (N, T), (N, T, K), (N,) or (N, K), optionally `lengths` (N,)
      and `mask` (N, T);
    - `.npy` with the inputs, and `targets` the path of another with the answers;
    - `.csv`, `.csv.gz` (first line: names) or `.parquet` (extra `parquet`): one row per step.

    In memory:

    - an array or tensor of inputs, or a list of arrays (T_i, D), with `targets` alike; a dict of arrays with the names
      of an .npz;
    - a pandas DataFrame, a dict of columns or a list of rows (dicts): one row per step; or a list of such tables, one
      per sequence.

    Sequences are split into training, validation and test by a fixed shuffle. Fewer than three sequences are cut into
    windows first, which are split in the order of time. Nothing is ever shuffled within a sequence.

    Classification is scored by cross-entropy and accuracy, regression by the squared error, averaged over all answers.
    The baseline is measured on the test part: for regression the affine map from the inputs of a step (the last one,
    for `answers="last"`) that is best on the training part; for classification the shares of the classes in the
    training part.

    Args:
        path: the file; in Python also data in memory, see above.
        inputs: columns that are inputs, as a list or separated by commas; by default all that are nothing else.
        targets: columns to predict, alike, by default "target"; with arrays, the array or .npy file of the answers.
        ignore: columns to leave out, alike. One called time, timestamp, date or datetime, in any case, is left out too
            unless `inputs` names it: it grows beyond all that was seen in training.
        group: column that identifies the sequence; without it a table is one sequence.
        mask: column (with arrays: an array of N × T) of the steps that count in the loss, those where it is not zero.
        missing: what a missing cell or NaN does: "error" names it; "mean" fills inputs with their mean in the training
            part; "drop" leaves out the step.
        kind: "regression" or "classification"; "auto" treats text and whole numbers as classes.
        answers: "every" step, or the "last" only (in a table, the value in a sequence's last row).
        window: cut sequences into consecutive windows of at most this many steps; 0 leaves them whole.
        valid: share of the sequences that is held out for validation.
        test: share of the sequences that is held out for the test.
        standardise: subtract the mean of each input and divide by its deviation, as measured in the training part.

    Example:
        >>> import numpy as np
        >>> from kreiss.tasks import Sequence
        >>> x = np.random.default_rng(0).normal(size=(50, 30, 3))
        >>> task = Sequence(x, targets=x.cumsum(1)[..., :1])
        >>> task.input_size, task.output_size, task.kind
        (3, 1, 'regression')
    """

    paths: ClassVar = {"path": (), "targets": ()}

    def __init__(
        self,
        path: str | Path | Any = "",
        *,
        inputs: str | list[str] | None = None,
        targets: str | Path | list[str] | Any = None,
        ignore: str | list[str] = "",
        group: str = "",
        mask: str | Any = None,
        missing: str = "error",
        kind: str = "auto",
        answers: str = "every",
        window: int = 0,
        valid: float = 0.1,
        test: float = 0.1,
        standardise: bool = True,
    ) -> None:
        if isinstance(path, str | Path) and not str(path):
            raise InputError(
                "`path` must name a file of sequences; got none. Pass an .npz, .npy, .csv or .parquet; a run on data "
                "in memory is resumed by kreiss.fit(…, resume=True)."
            )
        check_name("answers", answers, ("every", "last"))
        check_name("missing", missing, ("error", "mean", "drop"))
        self.answers = "last" if answers == "last" else "every"
        every = self.answers == "every"
        for name, given in {"window": bool(window), "mask": mask is not None}.items():
            if given and not every:
                raise InputError(f'`{name}` needs an answer at every step; got answers="last". Leave one of them out.')
        found = load(path, Choice(inputs, targets, ignore, group, mask, missing, every))
        self.path = path if isinstance(path, str | Path) else ""
        self.targets, self.mask = _recorded(targets), _recorded(mask)
        self.inputs, self.ignore, self.group, self.missing, self.window = inputs, ignore, group, missing, window
        self._take(found, kind, valid, test, window, standardise, fill=missing == "mean")

    @classmethod
    def is_path(cls, option: str, value: Any) -> bool:
        return option == "path" or str(value).endswith(".npy")

    def data_files(self) -> list[Path]:
        named = {"path": self.path, "targets": self.targets}
        return [Path(file) for option, file in named.items() if file and self.is_path(option, file)]


def _recorded(given: Any) -> Any:
    """An option as the settings of a run hold it: names and paths, and no data in memory."""
    names = given if isinstance(given, list) else [given]
    return given if all(isinstance(name, str | Path) for name in names) else None

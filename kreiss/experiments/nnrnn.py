"""The nnRNN paper (Kerg et al. 2019): its tables and figures (001), its supplement (000), the authors' response (002).

The released code's retuned settings for characters are here too (release). Data only. A row of a hyper-parameter table
is a tuple in the order of its columns; `_row` writes it as settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kreiss.experiments.parts import PAPER, PARAMETERS, UNITS, Experiment, Published, Row, Scale

BOTH = (UNITS, PARAMETERS)
LABELS = {
    "nnrnn": "nnRNN", "exprnn": "expRNN", "lstm": "LSTM", "orthrnn": "RNN-orth", "eurnn": "EURNN", "rnn": "RNN",
}  # fmt: skip
EXACT = {"model.blocks": "exact"}

# model, hidden size, LR, LR orth, α, δ, T decay, V init; supplement, Tables 2, 3 and 5
Line = tuple[str, int, float, float | None, float, float | None, float | None, str | None]
TABLE2: tuple[Line, ...] = (
    ("nnrnn", 128, 5e-4, 1e-6, 0.99, 1e-4, 1e-6, "henaff"),
    ("exprnn", 128, 1e-3, 1e-4, 0.99, None, None, "henaff"),
    ("exprnn", 176, 1e-3, 1e-4, 0.99, None, None, "henaff"),
    ("lstm", 128, 5e-4, None, 0.99, None, None, None),
    ("lstm", 63, 1e-3, None, 0.99, None, None, None),
    ("orthrnn", 128, 2e-4, None, 0.99, None, None, "random"),
    ("eurnn", 128, 1e-3, None, 0.5, None, None, None),
    ("eurnn", 256, 1e-3, None, 0.5, None, None, None),
    ("rnn", 128, 1e-3, None, 0.9, None, None, "glorot"),
)
TABLE3: tuple[Line, ...] = (
    ("nnrnn", 512, 1.5e-4, 1.5e-5, 0.99, 0.15, 1e-4, "cayley"),
    ("exprnn", 512, 5e-4, 5e-5, 0.99, None, None, "cayley"),
    ("exprnn", 722, 5e-4, 5e-5, 0.99, None, None, "cayley"),
    ("lstm", 512, 5e-4, None, 0.9, None, None, None),
    ("lstm", 257, 5e-4, None, 0.9, None, None, None),
    ("orthrnn", 512, 5e-5, None, 0.99, None, None, "random"),
    ("eurnn", 512, 1e-4, None, 0.9, None, None, None),
    ("eurnn", 1024, 1e-4, None, 0.9, None, None, None),
    ("rnn", 512, 1e-4, None, 0.9, None, None, "glorot"),
)
TABLE5: dict[int, tuple[Line, ...]] = {
    150: (
        ("nnrnn", 1024, 8e-4, 8e-5, 0.9, 1.0, 1e-4, "cayley"),
        ("exprnn", 1024, 5e-3, 1e-4, 0.9, None, None, "cayley"),
        ("exprnn", 1386, 5e-3, 1e-4, 0.9, None, None, "cayley"),
        ("lstm", 1024, 8e-3, None, 0.9, None, None, None),
        ("lstm", 475, 1e-3, None, 0.99, None, None, None),
        ("orthrnn", 1024, 1e-4, None, 0.9, None, None, "random"),
        ("eurnn", 1024, 1e-3, None, 0.9, None, None, None),
        ("eurnn", 2048, 1e-3, None, 0.9, None, None, None),
        ("rnn", 1024, 1e-5, None, 0.9, None, None, "glorot"),
    ),
    300: (
        ("nnrnn", 1024, 8e-4, 6e-5, 0.9, 1e-4, 1e-4, "cayley"),
        ("exprnn", 1024, 5e-3, 1e-4, 0.9, None, None, "cayley"),
        ("exprnn", 1386, 5e-3, 1e-4, 0.9, None, None, "cayley"),
        ("lstm", 1024, 8e-3, None, 0.9, None, None, None),
        ("lstm", 475, 3e-3, None, 0.9, None, None, None),
        ("orthrnn", 1024, 1e-4, None, 0.9, None, None, "cayley"),
        ("eurnn", 1024, 1e-3, None, 0.9, None, None, None),
        ("eurnn", 2048, 1e-3, None, 0.9, None, None, None),
        ("rnn", 1024, 1e-5, None, 0.9, None, None, "glorot"),
    ),
}  # fmt: skip

COPY = {"task": "copy", "task.delay": 200, "batch": 10, "steps": 1500}
# permutation, epochs, the start of a network on characters and the halving of rates after an epoch without improvement
# are not printed; they are those of the release
PIXELS = {"task": "pixels", "task.images": "mnist", "task.permutation": 1234, "batch": 100, "epochs": 100}
CHARACTERS = {
    "task": "characters", "task.text": "ptb", "embedding": 200, "batch": 128, "epochs": 100, "model.start": "release",
    "schedule": "plateau", "schedule.factor": 0.5,
}  # fmt: skip

# Table 1 (bits) and supplement Table 4 (accuracy): (model, hidden size) → chunk → value, standard error
BITS = {
    ("rnn", 1024): {150: (2.89, 0.002), 300: (2.90, 0.0016)},
    ("orthrnn", 1024): {150: (1.62, 0.004), 300: (1.66, 0.006)},
    ("eurnn", 2048): {150: (1.61, 0.001), 300: (1.62, 0.001)},
    ("eurnn", 1024): {150: (1.69, 0.001), 300: (1.68, 0.001)},
    ("exprnn", 1386): {150: (1.49, 0.008), 300: (1.52, 0.001)},
    ("exprnn", 1024): {150: (1.51, 0.005), 300: (1.55, 0.001)},
    ("nnrnn", 1024): {150: (1.47, 0.003), 300: (1.49, 0.002)},
    ("lstm", 1024): {150: (1.37, 0.003)},
}
SHARES = {
    ("rnn", 1024): {150: (0.4001, 0.00026), 300: (0.3997, 0.00025)},
    ("orthrnn", 1024): {150: (0.6629, 0.0007), 300: (0.6553, 0.0009)},
    ("eurnn", 2048): {150: (0.6568, 0.00002), 300: (0.6555, 0.00002)},
    ("eurnn", 1024): {150: (0.6401, 0.00002), 300: (0.642, 0.00003)},
    ("exprnn", 1386): {150: (0.6807, 0.0015), 300: (0.6758, 0.0004)},
    ("exprnn", 1024): {150: (0.6751, 0.0011), 300: (0.6689, 0.00024)},
    ("nnrnn", 1024): {150: (0.6878, 0.000006), 300: (0.6852, 0.000004)},
}

MIXED = "Accuracies are printed in per cent; some of their errors are so small (0.0006) that they may be shares."

# what is ambiguous, by model
NOTES = {
    "eurnn": "Units are complex: N of them give the readout 2N real features, twice as many as others have at equal "
    "units. The capacity is not published: ours is tunable with capacity 2. With it the larger network has far fewer "
    "parameters than the others of its column. The text cites another paper for EURNN than Jing et al.",
    "rnn": "modReLU as the supplement says of all networks without gates. At 300 steps ±0.0016 is printed for equal "
    "parameters and ±0.002 for equal units, of one and the same network.",
    "lstm": "torch's initial values in place of Glorot normal. The published size of 63 on the copy task counts the "
    "layer without its readout.",
    "nnrnn": "Blocks as printed in eq. (5), which do not control the eigenvalues; δ multiplies the sum over blocks.",
}
NO_EPOCHS = (
    "The number of epochs and the permutation are not printed; 100 and RandomState(1234) are the release's, whose "
    "validation images are drawn at random, where ours are the last 10,000."
)


def _row(task: Mapping[str, Any], line: Line) -> dict[str, Any]:
    """A line of a hyper-parameter table as settings."""
    model, hidden, lr, orthogonal, alpha, radius, decay, init = line
    settings: dict[str, Any] = {
        **task, "model": model, "hidden": hidden, "optimiser": "rmsprop", "lr": lr, "orthogonal_lr": orthogonal,
        "optimiser.alpha": alpha, "optimiser.radius_penalty": radius, "optimiser.coupling_decay": decay,
        "model.init": init,
        "model.blocks": "paper" if model == "nnrnn" else None,
        "model.nonlinearity": "modrelu" if model == "rnn" else None,
    }  # fmt: skip
    return {name: value for name, value in settings.items() if value is not None}


def _table(task: Mapping[str, Any], lines: tuple[Line, ...], ending: str = "") -> tuple[Row, ...]:
    """Rows of a hyper-parameter table, named by model and size."""
    return tuple(
        Row(
            f"{line[0]}-{line[1]}{ending}",
            LABELS[line[0]],
            _row(task, line),
            note=NOTES.get(line[0], ""),
            scaled=_rates(line[0], task["task.chunk"]) if task["task"] == "characters" else {},
        )
        for line in lines
    )


def _curves(
    task: Mapping[str, Any], lines: tuple[Line, ...], column: str, sizes: tuple[int, ...], count: float | None
) -> tuple[Row, ...]:
    """Curves of a figure: one per model, at the size of the column; and nnRNN with exact blocks, which is ours."""
    rows: list[Row] = []
    for line in lines:
        model, hidden = line[:2]
        if hidden in sizes or model in ("nnrnn", "orthrnn", "rnn"):
            known = count if model != "eurnn" else None
            settings, note = _row(task, line), NOTES.get(model, "")
            rows.append(Row(model, LABELS[model], settings, (column,), parameters=known, note=note))
    first = rows[0]
    exact = Row(
        "nnrnn-exact", "nnRNN, exact blocks", {**first.settings, **EXACT}, (column,), parameters=count, ours=True
    )
    return (first, exact, *rows[1:])


# ---------------------------------------------------------------- scales

SMOKE_MODEL = {"hidden": 8, "batch": 4, "steps": 2, "eval_every": 2, "eval_batch": 50}
SMOKE_COPY = Scale(
    "seconds: T = 5, 8 units, 2 updates",
    {**SMOKE_MODEL, "task.delay": 5, "task.valid_sequences": 20, "task.test_sequences": 20},
)
SMOKE_PIXELS = Scale(
    "seconds: embedded digits, 8 units, 2 updates", {**SMOKE_MODEL, "task.images": "digits"}, {}, ("epochs",)
)
SMOKE_CHARACTERS = Scale(
    "seconds: embedded text, 8 units, chunks of 20, 2 updates",
    {**SMOKE_MODEL, "task.text": "shakespeare", "task.chunk": 20, "task.streams": 400, "embedding": 8,
     "task.valid": 0.01, "task.test": 0.01},
    {},
    ("epochs",),
)  # fmt: skip
LAPTOP_COPY = Scale("as published: T = 200, 1,500 updates of 10, every size as printed; about a minute a run")
SIZES_64 = {512: 64, 722: 88, 257: 32, 1024: 128}
REGIME = {"optimiser": "adam", "optimiser.clip_norm": 1.0, "optimiser.eps": 1e-8}
LAPTOP_PIXELS = Scale(
    "real MNIST; 64 units for 512 and 400 updates of 50 for 100 epochs of 100, which is 0.4 epochs; Adam with one rate "
    "and clipping for all; a quarter of a minute to three minutes a run",
    {**REGIME, "lr": 2e-3, "orthogonal_lr": 2e-4, "batch": 50, "steps": 400, "eval_every": 100},
    SIZES_64,
    ("epochs", "optimiser.alpha"),
)
DIGITS = Scale(
    "the embedded 8 × 8 digits (64 steps) for MNIST; 64 units for 512 and 560 updates of 50, which are 20 epochs; Adam "
    "with one rate and clipping for all; about ten seconds a run",
    {**REGIME, "lr": 2e-3, "orthogonal_lr": 2e-4, "batch": 50, "steps": 560, "eval_every": 56, "task.images": "digits"},
    SIZES_64,
    ("epochs", "optimiser.alpha"),
)
# the best of five rates after half an epoch, the same search for every network (benchmarks/learning_rates.py,
# results/tuning); a tenth of it for orthogonal factors. For equal parameters it is that of equal units, and for exact
# blocks with γ clamped that of the paper's blocks.
RATES = {
    150: {
        "rnn": 3e-3, "orthrnn": 1e-2, "eurnn": 1e-2, "exprnn": 3e-2, "nnrnn": 1e-2, "nnrnn-exact": 1e-2, "lstm": 3e-2,
        "nnrnn-1": 1e-2, "nnrnn-0.958": 1e-2,
    },
    300: {
        "rnn": 1e-4, "orthrnn": 1e-3, "eurnn": 3e-2, "exprnn": 3e-2, "nnrnn": 3e-2, "nnrnn-exact": 3e-2, "lstm": 3e-2,
        "nnrnn-1": 1e-2, "nnrnn-0.958": 3e-2,
    },
}  # fmt: skip
SIZES_128 = {1024: 128, 1386: 162, 475: 59, 2048: 256}
LAPTOP_CHARACTERS = Scale(
    "128 units for 1,024, embedding 50 for 200, one epoch of batches of 32 for 100 epochs of 128; Adam with one regime "
    "for all, and for each the best rate of a search; evaluations read 100 streams; half a minute to three minutes a "
    "run",
    {**REGIME, "batch": 32, "embedding": 50, "epochs": 1, "eval_every": 150, "task.streams": 100},
    SIZES_128,
    ("optimiser.alpha", "schedule", "schedule.factor"),
)  # fmt: skip
COPY_SCALES = {"paper": PAPER, "laptop": LAPTOP_COPY, "smoke": SMOKE_COPY}
PIXEL_SCALES = {"paper": PAPER, "laptop": LAPTOP_PIXELS, "digits": DIGITS, "smoke": SMOKE_PIXELS}
CHARACTER_SCALES = {"paper": PAPER, "laptop": LAPTOP_CHARACTERS, "smoke": SMOKE_CHARACTERS}


# ---------------------------------------------------------------- characters


def _characters(chunk: int) -> dict[str, Any]:
    return {**CHARACTERS, "task.chunk": chunk}


def _rates(model: str, chunk: int) -> dict[str, dict[str, float]]:
    """The rates of a row at laptop scale."""
    rate = RATES[chunk].get(model) or RATES[chunk][model.replace("-exact", "")]
    return {"laptop": {"lr": rate, "orthogonal_lr": round(rate / 10, 8)}}


def _character_rows(
    metric: str, numbers: Mapping[tuple[str, int], Mapping[int, tuple[float, float]]]
) -> tuple[Row, ...]:
    """The rows of Table 1, or of the supplement's Table 4: name-150 and name-300, and -parameters where it differs."""
    order = ("rnn", "orthrnn", "eurnn", "exprnn", "nnrnn", "lstm")
    rows: list[Row] = []
    for chunk, lines in TABLE5.items():
        for line in sorted(lines, key=lambda line: (order.index(line[0]), line[1])):
            rows.append(_character_row(metric, chunk, line, numbers.get(line[:2], {}).get(chunk)))
            if line[0] == "nnrnn":
                rows.append(_exact(rows[-1]))
    return tuple(rows)


def _character_row(metric: str, chunk: int, line: Line, number: tuple[float, float] | None) -> Row:
    model, hidden = line[:2]
    matched = model in ("eurnn", "exprnn", "lstm")
    columns = BOTH if not matched else (UNITS,) if hidden == 1024 else (PARAMETERS,)
    name = f"{model}-{chunk}" + ("-parameters" if columns == (PARAMETERS,) else "")
    note = NOTES.get(model, "")
    if model == "lstm" and number:
        note = f"Given in the text of §5.2 without its length, here under 150. {note}"
    counted = PARAMETERS in columns and model != "eurnn"
    return Row(
        name, LABELS[model], _row(_characters(chunk), line), columns,
        (Published(metric, *number),) if number else (), 1.32e6 if counted else None, note=note,
        scaled=_rates(model, chunk),
    )  # fmt: skip


def _exact(row: Row) -> Row:
    """The same with exact blocks, which the paper does not have."""
    name, chunk = row.name.replace("nnrnn", "nnrnn-exact"), row.settings["task.chunk"]
    return Row(
        name, f"{row.label}, exact blocks", {**row.settings, **EXACT}, row.columns,
        parameters=row.parameters, ours=True, scaled=_rates(name.removesuffix(f"-{chunk}"), chunk),
    )  # fmt: skip


# authors' response: chunk → γ → value, standard error, runs that failed
CLAMPED = {
    150: {1.0: (1.46, 0.005, 1), 0.958: (1.47, 0.005, 0)},
    300: {1.0: (1.49, 0.022, 2), 0.958: (1.49, 0.008, 0)},
}


def _clamped() -> tuple[Row, ...]:
    rows: list[Row] = []
    for chunk, values in CLAMPED.items():
        free = TABLE5[chunk][0]
        rows.append(_character_row("bpc", chunk, free, BITS[free[:2]][chunk]))
        for gamma, (value, error, failed) in values.items():
            settings = {**_row(_characters(chunk), TABLE5[chunk][0]), "model.radius": gamma}
            del settings["optimiser.radius_penalty"]
            published = (Published("bpc", value, error, failed=failed),)
            label, name = f"nnRNN, γ = {gamma:g}", f"nnrnn-{gamma:g}-{chunk}"
            rows.append(Row(name, label, settings, BOTH, published, 1.32e6, scaled=_rates(f"nnrnn-{gamma:g}", chunk)))
            rows.append(_exact(rows[-1]))
    return tuple(rows)


# the release's README: (row, chunk) → bits and accuracy, each with its error as printed
RELEASED = {
    ("nnrnn", 150): ((1.40, 0.003), (0.6989, 0.00001)), ("nnrnn", 300): ((1.42, 0.003), (0.6954, 0.00001)),
    ("exprnn", 150): ((1.45, 0.002), (0.6869, 0.000004)), ("exprnn", 300): ((1.48, 0.008), (0.6857, 0.000004)),
    ("exprnn-parameters", 150): ((1.43, 0.002), (0.6902, 0.000005)),
    ("exprnn-parameters", 300): ((1.44, 0.002), (0.6898, 0.000003)),
}  # fmt: skip


def _released() -> tuple[Row, ...]:
    """The release's retuned settings for characters: for nnRNN Adam and clipping, for expRNN other rates."""
    rows: list[Row] = []
    for chunk, decay, clip in ((150, 1e-5, 10.0), (300, 1e-6, 5.0)):
        settings = {
            **_characters(chunk), "model": "nnrnn", "hidden": 1024, "model.blocks": "paper", "model.init": "cayley",
            "optimiser": "adam", "optimiser.betas": (0.0, 0.9), "lr": 2e-3, "orthogonal_lr": 2e-4,
            "optimiser.radius_penalty": 1e-4, "optimiser.coupling_decay": decay, "clip_norm": clip,
        }  # fmt: skip
        note = "That clipping is by norm is our reading."
        published = _retuned("nnrnn", chunk)
        rows.append(
            Row(f"nnrnn-{chunk}", "nnRNN", settings, BOTH, published, 1.32e6, note=note, scaled=_rates("nnrnn", chunk))
        )
        rows += [_released_exprnn(chunk, column) for column in (UNITS, PARAMETERS)]
    return tuple(rows)


def _retuned(name: str, chunk: int) -> tuple[Published, ...]:
    bits, share = RELEASED[name, chunk]
    return (Published("bpc", *bits), Published("accuracy", *share))


def _released_exprnn(chunk: int, column: str) -> Row:
    """expRNN of the release's table; where it leaves the rate of the orthogonal factor blank it has the other rate."""
    units = column == UNITS
    lr, orthogonal = (8e-3, 8e-4) if (chunk, units) == (150, False) else (1e-3, None)
    line: Line = ("exprnn", 1024 if units else 1386, lr, orthogonal, 0.9, None, None, "cayley")
    name = f"exprnn-{chunk}" + ("" if units else "-parameters")
    return Row(
        name, "expRNN", _row(_characters(chunk), line), (column,), _retuned(name.replace(f"-{chunk}", ""), chunk),
        None if units else 1.32e6, note="A rate of the orthogonal factor is given for 1,386 units at 150 steps only.",
        scaled=_rates("exprnn", chunk),
    )  # fmt: skip


def _learned(metric: str, value: float | None, settings: Mapping[str, Any]) -> Row:
    published = (Published(metric, value),) if value is not None else ()
    scaled = _rates("nnrnn", settings["task.chunk"]) if settings["task"] == "characters" else {}
    return Row("nnrnn", "nnRNN", settings, published=published, note="γ̄ is read as the mean |λ| of V.", scaled=scaled)


KERG = "kerg2019"
COPY_UNITS = _curves(COPY, TABLE2, UNITS, (128,), None)
COPY_PARAMETERS = _curves(COPY, TABLE2, PARAMETERS, (176, 63, 256), 18_900.0)
PIXEL_UNITS = _curves(PIXELS, TABLE3, UNITS, (512,), None)
PIXEL_PARAMETERS = _curves(PIXELS, TABLE3, PARAMETERS, (722, 257, 1024), 269_000.0)

EXPERIMENTS = (
    Experiment(
        "001/fig2-copy", KERG, "Fig. 2, left", "Copy task, T = 200, equal units (N = 128)", "loss", COPY_UNITS,
        COPY_SCALES, claim="Orthogonal networks and nnRNN solve the task quickly; LSTM struggles, RNN fails.",
        note="Curves without numbers. 1,500 updates as in the released code's figure.",
    ),
    Experiment(
        "000/fig4-copy", KERG, "supplement, Fig. 4, left", "Copy task, T = 200, equal parameters (18.9K)", "loss",
        COPY_PARAMETERS, COPY_SCALES, claim="Little difference from equal units.", note="Curves without numbers.",
    ),
    Experiment(
        "001/fig2-psmnist", KERG, "Fig. 2, right", "Permuted sequential MNIST, equal units (N = 512)", "accuracy",
        PIXEL_UNITS, PIXEL_SCALES, split="valid", note=f"Curves without numbers. {NO_EPOCHS}",
        claim="nnRNN matches orthogonal networks; RNN and LSTM are worse.",
    ),
    Experiment(
        "000/fig4-psmnist", KERG, "supplement, Fig. 4, right", "Permuted sequential MNIST, equal parameters (269K)",
        "accuracy", PIXEL_PARAMETERS, PIXEL_SCALES, split="valid", note=f"Curves without numbers. {NO_EPOCHS}",
        claim="As with equal units.",
    ),
    Experiment(
        "001/table1", KERG, "Table 1", "Penn Treebank characters, bits per character, truncated at 150 and 300 steps",
        "bpc", _character_rows("bpc", BITS), CHARACTER_SCALES,
        claim="nnRNN is best of the networks without gates, for equal units by more.",
    ),
    Experiment(
        "000/table4", KERG, "supplement, Table 4", "The same networks as in Table 1, accuracy", "accuracy",
        tuple(row for row in _character_rows("accuracy", SHARES) if row.settings["model"] != "lstm"), CHARACTER_SCALES,
        note=MIXED,
    ),
    Experiment(
        "002/table1", KERG, "authors' response, table", "Penn Treebank characters with γ clamped", "bpc", _clamped(),
        CHARACTER_SCALES, claim="γ = 1 is best where it converges; γ = 0.958 equals trained γ.",
        note="At 150 steps δ = 1 holds trained γ so near 1 that it is hardly another network than γ = 1.",
    ),
    Experiment(
        "004/appA-fig3", KERG, "thesis, App. A, Fig. 3", "Gradient norms on characters, γ trained and clamped", "bpc",
        tuple(row for row in _clamped() if row.name.endswith("-150") and not row.ours), CHARACTER_SCALES,
        claim="Gradients behave nicely during backpropagation and throughout training.",
        note="Also the figure of the authors' response. The length is not printed; 150 is ours. Runs of these rows are "
        "drawn by `kreiss figure thesis/appA-fig3 LABEL=RUN …`.",
    ),
    Experiment(
        "release/ptb", KERG, "released code, notes", "Penn Treebank characters, settings retuned after publication",
        "bpc", _released(), CHARACTER_SCALES, note=f"Values are those of the release's README. {MIXED}",
        claim="Retuned, nnRNN improves by more than expRNN and stays ahead of it.",
    ),
    Experiment(
        "001/fig3-copy", KERG, "Fig. 3(a)", "Learned Schur form on the copy task", "modulus_mean",
        (_learned("modulus_mean", 1.0, COPY_UNITS[0].settings),), COPY_SCALES,
        claim="T ≈ 0, angles about uniform, γ̄ about 1.",
    ),
    Experiment(
        "001/fig3-ptb", KERG, "Fig. 3(b, c)", "Learned Schur form on characters", "modulus_mean",
        (_learned("modulus_mean", 0.958, _row(_characters(150), TABLE5[150][0])),), CHARACTER_SCALES,
        claim="A delay line and a filled triangle, aligned angles, γ̄ about 0.958.",
        note="The length is not printed; 150 is ours.",
    ),
    Experiment(
        "000/fig5", KERG, "supplement, Fig. 5", "Learned Schur form on permuted MNIST", "modulus_mean",
        (_learned("modulus_mean", None, PIXEL_UNITS[0].settings),), PIXEL_SCALES, claim="Between the two of Fig. 3.",
    ),
    Experiment("000/table2", KERG, "supplement, Table 2", "Settings of the copy task", "loss",
               _table(COPY, TABLE2), COPY_SCALES),
    Experiment("000/table3", KERG, "supplement, Table 3", "Settings of permuted MNIST", "accuracy",
               _table(PIXELS, TABLE3), PIXEL_SCALES, note=NO_EPOCHS),
    Experiment("000/table5", KERG, "supplement, Table 5", "Settings of characters", "bpc",
               tuple(row for chunk, lines in TABLE5.items() for row in _table(_characters(chunk), lines, f"-{chunk}")),
               CHARACTER_SCALES),
)  # fmt: skip

# what is computed and not trained: name → place in the paper, title, command
COMPUTED = {
    "001/fig1a": ("Fig. 1(a)", "The Schur form Θ(α, β, d) and its modes", "kreiss figure 001/fig1a"),
    "001/fig1b": ("Fig. 1(b)", "Transients of Θ(α, β, 0)", "kreiss figure 001/fig1b"),
    "001/fig1c": ("Fig. 1(c)", "Fisher memory curves of Θ(α, β, d)", "kreiss figure 001/fig1c"),
    "002/fig1": ("authors' response, figure", "Gradients through time and training", "kreiss figure 002/fig1 --train"),
    "000/table6": ("supplement, Table 6", "Sums of Fisher memory curves", "kreiss.analysis.fisher_memory()"),
}

"""Kerg's thesis (2022), chapter 4 and App. B (004): tasks that recall symbols, with attention over past states.

Data only. Table B.3 (copy) and B.4 (denoise) print the optimiser, the rate, the nonlinearity, ν and ρ of some networks.
The size of 128, batches of 10, 200,000 updates and clipping at norm 1 are those of the authors' public code. What
neither says is ours, and the note of the row says so. ν is `short` here and ρ is `relevant`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kreiss.experiments.parts import PAPER, Experiment, Published, Row, Scale

THESIS = "kerg2022"
LABELS = {
    "orthrnn": "orth-RNN", "exprnn": "expRNN", "memrnn": "MemRNN", "relrnn": "RelRNN", "lstm": "LSTM", "goru": "GORU",
    "hdetach": "h-detach", "sab": "SAB", "rellstm": "RelLSTM",
}  # fmt: skip
COMMON = {"hidden": 128, "batch": 10, "steps": 200_000, "clip_norm": 1.0}
COPY = {"task": "copy", **COMMON}
DENOISE = {"task": "denoise", **COMMON}

RMSPROP = {"optimiser": "rmsprop", "optimiser.alpha": 0.99}
SCREENED = {"model.short": 10, "model.relevant": 10}
ORTHOGONAL = {**RMSPROP, "lr": 2e-4, "model.init": "henaff", "model.nonlinearity": "modrelu"}
SPARSE = {
    "optimiser": "adam", "lr": 1e-3, "model.attend_every": 2, "model.top": 10, "model.truncate": 10,
    "model.read_output": True,
}  # fmt: skip
DETACHED = {"optimiser": "adam", "lr": 1e-3, "model.probability": 0.5}
ADAM = {"optimiser": "adam", "lr": 2e-4}
# without gates or a constraint, states of modReLU can grow until gradients overflow
UNBOUNDED = {**RMSPROP, "lr": 2e-4, "model.nonlinearity": "modrelu", "model.init": "henaff", "on_nan": "skip"}

# settings of each network beyond those of the task: Tables B.3 and B.4, and ours where they are silent
ON_COPY: dict[str, dict[str, Any]] = {
    "orthrnn": ORTHOGONAL, "exprnn": ORTHOGONAL, "lstm": ADAM, "sab": SPARSE, "hdetach": DETACHED,
    "memrnn": {**ADAM, "model.nonlinearity": "tanh"},
    "relrnn": {**ADAM, "model.nonlinearity": "tanh", **SCREENED},
    "rellstm": {**ADAM, **SCREENED},
}  # fmt: skip
ON_DENOISE: dict[str, dict[str, Any]] = {
    "orthrnn": ORTHOGONAL, "exprnn": ORTHOGONAL, "lstm": ADAM, "sab": SPARSE, "goru": {**RMSPROP, "lr": 1e-3},
    "hdetach": DETACHED,
    "memrnn": UNBOUNDED, "relrnn": {**UNBOUNDED, **SCREENED},
    "rellstm": {**ADAM, **SCREENED},
}  # fmt: skip
SHARED = "The hyperparameters are not printed; those of {} are taken."
NOTES = {
    "memrnn": SHARED.format("RelRNN"),
    "rellstm": SHARED.format("LSTM, and ν = ρ = 10 of RelRNN,"),
    "sab": "The hyperparameters are not printed; Adam at 1e-3, attention every 2 steps, the top 10 and truncation at "
    "10 are the defaults of its authors' code, whose inputs are single numbers (69,898 parameters). The thesis speaks "
    "of a memory every 10 steps or so.",
    "lstm": "torch's two biases, 512 numbers more than the thesis' one.",
    "hdetach": "The hyperparameters are not printed; Adam at 1e-3 and p = 0.5 are those of its authors' code, whose "
    "inputs are single numbers (68,233 parameters).",
    "orthrnn": "The start of V is not printed; Henaff's rotations are taken.",
    "exprnn": "The start of V is not printed; Henaff's rotations are taken. One rate for all, as printed.",
}

STARTED = "V starts with Henaff's rotations, and updates whose gradients overflow are skipped: ours, not printed."


# ---------------------------------------------------------------- scales

# milliseconds of an update of ten sequences at T = 100; it grows with T, with full attention as its square
COST = {
    "orthrnn": 4, "exprnn": 4, "lstm": 10, "goru": 10, "relrnn": 10, "rellstm": 20, "memrnn": 15, "sab": 40,
    "hdetach": 25,
}  # fmt: skip
MOST = 40_000  # updates of a run at laptop scale
DECAYED = {"schedule": "cosine"}  # lets unbounded states settle before they overflow
SLOW = ("memrnn", "relrnn", "rellstm", "lstm")  # networks whose printed rate is too low for so few updates
SLOWEST = ("memrnn", "relrnn", "rellstm")  # to solve denoise
FASTER: dict[str, Any] = {"optimiser": "adam", "lr": 1e-3}


def updates(model: str, delay: int, minutes: int) -> int:
    """The most updates of a run at laptop scale, with two digits: so many minutes, or 40,000."""
    growth = ((delay + 20) / 120) ** (2 if model == "memrnn" else 1)
    most = min(MOST, round(60_000 * minutes / (COST[model] * growth)))
    digit = 10 ** max(len(str(most)) - 2, 0)
    return most // digit * digit


def laptop(model: str, delay: int, validations: int = 50) -> dict[str, Any]:
    """What changes for a row at laptop scale: at most so many updates, and the rate of slow networks."""
    most = updates(model, delay, 10)
    return {"steps": most, "eval_every": most // validations, **(FASTER if model in SLOW else {})}


def attending(model: str, delay: int, validations: int = 50) -> dict[str, Any]:
    """The same for a network with attention on denoise: twice the time, a cosine, at T = 100 at most 24,000 updates."""
    most = min(updates(model, delay, 20), 24_000 if delay <= 100 else MOST)
    return {"steps": most, "eval_every": most // validations, **FASTER, **DECAYED}


def mixed(model: str) -> dict[str, Any]:
    """The same with training batches of many delays, whose mean at T = 2000 is less than a quarter of T."""
    return {
        "steps": 24_000, "eval_every": 480, "task.shortest": 30,
        **(FASTER if model in SLOW else {}), **(DECAYED if model in SLOWEST else {}),
    }  # fmt: skip


UNTIL = {"stop_at": 0.995, "stop_metric": "accuracy"}
HELD_OUT = {"task.valid_sequences": 200, "task.test_sequences": 500}
RATES = "Adam at 1e-3 for LSTM and the attention networks, whose printed 2e-4 is too slow for so few updates"
LAPTOP = Scale(
    f"as published: T, 128 units, batches of 10; at most as many updates as take about ten minutes, and up to "
    f"40,000 for 200,000, stopped when 99.5 % of the symbols of a validation are right; networks with attention on "
    f"denoise: twenty minutes, at T = 100 up to 24,000 updates, and a cosine; {RATES}",
    {**UNTIL, **HELD_OUT},
)  # fmt: skip
MIXED = Scale(
    f"as published: 128 units, batches of 10, validated and tested at T; training batches have delays from 30 to T, "
    f"uniform in the logarithm; at most 24,000 updates for 200,000, stopped when 99.5 % of the symbols of a validation "
    f"are right; networks with attention have a cosine; {RATES}",
    {**UNTIL, **HELD_OUT},
)  # fmt: skip
STRICT = (
    "as published: T, 128 units, batches of 10; at most 24,000 updates for 200,000, with a cosine, stopped when 99.8 % "
    "of the symbols of a validation are right; 200 sequences tested at each delay; Adam at 1e-3"
)
ALMOST_ALL = {"stop_at": 0.998, "task.test_sequences": 200}
SMOKE = {
    "hidden": 8, "batch": 4, "steps": 2, "eval_every": 2, "eval_batch": 50, "task.delay": 5, "task.valid_sequences": 20,
    "task.test_sequences": 20,
}  # fmt: skip
SCALES = {"paper": PAPER, "laptop": LAPTOP, "smoke": Scale("seconds: T = 5, 8 units, 2 updates", SMOKE)}
# stricter, because a network that has only just solved T = 100 need not have learned to wait longer
TRANSFER_SCALES = {
    "paper": PAPER,
    "laptop": Scale(
        f"as published: T = 100, 128 units, batches of 10; at most as many updates as take about ten minutes, and up "
        f"to 40,000 for 200,000, stopped at a loss of 1e-4, which is 0.0012 nats a symbol; 200 sequences tested at "
        f"each delay; {RATES}",
        {"stop_at": 1e-4, "task.valid_sequences": 200, "task.test_sequences": 200},
    ),
    "smoke": Scale("seconds: T = 5, tested at 8 and 13 too, 8 units, 2 updates", {**SMOKE, "task.test_delays": "8,13"}),
}  # fmt: skip


# ---------------------------------------------------------------- Table 4.1: transfer

DELAYS = (200, 400, 2000, 5000)
TRANSFER = {  # accuracy in per cent at T = 100 and at each of the delays; None for out of memory
    "orthrnn": (99, 4, 16, 10, 0), "exprnn": (100, 86, 73, 58, 50), "memrnn": (99, 99, 99, 92, None),
    "relrnn": (100, 99, 99, 99, 99), "lstm": (99, 64, 48, 19, 14), "hdetach": (100, 91, 77, 51, 42),
    "sab": (99, 95, 95, 95, 95), "rellstm": (100, 99, 99, 99, 99),
}  # fmt: skip
ONLY_HERE = {
    "memrnn": "Out of memory (OOM) at T = 5000 in the table; there it is not tested here either.",
    "orthrnn": "4 % and 0 % are fewer than the eighth that a guess gets.",
}
BEYOND = {"orthogonal": "screened expRNN", "schur": "screened nnRNN"}  # V of a RelRNN by its set
EXTENDED = "Not in the thesis: RelRNN with its recurrent matrix in a set; a tenth of the rate for orthogonal factors."


def _transfer(model: str, values: tuple[int | None, ...]) -> Row:
    names = ("accuracy", *(f"accuracy@{delay}" for delay in DELAYS))
    tested = ",".join(str(delay) for delay, value in zip(DELAYS, values[1:], strict=True) if value is not None)
    settings = {**COPY, "task.delay": 100, "task.test_delays": tested, "task.test_sequences": 10_000, "model": model}
    published = tuple(Published(n, value / 100) for n, value in zip(names, values, strict=True) if value is not None)
    note = " ".join(note[model] for note in (NOTES, ONLY_HERE) if model in note)
    return Row(
        model, LABELS[model], {**settings, **ON_COPY[model]}, (), published, note=note,
        scaled={"laptop": laptop(model, 100)},
    )  # fmt: skip


def _beyond(row: Row) -> tuple[Row, ...]:
    """The same RelRNN with its recurrent matrix orthogonal, or in Schur form."""
    return tuple(
        Row(
            row.name.replace("relrnn", f"relrnn-{kind}"), row.label.replace("RelRNN", label),
            {**row.settings, "model.recurrent": kind, "orthogonal_lr": row.settings["lr"] / 10}, row.columns, ours=True,
            note=EXTENDED,
            scaled={name: {**own, "orthogonal_lr": FASTER["lr"] / 10} for name, own in row.scaled.items()},
        )
        for kind, label in BEYOND.items()
    )  # fmt: skip


TRANSFER_ROWS = tuple(_transfer(model, values) for model, values in TRANSFER.items())
TRANSFER_ROWS += _beyond(next(row for row in TRANSFER_ROWS if row.name == "relrnn"))


# ---------------------------------------------------------------- Tables 4.2 and B.2, one run for each T

DENOISED: dict[str, dict[int, int | None]] = {  # T → accuracy in per cent
    "orthrnn": {100: 90, 300: 71, 500: 61, 1000: 29, 2000: 3},
    "exprnn": {100: 34, 300: 25, 500: 20, 1000: 16, 2000: 11},
    "memrnn": {100: 99, 300: 99, 500: 99, 1000: 99, 2000: None},
    "relrnn": {100: 100, 300: 99, 500: 99, 1000: 99, 2000: 99}, "lstm": {100: 82, 300: 41, 500: 33, 1000: 21, 2000: 15},
    "goru": {100: 92, 300: 93, 500: 91, 1000: 93, 2000: 73}, "sab": {100: 99, 300: 99, 500: 99, 1000: 99, 2000: 99},
    "rellstm": {100: 100, 300: 99, 500: 99, 1000: 99, 2000: 99},
}  # fmt: skip
LENGTHS = (100, 200, 300, 500, 1000, 2000)  # of Table B.2 and of both parts of Fig. B.2
COPIED = {
    "lstm": (100, 100, 100, 12, 12, 12), "orthrnn": (100, 100, 100, 100, 80, 11), "exprnn": (100,) * 6,
    "memrnn": (100, 100, 100, 100, 100, None), "sab": (100,) * 6, "relrnn": (100,) * 6, "rellstm": (100,) * 6,
}  # fmt: skip


def at_delay(task: dict[str, Any], model: str, delay: int, value: int | None, known: dict[str, Any]) -> Row:
    """A network at one T; without settings where the thesis ran out of memory."""
    name, label, columns = f"{model}-{delay}", f"{LABELS[model]}, T = {delay}", (f"T = {delay}",)
    if model == "memrnn" and delay == max(LENGTHS):
        return Row(name, f"{label}, out of memory", {}, columns, note="OOM in the table; not run here either.")
    validations = 10 if model == "memrnn" and delay >= 500 else 50
    notes = [*([NOTES[model]] if model in NOTES else []), *([STARTED] if "on_nan" in known[model] else [])]
    return Row(
        name, label, {**task, "task.delay": delay, "model": model, **known[model]}, columns,
        () if value is None else (Published("accuracy", value / 100),), note=" ".join(notes),
        scaled={
            "laptop": (attending if model in SLOWEST and task is DENOISE else laptop)(model, delay, validations),
            "mixed": mixed(model),
        },
    )  # fmt: skip


def _denoised(model: str, delays: tuple[int, ...], published: bool = True) -> tuple[Row, ...]:
    values = DENOISED[model] if published else {}
    return tuple(at_delay(DENOISE, model, delay, values.get(delay), ON_DENOISE) for delay in delays)


DENOISE_ROWS = tuple(row for model in DENOISED for row in _denoised(model, (100, 300, 500, 1000, 2000)))
DENOISE_ROWS += tuple(
    other for row in DENOISE_ROWS if row.name in ("relrnn-100", "relrnn-300") for other in _beyond(row)
)
DENOISE_ROWS += tuple(
    replace(row, ours=True, note=f"Not in the thesis. {row.note}")
    for row in (at_delay(DENOISE, "hdetach", delay, None, ON_DENOISE) for delay in (100, 300))
)


def _denoised_by_one(row: Row) -> Row:
    """A network trained at T = 100, tested at the other delays as well; those of Table 4.2 were trained at each."""
    tested = [delay for delay in (300, 500, 1000, 2000) if DENOISED[row.settings["model"]][delay] is not None]
    values = () if row.ours else tuple(DENOISED[row.settings["model"]][delay] for delay in tested)
    published = (
        Published(f"accuracy@{delay}", value / 100) for delay, value in zip(tested, values, strict=False) if value
    )
    return replace(
        row, name=row.name.removesuffix("-100"), label=row.label.removesuffix(", T = 100"), columns=(),
        settings={**row.settings, "task.test_delays": ",".join(map(str, tested))},
        published=(*row.published, *published),
    )  # fmt: skip


ONE_FOR_ALL = tuple(
    _denoised_by_one(row)
    for row in DENOISE_ROWS
    if row.name in ("memrnn-100", "relrnn-100", "rellstm-100", "relrnn-orthogonal-100", "relrnn-schur-100")
)
COPY_ROWS = tuple(
    at_delay(COPY, model, delay, value, ON_COPY)
    for model, values in COPIED.items()
    for delay, value in zip(LENGTHS, values, strict=True)
)


# ---------------------------------------------------------------- figures of App. B


def _traded(changed: str, sizes: tuple[int, ...], other: str) -> tuple[Row, ...]:
    """RelLSTM with one of ν and ρ changed and the other at 15."""
    letters = {"short": "ν", "relevant": "ρ"}
    settings = {**DENOISE, "task.delay": 1000, "model": "rellstm", **ADAM, f"model.{other}": 15}
    return tuple(
        Row(
            f"{changed}-{size}", f"RelLSTM, {letters[changed]} = {size}, {letters[other]} = 15",
            {**settings, f"model.{changed}": size}, (f"{letters[other]} = 15",), note=SHARED.format("LSTM"),
            scaled={"laptop": laptop("rellstm", 1000)},
        )
        for size in sizes
    )  # fmt: skip


TRADE_ROWS = _traded("relevant", (3, 8, 18, 25), "short") + _traded("short", (3, 8, 18, 25), "relevant")
CURVES = tuple(row for model in DENOISED for row in _denoised(model, LENGTHS, published=False))
NO_NUMBERS = "Curves without numbers."
SAME = "Sizes, batch, updates and clipping are not printed; those of the authors' public code are taken."
HALF = "The thesis writes s = h + c; half of that, as in the public code, is taken."

EXPERIMENTS = (
    Experiment(
        "004/table4.1", THESIS, "Table 4.1", "Transfer copy: trained at T = 100, tested at longer delays",
        "accuracy", TRANSFER_ROWS, TRANSFER_SCALES, note=f"{SAME} {HALF} The number of runs is not printed; 5 is ours.",
        claim="Networks without attention do not transfer; RelRNN and RelLSTM keep 99 % up to T = 5000.",
    ),
    Experiment(
        "004/table4.2", THESIS, "Table 4.2", "Denoise, one network for each T", "accuracy", DENOISE_ROWS,
        {**SCALES, "mixed": MIXED},
        note=f"{SAME} {HALF} The text has MemRNN out of memory beyond T = 500, the table, which is taken, at 2000.",
        claim="RelRNN and RelLSTM solve it at every T; networks without attention fall off, GORU last.",
    ),
    Experiment(
        "004/table4.2-transfer", THESIS, "after Table 4.2", "Denoise, one network for all T, trained at T = 100",
        "accuracy", ONE_FOR_ALL,
        {**SCALES, "laptop": replace(LAPTOP, about=STRICT, changes={**LAPTOP.changes, **ALMOST_ALL})},
        note=f"Not in the thesis: its numbers are those of networks trained at each T. {SAME} {HALF}",
    ),
    Experiment(
        "004/tableB.2", THESIS, "App. B, Table 2", "Copy, one network for each T", "accuracy", COPY_ROWS,
        SCALES,
        note=f"{SAME} {HALF} The text has MemRNN out of memory after T = 100, the table, which is taken, at 2000.",
        claim="expRNN, SAB, RelRNN and RelLSTM solve it at every T; orth-RNN up to 500, LSTM up to 300.",
    ),
    Experiment(
        "004/figB.1", THESIS, "App. B, Fig. 1", "Denoise, T = 1000: sizes of the two memories of RelLSTM",
        "loss", TRADE_ROWS, SCALES, panels=True,
        note="The figure shows gradient norms of these networks, without numbers. Its "
        f"caption says MemLSTM, which has neither ν nor ρ: it must be RelLSTM. {SAME}",
        claim="ρ = 3 makes gradients unstable, larger ρ do not; ν matters little.",
    ),
    Experiment(
        "004/figB.2-copy", THESIS, "App. B, Fig. 2, top", "Copy: cross-entropy against updates", "loss",
        COPY_ROWS, SCALES, split="valid", panels=True, claim="RelRNN needs the fewest updates.",
        note=f"{NO_NUMBERS} The same runs as Table 2 of App. B. {SAME}",
    ),
    Experiment(
        "004/figB.2-denoise", THESIS, "App. B, Fig. 2, bottom", "Denoise: cross-entropy against updates",
        "loss", CURVES, SCALES, split="valid", panels=True, claim="RelRNN needs the fewest updates.",
        note=f"{NO_NUMBERS} The same runs as Table 4.2, and T = 200. {SAME}",
    ),
    Experiment(
        "004/figB.3", THESIS, "App. B, Fig. 3", "Denoise: training curves of LSTM", "loss",
        _denoised("lstm", LENGTHS, published=False), SCALES, split="valid",
        note=f"{NO_NUMBERS} The delays are not said; those of Fig. 2 are taken, with the same runs.",
    ),
    Experiment(
        "004/figB.4", THESIS, "App. B, Fig. 4", "Denoise: training curves of GORU", "loss",
        _denoised("goru", LENGTHS, published=False), SCALES, split="valid",
        note=f"{NO_NUMBERS} The delays are not said; those of Fig. 2 are taken, with the same runs.",
    ),
)  # fmt: skip

"""What decides which states are kept: screening rules on denoise (ours), and selective copying (Gu & Dao 2023).

Data only. The thesis proposes other rules in 4.8 and tries none. Selective copying is published for state-space models,
whose numbers are quoted.
"""

from __future__ import annotations

from typing import Any

from kreiss.experiments.parts import PAPER, Experiment, Published, Row, Scale
from kreiss.experiments.thesis import DENOISE, ON_DENOISE, SCALES, THESIS, UNTIL, attending

# ---------------------------------------------------------------- screening rules

RULES = {
    "relevance": "attention received (the thesis)", "oldest": "first come", "random": "at random",
    "surprise": "surprise", "learned": "learned score",
}  # fmt: skip
SIZES = ((3, 10), (3, 5))  # ν and ρ: as many places as symbols, and half as many


def _screened(rule: str, short: int, relevant: int) -> Row:
    column = f"ν = {short}, ρ = {relevant}"
    sizes = {"model.short": short, "model.relevant": relevant, "model.screening": rule}
    return Row(
        f"{rule}-{relevant}", f"{RULES[rule]}, {column}",
        {**DENOISE, "task.delay": 100, "model": "relrnn", **ON_DENOISE["relrnn"], **sizes}, (column,), ours=True,
        scaled={"laptop": attending("relrnn", 100)},
    )  # fmt: skip


SCREENING_ROWS = tuple(_screened(rule, *sizes) for sizes in SIZES for rule in RULES)

# ---------------------------------------------------------------- selective copying

GU = "gu2023"
TASK = {
    "task": "selectivecopy", "layers": 2, "hidden": 64, "batch": 64, "steps": 400_000, "optimiser": "adam", "lr": 1e-4,
    "clip_norm": 1.0,
}  # fmt: skip
SELECTIVE_SCALES = {
    "paper": PAPER,
    "laptop": Scale(
        "256 steps for 4,096, batches of 10 for 64, at most 10,000 updates for 400,000, stopped when 99.5 % of the "
        "tokens of a validation are right; Adam at 1e-3 for 1e-4; up to ten minutes a run",
        {**UNTIL, "task.length": 256, "batch": 10, "steps": 10_000, "eval_every": 200, "lr": 1e-3,
         "task.valid_sequences": 200, "task.test_sequences": 500},
    ),
    "smoke": Scale(
        "seconds: 24 steps, 4 tokens, 8 units, 2 updates",
        {"task.length": 24, "task.tokens": 4, "hidden": 8, "batch": 4, "steps": 2, "eval_every": 2, "eval_batch": 50,
         "task.valid_sequences": 20, "task.test_sequences": 20},
    ),
}  # fmt: skip
QUOTED = "Quoted; state-space models are not in this library."


def _ours(model: str, label: str, **own: Any) -> Row:
    return Row(model, label, {**TASK, "model": model, **own}, ours=True)


SELECTIVE_ROWS = (
    Row("s4", "S4, no gate", {}, (), (Published("accuracy", 0.183),), note=QUOTED),
    Row("mamba", "Mamba (S6)", {}, (), (Published("accuracy", 0.998),), note=QUOTED),
    _ours("relrnn", "RelRNN", **{"model.short": 10, "model.relevant": 16, "model.nonlinearity": "tanh"}),
    _ours("lstm", "LSTM"),
    _ours("gru", "GRU"),
)

EXPERIMENTS = (
    Experiment(
        "004/screening", THESIS, "§4.8, proposed there", "Denoise, T = 100: which states a RelRNN keeps",
        "accuracy", SCREENING_ROWS, SCALES, seeds=3,
        note="Not in the thesis, which proposes surprise and a learned rule and tries neither. ν = 3, so that the "
        "short buffer hardly helps; with ρ = 10 there is a place for every symbol, with ρ = 5 for half of them, and "
        "the rest must be in the state.",
    ),
    Experiment(
        "mamba/table1", GU, "Table 1", "Selective copying: 16 tokens among 4,096 steps", "accuracy", SELECTIVE_ROWS,
        SELECTIVE_SCALES, seeds=3, claim="Models that select by content solve it, those that do not fail.",
        note="Published networks have two layers of width 64 and are trained for 400,000 updates of 64 at a rate of "
        "1e-4; ours have the same number and width of layers, and Adam and clipping at 1 are ours. What the task fixes "
        "and what it leaves open is in `kreiss show selectivecopy`.",
    ),
)  # fmt: skip

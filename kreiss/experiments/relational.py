"""Kerg's thesis (2022), chapters 5 and 7 and App. C (004): relations between objects never seen. Data only.

Table C.1 prints sizes, 5,000 iterations (games: 2,500) and the rate. Adam, the sequences per iteration, and what each
variant is are those of the authors' public code. Figures print no numbers; the values of m are read off their captions.
Errors of Tables 5.1 and C.2 are standard deviations over 10 runs; here they are divided by √10.
"""

from __future__ import annotations

import math
from typing import Any

from kreiss.experiments.parts import PAPER, Experiment, Published, Row, Scale

THESIS = "kerg2022"
RUNS = 10
COMMON = {
    "optimiser": "adam", "lr": 5e-4, "steps": 5000, "eval_every": 500, "eval_batch": 500, "task.valid_sequences": 500,
    "task.test_sequences": 10_000,
}  # fmt: skip
SCALES = {
    "paper": PAPER,
    "laptop": Scale("500 iterations for 5,000", {"steps": 500, "eval_every": 100, "task.test_sequences": 2000}),
    "smoke": Scale(
        "seconds: 2 updates of 8 sequences",
        {"steps": 2, "eval_every": 2, "batch": 8, "task.valid_sequences": 20, "task.test_sequences": 20},
    ),
}

# ---------------------------------------------------------------- networks

# name → label, settings beyond its name
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "corelnet": ("CoRelNet", {}),
    "corelnet-t": ("CoRelNet-T", {}),
    "esbn": ("ESBN", {}),
    "transformer": ("Transformer", {}),
    "predinet": ("PrediNet", {}),
    "lstm": ("LSTM", {"hidden": 512}),
    "rn": ("RN", {}),
    "ntm": ("NTM", {}),
    "mnm": ("MNM", {}),
}
MAIN = ("corelnet", "corelnet-t", "esbn", "transformer", "predinet", "lstm", "rn")
FIVE = ("corelnet", "corelnet-t", "esbn", "transformer", "predinet")
# networks of kreiss that the thesis does not have
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "relconvnet": ("RelConvNet", {}),
    "nnrnn": ("nnRNN", {"hidden": 512, "clip_norm": 1.0}),
    "rellstm": ("RelLSTM", {"hidden": 256}),
}
# variant → network, label, settings
VARIANTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "corelnet-asymmetric": ("corelnet", "asymmetric CoRelNet", {"model.relation": "asymmetric"}),
    "corelnet-t-asymmetric": ("corelnet-t", "asymmetric CoRelNet-T", {"model.relation": "asymmetric"}),
    "esbn-asymmetric": ("esbn", "asymmetric ESBN", {"model.asymmetric": True}),
    "transformer-symmetric": ("transformer", "symmetric Transformer", {"model.symmetric": True}),
    "corelnet-cat": ("corelnet", "CoRelNet, cat", {"model.cat": True}),
    "esbn-cat": ("esbn", "ESBN, cat", {"model.cat": True}),
    "corelnet-random": ("corelnet", "CoRelNet, random encoder", {"model.encoder": "random"}),
    "corelnet-t-random": ("corelnet-t", "CoRelNet-T, random encoder", {"model.encoder": "random"}),
    "esbn-random": ("esbn", "ESBN, random encoder", {"model.encoder": "random"}),
    "corelnet-l1": ("corelnet", "CoRelNet, L1", {"model.l1": 1.0}),
    "esbn-l1": ("esbn", "ESBN, L1", {"model.l1": 1.0}),
    "corelnet-diff": ("corelnet", "CoRelNet diff", {"model.relation": "difference"}),
    "corelnet-mix": ("corelnet", "CoRelNet mix", {"model.relation": "mix", "model.query": "encoded"}),
    "corelnet-mix-normalised": ("corelnet", "CoRelNet mix, query after normalisation", {"model.relation": "mix"}),
    "corelnet-segments": ("corelnet", "CoRelNet, segments", {"model.segments": "2,2,2"}),
    "corelnet-plain": ("corelnet", "CoRelNet, no normalisation", {"model.normalisation": "none"}),
}  # fmt: skip
NOT_THERE = ("corelnet-mix-normalised", "corelnet-segments", "corelnet-plain")  # in the thesis

# ---------------------------------------------------------------- tasks

# name → title, settings, sequences per iteration, values of m; the last one is the most extreme
COGNITIVE: dict[str, tuple[str, dict[str, Any], int, tuple[int, ...]]] = {
    "samedifferent": ("Same/different", {}, 96, (0, 50, 85, 95, 98)),
    "rmts": ("Relational match-to-sample", {}, 96, (0, 50, 85, 95)),
    "dist3": ("Distribution of three", {}, 96, (0, 50, 85, 95)),
    "identityrules": ("Identity rules", {}, 96, (0, 50, 85, 95)),
}
ENHANCED: dict[str, tuple[str, dict[str, Any], int, tuple[int, ...]]] = {
    "samedifferent6": ("Same/different 6", {}, 384, (0, 98)),
    "rmts3": ("RMTS 3", {}, 192, (0, 94)),
    "identityrules4": ("Identity rules 4", {}, 224, (0, 94)),
    "identityrules4-missing": ("Identity rules 4, missing", {"task.variant": "missing"}, 160, (0, 94)),
    "identityrules4-flipped": ("Identity rules 4, flipped", {"task.variant": "flipped"}, 96, (94,)),
    "identityrules4-flipped-missing": (
        "Identity rules 4, flipped, missing", {"task.variant": "flipped-missing"}, 64, (94,),
    ),
    "distn": ("Distribution of ten", {"task.n": 10}, 96, (89,)),
    "distn-preserving": (
        "Distribution of ten, restricted as printed", {"task.n": 10, "task.restricted": "preserving"}, 32, (89,),
    ),
    "distn-mixing": (
        "Distribution of ten, restricted as in the code", {"task.n": 10, "task.restricted": "mixing"}, 32, (89,),
    ),
}  # fmt: skip
SPURIOUS: dict[str, tuple[str, dict[str, Any], int, tuple[int, ...]]] = {
    f"{name}-colour": (f"{title}, coloured", {"task.colour": True}, batch, (delays[-1],))
    for name, (title, _, batch, delays) in COGNITIVE.items()
}
SEPARATED: dict[str, tuple[str, dict[str, Any], int, tuple[int, ...]]] = {
    "separated": ("Same/different, colours apart", {}, 96, (0, 50, 85, 95, 98)),
}
COMPARED: dict[str, tuple[str, dict[str, Any], int, tuple[int, ...]]] = {
    "comparison": ("Comparison", {}, 96, (95,)),
    "comparison-transitive": ("Transitive comparison", {"task.transitive": True}, 96, (95,)),
}
EVERY = {**COGNITIVE, **ENHANCED, **SPURIOUS, **SEPARATED, **COMPARED}
UNSEEN = "accuracy@unseen"


def _row(task: str, network: str, held_out: int) -> Row:
    """A network, or a variant of one, on a task with so many glyphs held out."""
    _, options, batch, _ = EVERY[task]
    base, label, own = VARIANTS[network] if network in VARIANTS else (network, *{**NETWORKS, **OURS}[network])
    if network.endswith("-l1") and task.startswith("rmts"):
        own = {"model.l1": 5.0}
    settings = {
        **COMMON, "task": task.split("-")[0], "task.held_out": held_out, **options, "batch": batch, "model": base,
        **own,
    }  # fmt: skip
    ours = network in OURS or network in NOT_THERE
    return Row(f"{network}-{held_out}", label, settings, (f"m = {held_out}",), ours=ours)


def _figure(
    name: str, place: str, task: str, networks: tuple[str, ...], held: tuple[int, ...], **more: Any
) -> Experiment:
    rows = tuple(_row(task, network, m) for m in held for network in networks)
    note = "The figure prints no numbers. Test sets have 10,000 sequences for the public code's 1,000,000."
    return Experiment(
        f"004/{name}-{task}", THESIS, place, EVERY[task][0], UNSEEN, rows, SCALES, seeds=RUNS, note=note, **more
    )


ALONE = "Networks that decide from similarities alone generalise to unseen shapes; those that see the objects do not."
FIGURES: tuple[Experiment, ...] = (
    *(
        _figure("figC.6", "Fig. 5.3; App. C, Fig. 6", task, (*MAIN, *OURS), held, claim=ALONE)
        for task, (_, _, _, held) in COGNITIVE.items()
    ),
    *(
        _figure("figC.13", "App. C, Fig. 13", task, ("corelnet", "ntm", "mnm", "lstm", "rn"), held[-1:], claim=ALONE)
        for task, (_, _, _, held) in {**COGNITIVE, **dict(list(ENHANCED.items())[:4])}.items()
    ),
    *(
        _figure("figC.7", "Fig. 5.4, left; App. C, Fig. 7", task, ("corelnet", "corelnet-cat", "esbn", "esbn-cat"),
                held[-1:], claim="Seeing the objects as well hurts.")
        for task, (_, _, _, held) in COGNITIVE.items()
    ),
    *(
        _figure("figC.8", "Fig. 5.4, right; App. C, Fig. 8", task,
                ("corelnet", "corelnet-random", "corelnet-t", "corelnet-t-random", "esbn", "esbn-random"), held[-1:],
                claim="A random encoder is enough.")
        for task, (_, _, _, held) in COGNITIVE.items()
    ),
    *(
        _figure("figC.9", "Fig. 5.4, middle; App. C, Fig. 9", task,
                ("corelnet", "corelnet-asymmetric", "corelnet-t", "corelnet-t-asymmetric", "esbn", "esbn-asymmetric",
                 "transformer", "transformer-symmetric"),
                held[-1:], claim="A symmetric product is essential.")
        for task, (_, _, _, held) in COGNITIVE.items()
    ),
    *(
        _figure("figC.10", "Fig. 5.5; App. C, Figs. 10, 11 and 12", task,
                (*FIVE, "corelnet-random", "esbn-random", "corelnet-cat"), held,
                claim="CoRelNet generalises to unseen relations, unless essential ones are missing.")
        for task, (_, _, _, held) in list(ENHANCED.items())[:4]
    ),
    *(
        _figure(f"figC.{number}", f"App. C, Fig. {number}", task, ("corelnet", "esbn", "transformer"),
                ENHANCED[task][3])
        for number, task in (
            (1, "identityrules4-flipped"), (1, "identityrules4-flipped-missing"), (2, "distn"), (2, "distn-preserving"),
            (2, "distn-mixing"),
        )
    ),
    *(
        _figure("figC.3", "Fig. 5.6; App. C, Fig. 3", task,
                ("corelnet", "corelnet-random", "corelnet-l1", "esbn", "esbn-random", "esbn-l1", "transformer"), held,
                claim="A random encoder fails with spurious features; a learned one needs a strong penalty.")
        for task, (_, _, _, held) in SPURIOUS.items()
    ),
    _figure("figC.4", "App. C, Fig. 4", "separated", ("corelnet", "esbn", "transformer"), SEPARATED["separated"][3],
            claim="CoRelNet ignores colours that stand apart; ESBN and Transformer get worse as m grows."),
    *(
        _figure("fig7.2", "Fig. 7.2", task, ("corelnet", "corelnet-asymmetric", "corelnet-diff", "corelnet-mix",
                "corelnet-mix-normalised", "esbn", "esbn-asymmetric"), held,
                claim="Differences solve both comparisons; similarities cannot.")
        for task, (_, _, _, held) in COMPARED.items()
    ),
    *(
        _figure("fig7.3", "Fig. 7.3", task, ("corelnet", "corelnet-diff", "corelnet-mix", "corelnet-mix-normalised"),
                held[-1:], claim="Mix is decent on all, with a high variance on same/different and RMTS.")
        for task, (_, _, _, held) in COGNITIVE.items()
    ),
    _figure("segments", "5.5, not there", "rmts", ("corelnet", "corelnet-segments", "corelnet-plain"), (95,)),
)  # fmt: skip

# ---------------------------------------------------------------- Table C.3 and Fig. C.5: parameters

# task → m, T, units of CoRelNet-nhid, published parameters of CoRelNet, CoRelNet-nhid and ESBN
COUNTS: dict[str, tuple[int, int, int, int, int]] = {
    "samedifferent": (98, 285_313, 200_418, 1_910_760, 1_910_757),
    "rmts": (95, 71_328, 205_026, 1_910_754, 1_910_757),
    "dist3": (95, 34_258, 211_684, 1_911_784, 1_911_783),
    "identityrules": (95, 34_258, 211_684, 1_911_784, 1_911_783),
    "samedifferent6": (98, 71_328, 205_026, 1_910_760, 1_910_757),
    "rmts3": (94, 35_664, 211_170, 1_910_754, 1_910_757),
    "identityrules4": (94, 17_489, 223_974, 1_912_808, 1_912_809),
}
IMPOSSIBLE = "1,910,760 would need 71,328.25 hidden units; 71,328 give 1,910,754."


def _counted(task: str) -> tuple[Row, ...]:
    m, units, *published = COUNTS[task]
    rows = []
    for network, count in zip(("corelnet", "nhid", "esbn"), published, strict=True):
        base = _row(task, "corelnet" if network == "nhid" else network, m)
        own = {"model.hidden": units} if network == "nhid" else {}
        impossible = network == "nhid" and task == "samedifferent6"
        rows.append(
            Row(
                f"{task}-{network}", "CoRelNet-nhid" if network == "nhid" else base.label, {**base.settings, **own},
                (f"{EVERY[task][0]}, m = {m}",), parameters=count, counted=1_910_754 if impossible else None,
                note=IMPOSSIBLE if impossible else "",
            )
        )  # fmt: skip
    return tuple(rows)


PARAMETERS = Experiment(
    "004/tableC.3", THESIS, "App. C, Table 3 and Fig. 5", "Parameters of CoRelNet, CoRelNet-nhid and ESBN", UNSEEN,
    tuple(row for task in COUNTS for row in _counted(task)), SCALES, seeds=RUNS,
    claim="More parameters do not make CoRelNet worse.", note="The figure prints no accuracies.",
)  # fmt: skip

# ---------------------------------------------------------------- Tables 5.1 and C.2: games

HEXOS, STRIPES = "accuracy@hexos", "accuracy@stripes"
RULES = {
    "same": "Same", "between": "Between", "occurs": "Occurs", "xoccurs": "Xoccurs", "rowmatching": "Row matching",
    "colourshape": "Colour/shape", "leftof": "Left-of",
}  # fmt: skip
# network → rule → mean and standard deviation in per cent on hexominoes, and on stripes
GAMES: dict[str, dict[str, tuple[float, ...]]] = {
    "corelnet": {
        "same": (94.7, 5.4, 90.4, 9.0), "between": (96.6, 2.2, 93.1, 5.4), "occurs": (96.2, 2.2, 88.7, 5.3),
        "xoccurs": (92.2, 6.4, 83.6, 10.9), "rowmatching": (97.7, 0.8, 94.8, 1.3), "colourshape": (47.2, 3.7),
        "leftof": (99.2, 0.7),
    },
    "corelnet-t": {
        "same": (98.7, 0.5, 98.4, 0.6), "between": (91.9, 3.3, 87.0, 4.7), "occurs": (91.6, 4.6, 79.3, 12.1),
        "xoccurs": (91.7, 6.9, 85.4, 6.4), "rowmatching": (95.4, 5.1, 90.5, 5.2), "colourshape": (49.6, 0.8),
        "leftof": (97.6, 1.2),
    },
    "esbn": {
        "same": (60.9, 18.0, 60.5, 17.0), "between": (79.5, 2.7, 82.5, 4.5), "occurs": (74.3, 0.9, 73.3, 0.9),
        "xoccurs": (63.0, 0.8, 64.7, 2.1), "rowmatching": (81.1, 2.7, 76.8, 4.3), "colourshape": (31.2, 10.1),
        "leftof": (49.9, 0.3),
    },
    "predinet": {
        "same": (99.1, 0.5, 97.7, 1.5), "between": (94.4, 3.6, 92.4, 5.4), "occurs": (92.9, 3.3, 87.4, 6.5),
        "xoccurs": (67.2, 8.7, 61.3, 6.3), "rowmatching": (50.3, 0.5, 50.5, 0.5), "colourshape": (74.9, 10.6),
        "leftof": (94.9, 0.9),
    },
    "transformer": {
        "same": (96.3, 3.6, 93.6, 4.5), "between": (90.9, 4.2, 87.5, 6.4), "occurs": (95.9, 2.4, 88.7, 5.4),
        "xoccurs": (75.1, 11.9, 69.4, 13.0), "rowmatching": (50.3, 0.6, 50.4, 0.5), "colourshape": (89.1, 2.9),
        "leftof": (96.0, 1.9),
    },
    "mnm": {
        "same": (97.3, 1.5, 95.5, 2.0), "between": (93.6, 2.3, 90.2, 5.2), "occurs": (84.9, 2.8, 77.0, 4.5),
        "xoccurs": (73.8, 6.6, 70.6, 6.2), "rowmatching": (49.9, 0.3, 49.8, 0.6), "colourshape": (75.7, 12.1),
        "leftof": (97.5, 1.2),
    },
    "lstm": {
        "same": (96.4, 1.6, 90.3, 6.4), "between": (94.9, 3.3, 91.7, 4.5), "occurs": (92.2, 2.4, 79.8, 10.0),
        "xoccurs": (79.1, 2.8, 77.2, 5.9), "rowmatching": (50.1, 0.6, 50.2, 0.5), "colourshape": (80.1, 7.0),
        "leftof": (97.2, 1.2),
    },
    "ntm": {
        "same": (97.2, 1.7, 93.4, 5.3), "between": (96.3, 0.7, 93.5, 2.5), "occurs": (93.5, 8.1, 87.1, 11.0),
        "xoccurs": (84.2, 5.0, 81.7, 5.8), "rowmatching": (50.2, 0.5, 49.9, 0.5), "colourshape": (88.0, 2.4),
        "leftof": (97.5, 0.9),
    },
    "rn": {
        "same": (92.9, 2.8, 83.7, 10.2), "between": (73.6, 8.2, 54.5, 5.7), "occurs": (71.2, 6.6, 54.6, 4.0),
        "xoccurs": (65.7, 5.5, 61.7, 7.4), "rowmatching": (50.5, 0.3, 50.4, 0.4), "colourshape": (77.5, 9.2),
        "leftof": (51.0, 2.1),
    },
}  # fmt: skip
TESTED_AS = "The public code tests 1,000 batches of 32; here test sets have 10,000 sequences."


def _game(rule: str, network: str) -> Row:
    base, label, own = VARIANTS[network] if network in VARIANTS else (network, *{**NETWORKS, **OURS}[network])
    numbers = GAMES.get(network, {}).get(rule, ())
    published = tuple(
        Published(metric, round(numbers[at] / 100, 4), round(numbers[at + 1] / 100 / math.sqrt(RUNS), 5))
        for metric, at in ((HEXOS, 0), (STRIPES, 2))
        if at < len(numbers)
    )
    settings = {
        **COMMON, "task": "game", "task.rule": rule, "batch": 32, "steps": 2500, "eval_every": 250, "model": base,
        **own,
    }  # fmt: skip
    return Row(network, label, settings, (), published, ours=not numbers)


GAME_TABLES = tuple(
    Experiment(
        f"004/table5.1-{rule}", THESIS, "Table 5.1; App. C, Table 2", f"Relational games: {title.lower()}", HEXOS,
        tuple(_game(rule, network) for network in (*GAMES, "relconvnet", "corelnet-plain")), SCALES, seeds=RUNS,
        note=f"Objects come from our generator. {TESTED_AS} Published errors are standard deviations over 10 runs, "
        "here divided by √10.",
    )
    for rule, title in RULES.items()
)  # fmt: skip

EXPERIMENTS = (*FIGURES, PARAMETERS, *GAME_TABLES)

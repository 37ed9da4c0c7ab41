"""Faults that the suite must notice: 66 edits of one line each, and what runs the tests against them.

    python tests/mutants.py --clean     the named tests pass on the source as it is
    python tests/mutants.py             every mutant is made in a copy of the tracked files, and killed there

A mutant is killed if its tests fail on it. What tests may be cut without loss is answered by running this before and
after: no mutant may live that was killed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
KERNEL = "kreiss/recurrence/_kernel.so"  # built, not tracked
SECONDS = 300


class Mutant(NamedTuple):
    """One edit of one line.

    Attributes:
        name: what is wrong then.
        file: below kreiss/.
        before: a part of a line that stands in the file once.
        after: what stands there instead.
        tests: arguments of pytest that select the tests which should notice.
    """

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]


def of(*files: str, k: str = "") -> tuple[str, ...]:
    """Test files, and the names of tests in them."""
    return (*(f"tests/test_{file}.py" for file in files), *(("-k", k) if k else ()))


MUTANTS = [
    # ------------------------------------------------------------ linalg
    Mutant(
        "the logarithm loses rotations by pi",
        "linalg.py", "generator[second, first] = math.pi", "generator[second, first] = 0.0",
        of("linalg", "sets"),
    ),
    # ------------------------------------------------------------ sets
    Mutant(
        "a base point follows its module into half precision",
        "sets/base.py", "lambda tensor: _at_least_float32(fn, tensor)", "fn",
        of("contract", "sets", k="bfloat16 or dtype or half"),
    ),
    Mutant(
        "the gradient of negative eigenvalues has the wrong sign",
        "sets/schur.py", "single[: self.positive], -single[self.positive :]", "single",
        of("sets"),
    ),
    Mutant(
        "the written-out gradient of V = PMP' drops the product with the inverse",
        "sets/conjugation.py", "turn = x @ turn @ x.mT", "turn = x @ turn",
        of("contract", "sets", k="derivatives or grad"),
    ),
    Mutant(
        "rebasing leaves the skew numbers where they were",
        "sets/orthogonal/skew.py", "        free.zero_()", "        pass",
        of("training", "contract", k="rebas"),
    ),
    Mutant(
        "a product of rotations without its phases",
        "sets/unitary/products.py", "return h * factors[0]", "return h",
        of("complex", k="transcription or equation or factor"),
    ),
    Mutant(
        "a moved unitary base point keeps its rounding errors",
        "sets/unitary/methods.py", "torch.view_as_real(linalg.newton_schulz(moved) if project else moved)",
        "torch.view_as_real(moved)",
        of("complex", k="rounding_alone"),
    ),
    Mutant(
        "the gradient of the spectral radius of a complex pair",
        "sets/radius.py", "value.real * s.real + value.imag * s.imag", "value.real * s.real - value.imag * s.imag",
        of("enrnn"),
    ),
    # ------------------------------------------------------------ recurrence
    Mutant(
        "a sequence runs one step beyond its length",
        "recurrence/unroll.py", "_held(t < lengths, new, state, batch_dim)",
        "_held(t <= lengths, new, state, batch_dim)",
        of("contract", k="packed or own_end"),
    ),
    Mutant(
        "an exported scan never runs backwards",
        "recurrence/unroll.py", "scan(advance, first, inputs, dim=0, reverse=reverse)",
        "scan(advance, first, inputs, dim=0, reverse=False)",
        of("export", k="directions or deep"),
    ),
    Mutant(
        "a state enters the relevant set on an equal score",
        "recurrence/memory/reference.py", "(score > lowest)", "(score >= lowest)",
        of("memory_layers", k="equal_scores"),
    ),
    Mutant(
        "a memory is never cleared between windows",
        "memory/base.py", "return state if self.carry_memory else self.cleared(state)", "return state",
        of("memory_layers", k="carries_the_memory"),
    ),
    Mutant(
        "a full memory may have fewer times than states",
        "layers/contract/states.py", "part.shape != like.shape", "part.dim() != like.dim()",
        of("memory_layers", k="differ_in_length"),
    ),
    Mutant(
        "the pieces of a last state use stale states",
        "recurrence/plain/fused.py", "if self.held != (first, last):", "if self.held == (0, 0):",
        of("stream", k="final_state or last_state"),
    ),
    Mutant(
        "compiled code takes the gradient of V with the wrong states, backwards",
        "recurrence/plain/operator.py", "torch.cat([states[1:], h0[None]]) if reverse",
        "torch.cat([h0[None], states[1:]]) if reverse",
        of("export", k="compiled_layer"),
    ),
    Mutant(
        "the gradient of the keep gate has the wrong sign",
        "recurrence/gated/loop.py", "here * (previous - candidate)", "here * (candidate - previous)",
        of("systems", k="written_out"),
    ),
    Mutant(
        "the pieces of a gated pass take the state after them for the one before",
        "recurrence/gated/fused.py", "before = states[first if reverse else last - 1]",
        "before = states[last - 1 if reverse else first]",
        of("gated_kernel", k="seam"),
    ),
    Mutant(
        "the gradient of V in the kernel of gates is that of W",
        "recurrence/gated/fused.py",
        "gates, matrix = (None, None) if self.grad_both is None else self.grad_both.split([2 * n, n])",
        "matrix, gates = (None, None) if self.grad_both is None else self.grad_both.split([n, 2 * n])",
        of("gated_kernel", k="equals_the_plain_loop"),
    ),
    Mutant(
        "an exported complex modReLU pairs the wrong neighbours",
        "recurrence/nonlinearity.py", "values.roll(-1, -1), values.roll(1, -1)",
        "values.roll(1, -1), values.roll(-1, -1)",
        of("export", k="at_any_time_and_batch or scurnn"),
    ),
    # ------------------------------------------------------------ layers
    Mutant(
        "lengths stay in the caller's order when outputs are packed again",
        "layers/contract/base.py", "out, lengths = out.index_select(1, order), lengths[order]",
        "out = out.index_select(1, order)",
        of("contract", k="packed"),
    ),
    Mutant(
        "one of torch's two biases is lost in conversion",
        "layers/contract/conversion.py", "biases = [biases[0] + biases[1]]", "biases = [biases[0]]",
        of("reference"),
    ),
    Mutant(
        "a stream keeps its own state when it is given another",
        "layers/contract/stream.py", "            current.copy_(h)", "            pass",
        of("stream"),
    ),
    # ------------------------------------------------------------ contracts, networks
    Mutant(
        "a frozen network goes on dropping out",
        "contracts.py", "copy.deepcopy(self).requires_grad_(False).eval()", "copy.deepcopy(self).requires_grad_(False)",
        of("training", "saving"),
    ),
    Mutant(
        "the last answer is read one step too late",
        "networks/recurrent.py", "hidden[lengths.to(hidden.device) - 1,",
        "hidden[lengths.to(hidden.device).clamp(max=len(hidden) - 1),",
        of("saving", "sequence"),
    ),
    Mutant(
        "a checkpoint gives its last weights for its best ones",
        "networks/saving.py", 'MODEL if at["update"] == content["updates"] else BEST_MODEL', "MODEL",
        of("runs", "hostile_runs", k="best"),
    ),
    Mutant(
        "an exported LSTM loses the bias inside",
        "networks/scanned.py", "u = u + inside", "u = u + 0 * inside",
        of("export", k="scan_computes"),
    ),
    Mutant(
        "a constrained matrix of torch's layers leaves a stale value behind in export",
        "networks/export/tracing.py", "            module._init_flat_weights()", "            pass",
        of("export", k="constrained"),
    ),
    Mutant(
        "the k-th largest score of a step is the one after it",
        "recurrence/memory/sparse_reference.py", "torch.where(above < top,", "torch.where(above <= top,",
        of("export", k="comparisons"),
    ),
    Mutant(
        "the metadata of a file start every part of a state from zero",
        "networks/export/states.py", "one if constant else values.tolist()", "0.0",
        of("export", k="description or different_numbers"),
    ),
    Mutant(
        "a state screened in C enters on an equal score",
        "networks/export/ccells.py", "if (!(score > s->scores[place]))", "if (!(score >= s->scores[place]))",
        of("export_c", k="equal_score"),
    ),
    Mutant(
        "reads in C are not cleared when a state is stored",
        "networks/export/ccells.py", 'reset = "    s->reads[at] = 0.0f;\\n" if reads else ""', 'reset = ""',
        of("export_c", k="every_rule"),
    ),
    # ------------------------------------------------------------ optim
    Mutant(
        "the penalty on radii is a mean where a sum is asked for",
        "optim/penalties.py", '(weight if reduction == "sum" else weight / len(off))', "weight / len(off)",
        of("training"),
    ),
    Mutant(
        "the mean square of a step on the manifold forgets by the wrong share",
        "optim/stiefel.py", 'numbers.square(), 1 - group["alpha"]', 'numbers.square(), group["alpha"]',
        of("complex", k="smoothing or step or descent"),
    ),
    # ------------------------------------------------------------ storage
    Mutant(
        "a new file does not reach the disk before it gets its name",
        "storage/files.py", "        os.fsync(file)", "        pass",
        of("runs", "reproduce", k="disk"),
    ),
    Mutant(
        "the checksum of records forgets the records before",
        "storage/seals.py", "zlib.crc32(text.encode(), before)", "zlib.crc32(text.encode())",
        of("records", "hostile_runs"),
    ),
    # ------------------------------------------------------------ tasks
    Mutant(
        "the cue of the copy task comes a step late",
        "tasks/copy.py", "inputs[-LENGTH - 1] = CUE", "inputs[-LENGTH] = CUE",
        of("tasks"),
    ),
    Mutant(
        "a state is carried over the edge of an epoch",
        "tasks/characters.py", "carries=place > 0", "carries=place >= 0",
        of("pixels_and_characters"),
    ),
    Mutant(
        "padding counts in a squared error",
        "tasks/losses.py", "torch.where(there, error, 0.0).square()", "error.square()",
        of("sequence", "frames"),
    ),
    Mutant(
        "a target that a mask leaves out counts",
        "tasks/losses.py", "there = ~batch.targets.isnan()", "there = batch.targets.isnan() | True",
        of("sequence", k="mask"),
    ),
    # ------------------------------------------------------------ preprocessing
    Mutant(
        "a missing input is filled with nothing",
        "preprocessing/record.py", "np.where(np.isnan(values), self.fill, values)", "np.nan_to_num(values)",
        of("sequence", "predict", k="missing"),
    ),
    Mutant(
        "pixels are read in the order of the image",
        "preprocessing/record.py", "values[list(self.order)] if self.order else values", "values",
        of("predict", k="on_the_data_of_the_task"),
    ),
    Mutant(
        "a sound of another rate is read as it is",
        "preprocessing/sound.py", "wave = resampled(rate, wave, self.rate)", "wave = wave",
        of("audio", k="rate"),
    ),
    Mutant(
        "sequences of one stream share a state",
        "prediction.py", "self.states[name] = self.stream.state", "self.states = {}",
        of("predict", k="one_by_one"),
    ),
    # ------------------------------------------------------------ training
    Mutant(
        "a solved run goes on",
        "training/scored.py", "or self.solved or impatient", "or impatient",
        of("runs", k="good_enough"),
    ),
    Mutant(
        "selective copying gives one cue for all tokens",
        "tasks/selectivecopy.py", "inputs[-self.tokens :] = self", "inputs[-self.tokens] = self",
        of("tasks", k="selective"),
    ),
    Mutant(
        "pieces of a batch weigh the same whatever their length",
        "training/loop.py", "loss = loss * (terms(piece, self.task.answers) / whole)", "loss = loss / count",
        of("runs", k="pieces"),
    ),
    Mutant(
        "gradients are averaged over processes although losses are shares",
        "training/loop.py", "loss * self.processes.count if self.processes.count > 1 else loss", "loss",
        of("commands", k="two_processes"),
    ),
    Mutant(
        "a resumed run draws other dropout",
        "training/checkpoint.py", 'torch.set_rng_state(tensors[f"generator.torch.{rank}"])', "pass",
        of("resume", k="killed_at"),
    ),
    Mutant(
        "a resumed run forgets its plateau",
        "training/optimisers.py", 'self.reduced, self.stale = state["reduced"], state["stale"]',
        'self.stale = state["stale"]',
        of("runs", "resume", k="schedule or killed_at"),
    ),
    # ------------------------------------------------------------ studies, experiments
    Mutant(
        "new results push out old ones",
        "studies/results.py", "{**read(path), **runs}", "{**runs}",
        of("reproduce", k="what_is_done or results"),
    ),
    Mutant(
        "what a row says of a scale gives way to what the scale says",
        "experiments/parts.py", "{**settings, **chosen.changes, **row.scaled.get(scale, {})}",
        "{**settings, **row.scaled.get(scale, {}), **chosen.changes}",
        of("experiments", "experiment_report"),
    ),
    Mutant(
        "a module that nobody has named is imported",
        "own.py", "if module not in TRUSTED:", "if not module:",
        of("own", k="imports_nothing"),
    ),
    Mutant(
        "the worst network is bold",
        "report/own.py", "max(means) if _higher(comparison, metric) else min(means)", "max(means)",
        of("compare", k="best_is_bold"),
    ),
    # ------------------------------------------------------------ analysis
    Mutant(
        "the departure of a complex pair adds where it should subtract",
        "analysis/departure.py", "np.abs(form[pairs, pairs + 1]) - np.abs(form[pairs + 1, pairs])",
        "np.abs(form[pairs, pairs + 1]) + np.abs(form[pairs + 1, pairs])",
        of("analysis_matrices"),
    ),
    Mutant(
        "Jacobians are multiplied in the wrong order",
        "analysis/network/jacobians.py", "product = jacobian @ product", "product = product @ jacobian",
        of("analysis_networks"),
    ),
    # ------------------------------------------------------------ report, commands, bench
    Mutant(
        "numbers agree only within one standard error",
        "report/comparison.py", "NEAR * math.hypot(*errors)", "math.hypot(*errors)",
        of("experiment_report"),
    ),
    Mutant(
        "a recording is always of the first episode",
        "report/recordings/episode.py", "environments.first = number", "environments.first = 0",
        of("agents_shown", k="recording_is"),
    ),
    Mutant(
        "values learn from normalised advantages",
        "rl/ppo.py", "target = gains + values if returns is None else returns", "target = gains + values",
        of("agents_shown", k="value_that"),
    ),
    Mutant(
        "an interrupted run ends like a finished one",
        "commands/words.py", '130 if run.state == "interrupted" else 0', "0",
        of("commands", k="130"),
    ),
    Mutant(
        "the roof counts the forward pass alone",
        "bench/roofline.py", "1e-6 * 6 * gates", "1e-6 * 2 * gates",
        of("bench", k="rates"),
    ),
    # ------------------------------------------------------------ relational
    Mutant(
        "similarities see later objects",
        "relational/corelnet.py", "device=products.device).triu(1)", "device=products.device).triu(2)",
        of("relational_networks"),
    ),
    Mutant(
        "the variance of a context is biased",
        "relational/parts.py", "(len(z) - 1)", "len(z)",
        of("relational_networks"),
    ),
    Mutant(
        "held-out glyphs are shown in training",
        "tasks/relational/glyphs.py", "SEEN: order[self.unseen :]", "SEEN: order[:]",
        of("relational_tasks"),
    ),
    Mutant(
        "the seed of a run does not choose the glyphs",
        "tasks/relational/glyphs.py", "other._choose(seed)", "other._choose(0)",
        of("relational_tasks", k="seed_of_the_run"),
    ),
    Mutant(
        "a second row does not have glyphs of its own",
        "tasks/relational/identity.py", "second = first + self.output_size // 2", "second = first + 1",
        of("relational_tasks"),
    ),
    Mutant(
        "metrics of unseen glyphs are called those of seen ones",
        "tasks/relational/base.py", 'return {f"{name}{part}": total', 'return {f"{name}": total',
        of("relational_tasks"),
    ),
]  # fmt: skip


def rooms() -> set[str]:
    """The rooms of the package that have mutants."""
    return {Path(mutant.file).parts[0].removesuffix(".py") for mutant in MUTANTS}


# ---------------------------------------------------------------- running


class Outcome(NamedTuple):
    """What became of one mutant.

    Attributes:
        name: of the mutant.
        killed: whether its tests failed.
        seconds: they took.
        said: the last line of pytest.
    """

    name: str
    killed: bool
    seconds: float
    said: str


@contextmanager
def copied() -> Iterator[Path]:
    """The tracked files, as they are now, in a folder of their own."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    new = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-standard", "tests"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        for name in {*listed.decode().split("\0"), *new.decode().split("\0"), KERNEL} - {""}:
            if (ROOT / name).is_file():
                target = Path(folder) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, target)
        yield Path(folder)


def apply(mutant: Mutant, root: Path) -> None:
    """Make the edit in a copy."""
    path = root / "kreiss" / mutant.file
    text = path.read_text()
    if text.count(mutant.before) != 1:
        raise ValueError(
            f"{mutant.file} has {mutant.before!r} {text.count(mutant.before)} times, and must have it once"
        )
    path.write_text(text.replace(mutant.before, mutant.after))


def tested(root: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Exit code and last words of pytest in a copy, after seeing that it is the copy which is imported."""
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    where = "import kreiss; print(kreiss.__file__)"
    home = subprocess.run(
        [sys.executable, "-c", where], cwd=root, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert Path(home).resolve().is_relative_to(root.resolve()), f"{home} is not the copy in {root}"
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=SECONDS, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return 1, f"no end after {SECONDS} s"
    said = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return done.returncode, (said or done.stdout.splitlines() or [done.stderr[-200:]])[-1 if not said else 0]


def outcome(mutant: Mutant, clean: bool) -> Outcome:
    """Whether the tests of a mutant fail on it, or with `clean` on the source as it is."""
    started = time.monotonic()
    with copied() as root:
        if not clean:
            apply(mutant, root)
        code, said = tested(root, mutant.tests)
    if code not in (0, 1):  # of pytest: nothing selected, or wrong arguments
        raise RuntimeError(f"pytest ended with {code} for {mutant.name!r}: {said}")
    return Outcome(mutant.name, code == 1, time.monotonic() - started, said)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], help="parts of names")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where to write the outcomes")
    parser.add_argument("--clean", action="store_true", help="run the tests without the mutants, which must pass")
    asked = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if not asked.only or any(part in mutant.name for part in asked.only)]
    outcomes = []
    with ThreadPoolExecutor(asked.jobs) as pool:
        for came in pool.map(lambda mutant: outcome(mutant, asked.clean), chosen):
            word = ("FAILED" if came.killed else "passed") if asked.clean else "killed" if came.killed else "SURVIVED"
            print(f"{came.name:75} {word:8} {came.seconds:6.1f} s  {came.said[:110]}", flush=True)
            outcomes.append(came)
    if asked.json:
        asked.json.write_text(json.dumps([came._asdict() for came in outcomes], indent=1) + "\n")
    wrong = [came for came in outcomes if came.killed == asked.clean]
    print(f"{len(outcomes) - len(wrong)} of {len(outcomes)} {'pass' if asked.clean else 'killed'}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

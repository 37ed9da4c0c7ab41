"""`kreiss report`: what was run beside the papers, honestly; the README's table is what the results say."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import kreiss
from kreiss.commands.experiments import between_marks, report
from kreiss.errors import InputError
from kreiss.experiments import EXPERIMENTS, Experiment, Published, Row, agents, experiment, relational
from kreiss.experiments.parts import PAPER
from kreiss.report import experiments, tables
from kreiss.report.comparison import MOST_SEEDS, compare, verdict
from kreiss.report.own import compare_runs
from kreiss.report.summary import of_models, summary
from kreiss.studies import results
from kreiss.studies.jobs import job_of, keys_of
from scripts import script

ROOT = Path(__file__).parents[1]
STRUCTURE = script("learned_structure")
RECORDED = ROOT / results.FOLDER
TABLE = experiment("001/table1")
COPY = experiment("001/fig2-copy")
LSTM = replace(experiment("004/figB.3"), split="test")


def runs_of(made, name, scale, values, metric, **more):
    """Runs as they stand in results, one for each value; None failed."""
    found = {}
    for seed, value in enumerate(values):
        numbers = {"loss": value, "accuracy": 0.995, metric: value}
        done = {"test": numbers, "valid": numbers, "curve": [{"update": u, **numbers} for u in (1, 2)]}
        record = {"row": f"{made.name}/{name}", "scale": scale, "seed": seed, "parameters": 1234, "updates": 2}
        state = {"state": "failed", "message": "…"} if value is None else {"state": "finished", **done}
        spectrum = {"spectrum": {"modulus_min": 0.5, "modulus_mean": 0.7, "modulus_max": 1.01}}
        key = job_of(made, made.row(name), scale, seed).key
        found[key] = {**record, **state, **(spectrum if value is not None else {}), **more}
    return found


def line_of(comparison, name):
    return next(line for line in comparison.lines if line.row.name == name)


def test_a_row_is_the_mean_of_its_seeds_with_its_standard_error_and_the_difference_from_the_paper():
    known = runs_of(TABLE, "nnrnn-150", "paper", [1.46, 1.47, 1.51], "bpc")
    comparison = compare(TABLE, "paper", known)
    line = line_of(comparison, "nnrnn-150")
    assert line.mean == pytest.approx(1.48)
    assert line.error == pytest.approx(0.015275, rel=1e-4)
    assert line.difference == pytest.approx(0.01)
    assert verdict(line, comparison) == "agrees"
    text = tables.table(comparison)
    assert (
        "| nnRNN, 150 steps | equal units, equal parameters | 1,234 | 1.47 ± 0.003 | 1.48 ± 0.02 | 3 | +0.01 |" in text
    )


def test_what_was_not_run_and_what_was_scaled_down_say_so():
    known = runs_of(TABLE, "exprnn-150", "laptop", [2.5, 2.6], "bpc")
    comparison = compare(TABLE, "laptop", known)
    assert verdict(line_of(comparison, "rnn-150"), comparison) == "not run"
    assert verdict(line_of(comparison, "exprnn-150"), comparison) == "scaled down: not comparable"
    assert not compare(TABLE, "paper", known).run
    assert "Scale laptop: 128 units for 1,024" in tables.table(comparison)


def test_a_row_that_was_run_at_another_scale_is_named_below_the_table_and_not_called_not_run():
    known = runs_of(TABLE, "exprnn-150", "laptop", [2.5], "bpc") | runs_of(TABLE, "lstm-150", "paper", [1.4], "bpc")
    comparison = compare(TABLE, "laptop", known)
    assert line_of(comparison, "lstm-150") not in comparison.shown
    assert line_of(comparison, "rnn-150").elsewhere == ()
    text = tables.table(comparison)
    assert "LSTM, 150 steps | equal units |" not in text
    assert "Run at other scales (paper): 1 of 20 rows." in text


def test_further_numbers_that_few_rows_have_stand_below_each_other():
    made = experiment("004/tableB.1")
    known = runs_of(made, "memlstm-doorkey", "laptop", [0.9], "reward@MiniGrid-DoorKey-16x16-v0")
    known |= runs_of(made, "nnrnn-doorkey", "laptop", [0.2], "reward@MiniGrid-DoorKey-16x16-v0")
    text = tables.table(compare(made, "laptop", known))
    assert "| MemLSTM | reward@MiniGrid-DoorKey-16x16-v0, test | 0.31 | 0.9 |" in text
    assert "| nnRNN (ours) | reward@MiniGrid-DoorKey-16x16-v0, test | – | 0.2 |" in text
    accuracy = experiment("004/table4.1")
    known = runs_of(accuracy, "relrnn", "laptop", [0.99], "accuracy@200")
    assert "| RelRNN | 0.99 / 0.99 | 0.99 / – |" in tables.table(compare(accuracy, "laptop", known))


def test_a_number_beyond_two_standard_errors_does_not_agree():
    for values, said in (([1.60, 1.61], "higher"), ([1.30, 1.31], "lower")):
        comparison = compare(TABLE, "paper", runs_of(TABLE, "nnrnn-150", "paper", values, "bpc"))
        assert verdict(line_of(comparison, "nnrnn-150"), comparison) == said


def test_a_number_within_two_standard_errors_agrees():
    comparison = compare(TABLE, "paper", runs_of(TABLE, "nnrnn-150", "paper", [1.47, 1.51], "bpc"))
    line = line_of(comparison, "nnrnn-150")
    assert 0.95 * line.error < line.difference < 1.05 * line.error  # about one of ours, and that of the paper adds
    assert verdict(line, comparison) == "agrees"
    farther = compare(TABLE, "paper", runs_of(TABLE, "nnrnn-150", "paper", [1.48, 1.52], "bpc"))
    assert 1.4 < line_of(farther, "nnrnn-150").difference / line_of(farther, "nnrnn-150").error < 1.6
    assert verdict(line_of(farther, "nnrnn-150"), farther) == "agrees"


def test_runs_that_failed_are_counted_and_not_averaged():
    made = experiment("002/table1")
    comparison = compare(made, "laptop", runs_of(made, "nnrnn-1-150", "laptop", [1.5, None, 1.7], "bpc"))
    line = line_of(comparison, "nnrnn-1-150")
    assert (line.mean, line.failed) == (pytest.approx(1.6), 1)
    assert "(1 of 3 failed)" in tables.table(comparison)
    gone = compare(made, "laptop", runs_of(made, "nnrnn-1-150", "laptop", [None], "bpc"))
    assert verdict(line_of(gone, "nnrnn-1-150"), gone) == "failed"


def test_curves_without_numbers_are_judged_against_the_baseline():
    baseline = {"baseline": {"loss": 0.0945, "accuracy": 0.125}}
    known = runs_of(COPY, "nnrnn", "laptop", [0.001], "loss", **baseline)
    known |= runs_of(COPY, "lstm", "laptop", [0.0951], "loss", **baseline)
    for record in known.values():
        record["test"]["accuracy"] = 0.995 if record["row"].endswith("nnrnn") else 0.13
    comparison = compare(COPY, "laptop", known)
    assert verdict(line_of(comparison, "nnrnn"), comparison) == "solved"
    assert verdict(line_of(comparison, "lstm"), comparison) == "no better than without memory"
    assert "Without memory: 0.0945." in tables.table(comparison)


def test_a_share_within_the_noise_of_its_test_is_no_better_than_a_guess():
    objects = experiment("004/figC.6-rmts")
    for value, words in ((0.5004, "no better than guessing"), (0.53, "better than guessing")):
        known = runs_of(objects, "predinet-95", "paper", [value], objects.metric, baseline={objects.metric: 0.5})
        comparison = compare(objects, "paper", known)
        assert verdict(line_of(comparison, "predinet-95"), comparison) == words


def test_a_success_rate_within_the_noise_of_its_episodes_is_no_better_than_without_memory():
    mazes = experiment("bakker/tmaze")  # tested in 500 episodes, so that a standard error is 0.022
    for value, words in ((0.512, "no better than without memory"), (0.56, "better than without memory")):
        known = runs_of(mazes, "lstm-1000", "laptop", [value], "success", baseline={"success": 0.5})
        comparison = compare(mazes, "laptop", known)
        assert verdict(line_of(comparison, "lstm-1000"), comparison) == words


def test_runs_that_were_solved_say_after_how_many_updates():
    known = runs_of(LSTM, "lstm-100", "laptop", [0.001, 0.002], "loss")
    for record, update in zip(known.values(), (1000, 1500), strict=True):
        record["solved"] = update
    comparison = compare(LSTM, "laptop", known)
    assert "| 0.0015 ± 0.0005, accuracy 0.995, solved after 1,250 updates | 2 |" in tables.table(comparison)
    assert verdict(line_of(comparison, "lstm-100"), comparison) == "solved"
    del next(iter(known.values()))["solved"]
    assert "solved after" not in tables.table(compare(LSTM, "laptop", known))


def test_a_run_that_was_solved_keeps_its_last_value_while_others_go_on():
    solved = {"curve": [{"update": 1, "loss": 3.0}, {"update": 2, "loss": 1.0}], "solved": 2}
    other = {"curve": [{"update": update, "loss": 3.0} for update in (1, 2, 3, 4)]}
    assert experiments.band([solved, other], "loss")[:2] == ([1, 2, 3, 4], [3.0, 2.0, 2.0, 2.0])
    del solved["solved"]
    assert experiments.band([solved, other], "loss")[0] == [1, 2]


def test_each_delay_is_judged_against_its_own_baseline_and_has_a_panel_if_asked():
    known = runs_of(LSTM, "lstm-100", "laptop", [0.17], "loss", baseline={"loss": 0.1733})
    known |= runs_of(LSTM, "lstm-2000", "laptop", [0.17], "loss", baseline={"loss": 0.0103})
    for record in known.values():
        record["test"]["accuracy"] = 0.12
    comparison = compare(LSTM, "laptop", known)
    verdicts = [verdict(line_of(comparison, name), comparison) for name in ("lstm-100", "lstm-2000")]
    assert verdicts == ["better than without memory", "no better than without memory"]
    assert "Without memory" not in tables.table(comparison)
    shown = [line for line in comparison.lines if line.runs]
    assert len(experiments.curves(comparison, shown).axes) == 1
    apart = compare(replace(LSTM, panels=True), "laptop", known)
    assert [axes.get_title() for axes in experiments.curves(apart, shown).axes] == ["T = 100", "T = 2000"]


def test_a_quoted_row_shows_its_number_and_nothing_of_ours():
    quoted = Row("s4", "S4", {}, (), (Published("accuracy", 0.183),))
    lstm = Row("lstm", "LSTM", {"task": "selectivecopy", "model": "lstm", "hidden": 8}, ours=True)
    made = Experiment("x/y", "gu2023", "Table 1", "Selective copying", "accuracy", (quoted, lstm), {"paper": PAPER})
    text = tables.table(compare(made, "paper", {}))
    assert "| S4 | 0.183 | – | quoted |" in text
    assert "| LSTM (ours) | – | not run | not run |" in text


def test_the_order_of_rows_is_compared_with_that_of_the_paper():
    known = {}
    for name, value in (("rnn-150", 3.0), ("orthrnn-150", 1.6), ("exprnn-150", 1.4), ("nnrnn-150", 1.5)):
        known |= runs_of(TABLE, name, "laptop", [value], "bpc")
    assert compare(TABLE, "laptop", known).order == (5, 6)  # only expRNN and nnRNN stand the other way round


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.0015862, 0.00023, "0.0016 ± 0.0002"),
        (2.2994, 0.0096, "2.30 ± 0.01"),
        (1.447e-5, 6e-6, "0.000014 ± 0.000006"),
        (1.447e-9, 6e-10, "1.4e-09 ± 6e-10"),
        (12345.6, 123.0, "12,346 ± 123"),
        (0.9667, 0.0, "0.9667 ± 0"),
        (0.123456, None, "0.1235"),
        (None, None, "–"),
    ],
)
def test_a_number_has_as_many_digits_as_its_error_leaves(value, error, text):
    assert tables.number(value, error) == text


def test_scales_that_are_the_same_set_up_are_shown_once(tmp_path, capsys):
    results.add(tmp_path, COPY.name, runs_of(COPY, "nnrnn", "laptop", [0.001], "loss"))
    report("001/fig2-copy", markdown=True, results=tmp_path)
    assert capsys.readouterr().out.count("| network |") == 1


def test_the_summary_has_a_row_for_every_network_and_says_what_was_not_run():
    text = summary(runs_of(COPY, "nnrnn-exact", "laptop", [0.001, 0.002], "loss"))
    lines = text.splitlines()
    assert lines[2].startswith("| `NNRNN` | 0.995 ± 0 | not run |")
    assert sum(line.count("not run") for line in lines) == 7 * 5 - 1


def test_a_table_of_one_network_has_every_recorded_row_once():
    known = runs_of(COPY, "nnrnn", "laptop", [0.001, 0.003], "loss", baseline={"loss": 0.0945})
    known |= runs_of(COPY, "lstm", "laptop", [0.1], "loss")
    known |= runs_of(TABLE, "nnrnn-150", "laptop", [2.5, None], "bpc")
    lines = of_models(("nnrnn",), known).splitlines()[2:]
    assert lines == [
        "| 001/fig2-copy, paper | nnRNN | 1,234 | loss, test | 0.002 ± 0.001 | 0.0945 |",
        "| 001/table1, laptop | nnRNN, 150 steps | 1,234 | bpc, test | 2.5 (1 of 2 failed) | – |",
    ]


def test_rows_of_one_network_that_are_called_the_same_say_what_they_compare():
    known = runs_of(TABLE, "exprnn-150", "laptop", [2.5], "bpc")
    known |= runs_of(TABLE, "exprnn-150-parameters", "laptop", [2.4], "bpc")
    shown = [line.split(" | ")[1] for line in of_models(("exprnn",), known).splitlines()[2:]]
    assert shown == ["expRNN, 150 steps, equal units", "expRNN, 150 steps, equal parameters"]


def test_a_table_of_a_network_that_does_not_exist_is_an_error():
    with pytest.raises(InputError, match=r"unknown model 'nnrn'\. Did you mean 'nnrnn'\?"):
        of_models(("nnrn",), {})


def test_a_second_table_has_the_other_numbers_that_the_paper_prints(tmp_path):
    made = experiment("003/table1")
    known = runs_of(made, "enrnn", "laptop", [1.0, 2.0], "loss")
    for record, value in zip(known.values(), (4.0, 5.0), strict=True):
        record["test"]["segsnr"] = value
    comparison = compare(made, "laptop", known)
    text = tables.table(comparison)
    assert "| paper / ours | loss, valid | segsnr, test | stoi, test | pesq, test |" in text
    assert "| ENRNN 374/94 | 0.13 / 1.5 ± 0.5 | 4.84 / 4.5 ± 0.5 | 0.83 / – | 2.75 / – |" in text
    assert "| LSTM | 8.53 / not run | 4 / not run | 0.79 / not run | 2.51 / not run |" in text
    assert "4.84 / 4.5 ± 0.5" in experiments.write([comparison], tmp_path / "r.html", tmp_path).read_text()
    assert "paper / ours" not in tables.table(compare(COPY, "laptop", {}))


class Offline(HTMLParser):
    """Collects what a page would fetch, and its ids."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href") and not (value or "").startswith(("#", "data:")):
                self.fetched.append(value or "")


def test_the_page_is_one_file_that_needs_nothing_else(tmp_path):
    baseline = {"baseline": {"loss": 0.0945}}
    known = runs_of(COPY, "nnrnn", "laptop", [0.001, 0.002], "loss", **baseline)
    comparisons = [compare(COPY, "laptop", known), compare(TABLE, "paper", {})]
    page = experiments.write(comparisons, tmp_path / "report.html", tmp_path)
    text = page.read_text()
    read = Offline()
    read.feed(text)
    assert read.fetched == []
    assert len(read.ids) == len(set(read.ids))
    assert list(tmp_path.iterdir()) == [page]
    assert text.count("<section") == 2
    assert "not run" in text
    assert "What is ambiguous or differs" in text
    assert text.count("<svg") == 1


def test_curves_come_first_and_the_best_of_what_did_not_fail_is_bold(tmp_path):
    known = runs_of(TABLE, "nnrnn-150", "paper", [1.5, 1.6], "bpc")
    known |= runs_of(TABLE, "rnn-150", "paper", [1.2, None], "bpc")  # better, but one of its runs failed
    known |= runs_of(TABLE, "exprnn-150", "paper", [1.7], "bpc")
    text = experiments.write([compare(TABLE, "paper", known)], tmp_path / "r.html", tmp_path).read_text()
    assert text.index("<figure") < text.index("<table")
    assert re.findall("<strong>(.*?)</strong>", text) == ["1.55 ± 0.05"]


def test_what_networks_learned_is_drawn_from_their_runs(tmp_path):
    known = runs_of(COPY, "nnrnn-exact", "smoke", [2.0], "loss")
    key = next(iter(known))
    kreiss.fit("nnrnn", "copy", {"hidden": 8, "task.delay": 3, "steps": 2}, out=tmp_path / key, show="quiet")
    page = experiments.write([compare(COPY, "smoke", known)], tmp_path / "r.html", tmp_path)
    assert page.read_text().count("<svg") == 2
    assert "What nnRNN, exact blocks learned" in page.read_text()


def test_runs_of_ones_own_are_reported_beside_one_another(tmp_path, capsys):
    for name in ("a", "b"):
        out = tmp_path / name
        kreiss.fit("rnn", "copy", {"hidden": 4, "task.delay": 3, "steps": 2}, out=out, show="quiet")
    (comparison,) = compare_runs([tmp_path / "a", tmp_path / "b"])
    assert [len(line.values) for line in comparison.lines] == [2]  # with the same settings they are one line
    report(str(tmp_path / "a"), str(tmp_path / "b"), output=tmp_path / "r.html", results=tmp_path)
    assert "runs of your own" in (tmp_path / "r.html").read_text()
    report(str(tmp_path / "a"), markdown=True, results=tmp_path)
    assert "| network |" in capsys.readouterr().out


def test_pages_without_marks_and_reports_without_results_are_errors(tmp_path):
    (tmp_path / "page.md").write_text("nothing\n")
    with pytest.raises(InputError, match="must have a place for a report"):
        report(fill=[tmp_path / "page.md"], results=tmp_path)
    with pytest.raises(InputError, match="there must be results to report"):
        report(results=tmp_path)


# ---------------------------------------------------------------- what is recorded


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.json")), ids=lambda path: path.stem)
def test_recorded_results_are_of_settings_that_the_experiments_still_have(path):
    made = EXPERIMENTS[path.stem.replace("-", "/", 1)]
    known = results.read(path)
    keys = {
        key
        for scale in {record["scale"] for record in known.values()}
        for row in made.rows
        for key in keys_of(made, row, scale, MOST_SEEDS)
    }
    assert set(known) <= keys
    assert all(record["state"] in ("finished", "failed") for record in known.values())


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.stem
)
def test_tables_in_pages_are_what_the_results_say(page):
    text = page.read_text(encoding="utf-8")
    known = results.read_all(RECORDED)
    assert tables.filled(text, lambda words: between_marks(words, known)) == text


def test_every_table_and_figure_with_runs_stands_on_the_page_of_experiments():
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    shown = {found[2].split()[0] for found in re.finditer(tables.MARK, text)}
    settings_or_gradients = {"000/table2", "000/table3", "000/table5", "004/appA-fig3"}
    curves_of_tables = {f"004/figB.{figure}" for figure in ("2-copy", "2-denoise", "3", "4", "6")}
    elsewhere = {made.name for made in (*relational.EXPERIMENTS, *agents.EXPERIMENTS)}
    assert shown == set(EXPERIMENTS) - settings_or_gradients - curves_of_tables - elsewhere


@pytest.mark.parametrize(("page", "made_of"), [("relational_results", relational), ("agents", agents)])
def test_every_experiment_about_objects_or_agents_with_runs_stands_on_its_page(page, made_of):
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    shown = {found[2].split()[0] for found in re.finditer(tables.MARK, text)}
    known = {path.stem.replace("-", "/", 1) for path in RECORDED.glob("*.json")}
    assert shown >= {made.name for made in made_of.EXPERIMENTS} & known


def test_the_table_of_learned_structure_is_what_was_measured():
    runs = json.loads(STRUCTURE.RESULTS.read_text(encoding="utf-8"))
    assert STRUCTURE.TABLE.read_text(encoding="utf-8") == STRUCTURE.table(runs)
    copying = [run for run in runs if run["role"] == "copy"]
    printed = experiment("001/fig3-copy").rows[0].settings["optimiser.coupling_decay"]
    assert all(run["departure"] > 2 for run in copying if run["decay"] == printed)
    assert all(run["departure"] < 0.5 for run in copying if run["decay"] == 0.1)
    assert all(run["test"]["accuracy"] > 0.99 for run in copying)


def test_the_summary_says_after_how_much_training_networks_are_compared():
    heading = summary({}).splitlines()[0]
    assert "permuted MNIST after 0.4 epochs" in heading
    assert heading.count("after one epoch") == 2
    assert "`EURNN`, 2N real features" in summary({})


def test_the_readme_shows_the_results_in_one_screen():
    found = re.search(tables.MARK, (ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    assert found[0].count("\n") < 20

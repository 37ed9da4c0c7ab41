"""Pictures, figures of papers, pages and the verbs that make them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import kreiss
from kreiss import analysis
from kreiss.errors import InputError, MissingExtra
from kreiss.report import page, plots, style
from kreiss.report.analyses import described, of_matrix, of_network
from kreiss.report.figures import FIGURES, figure
from kreiss.report.findings import percent, steps
from kreiss.report.run_findings import run_findings


def nnrnn(size: int = 12) -> kreiss.NNRNN:
    layer = kreiss.NNRNN(2, size, radius=0.95, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        layer.coupling_l0.normal_(0, 0.05, generator=torch.Generator().manual_seed(1))
    return layer


# ---------------------------------------------------------------- pictures


def test_the_picture_of_a_spectrum_shows_every_eigenvalue_and_the_circle():
    v = analysis.random_schur(8, 0.9, 0.3, 1)
    axes = plots.spectrum(v, found=analysis.pseudospectrum(v, 20), hull=True)
    drawn = [line.get_xydata() for line in axes.lines]
    values = np.linalg.eigvals(v)
    assert any(len(points) == 8 and np.allclose(np.sort(points[:, 0]), np.sort(values.real)) for points in drawn)
    assert any(np.allclose(np.hypot(*points.T), 1) for points in drawn)
    assert axes.get_aspect() == 1


def test_curves_are_those_that_were_found():
    found = analysis.fisher_memory(analysis.delay_line(10, 1.05), np.eye(10)[0])
    axes = plots.fisher_curves({"line": found})
    assert np.allclose(axes.lines[0].get_ydata(), found.curve)
    assert "total" in axes.get_legend().get_texts()[0].get_text()
    growth = analysis.transient_growth(analysis.delay_line(5, 2.0), 8)
    assert np.allclose(plots.norms(growth, radius=0.5).lines[0].get_ydata(), growth.norms)
    starts = analysis.sphere_transients(analysis.delay_line(5, 1.0), 8, starts=20)
    panels = plots.transients({"one": starts})
    assert np.allclose(panels[1].lines[0].get_ydata(), starts.norm_mean)
    assert len(panels[0].collections) == 1  # the band


def test_structures_are_drawn_with_their_blocks():
    found = analysis.learned_structure(nnrnn())["l0"]
    assert len(plots.theta_map(found.theta).patches) == 6
    assert sum(bar.get_height() for bar in plots.angle_rose(found.angles).patches) == 12
    assert np.allclose(plots.subdiagonal_profile(found).lines[0].get_ydata(), found.profile[1:])


def test_networks_are_drawn():
    layer, x = nn.GRU(2, 5), torch.randn(12, 3, 2)
    found = analysis.input_sensitivity(layer, x)
    assert plots.heat_map(found).images[0].get_array().shape == (12, 12)
    assert len(plots.sensitivity_by_lag(found).lines) >= 2
    history = analysis.GradientHistory()
    for update in (0, 10):
        history.add(update, layer, x, lambda y: y[-1].sum())
    assert len(plots.gradient_flow({"gru": history.flows[0]}).lines) == 1
    assert plots.gradient_history({"gru": history}).lines[0].get_xdata().tolist() == [0, 10]
    exponents = analysis.lyapunov_spectrum(layer, x, warmup=2)
    assert len(plots.lyapunov(exponents).lines) >= 1
    states = analysis.hidden_transients(layer, x).states
    points = analysis.fixed_points(layer, count=8, descent=50)
    axes = plots.fixed_points(points, analysis.dimensionality(states), states)
    assert axes.get_title() == "fixed points"


def test_the_spectrum_through_training_is_a_row_of_frames():
    frames = {update: analysis.random_gaussian(6, seed=update) for update in (0, 10, 20, 30, 40)}
    made = plots.spectrum_frames(frames)
    assert [axes.get_title() for axes in made.axes if axes.get_visible()] == [f"update {u}" for u in frames]


def test_pictures_are_written_as_vectors_and_as_pixels_and_leave_no_settings_behind(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    axes = plots.theta_map(analysis.delay_line(4, 1.0))
    vector, raster = style.save(axes.figure, tmp_path / "theta")
    assert ET.parse(vector).getroot().tag.endswith("svg")
    assert raster.read_bytes().startswith(b"\x89PNG")
    assert dict(matplotlib.rcParams) == before
    again, _ = style.save(plots.theta_map(analysis.delay_line(4, 1.0)).figure, tmp_path / "again")
    assert style.save(axes.figure, tmp_path / "figB.2")[0].name == "figB.2.svg"
    assert vector.read_text().replace("theta", "") == again.read_text().replace("again", "")


def test_colours_are_told_apart_by_people_who_do_not_see_red_or_green():
    # Machado et al. (2009), severity 1, on linear RGB
    blindness = {
        "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    }
    rgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in style.COLOURS])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    for matrix in blindness.values():
        seen = np.clip(linear @ np.array(matrix).T, 0, 1) ** (1 / 2.2)
        distances = [np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]]
        assert min(distances) > 0.1


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"a picture needs the package matplotlib.*pip install 'kreiss\[plots\]'"):
        plots.theta_map(analysis.delay_line(4, 1.0))


# ---------------------------------------------------------------- figures of papers


def test_the_figures_of_theory_are_made_from_their_names():
    made = figure("001/fig1b")
    assert [len(axes.lines) for axes in made.axes] == [6, 6, 6]
    ends = made.axes[2].lines[0].get_ydata()
    assert ends[99] > 0
    assert ends[100] == 0  # nilpotent: all is over at t = N
    memory = figure("001/fig1c")
    totals = [
        float(re.search(r"total ([\d.]+)", t.get_text()).group(1)) for t in memory.axes[0].get_legend().get_texts()
    ]
    assert totals == [3.03, 5.19, 12.1, 3.18, 5.3, 12.1]  # Table 6 of the supplement


def test_the_top_of_figure_1b_has_the_caption_s_reading_beside_that_of_the_authors():
    captioned, computed = figure("001/fig1b").axes[:2]
    at = 50  # of a delay line, α = 1: half of its 100 units are empty, the others are N(0, 1/100)
    one, other = (axes.lines[1].get_ydata()[at] for axes in (captioned, computed))
    assert one == pytest.approx(0.1 * np.sqrt(0.5), rel=0.02)  # deviation across units, averaged over starts
    assert other == pytest.approx(0.1 * 0.5, rel=0.02)  # deviation across starts, averaged over units
    assert "as captioned" in captioned.get_title()
    assert "as the authors computed it" in computed.get_title()


def test_figure_1a_draws_theta_and_its_modes():
    entries, modes = figure("001/fig1a").axes
    theta = analysis.delay_line(6, 2.0, 3.0, 1.0)
    assert np.array_equal(np.asarray(entries.images[0].get_array()), theta)
    assert (
        sum(text.arrow_patch is not None for text in modes.texts if hasattr(text, "arrow_patch")) == (theta > 0).sum()
    )


def test_the_figure_of_gradients_shows_what_a_training_recorded():
    history = analysis.GradientHistory(recorded={10: 2.0, 20: 1.0})
    x = torch.randn(10, 2, 2)
    history.add(20, nnrnn(), x, lambda y: y[-1].sum())
    through_time, recorded = figure("002/fig1", free=history).axes
    assert len(through_time.lines[0].get_ydata()) == 11
    assert recorded.lines[0].get_xydata().tolist() == [[10, 2], [20, 1]]
    history.add(30, nnrnn(), x, lambda y: y[-1].sum())
    assert len(figure("002/fig1", free=history).axes) == 3


def test_the_figures_of_trained_networks_take_them_by_role():
    assert len(figure("001/fig3", copy=nnrnn(), characters=nnrnn(16), note="not trained").axes) >= 3
    assert figure("000/fig5", psmnist=nnrnn()).axes[0].get_title().startswith("psMNIST: mean γ 0.95")
    x = torch.randn(10, 2, 2)
    for name, units in (("003/fig4", slice(8, None)), ("003/fig5", slice(0, 8))):
        made = figure(name, enrnn=nnrnn(), inputs=x, long=8)
        expected = analysis.input_sensitivity(nnrnn(), x, units=units).norms.numpy()
        shown = made.axes[0].images[0].get_array()
        assert np.allclose(np.tril(np.nan_to_num(shown.filled(0))), expected, atol=1e-6)
    curves = figure("003/fig6", even=([0, 1], [0.2, 0.1]))
    assert curves.axes[0].lines[0].get_ydata().tolist() == [0.2, 0.1]
    history = analysis.GradientHistory()
    history.add(0, nnrnn(), x, lambda y: y[-1].sum())
    assert len(figure("thesis/appA-fig3", free=history).axes) == 2


def test_learning_curves_have_a_panel_for_every_title():
    curve = ([10, 20], [0.5, 0.9])
    made = figure(
        "thesis/figB.2", **{f"T = {delay}: {name}": curve for delay in (100, 200) for name in ("LSTM", "SAB")}
    )
    assert [axes.get_title() for axes in made.axes] == ["T = 100", "T = 200"]
    assert [line.get_label() for line in made.axes[1].lines] == ["LSTM", "SAB"]
    (axes,) = figure("thesis/figB.6", RelRNN=curve).axes
    assert axes.get_ylabel() == "validation accuracy"
    assert axes.lines[0].get_ydata().tolist() == [0.5, 0.9]


@pytest.mark.parametrize("name", [name for name, one in FIGURES.items() if one.roles])
def test_a_figure_without_its_networks_says_which_it_needs(name):
    with pytest.raises(InputError, match=f"figure {name} needs trained networks; got none for"):
        figure(name)


def test_an_unknown_figure_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match=r"unknown figure '001/fig1d'\. Did you mean '001/fig1"):
        figure("001/fig1d")


# ---------------------------------------------------------------- pages


class Read(HTMLParser):
    """Ids, links, labels and tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append((tag, given))
        if "id" in given:
            self.ids.append(given["id"])
        for name in ("href", "xlink:href", "src"):
            if name in given:
                self.links.append(given[name])


@pytest.fixture(scope="module")
def matrix_page(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("matrix")
    found = list(of_matrix(analysis.random_schur(10, 0.9, 0.2, 3), "transients"))
    return page.write("v.npy", "A matrix.", found, folder)


@pytest.fixture(scope="module")
def network_page(tmp_path_factory) -> Path:
    found = list(of_network(nnrnn(), "all"))
    return page.write("network <1>", described(nnrnn()), found, tmp_path_factory.mktemp("network"))


@pytest.fixture(params=["matrix_page", "network_page"])
def made(request) -> Path:
    return request.getfixturevalue(request.param)


def test_a_page_has_its_pictures_numbers_and_sentences(made):
    content = json.loads((made.parent / "analysis.json").read_text())
    text = made.read_text()
    assert len(content["findings"]) in (2, 10)  # transients of a matrix, everything about a network
    for finding in content["findings"]:
        assert (made.parent / f"{finding['key']}.svg").exists()
        assert (made.parent / f"{finding['key']}.png").exists()
        assert finding["sentence"] in text
        assert any(character.isdigit() for character in finding["sentence"])
        assert finding["numbers"]


def test_a_page_needs_nothing_from_elsewhere(made):
    read = Read(made.read_text())
    assert [link for link in read.links if link and not link.startswith(("#", "data:"))] == []
    assert "@import" not in made.read_text()
    assert not re.search(r"url\((?!#)", made.read_text())


def test_a_page_can_be_used_by_keyboard_and_read_aloud(made):
    read = Read(made.read_text())
    assert len(read.ids) == len(set(read.ids))
    inside = [link[1:] for link in read.links if link and link.startswith("#")]
    assert set(inside) <= set(read.ids)
    assert ("html", {"lang": "en"}) in read.tags
    pictures = [given for tag, given in read.tags if tag == "svg"]
    assert pictures
    assert all(given["role"] == "img" and given["aria-label"] for given in pictures)
    assert any(given.get("name") == "viewport" for tag, given in read.tags if tag == "meta")
    assert sum(tag == "h1" for tag, _ in read.tags) == 1
    assert "prefers-color-scheme: dark" in made.read_text()
    assert style.INK not in made.read_text()  # text of pictures has the colour of the page


def test_a_page_opens_with_five_sentences_and_four_pictures_that_lead_to_the_large_ones(network_page):
    text = network_page.read_text()
    found = {
        one["key"]: one["sentence"]
        for one in json.loads((network_page.parent / "analysis.json").read_text())["findings"]
    }
    summary = re.search(r'<p class="summary">(.*?)</p>', text, re.DOTALL)[1]
    chief = [key for key in page.CHIEF if key in found][:5]
    assert summary == " ".join(page.first_sentence(found[key]) for key in chief)
    strip = re.search(r'<ul class="strip">(.*?)</ul>', text, re.DOTALL)[1]
    assert re.findall(r'<a href="#([\w-]+)">', strip) == chief[:4]
    assert text.index(summary) < text.index("<nav")


def test_a_first_sentence_ends_neither_in_a_number_nor_at_a_symbol():
    assert page.first_sentence("It is 0.5 at λ. Then more.") == "It is 0.5 at λ."
    assert page.first_sentence("Only one, of 3 %.") == "Only one, of 3 %."


def test_views_hold_every_eigenvalue_frame_and_path(network_page):
    text = network_page.read_text()
    views = {key: json.loads(content) for key, content in re.findall(
        r'<div class="view" data-key="([\w-]+)"><script type="application/json">(.*?)</script>', text, re.DOTALL
    )}  # fmt: skip
    assert set(views) == {"spectrum", "fixed-points"}
    (frame,) = views["spectrum"]["frames"]
    expected = np.linalg.eigvals(nnrnn().weight_hh_l0.detach().double().numpy())
    shown = np.array([complex(*point) for point in frame["points"]])
    assert np.allclose(np.sort_complex(shown.round(3)), np.sort_complex(expected.round(3)), atol=2e-3)
    assert [line["name"] for line in views["fixed-points"]["lines"]] == [f"sequence {n}" for n in (1, 2, 3, 4)]
    assert all("largest |λ|" in point[3] for point in views["fixed-points"]["frames"][0]["points"])


def test_titles_are_escaped(network_page):
    assert "<title>network &lt;1&gt; – kreiss</title>" in network_page.read_text()


def test_sentences_follow_the_matrix():
    def sentence(v, part="spectrum", index=0):
        return list(of_matrix(np.asarray(v), part))[index].sentence

    assert "100 % of the energy of this matrix is normal" in sentence(analysis.random_orthogonal(6, 0))
    assert "0 % of the energy" in sentence(analysis.delay_line(6, 0.9))
    assert "outside the unit circle, so powers grow without bound" in sentence(1.1 * np.eye(3))
    assert "modes do not feed one another" in sentence(0.5 * np.eye(4), index=1)
    assert "first falls below 10 % of J(0) after 2 steps and stays there" in sentence([[0.5]], "memory")
    assert "Powers do not decay" in sentence(np.eye(3), "memory")
    assert "No state ever grows" in sentence(0.5 * np.eye(3), "transients")
    assert "8 times as long after 3 steps" in sentence(analysis.delay_line(4, 2.0), "transients")
    assert "still growing after 200 steps" in sentence([[1.0, 1.0], [0.0, 1.0]], "transients")
    assert (percent(0.9997), percent(1.0), percent(0.923), steps(1)) == ("more than 99 %", "100 %", "92 %", "1 step")


def test_a_sentence_about_a_threshold_says_which_crossing_and_that_the_matrix_is_unstable():
    (found,) = of_matrix(analysis.random_gaussian(20, 1.32, seed=0), "memory")
    curve = np.array(found.numbers["curve"]) / found.numbers["curve"][0]
    assert curve[2] > 0.1 > curve[3]  # it falls below a tenth,
    assert curve[20] < 0.02
    assert curve[-1] > 0.1  # and is above it again where the horizon ends
    assert (found.numbers["first_below_10_percent"], found.numbers["stays_below_10_percent_from"]) == (3, None)
    assert "first falls below 10 % of J(0) after 3 steps but is above it again" in found.sentence
    assert "unstable (ρ = 1.313, above 1)" in found.sentence
    (stable,) = of_matrix(analysis.random_gaussian(20, 0.5, seed=0), "memory")
    assert "stays there" in stable.sentence
    assert "unstable" not in stable.sentence


# ---------------------------------------------------------------- in a browser


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


@pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome is installed to open the page with")
def test_the_script_draws_every_point_of_a_view_and_a_slider_for_frames(tmp_path):
    spectra = {update: np.exp(1j * np.arange(1, 6)) * (1 + update / 100) for update in (0, 5, 10)}
    made = page.write("run", "A run.", list(run_findings([], spectra)), tmp_path / "page")
    done = subprocess.run(
        [
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000", "--dump-dom", made.as_uri(),
        ],
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    (view,) = re.findall(r'<div class="view".*?</output>', done.stdout, re.DOTALL)
    assert len(re.findall(r'<circle cx="[^"]+" cy="[^"]+" r="3.6"', view)) == 5
    assert re.search(r'<input type="range" min="0" max="2"', view)
    assert "<span>update 10</span>" in view


@pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome is installed to open the page with")
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_a_browser_opens_the_page_without_complaint(made, tmp_path, width, scheme):
    shot = tmp_path / "page.png"
    done = subprocess.run(
        [
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},1600", "--enable-logging=stderr",
            f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
            "--virtual-time-budget=2000", f"--screenshot={shot}", made.as_uri(),
        ],
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    from matplotlib.image import imread

    pixels = imread(shot)[..., :3]
    background = pixels[2, 2].mean()
    assert (background < 0.3) if scheme == "dark" else (background > 0.9)
    assert pixels.std() > 0.02, "nothing was drawn"

"""A self-contained HTML page of headings, sentences, plots and numbers; works offline and without scripts."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kreiss.report.findings import Finding
from kreiss.report.style import INK, save

SUMMARY = 5  # sentences at the top of a page
STRIP = 4  # small pictures below them
# the findings that say most, in the order in which they are chosen for both
CHIEF = (
    "training", "spectrum", "jacobian-growth", "attention", "fixed-points", "answers", "relations", "lyapunov",
    "memory", "growth", "gradients", "structure", "starts",
)  # fmt: skip
WIDE, LOW, TALL = 8.0, 4.0, 5.8  # inches: the width of a picture, its height, and that of a round or square one
SENTENCE = re.compile(r"(?<=[a-zλ0-9%)])\. (?=[A-Z0-9‖])")  # the end of one, not of an abbreviation or a number


def asset(name: str) -> str:
    """A file of the page."""
    return (Path(__file__).parent / "assets" / name).read_text(encoding="utf-8")


def write(title: str, about: str, findings: Sequence[Finding], folder: Path) -> Path:
    """Write pictures, analysis.json and index.html into `folder`; returns the page.

    Args:
        title: of the page, such as the name of the analysed file.
        about: one paragraph: what was analysed, and how.
        findings: in the order shown.
        folder: created if missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sections, boxes = [], {}
    for finding in findings:
        vector, _ = save(widened(finding.draw()), folder / finding.key)
        picture = inline(vector.read_text(encoding="utf-8"), finding.key, finding.sentence)
        boxes[finding.key] = re.findall(r'viewBox="([^"]+)"', picture)[0]
        sections.append(_section(finding, picture))
    numbers = {
        "title": title,
        "about": about,
        "findings": [
            {"key": f.key, "title": f.title, "sentence": f.sentence, "numbers": _plain(f.numbers)} for f in findings
        ],
    }
    (folder / "analysis.json").write_text(json.dumps(numbers, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    page = folder / "index.html"
    links = [(finding.key, finding.title) for finding in findings]
    foot = "All numbers are in analysis.json beside this page."
    page.write_text(whole(title, about, links, sections, foot, opening=_opening(findings, boxes)), "utf-8")
    return page


def _opening(findings: Sequence[Finding], boxes: dict[str, str]) -> str:
    """The summary, and a strip of small pictures that lead to the large ones, of which they are copies by reference."""
    chief = [finding for key in CHIEF for finding in findings if finding.key == key]
    sentences = [html.escape(first_sentence(finding.sentence)) for finding in chief[:SUMMARY]]
    if len(findings) < 2 or not sentences:
        return ""
    pictures = "".join(
        f'''<li><a href="#{finding.key}"><svg viewBox="{boxes[finding.key]}" role="img" aria-label="{finding.title}">
<use href="#{finding.key}-figure_1"/></svg>{html.escape(finding.title)}</a></li>'''
        for finding in chief[:STRIP]
    )
    return f'<p class="summary">{" ".join(sentences)}</p>\n<ul class="strip">{pictures}</ul>\n'


def first_sentence(text: str) -> str:
    """The first sentence of a text."""
    return SENTENCE.split(text, maxsplit=1)[0].rstrip(".") + "."


def widened(figure: Any) -> Any:
    """A figure at the width of the page; round and square plots get the height for it."""
    width, height = figure.get_size_inches()
    if width < WIDE:
        square = any(axes.name == "polar" or axes.get_aspect() != "auto" for axes in figure.axes)
        figure.set_size_inches(WIDE, max(height, TALL if square else LOW))
    return figure


def _plain(value: Any) -> Any:
    """`value` for JSON; non-finite numbers become strings."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.item() if hasattr(value, "item") else value


def inline(svg: str, key: str, sentence: str) -> str:
    """An inline SVG in the text colour of the page, with unique ids and a description."""
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor").replace(INK.upper(), "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{key}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{key}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{key}-\1)", svg)
    label = html.escape(sentence, quote=True)
    return svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def _section(finding: Finding, picture: str) -> str:
    rows = "".join(
        f"<tr><th scope='row'>{html.escape(key.replace('_', ' '))}</th><td>{html.escape(_shown(value))}</td></tr>"
        for key, value in finding.numbers.items()
        if not isinstance(value, list | dict)
    )
    return f"""<section aria-labelledby="{finding.key}">
<h2 id="{finding.key}">{html.escape(finding.title)}</h2>
<p>{html.escape(finding.sentence)}</p>
{_view(finding)}{framed(picture, finding.title)}
<details><summary>Numbers</summary><div class="wide" tabindex="0" role="region" aria-label="Numbers of
{html.escape(finding.title)}"><table><tbody>{rows}</tbody></table></div></details>
</section>"""


def _view(finding: Finding) -> str:
    """What the script of the page draws: nothing without it."""
    if finding.view is None:
        return ""
    content = json.dumps(finding.view.content(finding.title), ensure_ascii=False, separators=(",", ":"))
    content = content.replace("</", "<\\/")
    return f'<div class="view" data-key="{finding.key}"><script type="application/json">{content}</script></div>\n'


def framed(picture: str, title: str) -> str:
    """A figure at the width of the page; on a narrow screen a wide one scrolls, also with the arrow keys."""
    width = float(re.findall(r'viewBox="0 0 ([\d.]+) ', picture)[0])  # in points
    narrow = width <= 380
    picture = picture.replace("<svg", f'<svg style="min-width: {0 if narrow else round(0.9 * width)}px"', 1)
    if narrow:
        return f"<figure>{picture}</figure>"
    label = html.escape(title, quote=True)
    return f'<figure class="wide" tabindex="0" role="group" aria-label="{label}">{picture}</figure>'


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def whole(
    title: str,
    about: str,
    links: Sequence[tuple[str, str]],
    sections: Sequence[str],
    foot: str,
    *,
    opening: str = "",
    style: str = "",
    script: str = "",
) -> str:
    """A page.

    Args:
        title: of the page.
        about: one paragraph.
        links: (id of a section, its title).
        sections: in the order shown.
        foot: the text of the footer.
        opening: what stands below the title.
        style: rules of its own.
        script: of its own.
    """
    items = "".join(f'<li><a href="#{key}">{html.escape(name)}</a></li>' for key, name in links)
    contents = f'<nav aria-label="Sections"><ul>{items}</ul></nav>' if links else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)} – kreiss</title>
<link rel="icon" href="data:,">
<style>{asset("page.css")}{style}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header><button type="button" hidden>Dark page</button><h1>{html.escape(title)}</h1>
{opening}<p>{html.escape(about)}</p></header>
{contents}
<main id="content">
{"".join(sections)}
</main>
<footer>Made by kreiss. {html.escape(foot)}</footer>
<script>{asset("page.js")}{script}</script>
</body>
</html>
"""

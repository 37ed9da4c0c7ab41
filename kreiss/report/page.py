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

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #ffffff; --soft: #f1f1ee; --line: #c9c9c4; --link: #005a96; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e3; --paper: #17181a; --soft: #232528; --line: #45484d; --link: #7cc4f5; }
}
:root[data-theme="light"] { color-scheme: light; --ink: #1c1c1c; --paper: #ffffff; --soft: #f1f1ee; --line: #c9c9c4;
  --link: #005a96; }
:root[data-theme="dark"] { color-scheme: dark; --ink: #e6e6e3; --paper: #17181a; --soft: #232528; --line: #45484d;
  --link: #7cc4f5; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
main, header, nav, footer { max-width: 60rem; margin: 0 auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 1.2rem 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .4rem; scroll-margin-top: 1rem; }
a { color: var(--link); }
a:focus-visible, button:focus-visible, summary:focus-visible,
.wide:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -100vw; }
.skip:focus { left: 1rem; top: .5rem; background: var(--paper); padding: .4rem .8rem; }
nav ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .3rem 1rem; }
nav a { display: inline-block; padding: .35rem 0; }
figure { margin: .8rem 0; }
figure svg { width: 100%; height: auto; }
button { font: inherit; padding: .45rem .9rem; color: inherit; background: var(--soft); border: 1px solid var(--line);
  border-radius: .4rem; }
details { background: var(--soft); border-radius: .4rem; padding: .4rem .8rem; }
summary { cursor: pointer; padding: .25rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: .2rem 1rem .2rem 0; border-bottom: 1px solid var(--line); font-weight: normal; }
td { font-variant-numeric: tabular-nums; }
footer { padding: 2rem 1rem; opacity: .8; }
@media print { button, nav, .skip { display: none; } }
"""

SCRIPT = """
const button = document.querySelector('button');
const dark = matchMedia('(prefers-color-scheme: dark)');
const now = () => document.documentElement.dataset.theme || (dark.matches ? 'dark' : 'light');
const tell = () => { button.textContent = now() === 'dark' ? 'Light page' : 'Dark page'; };
button.addEventListener('click', () => {
  document.documentElement.dataset.theme = now() === 'dark' ? 'light' : 'dark';
  tell();
});
button.hidden = false;
tell();
"""


def write(title: str, about: str, findings: Sequence[Finding], folder: Path) -> Path:
    """Write pictures, analysis.json and index.html into `folder`; returns the page.

    Args:
        title: of the page, such as the name of the analysed file.
        about: one paragraph: what was analysed, and how.
        findings: in the order shown.
        folder: created if missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sections = []
    for finding in findings:
        figure = finding.draw()
        vector, _ = save(figure, folder / finding.key)
        picture = inline(vector.read_text(encoding="utf-8"), finding.key, finding.sentence)
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
    page.write_text(whole(title, about, links, sections, "All numbers are in analysis.json beside this page."), "utf-8")
    return page


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
{framed(picture, finding.title)}
<details><summary>Numbers</summary><div class="wide" tabindex="0" role="region" aria-label="Numbers of
{html.escape(finding.title)}"><table><tbody>{rows}</tbody></table></div></details>
</section>"""


def framed(picture: str, title: str) -> str:
    """A figure at a legible size; a wide one scrolls on a narrow screen, also with the arrow keys."""
    width = float(re.findall(r'viewBox="0 0 ([\d.]+) ', picture)[0])  # in points
    narrow = width <= 380
    least = 0 if narrow else round(width)
    picture = picture.replace("<svg", f'<svg style="min-width: {least}px; max-width: {round(1.5 * width)}px"', 1)
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
<style>{STYLE}{style}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header><h1>{html.escape(title)}</h1><p>{html.escape(about)}</p><button type="button" hidden>Dark page</button></header>
{contents}
<main id="content">
{"".join(sections)}
</main>
<footer>Made by kreiss. {html.escape(foot)}</footer>
<script>{SCRIPT}{script}</script>
</body>
</html>
"""

"""Sphinx settings."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from kreiss.version import __version__

project = "kreiss"
author = "The kreiss developers"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_design"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
exclude_patterns = ["_build", "*_measured.md"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
html_static_path, html_css_files = ["_static"], ["math.css"]
html_math_renderer = "mathml"  # browsers typeset it themselves: pages need no script and no network


def _mathml(display: str):
    """What writes a formula as MathML, "inline" or "block"."""

    def visit(writer, node):
        from docutils import nodes
        from latex2mathml.converter import convert

        formula = convert(node.astext(), display=display)
        writer.body.append(f'<div class="math">{formula}</div>' if display == "block" else formula)
        raise nodes.SkipNode

    return visit, None


def setup(app):
    app.add_html_math_renderer("mathml", inline_renderers=_mathml("inline"), block_renderers=_mathml("block"))

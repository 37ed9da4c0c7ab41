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

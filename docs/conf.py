"""How Sphinx builds the documentation; `make docs` calls it, with warnings as errors and without a network."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import vgraph  # noqa: E402  (of this folder)

project = "vgraph"
author = "the vgraph developers"
release = version = vgraph.__version__
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "project_pages",
    "reference",
]
exclude_patterns = ["_build", "_ext"]
nitpicky = False  # types of torch are named in signatures, and their documentation is on another site

html_theme = "furo"
html_title = "vgraph"
html_static_path: list[str] = []

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]

toc_object_entries = False  # each page begins with a table of its names
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_custom_sections = [("Source", "notes_style"), ("Shape", "params_style")]
napoleon_use_rtype = False

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

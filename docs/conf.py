"""The documentation's site: `make docs` builds it into target/docs, and any warning is an error.

The sources are the repository's own Markdown files, where they are: a link that works there works
in the site. What stands in `_ext` adds what Sphinx doesn't do by itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

import feedline

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "Feedline"
author = "the Feedline developers"
project_copyright = author
version = release = feedline.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "program_help",
    "public_names",
    "repository_links",
    "rust_fields",
]

# Sphinx looks from the repository's root, and only at these.
root_doc = "docs/index"
source_suffix = {".md": "markdown"}
include_patterns = [
    "docs/**.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "benchmarks/README.md",
    "fuzz/README.md",
]
exclude_patterns = [".*", "target", "build", "dist", "python", "crates", "tests"]

nitpicky = True
# Only this machine is asked: types of others are shown, and can't be linked.
nitpick_ignore_regex = [("py:.*", r"(?!feedline\.).*")]

# GitHub makes the same anchors, and links to them are checked.
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 90
toc_object_entries = False

html_theme = "furo"
html_title = "Feedline"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0969da", "color-brand-content": "#0969da"},
    "dark_css_variables": {"color-brand-primary": "#4493f8", "color-brand-content": "#4493f8"},
}

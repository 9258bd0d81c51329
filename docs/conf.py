"""Settings of Sphinx for the pages that ``tools/build_docs.py`` puts together."""

import importlib.metadata

project = "data_stack"
release = importlib.metadata.version("datastack")
copyright = "the authors of data_stack"  # noqa: A001  # Sphinx reads this name

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "data_stack"
html_show_sphinx = False
pygments_style, pygments_dark_style = "friendly", "github-dark"

# The pages are read on GitHub, too: its anchors of headings, and no notebook runs here (`make notebooks` does that).
myst_heading_anchors = 6
nb_execution_mode = "off"

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autosummary_generate = False
napoleon_google_docstring, napoleon_numpy_docstring = True, False

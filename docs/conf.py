"""Settings of Sphinx for the pages that ``tools/build_docs.py`` puts together."""

import importlib.metadata
from typing import Any

from build_docs import find, find_homes, is_ours
from docutils import nodes  # type: ignore[import-untyped]  # docutils has no annotations
from sphinx import addnodes

project = "data_stack"
release = importlib.metadata.version("lazy-data-stack")
copyright = "the authors of data_stack"  # noqa: A001  # Sphinx reads this name

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"data_stack {release}"
html_static_path, html_css_files = ["_static"], ["site.css"]
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_show_sphinx = html_show_sourcelink = html_copy_source = False
# enough contrast for WCAG
pygments_style, pygments_dark_style = "xcode", "github-dark-high-contrast"

# The pages are read on GitHub, too: its anchors of headings, and no notebook runs here (`make
# notebooks` does that).
myst_heading_anchors = 6
nb_execution_mode = "off"

# Types as they are written: an alias of our own is shown by its name.
autodoc_typehints = "signature"
python_maximum_signature_line_length = 90
autodoc_type_aliases = {
    name: f"{home}.{name}"
    for homes in find_homes().values()
    for name, home in homes.items()
    if not is_ours(find(home, name))
}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autosummary_generate = False
napoleon_google_docstring, napoleon_numpy_docstring = True, False


def link_names(app: Any, doctree: nodes.document) -> None:
    """Link public names of pages, such as ``Loader`` and ``data_stack.load("digits")``, to where
    they are described.
    """
    names = {
        name: f"{home}.{name}" for homes in find_homes().values() for name, home in homes.items()
    }
    for literal in list(doctree.findall(nodes.literal)):
        name = literal.astext().partition("(")[0]
        target = (
            names.get(name.removeprefix("data_stack."))
            if name.startswith("data_stack.") or name[:1].isupper()
            else None
        )
        if target and isinstance(literal.parent, nodes.paragraph | nodes.entry):
            link = addnodes.pending_xref(
                "", reftype="obj", refdomain="py", reftarget=target, refdoc=app.env.docname
            )
            literal.replace_self(link)
            link += literal


def setup(app: Any) -> None:
    """Register what Sphinx calls."""
    app.connect("doctree-read", link_names)

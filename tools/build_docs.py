"""Build the site: the Markdown pages and notebooks of the repository, the API reference, and plots
of the benchmarks.

    python tools/build_docs.py [--version VERSION] [FOLDER]

``make docs`` runs this and leaves the site in ``docs/_build/html/VERSION``; versions that are
already there stay, and each page lists them. ``FOLDER`` is another place than ``docs/_build``. The
pages keep their places, so that links between them work there as they do on GitHub; only
``README.md`` becomes ``index.md``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import inspect
import json
import pkgutil
import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.version import InvalidVersion, Version
from plot_benchmarks import plot_targets

import data_stack
from data_stack.exception import MissingDependencyError

ROOT = Path(__file__).parent.parent
COPIED = (
    "*.md",
    "docs/*.md",
    "docs/how_to/*.md",
    "docs/reference/*.md",
    "docs/images/*",
    "benchmarks/*.md",
    "tests/README.md",
    "getting_started/*.ipynb",
    "plugins/*/README.md",
)
#: Modules with public names that are no packages.
MODULES = ("data_stack", "data_stack.exception", "data_stack.loader.torch")
PLUGINS = ("data_stack_petastorm", "data_stack_ray", "data_stack_spark")


def list_packages() -> list[str]:
    """The modules of the API reference: packages that have public names, the errors, and the
    plugins with names of their own.
    """
    found = [
        module.name
        for module in pkgutil.walk_packages(data_stack.__path__, "data_stack.")
        if module.ispkg
    ]
    public = [name for name in found if _has_public_names(name)]
    return sorted([*MODULES, *public]) + list(PLUGINS)


def _has_public_names(package: str) -> bool:
    """Return whether a package has public names.

    Not if a package that it needs is missing here, as Keras is: a page of its own describes it.
    """
    try:
        module = importlib.import_module(package)
    except MissingDependencyError:
        return False
    return bool(getattr(module, "__all__", []))


def list_names(package: str) -> list[str]:
    """The public names of a module, sorted, without those of modules; names that need an optional
    package are among them.
    """
    module = importlib.import_module(package)
    stub = Path(str(module.__file__)).with_suffix(".pyi")
    names = {*getattr(module, "__all__", [])}
    names.update(
        re.findall(r" as (\w+)$", stub.read_text(encoding="utf-8"), re.MULTILINE)
        if stub.exists()
        else []
    )
    if not names:
        names = {
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", "") == package and name[0] != "_"
        }
    return sorted(name for name in names if not inspect.ismodule(getattr(module, name)))


@cache
def find_homes() -> dict[str, dict[str, str]]:
    """The public names by module, each with the module on whose page it is described: the one of
    the shortest name it has.
    """
    names = {package: list_names(package) for package in list_packages()}
    first: dict[tuple[str, int], str] = {}
    for package in sorted(names, key=lambda package: (package.count("."), package)):
        for name in names[package]:
            first.setdefault((name, id(find(package, name))), package)
    return {
        package: {name: first[name, id(find(package, name))] for name in names[package]}
        for package in names
    }


def find(package: str, name: str) -> Any:
    """What a module has under a name."""
    return getattr(importlib.import_module(package), name)


def write_api_page(package: str) -> str:
    """The page of a module: its docstring, a list of its names, and the objects that are described
    here.
    """
    homes = find_homes()[package]
    ours = [name for name in homes if is_ours(find(package, name))]
    lines = [package, "=" * len(package), "", f".. automodule:: {package}", "   :no-members:", ""]
    lines += [".. autosummary::", "   :nosignatures:", ""]
    lines += [f"   {name if homes[name] == package else f'~{homes[name]}.{name}'}" for name in ours]
    for name, home in homes.items():
        if home == package:
            lines += [
                "",
                name,
                "-" * len(name),
                "",
                *_describe(f"{package}.{name}", find(package, name)),
            ]
    return "\n".join([*lines, ""])


def is_ours(value: Any) -> bool:
    """Whether an object is a class or a function with a docstring of its own, not a value or a name
    for something else.
    """
    return inspect.isclass(value) or (
        callable(value) and str(getattr(value, "__module__", "")).startswith("data_stack")
    )


def _describe(name: str, value: Any) -> list[str]:
    """The directive of an object; a value or a name for what others define is shown as it is."""
    if inspect.isclass(value):
        own = takewhile(
            lambda base: base.__module__.startswith("data_stack") and not _is_described(base),
            value.__mro__[1:],
        )
        others = value.__mro__[1 + len([*own]) :]
        return [
            f".. autoclass:: {name}",
            "   :members:",
            # bases without a page are shown here
            f"   :inherited-members: {', '.join(base.__name__ for base in others)}",
            "   :show-inheritance:",
        ]
    if is_ours(value):
        return [f".. autofunction:: {name}"]
    text = (
        f"{value.__module__}.{value.__qualname__}"
        if inspect.isroutine(value)
        else str(value).replace("typing.", "")
    )
    return [f".. py:data:: {name}", "", f"   ``{text}``"]


def _is_described(value: type) -> bool:
    return any(
        find(package, value.__name__) is value
        for package, names in find_homes().items()
        if value.__name__ in names
    )


def assemble(folder: Path) -> None:
    """Put the pages of the site together in ``folder``, as Sphinx reads them."""
    shutil.rmtree(folder, ignore_errors=True)
    for source in (path for pattern in COPIED for path in ROOT.glob(pattern)):
        target = folder / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    (folder / "api").mkdir()
    lines = [
        "Python API",
        "==========",
        "",
        "Every public name, by module.",
        "",
        ".. toctree::",
        "",
    ]
    (folder / "api" / "index.rst").write_text(
        "\n".join([*lines, *(f"   {name}" for name in list_packages()), ""]), encoding="utf-8"
    )
    for package in list_packages():
        (folder / "api" / f"{package}.rst").write_text(write_api_page(package), encoding="utf-8")
    _add_plots(folder / "benchmarks" / "README.md")
    # Agents look for it at the top of a site; the pages link to it.
    shutil.copy(ROOT / "llms.txt", folder)
    for copy in folder.rglob("*.md"):
        up = "../" * (len(copy.relative_to(folder).parts) - 1)
        copy.write_text(
            copy.read_text(encoding="utf-8").replace(f"]({up}README.md", f"]({up}index.md"),
            encoding="utf-8",
        )
    start = (folder / "README.md").rename(folder / "index.md")
    with start.open("a", encoding="utf-8") as file:
        file.write(_contents(folder))


def _add_plots(page: Path) -> None:
    """Put a plot of the targets of each table of a page below it."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for end, name in reversed(plot_targets(page.parent / "plots")):
        lines[end:end] = ["", f"![the targets of the table above, as bars](plots/{name})"]
    page.write_text("\n".join([*lines, ""]), encoding="utf-8")


#: The groups of the sidebar: the heading of each, and where its pages lie.
_GROUPS = {
    "Notebooks": ("getting_started/getting_started.ipynb", "getting_started/[0-9]*.ipynb"),
    "How to": ("docs/how_to/*.md",),
    "Guides": ("docs/*.md",),
    "Reference": ("docs/reference/*.md",),
    "Packages": ("plugins/*/README.md",),
    "Project": ("*.md", "benchmarks/README.md", "tests/README.md"),
}


def _contents(folder: Path) -> str:
    """The tables of contents that make the sidebar, each page once.

    Args:
        folder: where the pages of the site lie; ``index.md`` and ``docs/README.md`` are the start.
    """
    trees = [_tree("Start", ["docs/README"])]
    listed = {"docs/README", "index"}
    for heading, patterns in _GROUPS.items():
        pages = ["api/index"] if heading == "Reference" else []
        for pattern in patterns:
            for path in sorted(folder.glob(pattern)):
                page = path.relative_to(folder).with_suffix("").as_posix()
                if page not in listed:
                    pages.append(page)
        trees.append(_tree(heading, pages))
        listed.update(pages)
    return "\n".join(trees)


def _tree(caption: str, pages: list[str]) -> str:
    listed = "\n".join(f"/{page}" for page in pages)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"


def list_versions(site: Path) -> list[str]:
    """Write which versions lie in ``site``, newest first, for the list on each page; ``index.html``
    leads to the stable one.

    The stable version is the newest that is no pre-release, or the newest where there are only
    pre-releases.
    """
    names = sorted(
        (page.parent.name for page in site.glob("*/index.html")), key=_order, reverse=True
    )
    stable = next((name for name in names if not _order(name).is_prerelease), names[0])
    pages = {
        name: sorted(str(page.relative_to(site / name)) for page in (site / name).rglob("*.html"))
        for name in names
    }
    # A script, not JSON, because a browser does not let a page read other files of a folder.
    (site / "versions.js").write_text(
        f"window.siteVersions = {json.dumps({'stable': stable, 'pages': pages})};\n",
        encoding="utf-8",
    )
    head = f'<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={stable}/index.html"><title>data_stack</title>'
    link = f'<a href="{stable}/index.html">data_stack {stable}</a>'
    (site / "index.html").write_text(
        f'<!doctype html>\n<html lang="en">{head}{link}</html>\n', encoding="utf-8"
    )
    return names


def _order(name: str) -> Version:
    try:
        return Version(name)
    except InvalidVersion:
        return Version("0.dev0")  # such as "main"


class _Links(HTMLParser):
    """The anchors of a page, and what it links to and shows."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors, self.targets = {""}, set[str]()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.anchors.update(value for name, value in attrs if name in ("id", "name") and value)
        self.targets.update(value for name, value in attrs if name in ("href", "src") and value)


def find_broken_links(folder: Path) -> Iterator[str]:
    """The links of the pages below ``folder`` to files and anchors that are not there; other sites
    are not asked.
    """
    pages = {page.resolve(): _Links(page) for page in sorted(folder.rglob("*.html"))}
    for page, links in pages.items():
        for link in sorted(links.targets):
            url = urlsplit(link)
            target = (page.parent / unquote(url.path)).resolve() if url.path else page
            if (
                url.scheme
                or url.netloc
                or (target.name == "versions.js" and target.parent == folder.resolve().parent)
            ):
                continue
            if not target.is_file() or (
                target in pages and unquote(url.fragment) not in pages[target].anchors
            ):
                yield f"{page.relative_to(folder.resolve())}: {link}"


def write_llms_txt(site: Path) -> None:
    """Write ``llms.txt`` at the top of a site, with links to its pages."""

    def link_page(link: re.Match[str]) -> str:
        name = link[1].removesuffix(".md")
        page = "index" if name == "README" else name
        return f"]({page}.html)"

    text = (ROOT / "llms.txt").read_text(encoding="utf-8")
    text = re.sub(r"\]\(([\w/]+\.md)\)", link_page, text)
    (site / "llms.txt").write_text(text, encoding="utf-8")
    for page in site.rglob("*.html"):
        # Sphinx makes a copy of what a page links to, where the links of llms.txt lead nowhere.
        html = page.read_text(encoding="utf-8")
        if "/llms.txt" in html:
            html = re.sub(r"_downloads/[0-9a-f]+/llms\.txt", "llms.txt", html)
            page.write_text(html, encoding="utf-8")
    for copy in site.glob("_downloads/*/llms.txt"):
        shutil.rmtree(copy.parent)


def _mend(page: Path) -> None:
    """Give a page what Sphinx leaves out for screen readers: levels of the sidebar's headings, and
    lists that are lists.
    """
    text = page.read_text(encoding="utf-8").replace(
        'role="heading">', 'role="heading" aria-level="2">'
    )
    # The parameters of a signature, each in a line of its own.
    text = re.sub(
        r"<dl>\s*((?:<dd>.*?</dd>\s*)+)</dl>",
        lambda found: re.sub("(?<=<)(/?)dd>", r"\1span>", found[1]),
        text,
    )
    page.write_text(text, encoding="utf-8")


def main(build: Path, version: str) -> int:
    """Build the site of ``version`` in ``build``; return 1 where Sphinx warns of anything or a link
    leads nowhere.
    """
    from sphinx.cmd.build import build_main

    site, source = build / "html", build / "source"
    assemble(source)
    shutil.rmtree(site / version, ignore_errors=True)
    settings = ["-c", str(ROOT / "docs"), "-d", str(build / "doctrees"), "-D", f"release={version}"]
    settings += ["-D", f"html_title=data_stack {version}"]
    status = build_main(
        ["-b", "html", "-W", "--keep-going", "-q", *settings, str(source), str(site / version)]
    )
    for page in (site / version).rglob("*.html"):
        _mend(page)
    write_llms_txt(site / version)
    shutil.rmtree(site / "jupyter_execute", ignore_errors=True)  # of myst-nb
    list_versions(site)
    broken = [*find_broken_links(site / version)]
    print("".join(f"broken link in {link}\n" for link in broken), end="", file=sys.stderr)
    return int(status or bool(broken))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build the documentation as a site.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs" / "_build")
    parser.add_argument("--version", default=importlib.metadata.version("lazy-data-stack"))
    arguments = parser.parse_args()
    sys.exit(main(arguments.folder, arguments.version))

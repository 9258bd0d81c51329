"""Build the site: the Markdown pages and notebooks of the repository, the API reference, and plots of the benchmarks.

``make docs`` runs this and leaves the site in ``docs/_build/html``. The pages keep their places, so that links between them work
there as they do on GitHub; only ``README.md`` becomes ``index.md``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from plot_benchmarks import plot

import data_stack

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "docs" / "_build"
COPIED = ("*.md", "docs/*.md", "docs/images/*", "benchmarks/*.md", "getting_started/*.ipynb", "plugins/*/README.md")
PLUGINS = ("data_stack_petastorm", "data_stack_spark")


def list_packages() -> list[str]:
    """The modules of the API reference: packages that have public names, the errors, and the plugins with names of their own."""
    found = [module.name for module in pkgutil.walk_packages(data_stack.__path__, "data_stack.") if module.ispkg]
    public = [name for name in found if getattr(importlib.import_module(name), "__all__", [])]
    return sorted(["data_stack", "data_stack.exception", *public]) + list(PLUGINS)


def list_names(package: str) -> list[str]:
    """The public names of a module, sorted, without those of modules; names that need an optional package are among them."""
    module = importlib.import_module(package)
    stub = Path(str(module.__file__)).with_suffix(".pyi")
    names = {*getattr(module, "__all__", [])}
    names.update(re.findall(r" as (\w+)$", stub.read_text(encoding="utf-8"), re.MULTILINE) if stub.exists() else [])
    if not names:
        names = {name for name, value in vars(module).items() if getattr(value, "__module__", "") == package and name[0] != "_"}
    return sorted(name for name in names if not inspect.ismodule(getattr(module, name)))


def write_api_pages() -> dict[str, str]:
    """The pages of the API reference, by module: each object is described once, on the page of the shortest name it has."""
    objects = {
        package: {name: getattr(importlib.import_module(package), name) for name in list_names(package)}
        for package in list_packages()
    }
    homes: dict[tuple[str, int], str] = {}
    for package in sorted(objects, key=lambda package: (package.count("."), package)):
        for name, value in objects[package].items():
            homes.setdefault((name, id(value)), package)
    return {
        package: _api_page(package, found, {name: homes[name, id(value)] for name, value in found.items()})
        for package, found in objects.items()
    }


def _api_page(package: str, objects: Mapping[str, object], homes: Mapping[str, str]) -> str:
    lines = [
        package,
        "=" * len(package),
        "",
        f".. automodule:: {package}",
        "   :no-members:",
        "",
        ".. autosummary::",
        "   :nosignatures:",
        "",
    ]
    lines += [f"   {name if home == package else f'~{home}.{name}'}" for name, home in homes.items() if _is_ours(objects[name])]
    for name, value in objects.items():
        if homes[name] == package:
            lines += ["", name, "-" * len(name), "", *_describe(f"{package}.{name}", value)]
    return "\n".join([*lines, ""])


def _is_ours(value: object) -> bool:
    return inspect.isclass(value) or (callable(value) and str(getattr(value, "__module__", "")).startswith("data_stack"))


def _describe(name: str, value: object) -> list[str]:
    """The directive of an object; a value or a name for what others define is shown as it is."""
    if inspect.isclass(value):
        return [f".. autoclass:: {name}", "   :members:", "   :show-inheritance:"]
    if _is_ours(value):
        return [f".. autofunction:: {name}"]
    text = f"{value.__module__}.{value.__qualname__}" if inspect.isroutine(value) else str(value).replace("typing.", "")
    return [f".. py:data:: {name}", "", f"   ``{text}``"]


def assemble(folder: Path) -> None:
    """Put the pages of the site together in ``folder``, as Sphinx reads them."""
    shutil.rmtree(folder, ignore_errors=True)
    for source in (path for pattern in COPIED for path in ROOT.glob(pattern)):
        target = folder / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    (folder / "api").mkdir()
    for package, page in write_api_pages().items():
        (folder / "api" / f"{package}.rst").write_text(page, encoding="utf-8")
    _add_plots(folder / "benchmarks" / "README.md")
    for copy in folder.rglob("*.md"):
        up = "../" * (len(copy.relative_to(folder).parts) - 1)
        copy.write_text(copy.read_text(encoding="utf-8").replace(f"]({up}README.md", f"]({up}index.md"), encoding="utf-8")
    start = (folder / "README.md").rename(folder / "index.md")
    with start.open("a", encoding="utf-8") as file:
        file.write(_contents(folder / "docs" / "README.md"))


def _add_plots(page: Path) -> None:
    """Put the plot of each table of a page below it, one for light and one for dark pages."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for end, name in reversed(plot(page.parent / "plots")):
        images = [
            ["```{image} " + f"plots/{name}-{shade}.svg", f":class: only-{shade}", ":alt: the table above as bars", "```", ""]
            for shade in ("light", "dark")
        ]
        lines[end:end] = ["", *images[0], *images[1]]
    page.write_text("\n".join([*lines, ""]), encoding="utf-8")


def _contents(page: Path) -> str:
    """The tables of contents that make the sidebar: one for each heading of ``docs/README.md``, of the pages it links to."""
    trees = []
    for heading, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        links = [
            (page.parent / link).resolve().relative_to(page.parents[1].resolve())
            for link in re.findall(r"^- \[.*?\]\(([^)#]+)", text, re.MULTILINE)
        ]
        trees += [
            "```{toctree}",
            ":hidden:",
            f":caption: {heading}",
            "",
            *(f"/{link.with_suffix('')}" for link in links),
            "```",
            "",
        ]
    packages = [f"/api/{package}" for package in list_packages()]
    return "\n".join(
        [
            "",
            "```{toctree}",
            ":hidden:",
            "",
            "/docs/README",
            "```",
            "",
            *trees,
            "```{toctree}",
            ":hidden:",
            ":caption: API",
            "",
            *packages,
            "```",
            "",
        ]
    )


def main() -> int:
    """Build the site; return 1 where Sphinx warns of anything."""
    from sphinx.cmd.build import build_main

    assemble(BUILD / "source")
    return build_main(
        ["-b", "html", "-W", "--keep-going", "-q", "-c", str(ROOT / "docs"), str(BUILD / "source"), str(BUILD / "html")]
    )


if __name__ == "__main__":
    sys.exit(main())

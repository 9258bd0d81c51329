"""What the pages say is true: links, names, commands, and that each public name is described."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import build_docs
import click
import pandas
import plot_benchmarks
import pytest
from process_harness import run_python

import data_stack
from data_stack import formats, loader, reproduce, show
from data_stack.dataset import encoders
from data_stack.dataset.iterator.fluent import FluentIterator
from data_stack.formats import parquet, records

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for folder in (".", "docs", "docs/how_to", "docs/reference", "benchmarks", "plugins/*", "tests")
    for path in ROOT.glob(f"{folder}/*.md")
]
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
WRITTEN_BY_READERS = {"f", "function", "g", "DataFrame", "enumerate", "len", "partial", "range"}


def anchors(text: str) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_of_a_page_or_notebook_leads_somewhere() -> None:
    notebooks = {
        path: path.read_text(encoding="utf-8") for path in ROOT.glob("getting_started/*.ipynb")
    }

    links = [
        (page, link)
        for page, text in (TEXTS | notebooks).items()
        for link in re.findall(r"\]\(([^)\s]+)\)", text)
    ]
    dead = []
    for page, link in links:
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if "://" in link:
            dead += [] if re.fullmatch(r"https?://[\w.-]+\.[a-z]+(/\S*)?", link) else [(page, link)]
        elif not target.exists() or (
            anchor and anchor not in anchors(target.read_text(encoding="utf-8"))
        ):
            dead.append((page, link))

    assert len(links) > 100
    assert dead == []


def test_every_page_has_a_title() -> None:
    without_title = [
        str(page.relative_to(ROOT))
        for page, text in TEXTS.items()
        if not re.search(r"^(# |<h1)", text, re.MULTILINE)
    ]

    assert without_title == []


def test_the_index_has_every_page_once_in_alphabetical_order() -> None:
    _, index = TEXTS[ROOT / "docs" / "README.md"].split("## All pages\n")
    names = re.findall(r"^- \[([^\]]+)\]", index, re.MULTILINE)
    listed = [(ROOT / "docs" / link).resolve() for link in re.findall(r"\]\(([^)]+)\)", index)]

    assert sorted(listed) == sorted({*PAGES} - {ROOT / "docs" / "README.md"})
    assert names == sorted(names, key=str.casefold)


def test_the_documentation_lists_the_notebooks_by_their_numbers() -> None:
    notebooks = re.findall(
        r"^(\d+)\. .*getting_started/([\w.]+)\)", TEXTS[ROOT / "docs" / "README.md"], re.MULTILINE
    )
    first, *others = [path.name for path in ROOT.glob("getting_started/*.ipynb")]
    others = sorted({first, *others} - {"getting_started.ipynb"})

    assert [name for _, name in notebooks] == ["getting_started.ipynb", *others]
    assert [name.partition("_")[0] for name in others] == [
        f"{int(number):02}" for number, _ in notebooks[1:]
    ]


def test_every_public_name_is_described_once() -> None:
    pages = {package: build_docs.write_api_page(package) for package in build_docs.list_packages()}
    described = re.findall(
        r"^\.\. (?:auto(?:class|function)|py:data):: (\S+)$",
        "\n".join(pages.values()),
        re.MULTILINE,
    )
    homes = {name.rpartition(".")[2] for name in described}
    public = [
        (package, name)
        for package in pages
        for name in getattr(import_module(package), "__all__", [])
    ]

    assert {
        "data_stack.load",
        "data_stack.MongoDBStorageConnector",
        "data_stack.exception.ConfigError",
    } <= {*described}
    assert len(described) == len({*described})
    assert [
        (package, name)
        for package, name in public
        if name not in homes and not inspect.ismodule(getattr(import_module(package), name))
    ] == []


def commands(text: str) -> Iterator[list[str]]:
    """The commands of ``data-stack`` in the blocks and the text of a page."""
    for line in re.findall(r"^(?:\$ )?data-stack .*$|`data-stack [^`]*`", text, re.MULTILINE):
        line = re.sub(
            r"[`$\[\]]| \\?[|>] .*|(?<=\w)(?:\|\w+)+", "", line
        )  # what is optional is given, and the first of several
        yield shlex.split(line.strip().replace("…", "X"), comments=True)[1:]


def parse(
    command: click.Command, arguments: list[str], parent: click.Context | None = None
) -> None:
    """Parse a command line as it would be run; arguments may be missing."""
    try:
        context = command.make_context(command.name, list(arguments), parent=parent)
    except click.BadParameter as error:
        if isinstance(error, click.MissingParameter) or re.match(
            "'[A-Z]+' is not|.*does not exist", error.message
        ):
            return  # values and files of the reader
        raise
    except click.exceptions.Exit:  # --version, --help
        return
    protected = vars(context).get("_protected_args") or vars(context).get(
        "protected_args", []
    )  # click 8.1
    rest = [*protected, *context.args] if isinstance(command, click.Group) else []
    if (
        isinstance(command, click.Group) and rest and not rest[0].isupper()
    ):  # COMMAND stands for any
        found = command.get_command(context, rest[0])
        assert found is not None, rest
        parse(found, rest[1:], context)


def test_every_command_of_a_page_exists_with_its_options(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "data_stack")  # --debug changes it, until the test ends
    import_module("data_stack.cli.main")  # puts all of them together
    from data_stack.cli.group import cli as command

    lines = [line for text in TEXTS.values() for line in commands(text)]
    with mock.patch.dict(os.environ):  # --offline sets a variable
        for line in lines:
            parse(command, line)

    assert len(lines) > 60


def unknown_names(code: str) -> Iterator[str]:
    """The functions that an expression calls but nobody has, and the arguments they do not take."""
    modules = [data_stack, formats, records, parquet, loader, encoders, reproduce, show]
    places = [*modules, data_stack.DatasetIteratorIF, data_stack.Loader, pandas.DataFrame]
    for call in (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)):
        name = (
            call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        )
        found: list[Any] = [
            getattr(place, name) for place in places if callable(getattr(place, name, None))
        ]
        accepted = {argument for value in found for argument in inspect.signature(value).parameters}
        if name not in WRITTEN_BY_READERS:
            yield from [] if found else [name]
            yield from (
                f"{name}({keyword.arg}=)"
                for keyword in call.keywords
                if found and keyword.arg not in accepted
            )


@pytest.mark.parametrize(
    "page",
    sorted(str(page.relative_to(ROOT)) for page in PAGES if "| you wrote |" in TEXTS[page]),
)
def test_what_a_page_tells_to_write_instead_exists(page: str) -> None:
    cells = re.findall(r"^\| .* \| (.*) \|$", TEXTS[ROOT / page], re.MULTILINE)
    codes = [
        code.replace("…", "...")
        for cell in cells
        for code in re.findall(r"`([^`]+)`", cell)
        if "(" in code and "data-stack" not in code
    ]

    assert len(codes) >= 10
    assert [name for code in codes for name in unknown_names(code)] == []


def test_the_page_on_stacking_names_every_layer() -> None:
    page = TEXTS[ROOT / "docs" / "stacking.md"]
    methods = [name for name in vars(FluentIterator) if name[0] != "_"]

    assert len(methods) > 25
    assert [name for name in methods if f"{name}(" not in page] == []


def identifiers(folder: Path) -> set[str]:
    """The identifiers of a package: of its modules, functions, classes, arguments and attributes.

    Nothing is imported, as modules need TensorFlow or Spark.
    """
    names = set[str]()
    for path in folder.rglob("*.py"):
        names.update(path.relative_to(folder).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.alias):
                names.add(node.asname or node.name)
            elif isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.add(node.value)  # of arguments that are taken as **arguments, and __all__
    return names


def names_in(code: str) -> list[str]:
    """The names that code like ``reader.Reader(a, b=…)`` in a table shows, but for the module."""
    path, _, arguments = code.partition("(")
    shown = re.findall(r"(\w+) *(?=[,=)])", arguments.replace("=True", "="))
    return [path.rpartition(".")[2], *shown]


@pytest.mark.parametrize("library", ["petastorm", "granular"])
def test_names_of_another_library_exist_as_its_page_says(library: str) -> None:
    page = TEXTS[ROOT / "docs" / "reference" / f"names_of_{library}.md"]
    folders = [ROOT / "plugins" / name / f"data_stack_{name}" for name in (library, "spark")]
    there = set[str]().union(*map(identifiers, folders))

    rows = re.findall(r"^\| (.*?) \| (works?|accepted|new|missing) \|", page, re.MULTILINE)
    codes = [
        (code, state)
        for cell, state in rows
        for code in re.findall(r"`(\w[\w.]*(?:\(.*?\))?)`", cell)
        if not code.endswith(".py") and code != "with"
    ]
    missing = [
        code for code, state in codes if state != "missing" and not there.issuperset(names_in(code))
    ]
    surplus = [code for code, state in codes if state == "missing" and names_in(code)[-1] in there]

    assert len(codes) > 40
    assert missing == []
    assert surplus == []


def test_pictures_show_the_figures_of_the_benchmark_page() -> None:
    tables = plot_benchmarks.read_tables(TEXTS[plot_benchmarks.README])

    for name, chart in plot_benchmarks.PICTURES.items():
        assert (plot_benchmarks.IMAGES / f"{name}.svg").read_text(
            encoding="utf-8"
        ) == plot_benchmarks.draw(chart(tables))


def test_versions_are_listed_and_broken_links_named(tmp_path: Path) -> None:
    for version in ("0.9.0", "0.10.0", "0.11.0rc1", "main"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "index.html").write_text(
            '<a id="a" href="#a"></a><a href="index.html#b"></a><img src="c.png">'
        )

    assert build_docs.list_versions(tmp_path) == ["0.11.0rc1", "0.10.0", "0.9.0", "main"]
    assert '"stable": "0.10.0"' in (tmp_path / "versions.js").read_text()
    assert [*build_docs.find_broken_links(tmp_path / "main")] == [
        "index.html: c.png",
        "index.html: index.html#b",
    ]


def broken_links_of_llms_txt(folder: Path) -> list[str]:
    """The links of ``llms.txt`` in a folder that lead to no file."""
    links = re.findall(r"\]\(([^)\s]+)\)", (folder / "llms.txt").read_text(encoding="utf-8"))
    assert len(links) > 20
    return [link for link in links if not (folder / link).is_file()]


def test_the_page_for_agents_links_to_pages(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<a href="../_downloads/0a1b/llms.txt">')
    build_docs.write_llms_txt(tmp_path)
    links = re.findall(r"\]\(([^)\s]+)\)", (tmp_path / "llms.txt").read_text(encoding="utf-8"))

    assert broken_links_of_llms_txt(ROOT) == []
    assert (tmp_path / "page.html").read_text() == '<a href="../llms.txt">'
    assert {"index.html", "docs/README.html", "docs/loader.html"} <= {*links}
    assert all(link.endswith(".html") for link in links)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_site_is_built_without_warnings_or_broken_links(tmp_path: Path) -> None:
    _, errors = run_python(ROOT / "tools" / "build_docs.py", tmp_path, timeout_seconds=840)

    assert errors == ""
    (site,) = (page.parent for page in tmp_path.glob("html/*/index.html"))
    html = (site / "api" / "data_stack.html").read_text(encoding="utf-8")
    assert [name for name in data_stack.__all__ if f"{name}<" not in html] == []
    assert list(site.glob("_images/table-*.svg"))
    assert broken_links_of_llms_txt(site) == []


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("getting_started/*.ipynb")), ids=lambda path: str(path.stem)
)
def test_notebooks_carry_small_output_that_names_no_machine(path: Path) -> None:
    cells = [
        cell
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]
    outputs = json.dumps([cell["outputs"] for cell in cells])

    assert 100 < path.stat().st_size <= 300_000
    assert [cell["execution_count"] for cell in cells if cell["execution_count"]] == []
    assert len(outputs) > 1000
    assert (
        re.findall(r"(?:/home|/Users|/tmp|/var)/\w+", outputs.replace("/tmp/data_stack", "")) == []
    )

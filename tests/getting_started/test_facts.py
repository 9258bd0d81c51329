"""What the pages state as a fact is compared with the program: commands, files, names, figures."""

from __future__ import annotations

import importlib
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import pytest

from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.testing import engine

ROOT = Path(__file__).parents[2]
FOLDERS = (".", "docs", "docs/how_to", "docs/reference", "benchmarks", "plugins/*", "tests")
TEXTS = {
    str(page.relative_to(ROOT)): page.read_text(encoding="utf-8")
    for folder in FOLDERS
    for page in sorted(ROOT.glob(f"{folder}/*.md"))
}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")

#: Texts that look like dotted names of Python, but are keys of metadata, files and entry points.
NOT_PYTHON = frozenset(
    (
        "data_stack.datasets",
        "data_stack.encoders",
        "data_stack.json",
        "data_stack.lock",
        "data_stack.parquet_metadata",
        "data_stack.schema",
        "data_stack.versions",
    )
)


def _setup_arguments() -> MappingProxyType[str, Any]:
    """Return what ``setup.py`` passes to setuptools."""
    with mock.patch("setuptools.setup") as setup:
        runpy.run_path(str(ROOT / "setup.py"))
    return MappingProxyType(setup.call_args.kwargs)


def find_in_pages(pattern: str) -> list[tuple[str, str]]:
    """Return each match of a pattern with one group, after the page on which it stands."""
    found = []
    for page, text in TEXTS.items():
        for value in re.findall(pattern, text, re.MULTILINE):
            found.append((page, value))
    return found


def test_every_make_target_of_a_page_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))

    named = find_in_pages(r"(?:`|^\$ )make ([a-z][a-z-]*)")

    assert len(named) > 20
    assert [(page, target) for page, target in named if target not in targets] == []


def test_every_variable_of_a_make_command_is_one_of_the_makefile() -> None:
    named = find_in_pages(r"`make [^`]*?([A-Z_]+)=")

    unknown = [(page, name) for page, name in named if not re.search(rf"\b{name}\b", MAKEFILE)]

    assert named
    assert unknown == []


def test_every_extra_of_a_page_exists() -> None:
    extras = {*_setup_arguments()["extras_require"]}

    named = [
        (page, extra)
        for page, names in find_in_pages(r"lazy-data-stack\[([a-z0-9,]+)\]")
        for extra in names.split(",")
    ]

    assert len(named) > 30
    assert [(page, extra) for page, extra in named if extra not in extras] == []


def test_every_extra_stands_on_the_page_about_installing() -> None:
    documented = set(re.findall(r"`([a-z0-9]+)`", TEXTS["docs/install.md"]))

    extras = {*_setup_arguments()["extras_require"]} - {"dev", "docs", "bench", "test"}

    assert extras - documented == set()


def test_the_lowest_version_of_python_is_that_of_the_package() -> None:
    lowest = _setup_arguments()["python_requires"].removeprefix(">=")

    assert f"Python ≥ {lowest}" in TEXTS["docs/install.md"]


def test_every_file_of_a_page_exists() -> None:
    tops = "data_stack|tests|tools|plugins|benchmarks|docs|getting_started"
    named = find_in_pages(rf"`((?:{tops})/[^`\s*…]*)`")

    missing = [
        (page, path)
        for page, path in named
        # Words in capital letters stand for names of the reader; an index is built.
        if not re.search(r"[A-Z]{3,}|_build", path) and not (ROOT / path).exists()
    ]

    assert len(named) > 60
    assert missing == []


def _is_importable(name: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for n_parts in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:n_parts]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[n_parts:]:
            if not hasattr(value, attribute):
                return False
            value = getattr(value, attribute)
        return True
    return False


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # CHANGELOG.md names deprecated names
def test_every_dotted_name_of_a_page_is_one_of_python() -> None:
    named = find_in_pages(r"`(data_stack(?:\.\w+)+)[(`]")

    unknown = [
        (page, name) for page, name in named if name not in NOT_PYTHON and not _is_importable(name)
    ]

    assert len(named) > 100
    assert unknown == []


def test_every_environment_variable_of_a_page_is_read() -> None:
    code = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("data_stack", "tests/support", "conftest.py")
        for path in sorted((ROOT / folder).rglob("*.py")) or [ROOT / folder]
    )
    # The variable of click, which completes commands in shells.
    known = {"_DATA_STACK_COMPLETE", *re.findall(r"DATA_STACK_[A-Z_]+", code)}

    named = find_in_pages(r"\b(_?DATA_STACK_[A-Z_]+)")

    assert len(named) > 30
    assert [(page, name) for page, name in named if name not in known] == []


#: Figures of pages, and how each is computed.
FIGURES: list[tuple[str, str, Callable[[], int]]] = [
    ("docs/plugins.md", r"returns ([\d,]+) results", lambda: engine._N_RESULTS),
    ("docs/install.md", r"\[(\d+) classic ones\]", lambda: _count_classics()),
    ("CHANGELOG.md", r"Packages bring (\d+) classic datasets", lambda: _count_classics()),
]


def _count_classics() -> int:
    listed = (ROOT / "plugins" / "classics" / "pyproject.toml").read_text(encoding="utf-8")
    _, _, names = listed.partition('[project.entry-points."data_stack.datasets"]\n')
    return len(re.findall(r"^[\w-]+ = ", names.partition("\n[")[0], re.MULTILINE))


@pytest.mark.parametrize(("page", "pattern", "compute"), FIGURES)
def test_a_figure_of_a_page_is_computed(
    page: str, pattern: str, compute: Callable[[], int]
) -> None:
    figures = re.findall(pattern, TEXTS[page])

    assert figures == [f"{compute():,}"]


#: What the command `data-stack` runs.
PROGRAM = "import sys; from data_stack.cli.main import main; sys.exit(main())"

#: The commands of pages that show what is printed, with that.
PRINTED = [
    (page, command, printed)
    for page, text in TEXTS.items()
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for command, printed in re.findall(
        r"^\$ data-stack ([^\n#]*)\n((?:(?![$ ])[^\n]+\n)+)", block, re.MULTILINE
    )
]


def test_a_page_shows_what_a_command_prints() -> None:
    assert [page for page, _, _ in PRINTED] == ["docs/command_line.md"]


@pytest.mark.parametrize(("page", "command", "printed"), PRINTED)
def test_a_command_prints_what_its_page_shows(
    prepared: FileStorageConnector, page: str, command: str, printed: str
) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *command.split()],
        env={**os.environ, "DATA_STACK_HOME": str(prepared.root_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert run.stdout + run.stderr == printed, page

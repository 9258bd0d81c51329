"""What the pages state as a fact is compared with the program: commands, files, names, figures."""

from __future__ import annotations

import importlib
import inspect
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

import compare_speed
import mongodb_server
import pytest
from data_stack_croissant import document, document_checks, folder_files, json_path, patterns
from data_stack_ray import task_queue

import data_stack
from data_stack.browse import browser, table
from data_stack.browse.server import connection
from data_stack.browse.server.server import Server
from data_stack.dataset.encoders import stored_encoder
from data_stack.dataset.iterator import blocks
from data_stack.dataset.recipes import recipe_values
from data_stack.dataset.recipes.fingerprint import MAX_EMBEDDED_BYTES
from data_stack.dataset.recipes.recipe import RECIPE_VERSION
from data_stack.dataset.splits import saved_splits
from data_stack.factories import journal, manifest
from data_stack.formats.conversion import batches
from data_stack.formats.hdf5 import apart
from data_stack.formats.hdf5.datasets import MAX_CHUNK_BYTES
from data_stack.formats.parquet import manifest as parquet_manifest
from data_stack.formats.parquet import row_group_cache, schema
from data_stack.formats.records import manifest as records_manifest
from data_stack.io import content, identifiers, parsing
from data_stack.io.archives import ArchiveLimits
from data_stack.io.storage_connectors import (
    FileStorageConnector,
    MongoDBStorageConnector,
    heartbeat,
)
from data_stack.io.storage_connectors.cached import shared_work
from data_stack.io.storage_connectors.cached.checked_file import PAGE_BYTES
from data_stack.io.storage_connectors.cached.content import WHOLE_BYTES
from data_stack.io.storage_connectors.mongodb import connection as connection_of_mongodb
from data_stack.io.storage_connectors.mongodb import resource_version
from data_stack.io.storage_connectors.mongodb.connection import BRIEF_SECONDS
from data_stack.io.storage_connectors.object_store.pointer import FORMAT, PART_BYTES
from data_stack.io.web import adapters, json_api, limits
from data_stack.io.web.limits import Limits
from data_stack.loader import BlockShuffled, state
from data_stack.loader.workers import prefetching
from data_stack.repository import published_description
from data_stack.reproduce import lock_file
from data_stack.show import display_value, shown_samples
from data_stack.show.page import IteratorPage
from data_stack.testing import engine
from data_stack.util import executor, request_limit, untrusted_text

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
        "data_stack.loader.batches",  # a counter of OpenTelemetry
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


def test_every_variable_of_a_make_command_is_in_the_makefile() -> None:
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


def test_the_extra_all_lacks_what_the_page_says() -> None:
    extras = _setup_arguments()["extras_require"]
    (row,) = re.findall(r"^\| `all` \| (.*)$", TEXTS["docs/install.md"], re.MULTILINE)

    of_contributors = {"dev", "docs", "bench", "test", "testing"}
    lacking = {name for name in extras if not {*extras[name]} <= {*extras["all"]}}

    assert {*re.findall(r"`(\w+)`", row)} == lacking - of_contributors


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


#: Figures as words.
WORDS = MappingProxyType({1: "one", 5: "five", 8: "eight"})

#: Figures of pages, and how each is computed.
FIGURES: list[tuple[str, str, Callable[[], object]]] = [
    ("README.md", r"\[classics\]\S* has (\d+)", lambda: _count_classics()),
    ("README.md", r"small records (\d+ to \d+) × as fast", lambda: _ratios_of_small_records()),
    ("README.md", r"windows of tokens (\d+) ×", lambda: round(_ratio_of_tokens())),
    ("README.md", r"JPEGs ([\d.]+) ×", lambda: _ratio_of_images()[:3]),
    ("CONTRIBUTING.md", r"its lowest version, ([\d.]+),", lambda: _lowest_version("torch")),
    ("CHANGELOG.md", r"Packages bring (\d+) classic datasets", lambda: _count_classics()),
    ("benchmarks/README.md", r"commit: (\d+) cases", lambda: len(compare_speed.CASES)),
    ("docs/browse.md", r"a split of up to ([\d,]+) samples", lambda: table._MAX_SAMPLED_ROWS),
    ("docs/browse.md", r"At most (\d+) connections", lambda: connection.MAX_CONNECTIONS),
    ("docs/browse.md", r"of up to ([\d,]+) samples, when", lambda: browser._MAX_COMPARED_SAMPLES),
    (
        "docs/browse.md",
        r"closed after (\w+) seconds",
        lambda: WORDS[_default(Server, "idle_seconds")],
    ),
    ("docs/display.md", r"reads \*\*(\w+) samples", lambda: WORDS[IteratorPage.n_samples]),
    (
        "docs/display.md",
        r"stops after (\w+) second",
        lambda: WORDS[int(shown_samples._MAX_SECONDS)],
    ),
    ("docs/install.md", r"\[(\d+) classic ones\]", lambda: _count_classics()),
    ("docs/plugins.md", r"returns ([\d,]+) results", lambda: engine._N_RESULTS),
    ("docs/reliability.md", r"that of each page of (\d+) KiB", lambda: PAGE_BYTES >> 10),
    ("docs/reliability.md", r"up to (\d+) connections", lambda: adapters._MAX_KEPT_CONNECTIONS),
    ("docs/reliability.md", r"threads of a pool end after (\d+) s", lambda: executor._IDLE_SECONDS),
    ("docs/reliability.md", r"timeout plus (\d+) s", lambda: BRIEF_SECONDS),
    ("docs/reliability.md", r"the timeout, (\d+) s", lambda: limits._DEFAULT_TIMEOUT_SECONDS),
    ("docs/reliability.md", r"after (\d+) retries without", lambda: Limits().n_retries),
    ("docs/reliability.md", r"after (\d+) retries, and", lambda: json_api._LIMITS.n_retries),
    (
        "docs/reliability.md",
        r"slower than (\d+) KiB/s",
        lambda: Limits().min_bytes_per_second / 1024,
    ),
    ("docs/reliability.md", r"at least (\d+) GiB", lambda: request_limit._MIN_DEFAULT_BYTES >> 30),
    ("docs/reliability.md", r"are parsed \| (\d+) MiB", lambda: untrusted_text.MAX_BYTES >> 20),
    ("docs/reliability.md", r"of JSON \| (\d+) levels", lambda: untrusted_text.MAX_JSON_DEPTH),
    ("docs/reliability.md", r"included \| (\d+) levels", lambda: untrusted_text.MAX_TOML_DEPTH),
    ("docs/reliability.md", r"chunk of HDF5 \| (\d+) GiB", lambda: MAX_CHUNK_BYTES >> 30),
    ("docs/reliability.md", r"than (\d+) MiB \| 200", lambda: parsing._HARMLESS_BYTES >> 20),
    ("docs/reliability.md", r"\| (\d+) times \(`max_exp", lambda: parsing.MAX_EXPANSION),
    ("docs/reliability.md", r"\| (\d+) TiB, ", lambda: ArchiveLimits().max_bytes >> 40),
    ("docs/reliability.md", r"TiB, ([\d,]+) members", lambda: ArchiveLimits().max_members),
    ("docs/reliability.md", r"and (\d+) times their size", lambda: ArchiveLimits().max_ratio),
    ("docs/reliability.md", r"(\d+) s of processor time", lambda: apart._MIN_SECONDS),
    ("docs/reliability.md", r"for each (\d+) MiB", lambda: apart._MIN_BYTES_PER_SECOND >> 20),
    ("docs/reliability.md", r"dataset above (\d+) MiB", lambda: apart._MAX_BYTES_AT_ONCE >> 20),
    ("docs/reliability.md", r"it reads (\d+) rows", lambda: apart._N_ROWS_SAMPLED),
    ("docs/reliability.md", r"lasts another (\d+) s", lambda: heartbeat.LIFE_SECONDS),
    (
        "docs/reference/fingerprints.md",
        r"digest of (\d+) samples",
        lambda: recipe_values._N_PROBED,
    ),
    ("docs/reference/fingerprints.md", r"files of (\d+) GiB", lambda: content._LARGE_BYTES >> 30),
    (
        "docs/reference/orders.md",
        r"BlockShuffled\(window=(\d+)\)",
        lambda: _default(BlockShuffled, "window"),
    ),
    ("docs/loader.md", r"the samples of (\d+) of them", lambda: _default(BlockShuffled, "window")),
    (
        "docs/reference/orders.md",
        r"runs of samples of about ([\d.]+) MiB",
        lambda: blocks._BYTES_OF_REMOTE_BLOCK / 2**20,
    ),
    (
        "docs/reference/orders.md",
        r"`ParquetDataset` prefetches up to (\d+) MiB",
        lambda: row_group_cache._MAX_PREFETCHED_BYTES >> 20,
    ),
    ("docs/reference/recipes.md", r"digest of (\d+) samples", lambda: recipe_values._N_PROBED),
    ("docs/reference/recipes.md", r", up to (\d+) MiB", lambda: MAX_EMBEDDED_BYTES >> 20),
    ("docs/reference/recipes.md", r"of more than (\d+) MiB", lambda: MAX_EMBEDDED_BYTES >> 20),
    (
        "docs/reference/workers.md",
        r"takes more than (\d+) s causes a warning",
        lambda: prefetching.PrefetchingWorkers.warns_after_seconds,
    ),
    (
        "docs/reference/shown_values.md",
        r"more than (\d+) numbers",
        lambda: display_value._MAX_PRINTED_NUMBERS,
    ),
    (
        "docs/reference/shown_values.md",
        r"Up to (\d+) numbers",
        lambda: display_value._MAX_PRINTED_NUMBERS,
    ),
    ("docs/reference/shown_values.md", r"up to (\d+) lines", lambda: display_value._MAX_LINES),
    (
        "docs/reference/shown_values.md",
        r"up to (\d+) characters",
        lambda: shown_samples._MAX_CELL_CHARACTERS,
    ),
    ("docs/reference/shown_values.md", r"up to (\d+) columns", lambda: shown_samples._MAX_COLUMNS),
    ("docs/conversion.md", r"others is about (\d+) MiB", lambda: batches._BATCH_BYTES >> 20),
    (
        "docs/mongodb.md",
        r"fails after (\d+) s\.",
        lambda: connection_of_mongodb._MAX_SELECTION_SECONDS,
    ),
    ("docs/ray.md", r"groups of about ([\d.]+) s", lambda: task_queue._GROUP_SECONDS),
    ("docs/sharing.md", r"error within (\d+) s", lambda: limits._DEFAULT_TIMEOUT_SECONDS),
    ("docs/storage.md", r"else after (\d+) s \| is free", lambda: heartbeat.LIFE_SECONDS),
    ("docs/reference/croissant.md", r"^\| bytes \| (\d+) MiB", lambda: document.MAX_BYTES >> 20),
    ("docs/reference/croissant.md", r"^\| levels \| (\d+)", lambda: document_checks.MAX_DEPTH),
    (
        "docs/reference/croissant.md",
        r"inline data \| ([\d,]+)",
        lambda: document_checks.MAX_OBJECTS,
    ),
    ("docs/reference/croissant.md", r"written out \| ([\d,]+)", lambda: document_checks._MAX_NODES),
    ("docs/reference/croissant.md", r"`FileSet` \| ([\d,]+)", lambda: folder_files.MAX_FILES),
    ("docs/reference/croissant.md", r"pattern \| ([\d,]+)", lambda: json_path.MAX_PATTERN_LENGTH),
    ("docs/reference/croissant.md", r"after (\d+) s of processor", lambda: patterns.MAX_SECONDS),
    (
        "docs/reference/identifiers.md",
        r"1 to (\d+) characters, and",
        lambda: identifiers.MAX_CHARACTERS,
    ),
    ("docs/reference/identifiers.md", r"and 1 to (\d+) segments", lambda: identifiers.MAX_SEGMENTS),
    (
        "docs/reference/identifiers.md",
        r"key has 1 to ([\d,]+)",
        lambda: identifiers.MAX_KEY_CHARACTERS,
    ),
    (
        "docs/reference/published_files.md",
        r"first (\d+) bytes",
        lambda: published_description.DIGEST_BYTES,
    ),
    ("docs/reference/store_layout.md", r"\*parts\* of (\d+) MiB", lambda: PART_BYTES >> 20),
    ("docs/reference/store_promises.md", r"up to (\d+) MiB are fetched", lambda: WHOLE_BYTES >> 20),
    (
        "docs/reference/store_promises.md",
        r"delays them by up to (\d+) seconds",
        lambda: shared_work._PATIENCE_SECONDS,
    ),
    (
        "docs/reference/store_urls.md",
        r"^\| `timeoutSeconds` \| (\d+)",
        lambda: _default(MongoDBStorageConnector, "timeout_seconds"),
    ),
    (
        "docs/reference/store_urls.md",
        r"^\| `chunkBytes` \| (\d+)",
        lambda: str(_default(MongoDBStorageConnector, "chunk_bytes")),
    ),
    (
        "docs/reference/store_urls.md",
        r"^\| `inlineBytes` \| (\d+)",
        lambda: str(_default(MongoDBStorageConnector, "inline_bytes")),
    ),
    ("docs/stability.md", r"^\| manifest of a prep.*?\| `(\d+)` ", lambda: manifest._FORMAT),
    ("docs/stability.md", r"^\| journal.*?\| `(\d+)` ", lambda: journal._FORMAT),
    ("docs/stability.md", r"^\| published.*?\| `(\d+)` ", lambda: published_description.FORMAT),
    ("docs/stability.md", r"^\| lock file.*?\| `(\d+)` ", lambda: lock_file._FORMAT),
    ("docs/stability.md", r"`data_stack_recipe: (\d+)`", lambda: RECIPE_VERSION),
    ("docs/stability.md", r"^\| saved splits.*?\| `(\d+)` ", lambda: saved_splits._FORMAT),
    ("docs/stability.md", r"`(data_stack.encoders \d+)`", lambda: stored_encoder._FORMAT),
    ("docs/stability.md", r"`data_stack_loader: (\d+)`", lambda: state._VERSION),
    ("docs/stability.md", r"`(data_stack records \d+)`", lambda: records_manifest._FORMAT),
    ("docs/stability.md", r"^\| schema of P.*?`version: (\d+)`", lambda: schema._VERSION),
    ("docs/stability.md", r"`(data_stack parquet \d+)`", lambda: parquet_manifest._FORMAT),
    ("docs/stability.md", r"`(data_stack resource \d+)`", lambda: FORMAT.decode().strip()),
    ("docs/stability.md", r"`format: (\d+)`", lambda: resource_version._FORMAT),
    (
        "getting_started/07_any_dataset.ipynb",
        r"has (\d+) that everybody uses",
        lambda: _count_classics(),
    ),
    ("tests/README.md", r"tries (\d+) examples of each of", lambda: _n_examples(full=False)),
    ("tests/README.md", r"of each of (\d+) tests", lambda: _count_differential_tests()),
    ("CONTRIBUTING.md", r"tests out of (\d+) packages", lambda: _count_packages()),
    ("tests/README.md", r"It draws (\d+) mutants", lambda: _makefile_default("SAMPLE")),
    (
        "CONTRIBUTING.md",
        r"if it has (\d+) GiB, and those",
        lambda: mongodb_server._ROOM_IN_MEMORY_BYTES >> 30,
    ),
    ("tests/README.md", r"tries (\d+) others", lambda: _n_examples(full=True)),
]


def _count_classics() -> int:
    listed = (ROOT / "plugins" / "classics" / "pyproject.toml").read_text(encoding="utf-8")
    _, _, names = listed.partition('[project.entry-points."data_stack.datasets"]\n')
    return len(re.findall(r"^[\w-]+ = ", names.partition("\n[")[0], re.MULTILINE))


def _count_packages() -> int:
    """Count data_stack and the packages in ``plugins``."""
    return 1 + len([*(ROOT / "plugins").glob("*/pyproject.toml")])


def _makefile_default(variable: str) -> str:
    (value,) = re.findall(rf"^{variable} \?= (.*)$", MAKEFILE, re.MULTILINE)
    return str(value)


def _lowest_version(package: str) -> str:
    (requirement,) = _setup_arguments()["extras_require"][package]
    return str(requirement.partition(">=")[2])


def _default(function: Callable[..., object], parameter: str) -> Any:
    return inspect.signature(function).parameters[parameter].default


def _find_in_benchmarks(pattern: str) -> str:
    (figure,) = re.findall(pattern, TEXTS["benchmarks/README.md"], re.MULTILINE)
    return str(figure)


def _ratios_of_small_records() -> str:
    slower = _find_in_benchmarks(r"^\| W4 .*?; (\d+) × peer")
    faster = _find_in_benchmarks(r"^\| W1 .*?; (\d+) × peer")
    return f"{slower} to {faster}"


def _ratio_of_tokens() -> float:
    ours = _find_in_benchmarks(r"^\| tokens: windows of a `.npy` \| (\d+) k/s")
    peer = _find_in_benchmarks(r"^\| tokens: windows.*torch without workers (\d+) k/s")
    return int(ours) / int(peer)


def _ratio_of_images() -> str:
    return _find_in_benchmarks(r"^\| images: records, threads .*?\| ([\d.]+) × peer")


def _count_differential_tests() -> int:
    files = (ROOT / "tests" / "differential").glob("test_*.py")
    return sum(len(re.findall("^@compared", file.read_text(), re.MULTILINE)) for file in files)


def _n_examples(*, full: bool) -> int:
    code = (ROOT / "tests" / "support" / "table_strategies.py").read_text(encoding="utf-8")
    (few, many) = re.findall(r"or sized\((\d+), (\d+)\)", code)[0]
    return int(many if full else few)


def _as_text(figure: object) -> str:
    """Return a figure as the pages write it."""
    if isinstance(figure, float) and figure.is_integer():
        figure = int(figure)
    return f"{figure:,}" if isinstance(figure, int) else str(figure)


@pytest.mark.parametrize(("page", "pattern", "compute"), FIGURES)
def test_a_figure_of_a_page_is_computed(
    page: str, pattern: str, compute: Callable[[], object]
) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")

    figures = re.findall(pattern, text, re.MULTILINE)

    assert figures == [_as_text(compute())]


def test_pages_say_how_many_samples_digits_and_iris_have(prepared: FileStorageConnector) -> None:
    digits = {
        split: f"{len(samples):,}"
        for split, samples in data_stack.load("digits", storage=prepared).items()
    }
    n_flowers = len(data_stack.load("iris", split="all", storage=prepared))
    page = TEXTS["plugins/digits/README.md"]

    assert re.findall(r"first ([\d,]+) rows", page) == [digits["train"]]
    assert re.findall(r"last ([\d,]+) rows", page) == [digits["test"]]
    total = f"{sum(int(count.replace(',', '')) for count in digits.values()):,}"
    assert re.findall(r"([\d,]+) handwritten digits", page + TEXTS["README.md"]) == [total] * 2
    assert re.findall(r"(\d+) iris flowers", TEXTS["plugins/iris/README.md"]) == [str(n_flowers)]


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
        timeout=120,
        check=False,
    )

    assert run.stdout + run.stderr == printed, page

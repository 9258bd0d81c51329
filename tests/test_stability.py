"""What ``docs/stability.md`` promises: public names, deprecations, stored formats."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import griffe
import make_format_fixtures
import public_api
import pytest
from process_harness import run_python

import data_stack
from data_stack import formats
from data_stack.exception import ConfigError, DataStackError
from data_stack.formats.parquet import infer_schema

ROOT = Path(__file__).parent.parent
ITERATOR: Any = data_stack.from_numpy([[1, 2], [3, 4]], [0, 1])
NAME: Any = "digits"
EXPECTED = json.loads((make_format_fixtures.STORED / "expected.json").read_text())


def test_public_names_change_with_their_file() -> None:
    before, now = (
        set(public_api.FILE.read_text(encoding="utf-8").splitlines()),
        set(public_api.describe().splitlines()),
    )

    changes = [
        *(f"- {line}" for line in sorted(before - now)),
        *(f"+ {line}" for line in sorted(now - before)),
    ]
    assert changes == [], "public names changed: say so in CHANGELOG.md, and run `make api`"


PUBLIC_CODE = """
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
import pytest

SECONDS = 30.0

class Base:
    def run(self, path, *, again: bool = False) -> int: ...
    def _helper(self): ...

class Job(Base):
    kind = "job"
    def __init__(self, name: str, seconds: float = SECONDS) -> None:
        self.name = name
        self._seconds = seconds
    @property
    def is_done(self) -> bool: ...
    @classmethod
    def parse(cls, text: str) -> "Job": ...
    @pytest.fixture
    def store(self): ...
    def test_runs(self): ...

@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0

class Pair(NamedTuple):
    first: str
    second: int = 1
    @property
    def both(self) -> str: ...

class Color(Enum):
    RED = 1
"""


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("Base", ["Base", "Base.run(path, *, again: bool = False) -> int"]),
        (
            "Job",
            [
                "Job(name: str, seconds: float = 30.0) -> None",
                "Job.is_done",
                "Job.kind",
                "Job.name",
                "Job.parse(text: str) -> Job",
                "Job.store",
            ],
        ),
        ("Point", ["Point(x: int, y: int = 0) -> None", "Point.x", "Point.y"]),
        (
            "Pair",
            ["Pair(first: str, second: int = 1)", "Pair.both", "Pair.first", "Pair.second"],
        ),
        ("Color", ["Color", "Color.RED"]),
    ],
)
def test_a_name_is_described_with_what_callers_rely_on(name: str, lines: list[str]) -> None:
    with griffe.temporary_visited_package("program", {"__init__.py": PUBLIC_CODE}) as program:
        described = public_api.describe_name(name, program[name], {"program.Base"})

        assert sorted(described) == lines


def test_deprecated_names_are_gone_in_the_version_that_was_announced() -> None:
    def numbers(version: str) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", version)[:3]]

    paths = [*ROOT.glob("data_stack/**/*.py"), *ROOT.glob("plugins/*/data_stack_*/**/*.py")]
    announced = [
        (path.name, each)
        for path in paths
        for each in re.findall(r'removed_in="([^"]+)"', path.read_text("utf-8"))
    ]

    assert [each for each in announced if numbers(each[1]) <= numbers(data_stack.__version__)] == []


def test_a_deprecated_name_warns_once_for_each_line_using_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from data_stack.util.program_lines import warn_deprecated\n"
        "for _ in range(2):\n"
        "    warn_deprecated('old()', instead='new()', since='1.1', removed_in='2.0')\n"
    )

    _, told = run_python(program)

    expected = "DeprecationWarning: old() is deprecated since data_stack 1.1 and will be removed in 2.0: use new()"
    assert told.count(f"program.py:3: {expected}") == told.count("Warning:") == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: data_stack.lock(ITERATOR), "stacks by keyword"),
        (lambda: data_stack.lock(path="missing", train=NAME), "expected an iterator"),
        (
            lambda: data_stack.remove_dataset(ITERATOR, NAME),
            "expected the name of a dataset, then its storage",
        ),
        (lambda: formats.write_hdf5(io.BytesIO(), ITERATOR), "expected arrays by name"),
        (lambda: formats.write_npz(io.BytesIO(), ITERATOR), "expected arrays by name"),
        (lambda: infer_schema(NAME), "not an Arrow schema: 'digits'"),
    ],
)
def test_arguments_in_the_wrong_place_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()


@pytest.mark.parametrize("name", EXPECTED)
def test_stored_formats_stay_readable_and_newer_ones_are_refused(name: str, tmp_path: Path) -> None:
    shutil.copytree(make_format_fixtures.STORED, tmp_path / "stored")
    path = tmp_path / "stored" / name

    assert make_format_fixtures.read(path) == EXPECTED[name]

    if name != "manifest-2":  # the dataset is prepared again, and the log says why
        make_format_fixtures.make_newer(path)
        with pytest.raises(
            DataStackError, match=r"this version reads .*update data_stack \(docs/stability\.md"
        ):
            make_format_fixtures.read(path)

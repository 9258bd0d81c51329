"""Names, labels and messages of a stranger's data cannot steer the terminal: escape sequences are printed as text."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_stack.cli.main import PrintableFormatter
from data_stack.show.markup import Table, as_text

HOSTILE = "\x1b[31m\x1b]0;title\x07\u202eevil\rname\x9b2J"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    folder.mkdir()
    table = pa.table({HOSTILE: [1, 2], "plain": [HOSTILE, "b"]})
    pq.write_table(table, folder / "a.parquet")
    return folder


def check(text: str) -> None:
    assert all(each.isprintable() or each in "\n\t" for each in text), repr(text)


def test_copies_and_conversions_print_none(command: Callable[..., Any], dataset: Path, tmp_path: Path) -> None:
    for arguments in (
        ["convert", str(dataset), str(tmp_path / "target.npz")],
        ["convert", str(dataset), str(tmp_path / "target")],
        ["convert", str(tmp_path / HOSTILE), str(tmp_path / "other")],
        ["convert", str(tmp_path / "target.npz"), str(tmp_path / "b.h5")],
        ["verify", HOSTILE],
        ["info", HOSTILE],
        ["report", HOSTILE],
    ):
        outcome = command(*arguments)
        assert outcome.out + outcome.err
        check(outcome.out + outcome.err)


def test_logged_names_are_escaped() -> None:
    record = logging.LogRecord("data_stack", logging.WARNING, "", 0, "column %s", (HOSTILE,), None)

    assert PrintableFormatter("%(levelname)s: %(message)s").format(record).startswith(r"WARNING: column \x1b[31m")


def test_wide_characters_stay_in_their_column() -> None:
    shown = as_text([Table(("name", "n"), [("数据集", "1"), ("digits", "2")], frozenset({1}))])

    assert shown.splitlines() == ["name    n", "------  -", "数据集  1", "digits  2"]

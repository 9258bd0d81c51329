"""Suggestions for misspelled names, and the errors that offer them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import data_stack
from data_stack import SequenceDatasetIterator
from data_stack.formats.parquet import ParquetWriter
from data_stack.util.suggestions import did_you_mean


class Textless:
    def __str__(self) -> str:
        raise RecursionError


@pytest.mark.parametrize(
    ("wrong", "known", "near"),
    [
        ("trian", ["test", "train"], "train"),
        ("TRAIN", ["test", "train"], "train"),
        ("Lable", ["Label", 3, ("a", "b"), None], "Label"),
        ("x", ["train"], None),
        ("train", [], None),
        ("a" * 10_000_000, (f"{'b' * 200}{number}" for number in range(10**9)), None),  # takes no time
        (np.int64(3), [1, 2], None),
        (Textless(), ["train"], None),
    ],
)
def test_the_nearest_name_is_suggested(wrong: object, known: Iterable[object], near: str | None) -> None:
    assert did_you_mean(wrong, known) == ("" if near is None else f" (did you mean {near!r}?)")


SAMPLES = [{"image": number, "label": number % 2} for number in range(4)]
ROWS = SequenceDatasetIterator([SAMPLES]).map(lambda row: row[0])
TUPLES = SequenceDatasetIterator([[1], [2]])


@pytest.mark.parametrize(
    ("use", "near"),
    [
        (lambda: data_stack.load("digit"), "digits"),
        (lambda: data_stack.load("digits", "Train", storage="memory://"), "train"),
        (lambda: data_stack.load("digits", "test", storage="memory://").read_column("lable"), "label"),
        (lambda: data_stack.load("digits", storage="memroy://x"), "memory"),
        (lambda: ROWS.read_column("lable"), "label"),
        (lambda: TUPLES.encode({1: data_stack.encoder("categorcal")}), "categorical"),
        (lambda: ParquetWriter("x", compression="ztsd"), "zstd"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(use: Callable[[], Any], near: str) -> None:
    with pytest.raises(data_stack.DataStackError, match=rf"\(did you mean '{near}'\?\)"):
        use()

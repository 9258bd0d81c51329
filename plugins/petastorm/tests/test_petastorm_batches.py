"""Walks over batches of rows and of n-grams, and parts of row groups."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from data_stack_petastorm.batches import count_rows, iterate_columns, map_columns
from data_stack_petastorm.row_groups import parts_of_row_groups, permute_rows
from data_stack_petastorm.shuffle_buffer import shuffle
from hypothesis import given
from hypothesis import strategies as st

ROWS = {"id": np.arange(3), "speed": np.arange(3) / 2}
NGRAMS = {0: {"id": np.arange(3)}, 1: {"id": np.arange(3) + 1, "speed": np.arange(3) / 2}}


def double(name: str, column: Any) -> Any:
    return column * 2


def test_a_function_is_applied_to_each_column() -> None:
    doubled = map_columns(NGRAMS, double)

    assert list(doubled) == [0, 1]
    assert doubled[1]["id"].tolist() == [2, 4, 6]
    assert map_columns(ROWS, double)["speed"].tolist() == [0, 1, 2]


def test_omitted_columns_are_not_converted() -> None:
    assert list(map_columns(ROWS, double, omit={"id"})) == ["speed"]


def test_a_struct_is_a_value_and_no_offset() -> None:
    row = {"pair": {"a": 1}}

    assert map_columns(row, lambda name, value: (name, value)) == {"pair": ("pair", {"a": 1})}


def test_rows_are_counted_by_any_column() -> None:
    assert count_rows(ROWS) == 3
    assert count_rows(NGRAMS) == 3
    assert count_rows({0: {}, 1: {"id": np.arange(2)}}) == 2
    assert count_rows({}) == 0


def test_columns_of_all_offsets_are_iterated() -> None:
    assert len(list(iterate_columns(ROWS))) == 2
    assert len(list(iterate_columns(NGRAMS))) == 3


def test_rows_stay_whole_when_they_are_permuted() -> None:
    permuted = permute_rows(NGRAMS, np.random.default_rng(1))

    assert sorted(permuted[0]["id"].tolist()) == [0, 1, 2]
    assert np.array_equal(permuted[1]["id"], permuted[0]["id"] + 1)
    assert np.array_equal(permuted[1]["speed"], permuted[0]["id"] / 2)


@given(lengths=st.lists(st.integers(0, 20), max_size=6), n_parts=st.integers(1, 5))
def test_parts_of_a_row_group_differ_by_one_row(lengths: list[int], n_parts: int) -> None:
    part_lengths, n_parts_of = parts_of_row_groups(np.array(lengths, dtype=np.int64), n_parts)

    ends = np.cumsum(n_parts_of)
    for length, end, count in zip(lengths, ends, n_parts_of, strict=True):
        parts = part_lengths[end - count : end]
        assert parts.sum() == length
        assert parts.max() - parts.min() <= 1
        assert count == min(max(length, 1), n_parts)


@pytest.mark.parametrize("capacity", [0, 1, 5, 100])
def test_a_shuffle_buffer_returns_each_row_once(capacity: int) -> None:
    rows = list(shuffle(iter(range(40)), capacity, seed="a seed"))

    assert Counter(rows) == Counter(range(40))
    assert (rows == list(range(40))) == (capacity <= 1)
    assert rows == list(shuffle(iter(range(40)), capacity, seed="a seed"))

"""Where windows start, as a pure function of values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from data_stack.dataset.iterator.layers.window_starts import KeyedColumn, find_window_starts
from data_stack.exception import ConfigError


def starts_of(*arguments: Any, **how: Any) -> list[int]:
    return list(find_window_starts(*arguments, **how).starts)


def column(*values: Any) -> KeyedColumn:
    return KeyedColumn("x", np.array(values))


def test_ordered_samples_need_no_array() -> None:
    found = find_window_starts(10, 4, 3)

    assert found.starts == range(0, 7, 3)
    assert found.order is None


def test_too_few_samples_have_no_window() -> None:
    assert starts_of(3, 4, 1) == []
    assert starts_of(0, 1, 1, order_by=column()) == []


def test_windows_that_do_not_overlap_start_after_one_another() -> None:
    assert starts_of(10, 4, 1, overlap=False) == [0, 4]
    assert starts_of(10, 2, 3, overlap=False) == [0, 3, 6]


def test_a_window_lies_within_one_group() -> None:
    found = find_window_starts(6, 2, 1, group_by=column(1, 2, 1, 2, 1, 2))

    assert found.order is not None
    assert found.order.tolist() == [0, 2, 4, 1, 3, 5]
    assert list(found.starts) == [0, 1, 3, 4]


def test_a_window_spans_no_gap() -> None:
    values = column(0, 1, 5, 6, 7)

    assert starts_of(5, 2, 1, order_by=values, max_gap=1) == [0, 2, 3]
    assert starts_of(5, 2, 1, order_by=values, max_gap=4) == [0, 1, 2, 3]


def test_equal_values_left_over_are_skipped() -> None:
    values = column(1, 1, 1, 2, 3)

    assert starts_of(5, 2, 1, order_by=values, overlap=False) == [0, 3]


def test_values_may_be_arrays_of_several_lengths() -> None:
    arrays = np.empty(4, dtype=object)
    for row, items in enumerate([[1, 2], [1, 2], [1, 2, 3], [4]]):
        arrays[row] = np.array(items)

    starts = starts_of(4, 1, 1, order_by=KeyedColumn("x", arrays), overlap=False)

    assert starts == [0, 2, 3]


def test_samples_that_are_in_order_keep_no_order() -> None:
    found = find_window_starts(4, 2, 1, order_by=column(1, 2, 2, 3))

    assert found.order is None
    assert found.starts == range(3)


def test_a_missing_value_is_named_by_its_position() -> None:
    with pytest.raises(ConfigError, match="column 'x' is nan at position 1; filter such"):
        find_window_starts(3, 2, 1, order_by=column(1.0, np.nan, 2.0))

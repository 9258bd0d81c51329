"""Sorting: every kind of value, equal ones, missing ones, and those that have no order."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from layer_laws import object_column
from torch_or_stand_in import torch

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.dataset.iterator.layers.ordered import SortedDatasetIterator


def order_of(column: Any, *, descending: bool = False) -> list[int]:
    order: list[int] = SortedDatasetIterator(
        SequenceDatasetIterator([column]), 0, descending=descending
    ).indices.tolist()
    return order


@pytest.mark.parametrize(
    "column",
    [
        [3, 1, 2, 1],
        [2**70, -(2**70), 5, -(2**70)],
        np.array([0.5, -np.inf, 0.25, -np.inf], dtype=np.float16),
        ["c", "a", "b", "a"],
        np.array(["2022", "2020", "2021", "2020"], dtype="M8[Y]"),
        [datetime(2022, 1, 1), datetime(2020, 1, 1), datetime(2021, 1, 1), datetime(2020, 1, 1)],
        [("b", 2), ("a", 9), ("b", 1), ("a", 9)],
        torch.tensor([3, 1, 2, 1]),
        [Decimal("0.3"), Decimal("0.1"), Decimal("0.2"), Decimal("0.1")],
    ],
)
def test_values_of_every_kind_are_sorted_stably(
    column: Any,
) -> None:
    values = [
        tuple(value) if isinstance(value, list) else value
        for value in (column.tolist() if hasattr(column, "tolist") else column)
    ]
    ascending = sorted(range(4), key=values.__getitem__)
    descending = sorted(range(4), key=values.__getitem__, reverse=True)

    assert order_of(column) == ascending
    assert order_of(column, descending=True) == descending
    assert ascending.index(1) < ascending.index(3)
    assert descending.index(1) < descending.index(3)


@pytest.mark.parametrize(
    "column",
    [
        np.array([np.nan, 2, 1, np.nan, 3]),
        np.array(["NaT", "2021", "2020", "NaT", "2022"], dtype="M8[D]"),
        object_column(float("nan"), 2**70, 1, Decimal("nan"), 2**71),
        np.array([[1, np.nan], [2, 2], [2, 1], [np.nan, 0], [3, 0]]),
        object_column(("x", float("nan")), ("b", 0.0), ("a", 9.0), (np.nan,), ("c", -1.0)),
    ],
)
def test_missing_values_come_last_in_both_directions(column: Any) -> None:
    assert order_of(column) == [2, 1, 4, 0, 3]
    assert order_of(column, descending=True) == [4, 1, 2, 0, 3]

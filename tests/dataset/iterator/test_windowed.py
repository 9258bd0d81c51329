"""Windows: which samples are in them, in which form, and how they are read."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.dataset.iterator.layers.windowed import WindowedDatasetIterator


def positions_of_windows(
    values: Sequence[Any] | None,
    groups: Sequence[Any] | None,
    n_samples: int,
    length: int,
    stride: int = 1,
    max_gap: Any = None,
    overlap: bool = True,
) -> list[list[int]]:
    """The same in plain Python, one sample after the other."""
    members: dict[Any, list[int]] = {}
    for position in range(n_samples):
        members.setdefault(None if groups is None else groups[position], []).append(position)
    windows = []
    for group in members.values():
        if values is not None:
            group.sort(key=values.__getitem__)
        runs: list[list[int]] = []
        for position in group:
            if not runs or (
                max_gap is not None
                and values is not None
                and values[position] - values[runs[-1][-1]] > max_gap
            ):
                runs.append([])
            runs[-1].append(position)
        for run in runs:
            start = 0
            while start + length <= len(run):
                windows.append(run[start : start + length])
                last = run[start + length - 1]
                start += stride if overlap else max(stride, length)
                while (
                    not overlap
                    and values is not None
                    and start < len(run)
                    and values[run[start]] <= values[last]
                ):
                    start += 1
    return windows


def found(iterator: DatasetIteratorIF, key: Any = 0) -> list[list[int]]:
    return [window[key].tolist() for window in iterator]


def numbered(n_samples: int, *columns: Any) -> SequenceDatasetIterator:
    """Samples whose column 0 is their position."""
    return SequenceDatasetIterator([np.arange(n_samples), *columns])


# --- which samples --------------------------------------------------------------------------------


_NEAR = [[2, 1], [1, 0], [4, 3]]  # 0, 1 and 3; 8 and 9


@pytest.mark.parametrize(
    ("values", "max_gap", "expected"),
    [
        ([3, 1, 0, 9, 8], 2, _NEAR),
        (np.array([-(2**63) + 3, -(2**63) + 1, -(2**63), 2**63 - 1, 2**63 - 2]), 2, _NEAR),
        (np.array([0.3, 0.1, 0.0, 0.9, 0.8], dtype=np.float32), 0.25, _NEAR),
        (np.array([0.3, 0.1, -np.inf, np.inf, np.inf]), 0.25, [[1, 0], [3, 4]]),
        (np.array([3, 1, 0, 9, 8], dtype="M8[s]"), np.timedelta64(2000, "ms"), _NEAR),
        (np.array([3, 1, 0, 9, 8], dtype="M8[s]"), timedelta(seconds=2), _NEAR),
        (np.array([3, 1, 0, 9, 8], dtype="m8[s]"), timedelta(seconds=2.5), _NEAR),
        (np.array([3, 3, 3, 9, 9], dtype="M8[s]"), 0, [[0, 1], [1, 2], [3, 4]]),
        ([datetime(2020, 1, 1 + day) for day in (3, 1, 0, 9, 8)], timedelta(days=2), _NEAR),
        ([Decimal(number) for number in (3, 1, 0, 9, 8)], 2, _NEAR),
        ([3, 1, 0, 9, 8], float("inf"), [[2, 1], [1, 0], [0, 4], [4, 3]]),
        ([3, 3, 3, 9, 9], 0, [[0, 1], [1, 2], [3, 4]]),
    ],
)
def test_gaps_end_runs_in_units_of_the_ordering_column(
    values: Any, max_gap: Any, expected: Any
) -> None:
    windows = WindowedDatasetIterator(numbered(5, values), 2, order_by=1, max_gap=max_gap)

    assert found(windows) == expected


@given(
    rows=st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["a", "b", "c"])), max_size=25),
    length=st.integers(1, 4),
    stride=st.integers(1, 5),
    overlap=st.booleans(),
    order_by=st.sampled_from([None, 1]),
    group_by=st.sampled_from([None, 2]),
    max_gap=st.none() | st.integers(0, 4),
    dtype=st.sampled_from([np.int64, np.uint8, np.float32, "M8[ms]", object]),
    lowest=st.integers(-3, 5),
)
def test_windows_are_what_plain_python_finds(
    rows: list[tuple[int, str]],
    length: int,
    stride: int,
    overlap: bool,
    order_by: int | None,
    group_by: int | None,
    max_gap: Any,
    dtype: Any,
    lowest: int,
) -> None:
    values, groups = [value for value, _ in rows], [group for _, group in rows]
    max_gap = max_gap if order_by else None
    expected = positions_of_windows(
        values if order_by else None,
        groups if group_by else None,
        len(rows),
        length,
        stride,
        max_gap,
        overlap,
    )

    source, last = numbered(len(rows), np.array(values, dtype=dtype), groups), lowest + length - 1
    # a number has no unit, so a gap between times is a span
    is_gap_of_times = max_gap is not None and dtype == "M8[ms]"
    arguments: Any = {
        "stride": stride,
        "max_gap": np.timedelta64(max_gap, "ms") if is_gap_of_times else max_gap,
        "overlap": overlap,
        "order_by": order_by,
        "group_by": group_by,
    }
    windows = WindowedDatasetIterator(source, length, **arguments)
    n_grams = WindowedDatasetIterator(
        source, length, **arguments, offsets={lowest: [0], last: None}
    )

    assert found(windows) == expected
    assert windows.read_column(0).tolist() == expected
    assert found(pickle.loads(pickle.dumps(windows))) == expected
    assert (
        found(
            WindowedDatasetIterator._from_arguments(
                [windows._dataset_iterator], windows._arguments()
            )
        )
        == expected
    )
    assert [(n_gram[lowest][0], n_gram[last][0]) for n_gram in n_grams] == [
        (window[0], window[-1]) for window in expected
    ]

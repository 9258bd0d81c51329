"""Where windows start: in runs of samples that follow each other."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.contract import ColumnArray, ColumnKey
from data_stack.dataset.iterator.layers.deduplicated import equal_groups
from data_stack.dataset.iterator.layers.gaps import equals_last, exceeds_gap
from data_stack.dataset.iterator.layers.grouped import Starts
from data_stack.dataset.iterator.layers.ordered import missing_values, stable_order
from data_stack.dataset.positions import IndexArrayOfInts, narrow
from data_stack.dataset.splits.class_numbers import class_numbers
from data_stack.exception import ConfigError
from data_stack.values.digests import column_digests
from data_stack.values.stacked_values import objects
from data_stack.values.times import in_utc

_Positions = npt.NDArray[np.intp]


@dataclass(frozen=True)
class KeyedColumn:
    """The values of a column, with its key for errors.

    Attributes:
        key: a position or a name.
        values: shape ``(n_samples, ...)``.
    """

    key: ColumnKey
    values: ColumnArray


@dataclass(frozen=True)
class WindowStarts:
    """Where windows start.

    Attributes:
        starts: the places at which they start. Places number the samples in the order in which they
            follow each other.
        order: the positions of all places; None if places are positions.
    """

    starts: Starts
    order: IndexArrayOfInts | None = None


def find_window_starts(
    n_samples: int,
    length: int,
    stride: int,
    *,
    overlap: bool = True,
    order_by: KeyedColumn | None = None,
    group_by: KeyedColumn | None = None,
    max_gap: Any = None,
) -> WindowStarts:
    """Find where windows start; see ``WindowedDatasetIterator`` for what is consecutive.

    Args:
        n_samples: of the iterator.
        length: samples in a window.
        stride: samples from the start of a window to the start of the next, at least.
        overlap: whether windows may share samples.
        order_by: the values to order by; None: samples are ordered.
        group_by: the values of groups; None: all are one group.
        max_gap: the largest difference of two values of ``order_by`` in one window; None: any.

    Raises:
        ConfigError: a value of ``order_by`` is missing, or values cannot be compared or subtracted.
    """
    step = stride if overlap else max(stride, length)
    if n_samples < length or (order_by is None and group_by is None):
        return WindowStarts(range(0, max(0, n_samples - length + 1), step))

    order = np.arange(n_samples, dtype=np.intp)
    if order_by is not None:
        order = _order_by(order_by)

    # A run of samples that follow each other starts where a group starts and after a gap.
    starts_run = np.zeros(n_samples, dtype=bool)
    starts_run[0] = True
    if group_by is not None:
        groups = number_groups(group_by.values)[order]
        by_group = np.argsort(groups, kind="stable")
        order = order[by_group]
        groups = groups[by_group]
        starts_run[1:] = groups[1:] != groups[:-1]
    follows_equal = np.zeros(n_samples, dtype=bool)
    if order_by is not None:
        values = _as_instants(order_by.values[order])
        if max_gap is not None:
            same_group = ~starts_run[1:]
            starts_run[1:] |= exceeds_gap(values, max_gap, same_group, order_by.key, order)
        if not overlap:
            follows_equal = ~starts_run
            follows_equal[1:] &= equals_last(values)

    is_in_order = bool((order == np.arange(n_samples)).all())
    kept_order = None if is_in_order else narrow(order, n_samples)
    runs = np.flatnonzero(starts_run)
    if follows_equal.any():
        changes = np.flatnonzero(~follows_equal)
        starts = starts_after_larger(np.append(runs, n_samples), length, step, changes)
    elif len(runs) == 1:
        # a range takes no memory
        return WindowStarts(range(0, n_samples - length + 1, step), kept_order)
    else:
        starts = starts_in_runs(runs, np.diff(runs, append=n_samples), length, step)
    return WindowStarts(narrow(starts, n_samples), kept_order)


def _order_by(column: KeyedColumn) -> _Positions:
    """Return the positions of a column's values in their order.

    Raises:
        ConfigError: a value is missing, or values cannot be compared.
    """
    missing = np.flatnonzero(missing_values(column.values, column.key))
    if len(missing):
        position = missing[0]
        raise ConfigError(
            f"column {column.key!r} is {column.values[position]!s:.60} at position {position}; "
            f"filter such samples out first"
        )
    return stable_order(column.values, column.key)


def number_groups(column: ColumnArray) -> _Positions:
    """Return a number for each value, equal for equal values: 0 for the first, and so on."""
    has_classes = column.dtype.kind in "biu" or all(type(value) is str for value in column)
    if column.ndim == 1 and has_classes:
        classes = class_numbers(column, f"samples cannot be grouped by {column.dtype}")
        return classes.numbers.astype(np.intp)
    _, numbers = equal_groups(column_digests(column))
    return numbers


def _as_instants(column: ColumnArray) -> ColumnArray:
    """Return a column with the datetimes that have a time zone in UTC.

    So they are compared and subtracted by instant.
    """
    if column.dtype != object or column.ndim != 1:
        return column
    if not any(isinstance(value, datetime) and value.tzinfo is not None for value in column):
        return column
    return objects([in_utc(value) for value in column])


# ---------------------------------------------------------------------- starts in runs


def starts_in_runs(runs: _Positions, lengths: _Positions, length: int, step: int) -> _Positions:
    """Return starts every ``step`` samples in each run.

    Args:
        runs: where the runs start.
        lengths: of the runs.
        length: of a window.
        step: from start to start.
    """
    n_windows_of_run = np.maximum(0, (lengths - length) // step + 1)
    n_windows_before = np.cumsum(n_windows_of_run) - n_windows_of_run
    numbers = np.arange(int(n_windows_of_run.sum()), dtype=np.intp)
    starts: _Positions = (
        np.repeat(runs - n_windows_before * step, n_windows_of_run) + numbers * step
    )
    return starts


def starts_after_larger(
    run_ends: _Positions, length: int, step: int, changes: _Positions
) -> _Positions:
    """Return starts as :func:`starts_in_runs` does, each at a larger value than the last.

    A window starts after the last value that equals the one that the window before ended with.

    Args:
        run_ends: where the runs start, and where the last one ends.
        length: of a window.
        step: from start to start, at least.
        changes: where a value is another than the one before, or a run starts.
    """
    n_samples = int(run_ends[-1])
    n_equal = np.diff(changes, append=n_samples)
    next_larger = np.repeat(np.append(changes[1:], n_samples), n_equal)
    next_larger_of = next_larger.data  # returns ints faster than the array
    starts = []
    for run_start, run_end in zip(run_ends[:-1].tolist(), run_ends[1:].tolist(), strict=True):
        start = run_start
        while start + length <= run_end:
            starts.append(start)
            start = max(start + step, next_larger_of[start + length - 1])
    return np.array(starts, dtype=np.intp)

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
        n_samples: the number of samples of the iterator.
        length: the number of samples in a window.
        stride: the least number of samples from the start of a window to the start of the next.
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

    runs = _find_runs(n_samples, order_by, group_by, max_gap, finds_equal=not overlap)
    is_in_order = bool((runs.order == np.arange(n_samples)).all())
    kept_order = None if is_in_order else narrow(runs.order, n_samples)
    run_starts = np.flatnonzero(runs.starts_run)
    if runs.follows_equal.any():
        changes = np.flatnonzero(~runs.follows_equal)
        run_ends = np.append(run_starts, n_samples)
        starts = starts_after_larger(run_ends, length, step, changes)
    elif len(run_starts) == 1:
        # A range takes no memory.
        return WindowStarts(range(0, n_samples - length + 1, step), kept_order)
    else:
        run_lengths = np.diff(run_starts, append=n_samples)
        starts = starts_in_runs(run_starts, run_lengths, length, step)
    return WindowStarts(narrow(starts, n_samples), kept_order)


# ---------------------------------------------------------------------- runs


@dataclass(frozen=True)
class _Runs:
    """Samples in the order in which they follow each other, in runs without a gap.

    Attributes:
        order: the positions of the samples, shape ``(n_samples,)``.
        starts_run: which samples start a run.
        follows_equal: which samples follow one of the same run with an equal value; all False where
            that makes no difference.
    """

    order: _Positions
    starts_run: npt.NDArray[np.bool_]
    follows_equal: npt.NDArray[np.bool_]


def _find_runs(
    n_samples: int,
    order_by: KeyedColumn | None,
    group_by: KeyedColumn | None,
    max_gap: Any,
    *,
    finds_equal: bool,
) -> _Runs:
    """Find the runs of samples; see :func:`find_window_starts` for the arguments.

    Args:
        n_samples: at least 1.
        order_by: the values to order by.
        group_by: the values of groups.
        max_gap: the largest difference within a run.
        finds_equal: whether ``follows_equal`` makes a difference.
    """
    order = np.arange(n_samples, dtype=np.intp)
    if order_by is not None:
        order = _order_by(order_by)

    # A run starts where a group starts, and after a gap.
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
        if finds_equal:
            follows_equal = ~starts_run
            follows_equal[1:] &= equals_last(values)
    return _Runs(order, starts_run, follows_equal)


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
    """Return a number for each value: equal for equal values, from 0 in order of appearance."""
    has_classes = column.dtype.kind in "biu" or all(type(value) is str for value in column)
    if column.ndim == 1 and has_classes:
        classes = class_numbers(column, f"samples cannot be grouped by {column.dtype}")
        return classes.numbers.astype(np.intp)
    _, numbers = equal_groups(column_digests(column))
    return numbers


def _as_instants(column: ColumnArray) -> ColumnArray:
    """Return a column with datetimes of all time zones in UTC, so that they compare by instant."""
    if column.dtype != object or column.ndim != 1:
        return column
    if not any(isinstance(value, datetime) and value.tzinfo is not None for value in column):
        return column
    return objects([in_utc(value) for value in column])


# ---------------------------------------------------------------------- starts in runs


def starts_in_runs(runs: _Positions, lengths: _Positions, length: int, step: int) -> _Positions:
    """Return starts every ``step`` samples in each run.

    Args:
        runs: where the runs start, shape ``(n_runs,)``.
        lengths: the number of samples in each run, shape ``(n_runs,)``.
        length: the number of samples in a window.
        step: the number of samples from the start of a window to the start of the next.
    """
    n_windows_of_run = np.maximum(0, (lengths - length) // step + 1)
    n_windows_before = np.cumsum(n_windows_of_run) - n_windows_of_run
    numbers = np.arange(int(n_windows_of_run.sum()), dtype=np.intp)
    # Window n of a run starts n * step samples after the run.
    numbers_in_run = numbers - np.repeat(n_windows_before, n_windows_of_run)
    starts: _Positions = np.repeat(runs, n_windows_of_run) + numbers_in_run * step
    return starts


def starts_after_larger(
    run_ends: _Positions, length: int, step: int, changes: _Positions
) -> _Positions:
    """Return starts in each run, each at a larger value than the window before ended with.

    Args:
        run_ends: where the runs start, and where the last one ends, shape ``(n_runs + 1,)``.
        length: the number of samples in a window.
        step: the least number of samples from the start of a window to the start of the next.
        changes: where a value is another than the one before, or a run starts, ascending.
    """
    n_samples = int(run_ends[-1])
    n_equal = np.diff(changes, append=n_samples)
    # For each sample, where the next larger value begins.
    next_larger = np.repeat(np.append(changes[1:], n_samples), n_equal)
    next_larger_of = next_larger.data  # returns ints faster than the array
    starts = []
    for run_start, run_end in zip(run_ends[:-1].tolist(), run_ends[1:].tolist(), strict=True):
        start = run_start
        while start + length <= run_end:
            starts.append(start)
            last = start + length - 1
            start = max(start + step, next_larger_of[last])
    return np.array(starts, dtype=np.intp)

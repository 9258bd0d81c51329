"""Computes statistics of columns, block by block in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.show.column_report import ColumnReport, ColumnStatistics, common_shape, fields_of
from data_stack.values.missing import missing_in, present_values
from data_stack.values.moments import RunningMoments
from data_stack.values.stacked_values import exact_array
from data_stack.values.times import comparable

_Array = npt.NDArray[Any]

#: Columns of more distinct values get no number of distinct values.
_MAX_DISTINCT_VALUES = 100_000

#: Integers of at least this absolute value may not fit into float64. They count as infinite.
_MIN_INFINITE_INTEGER = 2**1023

#: Integers of at least this absolute value do not fit into int64.
_MIN_INTEGER_BEYOND_INT64 = 2**63


def with_statistics(
    iterator: DatasetIteratorIF, columns: Sequence[ColumnReport]
) -> tuple[ColumnReport, ...]:
    """Add the statistics of all samples to ``columns``.

    Reads the samples once, in blocks of about 4 MiB.
    """
    collectors: dict[Any, _StatisticsCollector] = {}
    for column in columns:
        collectors[column.key] = _StatisticsCollector()
    for _, batch in in_blocks(len(iterator), access_to(iterator).batch):
        for key, values in fields_of(batch).items():
            if key in collectors:
                collectors[key].add(values)

    reports = []
    for column in columns:
        collector = collectors[column.key]
        # The shape is that of all samples now, instead of some.
        shape = common_shape(collector.shapes) if collector.shapes else column.shape
        reports.append(replace(column, shape=shape, statistics=collector.statistics()))
    return tuple(reports)


class _StatisticsCollector:
    """Collects statistics of one column block by block."""

    #: The shapes of the values; ``()`` for a missing one.
    shapes: set[tuple[int, ...]]

    #: The number, mean and deviation of the finite numbers.
    _moments: RunningMoments

    #: The number of values that are None, NaN or NaT.
    _n_missing: int

    #: The number of infinite numbers.
    _n_infinite: int

    #: The smallest and the largest value, in their own type, so that integers stay exact; an empty
    #: list before the first value.
    _extremes: list[Any]

    #: The distinct values. None if they are not counted: there are too many of them, or some are
    #: arrays or not hashable.
    _distinct_values: set[Any] | None

    def __init__(self) -> None:
        self.shapes = set()
        self._moments = RunningMoments()
        self._n_missing = 0
        self._n_infinite = 0
        self._extremes = []
        self._distinct_values = set()

    def add(self, column: _Array) -> None:
        """Add a block of shape ``(n, ...)``, n > 0."""
        if column.dtype == object:
            self._add_objects(column)
        else:
            self._add_array(column)

    def statistics(self) -> ColumnStatistics:
        """Return the statistics of all blocks."""
        n_finite = int(self._moments.count)
        mean = None
        std = None
        if n_finite:
            mean = float(self._moments.mean)
            std = float(self._moments.deviation)
        low = None
        high = None
        if self._extremes:
            low, high = (_plain_extreme(value) for value in self._extremes)
        n_distinct = None
        if self._distinct_values is not None:
            n_distinct = len(self._distinct_values)
        return ColumnStatistics(
            n_missing=self._n_missing,
            n_numbers=n_finite + self._n_infinite,
            n_infinite=self._n_infinite,
            min=low,
            max=high,
            mean=mean,
            std=std,
            n_distinct=n_distinct,
        )

    def _add_array(self, column: _Array) -> None:
        """Add values of one shape and a dtype of numpy."""
        self.shapes.add(column.shape[1:])
        values = column.reshape(-1)
        is_missing = missing_in(values)
        self._n_missing += int(np.count_nonzero(is_missing))
        present = values[~is_missing]

        kind = column.dtype.kind
        is_time = kind in "mM"
        if kind in "biuf":
            self._add_numbers(present)
        elif is_time and present.size:
            self._add_extremes([present.min(), present.max()])

        if column.ndim > 1:
            self._distinct_values = None
        elif self._distinct_values is not None:
            distinct = np.unique(present)
            if is_time:
                # Equal times may have different units in different blocks.
                self._add_distinct(comparable(list(distinct)))
            else:
                self._add_distinct(distinct.tolist())

    def _add_objects(self, column: _Array) -> None:
        """Add objects, shape ``(n,)``: numbers beside None, text, arrays of different shapes."""
        present, is_missing = present_values(column)
        self._n_missing += int(np.count_nonzero(is_missing))
        if is_missing.any():
            self.shapes.add(())
        if present.dtype != object:
            if len(present):
                self._add_array(present)
            return

        numbers: list[Any] = []
        for value in present:
            array = exact_array(value)
            if array is not None and _is_array_or_time(array):
                self._add_array(array[np.newaxis])
                continue
            # A number, a text, or another single value.
            self.shapes.add(())
            if array is not None and array.dtype.kind in "biufc":
                value = array.item()
            if isinstance(value, (bool, int, float)):
                numbers.append(value)
            self._add_distinct([value])
        self._add_numbers(_as_array_of_numbers(numbers))

    def _add_numbers(self, numbers: _Array) -> None:
        """Add numbers without NaN, shape ``(n,)``."""
        if not len(numbers):
            return
        finite_numbers = numbers[np.isfinite(numbers)].astype(np.float64)
        self._n_infinite += len(numbers) - len(finite_numbers)
        if len(finite_numbers):
            self._moments.add(finite_numbers)
        plain_type = float if numbers.dtype.kind == "f" else int
        self._add_extremes([plain_type(numbers.min()), plain_type(numbers.max())])

    def _add_extremes(self, values: list[Any]) -> None:
        """Compare the extremes of a block with those of the earlier blocks."""
        values = [*self._extremes, *values]
        # Times may have another unit than earlier ones.
        comparable_values = comparable(values)
        smallest = values[comparable_values.index(min(comparable_values))]
        largest = values[comparable_values.index(max(comparable_values))]
        self._extremes = [smallest, largest]

    def _add_distinct(self, values: Sequence[Any]) -> None:
        """Add values to the distinct ones, or give up counting them."""
        if self._distinct_values is None:
            return
        try:
            self._distinct_values.update(values)
        except TypeError:  # not hashable
            self._distinct_values = None
            return
        if len(self._distinct_values) > _MAX_DISTINCT_VALUES:
            self._distinct_values = None


def _is_array_or_time(array: _Array) -> bool:
    """Return whether an object is an array of numbers or times, or a single time."""
    if array.ndim:
        return array.dtype.kind in "biufcMm"
    return array.dtype.kind in "Mm"


def _as_array_of_numbers(numbers: Sequence[Any]) -> _Array:
    """Return numbers of Python as int64 if they fit, otherwise as float64."""
    converted = [_with_infinity(number) for number in numbers]
    are_floats = any(_requires_float(number) for number in converted)
    return np.array(converted, dtype=np.float64 if are_floats else np.int64)


def _with_infinity(number: float | int) -> float | int:
    """Return infinity for an integer that is too large for a float."""
    if isinstance(number, int) and abs(number) >= _MIN_INFINITE_INTEGER:
        return math.inf if number > 0 else -math.inf
    return number


def _requires_float(number: float | int) -> bool:
    return isinstance(number, float) or abs(number) >= _MIN_INTEGER_BEYOND_INT64


def _plain_extreme(value: Any) -> Any:
    """Return a time as text, and other values as they are."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(value)
    return value

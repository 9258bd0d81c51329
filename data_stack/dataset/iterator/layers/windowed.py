"""Runs of consecutive samples of an iterator, as samples."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import SampleAccess, copy_value, detach, stack_columns
from data_stack.dataset.iterator.contract import Column, ColumnKey, DatasetIteratorIF, Sample
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.batched import (
    GroupedAccess,
    GroupedDatasetIterator,
    distinct,
    repeat_values,
)
from data_stack.dataset.iterator.layers.deduplicated import equal_groups
from data_stack.dataset.iterator.layers.ordered import missing_values, stable_order
from data_stack.dataset.meta import DatasetMeta, column_key
from data_stack.dataset.positions import IndexArrayOfInts, check_integer, narrow
from data_stack.dataset.splits.class_numbers import class_numbers
from data_stack.exception import ConfigError
from data_stack.values.digests import column_digests
from data_stack.values.stacked_values import objects
from data_stack.values.stacking import keys_of
from data_stack.values.times import comparable, in_utc, ticks_of

Gap = Union[float, np.timedelta64, timedelta]
_Positions = npt.NDArray[np.intp]
_Starts = Union[range, IndexArrayOfInts]
_Offsets = Mapping[int, Union[list[ColumnKey], None]]


@layer("windowed", columns=["order_by", "group_by"])
class WindowedDatasetIterator(GroupedDatasetIterator):
    """Sample ``i`` is a window: ``length`` consecutive samples of ``dataset_iterator``, stacked.

    What is consecutive:

    * ``order_by`` names the column to whose values the samples are ordered first, equal ones in their old order. None: the order
      that they are in.
    * ``group_by`` names a column; a window lies within the samples of one of its values, such as one vehicle. Groups come in
      the order in which the iterator first has a sample of them. Values are equal as in ``DeduplicatedDatasetIterator``; None
      and NaN are values, too.
    * ``max_gap``: no window spans two samples whose ``order_by`` values differ by more than that.

    In each run the first window starts at the first sample, and the next ones ``stride`` samples after the one before, as long
    as there are ``length`` samples left. With ``overlap=False`` no two windows share a sample: the next one starts after the end
    of the one before, ``stride`` samples after its start at least. With ``order_by`` it moreover starts at a larger value of that
    column than the one before has ended with (equal ones that the window before left over are passed by), as with Petastorm's
    ``timestamp_overlap=False``. Windows cross the borders of files, row groups and combined iterators.

    What a window is: ``read_batch`` of its samples, columns of shape ``(length, ...)``; several windows are columns of shape
    ``(n, length, ...)``, read in one request, and windows that overlap much without reading a sample twice.

    With ``offsets``, such as ``{-1: ["speed"], 0: ["speed", "image"], 2: None}``, it is instead a dict that has for each offset
    one sample of the window: of the columns named, a tuple or, if they are strings, a dict, with values as ``read_column``
    returns them; or for None the whole sample. The lowest offset is the window's first sample; an offset that is not
    named is not read. ``read_batch`` returns, as of all dicts, one column for each offset, of tuples or dicts as objects.

    When this is made, the columns ``order_by`` and ``group_by`` are read, nothing else. Then 4 bytes are kept for each window,
    and as much for each sample if they had to be ordered (8 in an iterator of more than 2**31); without order, groups and gaps,
    nothing. A pickle carries these, so another process does not read again.

    Args:
        dataset_iterator: what is read; it stays the caller's to close.
        length: samples in a window, at least 1. With ``offsets`` it is their highest less their lowest plus 1.
        stride: samples from the start of a window to the start of the next, at least 1.
        order_by: the column to order by; any that ``SortedDatasetIterator`` sorts, without NaN and NaT.
        max_gap: in units of ``order_by``; for times a timedelta of Python or numpy, as a number has no unit's dtype. Floats are
            subtracted as float64, and not rounded: 0.4 - 0.3 is larger than a gap of 0.1.
        overlap: whether windows may share samples.
        group_by: the column of groups.
        offsets: which columns of which samples; None for all of all.

    Raises:
        ConfigError: an argument is out of its range, a column does not exist, a value of ``order_by`` is None or NaN (the
            message names its position), or values cannot be compared or subtracted.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        length: int,
        *,
        stride: int = 1,
        order_by: ColumnKey | None = None,
        max_gap: Gap | None = None,
        overlap: bool = True,
        group_by: ColumnKey | None = None,
        offsets: Mapping[int, Sequence[ColumnKey] | None] | None = None,
    ) -> None:
        self._length = check_integer("length", length, at_least=1)
        if max_gap is not None and order_by is None:
            raise ConfigError("max_gap requires order_by, the column whose values are compared")
        self._max_gap = None if max_gap is None else check_gap(max_gap)
        self._offsets = (
            None if offsets is None else _check_offsets(dataset_iterator, offsets, self._length)
        )
        step = check_integer("stride", stride, at_least=1)
        whence = {
            "order_by": order_by,
            "max_gap": self._max_gap,
            "overlap": overlap,
            "group_by": group_by,
        }
        super().__init__(
            dataset_iterator, length=self._length, stride=step, **whence, offsets=self._offsets
        )
        self._order: IndexArrayOfInts | None = None
        self._starts: _Starts = self._find_starts(order_by, group_by, overlap)

    def make_access(self) -> SampleAccess:
        if self._offsets is None:
            return GroupedAccess(self._below(), self._starts, self._length, self._order)
        return OffsetsAccess(self._below(), self._starts, self._length, self._order, self._offsets)

    # ------------------------------------------------------------------ where windows are

    def _find_starts(
        self, order_by: ColumnKey | None, group_by: ColumnKey | None, overlap: bool
    ) -> _Starts:
        """Where in the order windows start; sets the order, if it is another one than that of the iterator."""
        below = self._below()
        n_below = below.n_samples
        step = (
            self._made_with["stride"] if overlap else max(self._made_with["stride"], self._length)
        )
        if n_below < self._length or (order_by is None and group_by is None):
            return range(0, max(0, n_below - self._length + 1), step)
        keys = [key for key in (order_by, group_by) if key is not None]
        columns = dict(zip(keys, below.columns(keys), strict=True))
        order = (
            np.arange(n_below, dtype=np.intp)
            if order_by is None
            else _order(columns[order_by], order_by)
        )
        starts_run = np.arange(n_below) == 0
        if group_by is not None:
            groups = group_numbers(columns[group_by])[order]
            by_group = np.argsort(groups, kind="stable")
            order, groups = order[by_group], groups[by_group]
            starts_run[1:] = groups[1:] != groups[:-1]
        follows_equal = None
        if order_by is not None:
            values = _instants(columns[order_by][order])
            if self._max_gap is not None:
                starts_run[1:] |= exceeds_gap(
                    values, self._max_gap, ~starts_run[1:], order_by, order
                )
            if not overlap:
                follows_equal = ~starts_run
                follows_equal[1:] &= equals_last(values)
        if not bool((order == np.arange(n_below)).all()):
            self._order = narrow(order, n_below)
        runs = np.flatnonzero(starts_run)
        if follows_equal is not None and bool(follows_equal.any()):
            starts = starts_after_larger(
                np.append(runs, n_below), self._length, step, np.flatnonzero(~follows_equal)
            )
        elif len(runs) == 1:
            return range(0, n_below - self._length + 1, step)
        else:
            starts = starts_in_runs(runs, np.diff(runs, append=n_below), self._length, step)
        return narrow(starts, n_below)

    # ------------------------------------------------------------------ what it is

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        if self._offsets is not None:
            meta = replace(
                meta, class_names=None, feature_names=None, column_names=None, column_kinds=None
            )
        return super()._derive_meta(meta)


class OffsetsAccess(GroupedAccess):
    """Access to windows as dicts that have for each of ``offsets`` some columns, or all, of one sample."""

    fixed_columns = False

    def __init__(
        self,
        below: SampleAccess,
        starts: _Starts,
        length: int,
        order: IndexArrayOfInts | None,
        offsets: _Offsets,
    ) -> None:
        super().__init__(below, starts, length, order)
        self._offsets = offsets

    def sample(self, position: int) -> Sample:
        return self.samples_at(np.array([position], dtype=np.intp), self._offsets)[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        return list(self.samples_at(positions, self._offsets)) if len(positions) else []

    batch = SampleAccess.batch

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        at = np.arange(self.n_samples, dtype=np.intp) if positions is None else positions
        offsets = {key: columns for key, columns in self._offsets.items() if key in keys}
        samples = (
            self.samples_at(at, offsets if len(offsets) == len(set(keys)) else self._offsets)
            if len(at)
            else []
        )
        return stack_columns(samples, keys, self)

    def samples_at(self, positions: IndexArrayOfInts, offsets: _Offsets) -> list[dict[int, Sample]]:
        samples_of: dict[int, Sequence[Sample]] = {}
        whole = [offset for offset, keys in offsets.items() if keys is None]
        if whole:
            places = np.array(whole, dtype=np.intp) - min(self._offsets)
            wanted, inverse = distinct(self.starts_at(positions)[:, np.newaxis] + places)
            samples = self.below.samples(self.positions_of(wanted))
            if inverse is not None:
                samples = [samples[place] for place in inverse.tolist()]
            samples = list(map(copy_value, samples))
            samples_of.update(
                {offset: samples[number :: len(whole)] for number, offset in enumerate(whole)}
            )
        columns = self.columns_of_offsets(positions, offsets)
        for offset, keys in offsets.items():
            if keys == []:
                samples_of[offset] = [{} for _ in positions]
            elif keys is not None:
                rows = zip(*[columns[offset, key] for key in keys], strict=True)
                samples_of[offset] = (
                    [dict(zip(keys, row, strict=True)) for row in rows]
                    if isinstance(keys[0], str)
                    else list(rows)
                )
        return [
            {offset: samples_of[offset][row] for offset in offsets} for row in range(len(positions))
        ]

    def columns_of_offsets(
        self, positions: IndexArrayOfInts, offsets: _Offsets
    ) -> dict[tuple[int, ColumnKey], Column]:
        """The columns named at each offset; columns wanted at the same offsets are read together."""
        offsets_of: dict[ColumnKey, list[int]] = {}
        for offset, keys in offsets.items():
            for key in dict.fromkeys(keys or ()):
                offsets_of.setdefault(key, []).append(offset)
        keys_of: dict[tuple[int, ...], list[ColumnKey]] = {}
        for key, wanting in offsets_of.items():
            keys_of.setdefault(tuple(wanting), []).append(key)
        found = {}
        starts, n_windows = self.starts_at(positions) - min(self._offsets), len(positions)
        for at, keys in keys_of.items():
            # all samples of the first offset, then all of the next: each has memory of its own
            slots = (np.array(at, dtype=np.intp)[:, np.newaxis] + starts).reshape(-1)
            # rows are copied out of arrays faster than out of a column that was copied before, others are not decoded twice
            gathers = self.below.fixed_columns or not n_windows
            wanted, inverse = (slots, None) if gathers else distinct(slots)
            read = detach(tuple(self.below.columns(keys, self.positions_of(wanted))))
            for key, column in zip(keys, read, strict=True):
                for number, offset in enumerate(at):
                    its_own = slice(number * n_windows, (number + 1) * n_windows)
                    found[offset, key] = (
                        column[its_own]
                        if inverse is None
                        else repeat_values(column, inverse[its_own])
                    )
        return found


# ---------------------------------------------------------------------- arguments


def check_gap(max_gap: Any, what: str = "max_gap") -> Any:
    """A number, or a span of numpy's, of at least 0."""
    if isinstance(max_gap, timedelta):
        max_gap = np.timedelta64(max_gap)  # plain data for the recipe
    is_gap = isinstance(max_gap, (np.timedelta64, numbers.Real, Decimal)) and not isinstance(
        max_gap, bool
    )
    if not is_gap or not max_gap >= type(max_gap)(0):  # also where it is NaN or NaT
        raise ConfigError(
            f"{what} must be a number or timedelta of at least 0, got {max_gap!r:.80}"
        )
    return max_gap


def _check_offsets(iterator: Any, offsets: Any, length: int) -> dict[int, list[ColumnKey] | None]:
    if not isinstance(offsets, Mapping) or not offsets:
        raise ConfigError(
            f"offsets must be a mapping such as {{-1: ['speed'], 0: None}}, got {offsets!r:.80}"
        )
    checked: dict[int, list[ColumnKey] | None] = {}
    for offset, columns in offsets.items():
        number = check_integer("an offset", offset)
        checked[number] = None if columns is None else column_key(iterator, keys_of(columns))
    spanned = max(checked) - min(checked) + 1
    if spanned != length:
        raise ConfigError(
            f"offsets from {min(checked)} to {max(checked)} need windows of length={spanned}, got length={length}"
        )
    return checked


# ---------------------------------------------------------------------- order, groups, gaps


def _order(column: Column, key: ColumnKey) -> _Positions:
    missing = np.flatnonzero(missing_values(column, key))
    if len(missing):
        raise ConfigError(
            f"column {key!r} is {column[missing[0]]!s:.60} at position {missing[0]}; filter such samples out first"
        )
    return stable_order(column, key)


def group_numbers(column: Column) -> _Positions:
    """A number for each value, equal for equal ones: 0 for the first one's, 1 for the next other one's, and so on."""
    if column.ndim == 1 and (
        column.dtype.kind in "biu" or all(type(value) is str for value in column)
    ):
        return class_numbers(column, f"samples cannot be grouped by {column.dtype}").numbers.astype(
            np.intp
        )
    return equal_groups(column_digests(column))[1]


def _instants(column: Column) -> Column:
    """A column, in which datetimes with a time zone are in UTC, so that they are compared and subtracted by instant."""
    if column.dtype != object or column.ndim != 1:
        return column
    if not any(isinstance(value, datetime) and value.tzinfo is not None for value in column):
        return column
    return objects([in_utc(value) for value in column])


def equals_last(values: Column) -> npt.NDArray[np.bool_]:
    """Which values equal the one before, shape ``(n - 1,)``."""
    if values.dtype == object and values.ndim == 1:
        return np.array(
            [bool(one == other) for one, other in zip(values[1:], values[:-1], strict=True)],
            dtype=bool,
        )
    equals: npt.NDArray[np.bool_] = np.asarray(values[1:] == values[:-1], dtype=bool)
    return np.asarray(equals.reshape(len(equals), -1).all(axis=1)) if values.ndim > 1 else equals


def exceeds_gap(
    values: Column,
    max_gap: Any,
    same_group: npt.NDArray[np.bool_],
    key: ColumnKey,
    order: _Positions,
) -> npt.NDArray[np.bool_]:
    """Between which of the ordered values there is a gap, shape ``(n - 1,)``; between groups the answer means nothing."""
    kind, is_span = values.dtype.kind, isinstance(max_gap, np.timedelta64)
    if not is_span and max_gap != 0 and _has_units(values):
        raise ConfigError(
            f"differences of the times in column {key!r} cannot be compared to {max_gap!r}, a number without a unit: "
            f"pass datetime.timedelta(seconds={max_gap!r}), or np.timedelta64(…, 's')"
        )
    if values.ndim > 1 or kind in "OSUV":
        if is_span and any(
            isinstance(value, (np.datetime64, np.timedelta64)) for value in values
        ):  # of several units
            values = np.fromiter(comparable(values.tolist()), object, len(values))
            max_gap = ticks_of(max_gap)[1]
        return _objects_exceed(values, max_gap, same_group, key, order)
    if is_span:
        gap = ticks_of(max_gap)
        unit = (
            ticks_of(np.array(1, values.dtype.str.replace("M8", "m8"))[()])
            if kind in "mM"
            else (None, 0)
        )
        if unit[0] != gap[0]:  # numbers, or months and days
            raise ConfigError(
                f"differences in column {key!r}, of dtype {values.dtype}, cannot be compared to {max_gap!r}"
            )
        max_gap = gap[1] // unit[1]
    if kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):  # between infinities
            return np.asarray(np.diff(values.astype(np.float64)) > max_gap, dtype=bool)
    # differences of sorted values never overflow as unsigned integers
    ticks = values.astype(np.uint64 if kind == "u" else np.int64).view(np.uint64)
    return np.asarray(np.diff(ticks) > max_gap, dtype=bool)


def _has_units(values: Column) -> bool:
    """Whether any value is a time or a span of numpy's or Python's."""
    if values.dtype != object:
        return values.dtype.kind in "mM"
    kinds = (date, timedelta, np.datetime64, np.timedelta64)
    return any(isinstance(value, kinds) for value in values.ravel())


def _objects_exceed(
    values: Column,
    max_gap: Any,
    same_group: npt.NDArray[np.bool_],
    key: ColumnKey,
    order: _Positions,
) -> npt.NDArray[np.bool_]:
    exceeds = np.zeros(len(values) - 1, dtype=bool)
    for number in np.flatnonzero(same_group).tolist():
        try:
            exceeds[number] = not values[number + 1] - values[number] <= max_gap
        except (TypeError, ValueError) as error:
            difference = (
                f"{values[number + 1]!r:.60} - {values[number]!r:.60}, "
                f"at positions {order[number + 1]} and {order[number]},"
            )
            raise ConfigError(
                f"column {key!r}: cannot compare {difference} to a gap of {max_gap!r}"
            ) from error
    return exceeds


# ---------------------------------------------------------------------- starts of windows


def starts_in_runs(runs: _Positions, lengths: _Positions, length: int, step: int) -> _Positions:
    """Starts every ``step`` samples in each run; ``runs`` are where the runs start."""
    counts = np.maximum(0, (lengths - length) // step + 1)
    before = np.cumsum(counts) - counts
    starts: _Positions = (
        np.repeat(runs - before * step, counts) + np.arange(int(counts.sum()), dtype=np.intp) * step
    )
    return starts


def starts_after_larger(
    run_ends: _Positions, length: int, step: int, changes: _Positions
) -> _Positions:
    """As :func:`starts_in_runs`, but each after the last value equal to the one that the window before ended with.

    Args:
        run_ends: where the runs start, and where the last one ends.
        length: of a window.
        step: from start to start, at least.
        changes: where a value is another than the one before, or a run starts.
    """
    n_samples = int(run_ends[-1])
    next_larger = np.repeat(np.append(changes[1:], n_samples), np.diff(changes, append=n_samples))
    after = next_larger.data  # returns ints faster than the array
    starts = []
    for start, end in zip(run_ends[:-1].tolist(), run_ends[1:].tolist(), strict=True):
        while start + length <= end:
            starts.append(start)
            start = max(start + step, after[start + length - 1])
    return np.array(starts, dtype=np.intp)

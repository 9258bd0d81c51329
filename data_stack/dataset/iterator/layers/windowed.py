"""Runs of consecutive samples of an iterator, as samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.gaps import Gap, check_gap, equals_last, exceeds_gap
from data_stack.dataset.iterator.layers.grouped import (
    GroupedAccess,
    GroupedDatasetIterator,
    Starts,
)
from data_stack.dataset.iterator.layers.window_offsets import OffsetsAccess, check_offsets
from data_stack.dataset.iterator.layers.window_starts import (
    KeyedColumn,
    find_window_starts,
    starts_after_larger,
    starts_in_runs,
)
from data_stack.dataset.meta import DatasetMeta
from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.exception import ConfigError

#: What plugins import to make other kinds of windows, such as the n-grams of Petastorm.
__all__ = [
    "OffsetsAccess",
    "check_gap",
    "equals_last",
    "exceeds_gap",
    "starts_after_larger",
    "starts_in_runs",
]


@layer("windowed", columns=["order_by", "group_by"])
class WindowedDatasetIterator(GroupedDatasetIterator):
    """Sample ``i`` is a window: ``length`` consecutive samples of ``dataset_iterator``, stacked.

    **What is consecutive.** Samples follow each other in the order of the column ``order_by``.
    Equal values stay in their old order. Without ``order_by``, samples follow each other as they
    are. Windows cross the borders of files, row groups and combined iterators.

    With ``group_by``, all samples of a window have one value of that column, such as one vehicle.
    Values are equal as in ``DeduplicatedDatasetIterator``; None and NaN are values too. The windows
    of a group come before those of a group that appears later in the iterator. With ``max_gap``, no
    window has two consecutive samples whose ``order_by`` values differ by more than that.

    **Where windows start.** The first window of consecutive samples starts at the first sample, and
    each window ``stride`` samples after the one before, as long as there are ``length`` samples.
    With ``overlap=False``, no two windows share a sample: a window starts after the end of the one
    before, and at least ``stride`` samples after its start. With ``order_by``, the value at which
    it starts is then also larger than the one that ends the window before. Samples in between are
    skipped, as with Petastorm's ``timestamp_overlap=False``.

    **What a window is.** A window is what ``read_batch`` returns for its samples: columns of shape
    ``(length, ...)``. Several windows are columns of shape ``(n, length, ...)``, read in one
    request. Of windows that overlap much, no sample is read twice.

    With ``offsets``, such as ``{-1: ["speed"], 0: ["speed", "image"], 2: None}``, a window is a
    dict with one sample for each offset. The sample is whole for None. Otherwise it has only the
    columns that are named, as a dict if these are strings, as a tuple if not, with values as
    ``read_column`` returns them. The lowest offset is the first sample of the window. Offsets that
    are not named are not read. As of all dicts, ``read_batch`` returns a column for each offset;
    its values are objects, which are samples.

    **What it costs.** When this is made, only the columns ``order_by`` and ``group_by`` are read.
    Then 4 bytes are kept for each window, and 4 bytes for each sample if the samples are not in
    order (8 in an iterator of more than 2**31 samples). Nothing is kept without order, groups and
    gaps. A pickle has what is kept, so another process does not read again.

    Args:
        dataset_iterator: the samples; it is not closed.
        length: samples in a window, at least 1. With ``offsets`` it is the highest offset less the
            lowest, plus 1.
        stride: samples from the start of a window to the start of the next, at least 1.
        order_by: the column to order by: any that ``SortedDatasetIterator`` sorts, without NaN and
            NaT. None: samples are consecutive in the order that they have.
        max_gap: in units of ``order_by``; for times a timedelta of Python or numpy, as a number has
            no unit. Floats are subtracted as float64, and not rounded: 0.4 - 0.3 is larger than a
            gap of 0.1. None: any difference.
        overlap: whether windows may share samples.
        group_by: the column of groups; None: all samples are one group.
        offsets: for each offset the columns to read; None for all columns of all samples.

    Raises:
        ConfigError: an argument is out of its range, a column does not exist, a value of
            ``order_by`` is None or NaN (the message names its position), or values cannot be
            compared or subtracted.
    """

    #: Samples in a window.
    _length: int

    #: Which columns of which samples a window has.
    _offsets: dict[int, list[ColumnKey] | None] | None

    #: The places at which windows start.
    _starts: Starts

    #: The positions of all places; None if places are positions.
    _order: IndexArrayOfInts | None

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
        checked_gap = None if max_gap is None else check_gap(max_gap)
        self._offsets = None
        if offsets is not None:
            self._offsets = check_offsets(dataset_iterator, offsets, self._length)
        checked_stride = check_integer("stride", stride, at_least=1)
        super().__init__(
            dataset_iterator,
            length=self._length,
            stride=checked_stride,
            order_by=order_by,
            max_gap=checked_gap,
            overlap=overlap,
            group_by=group_by,
            offsets=self._offsets,
        )
        below = self._below()
        columns = _read_columns(below, self._length, order_by, group_by)
        window_starts = find_window_starts(
            below.n_samples,
            self._length,
            checked_stride,
            overlap=overlap,
            order_by=columns.get("order_by"),
            group_by=columns.get("group_by"),
            max_gap=checked_gap,
        )
        self._starts = window_starts.starts
        self._order = window_starts.order

    def make_access(self) -> SampleAccess:
        if self._offsets is None:
            return GroupedAccess(self._below(), self._starts, self._length, self._order)
        return OffsetsAccess(self._below(), self._starts, self._length, self._order, self._offsets)

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        if self._offsets is not None:
            # The columns are offsets now.
            meta = replace(
                meta, class_names=None, feature_names=None, column_names=None, column_kinds=None
            )
        return super()._derive_meta(meta)


def _read_columns(
    below: SampleAccess, length: int, order_by: ColumnKey | None, group_by: ColumnKey | None
) -> dict[str, KeyedColumn]:
    """Read the columns that decide where windows start, in one request.

    Returns:
        The columns by the argument that names them; empty where there is no window.
    """
    given = {"order_by": order_by, "group_by": group_by}
    key_of = {argument: key for argument, key in given.items() if key is not None}
    if not key_of or below.n_samples < length:
        return {}
    values = below.columns(list(key_of.values()))
    pairs = zip(key_of.items(), values, strict=True)
    return {argument: KeyedColumn(key, column) for (argument, key), column in pairs}

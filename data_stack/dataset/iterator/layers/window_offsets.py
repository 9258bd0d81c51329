"""Windows with only some columns of some of their samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union

import numpy as np

from data_stack.dataset.iterator.access import SampleAccess, stack_columns
from data_stack.dataset.iterator.contract import Batch, ColumnArray, ColumnKey, Sample
from data_stack.dataset.iterator.detached_batches import detach
from data_stack.dataset.iterator.layers.grouped import (
    GroupedAccess,
    Starts,
    find_distinct,
    repeat_values,
)
from data_stack.dataset.iterator.origins import Origin
from data_stack.dataset.meta import column_key
from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.exception import ConfigError
from data_stack.values.copies import copy_value
from data_stack.values.stacking import keys_of

_Offsets = Mapping[int, Union[list[ColumnKey], None]]
"""The columns to read of the sample at each offset; None for the whole sample."""


def check_offsets(iterator: Any, offsets: Any, length: int) -> dict[int, list[ColumnKey] | None]:
    """Return offsets with the positions of columns in place of their names.

    Args:
        iterator: the iterator that has the columns.
        offsets: a mapping such as ``{-1: ["speed"], 0: None}``.
        length: the number of samples in a window, from the lowest to the highest offset.

    Raises:
        ConfigError: ``offsets`` is no such mapping, or spans another length.
    """
    if not isinstance(offsets, Mapping) or not offsets:
        raise ConfigError(
            f"offsets must be a mapping such as {{-1: ['speed'], 0: None}}, got {offsets!r:.80}"
        )
    checked: dict[int, list[ColumnKey] | None] = {}
    for offset, columns in offsets.items():
        number = check_integer("an offset", offset)
        checked[number] = None if columns is None else column_key(iterator, keys_of(columns))
    lowest = min(checked)
    highest = max(checked)
    n_spanned = highest - lowest + 1
    if n_spanned != length:
        raise ConfigError(
            f"offsets from {lowest} to {highest} need windows of length={n_spanned}, "
            f"got length={length}"
        )
    return checked


class OffsetsAccess(GroupedAccess):
    """Access to windows as dicts, which have for each offset one sample, or columns of it.

    The offset 0 is a sample of the window. The lowest offset is the first sample of the window.

    Args:
        below: the samples.
        starts: the places at which windows start.
        length: the number of samples in a window, from the lowest to the highest offset.
        order: the positions below of all places; None if places are positions.
        offsets: the columns to read of the sample at each offset; None for the whole sample.

    Attributes:
        offsets: the columns to read of the sample at each offset; None for the whole sample.
    """

    fixed_columns = False

    def __init__(
        self,
        below: SampleAccess,
        starts: Starts,
        length: int,
        order: IndexArrayOfInts | None,
        offsets: _Offsets,
    ) -> None:
        super().__init__(below, starts, length, order)
        self.offsets = offsets

    def sample(self, position: int) -> Sample:
        return self.samples_at(np.array([position], dtype=np.intp), self.offsets)[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        if len(positions) == 0:
            return []
        return list(self.samples_at(positions, self.offsets))

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        # Not the batch of GroupedAccess: the values are samples, which are stacked as objects.
        return SampleAccess.batch(self, positions)

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        if positions is None:
            positions = np.arange(self.n_samples, dtype=np.intp)
        if len(positions) == 0:
            return stack_columns([], keys, self)
        offsets = {offset: named for offset, named in self.offsets.items() if offset in keys}
        if len(offsets) < len(set(keys)):
            # One of the keys is no offset. The error about it lists all offsets.
            return stack_columns(self.samples_at(positions, self.offsets), keys, self)
        return stack_columns(self.samples_at(positions, offsets), keys, self)

    def origins(self, position: int) -> Sequence[Origin]:
        """Return the origins of the sample at each offset of which something is read."""
        place_of_lowest = int(self._starts[position])
        lowest = min(self.offsets)
        origins: list[Origin] = []
        for offset, keys in self.offsets.items():
            if keys is not None and not keys:
                continue
            place = np.array([place_of_lowest + offset - lowest], dtype=np.intp)
            for origin in self.origins_of_places(place):
                origins.append(origin.of_part(f"offset {offset}"))
        return origins

    def samples_at(self, positions: IndexArrayOfInts, offsets: _Offsets) -> list[dict[int, Sample]]:
        """Read windows that have only some offsets.

        Args:
            positions: the positions of the windows, at least one.
            offsets: some of those of the windows, with the columns to read.
        """
        whole_offsets = [offset for offset, keys in offsets.items() if keys is None]
        samples_of: dict[int, Sequence[Sample]] = {}
        if whole_offsets:
            samples_of.update(self._read_whole_samples(positions, whole_offsets))
        columns = self.columns_of_offsets(positions, offsets)
        for offset, keys in offsets.items():
            if keys is not None:
                columns_of_offset = [columns[offset, key] for key in keys]
                samples_of[offset] = _make_samples(keys, columns_of_offset, len(positions))
        windows: list[dict[int, Sample]] = []
        for number in range(len(positions)):
            windows.append({offset: samples_of[offset][number] for offset in offsets})
        return windows

    def _read_whole_samples(
        self, positions: IndexArrayOfInts, offsets: Sequence[int]
    ) -> dict[int, list[Sample]]:
        """Read the whole samples at some offsets of windows, all in one request."""
        places_in_window = np.array(offsets, dtype=np.intp) - min(self.offsets)
        places = self.starts_at(positions)[:, np.newaxis] + places_in_window
        wanted, inverse = find_distinct(places)
        samples = self.below.samples(self.positions_of(wanted))
        if inverse is not None:
            samples = [samples[number] for number in inverse.tolist()]
        # A sample of several windows is one object. Each window gets its own.
        samples = [copy_value(sample) for sample in samples]
        return {offset: samples[n :: len(offsets)] for n, offset in enumerate(offsets)}

    def columns_of_offsets(
        self, positions: IndexArrayOfInts, offsets: _Offsets
    ) -> dict[tuple[int, ColumnKey], ColumnArray]:
        """Read the columns that are named at each offset.

        Columns wanted at the same offsets are read together.

        Returns:
            The columns by offset and key, each of shape ``(len(positions), ...)``.
        """
        offsets_of: dict[ColumnKey, list[int]] = {}
        for offset, keys in offsets.items():
            for key in dict.fromkeys(keys or ()):
                offsets_of.setdefault(key, []).append(offset)
        keys_at: dict[tuple[int, ...], list[ColumnKey]] = {}
        for key, offsets_of_key in offsets_of.items():
            keys_at.setdefault(tuple(offsets_of_key), []).append(key)

        columns: dict[tuple[int, ColumnKey], ColumnArray] = {}
        for same_offsets, keys_together in keys_at.items():
            columns.update(self._read_columns(positions, same_offsets, keys_together))
        return columns

    def _read_columns(
        self, positions: IndexArrayOfInts, offsets: Sequence[int], keys: list[ColumnKey]
    ) -> dict[tuple[int, ColumnKey], ColumnArray]:
        """Read columns that are all wanted at the same offsets, in one request."""
        n_windows = len(positions)
        places_of_offset_zero = self.starts_at(positions) - min(self.offsets)
        # All samples at the first offset, then all at the next, so that an offset is one slice.
        places_of_offsets = np.array(offsets, dtype=np.intp)[:, np.newaxis] + places_of_offset_zero
        places: IndexArrayOfInts = places_of_offsets.reshape(-1)
        inverse = None
        # A place of several windows is read once where a sample is decoded. Rows of arrays are
        # copied again faster than they are copied out of the column that was read.
        if n_windows and not self.below.fixed_columns:
            places, inverse = find_distinct(places)
        read = detach(tuple(self.below.columns(keys, self.positions_of(places))))
        columns: dict[tuple[int, ColumnKey], ColumnArray] = {}
        for key, column in zip(keys, read, strict=True):
            for number, offset in enumerate(offsets):
                rows = slice(number * n_windows, (number + 1) * n_windows)
                if inverse is None:
                    columns[offset, key] = column[rows]
                else:
                    columns[offset, key] = repeat_values(column, inverse[rows])
        return columns


def _make_samples(
    keys: Sequence[ColumnKey], columns: Sequence[ColumnArray], n_samples: int
) -> list[Sample]:
    """Make samples of columns: dicts where these are named by strings, otherwise tuples."""
    if not keys:
        return [{} for _ in range(n_samples)]
    rows = list(zip(*columns, strict=True))
    if not isinstance(keys[0], str):
        return rows
    return [dict(zip(keys, row, strict=True)) for row in rows]

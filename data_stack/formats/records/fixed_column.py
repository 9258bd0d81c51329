"""Columns whose records all have one layout: their values are rows of a strided view."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import FixedLayout
from data_stack.formats.records.bag import Bag
from data_stack.formats.records.record_offsets import RecordNumbers
from data_stack.formats.records.row_format import RowFormat
from data_stack.formats.records.value_column import ValueColumn
from data_stack.formats.stored_rows import StoredRowsReader
from data_stack.io.positional import PositionalFile
from data_stack.values.stacking import take_runs

_Integers = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]


def open_fixed_column(bag: Bag, layout: FixedLayout, dtype: np.dtype[Any] | None) -> FixedColumn:
    """Open a column of records of one layout.

    Args:
        bag: the records.
        layout: the layout of each of them.
        dtype: the dtype of the values that are returned; None for the dtype of the layout.
    """
    row_format = RowFormat.from_layout(layout, dtype)
    if bag.file.ranges is None:
        return BufferedFixedColumn(bag, row_format)
    return RangedFixedColumn(bag, row_format, bag.file.ranges)


class FixedColumn(ValueColumn):
    """Records of one layout.

    Args:
        bag: the records.
        row_format: how their bytes become values.
    """

    def __init__(self, bag: Bag, row_format: RowFormat) -> None:
        super().__init__(bag)
        self._row_format = row_format

    @property
    def is_fixed(self) -> bool:
        return True

    @property
    def row_bytes(self) -> int:
        return self._row_format.value_bytes

    def value(self, index: int) -> Any:
        return self.values(range(index, index + 1))[0]

    def values(self, numbers: RecordNumbers) -> list[Any]:
        return self._row_format.list_values(self.read(numbers))

    def read(self, numbers: RecordNumbers) -> _Array:
        return self._row_format.stack_values(self._copy_items(numbers))

    def runs(self, starts: _Integers, length: int) -> _Array:
        values = self._row_format.stack_values(self._copy_items_of_runs(starts, length))
        return values.reshape(len(starts), length, *values.shape[1:])

    @abstractmethod
    def _copy_items(self, numbers: RecordNumbers) -> _Array:
        """Read the items of records, shape ``(len(numbers),)``."""

    @abstractmethod
    def _copy_items_of_runs(self, starts: _Integers, length: int) -> _Array:
        """Read the items of ``length`` records from each start, shape ``(n_starts * length,)``."""


class BufferedFixedColumn(FixedColumn):
    """Records of one layout in a file that is mapped or in memory."""

    #: A view of the file as items, one for each record. Its blocks are checked before their use.
    _items: _Array

    #: A view of the file as values, shape ``(n_records, *shape)``. Its blocks are checked, too.
    _values: _Array

    #: Whether numpy makes the Python number of a record directly.
    _has_python_items: bool

    def __init__(self, bag: Bag, row_format: RowFormat) -> None:
        super().__init__(bag, row_format)
        self._file = bag.file
        self._checks = bag.file.checks
        self._record_bytes = row_format.record_bytes
        self._items = row_format.view_items(len(bag), bag.file.buffer)
        self._values = row_format.view_values(len(bag), bag.file.buffer)
        self._has_python_items = row_format.is_python_number and _is_number_as_stored(
            row_format.stored_dtype, row_format.value_dtype
        )
        # These are attributes of the column, as looking them up in the row format would take more
        # time than reading a value does.
        self._is_array = not row_format.is_number
        self._needs_cast = row_format.needs_cast
        self._value_dtype = row_format.value_dtype

    def value(self, index: int) -> Any:
        if not self._checks.is_done:
            self._check(range(index, index + 1))
        if self._has_python_items:
            return self._values.item(index)
        if not self._is_array:
            return super().value(index)
        value = self._values[index]
        if self._needs_cast:
            return value.astype(self._value_dtype)
        return value.copy()

    def make_value_reader(self) -> Callable[[int], Any] | None:
        if not self._checks.is_done:
            return None
        values = self._values
        if self._has_python_items:
            return values.item
        if not self._is_array:
            return self.value
        if self._needs_cast:
            dtype = self._value_dtype
            return lambda index: values[index].astype(dtype)
        return lambda index: values[index].copy()

    def _copy_items(self, numbers: RecordNumbers) -> _Array:
        if not self._checks.is_done:
            self._check(numbers)
        if isinstance(numbers, range):
            copied: _Array = self._items[numbers.start : numbers.stop].copy()
            return copied
        # take() would first copy the whole array, as its items do not lie side by side.
        return self._items[numbers]

    def _copy_items_of_runs(self, starts: _Integers, length: int) -> _Array:
        if not self._checks.is_done:
            begins = starts * self._record_bytes
            ends = (starts + length) * self._record_bytes
            self._file.check(begins, ends)
        items: _Array = take_runs(self._items, starts, length)
        return items.reshape(-1)

    def _check(self, numbers: RecordNumbers) -> None:
        """Check the blocks of records that were not checked before.

        Raises:
            DatasetFileCorruptError: a block is damaged.
        """
        n_bytes = self._record_bytes
        if isinstance(numbers, range):
            self._file.check_range(numbers.start * n_bytes, numbers.stop * n_bytes)
        else:
            begins = numbers * n_bytes
            self._file.check(begins, begins + n_bytes)


class RangedFixedColumn(FixedColumn):
    """Records of one layout in a file that is read by range, as from a store.

    Args:
        bag: the records.
        row_format: how their bytes become values.
        file: reads ranges of the file, and checks them.
    """

    def __init__(self, bag: Bag, row_format: RowFormat, file: PositionalFile) -> None:
        super().__init__(bag, row_format)
        shape = (len(bag), row_format.record_bytes)
        self._records = StoredRowsReader(file, 0, shape, np.dtype(np.uint8))

    def _copy_items(self, numbers: RecordNumbers) -> _Array:
        indices = numbers
        if isinstance(indices, range):
            indices = np.arange(indices.start, indices.stop)
        if len(indices) == 0:
            return self._row_format.view_items(0, b"")
        records = self._records.read(indices)
        return self._copy_items_in(records, len(indices))

    def _copy_items_of_runs(self, starts: _Integers, length: int) -> _Array:
        if len(starts) == 0:
            return self._row_format.view_items(0, b"")
        records = self._records.runs(starts, length)
        return self._copy_items_in(records, len(starts) * length)

    def _copy_items_in(self, records: _Array, n_records: int) -> _Array:
        items = self._row_format.view_items(n_records, records)
        copied: _Array = items.copy()
        return copied


def _is_number_as_stored(stored_dtype: np.dtype[Any], value_dtype: np.dtype[Any]) -> bool:
    """Return whether the Python number of a stored number is that of its value, too."""
    return stored_dtype.kind in "iuf" and value_dtype.kind in "iuf"

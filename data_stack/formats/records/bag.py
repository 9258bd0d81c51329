"""The records of a column in its files: their offsets and bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.columns import StoredRowsColumn
from data_stack.formats.records.layout import MAX_RECORDS
from data_stack.formats.records.stored_file import StoredFile

_ENTRY_BYTES = 8

_Integers = npt.NDArray[np.int64]
_Bounds = tuple[_Integers, _Integers]


class Ends:
    """The end offset of each record, which is the begin of the next one; unchecked.

    Args:
        file: the index, or a bag whose index follows the records; None if all records have one size.
        offset: offset of the first entry in bytes; or the size of each record.
        n_records: number of entries.
    """

    def __init__(self, file: StoredFile | None, offset: int, n_records: int) -> None:
        self.file, self._offset, self.n_records = file, offset, n_records
        self.view: memoryview | None = None
        self._rows: StoredRowsColumn | None = None
        if file is not None and file.ranges is not None:
            self._rows = StoredRowsColumn(file.ranges, offset, (n_records,), np.dtype("<i8"))
        elif file is not None and file.buffer is not None:
            # Signed, like positions: larger values become negative, which is never a valid offset.
            self._ends: _Integers = np.ndarray((n_records,), "<i8", file.buffer, offset)
            self.view = memoryview(file.buffer)[offset : offset + n_records * _ENTRY_BYTES].cast("q")

    def bounds(self, places: range | _Integers) -> _Bounds:
        """Begin and end of each of some records.

        Raises:
            DatasetFileCorruptError: the index is damaged there.
        """
        indices = np.arange(places.start, places.stop) if isinstance(places, range) else places
        if self.file is None:
            begins = indices * self._offset
            return begins, begins + self._offset
        if self._rows is not None:
            found = self._rows.read(np.concatenate((indices, np.maximum(indices - 1, 0))))
            ends, begins = found[: len(indices)], found[len(indices) :]
        else:
            if not self.file.checks.is_done:
                offsets = self._offset + indices * _ENTRY_BYTES
                self.file.check(np.maximum(offsets - _ENTRY_BYTES, self._offset), offsets + _ENTRY_BYTES)
            ends, begins = self._ends.take(indices), self._ends.take(indices - 1, mode="wrap") if self.n_records else indices
        begins[indices == 0] = 0
        return begins, ends


class Bag:
    """Records of one column.

    Args:
        column: its name, for messages.
        file: where the records are.
        n_bytes: how much of the file are records.
        ends: where each of them ends.
    """

    def __init__(self, column: str, file: StoredFile, n_bytes: int, ends: Ends) -> None:
        self.column, self.file, self.n_bytes, self.ends = column, file, n_bytes, ends

    def __len__(self) -> int:
        return self.ends.n_records

    def close(self) -> None:
        """Release its files."""
        if self.ends.file is not None:
            self.ends.file.close()
        self.file.close()

    def record(self, index: int) -> bytes:
        """Read the bytes of a record.

        Raises:
            DatasetFileCorruptError: it is damaged.
        """
        view, buffer, index_file = self.ends.view, self.file.buffer, self.ends.file
        if view is None or buffer is None or index_file is None or not (index_file.checks.is_done and self.file.checks.is_done):
            return self.records(range(index, index + 1))[0]
        begin, end = view[index - 1] if index else 0, view[index]
        if not 0 <= begin <= end <= self.n_bytes:
            raise self.wrong_bounds(index, begin, end)
        return buffer[begin:end]

    def records(self, places: range | _Integers) -> list[bytes]:
        """The bytes of records, in one request; raises as :meth:`record`."""
        return self.file.read_many(*self.bounds(places))

    def bounds(self, places: range | _Integers) -> _Bounds:
        """Begin and end of records, which are in the file; raises as :meth:`record`."""
        begins, ends = self.ends.bounds(places)
        wrong = (begins < 0) | (begins > ends) | (ends > self.n_bytes)
        if wrong.any():
            place = int(wrong.argmax())
            raise self.wrong_bounds(int(places[place]), int(begins[place]), int(ends[place]))
        return begins, ends

    def undecodable(self, index: int, error: Exception) -> DatasetFileCorruptError:
        """The error for a record that its codec refuses."""
        begins, ends = self.bounds(range(index, index + 1))
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return DatasetFileCorruptError(
            f"record {index:,} of column {self.column!r} (bytes {begins[0]:,} to {ends[0]:,} of {self.file.name}) cannot be "
            f"decoded: {said[:500]}. The record is damaged, or was written with another codec of the same name"
        )

    def wrong_bounds(self, index: int, begin: int, end: int) -> DatasetFileCorruptError:
        """The error for a record whose index entry is out of range."""
        file = self.ends.file or self.file
        return DatasetFileCorruptError(
            f"the index of column {self.column!r} is damaged: in {file.name} record {index:,} begins at byte {begin:,} and ends "
            f"at {end:,}, of {self.n_bytes:,}. Restore the file from a copy, or write the dataset again"
        )


def ends_of_index(file: StoredFile, n_bytes: int) -> Ends:
    """The ends in a column's ``.idx``, of those records that lie in its bag's ``n_bytes``: a writer may have been cut off."""
    low, high = 0, min(file.size // _ENTRY_BYTES, MAX_RECORDS)
    middle = high - 1  # mostly, all do
    while low < high:
        if _entry(file, middle * _ENTRY_BYTES) <= n_bytes:
            low = middle + 1
        else:
            high = middle
        middle = (low + high) // 2
    return Ends(file, 0, low)


def ends_of_bag(column: str, file: StoredFile) -> tuple[Ends, int]:
    """The ends behind the records of a bag that is one file, with or without the leading zero, and the size of the records.

    Raises:
        DatasetFileCorruptError: they are not there.
    """
    if file.size == 0:
        return Ends(file, 0, 0), 0
    n_bytes = _entry(file, file.size - _ENTRY_BYTES) if file.size >= _ENTRY_BYTES else file.size
    table_bytes = file.size - n_bytes
    if table_bytes < _ENTRY_BYTES or table_bytes % _ENTRY_BYTES:
        raise DatasetFileCorruptError(f"column {column!r} is damaged: {file.name} does not end with its index; it was truncated")
    leading = 1 if _entry(file, n_bytes) == 0 else 0
    n_records = table_bytes // _ENTRY_BYTES - leading
    if n_records > MAX_RECORDS:
        raise DatasetFileCorruptError(f"column {column!r} is damaged: {file.name} has an index of {n_records:,} records")
    return Ends(file, n_bytes + leading * _ENTRY_BYTES, n_records), n_bytes


def _entry(file: StoredFile, offset: int) -> int:
    return int.from_bytes(file.read(offset, offset + _ENTRY_BYTES), "little")

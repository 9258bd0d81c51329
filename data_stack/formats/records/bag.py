"""The records of a column in its files: their offsets and bytes."""

from __future__ import annotations

from typing import Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.layout import MAX_RECORDS
from data_stack.formats.records.stored_file import StoredFile
from data_stack.formats.stored_rows import StoredRowsReader

_ENTRY_BYTES = 8

_Integers = npt.NDArray[np.int64]
_Bounds = tuple[_Integers, _Integers]
Places = Union[range, _Integers]
"""Numbers of records; a range where they follow each other."""


class Ends:
    """The end offset of each record, which is the begin of the next one; unchecked.

    Args:
        file: the index, or a bag whose index follows the records; None if all records have one size.
        offset: offset of the first entry in bytes; or the size of each record.
        n_records: number of entries.
    """

    #: The entries of an index in a buffer, as numpy's array and as a memoryview, of which a single
    #: entry is read in less time. They are unchecked.
    _ends: _Integers
    view: memoryview | None

    #: Reads the entries of an index that is read by range.
    _rows: StoredRowsReader | None

    def __init__(self, file: StoredFile | None, offset: int, n_records: int) -> None:
        self.file = file
        self._offset = offset
        self.n_records = n_records
        self.view = None
        self._rows = None
        if file is None:
            return
        # Entries are read as signed integers, like positions: larger values become negative, which
        # is never a valid offset.
        if file.ranges is not None:
            self._rows = StoredRowsReader(file.ranges, offset, (n_records,), np.dtype("<i8"))
        elif file.buffer is not None:
            end = offset + n_records * _ENTRY_BYTES
            self._ends = np.ndarray((n_records,), "<i8", file.buffer, offset)
            self.view = memoryview(file.buffer)[offset:end].cast("q")

    def bounds(self, places: range | _Integers) -> _Bounds:
        """Begin and end of each of some records.

        Raises:
            DatasetFileCorruptError: the index is damaged there.
        """
        indices = places
        if isinstance(indices, range):
            indices = np.arange(indices.start, indices.stop)
        if self.file is None:
            record_bytes = self._offset
            begins = indices * record_bytes
            return begins, begins + record_bytes
        if self._rows is not None:
            begins, ends = self._fetch_bounds(self._rows, indices)
        else:
            begins, ends = self._look_up_bounds(self.file, indices)
        begins[indices == 0] = 0
        return begins, ends

    def _fetch_bounds(self, rows: StoredRowsReader, indices: _Integers) -> _Bounds:
        """Read entries by range, in one request; the begin of the first record is undefined."""
        n_records = len(indices)
        entries = rows.read(np.concatenate((indices, np.maximum(indices - 1, 0))))
        return entries[n_records:], entries[:n_records]

    def _look_up_bounds(self, file: StoredFile, indices: _Integers) -> _Bounds:
        """Look entries up in the buffer; the begin of the first record is undefined."""
        if not file.checks.is_done:
            offsets = self._offset + indices * _ENTRY_BYTES
            starts = np.maximum(offsets - _ENTRY_BYTES, self._offset)
            file.check(starts.tolist(), (offsets + _ENTRY_BYTES).tolist())
        if self.n_records == 0:
            return indices.copy(), self._ends.take(indices)
        begins = self._ends.take(indices - 1, mode="wrap")
        return begins, self._ends.take(indices)


class Bag:
    """Records of one column.

    Args:
        column: its name, for messages.
        file: where the records are.
        n_bytes: how much of the file are records.
        ends: where each of them ends.
    """

    def __init__(self, column: str, file: StoredFile, n_bytes: int, ends: Ends) -> None:
        self.column = column
        self.file = file
        self.n_bytes = n_bytes
        self.ends = ends

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
        view = self.ends.view
        buffer = self.file.buffer
        index_file = self.ends.file
        if view is None or buffer is None or index_file is None:
            return self.records(range(index, index + 1))[0]
        if not index_file.checks.is_done or not self.file.checks.is_done:
            return self.records(range(index, index + 1))[0]
        # Both files are in memory and checked: no arrays are needed for a single record.
        begin = view[index - 1] if index else 0
        end = view[index]
        if not 0 <= begin <= end <= self.n_bytes:
            raise self.wrong_bounds(index, begin, end)
        return buffer[begin:end]

    def records(self, places: range | _Integers) -> list[bytes]:
        """The bytes of records, in one request; raises as :meth:`record`."""
        return self.file.read_many(*self.bounds(places))

    def fetch(self, places: range | _Integers) -> None:
        """Fetch records from a store into its cache; raises as :meth:`record`."""
        if self.file.ranges is None or len(places) == 0:
            return
        begins, ends = self.bounds(places)
        if isinstance(places, range):
            # Neighbours lie end to end: one range holds them all.
            begins = begins[:1]
            ends = ends[-1:]
        sizes = ends - begins
        ranges = list(zip(begins.tolist(), sizes.tolist(), strict=True))
        self.file.ranges.resource.prefetch(ranges)

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
        problem = type(error).__name__
        if str(error):
            problem = f"{problem}: {error}"
        return DatasetFileCorruptError(
            f"record {index:,} of column {self.column!r} "
            f"(bytes {begins[0]:,} to {ends[0]:,} of {self.file.name}) "
            f"cannot be decoded: {problem[:500]}. "
            "The record is damaged, or was written with another codec of the same name"
        )

    def wrong_bounds(self, index: int, begin: int, end: int) -> DatasetFileCorruptError:
        """The error for a record whose index entry is out of range."""
        file = self.ends.file or self.file
        return DatasetFileCorruptError(
            f"the index of column {self.column!r} is damaged: in {file.name} record {index:,} "
            f"begins at byte {begin:,} and ends at {end:,}, of {self.n_bytes:,}. "
            "Restore the file from a copy, or write the dataset again"
        )


def ends_of_index(file: StoredFile, n_bytes: int) -> Ends:
    """Return the ends in a column's ``.idx`` of those records that are complete.

    A writer that was interrupted may leave entries of records that its bag does not have.

    Args:
        file: the index.
        n_bytes: the size of the bag in bytes.
    """
    # A binary search for the first entry beyond the bag. It begins at the last entry, as nearly
    # always all records are complete.
    low = 0
    high = min(file.size // _ENTRY_BYTES, MAX_RECORDS)
    middle = high - 1
    while low < high:
        if _read_entry(file, middle * _ENTRY_BYTES) <= n_bytes:
            low = middle + 1
        else:
            high = middle
        middle = (low + high) // 2
    return Ends(file, 0, low)


def ends_of_bag(column: str, file: StoredFile) -> tuple[Ends, int]:
    """Find the index of a bag that is one file, with or without the leading zero.

    Returns:
        The ends of the records, and the size of all records in bytes.

    Raises:
        DatasetFileCorruptError: they are not there.
    """
    if file.size == 0:
        return Ends(file, 0, 0), 0
    n_bytes = file.size
    if file.size >= _ENTRY_BYTES:
        n_bytes = _read_entry(file, file.size - _ENTRY_BYTES)
    table_bytes = file.size - n_bytes
    if table_bytes < _ENTRY_BYTES or table_bytes % _ENTRY_BYTES:
        raise DatasetFileCorruptError(
            f"column {column!r} is damaged: {file.name} does not end with its index; "
            "it was truncated"
        )
    leading = 1 if _read_entry(file, n_bytes) == 0 else 0
    n_records = table_bytes // _ENTRY_BYTES - leading
    if n_records > MAX_RECORDS:
        raise DatasetFileCorruptError(
            f"column {column!r} is damaged: {file.name} has an index of {n_records:,} records"
        )
    return Ends(file, n_bytes + leading * _ENTRY_BYTES, n_records), n_bytes


def _read_entry(file: StoredFile, offset: int) -> int:
    """Return the entry of an index at ``offset`` bytes."""
    return int.from_bytes(file.read(offset, offset + _ENTRY_BYTES), "little")


def as_places(positions: range | IndexArrayOfInts) -> Places:
    """Return positions as numbers of records: as a range if they follow each other."""
    if isinstance(positions, range):
        return positions
    n_positions = len(positions)
    if n_positions > 1:
        first = positions.item(0)
        last = positions.item(-1)
        if last - first == n_positions - 1:
            consecutive = np.arange(first, last + 1, dtype=positions.dtype)
            if positions.tobytes() == consecutive.tobytes():
                return range(first, last + 1)
    return positions.astype(np.int64, copy=False)

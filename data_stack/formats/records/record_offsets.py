"""The offsets of the records of a column in its file."""

from __future__ import annotations

from typing import Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.layout import ENTRY_BYTES, MAX_RECORDS
from data_stack.formats.records.stored_file import StoredFile
from data_stack.formats.stored_rows import StoredRowsReader

_Integers = npt.NDArray[np.int64]

#: The offsets at which some records begin, and those at which they end.
Bounds = tuple[_Integers, _Integers]

#: The numbers of some records of a column: a range if they follow each other.
RecordNumbers = Union[range, _Integers]


class RecordOffsets:
    """The offset at which each record ends, which is where the next one begins.

    The offsets are as the index says; :class:`Bag` checks them.

    Args:
        file: the index, or a bag whose index follows the records; None if all records have one
            size.
        offset: the offset of the first entry in bytes; or the size of each record.
        n_records: the number of entries.
    """

    #: The entries of an index in a buffer, as numpy's array and as a memoryview, of which a single
    #: entry is read in less time.
    _entries: _Integers
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
        # Entries are read as signed integers, as positions are. Larger values become negative, and
        # no valid offset is.
        if file.ranges is not None:
            self._rows = StoredRowsReader(file.ranges, offset, (n_records,), np.dtype("<i8"))
        elif file.buffer is not None:
            end = offset + n_records * ENTRY_BYTES
            self._entries = np.ndarray((n_records,), "<i8", file.buffer, offset)
            self.view = memoryview(file.buffer)[offset:end].cast("q")

    def bounds(self, numbers: RecordNumbers) -> Bounds:
        """Return where each of some records begins and ends.

        Raises:
            DatasetFileCorruptError: the index is damaged there.
        """
        if isinstance(numbers, range):
            numbers = np.arange(numbers.start, numbers.stop)
        if self.file is None:
            record_bytes = self._offset
            begins = numbers * record_bytes
            return begins, begins + record_bytes
        if self._rows is not None:
            begins, ends = self._fetch_bounds(self._rows, numbers)
        else:
            begins, ends = self._look_up_bounds(self.file, numbers)
        begins[numbers == 0] = 0
        return begins, ends

    def _fetch_bounds(self, rows: StoredRowsReader, numbers: _Integers) -> Bounds:
        """Read entries by range, in one request; the begin of the first record is undefined."""
        n_records = len(numbers)
        entries = rows.read(np.concatenate((numbers, np.maximum(numbers - 1, 0))))
        return entries[n_records:], entries[:n_records]

    def _look_up_bounds(self, file: StoredFile, numbers: _Integers) -> Bounds:
        """Look entries up in the buffer; the begin of the first record is undefined."""
        if not file.checks.is_done:
            offsets = self._offset + numbers * ENTRY_BYTES
            starts = np.maximum(offsets - ENTRY_BYTES, self._offset)
            file.check(starts, offsets + ENTRY_BYTES)
        if self.n_records == 0:
            return numbers.copy(), self._entries.take(numbers)
        # A record begins where the one before ends. For record 0, "wrap" takes the last entry, as
        # -1 would be out of bounds.
        begins = self._entries.take(numbers - 1, mode="wrap")
        return begins, self._entries.take(numbers)


def find_offsets_in_index(file: StoredFile, n_bytes: int) -> RecordOffsets:
    """Return the offsets in a column's ``.idx`` of those records that are complete.

    A writer that was interrupted may leave entries of records that its bag does not have.

    Args:
        file: the index.
        n_bytes: the size of the bag in bytes.
    """
    # A binary search for the first entry beyond the bag. It begins at the last entry, as nearly
    # always all records are complete.
    low = 0
    high = min(file.size // ENTRY_BYTES, MAX_RECORDS)
    middle = high - 1
    while low < high:
        if _read_entry(file, middle * ENTRY_BYTES) <= n_bytes:
            low = middle + 1
        else:
            high = middle
        middle = (low + high) // 2
    return RecordOffsets(file, 0, low)


def find_offsets_in_bag(column: str, file: StoredFile) -> tuple[RecordOffsets, int]:
    """Find the index of a bag that is one file, with or without the leading zero.

    Args:
        column: the name of the column, for messages.
        file: the bag, with the index behind the records.

    Returns:
        The offsets of the records, and the size of all records in bytes.

    Raises:
        DatasetFileCorruptError: the bag does not end with its index.
    """
    if file.size == 0:
        return RecordOffsets(file, 0, 0), 0
    n_bytes = file.size
    if file.size >= ENTRY_BYTES:
        n_bytes = _read_entry(file, file.size - ENTRY_BYTES)
    index_bytes = file.size - n_bytes
    if index_bytes < ENTRY_BYTES or index_bytes % ENTRY_BYTES:
        raise DatasetFileCorruptError(
            f"column {column!r} is damaged: {file.name} does not end with its index; "
            "it was truncated"
        )
    n_leading_zeros = 1 if _read_entry(file, n_bytes) == 0 else 0
    n_records = index_bytes // ENTRY_BYTES - n_leading_zeros
    if n_records > MAX_RECORDS:
        raise DatasetFileCorruptError(
            f"column {column!r} is damaged: {file.name} has an index of {n_records:,} records"
        )
    offset = n_bytes + n_leading_zeros * ENTRY_BYTES
    return RecordOffsets(file, offset, n_records), n_bytes


def _read_entry(file: StoredFile, offset: int) -> int:
    """Return the entry of an index at ``offset`` bytes."""
    return int.from_bytes(file.read(offset, offset + ENTRY_BYTES), "little")


def as_record_numbers(positions: range | IndexArrayOfInts) -> RecordNumbers:
    """Return positions of samples as numbers of records: as a range if they follow each other."""
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

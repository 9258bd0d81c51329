"""A column's records as they lie in its files: where each begins and ends, and its bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.layout import MAX_RECORDS
from data_stack.formats.records.stored_file import BlockDamage, StoredFile
from data_stack.formats.rows import StoredRowsColumn

__all__ = ["Bag", "Ends", "StoredEnds", "UniformEnds", "ends_of_bag", "ends_of_index"]

_ENTRY_BYTES = 8
#: Index entries looked at in one go.
_ENTRIES_AT_ONCE = 1 << 20

_Integers = npt.NDArray[np.int64]
_Bounds = tuple[_Integers, _Integers]


class Ends(ABC):
    """Where each record ends, and with it where the next one begins. Nothing here is known to make sense.

    Attributes:
        n_records: how many there are.
    """

    n_records: int

    @abstractmethod
    def bounds(self, index: int) -> tuple[int, int]:
        """Begin and end of a record."""

    @abstractmethod
    def many_bounds(self, indices: _Integers) -> _Bounds:
        """Begin and end of each of some records."""

    @abstractmethod
    def run_bounds(self, start: int, stop: int) -> _Bounds:
        """Those of records that follow each other."""

    @property
    def view(self) -> memoryview | None:
        """All ends, if they may be taken as they are."""
        return None

    def settle(self) -> bool:
        """Whether nothing has to be checked any more."""
        return True

    def check_order(self) -> int:
        """Read all; the first record that ends before it begins, -1 if there is none."""
        for start in range(0, self.n_records, _ENTRIES_AT_ONCE):
            begins, ends = self.run_bounds(start, min(start + _ENTRIES_AT_ONCE, self.n_records))
            wrong = np.flatnonzero((begins > ends) | (begins < 0))
            if len(wrong):
                return start + int(wrong[0])
        return -1


class UniformEnds(Ends):
    """Of records of one size."""

    def __init__(self, n_records: int, record_bytes: int) -> None:
        self.n_records, self._record_bytes = n_records, record_bytes

    def bounds(self, index: int) -> tuple[int, int]:
        begin = index * self._record_bytes
        return begin, begin + self._record_bytes

    def many_bounds(self, indices: _Integers) -> _Bounds:
        begins = indices * self._record_bytes
        return begins, begins + self._record_bytes

    def run_bounds(self, start: int, stop: int) -> _Bounds:
        return self.many_bounds(np.arange(start, stop))


class StoredEnds(Ends):
    """As they stand in a file.

    Args:
        file: the index; or a bag with its index behind the records.
        offset: of the first entry, in bytes.
        n_records: number of entries.
        table: the entries, if they were read and checked already.
    """

    def __init__(self, file: StoredFile, offset: int, n_records: int, table: bytes | None = None) -> None:
        self.file, self._offset, self.n_records, self._is_loaded = file, offset, n_records, table is not None
        end = offset + n_records * _ENTRY_BYTES
        self._ends: npt.NDArray[np.int64] | None = None
        self._view: memoryview | None = None
        self._rows: StoredRowsColumn | None = None
        if table is not None:
            self._ends = np.ndarray((n_records,), "<i8", table)
            self._view = memoryview(table).cast("q")
        elif file.ranges is not None:
            self._rows = StoredRowsColumn(file.ranges, offset, (n_records,), np.dtype("<i8"))
        elif file.buffer is not None:
            # Signed, as positions are: what is larger is negative so, and no record begins there.
            self._ends = np.ndarray((n_records,), "<i8", file.buffer, offset)
            self._view = memoryview(file.buffer)[offset:end].cast("q")

    @property
    def view(self) -> memoryview | None:
        return self._view if self._is_loaded or self.file.is_settled else None

    def settle(self) -> bool:
        return self._is_loaded or self.file.settle()

    def loaded(self) -> StoredEnds:
        """The same in memory."""
        end = self._offset + self.n_records * _ENTRY_BYTES
        return StoredEnds(self.file, self._offset, self.n_records, self.file.read(self._offset, end))

    def are_multiples_of(self, record_bytes: int) -> bool:
        """Whether all records are of one size; reads all entries."""
        for start in range(0, self.n_records, _ENTRIES_AT_ONCE):
            stop = min(start + _ENTRIES_AT_ONCE, self.n_records)
            _, ends = self.run_bounds(start, stop)
            if not np.array_equal(ends, np.arange(start + 1, stop + 1) * record_bytes):
                return False
        return True

    def bounds(self, index: int) -> tuple[int, int]:
        first = max(0, index - 1)
        if self._view is not None:
            if not self._is_loaded:
                self.file.check(self._offset + first * _ENTRY_BYTES, self._offset + (index + 1) * _ENTRY_BYTES)
            return self._view[index - 1] if index else 0, self._view[index]
        begin, end = self.run_bounds(index, index + 1)
        return int(begin[0]), int(end[0])

    def many_bounds(self, indices: _Integers) -> _Bounds:
        if self._rows is not None:
            found = self._rows.read(np.concatenate((indices, np.maximum(indices - 1, 0))))
            ends, begins = found[: len(indices)], found[len(indices) :]
        elif self._ends is not None:
            if not self._is_loaded and not self.file.checks.is_done:
                offsets = self._offset + indices * _ENTRY_BYTES
                self.file.check_many(np.maximum(offsets - _ENTRY_BYTES, self._offset), offsets + _ENTRY_BYTES)
            ends, begins = self._ends.take(indices), self._ends.take(indices - 1, mode="wrap")
        if len(begins):
            begins[indices == 0] = 0
        return begins, ends

    def run_bounds(self, start: int, stop: int) -> _Bounds:
        first = max(0, start - 1)
        if self._rows is not None:
            found = self._rows.read(np.arange(first, stop))
        elif self._ends is not None:
            if not self._is_loaded:
                self.file.check(self._offset + first * _ENTRY_BYTES, self._offset + stop * _ENTRY_BYTES)
            found = self._ends[first:stop]
        if start:
            return found[:-1], found[1:]
        return np.concatenate((np.zeros(min(stop, 1), np.int64), found[:-1])), found


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

    @property
    def index_file(self) -> StoredFile | None:
        """The file that the index lies in; None if it is not read."""
        return self.ends.file if isinstance(self.ends, StoredEnds) else None

    def settle(self) -> bool:
        """Whether nothing of it has to be checked any more; what little is left is checked now."""
        return self.file.settle() and self.ends.settle()

    def close(self) -> None:
        """Let go of its files."""
        if self.index_file is not None:
            self.index_file.close()
        self.file.close()

    def bounds(self, index: int) -> tuple[int, int]:
        """Begin and end of a record, which lie in the file.

        Raises:
            DatasetFileCorruptError: the index is damaged.
        """
        try:
            begin, end = self.ends.bounds(index)
        except BlockDamage as damage:
            raise self.damaged(index, str(damage)) from damage
        if not 0 <= begin <= end <= self.n_bytes:
            raise self.wrong_bounds(index, begin, end)
        return begin, end

    def many_bounds(self, indices: _Integers) -> _Bounds:
        """Those of some records, likewise."""
        try:
            begins, ends = self.ends.many_bounds(indices)
        except BlockDamage as damage:
            raise self._damaged_index(indices, damage) from damage
        return self._checked_bounds(begins, ends, indices)

    def run_bounds(self, start: int, stop: int) -> _Bounds:
        """Those of records that follow each other, likewise."""
        try:
            begins, ends = self.ends.run_bounds(start, stop)
        except BlockDamage as damage:
            raise self._damaged_index(np.arange(start, stop), damage) from damage
        return self._checked_bounds(begins, ends, np.arange(start, stop))

    def record(self, index: int) -> bytes:
        """The bytes of a record.

        Raises:
            DatasetFileCorruptError: it is damaged.
        """
        begin, end = self.bounds(index)
        try:
            return self.file.read(begin, end)
        except BlockDamage as damage:
            raise self.damaged(index, str(damage), begin, end) from damage

    def records_between(self, begins: _Integers, ends: _Integers, number_of: Callable[[int], int]) -> list[bytes]:
        """The bytes of records; ``number_of`` gives the number of one by its place among them."""
        try:
            return self.file.read_many(begins, ends)
        except BlockDamage as damage:
            raise self.damaged_among(begins, ends, damage, number_of) from damage

    def damaged_among(
        self, begins: _Integers, ends: _Integers, damage: BlockDamage, number_of: Callable[[int], int]
    ) -> DatasetFileCorruptError:
        """What to raise for a damaged block that some of these records touch."""
        touched = np.flatnonzero(damage.touches(begins, ends))
        if not len(touched):
            return damage
        place = int(touched[0])
        return self.damaged(number_of(place), str(damage), int(begins[place]), int(ends[place]))

    def damaged(self, index: int, problem: str, begin: int | None = None, end: int | None = None) -> DatasetFileCorruptError:
        """What to raise for a record."""
        where = "" if begin is None else f" (bytes {begin:,} to {end:,} of {self.file.name})"
        return DatasetFileCorruptError(f"record {index:,} of column {self.column!r}{where} cannot be read: {problem}")

    def undecodable(self, index: int, error: Exception) -> DatasetFileCorruptError:
        """What to raise for a record that its codec refuses."""
        begin, end = self.bounds(index)
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return self.damaged(
            index, f"its codec says {said[:500]}. It is damaged, or was written with another codec of that name", begin, end
        )

    def wrong_bounds(self, index: int, begin: int, end: int) -> DatasetFileCorruptError:
        """What to raise for a record that its index places where none can be."""
        file = self.index_file
        return DatasetFileCorruptError(
            f"the index of column {self.column!r} is damaged: in {self.file.name if file is None else file.name} record "
            f"{index:,} begins at byte {begin:,} and ends at {end:,}, of {self.n_bytes:,}. Restore the file from a copy, or "
            f"write the dataset again"
        )

    def _checked_bounds(self, begins: _Integers, ends: _Integers, indices: _Integers) -> _Bounds:
        wrong = (begins < 0) | (begins > ends) | (ends > self.n_bytes)
        if wrong.any():
            place = int(wrong.argmax())
            raise self.wrong_bounds(int(indices[place]), int(begins[place]), int(ends[place]))
        return begins, ends

    def _damaged_index(self, indices: _Integers, damage: BlockDamage) -> DatasetFileCorruptError:
        offset = self.ends._offset if isinstance(self.ends, StoredEnds) else 0
        ends = offset + (indices + 1) * _ENTRY_BYTES
        touched = indices[damage.touches(np.maximum(ends - 2 * _ENTRY_BYTES, offset), ends)]
        return self.damaged(int(touched[0]), str(damage)) if len(touched) else damage


def ends_of_index(file: StoredFile, n_bytes: int) -> StoredEnds:
    """The ends in a column's ``.idx``, of those records that lie in its bag's ``n_bytes``: a writer may have been cut off."""
    n_records = min(file.size // _ENTRY_BYTES, MAX_RECORDS)
    low, high = 0, n_records
    if n_records and not _lies_within(file, n_records - 1, n_bytes):
        while low < high:
            middle = (low + high) // 2
            if _lies_within(file, middle, n_bytes):
                low = middle + 1
            else:
                high = middle
        n_records = low
    return StoredEnds(file, 0, n_records)


def _lies_within(file: StoredFile, index: int, n_bytes: int) -> bool:
    return int.from_bytes(file.read(index * _ENTRY_BYTES, (index + 1) * _ENTRY_BYTES), "little") <= n_bytes


def ends_of_bag(column: str, file: StoredFile) -> tuple[StoredEnds, int]:
    """The ends behind the records of a bag that is one file, with or without the leading zero, and the size of the records.

    Raises:
        DatasetFileCorruptError: they are not there.
    """
    if file.size == 0:
        return StoredEnds(file, 0, 0), 0
    try:
        n_bytes = int.from_bytes(file.read(file.size - _ENTRY_BYTES, file.size), "little") if file.size >= _ENTRY_BYTES else -1
        table_bytes = file.size - n_bytes
        if n_bytes < 0 or table_bytes < _ENTRY_BYTES or table_bytes % _ENTRY_BYTES:
            raise DatasetFileCorruptError(
                f"column {column!r} is damaged: the last 8 of the {file.size:,} bytes of {file.name} do not tell where its index "
                f"begins. It was cut short, or its writer never finished"
            )
        first = int.from_bytes(file.read(n_bytes, n_bytes + _ENTRY_BYTES), "little")
    except BlockDamage as damage:
        raise DatasetFileCorruptError(f"the index of column {column!r} cannot be read: {damage}") from damage
    leading = 1 if first == 0 else 0
    n_records = table_bytes // _ENTRY_BYTES - leading
    if n_records > MAX_RECORDS:
        raise DatasetFileCorruptError(f"column {column!r} is damaged: {file.name} has an index of {n_records:,} records")
    return StoredEnds(file, n_bytes + leading * _ENTRY_BYTES, n_records), n_bytes

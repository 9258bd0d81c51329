"""The records of a column in its files: their offsets and bytes.

``refs.bag`` of Granular up to 0.21 maps samples to records: a record is a msgpack list with one entry for each column in the
order of their names: the number of a record, or, for a column of sequences, ``[first, count]``, ``[]`` for none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import msgpack
import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.layout import MAX_RECORDS
from data_stack.formats.records.stored_file import StoredFile
from data_stack.formats.stored_rows import StoredRowsReader
from data_stack.util.forks import fork_lock

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

    def __init__(self, file: StoredFile | None, offset: int, n_records: int) -> None:
        self.file, self._offset, self.n_records = file, offset, n_records
        self.view: memoryview | None = None
        self._rows: StoredRowsReader | None = None
        if file is not None and file.ranges is not None:
            self._rows = StoredRowsReader(file.ranges, offset, (n_records,), np.dtype("<i8"))
        elif file is not None and file.buffer is not None:
            # Signed, like positions: larger values become negative, which is never a valid offset.
            self._ends: _Integers = np.ndarray((n_records,), "<i8", file.buffer, offset)
            self.view = memoryview(file.buffer)[offset : offset + n_records * _ENTRY_BYTES].cast(
                "q"
            )

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
                starts = np.maximum(offsets - _ENTRY_BYTES, self._offset)
                self.file.check(starts.tolist(), (offsets + _ENTRY_BYTES).tolist())
            ends, begins = (
                self._ends.take(indices),
                self._ends.take(indices - 1, mode="wrap") if self.n_records else indices,
            )
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
        if (
            view is None
            or buffer is None
            or index_file is None
            or not (index_file.checks.is_done and self.file.checks.is_done)
        ):
            return self.records(range(index, index + 1))[0]
        begin, end = view[index - 1] if index else 0, view[index]
        if not 0 <= begin <= end <= self.n_bytes:
            raise self.wrong_bounds(index, begin, end)
        return buffer[begin:end]

    def records(self, places: range | _Integers) -> list[bytes]:
        """The bytes of records, in one request; raises as :meth:`record`."""
        return self.file.read_many(*self.bounds(places))

    def fetch(self, places: range | _Integers) -> None:
        """Fetch records from a store into its cache; raises as :meth:`record`."""
        if self.file.ranges is not None and len(places):
            begins, ends = self.bounds(places)
            if isinstance(places, range):
                begins, ends = begins[:1], ends[-1:]
            self.file.ranges.resource.prefetch(
                list(zip(begins.tolist(), (ends - begins).tolist(), strict=True))
            )

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
        where = f"record {index:,} of column {self.column!r} (bytes {begins[0]:,} to {ends[0]:,} of {self.file.name})"
        remedy = "The record is damaged, or was written with another codec of the same name"
        return DatasetFileCorruptError(f"{where} cannot be decoded: {said[:500]}. {remedy}")

    def wrong_bounds(self, index: int, begin: int, end: int) -> DatasetFileCorruptError:
        """The error for a record whose index entry is out of range."""
        file = self.ends.file or self.file
        problem = f"in {file.name} record {index:,} begins at byte {begin:,} and ends at {end:,}, of {self.n_bytes:,}"
        remedy = "Restore the file from a copy, or write the dataset again"
        return DatasetFileCorruptError(
            f"the index of column {self.column!r} is damaged: {problem}. {remedy}"
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
        raise DatasetFileCorruptError(
            f"column {column!r} is damaged: {file.name} does not end with its index; it was truncated"
        )
    leading = 1 if _entry(file, n_bytes) == 0 else 0
    n_records = table_bytes // _ENTRY_BYTES - leading
    if n_records > MAX_RECORDS:
        raise DatasetFileCorruptError(
            f"column {column!r} is damaged: {file.name} has an index of {n_records:,} records"
        )
    return Ends(file, n_bytes + leading * _ENTRY_BYTES, n_records), n_bytes


def _entry(file: StoredFile, offset: int) -> int:
    return int.from_bytes(file.read(offset, offset + _ENTRY_BYTES), "little")


# ---------------------------------------------------------------------- references


class SampleReferences:
    """Maps each sample to its records of each column.

    Args:
        open_bag: opens its records.
        types: of the columns by name.
    """

    def __init__(self, open_bag: Callable[[], Bag], types: Mapping[str, str]) -> None:
        self._open_bag, self._names = open_bag, list(types)
        self._opened: Bag | None = None
        self._opening = fork_lock()
        self._are_sequences = [kind.endswith("[]") for kind in types.values()]

    def __len__(self) -> int:
        return len(self.bag)

    @property
    def bag(self) -> Bag:
        """Its records."""
        if (bag := self._opened) is None:
            with self._opening:
                if (bag := self._opened) is None:
                    bag = self._opened = self._open_bag()
        return bag

    @property
    def is_remote(self) -> bool:
        """Whether the records are fetched from a store, so that opening them again takes requests."""
        return (ranges := self.bag.file.ranges) is not None and ranges.resource.prefetches

    def release(self) -> None:
        """Release the file until it is needed again."""
        self._opened = None

    def many(self, positions: _Integers) -> dict[str, tuple[_Integers, _Integers]]:
        """By column, the first record and the number of records of each sample; :meth:`check` checks their range.

        Raises:
            DatasetFileCorruptError: they are damaged.
        """
        parsed = []
        for position, record in zip(positions.tolist(), self.bag.records(positions), strict=True):
            try:
                parsed.append(_parse(record, self._are_sequences))
            except ValueError as error:
                raise self.bag.undecodable(position, error) from error
        table = np.array(parsed, np.int64).reshape(len(parsed), len(self._names), 2)
        return {
            name: (table[:, number, 0], table[:, number, 1])
            for number, name in enumerate(self._names)
        }

    def check(
        self, name: str, n_records: int, positions: _Integers, firsts: _Integers, counts: _Integers
    ) -> None:
        """Check that samples only name records that a column of ``n_records`` has.

        Raises:
            DatasetFileCorruptError: a sample names others.
        """
        wrong = firsts + counts > n_records
        if wrong.any():
            place = int(wrong.argmax())
            problem = f"it names {counts[place]} records from {firsts[place]} on of column {name!r}, which has {n_records}"
            raise self.bag.undecodable(int(positions[place]), ValueError(problem))


def pack_references(entries: Sequence[int | tuple[int, int]]) -> bytes:
    """A record: of each column a record's number, or ``(first, count)``."""
    packed: bytes = msgpack.packb(
        [entry if isinstance(entry, int) else entry if entry[1] else () for entry in entries]
    )
    return packed


def _parse(record: bytes, are_sequences: Sequence[bool]) -> list[tuple[int, int]]:
    """``(first, count)`` of each column.

    Raises:
        ValueError: the record is invalid.
    """
    # Nothing but lists and numbers is in one, so that nothing else is made of a stranger's.
    parsed: Any = msgpack.unpackb(
        record, max_map_len=0, max_str_len=0, max_bin_len=0, max_ext_len=0
    )
    if type(parsed) is not list or len(parsed) != len(are_sequences):
        raise ValueError("it does not have an entry for each column")
    entries = []
    for entry, is_sequence in zip(parsed, are_sequences, strict=True):
        numbers = (entry or [0, 0]) if is_sequence and type(entry) is list else [entry, 1]
        are_valid = len(numbers) == 2 and all(
            type(each) is int and 0 <= each <= MAX_RECORDS for each in numbers
        )
        if is_sequence is not (type(entry) is list) or not are_valid:
            raise ValueError(
                "an entry is neither the number of a record nor first and count of a sequence"
            )
        entries.append((numbers[0], numbers[1]))
    return entries


def as_places(positions: range | IndexArrayOfInts) -> Places:
    """The same, as a range if they follow each other."""
    if isinstance(positions, range):
        return positions
    n = len(positions)
    if n > 1 and positions.item(-1) - positions.item(0) == n - 1:
        places = range(positions.item(0), positions.item(0) + n)
        if (
            positions.tobytes()
            == np.arange(places.start, places.stop, dtype=positions.dtype).tobytes()
        ):
            return places
    return positions.astype(np.int64, copy=False)

"""The bytes of the records of a column."""

from __future__ import annotations

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.record_offsets import (
    Bounds,
    RecordNumbers,
    RecordOffsets,
    find_offsets_in_bag,
    find_offsets_in_index,
)
from data_stack.formats.records.stored_file import StoredFile
from data_stack.util.program_lines import warn_deprecated


class Bag:
    """The records of one column.

    Args:
        column: the name of the column, for messages.
        file: the file of the records.
        n_bytes: the size of all records in bytes; an index may follow them in the file.
        offsets: where each record ends.
    """

    def __init__(self, column: str, file: StoredFile, n_bytes: int, offsets: RecordOffsets) -> None:
        self.column = column
        self.file = file
        self.n_bytes = n_bytes
        self.offsets = offsets

    def __len__(self) -> int:
        return self.offsets.n_records

    def close(self) -> None:
        """Close the file of the records, and that of their offsets."""
        if self.offsets.file is not None:
            self.offsets.file.close()
        self.file.close()

    def record(self, index: int) -> bytes:
        """Read the bytes of a record.

        Raises:
            DatasetFileCorruptError: the record, or its entry in the index, is damaged.
        """
        view = self.offsets.view
        buffer = self.file.buffer
        index_file = self.offsets.file
        if (
            view is None
            or buffer is None
            or index_file is None
            or not index_file.checks.is_done
            or not self.file.checks.is_done
        ):
            return self.records(range(index, index + 1))[0]
        # Both files are in memory and checked: no arrays are needed for a single record.
        begin = view[index - 1] if index > 0 else 0
        end = view[index]
        if not 0 <= begin <= end <= self.n_bytes:
            raise self.wrong_bounds(index, begin, end)
        return buffer[begin:end]

    def records(self, numbers: RecordNumbers) -> list[bytes]:
        """Read the bytes of records, in one request.

        Raises:
            DatasetFileCorruptError: a record, or its entry in the index, is damaged.
        """
        begins, ends = self.bounds(numbers)
        return self.file.read_many(begins, ends)

    def fetch(self, numbers: RecordNumbers) -> None:
        """Fetch records from a store into its cache.

        Raises:
            DatasetFileCorruptError: the entry of a record in the index is damaged.
        """
        if self.file.ranges is None or len(numbers) == 0:
            return
        begins, ends = self.bounds(numbers)
        if isinstance(numbers, range):
            # Neighbours lie end to end: one range holds them all.
            begins = begins[:1]
            ends = ends[-1:]
        sizes = ends - begins
        ranges = list(zip(begins.tolist(), sizes.tolist(), strict=True))
        self.file.ranges.resource.prefetch(ranges)

    def bounds(self, numbers: RecordNumbers) -> Bounds:
        """Return where records begin and end in the file.

        Raises:
            DatasetFileCorruptError: the entry of a record in the index is damaged.
        """
        begins, ends = self.offsets.bounds(numbers)
        is_wrong = (begins < 0) | (begins > ends) | (ends > self.n_bytes)
        if is_wrong.any():
            first_wrong = int(is_wrong.argmax())
            raise self.wrong_bounds(
                int(numbers[first_wrong]), int(begins[first_wrong]), int(ends[first_wrong])
            )
        return begins, ends

    def undecodable(self, index: int, error: Exception) -> DatasetFileCorruptError:
        """Return the error to raise for a record that its codec refuses."""
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
        """Return the error to raise for a record whose entry in the index is out of range."""
        file = self.offsets.file or self.file
        return DatasetFileCorruptError(
            f"the index of column {self.column!r} is damaged: in {file.name} record {index:,} "
            f"begins at byte {begin:,} and ends at {end:,}, of {self.n_bytes:,}. "
            "Restore the file from a copy, or write the dataset again"
        )


def ends_of_bag(column: str, file: StoredFile) -> tuple[RecordOffsets, int]:
    """Find the index of a bag; deprecated alias of :func:`find_offsets_in_bag`."""
    _warn_renamed("ends_of_bag", "find_offsets_in_bag")
    return find_offsets_in_bag(column, file)


def ends_of_index(file: StoredFile, n_bytes: int) -> RecordOffsets:
    """Read an index; deprecated alias of :func:`find_offsets_in_index`."""
    _warn_renamed("ends_of_index", "find_offsets_in_index")
    return find_offsets_in_index(file, n_bytes)


def _warn_renamed(old_name: str, new_name: str) -> None:
    warn_deprecated(
        f"data_stack.formats.records.bag.{old_name}()",
        instead=f"data_stack.formats.records.record_offsets.{new_name}()",
        since="0.2",
        removed_in="1.0",
    )

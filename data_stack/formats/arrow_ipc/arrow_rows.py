"""Finds the rows of Arrow files with the same columns, one file after the other."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.arrow_ipc.stored_batches import StoredBatches
from data_stack.io.positional import PositionalFile

_Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowsOfBatch:
    """Some rows of one record batch.

    Attributes:
        batch: the number of the record batch, counted through all files.
        rows: the positions of the rows in the batch, shape ``(n,)``.
    """

    batch: int
    rows: _Integers


class ArrowRows:
    """The rows of Arrow files with the same columns, one file after the other.

    Args:
        files: the files, at least one.

    Attributes:
        files: the record batches of each file.
        schema: the columns, with the metadata of the first file.
        has_nulls: whether each column has a null, shape ``(n_columns,)``.
        n_rows: the number of rows.

    Raises:
        DatasetFileCorruptError: a file is damaged, or has other columns than the first one.
    """

    files: list[StoredBatches]
    schema: pa.Schema
    has_nulls: npt.NDArray[np.bool_]
    n_rows: int

    #: Where each record batch ends, counted in rows of all files, shape ``(n_batches,)``.
    _ends: _Integers

    #: The same as a list, in which a single row is found faster.
    _end_list: list[int]

    #: Where each record batch starts, counted in rows of all files, shape ``(n_batches,)``.
    _starts: _Integers

    #: The number of the first record batch of each file.
    _first_batches: list[int]

    def __init__(self, files: Sequence[PositionalFile]) -> None:
        self.files = [StoredBatches(file) for file in files]
        first = self.files[0]
        self.schema = first.layout.arrow_schema
        for other in self.files[1:]:
            _check_same_columns(first, other)

        has_nulls = [file.layout.has_nulls for file in self.files]
        self.has_nulls = np.logical_or.reduce(has_nulls)
        lengths = np.concatenate([file.layout.n_rows for file in self.files])
        self._ends = np.cumsum(lengths)
        self._end_list = self._ends.tolist()
        self._starts = self._ends - lengths
        self.n_rows = int(lengths.sum())
        self._first_batches = []
        n_batches = 0
        for file in self.files:
            self._first_batches.append(n_batches)
            n_batches += file.layout.n_batches

    # ------------------------------------------------------------------ where rows lie

    def locate(self, position: int) -> tuple[int, int]:
        """Return the record batch of a row, and the position of the row in it."""
        batch = bisect.bisect_right(self._end_list, position)
        return batch, position - int(self._starts[batch])

    def locate_many(self, positions: _Integers) -> tuple[_Integers, _Integers]:
        """Return the record batch of each row, and the position of each row in its batch."""
        batches = self._ends.searchsorted(positions, side="right")
        return batches, positions - self._starts[batches]

    def group_by_batch(self, positions: _Integers) -> tuple[list[RowsOfBatch], _Integers | None]:
        """Group rows by their record batches.

        Returns:
            The rows of each batch; and the place of each grouped row among ``positions``, or None
            if the order has not changed.
        """
        batches, rows = self.locate_many(positions)
        order = None
        if (np.diff(batches) < 0).any():
            order = np.argsort(batches, kind="stable")
            batches = batches[order]
            rows = rows[order]
        bounds = np.flatnonzero(np.diff(batches)) + 1
        starts = [0, *bounds.tolist()]
        groups = []
        for start, rows_of_batch in zip(starts, np.split(rows, bounds), strict=True):
            groups.append(RowsOfBatch(int(batches[start]), rows_of_batch))
        return groups, order

    def file_of(self, batch: int) -> tuple[int, int]:
        """Return the number of the file of a record batch, and the number of the batch in it."""
        file = bisect.bisect_right(self._first_batches, batch) - 1
        return file, batch - self._first_batches[file]

    def files_of(self, batches: _Integers) -> _Integers:
        """Return the number of the file of each record batch."""
        firsts = np.array(self._first_batches)
        return firsts.searchsorted(batches, side="right") - 1

    def describe(self, position: int) -> str:
        """Return where a row is stored, for messages."""
        batch, row = self.locate(position)
        file, batch_in_file = self.file_of(batch)
        return f"row {row} of record batch {batch_in_file} of {self.files[file].file.name}"

    # ------------------------------------------------------------------ columns

    @property
    def n_batches(self) -> int:
        """The number of record batches of all files."""
        return len(self._end_list)

    def column(self, batch: int, number: int) -> pa.Array:
        """Return a column of a record batch; see :meth:`StoredBatches.column`."""
        file, batch_in_file = self.file_of(batch)
        return self.files[file].column(batch_in_file, number)

    def choose_columns(self, numbers: Sequence[int]) -> None:
        """Fetch no other columns of rows from a store; see :meth:`StoredBatches.choose_columns`."""
        for file in self.files:
            file.choose_columns(numbers)

    def columns(
        self, batches: Sequence[int], number: int, *, is_alone: bool = False
    ) -> list[pa.Array]:
        """Return a column of ascending record batches, those of a file by one request.

        The arguments are those of :meth:`StoredBatches.columns`.
        """
        batches_of_file: dict[int, list[int]] = {}
        for batch in batches:
            file, batch_in_file = self.file_of(batch)
            batches_of_file.setdefault(file, []).append(batch_in_file)
        columns: list[pa.Array] = []
        for file, batches_in_file in batches_of_file.items():
            file_columns = self.files[file].columns(batches_in_file, number, is_alone=is_alone)
            columns.extend(file_columns)
        return columns

    # ------------------------------------------------------------------ the store

    @property
    def row_bytes(self) -> float:
        """The mean size of a row of the files that are fetched from a store in advance."""
        if not self.n_rows:
            return 0.0
        return sum(file.fetched_bytes for file in self.files) / self.n_rows

    def fetch(self, positions: range) -> None:
        """Fetch the record batches of neighbouring rows from the store into its cache."""
        first, _ = self.locate(positions.start)
        last, _ = self.locate(positions.stop - 1)
        batches_of_file: dict[int, list[int]] = {}
        for batch in range(first, last + 1):
            file, batch_in_file = self.file_of(batch)
            batches_of_file.setdefault(file, []).append(batch_in_file)
        for file, batches_in_file in batches_of_file.items():
            self.files[file].fetch(batches_in_file)

    def check_unchanged(self, batches: _Integers | None = None) -> None:
        """Check that nobody has written to the local files of record batches.

        Args:
            batches: the numbers of the record batches; None for all.

        Raises:
            ResourceChangedError: see :meth:`StoredBatches.check_unchanged`.
        """
        files = self.files
        if batches is not None and len(files) > 1:
            files = [self.files[file] for file in np.unique(self.files_of(batches)).tolist()]
        for file in files:
            file.check_unchanged()


def _check_same_columns(first: StoredBatches, other: StoredBatches) -> None:
    """Check that two files have the same columns, whatever their metadata.

    Raises:
        DatasetFileCorruptError: they have not.
    """
    columns = [(field.name, field.type) for field in first.layout.arrow_schema]
    other_columns = [(field.name, field.type) for field in other.layout.arrow_schema]
    if columns == other_columns:
        return
    differing = [
        f"{name}: {type_}" for name, type_ in other_columns if (name, type_) not in columns
    ]
    shown = ", ".join(differing) or f"the columns {', '.join(name for name, _ in other_columns)}"
    raise DatasetFileCorruptError(
        f"{other.file.name!r} has other columns than {first.file.name!r}: {shown:.300}"
    )

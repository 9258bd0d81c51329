"""The files that rows go into: one at a time, or one in each folder of a dataset with partitions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from data_stack.exception import DataStackError
from data_stack.formats.parquet.metadata import ParquetFileRecord
from data_stack.formats.parquet.writer_cells import CellBatch
from data_stack.formats.parquet.writer_files import GrowingParquetFile
from data_stack.formats.parquet.writer_progress import WriterProgress

__all__ = ["FileLimits", "WriterPart"]

#: What rows in memory of all open files together take at most.
_MOST_PENDING_BYTES: Final = 512 << 20


@dataclass(frozen=True)
class FileLimits:
    """When a file is complete.

    Attributes:
        file_bytes: it has about this size.
        rows: it has so many rows; None for no such limit.
        most_open: so many others are open, and were written to since.
    """

    file_bytes: int
    rows: int | None
    most_open: int


class WriterPart:
    """The part of a dataset that is being written; when it is complete, its files are noted, and the next part begins.

    Args:
        progress: what is complete, where each part is noted.
        limits: of its files.
        open_file: makes a file of a name.
        is_partitioned: whether rows lie in the folders of partitions.

    Attributes:
        n_rows: rows in it.
        n_complete: rows of the parts that were completed.
    """

    def __init__(
        self,
        progress: WriterProgress,
        limits: FileLimits,
        open_file: Callable[[str], GrowingParquetFile],
        *,
        is_partitioned: bool,
    ) -> None:
        self._progress, self._limits, self._open_file, self._is_partitioned = progress, limits, open_file, is_partitioned
        self._open: dict[str, GrowingParquetFile] = {}
        self._published: list[ParquetFileRecord] = []
        self._n_in_folder: dict[str, int] = {}
        self.n_rows, self.n_complete = 0, 0

    @property
    def has_files(self) -> bool:
        """Whether a file of it was begun."""
        return bool(self._open or self._published)

    def begin_file(self) -> None:
        """Open the file of a dataset without partitions, so that there is one although it has no rows."""
        self._file("")

    def add(self, cells: CellBatch) -> None:
        """Put rows into the files of their folders."""
        batch, folders = cells
        if folders is None:
            start = 0
            while start < batch.num_rows:
                n_rows = self._room(batch.num_rows - start, self.n_rows)
                self._add_to_one(batch.slice(start, n_rows))
                start += n_rows
            return
        names, inverse = np.unique(np.array(folders, dtype=object), return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        ends = np.cumsum(np.bincount(inverse, minlength=len(names)))
        for number, name in enumerate(names):
            rows = order[ends[number - 1] if number else 0 : ends[number]]
            self._add_to_folder(name, batch.take(pa.array(rows)))
        self._complete_if_full()

    def complete(self) -> None:
        """Complete all open files, and note that these rows are there."""
        if not self.has_files:
            return
        for file in self._open.values():
            file.finish()
        while self._open:
            self._published.append(self._open.pop(next(iter(self._open))).publish())
        self._progress.add(self._published)
        self.n_complete += self.n_rows
        self._published, self._n_in_folder, self.n_rows = [], {}, 0

    def discard(self) -> None:
        """Remove what is not complete."""
        while self._open:
            _, file = self._open.popitem()
            with contextlib.suppress(DataStackError):
                file.discard()
        if self._progress.folder.can_delete:
            for record in self._published:
                with contextlib.suppress(DataStackError):
                    self._progress.folder.delete(record.name)
        self._published = []

    # ------------------------------------------------------------------ inside

    def _room(self, n_rows: int, n_in_file: int) -> int:
        """How many of so many rows a file with others still takes."""
        return n_rows if self._limits.rows is None else min(n_rows, self._limits.rows - n_in_file)

    def _add_to_one(self, batch: pa.RecordBatch) -> None:
        """Add rows to the one open file of a dataset without partitions."""
        file = self._file("")
        file.add(batch)
        self.n_rows += batch.num_rows
        if file.n_bytes >= self._limits.file_bytes and self.n_rows != self._limits.rows:
            rest = file.taken_pending()  # for the next file, instead of a small row group at the end of this one
            self.n_rows -= sum(each.num_rows for each in rest)
            self.complete()
            for each in rest:
                self._add_to_one(each)
            return
        self._complete_if_full()

    def _add_to_folder(self, folder: str, batch: pa.RecordBatch) -> None:
        start = 0
        while start < batch.num_rows:
            file = self._file(folder)
            n_rows = self._room(batch.num_rows - start, file.n_rows)
            file.add(batch.slice(start, n_rows))
            self.n_rows += n_rows
            start += n_rows
            if file.n_bytes >= self._limits.file_bytes or not self._room(1, file.n_rows):
                self._complete_file(folder)
        while sum(file.pending_bytes for file in self._open.values()) > _MOST_PENDING_BYTES:
            max(self._open.values(), key=lambda file: file.pending_bytes).write_pending()

    def _file(self, folder: str) -> GrowingParquetFile:
        """The open file of a folder."""
        file = self._open.pop(folder, None)
        if file is None:
            if len(self._open) >= self._limits.most_open:
                self._complete_file(next(iter(self._open)))  # that was not written to for longest
            part, number = self._progress.n_parts, self._n_in_folder.get(folder, 0)
            self._n_in_folder[folder] = number + 1
            file = self._open_file(
                f"{folder}/part-{part:06d}-{number:03d}.parquet" if self._is_partitioned else f"part-{part:06d}.parquet"
            )
        self._open[folder] = file
        return file

    def _complete_file(self, folder: str) -> None:
        file = self._open[folder]
        file.finish()
        del self._open[folder]
        self._published.append(file.publish())

    def _complete_if_full(self) -> None:
        """Complete the part once its files are as large, on average, as files are to be."""
        n_folders = max(1, len(self._n_in_folder))
        n_bytes = sum(file.n_bytes for file in self._open.values()) + sum(file.size for file in self._published)
        if n_bytes >= self._limits.file_bytes * n_folders or (
            self._limits.rows is not None and self.n_rows >= self._limits.rows * n_folders
        ):
            self.complete()

"""Writes the files of a dataset in parts, so that an interrupted writer can be resumed.

A part is the files that a writer completes together. The complete files of this writer, and of
interrupted ones before it, are listed in the notes: a manifest in ``_data_stack_progress``. The
next writer resumes after the files in the notes, which are durable, and removes all other files of
the interrupted writer.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from data_stack.exception import DataStackError
from data_stack.formats.parquet.file_format import FileFormat
from data_stack.formats.parquet.growing_parquet_file import GrowingParquetFile
from data_stack.formats.parquet.manifest import ParquetFileRecord, ParquetManifest
from data_stack.formats.parquet.metadata_files import PROGRESS_FOLDER
from data_stack.formats.parquet.row_encoder import CellBatch
from data_stack.io.folder import Folder

#: The file with the notes: the JSON of a manifest.
PROGRESS_NOTE: Final = f"{PROGRESS_FOLDER}/manifest.json"

#: The maximum memory for the rows of all open files together, in bytes.
_MAX_PENDING_BYTES: Final = 512 << 20
#: The maximum number of open files of partitions. For one more, the least recently written file is
#: completed.
_MAX_OPEN_FILES: Final = 64
#: The percentage of complete files that the stored notes may lack. The notes list all files, which
#: may be many and small. To write them after each file would take quadratic time.
_MAX_UNNOTED_PERCENT: Final = 2


class WriterPart:
    """Writes one part of a dataset after another.

    Without partitions, a part is one file. With partitions, it is one or more files in each folder,
    which are completed together. So the files of complete parts always hold the first rows that
    the writer received, and a writer that resumes knows which rows are missing: the last ones.

    Args:
        folder: the folder of the dataset.
        notes: the complete files of interrupted writers, which the dataset's manifest does not list
            yet. Its ``n_parts`` is the number of the first part.
        arrow_schema: Arrow's schema of the files, without partition columns.
        file_format: how the files are written.

    Attributes:
        notes: the complete files that the dataset's manifest does not list yet.
        n_rows: number of rows that were added.

    Raises:
        StorageError: the notes cannot be written.
    """

    #: The folder of the dataset.
    _folder: Folder
    #: Arrow's schema of the files, without partition columns.
    _arrow_schema: pa.Schema
    #: How the files are written.
    _format: FileFormat
    #: The open file of each folder, the most recently written one last. Without partitions, the
    #: folder is "".
    _open_files: dict[str, GrowingParquetFile]
    #: The files of this part that are complete, while others are open.
    _published: list[ParquetFileRecord]
    #: Number of files of this part in each folder, open ones included.
    _n_files_in_folder: dict[str, int]
    #: Number of rows in complete parts.
    _n_complete_rows: int
    #: Number of files in the notes when they were stored last; set by :meth:`_write_notes`.
    _n_noted: int

    def __init__(
        self,
        folder: Folder,
        notes: ParquetManifest,
        arrow_schema: pa.Schema,
        file_format: FileFormat,
    ) -> None:
        self.notes = notes
        self.n_rows = 0
        self._folder = folder
        self._arrow_schema = arrow_schema
        self._format = file_format
        self._open_files = {}
        self._published = []
        self._n_files_in_folder = {}
        self._n_complete_rows = 0
        self._write_notes()

    def add(self, cells: CellBatch) -> None:
        """Add rows to the files of their folders.

        Args:
            cells: the cells of at least one row.

        Raises:
            ConfigError: the store does not allow the name of a folder.
            StorageError: the rows cannot be written.
        """
        if cells.folders is None:
            self._add_to_folder("", cells.batch)
            return
        folder_of_row = np.array(cells.folders, dtype=object)
        folders, folder_number_of_row = np.unique(folder_of_row, return_inverse=True)
        for number, folder in enumerate(folders):
            rows = np.flatnonzero(folder_number_of_row == number)
            self._add_to_folder(folder, cells.batch.take(pa.array(rows)))
        if self._has_full_files():
            self.complete()

    def _has_full_files(self) -> bool:
        """Return whether the folders of this part have a full file each, on average.

        There is at least one folder, as rows were added.
        """
        n_folders = len(self._n_files_in_folder)
        n_bytes = sum(file.written_bytes for file in self._open_files.values())
        n_bytes += sum(record.size for record in self._published)
        n_rows = self.n_rows - self._n_complete_rows
        return self._format.is_full(n_bytes // n_folders, n_rows // n_folders)

    def complete(self, *, is_noted: bool = False, needs_file: bool = False) -> None:
        """Complete all open files, and begin the next part.

        Args:
            is_noted: whether the stored notes must list all complete files now. Otherwise they may
                lack a few, see :data:`_MAX_UNNOTED_PERCENT`.
            needs_file: whether to write a file without rows if this part has no file.

        Raises:
            StorageError: a file cannot be written.
        """
        if needs_file and not self._open_files:
            self._file_of("")
        if self._open_files or self._published:
            # If writing fails for one of the files, none of them has become visible.
            for file in self._open_files.values():
                file.finish()
            for folder in list(self._open_files):
                self._publish(folder)
            self.notes = replace(
                self.notes,
                files=self.notes.files + tuple(self._published),
                n_parts=self.notes.n_parts + 1,
            )
            self._published = []
            self._n_files_in_folder = {}
            self._n_complete_rows = self.n_rows
        n_files = len(self.notes.files)
        n_unnoted = n_files - self._n_noted
        has_many_unnoted = n_unnoted > n_files * _MAX_UNNOTED_PERCENT / 100
        if has_many_unnoted or (is_noted and n_unnoted):
            self._write_notes()

    def discard(self) -> None:
        """Remove the files that are not complete, as far as the store allows it.

        Errors of the store are dropped: the next writer removes what is left.
        """
        for file in self._open_files.values():
            with contextlib.suppress(DataStackError):
                file.discard()
        if not self._folder.can_delete:
            return
        with contextlib.suppress(DataStackError):
            for record in self._published:
                self._folder.delete(record.name)
            if not self.notes.files:
                # No file is complete. So nothing is left of this writer.
                clear_progress(self._folder)
            elif self._n_noted < len(self.notes.files):
                self._write_notes()

    # ------------------------------------------------------------------ files

    def _write_notes(self) -> None:
        """Store the notes, unless the store cannot delete: then no writer can resume."""
        if self._folder.can_delete:
            with self._folder.create(PROGRESS_NOTE) as file:
                file.write(self.notes.to_json())
        self._n_noted = len(self.notes.files)

    def _add_to_folder(self, folder: str, batch: pa.RecordBatch) -> None:
        """Add rows to the open file of a folder, and complete files that are full."""
        start = 0
        while start < batch.num_rows:
            # The open file has room for at least one row: a full one was completed.
            file = self._file_of(folder)
            n_rows = min(batch.num_rows - start, self._format.file_rows - file.n_rows)
            file.add(batch.slice(start, n_rows))
            self.n_rows += n_rows
            start += n_rows
            if self._format.is_full(file.written_bytes, file.n_rows):
                if self.notes.partition_by:
                    self._complete_file(folder)
                else:
                    self.complete()
        self._limit_memory()

    def _limit_memory(self) -> None:
        """Write row groups until the rows in memory keep the limit.

        The file with most bytes in memory is written first, even if its row group is small.
        """
        while sum(file.pending_bytes for file in self._open_files.values()) > _MAX_PENDING_BYTES:
            largest = max(self._open_files.values(), key=lambda file: file.pending_bytes)
            largest.write_pending()

    def _file_of(self, folder: str) -> GrowingParquetFile:
        """Return the open file of a folder, and open one if there is none.

        The file counts as the most recently written one.
        """
        file = self._open_files.pop(folder, None)
        if file is None:
            if len(self._open_files) >= _MAX_OPEN_FILES:
                least_recently_written = next(iter(self._open_files))
                self._complete_file(least_recently_written)
            file = self._open_file(folder)
        self._open_files[folder] = file
        return file

    def _open_file(self, folder: str) -> GrowingParquetFile:
        """Open the next file of a folder. Its name has the number of this part."""
        part = self.notes.n_parts
        number = self._n_files_in_folder.get(folder, 0)
        self._n_files_in_folder[folder] = number + 1
        if self.notes.partition_by:
            name = f"{folder}/part-{part:06d}-{number:03d}.parquet"
        else:
            name = f"part-{part:06d}.parquet"
        return GrowingParquetFile(
            self._folder, name, self.notes.schema, self._arrow_schema, self._format
        )

    def _complete_file(self, folder: str) -> None:
        """Complete the open file of a folder. The notes list it when its part is complete."""
        self._open_files[folder].finish()
        self._publish(folder)

    def _publish(self, folder: str) -> None:
        """Publish the finished file of a folder.

        If this fails, the store has removed the file. So it is removed from the open files first.
        """
        file = self._open_files.pop(folder)
        self._published.append(file.publish())


def clear_progress(folder: Folder) -> None:
    """Remove the notes: the dataset's manifest lists their files now, or the dataset was removed.

    In a store that cannot delete, there are no notes.
    """
    if folder.can_delete:
        for name in folder.subfolder(PROGRESS_FOLDER).list_names():
            folder.delete(f"{PROGRESS_FOLDER}/{name}")

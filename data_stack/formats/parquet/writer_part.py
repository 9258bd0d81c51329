"""Writes the parts of a dataset, after each of which a writer resumes if it was interrupted.

Notes on complete files are a manifest in ``_data_stack_progress``. It lists the files that this
writer and interrupted ones before it have completed. Listed files are durable; the next writer
removes their other files.
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

#: Lists the files that an unfinished writer has completed.
PROGRESS_NOTE: Final = f"{PROGRESS_FOLDER}/manifest.json"

#: Limit of the memory for rows of all open files together.
_MAX_PENDING_BYTES: Final = 512 << 20
#: Files of partitions that are open at a time. Beyond it, the least recently written file is
#: completed.
_MAX_OPEN_FILES: Final = 64
#: Percentage of files that may be complete but not noted: each note lists all files, which may be
#: many and small.
_UNNOTED_PERCENT: Final = 2


class WriterPart:
    """The part of a dataset that is being written.

    When it is complete, its files are noted, and the next part begins. A part is one file, or one
    or more files in each partition. So noted files always hold the first rows that the writer
    received.

    Args:
        folder: of the dataset.
        notes: files of earlier parts that no manifest lists yet; its ``n_parts`` is the number of
            this part.
        arrow_schema: of its files.
        file_format: of its files.

    Attributes:
        notes: files of complete parts that no manifest lists yet.
        n_rows: number of rows that were added.
    """

    #: The open file of each folder, the most recently written one last.
    _open_files: dict[str, GrowingParquetFile]
    #: The complete files of this part.
    _published: list[ParquetFileRecord]
    #: Number of files of this part in each folder, open ones included.
    _n_files_in_folder: dict[str, int]
    #: Number of rows in complete parts.
    _n_complete_rows: int
    #: Number of files that the stored notes list.
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

        Raises:
            ConfigError: the store does not allow the name of a folder.
            StorageError: the rows cannot be written.
        """
        if cells.folders is None:
            self._add_to_folder("", cells.batch)
            return
        folders, folder_of_row = np.unique(
            np.array(cells.folders, dtype=object), return_inverse=True
        )
        for number, folder in enumerate(folders):
            rows = np.flatnonzero(folder_of_row == number)
            self._add_to_folder(folder, cells.batch.take(pa.array(rows)))
        if self._has_full_files():
            self.complete()

    def _has_full_files(self) -> bool:
        """Whether the files of partitions have the wanted size on average."""
        n_folders = len(self._n_files_in_folder)
        n_bytes = sum(file.written_bytes for file in self._open_files.values())
        n_bytes += sum(record.size for record in self._published)
        n_rows = self.n_rows - self._n_complete_rows
        return self._format.is_full(n_bytes // n_folders, n_rows // n_folders)

    def complete(self, *, is_noted: bool = False, needs_file: bool = False) -> None:
        """Complete all open files, and begin the next part.

        Args:
            is_noted: whether to note the files at once; otherwise they may be noted later, where
                the dataset has many.
            needs_file: whether a part without rows has an empty file.

        Raises:
            StorageError: a file cannot be written.
        """
        if needs_file and not self._open_files:
            self._file_of("")
        if self._open_files or self._published:
            # finish all files before any of them is visible
            for file in self._open_files.values():
                file.finish()
            for folder in list(self._open_files):
                self._publish(folder)
            self.notes = replace(
                self.notes,
                files=(self.notes.files + tuple(self._published)),
                n_parts=self.notes.n_parts + 1,
            )
            self._published = []
            self._n_files_in_folder = {}
            self._n_complete_rows = self.n_rows
        n_files = len(self.notes.files)
        n_unnoted = n_files - self._n_noted
        has_many_unnoted = n_unnoted * 100 > n_files * _UNNOTED_PERCENT
        if has_many_unnoted or (is_noted and n_unnoted):
            self._write_notes()

    def discard(self) -> None:
        """Remove what is not complete."""
        for file in self._open_files.values():
            with contextlib.suppress(DataStackError):
                file.discard()
        if not self._folder.can_delete:
            return
        with contextlib.suppress(DataStackError):
            for record in self._published:
                self._folder.delete(record.name)
            if not self.notes.files:
                clear_progress(self._folder)  # as before the first writer
            elif self._n_noted < len(self.notes.files):
                self._write_notes()

    # ------------------------------------------------------------------ inside

    def _write_notes(self) -> None:
        if self._folder.can_delete:
            with self._folder.create(PROGRESS_NOTE) as file:
                file.write(self.notes.to_json())
        self._n_noted = len(self.notes.files)

    def _add_to_folder(self, folder: str, batch: pa.RecordBatch) -> None:
        """Add rows to the open file of a folder, and complete files that are full."""
        start = 0
        while start < batch.num_rows:
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
        """Write row groups, of the file with most rows in memory first, until the limit is kept."""
        while sum(file.pending_bytes for file in self._open_files.values()) > _MAX_PENDING_BYTES:
            largest = max(self._open_files.values(), key=lambda file: file.pending_bytes)
            largest.write_pending()

    def _file_of(self, folder: str) -> GrowingParquetFile:
        """Return the open file of a folder, as the most recently written one."""
        file = self._open_files.pop(folder, None)
        if file is None:
            if len(self._open_files) >= _MAX_OPEN_FILES:
                least_recently_written = next(iter(self._open_files))
                self._complete_file(least_recently_written)
            file = self._open_file(folder)
        self._open_files[folder] = file
        return file

    def _open_file(self, folder: str) -> GrowingParquetFile:
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
        """Complete the open file of a folder. It is noted with its part."""
        self._open_files[folder].finish()
        self._publish(folder)

    def _publish(self, folder: str) -> None:
        """Publish the finished file of a folder.

        It is no open file any more, even if this fails: the store has removed it.
        """
        file = self._open_files.pop(folder)
        self._published.append(file.publish())


def clear_progress(folder: Folder) -> None:
    """Remove the notes, if the folder can delete.

    The manifest lists the files now, or the dataset was removed.
    """
    if folder.can_delete:
        for name in folder.subfolder(PROGRESS_FOLDER).list_names():
            folder.delete(f"{PROGRESS_FOLDER}/{name}")

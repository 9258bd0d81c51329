"""Distributes rows to files, and notes complete files, from which a writer resumes after an interruption.

The notes are a manifest in ``_data_stack_progress``. It lists the files that this writer and interrupted ones before it have
completed. Listed files are durable; the next writer removes their other files.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from data_stack.exception import ConfigError, DataStackError
from data_stack.formats.parquet.dataset_names import PROGRESS_FOLDER, PROGRESS_NOTE, is_data_file
from data_stack.formats.parquet.metadata import ParquetFileRecord, ParquetManifest, find_metadata
from data_stack.formats.parquet.schema import Schema
from data_stack.formats.parquet.writer_cells import CellBatch
from data_stack.formats.parquet.writer_files import FileFormat, GrowingParquetFile
from data_stack.io.folder import TEMPORARY, Folder

#: The name of a file of a part, with the number of the part.
PART_FILE: Final = re.compile(r"(?:.*/)?part-(\d{6,})(?:-\d{3,})?\.parquet")
#: Limit of the memory for rows of all open files together.
_MAX_PENDING_BYTES: Final = 512 << 20
#: Files of partitions that are open at a time; beyond it, the least recently written file is completed.
_MAX_OPEN_FILES: Final = 64
#: Percentage of files that may be complete but not noted: each note lists all files, which may be many and small.
_UNNOTED_PERCENT: Final = 2


class WriterPart:
    """The part of a dataset that is being written. When it is complete, its files are noted, and the next part begins.

    A part is one file, or one or more files in each partition. So noted files always hold the first rows that the writer
    received.

    Args:
        folder: of the dataset.
        noted: files of earlier parts that no manifest lists yet; its ``n_parts`` is the number of this part.
        arrow_schema: of its files.
        file_format: of its files.

    Attributes:
        n_rows: number of rows that were added.
    """

    def __init__(self, folder: Folder, noted: ParquetManifest, arrow_schema: pa.Schema, file_format: FileFormat) -> None:
        self._folder, self.noted, self._arrow_schema, self._format = folder, noted, arrow_schema, file_format
        self._open: dict[str, GrowingParquetFile] = {}
        self._published: list[ParquetFileRecord] = []
        self._n_in_folder: dict[str, int] = {}
        self.n_rows = self._n_complete = 0
        self._note()

    @property
    def has_files(self) -> bool:
        """Whether the part has a file."""
        return bool(self._open or self._published)

    def begin_file(self) -> None:
        """Open a file, so that a dataset without rows has one."""
        self._file("")

    def add(self, cells: CellBatch) -> None:
        """Add rows to the files of their folders."""
        batch, folders = cells
        if folders is None:
            self._add_to_folder("", batch)
            return
        names, inverse = np.unique(np.array(folders, dtype=object), return_inverse=True)
        for number, name in enumerate(names):
            self._add_to_folder(name, batch.take(pa.array(np.flatnonzero(inverse == number))))
        # when its files have the wanted size on average
        n_folders = len(self._n_in_folder)
        n_bytes = sum(file.n_bytes for file in self._open.values()) + sum(file.size for file in self._published)
        if self._format.is_full(n_bytes // n_folders, (self.n_rows - self._n_complete) // n_folders):
            self.complete()

    def complete(self, *, is_noted: bool = False) -> None:
        """Complete all open files, and note them: at once with ``is_noted``, or if the dataset has few files."""
        if self.has_files:
            for file in self._open.values():
                file.finish()
            while self._open:
                self._published.append(self._open.pop(next(iter(self._open))).publish())
            files = (*self.noted.files, *self._published)
            self.noted = replace(self.noted, files=files, n_parts=self.noted.n_parts + 1)
            self._published, self._n_in_folder, self._n_complete = [], {}, self.n_rows
        n_files = len(self.noted.files)
        if (n_files - self._n_noted) * 100 > (0 if is_noted else n_files * _UNNOTED_PERCENT):
            self._note()

    def discard(self) -> None:
        """Remove what is not complete."""
        for file in self._open.values():
            with contextlib.suppress(DataStackError):
                file.discard()
        if not self._folder.can_delete:
            return
        with contextlib.suppress(DataStackError):
            for record in self._published:
                self._folder.delete(record.name)
            if not self.noted.files:
                clear_progress(self._folder)  # as before the first writer
            elif self._n_noted < len(self.noted.files):
                self._note()

    # ------------------------------------------------------------------ inside

    def _note(self) -> None:
        if self._folder.can_delete:
            with self._folder.create(PROGRESS_NOTE) as file:
                file.write(self.noted.to_json())
        self._n_noted = len(self.noted.files)

    def _add_to_folder(self, folder: str, batch: pa.RecordBatch) -> None:
        start = 0
        while start < batch.num_rows:
            file = self._file(folder)
            n_rows = batch.num_rows - start
            if self._format.file_rows is not None:
                n_rows = min(n_rows, self._format.file_rows - file.n_rows)
            file.add(batch.slice(start, n_rows))
            self.n_rows += n_rows
            start += n_rows
            if self._format.is_full(file.n_bytes, file.n_rows):
                if self.noted.partition_by:
                    self._complete_file(folder)
                else:
                    self.complete()
        while sum(file.pending_bytes for file in self._open.values()) > _MAX_PENDING_BYTES:
            max(self._open.values(), key=lambda file: file.pending_bytes).write_pending()

    def _file(self, folder: str) -> GrowingParquetFile:
        """The open file of a folder."""
        file = self._open.pop(folder, None)
        if file is None:
            if len(self._open) >= _MAX_OPEN_FILES:
                self._complete_file(next(iter(self._open)))  # the least recently written one
            part, number = self.noted.n_parts, self._n_in_folder.get(folder, 0)
            self._n_in_folder[folder] = number + 1
            name = f"{folder}/part-{part:06d}-{number:03d}.parquet" if self.noted.partition_by else f"part-{part:06d}.parquet"
            file = GrowingParquetFile(self._folder, name, self.noted.schema, self._arrow_schema, self._format)
        self._open[folder] = file
        return file

    def _complete_file(self, folder: str) -> None:
        self._open[folder].finish()
        self._published.append(self._open.pop(folder).publish())


def read_progress(folder: Folder) -> ParquetManifest | None:
    """The notes of the last writer; None without notes.

    Raises:
        DatasetFileCorruptError: the notes are damaged.
    """
    if not folder.has_file(PROGRESS_NOTE):
        return None
    return ParquetManifest.from_json(folder.read(PROGRESS_NOTE), folder.full_name(PROGRESS_NOTE))


def clear_progress(folder: Folder) -> None:
    """Remove the notes, if the folder can delete: the manifest lists the files now, or the dataset was removed."""
    if folder.can_delete:
        for name in folder.subfolder(PROGRESS_FOLDER).list_names():
            folder.delete(f"{PROGRESS_FOLDER}/{name}")


def clear_left_over(folder: Folder, known: Iterable[ParquetFileRecord], *, was_begun: bool) -> None:
    """Delete files of parts that were not completed.

    Args:
        folder: of the dataset.
        known: the files that a manifest or notes list.
        was_begun: whether notes exist; only then such files may exist.

    Raises:
        ConfigError: a listed file is missing; or a file is neither listed nor of such a part.
    """
    there, names = folder.list_files(), {file.name for file in known}
    for name in sorted(names.difference(there)):
        raise ConfigError(
            f"{folder.full_name(name)!r} is in the manifest, but missing. Restore it from a copy, or run "
            f"`data-stack parquet generate-metadata` to list the existing files"
        )
    stray = [name for name in there if is_data_file(name) and name not in names]
    for name in stray:
        if not was_begun or not PART_FILE.fullmatch(name):
            raise ConfigError(
                f"{folder.full_name(name)!r} already exists and is not in the manifest. Choose another folder, run "
                f"`data-stack parquet generate-metadata` to list it, or pass overwrite=True to remove it"
            )
    if folder.path is not None:  # stores clear up after themselves
        stray += [name for name in there if name.rpartition("/")[2].startswith(TEMPORARY)]
    for name in stray:
        folder.delete(name)


def remove_dataset(folder: Folder) -> None:
    """Delete a Parquet dataset, its manifest first, so that no reader sees half of it. Other files stay.

    Raises:
        StorageError: a file could not be deleted.
    """
    names = folder.list_files()
    beside = find_metadata(folder, names)
    for name in [*reversed(beside), *filter("_metadata".__eq__, names), *filter(is_data_file, names)]:
        folder.delete(name)
    clear_progress(folder)


def check_same(folder: Folder, there: ParquetManifest, schema: Schema | None, partition_by: tuple[str, ...] | None) -> None:
    """Check that rows may be appended to an existing dataset; None accepts its schema and partitions.

    Raises:
        ConfigError: schema or partitions differ.
    """
    differing = ""
    if schema is not None and list(schema) != list(there.schema):
        differ = sorted({field.name for field in set(schema) ^ set(there.schema)}) or ["the order of its fields"]
        differing = f"of another schema, which differs in: {', '.join(differ)}"
    elif partition_by is not None and partition_by != there.partition_by:
        differing = f"partitioned by {list(there.partition_by)}, not by {list(partition_by)}"
    if differing:
        raise ConfigError(f"{folder.name!r} holds a Parquet dataset {differing}. Choose another folder, or overwrite=True")

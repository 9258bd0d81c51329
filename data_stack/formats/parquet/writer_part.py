"""Writes the files of a dataset, from which a writer resumes after an interruption.

Notes on complete files are a manifest in ``_data_stack_progress``. It lists the files that this writer and interrupted ones
before it have completed. Listed files are durable; the next writer removes their other files.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.exception import ConfigError, DataStackError, MalformedIdentifierError
from data_stack.formats.parquet.footer_facts import footer_facts
from data_stack.formats.parquet.metadata import PROGRESS_FOLDER, ParquetFileRecord, ParquetManifest
from data_stack.formats.parquet.schema import Schema
from data_stack.formats.parquet.writer_cells import CellBatch
from data_stack.io.folder import Folder

#: Lists the files that an unfinished writer has completed.
PROGRESS_NOTE: Final = f"{PROGRESS_FOLDER}/manifest.json"
#: The codecs of Parquet that pyarrow writes, by their names in pyarrow.
COMPRESSIONS: Final = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")


@dataclass(frozen=True)
class FileFormat:
    """How the files of a dataset are written.

    Attributes:
        row_group_bytes: bytes per row group, before compression.
        row_group_rows: maximum rows per row group.
        compression: one of :data:`COMPRESSIONS`.
        file_bytes: approximate bytes per file.
        file_rows: maximum rows per file.
    """

    row_group_bytes: int
    row_group_rows: int
    compression: str
    file_bytes: int
    file_rows: int

    def is_full(self, n_bytes: int, n_rows: int) -> bool:
        """Whether a file with ``n_bytes`` and ``n_rows`` is complete."""
        return n_bytes >= self.file_bytes or n_rows >= self.file_rows


class GrowingParquetFile:
    """A file that grows by row groups. It is not visible before it is published.

    Args:
        folder: of the dataset.
        name: name of the file, with its folders.
        schema: of the rows.
        arrow_schema: of the file.
        file_format: how to write it.

    Attributes:
        sink: what was written.
        n_rows: number of rows that were added.
        pending_bytes: bytes of rows in memory.

    Raises:
        ConfigError: the store does not allow this name.
        StorageError: the file cannot be written.
    """

    def __init__(
        self,
        folder: Folder,
        name: str,
        schema: Schema,
        arrow_schema: pa.Schema,
        file_format: FileFormat,
    ) -> None:
        self.name, self._schema, self._format = name, arrow_schema, file_format
        self._pending: list[pa.RecordBatch] = []
        self.n_rows = self._pending_rows = self.pending_bytes = 0
        self._opened = contextlib.ExitStack()
        *inner, file = name.split("/")
        try:
            for segment in inner:
                folder = folder.subfolder(segment)
            self.sink = _Sink(self._opened.enter_context(folder.create(file)))
        except MalformedIdentifierError as error:
            raise ConfigError(
                f"{name!r} cannot be stored: {error}. Local folders allow any values of partitions"
            ) from error
        try:
            options = _options(schema, arrow_schema, file_format.compression)
            self._writer = pq.ParquetWriter(
                self.sink, arrow_schema, write_page_checksum=True, **options
            )
        except BaseException as error:
            self.discard(error)
            raise

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, and write row groups that are complete.

        Raises:
            StorageError: the rows cannot be written.
        """
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self.pending_bytes += batch.nbytes
        self.n_rows += batch.num_rows
        while self._pending_rows:
            n_rows = max(
                1, self._format.row_group_bytes * self._pending_rows // max(1, self.pending_bytes)
            )
            n_rows = min(n_rows, self._format.row_group_rows)
            if self._pending_rows < n_rows:
                return
            self._write(n_rows)

    def write_pending(self) -> None:
        """Write all rows in memory as a row group, however small."""
        if self._pending_rows:
            self._write(self._pending_rows)

    def finish(self) -> None:
        """Write all pending rows and the footer. No rows can be added afterwards."""
        self.write_pending()
        self.sink.end = b""
        self._writer.close()

    def publish(self) -> ParquetFileRecord:
        """Make the finished file visible and durable.

        Raises:
            StorageError: the file could not be stored; it is not visible.
        """
        self._opened.close()
        end, size = self.sink.end or b"", self.sink.size
        footer = end[-8 - int.from_bytes(end[-8:-4], "little") :]
        return ParquetFileRecord.of(
            self.name, size, footer_facts(footer[:-8], size), hashlib.sha256(footer).hexdigest()
        )

    def discard(self, error: BaseException | None = None) -> None:
        """Discard the file."""
        self.sink.is_broken = True
        if hasattr(self, "_writer"):
            self._writer.is_open = (
                False  # else pyarrow would close it again when it is collected, and warn
            )
        error = error or DataStackError("discarded")
        try:
            self._opened.__exit__(type(error), error, error.__traceback__)
        except BaseException as raised:
            if raised is not error and not isinstance(
                raised, OSError
            ):  # the disk may have no room for buffered bytes
                raise

    def _write(self, n_rows: int) -> None:
        """Write the first pending rows as a row group."""
        table = pa.Table.from_batches(self._pending, self._schema)
        self._writer.write_table(table.slice(0, n_rows), row_group_size=n_rows)
        rest = table.slice(n_rows)
        self._pending, self._pending_rows, self.pending_bytes = (
            rest.to_batches(),
            len(rest),
            rest.nbytes,
        )


def _options(schema: Schema, arrow_schema: pa.Schema, compression: str) -> dict[str, Any]:
    """Compression and dictionaries of each Parquet column; cells such as images are not compressed again."""
    sink = pa.BufferOutputStream()
    pq.write_metadata(arrow_schema.remove_metadata(), sink)
    parquet = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    columns = [parquet.column(number) for number in range(len(parquet.names))]
    compressed = {field.name for field in schema if field.codec.is_compressed}
    # dictionaries pay for words and small numbers; floats and bytes rarely repeat
    rarely = ("FLOAT", "DOUBLE", "BYTE_ARRAY")
    repeat = [
        each.path
        for each in columns
        if each.physical_type not in rarely or each.logical_type.type != "NONE"
    ]
    codecs = {
        each.path: "none" if each.path.partition(".")[0] in compressed else compression
        for each in columns
    }
    return {"compression": codecs, "use_dictionary": repeat}


class _Sink(io.RawIOBase):
    """The stream that pyarrow writes to. When broken, it ignores writes: pyarrow writes its buffers when it is collected.

    Attributes:
        end: set to ``b""`` to record what is written from then on.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self.end: bytes | None = None
        self.size = 0
        self.is_broken = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.is_broken:
            return len(data)
        try:
            self._file.write(data)
        except BaseException:
            self.is_broken = True
            raise
        self.size += len(data)
        if self.end is not None:
            self.end += bytes(data)
        return len(data)

    def tell(self) -> int:
        return self.size


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

    def __init__(
        self,
        folder: Folder,
        noted: ParquetManifest,
        arrow_schema: pa.Schema,
        file_format: FileFormat,
    ) -> None:
        self._folder, self.noted, self._arrow_schema, self._format = (
            folder,
            noted,
            arrow_schema,
            file_format,
        )
        self._open: dict[str, GrowingParquetFile] = {}
        self._published: list[ParquetFileRecord] = []
        self._n_in_folder: dict[str, int] = {}
        self.n_rows = self._n_complete = 0
        self._note()

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
        n_bytes = sum(file.sink.size for file in self._open.values()) + sum(
            file.size for file in self._published
        )
        if self._format.is_full(
            n_bytes // n_folders, (self.n_rows - self._n_complete) // n_folders
        ):
            self.complete()

    def complete(self, *, is_noted: bool = False, needs_file: bool = False) -> None:
        """Complete all open files, and note them: at once with ``is_noted``, or if the dataset has few files.

        With ``needs_file``, a part without rows has an empty file.
        """
        if needs_file and not self._open:
            self._file("")
        if self._open or self._published:
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
            n_rows = min(batch.num_rows - start, self._format.file_rows - file.n_rows)
            file.add(batch.slice(start, n_rows))
            self.n_rows += n_rows
            start += n_rows
            if self._format.is_full(file.sink.size, file.n_rows):
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
            name = (
                f"{folder}/part-{part:06d}-{number:03d}.parquet"
                if self.noted.partition_by
                else f"part-{part:06d}.parquet"
            )
            file = GrowingParquetFile(
                self._folder, name, self.noted.schema, self._arrow_schema, self._format
            )
        self._open[folder] = file
        return file

    def _complete_file(self, folder: str) -> None:
        self._open[folder].finish()
        self._published.append(self._open.pop(folder).publish())


def clear_progress(folder: Folder) -> None:
    """Remove the notes, if the folder can delete: the manifest lists the files now, or the dataset was removed."""
    if folder.can_delete:
        for name in folder.subfolder(PROGRESS_FOLDER).list_names():
            folder.delete(f"{PROGRESS_FOLDER}/{name}")

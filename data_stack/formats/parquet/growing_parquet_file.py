"""Writes a Parquet file that grows by row groups."""

from __future__ import annotations

import contextlib
import hashlib
import io
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.exception import ConfigError, DataStackError, MalformedIdentifierError
from data_stack.formats.parquet.file_format import FileFormat
from data_stack.formats.parquet.footer_facts import footer_facts
from data_stack.formats.parquet.manifest import ParquetFileRecord
from data_stack.formats.parquet.schema import Schema
from data_stack.io.folder import Folder

#: A file ends with the length of the footer (4 bytes) and "PAR1".
_END_BYTES: Final = 8


class GrowingParquetFile:
    """A file that grows by row groups. It is not visible before it is published.

    Args:
        folder: of the dataset.
        name: name of the file, with its folders.
        schema: of the rows.
        arrow_schema: of the file.
        file_format: how to write it.

    Attributes:
        name: name of the file, with its folders.
        n_rows: number of rows that were added.
        pending_bytes: bytes of rows in memory.

    Raises:
        ConfigError: the store does not allow this name.
        StorageError: the file cannot be written.
    """

    #: Rows that are not yet written as a row group, in their order.
    _pending: list[pa.RecordBatch]
    #: Number of these rows.
    _pending_rows: int
    #: Holds the file in the store: leaving it publishes the file, or with an error removes it.
    _opened: contextlib.ExitStack
    #: Hands what pyarrow writes to the file in the store.
    _sink: _Sink

    def __init__(
        self,
        folder: Folder,
        name: str,
        schema: Schema,
        arrow_schema: pa.Schema,
        file_format: FileFormat,
    ) -> None:
        self.name = name
        self.n_rows = 0
        self.pending_bytes = 0
        self._arrow_schema = arrow_schema
        self._format = file_format
        self._pending = []
        self._pending_rows = 0
        self._opened = contextlib.ExitStack()
        self._sink = self._create(folder)
        try:
            options = file_format.column_options(schema, arrow_schema)
            self._writer = pq.ParquetWriter(
                self._sink, arrow_schema, write_page_checksum=True, **options
            )
        except BaseException as error:
            self._remove(error)
            raise

    def _create(self, folder: Folder) -> _Sink:
        """Create the file in the store, still invisible."""
        *names_of_folders, file_name = self.name.split("/")
        try:
            for name_of_folder in names_of_folders:
                folder = folder.subfolder(name_of_folder)
            return _Sink(self._opened.enter_context(folder.create(file_name)))
        except MalformedIdentifierError as error:
            raise ConfigError(
                f"{self.name!r} cannot be stored: {error}. "
                "Local folders allow any values of partitions"
            ) from error

    @property
    def written_bytes(self) -> int:
        """Bytes of the file so far, without rows in memory."""
        return self._sink.n_bytes

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
            n_rows = self._format.rows_of_next_group(self._pending_rows, self.pending_bytes)
            if self._pending_rows < n_rows:
                return
            self._write_row_group(n_rows)

    def write_pending(self) -> None:
        """Write all rows in memory as a row group, however small."""
        if self._pending_rows:
            self._write_row_group(self._pending_rows)

    def finish(self) -> None:
        """Write all rows in memory, then the footer. No rows can be added afterwards."""
        self.write_pending()
        self._sink.start_recording()
        self._writer.close()

    def publish(self) -> ParquetFileRecord:
        """Make the finished file visible and durable.

        Raises:
            StorageError: the file could not be stored; it is not visible.
        """
        self._opened.close()
        end = self._sink.recorded
        footer_length = int.from_bytes(end[-_END_BYTES:-4], "little")
        tail = end[-_END_BYTES - footer_length :]
        facts = footer_facts(tail[:-_END_BYTES], self._sink.n_bytes)
        digest = hashlib.sha256(tail).hexdigest()
        return ParquetFileRecord.of(self.name, self._sink.n_bytes, facts, digest)

    def discard(self) -> None:
        """Discard the file.

        Raises:
            DataStackError: the store could not remove it.
        """
        # else pyarrow would close its writer again when it is collected, and warn
        self._writer.is_open = False
        self._remove(DataStackError("discarded"))

    def _remove(self, error: BaseException) -> None:
        """Leave the file in the store with an error, so that the store removes it."""
        self._sink.is_broken = True
        try:
            self._opened.__exit__(type(error), error, error.__traceback__)
        except OSError:
            return  # the disk may have no room for buffered bytes
        except BaseException as raised:
            if raised is not error:
                raise

    def _write_row_group(self, n_rows: int) -> None:
        """Write the first rows in memory as a row group."""
        table = pa.Table.from_batches(self._pending, self._arrow_schema)
        self._writer.write_table(table.slice(0, n_rows), row_group_size=n_rows)
        remaining = table.slice(n_rows)
        self._pending = remaining.to_batches()
        self._pending_rows = len(remaining)
        self.pending_bytes = remaining.nbytes


class _Sink(io.RawIOBase):
    """The stream that pyarrow writes to. It records the end of the file.

    Attributes:
        n_bytes: number of bytes that were written.
        is_broken: whether to ignore writes: pyarrow writes its buffers when it is collected.
        recorded: the bytes that were written after :meth:`start_recording`.
    """

    def __init__(self, file: Any) -> None:
        self.n_bytes = 0
        self.is_broken = False
        self.recorded = b""
        self._file = file
        self._is_recording = False

    def start_recording(self) -> None:
        """Record what is written from now on."""
        self._is_recording = True

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
        self.n_bytes += len(data)
        if self._is_recording:
            self.recorded += bytes(data)
        return len(data)

    def tell(self) -> int:
        return self.n_bytes

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

#: Bytes behind the footer of a file: its length (4 bytes, little endian), and "PAR1".
_N_LENGTH_BYTES: Final = 4
_N_END_BYTES: Final = _N_LENGTH_BYTES + 4


class GrowingParquetFile:
    """A Parquet file that grows by row groups. It is visible in the store once it is published.

    A file is published, or discarded: :meth:`finish` and then :meth:`publish`, or :meth:`discard`.
    If a method raises, only :meth:`discard` may follow, unless :meth:`publish` raised.

    Args:
        folder: the folder of the dataset.
        name: the path of the file in this folder.
        schema: the schema of the rows.
        arrow_schema: the columns of the file.
        file_format: how to divide and compress the file.

    Attributes:
        name: the path of the file in the folder of the dataset.
        n_rows: number of rows that were added.
        pending_bytes: bytes of the rows in memory, as Arrow holds them.

    Raises:
        ConfigError: the store does not allow this name.
        StorageError: the file cannot be created.
    """

    name: str
    n_rows: int
    pending_bytes: int

    _arrow_schema: pa.Schema
    _format: FileFormat
    #: Rows in memory: they are not yet written as a row group. In the order in which they came.
    _pending: list[pa.RecordBatch]
    #: Number of these rows.
    _pending_rows: int
    #: Holds the file in the store. Closing the stack publishes the file; leaving it with an error
    #: removes the file.
    _file_in_store: contextlib.ExitStack
    #: Passes what pyarrow writes on to the file in the store.
    _sink: _Sink
    #: Encodes row groups.
    _writer: pq.ParquetWriter

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
        self._file_in_store = contextlib.ExitStack()
        self._sink = self._create(folder)
        try:
            options = file_format.column_options(schema, arrow_schema)
            # Here pyarrow writes the first bytes.
            self._writer = pq.ParquetWriter(
                self._sink, arrow_schema, write_page_checksum=True, **options
            )
        except BaseException as error:  # also for Ctrl-C: no unfinished file stays
            self._remove(error)
            raise

    def _create(self, folder: Folder) -> _Sink:
        """Create the file in the store. It is not visible yet.

        Raises:
            ConfigError: the store does not allow this name.
            StorageError: the file cannot be created.
        """
        *folder_names, file_name = self.name.split("/")
        try:
            for folder_name in folder_names:
                folder = folder.subfolder(folder_name)
            file = self._file_in_store.enter_context(folder.create(file_name))
        except MalformedIdentifierError as error:
            raise ConfigError(
                f"{self.name!r} cannot be stored: {error}. "
                "Local folders allow any values of partitions"
            ) from error
        return _Sink(file)

    @property
    def written_bytes(self) -> int:
        """Bytes that were written to the file so far."""
        return self._sink.n_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows to those in memory, and write the row groups that they complete.

        Raises:
            StorageError: a row group cannot be written.
        """
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self.pending_bytes += batch.nbytes
        self.n_rows += batch.num_rows
        while self._pending_rows:
            n_rows = self._format.rows_of_next_group(self._pending_rows, self.pending_bytes)
            if n_rows > self._pending_rows:
                return  # The row group waits for more rows.
            self._write_row_group(n_rows)

    def write_pending(self) -> None:
        """Write all rows in memory as a row group, however small.

        Raises:
            StorageError: the row group cannot be written.
        """
        if self._pending_rows:
            self._write_row_group(self._pending_rows)

    def finish(self) -> None:
        """Write all rows in memory, then the footer. No rows can be added afterwards.

        Raises:
            StorageError: the file cannot be written.
        """
        self.write_pending()
        self._sink.start_recording()  # publish() needs the footer.
        self._writer.close()

    def publish(self) -> ParquetFileRecord:
        """Make the finished file visible and durable.

        Returns:
            The record of the file for the manifest.

        Raises:
            StorageError: the file could not be stored; it is not visible.
        """
        try:
            record = self._make_record()
        except BaseException as error:
            self._remove(error)
            raise
        self._file_in_store.close()
        return record

    def _make_record(self) -> ParquetFileRecord:
        """Make the record of the finished file from the footer that was written."""
        end_of_file = self._sink.recorded
        footer_bytes = int.from_bytes(end_of_file[-_N_END_BYTES:][:_N_LENGTH_BYTES], "little")
        tail = end_of_file[-_N_END_BYTES - footer_bytes :]
        facts = footer_facts(tail[:-_N_END_BYTES], self._sink.n_bytes)
        digest = hashlib.sha256(tail).hexdigest()
        return ParquetFileRecord.of(self.name, self._sink.n_bytes, facts, digest)

    def discard(self) -> None:
        """Remove the file, which is not visible.

        If the operating system cannot, the next writer removes it.

        Raises:
            DataStackError: the store could not remove it, for another reason.
        """
        # pyarrow closes an open writer when it is collected, and would warn that this failed.
        self._writer.is_open = False
        self._remove(DataStackError("discarded"))

    def _remove(self, error: BaseException) -> None:
        """Leave the file in the store by an error, so that the store removes it.

        The store raises the same error again, which is not raised here.

        Args:
            error: any error; it need not have been raised.
        """
        self._sink.is_broken = True
        try:
            self._file_in_store.__exit__(type(error), error, error.__traceback__)
        except OSError:
            # A full disk has no room for buffered bytes, which are written before the removal.
            return
        except BaseException as error_of_store:
            if error_of_store is not error:
                raise

    def _write_row_group(self, n_rows: int) -> None:
        """Write the first ``n_rows`` rows in memory as a row group."""
        table = pa.Table.from_batches(self._pending, self._arrow_schema)
        self._writer.write_table(table.slice(0, n_rows), row_group_size=n_rows)
        remaining = table.slice(n_rows)
        self._pending = remaining.to_batches()
        self._pending_rows = len(remaining)
        self.pending_bytes = remaining.nbytes


class _Sink(io.RawIOBase):
    """The stream that pyarrow writes a file to. It passes the bytes on to the store.

    Args:
        file: the file in the store, open for writing.

    Attributes:
        n_bytes: number of bytes that were written.
        is_broken: True ignores what is written. pyarrow writes its buffers once more when its
            writer is collected, and that must not raise.
        recorded: the bytes that were written after :meth:`start_recording`.
    """

    n_bytes: int
    is_broken: bool
    recorded: bytes

    def __init__(self, file: Any) -> None:
        self.n_bytes = 0
        self.is_broken = False
        self.recorded = b""
        self._file = file
        self._is_recording = False

    def start_recording(self) -> None:
        """Keep what is written from now on in :attr:`recorded`."""
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

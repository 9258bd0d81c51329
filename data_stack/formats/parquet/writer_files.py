"""Writes one Parquet file with row groups of a given size."""

from __future__ import annotations

import contextlib
import hashlib
import io
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.exception import ConfigError, DataStackError, MalformedIdentifierError
from data_stack.formats.parquet.footer_facts import footer_facts
from data_stack.formats.parquet.metadata import ParquetFileRecord
from data_stack.formats.parquet.schema import Schema
from data_stack.io.folder import Folder

#: The codecs of Parquet that pyarrow writes, by their names in pyarrow.
COMPRESSIONS: Final = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")


@dataclass(frozen=True)
class FileFormat:
    """How the files of a dataset are written.

    Attributes:
        row_group_bytes: bytes per row group, before compression.
        row_group_rows: maximum rows per row group; None: no limit.
        compression: one of :data:`COMPRESSIONS`.
        file_bytes: approximate bytes per file.
        file_rows: maximum rows per file; None: no limit.
    """

    row_group_bytes: int
    row_group_rows: int | None
    compression: str
    file_bytes: int
    file_rows: int | None

    def is_full(self, n_bytes: int, n_rows: int) -> bool:
        """Whether a file with ``n_bytes`` and ``n_rows`` is complete."""
        return n_bytes >= self.file_bytes or (self.file_rows is not None and n_rows >= self.file_rows)


class GrowingParquetFile:
    """A file that grows by row groups. It is not visible before it is published.

    Args:
        folder: of the dataset.
        name: name of the file, with its folders.
        schema: of the rows.
        arrow_schema: of the file.
        file_format: how to write it.

    Attributes:
        n_rows: number of rows that were added.
        pending_bytes: bytes of rows in memory.

    Raises:
        ConfigError: the store does not allow this name.
        StorageError: the file cannot be written.
    """

    def __init__(self, folder: Folder, name: str, schema: Schema, arrow_schema: pa.Schema, file_format: FileFormat) -> None:
        self.name, self._schema, self._format = name, arrow_schema, file_format
        self._pending: list[pa.RecordBatch] = []
        self.n_rows = self._pending_rows = self.pending_bytes = 0
        self._opened = contextlib.ExitStack()
        *inner, file = name.split("/")
        try:
            for segment in inner:
                folder = folder.subfolder(segment)
            self._sink = _Sink(self._opened.enter_context(folder.create(file)))
        except MalformedIdentifierError as error:
            raise ConfigError(
                f"{folder.full_name(name)!r} cannot be stored: {error}. Local folders allow any characters in values of "
                f"partitions, stores do not"
            ) from error
        try:
            self._writer = pq.ParquetWriter(
                self._sink, arrow_schema, write_page_checksum=True, **_options(schema, arrow_schema, file_format.compression)
            )
        except BaseException as error:
            self.discard(error)
            raise

    @property
    def n_bytes(self) -> int:
        """Number of bytes that were written."""
        return self._sink.size

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
            n_rows = max(1, self._format.row_group_bytes * self._pending_rows // max(1, self.pending_bytes))
            if self._format.row_group_rows is not None:
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
        self._sink.end = b""
        self._writer.close()

    def publish(self) -> ParquetFileRecord:
        """Make the finished file visible and durable.

        Raises:
            StorageError: the file could not be stored; it is not visible.
        """
        self._opened.close()
        end, size = self._sink.end or b"", self._sink.size
        footer = end[-8 - int.from_bytes(end[-8:-4], "little") :]
        return ParquetFileRecord.of(self.name, size, footer_facts(footer[:-8], size), hashlib.sha256(footer).hexdigest())

    def discard(self, error: BaseException | None = None) -> None:
        """Discard the file."""
        self._sink.is_broken = True
        if hasattr(self, "_writer"):
            self._writer.is_open = False  # else pyarrow would close it again when it is collected, and warn
        error = error or DataStackError("discarded")
        try:
            self._opened.__exit__(type(error), error, error.__traceback__)
        except BaseException as raised:
            if raised is not error and not isinstance(raised, OSError):  # the disk may have no room for buffered bytes
                raise

    def _write(self, n_rows: int) -> None:
        """Write the first pending rows as a row group."""
        table = pa.Table.from_batches(self._pending, self._schema)
        self._writer.write_table(table.slice(0, n_rows), row_group_size=n_rows)
        rest = table.slice(n_rows)
        self._pending, self._pending_rows, self.pending_bytes = rest.to_batches(), len(rest), rest.nbytes


def _options(schema: Schema, arrow_schema: pa.Schema, compression: str) -> dict[str, Any]:
    """Compression and dictionaries of each Parquet column; cells such as images are not compressed again."""
    sink = pa.BufferOutputStream()
    pq.write_metadata(arrow_schema.remove_metadata(), sink)
    parquet = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    columns = [parquet.column(number) for number in range(len(parquet.names))]
    compressed = {field.name for field in schema if field.codec.is_compressed}
    # dictionaries pay for words and small numbers; floats and bytes rarely repeat
    repeat = [
        column.path
        for column in columns
        if column.physical_type not in ("FLOAT", "DOUBLE", "BYTE_ARRAY") or column.logical_type.type != "NONE"
    ]
    paths = [column.path for column in columns]
    codecs = {path: "none" if path.partition(".")[0] in compressed else compression for path in paths}
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

    def flush(self) -> None:
        pass

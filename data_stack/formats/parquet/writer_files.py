"""Writes one Parquet file with row groups of a given size."""

from __future__ import annotations

import hashlib
import io
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.exception import ConfigError, DataStackError, MalformedIdentifierError
from data_stack.formats.parquet.footer_facts import footer_facts
from data_stack.formats.parquet.metadata import ParquetFileRecord
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
        most_open: maximum number of open files.
    """

    row_group_bytes: int
    row_group_rows: int | None
    compression: str
    file_bytes: int
    file_rows: int | None
    most_open: int

    def is_full(self, n_bytes: int, n_rows: int) -> bool:
        """Whether a file with ``n_bytes`` and ``n_rows`` is complete."""
        return n_bytes >= self.file_bytes or (self.file_rows is not None and n_rows >= self.file_rows)


def _leaves(schema: pa.Schema) -> list[tuple[str, str]]:
    """The Parquet columns with their physical types; ``BYTE_ARRAY_FILE`` for bytes without a logical type."""
    sink = pa.BufferOutputStream()
    pq.write_metadata(schema.remove_metadata(), sink)
    parquet = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    leaves = []
    for number in range(len(parquet.names)):
        column = parquet.column(number)
        is_file = column.physical_type == "BYTE_ARRAY" and column.logical_type.type == "NONE"
        leaves.append((column.path, "BYTE_ARRAY_FILE" if is_file else column.physical_type))
    return leaves


class GrowingParquetFile:
    """A file that grows by row groups. It is not visible before it is published.

    Args:
        folder: of the dataset.
        name: name of the file, with its folders.
        schema: of the file.
        file_format: how to write it.
        precompressed: columns whose cells are already compressed.

    Attributes:
        n_rows: number of rows that were added.
        pending_bytes: bytes of rows in memory.
        n_bytes: bytes that were written.

    Raises:
        ConfigError: the store does not allow this name.
        StorageError: the file cannot be written.
    """

    def __init__(
        self,
        folder: Folder,
        name: str,
        schema: pa.Schema,
        file_format: FileFormat,
        precompressed: frozenset[str],
    ) -> None:
        self.name, self._folder, self._schema, self._format = name, folder, schema, file_format
        self._pending: list[pa.RecordBatch] = []
        self.n_rows = self._pending_rows = self.pending_bytes = 0
        inner, _, file = name.rpartition("/")
        try:
            for segment in inner.split("/") if inner else ():
                folder = folder.subfolder(segment)
            self._opened: AbstractContextManager[Any] | None = folder.create(file)
            self._file = self._opened.__enter__()
        except MalformedIdentifierError as error:
            raise ConfigError(
                f"{folder.full_name(name)!r} cannot be stored: {error}. Local folders allow any characters in values of "
                f"partitions, stores do not"
            ) from error
        self._sink = _Sink(self._file)
        try:
            leaves = _leaves(schema)
            self._writer = pq.ParquetWriter(
                self._sink,
                schema,
                compression={
                    leaf: "none" if leaf.partition(".")[0] in precompressed else file_format.compression for leaf, _ in leaves
                },
                # Pays for words and small numbers; floats and files rarely repeat.
                use_dictionary=[leaf for leaf, kind in leaves if kind not in ("BYTE_ARRAY_FILE", "FLOAT", "DOUBLE")],
                write_page_checksum=True,
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
        while n_rows := self._complete_rows():
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
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.__exit__(None, None, None)
        footer, size = self._sink.footer, self._sink.size
        return ParquetFileRecord.of(self.name, size, footer_facts(footer[:-8], size), hashlib.sha256(footer).hexdigest())

    def discard(self, error: BaseException | None = None) -> None:
        """Discard the file."""
        opened, self._opened, self._sink.is_broken = self._opened, None, True
        self._writer.is_open = False  # else pyarrow would close it again when it is collected, and warn
        if opened is not None:
            error = error or DataStackError("discarded")
            try:
                opened.__exit__(type(error), error, error.__traceback__)
            except BaseException as raised:
                if raised is not error and not isinstance(raised, OSError):  # the disk may have no room for buffered bytes
                    raise

    # ------------------------------------------------------------------ row groups

    def _complete_rows(self) -> int:
        """The number of pending rows that fill a row group; 0 if they do not."""
        if not self._pending_rows:
            return 0
        n_rows = max(1, self._format.row_group_bytes * self._pending_rows // max(1, self.pending_bytes))
        if self._format.row_group_rows is not None:
            n_rows = min(n_rows, self._format.row_group_rows)
        return n_rows if self._pending_rows >= n_rows else 0

    def _write(self, n_rows: int) -> None:
        """Write the first pending rows as a row group."""
        table = pa.Table.from_batches(self._pending, self._schema)
        self._writer.write_table(table.slice(0, n_rows), row_group_size=n_rows)
        rest = table.slice(n_rows)
        self._pending, self._pending_rows, self.pending_bytes = rest.to_batches(), len(rest), rest.nbytes


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

    @property
    def footer(self) -> bytes:
        """The bytes from the start of the footer to the end of the file."""
        end = self.end or b""
        return end[-8 - int.from_bytes(end[-8:-4], "little") :]

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

"""Decides how the files of a Parquet dataset are divided and compressed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.formats.parquet.schema import Schema

#: The compressions of Parquet that pyarrow writes, by pyarrow's names.
COMPRESSIONS: Final = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
#: Physical types of Parquet whose values rarely repeat, if they have no logical type: floats, and
#: bytes such as those of images. Text is BYTE_ARRAY with a logical type.
_TYPES_THAT_RARELY_REPEAT: Final = ("FLOAT", "DOUBLE", "BYTE_ARRAY")


@dataclass(frozen=True)
class FileFormat:
    """The sizes and the compression of the files of a dataset.

    Attributes:
        row_group_bytes: approximate bytes per row group, in memory as Arrow holds them.
        row_group_rows: maximum rows per row group.
        compression: one of :data:`COMPRESSIONS`.
        file_bytes: approximate stored bytes per file.
        file_rows: maximum rows per file.
    """

    row_group_bytes: int
    row_group_rows: int
    compression: str
    file_bytes: int
    file_rows: int

    def is_full(self, n_bytes: int, n_rows: int) -> bool:
        """Return whether a file of ``n_bytes`` stored bytes and ``n_rows`` rows takes no more."""
        return n_bytes >= self.file_bytes or n_rows >= self.file_rows

    def rows_of_next_group(self, pending_rows: int, pending_bytes: int) -> int:
        """Return how many rows the next row group should have.

        It may be more than the rows in memory: then the row group waits for more rows.

        Args:
            pending_rows: number of rows in memory, at least 1.
            pending_bytes: bytes of these rows.
        """
        # The rows in memory tell how many bytes a row has.
        rows_of_wanted_bytes = self.row_group_bytes * pending_rows // max(1, pending_bytes)
        return min(max(1, rows_of_wanted_bytes), self.row_group_rows)

    def column_options(self, schema: Schema, arrow_schema: pa.Schema) -> dict[str, Any]:
        """Return arguments of ``pyarrow.parquet.ParquetWriter``: which columns to compress how.

        Fields whose cells are compressed, such as images, are not compressed again. Columns whose
        values often repeat get a dictionary: text, integers, times.

        Args:
            schema: the schema of the rows.
            arrow_schema: the columns of the file.

        Returns:
            ``compression``: the compression by the path of the Parquet column; and
            ``use_dictionary``: the paths of the columns with a dictionary.
        """
        compressed_fields = {field.name for field in schema if field.codec.is_compressed}
        field_names = set(arrow_schema.names)
        compressions = {}
        columns_with_dictionary = []
        for column in _parquet_columns(arrow_schema):
            if _field_of_path(column.path, field_names) in compressed_fields:
                compressions[column.path] = "none"
            else:
                compressions[column.path] = self.compression
            has_logical_type = column.logical_type.type != "NONE"
            if has_logical_type or column.physical_type not in _TYPES_THAT_RARELY_REPEAT:
                columns_with_dictionary.append(column.path)
        return {"compression": compressions, "use_dictionary": columns_with_dictionary}


def _parquet_columns(arrow_schema: pa.Schema) -> list[Any]:
    """Return the Parquet columns of a file with this schema: one for each leaf of a nested type.

    pyarrow derives them only when it writes a file, so an empty one is written to memory.
    """
    sink = pa.BufferOutputStream()
    pq.write_metadata(arrow_schema.remove_metadata(), sink)
    parquet_schema = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return [parquet_schema.column(number) for number in range(len(parquet_schema.names))]


def _field_of_path(path: str, field_names: Collection[str]) -> str:
    """Return the name of the field that has a Parquet column.

    The path of a column within a struct is ``"field.child"``, but the name of a field may contain
    dots as well. The longest beginning of the path that is a name counts.
    """
    name = path
    while name and name not in field_names:
        name = name.rpartition(".")[0]
    return name

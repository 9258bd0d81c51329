"""How the files of a Parquet dataset are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.formats.parquet.schema import Schema

#: The codecs of Parquet that pyarrow writes, by their names in pyarrow.
COMPRESSIONS: Final = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
#: Physical types of Parquet whose values rarely repeat, unless they are text or other words.
_TYPES_THAT_RARELY_REPEAT: Final = ("FLOAT", "DOUBLE", "BYTE_ARRAY")


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

    def rows_of_next_group(self, pending_rows: int, pending_bytes: int) -> int:
        """Return how many rows the next row group has.

        Args:
            pending_rows: number of rows in memory, at least 1.
            pending_bytes: size of these rows.
        """
        n_rows = self.row_group_bytes * pending_rows // max(1, pending_bytes)
        return min(max(1, n_rows), self.row_group_rows)

    def column_options(self, schema: Schema, arrow_schema: pa.Schema) -> dict[str, Any]:
        """Return the arguments of pyarrow's ParquetWriter for compression and dictionaries.

        Cells such as images are not compressed again. Dictionaries pay for words and small numbers;
        floats and bytes rarely repeat.

        Args:
            schema: of the rows.
            arrow_schema: of the file.
        """
        compressed_fields = {field.name for field in schema if field.codec.is_compressed}
        compressions = {}
        columns_with_dictionary = []
        for column in _parquet_columns(arrow_schema):
            field_name = column.path.partition(".")[0]
            if field_name in compressed_fields:
                compressions[column.path] = "none"
            else:
                compressions[column.path] = self.compression
            has_logical_type = column.logical_type.type != "NONE"
            if has_logical_type or column.physical_type not in _TYPES_THAT_RARELY_REPEAT:
                columns_with_dictionary.append(column.path)
        return {"compression": compressions, "use_dictionary": columns_with_dictionary}


def _parquet_columns(arrow_schema: pa.Schema) -> list[Any]:
    """The Parquet columns of a file with this schema: one for each leaf of a nested type."""
    sink = pa.BufferOutputStream()
    pq.write_metadata(arrow_schema.remove_metadata(), sink)
    parquet_schema = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return [parquet_schema.column(number) for number in range(len(parquet_schema.names))]

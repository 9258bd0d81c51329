"""Opens Parquet for browsing; only the texts that are shown become Python strings."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from data_stack.exception import MissingDependencyError
from data_stack.formats.parquet import Field, ParquetDataset, ScalarCodec, Schema
from data_stack.formats.parquet.columns import GroupColumn, MadeColumn, Rows
from data_stack.io.location import Location

try:
    import pyarrow as pa
except ImportError as error:
    raise MissingDependencyError("browsing Parquet", "pyarrow", "parquet") from error

#: For row groups: enough for scrolling.
_MAX_CACHED_BYTES: Final = 16 << 20


def open_parquet(place: Location) -> ParquetDataset:
    """The Parquet file or folder at a place."""
    pa.set_memory_pool(pa.system_memory_pool())  # the other pools do not return the memory of freed row groups
    folder, prefix = (place.folder, place.name) if place.is_file() else (place.as_folder(), "")
    known = ParquetDataset(folder, prefix=prefix).schema
    schema = Schema(known.name, [_with_few_strings(field) for field in known])
    return ParquetDataset(folder, prefix=prefix, schema=schema, max_cached_bytes=_MAX_CACHED_BYTES)


def _with_few_strings(field: Field) -> Field:
    is_text = type(field.codec) is ScalarCodec and isinstance(field.dtype, np.dtype) and field.dtype.kind == "U"
    return Field(field.name, field.dtype, field.shape, _TextCodec(), field.nullable) if is_text else field


class _TextCodec(ScalarCodec):
    kind = "browsed text"

    def _column(self, field: Any, cells: Any, has_nulls: bool) -> GroupColumn:
        if not (pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)):
            return super()._column(field, cells, has_nulls)

        def make(rows: Rows) -> list[Any]:
            # pa.array(rows) imports pandas wherever it is installed
            places = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])
            texts: list[Any] = cells.take(places).to_pylist()
            return texts

        return MadeColumn(len(cells), make, cells.nbytes)

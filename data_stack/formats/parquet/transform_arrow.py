"""Batches as tables of Arrow, for transforms, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet.schema import Field, Schema

__all__ = ["as_table", "columns_of_table"]


def as_table(batch: Mapping[str, npt.NDArray[Any]], schema: Schema) -> pa.Table:
    """Columns as a table: scalars and lists as Parquet has them, arrays of more dimensions as tensors of one shape.

    Raises:
        ConfigError: a column has arrays of more dimensions that differ in shape, or of which some are missing.
    """
    return pa.table({name: _to_arrow(schema[name], column) for name, column in batch.items()})


def columns_of_table(table: Any, schema: Schema) -> dict[str, Any]:
    """Columns of a table, those of ``schema`` that it has.

    Raises:
        ConfigError: it is no table, or one of its columns holds no values of its field.
    """
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise ConfigError(f"a transform on='arrow' gives a pyarrow.Table, not a {type(table).__name__}")
    return {field.name: _from_arrow(field, table.column(field.name)) for field in schema if field.name in table.column_names}


def _to_arrow(field: Field, column: npt.NDArray[Any]) -> pa.Array:
    if len(field.shape) <= 1:
        return _plain(field).cells.encode_column(_plain(field), list(column))
    if column.dtype == object:
        raise ConfigError(
            f"field {field.name!r} has arrays of different shapes, or missing ones, which Arrow has no tensors for: make the "
            f"transform one on='rows' or on='numpy'"
        )
    return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(column))


def _from_arrow(field: Field, column: pa.ChunkedArray) -> Any:
    cells = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(cells, pa.ChunkedArray):
        cells = pa.concat_arrays(cells.chunks)
    if isinstance(cells.type, pa.FixedShapeTensorType):
        if cells.null_count == 0:
            return cells.to_numpy_ndarray().copy()
        return [None if cell is None else cell.to_numpy() for cell in cells]
    if len(field.shape) > 1:
        dtype = field.dtype if isinstance(field.dtype, np.dtype) else None
        return [None if value is None else np.array(value, dtype=dtype) for value in cells.to_pylist()]
    plain = _plain(field)
    nullable = Field(field.name, field.dtype, field.shape, plain.codec, True)
    try:
        read = nullable.cells.column(nullable, cells, has_nulls=cells.null_count > 0)
        return read.take(np.arange(len(cells), dtype=np.int64))
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise ConfigError(f"the transform gave a column of type {cells.type} as field {field.name!r}: {error!s:.200}") from error


def _plain(field: Field) -> Field:
    """The field as it is in memory, without the codec of the stored one."""
    return Field(field.name, field.dtype, field.shape, None, True)

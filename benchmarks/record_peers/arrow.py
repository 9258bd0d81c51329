"""Arrow tables as batches, for Lance and Hugging Face datasets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from record_peers.system import Batch, decoded
from record_peers.workload import Field, Schema, Workload

_TYPES = {"<i8": pa.int64(), "<i4": pa.int32(), "<f4": pa.float32(), "|u1": pa.uint8()}


def table_of(work: Workload) -> pa.Table:
    """A workload; arrays are lists of fixed size, nothing is copied."""
    return pa.table({field.name: _column(work.columns[field.name], field) for field in work.schema.fields})


def _column(values: Any, field: Field) -> pa.Array:
    if field.kind in ("blob", "jpeg"):
        return pa.array(values, pa.large_binary())
    if field.kind == "scalar":
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1), _TYPES[field.dtype]), int(np.prod(field.shape)))


def batch_of(table: pa.Table | pa.RecordBatch, schema: Schema) -> Batch:
    """A table as a batch."""
    return {field.name: _values(table.column(field.name), field) for field in schema.fields}


def _values(column: pa.ChunkedArray | pa.Array, field: Field) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
    if field.kind == "blob":
        return column.to_pylist()
    if field.kind == "jpeg":
        return np.stack([decoded(jpeg) for jpeg in column.to_pylist()])
    if field.kind == "scalar":
        return column.to_numpy(zero_copy_only=False)
    return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, *field.shape)


def sample_of(table: pa.Table, schema: Schema) -> dict[str, Any]:
    """The only row of a table."""
    return {name: values[0] for name, values in batch_of(table, schema).items()}

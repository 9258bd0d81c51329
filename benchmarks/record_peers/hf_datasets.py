"""Hugging Face datasets: save_to_disk, load_from_disk, with the Arrow format, which is the
fastest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa

from record_peers.system import Batch, Reader, Sample, System
from record_peers.workload import Field, Schema, Workload

datasets.disable_progress_bars()


_TYPES = {"<i8": pa.int64(), "<i4": pa.int32(), "<f4": pa.float32(), "|u1": pa.uint8()}


def table_of(work: Workload) -> pa.Table:
    """A workload; arrays are lists of fixed size, nothing is copied."""
    return pa.table(
        {field.name: _column(work.columns[field.name], field) for field in work.schema.fields}
    )


def _column(values: Any, field: Field) -> pa.Array:
    if field.kind in ("blob", "jpeg"):
        return pa.array(values, pa.large_binary())
    if field.kind == "scalar":
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(
        pa.array(values.reshape(-1), _TYPES[field.dtype]), int(np.prod(field.shape))
    )


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
    if field.kind == "scalar":
        return column.to_numpy(zero_copy_only=False)
    return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, *field.shape)


class HuggingFaceReader(Reader):
    """Rows of the Arrow format; pictures by its own Image feature, which decodes with Pillow."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        self._schema = schema
        dataset = datasets.load_from_disk(str(folder))
        self._pictures = schema.fields[0].name if schema.fields[0].kind == "jpeg" else None
        self._dataset = dataset if self._pictures else dataset.with_format("arrow")

    def __len__(self) -> int:
        return len(self._dataset)

    def one(self, index: int) -> Sample:
        if self._pictures:
            return {self._pictures: np.asarray(self._dataset[index][self._pictures])}
        return {
            name: values[0] for name, values in batch_of(self._dataset[index], self._schema).items()
        }

    def batch(self, key: Any) -> Batch:
        if self._pictures:
            return {
                self._pictures: np.stack(
                    [np.asarray(image) for image in self._dataset[key][self._pictures]]
                )
            }
        return batch_of(self._dataset[key], self._schema)

    def run(self, start: int, end: int) -> Batch:
        return self.batch(slice(start, end))


def write(work: Workload, folder: Path) -> None:
    """Columns at once."""
    dataset = datasets.Dataset(datasets.table.InMemoryTable(table_of(work)))
    if work.schema.fields[0].kind == "jpeg":
        dataset = dataset.cast_column(work.schema.fields[0].name, datasets.Image())
    dataset.save_to_disk(str(folder))


SYSTEMS = {"hf_datasets": System(write, HuggingFaceReader)}

"""Writes columns as a file in the IPC formats of Arrow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.codec import ColumnType
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.exception import ConfigError
from data_stack.formats.arrow_tables import cells_of_tensors
from data_stack.formats.class_name_metadata import metadata_of_class_names
from data_stack.formats.column_source import ColumnSource
from data_stack.formats.column_types import plain_type
from data_stack.formats.conversion.parquet_columns import parquet_schema
from data_stack.formats.parquet.row_encoder import RowEncoder
from data_stack.formats.parquet.schema import Schema
from data_stack.values.dtype_texts import parse_dtype

#: The suffix of files in the stream format.
STREAM_SUFFIX: Final = ".arrows"

#: The kinds of dtypes of arrays that are written as lists of fixed size.
_KINDS_OF_NUMBERS: Final = "biuf"


@dataclass(frozen=True, slots=True)
class Tensor:
    """Arrays of numbers of one dtype and shape, which are nested lists of fixed size.

    Attributes:
        dtype: the dtype of the numbers.
        shape: the shape of each array.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def arrow_type(self) -> pa.DataType:
        """Return the type of the lists."""
        type_ = pa.from_numpy_dtype(self.dtype.newbyteorder("="))
        for size in reversed(self.shape):
            type_ = pa.list_(type_, size)
        return type_

    def cells_of(self, name: str, values: npt.NDArray[Any]) -> pa.Array:
        """Convert arrays to cells.

        Args:
            name: the name of the column, for messages.
            values: the arrays, shape ``(n, ...)``.

        Raises:
            ConfigError: an array has another dtype or shape.
        """
        try:
            stacked = np.stack(list(values)) if values.dtype == object else values
        except (TypeError, ValueError) as error:
            raise ConfigError(f"column {name!r}: its arrays differ in shape") from error
        if stacked.dtype != self.dtype or stacked.shape[1:] != self.shape:
            raise ConfigError(
                f"column {name!r}: expected {self.dtype} of shape {self.shape}, "
                f"got {stacked.dtype} of shape {stacked.shape[1:]}"
            )
        return cells_of_tensors(stacked)


class ArrowWriter:
    """Writes columns as a file, a record batch for each call of :meth:`write`.

    Matrices and larger arrays of one shape are nested lists of fixed size, which all readers of
    Arrow have. Other columns are as in Parquet files of data_stack, and the schema of these is in
    the metadata. The names of the classes of labels are there as ``datasets`` has them.

    Args:
        file: a binary file open for writing, at its start.
        name: the name of the file; ``.arrows`` are in the stream format, all others in the file
            format.
        source: the dataset that will be written, for its schema.

    Raises:
        ConfigError: Arrow cannot hold a column.
    """

    #: The columns that are lists of fixed size.
    _tensors: Mapping[str, Tensor]

    #: Encodes all other fields.
    _encoder: RowEncoder

    #: The columns of the file.
    _arrow_schema: pa.Schema

    #: The names of columns whose values are the bytes of files.
    _encoded: Collection[str]

    #: The writer of pyarrow.
    _writer: Any

    #: The number of rows that were written.
    _n_rows: int

    def __init__(
        self,
        file: Any,
        name: str,
        source: ColumnSource,
    ) -> None:
        self._tensors = tensors_of(source)
        schema = schema_of_others(name, source, self._tensors)
        self._encoder = RowEncoder(schema, (), name, max_rows=1)
        columns = []
        for column_name in source.schema:
            if column_name in self._tensors:
                type_ = self._tensors[column_name].arrow_type()
                columns.append(pa.field(column_name, type_, nullable=False))
            else:
                columns.append(self._encoder.arrow_schema.field(column_name))
        labels = {}
        for number, column in enumerate(columns):
            if column.name in source.class_names and column.type == pa.int64():
                labels[column.name] = source.class_names[column.name]
                # datasets finds the names of a nullable column only.
                columns[number] = column.with_nullable(True)
        metadata = {
            **(self._encoder.arrow_schema.metadata or {}),
            **metadata_of_class_names(labels),
        }
        self._arrow_schema = pa.schema(columns, metadata)
        self._encoded = source.stored_names
        self._n_rows = 0
        sink = pa.PythonFile(file, mode="w")
        if name.endswith(STREAM_SUFFIX):
            self._writer = pa.ipc.new_stream(sink, self._arrow_schema)
        else:
            self._writer = pa.ipc.new_file(sink, self._arrow_schema)

    def write(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write the next rows.

        Raises:
            ConfigError: a value does not fit its field.
            StorageError: the file cannot be written.
        """
        cells: dict[str, pa.Array] = {}
        for name, tensor in self._tensors.items():
            cells[name] = tensor.cells_of(name, columns[name])
        others = {name: values for name, values in columns.items() if name not in cells}
        if others:
            n_rows, values = self._encoder.check_columns(others, self._encoded)
            encoded = self._encoder.encode(values, 0, n_rows, self._n_rows, self._encoded)
            cells.update(zip(encoded.batch.schema.names, encoded.batch.columns, strict=True))
        batch = pa.record_batch(
            [cells[name] for name in self._arrow_schema.names], self._arrow_schema
        )
        self._writer.write_batch(batch)
        self._n_rows += batch.num_rows

    def finish(self) -> None:
        """Write the end of the file, which stays open."""
        self._writer.close()


def tensors_of(source: ColumnSource) -> dict[str, Tensor]:
    """Return the columns whose values are arrays of numbers of one dtype and shape, not vectors."""
    has_fixed_columns = len(source) > 0 and access_to(source.values).fixed_columns
    tensors = {}
    for name, column in source.schema.items():
        dtype = column.dtype
        shape = column.shape
        declared = source.declared[name]
        if declared.is_fixed and declared.dtype is not None:
            dtype = parse_dtype(declared.dtype)
            shape = declared.shape
        elif has_fixed_columns:
            first_value = source.read(np.zeros(1, np.intp), [name])[name]
            dtype = first_value.dtype
            shape = first_value.shape[1:]
        tensor = _tensor_of(column, dtype, shape)
        if tensor is not None:
            tensors[name] = tensor
    return tensors


def _tensor_of(
    column: ColumnType, dtype: np.dtype[Any] | None, shape: Sequence[int | None] | None
) -> Tensor | None:
    """Return dtype and shape of a column as a tensor; None if it is none."""
    if plain_type(column.type) not in ("array", "npy") or dtype is None or shape is None:
        return None
    sizes = [size for size in shape if size]
    has_one_shape = len(sizes) == len(shape) and len(shape) > 1
    if dtype.kind not in _KINDS_OF_NUMBERS or not has_one_shape:
        return None
    return Tensor(dtype, tuple(sizes))


def schema_of_others(name: str, source: ColumnSource, tensors: Mapping[str, Tensor]) -> Schema:
    """Return the schema of the columns that are no tensors, as those of Parquet.

    Args:
        name: the name of the schema.
        source: the dataset.
        tensors: the columns to leave out.

    Raises:
        ConfigError: Arrow cannot hold a column.
    """
    schema = {key: column for key, column in source.schema.items() if key not in tensors}
    return parquet_schema(name, replace(source, schema=schema))

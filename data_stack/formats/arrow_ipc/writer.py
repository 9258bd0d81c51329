"""Writes columns as a file in the IPC formats of Arrow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.arrow_tables import cells_of_tensors
from data_stack.formats.parquet.row_encoder import RowEncoder
from data_stack.formats.parquet.schema import Field, Schema

#: The suffix of files in the stream format.
STREAM_SUFFIX: Final = ".arrows"

#: The kinds of dtypes of arrays that are written as lists of fixed size.
_KINDS_OF_NUMBERS: Final = "biuf"


class ArrowWriter:
    """Writes columns as a file, a record batch for each call of :meth:`write`.

    Matrices and larger arrays of one shape are nested lists of fixed size, which all readers of
    Arrow have. Other columns are as in Parquet files of data_stack, and the schema of these is in
    the metadata.

    Args:
        file: a binary file open for writing, at its start.
        name: the name of the file; ``.arrows`` are in the stream format, all others in the file
            format.
        schema: the fields of the columns, as a conversion to Parquet has them.
        encoded: the names of columns whose values are the bytes of files.
    """

    #: The fields that are lists of fixed size.
    _tensors: dict[str, Field]

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

    def __init__(self, file: Any, name: str, schema: Schema, encoded: Collection[str] = ()) -> None:
        self._tensors = {field.name: field for field in schema if _is_tensor(field)}
        others = [field for field in schema if field.name not in self._tensors]
        self._encoder = RowEncoder(Schema(schema.name, others), (), name, max_rows=1)
        columns = []
        for field in schema:
            if field.name in self._tensors:
                columns.append(pa.field(field.name, _type_of_tensor(field), nullable=False))
            else:
                columns.append(self._encoder.arrow_schema.field(field.name))
        self._arrow_schema = pa.schema(columns, self._encoder.arrow_schema.metadata)
        self._encoded = encoded
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
        for name, field in self._tensors.items():
            cells[name] = _cells_of_tensor(field, columns[name])
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


def _is_tensor(field: Field) -> bool:
    """Return whether the values of a field are arrays of numbers of one shape, not a vector."""
    is_of_numbers = isinstance(field.dtype, np.dtype) and field.dtype.kind in _KINDS_OF_NUMBERS
    if not is_of_numbers or len(field.shape) < 2 or field.nullable:
        return False
    has_one_shape = None not in field.shape and 0 not in field.shape
    is_as_numbers = field.codec.to_json().get("codec") in ("npy", "ndarray")
    return has_one_shape and is_as_numbers


def _type_of_tensor(field: Field) -> pa.DataType:
    """Return the type of nested lists of fixed size for the values of a field."""
    type_ = pa.from_numpy_dtype(field.dtype)
    for size in reversed(field.shape):
        type_ = pa.list_(type_, size)
    return type_


def _cells_of_tensor(field: Field, values: npt.NDArray[Any]) -> pa.Array:
    """Convert arrays to cells.

    Raises:
        ConfigError: an array has another dtype or shape.
    """
    try:
        stacked = np.stack(list(values)) if values.dtype == object else values
    except (TypeError, ValueError) as error:
        raise ConfigError(f"column {field.name!r}: its arrays differ in shape") from error
    if stacked.dtype != field.dtype or stacked.shape[1:] != field.shape:
        raise ConfigError(
            f"column {field.name!r}: expected {field.dtype} of shape {field.shape}, "
            f"got {stacked.dtype} of shape {stacked.shape[1:]}"
        )
    return cells_of_tensors(stacked)

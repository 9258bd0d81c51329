"""Encodes rows and columns as cells of the schema."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.formats.parquet.codecs import CellError, ScalarCodec
from data_stack.formats.parquet.codecs.exact_cells import cast_exactly
from data_stack.formats.parquet.files import NULL_PARTITION
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.util.suggestions import did_you_mean
from data_stack.values.stacked_values import as_array

#: Rows become a batch at this number of rows or bytes; columns are encoded this number of rows at a time.
MAX_ROWS: Final = 4096
_MAX_BYTES: Final = 8 << 20

CellBatch = tuple[pa.RecordBatch, "list[str] | None"]
"""Cells of rows, and the folder of each row; None without partitions."""


class Cells:
    """Encodes rows, and holds single rows until they are a batch.

    Args:
        schema: of the rows.
        partition_by: the columns that become folders, ``day=2024-01-01/vehicle=7`` as Hive names them.
        name: of the dataset, for messages.
        most_rows: maximum number of waiting rows.

    Attributes:
        n_rows: number of waiting rows.

    Raises:
        ConfigError: a column of ``partition_by`` is not in the schema or cannot name folders, or no column is left for the files.
    """

    def __init__(
        self, schema: Schema, partition_by: Sequence[str], name: str, most_rows: int
    ) -> None:
        self._schema, self._name = schema, name
        self._partitions = _partition_fields(schema, partition_by)
        self._most_rows = min(MAX_ROWS, most_rows)
        self._in_files = [field for field in schema if field not in self._partitions]
        types = [
            pa.field(field.name, field.arrow_type(), field.nullable) for field in self._in_files
        ]
        self.arrow_schema = pa.schema(types, metadata=schema.metadata())
        self._waiting: list[CellBatch] = []
        self._n_bytes = self.n_rows = 0

    def append(self, row: Mapping[str, Any], number: int) -> bool:
        """Encode a row; return whether enough rows are waiting.

        Args:
            row: values by name; nullable ones may be left out.
            number: position of the row in the dataset.

        Raises:
            ConfigError: a value does not fit its field, or a field is missing or unknown. The row was not added.
        """
        self._check_names(list(row), f"row {number} of {self._name!r}")
        cells = self.encode(
            {name: [plain_value(value)] for name, value in row.items()}, 0, 1, number
        )
        self._waiting.append(cells)
        self._n_bytes += cells[0].nbytes
        self.n_rows += 1
        return self.n_rows >= self._most_rows or self._n_bytes >= _MAX_BYTES

    def take(self) -> CellBatch:
        """Remove and return all waiting rows."""
        batches, folders = zip(*self._waiting, strict=True)
        self._waiting, self._n_bytes, self.n_rows = [], 0, 0
        (batch,) = pa.Table.from_batches(batches, self.arrow_schema).combine_chunks().to_batches()
        return batch, [folder for each in folders for folder in each] if self._partitions else None

    def check_columns(
        self, columns: Mapping[str, Any], encoded: Collection[str]
    ) -> tuple[int, dict[str, Any]]:
        """The number of rows, and the columns as arrays and lists; ``encoded`` are the names of columns with encoded cells.

        Raises:
            ConfigError: a column is missing, unknown, or of another length.
        """
        self._check_names(list(columns), f"the columns for {self._name!r}")
        arrays, lengths = {}, {}
        for name in columns:
            arrays[name] = values = (
                columns[name] if name in encoded else column_values(columns[name])
            )
            if (
                isinstance(values, (str, bytes))
                or not hasattr(values, "__len__")
                or getattr(values, "ndim", 1) == 0
            ):
                raise ConfigError(
                    f"field {name!r} of {self._name!r} needs an array or a list, got {values!r:.80}"
                )
            lengths[name] = len(values)
        if len(set(lengths.values())) > 1:
            raise ConfigError(
                f"the columns for {self._name!r} differ in length: {lengths}. Nothing was appended"
            )
        return max(lengths.values(), default=0), arrays

    def encode(
        self,
        columns: Mapping[str, Any],
        start: int,
        stop: int,
        number: int,
        encoded: Collection[str] = (),
    ) -> CellBatch:
        """Encode some rows of columns.

        Args:
            columns: arrays and lists as :meth:`check_columns` returns them.
            start: the first row.
            stop: the end of the rows.
            number: position of the row ``start`` in the dataset.
            encoded: names of columns that hold encoded cells.

        Raises:
            ConfigError: a value does not fit its field.
        """

        def encode(field: Field, make: Any) -> Any:
            values = (
                columns[field.name][start:stop]
                if field.name in columns
                else [None] * (stop - start)
            )
            try:
                return make(field, values, field.name in encoded)
            except (MissingDependencyError, MemoryError):
                raise
            except Exception as error:  # codecs of plugins raise anything
                row = f", row {number + error.row}," if isinstance(error, CellError) else ""
                where = f"field {field.name!r}{row} of {self._name!r}"
                raise ConfigError(
                    f"{where}: {error!s:.400}. {number} rows were appended"
                ) from error

        arrays = [encode(field, _encode_column) for field in self._in_files]
        folders = [encode(field, _encode_folders) for field in self._partitions]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)
        return batch, list(map("/".join, zip(*folders, strict=True))) if folders else None

    def _check_names(self, given: Collection[Any], what: str) -> None:
        unknown = [name for name in given if name not in self._schema]
        missing = [
            field.name for field in self._schema if field.name not in given and not field.nullable
        ]
        if unknown:
            names, near = (
                ", ".join(map(repr, unknown)),
                did_you_mean(unknown[0], self._schema.fields),
            )
            raise ConfigError(
                f"unknown field {names} in {what}{near}; the schema has: {', '.join(sorted(self._schema.fields))}"
            )
        if missing:
            raise ConfigError(
                f"{what} lacks {', '.join(map(repr, missing))}, which must not be null"
            )


def _encode_column(field: Field, values: Any, is_encoded: bool) -> pa.Array:
    if isinstance(values, np.ndarray):
        values = values.copy()  # its owner may change it
    type_ = field.arrow_type()
    if not is_encoded:
        return field.cells.encode_column(field, values).cast(type_)
    cells = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    cells = cells if isinstance(cells, pa.Array) else pa.array(cells, type_)
    if cells.null_count and not field.nullable:
        raise ValueError("a cell is null, but the field is not nullable")
    return cast_exactly(cells, type_)


def plain_value(value: Any) -> Any:
    """Tensors and images as arrays, arrays without dimensions as scalars; other values unchanged."""
    if isinstance(value, np.generic) or not (
        hasattr(value, "__array__") or hasattr(value, "__array_interface__")
    ):
        return value
    try:
        array = value if isinstance(value, np.ndarray) else as_array(value)
    except (
        TypeError,
        RuntimeError,
    ):  # a tensor without a numpy dtype; refused where its field is known
        return value
    return array[()] if array.ndim == 0 else array


def column_values(values: Any) -> Any:
    """A column as an array, or a list of plain values."""
    if hasattr(values, "isna") and hasattr(values, "to_numpy"):  # a Series of pandas
        is_plain = isinstance(values.dtype, np.dtype) and values.dtype != object
        if (
            not is_plain and values.isna().any()
        ):  # pandas has several kinds of nulls, and floats instead of some of them
            values = values.astype(object).where(values.notna(), None)
        values = values.to_numpy()
    elif hasattr(values, "to_pylist"):  # an array of pyarrow
        return values.to_pylist()
    values = plain_value(values)
    is_list = hasattr(values, "__len__") and not isinstance(values, (str, bytes, Mapping))
    if not is_list or (isinstance(values, np.ndarray) and values.dtype != object):
        return values
    return [plain_value(value) for value in values]


# ---------------------------------------------------------------------- partitions

#: Other ASCII characters are written as %XX, which Hive, Spark and pyarrow read. Spark reads letters of other scripts only
#: unchanged, pyarrow both ways.
_QUOTED: Final = re.compile(r"[\0-\x9f]+")
_MAX_SEGMENT_BYTES: Final = 200


def _partition_fields(schema: Schema, names: Sequence[str]) -> list[Field]:
    fields = [schema[name] for name in names]
    if len(set(names)) != len(names):
        raise ConfigError(f"partition_by names a column twice: {', '.join(map(repr, names))}")
    if fields and len(fields) == len(schema):
        raise ConfigError(
            "a dataset cannot be partitioned by all of its columns: the files would have no columns"
        )
    for field in fields:
        dtype = field.dtype
        is_named = dtype is Decimal or (
            isinstance(dtype, np.dtype) and (dtype.kind in "biuU" or dtype == np.dtype("M8[D]"))
        )
        if field.shape or not isinstance(field.codec, ScalarCodec) or not is_named:
            raise ConfigError(
                f"cannot partition by {field.name!r}, only by text, integers, booleans, dates and Decimals"
            )
    return fields


def _encode_folders(field: Field, values: Any, is_encoded: bool) -> list[str]:
    """The names of the folders of a partition's values."""
    names = []
    for row, value in enumerate(_encode_column(field, values, is_encoded).to_pylist()):
        try:
            names.append(_folder(field.name, value))
        except ValueError as error:
            raise CellError(row, str(error)) from error
    return names


@functools.lru_cache(maxsize=1024, typed=True)
def _folder(name: str, value: Any) -> str:
    text = f"{value.normalize():f}" if isinstance(value, Decimal) else str(value)
    text = text.lower() if isinstance(value, bool) else text
    if value is not None and text in ("", NULL_PARTITION):
        raise ValueError(f"{text!r} cannot name a partition's folder: it would mean null")
    folder = f"{_quote(name)}={NULL_PARTITION if value is None else _quote(text)}"
    if len(folder.encode()) > _MAX_SEGMENT_BYTES:
        raise ValueError(f"{folder[:60]!r}… is too long to name a partition's folder")
    return folder


def _quote(text: str) -> str:
    return _QUOTED.sub(lambda match: quote(match[0], safe="~+,@"), text)

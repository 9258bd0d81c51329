"""Encodes rows and columns as cells of a schema."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.formats.parquet.codecs import CellError
from data_stack.formats.parquet.codecs.exact_cells import cast_exactly
from data_stack.formats.parquet.column_values import column_values, plain_value
from data_stack.formats.parquet.partition_folders import folder_of_value, partition_fields
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.util.suggestions import did_you_mean

_Encoded = TypeVar("_Encoded")

#: Single rows become a batch at this number of rows or bytes; columns are encoded this number of
#: rows at a time.
MAX_ROWS: Final = 4096
_MAX_BYTES: Final = 8 << 20


class CellBatch(NamedTuple):
    """Cells of rows.

    Attributes:
        batch: the cells that files hold.
        folders: the folder of each row; None without partitions.
    """

    batch: pa.RecordBatch
    folders: list[str] | None


class RowEncoder:
    """Encodes rows, and holds single rows until they are a batch.

    Args:
        schema: of the rows.
        partition_by: the columns that become folders, ``day=2024-01-01/vehicle=7`` as Hive names
            them.
        name: of the dataset, for messages.
        max_rows: maximum number of waiting rows.

    Attributes:
        arrow_schema: of the files, without partition columns.
        n_rows: number of waiting rows.

    Raises:
        ConfigError: a column of ``partition_by`` is not in the schema or cannot name folders, or no
            column is left for the files.
    """

    #: The fields that files hold.
    _fields_in_files: list[Field]
    #: The fields that become folders, outermost first.
    _partition_fields: list[Field]
    #: Single rows, each encoded, that wait to be a batch.
    _waiting: list[CellBatch]
    #: Bytes of the waiting rows.
    _waiting_bytes: int

    def __init__(
        self, schema: Schema, partition_by: Sequence[str], name: str, max_rows: int
    ) -> None:
        self._schema = schema
        self._name = name
        self._max_rows = min(MAX_ROWS, max_rows)
        self._partition_fields = partition_fields(schema, partition_by)
        self._fields_in_files = [field for field in schema if field not in self._partition_fields]
        columns = []
        for field in self._fields_in_files:
            columns.append(pa.field(field.name, field.arrow_type(), field.nullable))
        self.arrow_schema = pa.schema(columns, metadata=schema.metadata())
        self._waiting = []
        self._waiting_bytes = 0
        self.n_rows = 0

    def append(self, row: Mapping[str, Any], position: int) -> bool:
        """Encode a row, which waits until :meth:`take`.

        Args:
            row: values by name; nullable ones may be left out.
            position: of the row in the dataset.

        Returns:
            Whether the waiting rows are a batch.

        Raises:
            ConfigError: a value does not fit its field, or a field is missing or unknown. The row
                was not added.
        """
        self._check_names(list(row), f"row {position} of {self._name!r}")
        columns = {name: [plain_value(value)] for name, value in row.items()}
        cells = self.encode(columns, 0, 1, position)
        self._waiting.append(cells)
        self._waiting_bytes += cells.batch.nbytes
        self.n_rows += 1
        return self.n_rows >= self._max_rows or self._waiting_bytes >= _MAX_BYTES

    def take(self) -> CellBatch:
        """Remove all waiting rows, at least one, and return them."""
        batches = [cells.batch for cells in self._waiting]
        folders: list[str] = []
        for cells in self._waiting:
            folders.extend(cells.folders or ())
        self._waiting = []
        self._waiting_bytes = 0
        self.n_rows = 0
        (batch,) = pa.Table.from_batches(batches, self.arrow_schema).combine_chunks().to_batches()
        if not self._partition_fields:
            return CellBatch(batch, None)
        return CellBatch(batch, folders)

    def check_columns(
        self, columns: Mapping[str, Any], encoded: Collection[str]
    ) -> tuple[int, dict[str, Any]]:
        """Check the names and lengths of columns.

        Args:
            columns: values by name.
            encoded: names of columns with encoded cells.

        Returns:
            The number of rows, and the columns as arrays and lists.

        Raises:
            ConfigError: a column is missing, unknown, or of another length.
        """
        self._check_names(list(columns), f"the columns for {self._name!r}")
        arrays = {}
        lengths = {}
        for name in columns:
            values = columns[name]
            if name not in encoded:
                values = column_values(values)
            if not _has_rows(values):
                raise ConfigError(
                    f"field {name!r} of {self._name!r} needs an array or a list, got {values!r:.80}"
                )
            arrays[name] = values
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
        position: int,
        encoded: Collection[str] = (),
    ) -> CellBatch:
        """Encode some rows of columns.

        Args:
            columns: arrays and lists as :meth:`check_columns` returns them.
            start: the first row.
            stop: the end of the rows.
            position: of the row ``start`` in the dataset.
            encoded: names of columns that hold encoded cells.

        Raises:
            ConfigError: a value does not fit its field.
        """

        def encode_field(encode: Callable[[Field, Any, bool], _Encoded], field: Field) -> _Encoded:
            if field.name in columns:
                values = columns[field.name][start:stop]
            else:
                values = [None] * (stop - start)
            try:
                return encode(field, values, field.name in encoded)
            except (MissingDependencyError, MemoryError):
                raise
            except Exception as error:  # codecs of plugins raise anything
                raise self._error_of_field(field, position, error) from error

        arrays = [encode_field(_encode_column, field) for field in self._fields_in_files]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)
        if not self._partition_fields:
            return CellBatch(batch, None)
        folders = [encode_field(_encode_folders, field) for field in self._partition_fields]
        return CellBatch(batch, list(map("/".join, zip(*folders, strict=True))))

    def _error_of_field(self, field: Field, position: int, error: Exception) -> ConfigError:
        """Say which value of a field cannot be encoded. ``position`` is that of the first row."""
        row = ""
        if isinstance(error, CellError):
            row = f", row {position + error.row},"
        return ConfigError(
            f"field {field.name!r}{row} of {self._name!r}: {error!s:.400}. "
            f"{position} rows were appended"
        )

    def _check_names(self, names: Collection[Any], what: str) -> None:
        """Check the names of the fields of a row or of columns; ``what`` names these.

        Raises:
            ConfigError: a field is unknown, or missing and not nullable.
        """
        unknown = [name for name in names if name not in self._schema]
        if unknown:
            suggestion = did_you_mean(unknown[0], self._schema.fields)
            known = ", ".join(sorted(self._schema.fields))
            raise ConfigError(
                f"unknown field {', '.join(map(repr, unknown))} in {what}{suggestion}; "
                f"the schema has: {known}"
            )
        missing = []
        for field in self._schema:
            if field.name not in names and not field.nullable:
                missing.append(field.name)
        if missing:
            raise ConfigError(
                f"{what} lacks {', '.join(map(repr, missing))}, which must not be null"
            )


def _has_rows(values: Any) -> bool:
    """Whether values are a column: an array of at least one dimension, or a sequence."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        return False
    return getattr(values, "ndim", 1) > 0


def _encode_column(field: Field, values: Any, is_encoded: bool) -> pa.Array:
    """Encode values of a field; encoded cells are only checked.

    Raises:
        Exception: a value does not fit the field; codecs of plugins raise anything.
    """
    if isinstance(values, np.ndarray):
        values = values.copy()  # its owner may change it
    type_ = field.arrow_type()
    if not is_encoded:
        return field.cells.encode_column(field, values).cast(type_)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    cells = values if isinstance(values, pa.Array) else pa.array(values, type_)
    if cells.null_count and not field.nullable:
        raise ValueError("a cell is null, but the field is not nullable")
    return cast_exactly(cells, type_)


def _encode_folders(field: Field, values: Any, is_encoded: bool) -> list[str]:
    """Name the folders of the values of a partition column; raises as :func:`_encode_column`."""
    folders = []
    for row, value in enumerate(_encode_column(field, values, is_encoded).to_pylist()):
        try:
            folders.append(folder_of_value(field.name, value))
        except ValueError as error:
            raise CellError(row, str(error)) from error
    return folders

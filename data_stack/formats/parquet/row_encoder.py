"""Encodes the rows of a Parquet writer as batches of Arrow's cells."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.formats.parquet.codecs import CellError
from data_stack.formats.parquet.codecs.cells import python_scalars
from data_stack.formats.parquet.codecs.exact_cells import cast_exactly
from data_stack.formats.parquet.column_values import column_values, plain_value
from data_stack.formats.parquet.partition_folders import folder_of_value, partition_fields
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.util.suggestions import did_you_mean

#: The maximum number of rows in a batch.
MAX_ROWS: Final = 4096
#: Single rows become a batch when their cells have this many bytes.
_MAX_BYTES: Final = 8 << 20


class CellBatch(NamedTuple):
    """The cells of some rows, and where the rows belong.

    Attributes:
        batch: the cells of the columns that files hold.
        folders: the folder of each row, such as ``"day=2024-01-01/vehicle=7"``; None without
            partitions.
    """

    batch: pa.RecordBatch
    folders: list[str] | None


class RowEncoder:
    """Encodes rows.

    Columns are encoded as a batch at once. Single rows wait in the encoder, encoded, until they are
    enough for a batch.

    Args:
        schema: schema of the rows.
        partition_by: the columns that become folders, outermost first. Hive names the folders
            ``day=2024-01-01/vehicle=7``.
        name: name of the dataset, for messages.
        max_rows: maximum number of waiting rows.

    Attributes:
        arrow_schema: Arrow's schema of the files, without partition columns.
        n_rows: number of waiting rows.

    Raises:
        ConfigError: a column of ``partition_by`` is not in the schema or cannot name folders, or no
            column is left for the files.
    """

    #: The fields that files hold.
    _fields_in_files: list[Field]
    #: The fields that become folders, outermost first.
    _partition_fields: list[Field]
    #: The waiting rows: each is a batch of one row.
    _waiting: list[CellBatch]
    #: Bytes of the cells of the waiting rows.
    _waiting_bytes: int

    def __init__(
        self, schema: Schema, partition_by: Sequence[str], name: str, max_rows: int
    ) -> None:
        self._schema = schema
        self._name = name
        self._max_rows = min(MAX_ROWS, max_rows)
        self._partition_fields = partition_fields(schema, partition_by)
        self._fields_in_files = [field for field in schema if field.name not in partition_by]
        columns = []
        for field in self._fields_in_files:
            columns.append(pa.field(field.name, field.arrow_type(), field.nullable))
        self.arrow_schema = pa.schema(columns, metadata=schema.metadata())
        self._waiting = []
        self._waiting_bytes = 0
        self.n_rows = 0

    def append(self, row: Mapping[str, Any], position: int) -> bool:
        """Encode a row and let it wait until :meth:`take` is called.

        Args:
            row: values by name; values of nullable fields may be left out.
            position: position of the row in the dataset.

        Returns:
            Whether the waiting rows are enough for a batch.

        Raises:
            ConfigError: a value does not fit its field, or a field is missing or unknown. The row
                was not added.
        """
        self._check_names(list(row), f"row {position} of {self._name!r}")
        columns_of_one_row = {name: [plain_value(value)] for name, value in row.items()}
        cells = self.encode(columns_of_one_row, 0, 1, position)
        self._waiting.append(cells)
        self._waiting_bytes += cells.batch.nbytes
        self.n_rows += 1
        return self.n_rows >= self._max_rows or self._waiting_bytes >= _MAX_BYTES

    def take(self) -> CellBatch:
        """Remove all waiting rows, and return them as one batch. There must be at least one."""
        batches = []
        folders: list[str] = []
        for cells in self._waiting:
            batches.append(cells.batch)
            if cells.folders is not None:
                folders.extend(cells.folders)
        self._waiting = []
        self._waiting_bytes = 0
        self.n_rows = 0
        table = pa.Table.from_batches(batches, self.arrow_schema)
        # The chunks of the rows are combined to one chunk, so that the table is one batch.
        (batch,) = table.combine_chunks().to_batches()
        if not self._partition_fields:
            return CellBatch(batch, None)
        return CellBatch(batch, folders)

    def check_columns(
        self, columns: Mapping[str, Any], encoded: Collection[str]
    ) -> tuple[int, dict[str, Any]]:
        """Check the names and lengths of columns, and convert them for :meth:`encode`.

        Args:
            columns: values by name; a dict, or a DataFrame of pandas.
            encoded: the names of columns that hold encoded cells instead of values.

        Returns:
            The number of rows, and the columns by name as arrays and lists.

        Raises:
            ConfigError: a column is missing, unknown, or of another length.
        """
        self._check_names(list(columns), f"the columns for {self._name!r}")
        arrays = {}
        lengths = {}
        for name in columns:  # a DataFrame has no items() of arrays
            values = columns[name]
            is_unordered = isinstance(values, (set, frozenset))
            if name not in encoded:
                values = column_values(values)
            if is_unordered or not _has_rows(values):
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
        """Encode the rows from ``start`` to before ``stop`` of columns.

        Args:
            columns: arrays and lists as :meth:`check_columns` returns them.
            start: the first row of the batch.
            stop: the row after the last one of the batch.
            position: position of the row ``start`` in the dataset.
            encoded: the names of columns that hold encoded cells.

        Raises:
            ConfigError: a value does not fit its field.
        """

        def encode_field(field: Field, encode: Callable[[Field, Any, bool], Any]) -> Any:
            values = _values_of(field, columns, start, stop)
            try:
                return encode(field, values, field.name in encoded)
            except (MissingDependencyError, MemoryError):
                raise
            except Exception as error:  # codecs of plugins raise anything
                raise self._error_of_field(field, position, error) from error

        arrays = [encode_field(field, _encode_column) for field in self._fields_in_files]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)
        if not self._partition_fields:
            return CellBatch(batch, None)

        folders_of_fields = []
        for field in self._partition_fields:
            folders_of_fields.append(encode_field(field, _encode_folders))
        folders = ["/".join(names) for names in zip(*folders_of_fields, strict=True)]
        return CellBatch(batch, folders)

    def _error_of_field(self, field: Field, position: int, error: Exception) -> ConfigError:
        """Return the error for a field whose values cannot be encoded.

        Args:
            field: the field.
            position: position of the first of its rows in the dataset. The rows before it were
                appended, none of the others.
            error: the error of the codec.
        """
        row = ""
        if isinstance(error, CellError):
            row = f", row {position + error.row},"
        return ConfigError(
            f"field {field.name!r}{row} of {self._name!r}: {error!s:.400}. "
            f"{position} rows were appended"
        )

    def _check_names(self, names: Collection[Any], what: str) -> None:
        """Check the names of the fields of a row or of columns.

        Args:
            names: the names.
            what: what has these names, for messages.

        Raises:
            ConfigError: a field is unknown, or missing and not nullable.
        """
        unknown = [name for name in names if name not in self._schema]
        if unknown:
            listed = ", ".join(map(repr, unknown))
            suggestion = did_you_mean(unknown[0], self._schema.fields)
            known = ", ".join(sorted(self._schema.fields))
            raise ConfigError(
                f"unknown field {listed} in {what}{suggestion}; the schema has: {known}"
            )
        missing = []
        for field in self._schema:
            if field.name not in names and not field.nullable:
                missing.append(field.name)
        if missing:
            listed = ", ".join(map(repr, missing))
            raise ConfigError(f"{what} lacks {listed}, which must not be null")


def _values_of(field: Field, columns: Mapping[str, Any], start: int, stop: int) -> Any:
    """Return some rows of the column of a field: None for each row if the column was left out."""
    if field.name in columns:
        return columns[field.name][start:stop]
    return [None] * (stop - start)


def _has_rows(values: Any) -> bool:
    """Return whether values are a column: an array of at least one dimension, or a sequence."""
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__len__"):
        return False
    n_dimensions = getattr(values, "ndim", 1)
    return bool(n_dimensions > 0)


def _encode_column(field: Field, values: Any, is_encoded: bool) -> pa.Array:
    """Encode the values of a field. Encoded cells are checked, and cast without loss.

    Raises:
        Exception: a value does not fit the field; codecs of plugins raise anything.
    """
    if isinstance(values, np.ndarray):
        # The cells could share its memory, and its owner may change it before they are written.
        values = values.copy()
    type_ = field.arrow_type()
    if not is_encoded:
        return field.cells.encode_column(field, values).cast(type_)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        values = pa.array(values, type_)
    if values.null_count and not field.nullable:
        raise ValueError("a cell is null, but the field is not nullable")
    return cast_exactly(values, type_)


def _encode_folders(field: Field, values: Any, is_encoded: bool) -> list[str]:
    """Return the name of the folder for each value of a partition column.

    Raises:
        Exception: as :func:`_encode_column`.
    """
    folders = []
    cells = _encode_column(field, values, is_encoded)
    for row, value in enumerate(python_scalars(cells)):
        try:
            folders.append(folder_of_value(field.name, value))
        except ValueError as error:
            raise CellError(row, str(error)) from error
    return folders

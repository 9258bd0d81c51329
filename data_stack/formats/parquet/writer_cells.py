"""Turns rows and columns of values into batches of cells, and refuses what is none of the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from data_stack.dataset.iterator.stacking import as_array
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.formats.parquet.codecs import CellValueError
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.parquet.writer_partitions import Partitions
from data_stack.util.suggestions import did_you_mean

__all__ = ["CellBatch", "Cells", "column_values", "plain_value"]

#: Rows are turned into a batch when so many of them, or so many bytes, have come.
_MOST_ROWS: Final = 4096
_MOST_BYTES: Final = 8 << 20
#: Columns are encoded in steps of about so many bytes.
_STEP_BYTES: Final = 32 << 20

CellBatch = tuple[pa.RecordBatch, "list[str] | None"]
"""Cells of rows, and the folder of each row; None where all lie in one without partitions."""


class Cells:
    """Rows that are encoded and wait to be written.

    Args:
        schema: of the rows.
        partitions: which of its columns are folders.
        name: of the dataset, for messages.
        most_rows: that wait at most; None: as many as suit.

    Attributes:
        n_rows: that wait.
    """

    def __init__(self, schema: Schema, partitions: Partitions, name: str, most_rows: int | None = None) -> None:
        self._schema, self._partitions, self._name = schema, partitions, name
        self._most_rows = min(_MOST_ROWS, most_rows or _MOST_ROWS)
        in_files = [field for field in schema if field not in partitions.fields]
        self.arrow_schema = pa.schema(
            [pa.field(field.name, field.arrow_type(), field.nullable) for field in in_files], metadata=schema.metadata()
        )
        self._in_files = [(field, self.arrow_schema.field(field.name).type) for field in in_files]
        self._names = frozenset(field.name for field in schema)
        self._waiting: list[pa.RecordBatch] = []
        self._folders: list[str] = []
        self._n_bytes = self.n_rows = 0

    @property
    def is_full(self) -> bool:
        """Whether enough rows wait to be taken."""
        return self.n_rows >= self._most_rows or self._n_bytes >= _MOST_BYTES

    def append(self, row: Mapping[str, Any], number: int) -> None:
        """Encode a row.

        Args:
            row: values by name; nullable ones may be left out.
            number: of the row in the dataset.

        Raises:
            ConfigError: a value is none of its field, or a field is missing or unknown. Nothing of the row was taken.
        """
        what = f"row {number} of {self._name!r}"
        if not isinstance(row, Mapping):
            raise ConfigError(f"{what} is a {type(row).__name__}, not a dict of its fields. {number} rows are appended")
        self._check_names(list(row), what)
        batch, folders = self.encode_columns({name: [plain_value(value)] for name, value in row.items()}, 0, 1, number)
        self._waiting.append(batch)
        self._folders += folders or []
        self._n_bytes += batch.nbytes
        self.n_rows += 1

    def take(self) -> CellBatch:
        """All rows that wait; none wait afterwards."""
        (batch,) = pa.Table.from_batches(self._waiting, self.arrow_schema).combine_chunks().to_batches()
        folders = self._folders if self._partitions else None
        self._waiting, self._folders, self._n_bytes, self.n_rows = [], [], 0, 0
        return batch, folders

    # ------------------------------------------------------------------ columns

    def steps(self, columns: Mapping[str, Any]) -> tuple[int, int, dict[str, Any]]:
        """How many rows columns have, how many of them to encode at a time, and the columns as arrays and lists.

        Raises:
            ConfigError: a column is missing, unknown, or of another length.
        """
        if not hasattr(columns, "keys"):
            raise ConfigError(f"columns are given as a dict, or a DataFrame, not as {type(columns).__name__}")
        given = list(columns.keys())
        self._check_names(given, f"what is given to {self._name!r}")
        arrays, lengths = {}, {}
        for name in given:
            arrays[name] = values = column_values(columns[name])
            if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0:
                raise ConfigError(
                    f"field {name!r} of {self._name!r} takes an array of shape (n, ...) or a list of n values, not {values!r:.80}"
                )
            lengths[name] = len(values)
        if len(set(lengths.values())) > 1:
            raise ConfigError(f"the columns for {self._name!r} differ in their length: {lengths}. Nothing was appended")
        n_rows = next(iter(lengths.values()), 0)
        row_bytes = sum(values.nbytes if isinstance(values, np.ndarray) else 64 * n_rows for values in arrays.values()) / (
            n_rows or 1
        )
        return n_rows, max(1, min(1 << 17, int(_STEP_BYTES / max(row_bytes, 1)))), arrays

    def encode_columns(
        self, columns: Mapping[str, Any], start: int, stop: int, number: int, encoded: frozenset[str] = frozenset()
    ) -> CellBatch:
        """The cells of some rows of columns.

        Args:
            columns: arrays and lists as :meth:`steps` gives them.
            start: the first row of them.
            stop: behind the last one.
            number: in the dataset, of the row at ``start``.
            encoded: fields of which there are cells instead of values.

        Raises:
            ConfigError: a value is none of its field.
        """
        arrays = []
        for field, type_ in self._in_files:
            values = columns[field.name][start:stop] if field.name in columns else [None] * (stop - start)
            try:
                arrays.append(_encode_column(field, type_, values, field.name in encoded))
            except CellValueError as error:
                self._refuse(field.name, number + error.row, error, number)
            except (MissingDependencyError, MemoryError):
                raise
            except Exception as error:  # noqa: BLE001  # codecs of others raise whatever they like
                self._refuse(field.name, None, error, number)
        parts = [
            columns[field.name][start:stop] if field.name in columns else [None] * (stop - start)
            for field in self._partitions.fields
        ]
        lists = [part.tolist() if isinstance(part, np.ndarray) and part.dtype.kind != "M" else part for part in parts]
        folders = self._folders_of([[plain_value(value) for value in each] for each in lists], number)
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema), folders

    def adopt(self, table: pa.Table, number: int) -> list[CellBatch]:
        """Rows whose cells are encoded already.

        Args:
            table: all columns by name, in any order.
            number: of the first row in the dataset.

        Raises:
            ConfigError: a column is missing, unknown, of another type, or has nulls that it may not have.
        """
        self._check_names(table.column_names, f"the table that is given to {self._name!r}")
        columns = []
        for field in self.arrow_schema:
            column = table.column(field.name) if field.name in table.column_names else pa.nulls(len(table), field.type)
            try:
                column = column if column.type == field.type else column.cast(field.type)
            except pa.ArrowException as error:
                self._refuse(field.name, None, error, number)
            if column.null_count and not field.nullable:
                row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
                self._refuse(field.name, number + row, ValueError("the cell is null, and the field is not nullable"), number)
            columns.append(column)
        absent = [None] * len(table)
        folders = self._folders_of(
            [
                table.column(field.name).to_pylist() if field.name in table.column_names else absent
                for field in self._partitions.fields
            ],
            number,
        )
        batches, start = [], 0
        for batch in pa.Table.from_arrays(columns, schema=self.arrow_schema).to_batches():
            batches.append((batch, None if folders is None else folders[start : start + batch.num_rows]))
            start += batch.num_rows
        return batches

    def _folders_of(self, columns: Sequence[Sequence[Any]], number: int) -> list[str] | None:
        """The folder of each row, by the values of the columns that are folders; None without such."""
        if not self._partitions:
            return None
        folders = []
        for row, values in enumerate(zip(*columns, strict=True)):
            try:
                folders.append(self._partitions.folder(values))
            except CellValueError as error:
                self._refuse(self._partitions.fields[error.row].name, number + row, error, number)
        return folders

    # ------------------------------------------------------------------ refusals

    def _refuse(self, name: str, row: int | None, error: Exception, n_rows: int) -> NoReturn:
        where = f"field {name!r}" + ("" if row is None else f", row {row},")
        raise ConfigError(
            f"{where} of {self._name!r} does not hold that value: {error!s:.400}. {n_rows} rows are appended"
        ) from error

    def _check_names(self, given: Sequence[Any], what: str) -> None:
        unknown = [name for name in given if name not in self._names]
        missing = [field.name for field in self._schema if field.name not in given and not field.nullable]
        if unknown:
            raise ConfigError(
                f"{what} has {', '.join(map(repr, unknown))}, which is no field"
                f"{did_you_mean(str(unknown[0])[:60], list(self._names))}; the schema has: {', '.join(sorted(self._names))}"
            )
        if missing:
            raise ConfigError(
                f"{what} lacks {', '.join(map(repr, missing))}, which {'is' if len(missing) == 1 else 'are'} not nullable"
            )


def _encode_column(field: Field, type_: pa.DataType, values: Any, are_cells: bool) -> pa.Array:
    if isinstance(values, np.ndarray):
        values = values.copy()  # its owner may change it
    cells = pa.array(values, type_) if are_cells else field.cells.encode_column(field, values)
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    if cells.type != type_:
        cells = cells.cast(type_)
    if are_cells and cells.null_count and not field.nullable:
        raise ValueError("a cell is null, and the field is not nullable")
    return cells


def plain_value(value: Any) -> Any:
    """Tensors, images and arrays of no dimension as the array, number or text that they are."""
    if isinstance(value, np.ndarray):
        return value[()] if value.ndim == 0 else value
    if isinstance(value, np.generic) or not (hasattr(value, "__array__") or hasattr(value, "__array_interface__")):
        return value
    try:
        array = as_array(value)
    except (TypeError, RuntimeError):  # a tensor that numpy lacks, which is refused where its field is known
        return value
    return array[()] if array.ndim == 0 else array


def column_values(values: Any) -> Any:
    """A column as an array, or a list of plain values."""
    if hasattr(values, "isna") and hasattr(values, "to_numpy"):  # a Series of pandas
        is_plain = isinstance(values.dtype, np.dtype) and values.dtype != object
        if not is_plain and values.isna().any():  # pandas has several kinds of nulls, and floats instead of some of them
            values = values.astype(object).where(values.notna(), None)
        values = values.to_numpy()
    elif hasattr(values, "to_pylist"):  # an array of pyarrow
        return values.to_pylist()
    elif not isinstance(values, np.ndarray) and hasattr(values, "__array__") and plain_value(values) is not values:
        return plain_value(values)
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or isinstance(values, Mapping):
        return values
    return [plain_value(value) for value in values]

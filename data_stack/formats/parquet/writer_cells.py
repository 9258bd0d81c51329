"""Encodes rows and columns as cells of the schema."""

from __future__ import annotations

import functools
import string
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.formats.parquet.codecs import CellValueError, ScalarCodec
from data_stack.formats.parquet.files import NULL_PARTITION
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.util.suggestions import did_you_mean
from data_stack.values.stacking import as_array

#: Rows become a batch at this number of rows or bytes.
_MAX_ROWS: Final = 4096
_MAX_BYTES: Final = 8 << 20
#: Approximate bytes per step when columns are encoded.
_STEP_BYTES: Final = 32 << 20

CellBatch = tuple[pa.RecordBatch, "list[str] | None"]
"""Cells of rows, and the folder of each row; None without partitions."""


class Cells:
    """Encoded rows that wait to be written.

    Args:
        schema: of the rows.
        partitions: the columns that become folders.
        name: of the dataset, for messages.
        most_rows: maximum number of waiting rows; None for a default.

    Attributes:
        n_rows: number of waiting rows.
    """

    def __init__(self, schema: Schema, partitions: Partitions, name: str, most_rows: int | None = None) -> None:
        self._schema, self._partitions, self._name = schema, partitions, name
        self._most_rows = min(_MAX_ROWS, most_rows or _MAX_ROWS)
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
        """Whether enough rows are waiting."""
        return self.n_rows >= self._most_rows or self._n_bytes >= _MAX_BYTES

    def append(self, row: Mapping[str, Any], number: int) -> None:
        """Encode a row.

        Args:
            row: values by name; nullable ones may be left out.
            number: position of the row in the dataset.

        Raises:
            ConfigError: a value does not fit its field, or a field is missing or unknown. The row was not added.
        """
        what = f"row {number} of {self._name!r}"
        if not isinstance(row, Mapping):
            raise ConfigError(f"{what} is a {type(row).__name__}, not a dict of its fields. {number} rows were appended")
        self._check_names(list(row), what)
        batch, folders = self.encode_columns({name: [plain_value(value)] for name, value in row.items()}, 0, 1, number)
        self._waiting.append(batch)
        self._folders += folders or []
        self._n_bytes += batch.nbytes
        self.n_rows += 1

    def take(self) -> CellBatch:
        """Remove and return all waiting rows."""
        (batch,) = pa.Table.from_batches(self._waiting, self.arrow_schema).combine_chunks().to_batches()
        folders = self._folders if self._partitions else None
        self._waiting, self._folders, self._n_bytes, self.n_rows = [], [], 0, 0
        return batch, folders

    # ------------------------------------------------------------------ columns

    def steps(self, columns: Mapping[str, Any], encoded: Collection[str]) -> tuple[int, int, dict[str, Any]]:
        """The number of rows, how many to encode at a time, and the columns as arrays and lists.

        Args:
            columns: by name.
            encoded: names of columns that hold encoded cells.

        Raises:
            ConfigError: a column is missing, unknown, or of another length.
        """
        if not hasattr(columns, "keys"):
            raise ConfigError(f"columns must be a dict or a DataFrame, got {type(columns).__name__}")
        given = list(columns.keys())
        self._check_names(given, f"the columns for {self._name!r}")
        arrays, lengths = {}, {}
        for name in given:
            arrays[name] = values = columns[name] if name in encoded else column_values(columns[name])
            if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0:
                raise ConfigError(
                    f"field {name!r} of {self._name!r} takes an array of shape (n, ...) or a list of n values, got {values!r:.80}"
                )
            lengths[name] = len(values)
        if len(set(lengths.values())) > 1:
            raise ConfigError(f"the columns for {self._name!r} differ in length: {lengths}. Nothing was appended")
        n_rows = next(iter(lengths.values()), 0)
        n_bytes = sum(getattr(values, "nbytes", 64 * n_rows) for values in arrays.values())
        return n_rows, max(1, min(1 << 17, _STEP_BYTES * n_rows // max(n_bytes, 1))), arrays

    def encode_columns(
        self, columns: Mapping[str, Any], start: int, stop: int, number: int, encoded: Collection[str] = ()
    ) -> CellBatch:
        """Encode some rows of columns.

        Args:
            columns: arrays and lists as :meth:`steps` returns them.
            start: the first row.
            stop: the end of the rows.
            number: position of the row ``start`` in the dataset.
            encoded: names of columns that hold encoded cells.

        Raises:
            ConfigError: a value does not fit its field.
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
            except Exception as error:  # noqa: BLE001  # codecs of plugins raise anything
                self._refuse(field.name, None, error, number)
        parts = [
            columns[field.name][start:stop] if field.name in columns else [None] * (stop - start)
            for field in self._partitions.fields
        ]
        lists = [part.to_pylist() if isinstance(part, pa.ChunkedArray) else part for part in parts]
        lists = [part.tolist() if isinstance(part, np.ndarray) and part.dtype.kind != "M" else part for part in lists]
        folders = self._folders_of([[plain_value(value) for value in each] for each in lists], number)
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema), folders

    def _folders_of(self, columns: Sequence[Sequence[Any]], number: int) -> list[str] | None:
        """The folder of each row; None without partitions."""
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
            f"{where} of {self._name!r} cannot hold this value: {error!s:.400}. {n_rows} rows were appended"
        ) from error

    def _check_names(self, given: Sequence[Any], what: str) -> None:
        unknown = [name for name in given if name not in self._names]
        missing = [field.name for field in self._schema if field.name not in given and not field.nullable]
        if unknown:
            raise ConfigError(
                f"unknown field {', '.join(map(repr, unknown))} in {what}"
                f"{did_you_mean(unknown[0], self._names)}; the schema has: {', '.join(sorted(self._names))}"
            )
        if missing:
            raise ConfigError(
                f"{what} lacks {', '.join(map(repr, missing))}, which {'is' if len(missing) == 1 else 'are'} not nullable"
            )


def _encode_column(field: Field, type_: pa.DataType, values: Any, are_cells: bool) -> pa.Array:
    if isinstance(values, np.ndarray):
        values = values.copy()  # its owner may change it
    if are_cells:
        cells = values if isinstance(values, pa.ChunkedArray) else pa.array(values, type_)
    else:
        cells = field.cells.encode_column(field, values)
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    if cells.type != type_:
        cells = cells.cast(type_)
    if are_cells and cells.null_count and not field.nullable:
        raise ValueError("a cell is null, but the field is not nullable")
    return cells


def plain_value(value: Any) -> Any:
    """Tensors and images as arrays, arrays without dimensions as scalars; other values unchanged."""
    if isinstance(value, np.ndarray):
        return value[()] if value.ndim == 0 else value
    if isinstance(value, np.generic) or not (hasattr(value, "__array__") or hasattr(value, "__array_interface__")):
        return value
    try:
        array = as_array(value)
    except (TypeError, RuntimeError):  # a tensor without a numpy dtype; refused where its field is known
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


#: Written unchanged; other ASCII characters as %XX, which Hive, Spark and pyarrow read. Spark reads letters of other scripts only
#: unchanged, pyarrow both ways.
_PLAIN: Final = frozenset(string.ascii_letters + string.digits + "_.-~+,@")
_MAX_SEGMENT_BYTES: Final = 200


class Partitions:
    """Names folders as Hive does, ``day=2024-01-01/vehicle=7``.

    Args:
        schema: of the rows.
        names: the columns, outermost folder first; empty for a dataset without partitions.

    Raises:
        ConfigError: a column is not in the schema, has a dtype that cannot name folders, or no column is left for the files.
    """

    def __init__(self, schema: Schema, names: Sequence[str]) -> None:
        self.fields = tuple(schema[name] for name in names)
        if len({field.name for field in self.fields}) != len(self.fields):
            raise ConfigError(f"partition_by names a column twice: {', '.join(map(repr, names))}")
        if self.fields and len(self.fields) == len(schema):
            raise ConfigError("a dataset cannot be partitioned by all of its columns: the files would have no columns")
        for field in self.fields:
            is_named = field.dtype is Decimal or (
                isinstance(field.dtype, np.dtype) and (field.dtype.kind in "biuU" or field.dtype == np.dtype("datetime64[D]"))
            )
            if field.shape or not isinstance(field.codec, ScalarCodec) or not is_named:
                raise ConfigError(
                    f"a dataset cannot be partitioned by {field.name!r}: folders are named after text, integers, booleans, dates "
                    f"and Decimals, not after values of dtype {field.dtype} and shape {field.shape}"
                )

    def __len__(self) -> int:
        return len(self.fields)

    def folder(self, values: Sequence[Any]) -> str:
        """The folder of a row; ``""`` without partitions.

        Raises:
            CellValueError: a value does not fit its field, or cannot name a folder; its ``row`` is the number of the field.
        """
        segments = []
        for number, (field, value) in enumerate(zip(self.fields, values, strict=True)):
            try:
                segments.append(_segment(field, value))
            except (TypeError, ValueError, OverflowError) as error:
                raise CellValueError(number, str(error)) from error
        return "/".join(segments)


@functools.lru_cache(maxsize=1024, typed=True)
def _segment(field: Field, value: Any) -> str:
    if value is None:
        if not field.nullable:
            raise ValueError("the value is null, but the field is not nullable")
        text = NULL_PARTITION
    else:
        cell = field.cells.encode(field, value)
        plain = str(cell).lower() if isinstance(cell, (bool, np.bool_)) else str(cell)
        if plain in ("", NULL_PARTITION):
            raise ValueError(f"{plain!r} cannot name a partition's folder: it would mean null")
        text = _quote(plain)
    segment = f"{_quote(field.name)}={text}"
    if len(segment.encode()) > _MAX_SEGMENT_BYTES:
        raise ValueError(f"{segment[:60]!r}… is too long to name a partition's folder")
    return segment


def _quote(text: str) -> str:
    return "".join(
        letter if letter in _PLAIN or (not letter.isascii() and letter.isprintable()) else _escape(letter) for letter in text
    )


def _escape(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode())

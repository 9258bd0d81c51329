"""Converts between Arrow tables and samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError
from data_stack.exchange.tables.cells import cells_of
from data_stack.exchange.tables.stored_cells import table_of_cells
from data_stack.exchange.tables.table import NamedColumns
from data_stack.formats.arrow_tables import Origin, iterator_of_table
from data_stack.util.suggestions import did_you_mean


def from_arrow(table: Any, *, target: str | None = None) -> DatasetIteratorIF:
    """Return the rows of an Arrow table as dict samples.

    A value is made when its sample is read. The table is not copied, except views, and nested lists
    of fixed size in a slice of a table.

    Numbers, bools, dates and times keep their dtype; a time with a zone is the instant in UTC.
    Text, bytes, decimals, structs (dicts) and lists of lists become Python objects. A list of
    numbers is an array; a tensor or list of fixed size is an array of that shape. An extension type
    is read as it is stored: a UUID as 16 bytes, JSON as text. Views of lists are lists, run-end
    encoded values are values; both are copied. A null is None, and its column an array of objects.
    Dictionary columns return their values; as the target, they return the indices, and the values
    are the meta's ``class_names``.

    Args:
        table: a ``pyarrow.Table`` or ``RecordBatch``; or an object with ``__arrow_c_stream__``,
            such as a ``RecordBatchReader`` or a relation of DuckDB, which is read to its end.
        target: the column of the target.

    Raises:
        ConfigError: ``table`` is not a table, a column does not exist or has an unsupported type,
            or two have the same name.
    """
    if not isinstance(table, pa.Table):
        table = _convert_to_table(table)
    return iterator_of_table(table, "arrow", target)


def _convert_to_table(data: Any) -> pa.Table:
    try:
        return pa.table(data)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"from_arrow() expects an Arrow table, got {type(data).__name__}: {error!s:.200}"
        ) from error


def to_arrow(
    iterator: Any, *, lazy: bool = False, schema: pa.Schema | None = None
) -> pa.Table | pa.RecordBatchReader:
    """Return all samples as a ``pyarrow.Table``.

    Columns keep the types of their Arrow, Parquet, pandas or polars source if only rows and columns
    were selected since, apart from views of lists and run-end encoded values. All rows of a table,
    or of local Arrow files that are not compressed, are not copied: the result has the cells, or
    the pages of the files.

    Otherwise types are inferred from the values. Arrays of numbers of one shape become (nested)
    lists of fixed size; arrays of different shapes, without elements or of text become lists;
    complex numbers and matrices of times become bytes of ``.npy``. None and NaT become null, NaN
    stays.

    Args:
        iterator: any iterator; see :class:`~data_stack.exchange.tables.table.NamedColumns` for the
            names of its columns.
        lazy: return a ``pyarrow.RecordBatchReader`` that reads a few MiB at a time, for
            ``pyarrow.dataset.write_dataset``, DuckDB and others. Types are then inferred from the
            first few MiB.
        schema: a ``pyarrow.Schema`` with the types of columns, instead of inferred ones. A value
            that does not fit its type, such as 1.5 as int64, noon as date32 or text as bytes, is an
            error; no value is changed to fit.

    Raises:
        ConfigError: a column holds values of several types, or of a type that Arrow lacks; a value
            does not fit its type; or ``schema`` has a column that the samples lack. With ``lazy``,
            the error of a value is raised when its batch is read.
    """
    if schema is None and not lazy:
        stored = table_of_cells(iterator)
        if stored is not None:
            return stored
    columns = NamedColumns(iterator)
    origins = dict(columns.origins)
    if schema is not None:
        _check_columns_of_schema(schema, columns.names)
        for field in schema:
            origins[field.name] = Origin(field)
    if lazy:
        return _open_reader(columns, origins)
    return _table_of(columns.read(), origins)


def _check_columns_of_schema(schema: pa.Schema, names: list[str]) -> None:
    """Check that the samples have all columns of a schema.

    Raises:
        ConfigError: they lack one.
    """
    for field in schema:
        if field.name not in names:
            raise ConfigError(
                f"schema= has the column {field.name!r:.80}, which the samples lack"
                f"{did_you_mean(field.name, names)}; they have {', '.join(names)!s:.1000}"
            )


def _open_reader(
    columns: NamedColumns, origins: Mapping[Any, Origin | None]
) -> pa.RecordBatchReader:
    """Read the first block, whose types all blocks have, and return a reader of all blocks."""
    blocks = columns.blocks()
    first_table = _table_of(next(blocks), origins)
    known_origins: dict[Any, Origin | None] = {}
    for field in first_table.schema:
        known_origins[field.name] = origins.get(field.name) or Origin(field)

    def read_batches() -> Iterator[pa.RecordBatch]:
        yield from first_table.to_batches()
        n_rows = first_table.num_rows
        for block in blocks:
            table = _table_of(block, known_origins, first_row=n_rows)
            n_rows += table.num_rows
            yield from table.to_batches()

    return pa.RecordBatchReader.from_batches(first_table.schema, read_batches())


def _table_of(
    columns: Mapping[str, npt.NDArray[Any]],
    origins: Mapping[Any, Origin | None],
    first_row: int = 0,
) -> pa.Table:
    """Convert named columns to a table; ``first_row`` is the position of its first row."""
    cells: dict[str, pa.Array] = {}
    fields: list[pa.Field] = []
    for name, values in columns.items():
        origin = origins.get(name)
        cells[name] = cells_of(values, name, origin, first_row=first_row)
        metadata = None
        if origin is not None and origin.field is not None:
            metadata = origin.field.metadata
        fields.append(pa.field(name, cells[name].type, metadata=metadata))
    return pa.table(cells, pa.schema(fields))

"""Converts between polars data frames and samples."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.exchange.tables.arrow import to_arrow
from data_stack.formats.arrow_tables import iterator_of_table

try:
    import polars as pl
except ImportError as error:
    raise MissingDependencyError("from_polars() and to_polars()", "polars", "polars") from error

#: What polars raises for data that it cannot convert.
_POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)


def from_polars(frame: pl.DataFrame, *, target: str | None = None) -> DatasetIteratorIF:
    """Return the rows of a polars data frame as dict samples, without a copy.

    See :func:`data_stack.from_arrow` for the values. Enum and Categorical columns return text; as
    the target, they return indices, and the texts are the meta's ``class_names``.

    Args:
        frame: a ``polars.DataFrame``.
        target: the column of the target.

    Raises:
        ConfigError: ``frame`` is not a data frame, or a column does not exist or holds Python
            objects.
    """
    if not isinstance(frame, pl.DataFrame):
        raise ConfigError(
            f"expected a polars.DataFrame, got {type(frame).__name__}; a LazyFrame has collect()"
        )
    # Arrow would store the addresses of Python objects.
    columns_of_objects = [name for name, dtype in frame.schema.items() if dtype == pl.Object]
    if columns_of_objects:
        raise ConfigError(
            f"column {columns_of_objects[0]!r:.80} of dtype {pl.Object} holds Python objects; "
            f"cast it, or drop it"
        )
    try:
        table = frame.to_arrow()
    except (*_POLARS_ERRORS, pa.ArrowException) as error:
        raise ConfigError(
            f"columns of dtype {frame.dtypes} cannot be converted to Arrow: {error!s:.200}"
        ) from error
    return iterator_of_table(table, "polars", target)


def to_polars(iterator: Any) -> pl.DataFrame:
    """Return all samples as a ``polars.DataFrame``.

    Columns have the types that :func:`data_stack.to_arrow` gives them; arrays of one shape are
    ``polars.Array``. polars has no times in seconds, and converts them to milliseconds. Durations
    above 290 million years do not fit into these, and get other values.

    Raises:
        ConfigError: a column holds values of several types, or of a type that polars lacks.
    """
    table = _as_polars_reads(to_arrow(iterator))
    try:
        return pl.DataFrame(table)
    except _POLARS_ERRORS as error:
        raise ConfigError(
            f"polars cannot store these samples: {error!s:.300}; leave columns out with .select(…)"
        ) from error


def _as_polars_reads(table: pa.Table) -> pa.Table:
    """Return a table whose chunks polars reads.

    - Lists of a fixed size become slices of no larger array. polars 2.1 raises a ComputeError for
      such a slice with nulls ("validity mask length must be equal to the number of values divided
      by size").
    - A column without rows becomes one chunk. polars joins several chunks by pyarrow, old versions
      of which cannot join dictionaries without rows.
    """
    columns: list[pa.ChunkedArray] = []
    for column in table.columns:
        if not table.num_rows:
            column = pa.chunked_array([pa.nulls(0, column.type)])
        elif "fixed_size_list" in str(column.type):
            copies = [pa.concat_arrays([chunk]) for chunk in column.chunks]
            column = pa.chunked_array(copies, column.type)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=table.schema)

"""Data frames of polars as samples, and samples as data frames of polars."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.exchange.tables.arrow import iterator_of_table, to_arrow

try:
    import polars as pl
except ImportError as error:
    raise MissingDependencyError("from_polars() and to_polars()", "polars", "polars") from error

_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)


def from_polars(frame: pl.DataFrame, *, target: str | None = None) -> DatasetIteratorIF:
    """The rows of a data frame of polars as dict samples, without a copy; see :func:`data_stack.from_arrow` for the values.

    Enum and Categorical give their texts; as the target, numbers, with the texts as the meta's ``class_names``.

    Args:
        frame: a ``polars.DataFrame``.
        target: the column of the target.

    Raises:
        ConfigError: that is no data frame, there is no such column, or one holds Python objects.
    """
    if not isinstance(frame, pl.DataFrame):
        raise ConfigError(
            f"from_polars() takes a polars.DataFrame, not a {type(frame).__name__}; collect() makes one of a LazyFrame"
        )
    if pl.Object in frame.dtypes:  # Arrow would get their addresses
        raise ConfigError(f"a column of dtype {frame.dtypes} holds Python objects; cast it, or drop it")
    try:
        table = frame.to_arrow()
    except (*_ERRORS, pa.ArrowException) as error:
        raise ConfigError(
            f"a column of dtype {frame.dtypes} has no values in Arrow: {error!s:.200}; cast it, or drop it"
        ) from error
    return iterator_of_table(table, "polars", target)


def to_polars(iterator: Any) -> pl.DataFrame:
    """All samples as a ``polars.DataFrame``: columns as of :func:`data_stack.to_arrow`, arrays of one shape ``polars.Array``.

    Raises:
        ConfigError: a column holds values of several types, or of one that polars lacks.
    """
    try:
        return pl.DataFrame(to_arrow(iterator))
    except _ERRORS as error:
        raise ConfigError(f"polars lacks values of these samples: {error!s:.300}; leave them out with .select(…)") from error

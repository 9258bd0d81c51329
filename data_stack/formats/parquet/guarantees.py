"""Expressions that are true of all rows of a part of a dataset, by which pyarrow excludes it."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Raised for bounds that a type cannot hold, such as dates out of range for Python.
_NO_BOUND: Final = (ValueError, TypeError, OverflowError, pa.ArrowException)
#: Columns of floats whose bounds are used; each doubles the alternatives.
_MAX_FLOAT_COLUMNS: Final = 3


def conjunction(expressions: Iterable[pc.Expression]) -> pc.Expression:
    """Join expressions by "and"; without any, the result is true."""
    return functools.reduce(operator.and_, expressions, pc.scalar(True))


def partition_guarantee(name: str, value: Any, types: pa.Schema) -> pc.Expression:
    """Return an expression that is true of all rows of a partition.

    Args:
        name: of the column.
        value: of the partition; None for null.
        types: the types by which an expression sees the columns.
    """
    if value is None:
        return pc.field(name).is_null()
    try:
        plain = value.item() if isinstance(value, np.generic) else value
        return pc.field(name) == pa.scalar(plain, types.field(name).type)
    except _NO_BOUND:
        return pc.scalar(True)


def column_guarantee(field: pa.Field, statistics: Any, n_rows: int, n_nulls: int) -> pc.Expression:
    """Return an expression that is true of all rows of a column chunk, except for NaN.

    Args:
        field: name of the column, and the type by which an expression sees it.
        statistics: of the column chunk, from pyarrow; None without any.
        n_rows: of the row group.
        n_nulls: -1 for an unknown number.
    """
    column = pc.field(field.name)
    if n_nulls == n_rows:
        return column.is_null()
    if field.type == pa.time64("ns"):  # pyarrow rounds their statistics to microseconds
        return pc.scalar(True)
    try:
        if statistics is None or not statistics.has_min_max:
            return pc.scalar(True)
        if not statistics.min <= statistics.max:  # NaN
            return pc.scalar(True)
        least, greatest = _widen(statistics.min, statistics.max, field.type)
        bounds = [
            column >= pa.scalar(least, field.type),
            column <= pa.scalar(greatest, field.type),
        ]
    except _NO_BOUND:
        return pc.scalar(True)
    if n_nulls != 0:
        bounds = [bound | column.is_null() for bound in bounds]
    return conjunction(bounds)


def _widen(least: Any, greatest: Any, type_: pa.DataType) -> tuple[Any, Any]:
    """Widen bounds of single precision by one number; other bounds are unchanged.

    ``isin([0.1])`` selects the single-precision number that is nearest to 0.1. But pyarrow
    compares 0.1 itself with the bounds, and would exclude a chunk that holds only that number.
    """
    if not pa.types.is_float32(type_):
        return least, greatest
    below = np.nextafter(np.float32(least), np.float32(-np.inf))
    above = np.nextafter(np.float32(greatest), np.float32(np.inf))
    return below, above


def alternatives_with_nan(
    exact: Iterable[pc.Expression], bounds_of_floats: Mapping[str, pc.Expression], types: pa.Schema
) -> list[pc.Expression]:
    """Return expressions of which at least one is true of each row of a row group.

    A bound of floats says nothing of NaN, for which ``~(x > 3)`` is true. So a column of floats
    is within its bounds, or it is NaN.

    Args:
        exact: expressions that are true of all rows.
        bounds_of_floats: for columns of floats an expression that is true of all rows, except
            for NaN. Those of more than three columns are not used.
        types: the types by which an expression sees the columns.
    """
    alternatives = [conjunction(exact)]
    for name, bounds in list(bounds_of_floats.items())[:_MAX_FLOAT_COLUMNS]:
        type_ = types.field(name).type
        nan = pa.scalar(float("nan"), pa.float64()).cast(type_)
        is_nan = pc.field(name) == nan
        is_within = [alternative & bounds for alternative in alternatives]
        is_outside = [alternative & is_nan for alternative in alternatives]
        alternatives = is_within + is_outside
    return alternatives

"""Makes the expressions by which pyarrow excludes row groups and files from a selection.

A *guarantee* is an expression that is true of all rows of a row group or file, such as ``speed <=
3``. If a predicate contradicts it, no row needs to be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: The errors for a bound that its type cannot hold, such as a date out of range for Python. Such a
#: bound is not used.
_BOUND_ERRORS: Final = (ValueError, TypeError, OverflowError, pa.ArrowException)
#: Limit of the columns of floats whose bounds are used. Each doubles the number of alternatives.
_MAX_FLOAT_COLUMNS: Final = 3


def conjunction(expressions: Iterable[pc.Expression]) -> pc.Expression:
    """Join expressions by "and". Without any, the result is the expression "true"."""
    joined = pc.scalar(True)
    for expression in expressions:
        joined = joined & expression
    return joined


def partition_guarantee(name: str, value: Any, types: pa.Schema) -> pc.Expression:
    """Return an expression that is true of all rows of a partition.

    Args:
        name: the name of the partition column.
        value: the value of the partition, of numpy or Python; None for null.
        types: the columns, with the types as which a predicate sees them.

    Returns:
        "The column has this value"; the expression "true" if the type cannot hold the value.
    """
    column = pc.field(name)
    if value is None:
        return column.is_null()
    try:
        if isinstance(value, np.generic):
            value = value.item()  # pyarrow converts values of Python to any type.
        return column == pa.scalar(value, types.field(name).type)
    except _BOUND_ERRORS:
        return pc.scalar(True)


def column_guarantee(field: pa.Field, statistics: Any, n_rows: int, n_nulls: int) -> pc.Expression:
    """Return an expression that is true of all rows of a column chunk, unless they are NaN.

    Args:
        field: the column, with the type as which a predicate sees it.
        statistics: the statistics of the column chunk, of pyarrow; None without any.
        n_rows: number of rows of the row group.
        n_nulls: number of nulls in the column chunk; -1 if it is unknown.

    Returns:
        "The column is within its bounds", or also null if there are nulls; the expression "true"
        without usable bounds.
    """
    column = pc.field(field.name)
    if n_nulls == n_rows:
        return column.is_null()
    if field.type == pa.time64("ns"):
        # pyarrow rounds their bounds to microseconds, so rows may be outside.
        return pc.scalar(True)
    try:
        if statistics is None or not statistics.has_min_max:
            return pc.scalar(True)
        has_order = statistics.min <= statistics.max
        if not has_order:  # A bound is NaN.
            return pc.scalar(True)
        minimum, maximum = _widen(statistics.min, statistics.max, field.type)
        is_above = column >= pa.scalar(minimum, field.type)
        is_below = column <= pa.scalar(maximum, field.type)
    except _BOUND_ERRORS:
        return pc.scalar(True)
    if n_nulls != 0:
        is_above = is_above | column.is_null()
        is_below = is_below | column.is_null()
    return conjunction([is_above, is_below])


def _widen(minimum: Any, maximum: Any, type_: pa.DataType) -> tuple[Any, Any]:
    """Widen bounds of float32 to the next float32 on either side; other bounds are unchanged.

    ``isin([0.1])`` selects the float32 that is nearest to 0.1. But pyarrow compares 0.1 itself with
    the bounds, and would exclude a chunk that holds only that float32.
    """
    if not pa.types.is_float32(type_):
        return minimum, maximum
    next_below = np.nextafter(np.float32(minimum), np.float32(-np.inf))
    next_above = np.nextafter(np.float32(maximum), np.float32(np.inf))
    return next_below, next_above


def alternatives_with_nan(
    exact: Iterable[pc.Expression], bounds_of_floats: Mapping[str, pc.Expression], types: pa.Schema
) -> list[pc.Expression]:
    """Return expressions of which at least one is true of each row of a row group.

    The bounds of a column of floats say nothing of NaN, for which ``~(x > 3)`` is true. So such a
    column has two alternatives: its value is within the bounds, or it is NaN.

    Args:
        exact: expressions that are true of all rows.
        bounds_of_floats: for columns of floats, an expression that is true of all rows in which
            the column is not NaN. Only the first three columns are used.
        types: the columns, with the types as which a predicate sees them.
    """
    alternatives = [conjunction(exact)]
    for name in list(bounds_of_floats)[:_MAX_FLOAT_COLUMNS]:
        nan = pa.scalar(float("nan"), pa.float64()).cast(types.field(name).type)
        equals_nan = pc.field(name) == nan
        with_bounds = [alternative & bounds_of_floats[name] for alternative in alternatives]
        with_nan = [alternative & equals_nan for alternative in alternatives]
        alternatives = with_bounds + with_nan
    return alternatives

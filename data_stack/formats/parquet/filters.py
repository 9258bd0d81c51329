"""Converts the argument ``filters=`` to a predicate."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data_stack.codecs.fitting import as_dtype
from data_stack.codecs.plain_data import shorten
from data_stack.exception import ConfigError
from data_stack.formats.parquet.arrow_predicate import ArrowPredicate
from data_stack.formats.parquet.predicates import Predicate, RowPredicate

#: The units of numpy that pyarrow lacks, and for each the unit to convert its times to. A time in a
#: finer unit than nanoseconds is refused unless it is a whole number of nanoseconds.
_UNITS_FOR_ARROW: Final = {
    "Y": "D",
    "M": "D",
    "W": "D",
    "D": "D",
    "h": "s",
    "m": "s",
    "ps": "ns",
    "fs": "ns",
    "as": "ns",
}


def as_predicate(value: Any) -> Predicate:
    """Convert a filter to a predicate.

    Args:
        value: one of these:

            - a :class:`Predicate`, which is returned unchanged;
            - an expression of ``pyarrow.compute``;
            - a list of conditions ``(field, operator, value)``, which selects the rows for which
              all are true, or one such condition, or a list of such lists, which selects the rows
              that one of the lists selects: the filters of :func:`pyarrow.parquet.read_table`;
            - an object with ``get_fields()`` and ``do_include(values)``, see
              :class:`RowPredicate`.

    Raises:
        ConfigError: ``value`` is something else, or names no column, or a value of a condition
            cannot be compared.
    """
    if isinstance(value, Predicate):
        return value
    if isinstance(value, pc.Expression):
        return ArrowPredicate(value)
    if isinstance(value, (list, tuple)):
        return _predicate_of_conditions(value)
    if _is_row_filter(value):
        return RowPredicate(value)
    raise ConfigError(
        f'{shorten(value)} is not a filter: pass an expression such as col("speed") > 3, '
        'filters such as [("speed", ">", 3)], or an object with get_fields() and '
        "do_include(values)"
    )


def _is_row_filter(value: Any) -> bool:
    """Return whether an object has the methods that :class:`RowPredicate` calls."""
    if isinstance(value, type):  # a class, of which an object should have been passed
        return False
    has_fields = callable(getattr(value, "get_fields", None))
    return has_fields and callable(getattr(value, "do_include", None))


def _predicate_of_conditions(filters: list[Any] | tuple[Any, ...]) -> Predicate:
    """Convert a condition, a list of conditions, or a list of such lists, to a predicate.

    Raises:
        ConfigError: ``filters`` is something else, or a value cannot be compared.
    """
    conditions = filters
    if isinstance(filters, tuple):
        conditions = [filters]
    try:
        expression = pq.filters_to_expression(_with_times_for_arrow(conditions))
        return ArrowPredicate(expression)
    except (pa.ArrowException, ValueError, TypeError, IndexError, OverflowError) as error:
        example = [("speed", ">", 3), ("day", "in", ["mon"])]
        raise ConfigError(
            f"invalid filters {shorten(filters)}: {str(error).rstrip('.')}. Pass filters such as "
            f"{example}"
        ) from error


def _with_times_for_arrow(filters: Any) -> Any:
    """Return filters in which each time of numpy has a unit that pyarrow knows.

    Only Python's own collections are looked into. Any other object, such as a Series of pandas, is
    passed to pyarrow as it is.

    Raises:
        ValueError: no such unit holds a time exactly, or a time has no unit.
    """
    if isinstance(filters, np.ndarray) and filters.dtype.kind == "M":
        return [_time_for_arrow(time) for time in filters]
    if isinstance(filters, np.datetime64):
        return _time_for_arrow(filters)
    collection_type = type(filters)
    if collection_type in (list, tuple, set, frozenset):
        return collection_type(_with_times_for_arrow(item) for item in filters)
    return filters


def _time_for_arrow(time: np.datetime64) -> Any:
    """Return a time in a unit that pyarrow knows.

    Returns:
        A time in days, weeks, months or years as a date of pyarrow, which a column of dates is
        compared with; NaT as null. Any other time as a time of numpy.

    Raises:
        ValueError: no such unit holds the time exactly, or the time has no unit.
    """
    unit, _ = np.datetime_data(time.dtype)
    if unit == "generic":
        raise ValueError(f"{time!r} has no unit: pass a time such as np.datetime64('2020-01-01')")
    unit_for_arrow = _UNITS_FOR_ARROW.get(unit, unit)
    dtype_for_arrow = np.dtype(f"M8[{unit_for_arrow}]")
    exact_time = as_dtype(np.array(time), dtype_for_arrow)[()]
    if unit_for_arrow != "D":
        return exact_time
    if np.isnat(exact_time):
        return pa.scalar(None, pa.date32())
    n_days = exact_time.astype(np.int64).item()
    return pa.scalar(n_days, pa.date32())

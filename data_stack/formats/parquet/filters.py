"""Converts what ``filters=`` may be to predicates."""

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

#: For the units of numpy that pyarrow lacks, the unit that holds their times exactly.
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
        value: a :class:`Predicate`; an expression of ``pyarrow.compute``; filters as for
            :func:`pyarrow.parquet.read_table`: a list of ``(field, operator, value)``, all of
            which must hold, or a list of such lists, one of which must hold; or an object with
            ``get_fields()`` and ``do_include(values)``, see :class:`RowPredicate`.

    Raises:
        ConfigError: ``value`` is something else.
    """
    if isinstance(value, Predicate):
        return value
    if isinstance(value, pc.Expression):
        return ArrowPredicate(value)
    if isinstance(value, (list, tuple)):
        return _predicate_of_triples(value)
    if _is_row_filter(value):
        return RowPredicate(value)
    raise ConfigError(
        f'{shorten(value)} is not a filter: pass an expression such as col("speed") > 3, '
        'filters such as [("speed", ">", 3)], or an object with get_fields() and '
        "do_include(values)"
    )


def _is_row_filter(value: Any) -> bool:
    if isinstance(value, type):  # a class, not an object
        return False
    has_fields = callable(getattr(value, "get_fields", None))
    return has_fields and callable(getattr(value, "do_include", None))


def _predicate_of_triples(filters: list[Any] | tuple[Any, ...]) -> Predicate:
    triples = [filters] if isinstance(filters, tuple) else filters
    try:
        expression = pq.filters_to_expression(_with_times_for_arrow(triples))
        return ArrowPredicate(expression)
    except (pa.ArrowException, ValueError, TypeError, IndexError) as error:
        example = [("speed", ">", 3), ("day", "in", ["mon"])]
        raise ConfigError(
            f"invalid filters {shorten(filters)}: {error}. Pass filters such as {example}"
        ) from error


def _with_times_for_arrow(filters: Any) -> Any:
    """Return filters in which each time of numpy has a unit that pyarrow knows.

    Raises:
        ValueError: no such unit holds a time exactly.
    """
    if isinstance(filters, np.ndarray) and filters.dtype.kind == "M":
        return [_time_for_arrow(time) for time in filters]
    if isinstance(filters, np.datetime64):
        return _time_for_arrow(filters)
    if type(filters) in (list, tuple, set, frozenset):
        return type(filters)(map(_with_times_for_arrow, filters))
    return filters


def _time_for_arrow(time: np.datetime64) -> Any:
    """Return a time in a unit that pyarrow knows; a day as a date.

    Raises:
        ValueError: no such unit holds the time exactly.
    """
    unit, _ = np.datetime_data(time.dtype)
    if unit == "generic":
        raise ValueError(f"{time!r} has no unit: pass a time such as np.datetime64('2020-01-01')")
    unit_for_arrow = _UNITS_FOR_ARROW.get(unit, unit)
    exact = as_dtype(np.array(time), np.dtype(f"M8[{unit_for_arrow}]"))[()]
    if unit_for_arrow == "D":
        return pa.scalar(exact.astype(np.int64).item(), pa.date32())
    return exact

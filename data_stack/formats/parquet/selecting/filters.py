"""Filters as pyarrow takes them, and whatever else may stand for a predicate, as predicates."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from data_stack.codecs.plain_data import shown
from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting.expressions import Expression, col
from data_stack.formats.parquet.selecting.petastorm_predicates import in_negate, wrapped
from data_stack.formats.parquet.selecting.predicate import Predicate

__all__ = ["as_predicate", "predicate_of_filters"]

_COMPARISONS: dict[str, Callable[[Expression, Any], Predicate]] = {
    "=": lambda column, value: column == value,
    "==": lambda column, value: column == value,
    "!=": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    ">": lambda column, value: column > value,
    "<=": lambda column, value: column <= value,
    ">=": lambda column, value: column >= value,
}
_FORM = '("speed", ">", 3)'


def as_predicate(value: Any) -> Predicate:
    """What may be asked of rows, as a predicate.

    Args:
        value: a :class:`Predicate`; an expression of bools such as ``col("is_night")``; an object with Petastorm's ``get_fields``
            and ``do_include``; or filters, for which see :func:`predicate_of_filters`.

    Raises:
        ConfigError: it is none of these.
    """
    found = wrapped(value)
    if found is not None:
        return found
    if isinstance(value, (list, tuple)) or _is_of_arrow(value):
        return predicate_of_filters(value)
    raise ConfigError(
        f'no predicate: {shown(value)}. Give col("speed") > 3, in_set([…], "field"), in_lambda(["field"], function), '
        f"filters such as [{_FORM}], or an expression of pyarrow.compute"
    )


def predicate_of_filters(filters: Any) -> Predicate:
    """The filters of pyarrow as a predicate.

    Args:
        filters: a list of ``(field, operator, value)``, all of which must hold, with the operators ``=``, ``==``, ``!=``, ``<``,
            ``>``, ``<=``, ``>=``, ``in`` and ``not in``; a list of such lists, one of which must hold; or a
            ``pyarrow.compute.Expression``. A row without a value meets no condition, except ``in`` with
            None among the values, and ``not in`` without, as with pyarrow.

    Raises:
        ConfigError: not of that form; the message shows the part that is wrong.
    """
    if _is_of_arrow(filters):
        predicate: Predicate = importlib.import_module(f"{__package__}.arrow").ArrowPredicate(filters)
        return predicate
    if _is_condition(filters):
        filters = [filters]
    if not isinstance(filters, (list, tuple)) or not filters:
        raise ConfigError(f"filters are a list of conditions such as {_FORM}, or a list of such lists; got {shown(filters)}")
    if all(isinstance(part, list) for part in filters):
        return reduce(lambda one, other: one | other, (_conjunction(part) for part in filters))
    return _conjunction(filters)


def _is_of_arrow(value: Any) -> bool:
    """Whether it is an expression of pyarrow's, told without importing that."""
    return any(kind.__name__ == "Expression" and kind.__module__.partition(".")[0] == "pyarrow" for kind in type(value).__mro__)


def _is_condition(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 3 and isinstance(value[0], str) and isinstance(value[1], str)


def _conjunction(conditions: Sequence[Any]) -> Predicate:
    if not conditions:
        raise ConfigError(f"an empty list is no filter; leave it out, or give conditions such as {_FORM}")
    return reduce(lambda one, other: one & other, map(_condition, conditions))


def _condition(condition: Any) -> Predicate:
    if not isinstance(condition, (tuple, list)) or len(condition) != 3 or not isinstance(condition[0], str) or not condition[0]:
        raise ConfigError(f"{shown(condition)} is no condition of a filter; it should be (field, operator, value) as {_FORM}")
    name, operator, value = condition
    try:
        if operator in ("in", "not in"):
            return _membership(col(name), operator, value)
        if isinstance(operator, str) and operator in _COMPARISONS:
            return _COMPARISONS[operator](col(name), value)
    except ConfigError as error:
        raise ConfigError(f"condition {shown(condition)} of the filters: {error}") from error
    raise ConfigError(
        f"condition {shown(condition)} of the filters has an unknown operator {shown(operator)}; "
        f"there are {', '.join([*_COMPARISONS, 'in', 'not in'])}"
    )


def _membership(column: Expression, operator: str, value: Any) -> Predicate:
    try:
        values = list(value) if not isinstance(value, (str, bytes)) else value
    except TypeError as error:
        raise ConfigError(f"{operator} takes a list or a set of values, got {shown(value)}") from error
    has_null = not isinstance(values, (str, bytes)) and any(item is None for item in values)
    found = column.isin([item for item in values if item is not None] if has_null else values)
    if has_null:
        found = found | column.is_null()  # as pyarrow: a null is in a list that has one
    return in_negate(found) if operator == "not in" else found  # a null is in no list, so it is not in one

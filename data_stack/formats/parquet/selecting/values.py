"""The values of columns, such that they can be compared with single ones and looked up in sets."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import canonical_json, shorten
from data_stack.dataset.recipes.recipe_values import content_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting.predicate import Bools, ColumnStatistics, PredicateError

__all__ = ["OPERATORS", "Members", "as_numpy_time", "compare", "values_and_nulls"]

OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MOST_SHOWN = 8
_USE_INTERSECTION = "the values are lists or arrays; in_intersection looks at what is in them"


def as_numpy_time(value: Any) -> Any:
    """A time of Python's or pandas' as numpy's, in UTC if it has a zone, a time of day since midnight; others as they are."""
    if hasattr(value, "to_datetime64"):  # pandas' are more exact than their base class
        return value.to_datetime64()
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    if isinstance(value, datetime.time):
        value = datetime.datetime.combine(datetime.date.min, value) - datetime.datetime.min
    if isinstance(value, datetime.date):
        return np.datetime64(value)
    return np.timedelta64(value) if isinstance(value, datetime.timedelta) else value


def values_and_nulls(column: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Bools]:
    """The values that are not null, and which rows are."""
    if column.ndim == 1 and column.dtype.kind in "mM":
        nulls = np.isnat(column)
    elif column.ndim == 1 and column.dtype == object:
        nulls = np.fromiter((value is None for value in column), bool, len(column))
    else:
        return column, np.zeros(len(column), bool)
    values = column[~nulls]
    if values.dtype == object and len(values) and isinstance(values[0], np.generic):
        values = np.array(values.tolist())  # numbers and times of columns that have nulls
    return values, nulls


def compare(values: npt.NDArray[Any], sign: str, value: Any) -> Bools:
    """``values <sign> value`` as numpy and Python compare, shape (n,).

    Raises:
        PredicateError: they cannot be compared.
    """
    if values.ndim > 1:
        raise PredicateError(_USE_INTERSECTION)
    try:
        with np.errstate(invalid="ignore"):  # NaN among objects
            values[:1] < value  # noqa: B015  # what has no order with it does not equal it either
            return np.asarray(OPERATORS[sign](values, value), dtype=bool)
    except (TypeError, ValueError, ArithmeticError) as error:
        kind = type(values[0]).__name__ if len(values) else str(values.dtype)
        raise PredicateError(f"values such as {kind} cannot be compared with {shorten(value)}: {error}") from error


class Members:
    """A set of values. As in Python, 1 and 1.0 are the same and "1" is another; times are the same if they name one moment.

    Args:
        values: any iterable of hashable values; None stands for null. NaN equals nothing, so it is not found.
        what: what they are for, in messages.

    Raises:
        ConfigError: a single text, no iterable, or a value that is a list or such.
    """

    def __init__(self, values: Iterable[Any], what: str) -> None:
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise ConfigError(f"{what} takes a list or a set of values, got {shorten(values)}: write [{shorten(values)}]")
        items = [as_numpy_time(value) for value in values]
        items = [item.item() if isinstance(item, np.generic) and item.dtype.kind not in "mM" else item for item in items]
        try:
            self._values = frozenset(item for item in items if item is not None and item == item)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{what} takes values that can be hashed: {error}") from error
        self.has_null = None in items

    def contains(self, values: npt.NDArray[Any]) -> Bools:
        """Of each value, none of them null, whether it is among these.

        Raises:
            PredicateError: the values are lists, arrays or such.
        """
        if values.ndim > 1:
            raise PredicateError(_USE_INTERSECTION)
        if values.dtype.kind in "mM":
            return np.isin(values, self._times(values.dtype))
        try:
            return np.fromiter(map(self._values.__contains__, values.tolist()), bool, len(values))
        except TypeError as error:
            raise PredicateError(f"{_USE_INTERSECTION} ({error})") from error

    def could_contain(self, statistics: ColumnStatistics) -> bool:
        """Whether one of these may be a value, none of them null, of a column with these statistics."""
        if statistics.bounds is None:
            return True
        if statistics.bounds.dtype.kind in "mM":
            times = self._times(statistics.bounds.dtype)
            return bool(((times >= statistics.bounds[0]) & (times <= statistics.bounds[1])).any())
        low, high = statistics.bounds.tolist()
        try:
            return any(low <= value <= high for value in self._values)
        except TypeError:  # of different kinds
            return True

    def _times(self, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        found = [value for value in self._values if isinstance(value, np.generic) and value.dtype.kind == dtype.kind]
        return np.array(found) if found else np.empty(0, dtype)

    def content(self) -> Any:
        """Plain data that is the same for the same values."""
        return [self.has_null, sorted(canonical_json(content_of(value)) for value in self._values)]

    def __repr__(self) -> str:
        values = sorted(map(shorten, self._values)) + ["None"] * self.has_null
        more = [f"… {len(values):,} in all"] if len(values) > _MOST_SHOWN else []
        return f"[{', '.join(values[:_MOST_SHOWN] + more)}]"

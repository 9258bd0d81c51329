"""What statistics tell of the values of a column or an expression: bounds between which they lie, and whether there are nulls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from data_stack.formats.parquet.selecting.predicate import ColumnStatistics, Truth
from data_stack.formats.parquet.selecting.values import OPERATORS, comparable

__all__ = ["ANYTHING", "Range", "arithmetic_range", "comparison_truths", "constant_range", "range_of"]

_COMPARED = ("number", "text", "bytes", "time", "duration")
_SHORTENED = ("text", "bytes")  # only of these there are bounds that are no values


@dataclass(frozen=True)
class Range:
    """A superset of what values there are.

    Attributes:
        kind: as in :class:`~data_stack.formats.parquet.selecting.values.Values`; None if nothing is known of the values.
        low: no value is less; None if that is not known.
        high: no value is greater; None if that is not known.
        may_be_null: whether there may be nulls.
        may_be_value: whether there may be anything but nulls.
        may_be_nan: whether there may be NaN, which lies between no bounds.
        is_exact: whether the bounds are values, not cut off.
    """

    kind: str | None = None
    low: Any = None
    high: Any = None
    may_be_null: bool = True
    may_be_value: bool = True
    may_be_nan: bool = True
    is_exact: bool = False

    @property
    def is_one_value(self) -> bool:
        """Whether all that is not null has the one value ``low``."""
        return self.low is not None and self.is_exact and not self.may_be_nan and bool(self.low == self.high)


ANYTHING = Range()


def range_of(name: str, statistics: Mapping[str, ColumnStatistics]) -> Range:
    """The range of a column; anything, if there are no statistics of it or they contradict themselves."""
    known = statistics.get(name)
    if known is None:
        return ANYTHING
    may_be_null = known.n_rows > 0 and known.n_nulls != 0
    may_be_value = known.n_rows > 0 and (known.n_nulls is None or known.n_nulls < known.n_rows)
    low, high = _bound(known.minimum), _bound(known.maximum)
    kinds = {bound[0] for bound in (low, high) if bound is not None}
    if len(kinds) != 1 or not kinds <= set(_COMPARED) or (low and high and low[1] > high[1]):
        return Range(may_be_null=may_be_null, may_be_value=may_be_value)
    bounds = [bound[1] for bound in (low, high) if bound is not None]
    kind = kinds.pop()
    return Range(
        kind,
        low and low[1],
        high and high[1],
        may_be_null,
        may_be_value,
        any(isinstance(bound, float) for bound in bounds),
        known.is_exact or kind not in _SHORTENED,
    )


def constant_range(kind: str, value: Any) -> Range:
    """The range of one value, as :func:`comparable` gives it."""
    if kind not in _COMPARED:
        return ANYTHING
    if value != value:  # NaN
        return Range(kind, may_be_null=False)
    return Range(kind, value, value, may_be_null=False, may_be_nan=False, is_exact=True)


def _bound(value: Any) -> tuple[str, Any] | None:
    try:
        found = comparable(value)
    except ValueError:  # a time without a unit, or out of range
        return None
    return None if found is None or found[1] != found[1] else found


def arithmetic_range(left: Range, name: str, right: Range) -> Range:
    """The range of sums, differences and products of ints and floats; of anything else, that it may be null."""
    may_be_value = left.may_be_value and right.may_be_value
    may_be_null = left.may_be_null or right.may_be_null or name not in ("+", "-", "*")
    unknown = Range(may_be_null=may_be_null, may_be_value=may_be_value)
    ends = [left.low, left.high, right.low, right.high]
    if name not in ("+", "-", "*") or {left.kind, right.kind} != {"number"} or any(type(end) not in (int, float) for end in ends):
        return unknown
    # Rounding is monotonous, so what floats are rounded to at the corners bounds what they are rounded to in between.
    if name == "*":
        corners = [_product(one, other) for one in (left.low, left.high) for other in (right.low, right.high)]
    elif name == "+":
        corners = [_sum(left.low, right.low), _sum(left.high, right.high)]
    else:
        corners = [_sum(left.low, -right.high), _sum(left.high, -right.low)]
    if any(corner is None or corner != corner for corner in corners):
        return unknown
    with_floats = left.may_be_nan or right.may_be_nan or any(isinstance(end, float) for end in ends)
    return Range("number", min(corners), max(corners), may_be_null, may_be_value, with_floats, left.is_exact and right.is_exact)


def _sum(one: Any, other: Any) -> Any:
    try:
        return one + other
    except OverflowError:  # an int too large for a float
        return None


def _product(one: Any, other: Any) -> Any:
    try:
        return one * other
    except OverflowError:
        return None


def comparison_truths(left: Range, name: str, right: Range) -> frozenset[Truth]:
    """What ``left <name> right`` may be."""
    truths: set[Truth] = set()
    if left.may_be_null or right.may_be_null:
        truths.add(None)
    if not (left.may_be_value and right.may_be_value):
        # Where one side has no value at all, nothing is compared; without any rows, nothing is said.
        return frozenset(truths)
    if left.kind is None or left.kind != right.kind:  # if they cannot be compared, the values will show
        return frozenset(truths | {True, False})
    if left.may_be_nan or right.may_be_nan:
        truths.add(name == "!=")
    for truth, operator in ((True, name), (False, _OPPOSITES[name])):
        if _is_possible(left, operator, right):
            truths.add(truth)
    return frozenset(truths)


_OPPOSITES = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _is_possible(left: Range, name: str, right: Range) -> bool:
    """Whether ``a <name> b`` for some ``a`` and ``b`` between the bounds."""
    if name == "!=":
        return not (left.is_one_value and right.is_one_value and left.low == right.low)
    if name in ("<", "<="):
        return _may_be(left.low, name, right.high)
    if name in (">", ">="):
        return _may_be(left.high, name, right.low)
    return _may_be(left.low, "<=", right.high) and _may_be(left.high, ">=", right.low)


def _may_be(one: Any, name: str, other: Any) -> bool:
    return one is None or other is None or bool(OPERATORS[name](one, other))

"""Columns and single values such that they can be compared exactly, whatever types they came in.

Numbers compare as numbers: an int64 with a float, a decimal with an int, without a rounding in between (numpy's own comparison
takes 2**53 + 1 and 2.0**53 for equal). Times compare as points in time, whatever their units; those without a zone are UTC. A
time of day is the duration since midnight.
"""

from __future__ import annotations

import datetime
import decimal
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.formats.parquet.selecting.errors import PredicateError

__all__ = [
    "OPERATORS",
    "Bools",
    "Values",
    "arithmetic",
    "comparable",
    "compare",
    "compare_with",
    "objects",
    "shown_kind",
    "typed",
]

Bools = npt.NDArray[np.bool_]

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}

_SECOND = 10**18
_UNITS = {  # in attoseconds, the shortest unit that numpy has
    "W": 7 * 86_400 * _SECOND,
    "D": 86_400 * _SECOND,
    "h": 3_600 * _SECOND,
    "m": 60 * _SECOND,
    "s": _SECOND,
    "ms": 10**15,
    "us": 10**12,
    "ns": 10**9,
    "ps": 10**6,
    "fs": 10**3,
    "as": 1,
}
_EPOCH = datetime.datetime(1970, 1, 1)  # times without a zone are UTC
_FIRST_DAY = datetime.date(1970, 1, 1).toordinal()
_MICROSECOND = datetime.timedelta(microseconds=1)

_NUMPY_SCALARS = (np.number, np.bool_, np.datetime64)

_INT64 = np.iinfo(np.int64)
_EXACT_IN_FLOAT64 = 1 << 53

_KINDS = {
    "number": "a number",
    "text": "a text",
    "bytes": "bytes",
    "time": "a date or time",
    "duration": "a duration or time of day",
    "array": "a list or an array",
}


@dataclass(frozen=True)
class Values:
    """A column in a form that can be compared.

    Attributes:
        kind: "number", "text", "bytes", "time", "duration", "array", or "other: " and a class; None: all are null.
        array: shape (n,), or (1,) of one value that stands for all rows: integers or float64 of numbers, integers of times and
            durations, otherwise objects. Where there is a null, anything of the same type.
        nulls: where there are nulls, shape of ``array``; None if there are none.
        unit: of times and durations: what the number 1 stands for, in attoseconds.
    """

    kind: str | None
    array: npt.NDArray[Any]
    nulls: Bools | None = None
    unit: int = 1


def shown_kind(kind: str | None) -> str:
    """A kind in the words of a message."""
    if kind is None:
        return "null"
    return _KINDS.get(kind, kind.removeprefix("other: "))


def objects(items: Sequence[Any]) -> npt.NDArray[Any]:
    """An array of objects with these items, also if they are lists or arrays, which numpy would unfold. Shape (n,)."""
    array = np.empty(len(items), dtype=object)
    array[:] = items if all(isinstance(item, (str, bytes, int, float, type(None))) for item in items[:1]) else [None] * len(items)
    for position, item in enumerate(items):
        array[position] = item
    return array


def comparable(value: Any) -> tuple[str, Any] | None:
    """Kind and value in a form that compares exactly: Python's own, of times and durations ints of attoseconds. None: null."""
    if value is None:
        return None
    if isinstance(value, str):
        return "text", str(value)
    if isinstance(value, (bytes, bytearray)):
        return "bytes", bytes(value)
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return _numpy_time(value)
    if isinstance(value, (bool, int, np.bool_, np.integer)):
        return "number", int(value)
    if isinstance(value, (float, np.floating)):
        return "number", float(value)
    if isinstance(value, (Decimal, Fraction)):
        return "number", value
    if isinstance(value, datetime.datetime):
        return _time(value)
    if isinstance(value, datetime.date):
        return "time", (value.toordinal() - _FIRST_DAY) * _UNITS["D"]
    if isinstance(value, datetime.timedelta):
        return "duration", (value // _MICROSECOND) * _UNITS["us"] + getattr(value, "nanoseconds", 0) * _UNITS["ns"]
    if isinstance(value, datetime.time):
        seconds = value.hour * 3_600 + value.minute * 60 + value.second
        return "duration", seconds * _SECOND + value.microsecond * _UNITS["us"]
    if isinstance(value, (list, tuple, dict, set, frozenset, np.ndarray)):
        return "array", value
    return f"other: {type(value).__module__}.{type(value).__qualname__}", value


def _time(value: datetime.datetime) -> tuple[str, int] | None:
    if value != value:  # NaT of pandas, which is a datetime
        return None
    nanoseconds = getattr(value, "nanosecond", 0)  # pandas' are more exact than their base class
    if nanoseconds:
        value = value.replace(nanosecond=0)  # type: ignore[call-arg]
    if value.tzinfo is not None:
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return "time", ((value - _EPOCH) // _MICROSECOND) * _UNITS["us"] + nanoseconds * _UNITS["ns"]


def _numpy_time(value: Any) -> tuple[str, int] | None:
    if np.isnat(value):
        return None
    kind = "time" if isinstance(value, np.datetime64) else "duration"
    numbers, unit = _integers_of_times(np.array([value]))
    return kind, int(numbers[0]) * unit


def typed(column: npt.NDArray[Any]) -> Values:
    """A column as it comes from a dataset: shape (n,) of any dtype; of objects, None is null. NaT is null, NaN is a number."""
    array = np.asarray(column)
    if array.ndim != 1:
        return Values("array", array)
    kind = array.dtype.kind
    if kind == "b":
        return Values("number", array.view(np.uint8))
    if kind in "iu":
        return Values("number", array)
    if kind == "f":
        return Values("number", array.astype(np.float64, copy=False))
    if kind in "mM":
        nulls = np.isnat(array)
        if nulls.all() and len(array):
            return Values(None, array, nulls)
        numbers, unit = _integers_of_times(array)
        return Values("time" if kind == "M" else "duration", numbers, nulls if nulls.any() else None, unit)
    return _typed_objects(array.tolist() if kind in "OUS" else list(array))


def _integers_of_times(array: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], int]:
    name, count = np.datetime_data(array.dtype)
    if name in ("Y", "M") and array.dtype.kind == "M":
        array, name, count = array.astype("M8[D]"), "D", 1
    if name not in _UNITS:
        raise PredicateError(f"times of dtype {array.dtype} have no length that could be compared; give them a unit such as 'ms'")
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).view(np.int64), _UNITS[name] * count


def _typed_objects(items: list[Any]) -> Values:
    types = set(map(type, items))
    if not types:
        return Values(None, np.zeros(0, dtype=bool), np.zeros(0, dtype=bool))
    nulls = None
    if type(None) in types:
        nulls = np.fromiter((item is None for item in items), dtype=bool, count=len(items))
        types.discard(type(None))
        if not types:
            return Values(None, nulls, nulls)
        filler = next(item for item in items if item is not None)
        items = [filler if item is None else item for item in items]
    if types <= {bool}:
        return Values("number", np.array(items, dtype=np.uint8), nulls)
    if types <= {bool, int}:
        return Values("number", _integers(items), nulls)
    if types <= {float}:
        return Values("number", np.array(items, dtype=np.float64), nulls)
    for only, kind in ((str, "text"), (bytes, "bytes"), (Decimal, "number")):
        if types <= {only}:
            return Values(kind, objects(items), nulls)
    if types <= {datetime.date}:
        return Values("time", np.array(items, dtype="M8[D]").view(np.int64), nulls, _UNITS["D"])
    if types <= {datetime.datetime} and all(item.tzinfo is None for item in items):
        return Values("time", np.array(items, dtype="M8[us]").view(np.int64), nulls, _UNITS["us"])
    if len(types) == 1 and issubclass(next(iter(types)), _NUMPY_SCALARS):  # as columns of numbers and times that have nulls
        dtypes = {item.dtype for item in items}
        if len(dtypes) == 1:
            found = typed(np.array(items, dtype=dtypes.pop()))
            return Values(found.kind, found.array, _either(found.nulls, nulls), found.unit)
    return _typed_one_by_one(items, nulls)


def _typed_one_by_one(items: list[Any], nulls: Bools | None) -> Values:
    pairs = [comparable(item) for item in items]
    if None in pairs:  # NaT among objects
        more = np.fromiter((pair is None for pair in pairs), dtype=bool, count=len(pairs))
        nulls = more if nulls is None else nulls | more
        filler = next((pair for pair in pairs if pair is not None), None)
        if filler is None:
            return Values(None, nulls, nulls)
        pairs = [filler if pair is None else pair for pair in pairs]
    kinds = sorted({pair[0] for pair in pairs if pair is not None})
    if len(kinds) > 1:
        row = next(row for row, pair in enumerate(pairs) if pair is not None and pairs[0] is not None and pair[0] != pairs[0][0])
        raise PredicateError(f"it has {shown_kind(kinds[0])} and {shown_kind(kinds[1])}, so it cannot be compared", row)
    values = [pair[1] for pair in pairs if pair is not None]
    if kinds[0] == "number" and set(map(type, values)) <= {int}:
        return Values("number", _integers(values), nulls)
    if kinds[0] == "number" and set(map(type, values)) <= {float}:
        return Values("number", np.array(values, dtype=np.float64), nulls)
    return Values(kinds[0], objects(values), nulls)


def _integers(items: list[Any]) -> npt.NDArray[Any]:
    try:
        return np.array(items, dtype=np.int64)
    except OverflowError:
        return objects([int(item) for item in items])


# ---------------------------------------------------------------------- comparisons


def compare_with(values: Values, name: str, kind: str, value: Any) -> Bools:
    """``values <name> value`` for each row, of a value as :func:`comparable` gives it. Anything where there is a null.

    Raises:
        PredicateError: the two cannot be compared.
    """
    _check_kinds(values.kind, name, kind)
    array = values.array
    if values.unit != 1:
        value = Fraction(value, values.unit)
    if array.dtype.kind in "iu":
        return _integers_with(array, name, value)
    if array.dtype.kind == "f":
        return _floats_with(array, name, value)
    return _compared_objects(array, name, objects([value]))


def compare(left: Values, name: str, right: Values) -> Bools:
    """``left <name> right`` for each row, shapes (n,) or (1,). Anything where there is a null in one of them.

    Raises:
        PredicateError: the two cannot be compared.
    """
    _check_kinds(left.kind, name, right.kind)
    one, other = left.array, right.array
    if left.unit != right.unit:
        one, other = _in_attoseconds(left), _in_attoseconds(right)
    if not _exact_by_numpy(one, other):
        return _compared_objects(one.astype(object), name, other.astype(object))
    return np.asarray(OPERATORS[name](one, other), dtype=bool)


def _check_kinds(left: str | None, name: str, right: str | None) -> None:
    if left == "array" or right == "array":
        raise PredicateError(f"a list or an array has no {name}; use in_intersection, or apply() with a function of yours")
    if left != right:
        raise PredicateError(f"{shown_kind(left)} cannot be compared ({name}) with {shown_kind(right)}")


def _in_attoseconds(values: Values) -> npt.NDArray[Any]:
    return values.array.astype(object) * values.unit


def _exact_by_numpy(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    kinds = {one.dtype.kind, other.dtype.kind}
    if "O" in kinds:
        return False
    if kinds == {"i", "u"}:
        return bool(np.result_type(one, other).kind == "i")  # int64 and uint64 would meet in float64
    if "f" not in kinds or kinds == {"f"}:
        return True
    integers = one if one.dtype.kind in "iu" else other
    return _magnitude(integers) <= _EXACT_IN_FLOAT64


def _magnitude(array: npt.NDArray[Any]) -> int:
    return max(abs(int(array.min())), abs(int(array.max()))) if array.size else 0


def _compared_objects(one: npt.NDArray[Any], name: str, other: npt.NDArray[Any]) -> Bools:
    try:
        with decimal.localcontext() as context, np.errstate(all="ignore"):
            context.traps[decimal.InvalidOperation] = False  # a decimal and NaN: compares as other numbers do
            return np.asarray(OPERATORS[name](one, other), dtype=bool)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise PredicateError(f"values cannot be compared ({name}): {error}") from error


def _integers_with(array: npt.NDArray[Any], name: str, value: Any) -> Bools:
    if isinstance(value, (float, Decimal)) and not math.isfinite(value):
        return np.full(array.shape, bool(OPERATORS[name](0.0, float(value))))
    floor = math.floor(value)
    if floor != value:  # between two integers
        if name in ("==", "!="):
            return np.full(array.shape, name == "!=")
        name = "<=" if name in ("<", "<=") else ">"
    bounds = np.iinfo(array.dtype)
    if not bounds.min <= floor <= bounds.max:
        return np.full(array.shape, bool(OPERATORS[name](0, floor)))
    return np.asarray(OPERATORS[name](array, array.dtype.type(floor)), dtype=bool)


def _floats_with(array: npt.NDArray[Any], name: str, value: Any) -> Bools:
    try:
        nearest = float(value)
    except OverflowError:
        nearest = math.inf if value > 0 else -math.inf
    if nearest != value and nearest == nearest:  # between two floats, where no value lies
        if name in ("==", "!="):
            return np.full(array.shape, name == "!=")
        if nearest > value:
            name = "<" if name in ("<", "<=") else ">="
        else:
            name = "<=" if name in ("<", "<=") else ">"
    return np.asarray(OPERATORS[name](array, nearest), dtype=bool)


# ---------------------------------------------------------------------- arithmetic


def arithmetic(left: Values, name: str, right: Values) -> Values:
    """``left <name> right`` for each row: of numbers; of times and durations, differences and sums.

    Integers do not overflow: where int64 does not suffice, Python's own are taken. Floats are float64. What is divided by zero
    is null.

    Raises:
        PredicateError: the two cannot be combined so.
    """
    nulls = _either(left.nulls, right.nulls)
    if left.kind is None or right.kind is None:
        nothing = np.ones(np.broadcast_shapes(left.array.shape, right.array.shape), dtype=bool)
        return Values(None, nothing, nothing)
    if left.kind == right.kind == "number":
        return _of_numbers(left.array, name, right.array, nulls)
    kind = {
        ("time", "-", "time"): "duration",
        ("time", "-", "duration"): "time",
        ("time", "+", "duration"): "time",
        ("duration", "+", "time"): "time",
        ("duration", "+", "duration"): "duration",
        ("duration", "-", "duration"): "duration",
    }.get((left.kind, name, right.kind))
    if kind is None:
        raise PredicateError(f"{shown_kind(left.kind)} {name} {shown_kind(right.kind)} has no meaning")
    return Values(kind, _ARITHMETIC[name](_in_attoseconds(left), _in_attoseconds(right)), nulls)


def _either(one: Bools | None, other: Bools | None) -> Bools | None:
    if one is None or other is None:
        return other if one is None else one
    return np.asarray(one | other)


def _of_numbers(one: npt.NDArray[Any], name: str, other: npt.NDArray[Any], nulls: Bools | None) -> Values:
    if name in ("/", "//", "%"):
        zeros = np.asarray(other == 0, dtype=bool)
        if zeros.any():
            nulls = _either(np.broadcast_to(zeros, np.broadcast_shapes(one.shape, other.shape)), nulls)
            other = np.where(zeros, np.ones((), dtype=other.dtype) if other.dtype != object else 1, other)
    kinds = one.dtype.kind + other.dtype.kind
    if "O" in kinds or ("f" not in kinds and name != "/" and not _fits_int64(one, name, other)):
        one, other = one.astype(object), other.astype(object)
    elif "f" not in kinds and name != "/":
        one, other = one.astype(np.int64), other.astype(np.int64)
    else:
        one, other = one.astype(np.float64), other.astype(np.float64)
    try:
        with np.errstate(all="ignore"):
            made = np.asarray(_ARITHMETIC[name](one, other))
    except (TypeError, ArithmeticError) as error:
        raise PredicateError(f"numbers cannot be combined by {name}: {error}") from error
    return Values("number", made, nulls)


def _fits_int64(one: npt.NDArray[Any], name: str, other: npt.NDArray[Any]) -> bool:
    """Whether numbers and result fit: by the extremes of both, for sums and products reach theirs at extremes."""
    if not one.size or not other.size:
        return True
    ends = [(int(a), int(b)) for a in (one.min(), one.max()) for b in (other.min(), other.max())]
    made = [number for pair in ends for number in pair]
    if name in ("+", "-", "*"):
        made += [_ARITHMETIC[name](*pair) for pair in ends]
    elif name == "//":
        made += [-number for pair in ends for number in pair]  # the least int64 by -1
    return all(_INT64.min <= number <= _INT64.max for number in made)

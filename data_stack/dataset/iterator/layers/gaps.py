"""Gaps between the values of an ordered column, at which windows end."""

from __future__ import annotations

import numbers
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.contract import ColumnArray, ColumnKey
from data_stack.exception import ConfigError
from data_stack.values.times import comparable, ticks_of

Gap = Union[float, np.timedelta64, timedelta]
"""The largest difference of two values between which there is no gap."""

_Positions = npt.NDArray[np.intp]

_TIMES_OF_NUMPY = (np.datetime64, np.timedelta64)
_TIMES = (date, timedelta, *_TIMES_OF_NUMPY)


def check_gap(max_gap: Any, what: str = "max_gap") -> Any:
    """Return ``max_gap`` as a number, or as a ``timedelta64`` of numpy's.

    Args:
        max_gap: the largest difference that is no gap, at least 0.
        what: the name of the argument in an error.

    Raises:
        ConfigError: it is not such a number or span.
    """
    if isinstance(max_gap, timedelta):
        max_gap = np.timedelta64(max_gap)  # plain data for the recipe
    is_number = isinstance(max_gap, (numbers.Real, Decimal)) and not isinstance(max_gap, bool)
    is_span = isinstance(max_gap, np.timedelta64)
    if is_number or is_span:
        zero = type(max_gap)(0)
        if max_gap >= zero:  # false of NaN and NaT
            return max_gap
    raise ConfigError(f"{what} must be a number or timedelta of at least 0, got {max_gap!r:.80}")


def equals_last(values: ColumnArray) -> npt.NDArray[np.bool_]:
    """Return which values equal the one before, shape ``(n - 1,)``."""
    if values.dtype == object and values.ndim == 1:
        pairs = zip(values[1:], values[:-1], strict=True)
        return np.array([_are_equal(value, last) for value, last in pairs], dtype=bool)
    equals: npt.NDArray[np.bool_] = np.asarray(values[1:] == values[:-1], dtype=bool)
    if values.ndim == 1:
        return equals
    return np.asarray(equals.reshape(len(equals), -1).all(axis=1))


def _are_equal(value: Any, last: Any) -> bool:
    if isinstance(value, np.ndarray) or isinstance(last, np.ndarray):
        # They are compared item by item, and have one answer for each.
        return np.array_equal(value, last)
    return bool(value == last)


def exceeds_gap(
    values: ColumnArray,
    max_gap: Any,
    same_group: npt.NDArray[np.bool_],
    key: ColumnKey,
    order: _Positions,
) -> npt.NDArray[np.bool_]:
    """Return between which values there is a gap, shape ``(n - 1,)``.

    Args:
        values: ordered within each group, shape ``(n,)``.
        max_gap: as :func:`check_gap` returned it.
        same_group: which values are of the group of the one before, shape ``(n - 1,)``. Between two
            groups the answer means nothing.
        key: the column that errors name.
        order: the position in the iterator of each value, which errors name.

    Raises:
        ConfigError: values cannot be subtracted, or differences cannot be compared to ``max_gap``.
    """
    is_span = isinstance(max_gap, np.timedelta64)
    if not is_span and max_gap != 0 and _have_units(values):
        raise ConfigError(
            f"differences of the times in column {key!r} cannot be compared to {max_gap!r}, a "
            f"number without a unit: pass datetime.timedelta(seconds={max_gap!r}), or "
            f"np.timedelta64(…, 's')"
        )
    if values.ndim > 1 or values.dtype.kind in "OSUV":
        if is_span and any(isinstance(value, _TIMES_OF_NUMPY) for value in values):
            # The times may be of several units. As integers they are of one.
            values = np.fromiter(comparable(values.tolist()), object, len(values))
            _, max_gap = ticks_of(max_gap)
        return _objects_exceed(values, max_gap, same_group, key, order)
    if is_span:
        max_gap = _count_units(max_gap, values, key)
    if values.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):  # between infinities
            differences = np.diff(values.astype(np.float64))
    else:
        # The difference of an int64 and a larger one may not fit into an int64. It fits into an
        # uint64, and the subtraction of the same bits as uint64 has the right result.
        integer_type = np.uint64 if values.dtype.kind == "u" else np.int64
        differences = np.diff(values.astype(integer_type).view(np.uint64))
    return np.asarray(differences > max_gap, dtype=bool)


def _have_units(values: ColumnArray) -> bool:
    """Return whether any value is a time or a span of numpy's or Python's."""
    if values.dtype != object:
        return values.dtype.kind in "mM"
    return any(isinstance(value, _TIMES) for value in values.ravel())


def _count_units(max_gap: Any, values: ColumnArray, key: ColumnKey) -> int:
    """Return a span as a number of units of the dtype of ``values``, rounded down.

    Raises:
        ConfigError: ``values`` are no times, or months and days cannot be compared.
    """
    kind_of_gap, ticks_of_gap = ticks_of(max_gap)
    if values.dtype.kind in "mM":
        unit = np.array(1, values.dtype.str.replace("M8", "m8"))[()]
        kind_of_unit, ticks_of_unit = ticks_of(unit)
        if kind_of_unit == kind_of_gap:
            return ticks_of_gap // ticks_of_unit
    raise ConfigError(
        f"differences in column {key!r}, of dtype {values.dtype}, cannot be compared to {max_gap!r}"
    )


def _objects_exceed(
    values: ColumnArray,
    max_gap: Any,
    same_group: npt.NDArray[np.bool_],
    key: ColumnKey,
    order: _Positions,
) -> npt.NDArray[np.bool_]:
    """Return the answer of :func:`exceeds_gap` by Python's subtraction."""
    exceeds = np.zeros(len(values) - 1, dtype=bool)
    for number in np.flatnonzero(same_group).tolist():
        value = values[number]
        following = values[number + 1]
        try:
            is_within_gap = following - value <= max_gap
            exceeds[number] = not is_within_gap
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"column {key!r}: cannot compare {following!r:.60} - {value!r:.60}, at positions "
                f"{order[number + 1]} and {order[number]}, to a gap of {max_gap!r}"
            ) from error
    return exceeds

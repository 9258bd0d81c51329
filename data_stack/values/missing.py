"""Missing values: None, NaN, NaT, and what pandas has for them."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.values.stacked_values import stack_values
from data_stack.values.times import as_time

#: Classes whose objects stand for a missing value, by their names, so that pandas need not be
#: imported.
_CLASSES_OF_NULLS = ("NAType", "NaTType", "MaskedConstant")


def is_null(value: Any) -> bool:
    """Return whether a value is None, pandas' NA or NaT, or what numpy has for a masked entry."""
    return value is None or type(value).__name__ in _CLASSES_OF_NULLS


def is_missing(value: Any) -> bool:
    """Return whether a value is null, see :func:`is_null`, or unequal to itself, as NaN and NaT."""
    if is_null(value):
        return True
    if isinstance(value, (str, bytes, bool, int)):
        return False
    try:
        return bool(value != value)
    except Exception:  # noqa: BLE001  # foreign code; a value with several truths is not NaN
        return False


def missing_in(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which values of an array are missing: a mask of its shape.

    Numbers and times are missing if they are NaN or NaT, objects, shape ``(n,)``, if
    :func:`is_missing` says so. Values of other dtypes are never missing.
    """
    if values.dtype == object:
        return np.fromiter(map(is_missing, values), bool, len(values))
    if values.dtype.kind in "fc":
        return np.asarray(np.isnan(values))
    if values.dtype.kind in "mM":
        return np.asarray(np.isnat(values))
    return np.zeros(values.shape, bool)


def present_values(column: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return the values of a column that are not missing, and a mask of the missing ones.

    Of a column of objects the values are stacked, see
    :func:`~data_stack.values.stacked_values.stack_values`, so that numbers beside None are numbers.
    Dates and times of Python and pandas become numpy's, in UTC if they have a time zone.

    Args:
        column: shape ``(n, ...)``; of numpy's numbers and times ``(n,)``.

    Returns:
        The present values, and the mask, shape ``(n,)``, True for a missing value.
    """
    is_missing_at = missing_in(column)
    present = column[~is_missing_at]
    if column.dtype != object:
        return present, is_missing_at
    has_text = str in set(map(type, present))
    if has_text:
        return present, is_missing_at

    values = list(present)
    if all(isinstance(value, date) for value in values):
        values = [as_time(value) for value in values]
    return stack_values(values), is_missing_at

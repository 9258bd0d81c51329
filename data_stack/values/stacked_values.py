"""Values as one array that holds each of them exactly; missing values and one-hot rows of such arrays."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.values.exact import as_array, as_time, common_dtype

_Array = npt.NDArray[Any]

_NUMBERS = (bool, int, float, complex)
_PYTHON_NUMBERS = set(_NUMBERS)
_UNSTACKABLE = (ValueError, TypeError, OverflowError, RuntimeError)  # ragged, recursive, or tensors that numpy refuses
_NUMERIC_KINDS = "biufc"
_NULLS = ("NAType", "NaTType", "MaskedConstant")
_TIMES = (np.datetime64, np.timedelta64)
_EXACT_IN_FLOATS = 2**53  # floats hold all integers below
_SCALARS = {np.dtype(code).type for code in np.typecodes["AllInteger"] + np.typecodes["Float"] + np.typecodes["Complex"] + "?"}


def stack_values(values: Sequence[Any]) -> _Array:
    """Values as one array of shape ``(len(values), ...)`` that holds each of them exactly; of dtype object where no other does.

    Numbers, arrays, tensors and lists of numbers of one shape are stacked, times in the finest of their units. Python
    objects stay objects: strings and bytes (numpy's own would cut trailing zeros and take the longest value's memory for each),
    values without a common shape or dtype, arrays with masked entries, and all values of a column in which one would change: an
    integer beyond 2**53 beside floats, or beyond int64 beside signed integers, or a time that the finest unit does not hold.
    Records are stacked if they have one dtype.
    """
    if not values:
        return np.empty(0)
    types = set(map(type, values))
    if types <= _PYTHON_NUMBERS:
        numbers = _numbers(values, types)
        return objects(values) if numbers is None else numbers
    only = next(iter(types)) if len(types) == 1 else None
    if only in _SCALARS or (only in _TIMES and len({value.dtype for value in values}) == 1):
        return np.array(values)
    arrays = list(values) if only is np.ndarray else [exact_array(value) for value in values]
    stackable = [array for array in arrays if array is not None]
    if len(stackable) == len(arrays):
        return _stack_arrays(stackable, values)
    return objects(values)


def exact_array(value: Any) -> _Array | None:
    """A number, array, tensor or list of numbers as an array that holds it exactly; None for values without such an array."""
    if isinstance(value, (str, bytes)):
        return None
    if isinstance(value, _NUMBERS):
        return np.asarray(value)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        try:
            return as_array(value)
        except TypeError:  # a tensor of a dtype that numpy lacks
            return None
    if isinstance(value, (list, tuple)):
        try:
            column = stack_values(value)
        except _UNSTACKABLE:
            return None
        return column if column.dtype.kind in _NUMERIC_KINDS else None
    return None


def _numbers(values: Sequence[Any], types: set[type]) -> _Array | None:
    """Python's numbers, or lists of them, as an array that holds them exactly; None if it might not.

    Raises:
        ValueError: lists are of different lengths.
    """
    try:
        array = np.asarray(values)
    except OverflowError:
        return None
    if len(types) < 2:
        return array if array.dtype.kind in "iu" or int not in types else None
    if array.dtype.kind in "biu" or (array.dtype.kind in "fc" and np.abs(array).max() < _EXACT_IN_FLOATS):
        return array
    return None


def _stack_arrays(arrays: Sequence[_Array], values: Sequence[Any]) -> _Array:
    """Stack arrays of values into one array, or into one of objects."""
    dtype = common_dtype(arrays) if len({array.shape for array in arrays}) == 1 else None
    if dtype is None:
        pairs = zip(arrays, values, strict=True)
        return objects([array if array.ndim else value if isinstance(value, _NUMBERS) else array[()] for array, value in pairs])
    if arrays[0].ndim == 0 and dtype.kind in _NUMERIC_KINDS:
        return np.array(arrays, dtype=dtype)  # np.stack would first reshape each number
    if arrays[0].ndim == 0:
        return np.stack(arrays, dtype=dtype)
    shape = arrays[0].shape
    try:
        stacked = np.empty((len(arrays), *shape), dtype=dtype)
    except ValueError:  # numpy has no array of one dimension more, or none so large (of shape (0, 2**60), say)
        return objects(arrays)
    np.concatenate(arrays, out=stacked.reshape(len(arrays) * shape[0], *shape[1:]))  # np.stack takes three times as long
    return stacked


def objects(values: Sequence[Any]) -> _Array:
    """An array of dtype object and shape ``(len(values),)`` with the values themselves."""
    column = np.empty(len(values), dtype=object)
    for position, value in enumerate(values):  # one by one: numpy would expand sequences
        column[position] = value
    return column


def is_null(value: Any) -> bool:
    """Whether a value is None, pandas' NA or NaT, or what numpy has for a masked entry."""
    return value is None or type(value).__name__ in _NULLS


def is_missing(value: Any) -> bool:
    """Whether a value is null, see :func:`is_null`, or unequal to itself, as NaN and NaT."""
    if is_null(value):
        return True
    if isinstance(value, (str, bytes, bool, int)):
        return False
    try:
        return bool(value != value)
    except Exception:  # noqa: BLE001  # foreign code; a value with several truths is not NaN
        return False


def missing_in(values: _Array) -> npt.NDArray[np.bool_]:
    """Which values are NaN or NaT, or, of objects of shape ``(n,)``, missing as :func:`is_missing` says."""
    if values.dtype == object:
        return np.fromiter(map(is_missing, values), bool, len(values))
    if values.dtype.kind in "fc":
        return np.isnan(values)
    return np.isnat(values) if values.dtype.kind in "mM" else np.zeros(values.shape, bool)


def present_values(column: _Array) -> tuple[_Array, npt.NDArray[np.bool_]]:
    """The values of a column that are not missing, and which values are.

    Of a column of objects the values are stacked, see :func:`stack_values`, so that numbers beside None are numbers. Dates and
    times of Python and pandas become numpy's, in UTC if they have a time zone.

    Args:
        column: shape ``(n, ...)``; of numpy's numbers and times ``(n,)``.
    """
    missing = missing_in(column)
    present: Any = column[~missing]
    if column.dtype != object or str in set(map(type, present)):
        return present, missing
    if len(present) and all(isinstance(value, datetime.date) for value in present):
        present = map(as_time, present)
    return stack_values(list(present)), missing


def one_hot_positions(rows: _Array) -> npt.NDArray[np.intp] | None:
    """Where the one is in each row, if rows of shape ``(n, k)``, k > 1, are all one-hot."""
    if rows.dtype.kind not in "biuf" or rows.ndim != 2 or rows.shape[1] < 2:
        return None
    is_one = rows == 1
    if not ((is_one | (rows == 0)).all() and (is_one.sum(axis=1) == 1).all()):
        return None
    return np.asarray(is_one.argmax(axis=1))

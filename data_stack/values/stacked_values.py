"""Values as one array that holds each of them exactly.

No number is rounded, no time overflows, and no masked entry is exposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.values.large_arrays import empty_array
from data_stack.values.times import in_unit

_Array = npt.NDArray[Any]

_NUMBERS = (bool, int, float, complex)
_PYTHON_NUMBERS = set(_NUMBERS)
_TIMES = (np.datetime64, np.timedelta64)
_NUMERIC_KINDS = "biufc"

_CODES_OF_NUMBERS = (
    np.typecodes["AllInteger"] + np.typecodes["Float"] + np.typecodes["Complex"] + "?"
)

#: The scalar types of numpy's numbers.
_SCALARS = {np.dtype(code).type for code in _CODES_OF_NUMBERS}

#: float64 holds all integers below this exactly.
_EXACT_IN_FLOATS = 2**53

#: What stacking raises for ragged or recursive lists, and for tensors that numpy refuses.
_UNSTACKABLE = (ValueError, TypeError, OverflowError, RuntimeError)


# ------------------------------------------------------------------------------ arrays and scalars


def as_array(values: Any) -> _Array:
    """Return an array or tensor as a numpy array, without a copy where its memory can be shared.

    Raises:
        TypeError: a tensor of a dtype that numpy lacks, such as bfloat16; or an array with masked
            entries.
    """
    if type(values) is np.ndarray:
        return values
    # Only an array of another class may be masked. (Naming np.ma imports it, which takes 50 ms.)
    if isinstance(values, np.ndarray) and _has_masked_entries(values):
        raise TypeError(
            "masked entries would lose their mask; "
            "fill the array first, or keep the mask in a column of its own"
        )
    is_tensor = hasattr(values, "detach")
    if is_tensor:
        # Outside of the graph, in the host's memory.
        values = values.detach().cpu()
        # numpy does not know that a tensor is conjugated or negated lazily.
        if values.is_conj() or values.is_neg():
            values = values.resolve_conj().resolve_neg()
    return np.asarray(values)


def _has_masked_entries(array: _Array) -> bool:
    if not isinstance(array, np.ma.MaskedArray):
        return False
    # The mask of records is an array of records, so its bytes are looked at.
    return b"\1" in np.ma.getmaskarray(array).tobytes()


def python_values(values: Any) -> Any:
    """Return scalars of numpy's, one or an array of them, as Python's.

    Times stay numpy's, for Python has none of nanoseconds.
    """
    if values.dtype.kind not in "mM":
        return values.tolist()
    return list(values) if values.ndim else values[()]


def objects(values: Sequence[Any]) -> _Array:
    """Return an array of dtype object and shape ``(len(values),)`` with the values themselves."""
    column = np.empty(len(values), dtype=object)
    # One by one: numpy would expand sequences.
    for position, value in enumerate(values):
        column[position] = value
    return column


def keeps_dtype(column: _Array) -> bool:
    """Return whether the values of a column, stacked again, have the dtype of the column."""
    return column.dtype.isnative and column.dtype.kind in "biufcmM"


def one_hot_positions(rows: _Array) -> npt.NDArray[np.intp] | None:
    """Return where the one is in each row, if all rows are one-hot.

    Args:
        rows: shape ``(n, k)``.

    Returns:
        The positions, shape ``(n,)``; None if a row is not one-hot, or k < 2.
    """
    if rows.dtype.kind not in "biuf" or rows.ndim != 2 or rows.shape[1] < 2:
        return None
    is_one = rows == 1
    is_zero = rows == 0
    has_other_values = not (is_one | is_zero).all()
    if has_other_values or not (is_one.sum(axis=1) == 1).all():
        return None
    return np.asarray(is_one.argmax(axis=1))


# ------------------------------------------------------------------------------------- common dtype


def common_dtype(arrays: Sequence[_Array]) -> np.dtype[Any] | None:
    """Return the dtype that holds the values of all arrays exactly; None if only object does.

    The values are looked at only where arrays have several dtypes, of which numpy's common one
    might round or wrap.
    """
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) == 1:
        return next(iter(dtypes))
    kinds = {dtype.kind for dtype in dtypes}
    if kinds <= set(_NUMERIC_KINDS):
        return _common_number(arrays, dtypes)
    if kinds in ({"M"}, {"m"}):
        return _common_time(arrays, dtypes)
    if kinds in ({"S"}, {"U"}):
        return np.result_type(*dtypes)
    return None


def _common_number(arrays: Sequence[_Array], dtypes: set[np.dtype[Any]]) -> np.dtype[Any] | None:
    common: np.dtype[Any] = np.result_type(*dtypes)
    if common.kind not in "fc":
        return common
    has_floats = any(dtype.kind in "fc" for dtype in dtypes)
    if not has_floats:
        # numpy meets int64 and uint64 in float64, which rounds.
        return None
    max_exact = 2 ** (np.finfo(common).nmant + 1)
    for dtype in dtypes:
        may_be_rounded = dtype.kind in "iu" and np.iinfo(dtype).max > max_exact
        if may_be_rounded and not _are_within(_values_of(arrays, dtype), max_exact):
            return None
    return common


def _are_within(values: _Array, limit: int) -> bool:
    """Return whether the absolute values of integers are at most ``limit``."""
    if not len(values):
        return True
    return int(values.max()) <= limit and int(values.min()) >= -limit


def _common_time(arrays: Sequence[_Array], dtypes: set[np.dtype[Any]]) -> np.dtype[Any] | None:
    for dtype in dtypes:
        unit, _ = np.datetime_data(dtype)
        # A number without a unit is not a time; NaT is.
        if unit == "generic" and not np.isnat(_values_of(arrays, dtype)).all():
            return None
    try:
        finest = np.result_type(*dtypes)
        for dtype in dtypes:
            if in_unit(_values_of(arrays, dtype), finest) is None:
                return None
    except (TypeError, OverflowError):
        # Months have no number of days; no unit is fine enough; or the units are too far apart.
        return None
    return finest


def _values_of(arrays: Sequence[_Array], dtype: np.dtype[Any]) -> _Array:
    """Return the values of the arrays of that dtype, shape ``(n,)``."""
    return np.concatenate([array.reshape(-1) for array in arrays if array.dtype == dtype])


# ----------------------------------------------------------------------------------------- stacking


def stack_values(values: Sequence[Any]) -> _Array:
    """Return values as one array of shape ``(len(values), ...)`` that holds each of them exactly.

    Numbers, arrays, tensors and lists of numbers of one shape are stacked, times in the finest of
    their units. Records are stacked if they have one dtype.

    The array is one of objects where no other holds the values: for strings and bytes (numpy's own
    would cut trailing zeros and take the longest value's memory for each), values without a common
    shape or dtype, arrays with masked entries, and all values of a column in which one would
    change: an integer beyond 2**53 beside floats, or beyond int64 beside signed integers, or a time
    that the finest unit does not hold.
    """
    if not values:
        return np.empty(0)
    types = set(map(type, values))

    # The most frequent types come first: Python's numbers, then scalars of one type.
    if types <= _PYTHON_NUMBERS:
        numbers = _stack_numbers(values, types)
        return objects(values) if numbers is None else numbers
    only_type = next(iter(types)) if len(types) == 1 else None
    if only_type in _SCALARS:
        return np.array(values)
    if only_type in _TIMES and len({value.dtype for value in values}) == 1:
        return np.array(values)

    arrays: list[Any] = list(values)
    if only_type is not np.ndarray:
        arrays = [exact_array(value) for value in values]
    if any(array is None for array in arrays):
        return objects(values)
    if list in types or tuple in types:
        arrays = _with_typed_empty_lists(arrays, values)
    return _stack_arrays(arrays, values)


def exact_array(value: Any) -> _Array | None:
    """Return a number, array, tensor or list of numbers as an array that holds it exactly.

    Returns:
        The array; None for values without such an array.
    """
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


def _with_typed_empty_lists(arrays: list[_Array], values: Sequence[Any]) -> list[_Array]:
    """Return the arrays, those of empty lists in the dtype of the others.

    numpy makes floats of empty lists. They stay floats where the others have several dtypes, or
    where there are no others.
    """
    is_empty_list = [
        isinstance(value, (list, tuple)) and not array.size
        for array, value in zip(arrays, values, strict=True)
    ]
    other_dtypes = {
        array.dtype for array, is_empty in zip(arrays, is_empty_list, strict=True) if not is_empty
    }
    if not any(is_empty_list) or len(other_dtypes) != 1:
        return arrays
    dtype = other_dtypes.pop()
    return [
        array.astype(dtype) if is_empty else array
        for array, is_empty in zip(arrays, is_empty_list, strict=True)
    ]


def _stack_numbers(values: Sequence[Any], types: set[type]) -> _Array | None:
    """Return Python's numbers as an array that holds them exactly; None if there is none."""
    try:
        array = np.asarray(values)
    except OverflowError:
        return None
    kind = array.dtype.kind
    if len(types) == 1:
        # numpy makes floats or objects of integers that int64 and uint64 do not hold.
        is_exact = int not in types or kind in "iu"
    elif kind in "biu":
        is_exact = True
    else:
        is_exact = kind in "fc" and _are_integers_exact_in_floats(values, array)
    return array if is_exact else None


def _are_integers_exact_in_floats(values: Sequence[Any], floats: _Array) -> bool:
    """Return whether float64 holds all integers among some numbers.

    Args:
        values: Python's numbers.
        floats: the same numbers as floats.
    """
    # Mostly all numbers are small, which is seen at once. NaN and infinity are not small.
    if np.abs(floats).max() < _EXACT_IN_FLOATS:
        return True
    return all(abs(value) < _EXACT_IN_FLOATS for value in values if type(value) is int)


def _stack_arrays(arrays: Sequence[_Array], values: Sequence[Any]) -> _Array:
    """Stack arrays into one array, or into one of objects.

    Args:
        arrays: an array for each value.
        values: the values.
    """
    has_one_shape = len({array.shape for array in arrays}) == 1
    dtype = common_dtype(arrays) if has_one_shape else None
    if dtype is None:
        items = [_as_object(array, value) for array, value in zip(arrays, values, strict=True)]
        return objects(items)

    shape = arrays[0].shape
    if not shape:
        if dtype.kind in _NUMERIC_KINDS:
            return np.array(arrays, dtype=dtype)  # np.stack would first reshape each number
        return np.stack(arrays, dtype=dtype)
    try:
        stacked = empty_array((len(arrays), *shape), dtype)
    except ValueError:
        # numpy has no array of one dimension more, or none so large (of shape (0, 2**60), say).
        return objects(arrays)
    # np.stack takes three times as long.
    joined = stacked.reshape(len(arrays) * shape[0], *shape[1:])
    np.concatenate(arrays, out=joined)
    return stacked


def _as_object(array: _Array, value: Any) -> Any:
    """Return a value as it stands in an array of objects: a number of Python's stays one."""
    if array.ndim:
        return array
    if isinstance(value, _NUMBERS):
        return value
    return array[()]

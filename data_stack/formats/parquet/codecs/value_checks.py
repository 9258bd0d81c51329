"""Checks that values have a field's dtype and shape."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.fitting import check_shape, fit_array
from data_stack.formats.parquet.codecs.times import same_time
from data_stack.formats.parquet.types import FieldLike, dtype_name, numpy_dtype
from data_stack.values.stacked_values import as_array, exact_array

#: The types of scalars, by the kind of the dtype; other kinds take any value.
_TYPES_BY_KIND: Final[dict[str, tuple[type, ...]]] = {
    "U": (str,),
    "S": (bytes, bytearray, memoryview),
    "b": (bool, np.bool_),
    "i": (int, np.integer),
    "u": (int, np.integer),
    "f": (int, float, np.integer, np.floating),
}
_TYPES_OF_DECIMALS: Final = (Decimal, int, np.integer)


def is_none_or_nat(value: Any) -> bool:
    """Whether a value is None or ``NaT``. NaN is a number."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    return value is None or type(value).__name__ == "NaTType"  # of pandas


def show_value(value: Any) -> str:
    """Return the type and the beginning of a value, for messages."""
    return f"{type(value).__name__} {value!r:.60}"


def check_scalar(field: FieldLike, value: Any, *, is_instant: bool = False) -> Any:
    """Check a scalar of the field's dtype, and convert it for ``pyarrow.array``.

    Numbers may have any dtype if they fit.

    Args:
        field: the field of the value.
        value: any value that is not null.
        is_instant: whether the times of the column are instants, where a datetime without a time
            zone counts as UTC; otherwise none has a time zone.

    Raises:
        TypeError, ValueError: the value does not fit.
    """
    if isinstance(value, np.ndarray) or hasattr(value, "detach"):
        array = as_array(value)
        if array.shape != ():
            raise ValueError(f"expected a scalar, got an array of shape {array.shape}")
        value = array[()]
    if field.dtype is Decimal:
        return _check_decimal(field, value)
    dtype = numpy_dtype(field.dtype)
    if dtype.kind in "mM":
        return _check_time(value, dtype, is_instant=is_instant)
    types = _TYPES_BY_KIND.get(dtype.kind)
    if types is None:
        return value
    _check_type(field, value, types, takes_bools=dtype.kind == "b")
    if dtype.kind == "U":
        return str(value)
    if dtype.kind == "S":
        return bytes(value)
    return _check_number(value, dtype)


def _check_decimal(field: FieldLike, value: Any) -> Decimal:
    if isinstance(value, Decimal) and not value.is_finite():
        raise ValueError(f"Parquet cannot store {value}; pass None for a missing value")
    _check_type(field, value, _TYPES_OF_DECIMALS, takes_bools=False)
    if isinstance(value, Decimal):
        return value
    return Decimal(int(value))


def _check_type(
    field: FieldLike, value: Any, types: tuple[type, ...], *, takes_bools: bool
) -> None:
    """Check the type of a scalar.

    A bool is an integer to Python, and a duration is one to numpy; neither is a number here.

    Raises:
        TypeError: it is another.
    """
    is_of_types = isinstance(value, types)
    is_other_integer = isinstance(value, np.timedelta64) or (
        isinstance(value, bool) and not takes_bools
    )
    if not is_of_types or is_other_integer:
        raise TypeError(
            f"expected a value of dtype {dtype_name(field.dtype)}, got {show_value(value)}"
        )


def check_array(field: FieldLike, value: Any) -> npt.NDArray[Any]:
    """Convert a value to an array of the field's dtype and shape; also text and times.

    See :func:`~data_stack.codecs.fitting.fit_array`.

    Raises:
        TypeError, ValueError: the value does not fit.
    """
    dtype = numpy_dtype(field.dtype)
    has_dtype = (
        hasattr(value, "__array__")
        or hasattr(value, "__array_interface__")
        or hasattr(value, "detach")
    )
    if dtype.kind in "US":
        text = as_array(value) if has_dtype else np.asarray(value, object)
        text = _check_text(text, dtype.kind)
        check_shape(text.shape, field.shape)
        return text
    if not has_dtype:
        if dtype.kind in "mM":
            value = _array_of_times(value, dtype)
        elif _is_rounded_by_numpy(value):
            raise ValueError(f"no dtype holds the numbers {value!r:.60} exactly")
    array = fit_array(value, None, field.shape)
    if array.dtype.kind == "b" and dtype.kind in "iufc" and array.size:
        raise TypeError(f"expected an array of {dtype}, got truth values")
    return fit_array(value, dtype, field.shape)


def _is_rounded_by_numpy(numbers: Any) -> bool:
    """Whether numpy makes floats of lists with integers that these do not hold."""
    return exact_array(numbers) is None and np.asarray(numbers).dtype.kind in "fc"


def _check_text(array: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    """Convert an array to one of numpy strings; ``kind`` is "U" for text, "S" for bytes.

    Raises:
        TypeError, ValueError: an element is no text, or numpy would change it.
    """
    if array.dtype.kind == kind:
        if array.dtype.isnative:
            return array
        return array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind == "T" and kind == "U":  # variable-length strings of numpy
        return array.astype(np.str_)
    expected = str if kind == "U" else bytes
    if array.dtype != object:
        raise TypeError(f"expected an array of {expected.__name__}, got dtype {array.dtype}")
    elements = array.reshape(-1).tolist()
    for element in elements:
        if not isinstance(element, expected):
            raise TypeError(f"expected an array of {expected.__name__}, got {show_value(element)}")
        if element[-1:] in ("\0", b"\0"):
            raise ValueError(f"numpy would drop the zeros at the end of {element!r:.60}")
    return np.array(elements, np.dtype(kind)).reshape(array.shape)


def _check_number(value: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a number to a dtype that holds it. Only a float of Python may be rounded.

    Raises:
        ValueError: the dtype does not hold it.
    """
    if isinstance(value, np.integer):
        # Python compares integers with floats exactly, numpy rounds them first
        value = value.item()
    try:
        with np.errstate(over="ignore"):
            number = np.array(value).astype(dtype).item()
    except OverflowError as error:
        raise ValueError(_does_not_fit(value, dtype)) from error
    is_nan = value != value
    may_be_rounded = type(value) is float and math.isfinite(number)
    if number != value and not is_nan and not may_be_rounded:
        raise ValueError(_does_not_fit(value, dtype))
    return number


def _does_not_fit(value: Any, dtype: np.dtype[Any]) -> str:
    return f"{show_value(value)} does not fit into dtype {dtype}"


def _check_time(value: Any, dtype: np.dtype[Any], *, is_instant: bool = False) -> Any:
    """Convert a time or duration of Python, pandas or numpy to a dtype that holds it exactly.

    Raises:
        TypeError, ValueError: the dtype does not hold it.
    """
    if isinstance(value, datetime.time):
        value = _time_since_midnight(value)
    elif isinstance(value, datetime.datetime):
        value = _without_zone(value, is_instant=is_instant)
    if hasattr(value, "to_numpy"):  # of pandas: in nanoseconds
        value = value.to_numpy()
    elif isinstance(value, datetime.date):
        value = np.datetime64(value)
    elif isinstance(value, datetime.timedelta):
        value = np.timedelta64(value)
    if not isinstance(value, dtype.type):
        raise TypeError(f"expected a time of dtype {dtype}, got {show_value(value)}")
    return same_time(value, dtype)


def _time_since_midnight(time: datetime.time) -> datetime.timedelta:
    if time.tzinfo is not None:
        raise ValueError(f"{show_value(time)} has a time zone, which a time of day would lose")
    return datetime.datetime.combine(datetime.date.min, time) - datetime.datetime.min


def _without_zone(time: datetime.datetime, *, is_instant: bool) -> datetime.datetime:
    """Return a datetime in UTC for a column of instants.

    For a column of times without a zone it is unchanged.

    Raises:
        ValueError: it has a time zone, and the column has none.
    """
    if time.tzinfo is None:
        return time
    if not is_instant:
        raise ValueError(
            f"{show_value(time)} has a time zone in a column of times without one: "
            "give all values a zone, or declare the column as instants, ScalarCodec('timestamp')"
        )
    return time.astimezone(datetime.timezone.utc).replace(tzinfo=None)


def _array_of_times(values: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Convert lists of times to an array; numpy alone would cut noon to the day."""
    objects = np.asarray(values, object)
    times = [_check_time(value, dtype) for value in objects.reshape(-1).tolist()]
    return np.array(times, dtype).reshape(objects.shape)

"""Values as one array that holds each of them exactly: no rounded numbers, no overflow of times, no exposed masked entries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import numpy.typing as npt

_Array = npt.NDArray[Any]

_NUMBERS = (bool, int, float, complex)
_PYTHON_NUMBERS = set(_NUMBERS)
_UNSTACKABLE = (
    ValueError,
    TypeError,
    OverflowError,
    RuntimeError,
)  # ragged, recursive, or tensors that numpy refuses
_NULLS = ("NAType", "NaTType", "MaskedConstant")
_TIMES = (np.datetime64, np.timedelta64)
_EXACT_IN_FLOATS = 2**53  # floats hold all integers below
_SCALARS = {
    np.dtype(code).type
    for code in np.typecodes["AllInteger"] + np.typecodes["Float"] + np.typecodes["Complex"] + "?"
}
_NUMERIC_KINDS = "biufc"
_SECONDS = {"W": 7 * 86_400, "D": 86_400, "h": 3_600, "m": 60, "s": 1}
_A_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
_MONTHS_OF_A_CYCLE, _DAYS_OF_A_CYCLE = 4_800, 146_097  # the calendar repeats every 400 years


def as_array(values: Any) -> _Array:
    """An array or tensor as a numpy array, without a copy where its memory can be shared.

    Raises:
        TypeError: a tensor of a dtype that numpy lacks, such as bfloat16; or an array with masked entries.
    """
    if type(values) is np.ndarray:
        return values
    is_array = isinstance(
        values, np.ndarray
    )  # asked first: np.ma is imported when it is named, in 50 ms
    if (
        is_array
        and isinstance(values, np.ma.MaskedArray)
        and b"\1" in np.ma.getmaskarray(values).tobytes()
    ):  # also of records
        raise TypeError(
            "masked entries would lose their mask; fill the array first, or keep the mask in a column of its own"
        )
    if hasattr(values, "detach"):  # a tensor: outside of the graph, in the host's memory
        values = values.detach().cpu()
        if (
            values.is_conj() or values.is_neg()
        ):  # lazily conjugated or negated, which numpy does not know
            values = values.resolve_conj().resolve_neg()
    return np.asarray(values)


def common_dtype(arrays: Sequence[_Array]) -> np.dtype[Any] | None:
    """The dtype that holds the values of all arrays exactly; None if only object does.

    The values are looked at only where arrays have several dtypes, of which numpy's common one might round or wrap.
    """
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) == 1:
        return next(iter(dtypes))
    kinds = {dtype.kind for dtype in dtypes}
    if kinds <= set(_NUMERIC_KINDS):
        return _common_number(arrays, dtypes)
    if kinds in ({"M"}, {"m"}):
        return _common_time(arrays, dtypes)
    return np.result_type(*dtypes) if kinds in ({"S"}, {"U"}) else None


def _common_number(arrays: Sequence[_Array], dtypes: set[np.dtype[Any]]) -> np.dtype[Any] | None:
    common: np.dtype[Any] = np.result_type(*dtypes)
    if common.kind not in "fc":
        return common
    if not any(
        dtype.kind in "fc" for dtype in dtypes
    ):  # numpy meets int64 and uint64 in float64, which rounds
        return None
    exact = 2 ** (np.finfo(common).nmant + 1)
    for dtype in dtypes:
        if dtype.kind in "iu" and np.iinfo(dtype).max > exact:
            values = _values_of(arrays, dtype)
            if len(values) and (int(values.max()) > exact or int(values.min()) < -exact):
                return None
    return common


def _common_time(arrays: Sequence[_Array], dtypes: set[np.dtype[Any]]) -> np.dtype[Any] | None:
    without_unit = [dtype for dtype in dtypes if np.datetime_data(dtype)[0] == "generic"]
    if any(
        not np.isnat(_values_of(arrays, dtype)).all() for dtype in without_unit
    ):  # a number without a unit is not a time
        return None
    try:
        finest = np.result_type(*dtypes)
        return (
            finest
            if all(in_unit(_values_of(arrays, each), finest) is not None for each in dtypes)
            else None
        )
    except (
        TypeError,
        OverflowError,
    ):  # months have no number of days; no unit is fine enough; the units are too far apart
        return None


def in_unit(times: _Array, dtype: np.dtype[Any]) -> _Array | None:
    """The same times in another unit; None if one of them would overflow or be rounded."""
    converted = times.astype(dtype)
    return (
        converted
        if bool(((converted.astype(times.dtype) == times) | np.isnat(times)).all())
        else None
    )


def _values_of(arrays: Sequence[_Array], dtype: np.dtype[Any]) -> _Array:
    """The values of the arrays of that dtype, shape ``(n,)``."""
    return np.concatenate([array.reshape(-1) for array in arrays if array.dtype == dtype])


def python_values(values: Any) -> Any:
    """Scalars of numpy's, one or an array of them, as Python's; times stay numpy's, for Python has none of nanoseconds."""
    if values.dtype.kind in "mM":
        return list(values) if values.ndim else values[()]
    return values.tolist()


def as_time(value: date | timedelta) -> Any:
    """A date, time or span of Python's or pandas' as numpy's; in UTC if it has a time zone."""
    to_numpy = getattr(value, "to_datetime64", None) or getattr(
        value, "to_timedelta64", None
    )  # pandas' are more exact
    if to_numpy is not None:
        return to_numpy()
    if isinstance(value, timedelta):
        return np.timedelta64(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(timezone.utc).replace(tzinfo=None)
    return np.datetime64(value)


def ticks_of(time: Any) -> tuple[str, int]:
    """A datetime64 or timedelta64 other than NaT as its unit and its number of these units.

    Returns:
        ``("as", n)``: attoseconds, since 1970 or as a span; ``("M", n)`` months, ``("", n)`` ticks of no unit, of spans only.
    """
    unit, count = np.datetime_data(time.dtype)
    ticks = int(time.astype(time.dtype.newbyteorder("=")).view(np.int64)) * count
    if unit == "generic":
        return "", ticks
    if unit in ("Y", "M"):
        months = ticks * (12 if unit == "Y" else 1)
        if time.dtype.kind == "m":
            return "M", months
        cycles, rest = divmod(months, _MONTHS_OF_A_CYCLE)
        days = (
            int(np.datetime64(rest, "M").astype("M8[D]").view(np.int64)) + cycles * _DAYS_OF_A_CYCLE
        )
        return "as", days * 86_400 * 10**18
    return "as", ticks * (
        _SECONDS[unit] * 10**18 if unit in _SECONDS else 10**18 // _A_SECOND[unit]
    )


def comparable(values: Sequence[Any]) -> list[Any]:
    """The same values, in tuples and lists too, but times of numpy's as integers that compare as they should.

    Datetimes with a time zone are in UTC, see :func:`in_utc`.

    Values that are not such times, NaT, and spans in months, which have no number of days, stay as they are.
    """
    return [_comparable(value) for value in values]


def in_utc(value: Any) -> Any:
    """A datetime with a time zone as the same instant in UTC; any other value as it is.

    Python compares and subtracts two datetimes of one zone by the clock on the wall, which shows an hour twice in autumn, and
    jumps over one in spring.
    """
    if not isinstance(value, datetime) or value.tzinfo is None or value.utcoffset() is None:
        return value
    try:
        return value.astimezone(timezone.utc)
    except (
        OverflowError
    ):  # in the first or the last hours that Python knows; no zone changes its clock then
        return value


def _comparable(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(map(_comparable, value)) if type(value) in (tuple, list) else value
    if isinstance(value, datetime):
        return in_utc(value)
    if not isinstance(value, (np.datetime64, np.timedelta64)) or np.isnat(value):
        return value
    counted_in, ticks = ticks_of(value)
    return ticks if counted_in == "as" else value


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
    arrays: list[Any] = list(values) if only is np.ndarray else list(map(exact_array, values))
    if any(array is None for array in arrays):
        return objects(values)
    if list in types or tuple in types:
        arrays = _with_typed_empty_lists(arrays, values)
    return _stack_arrays(arrays, values)


def _with_typed_empty_lists(arrays: list[_Array], values: Sequence[Any]) -> list[_Array]:
    """The arrays, those of empty lists in the dtype of the others: numpy makes floats of them.

    They keep their dtype where the others have several dtypes, or there are none.
    """
    is_empty = [
        isinstance(value, (list, tuple)) and not array.size
        for array, value in zip(arrays, values, strict=True)
    ]
    dtypes = {array.dtype for array, empty in zip(arrays, is_empty, strict=True) if not empty}
    if not any(is_empty) or len(dtypes) != 1:
        return arrays
    dtype = dtypes.pop()
    return [
        array.astype(dtype) if empty else array
        for array, empty in zip(arrays, is_empty, strict=True)
    ]


def keeps_dtype(column: _Array) -> bool:
    """Whether the values of a column, stacked again, have the dtype of the column."""
    return column.dtype.isnative and column.dtype.kind in "biufcmM"


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
        is_exact = array.dtype.kind in "iu" or int not in types
    else:
        is_exact = array.dtype.kind in "biu" or (
            array.dtype.kind in "fc" and bool(np.abs(array).max() < _EXACT_IN_FLOATS)
        )
    return array if is_exact else None


def _stack_arrays(arrays: Sequence[_Array], values: Sequence[Any]) -> _Array:
    """Stack arrays of values into one array, or into one of objects."""
    dtype = common_dtype(arrays) if len({array.shape for array in arrays}) == 1 else None
    if dtype is None:
        pairs = zip(arrays, values, strict=True)
        return objects(
            [
                array if array.ndim else value if isinstance(value, _NUMBERS) else array[()]
                for array, value in pairs
            ]
        )
    if arrays[0].ndim == 0 and dtype.kind in _NUMERIC_KINDS:
        return np.array(arrays, dtype=dtype)  # np.stack would first reshape each number
    if arrays[0].ndim == 0:
        return np.stack(arrays, dtype=dtype)
    shape = arrays[0].shape
    try:
        stacked = np.empty((len(arrays), *shape), dtype=dtype)
    except (
        ValueError
    ):  # numpy has no array of one dimension more, or none so large (of shape (0, 2**60), say)
        return objects(arrays)
    np.concatenate(
        arrays, out=stacked.reshape(len(arrays) * shape[0], *shape[1:])
    )  # np.stack takes three times as long
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
    if len(present) and all(isinstance(value, date) for value in present):
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

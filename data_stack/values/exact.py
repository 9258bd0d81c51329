"""Exact conversions to numpy's arrays: no rounded numbers, no overflow of times, no exposed masked entries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import numpy.typing as npt

_Array = npt.NDArray[Any]

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
    is_array = isinstance(values, np.ndarray)  # asked first: np.ma is imported when it is named, in 50 ms
    if is_array and isinstance(values, np.ma.MaskedArray) and b"\1" in np.ma.getmaskarray(values).tobytes():  # also of records
        raise TypeError("masked entries would lose their mask; fill the array first, or keep the mask in a column of its own")
    if hasattr(values, "detach"):  # a tensor: outside of the graph, in the host's memory
        values = values.detach().cpu()
        if values.is_conj() or values.is_neg():  # lazily conjugated or negated, which numpy does not know
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
    if not any(dtype.kind in "fc" for dtype in dtypes):  # numpy meets int64 and uint64 in float64, which rounds
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
    if any(not np.isnat(_values_of(arrays, dtype)).all() for dtype in without_unit):  # a number without a unit is not a time
        return None
    try:
        finest = np.result_type(*dtypes)
        return finest if all(in_unit(_values_of(arrays, each), finest) is not None for each in dtypes) else None
    except (TypeError, OverflowError):  # months have no number of days; no unit is fine enough; the units are too far apart
        return None


def in_unit(times: _Array, dtype: np.dtype[Any]) -> _Array | None:
    """The same times in another unit; None if one of them would overflow or be rounded."""
    converted = times.astype(dtype)
    return converted if bool(((converted.astype(times.dtype) == times) | np.isnat(times)).all()) else None


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
    to_numpy = getattr(value, "to_datetime64", None) or getattr(value, "to_timedelta64", None)  # pandas' are more exact
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
        days = int(np.datetime64(rest, "M").astype("M8[D]").view(np.int64)) + cycles * _DAYS_OF_A_CYCLE
        return "as", days * 86_400 * 10**18
    return "as", ticks * (_SECONDS[unit] * 10**18 if unit in _SECONDS else 10**18 // _A_SECOND[unit])


def comparable(values: Sequence[Any]) -> list[Any]:
    """The same values, in tuples and lists too, but times of numpy's as integers that compare as they should.

    Values that are not such times, NaT, and spans in months, which have no number of days, stay as they are.
    """
    return [_comparable(value) for value in values]


def _comparable(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(map(_comparable, value)) if type(value) in (tuple, list) else value
    if not isinstance(value, (np.datetime64, np.timedelta64)) or np.isnat(value):
        return value
    counted_in, ticks = ticks_of(value)
    return ticks if counted_in == "as" else value

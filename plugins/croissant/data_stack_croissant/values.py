"""Converts values of files to the data types that the fields of a document declare."""

from __future__ import annotations

import datetime
import json
import re
from decimal import Decimal
from typing import Any, Final

import numpy as np

from data_stack.codecs.fitting import as_dtype
from data_stack.values.times import as_time
from data_stack_croissant.json_path import find_in_json, parse_path

#: The errors of a value that has another form than its field declares.
UNFIT: Final = (TypeError, ValueError, OverflowError, LookupError, AttributeError, RecursionError)

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
#: A date or time of ISO 8601, and its zone.
_TIME: Final = re.compile(
    r"""(?P<time>[+-]?[0-9]{4,}(?:-[0-9]{2}(?:-[0-9]{2})?)?)
    | (?P<zoned>[+-]?[0-9]{4,}-[0-9]{2}-[0-9]{2}[T ]
        [0-9]{2}(?::[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?)?)
      (?:Z | (?P<sign>[+-])(?P<hours>[0-9]{2}):?(?P<minutes>[0-9]{2})?)?""",
    re.ASCII | re.VERBOSE,
)
_TRUTH_VALUES: Final = {"true": True, "false": False}
_N_NUMBERS_OF_BOX: Final = 4


def transform_value(transform: Any, value: Any) -> Any:
    """Return a value after a transform of mlcroissant.

    Those with a ``regex`` or ``replace`` are applied to many values at a time, see
    :func:`~data_stack_croissant.patterns.rewrite_texts`.
    """
    if transform.json_path is not None:
        parsed = json.loads(value) if isinstance(value, (str, bytes)) else value
        values = find_in_json(parsed, parse_path(transform.json_path))
        return values[0] if values else None
    if transform.format is not None:
        if isinstance(value, str):
            return datetime.datetime.strptime(value, transform.format)
        return value
    return text_of(value).split(transform.separator)


def text_of(value: Any) -> str:
    """Return a value as text; bytes are UTF-8."""
    return value.decode() if isinstance(value, bytes) else str(value)


def cast_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a value in the dtype that a document declares.

    It is equal to the value that is given, or to the one that a text says. A float may be rounded
    to fewer digits, where it stays finite. A time with a zone is the instant in UTC.

    Raises:
        ValueError, TypeError, LookupError, OverflowError: it is invalid, or does not fit.
    """
    if dtype.kind == "U":
        if isinstance(value, (list, np.ndarray, dict)):
            raise TypeError("it has several values, but the field is not an array")
        return text_of(value)
    if dtype.kind == "S":
        # The media columns of Hugging Face have the bytes of a file beside its path.
        return value["bytes"] if isinstance(value, dict) else value
    if dtype.kind == "M":
        return _cast_time(value, dtype)
    if dtype.kind == "m":
        return _cast_time_of_day(value, dtype)
    if dtype.kind == "b" and isinstance(value, str):
        return _TRUTH_VALUES[value.lower()]
    if isinstance(value, (list, np.ndarray)):
        return value
    return _cast_number(value, dtype)


def _cast_number(value: Any, dtype: np.dtype[Any]) -> Any:
    number = _number_of(value)
    if dtype.kind == "b":
        if number not in (0, 1):
            raise ValueError(f"{number} is no truth value")
        return np.bool_(number)
    return as_dtype(np.asarray(number), dtype, rounds=True, whole_floats=True)[()]


def _number_of(value: Any) -> Any:
    """Return a number, or the one that a text says.

    Raises:
        TypeError, ValueError: the value is neither.
    """
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, Decimal):
        return _number_of(str(value))
    if isinstance(value, (str, bytes)):
        text = text_of(value).strip()
        if "_" in text:  # Python's own notation, not one of data
            raise ValueError(f"{text!r:.80} is no number")
        return int(text) if _INTEGER.fullmatch(text) else float(text)
    # For numpy, a duration is a number.
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, np.timedelta64)
    if not is_number:
        raise TypeError(f"a number is expected, not {type(value).__name__}")
    return value


def _cast_time(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, str):
        time, ahead_of_utc = _parse_time(value)
        return (as_dtype(np.asarray(time), dtype) - ahead_of_utc)[()]
    if not isinstance(value, (datetime.date, np.datetime64)):
        raise TypeError(f"a time is expected, not {type(value).__name__}: a number has no unit")
    time = value if isinstance(value, np.datetime64) else as_time(value)
    return as_dtype(np.asarray(time), dtype)[()]


def _parse_time(text: str) -> tuple[np.datetime64, np.timedelta64]:
    """Return a time as written, and how much its zone is ahead of UTC."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r:.80} is no time")
    minutes_ahead = 60 * int(match["hours"] or 0) + int(match["minutes"] or 0)
    if match["sign"] == "-":
        minutes_ahead = -minutes_ahead
    return np.datetime64(match["time"] or match["zoned"]), np.timedelta64(minutes_ahead, "m")


def _cast_time_of_day(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a time of day as the duration since midnight, as Parquet's times are read."""
    time = datetime.time.fromisoformat(value) if isinstance(value, str) else value
    if isinstance(time, datetime.time):
        if time.tzinfo is not None:
            raise ValueError("a time of day with a zone would lose it")
        time_on_first_day = datetime.datetime.combine(datetime.date.min, time)
        time = time_on_first_day - datetime.datetime.min
    if not isinstance(time, (datetime.timedelta, np.timedelta64)):
        raise TypeError(f"a time of day is expected, not {type(value).__name__}")
    duration = time if isinstance(time, np.timedelta64) else as_time(time)
    return as_dtype(np.asarray(duration), dtype)[()]


def bounding_box(value: Any) -> np.ndarray[Any, Any]:
    """Return four float64 numbers, of a list or of text with spaces.

    Raises:
        ValueError, TypeError: there are not four.
    """
    numbers = value.split() if isinstance(value, str) else value
    box = np.asarray(numbers, np.float64)
    if box.shape != (_N_NUMBERS_OF_BOX,):
        raise ValueError(f"a bounding box has 4 numbers, not the shape {box.shape}")
    return box

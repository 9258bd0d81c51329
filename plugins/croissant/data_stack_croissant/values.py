"""Converts values of files to the data types that fields of a document declare."""

from __future__ import annotations

import datetime
import json
import re
from decimal import Decimal
from typing import Any, Final

import numpy as np

from data_stack.codecs.fitting import as_dtype
from data_stack.values.text_numbers import float_of
from data_stack.values.times import as_time
from data_stack_croissant.json_path import find_in_json, parse_path

#: The errors for a value that has another form than its field declares. LookupError and
#: AttributeError are those of a value that is no dict or list where one is expected.
UNFIT: Final = (TypeError, ValueError, OverflowError, LookupError, AttributeError, RecursionError)

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
#: A date of ISO 8601, such as ``2024``, ``2024-01`` or ``2024-01-31``; or a date and time, such as
#: ``2024-01-31T12:30:00.5+02:00``, perhaps with a zone.
_TIME: Final = re.compile(
    r"""
      (?P<date> [+-]?[0-9]{4,} (?: -[0-9]{2} (?: -[0-9]{2} )? )? )
    | (?P<date_and_time>
          [+-]?[0-9]{4,}-[0-9]{2}-[0-9]{2}
          [T ]
          [0-9]{2} (?: :[0-9]{2} (?: :[0-9]{2} (?: \.[0-9]+ )? )? )?
      )
      (?: Z | (?P<sign> [+-] ) (?P<hours> [01][0-9]|2[0-3] ) :? (?P<minutes> [0-5][0-9] )? )?
    """,
    re.ASCII | re.VERBOSE,
)
_TRUTH_VALUES: Final = {"true": True, "false": False}
_N_NUMBERS_OF_BOX: Final = 4


def transform_value(transform: Any, value: Any) -> Any:
    """Return a value after a transform of mlcroissant: a JSONPath, a format, or a separator.

    A ``regex`` or ``replace`` is applied to many values at a time, see
    :func:`~data_stack_croissant.patterns.rewrite_texts`.
    """
    if transform.json_path is not None:
        if isinstance(value, (str, bytes)):
            value = json.loads(value)
        values = find_in_json(value, parse_path(transform.json_path))
        return values[0] if values else None
    if transform.format is not None:
        if isinstance(value, str):
            return datetime.datetime.strptime(value, transform.format)
        return value
    return text_of(value).split(transform.separator)


def text_of(value: Any) -> str:
    """Return a value as text. Bytes are decoded as UTF-8."""
    if isinstance(value, bytes):
        return value.decode()
    return str(value)


def cast_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a value in the dtype that a document declares.

    The result is equal to the value, or to what a text says. Only fractions may be rounded, and
    they stay finite. A time with a zone becomes the instant in UTC.

    Args:
        value: a value as a file has it: of Python or numpy, or a text.
        dtype: the declared dtype.

    Raises:
        ValueError, TypeError, LookupError, OverflowError: the value is invalid, or does not fit
            into the dtype.
    """
    if dtype.kind == "U":
        if isinstance(value, (list, np.ndarray, dict)):
            raise TypeError("it has several values, but the field is not an array")
        return text_of(value)
    if dtype.kind == "S":
        # The media columns of Hugging Face have a dict with the bytes of a file and its path.
        if isinstance(value, dict):
            return value["bytes"]
        return value
    if dtype.kind == "M":
        return _cast_time(value, dtype)
    if dtype.kind == "m":
        return _cast_time_of_day(value, dtype)
    if dtype.kind == "b" and isinstance(value, str):
        truth_value = _TRUTH_VALUES.get(value.lower())
        if truth_value is None:
            raise ValueError(f"{value!r:.80} is no truth value")
        return truth_value
    if isinstance(value, (list, np.ndarray)):
        return value
    return _cast_number(value, dtype)


def _cast_number(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a value as a number or truth value of a dtype."""
    number = _number_of(value)
    if dtype.kind == "b":
        if number not in (0, 1):
            raise ValueError(f"{number} is no truth value")
        return np.bool_(number)
    return as_dtype(np.asarray(number), dtype, rounds=True, whole_floats=True)[()]


def _number_of(value: Any) -> Any:
    """Return a number, or the number that a text says.

    Raises:
        TypeError: the value is neither a number nor a text.
        ValueError: the text says no number, or one that float64 does not have.
    """
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, Decimal):
        return _number_of(str(value))
    if isinstance(value, (str, bytes)):
        return _parse_number(text_of(value).strip())
    is_number = isinstance(value, (int, float, np.number))
    is_duration = isinstance(value, np.timedelta64)  # which is a number for numpy
    if not is_number or is_duration:
        raise TypeError(f"a number is expected, not {type(value).__name__}")
    return value


def _parse_number(text: str) -> int | float:
    """Return the number that a text says.

    Raises:
        ValueError: the text says no number, or one that float64 does not have, such as ``1e400``.
    """
    if _INTEGER.fullmatch(text):
        return int(text)
    number = float_of(text)
    if number is None:
        raise ValueError(f"{text!r:.80} is no number, or none that float64 has")
    return number


def _cast_time(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a date or time as a datetime64 in UTC."""
    if isinstance(value, str):
        parsed_time, ahead_of_utc = _parse_time(value)
        return (as_dtype(np.asarray(parsed_time), dtype) - ahead_of_utc)[()]
    if not isinstance(value, (datetime.date, np.datetime64)):
        raise TypeError(f"a time is expected, not {type(value).__name__}: a number has no unit")
    time: Any = value
    if not isinstance(value, np.datetime64):
        time = as_time(value)
    return as_dtype(np.asarray(time), dtype)[()]


def _parse_time(text: str) -> tuple[np.datetime64, np.timedelta64]:
    """Return the time that a text says, and how much its zone is ahead of UTC.

    Raises:
        ValueError: the text says no time.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r:.80} is no time")
    minutes_ahead = 60 * int(match["hours"] or 0) + int(match["minutes"] or 0)
    if match["sign"] == "-":
        minutes_ahead = -minutes_ahead
    time = np.datetime64(match["date"] or match["date_and_time"])
    return time, np.timedelta64(minutes_ahead, "m")


def _cast_time_of_day(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a time of day as the duration since midnight, as times of Parquet are read."""
    time = value
    if isinstance(value, str):
        time = datetime.time.fromisoformat(value)
    if isinstance(time, datetime.time):
        if time.tzinfo is not None:
            raise ValueError("a time of day with a zone would lose it")
        time_on_first_day = datetime.datetime.combine(datetime.date.min, time)
        time = time_on_first_day - datetime.datetime.min
    if not isinstance(time, (datetime.timedelta, np.timedelta64)):
        raise TypeError(f"a time of day is expected, not {type(value).__name__}")
    duration = time
    if not isinstance(time, np.timedelta64):
        duration = as_time(time)
    return as_dtype(np.asarray(duration), dtype)[()]


def bounding_box(value: Any) -> np.ndarray[Any, Any]:
    """Return a bounding box as a float64 array of shape ``(4,)``.

    Args:
        value: a list of four numbers, or a text of four numbers with spaces between them.

    Raises:
        ValueError, TypeError: the value is not four numbers.
    """
    numbers = value
    if isinstance(value, (str, bytes)):
        numbers = text_of(value).split()
    if len(numbers) != _N_NUMBERS_OF_BOX:
        raise ValueError(f"a bounding box has {_N_NUMBERS_OF_BOX} numbers, not {len(numbers)}")
    float64 = np.dtype(np.float64)
    return np.asarray([_cast_number(number, float64) for number in numbers], float64)

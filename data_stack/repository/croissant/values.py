"""Values of files as the fields of a document declare them: paths into JSON, transforms, regular expressions, data types."""

from __future__ import annotations

import datetime
import io
import json
import os
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any, Final

import numpy as np

from data_stack.codecs.fitting import as_dtype
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.processes.isolation import ISOLATION, run_apart
from data_stack.values.times import as_time

#: Limit of processor time for the texts of one run.
MAX_SECONDS: Final = 10.0
#: Texts of one run, in characters; a longer text is a run of its own.
_RUN_LENGTH: Final = 1 << 18
#: What comes back of a run has a limit of bytes.
MAX_TEXT_LENGTH: Final = 1 << 21


def rewrite_texts(
    texts: Iterable[str], pattern: str, replacement: str | None, where: str
) -> dict[str, str]:
    """Each text after a ``regex`` of Croissant, or its ``replace``.

    A text becomes the first group that matches at its start; without a match it stays as it is.

    Args:
        texts: distinct ones.
        pattern: a regular expression of Python.
        replacement: for all its matches; None for a ``regex``.
        where: the field, for messages.

    Raises:
        DatasetFileCorruptError: the pattern is malformed, or takes too much time or memory; a text is too long.
    """
    rewritten: dict[str, str] = {}
    is_off = os.environ.get(ISOLATION, "").strip().lower() in ("off", "0")
    for run in _runs(texts, where):
        data = json.dumps(run).encode()
        how: dict[str, Any] = {
            "name": "texts",
            "size": len(data),
            "seconds": MAX_SECONDS,
            "read_at": partial(_part_of, data),
        }
        try:
            if is_off:
                found = rewrite(io.BytesIO(data), pattern, replacement)
            else:
                found = run_apart(f"{__name__}:rewrite", [pattern, replacement], **how)
        except DatasetFileCorruptError as error:
            raise DatasetFileCorruptError(
                f"the regular expression {pattern!r:.200} of {where} cannot be applied to {run[0]!r:.80} or a text after it: it "
                f"is malformed, or takes more than {MAX_SECONDS:g} s of processor time or too much memory. Ask the document's "
                f"publisher to correct it; if you trust it, set the environment variable {ISOLATION}=off ({error!s:.300})"
            ) from error
        rewritten.update(zip(run, found, strict=True))
    return rewritten


def _runs(texts: Iterable[str], where: str) -> Iterator[list[str]]:
    run, length = list[str](), 0
    for text in texts:
        if len(text) > MAX_TEXT_LENGTH:
            limit = f"at most {MAX_TEXT_LENGTH:,} are read"
            raise DatasetFileCorruptError(
                f"{where} has a regular expression for a text of {len(text):,} characters: {limit}"
            )
        if run and length + len(text) > _RUN_LENGTH:
            yield run
            run, length = [], 0
        run.append(text)
        length += len(text)
    if run:
        yield run


def _part_of(data: bytes, start: int, size: int) -> bytes:
    return data[start : start + size]


def rewrite(file: Any, pattern: str, replacement: str | None) -> list[str]:
    """The same of texts in JSON; runs in the other process."""
    try:
        compiled = re.compile(pattern)
        texts = json.loads(file.read())
        if replacement is not None:
            return [compiled.sub(replacement, text) for text in texts]
        matches = [compiled.match(text) for text in texts]
    except (re.error, RecursionError, OverflowError, LookupError) as error:
        raise DatasetFileCorruptError(f"{type(error).__name__}: {error!s:.200}") from error
    firsts = [
        next((group for group in match.groups() if group is not None), None) if match else None
        for match in matches
    ]
    return [text if first is None else first for text, first in zip(texts, firsts, strict=True)]


_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
#: A date or time of ISO 8601, and its zone.
_TIME: Final = re.compile(
    r"""(?P<time>[+-]?[0-9]{4,}(?:-[0-9]{2}(?:-[0-9]{2})?)?)
    | (?P<zoned>[+-]?[0-9]{4,}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}(?::[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?)?)
      (?:Z | (?P<sign>[+-])(?P<hours>[0-9]{2}):?(?P<minutes>[0-9]{2})?)?""",
    re.ASCII | re.VERBOSE,
)
#: Longer regular expressions, globs and paths of documents are refused.
MAX_PATTERN_LENGTH: Final = 1000
#: The errors of a value that has another form than its field declares.
UNFIT: Final = (TypeError, ValueError, OverflowError, LookupError, AttributeError, RecursionError)

_Steps = tuple[tuple[str, Any], ...]
_STEP: Final = re.compile(
    r"""(?P<below>\.\.(?P<name_below>[\w@][\w@-]*)) | (?P<all>\.?\[\*\]|\.?\*) | \.?\[(?P<index>\d{1,9})\]
    | \.?\[(?P<quote>['"])(?P<quoted>[^'"]+)(?P=quote)\] | \.?(?P<name>[\w@][\w@-]*)""",
    re.VERBOSE,
)


def parse_path(path: str) -> _Steps:
    """The steps of a JSONPath: ``$.a.b[*]['c'][0]``, and ``..name`` once.

    Filters, slices and scripts of JSONPath are not read; what is, takes time in proportion to the file.

    Raises:
        ConfigError: it has other steps.
    """
    rest, steps, position = path.strip().removeprefix("$"), list[tuple[str, Any]](), 0
    while position < len(rest) <= MAX_PATTERN_LENGTH and (match := _STEP.match(rest, position)):
        kind = str(match.lastgroup)
        if kind in ("below", "name_below"):
            steps.append(("below", match["name_below"]))
        elif kind == "index":
            steps.append(("index", int(match["index"])))
        else:
            steps.append(
                ("all", None) if kind == "all" else ("name", match["quoted"] or match["name"])
            )
        position = match.end()
    if position < len(rest) or sum(kind == "below" for kind, _ in steps) > 1:
        raise ConfigError(
            f"the JSONPath {path!r:.200}: only names, [*], [0] and one ..name are read"
        )
    return tuple(steps)


def find_in_json(value: Any, steps: _Steps) -> list[Any]:
    """What a path leads to, in the order of the document."""
    found = [value]
    for kind, what in steps:
        if kind == "all":
            found = [each for value in found for each in _children(value)]
        elif kind == "below":
            found = [
                each[what]
                for value in found
                for each in _descend(value)
                if isinstance(each, dict) and what in each
            ]
        elif kind == "index":
            found = [
                value[what]
                for value in found
                if isinstance(value, (list, np.ndarray)) and what < len(value)
            ]
        else:
            found = [value[what] for value in found if isinstance(value, dict) and what in value]
    return found


def _children(value: Any) -> list[Any]:
    return (
        list(value.values() if isinstance(value, dict) else value)
        if isinstance(value, (dict, list, np.ndarray))
        else [value]
    )


def _descend(value: Any) -> Iterator[Any]:
    """A value and all below it, each before what it contains."""
    waiting = [value]
    while waiting:
        yield (each := waiting.pop())
        if isinstance(each, (dict, list)):
            waiting.extend(reversed(_children(each)))


def transform_value(transform: Any, value: Any) -> Any:
    """A value after a transform of mlcroissant other than ``regex`` and ``replace``, see :mod:`.patterns` for these."""
    if transform.json_path is not None:
        found = find_in_json(
            json.loads(value) if isinstance(value, (str, bytes)) else value,
            parse_path(transform.json_path),
        )
        return found[0] if found else None
    if transform.format is not None:
        return (
            datetime.datetime.strptime(value, transform.format) if isinstance(value, str) else value
        )
    return text_of(value).split(transform.separator)


def text_of(value: Any) -> str:
    """A value as text; bytes are UTF-8."""
    return value.decode() if isinstance(value, bytes) else str(value)


def cast_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """A value of the dtype that a document declares; equal to the one that is given, and to what a text says.

    A float may be rounded to fewer digits, where it stays finite. A time with a zone is the instant in UTC.

    Raises:
        ValueError, TypeError, LookupError, OverflowError: it is invalid, or does not fit.
    """
    if dtype.kind == "U":
        if isinstance(value, (list, np.ndarray, dict)):
            raise TypeError("it has several values, but the field is not an array")
        return text_of(value)
    if dtype.kind == "S":
        return value["bytes"] if isinstance(value, dict) else value
    if dtype.kind == "M":
        return _cast_time(value, dtype)
    if dtype.kind == "m":
        return _cast_time_of_day(value, dtype)
    if dtype.kind == "b" and isinstance(value, str):
        return {"true": True, "false": False}[value.lower()]
    return value if isinstance(value, (list, np.ndarray)) else _cast_number(value, dtype)


def _cast_number(value: Any, dtype: np.dtype[Any]) -> Any:
    number = _number_of(value)
    if dtype.kind == "b":
        if number not in (0, 1):
            raise ValueError(f"{number} is no truth value")
        return np.bool_(number)
    return as_dtype(np.asarray(number), dtype, rounds=True, whole_floats=True)[()]


def _number_of(value: Any) -> Any:
    """A number, or the one that a text says.

    Raises:
        TypeError, ValueError: it is neither.
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
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, np.timedelta64)
    if not is_number:
        raise TypeError(f"a number is expected, not {type(value).__name__}")
    return value


def _cast_time(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, str):
        time, offset = _time_of_text(value)
        return (as_dtype(np.asarray(time), dtype) - offset)[()]
    if not isinstance(value, (datetime.date, np.datetime64)):
        raise TypeError(f"a time is expected, not {type(value).__name__}: a number has no unit")
    time = value if isinstance(value, np.datetime64) else as_time(value)
    return as_dtype(np.asarray(time), dtype)[()]


def _time_of_text(text: str) -> tuple[np.datetime64, np.timedelta64]:
    """A time as written, and how much its zone is ahead of UTC."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r:.80} is no time")
    sign = -1 if match["sign"] == "-" else 1
    minutes = 60 * int(match["hours"] or 0) + int(match["minutes"] or 0)
    return np.datetime64(match["time"] or match["zoned"]), np.timedelta64(sign * minutes, "m")


def _cast_time_of_day(value: Any, dtype: np.dtype[Any]) -> Any:
    time = datetime.time.fromisoformat(value) if isinstance(value, str) else value
    if isinstance(time, datetime.time):  # since midnight, as Parquet's times are read
        if time.tzinfo is not None:
            raise ValueError("a time of day with a zone would lose it")
        midnight = datetime.datetime.combine(datetime.date.min, time)
        time = midnight - datetime.datetime.min
    if not isinstance(time, (datetime.timedelta, np.timedelta64)):
        raise TypeError(f"a time of day is expected, not {type(value).__name__}")
    span = time if isinstance(time, np.timedelta64) else as_time(time)
    return as_dtype(np.asarray(span), dtype)[()]


def bounding_box(value: Any) -> np.ndarray[Any, Any]:
    """Four float64 numbers, of a list or of text with spaces.

    Raises:
        ValueError, TypeError: there are not four.
    """
    box = np.asarray(value.split() if isinstance(value, str) else value, np.float64)
    if box.shape != (4,):
        raise ValueError(f"a bounding box has 4 numbers, not the shape {box.shape}")
    return box

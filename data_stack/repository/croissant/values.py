"""Values of files as the fields of a document declare them: paths into JSON, transforms, data types."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from data_stack.exception import ConfigError

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
    rest, steps = path.strip().removeprefix("$"), list[tuple[str, Any]]()
    position = 0
    while position < len(rest) <= MAX_PATTERN_LENGTH and (match := _STEP.match(rest, position)):
        kind = str(match.lastgroup)
        if kind in ("below", "name_below"):
            steps.append(("below", match["name_below"]))
        elif kind == "index":
            steps.append(("index", int(match["index"])))
        else:
            steps.append(("all", None) if kind == "all" else ("name", match["quoted"] or match["name"]))
        position = match.end()
    if position < len(rest) or sum(kind == "below" for kind, _ in steps) > 1:
        raise ConfigError(f"the JSONPath {path!r:.200}: only names, [*], [0] and one ..name are read")
    return tuple(steps)


def find_in_json(value: Any, steps: _Steps) -> list[Any]:
    """What a path leads to, in the order of the document."""
    found = [value]
    for kind, what in steps:
        if kind == "all":
            found = [each for value in found for each in _children(value)]
        elif kind == "below":
            found = [each[what] for value in found for each in _descend(value) if isinstance(each, dict) and what in each]
        elif kind == "index":
            found = [value[what] for value in found if isinstance(value, (list, np.ndarray)) and what < len(value)]
        else:
            found = [value[what] for value in found if isinstance(value, dict) and what in value]
    return found


def _children(value: Any) -> list[Any]:
    return list(value.values() if isinstance(value, dict) else value) if isinstance(value, (dict, list, np.ndarray)) else [value]


def _descend(value: Any) -> Iterator[Any]:
    """A value and all below it, each before what it contains."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        yield each
        if isinstance(each, (dict, list)):
            waiting.extend(reversed(list(each.values()) if isinstance(each, dict) else each))


def transform_value(transform: Any, value: Any) -> Any:
    """A value after a transform of mlcroissant other than ``regex`` and ``replace``, see :mod:`.patterns` for these."""
    if transform.json_path is not None:
        found = find_in_json(json.loads(value) if isinstance(value, (str, bytes)) else value, parse_path(transform.json_path))
        return found[0] if found else None
    if transform.format is not None:
        return datetime.datetime.strptime(value, transform.format) if isinstance(value, str) else value
    return text_of(value).split(transform.separator)


def text_of(value: Any) -> str:
    """A value as text; bytes are UTF-8."""
    return value.decode() if isinstance(value, bytes) else str(value)


def cast_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """A value of the dtype that a document declares.

    Raises:
        ValueError, TypeError, LookupError, OverflowError: it is invalid.
    """
    if dtype.kind == "U":
        if isinstance(value, (list, np.ndarray, dict)):
            raise TypeError("it has several values, but the field is not an array")
        return text_of(value)
    if dtype.kind == "S":
        return value["bytes"] if isinstance(value, dict) else value
    if dtype.kind == "M":
        return np.datetime64(value, "us")
    if dtype.kind == "m":
        return _time_of_day(value)
    if dtype.kind == "b" and isinstance(value, str):
        return {"true": True, "false": False}[value.lower()]
    return value if isinstance(value, (list, np.ndarray)) else dtype.type(value)


def _time_of_day(value: Any) -> np.timedelta64:
    """The time since midnight, as Parquet's times are read."""
    time = datetime.time.fromisoformat(value) if isinstance(value, str) else value
    if isinstance(time, datetime.time):
        time = datetime.timedelta(hours=time.hour, minutes=time.minute, seconds=time.second, microseconds=time.microsecond)
    return np.timedelta64(time, "us")


def bounding_box(value: Any) -> np.ndarray[Any, Any]:
    """Four float64 numbers, of a list or of text with spaces.

    Raises:
        ValueError, TypeError: there are not four.
    """
    box = np.asarray(value.split() if isinstance(value, str) else value, np.float64)
    if box.shape != (4,):
        raise ValueError(f"a bounding box has 4 numbers, not the shape {box.shape}")
    return box

"""Columns of ARFF files (https://waikato.github.io/weka-wiki/formats_and_processing/arff_stable), with exact values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import arff
import pyarrow as pa

_HEADER: Final = re.compile(
    r"""^(?P<start>\s*@attribute\s+(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s'"{},%]+)\s+)(?P<type>[^\s{]\S*)(?P<rest>.*)$""",
    re.IGNORECASE,
)
_NUMBERS: Final = ("numeric", "real", "integer")
_ISO: Final = "yyyy-MM-dd'T'HH:mm:ss"
#: Parts of patterns of Java's SimpleDateFormat, with those of strptime.
_PATTERN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_DATE_PARTS: Final = {
    "y": "%Y", "yy": "%y", "yyyy": "%Y", "M": "%m", "MM": "%m", "MMM": "%b", "MMMM": "%B", "d": "%d", "dd": "%d", "D": "%j",
    "DDD": "%j", "H": "%H", "HH": "%H", "h": "%I", "hh": "%I", "m": "%M", "mm": "%M", "s": "%S", "ss": "%S", "SSS": "%f",
    "a": "%p", "E": "%a", "EEE": "%a", "EEEE": "%A", "Z": "%z", "X": "%z", "XX": "%z", "XXX": "%z",
}  # fmt: skip


@dataclass(frozen=True)
class Attribute:
    """A column of an ARFF file.

    Attributes:
        name: name of the column.
        kind: ``"number"``, ``"date"``, ``"nominal"`` or ``"text"``.
        pattern: pattern of dates, for Java's SimpleDateFormat.
    """

    name: str
    kind: str
    pattern: str = ""


def read_arff(text: str, *, is_sparse: bool) -> tuple[list[Attribute], Callable[[int], list[str | None]]]:
    """Return the columns of an ARFF file, and a function that returns the values of one as texts, None if missing.

    Raises:
        ValueError: the file is malformed.
    """
    # Not splitlines(), which also splits at characters that texts may contain.
    lines, kinds = text.replace("\r\n", "\n").split("\n"), list[tuple[str, str]]()
    # liac-arff rounds numbers to float64 and lacks dates, so declare these as texts.
    for number, line in enumerate(lines):
        if line.lstrip().lower().startswith("@data"):
            break
        match = _HEADER.match(line)
        if match is None:
            if line.lstrip().lower().startswith("@attribute"):
                kinds.append(("nominal", ""))
            continue
        type_ = match["type"].lower()
        kinds.append(
            ("number" if type_ in _NUMBERS else type_ if type_ == "date" else "text", match["rest"].strip().strip("'\""))
        )
        if type_ in (*_NUMBERS, "date"):
            lines[number] = match["start"] + "STRING"
    try:
        loaded = arff.loads("\n".join(lines), return_type=arff.LOD if is_sparse else arff.DENSE)
    except arff.ArffException as error:
        raise ValueError(str(error)) from error
    attributes = [Attribute(name, *kind) for (name, _), kind in zip(loaded["attributes"], kinds, strict=True)]
    omitted = [
        type_[0] if isinstance(type_, list) else None if attribute.kind == "date" else "0"
        for attribute, (_, type_) in zip(attributes, loaded["attributes"], strict=True)
    ]

    def values(position: int) -> list[str | None]:
        rows = loaded["data"]
        return [row.get(position, omitted[position]) for row in rows] if is_sparse else [row[position] for row in rows]

    return attributes, values


def column_of(attribute: Attribute, values: Sequence[str | None]) -> pa.Array:
    """Convert texts to numbers or dates, by the kind of the column.

    Numbers become float64, missing ones NaN. If float64 cannot hold an integer exactly, the column becomes int64 or uint64, with
    None for missing values; if it also has fractions or larger integers, it stays text. Dates become timestamps in microseconds;
    if strptime cannot parse their pattern, they stay text.

    Raises:
        ValueError: a number or date is malformed.
    """
    if attribute.kind == "number":
        return _numbers(values)
    pattern = _strptime(attribute.pattern or _ISO) if attribute.kind == "date" else None
    if pattern is None:
        return pa.array(values, pa.string())
    dates = [None if value is None else datetime.strptime(value, pattern) for value in values]
    return pa.array(dates, pa.timestamp("us", "UTC" if "%z" in pattern else None))


def codes_of(values: Sequence[str | None], categories: Sequence[str]) -> pa.Array:
    """Return the positions of values in ``categories``, -1 for missing values.

    Raises:
        ValueError: a value is not a category.
    """
    codes: dict[str | None, int] = {None: -1, **{category: code for code, category in enumerate(categories)}}
    unknown = next((value for value in values if value not in codes), None)
    if unknown is not None:
        raise ValueError(f"unknown class {unknown!r:.60}, which OpenML does not list")
    return pa.array([codes[value] for value in values], pa.int64())


def _numbers(values: Sequence[str | None]) -> pa.Array:
    floats = [math.nan if value is None else float(value) for value in values]
    # Integers of up to 15 digits are exact in float64.
    integers = [value is not None and len(value) > 15 and _is_integer(value) for value in values]
    if all(not is_long or _is_exact(value, number) for value, number, is_long in zip(values, floats, integers, strict=True)):
        return pa.array(floats, pa.float64())
    if all(value is None or _is_integer(value) for value in values):
        exact = [None if value is None else int(value) for value in values]
        for kind in (pa.int64(), pa.uint64()):
            try:
                return pa.array(exact, kind)
            except (pa.ArrowInvalid, OverflowError):
                continue
    return pa.array(values, pa.string())


def _is_integer(text: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]+", text) is not None


def _is_exact(text: str | None, number: float) -> bool:
    return math.isfinite(number) and text is not None and int(number) == int(text)


def _strptime(pattern: str) -> str | None:
    """Convert a pattern of SimpleDateFormat to one of strptime; None if there is no equivalent."""
    parts: list[Any] = []
    position = 0
    for match in _PATTERN.finditer(pattern):
        if match.start() != position:
            return None
        position = match.end()
        if match[1] is not None:
            parts.append((match[1].replace("''", "'") or "'").replace("%", "%%"))
        else:
            parts.append(_DATE_PARTS.get(match[0]) if match[2] else match[0].replace("%", "%%"))
    return "".join(parts) if position == len(pattern) and None not in parts else None

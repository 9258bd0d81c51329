"""Columns of ARFF files (https://waikato.github.io/weka-wiki/formats_and_processing/arff_stable), with exact values."""

from __future__ import annotations

import codecs
import contextlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import arff
import pyarrow as pa

_HEADER: Final = re.compile(
    r"""^(?P<start>\s*@attribute\s+(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s'"{},%]+)\s+)(?P<type>[^\s{]\S*)""",
    re.IGNORECASE,
)
_NUMBERS: Final = ("numeric", "real", "integer")
#: What Windows calls Latin-1: a byte of 0x80 to 0x9F is a letter or mark, where Latin-1 has a control character.
_WINDOWS_LATIN: Final = "cp1252"


@dataclass(frozen=True)
class Attribute:
    """A column of an ARFF file.

    Attributes:
        name: name of the column.
        kind: ``"number"``, ``"nominal"`` or ``"text"``.
    """

    name: str
    kind: str


def decode_arff(data: bytes) -> tuple[str, str]:
    """Return the text of an ARFF file without its byte order mark, and its encoding.

    ARFF files do not name their encoding. A text that is UTF-8 by chance is hardly ever one in another encoding; other files of
    OpenML are in Latin-1, as far as they were reported.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16"), "utf-16"
    for encoding in ("utf-8-sig", _WINDOWS_LATIN):
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode(encoding), encoding
    return data.decode("latin-1"), "latin-1"


def _without_comment(line: str) -> str:
    """A line of the header without the comment behind a blank, as ``@attribute y {-1,1} % {<=50K, >50K}``.

    Each character is looked at once: a regular expression would take quadratic time for hostile quotes.
    """
    if "%" not in line:
        return line
    quote = ""
    is_in_braces = False
    is_escaped = False
    before = ""
    for position, mark in enumerate(line):
        if is_escaped:
            is_escaped = False
        elif quote:
            is_escaped = mark == "\\"
            if mark == quote:
                quote = ""
        elif mark in "'\"":
            quote = mark
        elif mark in "{}":
            is_in_braces = mark == "{"
        elif mark == "%" and before.isspace() and not is_in_braces:
            return line[:position].rstrip()
        before = mark
    return line


def read_arff(
    text: str, *, is_sparse: bool
) -> tuple[list[Attribute], Callable[[int], list[str | None]]]:
    """Return the columns of an ARFF file, and a function that returns the values of one as texts, None if missing.

    Raises:
        ValueError: the file is malformed.
    """
    # Not splitlines(), which also splits at characters that texts may contain.
    lines, kinds = text.replace("\r\n", "\n").split("\n"), list[str]()
    # liac-arff rounds numbers to float64 and lacks dates, so declare these as texts.
    for number, written in enumerate(lines):
        line = written
        if line.lstrip().startswith("@"):
            line = lines[number] = _without_comment(written)
        if line.lstrip().lower().startswith("@data"):
            break
        if (match := _HEADER.match(line)) is not None:
            type_ = match["type"].lower()
            kinds.append("number" if type_ in _NUMBERS else "text")
            if type_ in (*_NUMBERS, "date"):
                lines[number] = match["start"] + "STRING"
        elif line.lstrip().lower().startswith("@attribute"):
            kinds.append("nominal")
    try:
        loaded = arff.loads("\n".join(lines), return_type=arff.LOD if is_sparse else arff.DENSE)
    except arff.ArffException as error:
        raise ValueError(str(error)) from error
    attributes = [
        Attribute(name, kind) for (name, _), kind in zip(loaded["attributes"], kinds, strict=True)
    ]
    omitted = [type_[0] if isinstance(type_, list) else "0" for _, type_ in loaded["attributes"]]

    def values(position: int) -> list[str | None]:
        rows = loaded["data"]
        return (
            [row.get(position, omitted[position]) for row in rows]
            if is_sparse
            else [row[position] for row in rows]
        )

    return attributes, values


def column_of(attribute: Attribute, values: Sequence[str | None]) -> pa.Array:
    """Convert texts to numbers, if the column has these; dates stay texts.

    Numbers become float64, missing ones NaN. If float64 cannot hold an integer exactly, the column becomes int64 or uint64, with
    None for missing values; if it also has fractions or larger integers, it stays text.

    Raises:
        ValueError: a number is malformed.
    """
    return _numbers(values) if attribute.kind == "number" else pa.array(values, pa.string())


def codes_of(values: Sequence[str | None], categories: Sequence[str]) -> pa.Array:
    """Return the positions of values in ``categories``, -1 for missing values.

    Raises:
        ValueError: a value is not a category.
    """
    codes: dict[str | None, int] = {
        None: -1,
        **{category: code for code, category in enumerate(categories)},
    }
    unknown = next((value for value in values if value not in codes), None)
    if unknown is not None:
        raise ValueError(f"unknown class {unknown!r:.60}, which OpenML does not list")
    return pa.array([codes[value] for value in values], pa.int64())


def _numbers(values: Sequence[str | None]) -> pa.Array:
    floats = [math.nan if value is None else float(value) for value in values]
    # Integers of up to 15 digits are exact in float64.
    integers = [value is not None and len(value) > 15 and _is_integer(value) for value in values]
    if all(
        not is_long or _is_exact(value, number)
        for value, number, is_long in zip(values, floats, integers, strict=True)
    ):
        return pa.array(floats, pa.float64())
    if all(value is None or _is_integer(value) for value in values):
        exact = [None if value is None else int(value) for value in values]
        for kind in (pa.int64(), pa.uint64()):
            with contextlib.suppress(pa.ArrowInvalid, OverflowError):
                return pa.array(exact, kind)
    return pa.array(values, pa.string())


def _is_integer(text: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]+", text) is not None


def _is_exact(text: str | None, number: float) -> bool:
    return math.isfinite(number) and text is not None and int(number) == int(text)

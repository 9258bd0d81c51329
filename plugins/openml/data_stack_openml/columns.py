"""Columns of ARFF files (https://waikato.github.io/weka-wiki/formats_and_processing/arff_stable), with exact values."""

from __future__ import annotations

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


@dataclass(frozen=True)
class Attribute:
    """A column of an ARFF file.

    Attributes:
        name: name of the column.
        kind: ``"number"``, ``"nominal"`` or ``"text"``.
    """

    name: str
    kind: str


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
    for number, line in enumerate(lines):
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

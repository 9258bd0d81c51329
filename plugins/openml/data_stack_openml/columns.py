"""Converts the texts of ARFF files to columns of Arrow, with exact values."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from data_stack_openml.arff_file import Attribute

#: Integers of so many digits are exact in float64.
_EXACT_DIGITS: Final = 15


def column_of(attribute: Attribute, values: Sequence[str | None]) -> pa.Array:
    """Convert texts to numbers, if the column has these; dates stay texts.

    Numbers become float64, missing ones NaN. If float64 cannot hold an integer exactly, the column
    becomes int64 or uint64, with None for missing values; if it also has fractions or larger
    integers, it stays text.

    Raises:
        ValueError: a number is malformed.
    """
    if attribute.kind != "number":
        return pa.array(values, pa.string())

    floats = [math.nan if value is None else float(value) for value in values]
    if _are_exact(values, floats):
        return pa.array(floats, pa.float64())

    if all(value is None or _is_integer(value) for value in values):
        integers = [None if value is None else int(value) for value in values]
        for integer_type in (pa.int64(), pa.uint64()):
            with contextlib.suppress(pa.ArrowInvalid, OverflowError):
                return pa.array(integers, integer_type)
    return pa.array(values, pa.string())


def codes_of(values: Sequence[str | None], categories: Sequence[str]) -> pa.Array:
    """Return the positions of values in ``categories``, -1 for missing values.

    Raises:
        ValueError: a value is not a category.
    """
    code_of_category = {category: code for code, category in enumerate(categories)}
    codes = []
    for value in values:
        if value is None:
            codes.append(-1)
        elif value in code_of_category:
            codes.append(code_of_category[value])
        else:
            raise ValueError(f"unknown class {value!r:.60}, which OpenML does not list")
    return pa.array(codes, pa.int64())


def _are_exact(values: Sequence[str | None], floats: Sequence[float]) -> bool:
    """Return whether float64 holds all integers of a column exactly."""
    for text, number in zip(values, floats, strict=True):
        if not _is_exact(text, number):
            return False
    return True


def _is_exact(text: str | None, number: float) -> bool:
    """Return whether a number is that of its text, as far as the text is an integer."""
    if text is None or len(text) <= _EXACT_DIGITS or not _is_integer(text):
        return True
    return math.isfinite(number) and int(number) == int(text)


def _is_integer(text: str) -> bool:
    """Return whether a text is an integer, of any number of digits."""
    return re.fullmatch(r"[+-]?[0-9]+", text) is not None

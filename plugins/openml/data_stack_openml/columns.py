"""Converts the texts of ARFF files to columns of Arrow, with exact values."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from data_stack.values.text_numbers import float_of, integer_of
from data_stack_openml.arff_file import Attribute

#: A number, of any size. Python's own notations, such as ``1_000``, are none.
_NUMBER: Final = re.compile(r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*")


def column_of(attribute: Attribute, values: Sequence[str | None]) -> pa.Array:
    """Convert the texts of a column to the first of these types that holds all of them exactly.

    1. Columns of texts, dates and categories are strings.
    2. Numbers are float64, and missing numbers are NaN. Fractions are rounded as everywhere.
    3. Integers that float64 would round are int64 or uint64, and missing numbers are None.
    4. Other numbers, such as ``1e400`` or an integer of 30 digits, stay strings.

    Args:
        attribute: the declaration of the column.
        values: the texts of the column; None if missing.

    Raises:
        ValueError: a text in a column of numbers is not a number.
    """
    if attribute.kind != "number":
        return pa.array(values, pa.string())

    floats = _as_floats(values)
    if floats is not None:
        return pa.array(floats, pa.float64())
    integers = _as_integers(values)
    if integers is not None:
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


def _as_floats(values: Sequence[str | None]) -> list[float] | None:
    """Return numbers as floats, NaN if missing; None if float64 lacks one of them.

    Raises:
        ValueError: a text is not a number.
    """
    floats = []
    for text in values:
        number = math.nan if text is None else float_of(text)
        if number is not None:
            floats.append(number)
        elif text is not None and _NUMBER.fullmatch(text) is None:
            raise ValueError(f"{text!r:.60} is not a number")
    has_all = len(floats) == len(values)
    return floats if has_all else None


def _as_integers(values: Sequence[str | None]) -> list[int | None] | None:
    """Return numbers as integers, None if missing.

    Returns:
        None if a number has a fraction or an exponent, or does not fit into 64 bits.
    """
    integers: list[int | None] = []
    for text in values:
        integer = None if text is None else integer_of(text)
        if text is not None and integer is None:
            return None
        integers.append(integer)
    return integers

"""Reads the numbers in the cells of CSV files, exactly or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np

from data_stack.values.text_numbers import float_of, integer_of

#: Integers beyond this one are not read from a float, which may have rounded them.
_MAX_EXACT_INTEGER = 1 << 53

#: How files write truth values, in small or capital letters.
_TRUTH_VALUES = {"0": False, "1": True, "false": False, "true": True}


def number_of(text: str, dtype: np.dtype[Any]) -> float:
    """Return the number of a dtype that a text says.

    Raises:
        ValueError, KeyError or OverflowError: the text is no number, or one that the dtype lacks.
    """
    if dtype.kind == "b":
        return _TRUTH_VALUES[text.strip().lower()]
    if dtype.kind == "f":
        return _float(text, dtype)
    integer = integer_of(text)
    if integer is None:
        integer = _integer_of_float(text)
    limits = np.iinfo(dtype)
    if not limits.min <= integer <= limits.max:
        raise OverflowError(text)
    return integer


def _integer_of_float(text: str) -> int:
    """Return the integer that a text writes as a float, such as ``5.0`` or ``5e0``.

    Many programs write integers in this way.

    Raises:
        ValueError or OverflowError: the text is no integer, or float64 may have rounded it.
    """
    number = float_of(text)
    if number is None:
        raise ValueError(text)
    integer = int(number)
    if integer != number or abs(integer) > _MAX_EXACT_INTEGER:
        raise ValueError(text)
    return integer


def _float(text: str, dtype: np.dtype[Any]) -> float:
    """Return the number that a text says; fractions are rounded to the dtype.

    Raises:
        ValueError: the text is no number.
        OverflowError: the number is out of range, or an integer that the dtype lacks.
    """
    number = float_of(text)
    if number is None:
        raise ValueError(text)
    if dtype.itemsize >= 8 or not np.isfinite(number):
        return number
    with np.errstate(over="ignore", under="ignore"):
        narrow = float(dtype.type(number))
    is_out_of_range = np.isinf(narrow) or (narrow == 0 and number != 0)
    is_changed_integer = number.is_integer() and narrow != number
    if is_out_of_range or is_changed_integer:
        raise OverflowError(text)
    return number

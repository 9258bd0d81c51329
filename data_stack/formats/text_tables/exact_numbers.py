"""Checks that numbers of Arrow are what their texts say."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from data_stack.values.text_numbers import float_of

#: Exponents of numbers that float64 may round to 0. There are two patterns, as one that begins
#: with a given letter is searched ten times as fast as one with alternatives.
_TINY: Final = (re.compile(rb"e-[0-9]{3}"), re.compile(rb"E-[0-9]{3}"))

#: The digits of a number without an exponent that float64 may round to 0.
_ZEROS: Final = b"0" * 100

#: The smallest number from which on float64 lacks some integers.
FIRST_INEXACT: Final = float(1 << 53)


def has_tiny_numbers(text: bytes) -> bool:
    """Return whether a text may hold numbers that float64 rounds to 0."""
    return _ZEROS in text or any(pattern.search(text) is not None for pattern in _TINY)


def floats_are_exact(numbers: pa.ChunkedArray, trimmed: pa.ChunkedArray) -> bool:
    """Return whether floats are what their texts say, apart from the rounding of fractions.

    Args:
        numbers: the floats, float64.
        trimmed: their texts, without spaces around them.
    """
    are_integers = pc.match_substring_regex(trimmed, "^[+-]?[0-9]{16,}$")
    are_large = pc.and_(are_integers, pc.greater_equal(pc.abs(numbers), FIRST_INEXACT))
    are_extreme = pc.or_(pc.is_inf(numbers), pc.equal(numbers, 0.0))
    # Python's exact parser is slow, so it looks only at texts that float64 may have changed.
    doubtful_texts = pc.unique(trimmed.filter(pc.or_(are_large, are_extreme)))
    return all(float_of(text) is not None for text in doubtful_texts.to_pylist())


def decimals_are_exact(decimals: Any, texts: Any) -> bool:
    """Return whether decimals are what their texts say.

    pyarrow reads some small numbers with an exponent as 0, such as ``5e-324``.

    Args:
        decimals: the texts as pyarrow reads them.
        texts: the texts.
    """
    have_exponent = pc.match_substring_regex(texts, "[eE]")
    doubtful_texts = texts.filter(have_exponent).to_pylist()
    doubtful_decimals = decimals.filter(have_exponent).to_pylist()
    for text, decimal in zip(doubtful_texts, doubtful_decimals, strict=True):
        if Decimal(text) != decimal:
            return False
    return True


def narrow_floats(doubles: Any, type_: pa.DataType) -> Any:
    """Return floats of 16 or 32 bits; fractions are rounded.

    Args:
        doubles: the floats, float64.
        type_: float16 or float32.

    Returns:
        The floats; None if a number is out of range, or is an integer that the type lacks.
    """
    narrow = doubles.cast(type_, safe=False)
    widened = narrow.cast(pa.float64())
    # A number that is changed is lost, unless it is a fraction that was rounded within the range.
    is_changed = pc.not_equal(widened, doubles)
    is_integer = pc.equal(pc.floor(doubles), doubles)
    is_out_of_range = pc.or_(pc.is_inf(widened), pc.equal(widened, 0.0))
    is_lost = pc.and_(is_changed, pc.or_(is_integer, is_out_of_range))
    if pc.any(is_lost).as_py():
        return None
    return narrow

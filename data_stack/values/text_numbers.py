"""Which texts are numbers, by one rule for all text tables.

The rule is that of pyarrow's CSV reader, with one addition: a text whose number would differ from
what it says is not a number.

- An integer is ``-?[0-9]+``.
- Another number has a plus sign, a fraction or an exponent (``+5``, ``.5``, ``5.``, ``1e3``), or is
  ``nan``, ``inf`` or ``infinity`` with any case and sign.
- Spaces and tabs around a number are ignored. Underscores, digits of other scripts and hexadecimal
  numbers are text.
- ``1e400`` and ``1e-400`` are text, because float64 has no such numbers; so are integers that
  float64 cannot hold exactly, where they would become floats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Final

_INTEGER: Final = re.compile(r"[ \t]*(-?[0-9]+)[ \t]*")
_INTEGER_WITH_SIGN: Final = re.compile(r"[ \t]*([+-]?[0-9]+)[ \t]*")
_FLOAT: Final = re.compile(
    r"""[ \t]*
        (
            [+-]? (?: [0-9]+\.?[0-9]* | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )?
            | [+-]? (?: nan | inf | infinity )
        )
        [ \t]*""",
    re.IGNORECASE | re.VERBOSE,
)

#: Smaller integers are floats exactly.
_MAX_EXACT: Final = 1 << 53

#: No integer of 64 bits has more digits, apart from leading zeros.
_MAX_DIGITS: Final = 20

_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1
_MAX_UINT64: Final = (1 << 64) - 1


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    return integer_of(text) is not None or float_of(text) is not None


def integer_of(text: str) -> int | None:
    """Return the integer that a text says, with or without a sign.

    Returns:
        The integer; None if the text says none, or neither int64 nor uint64 holds it.
    """
    return _parse_integer(text, _INTEGER_WITH_SIGN)


def float_of(text: str) -> float | None:
    """Return the float that a text says.

    Fractions are rounded to the nearest float64, as everywhere. Integers are not rounded.

    Returns:
        The float; None if the text is not a number, or float64 has no such number.
    """
    match = _FLOAT.fullmatch(text)
    if match is None:
        return None
    digits = match[1]
    number = float(digits)
    if math.isnan(number):
        return number
    if math.isinf(number):
        is_written_as_infinity = digits.lower().endswith(("inf", "infinity"))
        return number if is_written_as_infinity else None
    if number == 0 and not _says_zero(digits):
        return None
    is_large_integer = abs(number) >= _MAX_EXACT and digits.lstrip("+-").isdigit()
    if is_large_integer and Decimal(digits) != Decimal(number):
        return None
    return number


def decimal_of(text: str) -> Decimal | None:
    """Return the decimal that a text says, with all of its digits.

    Returns:
        The decimal; None if the text is not a finite number, or its exponent is too large.
    """
    match = _FLOAT.fullmatch(text)
    if match is None:
        return None
    try:
        number = Decimal(match[1])
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def parse_exact_float(text: str) -> float:
    """Return the number of a text.

    Raises:
        ValueError: float64 lacks the number.
    """
    number = float_of(text)
    if number is None:
        raise ValueError(f"float64 has no number {text:.60}")
    return number


def numbers_of(texts: Sequence[str]) -> list[int] | list[float] | None:
    """Return the numbers that all texts say.

    Returns:
        Integers if all are, all of int64 or all of uint64. Otherwise floats, if float64 holds each
        integer exactly. None if a text is not a number.
    """
    integers = _parse_integers(texts)
    if integers is not None:
        return integers
    floats = []
    for text in texts:
        number = float_of(text)
        if number is None:
            return None
        floats.append(number)
    return floats


def _parse_integers(texts: Iterable[str]) -> list[int] | None:
    """Return integers of one type; None if a text says none, or they are of two types."""
    integers = []
    for text in texts:
        number = _parse_integer(text, _INTEGER)
        if number is None:
            return None
        integers.append(number)
    if integers and max(integers) > _MAX_INT64 and min(integers) < 0:
        return None
    return integers


def _parse_integer(text: str, pattern: re.Pattern[str]) -> int | None:
    match = pattern.fullmatch(text)
    if match is None:
        return None
    # int() takes quadratic time for a text of many digits.
    n_digits = len(match[1].lstrip("+-").lstrip("0"))
    if n_digits > _MAX_DIGITS:
        return None
    number = int(match[1])
    return number if _MIN_INT64 <= number <= _MAX_UINT64 else None


def _says_zero(digits: str) -> bool:
    """Return whether a number is 0 as it is written, not because it was rounded."""
    mantissa = re.split("[eE]", digits, maxsplit=1)[0]
    return not mantissa.strip("+-.0")

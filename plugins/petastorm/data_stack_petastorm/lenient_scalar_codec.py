"""Scalars as Petastorm's programs write them: numbers of any type that fit, text for bytes."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, Final

import numpy as np

from data_stack.formats.parquet import ScalarCodec
from data_stack.formats.parquet.types import FieldLike

#: The types of real numbers. Python's bool is an int; numpy's is a class of its own.
_NUMBER_TYPES: Final = (int, float, Decimal, np.integer, np.floating, np.bool_)


class LenientScalarCodec(ScalarCodec):
    """A ScalarCodec that accepts numbers of other types, rounds floats, and encodes text for bytes.

    A dataset stores it as a ScalarCodec. A LenientScalarCodec equals the ScalarCodec of its type.
    """

    def encode(self, field: FieldLike, value: Any) -> Any:
        if isinstance(field.dtype, np.dtype):
            value = _fit_value(field.dtype, value)
        return super().encode(field, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScalarCodec) and other.to_json() == self.to_json()

    def __hash__(self) -> int:
        return hash(ScalarCodec(self.type))


def scalar_of(value: Any) -> Any:
    """Return the scalar in an array of shape ``()``; return other values unchanged."""
    if isinstance(value, np.ndarray) and value.shape == ():
        return value[()]
    return value


def fit_number(dtype: np.dtype[Any], value: Any) -> bool | int | float:
    """Convert a number to a bool, int or float of Python that fits into a dtype.

    A float may have more digits than the dtype; the column rounds it.

    Args:
        dtype: a dtype of bools, integers or floats.
        value: the number, of any type.

    Raises:
        ValueError: the value is not a real number, or is out of the range of the dtype; or it is a
            fraction, and the dtype is one of integers.
    """
    # numpy derives timedelta64 from its integers.
    is_number = isinstance(value, _NUMBER_TYPES) and not isinstance(value, np.timedelta64)
    if not is_number:
        raise ValueError(f"expected a number, got {type(value).__name__} {value!r:.40}")
    if dtype.kind == "f":
        return _fit_float(dtype, value)
    if dtype.kind == "b":
        return bool(_fit_integer(dtype, value, smallest=0, largest=1))
    limits = np.iinfo(dtype)
    return _fit_integer(dtype, value, smallest=int(limits.min), largest=int(limits.max))


def _fit_value(dtype: np.dtype[Any], value: Any) -> Any:
    """Return a value of a field as one that :class:`ScalarCodec` accepts."""
    scalar = scalar_of(value)
    if dtype.kind in "biuf":
        return fit_number(dtype, scalar)
    if dtype.kind == "S" and isinstance(scalar, str):
        return scalar.encode("utf-8")
    return scalar


def _fit_float(dtype: np.dtype[Any], value: Any) -> float:
    """Convert a number to a float. Integers must fit exactly, other numbers may be rounded.

    Raises:
        ValueError: the number is too large, or an integer that float64 does not hold.
    """
    try:
        number = float(value)
    except OverflowError as error:  # an int of hundreds of digits
        raise ValueError(f"{value!r:.40} does not fit into {dtype}") from error
    with np.errstate(over="ignore"):
        rounded = float(dtype.type(number))
    # float() makes infinity of a large Decimal, and the dtype of a large float.
    overflows = math.isinf(rounded) and value != rounded
    is_integer = isinstance(value, (int, np.integer))
    if overflows or (is_integer and int(number) != value):
        raise ValueError(f"{value!r:.40} does not fit into {dtype}")
    return number


def _fit_integer(dtype: np.dtype[Any], value: Any, *, smallest: int, largest: int) -> int:
    """Convert a whole number in a range to an int.

    Raises:
        ValueError: the number is a fraction, infinite, NaN, or out of the range.
    """
    # isfinite() makes a float of its argument, which fails for an int of hundreds of digits.
    is_finite = isinstance(value, (int, np.integer)) or math.isfinite(value)
    is_whole = is_finite and int(value) == value
    if not is_whole or not smallest <= value <= largest:
        raise ValueError(f"{value!r:.40} does not fit into {dtype}: a fraction, or out of range")
    return int(value)
